//! A ring whose submission entries are of 64 bytes, or of 128.

use crate::op::{COMMAND_BYTES, IoVec};
use io_uring::{
    Builder, CompletionQueue, IoUring, Parameters, Submitter, cqueue, opcode,
    squeue::{self, Entry128, EntryMarker},
    types,
};
use std::{io, os::fd::RawFd};

/// See the module.
pub(super) enum Entries {
    Short(IoUring),
    /// Linux 5.19.
    Long(IoUring<Entry128>),
}

/// An entry, of which a ring of short ones takes the plain kind only.
pub(super) enum Entry {
    Plain(squeue::Entry),
    Long(Entry128),
}

impl Entry {
    pub(super) fn user_data(self, user_data: u64) -> Self {
        match self {
            Self::Plain(entry) => Self::Plain(entry.user_data(user_data)),
            Self::Long(entry) => Self::Long(entry.user_data(user_data)),
        }
    }
}

impl Entries {
    /// With long entries where the kernel has them, else with short ones.
    pub(super) fn new(depth: u32) -> io::Result<Self> {
        match set_up(depth) {
            Ok(ring) => Ok(Self::Long(ring)),
            Err(_) => set_up(depth).map(Self::Short),
        }
    }

    pub(super) fn params(&self) -> &Parameters {
        match self {
            Self::Short(ring) => ring.params(),
            Self::Long(ring) => ring.params(),
        }
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        match self {
            Self::Short(ring) => ring.submitter(),
            Self::Long(ring) => ring.submitter(),
        }
    }

    pub(super) fn completion(&mut self) -> CompletionQueue<'_, cqueue::Entry> {
        match self {
            Self::Short(ring) => ring.completion(),
            Self::Long(ring) => ring.completion(),
        }
    }

    /// False if the submission ring is full.
    ///
    /// # Safety
    /// What the entry names is valid until it has ended.
    pub(super) unsafe fn push(&mut self, entry: &Entry) -> bool {
        // SAFETY: the caller's.
        let pushed = unsafe {
            match (self, entry) {
                (Self::Short(ring), Entry::Plain(entry)) => ring.submission().push(entry),
                (Self::Long(ring), Entry::Plain(entry)) => {
                    ring.submission().push(&Entry128::from(entry.clone()))
                }
                (Self::Long(ring), Entry::Long(entry)) => ring.submission().push(entry),
                (Self::Short(_), Entry::Long(_)) => unreachable!("the queue refuses those"),
            }
        };
        pushed.is_ok()
    }

    /// Whether there is anything for the kernel to take or to do.
    pub(super) fn has_work(&mut self) -> bool {
        fn of<E: EntryMarker>(queue: &squeue::SubmissionQueue<'_, E>) -> bool {
            !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
        }
        match self {
            Self::Short(ring) => of(&ring.submission()),
            Self::Long(ring) => of(&ring.submission()),
        }
    }
}

/// The best set-up that this kernel takes: completions run on the issuing thread, when it asks.
fn set_up<E: EntryMarker>(depth: u32) -> io::Result<IoUring<E>> {
    let plain = || -> Builder<E, cqueue::Entry> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(depth * 4).setup_clamp().setup_r_disabled();
        builder
    };
    let best = plain()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_defer_taskrun()
        .build(depth);
    match best {
        // Before 6.1 (some flags from 5.18, 5.19, 6.0) the kernel answers EINVAL.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => plain().build(depth),
        other => other,
    }
}

/// A driver's command with what belongs to it, and vectors.
pub(super) fn long_command(
    fd: RawFd,
    code: u32,
    payload: &[u8; COMMAND_BYTES],
    iov: *const IoVec,
    count: usize,
) -> Entry128 {
    /// Of `len` in `struct io_uring_sqe`, which the crate has no word for here.
    const LEN_AT: usize = 24;
    const _: () = assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4);
    let mut command = [0; 80];
    command[..COMMAND_BYTES].copy_from_slice(payload);
    let entry = opcode::UringCmd80::new(types::Fd(fd), code).cmd(command);
    let mut entry = entry.addr((count > 0).then_some(iov as u64)).build();
    // SAFETY: within the entry, which is plain numbers in the kernel's layout, and aligned.
    unsafe { (&raw mut entry).cast::<u8>().add(LEN_AT).cast::<u32>().write(count as u32) };
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_lies_where_the_kernel_looks() {
        let iov = [IoVec::new(std::ptr::null_mut(), 8); 2];
        let payload: [u8; COMMAND_BYTES] = std::array::from_fn(|at| at as u8 + 1);
        let entry = long_command(5, 0x1234, &payload, iov.as_ptr(), iov.len()).user_data(77);
        // SAFETY: plain numbers.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
        assert_eq!(bytes[4..8], 5i32.to_ne_bytes());
        assert_eq!(bytes[8..12], 0x1234u32.to_ne_bytes());
        assert_eq!(bytes[16..24], (iov.as_ptr() as u64).to_ne_bytes());
        assert_eq!(bytes[24..28], 2u32.to_ne_bytes());
        assert_eq!(bytes[32..40], 77u64.to_ne_bytes());
        assert_eq!(bytes[48..72], payload);
        assert_eq!(bytes[72..], [0; 56]);
    }
}
