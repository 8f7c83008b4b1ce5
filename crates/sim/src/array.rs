//! An array on models of disks: the real engine in virtual time, without a byte of data.
//!
//! One shard and the supervisor run on one virtual core, as in the host an array with one client does. Whatever
//! comes in (requests, ends of members' commands, timers) waits for the core; what is there when it is free is taken
//! in as one batch, as the host's loop does it. Each request, command and piece of parity work has its price
//! ([`lapstrake_model::Processor`]); a command leaves for its member when the work before it is paid, those of md's
//! thread (from Linux 3.6 on) when the batch is.
//!
//! Invariants:
//! - the same calls give the same answers;
//! - nothing reaches a member before its time, so members see a clock that never goes back;
//! - metadata is written as the host does it: after every member has flushed, durably.
//!
//! What it does not do: a second shard (requests of several clients share the one core); logs and journals; members
//! that fail meanwhile.

mod build;
mod growth;
mod pace;
mod prices;
mod stripe_cache;
#[cfg(test)]
mod tests;
mod world;

pub use build::{ArrayConfig, ArrayError, Leg, SlotState};
pub use growth::GrowingArray;
pub use pace::{Run, SyncTime, growth_time, sync_time};

use lapstrake_array::{Action, Coordinator};
use lapstrake_engine::{
    Buf, BufId, Event as Happened, IoId, MemberId, Order, Request as EngineRequest, RequestId,
    RequestKind, Shard, Stats, SyncAction, SyncEnd, SyncProgress, Time, WriteId,
};
use lapstrake_geometry::{Geometry, Sector, Sectors};
use lapstrake_model::{Completion, Nanos, Op, Request, Volume};
use world::TimedWorld;

/// Sectors of the largest request that neighbours become (`BLK_DEF_MAX_SECTORS` until Linux 4.2).
const REQUEST_MAX: u64 = 1024;

/// See the module.
pub struct ArrayVolume {
    shard: Shard,
    coordinator: Coordinator,
    world: TimedWorld,
}

/// What waits for the core.
#[derive(Debug)]
enum Incoming {
    Request(Request, Asked),
    Command(Command),
}

/// Who asked the engine for something, and by which tag.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Caller(u64),
    StripeCache(u64),
    /// For a part of a read.
    Part(usize),
    /// For a page of a part whose member is missing.
    Page(usize),
}

/// What the core has sent on its way.
#[derive(Debug)]
enum Due {
    Send { member: MemberId, request: Request },
    Answer(Asked),
}

/// What a member's command is for.
#[derive(Clone, Copy, Debug)]
enum Command {
    Engine(IoId),
    BarrierFlush(MemberId),
    /// Before a metadata write of md's, on its member alone.
    Preflush,
    Meta(WriteId),
}

/// A command that does not go yet.
struct Plugged {
    member: MemberId,
    op: Op,
    sector: Sector,
    len: Sectors,
    command: Command,
}

impl std::fmt::Debug for ArrayVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrayVolume").field("now", &self.world.now).finish_non_exhaustive()
    }
}

impl ArrayVolume {
    /// How far a recovery or resync has come, while one runs.
    #[must_use]
    pub fn progress(&self) -> Option<SyncProgress> {
        self.coordinator.supervisor()?.sync_progress(time(self.world.now))
    }

    /// Recoveries and resyncs that have ended, how, and when.
    #[must_use]
    pub fn ended(&self) -> &[(SyncAction, SyncEnd, Nanos)] {
        &self.world.ended
    }

    /// Begins a check, repair or resync. False if something runs already.
    pub fn begin(&mut self, action: SyncAction, now: Nanos) -> bool {
        self.run(now);
        let supervisor = self.coordinator.supervisor_mut();
        let is_begun = supervisor.is_some_and(|s| s.handle_sync(time(now), action));
        self.work(now);
        self.world.is_settled = false;
        is_begun
    }

    /// What the engine has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shard.stats()
    }

    /// The address map.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.world.geometry
    }

    fn run(&mut self, now: Nanos) {
        if self.world.is_settled && now <= self.world.now {
            return;
        }
        while let Some(at) = self.world.look().filter(|at| *at <= now) {
            self.step(at);
        }
        self.world.now = self.world.now.max(now);
        self.world.is_settled = true;
    }

    fn step(&mut self, at: Nanos) {
        if self.world.step(at) {
            self.work(at);
        }
    }

    /// The core takes in all that waits, and does what follows.
    fn work(&mut self, at: Nanos) {
        self.world.clock = at;
        let now = time(at);
        // What comes together comes over the same threads and calls.
        let mut front = self.world.prices.front;
        while let Some((came, incoming)) = self.world.inbox.pop_front() {
            let is_metadata = matches!(
                incoming,
                Incoming::Command(Command::Meta(_) | Command::BarrierFlush(_) | Command::Preflush)
            );
            if self.world.meta_writes > 0 && !is_metadata {
                self.world.stalled.push_back((came, incoming));
                continue;
            }
            match incoming {
                Incoming::Request(request, asked) => {
                    self.world.charge(&request, asked, &mut front);
                    self.take_in(request, asked, now);
                }
                Incoming::Command(Command::Engine(id)) => {
                    self.shard.handle_completion(now, id, true);
                }
                Incoming::Command(Command::BarrierFlush(member)) => {
                    self.coordinator.flushed(member, true);
                    self.world.meta_writes = self.world.meta_writes.saturating_sub(1);
                }
                // The write follows it in the member's queue, which nothing passes.
                Incoming::Command(Command::Preflush) => {}
                Incoming::Command(Command::Meta(id)) => {
                    self.coordinator.written(now, id, true);
                    self.world.meta_ended();
                }
            }
        }
        if self.shard.poll_deadline().is_some_and(|due| due <= now) {
            self.shard.handle_time(now);
        }
        self.coordinator.handle_time(now);
        self.settle(now);
        self.world.batch_ends(at);
        let timers = [self.shard.poll_deadline(), self.coordinator.poll_deadline()];
        self.world.timer = timers.into_iter().flatten().map(|at| Nanos(at.0)).min();
    }

    fn take_in(&mut self, request: Request, asked: Asked, now: Time) {
        let is_request =
            |(_, incoming): &(Nanos, Incoming)| matches!(incoming, Incoming::Request(..));
        let has_followers = self.world.inbox.iter().any(is_request);
        let key = self.world.requests.insert(asked);
        // No byte is behind a buffer: any name will do.
        let buf = Buf { id: BufId(1 + key as u32), offset: 0 };
        let kind = match request.op {
            Op::Read => RequestKind::Read(buf),
            Op::Write => RequestKind::Write { buf, fua: false, followed: has_followers },
            Op::WriteThrough => RequestKind::Write { buf, fua: true, followed: has_followers },
            Op::Flush => RequestKind::Flush,
        };
        let (sector, len) = match request.op {
            Op::Flush => (Sector(0), Sectors(0)),
            _ => (Sector(request.lba), Sectors(request.blocks)),
        };
        let id = RequestId(key as u64);
        self.shard.handle_request(now, EngineRequest { id, kind, sector, len });
    }

    /// Goes on until nothing follows from anything any more, as the host does.
    fn settle(&mut self, now: Time) {
        loop {
            self.shard.carry_out(&mut self.world, |_, world, ended| world.ended(ended));
            while let Some(notice) = self.shard.poll_notice() {
                self.coordinator.notice(now, notice);
            }
            let was_told = self.pump(now);
            if !was_told {
                return;
            }
        }
    }

    /// Does what the coordinator wants. Whether the shard was told something.
    fn pump(&mut self, now: Time) -> bool {
        let mut was_told = false;
        self.coordinator.pump(now);
        while let Some(action) = self.coordinator.poll() {
            match action {
                Action::Event(Happened::SyncEnded(action, end)) => {
                    self.world.ended.push((action, end, Nanos(now.0)));
                }
                Action::Event(_) => {}
                Action::Order(order) => {
                    assert_ne!(order, Order::Broken, "no member fails here");
                    self.shard.handle_order(now, &order);
                    was_told = true;
                }
                Action::Sync { piece, .. } => {
                    self.shard.handle_sync(now, piece);
                    was_told = true;
                }
                Action::Flush(member) => {
                    self.world.flush_meta(member);
                }
                Action::Write(write) => self.world.write_meta(&write),
                action => unreachable!("one shard serves for ever: {action:?}"),
            }
        }
        was_told
    }
}

fn time(at: Nanos) -> Time {
    Time(at.0)
}

impl Volume for ArrayVolume {
    fn blocks(&self) -> u64 {
        self.world.geometry.array_sectors().0
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        self.run(now);
        self.world.is_settled = false;
        match (&mut self.world.stripe_cache, request.op) {
            (Some(stripe_cache), Op::Write | Op::WriteThrough) => {
                stripe_cache.add(request, now);
                self.world.let_in(now);
                return;
            }
            (Some(_), Op::Read) => return self.world.read_in_parts(request, now),
            // Nothing is written behind it soon.
            (Some(_), Op::Flush) => self.world.unplug(now),
            _ => {}
        }
        self.world.inbox.push_back((now, Incoming::Request(request, Asked::Caller(request.tag))));
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.run(now);
        if self.world.answered.front()?.at <= now { self.world.answered.pop_front() } else { None }
    }

    fn go_on(&mut self, until: Nanos, look: Nanos) -> Option<Nanos> {
        self.world.is_settled = false;
        while self.world.answered.is_empty() {
            let at = self.world.look().filter(|at| *at <= until)?;
            self.step(at);
            if at >= look {
                return Some(at);
            }
        }
        self.next_event().filter(|at| *at <= until)
    }

    fn next_event(&self) -> Option<Nanos> {
        let answered = self.world.answered.front().map(|completion| completion.at);
        [answered, self.world.next_step()].into_iter().flatten().min()
    }

    fn cpu(&self) -> Nanos {
        self.world.members.iter().fold(self.world.spent, |sum, member| sum + member.cpu())
    }

    fn called(&self) -> Nanos {
        self.world.members.iter().fold(self.world.called, |sum, member| sum + member.called())
    }

    fn stripe_blocks(&self) -> u64 {
        match &self.world.geometry {
            Geometry::Raid0(map) => map.chunk().0 * u64::from(map.raid_disks()),
            Geometry::Parity(map) => map.stripe_data().0,
            // Far copies are other stripes; near ones are the same.
            Geometry::Raid10(map) => {
                map.chunk().0 * u64::from(map.raid_disks()) / u64::from(map.layout().near.max(1))
            }
            _ => 0,
        }
    }

    fn queues(&self) -> usize {
        // Who reaches another than md's does it through one device, with the queue of one.
        if !self.world.calls {
            return 1;
        }
        match &self.world.geometry {
            Geometry::Raid0(map) => map.raid_disks().into(),
            Geometry::Parity(map) => map.data_disks().into(),
            Geometry::Raid10(map) => usize::from(map.raid_disks()) / map.copies().max(1) as usize,
            _ => 1,
        }
        .max(1)
    }
}
