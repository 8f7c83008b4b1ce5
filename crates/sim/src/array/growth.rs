//! An array that gets more members, in the midst of the reshape for that: the real engine in virtual time, as in
//! [the parent](super), with no client.
//!
//! Two shards run, as in the host, the one of the old geometry and the one of the new, each on a core of its own. Data moves
//! towards members' beginnings, by as much as a server would have it do.

use super::build::{ArrayConfig, ArrayError, Leg, SlotState, made};
use super::pace::Run;
use super::prices::Prices;
use super::time;
use super::world::op;
use crate::agenda::Agenda;
use lapstrake_array::{
    Action, Coordinator, Front, Outgoing, Router, RouterWorld, ShardGone, SpanMap,
};
use lapstrake_engine::{
    Buf, BufId, Comparison, Compute, Event as Happened, FULLY_TRUSTED, Finding, IoId, MemberConfig,
    MemberId, MemberIo, MemberRecord, MetaWrite, Notice, Order, ReshapeInProgress, Seal, Shard,
    ShardConfig, Supervisor, SupervisorConfig, SyncConfig, SyncProgress, Target, Time, World,
    WriteId, least_shift, room_before, shift_within, span, stripe_cache_members,
    stripe_cache_pages,
};
use lapstrake_geometry::{Config, Geometry, Layout, Sector, Sectors, Slot};
use lapstrake_metadata::{Superblock, create::spare};
use lapstrake_model::{Nanos, Op, Request, Volume};
use slab::Slab;
use std::collections::VecDeque;

/// The shard of the old geometry, and that of the new one.
const SHARDS: usize = 2;
const NEW: usize = SHARDS - 1;

/// See the module.
pub struct GrowingArray {
    shards: Vec<Shard>,
    routers: Vec<Router<(), u64>>,
    coordinator: Coordinator,
    world: MovingWorld,
    is_pausing: [bool; SHARDS],
    ended: Option<Nanos>,
}

impl std::fmt::Debug for GrowingArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrowingArray").field("now", &self.world.now).finish_non_exhaustive()
    }
}

/// What a member's command is for.
#[derive(Clone, Copy, Debug)]
enum Command {
    Engine(usize, IoId),
    BarrierFlush(MemberId),
    Meta(WriteId),
}

/// The cores, the members, and all that is on its way between them.
struct MovingWorld {
    members: Vec<Box<dyn Volume>>,
    prices: Prices,
    now: Nanos,
    /// When each shard's core has done all that it has taken in.
    cores: [Nanos; SHARDS],
    /// The shard that is served just now.
    driven: usize,
    agenda: Agenda<(MemberId, Request)>,
    commands: Slab<Command>,
    outgoing: VecDeque<(usize, Outgoing<(), u64>)>,
    notices: VecDeque<Notice>,
    bufs: u32,
}

/// Both geometries, and what members' superblocks say of either.
struct Halves {
    before: Geometry,
    after: Geometry,
    old: Vec<Superblock>,
    new: Vec<Superblock>,
}

impl GrowingArray {
    /// An array that gets `more` members, and has come to a sector of the run: of members, for RAID10 of the array; rounded
    /// down to where it may stand.
    ///
    /// # Errors
    /// [`ArrayError`].
    pub fn new(config: ArrayConfig, more: Vec<Leg>, from: Sector) -> Result<Self, ArrayError> {
        let halves = halves(&config, &more)?;
        let Halves { before, after, old, new } = &halves;
        let position = position(before, after, from);
        let slots = before.raid_disks();
        let old_slot = |slot: u16| Some(Slot(slot)).filter(|slot| slot.0 < slots);
        let records = |superblocks: &[Superblock], is_old: bool| -> Vec<MemberRecord> {
            let numbered = (0..).zip(superblocks);
            let of = |(slot, superblock): (u16, &Superblock)| MemberRecord {
                superblock: superblock.clone(),
                slot: if is_old { old_slot(slot) } else { Some(Slot(slot)) },
                trusted_to: FULLY_TRUSTED,
                bad_blocks: None,
            };
            numbered.map(of).collect()
        };
        let (prices, speed, stripe_cache) = (
            Prices {
                processor: config.processor,
                page: Nanos::ZERO,
                front: Nanos::ZERO,
                copies: 0,
            },
            config.speed,
            config.stripe_cache,
        );
        let in_sync = config.slots.into_iter().filter_map(|state| match state {
            SlotState::InSync(leg) => Some(leg),
            _ => None,
        });
        let legs: Vec<Leg> = in_sync.chain(more).collect();
        let rotational: Vec<bool> = legs.iter().map(|leg| leg.rotational).collect();
        let shard = |index: usize| {
            let of = if index == NEW { (after, new, false) } else { (before, old, true) };
            let members = records(of.1, of.2);
            let members = members.iter().zip(&rotational);
            shard(
                of.0,
                members.map(|(record, head)| MemberConfig::new(record, *head)),
                stripe_cache,
            )
        };
        let supervisor = Supervisor::new(SupervisorConfig {
            geometry: after.clone(),
            members: records(new, false),
            shards: SHARDS as u32,
            safe_mode_delay_ns: 0,
            resync_from: None,
            was_replayed: false,
            reshape: Some(ReshapeInProgress {
                before: before.clone(),
                superblocks: old.clone(),
                slots: (0..new.len() as u16).map(old_slot).collect(),
                position,
                is_backwards: false,
            }),
            bitmap: None,
            sync: SyncConfig { speed, frozen: false, span: span(before) },
            epoch_s: 0,
        });
        let front = Front::at(position.0, false, NEW);
        let spans = SpanMap::new(span(before).0).with_front(front);
        let mut coordinator = Coordinator::new(Some(supervisor), SHARDS, spans.clone());
        coordinator.start(Time(0));
        let mut this = Self {
            shards: (0..SHARDS).map(shard).collect(),
            routers: (0..SHARDS).map(|index| Router::new(index, SHARDS, spans.clone())).collect(),
            coordinator,
            world: MovingWorld {
                members: legs.into_iter().map(|leg| leg.volume).collect(),
                prices,
                now: Nanos::ZERO,
                cores: [Nanos::ZERO; SHARDS],
                driven: 0,
                agenda: Agenda::default(),
                commands: Slab::new(),
                outgoing: VecDeque::new(),
                notices: VecDeque::new(),
                bufs: 0,
            },
            is_pausing: [false; SHARDS],
            ended: None,
        };
        this.settle();
        Ok(this)
    }

    /// The share of the run that moves data; behind it there is none, and what comes to the array is written as zeros.
    ///
    /// # Errors
    /// [`ArrayError`].
    pub fn moved_share(config: &ArrayConfig, more: &[Leg]) -> Result<f64, ArrayError> {
        let Halves { before, after, .. } = halves(config, more)?;
        let (before, after) = (before.array_sectors().0, after.array_sectors().0);
        Ok(before.min(after) as f64 / after as f64)
    }

    fn next(&self) -> Option<Nanos> {
        let members = self.world.members.iter().filter_map(|member| member.next_event());
        let timers = self.shards.iter().filter_map(Shard::poll_deadline);
        let timers = timers.chain(self.coordinator.poll_deadline()).map(|at| Nanos(at.0));
        let due = self.world.agenda.next().map(Nanos);
        members.chain(timers).chain(due).min().map(|at| at.max(self.world.now))
    }

    fn step(&mut self, at: Nanos) {
        self.world.now = at;
        let now = time(at);
        for command in self.world.completed(at) {
            match command {
                Command::Engine(shard, id) => self.shards[shard].handle_completion(now, id, true),
                Command::BarrierFlush(member) => self.coordinator.flushed(member, true),
                Command::Meta(id) => self.coordinator.written(now, id, true),
            }
        }
        for shard in &mut self.shards {
            if shard.poll_deadline().is_some_and(|due| due <= now) {
                shard.handle_time(now);
            }
        }
        self.coordinator.handle_time(now);
        self.settle();
    }

    /// Goes on until nothing follows from anything any more.
    fn settle(&mut self) {
        let now = time(self.world.now);
        loop {
            (0..SHARDS).for_each(|shard| self.drive(shard, |_, _, _| ()));
            let mut goes_on = false;
            while let Some((from, outgoing)) = self.world.outgoing.pop_front() {
                goes_on = true;
                match outgoing {
                    Outgoing::Request { to, key, request } => {
                        self.drive(to, |router, shard, world| {
                            router.take_over(shard, world, from, key, request);
                        })
                    }
                    Outgoing::Reply { to, key, result } => self.drive(to, |router, _, world| {
                        router.peer_replied(world, key, result);
                    }),
                    Outgoing::Answer { .. } => unreachable!("there is no client"),
                }
            }
            while let Some(notice) = self.world.notices.pop_front() {
                self.coordinator.notice(now, notice);
            }
            for shard in 0..SHARDS {
                if self.is_pausing[shard] && self.routers[shard].is_paused(&self.shards[shard]) {
                    self.is_pausing[shard] = false;
                    self.coordinator.paused(now);
                }
            }
            self.coordinator.pump(now);
            while let Some(action) = self.coordinator.poll() {
                goes_on = true;
                self.act(action);
            }
            if !goes_on {
                return;
            }
        }
    }

    fn act(&mut self, action: Action) {
        let now = time(self.world.now);
        match action {
            Action::Event(Happened::ShapeChanged) => self.ended = Some(self.world.now),
            Action::Event(_) => {}
            Action::Order(order) => {
                assert_ne!(order, Order::Broken, "no member fails here");
                self.shards.iter_mut().for_each(|shard| shard.handle_order(now, &order));
            }
            Action::Sync { shard, piece } => self.drive(shard, |router, shard, world| {
                router.sync(shard, world, piece);
            }),
            Action::Flush(member) => self.world.send(
                member,
                Op::Flush,
                Sector(0),
                Sectors(0),
                Command::BarrierFlush(member),
            ),
            Action::Write(write) => self.world.write_meta(&write),
            Action::Pause => {
                for (router, shard) in self.routers.iter_mut().zip(&mut self.shards) {
                    router.pause(shard);
                }
                self.is_pausing = [true; SHARDS];
            }
            Action::TakeGeometry { shard, geometry } => {
                self.shards[shard].take_geometry(now, &geometry);
                self.coordinator.paused(now);
            }
            Action::Redeal(spans) => {
                for shard in 0..SHARDS {
                    let spans = spans.clone();
                    self.drive(shard, |router, shard, world| router.redealt(shard, world, spans));
                }
            }
            action => unreachable!("it is never stopped: {action:?}"),
        }
    }

    fn drive(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Router<(), u64>, &mut Shard, &mut MovingWorld),
    ) {
        let Self { shards, routers, world, .. } = self;
        world.driven = index;
        world.cores[index] = world.cores[index].max(world.now);
        act(&mut routers[index], &mut shards[index], world);
        routers[index].drive(&mut shards[index], world);
    }
}

impl Run for GrowingArray {
    fn run_to(&mut self, at: Nanos) {
        while let Some(next) = self.next().filter(|next| *next <= at && self.ended.is_none()) {
            self.step(next);
        }
        self.world.now = self.world.now.max(at);
    }

    fn progress(&self) -> Option<SyncProgress> {
        self.coordinator.supervisor()?.sync_progress(time(self.world.now))
    }

    fn end(&self) -> Option<Nanos> {
        self.ended
    }
}

/// The array before and after, and its members' superblocks as they are and will be.
fn halves(config: &ArrayConfig, more: &[Leg]) -> Result<Halves, ArrayError> {
    let made = made(config)?;
    let (level, before) = (config.level, made.geometry);
    let mut old: Vec<Superblock> =
        made.members.iter().map(|member| member.superblock.clone()).collect();
    let like = old[0].clone();
    for (leg, number) in more.iter().zip(old.len() as u32..) {
        let size = Sectors(leg.volume.blocks());
        old.push(spare(&like, size, number, [number as u8; 16], false).map_err(ArrayError::Spare)?);
    }
    let component = before.component();
    let after = Config {
        level,
        layout: like.layout().unwrap_or(Layout::None),
        chunk: like.chunk(),
        raid_disks: old.len() as u16,
        component,
        member_sizes: Vec::new(),
    };
    let mut goal = like.clone();
    goal.set_geometry(&after);
    let after = Geometry::new(&after).map_err(ArrayError::Spare)?;
    let is_moved = matches!(
        (&before, &after),
        (Geometry::Parity(_), Geometry::Parity(_)) | (Geometry::Raid10(_), Geometry::Raid10(_))
    );
    let is_far =
        matches!(&before, Geometry::Raid10(it) if it.layout().far > 1 && !it.layout().offset);
    let room = old.iter().map(room_before).min().unwrap_or(Sectors::ZERO);
    let shift = shift_within(room, least_shift(&before, &after, false));
    let shift = shift.filter(|_| is_moved && !is_far);
    let shift = -(shift.ok_or(ArrayError::CannotGrow { level })?.0 as i64);
    let mut new = old.clone();
    new.iter_mut().for_each(|superblock| superblock.take_geometry(&goal, shift));
    Ok(Halves { before, after, old, new })
}

/// The array's sector at a sector of the run.
fn position(before: &Geometry, after: &Geometry, from: Sector) -> Sector {
    match (before, after) {
        (Geometry::Parity(before), Geometry::Parity(after)) => {
            let unit = before.chunk().max(after.chunk());
            let row = Sectors(from.0).round_down(unit).0;
            Sector(row / after.chunk().0 * after.stripe_data().0)
        }
        (_, Geometry::Raid10(after)) => Sector(from.0 / after.chunk().0 * after.chunk().0),
        _ => Sector(0),
    }
}

fn shard(
    geometry: &Geometry,
    members: impl Iterator<Item = MemberConfig>,
    stripe_cache: u32,
) -> Shard {
    Shard::new(ShardConfig {
        geometry: geometry.clone(),
        members: members.collect(),
        read_only: false,
        block: Sectors(1),
        in_sync_to: FULLY_TRUSTED,
        bitmap: None,
        scratch: BufId(0),
        scratch_pages: stripe_cache_pages(stripe_cache_members(geometry), stripe_cache, false),
        log_signature: None,
        lost: Vec::new(),
        journal: None,
        behind_pages: 0,
        unsynced: None,
    })
}

impl MovingWorld {
    /// Commands that are due go to members; those that have ended come back.
    fn completed(&mut self, at: Nanos) -> Vec<Command> {
        while self.agenda.next().is_some_and(|due| due <= at.0) {
            let (member, request) = self.agenda.pop().expect("seen just now");
            self.members[usize::from(member.0)].submit(request, at);
        }
        let mut ended = Vec::new();
        for member in &mut self.members {
            while let Some(completion) = member.poll(at) {
                ended.push(self.commands.remove(completion.tag as usize));
            }
        }
        ended
    }

    fn send(&mut self, member: MemberId, op: Op, sector: Sector, len: Sectors, command: Command) {
        let core = &mut self.cores[self.driven];
        *core = (*core).max(self.now) + self.prices.command();
        let at = *core;
        let tag = self.commands.insert(command) as u64;
        let request = Request { tag, op, lba: sector.0, blocks: len.0 };
        self.agenda.add(at.0, (member, request));
    }

    fn write_meta(&mut self, write: &MetaWrite) {
        let Target::Member(member) = write.target else { unreachable!("there is no bitmap") };
        let len = Sectors(write.data.len() as u64 / 512);
        self.send(member, Op::WriteThrough, write.sector, len, Command::Meta(write.id));
    }
}

impl World for MovingWorld {
    fn now(&self) -> Time {
        time(self.now)
    }

    fn start_io(&mut self, io: MemberIo) {
        let command = Command::Engine(self.driven, io.id);
        self.send(io.member, op(io.kind), io.sector, io.len, command);
    }

    fn compute(&mut self, work: &Compute) {
        let price = self.prices.compute(work);
        let core = &mut self.cores[self.driven];
        *core += price;
    }

    fn seal(&mut self, _: &Seal) {
        unreachable!("there are no logs and no journal");
    }

    fn compare(&mut self, _: &Comparison) -> Vec<Finding> {
        Vec::new()
    }
}

impl RouterWorld for MovingWorld {
    type Caller = ();
    type Address = u64;

    /// No byte is behind it.
    fn lend(&mut self, _: u64) -> Buf {
        self.bufs = self.bufs.wrapping_add(1).max(1);
        Buf { id: BufId(self.bufs), offset: 0 }
    }

    fn unlend(&mut self, _: Buf) {}

    fn advance(address: u64, sectors: u32) -> u64 {
        address + u64::from(sectors)
    }

    fn send(&mut self, outgoing: Outgoing<(), u64>) -> Result<(), ShardGone> {
        self.outgoing.push_back((self.driven, outgoing));
        Ok(())
    }

    fn notify(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    fn memory_to_move(&mut self, _: u64) -> Option<u64> {
        Some(0)
    }

    fn clear(&mut self, _: u64, _: u64) {}
}
