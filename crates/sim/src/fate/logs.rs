//! Replay of partial parity logs at a start, as the host does it, and what it must have put right.
//!
//! The promise that is held here is stricter than for other arrays: a dirty array that lacks a member
//! loses of that member only sectors that were themselves being written.

use super::{Dark, Fate, Fuse, Started};
use crate::{
    disk::{Cut, Disk, SECTOR},
    raw,
};
use lapstrake_engine::{FULLY_TRUSTED, LogConfig, LogDisks, Replay, replay_logs};
use lapstrake_geometry::{Geometry, Sector, Slot};
use lapstrake_metadata::{
    Superblock,
    assemble::{Assembly, record_absent},
    ppl,
};

impl Fate<'_> {
    /// Replays the logs of a dirty array and empties them. Now and then the power is cut in the midst of it,
    /// and it is done again from the beginning.
    pub(super) fn replay_logs(&mut self, started: &mut Started) {
        let Geometry::Parity(parity) = self.geometry.clone() else { return };
        let first = started.assembly.members.iter().flatten().next();
        let superblock = first.and_then(|&disk| started.superblocks[disk].as_ref());
        let Some(superblock) = superblock.filter(|superblock| superblock.has_ppl()) else { return };
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
            let Ok(replay) = done else {
                self.say(|| "the power is cut while the logs are replayed".into());
                let how = self.dice.pick(&[Cut::Nothing, Cut::Everything, Cut::AnySectors]);
                self.disks.iter_mut().for_each(|disk| disk.cut(how, &mut self.dice));
                cuts -= 1;
                continue;
            };
            if let Some(replay) = replay {
                self.say(|| format!("replayed: {replay:?}"));
                self.settle(started, &replay);
                self.adopt(started, superblocks);
            }
            break;
        }
        self.disks.iter_mut().for_each(|disk| disk.cut(Cut::Nothing, &mut self.dice));
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

    /// What was being written on slots without a member is lost; all else is as it was.
    fn settle(&mut self, started: &mut Started, replay: &Replay) {
        let members = &started.assembly.members;
        for row in (0..self.doubt.len()).filter(|&row| self.doubt[row]) {
            let is_lost = |slot: Slot| members[slot.index()].is_none();
            for sector in raw::lost_sectors(&self.geometry, row as u64, is_lost) {
                if self.unsure[sector as usize] {
                    self.oracle.forget(sector);
                }
            }
        }
        if replay.settles() {
            started.assembly.resync_from = None;
            started.was_replayed = true;
            self.doubt.fill(false);
            self.unsure.fill(false);
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
    places: &'a [Option<(usize, Sector)>],
    /// Of all who are in the array, each with its disk.
    superblocks: Vec<(usize, Superblock)>,
    fuse: Fuse,
}

impl<'a> Replaying<'a> {
    fn new(
        disks: &'a mut [Disk],
        started: &Started,
        places: &'a [Option<(usize, Sector)>],
        fuse: Fuse,
    ) -> Self {
        let Assembly { replacements, spares, .. } = &started.assembly;
        let in_slots = places.iter().flatten().map(|place| place.0);
        let here = in_slots.chain(replacements.iter().map(|r| r.1)).chain(spares.iter().copied());
        let superblock = |disk: usize| started.superblocks[disk].clone().expect("it was assembled");
        let superblocks = here.map(|disk| (disk, superblock(disk))).collect();
        Self { disks, places, superblocks, fuse }
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

    fn write_stably(&mut self, disk: usize, sector: Sector, bytes: Vec<u8>) -> Result<(), Dark> {
        self.fuse.burn()?;
        self.disks[disk].write(sector.0, bytes, true);
        Ok(())
    }
}

impl LogDisks for Replaying<'_> {
    type Error = Dark;

    fn area(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Dark> {
        if self.places[slot.index()].is_none() {
            return Ok(None);
        }
        let (disk, superblock) = self.place(slot);
        let Some((at, shape)) = superblock.ppl() else { return Ok(Some(Vec::new())) };
        Ok(Some(self.disks[disk].bytes(at.0, shape.size.bytes() as usize).to_vec()))
    }

    fn read(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<(), Dark> {
        let (disk, at) = self.at(slot, sector);
        buf.copy_from_slice(self.disks[disk].bytes(at, buf.len()));
        Ok(())
    }

    fn write(&mut self, slot: Slot, sector: Sector, bytes: &[u8]) -> Result<(), Dark> {
        self.fuse.burn()?;
        let (disk, at) = self.at(slot, sector);
        self.disks[disk].write(at, bytes.to_vec(), false);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Dark> {
        for (disk, _) in &self.superblocks {
            self.fuse.burn()?;
            let mark = self.disks[*disk].mark();
            self.disks[*disk].flush(mark);
        }
        Ok(())
    }

    fn record_absent(&mut self) -> Result<(), Dark> {
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

    fn empty_logs(&mut self) -> Result<(), Dark> {
        for index in 0..self.superblocks.len() {
            let (disk, superblock) = &self.superblocks[index];
            let Some((at, shape)) = superblock.ppl() else { continue };
            let area = ppl::empty_area(shape, superblock.set_uuid());
            self.write_stably(*disk, at, area.to_vec())?;
        }
        Ok(())
    }
}
