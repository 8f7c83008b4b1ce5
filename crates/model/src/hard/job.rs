//! What the arm is at.

use super::{HardDisk, ReadAhead, Waiting};
use crate::Nanos;
use crate::cache::Dirty;
use crate::channel::Channel;
use crate::mechanism::{Leg, contiguous_end};
use crate::request::{Op, Request};
use std::ops::Range;

/// A transfer from or to the media.
#[derive(Clone, Debug)]
pub(super) enum Job {
    /// Reads into a segment: what is waited for, then ahead.
    Read(Stream),
    /// Writes a command's data, which it waits for.
    Write { request: Request, legs: Vec<Leg> },
    /// Writes what the buffer holds.
    Clean { dirty: Dirty, legs: Vec<Leg> },
    /// Reads a band of a shingled disk and writes it anew.
    Band { range: Range<u64>, end: Nanos },
}

/// A read that may go on for as long as nothing else is wanted.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub segment: usize,
    pub legs: Vec<Leg>,
    /// First block of the run that it makes; what a segment held before is part of it.
    pub base: u64,
    /// First block of the run that comes from the media.
    pub media: u64,
    /// One past the last block of the plan.
    pub planned: u64,
    /// When the last block that is waited for, or that must be read ahead, has passed.
    pub busy_until: Nanos,
}

/// For how long a stream that always has more to read goes before others.
const PATIENCE: Nanos = Nanos(200_000_000);

impl Stream {
    /// The blocks that the segment holds at a moment.
    pub fn held(&self, now: Nanos) -> Range<u64> {
        self.base..contiguous_end(&self.legs, self.media, now)
    }

    /// Drops legs that have passed long since, so that a stream without end costs no more than a short one.
    fn forget(&mut self, now: Nanos) {
        const KEPT: usize = 8;
        let mut past = 0;
        for leg in &self.legs[..self.legs.len().saturating_sub(KEPT)] {
            if leg.lba != self.media || leg.end() > now {
                break;
            }
            self.media = leg.lba_end();
            past += 1;
        }
        self.legs.drain(..past);
    }

    /// When a block has passed; none if it is not in the plan.
    pub fn passed(&self, lba: u64) -> Option<Nanos> {
        let leg = self.legs.iter().find(|leg| (leg.lba..leg.lba_end()).contains(&lba))?;
        Some(leg.after(lba - leg.lba + 1))
    }

    /// When the last leg has passed.
    pub fn end(&self) -> Nanos {
        self.legs.iter().map(Leg::end).max().unwrap_or(Nanos::ZERO)
    }
}

/// When the last of `range` has gone over the link, if blocks go in order, each takes `link` and none
/// before `from`; blocks outside of `legs` are there already.
pub(super) fn link_end(
    legs: &[Leg],
    range: Range<u64>,
    from: Nanos,
    link: impl Fn(u64) -> Nanos,
) -> Nanos {
    let mut end = from;
    let mut lba = range.start;
    while lba < range.end {
        let leg = legs.iter().find(|leg| (leg.lba..leg.lba_end()).contains(&lba));
        let Some(leg) = leg else {
            let next = legs.iter().map(|leg| leg.lba).filter(|&start| start > lba).min();
            let until = next.unwrap_or(range.end).min(range.end);
            end += link(until - lba);
            lba = until;
            continue;
        };
        let blocks = leg.lba_end().min(range.end) - lba;
        let first = leg.after(lba - leg.lba + 1);
        let last = leg.after(lba - leg.lba + blocks);
        end = (end + link(blocks)).max(first + link(blocks)).max(last + link(1));
        lba += blocks;
    }
    end
}

impl HardDisk {
    /// The segment of the stream that is being read.
    pub(super) fn stream_segment(&self) -> Option<usize> {
        match &self.job {
            Some(Job::Read(stream)) => Some(stream.segment),
            _ => None,
        }
    }

    /// The number of the write that is on its way from the buffer.
    pub(super) fn cleaning(&self) -> Option<u64> {
        match &self.job {
            Some(Job::Clean { dirty, .. }) => Some(dirty.order),
            _ => None,
        }
    }

    /// The segment being read holds what has passed.
    pub(super) fn note_progress(&mut self, now: Nanos) {
        if let Some(Job::Read(stream)) = &mut self.job {
            let held = stream.held(now);
            stream.forget(now);
            self.cache.hold(stream.segment, held);
        }
    }

    /// A read of blocks that come with the stream under way waits for them there; when its data have gone to the host,
    /// of which none go before `hit`.
    pub(super) fn join_stream(
        &mut self,
        request: &Request,
        goes_on: bool,
        hit: Nanos,
        now: Nanos,
        channel: &mut Channel,
    ) -> Option<Nanos> {
        if !self.model.caches_reads || self.has_overdue(now) {
            return None;
        }
        let turn = self.model.mechanism.rotation.period();
        let Some(Job::Read(stream)) = &self.job else { return None };
        let range = request.range();
        if range.start < self.cache.segment(stream.segment).blocks.start {
            return None;
        }
        let comes =
            if range.start < stream.held(now).end { Some(now) } else { stream.passed(range.start) };
        if comes.is_none_or(|comes| comes > now + turn) {
            return None;
        }
        // To such a disk a read behind a gap is none of the stream's, unless its blocks are there.
        let is_there = range.start < stream.held(now).end;
        if self.model.read_ahead == ReadAhead::Streams && !goes_on && !is_there {
            return None;
        }
        let segment = stream.segment;
        self.cache.touch(segment);
        self.stretch_stream(range.end, range.clone(), goes_on);
        let model = self.model.clone();
        let Some(Job::Read(stream)) = &mut self.job else { return None };
        let end = link_end(&stream.legs, range.clone(), hit, |blocks| model.link_time(blocks));
        let last = stream.passed(range.end - 1).unwrap_or(now);
        stream.busy_until = stream.busy_until.max(last);
        let at = Nanos(end.0.saturating_sub(model.link_time(request.blocks).0)).max(hit);
        self.send(request, at, end, channel);
        Some(end)
    }

    /// Reads that wait are answered by the stream under way if it comes to their blocks; true if there were any.
    pub(super) fn take_along(&mut self, now: Nanos, channel: &mut Channel) -> bool {
        if self.stream_segment().is_none() || self.waiting.is_empty() {
            return false;
        }
        self.note_progress(now);
        let costs = self.model.overheads;
        let is_read = |waiting: &&Waiting| waiting.request.op == Op::Read;
        let mut reads: Vec<Waiting> = self.waiting.iter().filter(is_read).copied().collect();
        reads.sort_by_key(|waiting| waiting.request.lba);
        let mut free = now;
        reads.retain(|&Waiting { request, ready, goes_on, .. }| {
            let hit = free.max(ready) + costs.reselect + costs.data_preparation;
            let is_dirty = self.cache.dirty_within(&request.range()).is_some();
            let end = match is_dirty {
                true => None,
                false => self.join_stream(&request, goes_on, hit, now, channel),
            };
            free = end.unwrap_or(free);
            end.is_some()
        });
        let is_taken =
            |waiting: &Waiting| reads.iter().any(|taken| taken.request.tag == waiting.request.tag);
        self.waiting.retain(|waiting| !is_taken(waiting));
        !reads.is_empty()
    }

    /// Whether a command that the stream under way does not come to has waited for so long that it is its turn.
    fn has_overdue(&self, now: Nanos) -> bool {
        let Some(Job::Read(stream)) = &self.job else { return false };
        let is_old = |waiting: &&Waiting| waiting.since + PATIENCE < now;
        if !self.waiting.iter().any(|waiting| is_old(&waiting)) {
            return false;
        }
        let mut others: Vec<&Waiting> = self.waiting.iter().collect();
        others.sort_by_key(|waiting| waiting.request.lba);
        // One behind the other they all are in its way, unless the buffer has let go of them.
        let start = self.cache.segment(stream.segment).blocks.start.max(stream.base);
        let mut end = stream.planned;
        others.retain(|waiting| {
            let range = waiting.request.range();
            let is_on_way = waiting.request.op == Op::Read && (start..=end).contains(&range.start);
            end = if is_on_way { end.max(range.end) } else { end };
            !is_on_way
        });
        others.iter().any(is_old)
    }

    /// Plans on to `end` at least, and as far ahead of `range` as the disk reads.
    pub(super) fn stretch_stream(&mut self, end: u64, range: Range<u64>, goes_on: bool) {
        let Some(Job::Read(stream)) = &self.job else { return };
        let start = self.cache.segment(stream.segment).blocks.start;
        let stop = self.read_ahead_stop(start, &range, goes_on).max(end);
        let Some(Job::Read(stream)) = &mut self.job else { return };
        if stop > stream.planned {
            let (arm, now) =
                stream.legs.last().map_or((self.arm, self.arm_free), |leg| (leg.track, leg.end()));
            let more = stream.planned..stop;
            self.model.mechanism.extend(arm, now, more, false, &mut stream.legs);
            stream.planned = stop;
        }
    }
}
