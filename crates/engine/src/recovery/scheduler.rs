//! The sync action that runs, when its next window may begin, and what runs have found.
//!
//! [`SyncScheduler`] owns that. It does not know members, the bitmap or the geometry: whoever begins a run says where it
//! goes, and whoever begins a window says which pieces it has.
//!
//! Invariants:
//! - one run is under way at a time, and it ends when no window of it is;
//! - windows follow each other: `done` <= start of the first one that has not ended well <= `next` <= `end`;
//! - a piece ends once;
//! - from where a resync is due only rises while one runs, except that all is due when what told where is lost.

use super::{SyncConfig, SyncEnd, SyncProgress, SyncSpeed};
use crate::{
    sync::{Mismatch, PieceId, SyncAction, SyncPiece, SyncReport},
    types::{MemberId, Time},
    write_intent_bitmap::Guide,
};
use alloc::{collections::VecDeque, vec::Vec};
use core::{mem, ops::Range};
use lapstrake_geometry::{Sector, Sectors};

/// Windows in flight while no request comes.
const WINDOWS_MAX: usize = 4;
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

/// Neighbouring sectors that a run goes over at one time.
#[derive(Debug)]
struct Window {
    start: u64,
    end: u64,
    /// The number of its first piece, and how many it has: reports name pieces only.
    pieces: (u32, u32),
    /// Pieces that have not ended. Until they have, nothing of the window counts as done.
    left: u32,
    /// No piece of it failed. If one did, the run has come no further than the window's start.
    ok: bool,
}

/// Where a run goes.
#[derive(Debug)]
pub(super) struct RunPlan {
    pub(super) action: SyncAction,
    pub(super) from: u64,
    pub(super) end: u64,
    /// Who is recovered. None if copies or parity are compared.
    pub(super) targets: Vec<MemberId>,
    /// Which chunks of the bitmap it goes over; all sectors if none.
    pub(super) guide: Option<Guide>,
    /// It resyncs what only a lockless bitmap names. What was found before it, and what was asked for, stay.
    pub(super) is_lazy: bool,
}

/// A run that is under way, or has just ended.
#[derive(Debug)]
pub(super) struct SyncRun {
    action: SyncAction,
    /// Who is recovered. Members that get a slot later have a run of their own.
    targets: Vec<MemberId>,
    /// Only what the bitmap names.
    by_bitmap: Option<Guide>,
    /// Where the next window begins.
    next: u64,
    end: u64,
    /// Those that have not ended, or not well, in order.
    windows: VecDeque<Window>,
    /// No window begins any more, and how the run ends then unless it has come to its end.
    ending: Option<SyncEnd>,
    /// What was done when superblocks were last asked to say so, and when.
    checkpoint: (u64, Time),
    /// Sectors of windows that had something to do and have ended: what speed is counted by.
    worked: u64,
    marks: VecDeque<(Time, u64)>,
}

impl SyncRun {
    pub(super) fn action(&self) -> SyncAction {
        self.action
    }

    pub(super) fn targets(&self) -> &[MemberId] {
        &self.targets
    }

    pub(super) fn guide(&self) -> Option<Guide> {
        self.by_bitmap
    }

    /// Where the next window begins.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Everything below is right.
    pub(super) fn done(&self) -> u64 {
        self.windows.front().map_or(self.next, |window| window.start)
    }

    fn piece_ended(&mut self, id: PieceId, ok: bool) {
        let is_its = |window: &&mut Window| id.0.wrapping_sub(window.pieces.0) < window.pieces.1;
        if let Some(window) = self.windows.iter_mut().find(is_its) {
            let left = window.left.checked_sub(1);
            window.left = left.expect("no more pieces of a window end than it has");
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

/// See the module's head.
#[derive(Debug)]
pub(crate) struct SyncScheduler {
    run: Option<SyncRun>,
    /// From where a resync is due, if one is: until it has been there, copies may differ and parity may not fit.
    resync_from: Option<Sector>,
    /// The operator has frozen it: nothing is begun, though it may be needed.
    frozen: bool,
    /// No check or repair goes on.
    checks_held: bool,
    /// What was asked for and has not begun.
    wanted: Option<SyncAction>,
    /// A recovery or resync failed; another would too, until members come or go.
    halted: bool,
    speed: SyncSpeed,
    /// When the next window may begin, which keeps runs below the bounds of speed.
    next_at: Time,
    /// Until when requests count as being served, which a run gives way to.
    busy_until: Time,
    /// Those that shards are to be sent.
    pieces: VecDeque<SyncPiece>,
    /// The number of the next piece, so that no report is taken for that of another.
    next_piece: u32,
    mismatch_sectors: u64,
    mismatches: Vec<Mismatch>,
    /// Those that are not kept.
    mismatches_omitted: u64,
    /// How the last run ended.
    last: Option<(SyncAction, SyncEnd)>,
    /// Pieces do not cross multiples of it, since another shard owns what lies beyond.
    span: u64,
}

impl SyncScheduler {
    pub(crate) fn new(config: &SyncConfig, resync_from: Option<Sector>) -> Self {
        Self {
            run: None,
            resync_from,
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

    /// Ends the run as soon as the pieces end that shards have been sent.
    pub(super) fn interrupt(&mut self) {
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

    /// Requests are being served, which a run gives way to for a while.
    pub(crate) fn requests_seen(&mut self, now: Time) {
        self.busy_until = self.next_at.max(now).after(BUSY_NS);
    }

    /// Whether requests have come of late.
    pub(super) fn gives_way(&self, now: Time) -> bool {
        self.busy_until > now
    }

    /// Takes in a report. True if a checkpoint is due.
    pub(super) fn reported(&mut self, now: Time, report: SyncReport) -> bool {
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

    /// Whether an action may not go on now.
    pub(super) fn holds(&self, action: SyncAction) -> bool {
        self.checks_held && matches!(action, SyncAction::Check | SyncAction::Repair)
    }

    /// The run goes on: the time that it stood still, or had other bounds, says nothing of its speed.
    fn go_on(&mut self, now: Time) {
        if let Some(run) = &mut self.run {
            run.marks = VecDeque::from([(now, run.worked)]);
        }
    }

    /// Whether a window may begin now.
    pub(super) fn may_begin(&self, now: Time) -> bool {
        let Some(run) = &self.run else { return false };
        let is_alone = self.gives_way(now) || run.action == SyncAction::Reshape;
        let at_once = if is_alone { 1 } else { WINDOWS_MAX };
        let goes_on = run.ending.is_none() && run.next < run.end;
        let held = self.frozen || self.holds(run.action);
        goes_on && run.windows.len() < at_once && self.next_at <= now && !held
    }

    pub(super) fn run(&self) -> Option<&SyncRun> {
        self.run.as_ref()
    }

    pub(super) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// No window of the run is under way, and none begins any more. [`Self::finish`] is due.
    pub(super) fn is_over(&self) -> bool {
        self.run.as_ref().is_some_and(SyncRun::is_over)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether nothing that is needed begins: a run of the kind has failed, and members are the same.
    pub(super) fn is_halted(&self) -> bool {
        self.halted
    }

    pub(super) fn wanted(&self) -> Option<SyncAction> {
        self.wanted
    }

    pub(super) fn speed(&self) -> SyncSpeed {
        self.speed
    }

    /// Spans are whole units of so many sectors from now on.
    pub(crate) fn fit_span(&mut self, unit: u64) {
        self.span = self.span.div_ceil(unit).saturating_mul(unit);
    }

    pub(super) fn span(&self) -> u64 {
        self.span
    }

    pub(super) fn last(&self) -> Option<(SyncAction, SyncEnd)> {
        self.last
    }

    pub(super) fn mismatches(&self) -> (u64, &[Mismatch]) {
        (self.mismatch_sectors, &self.mismatches)
    }

    pub(super) fn mismatches_omitted(&self) -> u64 {
        self.mismatches_omitted
    }

    pub(crate) fn resync_from(&self) -> Option<Sector> {
        self.resync_from
    }

    /// A resync is due everywhere: what told where it is not was lost.
    pub(crate) fn lose_resync_place(&mut self) {
        self.resync_from = Some(Sector(0));
    }

    /// The resync that runs has come so far. False: none is due, or it was known to be right there.
    pub(super) fn resync_reached(&mut self, done: Sector) -> bool {
        let is_resync = self.run.as_ref().is_some_and(|run| run.action == SyncAction::Resync);
        assert!(is_resync, "a resync comes further only while one runs");
        let is_news = self.resync_from.is_some_and(|from| from < done);
        if is_news {
            self.resync_from = Some(done);
        }
        is_news
    }

    /// A resync is due from there on, where the array has been none before.
    pub(crate) fn resync_due_from(&mut self, from: Sector) {
        assert!(self.run.is_none() && self.resync_from.is_none(), "redundancy is right so far");
        self.resync_from = Some(from);
    }

    /// No resync is due any more.
    pub(super) fn resync_done(&mut self) {
        self.resync_from = None;
    }

    /// The next piece for a shard.
    pub(super) fn poll_piece(&mut self) -> Option<SyncPiece> {
        self.pieces.pop_front()
    }

    /// How far the run has come.
    pub(super) fn progress(&self, now: Time) -> Option<SyncProgress> {
        let run = self.run.as_ref()?;
        let held = self.holds(run.action);
        let stands = held || self.frozen;
        Some(SyncProgress {
            action: run.action,
            done: Sector(run.done()),
            end: Sector(run.end),
            speed: if stands { 0 } else { run.speed(now) },
            held,
        })
    }

    /// Has an action begin when nothing that is needed runs.
    pub(super) fn ask_for(&mut self, action: SyncAction) {
        self.wanted = Some(action);
    }

    /// What failed may be tried again: members have slots that they had not.
    pub(super) fn retry(&mut self) {
        self.halted = false;
    }

    /// Ends the run and forgets what was asked for. `frozen`: nothing begins any more.
    pub(super) fn end_all(&mut self, frozen: bool) {
        self.frozen = frozen;
        self.wanted = None;
        self.halted = false;
        self.interrupt();
    }

    /// Begins nothing until [`Self::resume`]. A run whose place is on record ends: a recovery, or a resync that is due.
    pub(super) fn freeze(&mut self) {
        self.frozen = true;
        let is_on_record = |run: &SyncRun| {
            matches!(run.action, SyncAction::Recovery | SyncAction::Reshape)
                || (run.action == SyncAction::Resync && self.resync_from.is_some())
        };
        if self.run.as_ref().is_some_and(is_on_record) {
            self.interrupt();
        }
    }

    pub(super) fn resume(&mut self, now: Time) {
        if mem::take(&mut self.frozen) {
            self.go_on(now);
        }
        self.halted = false;
    }

    /// Holds checks and repairs where they are, or lets them go on.
    pub(super) fn hold_checks(&mut self, now: Time, held: bool) {
        if mem::replace(&mut self.checks_held, held) && !held {
            self.go_on(now);
        }
    }

    pub(super) fn set_speed(&mut self, now: Time, speed: SyncSpeed) {
        self.speed = speed;
        self.next_at = now;
        self.go_on(now);
    }

    /// Begins a run. What was asked for is forgotten, and what was found before, if the run is of that.
    pub(super) fn begin(&mut self, now: Time, plan: RunPlan) {
        assert!(self.run.is_none(), "one sync action runs at a time");
        assert!(plan.from <= plan.end, "a run does not begin behind its end");
        let RunPlan { action, from, end, targets, guide, is_lazy } = plan;
        if action != SyncAction::Recovery && self.wanted == Some(action) && !is_lazy {
            self.wanted = None;
        }
        // What is resynced lazily is no news to whoever had a check run.
        if action != SyncAction::Recovery && !is_lazy {
            (self.mismatch_sectors, self.mismatches) = (0, Vec::new());
            self.mismatches_omitted = 0;
        }
        self.run = Some(SyncRun {
            action,
            targets,
            by_bitmap: guide,
            next: from,
            end,
            windows: VecDeque::new(),
            ending: None,
            checkpoint: (from, now),
            worked: 0,
            marks: VecDeque::from([(now, 0)]),
        });
        self.next_at = now;
    }

    /// The next window begins there, as there is nothing to do before.
    pub(super) fn skip_to(&mut self, next: u64) {
        let Some(run) = &mut self.run else { return };
        assert!(run.next <= next && next <= run.end, "a run goes on up to its end");
        run.next = next;
    }

    /// Begins the next window, up to `stop`, with these pieces (array sectors: start and length). `within`: of a reshape, what
    /// the old geometry has of them. False: it has none, so that it has ended.
    pub(super) fn begin_window(
        &mut self,
        now: Time,
        stop: u64,
        pieces: &[(u64, u64)],
        within: Option<Range<u64>>,
    ) -> bool {
        let Some(run) = &mut self.run else { return false };
        let start = run.next;
        assert!(start < stop && stop <= run.end, "windows follow each other up to the run's end");
        let (first, left) = (self.next_piece, pieces.len() as u32);
        self.next_piece = first.wrapping_add(left);
        run.next = stop;
        run.windows.push_back(Window { start, end: stop, left, ok: true, pieces: (first, left) });
        for (id, &(from, len)) in (0..left).zip(pieces) {
            self.pieces.push_back(SyncPiece {
                id: PieceId(first.wrapping_add(id)),
                action: run.action,
                start: Sector(from),
                len: Sectors(len),
                within: within.clone().unwrap_or(start..stop),
            });
        }
        if left > 0 {
            self.pace(now, stop - start);
        } else {
            run.pop_ended();
        }
        left > 0
    }

    /// The rest of a long way over clean ground follows in a moment.
    pub(super) fn go_on_soon(&mut self, now: Time) {
        self.next_at = now.after(1);
    }

    /// Superblocks are about to say how far the run has come. False: those of its kind say nothing of it.
    pub(super) fn checkpoint(&mut self, now: Time) -> bool {
        let Some(run) = &mut self.run else { return false };
        run.checkpoint = (run.done(), now);
        matches!(run.action, SyncAction::Recovery | SyncAction::Resync)
    }

    /// Ends the run that is over, and says how. `is_void`: it has compared nothing, wherever it has come to.
    /// `is_lazy`: as in [`RunPlan`].
    pub(super) fn finish(&mut self, is_void: bool, is_lazy: bool) -> Option<(SyncRun, SyncEnd)> {
        let run = self.run.take()?;
        assert!(run.is_over(), "a run ends when no window of it is under way");
        let end = match run.ending {
            _ if run.done() >= run.end && !is_void => SyncEnd::Done,
            Some(SyncEnd::Failed) => SyncEnd::Failed,
            _ => SyncEnd::Interrupted,
        };
        if !is_lazy || end == SyncEnd::Failed {
            self.last = Some((run.action, end));
        }
        let is_needed = !matches!(run.action, SyncAction::Check | SyncAction::Repair);
        self.halted |= is_needed && end == SyncEnd::Failed;
        Some((run, end))
    }

    fn pace(&mut self, now: Time, sectors: u64) {
        let SyncSpeed { min, max } = self.speed;
        let rate = match (self.gives_way(now), max) {
            (false, max) => max,
            (true, 0) => min.max(1),
            (true, max) => min.clamp(1, max),
        };
        if let Some(ns) = (sectors * SECOND_NS).checked_div(rate) {
            self.next_at = self.next_at.max(now).after(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler() -> SyncScheduler {
        let speed = SyncSpeed { min: 2000, max: 0 };
        let config = SyncConfig { speed, frozen: false, span: Sectors(4096) };
        SyncScheduler::new(&config, Some(Sector(64)))
    }

    fn plan(action: SyncAction) -> RunPlan {
        let targets = Vec::new();
        RunPlan { action, from: 0, end: 6144, targets, guide: None, is_lazy: false }
    }

    fn running(action: SyncAction) -> SyncScheduler {
        let mut scheduler = scheduler();
        scheduler.begin(Time(0), plan(action));
        scheduler
    }

    fn report(piece: &SyncPiece, ok: bool) -> SyncReport {
        SyncReport { id: piece.id, ok, requests: 0, mismatch_sectors: 0, mismatches: Vec::new() }
    }

    /// Begins a window up to there of one piece.
    fn window(scheduler: &mut SyncScheduler, stop: u64) -> SyncPiece {
        let start = scheduler.run().expect("a run").next();
        assert!(scheduler.begin_window(Time(0), stop, &[(start, stop - start)], None));
        scheduler.poll_piece().expect("a piece")
    }

    fn done(scheduler: &SyncScheduler) -> u64 {
        scheduler.run().expect("a run").done()
    }

    #[test]
    fn what_is_done_ends_where_the_first_window_begins_that_has_not_ended() {
        let mut it = running(SyncAction::Check);
        let first = window(&mut it, 2048);
        let second = window(&mut it, 4096);
        it.reported(Time(1), report(&second, true));
        assert_eq!(done(&it), 0);
        it.reported(Time(2), report(&first, true));
        assert_eq!(done(&it), 4096);
        assert!(!it.is_over());
        let third = window(&mut it, 6144);
        it.reported(Time(3), report(&third, true));
        assert!(it.is_over());
        assert_eq!(it.finish(false, false).map(|end| end.1), Some(SyncEnd::Done));
        assert_eq!(it.last(), Some((SyncAction::Check, SyncEnd::Done)));
    }

    #[test]
    fn a_window_ends_with_the_last_of_its_pieces_and_one_without_any_at_once() {
        let mut it = running(SyncAction::Check);
        assert!(it.begin_window(Time(0), 2048, &[(0, 1024), (1024, 1024)], None));
        let pieces = [it.poll_piece(), it.poll_piece()].map(|piece| piece.expect("a piece"));
        assert_eq!(pieces.clone().map(|piece| piece.start), [Sector(0), Sector(1024)]);
        it.reported(Time(1), report(&pieces[1], true));
        assert_eq!(done(&it), 0);
        it.reported(Time(1), report(&pieces[0], true));
        assert_eq!(done(&it), 2048);
        assert!(!it.begin_window(Time(1), 4096, &[], None));
        assert_eq!(done(&it), 4096);
    }

    #[test]
    fn a_recovery_that_failed_begins_no_other_until_members_change() {
        let mut it = running(SyncAction::Recovery);
        let piece = window(&mut it, 2048);
        it.reported(Time(1), report(&piece, false));
        assert!(it.is_over(), "nothing begins behind what failed");
        assert_eq!(it.finish(false, false).map(|end| end.1), Some(SyncEnd::Failed));
        assert!(it.is_halted());
        it.members_changed();
        assert!(!it.is_halted());
    }

    #[test]
    fn what_shards_were_not_sent_ends_when_a_run_is_interrupted() {
        let mut it = running(SyncAction::Resync);
        let sent = window(&mut it, 2048);
        assert!(it.begin_window(Time(0), 4096, &[(2048, 2048)], None));
        it.end_all(false);
        assert!(it.poll_piece().is_none());
        assert!(!it.is_over(), "a shard works at one piece still");
        it.reported(Time(1), report(&sent, true));
        assert!(it.is_over());
        let (run, end) = it.finish(false, false).expect("a run");
        assert_eq!((run.done(), end), (2048, SyncEnd::Interrupted));
    }

    #[test]
    fn a_resync_that_compared_nothing_is_not_done() {
        let mut it = running(SyncAction::Resync);
        it.skip_to(6144);
        assert_eq!(it.finish(true, false).map(|end| end.1), Some(SyncEnd::Interrupted));
    }

    #[test]
    fn from_where_a_resync_is_due_only_rises_while_one_runs() {
        let mut it = running(SyncAction::Resync);
        assert!(!it.resync_reached(Sector(8)), "it was due from 64 on");
        assert!(it.resync_reached(Sector(128)) && !it.resync_reached(Sector(128)));
        assert_eq!(it.resync_from(), Some(Sector(128)));
        it.lose_resync_place();
        assert_eq!(it.resync_from(), Some(Sector(0)));
        it.resync_done();
        assert!(!it.resync_reached(Sector(512)));
        assert_eq!(it.resync_from(), None);
    }

    #[test]
    #[should_panic(expected = "only while one runs")]
    fn a_recovery_makes_no_resync_come_further() {
        running(SyncAction::Recovery).resync_reached(Sector(128));
    }

    #[test]
    fn while_frozen_a_check_waits_and_a_recovery_ends() {
        let mut check = running(SyncAction::Check);
        assert!(check.may_begin(Time(0)));
        check.freeze();
        assert!(!check.may_begin(Time(0)) && !check.is_over());
        check.resume(Time(1));
        assert!(check.may_begin(Time(1)));
        let mut recovery = running(SyncAction::Recovery);
        recovery.freeze();
        assert!(recovery.is_over());
    }

    #[test]
    fn checks_are_held_and_recoveries_are_not() {
        let mut check = running(SyncAction::Check);
        check.hold_checks(Time(0), true);
        assert!(!check.may_begin(Time(0)) && check.progress(Time(0)).is_some_and(|it| it.held));
        let mut recovery = running(SyncAction::Recovery);
        recovery.hold_checks(Time(0), true);
        assert!(recovery.may_begin(Time(0)));
    }

    #[test]
    fn a_run_gives_way_to_requests_one_window_at_a_time_and_at_its_least_speed() {
        let mut it = running(SyncAction::Check);
        window(&mut it, 2000);
        assert!(it.may_begin(Time(0)), "nobody asks for anything");
        it.requests_seen(Time(0));
        assert!(!it.may_begin(Time(0)), "a window is under way");
        let mut it = running(SyncAction::Check);
        it.requests_seen(Time(0));
        let piece = window(&mut it, 2000);
        it.reported(Time(1), report(&piece, true));
        assert_eq!(it.deadline(Time(1)), Some(Time(SECOND_NS)));
        assert!(!it.may_begin(Time(1)) && it.may_begin(Time(SECOND_NS)));
    }

    #[test]
    fn a_checkpoint_is_due_a_sixteenth_of_the_range_after_the_last() {
        let mut it = running(SyncAction::Recovery);
        let piece = window(&mut it, 383);
        assert!(!it.reported(Time(1), report(&piece, true)));
        let piece = window(&mut it, 384);
        assert!(it.reported(Time(1), report(&piece, true)));
        assert!(it.checkpoint(Time(1)));
        let piece = window(&mut it, 700);
        assert!(!it.reported(Time(2), report(&piece, true)));
    }

    #[test]
    fn what_was_asked_for_is_forgotten_when_it_begins_and_when_all_ends() {
        let mut it = scheduler();
        it.ask_for(SyncAction::Check);
        it.begin(Time(0), plan(SyncAction::Check));
        assert_eq!(it.wanted(), None);
        let mut it = scheduler();
        it.ask_for(SyncAction::Repair);
        it.begin(Time(0), RunPlan { is_lazy: true, ..plan(SyncAction::Resync) });
        assert_eq!(it.wanted(), Some(SyncAction::Repair));
        it.end_all(true);
        assert_eq!((it.wanted(), it.is_frozen()), (None, true));
    }

    #[test]
    #[should_panic(expected = "one sync action runs at a time")]
    fn a_second_run_does_not_begin_beside_the_first() {
        let mut it = running(SyncAction::Check);
        it.begin(Time(0), plan(SyncAction::Check));
    }

    #[test]
    #[should_panic(expected = "a run ends when no window of it is under way")]
    fn a_run_is_not_ended_below_its_windows() {
        let mut it = running(SyncAction::Check);
        window(&mut it, 2048);
        it.finish(false, false);
    }
}
