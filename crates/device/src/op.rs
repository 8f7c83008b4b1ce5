//! What can be asked of a [`crate::Queue`], and what it answers.

use std::os::fd::RawFd;

/// A run of memory, laid out as the system's `struct iovec`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoVec {
    /// First byte.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

const _: () = assert!(
    size_of::<IoVec>() == size_of::<libc::iovec>()
        && std::mem::offset_of!(IoVec, ptr) == std::mem::offset_of!(libc::iovec, iov_base)
        && std::mem::offset_of!(IoVec, len) == std::mem::offset_of!(libc::iovec, iov_len)
);

impl IoVec {
    /// The run of `len` bytes at `ptr`.
    pub const fn new(ptr: *mut u8, len: usize) -> Self {
        Self { ptr, len }
    }
}

/// One operation. Offsets and lengths are bytes, offsets relative to the start of the member's window.
///
/// `member` is the index that [`crate::Queue::add_member`] returned. The slice of [`IoVec`] is copied;
/// the memory that it names must stay valid until the completion.
#[derive(Debug, Clone, Copy)]
pub enum Op<'a> {
    /// Fill the vectors. Completes with their whole length, or an error; that a file is shorter than its
    /// window is `EIO`, and the member's end: everything fails with `ENXIO` after it.
    Read {
        /// Which member.
        member: usize,
        /// Where.
        offset: u64,
        /// Into what.
        iov: &'a [IoVec],
    },
    /// Write the vectors. Completes with their whole length, or an error. A file that was found shorter
    /// than its window is not made longer again: that is the member's end, as for a read.
    Write {
        /// Which member.
        member: usize,
        /// Where.
        offset: u64,
        /// From what.
        iov: &'a [IoVec],
        /// On stable storage before it completes.
        fua: bool,
    },
    /// Every write that completed before this was submitted is on stable storage when this completes.
    Flush {
        /// Which member.
        member: usize,
    },
    /// The contents are no longer needed and may read as anything. Where the member cannot discard, it
    /// completes with success and nothing done.
    Discard {
        /// Which member.
        member: usize,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// The range reads as zeroes afterwards; written out where there is no quicker way.
    WriteZeroes {
        /// Which member.
        member: usize,
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
        /// The range may lose its allocation.
        may_unmap: bool,
    },
    /// Receive what is there, up to `len` bytes, waiting for the first; 0 is the peer's end.
    Recv {
        /// A stream socket.
        fd: RawFd,
        /// Into what.
        ptr: *mut u8,
        /// At most this much.
        len: usize,
    },
    /// Send; completes with the bytes sent, which may be fewer than given. One at a time per socket,
    /// or their bytes may interleave.
    Send {
        /// A stream socket.
        fd: RawFd,
        /// From what.
        iov: &'a [IoVec],
    },
    /// Wait for a connection; completes with its descriptor (close-on-exec).
    Accept {
        /// A listening socket.
        fd: RawFd,
    },
    /// Wait until the descriptor is readable or hung up; completes with the poll(2) events.
    PollIn {
        /// Any descriptor that can be polled.
        fd: RawFd,
    },
    /// A command to a driver (`IORING_OP_URING_CMD`); completes with the driver's result. Without io_uring it is
    /// `EOPNOTSUPP`, and so it is if it is long (it has vectors, or more than 16 bytes that are not zero) and
    /// [`crate::Queue::takes_long_commands`] says no. The driver ends it, not [`crate::Queue::cancel_fd`].
    Command {
        /// The driver's device.
        fd: RawFd,
        /// Which command, as the driver numbers them.
        code: u32,
        /// What belongs to it.
        payload: [u8; COMMAND_BYTES],
        /// Memory of which the driver is told.
        iov: &'a [IoVec],
    },
}

/// What can belong to a driver's command; entries of 128 bytes would carry up to 80.
pub const COMMAND_BYTES: usize = 24;

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The caller's name for the operation, as given to `submit`.
    pub token: u64,
    /// Bytes (or what the [`Op`] says), or `-errno`.
    pub result: i32,
}
