//! Memory that a driver of the kernel shares with us, or is told of.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    ptr::{self, NonNull},
};

/// Mapped memory, all of which is there.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory of the process; each use is an unsafe act of its own.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Of a file for reading, or of nothing for reading and writing.
    pub(crate) fn new(file: Option<(&File, u64)>, bytes: usize) -> io::Result<Self> {
        let (fd, at) = file.map_or((-1, 0), |(file, at)| (file.as_raw_fd(), at));
        let (rights, flags) = match file {
            Some(_) => (libc::PROT_READ, libc::MAP_SHARED),
            None => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        // SAFETY: makes a mapping at a place that is free, or none.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, rights, flags | libc::MAP_POPULATE, fd, at as i64)
        };
        match NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Self { start, bytes }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Its first byte, at a page's start.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is mapped, and whoever knew of it has gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
