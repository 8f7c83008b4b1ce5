//! Another size of what each member holds, or another number of copies, while the array is served: what moves no block.
//!
//! Invariants, for a cut at any moment:
//! - superblocks of every member say the new shape, and that a resync is due from the old end on, before a shard takes
//!   requests by it; every shard does before [`Event::Resized`] tells clients. A cut before leaves the old shape or the
//!   new one, of which nobody has used more than the old;
//! - a bitmap that does not fit the new size ends before superblocks say that, and comes back after it;
//! - no sync action runs meanwhile, so that none ends at an end that has moved.
//!
//! Which part of the array can be used is kept here, too. It is on no record, as with md.

use crate::{
    bitmap_change::{BitmapChange, NewBitmap},
    membership::Member,
    messages::Order,
    recovery::sync_end,
    supervisor::{Event, Supervisor},
    types::Time,
};
use lapstrake_geometry::{Geometry, Sector, Sectors};

/// What an array is to become.
#[derive(Clone, Debug)]
pub struct NewShape {
    /// Of the same level, layout and chunk.
    pub geometry: Geometry,
    /// The bitmap of the new size, if the array has one and the size changes.
    pub bitmap: Option<NewBitmap>,
    /// What comes to it needs no resync.
    pub assume_clean: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits until no update is under way, and for the bitmap's end.
    Wanted,
    /// Superblocks are to say the new shape.
    Recording,
    /// They do, and shards are told.
    Telling,
    /// They know, and the bitmap comes back.
    Rebitmapping,
}

/// A change under way.
#[derive(Debug)]
pub(crate) struct ShapeChange {
    to: NewShape,
    stage: Stage,
}

/// How much of the array can be used.
#[derive(Clone, Debug)]
pub(crate) struct UsableSize {
    /// What the superblocks of all members say.
    on_record: Sectors,
    /// The operator wants no more than this.
    most: Option<Sectors>,
    /// Shards that have not heard of the last change.
    unheard: u32,
}

impl UsableSize {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self { on_record: geometry.array_sectors(), most: None, unheard: 0 }
    }

    /// Superblocks say so much.
    pub(crate) fn on_record(&mut self, sectors: Sectors) {
        self.on_record = sectors;
    }

    pub(crate) fn now(&self) -> Sectors {
        self.most.map_or(self.on_record, |most| most.min(self.on_record))
    }
}

impl Supervisor {
    /// Gives the array another shape; [`Event::ShapeChanged`] tells when it has it. False: there is nothing to record it
    /// with (no redundancy), sync actions run or are due, something else is being changed, members would be too small, or
    /// lose their slots, or what can be used would be cut; or there is a journal, a log or a lockless bitmap.
    pub fn handle_shape(&mut self, now: Time, to: NewShape) -> bool {
        if !self.may_take_shape(now, &to) {
            return false;
        }
        self.shape_change = Some(ShapeChange { to, stage: Stage::Wanted });
        self.act(now);
        true
    }

    fn may_take_shape(&self, now: Time, to: &NewShape) -> bool {
        let level = self.geometry.level();
        let is_other = to.geometry.level() != level || !level.has_redundancy();
        let is_busy = self.is_changing_bitmap() || self.sync_progress(now).is_some();
        let is_logged = |m: &Member| m.superblock().has_journal() || m.superblock().has_ppl();
        let has_other_guide = self.members.iter().any(is_logged)
            || self.bitmap.as_ref().is_some_and(|bitmap| bitmap.is_lockless());
        let grows = to.geometry.component() > self.geometry.component();
        let lacks = |member: &Member| {
            member.is_present() && member.superblock().data_size() < to.geometry.component()
        };
        let is_cut = to.geometry.array_sectors() < self.usable.now();
        let is_lost = self.members.in_slots_from(to.geometry.raid_disks()).is_some();
        let is_unfit = is_cut || is_lost || self.members.iter().any(lacks);
        let lacks_bitmap = to.geometry.component() != self.geometry.component()
            && self.bitmap.is_some() != to.bitmap.is_some();
        let is_at_end = self.stopping || self.broken || self.usable.unheard > 0;
        !(is_other || is_busy || has_other_guide || is_unfit || lacks_bitmap || is_at_end)
            && !(grows && self.is_degraded())
    }

    /// Lets clients use so much of the array and no more; all of it if nothing is said. False: that is more than there
    /// is, or another change is under way.
    pub fn handle_usable(&mut self, now: Time, most: Option<Sectors>) -> bool {
        let is_busy = self.is_changing_shape() || self.usable.unheard > 0;
        if is_busy || self.stopping || most.is_some_and(|most| most > self.usable.on_record) {
            return false;
        }
        self.usable.most = most;
        self.tell_shape();
        self.act(now);
        true
    }

    /// Whether shards have yet to hear how much of the array clients may use.
    pub(crate) fn is_size_unheard(&self) -> bool {
        self.usable.unheard > 0
    }

    /// How much of the array clients may use.
    #[must_use]
    pub fn usable(&self) -> Sectors {
        self.usable.now()
    }

    /// The array's geometry, as superblocks say it.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether the array is becoming another.
    #[must_use]
    pub fn is_changing_shape(&self) -> bool {
        self.shape_change.is_some() || self.reshape.is_some()
    }

    /// Goes on with a change. Between updates, so that what an update says is of one stage.
    pub(crate) fn change_shape(&mut self) {
        let Some(change) = &mut self.shape_change else { return };
        if self.bitmap_change.is_some() || !self.updates.is_idle() || self.broken {
            return;
        }
        match change.stage {
            Stage::Wanted if self.bitmap.is_some() && change.to.bitmap.is_some() => {
                self.bitmap_change = Some(BitmapChange::new(None));
                self.change_bitmap();
            }
            // Who is behind already would be two events behind.
            Stage::Wanted if self.updates.is_uneven() => self.updates.request(),
            Stage::Wanted => self.record_shape(),
            Stage::Recording | Stage::Telling => {}
            Stage::Rebitmapping => {
                self.shape_change = None;
                self.events.push_back(Event::ShapeChanged);
            }
        }
    }

    fn record_shape(&mut self) {
        let Some(change) = &mut self.shape_change else { return };
        change.stage = Stage::Recording;
        let (old, new) = (sync_end(&self.geometry), sync_end(&change.to.geometry));
        if new > old && !change.to.assume_clean {
            self.scheduler.resync_due_from(Sector(old));
        }
        self.members.set_shape(&change.to.geometry);
        let small = self.members.lacks_room(change.to.geometry.component());
        assert!(small.is_none(), "{small:?} has no room for what the superblocks are to say");
        self.updates.request();
    }

    /// An update that began in the present stage is stable on all members.
    pub(crate) fn shape_recorded(&mut self) {
        let is_it = |change: &&mut ShapeChange| change.stage == Stage::Recording;
        if self.shape_change.as_mut().filter(is_it).is_some() {
            self.show_shape();
        }
    }

    fn show_shape(&mut self) {
        let Some(change) = &mut self.shape_change else { return };
        change.stage = Stage::Telling;
        self.geometry = change.to.geometry.clone();
        self.usable.on_record = self.geometry.array_sectors();
        self.orders.extend(self.resync_from().map(Order::InSync));
        self.tell_shape();
    }

    fn tell_shape(&mut self) {
        assert!(self.usable.now() <= self.usable.on_record, "what is not on record is not shown");
        self.usable.unheard = self.shards;
        self.orders.push_back(Order::Shape(self.geometry.clone(), self.usable.now()));
    }

    /// A shard takes requests by the last shape.
    pub(crate) fn shape_heard(&mut self) {
        let left = self.usable.unheard.checked_sub(1);
        self.usable.unheard = left.expect("a shard hears once");
        if self.usable.unheard > 0 {
            return;
        }
        self.events.push_back(Event::Resized(self.usable.now()));
        if let Some(change) = &mut self.shape_change {
            assert_eq!(change.stage, Stage::Telling, "a shape is told once it is on record");
            change.stage = Stage::Rebitmapping;
            let bitmap = change.to.bitmap.take();
            self.bitmap_change = bitmap.map(|bitmap| BitmapChange::new(Some(bitmap)));
        }
    }
}
