//! A shard's part in recovery, resync, check and repair.
//!
//! The supervisor cuts the array into pieces and gives each to the shard that owns its sectors.
//! A piece is done in units: on parity levels operations ([`crate::op`]) that own their height range of
//! a stripe as any other operation does; on levels with copies units of [`copies`], which own their
//! array range in the guard as a write does. So nothing is written to what a unit has read, and
//! reads that need no recovery go on.
//!
//! A page that a member could not read is a piece that the shard begins by itself: it is probed by itself, written anew
//! from the other members and read again.
//!
//! What has been recovered stays right, though the shard does not yet know that it may be read: writes
//! go to members under recovery everywhere.

mod copies;
mod pieces;

use crate::{
    compare::{CompareId, Compared, Finding, Suspect},
    member_io::Owner,
    members::BadState,
    messages::Notice,
    scratch::PAGE_BYTES,
    shard::Shard,
    stripe::OP_SECTORS_MAX,
    types::*,
};
use alloc::vec::Vec;
use copies::Stage;
pub(crate) use copies::{UnitKey, Units};
use core::ops::Range;
use lapstrake_geometry::{Content, Geometry, Home, Sector, Sectors, Slot, StripeNo};
use pieces::Ended;
#[cfg(test)]
pub(crate) use pieces::PieceInProgress;
pub(crate) use pieces::{PieceKey, Syncs};
use smallvec::{SmallVec, smallvec};

/// Units in flight: on levels with parity half of what the default stripe cache holds, so that requests find room.
const UNITS_MAX: u32 = 4;
/// The same on levels with copies, in sectors.
const COPY_SECTORS_MAX: u64 = 16 * UNIT_SECTORS;
/// And where copies lie far from each other: an arm does what there is in one place before it goes to the other.
const FAR_SECTORS_MAX: u64 = 32 * UNIT_SECTORS;
/// Height of a unit on levels with copies, and so what md counts for a difference in it: 64 KiB.
const UNIT_SECTORS: u64 = 128;
/// Sectors of a page, which is what md counts for a difference in a stripe.
pub(crate) const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / 512;

/// What is done to the array.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SyncAction {
    /// Members under recovery get what they lack.
    Recovery,
    /// After an unclean stop: the first copy is copied (of RAID10 near and offset where others differ), parity made anew where it does not
    /// fit.
    Resync,
    /// Differences are counted.
    Check,
    /// Differences are counted and mended.
    Repair,
    /// Data is moved from the array's old geometry to its new one. Routers do this.
    Reshape,
    /// What a member could not read is written anew, and read again. Shards do this by themselves.
    Rewrite,
}

/// Whether all members of a place are held against each other.
pub(crate) fn compares(action: SyncAction) -> bool {
    matches!(action, SyncAction::Resync | SyncAction::Check | SyncAction::Repair)
}

/// Names a piece.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PieceId(pub u32);

/// A part of the array to be gone through.
#[derive(Clone, Debug)]
pub struct SyncPiece {
    /// For the report.
    pub id: PieceId,
    /// What to do.
    pub action: SyncAction,
    /// First array sector; on parity levels a stripe's first.
    pub start: Sector,
    /// Length; on parity levels whole stripes.
    pub len: Sectors,
    /// Only what lies within these member sectors is done; of copies it is what is recovered. Of a reshape: the array's
    /// sectors that the old geometry has; the rest is to read as zeros.
    pub within: Range<u64>,
}

/// A difference that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// First array sector.
    pub start: Sector,
    /// Length.
    pub len: Sectors,
    /// Who is wrong, if that can be told.
    pub member: Option<MemberId>,
}

/// The end of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReport {
    /// Which.
    pub id: PieceId,
    /// Nothing failed that cannot be done without.
    pub ok: bool,
    /// Sectors that differ, as md counts them.
    pub mismatch_sectors: u64,
    /// Where: no more of them than the piece has pages.
    pub mismatches: Vec<Mismatch>,
    /// Requests that the shard has answered since its last report.
    pub requests: u64,
}

impl Shard {
    /// Takes a piece; its end comes as [`Notice::Synced`].
    pub fn handle_sync(&mut self, now: Time, piece: SyncPiece) {
        self.now = now;
        let (start, end) = (piece.start.0, piece.start.0 + piece.len.0);
        let rest = match &self.geometry {
            Geometry::Parity(parity) => {
                let at = |sector| {
                    let stripe = StripeNo(sector / parity.stripe_data().0);
                    parity.member_sector(stripe, Sectors(0)).0
                };
                at(start).max(piece.within.start)..at(end).min(piece.within.end)
            }
            _ => start..end,
        };
        self.syncs.take(piece, rest);
    }

    /// The world has compared.
    pub fn handle_compared(&mut self, now: Time, id: CompareId, found: &[Finding]) {
        self.now = now;
        match id.0 {
            Compared::Op(key) => self.op_compared(key, found),
            Compared::Unit(key) => self.unit_compared(key, found),
        }
    }

    /// The first piece in turn a unit of which may begin.
    pub(crate) fn next_piece(&self) -> Option<PieceKey> {
        if !self.syncs.has_queued() || self.syncs.running() >= self.units_max() {
            return None;
        }
        self.syncs.queued().find(|&key| !self.awaits_repair(key))
    }

    /// How many units may run at once. Those of levels with copies have all their memory at once, the others wait for it.
    fn units_max(&self) -> u32 {
        let run = match &self.geometry {
            Geometry::Parity(_) => return UNITS_MAX,
            copies => copies.map(Sector(0)),
        };
        // A chunk may be less than a unit.
        let unit = run.len.0.min(UNIT_SECTORS);
        let pages = run.homes.len() as u64 * (unit * 512).div_ceil(u64::from(PAGE_BYTES));
        let fit = u64::from(self.scratch.limit()) / pages;
        let most = if self.has_far_copies() { FAR_SECTORS_MAX } else { COPY_SECTORS_MAX };
        fit.clamp(1, most / unit) as u32
    }

    /// Begins as many units as may run at once.
    pub(crate) fn begin_units(&mut self) {
        while let Some(key) = self.next_piece() {
            if self.syncs[key].is_begun() || self.repairs.is_probing(key) {
                self.syncs.unqueue(key);
                self.end_piece_if_done(key);
                continue;
            }
            self.syncs.begin_unit(key);
            match &self.geometry {
                _ if self.repairs.is_probe_due(key) => self.begin_probe(key),
                Geometry::Parity(_) => self.begin_stripe_unit(key),
                _ => self.begin_copy_unit(key),
            }
        }
    }

    /// Whether what is to be compared next is about to be readable again: not to compare it would leave it
    /// as it is.
    fn awaits_repair(&self, key: PieceKey) -> bool {
        let piece = &self.syncs[key];
        if !self.repairs.is_running() || !compares(piece.action()) || piece.is_begun() {
            return false;
        }
        let next = piece.next();
        let len = (PAGE_SECTORS - next.start % PAGE_SECTORS).min(next.end - next.start);
        let homes = match &self.geometry {
            Geometry::Parity(_) => SmallVec::new(),
            copies => copies.map(Sector(next.start)).homes,
        };
        self.repairs.pages().any(|(member, range)| {
            let slot = self.members.slot_of(member);
            // What is mended may be the end of a page.
            let is_in = |at: u64| range.start < at + len && at < range.end;
            let is_home = |home: &Home| Some(home.slot) == slot && is_in(home.sector.0);
            (homes.is_empty() && is_in(next.start)) || homes.iter().any(is_home)
        })
    }

    fn end_piece_if_done(&mut self, key: PieceKey) {
        match self.syncs.end_if_done(key, self.stats.requests) {
            None => {}
            Some(Ended::Ordered(report)) => self.note(Notice::Synced(report)),
            Some(Ended::Rewrite { ok }) => {
                if let Some((member, range)) = self.repairs.end(key) {
                    self.end_rewrite(member, range, ok);
                }
            }
        }
    }

    /// A unit of a piece has ended.
    pub(crate) fn sync_unit_done(&mut self, key: PieceKey, ok: bool) {
        self.syncs.unit_done(key, ok);
        self.end_piece_if_done(key);
    }

    fn begin_stripe_unit(&mut self, key: PieceKey) {
        let parity = self.parity();
        let next = self.syncs[key].next();
        let (stripe, offset) = parity.stripe_at(Sector(next.start));
        let left = (parity.chunk().0 - offset.0).min(next.end - next.start);
        let slots = (0..self.geometry.raid_disks()).map(Slot);
        let alike = slots.map(|slot| self.members.alike(slot, next.start)).min();
        let len = left.min(u64::from(OP_SECTORS_MAX)).min(alike.unwrap_or(left));
        self.syncs[key].took(len);
        let (lo, hi) = (offset.0 as u32, (offset.0 + len) as u32);
        self.add_sync_frag(key, stripe, (lo, hi));
    }

    /// Notes differences in a stripe. `lo`: where the operation's buffers begin in the chunk.
    pub(crate) fn note_stripe_mismatches(
        &mut self,
        key: PieceKey,
        stripe: StripeNo,
        lo: u32,
        found: &[Finding],
    ) {
        for finding in found {
            let offset = Sectors(u64::from(lo) + u64::from(finding.page) * PAGE_SECTORS);
            let parity = self.parity();
            let (data, slot) = match finding.suspect {
                Suspect::Unknown => (0, None),
                Suspect::Block(data) => (data, Some(parity.slot_of_data(stripe, data))),
                Suspect::P => (0, Some(parity.slot_of_p(stripe))),
                Suspect::Q => (0, parity.slot_of_q(stripe)),
            };
            let start = parity.array_sector(stripe, data, offset);
            let member = slot.and_then(|slot| self.members.writable(slot));
            let mismatch = Mismatch { start, len: Sectors(PAGE_SECTORS), member };
            self.syncs[key].note_mismatch(mismatch, PAGE_SECTORS);
        }
    }

    /// Whether an I/O writes anew what could not be read, or reads it again.
    pub(crate) fn is_rewriting(&self, owner: Owner) -> bool {
        match owner {
            Owner::Unit(key) => {
                let unit = &self.units[key];
                let is_rewrite = self.syncs.action(unit.piece) == SyncAction::Rewrite;
                is_rewrite && matches!(unit.stage, Stage::Writing | Stage::Verifying)
            }
            Owner::Op(key) => self.ops[key].rewrites(&self.syncs),
            _ => false,
        }
    }

    /// A member could not read this: nothing is read there until it has been written anew.
    pub(crate) fn rewrite(&mut self, member: MemberId, range: Range<u64>) {
        let Some(slot) = self.members.slot_of(member) else { return };
        let mut at = range.start;
        while at < range.end {
            let page = (PAGE_SECTORS - at % PAGE_SECTORS).min(range.end - at);
            if self.members.is_told_in_part(member, &(at..at + page)) {
                // It was read before that was known. What is there is not data, be it readable.
                at += page;
                continue;
            }
            self.members.mark_bad(member, at..at + page, BadState::Seen);
            // On parity levels member sectors; else the array's.
            let rest = match self.geometry.content(slot, Sector(at)) {
                Content::Data(start) if !matches!(self.geometry, Geometry::Parity(_)) => {
                    start.0..start.0 + page
                }
                _ => at..at + page,
            };
            let key = self.syncs.begin_rewrite(at..at + page, rest);
            self.repairs.begin(key, member, at..at + page);
            at += page;
        }
    }

    fn begin_probe(&mut self, key: PieceKey) {
        let Some((member, range)) = self.repairs.page_of(key) else { return };
        if self.members.is_told_in_part(member, &range) {
            return self.probed(key, false);
        }
        let len = range.end - range.start;
        let Some(buf) = self.scratch.alloc((len * 512) as u32) else {
            // It is written anew, be it in vain.
            return self.probed(key, false);
        };
        self.repairs.probe_begun(key, buf);
        let pieces = smallvec![Piece { buf, len: (len * 512) as u32 }];
        self.start_io(Owner::Probe(key), member, IoKind::Read, (range.start, len), pieces);
    }

    /// Whether a page can be read by itself is known.
    pub(crate) fn probed(&mut self, key: PieceKey, ok: bool) {
        let Some((member, range)) = self.repairs.page_of(key) else { return };
        if let Some(buf) = self.repairs.probe_ended(key) {
            self.scratch.free(buf, ((range.end - range.start) * 512) as u32);
        }
        let is_told = self.members.is_told_in_part(member, &range);
        // Where nothing may be written it is read from others for the rest of this life.
        if ok || is_told || self.read_only || self.gate.is_out_of_space() {
            self.repairs.give_up(key);
            self.syncs[key].skip_rest();
            // Of what went on record meanwhile the member lacks the data, though it may be readable again.
            if ok && !is_told {
                self.members.clear_bad(member, range);
            }
        } else {
            self.syncs.begin_next(key);
        }
        self.sync_unit_done(key, true);
    }

    /// A member that recovery cannot do without could not read. Its pages are tried one by one; what can
    /// be read by nobody is lost. False: it was no recovery.
    pub(crate) fn source_failed(
        &mut self,
        owner: Owner,
        member: MemberId,
        range: Range<u64>,
    ) -> bool {
        let (piece, ours) = match owner {
            Owner::Op(key) => (self.ops[key].piece(), range.clone()),
            Owner::Unit(key) => {
                let unit = &self.units[key];
                (Some(unit.piece), unit.start..unit.start + unit.len)
            }
            _ => (None, 0..0),
        };
        let Some(piece) = piece.filter(|&p| self.syncs.action(p) == SyncAction::Recovery) else {
            return false;
        };
        if range.end - range.start <= PAGE_SECTORS {
            self.members.mark_bad(member, range, BadState::Seen);
            return true;
        }
        let is_first = match owner {
            Owner::Op(key) => self.ops[key].retire(),
            Owner::Unit(key) => self.units[key].retire(),
            _ => false,
        };
        if is_first {
            self.retry_in_pages(piece, ours);
        }
        true
    }

    /// Has a range of a piece done page by page.
    pub(crate) fn retry_in_pages(&mut self, key: PieceKey, range: Range<u64>) {
        self.syncs[key].retry_in_pages(range);
        self.syncs.requeue(key);
    }

    /// These sectors of members under recovery cannot be recovered. True if all can go on record.
    pub(crate) fn lose(&mut self, lost: impl Iterator<Item = (MemberId, Range<u64>)>) -> bool {
        let with_replacements = lost.flat_map(|(member, range)| {
            let replacement = self.members.replacement_of(member);
            let both = [Some(member), replacement].into_iter().flatten();
            both.map(move |id| (id, range.clone()))
        });
        let all: Vec<(MemberId, Range<u64>)> = with_replacements.collect();
        let has_logs = all.iter().all(|&(member, _)| self.members.has_log(member));
        if has_logs {
            all.into_iter().for_each(|(member, range)| self.tell_bad(member, range));
        }
        has_logs
    }

    fn end_rewrite(&mut self, member: MemberId, range: Range<u64>, ok: bool) {
        let is_lost = self.members.is_told_in_part(member, &range);
        if ok && !range.is_empty() && !self.members.has_failed(member) && !is_lost {
            self.members.clear_bad(member, range.clone());
            let (start, len) = (Sector(range.start), Sectors(range.end - range.start));
            self.note(Notice::Rewritten(member, start, len));
        }
    }
}
