//! One session of an array: from its start to a clean stop or a power cut, in virtual time.
//!
//! Everything that takes time is an [`Event`] in one queue, ordered by when it is due and then by
//! when it was put there. Shards, supervisor and clients talk over lanes that delay what they
//! carry but keep its order, as threads and their queues do.

mod areas;
mod bitmap;
mod dealing;
mod growth;
mod members;
mod power;
mod requests;
mod reshape;
#[cfg(test)]
mod scripted;
mod setup;
mod sync_runs;
mod wear;
mod words;
mod world;

pub(crate) use bitmap::{FileUse, new_bitmap, new_file};
pub(crate) use setup::Setup;
pub(crate) use words::in_words;

use areas::{log_area, span};

use crate::{
    agenda::Agenda,
    dice::Dice,
    disk::Disk,
    memory::Memory,
    oracle::{Floors, Oracle},
    plan::Plan,
};
use lapstrake_array::{Action, Coordinator, RoutedRequest, Router, SpanMap, start::StartMember};
use lapstrake_engine::{
    Buf, BufId, FULLY_TRUSTED, MemberConfig, MemberId, MemberIo, MetaWrite, Notice, Order,
    PAGE_BYTES, Request, RequestError, RequestId, Shard, ShardGeometry, Supervisor, SyncAction,
    SyncPiece, Time,
};
use lapstrake_geometry::Geometry;
use lapstrake_metadata::Superblock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Seconds since 1970 when virtual time begins.
const EPOCH_S: u64 = 1_800_000_000;
/// How long a session waits for recovery and resync at its end.
const LINGER_NS: u64 = 2_000_000_000;
/// A session that takes more events than this has got stuck.
const EVENTS_MAX: u64 = 2_000_000;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stopped,
    Cut,
}

/// What a session leaves behind, beside its disks.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub end: End,
    /// Member I/Os.
    pub ios: u64,
    /// The stamp that the last write took.
    pub stamp: u32,
    /// Disks that faults have hit.
    pub hit: BTreeSet<usize>,
    /// Disks whose failure is on record.
    pub recorded: BTreeSet<usize>,
    /// Writes may have gone out.
    pub was_active: bool,
    /// Disks that were recovered in it, whatever came after.
    pub recovered: BTreeSet<usize>,
    /// Redundancy is whole where members are in sync.
    pub is_whole: bool,
    /// As clients last saw it.
    pub geometry: Geometry,
    pub file: FileUse,
    /// A lockless bitmap was taken away.
    pub lost_lockless: bool,
}

#[derive(Debug)]
enum Event {
    Submit,
    /// A member comes back.
    Add(usize, Box<Superblock>),
    /// The operator has a member replaced.
    Replace,
    /// Some members lose power.
    Outage,
    /// A disk that lost it has it again.
    PowerBack(usize),
    /// The operator changes the bitmap.
    Bitmap,
    /// The operator has the array grow.
    Grow,
    /// The operator has the array get another geometry.
    Reshape,
    /// A shard is to go by another geometry.
    TakeGeometry(usize, Box<ShardGeometry>),
    /// The operator has a check begun, held or ended.
    SyncCommand,
    /// Spans are to change hands.
    Redeal,
    /// A shard is to send nothing new.
    Pause(usize),
    /// A shard does nothing any more.
    Paused,
    /// A shard may go on.
    Redealt(usize, SpanMap),
    /// A shard has heard what it had been sent when a read came.
    Heard(usize),
    /// A shard is asked for a part of another's request.
    Part {
        from: usize,
        to: usize,
        key: usize,
        request: RoutedRequest<Buf>,
    },
    PartDone {
        to: usize,
        key: usize,
        result: Result<(), RequestError>,
    },
    Io(Box<InFlight>),
    Order(usize, Order),
    Notice(Notice),
    Sync(usize, SyncPiece),
    MetaFlush {
        member: MemberId,
        mark: u64,
        fails: bool,
    },
    MetaWrite {
        write: MetaWrite,
        fails: bool,
    },
    /// A shard is to say when it has nothing to do.
    ShutDown(usize),
    /// A shard has nothing to do.
    Quiet,
    FinalFlush {
        member: MemberId,
        mark: u64,
        fails: bool,
    },
}

#[derive(Debug)]
struct InFlight {
    shard: usize,
    io: MemberIo,
    /// A write's bytes when it was sent.
    data: Vec<u8>,
    /// What a flush covers.
    mark: u64,
    fails: bool,
    /// A read that fails once.
    is_spoilt: bool,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Read,
    Write { fua: bool, followed: bool },
    Flush,
    Discard,
    WriteZeroes { fua: bool, unmap: bool },
}

/// A request before it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub ask: Ask,
    pub sector: u64,
    pub len: u64,
}

/// Who waits for a request's end.
#[derive(Debug)]
struct Client {
    buf: Buf,
    sector: u64,
    len: u64,
    /// What a read must show at least.
    read: Option<Floors>,
}

/// A part of a request that an engine has.
#[derive(Debug)]
struct RoutedPart {
    /// The router's name for what it is a part of.
    routed: RequestId,
    /// By a name of its own.
    request: Request,
    /// What a flush covers.
    covers: u64,
    /// It writes where the new geometry has it what clients know of already.
    moves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Load,
    /// All clients have their answers.
    Stopping,
    Done,
}

/// See the module.
pub(crate) struct Session<'a> {
    plan: &'a Plan,
    dice: &'a mut Dice,
    disks: &'a mut [Disk],
    oracle: &'a mut Oracle,
    /// The external bitmap's.
    file: &'a mut Disk,
    file_use: FileUse,
    geometry: Geometry,
    disk_of: Vec<usize>,
    data_area: Vec<(u64, u64)>,
    log_area: Vec<(u64, u64)>,
    memory: Memory,
    /// Through which data goes from one geometry to another, and its sectors.
    moving: Option<(BufId, u64)>,
    shards: Vec<Shard>,
    coordinator: Coordinator,
    now: Time,
    queue: Agenda<Event>,
    /// When the last message on a lane, from one thread to another, is due.
    lanes: BTreeMap<(usize, usize), u64>,
    routers: Vec<Router<u64, Buf>>,
    /// Shards that have been told to pause, and have not said that they do.
    is_pausing: Vec<bool>,
    /// Shards that have been told to shut down, and have not said that they are quiet.
    is_leaving: Vec<bool>,
    /// When each shard has heard all that it had been sent when its last read came.
    hears_all_at: Vec<u64>,
    clients: BTreeMap<u64, Client>,
    parts: BTreeMap<u64, RoutedPart>,
    /// The shard for which the session is the world at the moment.
    driven: usize,
    /// What went wrong while it was.
    fault: Option<String>,
    next_id: u64,
    stamp: u32,
    script: VecDeque<Wish>,
    requests_left: u64,
    swept: bool,
    lingers_until: Option<Time>,
    /// What the operator has still to do.
    commands_left: usize,
    sequential: u64,
    phase: Phase,
    was_forced: bool,
    returning: Vec<(usize, Superblock)>,
    vanished: BTreeSet<MemberId>,
    /// Those of them that lost power: nothing of them that is on its way does anything.
    dark: BTreeSet<MemberId>,
    /// More lost power than the level survives: requests may fail, and after so many events the session is over.
    doomed_at: Option<u64>,
    /// The bitmap's file has refused a write.
    file_failed: bool,
    /// A lockless bitmap was taken away.
    lost_lockless: bool,
    /// Members that have been recovered, and how many shards have not heard of it yet.
    unheard: BTreeMap<MemberId, usize>,
    /// Members that have been recovered, which is not on record yet.
    fresh: BTreeSet<MemberId>,
    /// Members that faults have hit, or whose place another has taken.
    hit: BTreeSet<MemberId>,
    /// Members of which a flush failed: none succeeds any more.
    unflushed: BTreeSet<MemberId>,
    /// Members that the operator wants replaced.
    to_go: BTreeSet<MemberId>,
    recorded: BTreeSet<usize>,
    /// Disks that were in sync when a step of a reshape was asked for or began: whoever fails then serves until that is on record.
    placed: BTreeSet<usize>,
    /// Members that could not read, which may not be mended yet.
    sore: BTreeSet<MemberId>,
    /// Reads on their way that are to fail on members that do not.
    failing_reads: u32,
    /// What is still to run to prove that redundancy is whole.
    proof: VecDeque<SyncAction>,
    ios: u64,
    events: u64,
    was_active: bool,
    trace: bool,
}

/// The supervisor's thread, as the end of a lane; shards are their numbers.
const COORDINATOR: usize = usize::MAX;

/// Of two members in one slot the first is being replaced.
fn replaced(configs: &[MemberConfig]) -> impl Iterator<Item = MemberId> {
    let is_replaced = |(index, one): &(usize, &MemberConfig)| {
        one.slot.is_some() && configs[index + 1..].iter().any(|other| other.slot == one.slot)
    };
    configs.iter().enumerate().filter(is_replaced).map(|(index, _)| MemberId(index as u16))
}

/// Those that replace them, if they may hold all that these do.
fn whole_replacements(configs: &[MemberConfig]) -> impl Iterator<Item = MemberId> {
    let is_whole = |(index, one): &(usize, &MemberConfig)| {
        let replaces = configs[..*index].iter().any(|other| other.slot == one.slot);
        one.slot.is_some() && one.trusted_to == FULLY_TRUSTED && replaces
    };
    configs.iter().enumerate().filter(is_whole).map(|(index, _)| MemberId(index as u16))
}

impl<'a> Session<'a> {
    #[allow(clippy::too_many_arguments, reason = "made in one place")]
    pub(crate) fn new(
        plan: &'a Plan,
        setup: Setup,
        dice: &'a mut Dice,
        disks: &'a mut [Disk],
        file: &'a mut Disk,
        oracle: &'a mut Oracle,
        first_stamp: u32,
        trace: bool,
    ) -> Self {
        let members = &setup.plan.members;
        let configs: Vec<MemberConfig> = members
            .iter()
            .map(|member| MemberConfig::new(&member.record, dice.one_in(2)))
            .collect();
        for StartMember { device, record } in members {
            if record.slot.is_none() || record.trusted_to != FULLY_TRUSTED {
                disks[*device].renew();
            }
        }
        let pages = setup.scratch_pages(plan) + plan.behind_pages;
        let span = span(plan, &setup.plan.geometry);
        let spans = setup.spans(plan, span);
        let superblocks = || members.iter().map(StartMember::superblock);
        let external = setup.plan.bitmap.as_ref().is_some_and(|bitmap| bitmap.external);
        Self {
            memory: Memory::new((0..plan.shards).map(|_| (pages * PAGE_BYTES) as usize)),
            moving: None,
            shards: setup.shards(plan, &configs),
            disk_of: members.iter().map(|member| member.device).collect(),
            data_area: (0..members.len()).map(|member| setup.data_area(member)).collect(),
            log_area: superblocks().map(log_area).collect(),
            coordinator: {
                let supervisor = setup.supervisor(plan, span);
                Coordinator::new(Some(supervisor), plan.shards, spans.clone())
            },
            plan,
            dice,
            disks,
            oracle,
            file,
            file_use: if external { FileUse::InUse } else { FileUse::None },
            geometry: setup.plan.geometry.clone(),
            now: Time(0),
            queue: Agenda::default(),
            lanes: BTreeMap::new(),
            routers: (0..plan.shards)
                .map(|index| Router::new(index, plan.shards, spans.clone()))
                .collect(),
            is_pausing: vec![false; plan.shards],
            is_leaving: vec![false; plan.shards],
            hears_all_at: vec![0; plan.shards],
            clients: BTreeMap::new(),
            parts: BTreeMap::new(),
            driven: 0,
            fault: None,
            next_id: 0,
            stamp: first_stamp,
            script: VecDeque::new(),
            requests_left: plan.requests,
            swept: false,
            lingers_until: None,
            commands_left: setup.returning.len(),
            sequential: 0,
            phase: Phase::Load,
            was_forced: setup.was_forced,
            returning: setup.returning,
            vanished: BTreeSet::new(),
            dark: BTreeSet::new(),
            doomed_at: None,
            file_failed: false,
            lost_lockless: false,
            unheard: whole_replacements(&configs).map(|member| (member, 0)).collect(),
            fresh: BTreeSet::new(),
            hit: BTreeSet::new(),
            to_go: replaced(&configs).collect(),
            unflushed: BTreeSet::new(),
            recorded: BTreeSet::new(),
            placed: BTreeSet::new(),
            sore: BTreeSet::new(),
            failing_reads: 0,
            proof: sync_runs::proof(plan, setup.was_forced),
            ios: 0,
            events: 0,
            was_active: false,
            trace,
        }
    }

    /// Lives until it has done its requests and stopped, or for `cut_after` events.
    pub(crate) fn run(&mut self, cut_after: Option<u64>) -> Result<End, String> {
        if !self.dice.one_in(4) {
            self.read_all();
        }
        for _ in 0..self.plan.depth {
            self.at(0, Event::Submit);
        }
        for (disk, own) in std::mem::take(&mut self.returning) {
            let delay = self.dice.below(100_000_000);
            self.at(delay, Event::Add(disk, Box::new(own)));
        }
        if self.plan.replaces && self.dice.one_in(2) {
            let delay = self.dice.below(100_000_000);
            self.commands_left += 1;
            self.at(delay, Event::Replace);
        }
        self.plan_bitmaps();
        self.plan_growth();
        self.plan_reshape();
        self.plan_sync_runs();
        self.plan_redeals();
        self.plan_outages();
        self.coordinator.start(self.now);
        while self.phase != Phase::Done {
            let is_due = |events: &u64| self.events >= *events;
            if cut_after.iter().chain(&self.doomed_at).any(is_due) {
                return Ok(self.cut_now());
            }
            self.step().map_err(|error| format!("at {} ns: {error}", self.now.0))?;
        }
        if self.doomed_at.is_some() {
            return Ok(self.cut_now());
        }
        self.oracle.stopped();
        Ok(End::Stopped)
    }

    /// What is left of it.
    pub(crate) fn report(self, end: End) -> Report {
        let is_whole = !self.is_frail();
        let recovered = self.unheard.keys().map(|member| self.disk_of[usize::from(member.0)]);
        let recovered =
            recovered.chain(self.in_sync()).chain(self.placed.iter().copied()).collect();
        Report {
            recovered,
            end,
            ios: self.ios,
            stamp: self.stamp,
            hit: self.hit.iter().map(|member| self.disk_of[usize::from(member.0)]).collect(),
            recorded: self.recorded,
            was_active: self.was_active,
            is_whole,
            geometry: self.geometry,
            file: self.file_use,
            lost_lockless: self.lost_lockless,
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>12} {}", self.now.0, what());
        }
    }

    fn read_all(&mut self) {
        let (total, mut at) = (self.oracle.sectors(), 0);
        while at < total {
            let len = self.dice.between(1..=64).next_multiple_of(self.plan.block()).min(total - at);
            self.script.push_back(Wish { ask: Ask::Read, sector: at, len });
            at += len;
        }
    }

    fn at(&mut self, delay_ns: u64, event: Event) {
        self.queue.add(self.now.0 + delay_ns, event);
    }

    /// Sends a message; those on one lane arrive in the order in which they were sent.
    fn send_to(&mut self, from: usize, to: usize, event: Event) {
        // The first shard and the supervisor share a thread.
        let is_near = from == to || from.min(to) == 0 && from.max(to) == COORDINATOR;
        let ns_max = if is_near { 0 } else { self.plan.message_ns_max };
        let due = self.now.0 + self.dice.between(0..=ns_max);
        let lane = self.lanes.entry((from, to)).or_default();
        *lane = due.max(*lane);
        let delay = *lane - self.now.0;
        self.at(delay, event);
    }

    fn step(&mut self) -> Result<(), String> {
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(format!("no end after {EVENTS_MAX} events, in {:?}", self.phase));
        }
        let timers = self.shards.iter().map(Shard::poll_deadline);
        let due = timers.chain([self.coordinator.poll_deadline()]).flatten().min();
        let next = self.queue.next().map(Time);
        match (due, next) {
            (Some(due), next) if next.is_none_or(|next| due <= next) => {
                self.now = self.now.max(due);
                for shard in &mut self.shards {
                    if shard.poll_deadline().is_some_and(|due| due <= self.now) {
                        shard.handle_time(self.now);
                    }
                }
                self.coordinator.handle_time(self.now);
            }
            (_, Some(next)) => {
                self.now = next;
                let event = self.queue.pop().expect("seen just now");
                self.say(|| words::shown(&event));
                self.handle(event)?;
            }
            _ if self.doomed_at.is_some() && self.clients.is_empty() => self.phase = Phase::Done,
            _ => return Err(format!("nothing is left to happen, in {:?}", self.phase)),
        }
        self.pump()?;
        self.say_paused();
        self.say_quiet()?;
        self.move_on();
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Submit => self.submit(),
            Event::Add(disk, own) => self.add(disk, *own)?,
            Event::Replace => self.replace(),
            Event::Outage => self.outage(),
            Event::PowerBack(disk) => self.power_back(disk)?,
            Event::Bitmap => self.change_bitmap(),
            Event::Grow => self.grow(),
            Event::Reshape => self.reshape(),
            Event::TakeGeometry(shard, geometry) => {
                self.shards[shard].take_geometry(self.now, &geometry);
                self.send_to(shard, COORDINATOR, Event::Paused);
            }
            Event::SyncCommand => self.direct_sync_runs(),
            Event::Redeal => self.redeal(),
            Event::Pause(shard) => self.pause(shard),
            Event::Paused => self.coordinator.paused(self.now),
            Event::Redealt(shard, spans) => self.redealt(shard, spans),
            Event::Heard(shard) => self.heard_all(shard),
            Event::Part { from, to, key, request } => {
                self.with_shard(to, |router, shard, world| {
                    router.take_over(shard, world, from, key, request);
                });
            }
            Event::PartDone { to, key, result } => {
                self.with_shard(to, |router, _, world| router.peer_replied(world, key, result));
            }
            Event::Io(io) => self.io_done(&io)?,
            Event::Order(shard, order) => {
                if let Order::Trusted(member, FULLY_TRUSTED) = order {
                    let left = self.unheard.get_mut(&member).ok_or("a word of nobody")?;
                    *left -= 1;
                }
                self.shards[shard].handle_order(self.now, &order);
            }
            Event::Sync(shard, piece) => {
                self.with_shard(shard, |router, shard, world| router.sync(shard, world, piece));
            }
            Event::Notice(notice) => self.coordinator.notice(self.now, notice),
            Event::MetaFlush { member, mark, fails } => {
                let ok = self.flushed(member, mark, fails);
                self.coordinator.flushed(member, ok);
            }
            Event::MetaWrite { write, fails } => self.meta_written(&write, fails),
            Event::FinalFlush { member, mark, fails } => {
                let ok = self.flushed(member, mark, fails);
                self.coordinator.flushed_at_the_end(self.now, member, ok);
            }
            Event::ShutDown(shard) => self.is_leaving[shard] = true,
            Event::Quiet => self.coordinator.quiet(self.now),
        }
        Ok(())
    }

    /// Carries out what shards and supervisor want.
    fn pump(&mut self) -> Result<(), String> {
        for shard in 0..self.shards.len() {
            self.with_shard(shard, |router, shard, world| router.drive(shard, world));
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
        self.pump_coordinator()
    }

    fn pump_coordinator(&mut self) -> Result<(), String> {
        self.forget_sores();
        if self.supervisor().is_recorded() {
            self.fresh.clear();
        }
        self.coordinator.pump(self.now);
        while let Some(action) = self.coordinator.poll() {
            self.act(action)?;
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Event(event) => self.heard(event)?,
            Action::Order(order) => {
                self.ordered(&order)?;
                self.send_all(|shard| Event::Order(shard, order.clone()));
            }
            Action::Sync { shard, piece } => {
                self.send_to(COORDINATOR, shard, Event::Sync(shard, piece));
            }
            Action::Flush(member) => {
                let (mark, fails) = self.flush_of(member);
                let delay = self.io_ns();
                self.at(delay, Event::MetaFlush { member, mark, fails });
            }
            Action::Write(write) => self.start_meta(write),
            Action::Pause => self.send_all(Event::Pause),
            Action::TakeGeometry { shard, geometry } => {
                self.send_to(COORDINATOR, shard, Event::TakeGeometry(shard, geometry));
            }
            Action::Redeal(spans) => self.send_all(|shard| Event::Redealt(shard, spans.clone())),
            Action::ShutDown => self.send_all(Event::ShutDown),
            Action::FinalFlush(member) => {
                let (mark, fails) = self.flush_of(member);
                let delay = self.io_ns();
                self.at(delay, Event::FinalFlush { member, mark, fails });
            }
            Action::Stopped { clean } if clean || self.doomed_at.is_some() => {
                self.phase = Phase::Done;
            }
            Action::Stopped { .. } => return Err("a stop that leaves the array active".into()),
        }
        Ok(())
    }

    fn send_all(&mut self, event: impl Fn(usize) -> Event) {
        (0..self.shards.len()).for_each(|shard| self.send_to(COORDINATOR, shard, event(shard)));
    }

    /// What an order that is about to be sent means for what may happen.
    fn ordered(&mut self, order: &Order) -> Result<(), String> {
        self.say(|| format!("ordered: {order:?}"));
        match *order {
            Order::Active => self.was_active = true,
            Order::Recorded(member) => {
                self.recorded.insert(self.disk_of[usize::from(member.0)]);
            }
            Order::Trusted(member, FULLY_TRUSTED) => {
                self.unheard.insert(member, self.shards.len());
                self.fresh.insert(member);
                self.recorded.remove(&self.disk_of[usize::from(member.0)]);
            }
            Order::MemberFailed(member) if self.to_go.contains(&member) => {
                self.hit.insert(member);
            }
            Order::MemberFailed(member) if !self.hit.contains(&member) => {
                return Err(format!("{member:?} was dropped without a fault"));
            }
            Order::BadRecorded(member, start, len) => self.recorded_bad(member, start, len),
            Order::Broken if self.doomed_at.is_none() => {
                return Err("the array gave up".into());
            }
            _ => {}
        }
        Ok(())
    }

    fn supervisor(&self) -> &Supervisor {
        self.coordinator.supervisor().expect("arrays are written to")
    }

    fn supervisor_mut(&mut self) -> &mut Supervisor {
        self.coordinator.supervisor_mut().expect("arrays are written to")
    }

    /// Whether the end is put off, since recovery or resync have something to do. Some fail, so not
    /// for ever.
    fn lingers(&mut self) -> bool {
        if self.plan.converges {
            return !self.is_proven();
        }
        if self.lingers_until.is_none() {
            let ns = if self.plan.frozen { 0 } else { LINGER_NS };
            self.lingers_until = Some(self.now.after(ns));
            // So that there is an end to it.
            self.at(ns, Event::Submit);
        }
        let is_syncing =
            self.commands_left > 0 || self.supervisor().sync_progress(self.now).is_some();
        is_syncing && self.lingers_until > Some(self.now)
    }

    /// Shards that are to shut down, and have nothing to do any more, say so.
    fn say_quiet(&mut self) -> Result<(), String> {
        for shard in 0..self.shards.len() {
            if !self.is_leaving[shard] {
                continue;
            }
            match self.routers[shard].is_idle() && self.shards[shard].is_quiet() {
                true => {
                    self.is_leaving[shard] = false;
                    self.send_to(shard, COORDINATOR, Event::Quiet);
                }
                false => {
                    self.shards[shard].hurry();
                    self.pump()?;
                }
            }
        }
        Ok(())
    }

    /// Goes from serving to stopping.
    fn move_on(&mut self) {
        if self.phase != Phase::Load || !self.clients.is_empty() || self.wishes_left() {
            return;
        }
        if self.lingers() {
            return;
        }
        if !std::mem::replace(&mut self.swept, true) {
            self.read_all();
            for _ in 0..self.plan.depth {
                self.at(0, Event::Submit);
            }
        } else {
            self.phase = Phase::Stopping;
            self.coordinator.begin_stop(self.now);
            // What it wants is carried out with the next event.
            self.at(0, Event::Submit);
        }
    }
}
