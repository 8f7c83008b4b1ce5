//! Another geometry, block by block, while the array is served: where the old one and the new one meet, what may be moved
//! next, what superblocks say of it.
//!
//! A run of [`SyncAction::Reshape`](crate::SyncAction::Reshape) moves the data, in windows, one at a time. Its place is
//! counted in sectors of each member of the new geometry, for a RAID10 in sectors of the array; of a reshape that goes
//! backwards, from the end.
//!
//! Invariants:
//! - a window is written to sectors of members that hold nothing of the old geometry which is not on record as moved, so
//!   that a cut at any moment leaves all data where superblocks say it is; but for the first one where there is no room, of
//!   which members that come to the array hold copies before superblocks say that the reshape begins;
//! - superblocks of every member say how far data was moved, stably, before a shard takes requests by that;
//! - nothing else is changed meanwhile: no recovery, resync, check, bitmap or size.

mod critical;
mod planned;
mod raid10;
mod room;
mod step;
mod traffic;

pub use critical::{Hold, backup_on, critical_section};
pub use planned::PlannedArray;
pub(crate) use raid10::copy_in_turn;
pub use raid10::least_raid10_shift;
pub use room::{least_shift, room_before, room_behind, shift_within};
pub use step::Step;
pub use traffic::{MemberTraffic, recovery_traffic, reshape_traffic, resync_traffic};

use crate::{
    bitmap_change::BitmapChange,
    members::{FULLY_TRUSTED, MemberPlace},
    membership::Member,
    shard::Shard,
    supervisor::{DiskState, Event, Supervisor},
    types::Time,
};
use alloc::vec::Vec;
use core::ops::Range;
use critical::{After, Critical};
use lapstrake_geometry::{Geometry, Level, Parity, Sector, Slot};
use lapstrake_metadata::{Role, Superblock};
use raid10::Raid10Reshape;
use step::lie_alike;
pub(crate) use step::slot_in;
pub(crate) use step::slot_of_parity;

/// The most of the array that is moved in one go: writes there wait for it, and what comes between two windows takes time.
const WINDOW_SECTORS: u64 = (16 << 20) / 512;
/// The same while requests come.
const BUSY_WINDOW_SECTORS: u64 = (2 << 20) / 512;

/// What an array's geometry is to become.
#[derive(Clone, Debug)]
pub struct NewGeometry {
    /// It.
    pub geometry: Geometry,
    /// The old one, with no more of each member in use than in the new one.
    pub before: Geometry,
    /// Any member's, which says its level, layout, chunk, slots and what of each member is used.
    pub superblock: Superblock,
    /// How data gets there.
    pub data_move: DataMove,
}

/// How data gets to where another geometry has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMove {
    /// It is there: both lay it out alike ([`Step::stays`]).
    Stays,
    /// It is moved.
    Moves {
        /// So much further on each member its data begins.
        shift: i64,
        /// It is moved from the array's end on.
        is_backwards: bool,
    },
}

impl DataMove {
    pub(crate) fn shift(self) -> i64 {
        match self {
            Self::Stays => 0,
            Self::Moves { shift, .. } => shift,
        }
    }

    fn is_backwards(self) -> bool {
        matches!(self, Self::Moves { is_backwards: true, .. })
    }
}

/// A reshape that was under way when the array was started.
#[derive(Clone, Debug)]
pub struct ReshapeInProgress {
    /// What the geometry was.
    pub before: Geometry,
    /// Members' superblocks of the array that was, by [`MemberId`](crate::MemberId).
    pub superblocks: Vec<Superblock>,
    /// Their slots in it.
    pub slots: Vec<Option<Slot>>,
    /// The array's sector at which the two geometries meet.
    pub position: Sector,
    /// The new geometry holds from there on; else up to there.
    pub is_backwards: bool,
}

impl ReshapeInProgress {
    /// Whether it can go on to this geometry, of members with these superblocks: what it would write next lies over nothing
    /// that was not moved yet.
    #[must_use]
    pub fn may_go_on(&self, after: &Geometry, superblocks: &[&Superblock]) -> bool {
        let (before, position) = (self.before.clone(), self.position);
        let mut reshape = Reshape::new(Stage::Moving, before, position, self.is_backwards);
        reshape.shifts = shifts(&self.superblocks, superblocks.iter().copied());
        let shift = if self.is_backwards { reshape.shifts.0 } else { reshape.shifts.1 };
        let data_move = DataMove::Moves { shift, is_backwards: self.is_backwards };
        keeps_up(&self.before, after, data_move) && reshape.run(after).is_some()
    }
}

/// What a shard goes by from now on.
#[derive(Clone, Debug)]
pub struct ShardGeometry {
    /// The array's address map.
    pub geometry: Geometry,
    /// By [`MemberId`](crate::MemberId).
    pub places: Vec<MemberPlace>,
    /// As in [`ShardConfig::in_sync_to`](crate::ShardConfig::in_sync_to).
    pub in_sync_to: Sector,
}

/// Where an array's geometries meet, and of which sectors data is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frontier {
    /// As superblocks say.
    pub position: Sector,
    /// The same on members of the new geometry, from their data offsets.
    pub member_sector: Sector,
    /// The new geometry holds from there on; else up to there.
    pub is_backwards: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Spares are to have as many events as the others: they may have slept through some.
    Levelling,
    /// It waits for the bitmap's end, and for a shard that takes the new geometry.
    Wanted,
    /// The critical section is copied.
    BackingUp,
    /// The copies are stable; their headers are to say what they are.
    Vouching,
    /// They do; it waits for a shard that takes the new geometry.
    BackedUp,
    /// Headers are to say that the copies are of no use any more.
    Emptying(After),
    /// It could not be copied; shards are to go by what they went by before.
    GivenUp,
    /// Superblocks are to say that it has begun.
    Beginning,
    /// The critical section is moved over itself.
    Critical,
    /// It was in part.
    Lost,
    /// Data is moved.
    Moving,
    /// All was moved, which superblocks are to say.
    Ending,
    /// They do; shards are to take the new geometry.
    Ended,
}

/// A reshape under way. See the module's head.
#[derive(Debug)]
pub(crate) struct Reshape {
    stage: Stage,
    before: Geometry,
    /// Until it begins.
    to: Option<NewGeometry>,
    is_backwards: bool,
    /// By how much sectors of members that are of both geometries rise or fall, least and most.
    shifts: (i64, i64),
    /// What is moved over itself, until superblocks say that it was moved.
    critical: Option<Critical>,
    /// Up to where data was moved, and is stable when superblocks say so.
    position: Sector,
    /// What the superblocks say that are on their way, and of which stage they are.
    sent: Option<(Sector, Stage)>,
    /// What they say on every member.
    recorded: Sector,
}

/// Member sectors of a stripe: its first, and the first behind it.
fn rows(parity: &Parity, array: u64) -> (u64, u64) {
    let (stripe, chunk) = (parity.stripe_data().0, parity.chunk().0);
    (array / stripe * chunk, array.div_ceil(stripe) * chunk)
}

impl Reshape {
    fn new(stage: Stage, before: Geometry, position: Sector, is_backwards: bool) -> Self {
        let (shifts, critical) = ((0, 0), None);
        let (sent, recorded) = (None, position);
        Self { stage, before, to: None, is_backwards, shifts, critical, position, sent, recorded }
    }

    fn is_moving(&self) -> bool {
        self.stage == Stage::Moving
    }

    fn begin(&mut self, to: &NewGeometry) {
        let is_moved = to.data_move != DataMove::Stays;
        self.stage = if is_moved { Stage::Beginning } else { Stage::Ending };
        self.before = to.before.clone();
        self.shifts = (to.data_move.shift(), to.data_move.shift());
        self.position = match to.data_move.is_backwards() {
            true => Sector(to.geometry.array_sectors().0),
            false => Sector(0),
        };
        self.recorded = self.position;
    }

    /// Whether the next window may begin, as far as superblocks go.
    pub(crate) fn may_move(&self) -> bool {
        self.is_moving() && self.recorded == self.position
    }

    /// Where a run that goes on is, and where it ends.
    pub(crate) fn run(&self, after: &Geometry) -> Option<Range<u64>> {
        let (at, end) = match after {
            Geometry::Parity(after) => (rows(after, self.position.0).0, after.used().0),
            Geometry::Raid10(after) => (self.position.0, after.array_sectors().0),
            _ => return None,
        };
        let from = if self.is_backwards { end - at } else { at };
        let is_stuck = from < end && self.free(after) <= from;
        (self.is_moving() && !is_stuck).then_some(from..end)
    }

    /// The reshape of a RAID10.
    fn raid10<'a>(&'a self, after: &'a Geometry) -> Option<Raid10Reshape<'a>> {
        let (Geometry::Raid10(before), Geometry::Raid10(after)) = (&self.before, after) else {
            return None;
        };
        let is_backwards = self.is_backwards;
        let shift = if is_backwards { self.shifts.0 } else { self.shifts.1 };
        Some(Raid10Reshape { before, after, shift, is_backwards })
    }

    /// Up to where nothing is overwritten that was not moved yet, in the run's sectors.
    fn free(&self, after: &Geometry) -> u64 {
        if let Some(it) = self.raid10(after) {
            let reach = it.reach(self.recorded.0);
            return if self.is_backwards { it.after.array_sectors().0 - reach } else { reach };
        }
        let (Geometry::Parity(before), Geometry::Parity(after)) = (&self.before, after) else {
            return 0;
        };
        let (end, held) = (after.used().0, before.array_sectors().0);
        let position = self.recorded.0;
        match self.is_backwards {
            // Nothing of the old geometry is left.
            false if position >= held => end,
            false => {
                let row = rows(before, position).0.saturating_add_signed(-self.shifts.1);
                (row - row % self.unit(after)).min(end)
            }
            true => {
                let needed = rows(before, position.min(held)).1;
                let row = needed.saturating_add_signed(-self.shifts.0);
                end.saturating_sub(row.next_multiple_of(self.unit(after)))
            }
        }
    }

    /// Linux takes no position on record that is not at a multiple of so many sectors of each member: the larger chunk.
    fn unit(&self, after: &Parity) -> u64 {
        let Geometry::Parity(before) = &self.before else { return after.chunk().0 };
        before.chunk().0.max(after.chunk().0)
    }

    /// Chunks of data in a stripe of the old geometry, if that has parity.
    fn stripe_chunks(&self) -> u64 {
        match &self.before {
            Geometry::Parity(before) => before.data_disks().into(),
            _ => 1,
        }
    }

    /// Up to where the window goes that begins there, in the run's sectors. `is_busy`: requests come meanwhile.
    pub(crate) fn stop(&self, after: &Geometry, start: u64, is_busy: bool) -> u64 {
        let free = self.free(after);
        let (end, unit, across) = match after {
            Geometry::Parity(after) => {
                (after.used().0, self.unit(after), u64::from(after.data_disks()))
            }
            Geometry::Raid10(after) => (after.array_sectors().0, after.chunk().0, 1),
            _ => return start,
        };
        let to_turn = unit * self.stripe_chunks();
        let height = match is_busy {
            true => (BUSY_WINDOW_SECTORS / across).max(to_turn).min(WINDOW_SECTORS / across),
            false => WINDOW_SECTORS / across,
        };
        let height = (height - height % unit).max(unit);
        // Backwards it is rows from the array's beginning that are multiples.
        let whole = |at: u64, unit: u64| {
            let odd = if self.is_backwards { end % unit } else { 0 };
            at.saturating_sub(odd) / unit * unit + odd
        };
        let most = free.min(whole(start + height, unit)).min(end).max(start);
        // Where stripes of both geometries end the reshape can be turned back.
        let turn = whole(most, to_turn);
        let stop = if most < end && (start + 1..=most).contains(&turn) { turn } else { most };
        // Order that holds, point 14.
        assert!(stop == start || stop <= free, "a window to {stop} reaches what was not moved");
        stop
    }

    /// The array's sectors that a window of the run moves.
    pub(crate) fn sectors(&self, after: &Geometry, window: Range<u64>) -> Range<u64> {
        let end = match after {
            Geometry::Parity(after) => after.used().0,
            after => after.array_sectors().0,
        };
        let rows = match self.is_backwards {
            true => end - window.end..end - window.start,
            false => window,
        };
        let Geometry::Parity(after) = after else { return rows };
        let at = |row: u64| row / after.chunk().0 * after.stripe_data().0;
        at(rows.start)..at(rows.end)
    }

    /// What of some sectors has data in the old geometry; the rest of them is to read as zeros.
    pub(crate) fn held(&self, sectors: Range<u64>) -> Range<u64> {
        let held = self.before.array_sectors().0;
        sectors.start.min(held)..sectors.end.min(held)
    }

    /// All up to there in the run was moved.
    fn moved(&mut self, after: &Geometry, done: u64) -> bool {
        let sectors = self.sectors(after, 0..done);
        let position = Sector(if self.is_backwards { sectors.start } else { sectors.end });
        let is_news = position != self.position;
        self.position = position;
        is_news
    }

    /// What superblocks are to say that are sent now; none if they are to say that there is no reshape.
    pub(crate) fn send(&mut self, after: &Geometry) -> Option<Frontier> {
        self.sent = Some((self.position, self.stage));
        use Stage::{Beginning, Critical, Emptying, Lost, Moving};
        let is_told =
            matches!(self.stage, Beginning | Critical | Lost | Emptying(After::Moved) | Moving);
        is_told.then(|| self.frontier_at(after, self.position))
    }

    fn frontier_at(&self, after: &Geometry, position: Sector) -> Frontier {
        let row = match after {
            Geometry::Parity(after) => rows(after, position.0).0,
            _ => 0,
        };
        let is_backwards = self.is_backwards;
        Frontier { position, member_sector: Sector(row), is_backwards }
    }
}

impl Supervisor {
    /// Gives the array another geometry; [`Event::ShapeChanged`] tells when it has it. The first spares get the slots that
    /// come to it. False: something but a RAID4's parity is missing, or to be recovered or resynced, is on record as bad, runs or is being
    /// changed; there are too few spares; the geometries are not both of parity or both a RAID10; or data would be
    /// overwritten that was not moved yet.
    pub fn handle_reshape(&mut self, now: Time, to: NewGeometry) -> bool {
        if !self.may_begin_reshape(now, &to) {
            return false;
        }
        let before = self.geometry.clone();
        let is_backwards = to.data_move.is_backwards();
        let mut reshape = Reshape::new(Stage::Levelling, before, Sector(0), is_backwards);
        let critical = critical_section(&to.before, &to.geometry, to.data_move);
        (reshape.critical, reshape.to) = (critical.map(Critical::of), Some(to));
        self.reshape = Some(reshape);
        self.updates.request();
        if self.bitmap.is_some() {
            self.bitmap_change = Some(BitmapChange::new(None));
        }
        self.act(now);
        true
    }

    fn may_begin_reshape(&self, now: Time, to: &NewGeometry) -> bool {
        let is_at_end = self.stopping || self.broken || self.is_frozen();
        let is_busy = self.is_changing_bitmap() || self.sync_progress(now).is_some();
        !is_at_end && !is_busy && !self.is_size_unheard() && self.is_fit_for(to)
    }

    /// Whether members are such that the reshape can begin.
    fn is_fit_for(&self, to: &NewGeometry) -> bool {
        let shift = to.data_move.shift();
        let (old, new) = (self.geometry.raid_disks(), to.geometry.raid_disks());
        let spares = self.members.iter().filter(|m| m.state() == DiskState::Spare).count();
        let is_moved = to.data_move != DataMove::Stays;
        let holds_data = is_moved || to.geometry.level() == Level::Linear;
        let needed = if holds_data { new.saturating_sub(old) } else { 0 };
        let is_logged = |m: &Member| m.superblock().has_journal() || m.superblock().has_ppl();
        let is_unfit = |m: &Member| m.is_incomplete() || m.log().has_bad_blocks() || is_logged(m);
        let lacks_room = |m: &Member| {
            let room = m.superblock().data_size().0.saturating_add_signed(-shift);
            m.superblock().data_size().0.min(room) < to.geometry.component().0
        };
        let mut present = self.members.iter().filter(|m| m.is_present());
        keeps_up(&to.before, &to.geometry, to.data_move)
            && (is_moved || lie_alike(&to.before, &to.geometry))
            && spares >= usize::from(needed)
            && !self.lacks_data()
            && self.resync_from().is_none()
            && to.geometry.array_sectors() >= self.usable()
            && !present.any(|m| is_unfit(m) || lacks_room(m))
            && self.may_move_in_place(to)
    }

    /// Whether a slot of data, or of parity that takes turns with data, lacks a member in sync.
    #[must_use]
    pub fn lacks_data(&self) -> bool {
        planned::lacks_data(&self.geometry, &self.members)
    }

    /// Whether a slot of nothing but parity is to stay empty, though there are spares: the array is to be a RAID0, whose data
    /// they are for.
    pub fn leave_parity(&mut self, leaves: bool) {
        self.leaves_parity = leaves;
    }

    /// Whether anything stands in for data, so that a write may leave it half done. A RAID0 that goes by a level of parity for
    /// a while lacks that. During a reshape either array may have it.
    pub(crate) fn may_be_half_written(&self) -> bool {
        let has_it = |geometry: &Geometry, is_before: bool| {
            let is_there = |slot| self.members.holds(slot, is_before);
            let parity = slot_of_parity(geometry);
            geometry.level().has_redundancy() && parity.is_none_or(is_there)
        };
        self.geometries_in_use().any(|(geometry, is_before)| has_it(geometry, is_before))
    }

    /// Where the geometries meet, as superblocks say it, if the array is being reshaped.
    #[must_use]
    pub fn frontier(&self) -> Option<Frontier> {
        let has_begun = |it: &&Reshape| !matches!(it.stage, Stage::Levelling | Stage::Wanted);
        let reshape = self.reshape.as_ref().filter(has_begun)?;
        // What was moved over itself is nowhere else, whether superblocks still say so or not.
        let is_moved = self.broken && reshape.stage == Stage::Critical;
        let at = if is_moved { reshape.position } else { reshape.recorded };
        Some(reshape.frontier_at(&self.geometry, at))
    }

    /// Whether all that was moved is on record.
    #[must_use]
    pub fn is_frontier_recorded(&self) -> bool {
        self.reshape.as_ref().is_none_or(Reshape::may_move)
    }

    /// Whether a reshape begins or ends, for which superblocks are to be written and shards are to be told.
    pub(crate) fn is_reshape_to_settle(&self) -> bool {
        self.reshape.as_ref().is_some_and(|reshape| !reshape.is_moving()) && !self.broken
    }

    /// Whether a reshape has nothing to move any more.
    pub(crate) fn is_reshape_at_end(&self) -> bool {
        let is_at_end = |it: &Reshape| matches!(it.stage, Stage::Ending | Stage::Ended);
        self.reshape.as_ref().is_some_and(is_at_end)
    }

    /// The geometry from which the array is being reshaped.
    #[must_use]
    pub fn geometry_before(&self) -> Option<&Geometry> {
        self.reshape.as_ref().map(|reshape| &reshape.before)
    }

    /// The array's geometry, and during a reshape the one before, until nothing is held by that alone any more; whether it is
    /// the one before.
    pub(crate) fn geometries_in_use(&self) -> impl Iterator<Item = (&Geometry, bool)> {
        let is_needed = |it: &&Reshape| !matches!(it.stage, Stage::Ending | Stage::Ended);
        let before = self.reshape.as_ref().filter(is_needed).map(|it| (&it.before, true));
        before.into_iter().chain([(&self.geometry, false)])
    }

    /// Whether [`Self::begin_reshape`] is due: shards are to pause for that.
    #[must_use]
    pub fn is_reshape_wanted(&self) -> bool {
        let is_wanted = |it: &Reshape| matches!(it.stage, Stage::Wanted | Stage::BackedUp);
        self.reshape.as_ref().is_some_and(is_wanted) && self.bitmap.is_none() && !self.broken
    }

    /// Begins the reshape that is wanted, or the copy of its critical section, while all shards pause: what shards that keep the
    /// old geometry go by until it has ended, and what a shard that owns nothing then goes by. None: shards go on as they are,
    /// since data stays where it is, or members are not fit for it any more and nothing was begun.
    ///
    /// # Panics
    /// If none is wanted.
    pub fn begin_reshape(&mut self, now: Time) -> Option<(ShardGeometry, ShardGeometry)> {
        let reshape = self.reshape.as_mut().expect("one is wanted");
        let to = reshape.to.take().expect("it is begun once");
        let (lacks_backup, is_backed_up) =
            (reshape.lacks_backup(), reshape.stage == Stage::BackedUp);
        if !self.is_fit_for(&to) || !self.has_backups() || self.stopping {
            if is_backed_up {
                self.empty_backups(After::GivenUp);
                return None;
            }
            self.reshape = None;
            self.events.push_back(Event::ReshapeGivenUp);
            return None;
        }
        self.now = now;
        if lacks_backup {
            return self.begin_backup(to);
        }
        let Some(reshape) = &mut self.reshape else { return None };
        // Order that holds, point 14.
        let is_kept = reshape.critical.is_none() || is_backed_up;
        assert!(is_kept, "what is moved over itself is kept by nobody");
        reshape.begin(&to);
        self.geometry = to.before.clone();
        let before = self.shard_geometry();
        match to.data_move {
            DataMove::Stays => self.members.take_over(&to),
            DataMove::Moves { .. } => self.members.begin_reshape(&to),
        }
        if to.geometry.level().has_redundancy() && !to.before.level().has_redundancy() {
            self.safe_mode.become_active();
        }
        let sizes = [&to.before, &to.geometry].map(Geometry::array_sectors);
        self.usable.on_record(sizes[0].min(sizes[1]));
        self.geometry = to.geometry;
        self.updates.request();
        self.act(now);
        (to.data_move != DataMove::Stays).then(|| (before, self.shard_geometry()))
    }

    /// Whether all shards are to take the array's geometry now, so that [`Self::reshape_told`] is due.
    #[must_use]
    pub fn has_geometry_to_tell(&self) -> bool {
        let is_to_tell = |it: &Reshape| matches!(it.stage, Stage::Ended | Stage::GivenUp);
        self.reshape.as_ref().is_some_and(is_to_tell)
    }

    /// Every shard has taken the array's geometry.
    pub fn reshape_told(&mut self, now: Time) {
        assert!(self.has_geometry_to_tell(), "it has ended on record, or was not begun");
        if self.reshape.take().is_some_and(|reshape| reshape.stage == Stage::GivenUp) {
            self.events.push_back(Event::ReshapeGivenUp);
            return self.act(now);
        }
        self.scheduler.fit_span(owned_unit(&self.geometry));
        self.usable.on_record(self.geometry.array_sectors());
        self.events.push_back(Event::Resized(self.usable()));
        self.events.push_back(Event::ShapeChanged);
        self.act(now);
    }

    /// What shards of the array that a reshape makes go by, while that is under way or once it has ended.
    #[must_use]
    pub fn shard_geometry(&self) -> ShardGeometry {
        let has_logs = self.reshape.is_none() || self.has_geometry_to_tell();
        let place = |m: &Member| MemberPlace {
            data_offset: m.superblock().data_offset(),
            slot: m.slot().filter(|slot| m.is_present() && slot.0 < self.geometry.raid_disks()),
            has_log: has_logs && m.log().is_kept(),
        };
        ShardGeometry {
            geometry: self.geometry.clone(),
            places: self.members.iter().map(place).collect(),
            in_sync_to: self.resync_from().unwrap_or(FULLY_TRUSTED),
        }
    }

    /// Takes up a reshape that was under way when the array was started.
    pub(crate) fn take_up_reshape(&mut self, begun: ReshapeInProgress) {
        let ReshapeInProgress { before, superblocks, slots, position, is_backwards } = begun;
        let mut reshape = Reshape::new(Stage::Moving, before, position, is_backwards);
        reshape.shifts = self.members.take_up_reshape(superblocks, &slots);
        let sizes = [&reshape.before, &self.geometry].map(Geometry::array_sectors);
        self.usable.on_record(sizes[0].min(sizes[1]));
        self.reshape = Some(reshape);
    }

    /// The run has come so far.
    pub(crate) fn raise_moved(&mut self, done: u64) {
        let Some(reshape) = &mut self.reshape else { return };
        if reshape.moved(&self.geometry, done) {
            self.updates.request();
        }
    }

    /// The run has come to its end.
    pub(crate) fn all_moved(&mut self) {
        if let Some(reshape) = &mut self.reshape {
            reshape.stage = Stage::Ending;
            self.members.end_reshape();
            self.updates.request();
        }
    }

    /// An update is stable on all members.
    pub(crate) fn reshape_recorded(&mut self) {
        let Some(reshape) = &mut self.reshape else { return };
        // Those of the stage before may still have been on their way.
        let Some((position, stage)) = reshape.sent.filter(|sent| sent.1 == reshape.stage) else {
            return;
        };
        reshape.recorded = position;
        match stage {
            Stage::Levelling => reshape.stage = Stage::Wanted,
            Stage::Beginning => {
                reshape.stage = reshape.move_critical();
                self.events.push_back(Event::ReshapeBegan);
            }
            Stage::Critical if position > Sector(0) => self.empty_backups(After::Moved),
            Stage::Ending => reshape.stage = Stage::Ended,
            _ => {}
        }
    }
}

impl Shard {
    /// Goes by another geometry, of which it owns nothing yet.
    ///
    /// # Panics
    /// If something is under way.
    pub fn take_geometry(&mut self, now: Time, to: &ShardGeometry) {
        assert!(self.is_idle(), "who has something under way keeps its geometry");
        self.now = now;
        self.replace_geometry(to.geometry.clone());
        self.members.place_anew(to.geometry.raid_disks(), &to.places);
        self.in_sync.set_to(to.in_sync_to);
    }
}

/// Whether what is written never comes upon what was not moved yet, to the array's end: where there are fewer members for
/// data, it is written from the end on, at least a chunk further on.
fn keeps_up(before: &Geometry, after: &Geometry, data_move: DataMove) -> bool {
    let DataMove::Moves { shift, is_backwards } = data_move else { return true };
    match (before, after) {
        (Geometry::Parity(before), Geometry::Parity(after)) => {
            let chunk = before.chunk().max(after.chunk()).0 as i64;
            after.data_disks() >= before.data_disks() || is_backwards && shift >= chunk
        }
        (Geometry::Raid10(before), Geometry::Raid10(after)) => {
            Raid10Reshape { before, after, shift, is_backwards }.is_possible()
        }
        _ => false,
    }
}

/// Sectors of the array that one shard is to own as a whole.
pub(crate) fn owned_unit(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Parity(parity) => parity.stripe_data().0,
        Geometry::Raid0(raid0) => raid0.chunk().0,
        Geometry::Raid10(raid10) => raid10.chunk().0,
        Geometry::Linear(_) | Geometry::Mirror(_) => 8,
    }
}

/// By how much data moves on members of the old geometry, least and most.
pub(crate) fn shifts<'a>(
    before: &[Superblock],
    after: impl Iterator<Item = &'a Superblock>,
) -> (i64, i64) {
    let members = before.iter().zip(after);
    let old = members.filter(|(before, _)| matches!(before.role(), Role::Active(_)));
    let shift = |(before, after): (&Superblock, &Superblock)| {
        after.data_offset().0.wrapping_sub(before.data_offset().0) as i64
    };
    let all: Vec<i64> = old.map(shift).collect();
    let least = all.iter().min().copied().unwrap_or(0);
    (least, all.iter().max().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use lapstrake_geometry::{Config, Layout, ParityLayout, Sectors};

    fn raid5(raid_disks: u16, chunk: u64, component: u64) -> Geometry {
        let layout = Layout::Parity(ParityLayout::LeftSymmetric);
        let (chunk, component) = (Sectors(chunk), Sectors(component));
        let member_sizes = Vec::new();
        let level = Level::Raid5;
        Geometry::new(&Config { level, layout, chunk, raid_disks, component, member_sizes })
            .unwrap()
    }

    /// What would be lost: what a window is written over that was not moved yet, which [`Reshape::stop`] asserts.
    #[test]
    fn windows_follow_each_other_to_the_end_whatever_is_left_over() {
        let counts = [(3, 4), (4, 3), (5, 5), (3, 8), (8, 3), (11, 11), (11, 10)];
        for (old, new) in counts {
            for (chunks, chunk, is_backwards) in
                [(1002, 128, true), (37, 2048, true), (37, 128, false)]
            {
                for more in 0..13 {
                    if !is_backwards && new < old || is_backwards && new > old {
                        continue;
                    }
                    let component = (chunks + more) * chunk;
                    let [before, after] = [old, new].map(|disks| raid5(disks, chunk, component));
                    let end = after.array_sectors();
                    let start = Sector(if is_backwards { end.0 } else { 0 });
                    let mut reshape = Reshape::new(Stage::Moving, before, start, is_backwards);
                    let shift = chunk as i64 * if is_backwards { 1 } else { -1 };
                    reshape.shifts = (shift, shift);
                    let (mut done, mut windows) = (0, 0);
                    while done < component {
                        let stop = reshape.stop(&after, done, windows % 3 == 0);
                        assert!(stop > done, "it is stuck at {done} of {component}");
                        reshape.moved(&after, stop);
                        reshape.recorded = reshape.position;
                        (done, windows) = (stop, windows + 1);
                        assert!(windows < 5000, "it never ends");
                    }
                }
            }
        }
    }

    /// Writes in a window wait for it.
    #[test]
    fn windows_are_small_while_requests_come() {
        // In the middle of a growth there is room for any window.
        let height = |chunk: u64, is_busy| {
            let component = 4096 * chunk;
            let [before, after] = [3, 4].map(|disks| raid5(disks, chunk, component));
            let row = component / 2;
            let position = Sector(row * 3);
            let mut reshape = Reshape::new(Stage::Moving, before, position, false);
            reshape.shifts = (0, 0);
            (reshape.stop(&after, row, is_busy) - row) * 3
        };
        // Up to where stripes of both geometries end.
        assert_eq!((height(128, true), height(128, false)), (3840, 32256));
        // Two stripes' chunks of 2 MiB are more than 2 MiB.
        assert_eq!((height(4096, true), height(4096, false)), (24576, 24576));
    }
}
