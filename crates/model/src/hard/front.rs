//! The front end: commands, one at a time.

use super::{HardDisk, Transfer, Waiting, WriteCache};
use crate::Nanos;
use crate::cache::Hit;
use crate::channel::Channel;
use crate::request::{Op, Request};

impl HardDisk {
    /// What a host takes at most from a command's end to the next one if it has that at hand.
    const TURN_AROUND: Nanos = Nanos(1_000_000);

    /// When the front end takes the next command.
    pub(super) fn front_next(&self, channel: &Channel) -> Option<Nanos> {
        let &(_, since) = self.inbox.front()?;
        let mut next = channel.ready(since.max(self.front_free))?;
        let inside = self.waiting.len() + self.stalled.len() + self.flushes.len();
        let ending = self.done.iter().filter(|(at, _)| *at > next).count();
        if inside + self.transfers.len() + ending >= self.model.queue_depth.max(1) {
            let &(first, _) = self.done.iter().find(|(at, _)| *at > next)?;
            next = next.max(first);
        }
        Some(next)
    }

    pub(super) fn front_run(&mut self, now: Nanos, channel: &mut Channel) {
        let Some((request, since)) = self.inbox.pop_front() else { return };
        channel.begin();
        self.holder = Some(request.tag);
        self.note_progress(now);
        match request.op {
            Op::Read => self.read(request, since, now, channel),
            Op::Write | Op::WriteThrough => self.write(request, since, now, channel),
            Op::Flush => self.flush(request, now, channel),
        }
    }

    fn read(&mut self, request: Request, since: Nanos, now: Nanos, channel: &mut Channel) {
        let costs = &self.model.overheads;
        let (hit, miss) = if self.is_back_to_back(now) {
            (costs.read_hit.get(self.last_was_write), costs.read_miss.get(self.last_was_write))
        } else {
            let is_after_write = self.last_was_write || !costs.read_hit_outlasts;
            (costs.read_hit.get(is_after_write), costs.read_miss.least())
        };
        let (hit, miss) = (now + hit + costs.data_preparation, now + miss);
        self.last_was_write = false;
        let range = request.range();
        let goes_on = self.streams.note(&range, self.model.cache.segments);
        let found = if self.model.caches_reads { self.cache.lookup(&range) } else { Hit::Miss };
        match found {
            Hit::Whole(_) | Hit::Dirty => {
                let end = hit + self.model.link_time(request.blocks);
                self.front_free = end;
                self.send(&request, hit, end, channel);
                if let Hit::Whole(segment) = found {
                    self.cache.touch(segment);
                    self.read_on(segment, range, goes_on, now);
                }
            }
            _ if self.join_stream(&request, goes_on, hit, now, channel).is_some() => {
                self.front_free = hit;
                self.take_along(now, channel);
            }
            Hit::Front(segment, from) => {
                self.cache.touch(segment);
                let segment = Some(segment);
                self.waiting.push(Waiting {
                    request,
                    since,
                    ready: miss,
                    from,
                    segment,
                    data: hit,
                    goes_on,
                });
                self.front_free = hit;
            }
            Hit::Miss => {
                let from = request.lba;
                let data = Nanos::ZERO;
                let segment = self.stream_to(from);
                let ready = miss;
                self.waiting.push(Waiting { request, since, ready, from, segment, data, goes_on });
                self.front_free = miss;
            }
        }
    }

    /// The segment of a stream that a read goes on with, if the disk looks for streams.
    fn stream_to(&self, lba: u64) -> Option<usize> {
        let looks = self.model.caches_reads && self.model.looks_for_streams();
        if looks { self.cache.read_up_to(lba) } else { None }
    }

    /// Data go to the host from `at` on.
    pub(super) fn send(&mut self, request: &Request, at: Nanos, end: Nanos, channel: &mut Channel) {
        let completion = Some(self.model.overheads.read_completion);
        let (tag, blocks) = (request.tag, request.blocks);
        self.transfers.push(Transfer { tag, at, blocks, end, completion });
        let _ = channel;
    }

    /// Whether a command comes so soon after the last one's end that the two run into each other.
    ///
    /// Overheads by the command before are measured with commands back to back. After a pause a disk's
    /// short cut for a command like the last one is gone, so what holds is its cost after the other
    /// kind; and nothing is left of the last command that an access would have to wait for, so what
    /// holds before the arm moves is the lesser cost.
    fn is_back_to_back(&self, now: Nanos) -> bool {
        now < self.last_end + Self::TURN_AROUND
    }

    fn write(&mut self, request: Request, since: Nanos, now: Nanos, channel: &mut Channel) {
        let is_cached = request.op == Op::Write && self.model.write_cache != WriteCache::Off;
        let costs = self.model.overheads;
        let after_write = self.last_was_write && self.is_back_to_back(now);
        self.last_was_write = true;
        if is_cached {
            let ready = now + costs.write_hit.get(after_write);
            if self.cache.has_room(&request.range()) {
                self.take_in(request, ready, channel);
            } else {
                self.stalled.push_back((request, ready));
                self.front_free = ready;
            }
            return;
        }
        let ready = now + costs.write_miss.get(after_write);
        let at = ready + costs.data_preparation;
        let data = at + self.model.link_time(request.blocks);
        self.settle_segment(&request);
        let (tag, blocks) = (request.tag, request.blocks);
        self.transfers.push(Transfer { tag, at, blocks, end: data, completion: None });
        let (from, segment, goes_on) = (request.lba, None, false);
        self.waiting.push(Waiting { request, since, ready, from, segment, data, goes_on });
        self.front_free = data;
    }

    /// A write goes into the buffer and is done with that.
    pub(super) fn take_in(&mut self, request: Request, ready: Nanos, channel: &mut Channel) {
        let costs = &self.model.overheads;
        let at = ready + costs.data_preparation;
        let end = at + self.model.link_time(request.blocks);
        let completion = Some(costs.write_completion);
        let (tag, blocks) = (request.tag, request.blocks);
        self.transfers.push(Transfer { tag, at, blocks, end, completion });
        self.front_free = self.front_free.max(end);
        self.settle_segment(&request);
        let spot = self.model.mechanism.layout.extent(request.lba).spot();
        self.cache.add_dirty(&request.range(), ready, end, spot);
        let _ = channel;
    }

    /// What segments hold of a write is out of date; its own data may be read from the buffer.
    fn settle_segment(&mut self, request: &Request) {
        let range = request.range();
        self.stop_stream_at(&range);
        let joined = self.cache.written_up_to(range.start).filter(|_| self.model.cache.combines);
        let start = joined.map_or(range.start, |index| self.cache.segment(index).blocks.start);
        let busy = self.stream_segment();
        self.cache.forget(&range);
        let index = match joined {
            Some(index) => index,
            None => self.cache.take(range.start, busy, true),
        };
        self.cache.touch(index);
        self.cache.hold(index, start..range.end);
    }

    fn flush(&mut self, request: Request, now: Nanos, channel: &mut Channel) {
        self.front_free = now;
        self.flushes.push((request, self.cache.writes_taken()));
        self.end_flushes(now, channel);
    }

    /// Ends the flushes whose writes are all on the media.
    pub(super) fn end_flushes(&mut self, now: Nanos, channel: &mut Channel) {
        if self.flushes.is_empty() {
            return;
        }
        let cleaning = self.cleaning();
        let cache = &self.cache;
        let mut ended = Vec::new();
        self.flushes.retain(|(request, order)| {
            let waits = cleaning.is_some_and(|cleaning| cleaning <= *order)
                || cache.has_dirty_up_to(*order);
            if !waits {
                ended.push(request.tag);
            }
            waits
        });
        for tag in ended {
            self.end(tag, now, channel);
        }
    }
}
