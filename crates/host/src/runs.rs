//! Joins what is told of one stretch after the other, so that a bad MiB costs two lines in the log and not one
//! for each of its pages, and a thousand bad clients as many and not a thousand.
//!
//! The first of a run is told at once. What comes close to it, of the same kind and before the run's time is
//! over, is counted and told together.

use lapstrake_engine::Time;
use std::ops::Range;

/// For how long places of members are counted together.
pub(crate) const PLACES_NS: u64 = 1_000_000_000;
/// For how long clients are that give cause for complaint.
pub(crate) const COMPLAINTS_NS: u64 = 10_000_000_000;
/// Bytes that may lie between what belongs together.
const GAP: u64 = 1 << 20;

/// One stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run<Of> {
    /// What happened, and to whom.
    pub of: Of,
    /// The bytes that it happened to, with those between.
    pub at: Range<u64>,
    /// How often it happened besides the first time.
    pub more: u64,
    until: Time,
}

impl<Of> Run<Of> {
    /// How often more, in words.
    pub(crate) fn again(&self) -> String {
        if self.more == 1 { "once more".into() } else { format!("{} times more", self.more) }
    }
}

/// Those that go on.
#[derive(Debug)]
pub(crate) struct Runs<Of> {
    runs: Vec<Run<Of>>,
    len_ns: u64,
}

impl<Of: PartialEq> Runs<Of> {
    /// None yet; each will go on for so long.
    pub(crate) fn new(len_ns: u64) -> Self {
        Self { runs: Vec::new(), len_ns }
    }

    /// Takes in one. True if it begins a run, and is to be told now.
    pub(crate) fn add(&mut self, now: Time, of: Of, at: Range<u64>) -> bool {
        let is_near = |run: &&mut Run<Of>| {
            run.of == of
                && at.start <= run.at.end.saturating_add(GAP)
                && run.at.start <= at.end.saturating_add(GAP)
        };
        if let Some(run) = self.runs.iter_mut().find(is_near) {
            run.at = run.at.start.min(at.start)..run.at.end.max(at.end);
            run.more += 1;
            return false;
        }
        self.runs.push(Run { of, at, more: 0, until: now.after(self.len_ns) });
        true
    }

    /// Runs that are over and have more to tell than was told. At the end of time, all.
    pub(crate) fn over(&mut self, now: Time) -> Vec<Run<Of>> {
        let over = self.runs.extract_if(.., |run| run.until <= now);
        over.filter(|run| run.more > 0).collect()
    }

    /// When the next one is over.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.runs.iter().map(|run| run.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_NS: u64 = 1000;

    #[test]
    fn what_is_near_in_place_and_time_is_one_run() {
        let mut runs = Runs::new(RUN_NS);
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
