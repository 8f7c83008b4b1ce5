//! Replay of partial parity logs at a start, as the host does it, and what it must have put right.
//!
//! The promise that is held here is stricter than for other arrays: a dirty array that lacks a member
//! loses of that member only sectors that were themselves being written.

use super::journal::{Fuse, Halt};
use super::{Fate, Started, wear};
use crate::{
    disk::{Cut, Disk, SECTOR},
    raw,
};
use lapstrake_engine::{FULLY_TRUSTED, LogConfig, LogDisks, Replay, replay_logs};
use lapstrake_geometry::{Geometry, Sector, Slot};
use lapstrake_metadata::{
    Superblock,
    assemble::{Assembly, record_absent},
    badblocks::BadBlocks,
    ppl,
};

impl Fate<'_> {
    /// Replays the logs of a dirty array and empties them. Now and then the power is cut in the midst of it,
    /// and it is done again from the beginning. Gives the disk that refuses to be written, if one does.
    pub(super) fn replay_logs(&mut self, started: &mut Started) -> Option<usize> {
        let Geometry::Parity(parity) = self.geometry.clone() else { return None };
        let first = started.assembly.members.iter().flatten().next();
        let superblock = first.and_then(|&disk| started.superblocks[disk].as_ref());
        let superblock = superblock.filter(|superblock| superblock.has_ppl())?;
        let signature = ppl::signature(superblock.set_uuid());
        let places = places(&started.assembly);
        let trusted_to = places.iter().map(|place| Some((*place)?.1)).collect();
        let config = LogConfig { parity, signature, trusted_to };
        let is_dirty = started.assembly.resync_from.is_some();
        let mut cuts = if is_dirty && self.dice.one_in(4) { self.dice.below(3) } else { 0 };
        loop {
            let left = (cuts > 0).then(|| self.dice.below(24));
            let mut work = Replaying::new(&mut self.disks, started, &places, Fuse(left));
            let done = match is_dirty {
                true => replay_logs(&config, &mut work).map(Some),
                false => work.empty_logs().map(|()| None),
            };
            let Replaying { superblocks, .. } = work;
            let replay = match done {
                Ok(replay) => replay,
                Err(halt) => {
                    self.say(|| format!("the logs are replayed, and then: {halt:?}"));
                    self.cut_all();
                    if let Halt::Refused(disk) = halt {
                        return Some(disk);
                    }
                    cuts -= 1;
                    continue;
                }
            };
            if let Some(replay) = replay {
                self.say(|| format!("replayed: {replay:?}"));
                self.settle(started, &replay);
                self.adopt(started, superblocks);
            }
            break;
        }
        self.disks.iter_mut().for_each(|disk| disk.cut(Cut::Nothing, &mut self.dice));
        None
    }

    /// Who is not here now is on record, and must not come back as if it had been.
    fn adopt(&mut self, started: &mut Started, superblocks: Vec<(usize, Superblock)>) {
        let mut is_changed = false;
        for (disk, superblock) in superblocks {
            is_changed |= started.superblocks[disk].as_ref() != Some(&superblock);
            started.assembly.events = superblock.events();
            started.superblocks[disk] = Some(superblock);
        }
        let serves = |disk: &usize| started.assembly.members.contains(&Some(*disk));
        let recovers = |disk: &usize| started.assembly.recovering.iter().any(|r| r.1 == *disk);
        let left = (0..self.disks.len()).filter(|disk| !serves(disk) && !recovers(disk));
        if is_changed {
            self.stale.extend(left);
        }
    }

    /// What was being written on slots without a member, or where the member cannot be read, is lost; all else is as it
    /// was.
    fn settle(&mut self, started: &mut Started, replay: &Replay) {
        let members = &started.assembly.members;
        for row in (0..self.doubt.len()).filter(|&row| self.doubt[row]) {
            let is_lost = |slot: Slot| match members[slot.index()] {
                Some(disk) => {
                    let offset =
                        started.superblocks[disk].as_ref().map_or(0, |sb| sb.data_offset().0);
                    started.holes.is_in(disk, offset + row as u64)
                }
                None => true,
            };
            for sector in raw::lost_sectors(&self.geometry, row as u64, is_lost) {
                if self.unsure[sector as usize] {
                    self.oracle.forget(sector);
                }
            }
        }
        if replay.settles() {
            started.assembly.resync_from = None;
            started.was_replayed = true;
            self.made_whole();
        }
    }
}

/// By slot: the disk, and up to where its data is right.
fn places(assembly: &Assembly) -> Vec<Option<(usize, Sector)>> {
    let whole = assembly.members.iter().map(|disk| Some(((*disk)?, FULLY_TRUSTED)));
    let mut places: Vec<_> = whole.collect();
    for &(slot, disk, to) in &assembly.recovering {
        places[slot.index()] = Some((disk, to));
    }
    places
}

/// A replay on the disks.
struct Replaying<'a> {
    disks: &'a mut [Disk],
    /// By disk.
    logs: &'a [Option<BadBlocks>],
    places: &'a [Option<(usize, Sector)>],
    /// Of all who are in the array, each with its disk.
    superblocks: Vec<(usize, Superblock)>,
    fuse: Fuse,
}

impl<'a> Replaying<'a> {
    fn new(
        disks: &'a mut [Disk],
        started: &'a Started,
        places: &'a [Option<(usize, Sector)>],
        fuse: Fuse,
    ) -> Self {
        let Assembly { replacements, spares, .. } = &started.assembly;
        let in_slots = places.iter().flatten().map(|place| place.0);
        let here = in_slots.chain(replacements.iter().map(|r| r.1)).chain(spares.iter().copied());
        let superblock = |disk: usize| started.superblocks[disk].clone().expect("it was assembled");
        let superblocks = here.map(|disk| (disk, superblock(disk))).collect();
        Self { disks, logs: &started.logs, places, superblocks, fuse }
    }

    fn place(&self, slot: Slot) -> (usize, &Superblock) {
        let (disk, _) = self.places[slot.index()].expect("asked for members only");
        let own = self.superblocks.iter().find(|own| own.0 == disk).expect("it is here");
        (disk, &own.1)
    }

    fn at(&self, slot: Slot, sector: Sector) -> (usize, u64) {
        let (disk, superblock) = self.place(slot);
        (disk, superblock.data_offset().0 + sector.0)
    }

    fn write_stably(&mut self, disk: usize, sector: Sector, bytes: Vec<u8>) -> Result<(), Halt> {
        self.fuse.burn()?;
        self.disks[disk].write(sector.0, bytes, true);
        Ok(())
    }
}

impl LogDisks for Replaying<'_> {
    type Error = Halt;

    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Halt> {
        if self.places[slot.index()].is_none() {
            return Ok(None);
        }
        let (disk, superblock) = self.place(slot);
        let Some((at, shape)) = superblock.ppl() else { return Ok(Some(Vec::new())) };
        Ok(Some(self.disks[disk].bytes(at.0, shape.size.bytes() as usize).to_vec()))
    }

    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, Halt> {
        let (disk, at) = self.at(slot, sector);
        Ok(wear::read(&self.disks[disk], &self.logs[disk], at, buf))
    }

    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), Halt> {
        self.fuse.burn()?;
        let (disk, at) = self.at(slot, sector);
        let is_written = wear::write(&mut self.disks[disk], &self.logs[disk], at, bytes);
        is_written.then_some(()).ok_or(Halt::Refused(disk))
    }

    fn flush(&mut self) -> Result<(), Halt> {
        for (disk, _) in &self.superblocks {
            self.fuse.burn()?;
            let mark = self.disks[*disk].mark();
            self.disks[*disk].flush(mark);
        }
        Ok(())
    }

    fn record_absent(&mut self) -> Result<(), Halt> {
        let all: Vec<_> = self.superblocks.iter().map(|own| &own.1).collect();
        let Some(recorded) = record_absent(&all) else { return Ok(()) };
        for (index, superblock) in recorded.into_iter().enumerate() {
            let disk = self.superblocks[index].0;
            let mut bytes = superblock.encode();
            bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
            self.write_stably(disk, superblock.super_sector(), bytes)?;
            self.superblocks[index].1 = superblock;
        }
        Ok(())
    }

    fn empty_logs(&mut self) -> Result<(), Halt> {
        for index in 0..self.superblocks.len() {
            let (disk, superblock) = &self.superblocks[index];
            let Some((at, shape)) = superblock.ppl() else { continue };
            let area = ppl::empty_area(shape, superblock.set_uuid());
            self.write_stably(*disk, at, area.to_vec())?;
        }
        Ok(())
    }
}
