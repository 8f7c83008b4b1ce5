//! What a thread of a load does next. No clock, no I/O, no memory: `now` is an argument, nanoseconds from the load's
//! beginning.
//!
//! Invariants: each step [`Step::Do`] takes one of `depth` slots until [`Generator::complete`] gives it back; after
//! the end nothing new is begun, and [`Step::Done`] comes when all slots are free again.

use super::places::Places;
use super::recorder::{Kind, Recorder};
use super::stamps::Stamps;
use crate::plan::{Io, Pattern};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::collections::VecDeque;
use std::ops::Range;

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At this time; what was done before `from_ns` does not count.
    Time { from_ns: u64, until_ns: u64 },
    /// When each thread has moved so many bytes.
    Amount { bytes: u64 },
    /// When one of both is so.
    Either { until_ns: u64, bytes: u64 },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub slot: u32,
    pub kind: Kind,
    pub offset: u64,
    pub len: u64,
    /// Of a read: what it must find.
    expected: Option<u32>,
    /// When it should have begun.
    due_ns: u64,
}

impl Request {
    /// One of which nobody knows what a read must find.
    pub(crate) const fn unchecked(
        slot: u32,
        kind: Kind,
        offset: u64,
        len: u64,
        due_ns: u64,
    ) -> Self {
        Self { slot, kind, offset, len, expected: None, due_ns }
    }

    /// When it should have begun.
    pub(crate) const fn due_ns(&self) -> u64 {
        self.due_ns
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Begin this.
    Do(Request),
    /// Ask again at this time, or when something has ended.
    WaitUntil(u64),
    /// Ask again when something has ended.
    Wait,
    /// Nothing is left.
    Done,
}

/// One thread of a load.
pub(crate) struct Generator {
    io: Io,
    end: End,
    places: Places,
    random: Xoshiro256PlusPlus,
    stamps: Option<Stamps>,
    /// Blocks still to be read back, once the load itself is over.
    back: VecDeque<u64>,
    reading_back: bool,
    /// Slots and from when on they may be used, in that order.
    free: VecDeque<(u64, u32)>,
    running: Vec<Option<Request>>,
    under_way: u32,
    /// By the rate, the next request's time.
    next_due_ns: u64,
    gap_ns: u64,
    begun_bytes: u64,
    unflushed: u32,
    flush_at_end: bool,
    recorder: Recorder,
    /// Reads that were held against what was written.
    checked: u64,
}

/// The part of a range that thread `index` of `threads` works on.
fn part(io: &Io, range: &Range<u64>, index: u32) -> Range<u64> {
    let shared = matches!(io.pattern, Pattern::Uniform | Pattern::Zipf(_)) && !io.verify;
    let blocks = (range.end - range.start) / io.block;
    if shared || blocks < u64::from(io.threads) {
        return range.clone();
    }
    let each = blocks / u64::from(io.threads);
    let from = range.start + each * io.block * u64::from(index);
    from..from + each * io.block
}

impl Generator {
    /// Thread `index` of a load over `range`, which holds at least one block.
    pub(crate) fn new(io: &Io, range: &Range<u64>, end: End, index: u32, seed: u64) -> Self {
        let part = part(io, range, index);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(index) << 32));
        let stamps = io.verify.then(|| {
            let mut filler = vec![0; 512];
            random.fill(&mut filler[..]);
            Stamps::new(part.start, part.end, io.block, filler)
        });
        let window = match end {
            End::Time { from_ns, until_ns } => (from_ns, Some(until_ns).filter(|_| !io.fsync_end)),
            End::Amount { .. } | End::Either { .. } => (0, None),
        };
        let rate = io.rate.map(|rate| (rate / u64::from(io.threads)).max(1));
        Self {
            places: Places::new(io.pattern, part.start, part.end, io.block),
            random,
            stamps,
            back: VecDeque::new(),
            reading_back: false,
            free: (0..io.depth).map(|slot| (0, slot)).collect(),
            running: vec![None; io.depth as usize],
            under_way: 0,
            next_due_ns: 0,
            gap_ns: rate
                .map_or(0, |rate| (u128::from(io.block) * 1_000_000_000 / u128::from(rate)) as u64),
            begun_bytes: 0,
            unflushed: 0,
            flush_at_end: io.fsync_end,
            recorder: Recorder::new(window.0, window.1),
            checked: 0,
            io: io.clone(),
            end,
        }
    }

    /// Bytes of memory that each slot needs.
    pub(crate) fn block(&self) -> u64 {
        self.io.block
    }

    /// Whether the request in a slot reads or writes.
    pub(crate) fn is_data(&self, slot: u32) -> bool {
        self.running[slot as usize].is_some_and(|request| request.kind != Kind::Flush)
    }

    /// Slots.
    pub(crate) fn depth(&self) -> u32 {
        self.io.depth
    }

    fn is_over(&self, now_ns: u64) -> bool {
        match self.end {
            End::Time { until_ns, .. } => now_ns >= until_ns,
            End::Amount { bytes } => self.begun_bytes >= bytes,
            End::Either { until_ns, bytes } => now_ns >= until_ns || self.begun_bytes >= bytes,
        }
    }

    /// Whether there is another request to begin now.
    pub(crate) fn has_more(&self, now_ns: u64) -> bool {
        let is_due = |&(free_at, _): &(u64, u32)| self.next_due_ns.max(free_at) <= now_ns;
        self.free.front().is_some_and(is_due) && !self.is_over(now_ns)
    }

    /// What to do now.
    pub(crate) fn next(&mut self, now_ns: u64) -> Step {
        let Some(&(free_at, slot)) = self.free.front() else { return Step::Wait };
        if self.reading_back || self.is_over(now_ns) {
            return self.finish(now_ns, slot);
        }
        let due = free_at.max(self.next_due_ns);
        if due > now_ns {
            let until = match self.end {
                End::Time { until_ns, .. } | End::Either { until_ns, .. } => due.min(until_ns),
                End::Amount { .. } => due,
            };
            return Step::WaitUntil(until);
        }
        if self.io.fsync_every.is_some_and(|every| self.unflushed >= every) {
            self.unflushed = 0;
            return self.begin(slot, Kind::Flush, 0, 0, now_ns);
        }
        let kind = if self.reads() { Kind::Read } else { Kind::Write };
        let mut offset = self.places.next(&mut self.random);
        if let Some(stamps) = &self.stamps
            && kind == Kind::Write
        {
            // With more slots than blocks, all may be open; then the place comes again later.
            let other = (0..64).find(|_| {
                let open = stamps.is_open(offset);
                if open {
                    offset = self.places.next(&mut self.random);
                }
                !open
            });
            if other.is_none() {
                return Step::Wait;
            }
        }
        let due = if self.gap_ns > 0 { self.next_due_ns.max(free_at) } else { now_ns };
        self.next_due_ns += self.gap_ns;
        self.begun_bytes += self.io.block;
        self.unflushed += u32::from(kind == Kind::Write);
        self.begin(slot, kind, offset, self.io.block, due)
    }

    fn reads(&mut self) -> bool {
        match self.io.read {
            share if share >= 1.0 => true,
            share if share <= 0.0 => false,
            share => self.random.random_bool(share),
        }
    }

    /// After the end: the flush, then what has to be read back.
    fn finish(&mut self, now_ns: u64, slot: u32) -> Step {
        if !self.reading_back {
            if self.under_way > 0 {
                return Step::Wait;
            }
            if std::mem::take(&mut self.flush_at_end) {
                return self.begin(slot, Kind::Flush, 0, 0, now_ns);
            }
            self.reading_back = true;
            self.back = self.stamps.iter().flat_map(Stamps::known).collect();
        }
        match self.back.pop_front() {
            Some(offset) => self.begin(slot, Kind::Read, offset, self.io.block, now_ns),
            None if self.under_way > 0 => Step::Wait,
            None => Step::Done,
        }
    }

    fn begin(&mut self, slot: u32, kind: Kind, offset: u64, len: u64, due_ns: u64) -> Step {
        let stamps = self.stamps.as_ref().filter(|_| kind == Kind::Read);
        let expected = stamps.and_then(|stamps| stamps.expected(offset));
        let request = Request { slot, kind, offset, len, expected, due_ns };
        self.free.pop_front();
        self.running[slot as usize] = Some(request);
        self.under_way += 1;
        Step::Do(request)
    }

    /// Puts into a write's memory what is to be written.
    pub(crate) fn fill(&mut self, request: &Request, memory: &mut [u8]) {
        if let Some(stamps) = self.stamps.as_mut().filter(|_| request.kind == Kind::Write) {
            stamps.write(request.offset, memory);
        }
    }

    /// A request has ended; `memory` is its slot's.
    ///
    /// # Errors
    /// What failed, or was read wrong.
    pub(crate) fn complete(
        &mut self,
        slot: u32,
        result: Result<(), String>,
        memory: &[u8],
        now_ns: u64,
    ) -> Result<(), String> {
        let request = self.running[slot as usize].take().expect("only what was begun ends");
        self.under_way -= 1;
        let think = self.io.think.as_nanos() as u64;
        self.free.push_back((if think > 0 { now_ns + think } else { 0 }, slot));
        if let Some(stamps) = self.stamps.as_mut().filter(|_| request.kind == Kind::Write) {
            stamps.written(request.offset, result.is_ok());
        }
        result.map_err(|why| {
            let what = match request.kind {
                Kind::Read => "a read",
                Kind::Write => "a write",
                Kind::Flush => return format!("a flush failed: {why}"),
            };
            format!("{what} of {} bytes at byte {} failed: {why}", request.len, request.offset)
        })?;
        if let (Some(stamps), Some(expected)) = (&self.stamps, request.expected) {
            stamps
                .check(request.offset, expected, memory)
                .map_err(|why| format!("verify: {why}"))?;
            self.checked += 1;
        }
        if request.kind == Kind::Flush || !self.reading_back {
            self.recorder.add(request.kind, request.len, request.due_ns, now_ns);
        }
        Ok(())
    }

    /// What was done.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Reads that were held against what was written.
    pub(crate) fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests;
