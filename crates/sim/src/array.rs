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
mod pace;
mod prices;
mod stripe_cache;
#[cfg(test)]
mod tests;

pub use build::{ArrayConfig, ArrayError, Leg, SlotState};
pub use pace::{SyncTime, sync_time};

use crate::agenda::Agenda;
use lapstrake_array::{Action, Coordinator};
use lapstrake_engine::{
    Buf, BufId, Effect, Event as Happened, IoId, IoKind, MemberId, MemberIo, MetaWrite, Order,
    Reply, Request as EngineRequest, RequestId, RequestKind, Shard, Stats, SyncAction, SyncEnd,
    SyncProgress, Target, Time, WriteId,
};
use lapstrake_geometry::{Geometry, Sector, Sectors};
use lapstrake_model::{Completion, Nanos, Op, Request, Volume};
use prices::Prices;
use slab::Slab;
use std::collections::VecDeque;
use stripe_cache::{PAGE, StripeCache};

/// Sectors of the largest request that neighbours become (`BLK_DEF_MAX_SECTORS` until Linux 4.2).
const REQUEST_MAX: u64 = 1024;

/// See the module.
pub struct ArrayVolume {
    geometry: Geometry,
    members: Vec<Box<dyn Volume>>,
    shard: Shard,
    coordinator: Coordinator,
    prices: Prices,
    /// When the core has done all that it has taken in.
    free_at: Nanos,
    spent: Nanos,
    /// Of that, in the contexts of those who submitted requests; only md's do so.
    called: Nanos,
    calls: bool,
    /// Copies of each page of a write that its caller makes bios for, besides the first.
    page_copies: u64,
    now: Nanos,
    inbox: VecDeque<(Nanos, Incoming)>,
    /// Of md's parity levels: what holds writes before the engine has them.
    stripe_cache: Option<StripeCache>,
    /// Bitmap pages and superblocks on their way, and the flushes before them, for which md's thread waits; and what
    /// came meanwhile.
    meta_writes: usize,
    stalled: VecDeque<(Nanos, Incoming)>,
    /// Reads of md's parity levels, which go chunk by chunk: their tags, and parts left.
    reads: Slab<(u64, usize)>,
    /// Where members' last commands ended, and what these were.
    command_ends: Vec<(Op, Sector)>,
    /// Where members' data begin.
    data_offsets: Vec<Sector>,
    /// When members are due, as they were looked at last.
    dues: Vec<Nanos>,
    agenda: Agenda<Due>,
    /// Requests under way, by the engine's name for them.
    requests: Slab<Asked>,
    /// Members' commands under way, by the tags of what they went in.
    commands: Slab<Vec<Command>>,
    /// What md's thread (from Linux 3.6 on) holds back until its batch is done (`blk_plug`).
    plugged: Vec<Plugged>,
    answered: VecDeque<Completion>,
    ended: Vec<(SyncAction, SyncEnd, Nanos)>,
    /// When the engine wants to be called next whatever comes.
    timer: Option<Nanos>,
    /// All that happens up to `now` has been done.
    is_settled: bool,
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
        f.debug_struct("ArrayVolume").field("now", &self.now).finish_non_exhaustive()
    }
}

impl ArrayVolume {
    /// How far a recovery or resync has come, while one runs.
    #[must_use]
    pub fn progress(&self) -> Option<SyncProgress> {
        self.coordinator.supervisor()?.sync_progress(time(self.now))
    }

    /// Recoveries and resyncs that have ended, how, and when.
    #[must_use]
    pub fn ended(&self) -> &[(SyncAction, SyncEnd, Nanos)] {
        &self.ended
    }

    /// Begins a check, repair or resync. False if something runs already.
    pub fn begin(&mut self, action: SyncAction, now: Nanos) -> bool {
        self.run(now);
        let supervisor = self.coordinator.supervisor_mut();
        let is_begun = supervisor.is_some_and(|s| s.handle_sync(time(now), action));
        self.work(now);
        self.is_settled = false;
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
        &self.geometry
    }

    fn run(&mut self, now: Nanos) {
        if self.is_settled && now <= self.now {
            return;
        }
        while let Some(at) = self.look().filter(|at| *at <= now) {
            self.step(at);
        }
        self.now = self.now.max(now);
        self.is_settled = true;
    }

    /// When something is to be done next, besides handing out answers.
    fn next_step(&self) -> Option<Nanos> {
        self.first(self.members.iter().filter_map(|member| member.next_event()).min())
    }

    /// The same, and notes which members are due when.
    fn look(&mut self) -> Option<Nanos> {
        let mut first = Nanos::MAX;
        for (due, member) in self.dues.iter_mut().zip(&self.members) {
            *due = member.next_event().unwrap_or(Nanos::MAX);
            first = first.min(*due);
        }
        self.first(Some(first).filter(|first| *first < Nanos::MAX))
    }

    /// Of all that is to be done, where members are due at this time.
    fn first(&self, members: Option<Nanos>) -> Option<Nanos> {
        let agenda = self.agenda.next().map(Nanos);
        let waiting = self.inbox.front().map(|(at, _)| *at);
        let core = [waiting, self.timer].into_iter().flatten().min();
        let core = core.map(|at| at.max(self.free_at));
        let stripe_cache = self.stripe_cache.as_ref().and_then(StripeCache::deadline);
        [agenda, members, core, stripe_cache].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    fn step(&mut self, at: Nanos) {
        self.now = at;
        // What is sent to one may be the other's business, on one cable.
        let is_quiet = self.agenda.next().is_none_or(|due| due > at.0);
        while self.agenda.next().is_some_and(|due| due <= at.0) {
            match self.agenda.pop().expect("seen just now") {
                Due::Send { member, request } => {
                    self.members[usize::from(member.0)].submit(request, at);
                }
                Due::Answer(Asked::Caller(tag)) => self.answered.push_back(Completion { tag, at }),
                Due::Answer(Asked::StripeCache(piece)) => {
                    let stripe_cache = self.stripe_cache.as_mut().expect("it asked");
                    let ended = stripe_cache.ended(piece, at);
                    self.answered.extend(ended.map(|tag| Completion { tag, at }));
                    self.let_in(at);
                }
                Due::Answer(Asked::Part(read) | Asked::Page(read)) => {
                    self.reads[read].1 -= 1;
                    if self.reads[read].1 == 0 {
                        let (tag, _) = self.reads.remove(read);
                        self.answered.push_back(Completion { tag, at });
                    }
                }
            }
        }
        let is_due =
            |stripe_cache: &&mut StripeCache| stripe_cache.deadline().is_some_and(|due| due <= at);
        if let Some(stripe_cache) = self.stripe_cache.as_mut().filter(is_due) {
            stripe_cache.run(at);
            self.let_in(at);
        }
        for (member, due) in self.members.iter_mut().zip(&self.dues) {
            if is_quiet && *due > at {
                continue;
            }
            while let Some(completion) = member.poll(at) {
                for command in self.commands.remove(completion.tag as usize) {
                    self.inbox.push_back((completion.at, Incoming::Command(command)));
                }
            }
        }
        let has_timer = self.timer.is_some_and(|due| due <= at);
        if self.free_at <= at && (has_timer || !self.inbox.is_empty()) {
            self.work(at);
        }
    }

    /// The core takes in all that waits, and does what follows.
    fn work(&mut self, at: Nanos) {
        let mut clock = at;
        let now = time(at);
        // What comes together comes over the same threads and calls.
        let mut front = self.prices.front;
        while let Some((came, incoming)) = self.inbox.pop_front() {
            let is_metadata =
                matches!(incoming, Incoming::Command(Command::Meta(_) | Command::BarrierFlush(_)));
            if self.meta_writes > 0 && !is_metadata {
                self.stalled.push_back((came, incoming));
                continue;
            }
            match incoming {
                Incoming::Request(request, asked) => {
                    if self.calls
                        && request.op == Op::Read
                        && !matches!(asked, Asked::StripeCache(_))
                    {
                        self.called += self.call(&request, asked);
                    }
                    if matches!(request.op, Op::Write | Op::WriteThrough) {
                        let copied =
                            self.prices.page * (self.page_copies * request.blocks.div_ceil(PAGE));
                        self.called += copied;
                        clock += copied;
                    }
                    clock += match asked {
                        Asked::Page(_) => self.prices.restored_page(),
                        _ => std::mem::take(&mut front) + self.prices.request(&request),
                    };
                    self.take_in(request, asked, now);
                }
                Incoming::Command(Command::Engine(id)) => {
                    self.shard.handle_completion(now, id, true);
                }
                Incoming::Command(Command::BarrierFlush(member)) => {
                    self.coordinator.flushed(member, true);
                    self.meta_writes = self.meta_writes.saturating_sub(1);
                }
                Incoming::Command(Command::Meta(id)) => {
                    self.coordinator.written(now, id, true);
                    self.meta_writes = self.meta_writes.saturating_sub(1);
                    if self.meta_writes == 0 {
                        // It came before what is in the inbox still.
                        self.stalled.append(&mut self.inbox);
                        std::mem::swap(&mut self.stalled, &mut self.inbox);
                    }
                }
            }
        }
        if self.shard.poll_deadline().is_some_and(|due| due <= now) {
            self.shard.handle_time(now);
        }
        self.coordinator.handle_time(now);
        self.settle(now, &mut clock);
        self.unplug_commands(clock);
        self.spent += clock.since(at);
        self.free_at = clock;
        let timers = [self.shard.poll_deadline(), self.coordinator.poll_deadline()];
        self.timer = timers.into_iter().flatten().map(|at| Nanos(at.0)).min();
    }

    /// What the heads let go goes to the core.
    fn let_in(&mut self, at: Nanos) {
        for piece in self.stripe_cache.iter_mut().flat_map(StripeCache::orders) {
            self.inbox.push_back((at, Incoming::Request(piece, Asked::StripeCache(piece.tag))));
        }
    }

    /// What md does for a read before its caller goes on (`make_request`): to send what is read of members; of a missing
    /// one, for each page.
    fn call(&self, request: &Request, asked: Asked) -> Nanos {
        if let Asked::Page(_) = asked {
            return self.prices.page * (1 + self.members.len() as u64);
        }
        let chunk = match &self.geometry {
            Geometry::Raid0(map) => map.chunk().0,
            Geometry::Raid10(map) => map.chunk().0,
            _ => request.blocks,
        };
        let commands = request.blocks.div_ceil(chunk.max(1)).min(self.members.len() as u64);
        self.prices.request(request) + self.prices.command() * commands
    }

    /// md's read in parts, each within a chunk (`raid5_mergeable_bvec`): what one of them reads to make up for a missing
    /// member, the others read for themselves. That goes through heads, page by page, and is copied out of them.
    fn read_in_parts(&mut self, request: Request, now: Nanos) {
        let stripe_cache = self.stripe_cache.as_ref().expect("it is md's");
        let mut parts = Vec::new();
        let (mut lba, end) = (request.lba, request.lba + request.blocks);
        let read = self.reads.vacant_key();
        while lba < end {
            let is_there = stripe_cache.is_there(Sector(lba));
            let unit = if is_there { stripe_cache.chunk() } else { PAGE };
            let blocks = (unit - lba % unit).min(end - lba);
            let asked = if is_there { Asked::Part(read) } else { Asked::Page(read) };
            parts.push((now, Incoming::Request(Request { lba, blocks, ..request }, asked)));
            lba += blocks;
        }
        self.reads.insert((request.tag, parts.len()));
        self.inbox.extend(parts);
    }

    fn unplug(&mut self, at: Nanos) {
        if let Some(stripe_cache) = &mut self.stripe_cache {
            stripe_cache.unplug(at);
            self.let_in(at);
        }
    }

    fn take_in(&mut self, request: Request, asked: Asked, now: Time) {
        let is_request =
            |(_, incoming): &(Nanos, Incoming)| matches!(incoming, Incoming::Request(..));
        let has_followers = self.inbox.iter().any(is_request);
        let key = self.requests.insert(asked);
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
    fn settle(&mut self, now: Time, clock: &mut Nanos) {
        loop {
            while let Some(effect) = self.shard.poll_effect() {
                self.carry_out(effect, now, clock);
            }
            while let Some(notice) = self.shard.poll_notice() {
                self.coordinator.notice(now, notice);
            }
            let was_told = self.pump(now, clock);
            if !was_told {
                return;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect, now: Time, clock: &mut Nanos) {
        match effect {
            Effect::Io(io) => self.start(&io, clock),
            Effect::Compute(compute) => *clock += self.prices.compute(&compute),
            Effect::Compare(comparison) => {
                *clock += self.prices.compare(&comparison);
                self.shard.handle_compared(now, comparison.id, &[]);
            }
            Effect::Seal(_) => unreachable!("there are no logs and no journal"),
            Effect::Declined(_) => unreachable!("there is one shard"),
            Effect::Reply(Reply { id, result }) => {
                assert_eq!(
                    result,
                    Ok(()),
                    "no member fails here, and requests are within the array"
                );
                let asked = self.requests.remove(id.0 as usize);
                self.agenda.add(clock.0, Due::Answer(asked));
            }
        }
    }

    fn start(&mut self, io: &MemberIo, clock: &mut Nanos) {
        let op = match io.kind {
            IoKind::Read => Op::Read,
            IoKind::Write { fua: false } | IoKind::WriteZeroes { fua: false, .. } => Op::Write,
            IoKind::Write { fua: true } | IoKind::WriteZeroes { fua: true, .. } => Op::WriteThrough,
            IoKind::Flush | IoKind::Discard => Op::Flush,
        };
        let command = Command::Engine(io.id);
        if op != Op::Flush
            && let Some(stripe_cache) = &mut self.stripe_cache
        {
            let place = Sector(io.sector.0 - self.data_offsets[usize::from(io.member.0)].0);
            if op != Op::Read {
                stripe_cache.write_begins(place, io.len, *clock);
                self.let_in(*clock);
            } else if stripe_cache.knows(place, io.len) {
                self.inbox.push_back((*clock, Incoming::Command(command)));
                return;
            }
        }
        self.send(io.member, op, io.sector, io.len, command, clock);
    }

    fn send(
        &mut self,
        member: MemberId,
        op: Op,
        sector: Sector,
        len: Sectors,
        command: Command,
        clock: &mut Nanos,
    ) {
        // Pages in a row become one request in the member's queue.
        let end = &mut self.command_ends[usize::from(member.0)];
        let joins = self.stripe_cache.is_some() && len.0 <= PAGE && *end == (op, sector);
        *end = (op, sector + len);
        *clock += if joins { self.prices.page } else { self.prices.command() };
        let is_plugged = self.stripe_cache.as_ref().is_some_and(StripeCache::has_thread)
            && matches!(op, Op::Read | Op::Write);
        if !is_plugged {
            // It overtakes nothing.
            self.unplug_commands(*clock);
        }
        self.plugged.push(Plugged { member, op, sector, len, command });
        if !is_plugged {
            self.unplug_commands(*clock);
        }
    }

    /// What is held back goes, neighbours as one request.
    fn unplug_commands(&mut self, at: Nanos) {
        let mut plugged = std::mem::take(&mut self.plugged);
        plugged.sort_by_key(|it| (it.member.0, it.op != Op::Read, it.sector));
        let mut plugged = plugged.into_iter().peekable();
        while let Some(Plugged { member, op, sector, mut len, command }) = plugged.next() {
            let mut commands = vec![command];
            while let Some(next) = plugged.next_if(|next| {
                (next.member, next.op, next.sector) == (member, op, sector + len)
                    && len.0 + next.len.0 <= REQUEST_MAX
            }) {
                len = Sectors(len.0 + next.len.0);
                commands.push(next.command);
            }
            let tag = self.commands.insert(commands) as u64;
            let request = Request { tag, op, lba: sector.0, blocks: len.0 };
            self.agenda.add(at.0, Due::Send { member, request });
        }
    }

    /// Does what the coordinator wants. Whether the shard was told something.
    fn pump(&mut self, now: Time, clock: &mut Nanos) -> bool {
        let mut was_told = false;
        self.coordinator.pump(now);
        while let Some(action) = self.coordinator.poll() {
            match action {
                Action::Event(Happened::SyncEnded(action, end)) => {
                    self.ended.push((action, end, Nanos(now.0)));
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
                    let flush = Command::BarrierFlush(member);
                    self.meta_writes += usize::from(self.stripe_cache.is_some());
                    self.send(member, Op::Flush, Sector(0), Sectors(0), flush, clock);
                }
                Action::Write(write) => self.write_meta(&write, clock),
                action => unreachable!("one shard serves for ever: {action:?}"),
            }
        }
        was_told
    }

    fn write_meta(&mut self, write: &MetaWrite, clock: &mut Nanos) {
        let Target::Member(member) = write.target else {
            unreachable!("the bitmap is on the members");
        };
        let len = Sectors(write.data.len() as u64 / 512);
        self.meta_writes += usize::from(self.stripe_cache.is_some());
        self.send(member, Op::WriteThrough, write.sector, len, Command::Meta(write.id), clock);
    }
}

fn time(at: Nanos) -> Time {
    Time(at.0)
}

impl Volume for ArrayVolume {
    fn blocks(&self) -> u64 {
        self.geometry.array_sectors().0
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        self.run(now);
        self.is_settled = false;
        match (&mut self.stripe_cache, request.op) {
            (Some(stripe_cache), Op::Write | Op::WriteThrough) => {
                stripe_cache.add(request, now);
                self.let_in(now);
                return;
            }
            (Some(_), Op::Read) => return self.read_in_parts(request, now),
            // Nothing is written behind it soon.
            (Some(_), Op::Flush) => self.unplug(now),
            _ => {}
        }
        self.inbox.push_back((now, Incoming::Request(request, Asked::Caller(request.tag))));
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.run(now);
        if self.answered.front()?.at <= now { self.answered.pop_front() } else { None }
    }

    fn go_on(&mut self, until: Nanos, look: Nanos) -> Option<Nanos> {
        self.is_settled = false;
        while self.answered.is_empty() {
            let at = self.look().filter(|at| *at <= until)?;
            self.step(at);
            if at >= look {
                return Some(at);
            }
        }
        self.next_event().filter(|at| *at <= until)
    }

    fn next_event(&self) -> Option<Nanos> {
        let answered = self.answered.front().map(|completion| completion.at);
        [answered, self.next_step()].into_iter().flatten().min()
    }

    fn cpu(&self) -> Nanos {
        self.members.iter().fold(self.spent, |sum, member| sum + member.cpu())
    }

    fn called(&self) -> Nanos {
        self.members.iter().fold(self.called, |sum, member| sum + member.called())
    }

    fn stripe_blocks(&self) -> u64 {
        match &self.geometry {
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
        match &self.geometry {
            Geometry::Raid0(map) => map.raid_disks().into(),
            Geometry::Parity(map) => map.data_disks().into(),
            Geometry::Raid10(map) => usize::from(map.raid_disks()) / map.copies().max(1) as usize,
            _ => 1,
        }
        .max(1)
    }
}
