//! Turns: of two writes that overlap, the later one starts when the earlier one has ended.
//!
//! The array orders overlapping writes by itself. What it cannot know is that a write of part of a
//! block is a read, a merge and a write of the whole block; nothing may change that block in
//! between. Every write through the mount therefore takes its turn here.
//!
//! Invariants: ranges in `active` are disjoint; a waiter overlaps an active range or an earlier
//! waiter; waiters start in the order in which they came.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

/// Half-open byte ranges under write, and the jobs that wait for theirs.
#[derive(Debug)]
pub(super) struct Turns<J> {
    /// Start to end.
    active: BTreeMap<u64, u64>,
    waiting: VecDeque<(Range<u64>, J)>,
}

impl<J> Default for Turns<J> {
    fn default() -> Self {
        Self { active: BTreeMap::new(), waiting: VecDeque::new() }
    }
}

impl<J> Turns<J> {
    /// Gives the job back if its turn has come. Else it is kept, and [`Turns::end`] gives it out.
    pub(super) fn begin(&mut self, range: Range<u64>, job: J) -> Option<J> {
        if self.is_behind(&range, self.waiting.len()) || self.is_busy(&range) {
            self.waiting.push_back((range, job));
            return None;
        }
        self.active.insert(range.start, range.end);
        Some(job)
    }

    /// Ends the turn that began at `start`; returns the jobs whose turn has come.
    pub(super) fn end(&mut self, start: u64) -> Vec<J> {
        self.active.remove(&start);
        let mut ready = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let range = self.waiting[at].0.clone();
            if self.is_behind(&range, at) || self.is_busy(&range) {
                at += 1;
            } else if let Some((range, job)) = self.waiting.remove(at) {
                self.active.insert(range.start, range.end);
                ready.push(job);
            }
        }
        ready
    }

    /// Whether it overlaps one of the first `count` waiters.
    fn is_behind(&self, range: &Range<u64>, count: usize) -> bool {
        self.waiting.iter().take(count).any(|(w, _)| w.start < range.end && range.start < w.end)
    }

    fn is_busy(&self, range: &Range<u64>) -> bool {
        self.active.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_writes_start_in_the_order_they_came() {
        let mut turns = Turns::default();
        assert_eq!(turns.begin(0..512, 'a'), Some('a'));
        assert_eq!(turns.begin(512..1024, 'b'), Some('b'));
        assert_eq!(turns.begin(0..1024, 'c'), None);
        assert_eq!(turns.begin(512..1024, 'd'), None, "behind the waiting c");
        assert_eq!(turns.begin(1024..1536, 'e'), Some('e'));
        assert_eq!(turns.end(0), vec![]);
        assert_eq!(turns.end(512), vec!['c']);
        assert_eq!(turns.end(1024), vec![]);
        assert_eq!(turns.end(0), vec!['d']);
        assert_eq!(turns.end(512), vec![]);
    }

    #[test]
    fn waiters_that_do_not_overlap_start_together() {
        let mut turns = Turns::default();
        assert_eq!(turns.begin(0..4096, 1), Some(1));
        assert_eq!(turns.begin(0..512, 2), None);
        assert_eq!(turns.begin(512..1024, 3), None);
        assert_eq!(turns.begin(0..512, 4), None);
        assert_eq!(turns.end(0), vec![2, 3]);
        assert_eq!(turns.end(0), vec![4]);
    }
}
