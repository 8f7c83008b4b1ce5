//! Sectors that cannot be read, and what becomes of them. The budget: see the crate's head.

use super::{Event, InFlight, Phase, Session};
use crate::{disk::Wear, lifetime::DisksAtRest};
use lapstrake_array::start::bad_block_log;
use lapstrake_engine::{DiskState, IoKind, MemberId, MemberIo, Notice};
use lapstrake_geometry::{Content, Sector, Sectors, Slot};

impl Session<'_> {
    /// Whether all of a member can be read, as far as anybody knows.
    pub(super) fn is_readable(&self, member: MemberId) -> bool {
        let index = usize::from(member.0);
        let is_on_record =
            self.supervisor().members().nth(index).is_some_and(|m| m.0.has_bad_blocks());
        let nothing_bad = self.disks[self.disk_of[index]].bad().next().is_none();
        nothing_bad && !is_on_record && !self.sore.contains(&member)
    }

    /// A read is about to start: may sectors of it, or elsewhere, go bad? True if only this read is to
    /// fail.
    pub(super) fn draw_spoil(&mut self, io: &MemberIo) -> bool {
        let every = self.plan.spoil_every;
        let (start, end) = self.data_area[usize::from(io.member.0)];
        let is_data = start <= io.sector.0 && io.sector.0 + io.len.0 <= end;
        let is_in_sync = self.supervisor().state(io.member).0 == DiskState::InSync;
        if every == 0 || !is_data || !is_in_sync || !self.dice.one_in(every) {
            return false;
        }
        if !self.may_lose(io.member) {
            // Where the array cannot do without the member it may do without this.
            let is_spared = self.has_copies(io);
            self.failing_reads += u32::from(is_spared);
            if is_spared {
                self.sore.insert(io.member);
                self.say(|| format!("{:?} fails to read once what others have", io.member));
            }
            return is_spared;
        }
        self.sore.insert(io.member);
        let mut members = self.supervisor().members();
        let has_log =
            members.nth(usize::from(io.member.0)).is_some_and(|m| m.0.badblock_log().is_some());
        drop(members);
        if !has_log {
            // What cannot be mended at once costs the member.
            self.hit.insert(io.member);
        }
        let wear = match self.dice.below(8) {
            0..3 => {
                self.failing_reads += 1;
                self.say(|| format!("{:?} fails to read once", io.member));
                return true;
            }
            3..5 => Wear::Latent,
            5 => Wear::Worn,
            _ => Wear::Refusing,
        };
        let is_elsewhere = self.dice.one_in(8);
        let (from, len) = if is_elsewhere { (start, end - start) } else { (io.sector.0, io.len.0) };
        let at = from + self.dice.below(len);
        for sector in at..(at + self.dice.between(1..=12)).min(end) {
            self.disk(io.member).spoil(sector, wear);
        }
        self.say(|| format!("{:?} goes bad from sector {at} on: {wear:?}", io.member));
        false
    }

    /// Whether other sound members have all that is read.
    fn has_copies(&self, io: &MemberIo) -> bool {
        let Some(slot) = self.sound_slot(io.member).filter(|_| !self.is_frail()) else {
            return false;
        };
        let first = io.sector.0 - self.data_area[usize::from(io.member.0)].0;
        let sound: Vec<Slot> = (0..self.disk_of.len() as u16)
            .filter_map(|other| self.sound_slot(MemberId(other)).filter(|&held| held != slot))
            .collect();
        (first..first + io.len.0).all(|at| match self.geometry.content(slot, Sector(at)) {
            Content::Data(sector) => {
                let homes = self.geometry.map(sector).homes;
                homes.iter().any(|home| sound.contains(&home.slot))
            }
            _ => false,
        })
    }

    /// Whether the disk itself refuses an I/O. While redundancy is not whole it takes writes: refusing them costs the
    /// member.
    pub(super) fn is_refused(&mut self, io: &MemberIo) -> bool {
        let (at, len) = (io.sector.0, io.len.0);
        match io.kind {
            IoKind::Read => !self.disk(io.member).is_readable(at, len),
            IoKind::Write { .. } | IoKind::WriteZeroes { .. } => {
                !self.is_frail() && self.disk(io.member).refuses(at, len)
            }
            IoKind::Flush | IoKind::Discard => false,
        }
    }

    /// An I/O fails on a member that does not.
    pub(super) fn io_refused(&mut self, flight: &InFlight) {
        let MemberIo { member, sector, len, .. } = flight.io;
        self.sore.insert(member);
        if self.disk(member).is_worn(sector.0, len.0) {
            // With no room on record it is used no more.
            self.hit.insert(member);
        }
        self.failing_reads -= u32::from(flight.is_spoilt);
    }

    /// Who could not read once is as good as ever when nothing is left of it to be mended or put on record.
    pub(super) fn forget_sores(&mut self) {
        if self.sore.is_empty() || self.failing_reads > 0 || !self.supervisor().is_recorded() {
            return;
        }
        let is_told = |event: &Event| matches!(event, Event::Notice(Notice::Bad(..)));
        let is_idle = self.shards.iter().all(|shard| shard.is_sync_idle());
        if is_idle && !self.queue.values().any(is_told) {
            self.sore.clear();
        }
    }

    /// What has gone on record as bad can be read again now and then, though not what it once held.
    pub(super) fn recorded_bad(&mut self, member: MemberId, start: Sector, len: Sectors) {
        let from = start.0 + self.data_area[usize::from(member.0)].0;
        let range = from..from + len.0;
        let touches = |io: &MemberIo| {
            io.member == member && io.sector.0 < range.end && range.start < io.sector.0 + io.len.0
        };
        let index = usize::from(member.0);
        let supervisor = self.coordinator.supervisor().expect("arrays are written to");
        let (superblock, state) = supervisor.members().nth(index).expect("a member");
        let disk = self.disk_of[index];
        let io = DisksAtRest { disks: self.disks, file: self.file, cut_in: None };
        let log = bad_block_log(&io, &disk, superblock).ok().flatten();
        let Some(log) = log.filter(|_| state != DiskState::Faulty) else { return };
        let (first, end) = (start.0, start.0 + len.0);
        let is_busy = self.queue.values().any(|event| match event {
            Event::Io(flight) => touches(&flight.io),
            // It was written since, and a disk that forgets that is beyond the budget.
            Event::Notice(Notice::Good(good, at, sectors)) => {
                *good == member && at.0 < end && first < at.0 + sectors.0
            }
            _ => false,
        });
        if is_busy || self.phase != Phase::Load || !self.dice.one_in(2) {
            return;
        }
        for sector in range.filter(|&sector| log.contains(Sector(sector), Sectors(1))) {
            self.disk(member).come_back(sector);
        }
        self.say(|| format!("{member:?} can be read again, to no good, at {from}"));
    }
}
