//! Which shard does what, and how that changes while the array is in use.
//!
//! As in the host: every shard is told to send nothing new; each says so when what it sent has ended and it does
//! nothing of its own; when all have, and everybody has been told what they found out, spans change hands.

use super::{Event, LEAD, Life, Phase, Wish};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Dealing {
    /// Spans go to these shards in turn.
    among: Vec<usize>,
    /// What is not sent yet, of each shard that has been told to wait.
    held: Vec<Option<VecDeque<Wish>>>,
    /// Shards that have to say that they wait, while that is wanted.
    left: Option<usize>,
    /// Those that have said so.
    said: Vec<bool>,
    /// Answers that a shard keeps from its peers until what they had mended is done: whose, for whom.
    late: Vec<(usize, usize, Event)>,
}

impl Dealing {
    /// With partial parity logs, which have one writer, the first is dealt everything.
    pub(super) fn new(shards: usize, has_one_writer: bool) -> Self {
        let among = if has_one_writer { vec![0] } else { (0..shards).collect() };
        let held = (0..shards).map(|_| None).collect();
        Self { among, held, left: None, said: vec![false; shards], late: Vec::new() }
    }

    /// Spans are about to change hands.
    pub(super) fn is_changing(&self) -> bool {
        self.left.is_some()
    }

    /// Whether requests wait for that.
    pub(super) fn holds_any(&self) -> bool {
        self.held.iter().flatten().any(|held| !held.is_empty())
    }

    /// Whether several shards own spans.
    pub(super) fn is_shared(&self) -> bool {
        self.among.len() > 1
    }

    pub(super) fn owner(&self, span: u64) -> usize {
        self.among[span as usize % self.among.len()]
    }
}

impl Life<'_> {
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
        if self.phase != Phase::Load || self.dealing.is_changing() {
            return;
        }
        self.dealing.left = Some(self.shards.len());
        for shard in 0..self.shards.len() {
            self.send(LEAD, shard, Event::Pause(shard));
        }
    }

    pub(super) fn pause(&mut self, shard: usize) {
        self.dealing.held[shard] = Some(VecDeque::new());
        self.shards[shard].hurry();
    }

    /// Keeps a request of a shard that waits. False: it may go.
    pub(super) fn is_held(&mut self, home: usize, wish: &Wish) -> bool {
        let Some(held) = &mut self.dealing.held[home] else { return false };
        held.push_back(*wish);
        true
    }

    /// Tells a client's shard of its part's end, though not while spans are about to change hands and the part has
    /// something mended: the client's shard would say that it waits.
    pub(super) fn tell_end(&mut self, from: usize, to: usize, end: Event) {
        self.dealing.late.push((from, to, end));
        self.tell_ends();
    }

    fn tell_ends(&mut self) {
        for (from, to, end) in std::mem::take(&mut self.dealing.late) {
            let waits = self.dealing.held[from].is_some();
            match from != to && waits && !self.shards[from].is_sync_idle() {
                true => self.dealing.late.push((from, to, end)),
                false => self.send(from, to, end),
            }
        }
    }

    /// Shards that wait for nothing any more say so.
    pub(super) fn say_paused(&mut self) {
        self.tell_ends();
        for shard in 0..self.shards.len() {
            let is_idle = || {
                let engine = &self.shards[shard];
                let busy = self.clients.values().any(|client| client.home == shard);
                !busy && engine.is_sync_idle() && engine.is_behind_idle()
            };
            if self.dealing.held[shard].is_some() && !self.dealing.said[shard] && is_idle() {
                self.dealing.said[shard] = true;
                self.send(shard, LEAD, Event::Paused);
            }
        }
    }

    /// A shard waits; if all do, spans change hands.
    pub(super) fn paused(&mut self) -> Result<(), String> {
        let left = self.dealing.left.as_mut().ok_or("a shard waits that was not told to")?;
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        // What shards have just told of is heard by all before.
        self.pump_lead()?;
        self.dealing.left = None;
        let all = self.shards.len();
        let mut among: Vec<usize> = (0..all).filter(|_| self.dice.one_in(2)).collect();
        if among.is_empty() {
            among = (0..all).rev().collect();
        }
        self.say(|| format!("spans are dealt to {among:?}"));
        self.dealing.among = among;
        for shard in 0..all {
            self.send(LEAD, shard, Event::Deal(shard));
        }
        Ok(())
    }

    pub(super) fn dealt(&mut self, shard: usize) {
        self.dealing.said[shard] = false;
        for wish in self.dealing.held[shard].take().into_iter().flatten() {
            self.ask_from(shard, wish);
        }
    }
}
