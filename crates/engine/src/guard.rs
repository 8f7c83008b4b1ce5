//! Orders overlapping writes: of two that overlap, the later one starts when the earlier one
//! has ended, so that mirrors and parity see them in one order.
//!
//! Invariants: ranges in `active` are disjoint; a waiter overlaps an active range or an earlier
//! waiter; waiters start in the order in which they came.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

/// Half-open ranges of array sectors under write.
#[derive(Debug, Default)]
pub struct Guard {
    /// Start to end.
    active: BTreeMap<u64, u64>,
    waiting: VecDeque<(u64, u64, u32)>,
}

impl Guard {
    /// Claims `start..end` for `key`. False: it waits, and [`Self::release`] will name it.
    pub fn claim(&mut self, start: u64, end: u64, key: u32) -> bool {
        let behind = self.waiting.iter().any(|&(s, e, _)| s < end && start < e);
        if behind || self.is_busy(start, end) {
            self.waiting.push_back((start, end, key));
            return false;
        }
        self.active.insert(start, end);
        true
    }

    /// Ends the write that started at `start`; `ready` gets the waiters that may start now.
    pub fn release(&mut self, start: u64, ready: &mut Vec<u32>) {
        self.active.remove(&start);
        let mut i = 0;
        while i < self.waiting.len() {
            let (start, end, key) = self.waiting[i];
            let behind = self.waiting.iter().take(i).any(|&(s, e, _)| s < end && start < e);
            if behind || self.is_busy(start, end) {
                i += 1;
            } else {
                self.waiting.remove(i);
                self.active.insert(start, end);
                ready.push(key);
            }
        }
    }

    fn is_busy(&self, start: u64, end: u64) -> bool {
        self.active.range(..end).next_back().is_some_and(|(_, &e)| e > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_writes_start_in_the_order_they_came() {
        let mut guard = Guard::default();
        assert!(guard.claim(0, 8, 1));
        assert!(guard.claim(8, 16, 2));
        assert!(!guard.claim(4, 12, 3));
        assert!(!guard.claim(10, 20, 4), "4 overlaps the waiting 3");
        assert!(guard.claim(20, 24, 5));
        let mut ready = Vec::new();
        guard.release(0, &mut ready);
        assert!(ready.is_empty());
        guard.release(8, &mut ready);
        assert_eq!(ready, [3]);
        guard.release(4, &mut ready);
        assert_eq!(ready, [3, 4]);
    }
}
