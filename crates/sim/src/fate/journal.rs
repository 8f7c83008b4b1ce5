//! Replay of a journal at a start, as the host does it, on simulated disks that refuse and lose power.

use super::{Started, wear};
use crate::disk::{Disk, SECTOR};
use lapstrake_engine::FULLY_TRUSTED;
use lapstrake_engine::journal::{Disks, Place, ReplayConfig, ReplayError, Replayed, replay};
use lapstrake_geometry::{Parity, Sector, Slot};
use lapstrake_metadata::{
    Superblock,
    assemble::record_absent,
    badblocks::BadBlocks,
    journal::{Seed, ring},
};

/// A journal's replay on the disks.
pub(super) struct Replaying<'a> {
    disks: &'a mut [Disk],
    /// By disk.
    logs: &'a [Option<BadBlocks>],
    config: ReplayConfig,
    /// By slot, and the journal behind them: the disk and where its data begins.
    places: Vec<Vec<(usize, u64)>>,
    /// Of all who are in the array, each with its disk; the journal is the last.
    superblocks: Vec<(usize, Superblock)>,
    fuse: Fuse,
}

impl<'a> Replaying<'a> {
    pub(super) fn new(
        disks: &'a mut [Disk],
        started: &'a Started,
        journal: usize,
        parity: &Parity,
        fuse: Fuse,
    ) -> Self {
        let Started { assembly, superblocks, logs, .. } = started;
        let sb = |disk: usize| superblocks[disk].as_ref().expect("it was assembled");
        let mut trusted_to: Vec<Option<Sector>> =
            assembly.members.iter().map(|disk| disk.map(|_| FULLY_TRUSTED)).collect();
        let mut holders: Vec<Vec<usize>> =
            assembly.members.iter().map(|disk| disk.iter().copied().collect()).collect();
        for &(slot, disk, to) in &assembly.recovering {
            trusted_to[slot.index()] = Some(to);
            holders[slot.index()].push(disk);
        }
        // They get what the members that they replace do.
        for &(slot, disk, _) in &assembly.replacements {
            holders[slot.index()].push(disk);
        }
        holders.push([journal].into());
        let place = |disk: usize| (disk, sb(disk).data_offset().0);
        let others = holders[..holders.len() - 1].iter().flatten().copied();
        let all = others.chain(assembly.spares.iter().copied()).chain([journal]);
        let superblocks = all.map(|disk| (disk, sb(disk).clone())).collect();
        let superblock = sb(journal);
        let config = ReplayConfig {
            parity: parity.clone(),
            seed: Seed::new(superblock.set_uuid()),
            ring: ring(superblock.data_size()),
            tail: superblock.journal_tail(),
            trusted_to,
        };
        let places = holders.into_iter().map(|h| h.into_iter().map(place).collect()).collect();
        Self { disks, logs, config, places, superblocks, fuse }
    }

    /// With the superblocks as they are then.
    #[allow(clippy::type_complexity, reason = "used in one place")]
    pub(super) fn replay(
        mut self,
    ) -> Result<Result<(Replayed, Vec<(usize, Superblock)>), Halt>, String> {
        let config = self.config.clone();
        match replay(&config, &mut self) {
            Ok(done) => Ok(Ok((done, self.superblocks))),
            Err(ReplayError::Device(halt)) => Ok(Err(halt)),
            Err(error) => Err(format!("the journal cannot be replayed: {error:?}")),
        }
    }

    fn at(&self, place: Place) -> Vec<(usize, u64)> {
        let index = match place {
            Place::Journal => self.places.len() - 1,
            Place::Slot(slot) => slot.index(),
        };
        self.places[index].clone()
    }
}

/// Why a replay ends before its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Halt {
    /// The power is off.
    Dark,
    /// A disk refuses a write.
    Refused(usize),
}

/// So many writes and flushes until the power is cut.
pub(super) struct Fuse(pub(super) Option<u64>);

impl Fuse {
    pub(super) fn burn(&mut self) -> Result<(), Halt> {
        match &mut self.0 {
            Some(0) => Err(Halt::Dark),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Disks for Replaying<'_> {
    type Error = Halt;

    fn read_journal(&mut self, sector: Sector, buf: &mut [u8]) -> Result<(), Halt> {
        let (disk, offset) = self.at(Place::Journal)[0];
        buf.copy_from_slice(self.disks[disk].bytes(offset + sector.0, buf.len()));
        Ok(())
    }

    fn read_slot(&mut self, slot: Slot, sector: Sector, buf: &mut [u8]) -> Result<bool, Halt> {
        let (disk, offset) = self.at(Place::Slot(slot))[0];
        Ok(wear::read(&self.disks[disk], &self.logs[disk], offset + sector.0, buf))
    }

    fn write(&mut self, place: Place, sector: Sector, bytes: &[u8]) -> Result<(), Halt> {
        for (disk, offset) in self.at(place) {
            self.fuse.burn()?;
            let (target, log) = (&mut self.disks[disk], &self.logs[disk]);
            if !wear::write(target, log, offset + sector.0, bytes) {
                return Err(Halt::Refused(disk));
            }
        }
        Ok(())
    }

    fn flush(&mut self, place: Place) -> Result<(), Halt> {
        for (disk, _) in self.at(place) {
            self.fuse.burn()?;
            let mark = self.disks[disk].mark();
            self.disks[disk].flush(mark);
        }
        Ok(())
    }

    fn set_tail(&mut self, position: u64) -> Result<(), Halt> {
        let all: Vec<_> = self.superblocks.iter().map(|(_, superblock)| superblock).collect();
        let recorded = record_absent(&all);
        let has_absent = recorded.is_some();
        for (entry, superblock) in self.superblocks.iter_mut().zip(recorded.into_iter().flatten()) {
            entry.1 = superblock;
        }
        let last = self.superblocks.len() - 1;
        self.superblocks[last].1.set_journal_tail(position);
        for index in if has_absent { 0 } else { last }..=last {
            self.fuse.burn()?;
            let (disk, superblock) = &self.superblocks[index];
            let mut bytes = superblock.encode();
            bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
            self.disks[*disk].write(superblock.super_sector().0, bytes, true);
        }
        Ok(())
    }
}
