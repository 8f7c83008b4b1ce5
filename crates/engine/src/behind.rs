//! Write-behind on RAID1: a write is answered when the members that are read have it, while its copies for
//! write-mostly members are still on their way.
//!
//! Such a request stays what it is, with its range in the guard and its bits held, until the last copy has
//! been written; only its reply goes out before. So later writes of the range wait for it, its bits cannot be
//! swept and the array cannot be marked clean.
//!
//! What is on its way is kept in [`lags`]. Invariants:
//! - the copies are in memory of the shard's own, since the caller takes its buffer back with the reply;
//! - a write is answered early only if a member that is not write-mostly has it and the whole of its range is
//!   in sync;
//! - nothing is read from a member where a copy for it is on its way;
//! - a flush waits for the copies that were on their way when it came, and a write with FUA leaves none
//!   behind: what is stable is so on every member in sync.

mod lags;

use crate::{member_io::Owner, request::ReqKey, shard::Shard, types::*};
pub(crate) use lags::{Behind, Copies};
use lapstrake_geometry::{Geometry, Home, Sector};
use smallvec::{SmallVec, smallvec};

impl Shard {
    /// Issues a write with copies left behind; false if it has to be written as others are.
    pub(crate) fn write_behind(&mut self, key: ReqKey, start: u64, end: u64) -> bool {
        let req = &self.reqs[key];
        let RequestKind::Write { buf, fua: false, .. } = req.kind() else { return false };
        let is_whole = (start, end) == req.range() && self.in_sync.covers(start..end);
        if !matches!(self.geometry, Geometry::Mirror(_)) || !is_whole || self.behind.is_full() {
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
        let issued: SmallVec<[(Home, MemberId, bool); 4]> =
            members.iter().map(|member| (member.0, member.1, lags(member))).collect();
        let late = issued.iter().filter(|member| member.2).map(|member| member.1);
        let late = late.flat_map(|member| [Some(member), self.members.replacement_of(member)]);
        let late = late.flatten().collect();
        let Some(copies) = self.behind.begin((start, end), left, late) else { return false };
        let copy = copies.buf();
        self.stats.behind_writes += 1;
        self.emit(Effect::Compute(Compute::Xor { dst: copy, srcs: smallvec![buf], len: bytes }));
        let req = &mut self.reqs[key];
        req.expect(issued.len() as u32);
        req.copies = Some(copies);
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
            copies.kept();
        }
    }

    /// One copy more than was counted is on its way.
    pub(crate) fn expect_another_copy(&mut self, key: ReqKey) {
        let req = &mut self.reqs[key];
        req.expect(1);
        if let Some(copies) = &mut req.copies {
            copies.expect();
        }
    }

    /// A copy has been written, or its member is used no more.
    pub(crate) fn copy_done(&mut self, key: ReqKey, survived: bool) {
        if let Some(copies) = &mut self.reqs[key].copies {
            copies.done();
        }
        self.child_done(key, (!survived).then_some(RequestError::Io));
    }

    /// All copies of a request are written: those who waited for that go on.
    pub(crate) fn end_copies(&mut self, copies: &Copies) {
        for (key, start, end) in self.behind.end(copies) {
            self.read_direct(key, start, end);
            self.child_done(key, None);
        }
        for key in self.behind.take_flushes() {
            self.flush(key);
        }
    }

    /// A read of what only a write-mostly member has waits until it has the newest.
    pub(crate) fn wait_for_copies(&mut self, key: ReqKey, start: u64, end: u64) {
        self.reqs[key].expect(1);
        self.behind.await_end((key, start, end));
    }
}
