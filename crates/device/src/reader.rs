//! A member's bytes from anything that can be read and sought: an image in memory, one within an archive.
//!
//! A source is asked for one range at a time, by one thread at a time: a worker's, since it may block. What it makes of
//! a request is not trusted: an error, an early end and a panic all are an I/O error of the member, and so is whatever
//! it does not fill.

use crate::op::IoVec;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// What a member can be read from.
pub trait Source: Read + Seek + Send {}

impl<T: Read + Seek + Send> Source for T {}

pub(crate) struct ReaderStore(Mutex<Box<dyn Source>>);

impl ReaderStore {
    /// The store and its size, bytes.
    pub(crate) fn new(mut source: Box<dyn Source>) -> io::Result<(Self, u64)> {
        let size = source.seek(SeekFrom::End(0))?;
        Ok((Self(Mutex::new(source)), size))
    }

    /// Fills the vectors: how many bytes these are, or `-errno`.
    ///
    /// # Safety
    /// The vectors must name memory that may be written, and that holds some value already.
    pub(crate) unsafe fn read(&self, offset: u64, iov: &[IoVec]) -> i32 {
        // Whatever a panic left of the source, the next request seeks first.
        let mut source = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || -> io::Result<usize> {
            source.seek(SeekFrom::Start(offset))?;
            for v in iov {
                // SAFETY: the caller's promise.
                source.read_exact(unsafe { std::slice::from_raw_parts_mut(v.ptr, v.len) })?;
            }
            Ok(iov.iter().map(|v| v.len).sum())
        };
        match catch_unwind(AssertUnwindSafe(read)) {
            Ok(Ok(len)) => len as i32,
            Ok(Err(error)) => -error.raw_os_error().filter(|&errno| errno > 0).unwrap_or(libc::EIO),
            Err(_) => -libc::EIO,
        }
    }
}

impl fmt::Debug for ReaderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReaderStore")
    }
}
