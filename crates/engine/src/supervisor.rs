//! What concerns the array as a whole: members in and out, superblocks, clean and active.
//!
//! One supervisor serves all shards of an array. It turns what they notice into superblock
//! updates, one at a time, and tells them when an update is stable. Each of its parts owns its state and asserts its own
//! invariants; here and in the parts' files is the routing between them:
//!
//! | part | file | owns |
//! |---|---|---|
//! | `Membership` | `membership.rs` | members' superblocks, slots, states, bad-block logs |
//! | `MetadataUpdates` | `update.rs` | what is not on record yet, the event count, the update on its way |
//! | `MetaWrites` | `meta_writes.rs` | metadata writes that have not ended |
//! | `SafeMode` | `safe_mode.rs` | whether the array is to be active, and when shards are asked |
//! | `SyncScheduler` | `recovery/scheduler.rs` | the sync action that runs, and what is due or asked for |
//! | `JournalEnd` | `journal_end.rs` | where the journal ends, and the empty unit of a stop |
//! | `WriteIntentBitmap` | `write_intent_bitmap.rs` | bits, who holds them, pages on their way |
//! | `BitmapChange` | `bitmap_change.rs` | the stage of a bitmap's end or beginning |
//! | `ShapeChange` | `shape_change.rs` | the stage of another size, or number of copies |
//! | `Reshape` | `reshape.rs` | the stage of another geometry, and how far data was moved |
//!
//! Invariants:
//! - the superblocks say "active" before any shard is told so, and say "clean" only after every
//!   shard has said, within one round of asking, that it rests;
//! - levels without redundancy have no state to keep: their superblocks are rewritten for what an operator asks for only.

use crate::{
    bitmap_change::BitmapChange,
    journal_end::JournalEnd,
    membership::{Member, Membership},
    messages::{Notice, Order},
    meta_writes::{Meta, MetaWrites},
    recovery::{SyncConfig, SyncEnd, SyncScheduler, sync_end},
    reshape::{Reshape, ReshapeInProgress},
    safe_mode::SafeMode,
    shape_change::{ShapeChange, UsableSize},
    sync::SyncAction,
    types::{MemberId, Time},
    update::MetadataUpdates,
    write_intent_bitmap::{BitmapConfig, WriteIntentBitmap},
};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::{Geometry, Sector, Sectors, Slot};
use lapstrake_metadata::{Superblock, badblocks::BadBlocks, journal};

/// A member as the supervisor gets it.
#[derive(Clone, Debug)]
pub struct MemberRecord {
    /// As read, already agreed with the freshest one on what the array is.
    pub superblock: Superblock,
    /// The slot that it serves; none for a spare.
    pub slot: Option<Slot>,
    /// Its data is right below this sector (from its data offset); all of it when
    /// [`FULLY_TRUSTED`](crate::FULLY_TRUSTED).
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
    /// The reshape that is under way, if one is; all else here is of the array that it makes.
    pub reshape: Option<ReshapeInProgress>,
    /// How recovery, resync and checks are to go.
    pub sync: SyncConfig,
    /// Seconds since 1970 at [`Time`] 0, for update times.
    pub epoch_s: u64,
}

/// Where a metadata write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A member, which is used no more if the write fails.
    Member(MemberId),
    /// The external bitmap file. If the write fails the array goes on without a bitmap.
    BitmapFile,
}

/// Names a metadata write in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(pub u32);

/// A metadata write, which is stable when it is reported done.
#[derive(Clone, Debug)]
pub struct MetaWrite {
    /// What [`Supervisor::handle_written`] is to be told, so that no write is taken for another.
    pub id: WriteId,
    /// Whose failure it is if the write fails.
    pub target: Target,
    /// First sector on the target, from its very beginning, not from a data offset.
    pub sector: Sector,
    /// What is written, whole sectors.
    pub data: Vec<u8>,
    /// It says of data that it is stable, or who has it: everything that completed on any member before it is to be
    /// stable before it is written. What only tells of writes to come (active, bits set) may go at once.
    pub vouches: bool,
}

/// What an operator wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The member failed and is used no more; what it was.
    MemberFailed(MemberId, DiskState),
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
    /// So many sectors of the array can be used from now on: every shard takes requests for them.
    Resized(Sectors),
    /// The array is as [`Supervisor::handle_shape`] or [`Supervisor::handle_reshape`] was told.
    ShapeChanged,
    /// Superblocks say that the array is being reshaped.
    ReshapeBegan,
    /// What [`Supervisor::handle_reshape`] was told did not begin: members failed, or have bad blocks on record.
    ReshapeGivenUp,
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
    /// It failed while a reshape moved its first rows over themselves, of which members that came with it keep copies.
    CriticalSection,
    /// What has to be recorded cannot be.
    Metadata,
    /// The journal failed. What was answered is on the members, or will be at the next start with it.
    Journal,
    /// What takes the writes of all members is full.
    Space,
}

/// The state of a member, which md's ioctls call that of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// It serves a slot, and all its data is right.
    InSync,
    /// It is in a slot and being rebuilt: nothing is read from it beyond where the recovery has come to.
    Recovering,
    /// It is in the slot of another that serves, to take its place.
    Replacement,
    /// It is in no slot, and waits for one.
    Spare,
    /// It is the journal, through which all writes go.
    Journal,
    /// It failed since the array was started, and nothing is sent to it.
    Faulty,
    /// It was taken out and is no member any more. Its number is not given to another.
    Removed,
}

/// See the module's head.
#[derive(Debug)]
pub struct Supervisor {
    pub(crate) geometry: Geometry,
    pub(crate) members: Membership,
    /// How many there are: each has to answer when all are asked.
    pub(crate) shards: u32,
    pub(crate) safe_mode: SafeMode,
    /// Seconds since 1970 at [`Time`] 0, for update times.
    pub(crate) epoch_s: u64,
    pub(crate) updates: MetadataUpdates,
    /// Shards are quiet for good. Nothing begins any more but what makes superblocks say clean.
    pub(crate) stopping: bool,
    /// Every write fails, and no metadata is written any more: it could say what is not so.
    pub(crate) broken: bool,
    /// What takes the writes of all members is full: no member is to blame for one that fails.
    out_of_space: bool,
    pub(crate) scheduler: SyncScheduler,
    pub(crate) bitmap: Option<WriteIntentBitmap>,
    pub(crate) bitmap_change: Option<BitmapChange>,
    pub(crate) shape_change: Option<ShapeChange>,
    pub(crate) reshape: Option<Reshape>,
    /// No spare is to make the parity that a level lacks in whose place a RAID0 is to be.
    pub(crate) leaves_parity: bool,
    pub(crate) usable: UsableSize,
    /// Pages of it that were sent, counted for each member.
    pub(crate) bitmap_writes: u64,
    /// For every shard, in this order.
    pub(crate) orders: VecDeque<Order>,
    pub(crate) writes: MetaWrites,
    /// For the operator, in this order.
    pub(crate) events: VecDeque<Event>,
    journal_end: JournalEnd,
    /// When the call was made that is being handled.
    pub(crate) now: Time,
}

impl Supervisor {
    /// A supervisor of an array that is about to be started. Nothing is written until the first
    /// write asks for it.
    #[must_use]
    pub fn new(config: SupervisorConfig) -> Self {
        let members = Membership::new(config.members, config.geometry.raid_disks());
        let (events, is_uneven, lacks_former) = members.counts_at_start();
        let mut this = Self {
            bitmap: config.bitmap.map(|bitmap| {
                WriteIntentBitmap::new(bitmap, config.shards, sync_end(&config.geometry))
            }),
            usable: UsableSize::new(&config.geometry),
            geometry: config.geometry,
            members,
            shards: config.shards,
            safe_mode: SafeMode::new(config.safe_mode_delay_ns, config.shards),
            epoch_s: config.epoch_s,
            updates: MetadataUpdates::new(events, lacks_former, is_uneven),
            stopping: false,
            broken: false,
            out_of_space: false,
            scheduler: SyncScheduler::new(&config.sync, config.resync_from),
            bitmap_change: None,
            shape_change: None,
            reshape: None,
            leaves_parity: false,
            bitmap_writes: 0,
            orders: VecDeque::new(),
            writes: MetaWrites::default(),
            events: VecDeque::new(),
            journal_end: JournalEnd::default(),
            now: Time::default(),
        };
        if config.was_replayed {
            this.updates.request();
        }
        this.agree_on_bitmap();
        this.members.agree_on_shape(this.geometry.level());
        config.reshape.into_iter().for_each(|begun| this.take_up_reshape(begun));
        this
    }

    /// A cut while the bitmap was changed leaves members of which some know of it and some do not.
    fn agree_on_bitmap(&mut self) {
        let internal = self.bitmap.as_ref().filter(|bitmap| !bitmap.is_external());
        let knowing = self.members.iter().filter(|m| m.superblock().bitmap_offset().is_some());
        let freshest = internal.and(knowing.max_by_key(|m| m.superblock().events()));
        let offset = freshest.and_then(|m| m.superblock().bitmap_offset());
        let agrees = |member: &Member| member.superblock().bitmap_offset() == offset;
        if self.members.iter().all(agrees) {
            return;
        }
        self.members.set_bitmap_offsets(offset);
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.rewrite();
        }
    }

    /// Takes in what a shard noticed.
    pub fn handle_notice(&mut self, now: Time, notice: Notice) {
        self.now = now;
        match notice {
            // Shards judge by themselves; two may have dropped members that are too many together.
            Notice::Failed(member) if !self.fail_if_survivable(member) => {
                self.give_up(self.loss_of_data());
            }
            Notice::Failed(_) => {}
            Notice::Lost(stripe) => {
                self.orders.extend(stripe.map(Order::Lost));
                self.give_up(self.loss_of_data());
            }
            Notice::Synced(report) => self.synced(report),
            Notice::Reads => self.scheduler.requests_seen(now),
            Notice::Bad(member, start, len) => self.note_bad((member, start, len)),
            Notice::Good(member, start, len) => self.note_good((member, start, len)),
            Notice::Rewritten(member, sector, len) => {
                self.members.add_corrected(member, len);
                self.events.push_back(Event::Rewritten(member, sector, len));
            }
            Notice::JournalTail { position, is_urgent } => {
                self.updates.tail_moved(position, is_urgent);
            }
            Notice::OutOfSpace => self.run_out_of_space(),
            Notice::JournalRests(end) => self.journal_end.told(end),
            Notice::NeedActive => self.safe_mode.need_active(),
            Notice::ShapeHeard => self.shape_heard(),
            Notice::Idle => self.safe_mode.answered(now, None),
            Notice::Busy(last) => self.safe_mode.answered(now, Some(last)),
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
            (Meta::Journal, _) => self.empty_unit_written(ok),
            (Meta::Backup, _) => self.backup_written(ok),
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
                (Meta::Journal, ..) => self.journal_end.dropped(),
                (Meta::Backup, ..) => self.backup_written(false),
                (Meta::BadBlocks, Target::Member(member), _) => {
                    self.members.log_of(member).0.not_written();
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
        self.orders.extend(self.safe_mode.tick(now));
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
        self.safe_mode.stop();
        let clear = !self.is_degraded();
        if let Some(bitmap) = &mut self.bitmap {
            let events = self.updates.events();
            bitmap.stop(events, clear.then_some(events));
        }
        self.proceed();
    }

    /// Everything is stable and says clean; the members may be closed.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let resting = self.bitmap.as_ref().is_none_or(WriteIntentBitmap::is_quiet)
            && !self.journal_end.is_emptying();
        self.stopping && (self.broken || (!self.is_active() && self.is_recorded() && resting))
    }

    /// The next order, which every shard is to be told in this order.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// The next metadata write, to be begun after all that was told before.
    pub fn poll_write(&mut self) -> Option<MetaWrite> {
        self.record();
        self.writes.poll()
    }

    /// What the operator is to be told next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle_time`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        let sweep = self.bitmap.as_ref().and_then(WriteIntentBitmap::deadline);
        let safe = self.safe_mode.deadline();
        let sync = self.scheduler.deadline(self.now);
        let lazy = self.bitmap.as_ref().and_then(|bitmap| bitmap.lazy_deadline(self.now));
        [safe, sweep, sync, lazy].into_iter().flatten().min()
    }

    /// A member's state, its slot, and how far its data is right while it recovers.
    #[must_use]
    pub fn state(&self, member: MemberId) -> (DiskState, Option<Slot>, Sector) {
        let member = self.members.get(member);
        (member.state(), member.slot(), member.recovered_to())
    }

    /// Whether it is to be replaced as soon as there is a spare.
    #[must_use]
    pub fn awaits_replacement(&self, member: MemberId) -> bool {
        self.members.get(member).is_to_go()
    }

    /// From where on a resync is due.
    #[must_use]
    pub fn resync_from(&self) -> Option<Sector> {
        self.scheduler.resync_from()
    }

    /// Whether the superblocks say all that there is to say of the members.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.updates.is_recorded()
    }

    /// The members' superblocks as last sent, and their states.
    pub fn members(&self) -> impl Iterator<Item = (&Superblock, DiskState)> {
        self.members.iter().map(|member| (member.superblock(), member.state()))
    }

    /// Whether writes may have left stripes half done since the superblocks last said clean.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.updates.is_active_on_disk()
    }

    /// Whether a slot lacks a member in sync.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.members.is_degraded()
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
        if self.members.fail(id) {
            self.scheduler.members_changed();
            self.updates.member_failed(id);
            self.orders.push_back(Order::MemberFailed(id));
        }
    }

    /// That it failed goes on no record: it may hold what members lack, and a superblock that calls it failed
    /// would keep it out of the next start.
    fn fail_journal(&mut self, id: MemberId) {
        self.members.fail(id);
        self.give_up(Loss::Journal);
    }

    /// At a stop, once the members have flushed: writes an empty unit behind all that the journal holds, where its
    /// tail goes then. What the shard has told last of it still holds, since it is quiet.
    fn empty_journal(&mut self) {
        if !self.stopping || self.broken {
            return;
        }
        let Some(device) = self.members.journal() else { return };
        let Some((position, seq)) = self.journal_end.begin() else { return };
        let superblock = self.members.get(device).superblock();
        let unit = journal::Meta { seq, position, payloads: Vec::new() };
        let data = unit.encode(journal::Seed::new(superblock.set_uuid()));
        let sector = superblock.data_offset() + Sectors(position);
        self.writes.send(Target::Member(device), sector, data, (Meta::Journal, true));
    }

    /// The empty unit is stable, or its device has failed.
    fn empty_unit_written(&mut self, ok: bool) {
        if let Some(position) = self.journal_end.written(ok) {
            self.updates.tail_moved(position, true);
        }
    }

    /// Takes a member out that has failed. False: the array needs it.
    pub(crate) fn fail_if_survivable(&mut self, id: MemberId) -> bool {
        let member = self.members.get(id);
        if !member.is_present() {
            let is_let_go = member.state() == DiskState::Faulty && member.slot().is_none();
            if is_let_go && self.is_reshape_to_settle() {
                // Shards go by the geometry yet of which it was.
                self.updates.member_failed(id);
                self.orders.push_back(Order::MemberFailed(id));
            }
            return true;
        }
        if self.out_of_space {
            return false;
        }
        let was = member.state();
        if was == DiskState::Journal {
            self.fail_journal(id);
            return true;
        }
        if self.survives_without(id) {
            self.fail(id);
            self.events.push_back(Event::MemberFailed(id, was));
            return true;
        }
        false
    }

    /// Whether all data can be had without a member, in either geometry if there are two.
    fn survives_without(&self, id: MemberId) -> bool {
        let mut geometries = self.geometries_in_use();
        geometries.all(|(it, is_before)| self.members.survives_without(id, it, is_before))
    }

    /// Whether all data can be had from these members, in either geometry if there are two.
    pub fn survives_with(&self, has: impl Fn(MemberId) -> bool) -> bool {
        let mut geometries = self.geometries_in_use();
        geometries.all(|(it, is_before)| self.members.survives_with(it, is_before, &has))
    }

    pub(crate) fn give_up(&mut self, loss: Loss) {
        if !mem::replace(&mut self.broken, true) {
            let is_space = loss == Loss::Space;
            self.orders.push_back(if is_space { Order::OutOfSpace } else { Order::Broken });
            self.events.push_back(Event::Broken(loss));
        }
    }

    /// Moves on: ends an update, and changes what waited for it.
    pub(crate) fn proceed(&mut self) {
        if !self.geometry.level().has_redundancy() && self.reshape.is_none() {
            self.orders.extend(self.safe_mode.answer_without_state());
        }
        self.end_update();
        self.change_bitmap();
        self.change_shape();
        self.empty_journal();
        self.advance_sync();
    }

    /// Begins the update that is due, sends bitmap pages, then what is due of the update. Not as soon as each notice asks
    /// for it: what comes in one turn goes in one round. What superblocks say is looked at when their update begins.
    fn record(&mut self) {
        // At a stop one update says that it is clean and where the journal begins.
        if self.updates.is_idle() && !self.broken && !self.journal_end.is_emptying() {
            if self.safe_mode.wants_turn(self.is_active()) || self.updates.is_wanted() {
                self.begin_update();
            } else if self.is_active() {
                self.orders.extend(self.safe_mode.answer());
            }
        }
        self.send_bitmap_pages();
        self.send_update();
    }
}
