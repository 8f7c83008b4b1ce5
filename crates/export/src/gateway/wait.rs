//! Waiting for descriptors.

use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

/// What a descriptor is waited for, and what has come.
#[repr(transparent)]
pub(super) struct Wait(libc::pollfd);

impl Wait {
    /// For bytes to read, or room for some; for nothing at all if for neither, so that not even its end is told.
    pub(super) fn new(fd: RawFd, input: bool, output: bool) -> Self {
        let bit = |set, bit| if set { bit } else { 0 };
        let events = bit(input, libc::POLLIN) | bit(output, libc::POLLOUT);
        let fd = if events == 0 { -1 } else { fd };
        Self(libc::pollfd { fd, events, revents: 0 })
    }

    /// Also for the end of what the other says, where that is not waited for as something to read.
    pub(super) fn or_end(mut self, fd: RawFd, is_wanted: bool) -> Self {
        if is_wanted {
            self.0.fd = fd;
            self.0.events |= libc::POLLRDHUP;
        }
        self
    }

    /// Whether the other has ended, as far as that was waited for.
    pub(super) fn has_ended(&self) -> bool {
        self.0.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Whether a read, or a write, would not wait; both where it failed.
    pub(super) fn has_come(&self) -> bool {
        self.0.revents != 0
    }
}

/// Waits until something has come of one of them, or until a time; false: the time has come.
pub(super) fn wait(for_these: &mut [Wait], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Not before the time, by rounding up.
        let left_ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000).min(60_000) as i32);
        // SAFETY: `Wait` is a `pollfd` and nothing else; the kernel writes what came of each.
        let come = unsafe {
            let fds = for_these.as_mut_ptr().cast::<libc::pollfd>();
            libc::poll(fds, for_these.len() as libc::nfds_t, left_ms)
        };
        match come {
            0 if until.is_some_and(|until| until <= Instant::now()) => return Ok(false),
            0 => {}
            1.. => return Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
