//! What is written of a member, in a reshape or not; what a reshape makes of members' superblocks and slots, and what is kept
//! of the array before it.

use super::{ArrayState, Member, Membership};
use crate::{
    members::FULLY_TRUSTED,
    reshape::{Frontier, NewGeometry, shifts, slot_in},
    supervisor::DiskState,
};
use alloc::vec::Vec;
use core::mem;
use lapstrake_geometry::{Level, Sector, Slot};
use lapstrake_metadata::{ReshapeRecord, Role, Superblock};

impl Member {
    /// Its superblock as it is to be written. `before`: of the array that a reshape changes, and its slots whose members hold
    /// nothing of it.
    pub(super) fn image(
        &self,
        before: Option<(&Superblock, &[Slot])>,
        array: &ArrayState,
    ) -> Vec<u8> {
        if let Some(((before, lacking), frontier)) = before.zip(array.reshape) {
            let Frontier { position, member_sector, is_backwards } = frontier;
            let data_before = self.data_before;
            let record = ReshapeRecord { before, data_before, position, is_backwards, lacking };
            let mut image = self.superblock.in_reshape(&record);
            if self.lacks_before {
                image.set_recovery_offset(Some(member_sector));
            }
            return image.encode();
        }
        if !array.denies_bitmap {
            return self.superblock.encode();
        }
        let mut without = self.superblock.clone();
        without.set_bitmap_offset(None);
        without.encode()
    }
}

impl Membership {
    /// Has all superblocks be of another geometry, gives as many spares slots as come to it, and keeps what it was. Who has a
    /// slot that goes keeps it until [`Self::end_reshape`]. Where a RAID4 lacks its parity, a spare gets data in that slot,
    /// and the last slot stays empty.
    pub(crate) fn begin_reshape(&mut self, to: &NewGeometry) {
        let new = to.geometry.raid_disks();
        let events = self.events_in_sync();
        for member in &mut self.members {
            member.superblock.set_component(to.superblock.component());
        }
        let before = self.members.iter().map(|member| member.superblock.clone()).collect();
        for _ in mem::replace(&mut self.raid_disks, new)..new {
            self.fill_slot(events);
        }
        for member in &mut self.members {
            member.superblock.take_geometry(&to.superblock, to.data_move.shift());
        }
        self.keep_before(before);
        self.check();
    }

    /// Has the next spare be in sync in the first slot that is empty, if it has seen so many events.
    fn fill_slot(&mut self, events: u64) {
        let slot = self.vacancy().expect("so many slots come to it");
        let spare = self.spare().expect("there are spares enough");
        let spare = self.get_mut(spare);
        // Order that holds, point 14.
        assert!(spare.superblock.events() >= events, "who gets {slot:?} has missed an event");
        (spare.slot, spare.state) = (Some(slot), DiskState::InSync);
        spare.recovered_to = FULLY_TRUSTED;
    }

    fn events_in_sync(&self) -> u64 {
        let in_sync = self.members.iter().filter(|member| member.is_in_sync());
        in_sync.map(|member| member.superblock.events()).max().unwrap_or(0)
    }

    /// Has all superblocks be of another geometry, which lays data out alike. What comes to a linear array is on spares. Who has no slot in it is a spare, or, where the
    /// level takes none, no member any more: Linux starts no such array that lists one.
    pub(crate) fn take_over(&mut self, to: &NewGeometry) {
        let level = to.geometry.level();
        let old = mem::replace(&mut self.raid_disks, to.geometry.raid_disks());
        for member in &mut self.members {
            member.superblock.be_taken_over_by(&to.superblock);
            member.slot = member.slot.and_then(|slot| slot_in(&to.geometry, &to.before, slot));
            if member.slot.is_none() && member.is_in_sync() {
                (member.state, member.recovered_to) = (DiskState::Spare, Sector(0));
            }
        }
        let new_slots = if level == Level::Linear { old..self.raid_disks } else { 0..0 };
        let events = self.events_in_sync();
        for _ in new_slots {
            self.fill_slot(events);
        }
        // A linear array's are told to nobody until they have a slot.
        if !level.has_redundancy() && level != Level::Linear {
            let spares = self.members.iter_mut().filter(|member| member.state == DiskState::Spare);
            spares.for_each(|member| member.state = DiskState::Faulty);
        }
        self.check();
    }

    /// Has who has no slot in the array that a reshape has made be a spare.
    pub(crate) fn end_reshape(&mut self) {
        self.before = None;
        self.members.iter_mut().for_each(|member| member.lacks_before = false);
        let new = self.raid_disks;
        let goes = |member: &&mut Member| member.slot.is_some_and(|slot| slot.0 >= new);
        for member in self.members.iter_mut().filter(goes) {
            member.slot = None;
            if member.is_in_sync() {
                (member.state, member.recovered_to) = (DiskState::Spare, Sector(0));
            }
        }
        self.check();
    }

    /// Slots of the array, or during a reshape of the larger of both.
    pub(super) fn slots(&self) -> u16 {
        let before = self.before.as_ref().map_or(0, |before| before.raid_disks());
        self.raid_disks.max(before)
    }

    /// Keeps what superblocks say of the array before a reshape.
    fn keep_before(&mut self, superblocks: Vec<Superblock>) {
        let Some(mut before) = superblocks.first().cloned() else { return };
        before.take_over_for(&self.members[0].superblock);
        for (member, own) in self.members.iter_mut().zip(&superblocks) {
            member.data_before = Some((own.data_offset(), own.data_size()));
            let lacks =
                |slot: Slot| slot.0 < before.raid_disks() && own.role() != Role::Active(slot);
            member.lacks_before = member.slot.is_some_and(lacks);
        }
        self.before = Some(before);
    }

    /// Takes in members' superblocks and slots of the array that a reshape changes. By how much their data moves, least and
    /// most.
    pub(crate) fn take_up_reshape(
        &mut self,
        before: Vec<Superblock>,
        slots: &[Option<Slot>],
    ) -> (i64, i64) {
        let shifts = shifts(&before, self.members.iter().map(|member| &member.superblock));
        for (member, slot) in self.members.iter_mut().zip(slots) {
            if slot.is_some_and(|slot| slot.0 >= self.raid_disks) {
                (member.slot, member.state) = (*slot, DiskState::InSync);
                member.recovered_to = FULLY_TRUSTED;
            }
        }
        self.keep_before(before);
        self.check();
        shifts
    }
}
