//! Replay of partial parity logs at a start, as the host does it, and what it must have put right.
//!
//! The promise that is held here is stricter than for other arrays: a dirty array that lacks a member
//! loses of that member only sectors that were themselves being written.

use super::{Fate, Started};
use crate::{disk::SECTOR, raw};
use lapstrake_engine::Replay;
use lapstrake_geometry::{Geometry, Sector, Slot};
use lapstrake_metadata::{
    assemble::{Assembly, record_absent},
    ppl,
};
use lapstrake_parity::kernels;

impl Fate<'_> {
    /// Replays the logs of a dirty array and empties them. Now and then the power is cut in the midst of it,
    /// and it is done again from the beginning.
    pub(super) fn replay_logs(&mut self, started: &mut Started) {
        let Geometry::Parity(geometry) = self.geometry.clone() else { return };
        let homes = homes(started);
        let Some(superblock) = homes.iter().flatten().next().map(|home| &home.superblock) else {
            return;
        };
        if !superblock.has_ppl() {
            return;
        }
        let signature = ppl::signature(superblock.set_uuid());
        if started.assembly.resync_from.is_some() {
            let mut cuts = if self.dice.one_in(4) { self.dice.below(3) } else { 0 };
            let settles = loop {
                let areas: Vec<Option<Vec<u8>>> =
                    homes.iter().map(|home| Some(self.area(home.as_ref()?))).collect();
                let is_there = |slot: Slot, end: Sector| {
                    homes[slot.index()].as_ref().is_some_and(|home| end <= home.trusted_to)
                };
                let replay = Replay::new(&geometry, signature, &areas, is_there);
                let mends = replay.mends.len() as u64;
                let done = if cuts > 0 { self.dice.below(mends + 1) } else { mends };
                self.mend(&homes, &areas, &replay, done);
                if cuts == 0 {
                    self.say(|| format!("replayed: {replay:?}"));
                    break replay.settles();
                }
                cuts -= 1;
            };
            self.settle(started, settles);
            self.record_absent(started);
        }
        let in_place = self::homes(started).into_iter().flatten().map(|home| home.disk);
        let replacements = started.assembly.replacements.iter().map(|replacement| replacement.1);
        for disk in in_place.chain(replacements) {
            let superblock = started.superblocks[disk].as_ref().expect("it was assembled");
            let Some((at, shape)) = superblock.ppl() else { continue };
            let area = ppl::empty_area(shape, superblock.set_uuid());
            self.disks[disk].put(at.0, &area);
        }
    }

    /// Before the logs are emptied: who is not here now must not come back as if it had been.
    fn record_absent(&mut self, started: &mut Started) {
        let Assembly { members, recovering, replacements, spares, .. } = &started.assembly;
        let others = recovering.iter().map(|r| r.1).chain(replacements.iter().map(|r| r.1));
        let here: Vec<usize> =
            members.iter().flatten().copied().chain(others).chain(spares.iter().copied()).collect();
        let superblock =
            |disk: &usize| started.superblocks[*disk].as_ref().expect("it was assembled");
        let all: Vec<_> = here.iter().map(superblock).collect();
        let Some(recorded) = record_absent(&all) else { return };
        for (disk, superblock) in here.into_iter().zip(recorded) {
            self.disks[disk].put(superblock.super_sector().0, &superblock.encode());
            started.assembly.events = superblock.events();
            started.superblocks[disk] = Some(superblock);
        }
        let serves = |disk: &usize| started.assembly.members.contains(&Some(*disk));
        let recovers = |disk: &usize| started.assembly.recovering.iter().any(|r| r.1 == *disk);
        let left = (0..self.disks.len()).filter(|disk| !serves(disk) && !recovers(disk));
        self.stale.extend(left);
    }

    fn area(&self, home: &Home) -> Vec<u8> {
        let Some((at, shape)) = home.superblock.ppl() else { return Vec::new() };
        self.disks[home.disk].bytes(at.0, shape.size.bytes() as usize).to_vec()
    }

    /// Does the first `count` mends; of the one that a cut met, any sectors.
    fn mend(
        &mut self,
        homes: &[Option<Home>],
        areas: &[Option<Vec<u8>>],
        replay: &Replay,
        count: u64,
    ) {
        let home = |slot: Slot| homes[slot.index()].as_ref().expect("it has a member");
        let place = |slot: Slot, sector: Sector| {
            let home = home(slot);
            (home.disk, home.superblock.data_offset().0 + sector.0)
        };
        for (at, mend) in (0..).zip(&replay.mends).take_while(|(at, _)| *at <= count) {
            let read = |&(slot, sector)| {
                let (disk, sector) = place(slot, sector);
                self.disks[disk].bytes(sector, mend.len.bytes() as usize).to_vec()
            };
            let data: Vec<Vec<u8>> = mend.data.iter().map(read).collect();
            let area = areas[mend.parity.0.index()].as_deref().unwrap_or_default();
            let parity = mend.parity(kernels(), area, &data);
            let (disk, sector) = place(mend.parity.0, mend.parity.1);
            for (bytes, sector) in parity.chunks(SECTOR).zip(sector..) {
                if at < count || self.dice.one_in(2) {
                    self.disks[disk].put(sector, bytes);
                }
            }
        }
    }

    /// What was being written on slots without a member is lost; all else is as it was.
    fn settle(&mut self, started: &mut Started, settles: bool) {
        let members = &started.assembly.members;
        for row in (0..self.doubt.len()).filter(|&row| self.doubt[row]) {
            let is_lost = |slot: Slot| members[slot.index()].is_none();
            for sector in raw::lost_sectors(&self.geometry, row as u64, is_lost) {
                if self.unsure[sector as usize] {
                    self.oracle.forget(sector);
                }
            }
        }
        if settles {
            started.assembly.resync_from = None;
            started.was_replayed = true;
            self.doubt.fill(false);
            self.unsure.fill(false);
        }
    }
}

/// A member in a slot.
struct Home {
    disk: usize,
    superblock: lapstrake_metadata::Superblock,
    trusted_to: Sector,
}

fn homes(started: &Started) -> Vec<Option<Home>> {
    let of = |disk: usize, trusted_to| {
        let superblock = started.superblocks[disk].clone()?;
        Some(Home { disk, superblock, trusted_to })
    };
    let all = started.assembly.members.iter();
    let mut homes: Vec<Option<Home>> =
        all.map(|id| of((*id)?, lapstrake_engine::FULLY_TRUSTED)).collect();
    for &(slot, disk, to) in &started.assembly.recovering {
        homes[slot.index()] = of(disk, to);
    }
    homes
}
