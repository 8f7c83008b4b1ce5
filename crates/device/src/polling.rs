//! Whether a queue that has nothing to do looks out for a while before its thread sleeps.
//!
//! To be woken costs a thread more than to serve a small request where its core has gone to sleep too: that is interrupted,
//! and in a virtual machine its host has to run it again. A client that waits for each answer pays it with each request.
//! To look out costs processor time instead, so it is done where it pays, which the last waits tell:
//! - no look is longer than [`LOOK_MAX`];
//! - after a look in vain the next comes when some more waits than before were short; their number doubles with each look
//!   in vain and halves with each that finds something;
//! - a look during which the thread was taken off its core counts as if many had been in vain: others need the core;
//! - of a process's queues no more look out at a time than half of the cores, since who is waited for needs one too.
//!
//! The waits of an idle queue are long, so it never looks. Nor does one whose client runs on the very core that a look
//! would keep busy: each look there is in vain.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest look. A client on the same machine comes back within it, also if it has to be woken first; a disk, or a client
/// behind a network, mostly does not.
pub(crate) const LOOK_MAX: Duration = Duration::from_micros(50);
/// A wait that was slept through is short up to this: it includes the waking that a look would have spared.
const SLEPT_MAX: Duration = Duration::from_micros(100);
/// A thread that sees no clock for so long was taken off its core.
const INTERRUPTION_MIN: Duration = LOOK_MAX;
/// Short waits that are wanted before the first look.
const NEEDED_FIRST: u32 = 4;
/// After an interruption.
const NEEDED_INTERRUPTED: u32 = 512;
/// The most that are wanted.
const NEEDED_MAX: u32 = 1024;
/// So many short waits one long wait makes up for.
const LONG_WEIGHT: u32 = 4;

/// The process's queues that look out now.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
/// How many may.
static LOOKING_MAX: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(0, |cores| cores.get() / 2));

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something came.
    Found,
    /// Nothing came in time.
    InVain,
    /// Somebody else had the core meanwhile.
    Interrupted,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Polling {
    /// So many waits have to be short before a look.
    needed: u32,
    /// So many were, less what long ones have made up for.
    short: u32,
}

impl Polling {
    pub(crate) fn new() -> Self {
        Self { needed: NEEDED_FIRST, short: 0 }
    }

    /// Whether to look out before the next sleep.
    pub(crate) fn is_due(&self) -> bool {
        self.short >= self.needed
    }

    /// A wait has ended that lasted so long, with its look if there was one.
    pub(crate) fn waited(&mut self, time: Duration, look: Option<Look>) {
        match look {
            Some(Look::Found) => {
                self.needed = (self.needed / 2).max(1);
                self.short = self.short.min(self.needed);
            }
            Some(Look::InVain) => {
                self.needed = (self.needed * 2).min(NEEDED_MAX);
                self.short = 0;
            }
            Some(Look::Interrupted) => {
                self.needed = self.needed.max(NEEDED_INTERRUPTED);
                self.short = 0;
            }
            None if time <= SLEPT_MAX => self.short = (self.short + 1).min(self.needed),
            None => self.short = self.short.saturating_sub(LONG_WEIGHT),
        }
    }
}

/// Whether a look would not be refused now.
pub(crate) fn may_look() -> bool {
    LOOKING.load(Ordering::Relaxed) < *LOOKING_MAX
}

/// Looks until `has_come`, at most until `until`; none if enough others do.
pub(crate) fn look_out(until: Instant, mut has_come: impl FnMut() -> bool) -> Option<Look> {
    if LOOKING.fetch_add(1, Ordering::Relaxed) >= *LOOKING_MAX {
        LOOKING.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    let mut seen = Instant::now();
    let look = loop {
        let found = has_come();
        let now = Instant::now();
        if now - seen >= INTERRUPTION_MIN {
            break Look::Interrupted;
        }
        if found {
            break Look::Found;
        }
        if now >= until {
            break Look::InVain;
        }
        seen = now;
        std::hint::spin_loop();
    };
    LOOKING.fetch_sub(1, Ordering::Relaxed);
    Some(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_millis(10);

    /// Waits that are slept through and short, until a look is due.
    fn until_due(polling: &mut Polling) -> u32 {
        let mut waits = 0;
        while !polling.is_due() {
            polling.waited(SHORT, None);
            waits += 1;
        }
        waits
    }

    #[test]
    fn an_idle_queue_never_looks() {
        let mut polling = Polling::new();
        // A client that asks something now and then, twice in a row.
        for time in [LONG, SHORT].repeat(100) {
            polling.waited(time, None);
            assert!(!polling.is_due());
        }
    }

    #[test]
    fn short_waits_are_looked_through_until_one_is_in_vain() {
        let mut polling = Polling::new();
        assert_eq!(until_due(&mut polling), NEEDED_FIRST);
        for _ in 0..100 {
            polling.waited(SHORT, Some(Look::Found));
            assert!(polling.is_due());
        }
        polling.waited(LONG, Some(Look::InVain));
        assert_eq!(until_due(&mut polling), 2);
    }

    #[test]
    fn who_always_looks_in_vain_looks_hardly_ever() {
        let mut polling = Polling::new();
        let looks = (0..20).map(|_| {
            let waits = until_due(&mut polling);
            polling.waited(LONG, Some(Look::InVain));
            waits
        });
        let looks: Vec<u32> = looks.collect();
        assert_eq!(looks[..4], [4, 8, 16, 32]);
        assert_eq!(looks[19], NEEDED_MAX);
    }

    #[test]
    fn who_loses_its_core_leaves_it_alone_for_a_while() {
        let mut polling = Polling::new();
        until_due(&mut polling);
        polling.waited(SHORT, Some(Look::Interrupted));
        assert_eq!(until_due(&mut polling), NEEDED_INTERRUPTED);
    }

    #[test]
    fn a_look_ends_with_what_came_or_in_time() {
        // Others of this process may be looking.
        let far = Instant::now() + Duration::from_secs(60);
        assert!(matches!(look_out(far, || true), None | Some(Look::Found | Look::Interrupted)));
        let now = Instant::now();
        assert!(matches!(look_out(now, || false), None | Some(Look::InVain | Look::Interrupted)));
    }
}
