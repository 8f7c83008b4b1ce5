//! What an array lacks and how far its synchronisation has come: recovery of members, resync after an
//! unclean stop, check and repair on request.
//!
//! One sync action runs at a time; recovery goes before resync, and that before what was asked
//! for, as in md. A run goes over the array in windows, in order, a few at a time. `done` is where the
//! first window begins that has not ended: below it all is right, above nothing counts.
//!
//! Invariants:
//! - a slot is given to a spare on record before the spare's recovery begins;
//! - what superblocks say of `done` was read after the windows below it had ended, and members flush
//!   before superblocks are written, so a checkpoint is never ahead of stable data;
//! - a member is in sync on record only after its run has ended well;
//! - a replacement is whole on record before the member whose place it takes is given up.

mod guide;
mod scheduler;

pub(crate) use scheduler::{BUSY_NS, SyncScheduler};

use crate::{
    members::FULLY_TRUSTED,
    messages::Order,
    supervisor::{DiskState, Event, Supervisor},
    sync::{Mismatch, SyncAction, SyncPiece, SyncReport},
    types::{MemberId, Time},
    write_intent_bitmap::Guide,
};
use alloc::vec::Vec;
use lapstrake_geometry::{Content, Geometry, Sector, Sectors, Slot, StripeNo};
use scheduler::{RunPlan, SyncRun};

/// Height of a window: 1 MiB, or a chunk if that is more.
const WINDOW_SECTORS: u64 = 2048;
/// Windows begun in one go: those without anything to do end at once.
const WINDOWS_AT_ONCE: usize = 1000;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEnd {
    /// It came to its end.
    Done,
    /// It was asked to end, or members came or went; what is still needed begins again.
    Interrupted,
    /// Something could neither be read nor recovered, or not be written.
    Failed,
}

/// How far a run has come. Sectors of members; of the array for a RAID10 that is not recovering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncProgress {
    /// What the run does.
    pub action: SyncAction,
    /// Everything below is right, or was compared.
    pub done: Sector,
    /// Where the run ends.
    pub end: Sector,
    /// Sectors a second, over the last seconds; 0 while it stands still.
    pub speed: u64,
    /// It is a check or repair that may not go on now.
    pub held: bool,
}

/// Bounds of a run's speed, in sectors a second of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSpeed {
    /// While there are requests.
    pub min: u64,
    /// At all times; 0: as fast as can be.
    pub max: u64,
}

impl Default for SyncSpeed {
    /// md's least, and no other bound.
    fn default() -> Self {
        Self { min: 2000, max: 0 }
    }
}

/// How runs are to go.
#[derive(Clone, Copy, Debug)]
pub struct SyncConfig {
    /// Bounds that keep runs from taking the members' time from requests.
    pub speed: SyncSpeed,
    /// Begin nothing until told.
    pub frozen: bool,
    /// No piece crosses a multiple of so many array sectors; on parity levels whole stripes.
    pub span: Sectors,
}

/// What is to be done next.
struct NextRun {
    action: SyncAction,
    from: u64,
    end: u64,
}

/// Where a resync or check ends: member sectors, for RAID10 array sectors.
pub(crate) fn sync_end(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Raid10(raid10) => raid10.array_sectors().0,
        other => other.component().0,
    }
}

impl Supervisor {
    /// The next piece for the shard that owns its array sectors.
    pub fn poll_sync(&mut self) -> Option<SyncPiece> {
        self.take_critical_piece().or_else(|| self.scheduler.poll_piece())
    }

    /// Begins a check, repair or resync when nothing that is needed runs. False: the array has
    /// nothing to compare, is frozen, or something else runs or is to run first; or there is no redundancy for a
    /// resync.
    pub fn handle_sync(&mut self, now: Time, action: SyncAction) -> bool {
        let possible = self.geometry.level().has_redundancy() && action != SyncAction::Recovery;
        let is_busy =
            self.scheduler.is_running() || self.next_run().is_some() || self.is_changing_shape();
        // It would be over at once, and what is due forgotten.
        let is_void = action == SyncAction::Resync && !self.has_to_compare();
        if !possible || is_busy || is_void || self.scheduler.is_frozen() {
            return false;
        }
        self.scheduler.ask_for(action);
        self.act(now);
        true
    }

    /// Ends what was asked for, and lets what is needed go on.
    pub fn handle_idle(&mut self, now: Time) {
        self.scheduler.end_all(false);
        self.act(now);
    }

    /// Ends everything, and begins nothing more: the array is about to stop.
    pub fn handle_halt(&mut self, now: Time) {
        self.scheduler.end_all(true);
        self.act(now);
    }

    /// Holds everything where it is until [`Self::handle_resume`] or [`Self::handle_idle`]: a recovery or
    /// resync with its place on record, a check in memory with what it has found.
    pub fn handle_freeze(&mut self, now: Time) {
        self.scheduler.freeze();
        self.act(now);
    }

    /// What was frozen goes on where it was.
    pub fn handle_resume(&mut self, now: Time) {
        self.scheduler.resume(now);
        self.act(now);
    }

    /// Holds checks and repairs where they are, or lets them go on; recovery and resync are not held.
    pub fn hold_checks(&mut self, now: Time, held: bool) {
        self.scheduler.hold_checks(now, held);
        self.act(now);
    }

    /// Changes the bounds of speed.
    pub fn set_sync_speed(&mut self, now: Time, speed: SyncSpeed) {
        self.scheduler.set_speed(now, speed);
        self.act(now);
    }

    /// As [`SyncConfig::span`], of the geometry that the array has now.
    #[must_use]
    pub fn span(&self) -> Sectors {
        Sectors(self.scheduler.span())
    }

    /// The bounds of speed.
    #[must_use]
    pub fn sync_speed(&self) -> SyncSpeed {
        self.scheduler.speed()
    }

    /// What runs or is about to, if anything is. A recovery runs from when a spare can have a slot until the member that
    /// is replaced is given up.
    #[must_use]
    pub fn sync_progress(&self, now: Time) -> Option<SyncProgress> {
        let waiting = || {
            let next = self.next_run().filter(|_| !self.broken)?;
            let (done, end) = (Sector(next.from), Sector(next.end));
            let held = self.scheduler.holds(next.action);
            Some(SyncProgress { action: next.action, done, end, speed: 0, held })
        };
        let end = Sector(self.geometry.component().0);
        let action = SyncAction::Recovery;
        let change = SyncProgress { action, done: end, end, speed: 0, held: false };
        let changing = || self.is_slot_to_change().then_some(change);
        let done = if self.is_reshape_at_end() { end } else { Sector(0) };
        let settling = SyncProgress { action: SyncAction::Reshape, done, ..change };
        let reshaping = || self.is_reshape_to_settle().then_some(settling);
        let progress = self.scheduler.progress(now).or_else(waiting);
        progress.or_else(changing).or_else(reshaping)
    }

    /// Whether nothing is begun, though it may be needed.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.scheduler.is_frozen()
    }

    /// How the last run ended.
    #[must_use]
    pub fn last_sync(&self) -> Option<(SyncAction, SyncEnd)> {
        self.scheduler.last()
    }

    /// What the last run but a recovery found to differ: sectors as md counts them, and the first
    /// ranges.
    #[must_use]
    pub fn mismatches(&self) -> (u64, &[Mismatch]) {
        self.scheduler.mismatches()
    }

    /// How many ranges it found besides.
    #[must_use]
    pub fn mismatches_omitted(&self) -> u64 {
        self.scheduler.mismatches_omitted()
    }

    /// A shard has ended a piece.
    pub(crate) fn synced(&mut self, report: SyncReport) {
        if self.critical_synced(&report) {
            return;
        }
        let is_due = self.scheduler.reported(self.now, report);
        self.raise_done();
        if is_due && self.scheduler.checkpoint(self.now) {
            self.updates.request();
        }
    }

    /// Tells members and shards how far the run has come.
    fn raise_done(&mut self) {
        let Some(run) = self.scheduler.run() else { return };
        let done = Sector(run.done());
        match run.action() {
            SyncAction::Recovery => {
                for &id in run.targets() {
                    if self.members.recovered_to(id, done) {
                        self.orders.push_back(Order::Trusted(id, done));
                    }
                }
            }
            SyncAction::Resync if run.guide() == Some(Guide::Needed) => self.raise_synced(),
            SyncAction::Resync => self.raise_resynced(done),
            SyncAction::Reshape => self.raise_moved(done.0),
            _ => {}
        }
    }

    fn raise_resynced(&mut self, done: Sector) {
        if !self.has_to_compare() || !self.scheduler.resync_reached(done) {
            return;
        }
        self.orders.push_back(Order::InSync(done));
        if !self.is_degraded()
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.resynced_to(done.0);
        }
    }

    /// Gives empty slots to spares, begins a run, sends windows, ends it.
    pub(crate) fn advance_sync(&mut self) {
        if self.scheduler.is_over() {
            self.end_run();
        }
        if self.broken || self.stopping {
            return self.scheduler.interrupt();
        }
        let is_held = self.scheduler.is_frozen() || self.shape_change.is_some();
        if !self.scheduler.is_running() && !is_held {
            if self.reshape.is_none() {
                self.fill_slots();
                self.replace_members();
            }
            // What is on record comes first.
            if !self.updates.is_requested() && self.updates.is_idle() {
                self.begin_run();
            }
        }
        for _ in 0..WINDOWS_AT_ONCE {
            if !self.may_begin_window() {
                break;
            }
            self.begin_window();
        }
        if self.may_begin_window() {
            self.scheduler.go_on_soon(self.now);
        }
        if self.scheduler.is_over() {
            self.end_run();
        }
    }

    fn may_begin_window(&self) -> bool {
        self.scheduler.may_begin(self.now) && self.is_frontier_recorded()
    }

    fn fill_slots(&mut self) {
        while let Some((spare, slot)) = self.next_to_fill() {
            self.give_slot(spare, slot);
        }
    }

    fn next_to_fill(&self) -> Option<(MemberId, Slot)> {
        self.members.next_to_fill(&self.geometry, self.leaves_parity)
    }

    /// Puts a spare into a slot, or beside the member that serves there.
    pub(crate) fn give_slot(&mut self, spare: MemberId, slot: Slot) {
        self.members.give_slot(spare, slot);
        self.orders.push_back(Order::Slotted(spare, slot));
        self.updates.request();
        self.scheduler.retry();
    }

    /// Gives replacements to members that are to go, and their places to replacements that are whole.
    fn replace_members(&mut self) {
        for id in self.members.ids() {
            let member = self.members.get(id);
            if member.is_whole_replacement() {
                let old = self.members.serving(member.slot());
                if let Some(old) = old.filter(|_| self.is_whole_on_record()) {
                    self.fail(old);
                    self.events.push_back(Event::Replaced(old, id));
                }
            } else if let Some(slot) =
                member.slot().filter(|_| member.is_in_sync() && member.is_to_go())
                && let Some(spare) = self.members.spare()
            {
                self.give_slot(spare, slot);
            }
        }
    }

    /// Whether a spare is about to get a slot, or a replacement that is whole its member's, once superblocks say so.
    fn is_slot_to_change(&self) -> bool {
        let spare = self.members.spare();
        let is_to_change = |id: MemberId| {
            let member = self.members.get(id);
            let waits = spare.is_some() && member.is_in_sync() && member.is_to_go();
            waits || member.is_whole_replacement()
        };
        !self.broken && (self.next_to_fill().is_some() || self.members.ids().any(is_to_change))
    }

    /// Superblocks say of each replacement that is whole that it is: nothing said of it waits, or is on its way.
    fn is_whole_on_record(&self) -> bool {
        !self.updates.is_requested() && self.updates.is_idle()
    }

    /// Members in slots that lack data. A replacement waits for a resync that is due: until then copies may differ, and
    /// another member would be the one that is read.
    fn recovering(&self) -> Vec<MemberId> {
        let replaces = self.resync_from().is_none() || !self.has_to_compare();
        let recovering = self.members.numbered().filter(|(_, m)| {
            m.is_incomplete() && (replaces || m.state() != DiskState::Replacement)
        });
        recovering.map(|(id, _)| id).collect()
    }

    /// Whether redundancy is left to be made right. Where it is not, the resync stays due until it is filled: what
    /// was lost with the last of it may not fit the rest.
    fn has_to_compare(&self) -> bool {
        let Geometry::Parity(parity) = &self.geometry else { return true };
        self.members.count_in_sync() > usize::from(parity.data_disks())
    }

    fn next_run(&self) -> Option<NextRun> {
        let targets = self.recovering();
        let needed = !self.scheduler.is_halted();
        if let Some(reshape) = &self.reshape {
            let run = reshape.run(&self.geometry).filter(|_| needed)?;
            let (from, end) = (run.start, run.end);
            return Some(NextRun { action: SyncAction::Reshape, from, end });
        }
        let of_member = self.geometry.component().0;
        let of_array = sync_end(&self.geometry);
        let (action, from, end) = if needed && !targets.is_empty() {
            let of = |id: &MemberId| self.members.get(*id).recovered_to().0;
            (SyncAction::Recovery, targets.iter().map(of).min().unwrap_or(0), of_member)
        } else if let Some(from) = self.resync_from()
            && needed
            && self.has_to_compare()
        {
            // What a lockless bitmap names is all that is left to do, wherever that is.
            (SyncAction::Resync, if self.has_lockless() { 0 } else { from.0 }, of_array)
        } else if needed && self.is_lazy_resync_due() {
            (SyncAction::Resync, 0, of_array)
        } else {
            (self.scheduler.wanted()?, 0, of_array)
        };
        Some(NextRun { action, from: from.min(end), end })
    }

    fn begin_run(&mut self) {
        let Some(NextRun { action, from, end }) = self.next_run() else { return };
        let targets = self.recovering();
        let guide = self.guide_of(action, &targets);
        let is_lazy = guide == Some(Guide::Needed) && self.resync_from().is_none();
        let targets = if action == SyncAction::Recovery { targets } else { Vec::new() };
        let plan = RunPlan { action, from, end, targets, guide, is_lazy };
        self.scheduler.begin(self.now, plan);
        self.events.push_back(Event::SyncBegan(action));
    }

    fn begin_window(&mut self) {
        self.skip_clean();
        let Some(run) = self.scheduler.run() else { return };
        let (start, end) = (run.next(), run.end());
        if start == end {
            return;
        }
        if let Some(reshape) = &self.reshape {
            let stop = reshape.stop(&self.geometry, start, self.scheduler.gives_way(self.now));
            if start == stop {
                return self.scheduler.interrupt();
            }
            let sectors = reshape.sectors(&self.geometry, start..stop);
            let piece = (sectors.start, sectors.end - sectors.start);
            let held = reshape.held(sectors);
            self.scheduler.begin_window(self.now, stop, &[piece], Some(held));
            return;
        }
        let chunk = match &self.geometry {
            Geometry::Parity(parity) => parity.chunk().0,
            Geometry::Raid10(raid10) => raid10.chunk().0,
            _ => 8,
        };
        let height = WINDOW_SECTORS.next_multiple_of(chunk);
        let stop = self.dirty_until(start, (start - start % chunk + height).min(end));
        let pieces = self.pieces(run, start, stop);
        if run.action() == SyncAction::Resync
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.begin_sync(start, stop);
        }
        if !self.scheduler.begin_window(self.now, stop, &pieces, None) {
            self.raise_done();
        }
    }

    /// The array ranges of a window, cut at spans: start and length.
    fn pieces(&self, run: &SyncRun, start: u64, stop: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        match &self.geometry {
            Geometry::Parity(parity) => {
                let at = |sector: u64| {
                    let stripe = StripeNo(sector.div_ceil(parity.chunk().0));
                    stripe.0 * parity.stripe_data().0
                };
                // The window's first stripe may have been done in part: then again.
                let first = at(start - start % parity.chunk().0);
                ranges.push((first, at(stop) - first));
            }
            Geometry::Raid10(raid10) if run.action() == SyncAction::Recovery => {
                let chunk = raid10.chunk().0;
                for &id in run.targets() {
                    let Some(slot) = self.members.get(id).slot() else { continue };
                    let mut at = start;
                    while at < stop {
                        let len = (chunk - at % chunk).min(stop - at);
                        if let Content::Data(sector) = raid10.content(slot, Sector(at)) {
                            ranges.push((sector.0, len));
                        }
                        at += len;
                    }
                }
                ranges.sort_unstable();
                ranges.dedup();
            }
            _ => ranges.push((start, stop - start)),
        }
        let span = self.scheduler.span();
        let mut pieces = Vec::new();
        for (start, len) in ranges {
            let (mut at, end) = (start, start + len);
            while at < end {
                let next = (at - at % span).saturating_add(span).min(end);
                if run.guide().is_none_or(|guide| self.is_dirty(guide, at, next)) {
                    pieces.push((at, next - at));
                }
                at = next;
            }
        }
        pieces
    }

    fn end_run(&mut self) {
        let Some(run) = self.scheduler.run() else { return };
        let (action, guide) = (run.action(), run.guide());
        if guide == Some(Guide::Needed) {
            self.raise_synced();
        }
        let is_lazy = guide == Some(Guide::Needed) && self.resync_from().is_none();
        if action == SyncAction::Resync
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.end_sync(self.now);
        }
        // What went on while the last redundancy was lost compared nothing.
        let is_void = action == SyncAction::Resync && !self.has_to_compare();
        let Some((run, end)) = self.scheduler.finish(is_void, is_lazy) else { return };
        self.events.push_back(Event::SyncEnded(action, end));
        match (action, end) {
            (SyncAction::Recovery, SyncEnd::Done) => {
                for &id in run.targets() {
                    if self.members.recovered(id) {
                        self.orders.push_back(Order::Trusted(id, FULLY_TRUSTED));
                    }
                }
            }
            (SyncAction::Resync, SyncEnd::Done) if !is_lazy => {
                self.scheduler.resync_done();
                self.orders.push_back(Order::InSync(FULLY_TRUSTED));
            }
            (SyncAction::Reshape, SyncEnd::Done) => return self.all_moved(),
            (SyncAction::Check | SyncAction::Repair, _) => return,
            _ => {}
        }
        // What is lazily resynced only the bitmap records: superblocks stay as they are.
        if is_lazy {
            return;
        }
        self.updates.request();
        if self.resync_from().is_none()
            && !self.is_degraded()
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.resynced();
        }
    }
}
