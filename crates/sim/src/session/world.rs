//! A session as the world of its shards: what they and their routers want, in virtual time.

use super::{COORDINATOR, Event, RoutedPart, Session};
use crate::{disk::SECTOR, oracle::Leaves};
use lapstrake_array::{Outgoing, Router, RouterWorld, ShardGone};
use lapstrake_engine::{
    Buf, Comparison, Compute, Ended, Finding, MemberIo, Notice, Reply, Request, RequestId,
    RequestKind, Seal, Shard, Time, World,
};
use lapstrake_geometry::{Sector, Sectors};
use std::mem;

impl World for Session<'_> {
    fn now(&self) -> Time {
        self.now
    }

    fn start_io(&mut self, io: MemberIo) {
        let begun = self.start_member_io(self.driven, io);
        self.take_fault(begun);
    }

    fn compute(&mut self, work: &Compute) {
        self.memory.compute(work);
    }

    fn seal(&mut self, seal: &Seal) {
        self.memory.seal(seal);
    }

    fn compare(&mut self, comparison: &Comparison) -> Vec<Finding> {
        self.memory.compare(comparison)
    }
}

impl RouterWorld for Session<'_> {
    type Caller = u64;
    type Address = Buf;

    fn lend(&mut self, address: Buf) -> Buf {
        address
    }

    fn unlend(&mut self, _: Buf) {}

    fn advance(address: Buf, sectors: u32) -> Buf {
        address.advance_sectors(sectors)
    }

    fn send(&mut self, outgoing: Outgoing<u64, Buf>) -> Result<(), ShardGone> {
        let from = self.driven;
        match outgoing {
            Outgoing::Request { to, key, request } => {
                self.send_to(from, to, Event::Part { from, to, key, request });
            }
            Outgoing::Reply { to, key, result } => {
                self.send_to(from, to, Event::PartDone { to, key, result });
            }
            Outgoing::Answer { caller, result } => {
                let judged = self.client_answered(caller, result);
                self.take_fault(judged);
            }
        }
        Ok(())
    }

    fn notify(&mut self, notice: Notice) {
        self.send_to(self.driven, COORDINATOR, Event::Notice(notice));
    }

    fn memory_to_move(&mut self, sectors: u64) -> Option<Buf> {
        let (id, _) = match self.moving.filter(|moving| moving.1 >= sectors) {
            Some(moving) => moving,
            None => (self.memory.take(sectors as usize * SECTOR), sectors),
        };
        self.moving = Some((id, sectors));
        Some(Buf { id, offset: 0 })
    }

    fn clear(&mut self, address: Buf, sectors: u64) {
        self.memory.bytes_mut(address, sectors as u32 * SECTOR as u32).fill(0);
    }

    fn move_begins(&mut self, request: Request) -> Request {
        self.name(request, 0, true)
    }

    /// The oracle hears of each write and flush that comes to a shard.
    fn request_begins(&mut self, request: Request) -> Request {
        let id = self.next_id;
        let mut covers = 0;
        let Request { kind, sector: Sector(start), len: Sectors(len), .. } = request;
        match kind {
            RequestKind::Read(_) => {}
            // A shard of the geometry before a reshape has not all members.
            RequestKind::Flush if self.lacks_members(self.driven) => {}
            RequestKind::Flush => covers = self.oracle.flush_comes(),
            RequestKind::Write { buf, .. } => {
                let head = self.memory.bytes(buf, 8).try_into().expect("eight bytes");
                let stamp = (u64::from_le_bytes(head) >> 32) as u32;
                self.oracle.write_comes(id, start, len, Leaves::Stamp(stamp));
            }
            RequestKind::WriteZeroes { .. } => {
                self.oracle.write_comes(id, start, len, Leaves::Stamp(0));
            }
            RequestKind::WritePart { .. } => unreachable!("clients here write whole sectors"),
            RequestKind::Discard => self.oracle.write_comes(id, start, len, Leaves::Anything),
        }
        self.name(request, covers, false)
    }

    fn request_ended(&mut self, ended: Ended) -> Ended {
        self.say(|| format!("shard {}: {ended:?}", self.driven));
        let (Ended::Replied(Reply { id, .. }) | Ended::Declined(id)) = ended;
        let part = self.parts.remove(&id.0).expect("a request ends once");
        match ended {
            Ended::Replied(reply) => {
                let judged = self.judge(&part, reply.result);
                self.take_fault(judged);
                Ended::Replied(Reply { id: part.routed, ..reply })
            }
            Ended::Declined(_) => Ended::Declined(part.routed),
        }
    }
}

impl Session<'_> {
    fn lacks_members(&self, shard: usize) -> bool {
        let is_reshaped = self.supervisor().geometry_before().is_some();
        is_reshaped && shard != self.plan.shards - 1
    }

    /// Several pieces of a request have the router's one name.
    fn name(&mut self, request: Request, covers: u64, moves: bool) -> Request {
        let (id, routed) = (self.next_id, request.id);
        self.next_id += 1;
        let request = Request { id: RequestId(id), ..request };
        self.parts.insert(id, RoutedPart { routed, request, covers, moves });
        self.say(|| format!("shard {} gets {request:?}", self.driven));
        request
    }

    /// Has something done with a shard and its router, for which the session is the world.
    pub(super) fn with_shard<R>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Router<u64, Buf>, &mut Shard, &mut Self) -> R,
    ) -> R {
        let mut shards = mem::take(&mut self.shards);
        let mut routers = mem::take(&mut self.routers);
        self.driven = index;
        let result = act(&mut routers[index], &mut shards[index], self);
        (self.shards, self.routers) = (shards, routers);
        result
    }

    /// The first thing that went wrong is told when the shard has been driven.
    fn take_fault(&mut self, result: Result<(), String>) {
        self.fault = self.fault.take().or(result.err());
    }
}
