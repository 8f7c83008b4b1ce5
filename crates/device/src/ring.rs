//! The io_uring back end.
//!
//! Invariants: an entry's `user_data` is the slot key, or one of two reserved values; what the full
//! submission ring cannot take after a submission waits in `backlog`, in order, and the ring never blocks
//! while anything does. The number of entries with the kernel is not bounded here: connections that wait
//! for a request must not keep storage from starting, and completions beyond the ring's room are
//! kept by the kernel (`NODROP`). The ring is created disabled and enabled on first use: the kernel then
//! takes the using thread as its single issuer, so a queue may be built on one thread and moved to its
//! loop once.
//!
//! Entries are of 128 bytes where the kernel has these (Linux 5.19): some drivers' commands need them.

mod entries;

use crate::op::IoVec;
use crate::raw::Raw;
use entries::{Entries, Entry};
use io_uring::{Probe, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;

/// The read of the wake-up eventfd.
const WAKE: u64 = u64::MAX;
/// Cancellations, whose own results are of no interest.
const CANCEL: u64 = u64::MAX - 1;

pub(crate) struct Ring {
    ring: Entries,
    enabled: bool,
    in_kernel: usize,
    backlog: VecDeque<Entry>,
    event_fd: RawFd,
    /// Where the eventfd's count goes; boxed because the kernel writes to it while the ring may move.
    event_count: Box<u64>,
    wake_armed: bool,
    /// See [`Ring::register`]; addresses.
    registered: Vec<Range<usize>>,
}

/// How long to block for the first result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Until(Duration),
    Forever,
}

impl Ring {
    /// A ring with `depth` submission entries.
    ///
    /// # Errors
    /// What io_uring_setup or io_uring_enter says, or `Unsupported` if the kernel's io_uring lacks what is needed.
    pub(crate) fn new(depth: u32, event_fd: RawFd) -> io::Result<Self> {
        let ring = Entries::new(depth)?;
        // SAFETY: nothing is submitted, and no argument read.
        let entered = unsafe { ring.submitter().enter::<()>(0, 0, 0, None) };
        // That it is not enabled yet is the kernel's answer, all else a filter's.
        if let Err(refused) = entered
            && refused.raw_os_error() != Some(libc::EBADFD)
        {
            return Err(refused);
        }
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's io_uring is too old (before 5.11)",
            ));
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::Recv::CODE,
            opcode::SendMsg::CODE,
            opcode::Accept::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's io_uring lacks operations",
            ));
        }
        Ok(Self {
            ring,
            enabled: false,
            in_kernel: 0,
            backlog: VecDeque::new(),
            event_fd,
            event_count: Box::new(0),
            wake_armed: false,
            registered: Vec::new(),
        })
    }

    /// Has the kernel hold on to memory that most transfers will name, so that it need not look up its pages
    /// for each; false where it refuses (a limit of locked memory, mostly), and they go as all others. Called once,
    /// before the first step.
    ///
    /// # Safety
    /// The memory stays mapped as it is until the ring is dropped.
    pub(crate) unsafe fn register(&mut self, memory: &[IoVec]) -> bool {
        let vectors: Vec<libc::iovec> = memory
            .iter()
            .map(|run| libc::iovec { iov_base: run.ptr.cast(), iov_len: run.len })
            .collect();
        // SAFETY: the caller's.
        let done = unsafe { self.ring.submitter().register_buffers(&vectors) }.is_ok();
        if done {
            let range = |run: &IoVec| run.ptr as usize..run.ptr as usize + run.len;
            self.registered = memory.iter().map(range).collect();
        }
        done
    }

    /// Queues a step; it reaches the kernel with the next [`Ring::turn`] at the latest.
    ///
    /// # Safety
    /// The step's pointers must stay valid until its result was returned by [`Ring::turn`].
    pub(crate) unsafe fn start(&mut self, key: usize, raw: &Raw) {
        let entry = match *raw {
            Raw::Command { fd, code, ref payload, iov, count } if self.takes_long_commands() => {
                Entry::Long(entries::long_command(fd, code, payload, iov, count))
            }
            _ => Entry::Plain(encode(raw, &self.registered)),
        };
        self.push(entry.user_data(key as u64));
    }

    /// Whether commands with vectors, and with more than 16 bytes that belong to them, can be carried.
    pub(crate) fn takes_long_commands(&self) -> bool {
        matches!(self.ring, Entries::Long(_))
    }

    /// Asks for the end of a step that waits for a peer; its result still arrives.
    pub(crate) fn cancel(&mut self, key: usize) {
        self.push_plain(opcode::AsyncCancel::new(key as u64).build(), CANCEL);
    }

    /// Awaits readiness in place of a step that answered `EAGAIN` (the descriptor is non-blocking).
    pub(crate) fn start_poll(&mut self, key: usize, fd: RawFd, events: i16) {
        let entry = opcode::PollAdd::new(types::Fd(fd), events as u32).build();
        self.push_plain(entry, key as u64);
    }

    fn push_plain(&mut self, entry: squeue::Entry, user_data: u64) {
        self.push(Entry::Plain(entry).user_data(user_data));
    }

    fn push(&mut self, entry: Entry) {
        self.backlog.push_back(entry);
        self.push_backlog();
    }

    /// Moves the backlog to the submission ring, submitting when that is full, until the kernel takes no
    /// more for now.
    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: `start` demands valid pointers; the other entries have none or our own box's.
            let taken = unsafe { self.ring.push(entry) };
            if taken {
                self.in_kernel += 1;
                self.backlog.pop_front();
                continue;
            }
            self.enable();
            // Refusals (interrupted, short of memory, completions to be fetched first) pass.
            if self.ring.submitter().submit().is_err() {
                return;
            }
        }
    }

    fn enable(&mut self) {
        if !self.enabled {
            self.enabled = true;
            // Fails only if it is enabled already, which `enabled` excludes.
            let _ = self.ring.submitter().register_enable_rings();
        }
    }

    fn arm_wake(&mut self) {
        if !self.wake_armed {
            self.wake_armed = true;
            let count: *mut u64 = &raw mut *self.event_count;
            let entry = opcode::Read::new(types::Fd(self.event_fd), count.cast(), 8).build();
            self.push_plain(entry, WAKE);
        }
    }

    /// Submits what is queued, blocks as told, and appends results as (key, result).
    ///
    /// # Errors
    /// Only what makes the ring unusable.
    pub(crate) fn turn(
        &mut self,
        patience: Patience,
        results: &mut Vec<(usize, i32)>,
    ) -> io::Result<()> {
        self.enable();
        self.push_backlog();
        let patience = if self.reap(results) { Patience::None } else { patience };
        if patience != Patience::None {
            self.arm_wake();
        }
        let patience = if self.backlog.is_empty() { patience } else { Patience::None };
        let entered = match patience {
            Patience::None => {
                if self.ring.has_work() {
                    self.ring.submitter().submit()
                } else {
                    Ok(0)
                }
            }
            Patience::Until(time) => {
                let time = types::Timespec::from(time);
                let args = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
            Patience::Forever => self.ring.submitter().submit_and_wait(1),
        };
        self.reap(results);
        match entered {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(e),
            },
        }
    }

    /// Whether the next [`Ring::turn`] would find something, without asking the kernel.
    pub(crate) fn has_news(&mut self) -> bool {
        self.ring.has_work() || !self.ring.completion().is_empty()
    }

    /// Whether nothing but the wake-up read and so many steps is still with the kernel or waits for it.
    pub(crate) fn is_idle_but_for(&self, steps: usize) -> bool {
        self.in_kernel == usize::from(self.wake_armed) + steps && self.backlog.is_empty()
    }

    /// Whether there was anything to tell, be it a wake-up.
    fn reap(&mut self, results: &mut Vec<(usize, i32)>) -> bool {
        let mut any = false;
        for entry in self.ring.completion() {
            self.in_kernel -= 1;
            match entry.user_data() {
                WAKE => {
                    self.wake_armed = false;
                    any = true;
                }
                CANCEL => {}
                key => {
                    results.push((key as usize, entry.result()));
                    any = true;
                }
            }
        }
        any
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may write `event_count` until the read is gone.
        if self.wake_armed {
            self.push_plain(opcode::AsyncCancel::new(WAKE).build(), CANCEL);
            let mut results = Vec::new();
            while self.wake_armed {
                self.push_backlog();
                if self
                    .ring
                    .submitter()
                    .submit_and_wait(1)
                    .is_err_and(|e| e.raw_os_error() != Some(libc::EINTR))
                {
                    // Unknown state: leaking eight bytes is better than a stray write.
                    std::mem::forget(std::mem::take(&mut self.event_count));
                    return;
                }
                self.reap(&mut results);
            }
        }
    }
}

fn encode(raw: &Raw, registered: &[Range<usize>]) -> squeue::Entry {
    match *raw {
        Raw::Read { fd, iov, count, offset } => {
            let fd = types::Fd(fd);
            match One::of(iov, count, registered) {
                Some(One { ptr, len, index: Some(index) }) => {
                    opcode::ReadFixed::new(fd, ptr, len, index).offset(offset).build()
                }
                Some(One { ptr, len, index: None }) => {
                    opcode::Read::new(fd, ptr, len).offset(offset).build()
                }
                None => opcode::Readv::new(fd, iov.cast(), count as u32).offset(offset).build(),
            }
        }
        Raw::Write { fd, iov, count, offset, dsync } => {
            let fd = types::Fd(fd);
            let flags = if dsync { libc::RWF_DSYNC } else { 0 };
            match One::of(iov, count, registered) {
                Some(One { ptr, len, index: Some(index) }) => {
                    let write = opcode::WriteFixed::new(fd, ptr, len, index);
                    write.offset(offset).rw_flags(flags).build()
                }
                Some(One { ptr, len, index: None }) => {
                    opcode::Write::new(fd, ptr, len).offset(offset).rw_flags(flags).build()
                }
                None => {
                    let write = opcode::Writev::new(fd, iov.cast(), count as u32);
                    write.offset(offset).rw_flags(flags).build()
                }
            }
        }
        Raw::Fdatasync { fd } => {
            opcode::Fsync::new(types::Fd(fd)).flags(types::FsyncFlags::DATASYNC).build()
        }
        Raw::Fallocate { fd, mode, offset, len } => {
            opcode::Fallocate::new(types::Fd(fd), len).offset(offset).mode(mode).build()
        }
        Raw::BlockDiscard { .. } | Raw::Overlay { .. } | Raw::Source { .. } => {
            unreachable!("the queue gives them to a worker")
        }
        Raw::Recv { fd, ptr, len } => {
            let len = len.min(i32::MAX as usize) as u32;
            opcode::Recv::new(types::Fd(fd), ptr, len).build()
        }
        Raw::Send { fd, msg } => {
            let flags = libc::MSG_NOSIGNAL as u32;
            opcode::SendMsg::new(types::Fd(fd), msg).flags(flags).build()
        }
        Raw::Accept { fd } => {
            let (no_addr, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
            opcode::Accept::new(types::Fd(fd), no_addr, no_len).flags(libc::SOCK_CLOEXEC).build()
        }
        Raw::PollIn { fd } => opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build(),
        Raw::Command { fd, code, payload, .. } => {
            let short = payload.first_chunk().copied().expect("it is longer");
            opcode::UringCmd16::new(types::Fd(fd), code).cmd(short).build()
        }
    }
}

/// A transfer of one vector, which the kernel takes without importing an array of them.
struct One {
    ptr: *mut u8,
    len: u32,
    /// Of the registered memory that it lies in.
    index: Option<u16>,
}

impl One {
    fn of(iov: *const IoVec, count: usize, registered: &[Range<usize>]) -> Option<Self> {
        if count != 1 {
            return None;
        }
        // SAFETY: the slot that holds the vector is alive and at rest; see `Raw`.
        let one = unsafe { *iov };
        let range = one.ptr as usize..one.ptr as usize + one.len;
        let holds = |run: &Range<usize>| run.start <= range.start && range.end <= run.end;
        let index = registered.iter().position(holds);
        let index = index.and_then(|index| u16::try_from(index).ok());
        Some(Self { ptr: one.ptr, len: u32::try_from(one.len).ok()?, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_of_registered_memory_only_if_all_of_it_is() {
        let registered = [0x1000..0x3000, 0x3000..0x4000];
        let index = |start: usize, len: usize| {
            let iov = [IoVec::new(std::ptr::without_provenance_mut(start), len)];
            One::of(iov.as_ptr(), 1, &registered).and_then(|one| one.index)
        };
        assert_eq!(index(0x1000, 0x2000), Some(0));
        assert_eq!(index(0x2fff, 1), Some(0));
        assert_eq!(index(0x3000, 0x1000), Some(1));
        assert_eq!(index(0x2000, 0x2000), None, "in both");
        assert_eq!(index(0x3000, 0x1001), None, "over the end");
        assert_eq!(index(0xfff, 2), None, "over the start");
        assert_eq!(index(0x5000, 8), None);
        let two = [IoVec::new(std::ptr::without_provenance_mut(0x1000), 8); 2];
        assert!(One::of(two.as_ptr(), 2, &registered).is_none());
    }
}
