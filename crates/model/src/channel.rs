//! What disks share on the way to the host: a cable, a bus, the lanes of an adapter.
//!
//! Invariants: one transfer at a time. A channel that cannot disconnect is held by one command from its
//! start to its end, whoever else waits (two ATA disks on a cable).

use crate::Nanos;

/// A path that transfers one thing at a time.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Bytes in a second; none if only the disks' own links bound it.
    bytes_per_s: Option<u64>,
    /// Whether a command keeps the channel while the disk has nothing to transfer.
    holds: bool,
    free_at: Nanos,
    /// A command holds it whose end is not known yet.
    is_held: bool,
}

impl Channel {
    /// A path that bounds nothing: each disk on a link of its own.
    #[must_use]
    pub fn unbounded() -> Self {
        Self { bytes_per_s: None, holds: false, free_at: Nanos::ZERO, is_held: false }
    }

    /// A bus or an adapter that is free between transfers.
    #[must_use]
    pub fn shared(bytes_per_s: u64) -> Self {
        Self { bytes_per_s: Some(bytes_per_s.max(1)), ..Self::unbounded() }
    }

    /// A cable that a command keeps until it has ended.
    #[must_use]
    pub fn held(bytes_per_s: u64) -> Self {
        Self { holds: true, ..Self::shared(bytes_per_s) }
    }

    /// When a command that comes at `now` may be sent; none while one of unknown length holds it.
    #[must_use]
    pub fn ready(&self, now: Nanos) -> Option<Nanos> {
        match (self.holds, self.is_held) {
            (true, true) => None,
            (true, false) => Some(now.max(self.free_at)),
            (false, _) => Some(now),
        }
    }

    /// A command is sent. A channel that holds is then its own until [`Channel::end`].
    pub(crate) fn begin(&mut self) {
        self.is_held = self.holds;
    }

    /// The command that held it ends at `at`.
    pub(crate) fn end(&mut self, at: Nanos) {
        if self.holds {
            self.is_held = false;
            self.free_at = self.free_at.max(at);
        }
    }

    /// Takes the channel for a transfer that could begin at `now` and takes `own` on the disk's own link.
    /// Gives its beginning and its length.
    pub(crate) fn transfer(&mut self, now: Nanos, bytes: u64, own: Nanos) -> (Nanos, Nanos) {
        let Some(rate) = self.bytes_per_s else { return (now, own) };
        let shared = Nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        let length = own.max(shared);
        if self.holds {
            return (now, length);
        }
        let start = now.max(self.free_at);
        // A slower link of its own leaves the channel to others in between.
        self.free_at = start + shared;
        (start, length)
    }
}
