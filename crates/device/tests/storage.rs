//! Promise: every storage operation does the same on both back ends, in memory and on disk.

mod common;

use common::{Buffer, Caller, byte_at, everywhere, file, gather, open, places};
use lapstrake_device::{Access, Backend, IoVec, Member, MemberSpec, Op, OpenError, Queue};
use std::sync::Arc;

const MIB: usize = 1 << 20;

#[test]
fn bytes_go_where_they_belong_in_a_window() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", 2 * MIB);
        let member = open(&format!("{}@512K+1M", path.display()));
        assert_eq!(member.size(), MIB as u64);
        let mut caller = Caller::new([member], backend);
        let read = caller.read(0, 4096, 8192).unwrap();
        assert!((0..8192).all(|i| read[i] == byte_at(512 * 1024 + 4096 + i)));
        assert_eq!(caller.write(0, MIB as u64 - 512, &[7; 512], false), 512);
        assert_eq!(caller.write(0, 0, &[9; 1024], true), 1024);
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        let whole = std::fs::read(&path).unwrap();
        let expected = |i| match i {
            0x80000..0x80400 => 9,
            0x17fe00..0x180000 => 7,
            _ => byte_at(i),
        };
        assert!((0..2 * MIB).all(|i| whole[i] == expected(i)));
    });
}

#[test]
fn what_has_ended_at_once_can_be_taken_without_a_wait() {
    for backend in common::backends() {
        let mut queue = Queue::new([Arc::new(Member::memory(8192))], backend, 8).unwrap();
        let (mut first, mut second) = (Buffer::new(4096, 1), Buffer::new(4096, 2));
        let mut done = Vec::new();
        assert!(!queue.take_ready(&mut done));
        // SAFETY: the buffers live until the completions.
        unsafe {
            let iov = &[first.iov()];
            queue.submit(1, Op::Write { member: 0, offset: 4096, iov, fua: false });
            queue.submit(2, Op::Read { member: 0, offset: 4096, iov: &[second.iov()] });
        }
        assert!(queue.take_ready(&mut done));
        let done: Vec<_> = done.iter().map(|it| (it.token, it.result)).collect();
        assert_eq!(done, [(1, 4096), (2, 4096)]);
        assert_eq!(second.bytes(), first.bytes());
        assert_eq!(queue.in_flight(), 0);
    }
}

#[test]
fn nothing_outside_the_window_is_reached() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", MIB);
        let mut caller = Caller::new([open(&format!("{}@4K+8K", path.display()))], backend);
        let past = [(8192, 512), (7680, 1024), (u64::MAX - 511, 512), (1 << 62, 512)];
        for (offset, len) in past {
            assert_eq!(caller.read(0, offset, len), Err(-libc::EINVAL));
            assert_eq!(caller.write(0, offset, &vec![1; len], false), -libc::EINVAL);
            let (member, len) = (0, len as u64);
            assert_eq!(caller.call(Op::Discard { member, offset, len }), -libc::EINVAL);
            let zero = Op::WriteZeroes { member, offset, len, may_unmap: true };
            assert_eq!(caller.call(zero), -libc::EINVAL);
        }
        assert_eq!(caller.read(1, 0, 512), Err(-libc::ENODEV));
        assert_eq!(caller.read(0, 0, 0), Ok(vec![]));
    });
}

#[test]
fn vectors_beyond_the_systems_limit_are_moved_whole() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", 2 * MIB);
        let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
        let mut from = Buffer::new(3000 * 512, 0);
        (0..3000 * 512).for_each(|i| from.bytes_mut()[i] = byte_at(i + 77));
        let pieces = |iov: IoVec| -> Vec<IoVec> {
            (0..3000).map(|i| IoVec::new(iov.ptr.wrapping_add(i * 512), 512)).collect()
        };
        let iov = pieces(from.iov());
        let write = Op::Write { member: 0, offset: 4096, iov: &iov, fua: false };
        assert_eq!(caller.call(write), 3000 * 512);
        let mut to = Buffer::new(3000 * 512, 0);
        let iov = pieces(to.iov());
        assert_eq!(caller.call(Op::Read { member: 0, offset: 4096, iov: &iov }), 3000 * 512);
        assert_eq!(to.bytes(), from.bytes());
    });
}

#[test]
fn memory_that_is_registered_holds_what_any_other_does() {
    const KIB: usize = 1 << 10;
    everywhere(|dir, backend| {
        let path = file(dir, "m", 2 * MIB);
        let mut memory = Buffer::new(MIB, 0);
        let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
        let start = memory.iov().ptr;
        let part = |at: usize, len: usize| IoVec::new(start.wrapping_add(at * KIB), len * KIB);
        // SAFETY: the buffer outlives the queue.
        let registered = unsafe { caller.queue.register(&[part(0, 256), part(256, 256)]) };
        if backend == Backend::IoUring && !registered {
            eprintln!("SKIPPED registered memory: the system refuses it");
        }
        // In each of the two, over both, over the end of the second, and in none.
        for (round, at) in [64, 320, 192, 448, 768].into_iter().enumerate() {
            memory.bytes_mut().fill(0);
            let offset = (round * 128 * KIB) as u64;
            let read = Op::Read { member: 0, offset, iov: &[part(at, 128)] };
            assert_eq!(caller.call(read), 128 << 10);
            let expected = |i: usize| match i.checked_sub(at * KIB) {
                Some(i) if i < 128 * KIB => byte_at(round * 128 * KIB + i),
                _ => 0,
            };
            assert!((0..MIB).all(|i| memory.bytes()[i] == expected(i)), "read at {at} KiB");
            let copy = MIB as u64 + offset;
            let write =
                Op::Write { member: 0, offset: copy, iov: &[part(at, 128)], fua: round % 2 == 0 };
            assert_eq!(caller.call(write), 128 << 10);
            let written = caller.read(0, copy, 128 * KIB).unwrap();
            assert!(written == memory.bytes()[at * KIB..][..128 * KIB], "written at {at} KiB");
        }
    });
}

#[test]
fn more_operations_than_the_queue_is_deep_all_complete() {
    everywhere(|dir, backend| {
        const COUNT: usize = 1000;
        let path = file(dir, "m", COUNT * 4096);
        let mut queue = Queue::new([open(path.to_str().unwrap())], backend, 8).unwrap();
        let mut buffer = Buffer::new(COUNT * 4096, 0);
        let iov = buffer.iov();
        for i in 0..COUNT {
            let iov = [IoVec::new(iov.ptr.wrapping_add(i * 4096), 4096)];
            let op = Op::Read { member: 0, offset: (i * 4096) as u64, iov: &iov };
            // SAFETY: the buffer lives until all completed.
            unsafe { queue.submit(i as u64, op) };
        }
        assert_eq!(queue.in_flight(), COUNT);
        let mut done = gather(&mut queue, COUNT);
        done.sort_by_key(|c| c.token);
        assert!(done.iter().enumerate().all(|(i, c)| c.token == i as u64 && c.result == 4096));
        assert!((0..COUNT * 4096).all(|i| buffer.bytes()[i] == byte_at(i)));
        assert_eq!(queue.in_flight(), 0);
    });
}

#[test]
fn a_file_cut_short_is_an_error_not_zeroes() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", MIB);
        let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
        let cut = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        cut.set_len(6 * 4096).unwrap();
        assert_eq!(caller.read(0, 4 * 4096, 4 * 4096), Err(-libc::EIO));
        // Made longer by a write, it would read as zeroes where it was cut.
        let zero = Op::WriteZeroes { member: 0, offset: 12 * 4096, len: 4096, may_unmap: false };
        assert_eq!(caller.call(zero), -libc::ENXIO);
        assert_eq!(caller.read(0, 8 * 4096, 4096), Err(-libc::ENXIO));
        assert_eq!(caller.call(Op::Flush { member: 0 }), -libc::ENXIO);
        assert_eq!(cut.metadata().unwrap().len(), 6 * 4096);
    });
}

#[test]
fn a_file_cut_short_and_made_longer_meanwhile_is_an_error_not_zeroes() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", MIB);
        let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
        let cut = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        cut.set_len(6 * 4096).unwrap();
        // As a write does that was under way.
        cut.set_len(12 * 4096).unwrap();
        assert_eq!(caller.read(0, 8 * 4096, 4096), Err(-libc::EIO));
        assert_eq!(caller.read(0, 0, 4096), Err(-libc::ENXIO), "nothing of it is trusted");
    });
}

#[test]
fn a_file_cut_short_is_not_made_longer_by_a_write() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", MIB);
        let member = open(path.to_str().unwrap());
        let mut caller = Caller::new([member], backend);
        assert_eq!(caller.write(0, 0, &[1; 4096], false), 4096);
        let cut = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        cut.set_len(6 * 4096).unwrap();
        // To its very end, which would hide that it was cut.
        assert_eq!(caller.write(0, (MIB - 4096) as u64, &[2; 4096], false), -libc::ENXIO);
        assert_eq!(caller.read(0, 4096, 4096), Err(-libc::ENXIO), "nothing of it is trusted");
        assert_eq!(cut.metadata().unwrap().len(), 6 * 4096);
        drop(caller);
        let member = open(path.to_str().unwrap());
        cut.set_len(4096).unwrap();
        let refused = member.write_at(8192, &[3; 512]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENXIO), "metadata");
        assert_eq!(cut.metadata().unwrap().len(), 4096);
    });
}

#[test]
fn zeroes_are_read_after_write_zeroes() {
    everywhere(|dir, backend| {
        for (may_unmap, len) in [(true, 3 * MIB), (false, 3 * MIB), (true, 512), (false, 1536)] {
            let path = file(dir, "m", 4 * MIB);
            let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
            let zero = Op::WriteZeroes { member: 0, offset: 1024, len: len as u64, may_unmap };
            assert_eq!(caller.call(zero), 0);
            let whole = std::fs::read(&path).unwrap();
            let inside = 1024..1024 + len;
            let expected = |i| if inside.contains(&i) { 0 } else { byte_at(i) };
            assert!((0..4 * MIB).all(|i| whole[i] == expected(i)), "{may_unmap} {len}");
            drop(caller);
            std::fs::remove_file(path).unwrap();
        }
    });
}

#[test]
fn discard_gives_space_back_and_leaves_the_rest() {
    use std::os::unix::fs::MetadataExt;
    everywhere(|dir, backend| {
        let path = file(dir, "m", 4 * MIB);
        let before = std::fs::metadata(&path).unwrap();
        let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        let (member, offset, len) = (0, MIB as u64, 2 * MIB as u64);
        assert_eq!(caller.call(Op::Discard { member, offset, len }), 0);
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(after.len(), before.len());
        assert!(after.blocks() <= 2 * MIB as u64 / 512 + 64, "{} blocks", after.blocks());
        let read = caller.read(0, 3 * MIB as u64, MIB).unwrap();
        assert!((0..MIB).all(|i| read[i] == byte_at(3 * MIB + i)));
    });
}

#[test]
fn a_read_only_member_is_never_written() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", MIB);
        let spec = MemberSpec::whole(&path);
        let member = Arc::new(Member::open(&spec, Access::ReadOnly).unwrap());
        assert_eq!(member.write_at(0, &[1]).unwrap_err().raw_os_error(), Some(libc::EROFS));
        let mut caller = Caller::new([member], backend);
        assert!(caller.read(0, 0, 4096).is_ok());
        assert_eq!(caller.write(0, 0, &[1; 512], false), -libc::EROFS);
        let (member, offset, len) = (0, 0, 4096);
        assert_eq!(caller.call(Op::Discard { member, offset, len }), -libc::EROFS);
        let zero = Op::WriteZeroes { member, offset, len, may_unmap: false };
        assert_eq!(caller.call(zero), -libc::EROFS);
        assert_eq!(std::fs::read(&path).unwrap()[0], byte_at(0));
    });
}

#[test]
fn members_come_and_go_at_run_time() {
    everywhere(|dir, backend| {
        let [a, b] = ["a", "b"].map(|name| open(file(dir, name, MIB).to_str().unwrap()));
        let mut caller = Caller::new([a], backend);
        assert_eq!(caller.queue.add_member(b), 1);
        assert_eq!(caller.write(1, 0, &[3; 4096], false), 4096);
        assert!(caller.queue.remove_member(0).is_some());
        assert_eq!(caller.read(0, 0, 512), Err(-libc::ENODEV));
        assert_eq!(caller.queue.add_member(Arc::new(Member::memory(4096))), 0);
        assert_eq!(caller.read(0, 0, 512), Ok(vec![0; 512]));
        assert_eq!(caller.read(1, 0, 512), Ok(vec![3; 512]));
    });
}

#[test]
fn a_memory_member_serves_every_operation() {
    for backend in common::backends() {
        let mut caller = Caller::new([Arc::new(Member::memory(MIB as u64))], backend);
        assert_eq!(caller.write(0, 512, &[5; 4096], true), 4096);
        let zero = Op::WriteZeroes { member: 0, offset: 1024, len: 512, may_unmap: true };
        assert_eq!(caller.call(zero), 0);
        assert_eq!(caller.call(Op::Flush { member: 0 }), 0);
        assert_eq!(caller.call(Op::Discard { member: 0, offset: 0, len: 512 }), 0);
        let read = caller.read(0, 512, 2048).unwrap();
        assert_eq!(read, [vec![5; 512], vec![0; 512], vec![5; 1024]].concat());
        assert_eq!(caller.read(0, MIB as u64 - 512, 1024), Err(-libc::EINVAL));
    }
}

#[test]
fn metadata_helpers_take_any_offset() {
    for dir in places() {
        let path = file(dir.path(), "m", MIB);
        let member = open(&format!("{}@4K+64K", path.display()));
        eprintln!(
            "{}: direct {}, in memory {}",
            dir.path().display(),
            member.direct(),
            member.memory_backed()
        );
        let mut read = [0u8; 700];
        member.read_at(301, &mut read).unwrap();
        assert!((0..700).all(|i| read[i] == byte_at(4096 + 301 + i)));
        member.write_at(1000, &[1; 100]).unwrap();
        member.write_at(65536 - 3, &[2; 3]).unwrap();
        member.sync_all().unwrap();
        assert!(member.write_at(65536 - 3, &[2; 4]).is_err());
        assert!(member.read_at(u64::MAX, &mut read).is_err());
        let whole = std::fs::read(&path).unwrap();
        let expected = |i| match i {
            5096..5196 => 1,
            69629..69632 => 2,
            _ => byte_at(i),
        };
        assert!((0..MIB).all(|i| whole[i] == expected(i)));
    }
}

#[test]
fn what_cannot_be_a_member_is_refused_with_its_reason() {
    let dir = &places()[0];
    let path = file(dir.path(), "m", MIB);
    let open = |spec: String| Member::open(&spec.parse().unwrap(), Access::ReadWrite).unwrap_err();
    let shown = path.display();
    assert!(matches!(open(format!("{shown}@0+2M")), OpenError::Window { available: 0x100000, .. }));
    assert!(matches!(open(format!("{shown}@2M")), OpenError::Beyond { available: 0x100000, .. }));
    let at_end = open(format!("{shown}@1M")).to_string();
    assert!(at_end.contains("the end of the file or device is byte 1048576"), "{at_end}");
    assert!(matches!(open(format!("{shown}@100+1K")), OpenError::Unaligned { .. }));
    assert!(matches!(open("/dev/null".into()), OpenError::Kind { .. }));
    assert!(matches!(open("/dev".into()), OpenError::Kind { .. }));
    assert!(matches!(open(format!("{shown}.not")), OpenError::Io { .. }));
}

#[test]
fn a_queue_dropped_amid_operations_leaves_memory_alone_afterwards() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", 16 * MIB);
        let mut queue = Queue::new([open(path.to_str().unwrap())], backend, 32).unwrap();
        let mut buffer = Buffer::new(16 * MIB, 0);
        let iov = buffer.iov();
        for i in 0..16 {
            let iov = [IoVec::new(iov.ptr.wrapping_add(i * MIB), MIB)];
            // SAFETY: the buffer outlives the queue.
            unsafe { queue.submit(0, Op::Read { member: 0, offset: (i * MIB) as u64, iov: &iov }) };
        }
        drop(queue);
        let after = buffer.bytes().to_vec();
        buffer.bytes_mut().fill(0xEE);
        assert!(after.iter().enumerate().all(|(i, &b)| b == byte_at(i) || b == 0));
        assert!(buffer.bytes().iter().all(|&b| b == 0xEE));
    });
}

#[test]
fn a_queue_is_built_here_and_used_there() {
    everywhere(|dir, backend| {
        let path = file(dir, "m", MIB);
        let mut caller = Caller::new([open(path.to_str().unwrap())], backend);
        let read = std::thread::spawn(move || caller.read(0, 0, 4096)).join().unwrap();
        assert_eq!(read.unwrap()[5], byte_at(5));
    });
}

#[test]
fn the_back_end_says_its_name() {
    let queue = Queue::new([], Backend::Threads, 8).unwrap();
    assert_eq!((queue.backend(), queue.notice()), ("threads", None));
}
