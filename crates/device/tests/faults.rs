//! Promise: injected faults show as a real member's would, and stop at the member they are for.

mod common;

use common::{Buffer, Caller, byte_at, everywhere, file, gather};
use lapstrake_device::{Access, Faults, IoVec, Member, MemberSpec, Op, Queue};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn members(dir: &Path, spec: &str) -> Vec<Arc<Member>> {
    let faults = Faults::parse(spec).unwrap();
    let open = |index: usize| {
        let path = file(dir, &format!("m{index}"), 1 << 20);
        let member = Member::open(&MemberSpec::whole(path), Access::ReadWrite).unwrap();
        Arc::new(member.with_faults(faults.layers(index)))
    };
    (0..2).map(open).collect()
}

#[test]
fn the_nth_write_fails_and_writes_nothing() {
    everywhere(|dir, backend| {
        let mut caller =
            Caller::new(members(dir, "member=1,op=write,after=1,errno=ENOSPC"), backend);
        assert_eq!(caller.write(1, 0, &[1; 512], false), 512);
        assert_eq!(caller.write(1, 512, &[1; 512], false), -libc::ENOSPC);
        assert_eq!(caller.write(0, 512, &[1; 512], false), 512);
        assert_eq!(caller.read(1, 0, 1024).unwrap()[511..513], [1, byte_at(512)]);
    });
}

#[test]
fn a_torn_write_leaves_its_beginning() {
    everywhere(|dir, backend| {
        let mut caller = Caller::new(members(dir, "op=write,torn=1536,count=1"), backend);
        let mut buffer = Buffer::new(4096, 6);
        let ptr = buffer.iov().ptr;
        let iov = [0, 1024, 2048, 3072].map(|at| IoVec::new(ptr.wrapping_add(at), 1024));
        let torn = caller.call(Op::Write { member: 0, offset: 0, iov: &iov, fua: false });
        assert_eq!(torn, -libc::EIO);
        let read = caller.read(0, 0, 4096).unwrap();
        assert!((0..4096).all(|i| read[i] == if i < 1536 { 6 } else { byte_at(i) }));
    });
}

#[test]
fn a_delayed_operation_lets_others_pass() {
    everywhere(|dir, backend| {
        let delay = Duration::from_millis(30);
        let mut queue =
            Queue::new(members(dir, "member=0,op=flush,delay=30ms"), backend, 8).unwrap();
        let start = Instant::now();
        let mut buffer = Buffer::new(512, 0);
        let iov = [buffer.iov()];
        // SAFETY: the buffer lives until the completion.
        unsafe {
            queue.submit(1, Op::Flush { member: 0 });
            queue.submit(2, Op::Read { member: 1, offset: 0, iov: &iov });
        }
        let done = gather(&mut queue, 1);
        assert_eq!(done[0].token, 2);
        let done = gather(&mut queue, 1);
        assert_eq!((done[0].token, done[0].result), (1, 0));
        assert!(start.elapsed() >= delay);
    });
}

/// What would be lost: the system tells of a failed flush once. Another shard's flush, which then succeeds,
/// would vouch for what is gone (the simulation, seed 19563).
#[test]
fn after_a_flush_that_failed_none_succeeds() {
    everywhere(|dir, backend| {
        let members = members(dir, "member=0,op=flush,errno=EIO,count=1");
        let (mut one, mut other) =
            (Caller::new(members.clone(), backend), Caller::new(members.clone(), backend));
        assert_eq!(one.call(Op::Flush { member: 0 }), -libc::EIO);
        assert_eq!(other.call(Op::Flush { member: 0 }), -libc::EIO);
        assert_eq!(members[0].sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(other.call(Op::Flush { member: 1 }), 0);
        assert!(one.read(0, 0, 512).is_ok(), "what it has can still be read");
    });
}

#[test]
fn a_vanished_member_fails_metadata_too() {
    everywhere(|dir, backend| {
        let members = members(dir, "member=0,op=read,after=2,vanish");
        let mut caller = Caller::new(members.clone(), backend);
        assert!(caller.read(0, 0, 512).is_ok());
        assert!(members[0].read_at(0, &mut [0; 4]).is_ok());
        assert_eq!(caller.read(0, 0, 512), Err(-libc::ENODEV));
        assert_eq!(caller.write(0, 0, &[0; 512], false), -libc::ENODEV);
        assert_eq!(caller.call(Op::Flush { member: 0 }), -libc::ENODEV);
        let error = members[0].write_at(0, &[0]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(caller.read(1, 0, 512).is_ok());
    });
}
