//! Arm, heads and platters: what an access costs, as a plan of legs.
//!
//! Invariants: legs follow each other in time; a leg's blocks pass under one head without a gap. A plan
//! is made at once for a whole transfer; how far it has come at a moment is then a matter of looking.
//! What it does not do: queue, cache, or move data.

use crate::Nanos;
use crate::layout::{Extent, Layout, Spot, Track};
use crate::rotation::{Angle, Rotation};
use crate::seek::SeekCurve;
use std::ops::Range;
use std::sync::Arc;

/// How rotational latency comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Latency {
    /// From where the platters are.
    Position,
    /// Half a turn each time: what is left when angles are not known.
    HalfTurn,
}

/// In which order the blocks of a track are taken when the heads arrive over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// From the first wanted block on.
    InOrder,
    /// From the next wanted block that passes (zero latency).
    Wanted,
    /// From the next block that passes, wanted or not ("free blocks").
    Any,
}

/// Blocks that pass under one head one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Its first block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u64,
    /// Where they are.
    pub track: Track,
    /// When the heads have settled there.
    pub settled: Nanos,
    /// When its first block comes under the head.
    pub start: Nanos,
    /// A block's time under the head, in picoseconds.
    block_ps: u64,
}

impl Leg {
    /// When `blocks` of it have passed.
    #[must_use]
    pub fn after(&self, blocks: u64) -> Nanos {
        self.start + Nanos((blocks * self.block_ps).div_ceil(1000))
    }

    /// When it has passed.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.after(self.blocks)
    }

    /// One past its last block.
    #[must_use]
    pub fn lba_end(&self) -> u64 {
        self.lba + self.blocks
    }

    /// Blocks that have passed at a moment.
    #[must_use]
    pub fn passed(&self, now: Nanos) -> u64 {
        if now >= self.end() {
            return self.blocks;
        }
        // A moment that was rounded up to a nanosecond still counts as the block's end.
        (now.since(self.start).0 * 1000 / self.block_ps.max(1)).min(self.blocks)
    }
}

/// One past the last block of those from `from` on that have passed without a gap.
#[must_use]
pub fn contiguous_end(legs: &[Leg], from: u64, now: Nanos) -> u64 {
    let mut end = from;
    loop {
        let leg = legs.iter().find(|leg| (leg.lba..leg.lba_end()).contains(&end));
        match leg.map(|leg| leg.lba + leg.passed(now)) {
            Some(passed) if passed > end => end = passed,
            _ => return end,
        }
    }
}

/// How long an arm takes to places, of which those that follow each other are often on one track.
#[derive(Debug)]
pub struct Reach<'a> {
    mechanism: &'a Mechanism,
    arm: Track,
    is_write: bool,
    /// The last time and track that it was asked for; the move, and the angle under the head when it has settled.
    last: Option<(Nanos, Track, Nanos, Angle)>,
}

impl Reach<'_> {
    /// What it takes from `now` until a place is under the head.
    #[must_use]
    pub fn time(&mut self, now: Nanos, spot: &Spot) -> Nanos {
        let mechanism = self.mechanism;
        let (moved, angle) = match self.last {
            Some((at, track, moved, angle)) if (at, track) == (now, spot.track) => (moved, angle),
            _ => {
                let moved = mechanism.move_time(self.arm, spot.track, self.is_write);
                let angle = mechanism.rotation.angle_at(now + moved);
                self.last = Some((now, spot.track, moved, angle));
                (moved, angle)
            }
        };
        moved
            + match mechanism.latency {
                Latency::Position => mechanism.rotation.wait_from(angle, spot.angle),
                Latency::HalfTurn => Nanos(mechanism.rotation.period().0 / 2),
            }
    }
}

/// The mechanism of a disk.
#[derive(Clone, Debug)]
pub struct Mechanism {
    /// Where blocks are, the same on all disks of a kind.
    pub layout: Arc<Layout>,
    /// Seek times for reading.
    pub seek: SeekCurve,
    /// The spindle.
    pub rotation: Rotation,
    /// How latency comes about.
    pub latency: Latency,
    /// To another head of the same cylinder.
    pub head_switch: Nanos,
    /// What a write needs more than a read to settle, in nanoseconds; may be negative.
    pub write_settle_ns: i64,
    /// From reading to writing on one track, or back: the heads for the two are not the same.
    pub turn: Nanos,
}

impl Mechanism {
    /// From one track to another.
    #[must_use]
    pub fn move_time(&self, from: Track, to: Track, is_write: bool) -> Nanos {
        let switch = if from.head == to.head { Nanos::ZERO } else { self.head_switch };
        let time = self.seek.time(from.cylinder.abs_diff(to.cylinder)).max(switch);
        if is_write && time > Nanos::ZERO {
            return Nanos(time.0.saturating_add_signed(self.write_settle_ns));
        }
        time
    }

    /// From one track to another, or from reading to writing, whichever takes longer.
    #[must_use]
    pub fn reach_time(&self, from: Track, to: Track, was_write: bool, is_write: bool) -> Nanos {
        let moved = self.move_time(from, to, is_write);
        if was_write == is_write { moved } else { moved.max(self.turn) }
    }

    /// What it takes from `now` until a block is under the head.
    #[must_use]
    pub fn access_time(&self, arm: Track, now: Nanos, lba: u64, is_write: bool) -> Nanos {
        self.reach(arm, is_write).time(now, &self.layout.extent(lba).spot())
    }

    /// What tells for one place after the other how long an arm takes.
    #[must_use]
    pub fn reach(&self, arm: Track, is_write: bool) -> Reach<'_> {
        Reach { mechanism: self, arm, is_write, last: None }
    }

    /// Plans a transfer of `range` by an arm that is free at `now`, blocks of the first track in the
    /// order of `arrival`.
    #[must_use]
    pub fn plan(
        &self,
        arm: Track,
        now: Nanos,
        range: Range<u64>,
        is_write: bool,
        arrival: Arrival,
    ) -> Vec<Leg> {
        let mut legs = Vec::new();
        let (mut arm, mut now, mut lba) = (arm, now, range.start);
        while arrival != Arrival::InOrder && self.latency == Latency::Position && lba < range.end {
            let before = legs.len();
            lba = self.plan_track(arm, now, lba..range.end, is_write, arrival, &mut legs);
            let Some(last) = legs.last().filter(|_| legs.len() > before) else { break };
            (arm, now) = (last.track, last.end());
            if arrival == Arrival::Any {
                break;
            }
        }
        self.extend(arm, now, lba..range.end, is_write, &mut legs);
        legs
    }

    /// Goes on with a plan in rising order.
    pub fn extend(
        &self,
        mut arm: Track,
        mut now: Nanos,
        range: Range<u64>,
        is_write: bool,
        legs: &mut Vec<Leg>,
    ) {
        let mut lba = range.start;
        while lba < range.end {
            let extent = self.layout.extent(lba);
            let settled = now + self.move_time(arm, extent.track, is_write);
            let is_stream = legs.last().is_some_and(|leg| leg.lba_end() == lba);
            let start = match self.latency {
                // Skews are made for streams: they do not wait for half a turn at each track.
                Latency::HalfTurn if is_stream => settled,
                _ => settled + self.wait(settled, &extent),
            };
            let blocks = extent.blocks.min(range.end - lba);
            legs.push(self.leg(lba, blocks, &extent, settled, start));
            arm = extent.track;
            now = legs[legs.len() - 1].end();
            lba += blocks;
        }
    }

    /// Plans what is wanted of one track, beginning where the heads land. Gives the first block that
    /// is left for later.
    fn plan_track(
        &self,
        arm: Track,
        now: Nanos,
        range: Range<u64>,
        is_write: bool,
        arrival: Arrival,
        legs: &mut Vec<Leg>,
    ) -> u64 {
        let first = self.layout.extent(range.start);
        let settled = now + self.move_time(arm, first.track, is_write);
        let track = self.layout.track_blocks(range.start);
        let part = range.start..range.end.min(track.end);
        let (wanted, until) = match arrival {
            Arrival::Any => (track.start..track.end, track.end),
            _ => (part.clone(), part.end),
        };
        let (landing, wait) = self.landing(settled, first.track, wanted.clone());
        let is_before = landing <= range.start;
        if is_before {
            self.sweep(first.track, settled, wait, landing..part.end, legs);
            return part.end;
        }
        if arrival == Arrival::Any && landing >= part.end && range.end <= landing {
            // The heads land behind what is wanted: the rest of the track passes, then its front.
            self.sweep(first.track, settled, wait, landing..until, legs);
            self.sweep_on(first.track, wanted.start..part.end, legs);
            return part.end;
        }
        self.sweep(first.track, settled, wait, landing..until, legs);
        self.sweep_on(first.track, wanted.start..landing, legs);
        until
    }

    /// The block of `wanted`, all on one track, that comes under the head first, and in what time.
    fn landing(&self, now: Nanos, track: Track, wanted: Range<u64>) -> (u64, Nanos) {
        let mut best = (wanted.start, Nanos::MAX);
        let mut lba = wanted.start;
        while lba < wanted.end {
            let extent = self.layout.extent(lba);
            let blocks = extent.blocks.min(wanted.end - lba);
            if extent.track == track {
                let passed = extent.angle.to(self.rotation.angle_at(now)).0;
                let index = passed.div_ceil(extent.width.0);
                let index = if index < blocks { index } else { 0 };
                let angle = extent.angle.plus(extent.width, index);
                let wait = self.rotation.wait(now, angle);
                if wait < best.1 {
                    best = (lba + index, wait);
                }
            }
            lba += blocks;
        }
        best
    }

    fn sweep(
        &self,
        track: Track,
        settled: Nanos,
        wait: Nanos,
        range: Range<u64>,
        legs: &mut Vec<Leg>,
    ) {
        if range.is_empty() {
            return;
        }
        let extent = self.layout.extent(range.start);
        let blocks = extent.blocks.min(range.end - range.start);
        legs.push(self.leg(range.start, blocks, &extent, settled, settled + wait));
        let end = legs[legs.len() - 1].end();
        self.extend(track, end, range.start + blocks..range.end, false, legs);
    }

    fn sweep_on(&self, track: Track, range: Range<u64>, legs: &mut Vec<Leg>) {
        let now = legs.last().map_or(Nanos::ZERO, Leg::end);
        self.extend(track, now, range, false, legs);
    }

    fn leg(&self, lba: u64, blocks: u64, extent: &Extent, settled: Nanos, start: Nanos) -> Leg {
        let block_ps = self.rotation.ps_of(extent.width);
        Leg { lba, blocks, track: extent.track, settled, start, block_ps }
    }

    fn wait(&self, now: Nanos, extent: &Extent) -> Nanos {
        match self.latency {
            Latency::Position => self.rotation.wait(now, extent.angle),
            Latency::HalfTurn => Nanos(self.rotation.period().0 / 2),
        }
    }
}
