//! What a sync action goes by: which chunks of the bitmap have something to do in it.
//!
//! | run | bitmap of bits | lockless |
//! |---|---|---|
//! | recovery of members that only missed some | set | set |
//! | other recovery | everything | what was ever written |
//! | resync that is due | set | what needs one |
//! | check, repair | everything | where redundancy is right |

use crate::{
    messages::Order,
    supervisor::Supervisor,
    sync::SyncAction,
    types::MemberId,
    write_intent_bitmap::{Guide, WriteIntentBitmap},
};
use lapstrake_geometry::{Geometry, Sector};

impl Supervisor {
    /// Records how far a resync has come that goes by a lockless bitmap.
    pub(super) fn raise_synced(&mut self) {
        let Some(run) = self.scheduler.run() else { return };
        let (done, is_end) = (run.done(), run.done() >= run.end());
        if !self.has_to_compare() {
            return;
        }
        if self.scheduler.resync_reached(Sector(done)) {
            self.orders.push_back(Order::InSync(Sector(done)));
        }
        if !self.is_degraded()
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.synced_to(done, is_end, &mut self.orders);
        }
    }

    pub(super) fn has_lockless(&self) -> bool {
        self.bitmap.as_ref().is_some_and(WriteIntentBitmap::is_lockless)
    }

    /// Whether a resync of what was written under a lockless bitmap will begin by itself.
    #[must_use]
    pub fn awaits_lazy_resync(&self) -> bool {
        let is_held =
            self.scheduler.is_halted() || self.scheduler.is_frozen() || self.is_degraded();
        let is_over = self.stopping || self.broken || self.bitmap_change.is_some();
        self.has_chunks_to_resync() && !self.scheduler.is_running() && !is_held && !is_over
    }

    /// Whether a lockless bitmap names chunks that are still to be resynced.
    #[must_use]
    pub fn has_chunks_to_resync(&self) -> bool {
        self.bitmap.as_ref().is_some_and(WriteIntentBitmap::has_needed)
    }

    /// Whether chunks are to be resynced that were written for the first time, or that the last who served it left so.
    pub(super) fn is_lazy_resync_due(&self) -> bool {
        let is_due = self.bitmap.as_ref().is_some_and(|bitmap| bitmap.is_sync_due(self.now));
        is_due && self.bitmap_change.is_none() && !self.is_degraded()
    }

    /// What a run goes by.
    pub(super) fn guide_of(&self, action: SyncAction, targets: &[MemberId]) -> Option<Guide> {
        let bitmap = self.bitmap.as_ref()?;
        let catches_up = |id: &MemberId| self.members.get(*id).catches_up();
        let lockless = bitmap.is_lockless();
        match action {
            // What is about to go guides nobody: redundancy is to be right everywhere then.
            _ if lockless && self.bitmap_change.is_some() => None,
            SyncAction::Recovery if targets.iter().all(catches_up) => Some(Guide::Set),
            SyncAction::Recovery => lockless.then_some(Guide::Written),
            SyncAction::Resync if lockless => {
                let is_wanted =
                    self.scheduler.wanted() == Some(action) && !self.is_lazy_resync_due();
                (self.resync_from().is_some() || !is_wanted).then_some(Guide::Needed)
            }
            // A repair that is called a resync goes everywhere.
            SyncAction::Resync => self.resync_from().map(|_| Guide::Set),
            SyncAction::Check | SyncAction::Repair => lockless.then_some(Guide::Synced),
            SyncAction::Reshape | SyncAction::Rewrite => None,
        }
    }

    /// The bitmap, if a run goes by it that counts the same sectors.
    pub(super) fn guide(&self) -> Option<(&WriteIntentBitmap, Guide)> {
        let run = self.scheduler.run()?;
        let is_raid10 = matches!(self.geometry, Geometry::Raid10(_));
        let bitmap = self.bitmap.as_ref();
        let bitmap = bitmap.filter(|_| !is_raid10 || run.action() != SyncAction::Recovery);
        bitmap.zip(run.guide())
    }

    /// The next window begins where the bitmap has something to do.
    pub(super) fn skip_clean(&mut self) {
        let Some(run) = self.scheduler.run() else { return };
        let Some((bitmap, guide)) = self.guide() else { return };
        let next = bitmap.next(guide, run.next()).map_or(run.end(), |at| at.min(run.end()));
        self.scheduler.skip_to(next);
    }

    /// Where a window ends that begins so: where the bitmap has nothing to do, but before `stop`.
    pub(super) fn dirty_until(&self, start: u64, stop: u64) -> u64 {
        self.guide().map_or(stop, |(bitmap, guide)| bitmap.until(guide, start, stop))
    }

    /// Whether the bitmap has something to do in these array sectors.
    pub(super) fn is_dirty(&self, guide: Guide, start: u64, end: u64) -> bool {
        let Some(bitmap) = &self.bitmap else { return true };
        match &self.geometry {
            Geometry::Parity(parity) => {
                let at = |sector: u64| sector / parity.stripe_data().0 * parity.chunk().0;
                bitmap.is_any(guide, at(start), at(end))
            }
            _ => bitmap.is_any(guide, start, end),
        }
    }
}
