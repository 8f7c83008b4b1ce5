//! Moving bytes between vectors and a file, whole or not at all.

use crate::op::IoVec;
use crate::raw::{IOV_MAX, errno};
use std::os::fd::RawFd;

/// Gives a list of vectors out in pieces, from its start on.
pub(super) struct Cursor<'a> {
    rest: &'a [IoVec],
    /// Bytes of the first that are given out.
    used: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(iov: &'a [IoVec]) -> Self {
        Self { rest: iov, used: 0 }
    }

    /// The next `len` bytes; fewer only at the end.
    pub(super) fn take(&mut self, len: u64) -> Vec<IoVec> {
        let mut left = len as usize;
        let mut taken = Vec::new();
        while let (Some(v), true) = (self.rest.first(), left > 0) {
            let count = (v.len - self.used).min(left);
            if count > 0 {
                taken.push(IoVec::new(v.ptr.wrapping_add(self.used), count));
            }
            left -= count;
            self.used += count;
            if self.used == v.len {
                self.rest = &self.rest[1..];
                self.used = 0;
            }
        }
        taken
    }
}

/// Fills the vectors from a file; its end before theirs is `EIO`.
///
/// # Safety
/// The vectors must name memory that may be written.
pub(super) unsafe fn pread(fd: RawFd, iov: Vec<IoVec>, at: u64) -> Result<(), i32> {
    // SAFETY: passed on to the caller; the count is that of the vectors given.
    whole(iov, at, |iov, count, at| unsafe { libc::preadv(fd, iov.cast(), count, at) })
}

/// Writes the vectors to a file.
///
/// # Safety
/// The vectors must name memory that may be read.
pub(super) unsafe fn pwrite(fd: RawFd, iov: Vec<IoVec>, at: u64) -> Result<(), i32> {
    // SAFETY: passed on to the caller; the count is that of the vectors given.
    whole(iov, at, |iov, count, at| unsafe { libc::pwritev(fd, iov.cast(), count, at) })
}

/// Clears the vectors.
///
/// # Safety
/// The vectors must name memory that may be written.
pub(super) unsafe fn zero(iov: &[IoVec]) {
    for v in iov {
        // SAFETY: passed on to the caller.
        unsafe { v.ptr.write_bytes(0, v.len) };
    }
}

fn whole(
    mut iov: Vec<IoVec>,
    mut at: u64,
    mut call: impl FnMut(*const IoVec, i32, i64) -> isize,
) -> Result<(), i32> {
    let mut head = 0;
    while head < iov.len() {
        let count = (iov.len() - head).min(IOV_MAX) as i32;
        let mut moved = match call(iov[head..].as_ptr(), count, at as i64) {
            0 => return Err(libc::EIO),
            moved if moved > 0 => moved as usize,
            _ => match errno() {
                libc::EINTR => continue,
                error => return Err(error),
            },
        };
        at += moved as u64;
        while head < iov.len() && moved >= iov[head].len {
            moved -= iov[head].len;
            head += 1;
        }
        if moved > 0 {
            iov[head].ptr = iov[head].ptr.wrapping_add(moved);
            iov[head].len -= moved;
        }
    }
    Ok(())
}
