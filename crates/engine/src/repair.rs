//! Pages that a member could not read, until it is known whether they can be read or written anew, and what the
//! supervisor has been told of pages that are good again.
//!
//! Invariants:
//! - each page is mended by a piece of its own ([`crate::sync`]), from its begin to its end;
//! - a page is probed once, before anything is written;
//! - a read waits here only while pages are being mended, so that it is begun anew when they have been;
//! - what the supervisor says is bad is not, where this shard has told it since that it is good: it does not know that
//!   yet. Each of these is answered once.

use crate::{request::ReqKey, sync::PieceKey, types::*};
use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::{mem, ops::Range};
use smallvec::{SmallVec, smallvec};

/// Of a read that failed most pages can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Due,
    Running(Buf),
    /// The page cannot be read, or was not to be probed.
    Done,
}

#[derive(Debug)]
struct Page {
    member: MemberId,
    /// From the member's data offset; empty when nothing is to be written.
    range: Range<u64>,
    probe: Probe,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pages: BTreeMap<PieceKey, Page>,
    /// Reads that nobody could answer as a whole, until it is known which pages are bad.
    reads: Vec<ReqKey>,
    /// What the supervisor was told is good, and has not answered yet.
    goods: VecDeque<(MemberId, Range<u64>)>,
}

impl Repairs {
    /// A piece is there to mend a page.
    pub(crate) fn begin(&mut self, piece: PieceKey, member: MemberId, range: Range<u64>) {
        let page = Page { member, range, probe: Probe::Due };
        let before = self.pages.insert(piece, page);
        assert!(before.is_none(), "a piece mends one page");
    }

    /// The piece has ended; gives the page, if it was there for one.
    pub(crate) fn end(&mut self, piece: PieceKey) -> Option<(MemberId, Range<u64>)> {
        let page = self.pages.remove(&piece)?;
        assert_eq!(page.probe, Probe::Done, "a page is probed before its piece ends");
        Some((page.member, page.range))
    }

    /// Whether pages that could not be read are being tried or written anew.
    pub(crate) fn is_running(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Whose pages are being mended.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (MemberId, &Range<u64>)> {
        self.pages.values().map(|page| (page.member, &page.range))
    }

    /// The page that a piece is there for.
    pub(crate) fn page_of(&self, piece: PieceKey) -> Option<(MemberId, Range<u64>)> {
        self.pages.get(&piece).map(|page| (page.member, page.range.clone()))
    }

    /// The member of which a piece writes anew what could not be read.
    pub(crate) fn member_of(&self, piece: PieceKey) -> Option<MemberId> {
        self.pages.get(&piece).map(|page| page.member)
    }

    /// Whether the page is to be read by itself first.
    pub(crate) fn is_probe_due(&self, piece: PieceKey) -> bool {
        self.pages.get(&piece).is_some_and(|page| page.probe == Probe::Due)
    }

    /// Whether the page is being read by itself.
    pub(crate) fn is_probing(&self, piece: PieceKey) -> bool {
        self.pages.get(&piece).is_some_and(|page| matches!(page.probe, Probe::Running(_)))
    }

    /// The page is being read by itself, into `buf`.
    pub(crate) fn probe_begun(&mut self, piece: PieceKey, buf: Buf) {
        if let Some(page) = self.pages.get_mut(&piece) {
            assert_eq!(page.probe, Probe::Due, "a page is probed once");
            page.probe = Probe::Running(buf);
        }
    }

    /// The page has been read by itself, or is not to be. Gives the buffer back.
    pub(crate) fn probe_ended(&mut self, piece: PieceKey) -> Option<Buf> {
        let page = self.pages.get_mut(&piece)?;
        match mem::replace(&mut page.probe, Probe::Done) {
            Probe::Running(buf) => Some(buf),
            Probe::Due => None,
            Probe::Done => panic!("a page is probed once"),
        }
    }

    /// Nothing is to be written of a page.
    pub(crate) fn give_up(&mut self, piece: PieceKey) {
        if let Some(page) = self.pages.get_mut(&piece) {
            page.range.end = page.range.start;
        }
    }

    /// A read waits until no page is being mended.
    pub(crate) fn await_end(&mut self, read: ReqKey) {
        assert!(self.is_running(), "a read waits for nothing");
        self.reads.push(read);
    }

    /// Whether reads that waited can be begun anew.
    pub(crate) fn has_reads(&self) -> bool {
        !self.reads.is_empty() && !self.is_running()
    }

    /// Reads that can be begun anew.
    pub(crate) fn take_reads(&mut self) -> Vec<ReqKey> {
        if self.is_running() { Vec::new() } else { mem::take(&mut self.reads) }
    }

    /// The supervisor is told that a range is good again.
    pub(crate) fn told_good(&mut self, member: MemberId, range: Range<u64>) {
        self.goods.push_back((member, range));
    }

    /// The supervisor says that a range is good again. False if it was not this shard that told it so.
    pub(crate) fn answered(&mut self, member: MemberId, range: &Range<u64>) -> bool {
        let is_it = |good: &(MemberId, Range<u64>)| good.0 == member && good.1 == *range;
        let at = self.goods.iter().position(is_it);
        at.is_some_and(|at| self.goods.remove(at).is_some())
    }

    /// What is bad of a range of which the supervisor says so.
    pub(crate) fn still_bad(
        &self,
        member: MemberId,
        range: Range<u64>,
    ) -> SmallVec<[Range<u64>; 4]> {
        let mut parts: SmallVec<[Range<u64>; 4]> = smallvec![range];
        for (_, good) in self.goods.iter().filter(|good| good.0 == member) {
            let cut = |part: Range<u64>| {
                let (before, behind) =
                    (part.start..part.end.min(good.start), part.start.max(good.end)..part.end);
                [before, behind].into_iter().filter(|rest| !rest.is_empty())
            };
            parts = parts.into_iter().flat_map(cut).collect();
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        request::{Reader, Req, Requests},
        slots::Slots,
        sync::PieceInProgress,
    };
    use lapstrake_geometry::{Sector, Sectors};

    const MEMBER: MemberId = MemberId(1);
    const BUF: Buf = Buf { id: BufId(1), offset: 0 };

    fn pieces() -> [PieceKey; 2] {
        let mut slots = Slots::default();
        [0; 2].map(|_| slots.insert(PieceInProgress::for_test()))
    }

    fn read() -> ReqKey {
        let (kind, sector, len) = (RequestKind::Read(BUF), Sector(0), Sectors(8));
        Requests::default()
            .insert(Req::new(&Request { id: RequestId(1), kind, sector, len }, Reader::Owner))
    }

    #[test]
    fn a_read_waits_until_no_page_is_being_mended() {
        let (mut repairs, [first, second]) = (Repairs::default(), pieces());
        repairs.begin(first, MEMBER, 0..8);
        repairs.begin(second, MEMBER, 8..16);
        repairs.await_end(read());
        repairs.probe_ended(first);
        assert_eq!(repairs.end(first), Some((MEMBER, 0..8)));
        assert!(!repairs.has_reads());
        assert_eq!(repairs.take_reads(), []);
        repairs.probe_ended(second);
        repairs.end(second);
        assert!(repairs.has_reads());
        assert_eq!(repairs.take_reads(), [read()]);
        assert!(!repairs.has_reads());
    }

    #[test]
    #[should_panic(expected = "waits for nothing")]
    fn a_read_does_not_wait_for_nothing() {
        Repairs::default().await_end(read());
    }

    #[test]
    fn a_page_is_probed_once_into_memory_that_comes_back() {
        let (mut repairs, [piece, other]) = (Repairs::default(), pieces());
        repairs.begin(piece, MEMBER, 0..8);
        assert!(repairs.is_probe_due(piece) && !repairs.is_probe_due(other));
        repairs.probe_begun(piece, BUF);
        assert!(repairs.is_probing(piece) && !repairs.is_probe_due(piece));
        assert_eq!(repairs.probe_ended(piece), Some(BUF));
        assert!(!repairs.is_probing(piece) && !repairs.is_probe_due(piece));
        repairs.give_up(piece);
        assert_eq!(repairs.end(piece), Some((MEMBER, 0..0)));
        assert_eq!(repairs.end(other), None);
    }

    #[test]
    #[should_panic(expected = "probed before its piece ends")]
    fn a_piece_does_not_end_before_its_probe() {
        let (mut repairs, [piece, _]) = (Repairs::default(), pieces());
        repairs.begin(piece, MEMBER, 0..8);
        repairs.end(piece);
    }

    #[test]
    fn what_was_told_as_good_since_is_not_bad() {
        let mut repairs = Repairs::default();
        repairs.told_good(MEMBER, 10..20);
        repairs.told_good(MEMBER, 30..40);
        assert_eq!(repairs.still_bad(MEMBER, 0..50)[..], [0..10, 20..30, 40..50]);
        assert_eq!(repairs.still_bad(MEMBER, 12..18)[..], []);
        assert_eq!(
            repairs.still_bad(MemberId(2), 0..50).as_slice(),
            core::slice::from_ref(&(0..50))
        );
        assert!(!repairs.answered(MEMBER, &(10..19)), "another shard told that");
        assert!(repairs.answered(MEMBER, &(10..20)) && !repairs.answered(MEMBER, &(10..20)));
        assert_eq!(repairs.still_bad(MEMBER, 0..25).as_slice(), core::slice::from_ref(&(0..25)));
    }
}
