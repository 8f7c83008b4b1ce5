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

use crate::{
    members::FULLY_TRUSTED,
    messages::Order,
    supervisor::{Event, MemberState, Supervisor},
    sync::{Mismatch, PieceId, SyncAction, SyncPiece, SyncReport},
    types::{MemberId, Time},
    write_intent_bitmap::Guide,
};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::{Content, Geometry, Sector, Sectors, Slot, StripeNo};

/// Height of a window: 1 MiB, or a chunk if that is more.
const WINDOW_SECTORS: u64 = 2048;
/// Windows in flight while no request comes.
const WINDOWS_MAX: usize = 4;
/// Windows begun in one go: those without anything to do end at once.
const WINDOWS_AT_ONCE: usize = 1000;
/// Checkpoints are so many parts of the range apart, as md's, or so long.
const CHECKPOINTS: u64 = 16;
const CHECKPOINT_NS: u64 = 60_000_000_000;
/// Who was seen at work is taken to be at work so much longer, from when the next window may begin.
pub(crate) const BUSY_NS: u64 = 1_000_000_000;
/// Differences that are kept one by one: half a MiB of them, and 2 MiB of `detail`.
const MISMATCHES_MAX: usize = 16384;
/// The speed is that of the last so many marks, so far apart, as md's.
const MARKS: usize = 10;
const MARK_NS: u64 = 3_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

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
    /// What is done.
    pub action: SyncAction,
    /// How far.
    pub done: Sector,
    /// To where.
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
    /// Bounds of speed.
    pub speed: SyncSpeed,
    /// Begin nothing until told.
    pub frozen: bool,
    /// No piece crosses a multiple of so many array sectors; on parity levels whole stripes.
    pub span: Sectors,
}

#[derive(Debug)]
struct Window {
    start: u64,
    end: u64,
    /// The number of its first piece, and how many it has.
    pieces: (u32, u32),
    left: u32,
    ok: bool,
}

#[derive(Debug)]
struct SyncRun {
    action: SyncAction,
    targets: Vec<MemberId>,
    /// Only what the bitmap names.
    by_bitmap: Option<Guide>,
    next: u64,
    end: u64,
    windows: VecDeque<Window>,
    ending: Option<SyncEnd>,
    checkpoint: (u64, Time),
    /// Sectors of windows that had something to do and have ended: what speed is counted by.
    worked: u64,
    marks: VecDeque<(Time, u64)>,
}

impl SyncRun {
    fn done(&self) -> u64 {
        self.windows.front().map_or(self.next, |window| window.start)
    }

    fn piece_ended(&mut self, id: PieceId, ok: bool) {
        let is_its = |window: &&mut Window| id.0.wrapping_sub(window.pieces.0) < window.pieces.1;
        if let Some(window) = self.windows.iter_mut().find(is_its) {
            window.left -= 1;
            window.ok &= ok;
            self.pop_ended();
        }
    }

    /// Windows at the front that have ended well are done.
    fn pop_ended(&mut self) {
        while let Some(window) = self.windows.front().filter(|window| window.left == 0 && window.ok)
        {
            self.worked += if window.pieces.1 == 0 { 0 } else { window.end - window.start };
            self.windows.pop_front();
        }
    }

    fn is_over(&self) -> bool {
        let goes_on = self.ending.is_none() && self.next < self.end;
        !goes_on && self.windows.iter().all(|window| window.left == 0)
    }

    fn speed(&self, now: Time) -> u64 {
        let Some(&(since, from)) = self.marks.front() else { return 0 };
        let ns = u128::from(now.0.saturating_sub(since.0)).max(1);
        (u128::from(self.worked - from) * u128::from(SECOND_NS) / ns) as u64
    }
}

/// What is to be done next.
struct NextRun {
    action: SyncAction,
    from: u64,
    end: u64,
}

/// What the supervisor knows of synchronisation.
#[derive(Debug)]
pub(crate) struct SyncScheduler {
    run: Option<SyncRun>,
    /// Nothing is begun.
    frozen: bool,
    /// No check or repair goes on.
    checks_held: bool,
    wanted: Option<SyncAction>,
    /// A recovery or resync failed; another would too, until members come or go.
    halted: bool,
    speed: SyncSpeed,
    next_at: Time,
    busy_until: Time,
    pieces: VecDeque<SyncPiece>,
    next_piece: u32,
    mismatch_sectors: u64,
    mismatches: Vec<Mismatch>,
    /// Those that are not kept.
    mismatches_omitted: u64,
    last: Option<(SyncAction, SyncEnd)>,
    /// Pieces do not cross multiples of it.
    span: u64,
}

impl SyncScheduler {
    pub(crate) fn new(config: &SyncConfig) -> Self {
        Self {
            run: None,
            frozen: config.frozen,
            checks_held: false,
            wanted: None,
            halted: false,
            speed: config.speed,
            next_at: Time(0),
            busy_until: Time(0),
            pieces: VecDeque::new(),
            next_piece: 0,
            mismatch_sectors: 0,
            mismatches: Vec::new(),
            mismatches_omitted: 0,
            last: None,
            span: config.span.0,
        }
    }

    /// Members have come or gone: what is needed begins anew.
    pub(crate) fn members_changed(&mut self) {
        self.halted = false;
        self.interrupt();
    }

    fn interrupt(&mut self) {
        let Some(run) = &mut self.run else { return };
        run.ending.get_or_insert(SyncEnd::Interrupted);
        for piece in mem::take(&mut self.pieces) {
            run.piece_ended(piece.id, false);
        }
    }

    /// When the next window may begin, if that is to be waited for.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let run = self.run.as_ref()?;
        let waits = run.ending.is_none() && run.next < run.end && self.next_at > now;
        waits.then_some(self.next_at)
    }

    /// There are requests.
    pub(crate) fn requests_seen(&mut self, now: Time) {
        self.busy_until = self.next_at.max(now).after(BUSY_NS);
    }

    /// Takes in a report. True if a checkpoint is due.
    fn reported(&mut self, now: Time, report: SyncReport) -> bool {
        if report.requests > 0 {
            self.requests_seen(now);
        }
        self.mismatch_sectors += report.mismatch_sectors;
        let room = MISMATCHES_MAX - self.mismatches.len();
        self.mismatches_omitted += report.mismatches.len().saturating_sub(room) as u64;
        self.mismatches.extend(report.mismatches.into_iter().take(room));
        let Some(run) = &mut self.run else { return false };
        if !report.ok {
            run.ending.get_or_insert(SyncEnd::Failed);
        }
        run.piece_ended(report.id, report.ok);
        let done = run.done();
        if run.marks.back().is_none_or(|mark| mark.0.after(MARK_NS) <= now) {
            run.marks.push_back((now, run.worked));
            if run.marks.len() > MARKS {
                run.marks.pop_front();
            }
        }
        let (from, at) = run.checkpoint;
        done - from >= (run.end / CHECKPOINTS).max(1)
            || (done > from && at.after(CHECKPOINT_NS) <= now)
    }

    fn holds(&self, action: SyncAction) -> bool {
        self.checks_held && matches!(action, SyncAction::Check | SyncAction::Repair)
    }

    /// The run goes on: the time that it stood still, or had other bounds, says nothing of its speed.
    fn go_on(&mut self, now: Time) {
        if let Some(run) = &mut self.run {
            run.marks = VecDeque::from([(now, run.worked)]);
        }
    }

    fn may_begin(&self, now: Time) -> bool {
        let Some(run) = &self.run else { return false };
        let at_once = if self.busy_until > now { 1 } else { WINDOWS_MAX };
        let goes_on = run.ending.is_none() && run.next < run.end;
        let held = self.frozen || self.holds(run.action);
        goes_on && run.windows.len() < at_once && self.next_at <= now && !held
    }

    fn pace(&mut self, now: Time, sectors: u64) {
        let SyncSpeed { min, max } = self.speed;
        let rate = match (self.busy_until > now, max) {
            (false, max) => max,
            (true, 0) => min.max(1),
            (true, max) => min.clamp(1, max),
        };
        if let Some(ns) = (sectors * SECOND_NS).checked_div(rate) {
            self.next_at = self.next_at.max(now).after(ns);
        }
    }
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
        self.scheduler.pieces.pop_front()
    }

    /// Begins a check, repair or resync when nothing that is needed runs. False: the array has
    /// nothing to compare, is frozen, or something else runs or is to run first; or there is no redundancy for a
    /// resync.
    pub fn handle_sync(&mut self, now: Time, action: SyncAction) -> bool {
        let possible = self.geometry.level().has_redundancy() && action != SyncAction::Recovery;
        let is_busy = self.scheduler.run.is_some() || self.next_run().is_some();
        // It would be over at once, and what is due forgotten.
        let is_void = action == SyncAction::Resync && !self.has_to_compare();
        if !possible || is_busy || is_void || self.scheduler.frozen {
            return false;
        }
        self.scheduler.wanted = Some(action);
        self.act(now);
        true
    }

    /// Ends what was asked for, and lets what is needed go on.
    pub fn handle_idle(&mut self, now: Time) {
        self.scheduler.frozen = false;
        self.halt(now);
    }

    /// Ends everything, and begins nothing more: the array is about to stop.
    pub fn handle_halt(&mut self, now: Time) {
        self.scheduler.frozen = true;
        self.halt(now);
    }

    fn halt(&mut self, now: Time) {
        self.scheduler.wanted = None;
        self.scheduler.halted = false;
        self.scheduler.interrupt();
        self.act(now);
    }

    /// Holds everything where it is until [`Self::handle_resume`] or [`Self::handle_idle`]: a recovery or
    /// resync with its place on record, a check in memory with what it has found.
    pub fn handle_freeze(&mut self, now: Time) {
        self.scheduler.frozen = true;
        let needed = |run: &SyncRun| {
            run.action == SyncAction::Recovery
                || (run.action == SyncAction::Resync && self.resync_from.is_some())
        };
        if self.scheduler.run.as_ref().is_some_and(needed) {
            self.scheduler.interrupt();
        }
        self.act(now);
    }

    /// What was frozen goes on where it was.
    pub fn handle_resume(&mut self, now: Time) {
        if mem::take(&mut self.scheduler.frozen) {
            self.scheduler.go_on(now);
        }
        self.scheduler.halted = false;
        self.act(now);
    }

    /// Holds checks and repairs where they are, or lets them go on; recovery and resync are not held.
    pub fn hold_checks(&mut self, now: Time, held: bool) {
        if mem::replace(&mut self.scheduler.checks_held, held) && !held {
            self.scheduler.go_on(now);
        }
        self.act(now);
    }

    /// Changes the bounds of speed.
    pub fn set_sync_speed(&mut self, now: Time, speed: SyncSpeed) {
        self.scheduler.speed = speed;
        self.scheduler.next_at = now;
        self.scheduler.go_on(now);
        self.act(now);
    }

    /// The bounds of speed.
    #[must_use]
    pub fn sync_speed(&self) -> SyncSpeed {
        self.scheduler.speed
    }

    /// What runs or is about to, if anything is.
    #[must_use]
    pub fn sync_progress(&self, now: Time) -> Option<SyncProgress> {
        let Some(run) = &self.scheduler.run else {
            let next = self.next_run().filter(|_| !self.broken)?;
            let (done, end) = (Sector(next.from), Sector(next.end));
            let held = self.scheduler.holds(next.action);
            return Some(SyncProgress { action: next.action, done, end, speed: 0, held });
        };
        let held = self.scheduler.holds(run.action);
        let stands = held || self.scheduler.frozen;
        Some(SyncProgress {
            action: run.action,
            done: Sector(run.done()),
            end: Sector(run.end),
            speed: if stands { 0 } else { run.speed(now) },
            held,
        })
    }

    /// Whether nothing is begun, though it may be needed.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.scheduler.frozen
    }

    /// How the last run ended.
    #[must_use]
    pub fn last_sync(&self) -> Option<(SyncAction, SyncEnd)> {
        self.scheduler.last
    }

    /// What the last run but a recovery found to differ: sectors as md counts them, and the first
    /// ranges.
    #[must_use]
    pub fn mismatches(&self) -> (u64, &[Mismatch]) {
        (self.scheduler.mismatch_sectors, &self.scheduler.mismatches)
    }

    /// How many ranges it found besides.
    #[must_use]
    pub fn mismatches_omitted(&self) -> u64 {
        self.scheduler.mismatches_omitted
    }

    /// A shard has ended a piece.
    pub(crate) fn synced(&mut self, report: SyncReport) {
        let is_due = self.scheduler.reported(self.now, report);
        self.raise_done();
        if is_due && let Some(run) = &mut self.scheduler.run {
            run.checkpoint = (run.done(), self.now);
            if matches!(run.action, SyncAction::Recovery | SyncAction::Resync) {
                self.updates.request();
            }
        }
    }

    /// Tells members and shards how far the run has come.
    fn raise_done(&mut self) {
        let Some(run) = &self.scheduler.run else { return };
        let done = Sector(run.done());
        match run.action {
            SyncAction::Recovery => {
                for &id in &run.targets {
                    if self.members.recovered_to(id, done) {
                        self.orders.push_back(Order::Trusted(id, done));
                    }
                }
            }
            SyncAction::Resync if run.by_bitmap == Some(Guide::Needed) => self.raise_synced(),
            SyncAction::Resync
                if self.resync_from.is_some_and(|from| from < done) && self.has_to_compare() =>
            {
                self.resync_from = Some(done);
                self.orders.push_back(Order::InSync(done));
                if !self.is_degraded()
                    && let Some(bitmap) = &mut self.bitmap
                {
                    bitmap.resynced_to(done.0);
                }
            }
            _ => {}
        }
    }

    /// Gives empty slots to spares, begins a run, sends windows, ends it.
    pub(crate) fn mend(&mut self) {
        if self.scheduler.run.as_ref().is_some_and(SyncRun::is_over) {
            self.end_run();
        }
        if self.broken || self.stopping {
            return self.scheduler.interrupt();
        }
        if self.scheduler.run.is_none() && !self.scheduler.frozen {
            self.fill_slots();
            self.replace_members();
            // What is on record comes first.
            if !self.updates.is_requested() && self.updates.is_idle() {
                self.begin_run();
            }
        }
        for _ in 0..WINDOWS_AT_ONCE {
            if !self.scheduler.may_begin(self.now) {
                break;
            }
            self.begin_window();
        }
        if self.scheduler.may_begin(self.now) {
            // The rest of a long way over clean ground.
            self.scheduler.next_at = self.now.after(1);
        }
        if self.scheduler.run.as_ref().is_some_and(SyncRun::is_over) {
            self.end_run();
        }
    }

    fn fill_slots(&mut self) {
        while let Some(slot) = self.members.vacancy()
            && let Some(spare) = self.members.spare()
        {
            self.give_slot(spare, slot);
        }
    }

    /// Puts a spare into a slot, or beside the member that serves there.
    pub(crate) fn give_slot(&mut self, spare: MemberId, slot: Slot) {
        self.members.give_slot(spare, slot);
        self.orders.push_back(Order::Slotted(spare, slot));
        self.updates.request();
        self.scheduler.halted = false;
    }

    /// Gives replacements to members that are to go, and their places to replacements that are whole.
    fn replace_members(&mut self) {
        for id in self.members.ids() {
            let member = self.members.get(id);
            if member.is_whole_replacement() {
                let old = self.members.serving(member.slot());
                if let Some(old) = old.filter(|_| self.is_whole_on_record()) {
                    self.fail(old);
                    self.happened.push_back(Event::Replaced(old, id));
                }
            } else if let Some(slot) =
                member.slot().filter(|_| member.is_in_sync() && member.is_to_go())
                && let Some(spare) = self.members.spare()
            {
                self.give_slot(spare, slot);
            }
        }
    }

    /// Superblocks say of each replacement that is whole that it is: nothing said of it waits, or is on its way.
    fn is_whole_on_record(&self) -> bool {
        !self.updates.is_requested() && self.updates.is_idle()
    }

    /// Members in slots that lack data. A replacement waits for a resync that is due: until then copies may differ, and
    /// another member would be the one that is read.
    fn recovering(&self) -> Vec<MemberId> {
        let replaces = self.resync_from.is_none() || !self.has_to_compare();
        let recovering = self.members.numbered().filter(|(_, m)| {
            m.is_incomplete() && (replaces || m.state() != MemberState::Replacement)
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
        let needed = !self.scheduler.halted;
        let of_member = self.geometry.component().0;
        let of_array = sync_end(&self.geometry);
        let (action, from, end) = if needed && !targets.is_empty() {
            let of = |id: &MemberId| self.members.get(*id).recovered_to().0;
            (SyncAction::Recovery, targets.iter().map(of).min().unwrap_or(0), of_member)
        } else if let Some(from) = self.resync_from
            && needed
            && self.has_to_compare()
        {
            // What a lockless bitmap names is all that is left to do, wherever that is.
            (SyncAction::Resync, if self.has_lockless() { 0 } else { from.0 }, of_array)
        } else if needed && self.is_lazy_resync_due() {
            (SyncAction::Resync, 0, of_array)
        } else {
            (self.scheduler.wanted?, 0, of_array)
        };
        Some(NextRun { action, from: from.min(end), end })
    }

    fn begin_run(&mut self) {
        let Some(NextRun { action, from, end }) = self.next_run() else { return };
        let targets = self.recovering();
        let by_bitmap = self.guide_of(action, &targets);
        let is_lazy = by_bitmap == Some(Guide::Needed) && self.resync_from.is_none();
        if action != SyncAction::Recovery && self.scheduler.wanted == Some(action) && !is_lazy {
            self.scheduler.wanted = None;
        }
        // What is resynced lazily is no news to whoever had a check run.
        if action != SyncAction::Recovery && !is_lazy {
            (self.scheduler.mismatch_sectors, self.scheduler.mismatches) = (0, Vec::new());
            self.scheduler.mismatches_omitted = 0;
        }
        self.scheduler.run = Some(SyncRun {
            action,
            targets: if action == SyncAction::Recovery { targets } else { Vec::new() },
            by_bitmap,
            next: from,
            end,
            windows: VecDeque::new(),
            ending: None,
            checkpoint: (from, self.now),
            worked: 0,
            marks: VecDeque::from([(self.now, 0)]),
        });
        self.scheduler.next_at = self.now;
        self.happened.push_back(Event::SyncBegan(action));
    }

    fn begin_window(&mut self) {
        self.skip_clean();
        let Some(run) = &self.scheduler.run else { return };
        let (start, end) = (run.next, run.end);
        if start == end {
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
        let scheduler = &mut self.scheduler;
        let Some(run) = &mut scheduler.run else { return };
        if run.action == SyncAction::Resync
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.begin_sync(start, stop);
        }
        let (first, left) = (scheduler.next_piece, pieces.len() as u32);
        scheduler.next_piece = first.wrapping_add(left);
        run.next = stop;
        run.windows.push_back(Window { start, end: stop, left, ok: true, pieces: (first, left) });
        let has_work = left > 0;
        for (id, (from, len)) in (0..left).zip(pieces) {
            scheduler.pieces.push_back(SyncPiece {
                id: PieceId(first.wrapping_add(id)),
                action: run.action,
                start: Sector(from),
                len: Sectors(len),
                within: start..stop,
            });
        }
        if has_work {
            scheduler.pace(self.now, stop - start);
        } else {
            run.pop_ended();
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
            Geometry::Raid10(raid10) if run.action == SyncAction::Recovery => {
                let chunk = raid10.chunk().0;
                for &id in &run.targets {
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
        let mut pieces = Vec::new();
        for (start, len) in ranges {
            let (mut at, end) = (start, start + len);
            while at < end {
                let next =
                    (at - at % self.scheduler.span).saturating_add(self.scheduler.span).min(end);
                if run.by_bitmap.is_none_or(|guide| self.is_dirty(guide, at, next)) {
                    pieces.push((at, next - at));
                }
                at = next;
            }
        }
        pieces
    }

    fn end_run(&mut self) {
        let is_lockless = |run: &SyncRun| run.by_bitmap == Some(Guide::Needed);
        if self.scheduler.run.as_ref().is_some_and(is_lockless) {
            self.raise_synced();
        }
        let Some(run) = self.scheduler.run.take() else { return };
        let is_lazy = run.by_bitmap == Some(Guide::Needed) && self.resync_from.is_none();
        if run.action == SyncAction::Resync
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.end_sync(self.now);
        }
        // What went on while the last redundancy was lost compared nothing.
        let is_void = run.action == SyncAction::Resync && !self.has_to_compare();
        let is_done = run.done() >= run.end && !is_void;
        let end = match run.ending {
            _ if is_done => SyncEnd::Done,
            Some(SyncEnd::Failed) => SyncEnd::Failed,
            _ => SyncEnd::Interrupted,
        };
        if !is_lazy || end == SyncEnd::Failed {
            self.scheduler.last = Some((run.action, end));
        }
        self.happened.push_back(Event::SyncEnded(run.action, end));
        match (run.action, end) {
            (SyncAction::Recovery, SyncEnd::Done) => {
                for id in run.targets {
                    if self.members.recovered(id) {
                        self.orders.push_back(Order::Trusted(id, FULLY_TRUSTED));
                    }
                }
            }
            (SyncAction::Resync, SyncEnd::Done) if !is_lazy => {
                self.resync_from = None;
                self.orders.push_back(Order::InSync(FULLY_TRUSTED));
            }
            (SyncAction::Check | SyncAction::Repair, _) => return,
            (_, SyncEnd::Failed) => self.scheduler.halted = true,
            _ => {}
        }
        // What is lazily resynced only the bitmap records: superblocks stay as they are.
        if is_lazy {
            return;
        }
        self.updates.request();
        if self.resync_from.is_none()
            && !self.is_degraded()
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.resynced();
        }
    }
}
