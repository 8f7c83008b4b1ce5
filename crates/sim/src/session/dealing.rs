//! How spans change hands in virtual time, while the array is in use.

use super::{COORDINATOR, Event, Phase, Session};
use lapstrake_array::SpanMap;

impl Session<'_> {
    /// Has reads begin when the shard has heard what it has been sent by now.
    pub(super) fn listen(&mut self, shard: usize) {
        if !self.routers[shard].has_unheard() {
            return;
        }
        let lanes = self.lanes.iter().filter(|(lane, _)| lane.1 == shard);
        let due = lanes.map(|(_, &last)| last).max().unwrap_or(0).max(self.now.0);
        self.hears_all_at[shard] = due;
        self.at(due - self.now.0, Event::Heard(shard));
    }

    pub(super) fn heard_all(&mut self, shard: usize) {
        if self.hears_all_at[shard] <= self.now.0 {
            self.with_shard(shard, |router, shard, world| router.start_reads(shard, world));
        }
    }

    pub(super) fn plan_redeals(&mut self) {
        if self.plan.redeals == 0 {
            return;
        }
        for _ in 0..self.dice.below(self.plan.redeals + 1) {
            let within = self.dice.pick(&[1_000_000, 100_000_000, 3_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::Redeal);
        }
    }

    /// Clients have come or gone.
    pub(super) fn redeal(&mut self) {
        let is_due = self.phase == Phase::Load && !self.plan.has_one_writer();
        if !is_due || self.coordinator.is_redealing() {
            return;
        }
        let all = self.shards.len();
        let mut among: Vec<usize> = (0..all).filter(|_| self.dice.one_in(2)).collect();
        if among.is_empty() {
            among = (0..all).rev().collect();
        }
        self.say(|| format!("spans are to be dealt to {among:?}"));
        self.coordinator.redeal(among);
    }

    pub(super) fn pause(&mut self, shard: usize) {
        self.is_pausing[shard] = true;
        self.routers[shard].pause(&mut self.shards[shard]);
    }

    /// Shards that wait for nothing any more say so.
    pub(super) fn say_paused(&mut self) {
        for shard in 0..self.shards.len() {
            if self.is_pausing[shard] && self.routers[shard].is_paused(&self.shards[shard]) {
                self.is_pausing[shard] = false;
                self.send_to(shard, COORDINATOR, Event::Paused);
            }
        }
    }

    pub(super) fn redealt(&mut self, shard: usize, spans: SpanMap) {
        self.with_shard(shard, |router, shard, world| router.redealt(shard, world, spans));
        self.listen(shard);
    }
}
