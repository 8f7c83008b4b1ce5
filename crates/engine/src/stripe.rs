//! RAID4, 5 and 6: cutting requests into fragments of stripes, letting neighbours come
//! together, and grouping what has come into operations ([`crate::op`]).
//!
//! A fragment is one request's part of one chunk. Fragments of a stripe are swept along the
//! chunk's height: wherever the same set of data chunks is touched they form one group, at most
//! [`OP_SECTORS_MAX`] high, which becomes one operation. So a group that covers all data chunks
//! is a full-stripe write straight from the callers' buffers, whoever they were.
//!
//! The last, incomplete stripe of a sequential writer with several writes in flight is held back
//! while more may be on their way: [`HOLD_NS`], and up to [`HOLD_NS_MAX`] while its caller receives
//! another request or operations run whose replies may bring one; where the writer's own earlier
//! writes are among them up to [`HOLD_NS_SLOW`], since hard disks take longer for a stripe than a
//! caller for its next request. It is let go at once when none
//! can come: nothing runs, the writer's depth is reached and nothing is being received. A writer
//! whose neighbour did not come is not held for a while ([`REST`]).
//!
//! Invariants: `locks` are disjoint height ranges, one for each running operation of the stripe;
//! a fragment waits in `frags` until its range is free and the stripe cache has room for it.

use crate::{op::OpKind, shard::Shard, types::*};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::mem;
use lapstrake_geometry::{Geometry, Parity, Sector, Sectors, Slot, StripeNo};
use smallvec::SmallVec;

/// Height of the largest operation: 128 KiB of each member, so that its blocks stay in a core's
/// cache between parity work and I/O, and eight fit into the default stripe cache.
pub(crate) const OP_SECTORS_MAX: u32 = 256;
/// How long an incomplete stripe of a sequential writer waits for neighbours without a sign of them.
const HOLD_NS: u64 = 500_000;
/// How long at all: time to receive a large payload on a busy machine.
const HOLD_NS_MAX: u64 = 3_000_000;
/// How long while earlier writes of the same writer are under way: what slow members take for them.
const HOLD_NS_SLOW: u64 = 100_000_000;
/// Writers that are told apart, by where their last writes ended.
const STREAMS: usize = 8;
/// So many writes of a writer are not held after one was held in vain.
const REST: u32 = 16;

/// What of its stripe a fragment is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StripePart {
    /// A range of this data chunk.
    Data(u16),
    /// Rows of all chunks, for a unit of a sync action; its piece stands in the place of a request.
    Rows,
    /// All of it, which is to be zeroed.
    Whole,
}

impl StripePart {
    /// The data chunk's index.
    pub(crate) fn data(self) -> u16 {
        match self {
            Self::Data(data) => data,
            Self::Rows | Self::Whole => unreachable!("it is of no one chunk"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frag {
    pub req: u32,
    pub part: StripePart,
    /// Height range in the chunk, sectors.
    pub lo: u32,
    pub hi: u32,
    pub buf: Buf,
    pub write: bool,
}

/// A part of a group's height in which each data chunk touched has one source buffer.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub lo: u32,
    pub hi: u32,
    /// Sorted by part.
    pub srcs: SmallVec<[Src; 4]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Src {
    pub part: StripePart,
    pub req: u32,
    pub buf: Buf,
}

pub(crate) type Slices = SmallVec<[Slice; 1]>;

#[derive(Debug, Default)]
pub(crate) struct Stripe {
    frags: SmallVec<[Frag; 4]>,
    locks: SmallVec<[(u32, u32); 4]>,
    held: Option<Hold>,
    queued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    since: Time,
    stream: StreamId,
}

/// Names a [`Stream`]; others come to take its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamId(u32);

/// Writes of which each goes on where another ended.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    id: StreamId,
    /// Where the last one ended.
    end: u64,
    in_flight: u32,
    /// The most in flight, since the last hold in vain.
    depth: u32,
    /// Writes that are not to be held.
    rest: u32,
}

/// The stripes that are being worked on, and the state of holding back.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    open: BTreeMap<u64, Stripe>,
    ready: VecDeque<u64>,
    waiting_for_memory: VecDeque<u64>,
    /// Stripes in which lost blocks cannot be recovered, since a write of them was cut off.
    pub(crate) lost: BTreeSet<u64>,
    /// When to look at a held stripe again, in order; stale when the stripe's hold is another.
    holds: VecDeque<(Time, u64, Hold)>,
    streams: [Stream; STREAMS],
    streams_seen: u32,
    /// What the latest request said.
    followed: bool,
    /// See [`Shard::hold_nothing`].
    holds_nothing: bool,
}

impl Stripes {
    pub(crate) fn new(lost: Vec<StripeNo>) -> Self {
        Self { lost: lost.into_iter().map(|stripe| stripe.0).collect(), ..Self::default() }
    }

    /// Whether stripes wait to be launched.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn queue(&mut self, number: u64) {
        let stripe = self.open.entry(number).or_default();
        stripe.held = None;
        if !mem::replace(&mut stripe.queued, true) {
            self.ready.push_back(number);
        }
    }

    /// Takes a write into the stream that it goes on, or begins one; true if it goes on.
    fn join_stream(&mut self, start: u64, end: u64) -> (StreamId, bool) {
        let known = self.streams.iter().position(|stream| stream.end == start && stream.depth > 0);
        let at = known.unwrap_or(self.streams_seen as usize % STREAMS);
        let stream = &mut self.streams[at];
        if known.is_none() {
            self.streams_seen = self.streams_seen.wrapping_add(1);
            *stream = Stream { id: StreamId(self.streams_seen), ..Stream::default() };
        }
        stream.end = end;
        stream.in_flight += 1;
        stream.depth = stream.depth.max(stream.in_flight);
        stream.rest = stream.rest.saturating_sub(1);
        (stream.id, known.is_some())
    }

    fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.id == id && stream.depth > 0)
    }

    /// A write of a stream has ended.
    pub(crate) fn leave_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.stream(id) {
            stream.in_flight -= 1;
        }
    }

    /// Whether more of the stream's writes than are in flight cannot be expected.
    fn is_all_here(&mut self, id: StreamId) -> bool {
        self.stream(id).is_none_or(|stream| stream.in_flight >= stream.depth)
    }

    /// Whether writes of a stream are under way besides those that a stripe holds.
    fn awaits_answers(&mut self, number: u64, id: StreamId) -> bool {
        let Some(stripe) = self.open.get(&number) else { return false };
        let held: BTreeSet<u32> = stripe.frags.iter().map(|frag| frag.req).collect();
        self.stream(id).is_some_and(|stream| stream.in_flight as usize > held.len())
    }

    fn is_held(&self, number: u64, hold: Hold) -> bool {
        self.open.get(&number).is_some_and(|stripe| stripe.held == Some(hold))
    }

    pub(crate) fn unlock(&mut self, number: u64, lo: u32) {
        let Some(stripe) = self.open.get_mut(&number) else { return };
        let before = stripe.locks.len();
        stripe.locks.retain(|lock| lock.0 != lo);
        assert_eq!(stripe.locks.len() + 1, before, "rows of stripe {number} are unlocked once");
        if stripe.frags.is_empty() && stripe.locks.is_empty() {
            self.open.remove(&number);
        } else if !stripe.frags.is_empty() && stripe.held.is_none() {
            self.queue(number);
        }
        self.queue_waiting_for_memory();
    }

    /// Has those that found too little memory try again.
    pub(crate) fn queue_waiting_for_memory(&mut self) {
        while let Some(number) = self.waiting_for_memory.pop_front() {
            self.queue(number);
        }
    }
}

impl Shard {
    /// Issues `start..end` of a request on a parity level.
    pub(crate) fn issue_parity(&mut self, key: u32, start: u64, end: u64) {
        match self.reqs[key as usize].kind {
            RequestKind::Read(_) => self.read_parity(key, start, end),
            _ => self.write_parity(key, start, end),
        }
    }

    pub(crate) fn parity(&self) -> &Parity {
        match &self.geometry {
            Geometry::Parity(parity) => parity,
            _ => unreachable!("stripes exist on parity levels only"),
        }
    }

    fn read_parity(&mut self, key: u32, start: u64, end: u64) {
        let chunk = self.parity().chunk().0;
        let healthy = self.members.complete();
        let mut at = start;
        while at < end {
            let (stripe, data, offset) = self.parity().locate(Sector(at));
            let len = (end - at).min(chunk - offset.0);
            let sector = self.parity().member_sector(stripe, offset).0;
            let slot = self.parity().slot_of_data(stripe, data);
            let buf = self.reqs[key as usize].buf_at(at);
            let home = self.members.usable(slot, sector..sector + len);
            // In a degraded stripe the healthy parts of this request are sources for the lost
            // ones, so they go together.
            match home {
                Some(member) if healthy || !self.reads_lost(stripe, start, end) => {
                    self.build_read(member, sector, len, buf);
                }
                // Recovering takes the stripe's lock.
                _ if self.reqs[key as usize].is_foreign => self.decline(key),
                _ => self.add_frags(key, (stripe, data), offset, len, buf, false),
            }
            at += len;
        }
        self.send_built(key, IoKind::Read);
    }

    /// Whether a read of `start..end` touches a chunk of `stripe` that no member can give.
    fn reads_lost(&self, stripe: StripeNo, start: u64, end: u64) -> bool {
        let parity = self.parity();
        let chunk = parity.chunk();
        let begin = parity.array_sector(stripe, 0, Sectors(0)).0;
        let first = start.saturating_sub(begin) / chunk.0;
        let last = (end - begin).div_ceil(chunk.0).min(u64::from(parity.data_disks()));
        let start = parity.member_sector(stripe, Sectors(0)).0;
        (first..last).any(|data| {
            let slot = parity.slot_of_data(stripe, data as u16);
            self.members.usable(slot, start..start + chunk.0).is_none()
        })
    }

    fn write_parity(&mut self, key: u32, start: u64, end: u64) {
        let chunk = self.parity().chunk().0;
        let stripe_data = self.parity().stripe_data().0;
        let kind = self.reqs[key as usize].kind;
        let zeroes = !matches!(kind, RequestKind::Write { .. });
        let may_hold = self.stream_to_hold(key, start, end);
        let mut at = start;
        while at < end {
            let (stripe, data, offset) = self.parity().locate(Sector(at));
            let left = end - at;
            // What the journal holds of the stripe would come back over zeros that it knows nothing of.
            let at_once = zeroes && self.journal.is_none();
            if at_once && data == 0 && offset.0 == 0 && left >= stripe_data {
                self.add_frag(key, stripe, (StripePart::Whole, 0, chunk as u32), Buf::ZERO, true);
                self.stripes.queue(stripe.0);
                at += stripe_data;
                continue;
            }
            let len = left.min(chunk - offset.0);
            at += len;
            if kind == RequestKind::Discard {
                continue;
            }
            let buf = self.reqs[key as usize].buf_at(at - len);
            self.add_frags(key, (stripe, data), offset, len, buf, true);
            let stripe_ends = offset.0 + len == chunk && data + 1 == self.parity().data_disks();
            if at == end || stripe_ends {
                self.queue_or_hold(stripe.0, may_hold.filter(|_| at == end && !stripe_ends));
            }
        }
    }

    /// The stream of a write whose last stripe may be held.
    fn stream_to_hold(&mut self, key: u32, start: u64, end: u64) -> Option<StreamId> {
        let req = &mut self.reqs[key as usize];
        let RequestKind::Write { followed, .. } = req.kind else { return None };
        let (id, goes_on) = match req.stream {
            // A later window of a long request.
            Some(id) => (id, true),
            None => self.stripes.join_stream(start, end),
        };
        req.stream = Some(id);
        let stream = self.stripes.stream(id)?;
        stream.end = end;
        let in_company = stream.in_flight > 1 && stream.rest == 0;
        // A writer that comes from another shard's span begins a stripe here.
        let goes_on = goes_on || start.is_multiple_of(self.parity().stripe_data().0);
        let may_hold = !self.stripes.holds_nothing;
        (may_hold && goes_on && (in_company || followed)).then_some(id)
    }

    /// Adds one fragment; reads need no company and are queued at once.
    fn add_frags(
        &mut self,
        key: u32,
        (stripe, data): (StripeNo, u16),
        offset: Sectors,
        len: u64,
        buf: Buf,
        write: bool,
    ) {
        let (lo, hi) = (offset.0 as u32, (offset.0 + len) as u32);
        self.add_frag(key, stripe, (StripePart::Data(data), lo, hi), buf, write);
        if !write {
            self.stripes.queue(stripe.0);
        }
    }

    fn add_frag(
        &mut self,
        req: u32,
        stripe: StripeNo,
        (part, lo, hi): (StripePart, u32, u32),
        buf: Buf,
        write: bool,
    ) {
        self.reqs[req as usize].pending += 1;
        let stripe = self.stripes.open.entry(stripe.0).or_default();
        stripe.frags.push(Frag { req, part, lo, hi, buf, write });
    }

    /// Adds a unit of a sync action.
    pub(crate) fn add_sync_frag(&mut self, piece: u32, stripe: StripeNo, (lo, hi): (u32, u32)) {
        let frag = Frag { req: piece, part: StripePart::Rows, lo, hi, buf: Buf::ZERO, write: true };
        self.stripes.open.entry(stripe.0).or_default().frags.push(frag);
        self.stripes.queue(stripe.0);
    }

    fn queue_or_hold(&mut self, number: u64, stream: Option<StreamId>) {
        let stripe_data = self.parity().stripe_data().0;
        let Some(stripe) = self.stripes.open.get_mut(&number) else { return };
        let covered: u64 = stripe.frags.iter().map(|frag| u64::from(frag.hi - frag.lo)).sum();
        // What was put back when its range was locked must not wait for more than that.
        let may_wait = covered < stripe_data && !stripe.queued && stripe.locks.is_empty();
        match stream {
            Some(stream) if may_wait => {
                if stripe.held.is_none() {
                    let hold = Hold { since: self.now, stream };
                    stripe.held = Some(hold);
                    self.stripes.holds.push_back((self.now.after(HOLD_NS), number, hold));
                }
            }
            _ => self.stripes.queue(number),
        }
    }

    /// An incomplete stripe waits for nothing: for models of engines that hold writes before this one has them.
    pub fn hold_nothing(&mut self) {
        self.stripes.holds_nothing = true;
    }

    /// Notes whether another request is being received behind one that has just come.
    pub(crate) fn note_followed(&mut self, kind: RequestKind) {
        self.stripes.followed = matches!(kind, RequestKind::Write { followed: true, .. });
    }

    pub(crate) fn next_hold(&self) -> Option<Time> {
        self.stripes.holds.front().map(|hold| hold.0)
    }

    pub(crate) fn release_due_holds(&mut self) {
        let hopeful = self.stripes.followed || !self.ops.is_empty();
        while let Some(&(due, number, hold)) = self.stripes.holds.front() {
            let is_held = self.stripes.is_held(number, hold);
            if due > self.now && is_held {
                return;
            }
            self.stripes.holds.pop_front();
            if !is_held {
                continue;
            }
            let awaits_answers = self.stripes.awaits_answers(number, hold.stream);
            let most = if awaits_answers { HOLD_NS_SLOW } else { HOLD_NS_MAX };
            if hopeful && self.now < hold.since.after(most) {
                self.stripes.holds.push_back((self.now.after(HOLD_NS), number, hold));
                continue;
            }
            // No neighbour came in time: the writer's depth is less than was thought.
            if let Some(stream) = self.stripes.stream(hold.stream) {
                stream.depth = stream.in_flight.max(1);
                stream.rest = REST;
            }
            self.stripes.followed = false;
            self.stripes.queue(number);
        }
    }

    /// Lets stripes go that wait for more of a stream, or all.
    fn release_holds(&mut self, all: bool) {
        for (due, number, hold) in mem::take(&mut self.stripes.holds) {
            if !self.stripes.is_held(number, hold) {
                continue;
            }
            if all || self.stripes.is_all_here(hold.stream) {
                self.stripes.queue(number);
            } else {
                self.stripes.holds.push_back((due, number, hold));
            }
        }
    }

    pub(crate) fn release_all_holds(&mut self) {
        self.release_holds(true);
    }

    /// Starts what can be started. Called when a batch of input has been taken in.
    pub(crate) fn launch_ready(&mut self) {
        let is_idle = self.stripes.ready.is_empty() && self.ops.is_empty();
        if is_idle && !self.stripes.followed && !self.stripes.holds.is_empty() {
            self.release_holds(false);
        }
        if self.ops.is_empty() {
            self.stripes.queue_waiting_for_memory();
        }
        while let Some(number) = self.stripes.ready.pop_front() {
            self.launch(number);
        }
    }

    fn launch(&mut self, number: u64) {
        let Some(stripe) = self.stripes.open.get_mut(&number) else { return };
        stripe.queued = false;
        stripe.held = None;
        let frags = mem::take(&mut stripe.frags);
        let whole = |frag: &&Frag| frag.part == StripePart::Whole;
        for frag in frags.iter().filter(whole) {
            let src = Src { part: frag.part, req: frag.req, buf: frag.buf };
            let slice = Slice { lo: frag.lo, hi: frag.hi, srcs: SmallVec::from_elem(src, 1) };
            self.start_group(number, OpKind::Zero, SmallVec::from_elem(slice, 1));
        }
        for frag in frags.iter().filter(|frag| frag.part == StripePart::Rows) {
            let src = Src { part: frag.part, req: frag.req, buf: frag.buf };
            let slice = Slice { lo: frag.lo, hi: frag.hi, srcs: SmallVec::from_elem(src, 1) };
            self.start_group(number, OpKind::Sync, SmallVec::from_elem(slice, 1));
        }
        let mut writes: SmallVec<[Frag; 8]> = frags
            .iter()
            .filter(|f| f.write && matches!(f.part, StripePart::Data(_)))
            .copied()
            .collect();
        self.start_groups(number, OpKind::Write, &mut writes);
        // Reads may overlap each other, so each request's go by themselves.
        let reads: SmallVec<[Frag; 8]> = frags.iter().filter(|f| !f.write).copied().collect();
        for first in (0..reads.len()).filter(|&i| reads[..i].iter().all(|f| f.req != reads[i].req))
        {
            let own = |f: &&Frag| f.req == reads[first].req;
            let mut own: SmallVec<[Frag; 8]> = reads.iter().filter(own).copied().collect();
            self.start_groups(number, OpKind::Read, &mut own);
        }
        let stripe = self.stripes.open.get(&number);
        if stripe.is_some_and(|s| s.frags.is_empty() && s.locks.is_empty()) {
            self.stripes.open.remove(&number);
        }
    }

    fn start_groups(&mut self, number: u64, kind: OpKind, frags: &mut SmallVec<[Frag; 8]>) {
        for group in self.sweep(number, frags) {
            // A log's entry can name chunks only that follow each other. Of the others the first to come
            // holds the range.
            let is_logged = self.logs.is_some() && kind == OpKind::Write;
            for group in if is_logged { runs(group) } else { SmallVec::from_elem(group, 1) } {
                self.start_group(number, kind, group);
            }
        }
    }

    /// Cuts fragments into groups; see the module's head. Each slice's source counts as one
    /// pending part of its request from here on.
    fn sweep(&mut self, number: u64, frags: &mut SmallVec<[Frag; 8]>) -> SmallVec<[Slices; 4]> {
        let mut groups: SmallVec<[Slices; 4]> = SmallVec::new();
        let height_max = self.height_max();
        frags.sort_unstable_by_key(|frag| (frag.part, frag.lo));
        let mut edges: SmallVec<[u32; 16]> = frags.iter().flat_map(|f| [f.lo, f.hi]).collect();
        let cuts = self.cuts(number, frags);
        edges.extend_from_slice(&cuts);
        edges.sort_unstable();
        edges.dedup();
        for pair in edges.windows(2) {
            let (mut lo, end) = (pair[0], pair[1]);
            let covering = |f: &&Frag| f.lo <= lo && end <= f.hi;
            let srcs: SmallVec<[Frag; 4]> = frags.iter().filter(covering).copied().collect();
            while lo < end && !srcs.is_empty() {
                let room = groups
                    .last()
                    .filter(|group| joins(group, lo, &srcs) && !cuts.contains(&lo))
                    .map_or(0, |g| height_max.saturating_sub(lo - g[0].lo));
                let hi = end.min(lo + if room > 0 { room } else { height_max });
                let slice = self.slice(lo, hi, &srcs);
                match groups.last_mut() {
                    Some(group) if room > 0 => group.push(slice),
                    _ => groups.push(SmallVec::from_elem(slice, 1)),
                }
                lo = hi;
            }
        }
        for frag in frags.iter() {
            self.reqs[frag.req as usize].pending -= 1;
        }
        groups
    }

    /// Heights within the fragments at which another member can be read, or not any more. An operation takes what some
    /// member lacks a part of for lost as a whole; before a resync the parity that it would be made of may not fit.
    fn cuts(&self, number: u64, frags: &[Frag]) -> SmallVec<[u32; 4]> {
        let mut cuts = SmallVec::new();
        let lo = frags.iter().map(|frag| frag.lo).min().unwrap_or(0);
        let hi = frags.iter().map(|frag| frag.hi).max().unwrap_or(0);
        if self.members.complete() || hi == 0 {
            return cuts;
        }
        let base = self.parity().member_sector(StripeNo(number), Sectors(0)).0;
        for slot in (0..self.geometry.raid_disks()).map(Slot) {
            let mut at = u64::from(lo);
            loop {
                at = at.saturating_add(self.members.alike(slot, base + at));
                if at >= u64::from(hi) {
                    break;
                }
                cuts.push(at as u32);
            }
        }
        cuts
    }

    fn slice(&mut self, lo: u32, hi: u32, frags: &[Frag]) -> Slice {
        let srcs = frags.iter().map(|frag| {
            self.reqs[frag.req as usize].pending += 1;
            Src { part: frag.part, req: frag.req, buf: frag.buf.advance_sectors(lo - frag.lo) }
        });
        Slice { lo, hi, srcs: srcs.collect() }
    }

    /// Starts an operation, or puts its fragments back until the range or memory is free.
    fn start_group(&mut self, number: u64, kind: OpKind, slices: Slices) {
        if kind == OpKind::Read && self.stripes.lost.contains(&number) {
            for req in requests_of(&slices) {
                self.child_done(req, Some(RequestError::Io));
            }
            return;
        }
        let (lo, hi) = (slices[0].lo, slices[slices.len() - 1].hi);
        // An operation that ended at once may have closed the stripe.
        let stripe = self.stripes.open.entry(number).or_default();
        if stripe.locks.iter().any(|&(l, h)| l < hi && lo < h) {
            return self.put_back(number, kind, &slices);
        }
        // In turn, or an operation that needs much memory would wait for ever behind small ones.
        if !self.stripes.waiting_for_memory.is_empty() {
            self.put_back(number, kind, &slices);
            return self.stripes.waiting_for_memory.push_back(number);
        }
        stripe.locks.push((lo, hi));
        let Err(slices) = self.start_op(StripeNo(number), kind, slices) else { return };
        self.stats.scratch_waits += 1;
        if let Some(stripe) = self.stripes.open.get_mut(&number) {
            stripe.locks.retain(|lock| lock.0 != lo);
        }
        self.put_back(number, kind, &slices);
        self.stripes.waiting_for_memory.push_back(number);
    }

    /// Turns a group into fragments again.
    pub(crate) fn put_back(&mut self, number: u64, kind: OpKind, slices: &Slices) {
        let stripe = self.stripes.open.entry(number).or_default();
        for slice in slices {
            stripe.frags.extend(slice.srcs.iter().map(|src| Frag {
                req: src.req,
                part: src.part,
                lo: slice.lo,
                hi: slice.hi,
                buf: src.buf,
                write: kind != OpKind::Read,
            }));
        }
    }

    pub(crate) fn relaunch(&mut self, number: u64) {
        self.stripes.queue(number);
    }
}

/// Whether a slice at `lo` with these fragments goes on where the group ends.
fn joins(group: &Slices, lo: u32, frags: &[Frag]) -> bool {
    let last = &group[group.len() - 1];
    last.hi == lo
        && last.srcs.len() == frags.len()
        && last.srcs.iter().zip(frags).all(|(src, frag)| src.part == frag.part)
}

/// Splits a group into such as touch data chunks that follow each other.
fn runs(group: Slices) -> SmallVec<[Slices; 1]> {
    let touched = group[0].srcs.iter().map(|src| src.part.data()).collect::<SmallVec<[u16; 16]>>();
    let follows = |&a: &u16, &b: &u16| a + 1 == b;
    let run = |run: &[u16]| {
        let is_in = |src: &&Src| run.contains(&src.part.data());
        let part = |slice: &Slice| Slice {
            srcs: slice.srcs.iter().filter(is_in).copied().collect(),
            ..*slice
        };
        group.iter().map(part).collect()
    };
    touched.chunk_by(follows).map(run).collect()
}

/// All fragments of requests that end early must be able to come back.
pub(crate) fn requests_of(slices: &Slices) -> Vec<u32> {
    slices.iter().flat_map(|slice| slice.srcs.iter().map(|src| src.req)).collect()
}
