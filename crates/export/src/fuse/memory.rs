//! Memory that serving needs, made sure of before it serves.
//!
//! A filesystem may lie on the served file. When memory runs out the kernel writes that
//! filesystem's dirty pages to the file, and whoever asks for memory may have to wait until they
//! are written. A server that asks for memory then waits for itself, for ever. (Seen with a
//! control group of the first kind that held server and writer: the server's thread touched a page
//! of its buffer for the first time, while the kernel copied a request into it.)
//!
//! So: what a thread of the server will touch is touched before ([`warm_heap`]) and kept
//! ([`lock_all`]); and where the system allows, the kernel is told not to let us wait
//! ([`lapstrake_host::flush_others_last`]).

use lapstrake_device::{BufId, Pool};
use std::{
    hint::black_box,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Heap that a thread may need for requests in flight, in bytes: what describes a request takes
/// less than 1 KiB, and the kernel sends some hundreds at a time.
const HEAP_BYTES: usize = 1 << 20;
/// Small enough to come from the heap, not from a mapping of its own that a free gives back.
const PIECE_BYTES: usize = 16 << 10;

/// Memory for the requests of a mount, of which the shard takes, and which it or the thread that sends long answers
/// gives back.
pub(super) struct Memory {
    state: Mutex<State>,
    /// Counts when what the shard lacked was given back.
    freed: OwnedFd,
}

struct State {
    pool: Pool,
    is_short: bool,
}

impl Memory {
    /// # Errors
    /// The system refuses it.
    pub(super) fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let state = Mutex::new(State { pool: Pool::new(bytes, true)?, is_short: false });
        // SAFETY: makes a descriptor, or none.
        let freed = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if freed < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is new, and nobody else's.
        Ok(Arc::new(Self { state, freed: unsafe { OwnedFd::from_raw_fd(freed) } }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; if it did, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of whole pages. If there is none [`Memory::freed`] is readable when some was given back.
    pub(super) fn alloc(self: &Arc<Self>, bytes: usize) -> Option<Run> {
        let mut state = self.lock();
        let id = state.pool.alloc(bytes);
        state.is_short |= id.is_none();
        let id = id?;
        let start = state.pool.ptr(id);
        drop(state);
        Some(Run { id, start, memory: self.clone() })
    }

    pub(super) fn freed(&self) -> RawFd {
        self.freed.as_raw_fd()
    }

    /// Before memory is asked for again.
    pub(super) fn forget_freed(&self) {
        let mut count = [0; 8];
        // SAFETY: reads eight bytes at most; an answer is not needed.
        unsafe { libc::read(self.freed.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Page-aligned memory, which is given back when this is dropped.
pub(super) struct Run {
    id: BufId,
    start: *mut u8,
    memory: Arc<Memory>,
}

// SAFETY: the memory is this run's alone until it is dropped; the pool outlives it (`memory`).
unsafe impl Send for Run {}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Run").field(&self.id).finish()
    }
}

impl Run {
    pub(super) fn len(&self) -> usize {
        self.id.bytes()
    }

    /// Byte `at`.
    pub(super) fn at(&self, at: usize) -> *mut u8 {
        assert!(at < self.len());
        // SAFETY: within the run.
        unsafe { self.start.add(at) }
    }

    /// The bytes, while nobody else uses them.
    ///
    /// # Safety
    /// No request that names them is on its way.
    pub(super) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the run's own, touched when the pool was made.
        unsafe { std::slice::from_raw_parts(self.start, self.len()) }
    }

    /// As [`Run::bytes`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len()) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.pool.free(self.id);
        if std::mem::take(&mut state.is_short) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes eight bytes; it counts far less than would overflow.
            unsafe { libc::write(self.memory.freed.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}

/// Makes the calling thread's heap as large as it will need to be.
pub(super) fn warm_heap() {
    let piece = || black_box(vec![1u8; PIECE_BYTES]);
    let pieces: Vec<Vec<u8>> = (0..HEAP_BYTES / PIECE_BYTES).map(|_| piece()).collect();
    // It stays at the end, so that what lies before is not given back to the system.
    Box::leak(Box::new([1u8; 64]));
    drop(pieces);
}

/// Keeps everything that this process has in memory there.
///
/// # Errors
/// The system's, mostly that the limit of locked memory is too low.
pub(crate) fn lock_all() -> io::Result<()> {
    // SAFETY: changes where pages are kept, not what they hold.
    match unsafe { libc::mlockall(libc::MCL_CURRENT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL_BYTES: usize = 8 << 20;

    fn is_readable(fd: RawFd) -> bool {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }

    #[test]
    fn who_found_too_little_hears_when_some_is_given_back() {
        let memory = Memory::new(POOL_BYTES).expect("memory");
        let mut runs: Vec<Run> = std::iter::from_fn(|| memory.alloc(1 << 20)).collect();
        assert_eq!(runs.len(), POOL_BYTES >> 20);
        assert!(!is_readable(memory.freed()));
        runs.pop();
        assert!(is_readable(memory.freed()));
        memory.forget_freed();
        assert!(!is_readable(memory.freed()));
        let again = memory.alloc(4096).expect("what was given back");
        drop(again);
        assert!(!is_readable(memory.freed()), "nobody lacked any");
    }
}
