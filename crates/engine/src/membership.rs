//! Who is a member, in which slot and state.
//!
//! [`Membership`] owns members' superblocks, slots and states. What a change means for the update, the sync action and
//! the shards is the supervisor's to route.
//!
//! Invariants:
//! - a slot has at most one member that is in sync or recovering, and at most one replacement beside it;
//! - who is in sync is right everywhere;
//! - spares and journals are in no slot;
//! - a member keeps its number ([`MemberId`]) for good, whatever becomes of it.

mod commands;
mod reshape;

use crate::{
    bad_blocks::BadBlockLog,
    members::FULLY_TRUSTED,
    reshape::{Frontier, slot_of_parity},
    supervisor::{DiskState, MemberRecord},
    types::MemberId,
};
use alloc::vec::Vec;
use core::mem;
use lapstrake_geometry::{Geometry, Level, Sector, Sectors, Slot};
use lapstrake_metadata::{Device, Role, Superblock, badblocks::BadBlocks};

/// One member, see [`Membership`].
#[derive(Clone, Debug)]
pub(crate) struct Member {
    superblock: Superblock,
    /// During a reshape: where its data began, and the room from there on.
    data_before: Option<(Sector, Sectors)>,
    /// During a reshape: it has a slot in the array before, as superblocks tell of that, and holds nothing of it.
    lacks_before: bool,
    slot: Option<Slot>,
    state: DiskState,
    /// Below this sector its data is right, from its data offset. Nothing is read from it beyond.
    recovered_to: Sector,
    /// What it lacks is under set bits, so that its recovery may leave out the rest.
    by_bitmap: bool,
    /// A spare is to take its place. It is kept while there is none.
    is_to_go: bool,
    log: BadBlockLog,
    /// Of a journal: its tail as all superblocks say it, whatever an update said that was refused.
    tail_on_record: Option<u64>,
}

/// What superblocks are to say besides who the members are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayState {
    pub(crate) events: u64,
    /// When the update was made, in seconds since 1970.
    pub(crate) utime: u64,
    /// From where a resync is due.
    pub(crate) resync: Option<Sector>,
    /// The journal's tail, if it has moved.
    pub(crate) tail: Option<u64>,
    /// Spares are not told: they may sleep through what only turns between clean and active, and wait to be a part of an array
    /// without redundancy.
    pub(crate) is_without_spares: bool,
    /// They say that there is no bitmap, though there still is one.
    pub(crate) denies_bitmap: bool,
    /// A reshape that is under way.
    pub(crate) reshape: Option<Frontier>,
}

/// All members, by number. See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    members: Vec<Member>,
    raid_disks: u16,
    /// A superblock of the array that a reshape changes.
    before: Option<Superblock>,
}

impl Member {
    /// As last sent, or read.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(crate) fn slot(&self) -> Option<Slot> {
        self.slot
    }

    pub(crate) fn state(&self) -> DiskState {
        self.state
    }

    pub(crate) fn is_in_sync(&self) -> bool {
        self.state == DiskState::InSync
    }

    /// How far its data is right.
    pub(crate) fn recovered_to(&self) -> Sector {
        self.recovered_to
    }

    /// A recovery of it may leave out what no bit is set for.
    pub(crate) fn catches_up(&self) -> bool {
        self.by_bitmap
    }

    /// It is to be replaced as soon as there is a spare.
    pub(crate) fn is_to_go(&self) -> bool {
        self.is_to_go
    }

    pub(crate) fn log(&self) -> &BadBlockLog {
        &self.log
    }

    /// It takes part, be it as a spare.
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self.state, DiskState::Faulty | DiskState::Removed)
    }

    /// In a slot, but some data is still to come.
    pub(crate) fn is_incomplete(&self) -> bool {
        let gets_data = matches!(self.state, DiskState::Recovering | DiskState::Replacement);
        gets_data && self.recovered_to != FULLY_TRUSTED
    }

    /// A replacement that has all data.
    pub(crate) fn is_whole_replacement(&self) -> bool {
        self.state == DiskState::Replacement && self.recovered_to == FULLY_TRUSTED
    }

    /// Its entry in every member's table of devices.
    fn device(&self) -> Device {
        let role = match (self.state, self.slot) {
            (DiskState::Journal, _) => Role::Journal,
            (DiskState::Faulty, _) => Role::Faulty,
            (_, Some(slot)) => Role::Active(slot),
            (_, None) => Role::Spare,
        };
        let in_sync = self.state == DiskState::InSync;
        Device { number: self.superblock.dev_number(), role, in_sync }
    }

    fn write_state(&mut self, array: &ArrayState, devices: &[Device], own: usize) {
        let sb = &mut self.superblock;
        sb.set_events(array.events);
        sb.set_utime(array.utime);
        sb.set_resync_offset(array.resync);
        sb.set_roles(devices, own);
        sb.mark_ppl();
        sb.set_has_bad_blocks(self.log.has_bad_blocks());
        // A journal's tail is in the same place.
        if self.state == DiskState::Journal {
            let on_record = *self.tail_on_record.get_or_insert(sb.journal_tail());
            sb.set_journal_tail(array.tail.unwrap_or(on_record));
        } else {
            let is_incomplete = self.is_incomplete();
            let sb = &mut self.superblock;
            sb.set_recovery_offset(is_incomplete.then_some(self.recovered_to));
            sb.set_replacement(self.state == DiskState::Replacement);
        }
    }
}

impl Membership {
    /// Members at the array's start. Of two for one slot the second is the replacement of the first.
    pub(crate) fn new(records: Vec<MemberRecord>, raid_disks: u16) -> Self {
        let mut this = Self { members: Vec::new(), raid_disks, before: None };
        for record in records {
            let is_held = this.members.iter().any(|m| m.slot.is_some() && m.slot == record.slot);
            this.members.push(Member {
                state: match record.slot {
                    None if record.superblock.role() == Role::Journal => DiskState::Journal,
                    None => DiskState::Spare,
                    Some(_) if is_held => DiskState::Replacement,
                    Some(_) if record.trusted_to == FULLY_TRUSTED => DiskState::InSync,
                    Some(_) => DiskState::Recovering,
                },
                recovered_to: record.trusted_to,
                by_bitmap: false,
                is_to_go: false,
                log: BadBlockLog::new(record.bad_blocks, false),
                tail_on_record: None,
                superblock: record.superblock,
                data_before: None,
                lacks_before: false,
                slot: record.slot,
            });
        }
        this.check();
        this
    }

    /// Asserts the invariants. Members are few and come and go rarely.
    fn check(&self) {
        for (index, member) in self.members.iter().enumerate() {
            let is_replacement = member.state == DiskState::Replacement;
            let is_rival = |other: &Member| {
                let holds = other.is_present() && other.slot == member.slot;
                holds && (other.state == DiskState::Replacement) == is_replacement
            };
            match member.state {
                DiskState::InSync | DiskState::Recovering | DiskState::Replacement => {
                    assert!(member.slot.is_some(), "member {index} serves no slot");
                    let rival = self.members[..index].iter().position(is_rival);
                    assert!(rival.is_none(), "members {rival:?} and {index} have one slot");
                }
                DiskState::Spare | DiskState::Journal => {
                    assert!(member.slot.is_none(), "member {index} is no spare: it has a slot");
                }
                DiskState::Faulty | DiskState::Removed => {}
            }
            let is_whole = member.recovered_to == FULLY_TRUSTED;
            assert!(is_whole || !member.is_in_sync(), "member {index} lacks data and is in sync");
        }
    }

    /// The highest event count of all; whether a slot's member, or the journal, has another; and whether any superblock
    /// lists a member that is not there.
    pub(crate) fn counts_at_start(&self) -> (u64, bool, bool) {
        let count = |member: &Member| member.superblock.events();
        let events = self.members.iter().map(count).max().unwrap_or(0);
        let needed = |m: &&Member| matches!(m.state, DiskState::InSync | DiskState::Journal);
        let is_uneven = self.members.iter().filter(needed).any(|member| count(member) != events);
        let is_there = |number| self.members.iter().any(|m| m.superblock.dev_number() == number);
        let lists_absent = |sb: &Superblock| {
            let is_member = |&number: &u32| matches!(sb.role_of(number), Role::Active(_));
            (0..sb.table_len()).filter(is_member).any(|number| !is_there(number))
        };
        (events, is_uneven, self.members.iter().any(|m| lists_absent(&m.superblock)))
    }

    pub(crate) fn get(&self, id: MemberId) -> &Member {
        &self.members[usize::from(id.0)]
    }

    /// A member's bad-block log, with the superblock that says where that lies.
    pub(crate) fn log_of(&mut self, id: MemberId) -> (&mut BadBlockLog, &Superblock) {
        let member = self.get_mut(id);
        (&mut member.log, &member.superblock)
    }

    /// The number that the next member gets.
    fn next_id(&self) -> MemberId {
        MemberId(self.members.len() as u16)
    }

    fn get_mut(&mut self, id: MemberId) -> &mut Member {
        &mut self.members[usize::from(id.0)]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> + Clone {
        self.members.iter()
    }

    /// All members' numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..self.members.len() as u16).map(MemberId)
    }

    /// All members with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (MemberId, &Member)> + Clone {
        (0..).map(MemberId).zip(&self.members)
    }

    fn find(&self, is_it: impl Fn(&Member) -> bool) -> Option<MemberId> {
        self.members.iter().position(is_it).map(|index| MemberId(index as u16))
    }

    pub(crate) fn count_in_sync(&self) -> usize {
        self.members.iter().filter(|member| member.is_in_sync()).count()
    }

    /// Whether a slot lacks a member in sync, in either geometry if there are two.
    pub(crate) fn is_degraded(&self) -> bool {
        self.count_in_sync() < usize::from(self.slots())
    }

    /// Whether writes go through a journal, be it one that has failed.
    pub(crate) fn has_journal(&self) -> bool {
        self.members.iter().any(|member| member.superblock.role() == Role::Journal)
    }

    /// The journal that serves.
    pub(crate) fn journal(&self) -> Option<MemberId> {
        self.find(|m| m.state == DiskState::Journal)
    }

    /// The next spare.
    pub(crate) fn spare(&self) -> Option<MemberId> {
        self.find(|m| m.state == DiskState::Spare)
    }

    /// The member in sync of a slot.
    pub(crate) fn serving(&self, slot: Option<Slot>) -> Option<MemberId> {
        self.find(|m| m.slot == slot && m.is_in_sync())
    }

    /// Who is to take the place of a slot's member.
    pub(crate) fn replacement_in(&self, slot: Option<Slot>) -> Option<MemberId> {
        let slot = slot?;
        self.find(|m| m.state == DiskState::Replacement && m.slot == Some(slot))
    }

    /// The first slot that nobody serves or recovers in.
    pub(crate) fn vacancy(&self) -> Option<Slot> {
        let holds = |m: &Member| matches!(m.state, DiskState::InSync | DiskState::Recovering);
        let is_held = |slot| self.members.iter().any(|m| m.slot == Some(slot) && holds(m));
        (0..self.raid_disks).map(Slot).find(|&slot| !is_held(slot))
    }

    /// The next spare that is to get a slot, and which. `leaves_parity`: none is to make nothing but parity.
    pub(crate) fn next_to_fill(
        &self,
        geometry: &Geometry,
        leaves_parity: bool,
    ) -> Option<(MemberId, Slot)> {
        let is_left = |slot| leaves_parity && Some(slot) == slot_of_parity(geometry);
        let slot = self.vacancy().filter(|&slot| !is_left(slot))?;
        self.spare().map(|spare| (spare, slot))
    }

    /// Whether all data of a geometry can be had from these members. `is_before`: of the one before a reshape.
    pub(crate) fn survives_with(
        &self,
        geometry: &Geometry,
        is_before: bool,
        has: impl Fn(MemberId) -> bool,
    ) -> bool {
        let holds = |id: MemberId, slot| {
            let member = self.get(id);
            member.slot == Some(slot) && !(is_before && member.lacks_before) && has(id)
        };
        geometry.survives(|slot| self.ids().any(|id| holds(id, slot)))
    }

    /// Whether somebody has a slot of the array, or of the one before a reshape.
    pub(crate) fn holds(&self, slot: Slot, is_before: bool) -> bool {
        let holds = |member: &Member| {
            member.is_present() && member.slot == Some(slot) && !(is_before && member.lacks_before)
        };
        self.members.iter().any(holds)
    }

    /// Whether all data of a geometry can be had without one of them.
    pub(crate) fn survives_without(
        &self,
        id: MemberId,
        geometry: &Geometry,
        is_before: bool,
    ) -> bool {
        let serves = |other: MemberId| match self.get(other).state {
            DiskState::InSync => other != id,
            DiskState::Replacement => self.get(other).recovered_to == FULLY_TRUSTED,
            _ => false,
        };
        let member = self.get(id);
        let is_needed = member.slot.is_some() && member.state != DiskState::Replacement;
        !is_needed || self.survives_with(geometry, is_before, serves)
    }

    /// The next member: a spare, or with a slot one that gets only what it has missed.
    fn add(&mut self, superblock: Superblock, blocks: Option<BadBlocks>, slot: Option<Slot>) {
        self.members.push(Member {
            superblock,
            data_before: None,
            lacks_before: false,
            slot,
            state: if slot.is_some() { DiskState::Recovering } else { DiskState::Spare },
            recovered_to: Sector(0),
            by_bitmap: slot.is_some(),
            is_to_go: false,
            log: BadBlockLog::new(blocks, true),
            tail_on_record: None,
        });
        self.check();
    }

    /// Has all have seen as many events.
    pub(crate) fn level(&mut self) {
        let events = self.members.iter().map(|member| member.superblock.events()).max();
        for member in &mut self.members {
            member.superblock.set_events(events.unwrap_or(0));
        }
    }

    /// One more spare, which has no bad blocks on record.
    pub(crate) fn add_spare(&mut self, superblock: Superblock) {
        self.add(superblock, None, None);
    }

    /// Puts a spare into a slot, or beside the member that serves there.
    pub(crate) fn give_slot(&mut self, spare: MemberId, slot: Slot) {
        assert_eq!(self.get(spare).state, DiskState::Spare, "who gets a slot is a spare");
        let held_by = self.serving(Some(slot));
        if let Some(member) = held_by {
            self.get_mut(member).is_to_go = false;
        }
        let is_held = held_by.is_some();
        let member = self.get_mut(spare);
        member.state = if is_held { DiskState::Replacement } else { DiskState::Recovering };
        (member.slot, member.recovered_to) = (Some(slot), Sector(0));
        self.check();
    }

    /// Has a member replaced as soon as there is a spare.
    fn let_go(&mut self, id: MemberId) {
        self.get_mut(id).is_to_go = true;
    }

    /// A member has failed: its replacement has its place, and who was to be replaced by it still is. False: it was no
    /// member any more.
    pub(crate) fn fail(&mut self, id: MemberId) -> bool {
        let member = self.get_mut(id);
        if !member.is_present() {
            return false;
        }
        let slot = member.slot;
        if mem::replace(&mut member.state, DiskState::Faulty) == DiskState::Replacement {
            let serves = |m: &&mut Member| m.is_in_sync() && m.slot == slot;
            self.members.iter_mut().filter(serves).for_each(|m| m.is_to_go = true);
        } else if let Some(replacement) = self.replacement_in(slot) {
            let replacement = self.get_mut(replacement);
            let is_whole = replacement.recovered_to == FULLY_TRUSTED;
            replacement.state = if is_whole { DiskState::InSync } else { DiskState::Recovering };
        }
        self.check();
        true
    }

    /// Takes out who failed or is a spare.
    fn remove(&mut self, id: MemberId) {
        let member = self.get_mut(id);
        let is_free = matches!(member.state, DiskState::Faulty | DiskState::Spare);
        assert!(is_free, "who is taken out is not in use");
        member.state = DiskState::Removed;
    }

    /// A recovery has come so far. False: the member needs none, or had more.
    pub(crate) fn recovered_to(&mut self, id: MemberId, done: Sector) -> bool {
        let member = self.get_mut(id);
        let is_news = member.is_incomplete() && member.recovered_to < done;
        if is_news {
            member.recovered_to = done;
        }
        is_news
    }

    /// A recovery has come to its end: the member is in sync, or a replacement that is whole. False: it needed none.
    pub(crate) fn recovered(&mut self, id: MemberId) -> bool {
        let member = self.get_mut(id);
        if !member.is_incomplete() {
            return false;
        }
        member.recovered_to = FULLY_TRUSTED;
        if member.state == DiskState::Recovering {
            member.state = DiskState::InSync;
        }
        self.check();
        true
    }

    /// So many sectors of a member could not be read and were written anew.
    pub(crate) fn add_corrected(&mut self, id: MemberId, len: Sectors) {
        self.get_mut(id).superblock.add_corrected(len);
    }

    /// The journal's tail is on record there.
    pub(crate) fn tail_recorded(&mut self, position: u64) {
        let journals = self.members.iter_mut().filter(|member| member.state == DiskState::Journal);
        journals.for_each(|journal| journal.tail_on_record = Some(position));
    }

    /// Has all superblocks name this place of the bitmap, or none.
    pub(crate) fn set_bitmap_offsets(&mut self, offset: Option<i32>) {
        for member in &mut self.members {
            member.superblock.set_bitmap_offset(offset);
        }
    }

    /// Has all superblocks say how large the array is.
    pub(crate) fn set_shape(&mut self, geometry: &Geometry) {
        self.raid_disks = geometry.raid_disks();
        for member in &mut self.members {
            member.superblock.set_component(geometry.component());
            member.superblock.set_raid_disks(geometry.raid_disks());
        }
    }

    /// A cut while the array grew, or was taken over by another level, leaves members of which some say so and some do not:
    /// the freshest is right.
    pub(crate) fn agree_on_shape(&mut self, level: Level) {
        let told = self.members.iter().filter(|member| member.superblock.level() == Some(level));
        let freshest = told.max_by_key(|member| member.superblock.events());
        let Some(freshest) = freshest.map(|member| member.superblock.clone()) else { return };
        for member in &mut self.members {
            member.superblock.be_taken_over_by(&freshest);
        }
    }

    /// Who is in a slot from this one on.
    pub(crate) fn in_slots_from(&self, first: u16) -> Option<MemberId> {
        let is_beyond = |slot: Slot| slot.0 >= first;
        self.find(|member| member.is_present() && member.slot.is_some_and(is_beyond))
    }

    /// Who has too little room for data, as its superblock says.
    pub(crate) fn lacks_room(&self, component: Sectors) -> Option<MemberId> {
        self.find(|m| m.is_present() && m.superblock.data_size() < component)
    }

    /// Brings superblocks up to date: those to be written now, each with its member and first sector there.
    pub(crate) fn superblocks(&mut self, array: &ArrayState) -> Vec<(MemberId, Sector, Vec<u8>)> {
        let is_listed = |member: &&Member| member.state != DiskState::Removed;
        let devices: Vec<_> = self.members.iter().filter(is_listed).map(Member::device).collect();
        let lacking = self.members.iter().filter(|member| member.lacks_before);
        let lacking: Vec<Slot> = lacking.filter_map(|member| member.slot).collect();
        let before = self.before.as_ref().map(|before| (before, lacking.as_slice()));
        let mut written = Vec::new();
        let mut gone = 0;
        for (index, member) in self.members.iter_mut().enumerate() {
            gone += usize::from(member.state == DiskState::Removed);
            let asleep = array.is_without_spares && member.state == DiskState::Spare;
            if !member.is_present() || asleep {
                continue;
            }
            member.write_state(array, &devices, index - gone);
            let sector = member.superblock.super_sector();
            let image = member.image(before, array);
            written.push((MemberId(index as u16), sector, image));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use lapstrake_metadata::create::{CreateRequest, NewMember, plan};

    const FIRST: MemberId = MemberId(0);
    const SECOND: MemberId = MemberId(1);
    const THIRD: MemberId = MemberId(2);
    const FOURTH: MemberId = MemberId(3);
    const SLOT: Option<Slot> = Some(Slot(0));

    /// A RAID5 of three slots whose members are right below these sectors; and so many spares.
    fn array(trusted_to: &[Sector], spares: u16) -> (Membership, Geometry) {
        let member = NewMember { size: Sectors(1 << 20), ..NewMember::default() };
        let members = vec![Some(member); 3];
        let request =
            CreateRequest { assume_clean: true, ..CreateRequest::new(Level::Raid5, members) };
        let made = plan(&request, |buf| buf.fill(7)).expect("a plan");
        let record = |slot: Option<Slot>, trusted_to: Sector| MemberRecord {
            superblock: made.members[0].superblock.clone(),
            slot,
            trusted_to,
            bad_blocks: None,
        };
        let slots = trusted_to.iter().zip(0..).map(|(&to, slot)| record(Some(Slot(slot)), to));
        let spares = (0..spares).map(|_| record(None, Sector(0)));
        (Membership::new(slots.chain(spares).collect(), 3), made.geometry)
    }

    fn whole(spares: u16) -> (Membership, Geometry) {
        array(&[FULLY_TRUSTED; 3], spares)
    }

    fn states(members: &Membership) -> Vec<DiskState> {
        members.iter().map(Member::state).collect()
    }

    #[test]
    fn a_spare_in_an_empty_slot_recovers_and_is_in_sync_when_it_has_all() {
        let (mut members, _) = whole(1);
        assert_eq!((members.vacancy(), members.is_degraded()), (None, false));
        assert!(members.fail(FIRST) && !members.fail(FIRST));
        assert_eq!((members.vacancy(), members.is_degraded()), (SLOT, true));
        members.give_slot(FOURTH, Slot(0));
        assert_eq!((members.vacancy(), members.spare()), (None, None));
        assert!(members.recovered_to(FOURTH, Sector(64)));
        assert!(!members.recovered_to(FOURTH, Sector(64)), "that is no news");
        assert_eq!(members.get(FOURTH).recovered_to(), Sector(64));
        assert!(members.is_degraded());
        assert!(members.recovered(FOURTH) && !members.recovered(FOURTH));
        assert!(!members.is_degraded());
        assert_eq!(members.serving(SLOT), Some(FOURTH));
    }

    #[test]
    fn a_replacement_that_is_whole_has_the_place_of_a_member_that_fails() {
        let (mut members, _) = whole(1);
        members.give_slot(FOURTH, Slot(0));
        assert_eq!(members.replacement_in(SLOT), Some(FOURTH));
        assert!(members.recovered(FOURTH));
        assert!(members.get(FOURTH).is_whole_replacement());
        assert_eq!(members.serving(SLOT), Some(FIRST));
        members.fail(FIRST);
        assert_eq!(members.serving(SLOT), Some(FOURTH));
        assert_eq!(members.replacement_in(SLOT), None);
    }

    #[test]
    fn a_replacement_that_is_not_whole_goes_on_as_a_recovering_member() {
        let (mut members, _) = whole(1);
        members.give_slot(FOURTH, Slot(0));
        members.recovered_to(FOURTH, Sector(64));
        members.fail(FIRST);
        assert_eq!(members.get(FOURTH).state(), DiskState::Recovering);
        assert_eq!(members.get(FOURTH).recovered_to(), Sector(64));
        assert_eq!(members.vacancy(), None);
    }

    #[test]
    fn who_was_to_be_replaced_by_a_member_that_fails_still_is() {
        let (mut members, _) = whole(1);
        members.let_go(FIRST);
        members.give_slot(FOURTH, Slot(0));
        assert!(!members.get(FIRST).is_to_go());
        members.fail(FOURTH);
        assert!(members.get(FIRST).is_to_go());
        assert_eq!(members.vacancy(), None);
    }

    #[test]
    fn all_data_is_had_without_a_member_as_long_as_redundancy_is_left() {
        let (mut members, geometry) = whole(1);
        assert!(members.survives_without(FIRST, &geometry, false));
        members.fail(SECOND);
        assert!(!members.survives_without(FIRST, &geometry, false));
        assert!(members.survives_without(FOURTH, &geometry, false), "a spare holds nothing");
        members.give_slot(FOURTH, Slot(0));
        assert!(members.survives_without(FOURTH, &geometry, false), "its member serves");
        assert!(!members.survives_without(FIRST, &geometry, false), "it has no data yet");
        members.recovered(FOURTH);
        assert!(members.survives_without(FIRST, &geometry, false));
    }

    #[test]
    fn who_is_taken_out_keeps_its_number_and_leaves_the_table() {
        let (mut members, _) = whole(1);
        members.fail(FIRST);
        members.remove(FIRST);
        assert!(!members.fail(FIRST));
        let sb = members.get(SECOND).superblock().clone();
        members.add(sb, None, None);
        assert_eq!(members.next_id(), MemberId(5));
        let removed = [DiskState::Removed, DiskState::InSync, DiskState::InSync];
        assert_eq!(states(&members)[..3], removed);
    }

    #[test]
    fn superblocks_go_to_who_is_there_and_a_spare_sleeps_through_a_bare_step() {
        let (mut members, _) = whole(1);
        let state = |is_without_spares| ArrayState {
            events: 7,
            utime: 1,
            resync: None,
            tail: None,
            is_without_spares,
            denies_bitmap: false,
            reshape: None,
        };
        let written = |members: &mut Membership, bare| -> Vec<_> {
            members.superblocks(&state(bare)).into_iter().map(|write| write.0).collect()
        };
        assert_eq!(written(&mut members, true), [FIRST, SECOND, THIRD]);
        members.fail(FIRST);
        assert_eq!(written(&mut members, false), [SECOND, THIRD, FOURTH]);
        assert_eq!(members.get(SECOND).superblock().events(), 7);
    }

    #[test]
    fn counts_of_members_that_serve_are_uneven_and_those_of_spares_are_not() {
        let (mut members, _) = whole(1);
        for id in [FIRST, SECOND, THIRD] {
            members.get_mut(id).superblock.set_events(7);
        }
        assert_eq!((members.counts_at_start().0, members.counts_at_start().1), (7, false));
        members.get_mut(FIRST).superblock.set_events(8);
        assert_eq!((members.counts_at_start().0, members.counts_at_start().1), (8, true));
    }

    #[test]
    #[should_panic(expected = "have one slot")]
    fn a_slot_has_no_two_replacements() {
        let (mut members, _) = whole(2);
        members.give_slot(FOURTH, Slot(0));
        members.give_slot(MemberId(4), Slot(0));
    }

    #[test]
    #[should_panic(expected = "who gets a slot is a spare")]
    fn who_serves_gets_no_other_slot() {
        let (mut members, _) = array(&[FULLY_TRUSTED, FULLY_TRUSTED, Sector(0)], 0);
        members.give_slot(THIRD, Slot(0));
    }

    #[test]
    #[should_panic(expected = "who is taken out is not in use")]
    fn who_serves_is_not_taken_out() {
        let (mut members, _) = whole(0);
        members.remove(FIRST);
    }
}
