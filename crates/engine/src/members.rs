//! Which member serves which slot, and how far it can be trusted, as one shard sees it.
//!
//! Invariants: a member that failed is in no slot, so that nothing is sent to it again; nothing is read from
//! ranges that a member could not read, until they have been written anew; what is written to a member is
//! written to its replacement too.

use crate::{supervisor::MemberRecord, types::MemberId};
use alloc::{collections::BTreeMap, vec, vec::Vec};
use core::ops::Range;
use lapstrake_geometry::{Sector, Sectors, Slot};
use lapstrake_metadata::ppl::Shape;

/// A member as the engine is told of it at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// Where its data begins.
    pub data_offset: Sector,
    /// The slot that it fills; none for a spare.
    pub slot: Option<Slot>,
    /// Its data is up to date below this sector (from `data_offset`); all of it when
    /// [`FULLY_TRUSTED`]. Between is a recovery that has not come further.
    pub trusted_to: Sector,
    /// It has a moving head, so nearness counts when a copy is chosen.
    pub rotational: bool,
    /// It is read only where no other member has the data (RAID1).
    pub write_mostly: bool,
    /// Ranges that its bad-block log holds, from the data offset; none if it has no log.
    pub bad_blocks: Option<Vec<Range<u64>>>,
    /// Where its partial parity log lies, and its shape; none if the array has no such logs.
    pub log: Option<(Sector, Shape)>,
}

impl MemberConfig {
    /// What a shard is told of a member. `rotational`: the device has a moving head.
    #[must_use]
    pub fn new(record: &MemberRecord, rotational: bool) -> Self {
        let superblock = &record.superblock;
        let from = superblock.data_offset().0;
        let range = |(start, len): (Sector, Sectors)| {
            start.0.saturating_sub(from)..(start.0 + len.0).saturating_sub(from)
        };
        let ranges = record.bad_blocks.as_ref().map(|bad| bad.iter().map(range));
        Self {
            data_offset: superblock.data_offset(),
            slot: record.slot,
            trusted_to: record.trusted_to,
            rotational,
            write_mostly: superblock.write_mostly(),
            bad_blocks: ranges.map(|ranges| ranges.filter(|range| !range.is_empty()).collect()),
            log: superblock.ppl(),
        }
    }
}

/// Where a member is in another geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// Where its data begins.
    pub data_offset: Sector,
    /// The slot that it fills.
    pub slot: Option<Slot>,
    /// It has a bad-block log, which is empty.
    pub has_log: bool,
}

/// The bound of a member that is in sync as a whole.
pub const FULLY_TRUSTED: Sector = Sector(u64::MAX);

/// What is known of a range that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadState {
    /// A read failed.
    Seen,
    /// The supervisor was told to put it on record.
    Told,
    /// On record: nobody takes what is there for data.
    OnRecord,
}

#[derive(Clone, Copy, Debug)]
struct Bad {
    end: u64,
    state: BadState,
}

#[derive(Debug)]
struct Member {
    config: MemberConfig,
    failed: bool,
    /// Ranges that cannot be read, by their starts; from the data offset. Those on record are so for good,
    /// until they are written.
    bad: BTreeMap<u64, Bad>,
    reads: u32,
    head: Sector,
}

impl Member {
    fn new(config: MemberConfig) -> Self {
        let ranges = config.bad_blocks.iter().flatten();
        let state = BadState::OnRecord;
        let bad = |range: &Range<u64>| (range.start, Bad { end: range.end, state });
        let bad = ranges.map(bad).collect();
        Self { config, failed: false, bad, reads: 0, head: Sector(0) }
    }
}

/// The members of one shard.
#[derive(Debug)]
pub struct Members {
    all: Vec<Member>,
    slots: Vec<Option<MemberId>>,
    /// By slot: who is to take the member's place.
    replacements: Vec<Option<MemberId>>,
    /// The array's slots; behind them there may be some that were given up.
    count: usize,
    unrecorded: Vec<MemberId>,
    /// A stream of reads stays with members without a head, too.
    keeps_streams: bool,
}

impl Members {
    /// Puts each member into its slot; of two the later one replaces the other.
    #[must_use]
    pub fn new(raid_disks: u16, configs: &[MemberConfig]) -> Self {
        let mut this = Self {
            all: configs.iter().cloned().map(Member::new).collect(),
            slots: vec![None; raid_disks as usize],
            keeps_streams: false,
            replacements: vec![None; raid_disks as usize],
            count: raid_disks as usize,
            unrecorded: Vec::new(),
        };
        for (id, config) in (0..).map(MemberId).zip(configs) {
            if let Some(slot) = config.slot {
                this.take_place(id, slot);
            }
        }
        this
    }

    /// The array has so many slots from now on. Those that are given up are empty, and stay here, since I/O under way may
    /// name them.
    pub fn set_slots(&mut self, raid_disks: u16) {
        self.count = raid_disks.into();
        let len = self.count.max(self.slots.len());
        self.slots.resize(len, None);
        self.replacements.resize(len, None);
        assert!(self.slots[self.count..].iter().all(Option::is_none), "a slot in use is kept");
    }

    /// Members are of another geometry from now on. None of them knows of anything bad.
    pub fn place_anew(&mut self, raid_disks: u16, places: &[MemberPlace]) {
        self.slots = vec![None; raid_disks.into()];
        self.replacements = vec![None; raid_disks.into()];
        self.count = raid_disks.into();
        for (id, place) in (0..).map(MemberId).zip(places) {
            let member = &mut self.all[usize::from(id.0)];
            (member.config.data_offset, member.config.slot) = (place.data_offset, place.slot);
            member.config.trusted_to = FULLY_TRUSTED;
            member.config.bad_blocks = place.has_log.then(Vec::new);
            member.bad.clear();
            if let Some(slot) = place.slot.filter(|_| !member.failed) {
                self.take_place(id, slot);
            }
        }
    }

    fn take_place(&mut self, member: MemberId, slot: Slot) {
        let slot = slot.0 as usize;
        let place =
            if self.slots[slot].is_none() { &mut self.slots } else { &mut self.replacements };
        place[slot] = Some(member);
    }

    /// The member that holds good data of `slot` in all these sectors; its replacement, if only that does.
    #[must_use]
    pub fn usable(&self, slot: Slot, range: Range<u64>) -> Option<MemberId> {
        let in_place = [self.slots[slot.0 as usize], self.replacements[slot.0 as usize]];
        in_place.into_iter().flatten().find(|&id| self.holds(id, &range))
    }

    /// Whether a member's data is right in all these sectors, and can be read.
    #[must_use]
    pub fn holds(&self, member: MemberId, range: &Range<u64>) -> bool {
        let member = &self.all[member.0 as usize];
        let last = member.bad.range(..range.end).next_back();
        let is_bad = last.is_some_and(|(_, bad)| bad.end > range.start);
        range.end <= member.config.trusted_to.0 && !is_bad
    }

    /// Whether a member has all of these sectors, but for what is bad.
    #[must_use]
    pub fn is_trusted(&self, member: MemberId, range: &Range<u64>) -> bool {
        range.end <= self.all[member.0 as usize].config.trusted_to.0
    }

    /// Whether somebody in a slot besides `member` has what is written there, or goes: nobody on record as bad
    /// there, or who will be.
    #[must_use]
    pub fn is_kept_by_another(&self, slot: Slot, member: MemberId, range: &Range<u64>) -> bool {
        let in_place = [self.slots[slot.0 as usize], self.replacements[slot.0 as usize]];
        let mut others = in_place.into_iter().flatten().filter(|&id| id != member);
        others.any(|id| self.is_trusted(id, range) && !self.is_told_in_part(id, range))
    }

    /// Who is to take a member's place, while it has one.
    #[must_use]
    pub fn replacement_of(&self, member: MemberId) -> Option<MemberId> {
        let slot = self.slot_of(member)?.0 as usize;
        self.replacements[slot].filter(|_| self.slots[slot] == Some(member))
    }

    /// Whether a member's place can be taken at once.
    #[must_use]
    pub fn has_whole_replacement(&self, member: MemberId) -> bool {
        let is_whole = |id: MemberId| self.all[id.0 as usize].config.trusted_to == FULLY_TRUSTED;
        self.replacement_of(member).is_some_and(is_whole)
    }

    /// Who of a slot lacks some of these sectors: its member, which gets them together with its
    /// replacement, or only the replacement.
    #[must_use]
    pub fn lacking(&self, slot: Slot, range: &Range<u64>) -> Option<MemberId> {
        let in_place = [self.slots[slot.0 as usize], self.replacements[slot.0 as usize]];
        in_place.into_iter().flatten().find(|&id| !self.holds(id, range))
    }

    /// How many sectors from `at` on who is in a slot is as good, or as bad, as there.
    #[must_use]
    pub fn alike(&self, slot: Slot, at: u64) -> u64 {
        let in_place = [self.slots[slot.0 as usize], self.replacements[slot.0 as usize]];
        in_place.into_iter().flatten().map(|id| self.is_alike(id, at)).min().unwrap_or(u64::MAX)
    }

    fn is_alike(&self, id: MemberId, at: u64) -> u64 {
        let member = &self.all[id.0 as usize];
        let trust = member.config.trusted_to.0.checked_sub(at).filter(|&len| len > 0);
        let before = member.bad.range(..=at).next_back().map(|(_, bad)| bad.end);
        let inside = before.filter(|&end| end > at).map(|end| end - at);
        let next = member.bad.range(at + 1..).next().map(|(&start, _)| start - at);
        [trust, inside, next].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// A range cannot be read.
    pub fn mark_bad(&mut self, member: MemberId, range: Range<u64>, state: BadState) {
        self.clear_bad(member, range.clone());
        self.all[member.0 as usize].bad.insert(range.start, Bad { end: range.end, state });
    }

    /// A range has been written.
    pub fn clear_bad(&mut self, member: MemberId, range: Range<u64>) {
        let bad = &mut self.all[member.0 as usize].bad;
        let touched: Vec<_> = bad.range(..range.end).map(|(&at, &bad)| (at, bad)).rev().collect();
        for (start, old) in touched.into_iter().take_while(|(_, old)| old.end > range.start) {
            bad.remove(&start);
            if start < range.start {
                bad.insert(start, Bad { end: range.start, ..old });
            }
            if old.end > range.end {
                bad.insert(range.end, old);
            }
        }
    }

    /// Whether all of a range is on record as bad, so that nobody takes what is there for data.
    #[must_use]
    pub fn is_on_record(&self, member: MemberId, range: &Range<u64>) -> bool {
        let bad = &self.all[member.0 as usize].bad;
        let mut at = range.start;
        while at < range.end {
            match bad.range(..=at).next_back() {
                Some((_, bad)) if bad.end > at && bad.state == BadState::OnRecord => at = bad.end,
                _ => return false,
            }
        }
        true
    }

    /// Whether some of a range is on record as bad, or about to be.
    #[must_use]
    pub fn is_told_in_part(&self, member: MemberId, range: &Range<u64>) -> bool {
        let bad = &self.all[member.0 as usize].bad;
        let touched = bad.range(..range.end).rev().take_while(|(_, bad)| bad.end > range.start);
        touched.into_iter().any(|(_, bad)| bad.state != BadState::Seen)
    }

    /// Whether there is a log for what cannot be read.
    #[must_use]
    pub fn has_log(&self, member: MemberId) -> bool {
        self.all[member.0 as usize].config.bad_blocks.is_some()
    }

    /// The partial parity logs of all members, also of those in no slot yet.
    pub fn logs(&self) -> impl Iterator<Item = (Sector, Shape)> + '_ {
        self.all.iter().filter_map(|member| member.config.log)
    }

    /// The member's partial parity log.
    #[must_use]
    pub fn log(&self, member: MemberId) -> Option<(Sector, Shape)> {
        self.all[member.0 as usize].config.log
    }

    /// Whether a slot lacks a member in sync.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        let mut slots = (0..self.count as u16).map(Slot);
        slots.any(|slot| self.trusted_to(slot) != FULLY_TRUSTED)
    }

    /// The member that writes to `slot` go to, however far its data can be trusted.
    #[must_use]
    pub fn writable(&self, slot: Slot) -> Option<MemberId> {
        self.slots[slot.0 as usize]
    }

    /// Takes in another member.
    pub fn add(&mut self, config: MemberConfig) {
        self.all.push(Member::new(config));
    }

    /// Puts a member that has not failed into a slot, or beside the member there, to replace it.
    pub fn put(&mut self, member: MemberId, slot: Slot) {
        let entry = &mut self.all[member.0 as usize];
        if !entry.failed {
            entry.config.slot = Some(slot);
            entry.config.trusted_to = Sector(0);
            self.take_place(member, slot);
        }
    }

    /// Reads may go to the member below `sector`.
    pub fn trust(&mut self, member: MemberId, sector: Sector) {
        self.all[member.0 as usize].config.trusted_to = sector;
    }

    /// How far the member of `slot` can be trusted; nothing of an empty slot.
    #[must_use]
    pub fn trusted_to(&self, slot: Slot) -> Sector {
        let id = self.slots[slot.0 as usize];
        id.map_or(Sector(0), |id| self.all[id.0 as usize].config.trusted_to)
    }

    /// Whether every slot holds a member that is in sync and readable as a whole.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.slots[..self.count].iter().all(|slot| {
            slot.is_some_and(|id| {
                let member = &self.all[id.0 as usize];
                member.config.trusted_to == FULLY_TRUSTED && member.bad.is_empty()
            })
        })
    }

    /// Members in slots.
    pub fn in_slots(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.slots.iter().flatten().copied()
    }

    /// The slot of a member.
    #[must_use]
    pub fn slot_of(&self, member: MemberId) -> Option<Slot> {
        self.all[member.0 as usize].config.slot
    }

    /// Where the member's data begins.
    #[must_use]
    pub fn data_offset(&self, member: MemberId) -> Sector {
        self.all[member.0 as usize].config.data_offset
    }

    /// Uses the member no more; its replacement takes its place. True the first time.
    pub fn fail(&mut self, member: MemberId) -> bool {
        let entry = &mut self.all[member.0 as usize];
        if core::mem::replace(&mut entry.failed, true) {
            return false;
        }
        for (slot, replacement) in self.slots.iter_mut().zip(&mut self.replacements) {
            if *slot == Some(member) {
                *slot = replacement.take();
            }
            replacement.take_if(|id| *id == member);
        }
        self.unrecorded.push(member);
        true
    }

    /// Whether the member has failed.
    #[must_use]
    pub fn has_failed(&self, member: MemberId) -> bool {
        self.all[member.0 as usize].failed
    }

    /// The failure is stable in the other superblocks.
    pub fn recorded(&mut self, member: MemberId) {
        self.unrecorded.retain(|&m| m != member);
    }

    /// Whether a failure waits to be recorded, and so do the replies to writes.
    #[must_use]
    pub fn unrecorded(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// Whether reads go to others, if there are others.
    #[must_use]
    pub fn is_write_mostly(&self, member: MemberId) -> bool {
        self.all[member.0 as usize].config.write_mostly
    }

    /// Notes a read for [`Self::cost`].
    pub fn read_started(&mut self, member: MemberId, end: Sector) {
        let entry = &mut self.all[member.0 as usize];
        entry.reads += 1;
        entry.head = end;
    }

    /// The read has ended.
    pub fn read_ended(&mut self, member: MemberId) {
        self.all[member.0 as usize].reads -= 1;
    }

    /// A stream of reads stays with one member however deep it is, as with heads.
    pub(crate) fn keep_streams(&mut self) {
        self.keeps_streams = true;
    }

    /// What a read of `sector` costs on this member, lowest best: a moving head pays for distance, and nothing where the last
    /// read ended, whatever waits there; other members pay for their queue, and then for not going on there. So a stream
    /// stays on a copy with a head, and at depth 1 on any; at a greater depth all copies without a head work.
    #[must_use]
    pub fn cost(&self, member: MemberId, sector: Sector) -> (u64, u64) {
        let entry = &self.all[member.0 as usize];
        let goes_on = entry.head == sector;
        let rotational = entry.config.rotational;
        match rotational {
            _ if goes_on && (rotational || self.keeps_streams) => (0, 0),
            true => (1 + entry.head.0.abs_diff(sector.0), u64::from(entry.reads)),
            false => (u64::from(entry.reads), u64::from(!goes_on)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(slot: u16, trusted_to: Sector) -> MemberConfig {
        MemberConfig {
            data_offset: Sector(0),
            slot: Some(Slot(slot)),
            trusted_to,
            rotational: false,
            write_mostly: false,
            bad_blocks: Some(Vec::new()),
            log: None,
        }
    }

    fn pair() -> Members {
        Members::new(2, &[config(0, FULLY_TRUSTED), config(1, FULLY_TRUSTED)])
    }

    const SECOND: MemberId = MemberId(1);

    /// What the second member does not hold of the first hundred sectors.
    fn lacking(members: &Members) -> Vec<u64> {
        (0..100).filter(|&at| !members.holds(SECOND, &(at..at + 1))).collect()
    }

    #[test]
    fn what_is_written_is_good_again_and_nothing_beside_it() {
        let mut members = pair();
        members.mark_bad(SECOND, 10..20, BadState::Seen);
        assert!(!members.complete());
        members.clear_bad(SECOND, 12..15);
        assert_eq!(lacking(&members), [10, 11, 15, 16, 17, 18, 19]);
        members.clear_bad(SECOND, 10..12);
        assert_eq!(lacking(&members), [15, 16, 17, 18, 19]);
        members.clear_bad(SECOND, 18..30);
        assert_eq!(lacking(&members), [15, 16, 17]);
        members.clear_bad(SECOND, 15..18);
        assert!(members.complete());
    }

    #[test]
    fn a_range_is_on_record_if_all_of_it_is() {
        let mut members = pair();
        members.mark_bad(SECOND, 10..20, BadState::OnRecord);
        members.mark_bad(SECOND, 20..30, BadState::OnRecord);
        members.mark_bad(SECOND, 30..40, BadState::Told);
        for (range, expected) in [(10..30, true), (12..13, true), (9..11, false), (25..31, false)] {
            assert_eq!(members.is_on_record(SECOND, &range), expected, "{range:?}");
        }
        assert!(!members.is_on_record(SECOND, &(50..51)));
    }

    #[test]
    fn sectors_are_alike_up_to_where_trust_or_a_bad_block_begins_or_ends() {
        let mut members = Members::new(2, &[config(0, FULLY_TRUSTED), config(1, Sector(80))]);
        members.mark_bad(SECOND, 30..40, BadState::Seen);
        for (at, expected) in [(0, 30), (10, 20), (30, 10), (35, 5), (40, 40), (79, 1)] {
            assert_eq!(members.alike(Slot(1), at), expected, "from {at}");
        }
        assert_eq!(members.alike(Slot(1), 80), u64::MAX);
        assert_eq!(members.alike(Slot(0), 5), u64::MAX - 5);
    }

    #[test]
    fn an_array_is_degraded_while_a_slot_lacks_a_member_in_sync() {
        assert!(!pair().is_degraded());
        assert!(Members::new(2, &[config(0, FULLY_TRUSTED)]).is_degraded());
        let recovering = [config(0, FULLY_TRUSTED), config(1, Sector(8))];
        let members = Members::new(2, &recovering);
        assert!(members.is_degraded() && !members.complete());
    }

    #[test]
    fn a_replacement_takes_the_place_at_once_only_if_it_is_whole() {
        for (trusted_to, expected) in [(FULLY_TRUSTED, true), (Sector(8), false)] {
            let replaced =
                [config(0, FULLY_TRUSTED), config(1, FULLY_TRUSTED), config(1, trusted_to)];
            let members = Members::new(2, &replaced);
            assert_eq!(members.has_whole_replacement(SECOND), expected);
            assert!(!members.has_whole_replacement(MemberId(0)), "it has none");
        }
    }

    #[test]
    fn some_members_keep_no_log_of_what_is_bad() {
        let without = MemberConfig { bad_blocks: None, ..config(1, FULLY_TRUSTED) };
        let members = Members::new(2, &[config(0, FULLY_TRUSTED), without]);
        assert!(members.has_log(MemberId(0)) && !members.has_log(SECOND));
    }

    #[test]
    fn reads_cost_distance_on_a_moving_head_and_a_turn_elsewhere() {
        let disk = MemberConfig { rotational: true, ..config(0, FULLY_TRUSTED) };
        let mut members = Members::new(2, &[disk, config(1, FULLY_TRUSTED)]);
        let costs = |members: &Members, at| [0, 1].map(|id| members.cost(MemberId(id), Sector(at)));
        assert_eq!(costs(&members, 8), [(9, 0), (0, 1)]);
        (0..2).for_each(|id| members.read_started(MemberId(id), Sector(100)));
        assert_eq!(costs(&members, 100), [(0, 0), (1, 0)], "both go on there");
        assert_eq!(costs(&members, 90), [(11, 1), (1, 1)]);
        (0..2).for_each(|id| members.read_ended(MemberId(id)));
        assert_eq!(costs(&members, 100), [(0, 0); 2]);
        assert_eq!(costs(&members, 90), [(11, 0), (0, 1)]);
    }
}
