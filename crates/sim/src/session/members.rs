//! Members that come, their I/O, and its faults.

use super::{
    Event, InFlight, Phase, Session,
    areas::{data_area, log_area},
    words::said,
};
use crate::{
    disk::{Disk, SECTOR},
    lifetime::DisksAtRest,
};
use lapstrake_array::start::{bad_block_log, empty_log};
use lapstrake_engine::{DiskState, IoKind, MemberId, MemberIo, MetaWrite, Target};
use lapstrake_geometry::{Sectors, Slot};
use lapstrake_metadata::{Superblock, create::spare};
use std::collections::BTreeSet;

impl Session<'_> {
    /// A member is added: it catches up if it can, else it is a spare.
    pub(super) fn add(&mut self, disk: usize, own: Superblock) -> Result<(), String> {
        self.commands_left -= 1;
        if self.phase != Phase::Load {
            return Ok(());
        }
        if self.supervisor().is_changing_shape() {
            // It would be refused.
            self.commands_left += 1;
            self.at(1_000_000, Event::Add(disk, Box::new(own)));
            return Ok(());
        }
        let superblock = if self.supervisor().can_catch_up(&own) { own } else { self.spare(disk)? };
        let mut io = DisksAtRest { disks: self.disks, file: self.file, cut_in: None };
        let log = bad_block_log(&io, &disk, &superblock).map_err(|fault| format!("{fault:?}"))?;
        empty_log(&mut io, &disk, &superblock).map_err(|halt| format!("{halt:?}"))?;
        self.data_area.push(data_area(&superblock));
        self.log_area.push(log_area(&superblock));
        self.disks[disk].renew();
        self.disk_of.push(disk);
        let rotational = self.dice.one_in(2);
        let now = self.now;
        let (id, added) = self.supervisor_mut().handle_add(now, superblock, log, rotational);
        self.say(|| format!("disk {disk} is added as {id:?}: {added:?}"));
        Ok(())
    }

    /// The operator has a member replaced, perhaps by a certain spare.
    pub(super) fn replace(&mut self) {
        self.commands_left -= 1;
        if self.phase != Phase::Load {
            return;
        }
        let all: Vec<(MemberId, DiskState)> =
            (0..).map(MemberId).zip(self.supervisor().members().map(|member| member.1)).collect();
        let of = |state| all.iter().filter(move |m| m.1 == state).map(|m| m.0);
        let in_sync: Vec<MemberId> = of(DiskState::InSync).collect();
        let with = of(DiskState::Spare).next().filter(|_| self.dice.one_in(2));
        let member = self.dice.pick(&in_sync);
        let now = self.now;
        if self.supervisor_mut().handle_replace(now, member, with) {
            self.say(|| format!("{member:?} is to be replaced, by {with:?}"));
            self.to_go.insert(member);
        }
    }

    pub(super) fn spare(&mut self, disk: usize) -> Result<Superblock, String> {
        let supervisor = self.coordinator.supervisor().expect("arrays are written to");
        let members: Vec<_> = supervisor.members().collect();
        let like = members.iter().find(|member| member.1 == DiskState::InSync);
        let like = like.ok_or("no member is in sync")?.0;
        let is_taken = |number: &u32| members.iter().any(|member| member.0.dev_number() == *number);
        let number = (u32::from(self.plan.disks)..).find(|number| !is_taken(number)).unwrap_or(0);
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.dice.next().to_le_bytes());
        let size = Sectors(self.disks[disk].sectors());
        spare(like, size, number, uuid, false).map_err(|error| error.to_string())
    }

    pub(super) fn io_ns(&mut self) -> u64 {
        let usual = self.dice.between(1..=self.plan.io_ns_max);
        // Longer than bits need to be swept.
        if self.plan.rebitmaps > 0 && self.dice.one_in(200) {
            return self.dice.below(4_000_000_000);
        }
        if self.dice.one_in(64) { usual * 20 } else { usual }
    }

    pub(super) fn disk(&mut self, member: MemberId) -> &mut Disk {
        &mut self.disks[self.disk_of[usize::from(member.0)]]
    }

    /// Whether the I/O that is about to start shall fail, within the budget; for good if the
    /// member vanishes with it.
    pub(super) fn draw_fault(&mut self, member: MemberId, every: u64) -> bool {
        self.ios += 1;
        if self.plan.fails_late && self.supervisor().geometry_before().is_none() {
            return false;
        }
        if every == 0 || !self.dice.one_in(every) || !self.may_lose(member) {
            return false;
        }
        self.hit.insert(member);
        if self.dice.one_in(2) {
            self.vanished.insert(member);
        }
        self.say(|| {
            format!("{member:?} fails; gone for good: {}", self.vanished.contains(&member))
        });
        true
    }

    /// The budget: see the crate's head.
    pub(super) fn may_lose(&self, member: MemberId) -> bool {
        if self.supervisor().state(member).0 == DiskState::Journal {
            return false;
        }
        self.may_lose_all(&[member])
    }

    /// The same of several at once.
    pub(super) fn may_lose_all(&self, lost: &[MemberId]) -> bool {
        let holds = |other: MemberId| !lost.contains(&other) && self.sound_slot(other).is_some();
        self.geometry.level().has_redundancy()
            && !self.is_frail()
            && self.supervisor().survives_with(holds)
    }

    /// The slot whose data can be had from a member, as far as anybody knows.
    pub(super) fn sound_slot(&self, member: MemberId) -> Option<Slot> {
        let (state, slot, _) = self.supervisor().state(member);
        let is_heard_of = self.unheard.get(&member).is_none_or(|&left| left == 0);
        let is_sound = state == DiskState::InSync
            && !self.hit.contains(&member)
            && !self.fresh.contains(&member)
            && !self.is_leaving(member)
            && self.is_readable(member);
        slot.filter(|_| is_sound && is_heard_of)
    }

    /// Whether a member goes as soon as it is on record that its replacement is whole: an I/O of the replacement that
    /// is on its way now and fails later finds nobody beside it, as one that begins later does.
    fn is_leaving(&self, member: MemberId) -> bool {
        let slot = self.supervisor().state(member).1;
        let mut fresh = self.fresh.iter().filter(|&&other| other != member);
        self.to_go.contains(&member) && fresh.any(|&other| self.supervisor().state(other).1 == slot)
    }

    /// Redundancy is not whole.
    pub(super) fn is_frail(&self) -> bool {
        self.was_forced || self.supervisor().resync_from().is_some()
    }

    pub(super) fn flush_of(&mut self, member: MemberId) -> (u64, bool) {
        let fails = self.draw_fault(member, self.plan.fault_every.div_ceil(4));
        (self.disk(member).mark(), fails)
    }

    pub(super) fn start_member_io(&mut self, shard: usize, io: MemberIo) -> Result<(), String> {
        self.say(|| format!("shard {shard} sends {io:?}"));
        let member = usize::from(io.member.0);
        let is_in =
            |(start, end): (u64, u64)| start <= io.sector.0 && io.sector.0 + io.len.0 <= end;
        let is_right = is_in(self.data_area[member]) || is_in(self.log_area[member]);
        if io.kind != IoKind::Flush && !is_right {
            return Err(format!("{io:?} leaves the data area and the log"));
        }
        let moves = matches!(io.kind, IoKind::Read | IoKind::Write { .. });
        let total: u64 = io.pieces.iter().map(|piece| u64::from(piece.len)).sum();
        if moves && total != io.len.0 * 512 {
            return Err(format!("{io:?}: pieces of {total} bytes"));
        }
        let fails = match io.kind {
            IoKind::Flush => self.flush_of(io.member).1,
            _ => self.draw_fault(io.member, self.plan.fault_every),
        };
        let is_spoilt = io.kind == IoKind::Read && !fails && self.draw_spoil(&io);
        let data = match io.kind {
            IoKind::Write { .. } => self.memory.gather(&io.pieces),
            IoKind::WriteZeroes { .. } => vec![0; io.len.0 as usize * SECTOR],
            _ => Vec::new(),
        };
        let mark = self.disk(io.member).mark();
        let delay = self.io_ns();
        self.at(delay, Event::Io(Box::new(InFlight { shard, io, data, mark, fails, is_spoilt })));
        Ok(())
    }

    pub(super) fn io_done(&mut self, flight: &InFlight) -> Result<(), String> {
        let InFlight { shard, io, data, mark, fails, is_spoilt } = flight;
        let is_dark = self.dark.contains(&io.member);
        let ok = match io.kind {
            _ if is_dark => {
                self.failing_reads -= u32::from(*is_spoilt);
                false
            }
            IoKind::Flush => self.flushed(io.member, *mark, *fails),
            _ => {
                let is_refused = *is_spoilt || self.is_refused(io);
                if is_refused {
                    self.io_refused(flight);
                }
                !fails && !is_refused && !self.vanished.contains(&io.member)
            }
        };
        if matches!(io.kind, IoKind::Write { .. }) && *data != self.memory.gather(&io.pieces) {
            return Err(format!("{io:?}: the buffer changed while it was being written"));
        }
        match ok {
            true => self.perform(io, data),
            false if is_dark => {}
            false => self.write_partly(flight),
        }
        self.shards[*shard].handle_completion(self.now, io.id, ok);
        Ok(())
    }

    pub(super) fn perform(&mut self, io: &MemberIo, data: &[u8]) {
        let unmapped = self.dice.one_in(2);
        let disk = &mut self.disks[self.disk_of[usize::from(io.member.0)]];
        let bytes = io.len.0 as usize * SECTOR;
        match io.kind {
            IoKind::Flush => {}
            IoKind::Read => self.memory.scatter(&io.pieces, disk.bytes(io.sector.0, bytes)),
            IoKind::Write { fua } | IoKind::WriteZeroes { fua, .. } => {
                disk.write(io.sector.0, data.to_vec(), fua);
            }
            IoKind::Discard if unmapped => disk.write(io.sector.0, vec![0; bytes], false),
            IoKind::Discard => {}
        }
    }

    pub(super) fn write_partly(&mut self, flight: &InFlight) {
        let disk = &mut self.disks[self.disk_of[usize::from(flight.io.member.0)]];
        disk.write_partly(flight.io.sector.0, &flight.data, false, self.dice);
    }

    /// A flush ends; true if it went well.
    pub(super) fn flushed(&mut self, member: MemberId, mark: u64, fails: bool) -> bool {
        if self.dark.contains(&member) {
            return false;
        }
        let ok = !fails && !self.vanished.contains(&member) && !self.unflushed.contains(&member);
        if !ok {
            self.unflushed.insert(member);
        }
        let disk = &mut self.disks[self.disk_of[usize::from(member.0)]];
        if ok {
            disk.flush(mark);
        } else {
            disk.lose_some(self.dice);
        }
        ok
    }

    pub(super) fn start_meta(&mut self, write: MetaWrite) {
        let fails = match write.target {
            Target::Member(member) => self.draw_fault(member, self.plan.fault_every.div_ceil(4)),
            Target::BitmapFile => self.draw_file_fault(),
        };
        let delay = self.io_ns();
        self.say(|| format!("metadata for {:?}: {}", write.target, said(&write)));
        self.at(delay, Event::MetaWrite { write, fails });
    }

    pub(super) fn meta_written(&mut self, write: &MetaWrite, fails: bool) {
        let is_in = |members: &BTreeSet<MemberId>| match write.target {
            Target::Member(member) => members.contains(&member),
            Target::BitmapFile => false,
        };
        let ok = !fails && !is_in(&self.vanished);
        if ok {
            self.disk_at(write.target).write(write.sector.0, write.data.clone(), true);
        } else if !is_in(&self.dark) {
            self.meta_partly(write);
        }
        self.coordinator.written(self.now, write.id, ok);
    }

    fn disk_at(&mut self, target: Target) -> &mut Disk {
        match target {
            Target::Member(member) => self.disk(member),
            Target::BitmapFile => self.file,
        }
    }

    /// A torn superblock 0.90 fails its checksum, and the format keeps no second one.
    pub(super) fn meta_partly(&mut self, write: &MetaWrite) {
        let (disk, whole) = match write.target {
            Target::Member(member) => (&mut self.disks[self.disk_of[usize::from(member.0)]], true),
            Target::BitmapFile => (&mut *self.file, false),
        };
        disk.write_partly(write.sector.0, &write.data, whole, self.dice);
    }
}
