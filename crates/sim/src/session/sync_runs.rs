//! Checks and repairs: begun, held and ended by the operator at moments of the dice's choice, and the
//! last one, which proves that redundancy is whole.

use super::{Event, Phase, Session};
use crate::plan::Plan;
use crate::raw;
use lapstrake_engine::{Event as Happened, SyncAction, SyncEnd};
use lapstrake_metadata::bitmap::ChunkState;
use std::collections::VecDeque;

/// What is to run at the end of a session that is to converge. A forced start may have left rows that nothing
/// knows of.
pub(super) fn proof(plan: &Plan, was_forced: bool) -> VecDeque<SyncAction> {
    let resync = was_forced.then_some(SyncAction::Resync);
    resync.into_iter().chain(plan.converges.then_some(SyncAction::Check)).collect()
}

impl Session<'_> {
    pub(super) fn plan_sync_runs(&mut self) {
        if self.plan.sync_runs == 0 {
            return;
        }
        for _ in 0..self.dice.below(self.plan.sync_runs + 1) {
            let within = self.dice.pick(&[1_000_000, 100_000_000, 3_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::SyncCommand);
        }
    }

    /// The operator has a check or repair begun, held or ended.
    pub(super) fn direct_sync_runs(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        let word = self.dice.below(8);
        let now = self.now;
        self.say(|| format!("sync command: {word}"));
        let was_forced = self.was_forced;
        let supervisor = self.supervisor_mut();
        if word <= 3 {
            // Frozen it would be refused.
            supervisor.handle_resume(now);
        }
        match word {
            0..3 => _ = supervisor.handle_sync(now, SyncAction::Check),
            // Of rows that are in doubt it may make either; the operator has been told.
            3 if was_forced => {}
            3 => _ = supervisor.handle_sync(now, SyncAction::Repair),
            4 => supervisor.handle_freeze(now),
            5 => supervisor.handle_resume(now),
            6 => supervisor.hold_checks(now, true),
            _ => {
                supervisor.hold_checks(now, false);
                supervisor.handle_idle(now);
            }
        }
    }

    pub(super) fn heard(&mut self, event: Happened) -> Result<(), String> {
        self.say(|| format!("{event:?}"));
        match event {
            Happened::BitmapChanged => self.bitmap_changed(),
            Happened::ReshapeBegan => {
                let placed = self.in_sync();
                self.placed.extend(placed);
            }
            Happened::Resized(usable) => self.resized(usable),
            Happened::SyncEnded(action @ (SyncAction::Check | SyncAction::Repair), end) => {
                self.check_ended(action, end)?;
            }
            Happened::SyncEnded(SyncAction::Resync, SyncEnd::Done) => {
                // One that was asked for goes everywhere.
                self.was_forced &= !self.proof.iter().eq(&[SyncAction::Check]);
            }
            _ => {}
        }
        Ok(())
    }

    /// While redundancy is whole nothing differs, but for copies of what was discarded.
    fn check_ended(&self, action: SyncAction, end: SyncEnd) -> Result<(), String> {
        if self.plan.converges && end != SyncEnd::Done {
            return Err(format!("the last {action:?} ended as {end:?}"));
        }
        if self.is_frail() {
            return Ok(());
        }
        let (sectors, found) = self.supervisor().mismatches();
        let is_parity = raw::keeps_parity(&self.geometry);
        let is_real = |start: u64, len: u64| {
            is_parity || !(start..start + len).any(|sector| self.oracle.may_be_anything(sector))
        };
        match found.iter().find(|m| is_real(m.start.0, m.len.0)) {
            Some(one) => Err(format!("a check counts {sectors}, first {one:?}")),
            None if is_parity && sectors > 0 => Err(format!("a check counts {sectors}")),
            None => Ok(()),
        }
    }

    /// Whether chunks of a lockless bitmap will yet be resynced, or be clean: both take a while.
    fn has_chunks_to_settle(&self) -> bool {
        let states = self.supervisor().bitmap_states();
        let is_set = |(state, &count): (&ChunkState, &u64)| state.is_set() && count > 0;
        let is_set = states.is_some_and(|counts| ChunkState::ALL.iter().zip(&counts).any(is_set));
        is_set && !self.supervisor().is_degraded()
    }

    /// Whether members are recovered, redundancy is whole, and a check has said so.
    pub(super) fn is_proven(&mut self) -> bool {
        let is_syncing =
            self.supervisor().sync_progress(self.now).is_some() || self.has_chunks_to_settle();
        if self.commands_left > 0 || is_syncing || !self.supervisor().is_recorded() {
            return false;
        }
        let has_redundancy = self.geometry.level().has_redundancy() && !self.plan.lacks_parity;
        let Some(&action) = self.proof.front().filter(|_| has_redundancy) else { return true };
        // Refused while another that was asked for waits: whatever ends that asks again.
        let now = self.now;
        if self.supervisor_mut().handle_sync(now, action) {
            self.proof.pop_front();
            // What it wants is carried out with the next event.
            self.at(0, Event::Submit);
        }
        false
    }
}
