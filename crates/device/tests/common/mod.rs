//! What the tests of this crate share: places to put files, both back ends, a synchronous caller.
#![allow(dead_code)] // Each test file uses a part.

use lapstrake_device::{Access, Backend, Completion, IoVec, Member, MemberSpec, Op, Queue};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Memory and disk: where tests put members. What is missing is said aloud.
pub fn places() -> Vec<TempDir> {
    let mut places = vec![tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(place) => places.push(place),
        Err(e) => eprintln!("SKIPPED in memory: /dev/shm: {e}"),
    }
    places
}

/// The back ends that this machine has. Without io_uring the suite still runs, and says so.
pub fn backends() -> Vec<Backend> {
    match Queue::new([], Backend::IoUring, 8) {
        Ok(_) => vec![Backend::IoUring, Backend::Threads],
        Err(e) => {
            eprintln!("SKIPPED on io_uring: {e}");
            vec![Backend::Threads]
        }
    }
}

/// Every place with every back end.
pub fn everywhere(mut test: impl FnMut(&Path, Backend)) {
    for place in places() {
        for backend in backends() {
            eprintln!("-- {} {backend:?}", place.path().display());
            test(place.path(), backend);
        }
    }
}

/// A file of `len` bytes that follow [`byte_at`].
pub fn file(dir: &Path, name: &str, len: usize) -> PathBuf {
    let path = dir.join(name);
    let bytes: Vec<u8> = (0..len).map(byte_at).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

pub fn byte_at(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)) as u8
}

pub fn open(spec: &str) -> Arc<Member> {
    let spec: MemberSpec = spec.parse().unwrap();
    Arc::new(Member::open(&spec, Access::ReadWrite).unwrap())
}

/// Page-aligned memory.
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub fn new(len: usize, fill: u8) -> Self {
        let memory = vec![fill; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Self { memory, start, len }
    }

    pub fn iov(&mut self) -> IoVec {
        let len = self.len;
        IoVec::new(self.bytes_mut().as_mut_ptr(), len)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

/// A queue used one operation at a time.
pub struct Caller {
    pub queue: Queue,
    token: u64,
}

impl Caller {
    pub fn new(members: impl IntoIterator<Item = Arc<Member>>, backend: Backend) -> Self {
        Self { queue: Queue::new(members, backend, 32).unwrap(), token: 0 }
    }

    /// The operation's result. Its memory outlives the call, which waits for the completion.
    pub fn call(&mut self, op: Op<'_>) -> i32 {
        self.token += 1;
        // SAFETY: the caller's memory is alive until this returns, after the completion.
        unsafe { self.queue.submit(self.token, op) };
        let mut done = Vec::new();
        while done.is_empty() {
            self.queue.wait(&mut done, None).unwrap();
        }
        assert_eq!(done.len(), 1, "one operation, one completion: {done:?}");
        assert_eq!(done[0].token, self.token);
        done[0].result
    }

    pub fn read(&mut self, member: usize, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        let mut buffer = Buffer::new(len, 0xA5);
        let iov = [buffer.iov()];
        match self.call(Op::Read { member, offset, iov: &iov }) {
            done if done == len as i32 => Ok(buffer.bytes().to_vec()),
            error => Err(error),
        }
    }

    pub fn write(&mut self, member: usize, offset: u64, bytes: &[u8], fua: bool) -> i32 {
        let mut buffer = Buffer::new(bytes.len(), 0);
        buffer.bytes_mut().copy_from_slice(bytes);
        let iov = [buffer.iov()];
        self.call(Op::Write { member, offset, iov: &iov, fua })
    }
}

/// Waits for `count` completions in all.
pub fn gather(queue: &mut Queue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        queue.wait(&mut done, None).unwrap();
    }
    done
}
