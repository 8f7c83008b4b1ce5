//! Orders overlapping writes: of two that overlap, the later one starts when the earlier one
//! has ended, so that mirrors and parity see them in one order.
//!
//! Invariants: ranges in `active` are disjoint; a waiter overlaps an active range or an earlier
//! waiter; waiters start in the order in which they came.

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;

/// Half-open ranges under write, and the jobs that wait for theirs.
#[derive(Debug)]
pub struct Guard<J> {
    /// Start to end.
    active: BTreeMap<u64, u64>,
    waiting: VecDeque<(Range<u64>, J)>,
}

impl<J> Default for Guard<J> {
    fn default() -> Self {
        Self { active: BTreeMap::new(), waiting: VecDeque::new() }
    }
}

impl<J> Guard<J> {
    /// Gives the job back if its range is free, which it then claims. Else the job is kept, and
    /// [`Guard::release`] gives it out.
    pub fn claim(&mut self, range: Range<u64>, job: J) -> Option<J> {
        if self.is_behind(&range, self.waiting.len()) || self.is_busy(&range) {
            self.waiting.push_back((range, job));
            return None;
        }
        self.active.insert(range.start, range.end);
        Some(job)
    }

    /// Ends the claim that began at `start`; the jobs that have theirs now are added to `ready`.
    pub fn release(&mut self, start: u64, ready: &mut VecDeque<J>) {
        self.active.remove(&start);
        let mut at = 0;
        while at < self.waiting.len() {
            let range = self.waiting[at].0.clone();
            if self.is_behind(&range, at) || self.is_busy(&range) {
                at += 1;
            } else if let Some((range, job)) = self.waiting.remove(at) {
                self.active.insert(range.start, range.end);
                ready.push_back(job);
            }
        }
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
    use alloc::vec::Vec;

    fn released<J>(guard: &mut Guard<J>, start: u64) -> Vec<J> {
        let mut ready = VecDeque::new();
        guard.release(start, &mut ready);
        ready.into()
    }

    #[test]
    fn overlapping_writes_start_in_the_order_they_came() {
        let mut guard = Guard::default();
        assert_eq!(guard.claim(0..512, 'a'), Some('a'));
        assert_eq!(guard.claim(512..1024, 'b'), Some('b'));
        assert_eq!(guard.claim(0..1024, 'c'), None);
        assert_eq!(guard.claim(512..1024, 'd'), None, "behind the waiting c");
        assert_eq!(guard.claim(1024..1536, 'e'), Some('e'));
        assert_eq!(released(&mut guard, 0), []);
        assert_eq!(released(&mut guard, 512), ['c']);
        assert_eq!(released(&mut guard, 1024), []);
        assert_eq!(released(&mut guard, 0), ['d']);
        assert_eq!(released(&mut guard, 512), []);
    }

    #[test]
    fn waiters_that_do_not_overlap_start_together() {
        let mut guard = Guard::default();
        assert_eq!(guard.claim(0..4096, 1), Some(1));
        assert_eq!(guard.claim(0..512, 2), None);
        assert_eq!(guard.claim(512..1024, 3), None);
        assert_eq!(guard.claim(0..512, 4), None);
        assert_eq!(released(&mut guard, 0), [2, 3]);
        assert_eq!(released(&mut guard, 0), [4]);
    }
}
