//! Joins what is told of one stretch after the other, so that a bad MiB costs two lines in the log and not one
//! for each of its pages.
//!
//! The first of a run is told at once. What comes close to it on the same member, in the same second, is
//! counted and told together.

use lapstrake_engine::Time;
use std::ops::Range;

/// How long a run goes on.
const RUN_NS: u64 = 1_000_000_000;
/// Bytes that may lie between what belongs together.
const GAP: u64 = 1 << 20;

/// One stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The member, and what happened to it.
    pub of: (usize, i32),
    /// Bytes.
    pub at: Range<u64>,
    /// How often it happened besides the first time.
    pub more: u64,
    until: Time,
}

/// Those that go on.
#[derive(Debug, Default)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// Takes in one. True if it begins a run, and is to be told now.
    pub(crate) fn add(&mut self, now: Time, of: (usize, i32), at: Range<u64>) -> bool {
        let is_near = |run: &&mut Run| {
            run.of == of
                && at.start <= run.at.end.saturating_add(GAP)
                && run.at.start <= at.end.saturating_add(GAP)
        };
        if let Some(run) = self.0.iter_mut().find(is_near) {
            run.at = run.at.start.min(at.start)..run.at.end.max(at.end);
            run.more += 1;
            return false;
        }
        self.0.push(Run { of, at, more: 0, until: now.after(RUN_NS) });
        true
    }

    /// Runs that are over and have more to tell than was told. At the end of time, all.
    pub(crate) fn over(&mut self, now: Time) -> Vec<Run> {
        let over = self.0.extract_if(.., |run| run.until <= now);
        over.filter(|run| run.more > 0).collect()
    }

    /// When the next one is over.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.0.iter().map(|run| run.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_in_place_and_time_is_one_run() {
        let mut runs = Runs::default();
        let page = |nth: u64| nth * 4096..(nth + 1) * 4096;
        assert!(runs.add(Time(0), (1, 5), page(8)));
        assert!(!runs.add(Time(1), (1, 5), page(9)));
        assert!(!runs.add(Time(2), (1, 5), page(6)), "other shards go before");
        assert!(runs.add(Time(3), (1, 6), page(9)), "another error");
        assert!(runs.add(Time(4), (1, 5), page(4096)), "far away");
        assert_eq!((runs.deadline(), runs.over(Time(RUN_NS - 1)).len()), (Some(Time(RUN_NS)), 0));
        let over = runs.over(Time(2 * RUN_NS));
        assert_eq!((over.len(), &over[0].at, over[0].more), (1, &(6 * 4096..10 * 4096), 2));
        assert_eq!(runs.deadline(), None);
    }
}
