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

use std::{hint::black_box, io};

/// Heap that a thread may need for requests in flight, in bytes: what describes a request takes
/// less than 1 KiB, and the kernel sends some hundreds at a time.
const HEAP_BYTES: usize = 1 << 20;
/// Small enough to come from the heap, not from a mapping of its own that a free gives back.
const PIECE_BYTES: usize = 16 << 10;

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
pub(super) fn lock_all() -> io::Result<()> {
    // SAFETY: changes where pages are kept, not what they hold.
    match unsafe { libc::mlockall(libc::MCL_CURRENT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
