//! What concerns the array as a whole: members in and out, superblocks, clean and active.
//!
//! One supervisor serves all shards of an array. It turns what they notice into superblock
//! updates, one at a time, and tells them when an update is stable.
//!
//! Invariants:
//! - the superblocks say "active" before any shard is told so, and say "clean" only after every
//!   shard has said, within one round of asking, that it rests;
//! - levels without redundancy have no state to keep: their superblocks are never rewritten.

use crate::{
    bitmap_change::BitmapChange,
    members::FULLY_TRUSTED,
    messages::{Notice, Order},
    meta_writes::{Meta, MetaWrites},
    recovery::{SyncConfig, SyncEnd, SyncScheduler, sync_end},
    sync::SyncAction,
    types::{MemberId, Time},
    update::MetadataUpdates,
    write_intent_bitmap::{BitmapConfig, WriteIntentBitmap},
};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::{Geometry, Sector, Sectors, Slot};
use lapstrake_metadata::{Device, Role, Superblock, badblocks::BadBlocks, journal};

/// A member as the supervisor gets it.
#[derive(Clone, Debug)]
pub struct MemberRecord {
    /// As read, already agreed with the freshest one on what the array is.
    pub superblock: Superblock,
    /// The slot that it serves; none for a spare.
    pub slot: Option<Slot>,
    /// Its data is right below this sector (from its data offset); all of it when
    /// [`FULLY_TRUSTED`].
    pub trusted_to: Sector,
    /// What its bad-block log holds, if it has one.
    pub bad_blocks: Option<BadBlocks>,
}

/// What a supervisor needs to know at its start.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// The array's address map.
    pub geometry: Geometry,
    /// All members, indexed by [`MemberId`].
    pub members: Vec<MemberRecord>,
    /// How many shards will report.
    pub shards: u32,
    /// How long after the last write the array is marked clean; 0: only when it is stopped.
    pub safe_mode_delay_ns: u64,
    /// From where a resync is due, if one is.
    pub resync_from: Option<Sector>,
    /// Logs have put redundancy right, which the superblocks do not say yet.
    pub was_replayed: bool,
    /// The write-intent bitmap, if the array has one.
    pub bitmap: Option<BitmapConfig>,
    /// Recovery and resync.
    pub sync: SyncConfig,
    /// Seconds since 1970 at [`Time`] 0, for update times.
    pub epoch_s: u64,
}

/// Where a metadata write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A member.
    Member(MemberId),
    /// The external bitmap file.
    BitmapFile,
}

/// Names a metadata write in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(pub u32);

/// A metadata write. Everything that completed on any member before it is stable before it is
/// written, and the write itself is stable when it is reported done.
#[derive(Clone, Debug)]
pub struct MetaWrite {
    /// For [`Supervisor::handle_written`].
    pub id: WriteId,
    /// Where.
    pub target: Target,
    /// First sector on the target.
    pub sector: Sector,
    /// Whole sectors.
    pub data: Vec<u8>,
}

/// What an operator wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The member failed and is used no more; what it was.
    MemberFailed(MemberId, MemberState),
    /// The first member's place was taken by the second; the first is used no more.
    Replaced(MemberId, MemberId),
    /// Every write fails from now on.
    Broken(Loss),
    /// These sectors of the member (from its data offset) went into its bad-block log.
    BadBlocks(MemberId, Sector, Sectors),
    /// What the member could not read was written anew: from this sector (from its data offset), so many.
    Rewritten(MemberId, Sector, Sectors),
    /// A recovery, resync, check or repair has begun.
    SyncBegan(SyncAction),
    /// It has ended.
    SyncEnded(SyncAction, SyncEnd),
    /// The write-intent bitmap's file refuses writes, or is gone. [`Event::BitmapChanged`] follows when the array has none.
    BitmapLost,
    /// The write-intent bitmap is as [`Supervisor::handle_bitmap`] was told, or gone with its file.
    BitmapChanged,
}

/// What becomes of a member that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits, or fills a slot and is recovered from its beginning.
    Spare,
    /// It is in its old slot, and gets only what it has missed.
    CatchesUp,
}

/// Why nothing can be written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A write failed on a member that the array cannot do without.
    Data,
    /// What has to be recorded cannot be.
    Metadata,
    /// The journal failed. What was answered is on the members, or will be at the next start with it.
    Journal,
    /// What takes the writes of all members is full.
    Space,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Complete.
    InSync,
    /// In a slot, to be rebuilt.
    Recovering,
    /// In the slot of another that serves, to take its place.
    Replacement,
    /// In no slot.
    Spare,
    /// The journal.
    Journal,
    /// Failed since the array was started.
    Faulty,
    /// Taken out: no member any more.
    Removed,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) superblock: Superblock,
    pub(crate) slot: Option<Slot>,
    pub(crate) standing: MemberState,
    /// While it recovers.
    pub(crate) recovered_to: Sector,
    /// What it lacks is under set bits.
    pub(crate) by_bitmap: bool,
    /// A spare is to take its place.
    pub(crate) is_to_go: bool,
    pub(crate) bad_blocks: Option<BadBlocks>,
    /// The log is behind `bad_blocks`.
    pub(crate) log_dirty: bool,
    /// Times that something went into it.
    pub(crate) times_bad: u32,
}

#[derive(Debug)]
struct Round {
    answers_left: u32,
    all_rest: bool,
    latest: Time,
}

/// See the module's head.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) geometry: Geometry,
    pub(crate) members: Vec<Member>,
    pub(crate) shards: u32,
    pub(crate) safe_mode_delay_ns: u64,
    pub(crate) resync_from: Option<Sector>,
    pub(crate) epoch_s: u64,
    pub(crate) updates: MetadataUpdates,
    pub(crate) want_active: bool,
    /// A shard waits for [`Order::Active`].
    asked: bool,
    pub(crate) stopping: bool,
    pub(crate) broken: bool,
    /// What takes the writes of all members is full: no member is to blame for one that fails.
    out_of_space: bool,
    pub(crate) scheduler: SyncScheduler,
    round: Option<Round>,
    pub(crate) safe_at: Option<Time>,
    pub(crate) bitmap: Option<WriteIntentBitmap>,
    pub(crate) bitmap_change: Option<BitmapChange>,
    pub(crate) bitmap_writes: u64,
    pub(crate) orders: VecDeque<Order>,
    pub(crate) writes: MetaWrites,
    pub(crate) happened: VecDeque<Event>,
    /// Where the journal ends, while nothing in it is needed.
    journal_end: Option<(u64, u64)>,
    /// Where an empty unit is being written.
    emptying: Option<(u64, u64)>,
    pub(crate) now: Time,
}

impl Supervisor {
    /// A supervisor of an array that is about to be started. Nothing is written until the first
    /// write asks for it.
    #[must_use]
    pub fn new(config: SupervisorConfig) -> Self {
        let mut members: Vec<Member> = Vec::new();
        for record in config.members {
            let is_held = members.iter().any(|m| m.slot.is_some() && m.slot == record.slot);
            members.push(Member {
                standing: match record.slot {
                    None if record.superblock.role() == Role::Journal => MemberState::Journal,
                    None => MemberState::Spare,
                    Some(_) if is_held => MemberState::Replacement,
                    Some(_) if record.trusted_to == FULLY_TRUSTED => MemberState::InSync,
                    Some(_) => MemberState::Recovering,
                },
                recovered_to: record.trusted_to,
                by_bitmap: false,
                is_to_go: false,
                bad_blocks: record.bad_blocks,
                log_dirty: false,
                times_bad: 0,
                superblock: record.superblock,
                slot: record.slot,
            });
        }
        let events = members.iter().map(|member| member.superblock.events()).max().unwrap_or(0);
        let is_there = |number| members.iter().any(|m| m.superblock.dev_number() == number);
        let lists_absent = |sb: &Superblock| {
            let is_member = |&number: &u32| matches!(sb.role_of(number), Role::Active(_));
            (0..sb.table_len()).filter(is_member).any(|number| !is_there(number))
        };
        let lacks_former = members.iter().any(|m| lists_absent(&m.superblock));
        let needed = |m: &&Member| matches!(m.standing, MemberState::InSync | MemberState::Journal);
        let is_uneven = members
            .iter()
            .filter(needed)
            .map(|m| m.superblock.events())
            .any(|count| count != events);
        let mut this = Self {
            bitmap: config.bitmap.map(|bitmap| {
                WriteIntentBitmap::new(bitmap, config.shards, sync_end(&config.geometry))
            }),
            geometry: config.geometry,
            members,
            shards: config.shards,
            safe_mode_delay_ns: config.safe_mode_delay_ns,
            resync_from: config.resync_from,
            epoch_s: config.epoch_s,
            updates: MetadataUpdates::new(events, lacks_former, is_uneven),
            want_active: false,
            asked: false,
            stopping: false,
            broken: false,
            out_of_space: false,
            scheduler: SyncScheduler::new(&config.sync),
            round: None,
            safe_at: None,
            bitmap_change: None,
            bitmap_writes: 0,
            orders: VecDeque::new(),
            writes: MetaWrites::default(),
            happened: VecDeque::new(),
            journal_end: None,
            emptying: None,
            now: Time::default(),
        };
        if config.was_replayed {
            this.updates.request();
        }
        this.agree_on_bitmap();
        this
    }

    /// A cut while the bitmap was changed leaves members of which some know of it and some do not.
    fn agree_on_bitmap(&mut self) {
        let internal = self.bitmap.as_ref().filter(|bitmap| !bitmap.is_external());
        let knowing = self.members.iter().filter(|m| m.superblock.bitmap_offset().is_some());
        let freshest = internal.and(knowing.max_by_key(|m| m.superblock.events()));
        let offset = freshest.and_then(|m| m.superblock.bitmap_offset());
        let agrees = |member: &Member| member.superblock.bitmap_offset() == offset;
        if self.members.iter().all(agrees) {
            return;
        }
        self.set_bitmap_offsets(offset);
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.rewrite();
        }
    }

    /// Takes in what a shard noticed.
    pub fn handle_notice(&mut self, now: Time, notice: Notice) {
        self.now = now;
        match notice {
            // Shards judge by themselves; two may have dropped members that are too many together.
            Notice::Failed(member) if !self.fail_if_survivable(member) => self.give_up(Loss::Data),
            Notice::Failed(_) => {}
            Notice::Lost(stripe) => {
                self.orders.extend(stripe.map(Order::Lost));
                self.give_up(Loss::Data);
            }
            Notice::Synced(report) => self.synced(report),
            Notice::Reads => self.scheduler.requests_seen(now),
            Notice::Bad(member, start, len) => self.note_bad((member, start, len)),
            Notice::Good(member, start, len) => self.note_good((member, start, len)),
            Notice::Rewritten(member, sector, len) => {
                let entry = &mut self.members[usize::from(member.0)];
                entry.superblock.add_corrected(len);
                self.happened.push_back(Event::Rewritten(member, sector, len));
            }
            Notice::JournalTail { position, is_urgent } => {
                self.updates.tail_moved(position, is_urgent);
            }
            Notice::OutOfSpace => self.run_out_of_space(),
            Notice::JournalRests(end) => self.journal_end = end,
            Notice::NeedActive if self.stopping => {}
            Notice::NeedActive => {
                self.want_active = true;
                self.asked = true;
                if let Some(round) = &mut self.round {
                    round.all_rest = false;
                }
            }
            Notice::Idle => self.rest_answer(None),
            Notice::Busy(last) => self.rest_answer(Some(last)),
            Notice::BitsWanted(chunk, first, last) => {
                if let Some(bitmap) = &mut self.bitmap {
                    bitmap.want(chunk, first, last);
                }
            }
            Notice::BitsIdle(bits) => {
                let clear = !self.is_degraded();
                if let Some(bitmap) = &mut self.bitmap {
                    bitmap.given_up(&bits, clear.then_some(self.updates.events()));
                }
            }
        }
        self.proceed();
    }

    /// A metadata write is stable, or has failed.
    pub fn handle_written(&mut self, now: Time, id: WriteId, ok: bool) {
        self.now = now;
        let Some((target, meta)) = self.writes.end(id) else { return };
        if !ok {
            match target {
                Target::Member(member) if self.fail_if_survivable(member) => {}
                Target::Member(_) => self.give_up(Loss::Metadata),
                Target::BitmapFile => self.lose_bitmap(),
            }
        }
        match (meta, &mut self.bitmap) {
            (Meta::Bitmap, Some(bitmap)) => bitmap.page_written(&mut self.orders),
            (Meta::Superblock, _) => self.updates.written(ok),
            (Meta::Journal, _) => self.emptied(ok),
            (Meta::Bitmap, None) | (Meta::BadBlocks, _) => {}
        }
        self.proceed();
    }

    /// Members could not flush before these writes were to begin, so that what the writes say of them may
    /// not be so. The writes were dropped; others follow in their place, without the members.
    pub fn handle_unflushed(&mut self, now: Time, members: &[MemberId], dropped: &[WriteId]) {
        self.now = now;
        for &member in members {
            if !self.fail_if_survivable(member) {
                self.give_up(Loss::Data);
            }
        }
        for id in dropped {
            let Some((target, meta)) = self.writes.end(*id) else { continue };
            match (meta, target, &mut self.bitmap) {
                (Meta::Bitmap, _, Some(bitmap)) => bitmap.page_dropped(&mut self.orders),
                (Meta::Superblock, ..) => self.updates.dropped(),
                (Meta::Journal, ..) => self.journal_end = self.emptying.take(),
                (Meta::BadBlocks, Target::Member(member), _) => {
                    self.members[usize::from(member.0)].log_dirty = true;
                }
                _ => {}
            }
        }
        self.proceed();
    }

    /// As [`Shard::handle_out_of_space`], before a metadata write or flush is reported that failed so.
    ///
    /// [`Shard::handle_out_of_space`]: crate::Shard::handle_out_of_space
    pub fn handle_out_of_space(&mut self, now: Time) {
        self.now = now;
        if self.geometry.level().has_redundancy() {
            self.run_out_of_space();
        }
        self.proceed();
    }

    fn run_out_of_space(&mut self) {
        self.out_of_space = true;
        self.give_up(Loss::Space);
    }

    /// Time has come to [`Self::poll_deadline`].
    pub fn handle_time(&mut self, now: Time) {
        self.now = now;
        if self.safe_at.is_some_and(|at| at <= now) && self.round.is_none() {
            self.safe_at = None;
            let answers_left = self.shards;
            self.round = Some(Round { answers_left, all_rest: true, latest: Time(0) });
            let before = Time(now.0.saturating_sub(self.safe_mode_delay_ns));
            self.orders.push_back(Order::TryIdle(before));
        }
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.tick(now, &mut self.orders);
        }
        self.proceed();
    }

    /// Begins what there is to do, once the world is ready.
    pub fn handle_start(&mut self, now: Time) {
        self.act(now);
    }

    pub(crate) fn act(&mut self, now: Time) {
        self.now = now;
        self.proceed();
    }

    /// Marks the array clean for good. Call it when every shard is quiet, then carry on until
    /// [`Self::is_stopped`].
    pub fn handle_stop(&mut self, now: Time) {
        self.now = now;
        self.stopping = true;
        self.want_active = false;
        self.safe_at = None;
        let clear = !self.is_degraded();
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.stop(clear.then_some(self.updates.events()));
        }
        self.proceed();
    }

    /// Everything is stable and says clean; the members may be closed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let resting =
            self.bitmap.as_ref().is_none_or(WriteIntentBitmap::is_quiet) && self.emptying.is_none();
        self.stopping && (self.broken || (!self.is_active() && self.is_recorded() && resting))
    }

    /// For every shard.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// For the members.
    pub fn poll_write(&mut self) -> Option<MetaWrite> {
        self.writes.poll()
    }

    /// For the operator.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.happened.pop_front()
    }

    /// When to call [`Self::handle_time`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        let sweep = self.bitmap.as_ref().and_then(WriteIntentBitmap::deadline);
        let safe = self.safe_at.filter(|_| self.round.is_none());
        let sync = self.scheduler.deadline(self.now);
        let lazy = self.bitmap.as_ref().and_then(|bitmap| bitmap.lazy_deadline(self.now));
        [safe, sweep, sync, lazy].into_iter().flatten().min()
    }

    /// Where a member stands, its slot, and how far its data is right while it recovers.
    #[must_use]
    pub fn standing(&self, member: MemberId) -> (MemberState, Option<Slot>, Sector) {
        let member = &self.members[usize::from(member.0)];
        (member.standing, member.slot, member.recovered_to)
    }

    /// Whether it is to be replaced as soon as there is a spare.
    #[must_use]
    pub fn awaits_replacement(&self, member: MemberId) -> bool {
        self.members[usize::from(member.0)].is_to_go
    }

    /// From where on a resync is due.
    #[must_use]
    pub fn resync_from(&self) -> Option<Sector> {
        self.resync_from
    }

    /// Whether the superblocks say all that there is to say of the members.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.updates.is_recorded()
    }

    /// The members' superblocks as last sent, and where each stands.
    pub fn members(&self) -> impl Iterator<Item = (&Superblock, MemberState)> {
        self.members.iter().map(|member| (&member.superblock, member.standing))
    }

    /// Whether writes may have left stripes half done since the superblocks last said clean.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.updates.is_active_on_disk()
    }

    /// Whether a slot lacks a member in sync.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        let in_sync = |member: &&Member| member.standing == MemberState::InSync;
        self.members.iter().filter(in_sync).count() < usize::from(self.geometry.raid_disks())
    }

    /// The array's event counter.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.updates.events()
    }

    /// Pages of the write-intent bitmap sent so far, counted for each member that gets it.
    #[must_use]
    pub fn bitmap_writes(&self) -> u64 {
        self.bitmap_writes
    }

    /// Dirty and all bits of the write-intent bitmap.
    #[must_use]
    pub fn bitmap_bits(&self) -> Option<(u64, u64)> {
        self.bitmap.as_ref().map(WriteIntentBitmap::count)
    }

    pub(crate) fn fail(&mut self, id: MemberId) {
        let member = &mut self.members[usize::from(id.0)];
        if !member.is_present() {
            return;
        }
        let slot = member.slot;
        if mem::replace(&mut member.standing, MemberState::Faulty) == MemberState::Replacement {
            // Who was to go still is.
            let serves = |m: &&mut Member| m.standing == MemberState::InSync && m.slot == slot;
            self.members.iter_mut().filter(serves).for_each(|m| m.is_to_go = true);
        } else if let Some(replacement) = self.replacement_in(slot) {
            let replacement = &mut self.members[usize::from(replacement.0)];
            let is_whole = replacement.recovered_to == FULLY_TRUSTED;
            replacement.standing =
                if is_whole { MemberState::InSync } else { MemberState::Recovering };
        }
        self.scheduler.members_changed();
        self.updates.member_failed(id);
        self.orders.push_back(Order::MemberFailed(id));
    }

    /// Whether writes go through a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.members.iter().any(|member| member.superblock.role() == Role::Journal)
    }

    /// That it failed goes on no record: it may hold what members lack, and a superblock that calls it failed
    /// would keep it out of the next start.
    fn fail_journal(&mut self, id: MemberId) {
        self.members[usize::from(id.0)].standing = MemberState::Faulty;
        self.give_up(Loss::Journal);
    }

    /// At a stop, once the members have flushed: writes an empty unit behind all that the journal holds, where its
    /// tail goes then. What the shard has told last of it still holds, since it is quiet.
    fn empty_journal(&mut self) {
        if !self.stopping || self.broken || self.emptying.is_some() {
            return;
        }
        let mut members = self.members.iter();
        let Some(index) = members.position(|m| m.standing == MemberState::Journal) else { return };
        let Some((position, seq)) = self.journal_end.take() else { return };
        self.emptying = Some((position, seq));
        let superblock = &self.members[index].superblock;
        let unit = journal::Meta { seq, position, payloads: Vec::new() };
        let data = unit.encode(journal::Seed::new(superblock.set_uuid()));
        let sector = superblock.data_offset() + Sectors(position);
        self.writes.send(Target::Member(MemberId(index as u16)), sector, data, Meta::Journal);
    }

    /// The empty unit is stable, or its device has failed.
    fn emptied(&mut self, ok: bool) {
        let end = self.emptying.take().filter(|_| ok);
        if let Some((position, _)) = end {
            self.updates.tail_moved(position, true);
        }
    }

    pub(crate) fn fail_if_survivable(&mut self, id: MemberId) -> bool {
        let member = &self.members[usize::from(id.0)];
        if !member.is_present() {
            return true;
        }
        if self.out_of_space {
            return false;
        }
        if member.standing == MemberState::Journal {
            self.fail_journal(id);
            return true;
        }
        let slot = member.slot.filter(|_| member.standing != MemberState::Replacement);
        let has = |wanted: Slot| {
            let serves = |m: &Member| match m.standing {
                MemberState::InSync => Some(wanted) != slot,
                MemberState::Replacement => m.recovered_to == FULLY_TRUSTED,
                _ => false,
            };
            self.members.iter().any(|m| m.slot == Some(wanted) && serves(m))
        };
        let survives = slot.is_none() || self.geometry.survives(has);
        let was = member.standing;
        if survives && self.geometry.level().has_redundancy() {
            self.fail(id);
            self.happened.push_back(Event::MemberFailed(id, was));
            return true;
        }
        false
    }

    /// Who is to take the place of a slot's member.
    pub(crate) fn replacement_in(&self, slot: Option<Slot>) -> Option<MemberId> {
        let slot = slot?;
        let replaces = |m: &Member| m.standing == MemberState::Replacement && m.slot == Some(slot);
        self.members.iter().position(replaces).map(|index| MemberId(index as u16))
    }

    pub(crate) fn give_up(&mut self, loss: Loss) {
        if !mem::replace(&mut self.broken, true) {
            let is_space = loss == Loss::Space;
            self.orders.push_back(if is_space { Order::OutOfSpace } else { Order::Broken });
            self.happened.push_back(Event::Broken(loss));
        }
    }

    fn rest_answer(&mut self, busy: Option<Time>) {
        let Some(round) = &mut self.round else { return };
        round.answers_left -= 1;
        if let Some(last) = busy {
            round.all_rest = false;
            round.latest = round.latest.max(last);
        }
        if round.answers_left == 0 {
            if round.all_rest {
                self.want_active = false;
            } else {
                let from = if round.latest > Time(0) { round.latest } else { self.now };
                self.safe_at = Some(from.after(self.safe_mode_delay_ns));
            }
            self.round = None;
        }
    }

    /// Moves on: ends an update, begins the next one that is due, sends bitmap pages.
    pub(crate) fn proceed(&mut self) {
        if !self.geometry.level().has_redundancy() {
            self.want_active = false;
            if mem::take(&mut self.asked) {
                self.orders.push_back(Order::Active);
            }
            return;
        }
        self.end_update();
        self.change_bitmap();
        self.empty_journal();
        self.mend();
        // At a stop one update says that it is clean and where the journal begins.
        if self.updates.is_idle() && !self.broken && self.emptying.is_none() {
            let turn = self.want_active != self.is_active() && self.round.is_none();
            if turn || self.updates.is_wanted() {
                self.begin_update();
            } else if self.is_active() && mem::take(&mut self.asked) {
                self.orders.push_back(Order::Active);
            }
        }
        self.send_bitmap_pages();
        self.send_update();
    }
}

impl Member {
    /// It takes part, be it as a spare.
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self.standing, MemberState::Faulty | MemberState::Removed)
    }

    /// In a slot, but some data is still to come.
    pub(crate) fn is_incomplete(&self) -> bool {
        let gets_data = matches!(self.standing, MemberState::Recovering | MemberState::Replacement);
        gets_data && self.recovered_to != FULLY_TRUSTED
    }

    /// Its entry in every member's table of devices.
    pub(crate) fn device(&self) -> Device {
        let role = match (self.standing, self.slot) {
            (MemberState::Journal, _) => Role::Journal,
            (MemberState::Faulty, _) => Role::Faulty,
            (_, Some(slot)) => Role::Active(slot),
            (_, None) => Role::Spare,
        };
        let in_sync = self.standing == MemberState::InSync;
        Device { number: self.superblock.dev_number(), role, in_sync }
    }

    pub(crate) fn write_state(
        &mut self,
        events: u64,
        utime: u64,
        resync: Option<Sector>,
        devices: &[Device],
        own: usize,
    ) {
        let sb = &mut self.superblock;
        sb.set_events(events);
        sb.set_utime(utime);
        sb.set_resync_offset(resync);
        sb.set_roles(devices, own);
        sb.mark_ppl();
        sb.set_has_bad_blocks(self.bad_blocks.as_ref().is_some_and(|bad| !bad.is_empty()));
        // A journal's tail is in the same place.
        if self.standing != MemberState::Journal {
            let is_incomplete = self.is_incomplete();
            let sb = &mut self.superblock;
            sb.set_recovery_offset(is_incomplete.then_some(self.recovered_to));
            sb.set_replacement(self.standing == MemberState::Replacement);
        }
    }
}
