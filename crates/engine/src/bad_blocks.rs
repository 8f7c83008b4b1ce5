//! Members' bad-block logs as the supervisor keeps them: what goes in, what comes out, when a log is written.

use crate::{
    messages::Order,
    meta_writes::Meta,
    supervisor::{Event, Loss, MemberState, Supervisor, Target},
    types::MemberId,
};
use lapstrake_geometry::{Content, Sector, Sectors};

/// A member that could neither be read nor mended in more places, neighbours counted as one, while nobody else is
/// missing, is worn out and used no more.
const TIMES_BAD_MAX: u32 = 32;

/// Sectors of a member, from its data offset.
pub(crate) type BadRange = (MemberId, Sector, Sectors);

impl Supervisor {
    /// What a member lacks goes into its log; if that is full, or there is none, the member goes.
    pub(crate) fn note_bad(&mut self, (id, start, len): BadRange) {
        let is_whole = !self.is_degraded();
        let member = &mut self.members[usize::from(id.0)];
        let at = start + Sectors(member.superblock.data_offset().0);
        let around = (Sector(at.0.saturating_sub(1)), len + Sectors(2));
        let is_new =
            member.bad_blocks.as_ref().is_none_or(|b| b.count_within(around.0, around.1).0 == 0);
        member.times_bad += u32::from(is_new);
        if is_whole && member.times_bad > TIMES_BAD_MAX {
            self.fail_if_survivable(id);
            return;
        }
        let known = member.bad_blocks.as_ref().map_or(Sectors::ZERO, |b| b.count_within(at, len));
        let fits = match (&mut member.bad_blocks, member.superblock.badblock_log()) {
            (Some(bad), Some((_, room))) => {
                bad.insert(at, len);
                bad.fits(room)
            }
            _ => false,
        };
        if !fits {
            if !self.fail_if_survivable(id) {
                self.give_up(Loss::Data);
            }
            return;
        }
        member.log_dirty = true;
        self.updates.found_bad((id, start, len));
        self.orders.push_back(Order::Bad(id, start, len));
        // A recovery that is taken up again meets what it could not recover before.
        if known < len {
            self.happened.push_back(Event::BadBlocks(id, start, len));
        }
    }

    /// How much of the member's part of the array is on record as bad.
    #[must_use]
    pub fn bad_sectors(&self, member: MemberId) -> Sectors {
        let member = &self.members[usize::from(member.0)];
        let (start, len) = (member.superblock.data_offset(), self.geometry.component());
        member.bad_blocks.as_ref().map_or(Sectors::ZERO, |bad| bad.count_within(start, len))
    }

    /// Another member with bad blocks on record of which the data may be nowhere but on this one: the array would not
    /// live without both.
    #[must_use]
    pub fn backed_by(&self, id: MemberId) -> Option<MemberId> {
        let all = (0..).map(MemberId).zip(&self.members);
        let others = all.filter(|(other, m)| *other != id && m.standing == MemberState::InSync);
        let is_whole = |other: MemberId| self.bad_sectors(other).is_zero();
        let survives = self.geometry.survives(|slot| {
            others.clone().any(|(other, m)| m.slot == Some(slot) && is_whole(other))
        });
        let mut worn = others.clone().map(|(other, _)| other).filter(|&other| !is_whole(other));
        worn.next().filter(|_| !survives)
    }

    /// Where in the array a member's sectors are, if they hold data and follow each other there.
    #[must_use]
    pub fn array_start(&self, member: MemberId, start: Sector, len: Sectors) -> Option<Sector> {
        let slot = self.members[usize::from(member.0)].slot?;
        let last = len.0.checked_sub(1)?;
        let content = |sector| self.geometry.content(slot, Sector(sector));
        match (content(start.0), content(start.0 + last)) {
            (Content::Data(first), Content::Data(end)) if end.0 == first.0 + last => Some(first),
            _ => None,
        }
    }

    pub(crate) fn note_good(&mut self, (id, start, len): BadRange) {
        let member = &mut self.members[usize::from(id.0)];
        let at = start + Sectors(member.superblock.data_offset().0);
        if let Some(bad) = &mut member.bad_blocks
            && bad.contains(at, len)
        {
            bad.remove(at, len);
            member.log_dirty = true;
            self.updates.request();
            // A range that was split may need more room. A log that is out of date would take away what was written.
            let fits = member.superblock.badblock_log().is_none_or(|(_, room)| bad.fits(room));
            if !fits {
                self.fail_if_survivable(id);
            }
        }
        self.orders.push_back(Order::GoodAgain(id, start, len));
    }

    /// Tells shards what of a range is on record: all of it but what was written meanwhile.
    pub(crate) fn tell_recorded(&mut self, (id, start, len): BadRange) {
        let member = &self.members[usize::from(id.0)];
        let offset = member.superblock.data_offset().0;
        let (from, end) = (start.0 + offset, start.0 + offset + len.0);
        let logged = member.bad_blocks.iter().flat_map(|bad| bad.iter());
        let parts = logged.map(|(at, len)| (at.0.max(from), (at.0 + len.0).min(end)));
        for (at, to) in parts.filter(|(at, to)| at < to) {
            self.orders.push_back(Order::BadRecorded(id, Sector(at - offset), Sectors(to - at)));
        }
    }

    /// Logs that are behind, before superblocks that go by them. Of one member one write is on its way at a
    /// time: of two the older could come last.
    pub(crate) fn send_logs(&mut self) {
        for index in 0..self.members.len() {
            let target = Target::Member(MemberId(index as u16));
            let is_on_its_way = self.writes.is_on_its_way(target, Meta::BadBlocks);
            let member = &mut self.members[index];
            if is_on_its_way || !member.is_present() || !member.log_dirty {
                continue;
            }
            let (Some(bad), Some((sector, room))) =
                (&member.bad_blocks, member.superblock.badblock_log())
            else {
                continue;
            };
            // One without room whose member is still needed stays as it is on record until ranges go.
            if let Ok(data) = bad.encode(room) {
                member.log_dirty = false;
                self.writes.send(target, sector, data, Meta::BadBlocks);
            }
        }
    }
}
