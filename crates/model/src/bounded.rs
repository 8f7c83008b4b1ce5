//! A volume that takes only so much to write at once: md's RAID4, 5 and 6, whose stripe cache holds the data of
//! all writes under way, `stripe_cache_size` pages for each member.
//!
//! Invariants: writes go in the order in which they came, each with all its blocks; one goes whatever its size if none
//! is under way; reads and flushes pass.

use crate::Nanos;
use crate::request::{Completion, Op, Request};
use crate::volume::Volume;
use std::collections::{BTreeMap, VecDeque};

/// See the module.
pub struct Bounded {
    inner: Box<dyn Volume>,
    blocks_max: u64,
    held: VecDeque<Request>,
    /// Blocks of writes under way, by tag.
    writes: BTreeMap<u64, u64>,
    under_way: u64,
    answered: VecDeque<Completion>,
}

impl std::fmt::Debug for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bounded").field("blocks_max", &self.blocks_max).finish_non_exhaustive()
    }
}

impl Bounded {
    /// A bound of so many blocks.
    #[must_use]
    pub fn new(inner: Box<dyn Volume>, blocks_max: u64) -> Self {
        let (held, answered) = (VecDeque::new(), VecDeque::new());
        Self { inner, blocks_max, held, writes: BTreeMap::new(), under_way: 0, answered }
    }

    fn go_on(&mut self, now: Nanos) {
        loop {
            while let Some(done) = self.inner.poll(now) {
                self.under_way -= self.writes.remove(&done.tag).unwrap_or(0);
                self.answered.push_back(done);
            }
            let fits = |request: &&Request| {
                self.under_way == 0 || self.under_way + request.blocks <= self.blocks_max
            };
            let Some(request) = self.held.front().filter(fits).copied() else { return };
            self.held.pop_front();
            self.under_way += request.blocks;
            self.writes.insert(request.tag, request.blocks);
            self.inner.submit(request, now);
        }
    }
}

impl Volume for Bounded {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        if matches!(request.op, Op::Write | Op::WriteThrough) {
            self.held.push_back(request);
            self.go_on(now);
        } else {
            self.inner.submit(request, now);
        }
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.go_on(now);
        self.answered.pop_front()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.answered.front().map(|done| done.at).or_else(|| self.inner.next_event())
    }

    fn cpu(&self) -> Nanos {
        self.inner.cpu()
    }

    fn stripe_blocks(&self) -> u64 {
        self.inner.stripe_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request takes a millisecond of its own, side by side.
    #[derive(Default)]
    struct Wide(VecDeque<Completion>);

    impl Volume for Wide {
        fn blocks(&self) -> u64 {
            1 << 30
        }
        fn submit(&mut self, request: Request, now: Nanos) {
            self.0.push_back(Completion { tag: request.tag, at: now + Nanos(1_000_000) });
        }
        fn poll(&mut self, now: Nanos) -> Option<Completion> {
            self.0.front().filter(|done| done.at <= now)?;
            self.0.pop_front()
        }
        fn next_event(&self) -> Option<Nanos> {
            self.0.front().map(|done| done.at)
        }
        fn cpu(&self) -> Nanos {
            Nanos::ZERO
        }
    }

    #[test]
    fn writes_wait_for_room_and_reads_do_not() {
        let mut volume = Bounded::new(Box::new(Wide::default()), 16);
        for tag in 0..4 {
            volume.submit(Request { tag, op: Op::Write, lba: tag * 8, blocks: 8 }, Nanos::ZERO);
        }
        volume.submit(Request { tag: 4, op: Op::Write, lba: 100, blocks: 99 }, Nanos::ZERO);
        volume.submit(Request { tag: 5, op: Op::Read, lba: 0, blocks: 8 }, Nanos::ZERO);
        let mut ends = Vec::new();
        while let Some(at) = volume.next_event() {
            ends.extend(
                std::iter::from_fn(|| volume.poll(at))
                    .map(|done| (done.tag, done.at.0 / 1_000_000)),
            );
        }
        ends.sort_unstable();
        assert_eq!(ends, [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 1)]);
    }
}
