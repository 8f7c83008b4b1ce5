//! Which of those that wait gets the arm.

use super::{HardDisk, Order, WriteCache};
use crate::Nanos;
use crate::cache::Dirty;

impl HardDisk {
    /// Writes on either side of the arm among which the nearest in time is looked for.
    const NEAR: usize = 32;

    /// The index of the command that is served next.
    pub(super) fn pick_waiting(&mut self, now: Nanos) -> Option<usize> {
        let ready = self.waiting.iter().enumerate().filter(|(_, waiting)| waiting.ready <= now);
        let candidates: Vec<(usize, u64)> =
            ready.map(|(index, waiting)| (index, waiting.from)).collect();
        match self.model.order {
            Order::Fcfs => {
                candidates.iter().min_by_key(|(index, _)| self.age_key(*index)).map(|c| c.0)
            }
            Order::CLook => self.nearest_up(&candidates),
            Order::VScan { turn } => self.nearest_with_turn(&candidates, turn),
            Order::Sptf { ageing } => self.first_reached(&candidates, ageing, now),
        }
    }

    fn age_key(&self, index: usize) -> (Nanos, u64) {
        (self.waiting[index].since, self.waiting[index].request.tag)
    }

    fn cylinder(&self, lba: u64) -> u32 {
        self.model.mechanism.layout.extent(lba).track.cylinder
    }

    /// The next one upwards, or the lowest.
    fn nearest_up(&self, candidates: &[(usize, u64)]) -> Option<usize> {
        let key = |&(index, lba): &(usize, u64)| {
            let cylinder = self.cylinder(lba);
            (cylinder < self.arm.cylinder, cylinder, lba, index)
        };
        candidates.iter().min_by_key(|candidate| key(candidate)).map(|candidate| candidate.0)
    }

    /// The nearest one, where those against the direction are farther by a part of the disk.
    fn nearest_with_turn(&mut self, candidates: &[(usize, u64)], turn: f64) -> Option<usize> {
        let cylinders = f64::from(self.model.mechanism.layout.cylinders());
        let cost = |lba: u64| {
            let distance = i64::from(self.cylinder(lba)) - i64::from(self.arm.cylinder);
            let turns = distance != 0 && (distance < 0) != self.is_downwards;
            let cost = distance.unsigned_abs() as f64 + if turns { turn * cylinders } else { 0.0 };
            (cost, turns)
        };
        let best = candidates.iter().map(|&(index, lba)| (cost(lba), index));
        let ((_, turns), index) =
            best.min_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.1.cmp(&b.1)))?;
        self.is_downwards ^= turns;
        Some(index)
    }

    /// The one whose first block is reached first, where age makes up for distance.
    fn first_reached(&self, candidates: &[(usize, u64)], ageing: f64, now: Nanos) -> Option<usize> {
        let cost = |index: usize, lba: u64| {
            let waiting = &self.waiting[index];
            let is_write = waiting.request.op != crate::request::Op::Read;
            let time = self.model.mechanism.access_time(self.arm, now, lba, is_write);
            time.0 as f64 - ageing * now.since(waiting.since).0 as f64
        };
        // What goes on where another ends is not taken before it: a stream keeps its order.
        let follows = |index: usize, lba: u64| {
            let before = |other: usize| {
                let other = &self.waiting[other].request;
                other.op == self.waiting[index].request.op && other.range().end == lba
            };
            candidates.iter().any(|&(other, _)| other != index && before(other))
        };
        let firsts = candidates.iter().filter(|&&(index, lba)| !follows(index, lba));
        let costs = firsts.map(|&(index, lba)| (cost(index, lba), index));
        costs.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|best| best.1)
    }

    /// The waiting write that goes to the media next.
    pub(super) fn pick_dirty(&self, now: Nanos) -> Option<Dirty> {
        // A log has no place that is nearer than another.
        let in_order = matches!(self.model.order, Order::Fcfs) || self.shingles.is_some();
        if self.model.write_cache != WriteCache::Lazy || in_order {
            return self.cache.oldest_dirty();
        }
        let here = self.first_block_near_arm();
        let mechanism = &self.model.mechanism;
        let mut reach = mechanism.reach(self.arm, true);
        let mut cost = |dirty: &Dirty| {
            let set_up = self.set_up(dirty);
            let spot = dirty.spot.unwrap_or_else(|| mechanism.layout.extent(dirty.lba).spot());
            set_up + reach.time(now + set_up, &spot)
        };
        let near = self.cache.dirty_near(here, Self::NEAR);
        let ready = near.filter(|dirty| dirty.ready <= now);
        let first = ready.min_by_key(|dirty| (cost(dirty), dirty.lba)).copied();
        first.or_else(|| self.cache.oldest_dirty())
    }

    fn first_block_near_arm(&self) -> u64 {
        self.model.mechanism.layout.first_block_from(self.arm.cylinder)
    }
}
