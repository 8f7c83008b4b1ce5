//! The writes of a shard whose copies are on their way, or may be, and who waits for that.
//!
//! Invariants:
//! - a copy's memory is taken from the begin of its write to the end of the last copy;
//! - copies that are left are counted down once each, and their write ends when none is;
//! - a write is answered early once, and only after somebody has it who is read;
//! - who waits is let go when what came before it has ended, and not before.

use crate::{request::ReqKey, scratch::Scratch, types::*};
use alloc::{collections::BTreeMap, vec::Vec};
use core::mem;
use smallvec::SmallVec;

/// An array range, and the members that may not have what was written there.
#[derive(Debug)]
struct Lag {
    start: u64,
    end: u64,
    members: SmallVec<[MemberId; 2]>,
}

/// What is left of a read that waits, in array sectors.
pub(super) type WaitingRead = (ReqKey, u64, u64);

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Behind {
    memory: Scratch,
    /// Most at a time; 0: none.
    max: u32,
    next: u64,
    /// In the order in which they came.
    ranges: BTreeMap<u64, Lag>,
    reads: Vec<WaitingRead>,
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
    pub(super) fn buf(&self) -> Buf {
        self.buf
    }

    /// One copy more than was counted is on its way.
    pub(super) fn expect(&mut self) {
        self.left += 1;
    }

    /// A member that is read has the data.
    pub(super) fn kept(&mut self) {
        self.kept += 1;
    }

    /// A copy has been written, or its member is used no more.
    pub(super) fn done(&mut self) {
        assert!(self.left > 0, "a copy ends that was not counted");
        self.left -= 1;
    }

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

    /// Whether no more writes may leave copies behind now.
    pub(super) fn is_full(&self) -> bool {
        self.ranges.len() >= self.max as usize
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

    /// A write of an array range leaves `left` copies behind, for these members; none if there is no memory for it.
    pub(super) fn begin(
        &mut self,
        (start, end): (u64, u64),
        left: u32,
        members: SmallVec<[MemberId; 2]>,
    ) -> Option<Copies> {
        assert!(!self.is_full() && left > 0, "so many may leave copies behind");
        let bytes = ((end - start) * 512) as u32;
        let buf = self.memory.alloc(bytes)?;
        let number = self.next;
        self.next += 1;
        self.ranges.insert(number, Lag { start, end, members });
        Some(Copies { number, buf, bytes, left, kept: 0, replied: false })
    }

    /// All copies of a write are written. Gives the reads that waited; they go on, or wait again.
    pub(super) fn end(&mut self, copies: &Copies) -> Vec<WaitingRead> {
        assert_eq!(copies.left, 0, "a write ends when its copies have ended");
        self.memory.free(copies.buf, copies.bytes);
        self.ranges.remove(&copies.number);
        mem::take(&mut self.reads)
    }

    /// A read waits until a write has ended.
    pub(super) fn await_end(&mut self, read: WaitingRead) {
        self.reads.push(read);
    }

    /// A flush waits for all that is on its way; false if nothing is.
    pub(crate) fn await_all(&mut self, flush: ReqKey) -> bool {
        let waits = !self.is_idle();
        if waits {
            self.flushes.push((flush, self.next));
        }
        waits
    }

    /// Flushes of which all has ended that they waited for.
    pub(super) fn take_flushes(&mut self) -> Vec<ReqKey> {
        let first = self.ranges.keys().next().copied();
        let is_due = |&(_, before): &(ReqKey, u64)| first.is_none_or(|first| first >= before);
        let (due, left): (Vec<_>, _) = mem::take(&mut self.flushes).into_iter().partition(is_due);
        self.flushes = left;
        due.into_iter().map(|flush| flush.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        request::{Reader, Req, Requests},
        scratch::PAGE_BYTES,
    };
    use lapstrake_geometry::{Sector, Sectors};
    use smallvec::smallvec;

    const SLOW: MemberId = MemberId(1);

    fn behind() -> Behind {
        Behind::new(BufId(1), 2, 2)
    }

    fn begin(behind: &mut Behind, start: u64) -> Copies {
        behind.begin((start, start + 8), 1, smallvec![SLOW]).expect("a page is free")
    }

    fn end(behind: &mut Behind, mut copies: Copies) -> Vec<WaitingRead> {
        copies.done();
        behind.end(&copies)
    }

    fn keys() -> [ReqKey; 2] {
        let (kind, sector, len) = (RequestKind::Flush, Sector(0), Sectors(0));
        let mut requests = Requests::default();
        let request = Request { id: RequestId(1), kind, sector, len };
        [0; 2].map(|_| requests.insert(Req::new(&request, Reader::Owner)))
    }

    #[test]
    fn a_flush_waits_for_what_came_before_it_only() {
        let (mut behind, [early, late]) = (behind(), keys());
        assert!(!behind.await_all(early), "nothing is on its way");
        let first = begin(&mut behind, 0);
        assert!(behind.await_all(early));
        let second = begin(&mut behind, 8);
        assert!(behind.await_all(late));
        end(&mut behind, first);
        assert_eq!(behind.take_flushes(), [early]);
        end(&mut behind, second);
        assert_eq!(behind.take_flushes(), [late]);
        assert!(behind.is_idle());
    }

    #[test]
    fn members_lag_where_their_copies_are_on_their_way() {
        let (mut behind, [read, _]) = (behind(), keys());
        let copies = begin(&mut behind, 8);
        assert!(behind.lags(SLOW, 0, 9) && behind.lags(SLOW, 15, 20) && behind.covers(8, 9));
        assert!(!behind.lags(SLOW, 0, 8) && !behind.lags(MemberId(0), 8, 16));
        behind.await_end((read, 8, 16));
        assert_eq!(end(&mut behind, copies), [(read, 8, 16)]);
        assert!(!behind.covers(8, 16));
    }

    #[test]
    fn so_many_writes_as_are_allowed_and_fit_leave_copies_behind() {
        let mut behind = behind();
        let long = u64::from(2 * PAGE_BYTES / 512);
        let copies = behind.begin((0, long), 1, smallvec![SLOW]).expect("two pages are free");
        assert!(!behind.is_full());
        assert!(behind.begin((long, long + 8), 1, smallvec![SLOW]).is_none());
        end(&mut behind, copies);
        let both = [0, 8].map(|start| begin(&mut behind, start));
        assert!(behind.is_full());
        both.into_iter().for_each(|copies| drop(end(&mut behind, copies)));
        assert_eq!(behind.memory.used(), 0);
    }

    #[test]
    fn a_write_is_answered_early_once_somebody_who_is_read_has_it() {
        let mut copies = begin(&mut behind(), 0);
        assert!(!copies.may_reply(1), "nobody has it");
        copies.kept();
        assert!(!copies.may_reply(2) && copies.may_reply(1));
        copies.reply();
        assert!(copies.is_replied() && !copies.may_reply(1));
    }

    #[test]
    #[should_panic(expected = "ends when its copies have ended")]
    fn a_write_does_not_end_before_its_copies() {
        let mut behind = behind();
        let copies = begin(&mut behind, 0);
        behind.end(&copies);
    }
}
