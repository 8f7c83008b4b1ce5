//! When the array is to count as active and when as clean, which is what md calls safe mode.
//!
//! A shard asks before its first write; some time after the last one the shards are asked, in one round, whether they
//! rest. What superblocks say at the time is not known here: [`crate::update`] owns that.
//!
//! Invariants:
//! - the array is to be clean only after every shard has said, within one round, that it rests, or when it is stopped;
//! - a write that asks while a round is under way makes it end without that;
//! - one round is under way at a time, and in it each shard answers once.

use crate::{messages::Order, types::Time};
use core::mem;

/// One time that all shards are asked whether they rest.
#[derive(Debug)]
struct Round {
    /// Shards that have not answered: what a shard that is not asked yet does may need "active" still.
    answers_left: u32,
    all_rest: bool,
    /// When the last write ended that any of them tells of.
    latest: Time,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct SafeMode {
    /// How long after the last write the array is marked clean; 0: only when it is stopped.
    delay_ns: u64,
    shards: u32,
    want_active: bool,
    /// A shard waits for [`Order::Active`].
    asked: bool,
    round: Option<Round>,
    /// When to ask shards whether they rest.
    safe_at: Option<Time>,
    is_stopping: bool,
}

impl SafeMode {
    pub(crate) fn new(delay_ns: u64, shards: u32) -> Self {
        Self {
            delay_ns,
            shards,
            want_active: false,
            asked: false,
            round: None,
            safe_at: None,
            is_stopping: false,
        }
    }

    /// A write waits for [`Order::Active`].
    pub(crate) fn need_active(&mut self) {
        if self.is_stopping {
            return;
        }
        self.want_active = true;
        self.asked = true;
        if let Some(round) = &mut self.round {
            round.all_rest = false;
        }
    }

    /// The array has got redundancy, and shards were let write without asking.
    pub(crate) fn become_active(&mut self) {
        self.want_active = true;
    }

    /// All shards are quiet for good.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.want_active = false;
        self.safe_at = None;
    }

    /// What superblocks are to say.
    pub(crate) fn wants_active(&self) -> bool {
        self.want_active
    }

    /// Whether an update is to turn what superblocks say. While shards are being asked it may turn back at once.
    pub(crate) fn wants_turn(&self, is_active_on_disk: bool) -> bool {
        self.want_active != is_active_on_disk && self.round.is_none()
    }

    /// The order that a shard waits for, once superblocks say "active".
    pub(crate) fn answer(&mut self) -> Option<Order> {
        mem::take(&mut self.asked).then_some(Order::Active)
    }

    /// Likewise on a level without redundancy, whose superblocks have no such state.
    pub(crate) fn answer_without_state(&mut self) -> Option<Order> {
        self.want_active = false;
        self.answer()
    }

    /// Superblocks say "active" on all members.
    pub(crate) fn active_recorded(&mut self, now: Time) {
        if self.safe_at.is_none() && self.delay_ns > 0 && !self.is_stopping {
            self.safe_at = Some(now.after(self.delay_ns));
        }
    }

    /// When shards are to be asked, if no round is under way.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.safe_at.filter(|_| self.round.is_none())
    }

    /// Begins a round when it is time: what shards are asked.
    pub(crate) fn tick(&mut self, now: Time) -> Option<Order> {
        self.deadline().filter(|&at| at <= now)?;
        self.safe_at = None;
        let answers_left = self.shards;
        self.round = Some(Round { answers_left, all_rest: true, latest: Time(0) });
        Some(Order::TryIdle(Time(now.0.saturating_sub(self.delay_ns))))
    }

    /// A shard's answer: when its last write ended if it does not rest.
    pub(crate) fn answered(&mut self, now: Time, busy: Option<Time>) {
        let Some(round) = &mut self.round else { return };
        round.answers_left -= 1;
        if let Some(last) = busy {
            round.all_rest = false;
            round.latest = round.latest.max(last);
        }
        if round.answers_left > 0 {
            return;
        }
        if round.all_rest {
            self.want_active = false;
        } else {
            let from = if round.latest > Time(0) { round.latest } else { now };
            self.safe_at = Some(from.after(self.delay_ns));
        }
        self.round = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two shards, active since time 0, asked at 100.
    fn asked() -> SafeMode {
        let mut mode = SafeMode::new(100, 2);
        mode.need_active();
        assert!(mode.wants_turn(false));
        mode.active_recorded(Time(0));
        assert_eq!(mode.answer(), Some(Order::Active));
        assert_eq!(mode.answer(), None);
        assert_eq!(mode.deadline(), Some(Time(100)));
        assert_eq!(mode.tick(Time(99)), None);
        assert_eq!(mode.tick(Time(100)), Some(Order::TryIdle(Time(0))));
        assert_eq!((mode.deadline(), mode.tick(Time(300))), (None, None));
        mode
    }

    #[test]
    fn the_array_is_to_be_clean_when_every_shard_has_said_that_it_rests() {
        let mut mode = asked();
        mode.answered(Time(101), None);
        assert!(mode.wants_active());
        mode.answered(Time(102), None);
        assert!(mode.wants_turn(true));
    }

    #[test]
    fn a_shard_that_writes_puts_the_next_round_off() {
        let mut mode = asked();
        mode.answered(Time(101), Some(Time(90)));
        mode.answered(Time(102), None);
        assert!(mode.wants_active());
        assert_eq!(mode.deadline(), Some(Time(190)));
    }

    #[test]
    fn a_write_that_asks_within_a_round_keeps_the_array_active() {
        let mut mode = asked();
        mode.answered(Time(101), None);
        mode.need_active();
        mode.answered(Time(102), None);
        assert!(mode.wants_active());
        assert_eq!(mode.deadline(), Some(Time(202)));
        assert_eq!(mode.answer(), Some(Order::Active));
    }

    #[test]
    fn nothing_turns_while_shards_are_asked() {
        let mode = asked();
        assert!(!mode.wants_turn(false));
    }

    #[test]
    fn a_stopped_array_is_to_be_clean_and_stays_so() {
        let mut mode = asked();
        mode.stop();
        mode.need_active();
        assert!(!mode.wants_active());
        mode.active_recorded(Time(500));
        assert_eq!((mode.deadline(), mode.answer()), (None, None));
        (0..2).for_each(|_| mode.answered(Time(600), None));
        assert!(mode.wants_turn(true));
    }

    #[test]
    fn without_a_delay_only_a_stop_makes_it_clean() {
        let mut mode = SafeMode::new(0, 1);
        mode.need_active();
        mode.active_recorded(Time(7));
        assert_eq!(mode.deadline(), None);
        assert!(mode.wants_active());
    }

    #[test]
    fn a_level_without_redundancy_answers_at_once_and_wants_no_update() {
        let mut mode = SafeMode::new(100, 1);
        mode.need_active();
        assert_eq!(mode.answer_without_state(), Some(Order::Active));
        assert_eq!(mode.answer_without_state(), None);
        assert!(!mode.wants_turn(false));
    }
}
