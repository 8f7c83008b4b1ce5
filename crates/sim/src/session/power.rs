//! The power goes off: under everything, which ends a session, or under some members, with which the server has to
//! live. The budget: see the crate's head.

use super::{End, Event, Phase, Session};
use crate::disk::Cut;
use lapstrake_engine::{DiskState, MemberId, Target};
use lapstrake_geometry::{Sectors, Slot};
use lapstrake_metadata::detect;

/// How often the operator looks after a member that has power again.
const LOOK_NS: u64 = 20_000_000;

impl Session<'_> {
    pub(super) fn plan_outages(&mut self) {
        if self.plan.outages == 0 {
            return;
        }
        for _ in 0..self.dice.below(self.plan.outages + 1) {
            let within = self.dice.pick(&[1_000_000, 100_000_000, 3_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::Outage);
        }
    }

    /// Members on a shelf of their own lose power: some that the level survives without; more than that, or all,
    /// which the session does not outlast.
    pub(super) fn outage(&mut self) {
        let Some((shelf, is_survived)) = self.draw_shelf() else { return };
        let how = self.draw_kept();
        self.say(|| {
            format!("{shelf:?} lose power; kept of caches: {how:?}; survived: {is_survived}")
        });
        for member in &shelf {
            self.darken(*member, how);
        }
        if !is_survived {
            return self.doom();
        }
        for member in shelf {
            if self.dice.one_in(4) {
                continue;
            }
            let disk = self.disk_of[usize::from(member.0)];
            let delay = self.dice.below(500_000_000);
            self.commands_left += 1;
            self.at(delay, Event::PowerBack(disk));
        }
    }

    /// The session will not last.
    pub(super) fn doom(&mut self) {
        let bound = self.dice.pick(&[20, 200, 2000]);
        self.doomed_at = Some(self.events + self.dice.between(1..=bound));
    }

    /// Who is on it, and whether the level survives without them.
    fn draw_shelf(&mut self) -> Option<(Vec<MemberId>, bool)> {
        let is_gone = |member: &MemberId| {
            let state = self.supervisor().state(*member).0;
            matches!(state, DiskState::Faulty | DiskState::Removed)
                || self.vanished.contains(member)
        };
        let all = (0..self.disk_of.len() as u16).map(MemberId);
        let mut all: Vec<MemberId> = all.filter(|member| !is_gone(member)).collect();
        if self.doomed_at.is_some() || all.is_empty() || self.phase == Phase::Done {
            return None;
        }
        for index in 1..all.len() {
            let other = self.dice.below(index as u64 + 1) as usize;
            all.swap(index, other);
        }
        let count = self.dice.between(1..=all.len() as u64) as usize;
        if self.dice.one_in(8) {
            return Some((all, false));
        }
        if self.dice.one_in(4) {
            // Whose failure is still put on record is for chance, so none may be needed for another reason.
            let slots = (0..self.geometry.raid_disks()).map(Slot);
            let mut slots = slots.map(|slot| all.iter().any(|&m| self.sound_slot(m) == Some(slot)));
            let has_all = slots.all(|has| has);
            all.truncate(count);
            return (has_all && !self.is_frail() && !self.may_spare(&all)).then_some((all, false));
        }
        let mut shelf = Vec::new();
        for member in all.into_iter().take(count) {
            shelf.push(member);
            if !self.may_spare(&shelf) {
                shelf.pop();
            }
        }
        (!shelf.is_empty()).then_some((shelf, true))
    }

    /// Whether the array does without these, of which some may hold nothing yet.
    fn may_spare(&self, members: &[MemberId]) -> bool {
        let is_journal =
            |&member: &MemberId| self.supervisor().state(member).0 == DiskState::Journal;
        !members.iter().any(is_journal) && self.may_lose_all(members)
    }

    fn darken(&mut self, member: MemberId, how: Cut) {
        let disk = self.disk_of[usize::from(member.0)];
        for event in self.queue.values() {
            let disk = &mut self.disks[disk];
            match event {
                Event::Io(flight) if flight.io.member == member => {
                    disk.write_partly(flight.io.sector.0, &flight.data, false, self.dice);
                }
                Event::MetaWrite { write, .. } if write.target == Target::Member(member) => {
                    disk.write_partly(write.sector.0, &write.data, true, self.dice);
                }
                _ => {}
            }
        }
        self.disks[disk].cut(how, self.dice);
        self.hit.insert(member);
        self.vanished.insert(member);
        self.dark.insert(member);
    }

    /// A disk can be used again: once its failure is on record the operator takes it out and adds it anew.
    pub(super) fn power_back(&mut self, disk: usize) -> Result<(), String> {
        let is_it = |id: &MemberId| self.disk_of[usize::from(id.0)] == disk;
        let last = (0..self.disk_of.len() as u16).rev().map(MemberId).find(is_it);
        let last = last.ok_or("a disk of no member")?;
        if self.phase != Phase::Load || self.doomed_at.is_some() {
            self.commands_left -= 1;
            return Ok(());
        }
        let is_recorded = self.supervisor().is_recorded();
        match self.supervisor().state(last).0 {
            DiskState::Removed if is_recorded => {
                let size = Sectors(self.disks[disk].sectors());
                let Ok(found) = detect::probe(size, |offset, buf| {
                    self.disks[disk].read_at(offset, buf);
                    Ok::<_, std::convert::Infallible>(())
                });
                let own = found.best().ok_or("no superblock after an outage")?.clone();
                return self.add(disk, own);
            }
            DiskState::Faulty if is_recorded => {
                let now = self.now;
                self.supervisor_mut().handle_remove(now, last);
            }
            // Nobody has noticed yet.
            _ => {}
        }
        self.at(LOOK_NS, Event::PowerBack(disk));
        Ok(())
    }

    fn draw_kept(&mut self) -> Cut {
        self.dice.pick(&[Cut::Nothing, Cut::Everything, Cut::AnySectors, Cut::AnySectors])
    }

    /// The session ends here.
    pub(super) fn cut_now(&mut self) -> End {
        let how = self.draw_kept();
        self.cut(how);
        End::Cut
    }

    /// The power goes off under everything; or the server ends, and members keep what they have as long as their
    /// own power does.
    pub(crate) fn cut(&mut self, how: Cut) {
        self.say(|| format!("the power is cut; kept of caches: {how:?}"));
        for event in self.queue.take() {
            match event {
                Event::Io(flight) if !self.dark.contains(&flight.io.member) => {
                    self.write_partly(&flight);
                }
                Event::MetaWrite { write, .. } => {
                    let dark = &self.dark;
                    if !matches!(write.target, Target::Member(member) if dark.contains(&member)) {
                        self.meta_partly(&write);
                    }
                }
                _ => {}
            }
        }
        for disk in 0..self.disks.len() {
            let own = if self.plan.uneven_cuts { self.draw_kept() } else { how };
            self.disks[disk].cut(own, self.dice);
        }
        self.file.cut(how, self.dice);
    }
}
