//! One system call's worth of work (an overlay's: a few), and doing it at once.
//!
//! A [`Raw`] is what a back end starts: io_uring encodes it, a worker thread performs it. Its pointers
//! lead into a slot (see [`crate::slot`]) or into the caller's memory, both of which outlive it.

use crate::op::{COMMAND_BYTES, IoVec};
use crate::overlay;
use crate::reader::ReaderStore;
use std::os::fd::RawFd;

/// The system takes no more vectors in one call (`UIO_MAXIOV`).
pub(crate) const IOV_MAX: usize = 1024;

/// A single step of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Raw {
    Read {
        fd: RawFd,
        iov: *const IoVec,
        count: usize,
        offset: u64,
    },
    Write {
        fd: RawFd,
        iov: *const IoVec,
        count: usize,
        offset: u64,
        dsync: bool,
    },
    Fdatasync {
        fd: RawFd,
    },
    Fallocate {
        fd: RawFd,
        mode: i32,
        offset: u64,
        len: u64,
    },
    /// An ioctl, which a ring cannot carry (before Linux 6.12).
    BlockDiscard {
        fd: RawFd,
        offset: u64,
        len: u64,
    },
    /// Several calls, by an overlay's member; never carried by a ring.
    Overlay {
        part: *const overlay::OverlayMember,
        task: overlay::Task,
        iov: *const IoVec,
        count: usize,
        offset: u64,
        len: u64,
    },
    /// By whatever a reader's member is read from; never carried by a ring.
    Source {
        store: *const ReaderStore,
        iov: *const IoVec,
        count: usize,
        offset: u64,
    },
    Recv {
        fd: RawFd,
        ptr: *mut u8,
        len: usize,
    },
    Send {
        fd: RawFd,
        msg: *const libc::msghdr,
    },
    Accept {
        fd: RawFd,
    },
    PollIn {
        fd: RawFd,
    },
    /// Carried by a ring alone.
    Command {
        fd: RawFd,
        code: u32,
        payload: [u8; COMMAND_BYTES],
        iov: *const IoVec,
        count: usize,
    },
}

// SAFETY: the pointers lead to memory that the slot table and the caller keep alive and unmoved until
// the completion, whichever thread uses it meanwhile.
unsafe impl Send for Raw {}

/// `_IO(0x12, 119)` of linux/fs.h.
const BLKDISCARD: libc::Ioctl = 0x1277;

impl Raw {
    /// Whether this waits for a peer (a socket), not for storage.
    pub(crate) fn waits_for_peer(&self) -> bool {
        matches!(
            self,
            Raw::Recv { .. } | Raw::Send { .. } | Raw::Accept { .. } | Raw::PollIn { .. }
        )
    }

    /// The descriptor and the poll(2) events to await before this can be done; sockets only.
    pub(crate) fn readiness(&self) -> Option<(RawFd, i16)> {
        match *self {
            Raw::Recv { fd, .. } | Raw::Accept { fd } | Raw::PollIn { fd } => {
                Some((fd, libc::POLLIN))
            }
            Raw::Send { fd, .. } => Some((fd, libc::POLLOUT)),
            _ => None,
        }
    }

    /// Does it now: storage to the end of the call, sockets without waiting (`-EAGAIN`).
    ///
    /// # Safety
    /// The pointers must be valid as described on the type.
    pub(crate) unsafe fn perform(&self) -> i32 {
        // SAFETY: pointers are valid by this function's contract, the rest are integers.
        let result = unsafe {
            match *self {
                // One vector goes without an array to be imported: a tenth of the time of 4 KiB in memory.
                Raw::Read { fd, iov, count: 1, offset } => {
                    libc::pread(fd, (*iov).ptr.cast(), (*iov).len, offset as i64)
                }
                Raw::Read { fd, iov, count, offset } => {
                    libc::preadv(fd, iov.cast(), count as i32, offset as i64)
                }
                Raw::Write { fd, iov, count: 1, offset, dsync: false } => {
                    libc::pwrite(fd, (*iov).ptr.cast(), (*iov).len, offset as i64)
                }
                Raw::Write { fd, iov, count, offset, dsync: false } => {
                    libc::pwritev(fd, iov.cast(), count as i32, offset as i64)
                }
                Raw::Write { fd, iov, count, offset, dsync: true } => {
                    write_stable(fd, iov.cast(), count as i32, offset as i64)
                }
                Raw::Fdatasync { fd } => libc::fdatasync(fd) as isize,
                Raw::Fallocate { fd, mode, offset, len } => {
                    libc::fallocate(fd, mode, offset as i64, len as i64) as isize
                }
                Raw::BlockDiscard { fd, offset, len } => {
                    let range = [offset, len];
                    libc::ioctl(fd, BLKDISCARD, range.as_ptr()) as isize
                }
                Raw::Overlay { part, task, iov, count, offset, len } => {
                    let iov = std::slice::from_raw_parts(iov, count);
                    return (*part).perform(task, iov, offset, len);
                }
                Raw::Source { store, iov, count, offset } => {
                    return (*store).read(offset, std::slice::from_raw_parts(iov, count));
                }
                Raw::Recv { fd, ptr, len } => libc::recv(fd, ptr.cast(), len, libc::MSG_DONTWAIT),
                Raw::Send { fd, msg } => {
                    libc::sendmsg(fd, msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                }
                Raw::Accept { fd } => {
                    let (no_addr, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
                    libc::accept4(fd, no_addr, no_len, libc::SOCK_CLOEXEC) as isize
                }
                Raw::Command { .. } => return -libc::EOPNOTSUPP,
                Raw::PollIn { fd } => {
                    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                    match libc::poll(&raw mut poll, 1, 0) {
                        0 => return -libc::EAGAIN,
                        n if n > 0 => poll.revents as isize,
                        _ => -1,
                    }
                }
            }
        };
        if result < 0 { -errno() } else { result as i32 }
    }
}

/// Writes what is stable on return. Emulators of another processor know no flags of writes.
///
/// # Safety
/// As for `pwritev2`.
unsafe fn write_stable(fd: RawFd, iov: *const libc::iovec, count: i32, offset: i64) -> isize {
    // SAFETY: by this function's contract.
    let written = unsafe { libc::pwritev2(fd, iov, count, offset, libc::RWF_DSYNC) };
    if written >= 0 || !matches!(errno(), libc::EOPNOTSUPP | libc::ENOSYS) {
        return written;
    }
    // SAFETY: the same, and a descriptor that is open.
    unsafe {
        match libc::pwritev(fd, iov, count, offset) {
            written if written >= 0 && libc::fdatasync(fd) < 0 => -1,
            written => written,
        }
    }
}

/// The calling thread's last error number.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
