//! Members in and out on the operator's word, and which former member may come back as what.
//!
//! Invariant: who may hold writes that nobody else has is never taken for one that only missed some.

use super::{Member, MemberRecord};
use crate::{
    members::MemberConfig,
    messages::Order,
    supervisor::{Added, DiskState, Supervisor},
    types::{MemberId, Time},
};
use lapstrake_geometry::{Geometry, Sector};
use lapstrake_metadata::{Role, Superblock, badblocks::BadBlocks};

impl Supervisor {
    /// Takes in a member: one that was in the array and says so itself, or one that nothing is known
    /// of. Its superblock is written in any case. `rotational`: the device has a moving head.
    pub fn handle_add(
        &mut self,
        now: Time,
        mut superblock: Superblock,
        bad_blocks: Option<BadBlocks>,
        rotational: bool,
    ) -> (MemberId, Added) {
        assert!(self.reshape.is_none(), "an array that is being reshaped takes in nobody");
        let id = self.members.next_id();
        let slot = match superblock.role() {
            Role::Active(slot) if self.can_catch_up(&superblock) => Some(slot),
            _ => None,
        };
        superblock.set_bitmap_offset(self.bitmap_offset());
        let has_log = !self.bitmap.as_ref().is_some_and(|bitmap| bitmap.covers_log(&superblock));
        let bad_blocks = bad_blocks.filter(|_| has_log);
        // In no slot before it is told to fill one.
        let record = MemberRecord { superblock, slot: None, trusted_to: Sector(0), bad_blocks };
        self.orders.push_back(Order::MemberAdded(MemberConfig::new(&record, rotational)));
        let MemberRecord { superblock, bad_blocks, .. } = record;
        if let Some(slot) = slot {
            self.orders.push_back(Order::Slotted(id, slot));
        }
        self.members.add(superblock, bad_blocks, slot);
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.rewrite();
        }
        self.updates.request();
        self.scheduler.members_changed();
        self.act(now);
        (id, if slot.is_some() { Added::CatchesUp } else { Added::Spare })
    }

    /// Whether a member that says so of itself can be put back and get only what it has missed.
    #[must_use]
    pub fn can_catch_up(&self, superblock: &Superblock) -> bool {
        let Role::Active(slot) = superblock.role() else { return false };
        // Another one that had its number may come back, at the next start at the latest.
        let is_namesake = |m: &Member| {
            m.superblock.dev_number() == superblock.dev_number()
                && m.superblock.device_uuid() != superblock.device_uuid()
        };
        let in_the_way = |m: &Member| (m.is_present() && m.slot == Some(slot)) || is_namesake(m);
        let knows = self.bitmap.as_ref().is_some_and(|i| i.covers(superblock.events()))
            && superblock.bitmap_offset() == self.bitmap_offset()
            && self.bitmap_change.is_none();
        // It was away when the array got another size.
        let now = &self.members.get(MemberId(0)).superblock;
        let fits = superblock.component() == now.component()
            && superblock.raid_disks() == now.raid_disks()
            && slot.0 < self.geometry.raid_disks();
        let whole = fits && superblock.recovery_offset().is_none();
        let is_ours = !self.is_of_another_half(superblock);
        knows && whole && is_ours && !self.members.iter().any(in_the_way)
    }

    /// Whether the array was run without those that serve now: then it has writes of its own, which no bit of ours
    /// covers.
    fn is_of_another_half(&self, superblock: &Superblock) -> bool {
        let calls_failed = |m: &Member| {
            let its = superblock.role_of(m.superblock.dev_number());
            m.is_in_sync() && m.slot.is_some_and(|slot| its != Role::Active(slot))
        };
        superblock.events() > self.updates.events() || self.members.iter().any(calls_failed)
    }

    /// Whether a former member may hold writes that nobody else has.
    #[must_use]
    pub fn may_hold_writes_of_its_own(&self, superblock: &Superblock) -> bool {
        // Whoever left while we watched has none.
        let left_us = |m: &Member| {
            m.superblock.device_uuid() == superblock.device_uuid()
                && superblock.events() <= m.superblock.events()
        };
        let was_in_use = matches!(superblock.role(), Role::Active(_));
        was_in_use && !self.members.iter().any(left_us) && self.is_of_another_half(superblock)
    }

    /// Whether a parity level's redundancy is still to be made right, so that what a member holds cannot be had
    /// without it.
    #[must_use]
    pub fn needs_all(&self) -> bool {
        let names_chunks = self.has_chunks_to_resync();
        let is_due = self.resync_from().is_some() || names_chunks;
        is_due && matches!(self.geometry, Geometry::Parity(_))
    }

    /// Takes a member out for good. False: it is in use.
    pub fn handle_remove(&mut self, now: Time, member: MemberId) -> bool {
        let state = self.members.get(member).state;
        // Shards may use one yet that has no slot after a reshape.
        let is_let_go = self.members.get(member).slot.is_none() && self.is_reshape_to_settle();
        if is_let_go || !matches!(state, DiskState::Faulty | DiskState::Spare) {
            return state == DiskState::Removed;
        }
        self.members.remove(member);
        self.updates.request();
        self.act(now);
        true
    }

    /// Has a member's place taken by another, which gets a copy of what it holds while it serves on: by
    /// `with`, or by the next spare that nobody needs more. False: the one is no member in sync or has a
    /// replacement already, or the other is no spare.
    pub fn handle_replace(&mut self, now: Time, member: MemberId, with: Option<MemberId>) -> bool {
        let state = |id: MemberId| self.members.get(id).state;
        let slot = self.members.get(member).slot;
        let is_free = self.members.replacement_in(slot).is_none();
        let is_spare = with.is_none_or(|with| state(with) == DiskState::Spare);
        // It would have two places.
        if self.reshape.is_some() {
            return false;
        }
        if state(member) != DiskState::InSync || !is_free || !is_spare {
            return false;
        }
        match (with, slot) {
            (Some(with), Some(slot)) => self.give_slot(with, slot),
            _ => self.members.let_go(member),
        }
        self.scheduler.members_changed();
        self.act(now);
        true
    }

    /// Takes a member out on the operator's word. False: the array needs it.
    pub fn handle_fail(&mut self, now: Time, member: MemberId) -> bool {
        self.now = now;
        if self.members.get(member).state == DiskState::Journal || self.holds_backup(member) {
            return false;
        }
        let done = self.fail_if_survivable(member);
        self.proceed();
        done
    }
}
