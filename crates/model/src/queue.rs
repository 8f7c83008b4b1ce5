//! The queue that Linux keeps before a device: it merges requests, sorts them, and splits what is larger than the
//! device takes.
//!
//! Writes go by place, the next one upwards from the last one's end (one-way elevator); reads in the
//! order in which they came: CFQ serves one process at a time and waits for its next read, so those of
//! several are not sorted against each other. Reads go first, writes after some batches of reads.
//! A device that was idle waits a moment for neighbours of its first request (plugging).
//!
//! Invariants: a request merges only with one of its own direction that begins where it ends or ends
//! where it begins, up to the largest request; no command is larger; every tag that came is answered once, when
//! the last piece of it has ended; a flush goes when all before it have ended, and nothing passes it or goes beside it
//! (ATA's is no queued command; SCSI's may be, which is not modelled).

use crate::Nanos;
use crate::request::{Completion, Op, Request};
use crate::volume::Volume;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, VecDeque};

/// What a queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Commands that the device gets at once.
    pub depth: usize,
    /// The largest request, in blocks.
    pub blocks_max: u64,
}

impl QueueConfig {
    /// Linux before an ATA disk without queueing: one at a time, 128 KiB (`drivers/ide`).
    pub const IDE: Self = Self { depth: 1, blocks_max: 256 };
    /// Linux before SATA and SAS disks: queued, 512 KiB (`BLK_DEF_MAX_SECTORS` until 4.2).
    pub const QUEUED: Self = Self { depth: 31, blocks_max: 1024 };
}

/// A request that waits, or is with the device, and those that are part of it.
#[derive(Clone, Debug)]
struct Merged {
    request: Request,
    since: Nanos,
    tags: SmallVec<[u64; 2]>,
}

/// A device behind a queue.
pub struct Queued {
    inner: Box<dyn Volume>,
    config: QueueConfig,
    reads: BTreeMap<(u64, u64), Merged>,
    writes: BTreeMap<(u64, u64), Merged>,
    /// What follows a flush that waits, the flush first.
    held: VecDeque<(Request, Nanos)>,
    /// With the device, by index.
    sent: Vec<Option<Merged>>,
    sent_count: usize,
    /// A flush is with the device.
    is_flushing: bool,
    order: u64,
    /// One past the last block that was sent.
    position: u64,
    is_writing: bool,
    /// Requests left of the batch in its direction.
    batch: usize,
    /// Batches of reads that went before writes that waited.
    starved: usize,
    /// By tag, pieces under way of requests that are larger than the device takes.
    pieces: BTreeMap<u64, u64>,
    /// Until when an idle device waits for neighbours.
    plugged_to: Option<Nanos>,
    answered: VecDeque<Completion>,
    now: Nanos,
    /// All that happens up to `now` has been done.
    is_settled: bool,
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Requests of a direction in a row (`fifo_batch`).
const BATCH: usize = 16;
/// Batches of reads before writes that wait get one (`writes_starved`).
const STARVED_MAX: usize = 2;
/// From a write that has waited for longer a batch begins (CFQ's `fifo_expire_async`): what comes below a stream that
/// goes up is not left behind for ever.
const EXPIRE: Nanos = Nanos(250_000_000);
/// How long an idle device waits for neighbours: a submitter goes on for about so long before it waits.
const PLUG: Nanos = Nanos(50_000);
/// Requests that end an idle device's wait (`unplug_thresh`).
const PLUG_REQUESTS: usize = 4;

impl Queued {
    /// A queue before `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Volume>, config: QueueConfig) -> Self {
        Self {
            inner,
            config,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            held: VecDeque::new(),
            sent: Vec::new(),
            sent_count: 0,
            is_flushing: false,
            order: 0,
            position: 0,
            is_writing: false,
            batch: 0,
            starved: 0,
            pieces: BTreeMap::new(),
            plugged_to: None,
            answered: VecDeque::new(),
            now: Nanos::ZERO,
            is_settled: false,
        }
    }

    fn is_idle(&self) -> bool {
        self.sent_count == 0 && self.reads.is_empty() && self.writes.is_empty()
    }

    fn take_in(&mut self, request: Request, now: Nanos) {
        if !self.held.is_empty() || request.op == Op::Flush {
            self.held.push_back((request, now));
            return;
        }
        if self.is_idle() {
            self.plugged_to = Some(now + PLUG);
        }
        let most = self.config.blocks_max;
        if request.blocks > most {
            self.pieces.insert(request.tag, request.blocks.div_ceil(most));
        }
        let mut rest = request;
        while rest.blocks > most {
            self.queue(Request { blocks: most, ..rest }, now);
            rest = Request { lba: rest.lba + most, blocks: rest.blocks - most, ..rest };
        }
        self.queue(rest, now);
    }

    /// Takes in what is no larger than a command.
    fn queue(&mut self, request: Request, now: Nanos) {
        let blocks_max = self.config.blocks_max;
        let line = if request.op == Op::Read { &mut self.reads } else { &mut self.writes };
        let fits = |other: &Merged| {
            other.request.op == request.op && other.request.blocks + request.blocks <= blocks_max
        };
        // Behind one that ends where this begins.
        let before = line.range_mut(..(request.lba, 0)).next_back();
        if let Some((_, before)) = before
            && before.request.range().end == request.lba
            && fits(before)
        {
            before.request.blocks += request.blocks;
            before.tags.push(request.tag);
            return;
        }
        let end = request.range().end;
        let after = line.range(&(end, 0)..&(end + 1, 0)).next().map(|(key, _)| *key);
        if let Some(mut after) =
            after.filter(|key| fits(&line[key])).and_then(|key| line.remove(&key))
        {
            after.request.lba = request.lba;
            after.request.blocks += request.blocks;
            after.tags.push(request.tag);
            self.order += 1;
            line.insert((request.lba, self.order), after);
            return;
        }
        self.order += 1;
        line.insert(
            (request.lba, self.order),
            Merged { request, since: now, tags: smallvec![request.tag] },
        );
    }

    /// Sends what the device has room for.
    fn send(&mut self, now: Nanos) {
        if let Some(plugged_to) = self.plugged_to {
            if now < plugged_to && self.reads.len() + self.writes.len() < PLUG_REQUESTS {
                return;
            }
            self.plugged_to = None;
        }
        while self.sent_count < self.config.depth && !self.is_flushing {
            let Some(merged) = self.pick(now).or_else(|| self.next_held()) else { return };
            let free = self.sent.iter().position(Option::is_none);
            let index = free.unwrap_or(self.sent.len());
            if index == self.sent.len() {
                self.sent.push(None);
            }
            self.inner.submit(Request { tag: index as u64, ..merged.request }, now);
            self.is_flushing = merged.request.op == Op::Flush;
            self.sent[index] = Some(merged);
            self.sent_count += 1;
        }
    }

    fn pick(&mut self, now: Nanos) -> Option<Merged> {
        if self.reads.is_empty() && self.writes.is_empty() {
            return None;
        }
        let has_more = !if self.is_writing { &self.writes } else { &self.reads }.is_empty();
        if self.batch == 0 || !has_more {
            let prefers_writes = self.starved >= STARVED_MAX && !self.writes.is_empty();
            self.is_writing = self.reads.is_empty() || prefers_writes;
            self.starved =
                if self.is_writing || self.writes.is_empty() { 0 } else { self.starved + 1 };
            self.batch = BATCH;
            if self.is_writing {
                let oldest = self.writes.iter().min_by_key(|(key, merged)| (merged.since, key.1));
                let expired = oldest.filter(|(_, merged)| now.since(merged.since) >= EXPIRE);
                self.position = expired.map_or(self.position, |(&(lba, _), _)| lba);
            }
        }
        self.batch -= 1;
        let line = if self.is_writing { &mut self.writes } else { &mut self.reads };
        let key = if self.is_writing {
            let up = line.range((self.position, 0)..).next().map(|(key, _)| *key);
            up.or_else(|| line.keys().next().copied())?
        } else {
            let oldest = line.iter().min_by_key(|(key, merged)| (merged.since, key.1));
            *oldest.map(|(key, _)| key)?
        };
        let merged = line.remove(&key)?;
        self.position = merged.request.range().end;
        Some(merged)
    }

    /// A flush, when all before it have ended; then what followed it comes in.
    fn next_held(&mut self) -> Option<Merged> {
        if self.sent_count > 0 {
            return None;
        }
        let (request, since) = self.held.pop_front()?;
        let rest = std::mem::take(&mut self.held);
        rest.into_iter().for_each(|(request, since)| self.take_in(request, since));
        self.plugged_to = None;
        Some(Merged { request, since, tags: smallvec![request.tag] })
    }

    /// A request, or a piece of one, has ended.
    fn end(&mut self, tag: u64, at: Nanos) {
        if let Some(left) = self.pieces.get_mut(&tag) {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.pieces.remove(&tag);
        }
        self.answered.push_back(Completion { tag, at });
    }

    fn run(&mut self, now: Nanos) {
        if self.is_settled && now <= self.now {
            return;
        }
        loop {
            let device = self.inner.next_event().unwrap_or(Nanos::MAX);
            let at = self.plugged_to.map_or(device, |plug| plug.min(device));
            if at > now || at == Nanos::MAX {
                break;
            }
            let at = at.max(self.now);
            self.now = at;
            while let Some(done) = self.inner.poll(at) {
                let merged = self.sent[done.tag as usize].take().expect("it was sent");
                self.sent_count -= 1;
                self.is_flushing = false;
                for tag in merged.tags {
                    self.end(tag, done.at);
                }
            }
            self.send(at);
        }
        self.now = self.now.max(now);
        self.is_settled = true;
    }
}

impl Volume for Queued {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        self.run(now);
        self.take_in(request, now);
        self.send(now);
        self.is_settled = false;
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.run(now);
        self.answered.pop_front()
    }

    fn next_event(&self) -> Option<Nanos> {
        let device = self.inner.next_event();
        if self.answered.is_empty() && self.plugged_to.is_none() {
            return device;
        }
        let answered = self.answered.front().map(|_| self.now);
        [answered, self.plugged_to, device].into_iter().flatten().min()
    }

    fn cpu(&self) -> Nanos {
        self.inner.cpu()
    }

    fn stripe_blocks(&self) -> u64 {
        self.inner.stripe_blocks()
    }
}

#[cfg(test)]
mod tests;
