//! RAID4, 5 and 6: cutting requests into fragments of stripes, letting neighbours come
//! together, and grouping what has come into operations ([`crate::op`]).
//!
//! A fragment is one request's part of one chunk. Fragments of a stripe are swept along the
//! chunk's height: wherever the same set of data chunks is touched they form one group, at most
//! [`OP_SECTORS_MAX`] high, which becomes one operation. So a group that covers all data chunks
//! is a full-stripe write straight from the callers' buffers, whoever they were.
//!
//! What waits in a stripe, and which of its rows are locked, is kept in [`open`]; how long a stripe waits for more of a
//! sequential writer is decided in [`crate::hold`].

mod open;

pub(crate) use crate::hold::StreamId;
use crate::{op::OpKind, request::ReqKey, shard::Shard, sync::PieceKey, types::*};
use alloc::vec::Vec;
use lapstrake_geometry::{Geometry, Parity, Sector, Sectors, Slot, StripeNo};
use open::Lock;
pub(crate) use open::Stripes;
use smallvec::SmallVec;

/// Height of the largest operation: 128 KiB of each member, so that its blocks stay in a core's
/// cache between parity work and I/O, and eight fit into the default stripe cache.
pub(crate) const OP_SECTORS_MAX: u32 = 256;

/// What of its stripe a fragment is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StripePart {
    /// A range of this data chunk.
    Data(u16),
    /// Rows of all chunks, for a unit of a sync action.
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

/// What a fragment is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragOwner {
    Request(ReqKey),
    /// Of a sync action.
    Piece(PieceKey),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frag {
    pub owner: FragOwner,
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
    pub owner: FragOwner,
    pub buf: Buf,
}

pub(crate) type Slices = SmallVec<[Slice; 1]>;

impl Shard {
    /// Issues `start..end` of a request on a parity level.
    pub(crate) fn issue_parity(&mut self, key: ReqKey, start: u64, end: u64) {
        match self.reqs[key].kind() {
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

    fn read_parity(&mut self, key: ReqKey, start: u64, end: u64) {
        let chunk = self.parity().chunk().0;
        let healthy = self.members.complete();
        let mut at = start;
        while at < end {
            let (stripe, data, offset) = self.parity().locate(Sector(at));
            let len = (end - at).min(chunk - offset.0);
            let sector = self.parity().member_sector(stripe, offset).0;
            let slot = self.parity().slot_of_data(stripe, data);
            let buf = self.reqs[key].buf_at(at);
            let home = self.members.usable(slot, sector..sector + len);
            // In a degraded stripe the healthy parts of this request are sources for the lost
            // ones, so they go together.
            match home {
                Some(member) if healthy || !self.reads_lost(stripe, start, end) => {
                    self.build_read(member, sector, len, buf);
                }
                // Recovering takes the stripe's lock.
                _ if self.reqs[key].is_foreign() => self.decline(key),
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

    fn write_parity(&mut self, key: ReqKey, start: u64, end: u64) {
        let chunk = self.parity().chunk().0;
        let stripe_data = self.parity().stripe_data().0;
        let kind = self.reqs[key].kind();
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
            let buf = self.reqs[key].buf_at(at - len);
            self.add_frags(key, (stripe, data), offset, len, buf, true);
            let stripe_ends = offset.0 + len == chunk && data + 1 == self.parity().data_disks();
            if at == end || stripe_ends {
                let stream = may_hold.filter(|_| at == end && !stripe_ends);
                self.stripes.queue_or_hold(self.now, stripe.0, stripe_data, stream);
            }
        }
    }

    /// The stream of a write whose last stripe may be held.
    fn stream_to_hold(&mut self, key: ReqKey, start: u64, end: u64) -> Option<StreamId> {
        let stripe_data = self.parity().stripe_data().0;
        let req = &mut self.reqs[key];
        let RequestKind::Write { followed, .. } = req.kind() else { return None };
        let begins_stripe = start.is_multiple_of(stripe_data);
        let (id, may_hold) =
            self.stripes.join_stream(req.stream, (start, end), followed, begins_stripe);
        req.stream = Some(id);
        may_hold.then_some(id)
    }

    /// Adds one fragment; reads need no company and are queued at once.
    fn add_frags(
        &mut self,
        key: ReqKey,
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
        req: ReqKey,
        stripe: StripeNo,
        (part, lo, hi): (StripePart, u32, u32),
        buf: Buf,
        write: bool,
    ) {
        self.reqs[req].expect(1);
        let owner = FragOwner::Request(req);
        self.stripes.add(stripe.0, Frag { owner, part, lo, hi, buf, write });
    }

    /// Adds a unit of a sync action.
    pub(crate) fn add_sync_frag(
        &mut self,
        piece: PieceKey,
        stripe: StripeNo,
        (lo, hi): (u32, u32),
    ) {
        let (owner, part) = (FragOwner::Piece(piece), StripePart::Rows);
        self.stripes.add(stripe.0, Frag { owner, part, lo, hi, buf: Buf::ZERO, write: true });
        self.stripes.queue(stripe.0);
    }

    /// An incomplete stripe waits for nothing: for models of engines that hold writes before this one has them.
    pub fn hold_nothing(&mut self) {
        self.stripes.hold_nothing();
    }

    /// A stream of reads stays with one copy of members without a head, too: for models of Linux's RAID1, which leaves one only
    /// where a device says what size of I/O is best.
    pub fn keep_streams(&mut self) {
        self.members.keep_streams();
    }

    /// Starts what can be started. Called when a batch of input has been taken in.
    pub(crate) fn launch_ready(&mut self) {
        if !self.stripes.has_ready() && self.ops.is_empty() {
            self.stripes.release_complete();
        }
        if self.ops.is_empty() {
            self.stripes.queue_waiting_for_memory();
        }
        while let Some(number) = self.stripes.next_ready() {
            self.launch(number);
        }
    }

    fn launch(&mut self, number: u64) {
        let Some(frags) = self.stripes.take(number) else { return };
        let whole = |frag: &&Frag| frag.part == StripePart::Whole;
        for frag in frags.iter().filter(whole) {
            let src = Src { part: frag.part, owner: frag.owner, buf: frag.buf };
            let slice = Slice { lo: frag.lo, hi: frag.hi, srcs: SmallVec::from_elem(src, 1) };
            self.start_group(number, OpKind::Zero, SmallVec::from_elem(slice, 1));
        }
        for frag in frags.iter().filter(|frag| frag.part == StripePart::Rows) {
            let src = Src { part: frag.part, owner: frag.owner, buf: frag.buf };
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
        for first in
            (0..reads.len()).filter(|&i| reads[..i].iter().all(|f| f.owner != reads[i].owner))
        {
            let own = |f: &&Frag| f.owner == reads[first].owner;
            let mut own: SmallVec<[Frag; 8]> = reads.iter().filter(own).copied().collect();
            self.start_groups(number, OpKind::Read, &mut own);
        }
        self.stripes.close_if_done(number);
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
            if let FragOwner::Request(req) = frag.owner {
                self.reqs[req].part_cut();
            }
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
            if let FragOwner::Request(req) = frag.owner {
                self.reqs[req].expect(1);
            }
            Src { part: frag.part, owner: frag.owner, buf: frag.buf.advance_sectors(lo - frag.lo) }
        });
        Slice { lo, hi, srcs: srcs.collect() }
    }

    /// Starts an operation, or puts its fragments back until the range or memory is free.
    fn start_group(&mut self, number: u64, kind: OpKind, slices: Slices) {
        let stripe = StripeNo(number);
        if kind == OpKind::Read && self.stripes.is_lost(stripe) {
            for req in requests_of(&slices) {
                self.child_done(req, Some(RequestError::Io));
            }
            return;
        }
        let (lo, hi) = (slices[0].lo, slices[slices.len() - 1].hi);
        match self.stripes.lock(number, (lo, hi)) {
            Lock::Taken => {}
            Lock::Busy => return self.stripes.put_back(number, kind, &slices),
            Lock::OutOfTurn => return self.wait_for_memory(number, kind, &slices),
        }
        if let Err(slices) = self.start_op(stripe, kind, slices) {
            self.stats.scratch_waits += 1;
            self.stripes.unlock_unused(number, lo);
            self.wait_for_memory(number, kind, &slices);
        }
    }

    fn wait_for_memory(&mut self, number: u64, kind: OpKind, slices: &Slices) {
        self.stripes.put_back(number, kind, slices);
        self.stripes.wait_for_memory(number);
    }

    /// An operation is to begin anew: its slices are fragments again.
    pub(crate) fn relaunch(&mut self, stripe: StripeNo, kind: OpKind, slices: &Slices) {
        self.stripes.put_back(stripe.0, kind, slices);
        self.stripes.unlock(stripe, slices[0].lo);
        self.stripes.queue(stripe.0);
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
pub(crate) fn requests_of(slices: &Slices) -> Vec<ReqKey> {
    let request = |src: &Src| match src.owner {
        FragOwner::Request(key) => Some(key),
        FragOwner::Piece(_) => None,
    };
    slices.iter().flat_map(|slice| slice.srcs.iter().filter_map(request)).collect()
}
