//! Members in and out on the operator's word, and which former member may come back as what.
//!
//! Invariant: who may hold writes that nobody else has is never taken for one that only missed some.

use crate::{
    members::MemberConfig,
    messages::Order,
    supervisor::{Added, Member, MemberRecord, MemberState, Supervisor},
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
        let id = MemberId(self.members.len() as u16);
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
        self.members.push(Member {
            superblock,
            slot,
            standing: if slot.is_some() { MemberState::Recovering } else { MemberState::Spare },
            recovered_to: Sector(0),
            by_bitmap: slot.is_some(),
            is_to_go: false,
            bad_blocks,
            log_dirty: true,
            times_bad: 0,
        });
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
        let whole = superblock.recovery_offset().is_none();
        let is_ours = !self.is_of_another_half(superblock);
        knows && whole && is_ours && !self.members.iter().any(in_the_way)
    }

    /// Whether the array was run without those that serve now: then it has writes of its own, which no bit of ours
    /// covers.
    fn is_of_another_half(&self, superblock: &Superblock) -> bool {
        let calls_failed = |m: &Member| {
            let its = superblock.role_of(m.superblock.dev_number());
            m.standing == MemberState::InSync
                && m.slot.is_some_and(|slot| its != Role::Active(slot))
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
        let is_due = self.resync_from.is_some() || names_chunks;
        is_due && matches!(self.geometry, Geometry::Parity(_))
    }

    /// Takes a member out for good. False: it is in use.
    pub fn handle_remove(&mut self, now: Time, member: MemberId) -> bool {
        let entry = &mut self.members[usize::from(member.0)];
        if !matches!(entry.standing, MemberState::Faulty | MemberState::Spare) {
            return entry.standing == MemberState::Removed;
        }
        entry.standing = MemberState::Removed;
        self.updates.request();
        self.act(now);
        true
    }

    /// Has a member's place taken by another, which gets a copy of what it holds while it serves on: by
    /// `with`, or by the next spare that nobody needs more. False: the one is no member in sync or has a
    /// replacement already, or the other is no spare.
    pub fn handle_replace(&mut self, now: Time, member: MemberId, with: Option<MemberId>) -> bool {
        let standing = |id: MemberId| self.members[usize::from(id.0)].standing;
        let slot = self.members[usize::from(member.0)].slot;
        let is_free = self.replacement_in(slot).is_none();
        let is_spare = with.is_none_or(|with| standing(with) == MemberState::Spare);
        if standing(member) != MemberState::InSync || !is_free || !is_spare {
            return false;
        }
        match (with, slot) {
            (Some(with), Some(slot)) => self.give_slot(usize::from(with.0), slot),
            _ => self.members[usize::from(member.0)].is_to_go = true,
        }
        self.scheduler.members_changed();
        self.act(now);
        true
    }

    /// Takes a member out on the operator's word. False: the array needs it.
    pub fn handle_fail(&mut self, now: Time, member: MemberId) -> bool {
        self.now = now;
        if self.members[usize::from(member.0)].standing == MemberState::Journal {
            return false;
        }
        let done = self.fail_if_survivable(member);
        self.proceed();
        done
    }
}
