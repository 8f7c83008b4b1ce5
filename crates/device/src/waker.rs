//! Waking a loop from another thread, for nothing when it is awake.
//!
//! The state is one atomic: AWAKE, ASLEEP (the loop is about to block or blocks), NOTIFIED (somebody
//! woke it since it last looked). Only the change from ASLEEP to NOTIFIED writes the eventfd. Whoever
//! wakes publishes its message first; the loop clears NOTIFIED before it looks for messages, so that
//! none is missed.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const NOTIFIED: u32 = 2;

#[derive(Debug)]
struct Shared {
    state: AtomicU32,
    event: OwnedFd,
}

/// A handle that makes a blocked [`crate::Queue::wait`] return, or the next one not block.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(Arc::new(Shared { state: AtomicU32::new(AWAKE), event })))
    }

    /// Wakes the loop. Costs a system call only if the loop is asleep.
    pub fn wake(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            let one = 1u64;
            // SAFETY: writes 8 bytes from a live integer. The counter cannot reach its limit: only one
            // write follows each sleep.
            unsafe { libc::write(self.0.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    pub(crate) fn event_fd(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }

    /// Whether somebody woke the loop since it last looked.
    pub(crate) fn is_notified(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// Announces sleep; false if somebody woke the loop since it last looked.
    pub(crate) fn try_sleep(&self) -> bool {
        let state = &self.0.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes note of wake-ups: the loop is awake and about to look for messages. True if there was one.
    pub(crate) fn awake(&self) -> bool {
        // Load first: the swap would claim the cache line on every turn of a busy loop.
        self.0.state.load(Ordering::Acquire) != AWAKE
            && self.0.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }
}
