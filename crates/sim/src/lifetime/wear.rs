//! Bad blocks between two sessions: what cannot be held against an array some of whose sectors cannot be read.

use super::{Lifetime, Started};
use crate::{disk::Disk, raw};
use lapstrake_geometry::{Geometry, Sector, Sectors, Slot};
use lapstrake_metadata::badblocks::BadBlocks;

/// Sectors of a page: what the engine probes, mends and puts on record at once.
const PAGE_SECTORS: u64 = 8;

/// Sectors of all disks that hold no data.
pub(crate) struct Holes(Vec<Vec<u64>>);

impl Holes {
    /// What cannot be read, and what is on record as bad.
    pub(crate) fn of(disks: &[Disk], logs: &[Option<BadBlocks>]) -> Self {
        let of = |(disk, log): (&Disk, &Option<BadBlocks>)| {
            let logged = log.iter().flat_map(BadBlocks::iter);
            let logged = logged.flat_map(|(at, len)| at.0..at.0 + len.0);
            let mut all: Vec<u64> = disk.bad().chain(logged).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        Self(disks.iter().zip(logs).map(of).collect())
    }

    pub(crate) fn is_in(&self, disk: usize, sector: u64) -> bool {
        self.0[disk].binary_search(&sector).is_ok()
    }

    /// Whether some of the sector's page is: none of the page is used then, sooner or later.
    fn touches_page(&self, disk: usize, sector: u64) -> bool {
        let page = sector - sector % PAGE_SECTORS;
        let next = self.0[disk].partition_point(|&at| at < page);
        self.0[disk].get(next).is_some_and(|&at| at < page + PAGE_SECTORS)
    }

    /// Whether a disk has none.
    pub(crate) fn is_whole(&self, disk: usize) -> bool {
        self.0[disk].is_empty()
    }
}

impl Lifetime<'_> {
    /// A write that a cut left in doubt, in a page that some member cannot read, may have lost what that page
    /// holds: on parity levels it is the write hole, and copies may differ. A journal has no such hole, and
    /// logs have one only for what they do not have: what else they lose is for their replay to say.
    pub(super) fn lose_unreadable(&mut self, started: &Started) {
        if self.plan.journal.is_some() || self.plan.log.is_some() && !self.was_unlogged {
            return;
        }
        // No sector is bad while an array is reshaped.
        if started.before.is_some() {
            return;
        }
        let Started { plan, superblocks, holes, .. } = started;
        let is_bad = |slot: Slot, sector: Sector| {
            let Some(disk) = plan.assembly.members[slot.index()] else { return false };
            let offset = superblocks[disk].as_ref().map_or(0, |sb| sb.data_offset().0);
            // While a long read that failed is tried again page by page, none of it is read there.
            self.disks[disk].bad().next().is_some() || holes.touches_page(disk, offset + sector.0)
        };
        for row in (0..self.doubt.len() as u64).filter(|&row| self.doubt[row as usize]) {
            let lost = match &self.geometry {
                Geometry::Parity(_) => {
                    raw::lost_sectors(&self.geometry, row, |slot| is_bad(slot, Sector(row)))
                }
                copies => {
                    let homes = copies.map(Sector(row)).homes;
                    let any = homes.iter().any(|home| is_bad(home.slot, home.sector));
                    if any { vec![row] } else { Vec::new() }
                }
            };
            lost.into_iter().for_each(|sector| self.oracle.forget(sector));
        }
    }

    /// What is on record as bad can be read again now and then, though not what it once held.
    pub(super) fn let_come_back(&mut self, started: &Started) {
        for (disk, log) in started.logs.iter().enumerate() {
            let Some(log) = log else { continue };
            let bad: Vec<u64> = self.disks[disk].bad().collect();
            for sector in bad {
                if log.contains(Sector(sector), Sectors(1)) && self.dice.one_in(2) {
                    self.disks[disk].come_back(sector);
                }
            }
        }
    }
}
