//! The write-intent bitmap of a running array taken away, added, or made anew with another chunk or in
//! another place: always an end and then a beginning.
//!
//! Invariants, for a cut at any moment:
//! - superblocks of every member say that the bitmap is there no more before a shard stops waiting for its
//!   bits, and before its place is used for another;
//! - from the moment that it is to end its event count stands still, so that what is left of it is behind
//!   every superblock that does not know of it, and counts as stale;
//! - all pages of a new bitmap are stable with all bits set before a superblock says that it is there, and
//!   no bit of it is cleared before each shard has told of what it was writing when it heard of it.

use crate::{
    membership::Member,
    messages::{BitmapTerms, Order},
    supervisor::{Event, Supervisor},
    types::Time,
    write_intent_bitmap::WriteIntentBitmap,
};
use lapstrake_geometry::Sector;
use lapstrake_metadata::bitmap;

/// A bitmap that is to be kept from now on.
#[derive(Clone, Debug)]
pub struct NewBitmap {
    /// Its chunk, size and the array's UUID; events are filled in.
    pub superblock: bitmap::Superblock,
    /// Sectors from each member's superblock; none if it is in a file.
    pub offset: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits until no update is under way that says otherwise.
    Wanted,
    /// Superblocks are to say that the old one is no more.
    Ending,
    /// They do, and shards may still write under its bits until they hear so.
    Ended,
    /// Superblocks are to say that the new one is there.
    Adding,
}

/// A change under way.
#[derive(Debug)]
pub(crate) struct BitmapChange {
    to: Option<NewBitmap>,
    stage: Stage,
}

impl BitmapChange {
    pub(crate) fn new(to: Option<NewBitmap>) -> Self {
        Self { to, stage: Stage::Wanted }
    }
}

impl Supervisor {
    /// Gives the array another bitmap, or none; [`Event::BitmapChanged`] tells when it has it. False: the
    /// array has no use for one (no redundancy, or a journal or logs instead), members are being mended,
    /// another change is under way, or a lockless bitmap is to go while members are missing, and redundancy would have
    /// to be made right everywhere without it.
    pub fn handle_bitmap(&mut self, now: Time, to: Option<NewBitmap>) -> bool {
        let is_redundant = self.geometry.level().has_redundancy();
        let is_busy = self.is_changing_bitmap() || self.sync_progress(now).is_some();
        let is_logged = |m: &Member| m.superblock().has_journal() || m.superblock().has_ppl();
        let has_use = is_redundant && !self.members.iter().any(is_logged);
        let is_last_guide = self.is_bitmap_last_guide() && (self.is_degraded() || to.is_some());
        if !has_use || is_busy || self.stopping || self.broken || is_last_guide {
            return false;
        }
        self.bitmap_change = Some(BitmapChange::new(to));
        self.act(now);
        true
    }

    /// Whether nothing but the lockless bitmap tells where redundancy is not right: where it names such chunks; and on
    /// levels with copies in any case, since kernels call chunks clean that were never made equal.
    #[must_use]
    pub fn is_bitmap_last_guide(&self) -> bool {
        let is_parity = self.geometry.level().is_parity();
        let lockless = self.bitmap.as_ref().filter(|bitmap| bitmap.is_lockless());
        lockless.is_some_and(|bitmap| !is_parity || bitmap.has_unsynced())
    }

    /// How many chunks of a lockless bitmap are in each state, in the order of [`bitmap::ChunkState::ALL`].
    #[must_use]
    pub fn bitmap_states(&self) -> Option<[u64; 8]> {
        self.bitmap.as_ref().and_then(WriteIntentBitmap::count_states)
    }

    /// The bitmap's superblock as it was last changed.
    #[must_use]
    pub fn bitmap(&self) -> Option<&bitmap::Superblock> {
        self.bitmap.as_ref().map(WriteIntentBitmap::superblock)
    }

    /// The internal bitmap's place, from each superblock.
    #[must_use]
    pub fn bitmap_offset(&self) -> Option<i32> {
        self.members.iter().find(|m| m.is_present()).and_then(|m| m.superblock().bitmap_offset())
    }

    /// Whether superblocks are to deny the bitmap that there still is.
    pub(crate) fn is_bitmap_ending(&self) -> bool {
        self.bitmap_change.as_ref().is_some_and(|c| matches!(c.stage, Stage::Ending | Stage::Ended))
    }

    /// The bitmap's file is gone, though it may take writes still: another may come in its place.
    pub fn handle_bitmap_gone(&mut self, now: Time) {
        self.lose_bitmap();
        self.act(now);
    }

    /// Whether the bitmap is being changed, or given up, or is about to be.
    #[must_use]
    pub fn is_changing_bitmap(&self) -> bool {
        self.bitmap_change.is_some() || self.is_changing_shape()
    }

    /// The bitmap's file refuses writes. The array goes on without a bitmap, as md's does.
    pub(crate) fn lose_bitmap(&mut self) {
        let Some(bitmap) = self.bitmap.as_mut().filter(|bitmap| !bitmap.is_lost()) else { return };
        bitmap.lose();
        // One that is about to end in any case is missed by nobody.
        let is_ending = self.bitmap_change.as_ref().is_some_and(|c| c.stage != Stage::Adding);
        if !is_ending {
            self.bitmap_change = Some(BitmapChange::new(None));
            self.events.push_back(Event::BitmapLost);
        }
    }

    /// Goes on with a change. Between updates, so that what an update says is of one stage.
    pub(crate) fn change_bitmap(&mut self) {
        let is_last_guide = self.is_bitmap_last_guide();
        let Some(change) = &mut self.bitmap_change else { return };
        if !self.updates.is_idle() {
            return;
        }
        let is_at_rest = self.bitmap.as_ref().is_none_or(WriteIntentBitmap::is_at_rest);
        match (change.stage, &mut self.bitmap) {
            (Stage::Wanted, Some(bitmap)) => {
                bitmap.retire();
                change.stage = Stage::Ending;
                self.updates.request();
                if is_last_guide {
                    // The superblocks that deny the bitmap say so at once.
                    self.scheduler.lose_resync_place();
                    self.orders.push_back(Order::InSync(Sector(0)));
                }
            }
            (Stage::Ended, Some(_)) if is_at_rest => {
                self.bitmap = None;
                self.members.set_bitmap_offsets(None);
                self.orders.push_back(Order::Bitmap(None));
                self.add_bitmap();
            }
            (Stage::Wanted, None) => self.add_bitmap(),
            _ => {}
        }
    }

    fn add_bitmap(&mut self) {
        let Some(change) = &mut self.bitmap_change else { return };
        let Some(NewBitmap { mut superblock, offset }) = change.to.take() else {
            self.bitmap_change = None;
            return self.events.push_back(Event::BitmapChanged);
        };
        change.stage = Stage::Adding;
        superblock.events = self.updates.events();
        // The update that says that it is there brings it down.
        superblock.events_cleared = u64::MAX;
        self.bitmap = Some(WriteIntentBitmap::added(superblock, offset.is_none(), self.shards));
        self.members.set_bitmap_offsets(offset);
        self.updates.request();
    }

    /// An update that began in the present stage is stable on all members.
    pub(crate) fn bitmap_recorded(&mut self) {
        let Some(change) = &mut self.bitmap_change else { return };
        match (change.stage, &mut self.bitmap) {
            // An update that only gives all members one count may leave them at the bitmap's own.
            (Stage::Ending, Some(bitmap)) if bitmap.superblock().events < self.updates.events() => {
                change.stage = Stage::Ended;
            }
            // The next one counts an event.
            (Stage::Ending, Some(_)) => self.updates.request(),
            (Stage::Adding, Some(bitmap)) => {
                let terms = BitmapTerms::of(bitmap.superblock());
                self.bitmap_change = None;
                self.orders.push_back(Order::Bitmap(Some(terms)));
                self.events.push_back(Event::BitmapChanged);
                let is_whole = self.resync_from().is_none() && !self.is_degraded();
                if let Some(bitmap) = &mut self.bitmap {
                    bitmap.in_use(is_whole);
                }
            }
            _ => {}
        }
    }
}
