//! The arm: what it does next, and how a job begins and ends.

use super::job::{Job, Stream, link_end};
use super::shingle::ShingleState;
use super::{HardDisk, ReadAhead, Waiting, WriteCache};
use crate::Nanos;
use crate::cache::Dirty;
use crate::channel::Channel;
use crate::mechanism::{Arrival, Leg};
use crate::request::Op;
use std::ops::Range;

/// A pass of writes out of the buffer goes on behind a gap of at most this part of it: a stream lets a few sectors go
/// by (skip masks).
const SKIPPED_PART: u64 = 64;

/// Commands, and writes out of the buffer, in a row while the buffer is more than half full.
const RUN: u32 = 32;
/// A longer write counts as several: what it takes is a track's time, not an arm's move.
const RUN_BLOCKS: u64 = 8;

impl HardDisk {
    /// When the arm ends its job, gives up a prefetch, or begins the next one.
    pub(super) fn arm_next(&self) -> Option<Nanos> {
        let work = self.next_work();
        match &self.job {
            Some(Job::Read(stream)) => {
                let given_up = work.map(|(known, _)| known.max(stream.busy_until));
                let end = stream.end().max(stream.busy_until);
                Some(given_up.map_or(end, |given_up| given_up.min(end)))
            }
            Some(Job::Write { legs, .. } | Job::Clean { legs, .. }) => end_of(legs),
            Some(Job::Band { end, .. }) => Some(*end),
            None => match work {
                Some((_, ready)) => Some(ready.max(self.arm_free)),
                None => {
                    self.idle_clean().map(|_| self.arm_free.max(self.last_end) + ShingleState::IDLE)
                }
            },
        }
    }

    /// When the first piece of work is known of, and when the first may begin.
    fn next_work(&self) -> Option<(Nanos, Nanos)> {
        let waiting = self.waiting.iter().map(|waiting| (waiting.since, waiting.ready));
        let dirty = self.cache.first_ready().map(|ready| (ready, ready));
        waiting.chain(dirty).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
    }

    pub(super) fn arm_run(&mut self, now: Nanos, channel: &mut Channel) {
        if self.take_along(now, channel) {
            return;
        }
        match self.job.take() {
            Some(Job::Read(stream)) => {
                self.arm_wrote = false;
                self.end_stream(&stream, now);
            }
            Some(Job::Write { request, legs }) => {
                self.arm_wrote = true;
                self.park(&legs);
                let end = now + self.model.overheads.write_completion;
                self.end(request.tag, end, channel);
            }
            Some(Job::Clean { dirty, legs }) => {
                self.arm_wrote = true;
                self.park(&legs);
                self.cache.cleaned(dirty.blocks);
                self.end_flushes(now, channel);
                self.take_in_stalled(now, channel);
            }
            Some(Job::Band { range, end }) => {
                self.arm_wrote = true;
                self.arm_free = end;
                if let Some(shingles) = &mut self.shingles {
                    shingles.cleaned(&range);
                }
            }
            None => self.begin(now, channel),
        }
    }

    /// The band that an idle disk cleans.
    fn idle_clean(&self) -> Option<Range<u64>> {
        let busy = !self.inbox.is_empty() || !self.transfers.is_empty();
        self.shingles.as_ref().filter(|_| !busy)?.to_clean(true)
    }

    /// Cleans a band: it is read and written once, each with a seek.
    fn begin_band(&mut self, range: Range<u64>, now: Nanos) {
        let range = range.start..range.end.min(self.model.blocks());
        let mechanism = &self.model.mechanism;
        let legs = mechanism.plan(self.arm, now, range.clone(), false, Arrival::InOrder);
        let read = legs.last().map_or(now, Leg::end);
        let arm = legs.last().map_or(self.arm, |leg| leg.track);
        let legs = mechanism.plan(arm, read, range.clone(), true, Arrival::InOrder);
        self.park(&legs);
        self.job = Some(Job::Band { range, end: self.arm_free.max(read) });
    }

    fn park(&mut self, legs: &[Leg]) {
        if let Some(last) = legs.iter().max_by_key(|leg| leg.end()) {
            self.arm = last.track;
            self.arm_free = last.end();
        }
    }

    fn take_in_stalled(&mut self, now: Nanos, channel: &mut Channel) {
        while let Some(&(request, ready)) = self.stalled.front() {
            if !self.cache.has_room(&request.range()) {
                return;
            }
            self.stalled.pop_front();
            self.take_in(request, ready.max(now), channel);
        }
    }

    /// A stream has ended or is given up: the arm stays over the track where it is.
    fn end_stream(&mut self, stream: &Stream, now: Nanos) {
        self.cache.hold(stream.segment, stream.held(now));
        let under_way = stream.legs.iter().position(|leg| now < leg.end());
        let Some(index) = under_way else { return self.park(&stream.legs) };
        let leg = &stream.legs[index];
        self.arm = leg.track;
        self.arm_free = if now < leg.settled {
            leg.settled // a seek is not broken off
        } else if now < leg.start || self.model.stops_in_sector {
            now
        } else {
            // A sector is read to its end; between two, what goes on right there is not late.
            let passed = leg.passed(now);
            if leg.after(passed) >= now { now } else { leg.after(passed + 1).min(leg.end()) }
        };
    }

    fn begin(&mut self, now: Nanos, channel: &mut Channel) {
        let is_idle = self.next_work().is_none();
        let band = self.shingles.as_ref().and_then(|shingles| shingles.to_clean(is_idle));
        if let Some(band) = band {
            return self.begin_band(band, now);
        }
        let is_clean = self.cleans_first(now);
        self.last_was_clean = is_clean;
        if let Some(dirty) = if is_clean { self.pick_dirty(now) } else { None } {
            return self.begin_clean(dirty, now);
        }
        let Some(index) = self.pick_waiting(now) else { return };
        let waiting = self.waiting.swap_remove(index);
        // What it reads may wait for the media itself.
        let dirty = self.cache.dirty_within(&waiting.request.range());
        if let Some(dirty) = dirty {
            self.waiting.push(waiting);
            return self.begin_clean(dirty, now);
        }
        match waiting.request.op {
            Op::Read => self.begin_read(&waiting, now, channel),
            _ => self.begin_write(&waiting, now),
        }
    }

    /// Whether a waiting write goes before the commands that wait. Once half of the room is used, writes go until a
    /// quarter is, by runs: each turn from reads to writes and back costs the arm a move.
    fn cleans_first(&mut self, now: Nanos) -> bool {
        if self.cache.first_ready().is_none_or(|ready| ready > now) {
            return false;
        }
        let no_command = self.waiting.iter().all(|waiting| waiting.ready > now);
        match self.model.write_cache {
            WriteCache::Lazy if !no_command => {
                self.is_emptied() || !self.flushes.is_empty() && !self.last_was_clean
            }
            _ => true,
        }
    }

    fn is_emptied(&mut self) -> bool {
        if !self.cache.is_dirtier_than(if self.is_emptying { 0.25 } else { 0.5 }) {
            (self.is_emptying, self.run_left) = (false, 0);
            return false;
        }
        if self.run_left == 0 {
            (self.is_emptying, self.run_left) = (!self.is_emptying, RUN);
        }
        self.run_left -= 1;
        self.is_emptying
    }

    fn begin_read(&mut self, waiting: &Waiting, now: Nanos, channel: &mut Channel) {
        let model = self.model.clone();
        let start = self.after_turn(now.max(waiting.ready), waiting.from, false);
        let range = waiting.request.range();
        let wanted = waiting.from..range.end;
        let arrival = if waiting.segment.is_some() { Arrival::InOrder } else { model.read_arrival };
        let mut legs = model.mechanism.plan(self.arm, start, wanted.clone(), false, arrival);
        let (segment, base) = match waiting.segment {
            Some(segment) => (segment, self.cache.segment(segment).blocks.start),
            None => {
                let first = legs.iter().map(|leg| leg.lba).min().unwrap_or(range.start);
                (self.cache.take(first, None, false), first)
            }
        };
        let busy_until = end_of_blocks(&legs, range.end).unwrap_or(start);
        let end = self.link_end(&legs, waiting);
        let stop = self.read_ahead_stop(base, &range, waiting.goes_on);
        self.read_ahead(&mut legs, wanted.clone(), stop);
        let mut stream = Stream {
            segment,
            base,
            media: if waiting.segment.is_some() { wanted.start } else { base },
            planned: stop.max(range.end),
            busy_until,
            legs,
        };
        let must = match model.read_ahead {
            ReadAhead::Streams if waiting.goes_on => stop,
            _ => (range.end + model.read_ahead_min).min(stop),
        };
        stream.busy_until = stream.passed(must - 1).unwrap_or(busy_until).max(busy_until);
        self.job = Some(Job::Read(stream));
        let at = Nanos(end.0.saturating_sub(model.link_time(range.end - range.start).0));
        self.send(&waiting.request, at.max(start), end, channel);
    }

    /// When an access may set out that turns from reading to writing or back: no sooner than its move
    /// alone would have let the heads be ready.
    fn after_turn(&self, start: Nanos, lba: u64, is_write: bool) -> Nanos {
        let mechanism = &self.model.mechanism;
        let to = mechanism.layout.extent(lba).track;
        let moved = mechanism.move_time(self.arm, to, is_write);
        let reached = mechanism.reach_time(self.arm, to, self.arm_wrote, is_write);
        start + reached.since(moved)
    }

    /// When a read's data have all gone to the host.
    fn link_end(&self, legs: &[Leg], waiting: &Waiting) -> Nanos {
        let costs = &self.model.overheads;
        let range = waiting.request.range();
        let link = |blocks| self.model.link_time(blocks);
        if waiting.from > range.start {
            return link_end(legs, range, waiting.data, link);
        }
        let blocks = self.model.cache.segment_blocks.min(range.end - range.start);
        let mark = ((blocks as f64 * self.model.read_watermark) as u64).max(1);
        let ready = end_of_blocks(legs, range.start + mark).unwrap_or(Nanos::ZERO);
        link_end(legs, range, ready + costs.reselect + costs.data_preparation, link)
    }

    /// Plans what is read beyond the wanted blocks.
    fn read_ahead(&self, legs: &mut Vec<Leg>, wanted: Range<u64>, stop: u64) {
        let Some((arm, now)) = legs.last().map(|leg| (leg.track, leg.end())) else { return };
        // Blocks behind the wanted ones may have passed already, where the heads landed.
        let passed = legs.iter().filter(|leg| leg.lba >= wanted.end).map(|leg| leg.lba).min();
        let passed_end = legs.iter().filter(|leg| leg.lba >= wanted.end).map(Leg::lba_end).max();
        let from = legs.iter().map(Leg::lba_end).filter(|&end| end <= passed.unwrap_or(u64::MAX));
        let from = from.max().unwrap_or(wanted.end).max(wanted.end);
        let mechanism = &self.model.mechanism;
        let gap = from..passed.unwrap_or(u64::MAX).min(stop);
        mechanism.extend(arm, now, gap, false, legs);
        if let (Some(end), Some(last)) = (passed_end, legs.last().copied()) {
            mechanism.extend(last.track, last.end(), end..stop, false, legs);
        }
    }

    fn begin_write(&mut self, waiting: &Waiting, now: Nanos) {
        let range = self.place_of(waiting.request.range());
        let legs = self.write_legs(range, now.max(waiting.ready), waiting.data);
        self.job = Some(Job::Write { request: waiting.request, legs });
    }

    /// What it takes before the arm sets out to write from the buffer: what a command that goes to the media takes
    /// more than one that ends in the buffer, unless the write goes on where the last one ends or a little behind.
    pub(super) fn set_up(&self, dirty: &Dirty) -> Nanos {
        let joins = self.model.cache.combines_under_way || dirty.order == self.written_order;
        let gap = dirty.lba.checked_sub(self.written_to);
        let goes_on = gap.is_some_and(|gap| gap * SKIPPED_PART <= self.pass_blocks);
        let goes_on = self.arm_wrote && goes_on && joins;
        let costs = &self.model.overheads;
        let set_up = costs.write_miss.least().since(costs.write_hit.least());
        if goes_on { Nanos::ZERO } else { set_up }
    }

    fn begin_clean(&mut self, dirty: Dirty, now: Nanos) {
        let Some(mut dirty) = self.cache.start_cleaning(dirty.lba) else { return };
        // In pieces of about two tracks, so that reads do not wait for megabytes; and of a quarter of the
        // room, which is free again for the host when a piece is on the media.
        let most = 2 * self.model.mechanism.layout.sectors_per_track(dirty.lba);
        let most = most.min(self.model.cache.dirty_blocks_max / 4).max(1);
        if dirty.blocks > most {
            let (lba, blocks) = (dirty.lba + most, dirty.blocks - most);
            let rest = Dirty { lba, blocks, spot: None, ..dirty };
            self.cache.put_back(rest);
            // Its own data were there before those of the rest.
            dirty.data = Nanos(dirty.data.0.saturating_sub(self.model.link_time(rest.blocks).0));
            dirty.blocks = most;
        }
        let mut range = self.place_of(dirty.lba..dirty.lba + dirty.blocks);
        if range.start != dirty.lba {
            self.join_log(&mut dirty, most, now);
            range.start = range.start.min(self.model.blocks() - dirty.blocks);
            range.end = range.start + dirty.blocks;
        }
        let set_up = self.set_up(&Dirty { lba: range.start, ..dirty });
        let start = now.max(dirty.ready) + set_up;
        if self.is_emptying {
            let more = dirty.blocks.div_ceil(RUN_BLOCKS) - 1;
            self.run_left = self.run_left.saturating_sub(more as u32);
        }
        self.pass_blocks = dirty.blocks + if set_up > Nanos::ZERO { 0 } else { self.pass_blocks };
        (self.written_to, self.written_order) = (range.end, dirty.order);
        let legs = self.write_legs(range, start, dirty.data);
        self.job = Some(Job::Clean { dirty, legs });
    }

    /// A write to the cache zone takes along what else waits for it, the oldest first, up to `most` blocks: there all
    /// goes in a row, wherever its home is.
    fn join_log(&mut self, dirty: &mut Dirty, most: u64, now: Nanos) {
        let Some(shingles) = &mut self.shingles else { return };
        while let Some(next) = self.cache.oldest_dirty() {
            let range = next.lba..next.lba + next.blocks;
            if next.ready > now || dirty.blocks + next.blocks > most || shingles.goes_on(&range) {
                return;
            }
            self.cache.start_cleaning(next.lba);
            shingles.write(&range);
            dirty.blocks += next.blocks;
            dirty.data = dirty.data.max(next.data);
            dirty.order = dirty.order.min(next.order);
        }
    }

    /// Where a write really goes: to its place, or on a shingled disk to the cache zone.
    fn place_of(&mut self, range: Range<u64>) -> Range<u64> {
        let blocks = range.end - range.start;
        let Some(shingles) = &mut self.shingles else { return range };
        let place = shingles.log_place();
        if shingles.write(&range) {
            return range;
        }
        let last = self.model.blocks() - blocks;
        place.min(last)..place.min(last) + blocks
    }

    /// Plans a write whose data are in the buffer at `data`, so that the media never wait for them.
    fn write_legs(&self, range: Range<u64>, start: Nanos, data: Nanos) -> Vec<Leg> {
        let mechanism = &self.model.mechanism;
        let blocks = range.end - range.start;
        let extent = mechanism.layout.extent(range.start);
        let moved = mechanism.move_time(self.arm, extent.track, true);
        let media = mechanism.rotation.time_of(extent.width) * blocks;
        let first_block = Nanos(data.0.saturating_sub(self.model.link_time(blocks - 1).0));
        let needed = first_block.max(Nanos(data.0.saturating_sub(media.0)));
        let late = needed.since(start + moved);
        let least = self.model.overheads.write_move_delay_min.since(moved);
        let start = self.after_turn(start + late.max(least), range.start, true);
        mechanism.plan(self.arm, start, range, true, self.model.write_arrival)
    }

    /// How far a disk reads that was asked for `range`, into a segment that begins at `base`.
    pub(super) fn read_ahead_stop(&self, base: u64, range: &Range<u64>, goes_on: bool) -> u64 {
        let model = &*self.model;
        let layout = &model.mechanism.layout;
        let blocks = layout.blocks();
        if range.end >= blocks || !model.caches_reads {
            return range.end;
        }
        let most = match model.read_ahead_max {
            0 => model.cache.segment_blocks,
            most => most,
        };
        let stop = match model.read_ahead {
            ReadAhead::Off => range.end,
            ReadAhead::Track => layout.track_blocks(range.end - 1).end,
            ReadAhead::Cylinder => layout.cylinder_end(range.end - 1),
            ReadAhead::Streams if !goes_on => range.end,
            ReadAhead::Segment | ReadAhead::Streams => u64::MAX,
            // A stream shows when a read goes on where an earlier one in the same segment ended.
            ReadAhead::NextTrack if base == range.start && model.looks_for_streams() => range.end,
            ReadAhead::NextTrack => {
                layout.track_blocks(range.end).end + layout.sectors_per_track(range.end)
            }
        };
        let full = if model.read_ahead_over_requested {
            u64::MAX
        } else {
            range.start + model.cache.segment_blocks
        };
        stop.min(range.end + most).min(full).max(range.end + model.read_ahead_min).min(blocks)
    }

    /// A hit: the stream that it came from goes on, or begins anew if the disk is idle and does that.
    pub(super) fn read_on(&mut self, segment: usize, range: Range<u64>, goes_on: bool, now: Nanos) {
        if self.stream_segment() == Some(segment) {
            return self.stretch_stream(range.end, range, goes_on);
        }
        let held = self.cache.segment(segment).blocks.clone();
        let is_idle = self.job.is_none() && self.waiting.is_empty() && self.arm_free <= now;
        let stop = self.read_ahead_stop(held.start, &range, goes_on);
        if !self.model.read_ahead_on_hit || !is_idle || stop <= held.end {
            return;
        }
        let mechanism = &self.model.mechanism;
        let legs = mechanism.plan(self.arm, now, held.end..stop, false, Arrival::InOrder);
        self.job = Some(Job::Read(Stream {
            segment,
            legs,
            base: held.start,
            media: held.end,
            planned: stop,
            busy_until: now,
        }));
    }

    /// A write touches blocks that are being read ahead: the stream ends before them.
    pub(super) fn stop_stream_at(&mut self, range: &Range<u64>) {
        let Some(Job::Read(stream)) = &mut self.job else { return };
        if stream.base < range.end && range.start < stream.planned {
            stream.legs.retain(|leg| leg.start < stream.busy_until);
            stream.planned = stream.legs.iter().map(Leg::lba_end).max().unwrap_or(stream.media);
        }
    }
}

fn end_of(legs: &[Leg]) -> Option<Nanos> {
    Some(legs.iter().map(Leg::end).max().unwrap_or(Nanos::ZERO))
}

/// When the blocks before `end` have passed.
fn end_of_blocks(legs: &[Leg], end: u64) -> Option<Nanos> {
    let before = legs.iter().filter(|leg| leg.lba < end);
    before.map(|leg| leg.after(leg.blocks.min(end - leg.lba))).max()
}
