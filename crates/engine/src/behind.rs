//! Write-behind on RAID1: a write is answered when the members that are read have it, while its copies for
//! write-mostly members are still on their way.
//!
//! Such a request stays what it is, with its range in the guard and its bits held, until the last copy has
//! been written; only its reply goes out before. So later writes of the range wait for it, its bits cannot be
//! swept and the array cannot be marked clean.
//!
//! Invariants:
//! - the copies are in memory of the shard's own, since the caller takes its buffer back with the reply;
//! - a write is answered early only if a member that is not write-mostly has it and the whole of its range is
//!   in sync;
//! - nothing is read from a member where a copy for it is on its way;
//! - a flush waits for the copies that were on their way when it came, and a write with FUA leaves none
//!   behind: what is stable is so on every member in sync.

use crate::{member_io::Owner, request::ReqKey, scratch::Scratch, shard::Shard, types::*};
use alloc::{collections::BTreeMap, vec::Vec};
use core::mem;
use lapstrake_geometry::{Geometry, Home, Sector};
use smallvec::{SmallVec, smallvec};

/// An array range, and the members that may not have what was written there.
#[derive(Debug)]
struct Lag {
    start: u64,
    end: u64,
    members: SmallVec<[MemberId; 2]>,
}

/// A shard's writes whose copies are on their way, or may be.
#[derive(Debug)]
pub(crate) struct Behind {
    memory: Scratch,
    /// Most at a time; 0: none.
    max: u32,
    next: u64,
    /// In the order in which they came.
    ranges: BTreeMap<u64, Lag>,
    /// Reads that wait, with what is left of them.
    reads: Vec<(ReqKey, u64, u64)>,
    /// Flushes that wait for all before a number.
    flushes: Vec<(ReqKey, u64)>,
}

/// A request's part in it.
#[derive(Debug)]
pub(crate) struct Copies {
    number: u64,
    buf: Buf,
    bytes: u32,
    /// Copies on their way.
    left: u32,
    /// Members that are not write-mostly and have the data.
    kept: u32,
    replied: bool,
}

impl Copies {
    /// Whether only copies are left of a request's parts, and its data is where reads find it.
    pub(crate) fn may_reply(&self, pending: u32) -> bool {
        self.left == pending && self.kept > 0 && !self.replied
    }

    pub(crate) fn is_replied(&self) -> bool {
        self.replied
    }

    /// The request is answered before its copies are written.
    pub(crate) fn reply(&mut self) {
        assert!(
            self.kept > 0 && !self.replied,
            "a write is answered early once, if it can be read"
        );
        self.replied = true;
    }
}

impl Behind {
    /// The first `pages` of an arena.
    pub(crate) fn new(arena: BufId, pages: u32, max: u32) -> Self {
        Self {
            memory: Scratch::new(arena, pages),
            max,
            next: 0,
            ranges: BTreeMap::new(),
            reads: Vec::new(),
            flushes: Vec::new(),
        }
    }

    pub(crate) fn set_max(&mut self, max: u32) {
        self.max = max;
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.memory.capacity() > 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether copies of some of these array sectors may be on their way.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        self.ranges.values().any(|lag| lag.start < end && start < lag.end)
    }

    /// Whether a copy for this member of some of these array sectors may be on its way.
    pub(crate) fn lags(&self, member: MemberId, start: u64, end: u64) -> bool {
        let is_its = |lag: &Lag| lag.members.contains(&member);
        self.ranges.values().any(|lag| lag.start < end && start < lag.end && is_its(lag))
    }
}

impl Shard {
    /// Issues a write with copies left behind; false if it has to be written as others are.
    pub(crate) fn write_behind(&mut self, key: ReqKey, start: u64, end: u64) -> bool {
        let req = &self.reqs[key];
        let RequestKind::Write { buf, fua: false, .. } = req.kind() else { return false };
        let is_whole = (start, end) == req.range() && self.is_synced(start..end);
        let is_full = self.behind.ranges.len() >= self.behind.max as usize;
        if !matches!(self.geometry, Geometry::Mirror(_)) || !is_whole || is_full {
            return false;
        }
        let homes = self.geometry.map(Sector(start)).homes;
        if self.clip(&homes, end - start) < end - start {
            return false;
        }
        let writable = |home: &Home| Some((*home, self.members.writable(home.slot)?));
        let members: SmallVec<[(Home, MemberId); 4]> = homes.iter().filter_map(writable).collect();
        let range = |home: &Home| home.sector.0..home.sector.0 + (end - start);
        let in_sync = |home: &Home| self.members.usable(home.slot, range(home)).is_some();
        let lags = |&(home, member): &(Home, MemberId)| {
            in_sync(&home) && self.members.is_write_mostly(member)
        };
        let keeps = |&(home, member): &(Home, MemberId)| {
            in_sync(&home) && !self.members.is_write_mostly(member)
        };
        let left = members.iter().filter(|member| lags(member)).count() as u32;
        if left == 0 || !members.iter().any(keeps) {
            return false;
        }
        let bytes = ((end - start) * 512) as u32;
        let Some(copy) = self.behind.memory.alloc(bytes) else { return false };
        let issued: SmallVec<[(Home, MemberId, bool); 4]> =
            members.iter().map(|member| (member.0, member.1, lags(member))).collect();
        let number = self.behind.next;
        self.behind.next += 1;
        let late = issued.iter().filter(|member| member.2).map(|member| member.1);
        let late = late.flat_map(|member| [Some(member), self.members.replacement_of(member)]);
        let lag = Lag { start, end, members: late.flatten().collect() };
        self.behind.ranges.insert(number, lag);
        self.stats.behind_writes += 1;
        self.emit(Effect::Compute(Compute::Xor { dst: copy, srcs: smallvec![buf], len: bytes }));
        let req = &mut self.reqs[key];
        req.expect(issued.len() as u32);
        req.copies = Some(Copies { number, buf: copy, bytes, left, kept: 0, replied: false });
        for (home, member, lags) in issued {
            let (owner, from) =
                if lags { (Owner::Behind(key), copy) } else { (Owner::Request(key), buf) };
            let pieces = smallvec![Piece { buf: from, len: bytes }];
            let place = (home.sector.0, end - start);
            self.start_io(owner, member, IoKind::Write { fua: false }, place, pieces);
        }
        true
    }

    /// A member that is read has a write's data.
    pub(crate) fn copy_kept(&mut self, key: ReqKey) {
        if let Some(copies) = &mut self.reqs[key].copies {
            copies.kept += 1;
        }
    }

    /// One copy more than was counted is on its way.
    pub(crate) fn expect_another_copy(&mut self, key: ReqKey) {
        let req = &mut self.reqs[key];
        req.expect(1);
        if let Some(copies) = &mut req.copies {
            copies.left += 1;
        }
    }

    /// A copy has been written, or its member is used no more.
    pub(crate) fn copy_done(&mut self, key: ReqKey, survived: bool) {
        if let Some(copies) = &mut self.reqs[key].copies {
            copies.left -= 1;
        }
        self.child_done(key, (!survived).then_some(RequestError::Io));
    }

    /// All copies of a request are written: those who waited for that go on.
    pub(crate) fn end_copies(&mut self, copies: &Copies) {
        self.behind.memory.free(copies.buf, copies.bytes);
        self.behind.ranges.remove(&copies.number);
        for (key, start, end) in mem::take(&mut self.behind.reads) {
            self.read_direct(key, start, end);
            self.child_done(key, None);
        }
        let first = self.behind.ranges.keys().next().copied().unwrap_or(u64::MAX);
        for (key, before) in mem::take(&mut self.behind.flushes) {
            if first < before {
                self.behind.flushes.push((key, before));
            } else {
                self.flush(key);
            }
        }
    }

    /// A read of what only a write-mostly member has waits until it has the newest.
    pub(crate) fn wait_for_copies(&mut self, key: ReqKey, start: u64, end: u64) {
        self.reqs[key].expect(1);
        self.behind.reads.push((key, start, end));
    }

    /// Whether a flush has to wait; it goes on by itself then.
    pub(crate) fn flush_waits(&mut self, key: ReqKey) -> bool {
        let waits = !self.behind.is_idle();
        if waits {
            self.behind.flushes.push((key, self.behind.next));
        }
        waits
    }
}
