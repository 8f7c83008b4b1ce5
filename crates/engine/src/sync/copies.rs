//! Units on levels with copies: a range is read, of one copy or of all, held against each other, and written where that is
//! due.
//!
//! A unit owns its array range from [`Shard::read_copies`] to its end, as a write does.

use super::{Mismatch, PAGE_SECTORS, PieceKey, SyncAction, UNIT_SECTORS, compares};
use crate::{
    compare::{CompareId, Compared, Comparison, Finding, Subject, Suspect},
    member_io::Owner,
    shard::{Job, Shard},
    slots::{Key, Slots},
    types::*,
};
use core::mem;
use lapstrake_geometry::{Geometry, Home, Sector, Sectors};
use smallvec::{SmallVec, smallvec};

pub(crate) type UnitKey = Key<Unit>;
pub(crate) type Units = Slots<Unit>;

/// A unit on a level with copies.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(super) piece: PieceKey,
    pub(super) start: u64,
    pub(super) len: u64,
    /// A buffer for each copy that is read.
    pub(super) copies: SmallVec<[(Home, MemberId, Buf); 4]>,
    pub(super) pending: u32,
    pub(super) stage: Stage,
    /// A read failed on a member that the array lives without.
    pub(super) again: bool,
    /// Its range is done page by page instead.
    pub(super) retired: bool,
    pub(super) failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Reading,
    Comparing,
    Writing,
    /// What was written is read again.
    Verifying,
}

impl Unit {
    fn expect(&mut self) {
        self.pending += 1;
    }

    /// Has it end without an effect. False if it does already.
    pub(super) fn retire(&mut self) -> bool {
        !mem::replace(&mut self.retired, true)
    }
}

impl Shard {
    pub(super) fn begin_copy_unit(&mut self, key: PieceKey) {
        let next = self.syncs[key].next();
        let (at, left) = (next.start, next.end - next.start);
        let run = self.geometry.map(Sector(at));
        let len = self.clip(&run.homes, run.len.0.min(left).min(UNIT_SECTORS));
        self.syncs[key].took(len);
        let unit = self.units.insert(Unit {
            piece: key,
            start: at,
            len,
            copies: SmallVec::new(),
            pending: 1,
            stage: Stage::Reading,
            again: false,
            retired: false,
            failed: false,
        });
        self.claim(at..at + len, Job::Sync(unit));
    }

    /// The unit has its range to itself.
    pub(crate) fn read_copies(&mut self, key: UnitKey) {
        let Unit { piece, start, len, .. } = self.units[key];
        let homes = self.geometry.map(Sector(start)).homes;
        let range = |home: &Home| home.sector.0..home.sector.0 + len;
        let sources = homes
            .iter()
            .filter_map(|home| Some((*home, self.members.usable(home.slot, range(home))?)));
        let mut sources: SmallVec<[(Home, MemberId); 4]> = sources.collect();
        // Those may lag behind after an unclean stop.
        sources.sort_by_key(|(_, member)| self.members.is_write_mostly(*member));
        let targets = self.copy_targets(key, &homes, sources.first().map(|source| source.0));
        match self.syncs.action(piece) {
            SyncAction::Check | SyncAction::Repair if sources.len() < 2 => sources.clear(),
            SyncAction::Check | SyncAction::Repair => {}
            _ if targets.is_empty() => sources.clear(),
            SyncAction::Resync if self.compares_copies(&targets, &sources) => {}
            _ => sources.truncate(1),
        }
        if sources.is_empty() && !targets.is_empty() {
            self.units[key].failed = match self.syncs.action(piece) {
                SyncAction::Check | SyncAction::Repair => false,
                SyncAction::Recovery => {
                    let lost = targets
                        .iter()
                        .map(|(home, member)| (*member, home.sector.0..home.sector.0 + len));
                    !self.lose(lost)
                }
                SyncAction::Resync | SyncAction::Rewrite => true,
                SyncAction::Reshape => unreachable!("routers move data"),
            };
        }
        for (home, member) in sources {
            let Some(buf) = self.scratch.alloc((len * 512) as u32) else {
                // Not while the stripe cache has room for its units, as its least size has.
                self.units[key].failed = true;
                break;
            };
            let unit = &mut self.units[key];
            unit.copies.push((home, member, buf));
            unit.expect();
            let pieces = smallvec![Piece { buf, len: (len * 512) as u32 }];
            self.start_io(Owner::Unit(key), member, IoKind::Read, (home.sector.0, len), pieces);
        }
        self.unit_part_done(key);
    }

    /// Whether a resync looks at all copies and writes those that differ from the first, as md's does of RAID10: arms
    /// go on in one direction where reads and writes of neighbouring chunks would alternate. A mirror's go so in any
    /// case; where copies are far from each other, disks gather in their caches what is written.
    fn compares_copies(&self, targets: &[(Home, MemberId)], sources: &[(Home, MemberId)]) -> bool {
        matches!(self.geometry, Geometry::Raid10(_))
            && !self.has_far_copies()
            && targets.iter().all(|target| sources.contains(target))
    }

    /// Whether copies of a chunk lie in other parts of their members.
    pub(super) fn has_far_copies(&self) -> bool {
        let Geometry::Raid10(raid10) = &self.geometry else { return false };
        raid10.layout().far > 1 && !raid10.layout().offset
    }

    /// Who is to get the unit's copy, which `source` holds.
    fn copy_targets(
        &self,
        key: UnitKey,
        homes: &[Home],
        source: Option<Home>,
    ) -> SmallVec<[(Home, MemberId); 4]> {
        let unit = &self.units[key];
        let piece = &self.syncs[unit.piece];
        let target = |home: &Home| match piece.action() {
            SyncAction::Recovery | SyncAction::Rewrite => {
                let range = home.sector.0..home.sector.0 + unit.len;
                let lacking = self.members.lacking(home.slot, &range);
                lacking.filter(|_| piece.within().contains(&home.sector.0))
            }
            _ => self.members.writable(home.slot).filter(|_| Some(*home) != source),
        };
        homes.iter().filter_map(|home| Some((*home, target(home)?))).collect()
    }

    /// One I/O more of a unit than was counted is on its way.
    pub(crate) fn expect_another(&mut self, key: UnitKey) {
        self.units[key].expect();
    }

    /// A member I/O of a unit has ended. `survived`: the array lives without its member.
    pub(crate) fn unit_io_done(&mut self, key: UnitKey, ok: bool, survived: bool, read: bool) {
        let unit = &mut self.units[key];
        unit.again |= read && !ok && survived;
        unit.failed |= !ok && !survived;
        self.unit_part_done(key);
    }

    fn unit_part_done(&mut self, key: UnitKey) {
        let unit = &mut self.units[key];
        assert!(unit.pending > 0, "a part of a unit ends that was not counted");
        unit.pending -= 1;
        if unit.pending > 0 {
            return;
        }
        let is_over = match unit.stage {
            Stage::Writing => self.repairs.member_of(unit.piece).is_none(),
            stage => stage == Stage::Verifying,
        };
        if unit.failed || unit.retired || is_over || (unit.copies.is_empty() && !unit.again) {
            return self.end_unit(key);
        }
        unit.pending = 1;
        if unit.stage == Stage::Writing {
            return self.read_again(key);
        }
        if mem::take(&mut unit.again) {
            let (piece, range) = (unit.piece, unit.start..unit.start + unit.len);
            self.give_copies(key);
            if range.end - range.start > PAGE_SECTORS && compares(self.syncs.action(piece)) {
                self.retry_in_pages(piece, range);
                return self.end_unit(key);
            }
            return self.read_copies(key);
        }
        match self.units[key].copies.len() {
            1 => self.write_copies(key),
            _ => self.compare_copies(key),
        }
    }

    fn write_copies(&mut self, key: UnitKey) {
        let unit = &mut self.units[key];
        unit.stage = Stage::Writing;
        let (source, _, buf) = unit.copies[0];
        let len = unit.len;
        let homes = self.geometry.map(Sector(unit.start)).homes;
        for (home, member) in self.copy_targets(key, &homes, Some(source)) {
            self.write_copy(key, home.sector.0, member, buf, len);
        }
        self.unit_part_done(key);
    }

    fn write_copy(&mut self, key: UnitKey, sector: u64, member: MemberId, buf: Buf, len: u64) {
        self.units[key].expect();
        let pieces = smallvec![Piece { buf, len: (len * 512) as u32 }];
        let kind = IoKind::Write { fua: false };
        self.start_io(Owner::Unit(key), member, kind, (sector, len), pieces);
    }

    fn compare_copies(&mut self, key: UnitKey) {
        let unit = &mut self.units[key];
        unit.stage = Stage::Comparing;
        self.emit(Effect::Compare(Comparison {
            id: CompareId(Compared::Unit(key)),
            what: Subject::Copies(self.units[key].copies.iter().map(|c| c.2).collect()),
            len: (self.units[key].len * 512) as u32,
        }));
    }

    pub(super) fn unit_compared(&mut self, key: UnitKey, found: &[Finding]) {
        let unit = &mut self.units[key];
        unit.stage = Stage::Writing;
        let (piece, start, len) = (unit.piece, unit.start, unit.len);
        let copies = unit.copies.clone();
        for (index, finding) in found.iter().enumerate() {
            let from = u64::from(finding.page) * PAGE_SECTORS;
            let page = PAGE_SECTORS.min(len - from);
            let member = match finding.suspect {
                Suspect::Block(copy) => Some(copies[usize::from(copy)].1),
                _ => None,
            };
            // md counts the whole of what it has compared at once.
            let counts = if index == 0 { len } else { 0 };
            let mismatch = Mismatch { start: Sector(start + from), len: Sectors(page), member };
            self.syncs[piece].note_mismatch(mismatch, counts);
        }
        self.mend_copies(key, found);
        self.unit_part_done(key);
    }

    /// Writes the right copy of what was found over the others; a check does not.
    fn mend_copies(&mut self, key: UnitKey, found: &[Finding]) {
        let unit = &self.units[key];
        let (len, copies) = (unit.len, unit.copies.clone());
        let action = self.syncs.action(unit.piece);
        if action == SyncAction::Check {
            return;
        }
        // Before a resync the first copy alone is read.
        let right = |finding: &Finding| match action {
            SyncAction::Repair => usize::from(finding.right),
            _ => 0,
        };
        // Pages that follow each other are written together.
        let alike = |a: &Finding, b: &Finding| (right(a), a.page + 1) == (right(b), b.page);
        for pages in found.chunk_by(alike) {
            let from = u64::from(pages[0].page) * PAGE_SECTORS;
            let sectors = (PAGE_SECTORS * pages.len() as u64).min(len - from);
            let right = right(&pages[0]);
            let buf = copies[right].2.advance_sectors(from as u32);
            for (copy, &(home, member, _)) in copies.iter().enumerate() {
                if copy != right && !self.members.has_failed(member) {
                    self.write_copy(key, home.sector.0 + from, member, buf, sectors);
                }
            }
        }
    }

    fn read_again(&mut self, key: UnitKey) {
        let unit = &mut self.units[key];
        unit.stage = Stage::Verifying;
        let (source, _, buf) = unit.copies[0];
        let (len, piece) = (unit.len, unit.piece);
        let homes = self.geometry.map(Sector(unit.start)).homes;
        // Another may have come to its place meanwhile, which was not written.
        let mended = self.repairs.member_of(piece);
        let written = self.copy_targets(key, &homes, Some(source));
        for (home, member) in written.into_iter().filter(|(_, member)| Some(*member) == mended) {
            self.units[key].expect();
            let pieces = smallvec![Piece { buf, len: (len * 512) as u32 }];
            self.start_io(Owner::Unit(key), member, IoKind::Read, (home.sector.0, len), pieces);
        }
        self.unit_part_done(key);
    }

    fn give_copies(&mut self, key: UnitKey) {
        let unit = &mut self.units[key];
        let bytes = (unit.len * 512) as u32;
        for (_, _, buf) in unit.copies.drain(..) {
            self.scratch.free(buf, bytes);
        }
    }

    fn end_unit(&mut self, key: UnitKey) {
        self.give_copies(key);
        let unit = self.units.remove(key);
        self.release(unit.start);
        self.sync_unit_done(unit.piece, !unit.failed);
    }
}
