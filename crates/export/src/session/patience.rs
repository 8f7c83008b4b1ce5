//! How long a client may take, and how far it has come.

use std::time::{Duration, Instant};

/// Who moves fewer bytes than this in all of a [`Patience`] has made no progress: a byte now and then
/// holds nothing open.
const PACE_BYTES: usize = 16 << 10;

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the whole handshake.
    pub handshake: Duration,
    /// Without progress while it owes bytes, or does not take its replies.
    pub stall: Duration,
    /// To take its replies when the server stops.
    pub farewell: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [handshake, stall, farewell] = [30, 60, 5].map(Duration::from_secs);
        Self { handshake, stall, farewell }
    }
}

/// Progress in one direction.
pub(crate) struct Pace {
    pub(crate) since: Instant,
    bytes: usize,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    pub(crate) fn moved(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= PACE_BYTES {
            *self = Self::new();
        }
    }
}
