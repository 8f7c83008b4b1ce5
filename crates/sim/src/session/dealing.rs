//! Shards' routers in virtual time: what they send each other, and how spans change hands while the array is in use.

use super::{COORDINATOR, Event, Part, Phase, Session};
use crate::{
    memory::Memory,
    oracle::{Leaves, Oracle},
};
use lapstrake_array::{Outgoing, Router, RouterWorld, SpanMap};
use lapstrake_engine::{Buf, Request, RequestId, RequestKind, Shard, Time};
use lapstrake_geometry::{Sector, Sectors};
use std::collections::BTreeMap;

/// What a router needs of its shard; the oracle hears of each write and flush that comes to an engine.
pub(super) struct Routing<'a> {
    index: usize,
    engine: &'a mut Shard,
    memory: &'a Memory,
    oracle: &'a mut Oracle,
    parts: &'a mut BTreeMap<u64, Part>,
    next_id: &'a mut u64,
    now: Time,
    trace: bool,
}

impl RouterWorld for Routing<'_> {
    type Address = Buf;

    fn shard(&mut self) -> &mut Shard {
        self.engine
    }

    fn ask(&mut self, request: Request, is_foreign: bool) {
        let id = *self.next_id;
        *self.next_id += 1;
        let mut covers = 0;
        let Request { kind, sector: Sector(start), len: Sectors(len), .. } = request;
        match kind {
            RequestKind::Read(_) => {}
            RequestKind::Flush => covers = self.oracle.flush_comes(),
            RequestKind::Write { buf, .. } => {
                let head = self.memory.bytes(buf, 8).try_into().expect("eight bytes");
                let stamp = (u64::from_le_bytes(head) >> 32) as u32;
                self.oracle.write_comes(id, start, len, Leaves::Stamp(stamp));
            }
            RequestKind::WriteZeroes { .. } => {
                self.oracle.write_comes(id, start, len, Leaves::Stamp(0));
            }
            RequestKind::Discard => self.oracle.write_comes(id, start, len, Leaves::Anything),
        }
        // Several pieces of a request have the router's one name.
        let routed = request.id;
        let request = Request { id: RequestId(id), ..request };
        self.parts.insert(id, Part { routed, request, covers });
        if self.trace {
            let of = if is_foreign { " of another shard's" } else { "" };
            eprintln!("{:>12} shard {} gets {request:?}{of}", self.now.0, self.index);
        }
        match is_foreign {
            true => self.engine.handle_foreign_read(self.now, request),
            false => self.engine.handle_request(self.now, request),
        }
    }

    fn lend(&mut self, address: Buf) -> Buf {
        address
    }

    fn unlend(&mut self, _: Buf) {}

    fn advance(address: Buf, sectors: u32) -> Buf {
        address.advance_sectors(sectors)
    }
}

impl Session<'_> {
    /// A shard's router, and what it needs of the rest.
    pub(super) fn routing(&mut self, index: usize) -> (&mut Router<u64, Buf>, Routing<'_>) {
        let routing = Routing {
            index,
            engine: &mut self.shards[index],
            memory: &self.memory,
            oracle: self.oracle,
            parts: &mut self.parts,
            next_id: &mut self.next_id,
            now: self.now,
            trace: self.trace,
        };
        (&mut self.routers[index], routing)
    }

    /// Sends what a router has for others.
    pub(super) fn send_routed(&mut self, from: usize) -> Result<(), String> {
        while let Some(outgoing) = self.routers[from].poll() {
            match outgoing {
                Outgoing::Request { to, key, request } => {
                    self.send(from, to, Event::Part { from, to, key, request });
                }
                Outgoing::Reply { to, key, result } => {
                    self.send(from, to, Event::PartDone { to, key, result });
                }
                Outgoing::Answer { caller, result } => self.client_answered(caller, result)?,
            }
        }
        Ok(())
    }

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
            let (router, mut routing) = self.routing(shard);
            router.start_reads(&mut routing);
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
                self.send(shard, COORDINATOR, Event::Paused);
            }
        }
    }

    pub(super) fn redealt(&mut self, shard: usize, spans: SpanMap) {
        let (router, mut routing) = self.routing(shard);
        router.redealt(&mut routing, spans);
        self.listen(shard);
    }

    /// The engine could not read what others own.
    pub(super) fn declined(&mut self, shard: usize, id: RequestId) -> Result<(), String> {
        let part = self.parts.remove(&id.0).ok_or("a request ended twice")?;
        let (router, mut routing) = self.routing(shard);
        router.declined(&mut routing, part.routed);
        Ok(())
    }
}
