//! Members' bad-block logs as the supervisor keeps them: what goes in, what comes out, when a log is written.
//!
//! [`BadBlockLog`] is one member's. Invariants:
//! - a log in memory that differs from the one last sent is to be written, with the next update;
//! - shards are told that a range is on record after the log and the superblocks are stable, and only of what of it was
//!   not written meanwhile.

use crate::{
    messages::Order,
    meta_writes::Meta,
    supervisor::{Event, Loss, Supervisor, Target},
    types::MemberId,
};
use alloc::vec::Vec;
use lapstrake_geometry::{Content, Sector, Sectors};
use lapstrake_metadata::{Superblock, badblocks::BadBlocks};

/// A member that could neither be read nor mended in more places, neighbours counted as one, while nobody else is
/// missing, is worn out and used no more.
const TIMES_BAD_MAX: u32 = 32;

/// Sectors of a member, from its data offset.
pub(crate) type BadRange = (MemberId, Sector, Sectors);

/// What becomes of a range that is to go into a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inserted {
    /// It is in, and some of it was not before.
    New,
    /// It is in, and all of it was before: a recovery that is taken up again meets what it could not recover.
    Known,
    /// The log has no room for it, or the member has no log.
    Full,
}

/// A member's bad-block log. Its sectors are counted from the member's first one, as on disk.
#[derive(Clone, Debug)]
pub(crate) struct BadBlockLog {
    /// None: the member has no log.
    blocks: Option<BadBlocks>,
    /// What was sent last is behind `blocks`.
    is_dirty: bool,
    /// In how many places something was found bad, however much of it was mended since.
    times_bad: u32,
}

impl BadBlockLog {
    pub(crate) fn new(blocks: Option<BadBlocks>, is_dirty: bool) -> Self {
        Self { blocks, is_dirty, times_bad: 0 }
    }

    /// Whether the member has one.
    pub(crate) fn is_kept(&self) -> bool {
        self.blocks.is_some()
    }

    pub(crate) fn has_bad_blocks(&self) -> bool {
        self.blocks.as_ref().is_some_and(|bad| !bad.is_empty())
    }

    fn count_within(&self, at: Sector, len: Sectors) -> Sectors {
        self.blocks.as_ref().map_or(Sectors::ZERO, |bad| bad.count_within(at, len))
    }

    /// Counts the places that were found bad: how many, with this one if it is no neighbour of another.
    fn count_place(&mut self, at: Sector, len: Sectors) -> u32 {
        let around = (Sector(at.0.saturating_sub(1)), len + Sectors(2));
        self.times_bad += u32::from(self.count_within(around.0, around.1).is_zero());
        self.times_bad
    }

    /// Takes in a range. `room`: what the log has on disk.
    fn insert(&mut self, at: Sector, len: Sectors, room: Option<Sectors>) -> Inserted {
        let known = self.count_within(at, len);
        let (Some(bad), Some(room)) = (&mut self.blocks, room) else { return Inserted::Full };
        bad.insert(at, len);
        if !bad.fits(room) {
            return Inserted::Full;
        }
        self.is_dirty = true;
        if known < len { Inserted::New } else { Inserted::Known }
    }

    /// Takes out a range that was written. None: nothing of it was in. Else whether the rest has room, as a range
    /// that was split may need more.
    fn remove(&mut self, at: Sector, len: Sectors, room: Option<Sectors>) -> Option<bool> {
        let bad = self.blocks.as_mut().filter(|bad| bad.contains(at, len))?;
        bad.remove(at, len);
        self.is_dirty = true;
        Some(room.is_none_or(|room| bad.fits(room)))
    }

    /// The parts of a range that are in the log.
    fn within(&self, from: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let logged = self.blocks.iter().flat_map(|bad| bad.iter());
        let parts = logged.map(move |(at, len)| (at.0.max(from), (at.0 + len.0).min(end)));
        parts.filter(|(at, to)| at < to)
    }

    /// What is to be written, if anything is. One without room whose member is still needed stays as it is on record
    /// until ranges go.
    fn take_due(&mut self, room: Sectors) -> Option<Vec<u8>> {
        let bad = self.blocks.as_ref().filter(|_| self.is_dirty)?;
        let data = bad.encode(room).ok()?;
        self.is_dirty = false;
        Some(data)
    }

    /// What was to be written was not.
    pub(crate) fn not_written(&mut self) {
        self.is_dirty = true;
    }
}

/// How long a member's log is on disk.
fn room(superblock: &Superblock) -> Option<Sectors> {
    superblock.badblock_log().map(|log| log.1)
}

impl Supervisor {
    /// What a member lacks goes into its log; if that is full, or there is none, the member goes.
    pub(crate) fn note_bad(&mut self, (id, start, len): BadRange) {
        let is_whole = !self.is_degraded();
        let (log, superblock) = self.members.log_of(id);
        let at = start + Sectors(superblock.data_offset().0);
        if log.count_place(at, len) > TIMES_BAD_MAX && is_whole {
            self.fail_if_survivable(id);
            return;
        }
        let inserted = log.insert(at, len, room(superblock));
        if inserted == Inserted::Full {
            if !self.fail_if_survivable(id) {
                self.give_up(Loss::Data);
            }
            return;
        }
        self.updates.found_bad((id, start, len));
        self.orders.push_back(Order::Bad(id, start, len));
        if inserted == Inserted::New {
            self.events.push_back(Event::BadBlocks(id, start, len));
        }
    }

    /// How much of the member's part of the array is on record as bad.
    #[must_use]
    pub fn bad_sectors(&self, member: MemberId) -> Sectors {
        let member = self.members.get(member);
        member.log().count_within(member.superblock().data_offset(), self.geometry.component())
    }

    /// Another member with bad blocks on record of which the data may be nowhere but on this one: the array would not
    /// live without both.
    #[must_use]
    pub fn backed_by(&self, id: MemberId) -> Option<MemberId> {
        let others = self.members.numbered().filter(|(other, m)| *other != id && m.is_in_sync());
        let is_whole = |other: MemberId| self.bad_sectors(other).is_zero();
        let survives = self.geometry.survives(|slot| {
            others.clone().any(|(other, m)| m.slot() == Some(slot) && is_whole(other))
        });
        let mut worn = others.clone().map(|(other, _)| other).filter(|&other| !is_whole(other));
        worn.next().filter(|_| !survives)
    }

    /// Where in the array a member's sectors are, if they hold data and follow each other there.
    #[must_use]
    pub fn array_start(&self, member: MemberId, start: Sector, len: Sectors) -> Option<Sector> {
        let slot = self.members.get(member).slot()?;
        let last = len.0.checked_sub(1)?;
        let content = |sector| self.geometry.content(slot, Sector(sector));
        match (content(start.0), content(start.0 + last)) {
            (Content::Data(first), Content::Data(end)) if end.0 == first.0 + last => Some(first),
            _ => None,
        }
    }

    pub(crate) fn note_good(&mut self, (id, start, len): BadRange) {
        let (log, superblock) = self.members.log_of(id);
        let at = start + Sectors(superblock.data_offset().0);
        if let Some(fits) = log.remove(at, len, room(superblock)) {
            self.updates.request();
            // A log that is out of date would take away what was written.
            if !fits {
                self.fail_if_survivable(id);
            }
        }
        self.orders.push_back(Order::GoodAgain(id, start, len));
    }

    /// Tells shards what of a range is on record: all of it but what was written meanwhile.
    pub(crate) fn tell_recorded(&mut self, (id, start, len): BadRange) {
        let member = self.members.get(id);
        let offset = member.superblock().data_offset().0;
        for (at, to) in member.log().within(start.0 + offset, start.0 + offset + len.0) {
            self.orders.push_back(Order::BadRecorded(id, Sector(at - offset), Sectors(to - at)));
        }
    }

    /// Logs that are behind, before superblocks that go by them. Of one member one write is on its way at a
    /// time: of two the older could come last.
    pub(crate) fn send_logs(&mut self) {
        for id in self.members.ids() {
            let target = Target::Member(id);
            let is_on_its_way = self.writes.is_on_its_way(target, Meta::BadBlocks);
            if is_on_its_way || !self.members.get(id).is_present() {
                continue;
            }
            let (log, superblock) = self.members.log_of(id);
            if let Some((sector, room)) = superblock.badblock_log()
                && let Some(data) = log.take_due(room)
            {
                self.writes.send(target, sector, data, (Meta::BadBlocks, true));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Option<Sectors> = Some(Sectors(1));

    fn empty() -> BadBlockLog {
        BadBlockLog::new(Some(BadBlocks::new(0).expect("no shift")), false)
    }

    #[test]
    fn a_log_is_to_be_written_once_after_each_change() {
        let mut log = empty();
        assert_eq!(log.take_due(Sectors(1)), None);
        assert_eq!(log.insert(Sector(64), Sectors(8), ROOM), Inserted::New);
        assert!(log.take_due(Sectors(1)).is_some());
        assert_eq!(log.take_due(Sectors(1)), None);
        log.not_written();
        assert!(log.take_due(Sectors(1)).is_some());
        assert_eq!(log.remove(Sector(64), Sectors(8), ROOM), Some(true));
        assert!(log.take_due(Sectors(1)).is_some() && !log.has_bad_blocks());
    }

    #[test]
    fn what_was_in_before_is_no_news() {
        let mut log = empty();
        assert_eq!(log.insert(Sector(64), Sectors(8), ROOM), Inserted::New);
        assert_eq!(log.insert(Sector(64), Sectors(8), ROOM), Inserted::Known);
        assert_eq!(log.insert(Sector(68), Sectors(8), ROOM), Inserted::New);
    }

    #[test]
    fn neighbours_are_one_place() {
        let mut log = empty();
        for (at, places) in [(64, 1), (72, 1), (200, 2), (56, 2)] {
            assert_eq!(log.count_place(Sector(at), Sectors(8)), places, "{at}");
            log.insert(Sector(at), Sectors(8), ROOM);
        }
    }

    #[test]
    fn a_member_without_a_log_and_one_whose_log_is_full_take_nothing() {
        let mut none = BadBlockLog::new(None, false);
        assert_eq!(none.insert(Sector(64), Sectors(8), ROOM), Inserted::Full);
        let mut log = empty();
        assert_eq!(log.insert(Sector(64), Sectors(8), None), Inserted::Full);
        let full = |n: &u64| log.insert(Sector(n * 64), Sectors(8), ROOM) == Inserted::Full;
        assert_eq!((0..100).find(full), Some(64), "a sector holds 64 ranges");
    }

    #[test]
    fn what_was_written_comes_out_and_the_rest_stays() {
        let mut log = empty();
        log.insert(Sector(64), Sectors(8), ROOM);
        assert_eq!(log.remove(Sector(40), Sectors(24), ROOM), None);
        assert_eq!(log.remove(Sector(66), Sectors(2), ROOM), Some(true));
        let parts: Vec<_> = log.within(0, 70).collect();
        assert_eq!(parts, [(64, 66), (68, 70)]);
    }
}
