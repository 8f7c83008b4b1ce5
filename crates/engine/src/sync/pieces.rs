//! The pieces of sync actions that a shard has: which of them is next, and what was found in each.
//!
//! Invariants:
//! - a piece with something left to begin is in the queue, unless that waits for a probe of its page;
//! - `running` is the sum of the pieces' units under way;
//! - a piece ends when all of it was begun, no unit of it is under way and it is in the queue no more; each ends once.

use super::{Mismatch, PAGE_SECTORS, PieceId, SyncAction, SyncPiece, SyncReport};
use crate::slots::{Key, Slots};
use alloc::{collections::VecDeque, vec::Vec};
use core::{
    mem,
    ops::{Index, IndexMut, Range},
};
use lapstrake_geometry::Sectors;

pub(crate) type PieceKey = Key<PieceInProgress>;

/// Who wants a piece done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The supervisor, and by this name it hears of the end.
    Ordered(PieceId),
    /// The shard itself, to mend a page.
    Rewrite,
}

/// A part of the array that is being gone through.
#[derive(Debug)]
pub(crate) struct PieceInProgress {
    purpose: Purpose,
    action: SyncAction,
    /// Only what lies within these member sectors is done; of copies it is what is recovered.
    within: Range<u64>,
    /// What is not begun yet: member sectors on parity levels, else array sectors.
    rest: Range<u64>,
    /// Pages to be begun again by themselves.
    again: Vec<Range<u64>>,
    units: u32,
    ok: bool,
    mismatch_sectors: u64,
    mismatches: Vec<Mismatch>,
}

impl PieceInProgress {
    fn new(purpose: Purpose, action: SyncAction, within: Range<u64>, rest: Range<u64>) -> Self {
        let (again, mismatches) = (Vec::new(), Vec::new());
        let (units, ok, mismatch_sectors) = (0, true, 0);
        Self { purpose, action, within, rest, again, units, ok, mismatch_sectors, mismatches }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self::new(Purpose::Rewrite, SyncAction::Rewrite, 0..8, 0..8)
    }

    pub(crate) fn action(&self) -> SyncAction {
        self.action
    }

    pub(super) fn within(&self) -> &Range<u64> {
        &self.within
    }

    pub(super) fn is_begun(&self) -> bool {
        self.rest.is_empty() && self.again.is_empty()
    }

    /// The next range to begin: a page that is begun again, or what is left.
    pub(super) fn next(&self) -> Range<u64> {
        self.again.last().unwrap_or(&self.rest).clone()
    }

    /// So much of [`Self::next`] has begun.
    pub(super) fn took(&mut self, len: u64) {
        let next = self.next();
        assert!(0 < len && len <= next.end - next.start, "{len} of {next:?} are begun");
        match self.again.pop() {
            Some(page) if page.start + len < page.end => {
                self.again.push(page.start + len..page.end);
            }
            Some(_) => {}
            None => self.rest.start += len,
        }
    }

    /// What is left is not to be done.
    pub(super) fn skip_rest(&mut self) {
        self.rest.start = self.rest.end;
    }

    /// Has a range done page by page, again. It is to be in the queue then.
    pub(super) fn retry_in_pages(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let page = (PAGE_SECTORS - at % PAGE_SECTORS).min(range.end - at);
            self.again.push(at..at + page);
            at += page;
        }
    }

    /// A difference was found, which counts for so many sectors.
    pub(super) fn note_mismatch(&mut self, mismatch: Mismatch, counts: u64) {
        self.mismatch_sectors += counts;
        if let Some(last) = self.mismatches.last_mut()
            && last.start + last.len == mismatch.start
            && last.member == mismatch.member
        {
            last.len = Sectors(last.len.0 + mismatch.len.0);
        } else {
            self.mismatches.push(mismatch);
        }
    }
}

/// How a piece has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Ordered(SyncReport),
    Rewrite { ok: bool },
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    pieces: Slots<PieceInProgress>,
    /// Pieces with something left to begin.
    queue: VecDeque<PieceKey>,
    running: u32,
    /// Requests answered, as of the last report.
    requests_told: u64,
}

impl Index<PieceKey> for Syncs {
    type Output = PieceInProgress;

    fn index(&self, key: PieceKey) -> &PieceInProgress {
        &self.pieces[key]
    }
}

impl IndexMut<PieceKey> for Syncs {
    fn index_mut(&mut self, key: PieceKey) -> &mut PieceInProgress {
        &mut self.pieces[key]
    }
}

impl Syncs {
    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn action(&self, piece: PieceKey) -> SyncAction {
        self.pieces[piece].action
    }

    /// Takes a piece of the supervisor's, of which `rest` is to be begun.
    pub(super) fn take(&mut self, piece: SyncPiece, rest: Range<u64>) {
        let purpose = Purpose::Ordered(piece.id);
        let key =
            self.pieces.insert(PieceInProgress::new(purpose, piece.action, piece.within, rest));
        self.queue.push_back(key);
    }

    /// Begins to mend a page; it is next. `rest`: what to go through for that.
    pub(super) fn begin_rewrite(&mut self, within: Range<u64>, rest: Range<u64>) -> PieceKey {
        let piece = PieceInProgress::new(Purpose::Rewrite, SyncAction::Rewrite, within, rest);
        let key = self.pieces.insert(piece);
        self.queue.push_front(key);
        key
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Pieces with something left to begin, in turn.
    pub(super) fn queued(&self) -> impl Iterator<Item = PieceKey> {
        self.queue.iter().copied()
    }

    /// Units under way.
    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// Nothing of the piece is to be begun in this turn of it.
    pub(super) fn unqueue(&mut self, key: PieceKey) {
        if let Some(at) = self.queue.iter().position(|&other| other == key) {
            self.queue.remove(at);
        }
    }

    /// The piece is next. Where it was in turn already it is so twice, and ends after both.
    pub(super) fn begin_next(&mut self, key: PieceKey) {
        self.queue.push_front(key);
    }

    /// Something is left to begin of a piece again; it is next, unless it is in turn.
    pub(super) fn requeue(&mut self, key: PieceKey) {
        if !self.queue.contains(&key) {
            self.queue.push_front(key);
        }
    }

    /// A unit of a piece is under way.
    pub(super) fn begin_unit(&mut self, key: PieceKey) {
        self.pieces[key].units += 1;
        self.running += 1;
    }

    /// A unit of a piece has ended.
    pub(super) fn unit_done(&mut self, key: PieceKey, ok: bool) {
        let piece = &mut self.pieces[key];
        assert!(piece.units > 0 && self.running > 0, "a unit ends that was not begun");
        piece.ok &= ok;
        if !ok {
            // What follows would not count.
            piece.skip_rest();
            piece.again.clear();
        }
        piece.units -= 1;
        self.running -= 1;
    }

    /// Takes out a piece that has ended. `requests`: how many the shard has answered.
    pub(super) fn end_if_done(&mut self, key: PieceKey, requests: u64) -> Option<Ended> {
        let piece = &self.pieces[key];
        if piece.units > 0 || !piece.is_begun() || self.queue.contains(&key) {
            return None;
        }
        let PieceInProgress { purpose, ok, mismatch_sectors, mismatches, .. } =
            self.pieces.remove(key);
        let Purpose::Ordered(id) = purpose else { return Some(Ended::Rewrite { ok }) };
        let requests = requests - mem::replace(&mut self.requests_told, requests);
        Some(Ended::Ordered(SyncReport { id, ok, mismatch_sectors, mismatches, requests }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MemberId;
    use lapstrake_geometry::Sector;

    fn syncs() -> (Syncs, PieceKey) {
        let (id, action, within) = (PieceId(7), SyncAction::Check, 0..64);
        let mut syncs = Syncs::default();
        syncs.take(SyncPiece { id, action, start: Sector(0), len: Sectors(64), within }, 0..64);
        let key = syncs.queued().next().expect("it is in turn");
        (syncs, key)
    }

    fn report(ok: bool, requests: u64) -> Option<Ended> {
        let (id, mismatches) = (PieceId(7), Vec::new());
        Some(Ended::Ordered(SyncReport { id, ok, mismatch_sectors: 0, mismatches, requests }))
    }

    #[test]
    fn a_piece_ends_when_all_was_begun_and_all_units_have_ended() {
        let (mut syncs, key) = syncs();
        (0..2).for_each(|_| syncs.begin_unit(key));
        (0..2).for_each(|_| syncs[key].took(32));
        syncs.unqueue(key);
        syncs.unit_done(key, true);
        assert_eq!((syncs.end_if_done(key, 5), syncs.running()), (None, 1));
        syncs.unit_done(key, true);
        assert_eq!(syncs.end_if_done(key, 5), report(true, 5));
        assert!(syncs.is_idle());
    }

    #[test]
    fn nothing_more_is_begun_of_a_piece_that_has_failed() {
        let (mut syncs, key) = syncs();
        syncs.begin_unit(key);
        syncs[key].took(32);
        syncs[key].retry_in_pages(0..32);
        syncs.unit_done(key, false);
        assert!(syncs[key].is_begun());
        syncs.unqueue(key);
        assert_eq!(syncs.end_if_done(key, 0), report(false, 0));
    }

    #[test]
    fn pages_are_begun_again_by_themselves_before_what_is_left() {
        let (mut syncs, key) = syncs();
        syncs[key].took(32);
        syncs[key].retry_in_pages(4..16);
        let mut begun = Vec::new();
        while !syncs[key].is_begun() {
            let next = syncs[key].next();
            syncs[key].took(next.end - next.start);
            begun.push(next);
        }
        assert_eq!(begun, [8..16, 4..8, 32..64]);
    }

    #[test]
    fn what_is_to_be_begun_again_is_next_unless_it_is_in_turn() {
        let (mut syncs, key) = syncs();
        let mends = syncs.begin_rewrite(0..8, 0..8);
        syncs.requeue(key);
        assert!(syncs.queued().eq([mends, key]));
        syncs.unqueue(key);
        syncs.requeue(key);
        assert!(syncs.queued().eq([key, mends]));
        syncs.begin_next(mends);
        syncs.unqueue(mends);
        assert!(syncs.queued().eq([key, mends]), "its other turn is left");
    }

    #[test]
    #[should_panic(expected = "was not begun")]
    fn a_unit_ends_once() {
        let (mut syncs, key) = syncs();
        syncs.begin_unit(key);
        (0..2).for_each(|_| syncs.unit_done(key, true));
    }

    #[test]
    fn differences_that_go_on_are_one() {
        let (mut syncs, key) = syncs();
        let mismatch = |start, member| {
            let member = Some(MemberId(member));
            Mismatch { start: Sector(start), len: Sectors(8), member }
        };
        syncs[key].note_mismatch(mismatch(0, 1), 8);
        syncs[key].note_mismatch(mismatch(8, 1), 8);
        syncs[key].note_mismatch(mismatch(16, 2), 8);
        let long = Mismatch { len: Sectors(16), ..mismatch(0, 1) };
        assert_eq!(syncs[key].mismatches, [long, mismatch(16, 2)]);
        assert_eq!(syncs[key].mismatch_sectors, 24);
    }
}
