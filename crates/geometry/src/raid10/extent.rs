//! How far each member is taken by the data before a place of the array, and from where on by what comes behind it: that is
//! what a reshape may write over. Chunks count as wholes.

use super::Raid10;
use crate::units::{Sector, Slot};

impl Raid10 {
    /// The lowest sector of a member that holds data at or behind an array sector, if any does.
    pub fn lowest_from(&self, slot: Slot, sector: Sector) -> Option<Sector> {
        let chunk = sector.0 >> self.chunk_shift;
        let rows = self.copies_on(slot).filter_map(|(first, base)| {
            let row = self.rows_before(chunk, first);
            (self.chunk_at(row, first) < self.chunks).then(|| row * self.row_step() + base)
        });
        rows.min().map(|row| Sector(row << self.chunk_shift))
    }

    /// The first sector of a member behind all those that hold data before an array sector.
    pub fn end_before(&self, slot: Slot, sector: Sector) -> Sector {
        let chunk = sector.0.div_ceil(self.chunk().0).min(self.chunks);
        let ends = self.copies_on(slot).map(|(first, base)| {
            let last = self.rows_before(chunk, first).checked_sub(1);
            last.map_or(0, |row| row * self.row_step() + base + 1)
        });
        Sector(ends.max().unwrap_or(0) << self.chunk_shift)
    }

    /// The array sector up to which all that a member holds lies before one of its sectors.
    pub fn data_below(&self, slot: Slot, sector: Sector) -> Sector {
        let limit = sector.0 >> self.chunk_shift;
        let chunks = self.copies_on(slot).map(|(first, base)| {
            let rows = limit.saturating_sub(base).div_ceil(self.row_step());
            self.chunk_at(rows, first)
        });
        let chunks = chunks.min().unwrap_or(self.chunks);
        Sector(chunks.min(self.chunks) << self.chunk_shift)
    }

    /// The array sector from which on all that a member holds lies at or behind one of its sectors.
    pub fn data_from(&self, slot: Slot, sector: Sector) -> Sector {
        let limit = sector.0.div_ceil(self.chunk().0);
        let chunks = self.copies_on(slot).map(|(first, base)| {
            let rows = limit.saturating_sub(base).div_ceil(self.row_step());
            let used = self.rows_before(self.chunks, first);
            rows.min(used).checked_sub(1).map_or(0, |row| self.chunk_at(row, first) + 1)
        });
        Sector(chunks.max().unwrap_or(0) << self.chunk_shift)
    }

    /// Of each far copy on a member: from which slot of the first copies it comes, and in which row of the member it begins.
    fn copies_on(&self, slot: Slot) -> impl Iterator<Item = (u64, u64)> {
        let stride = self.stride >> self.chunk_shift;
        let mut first = slot.0;
        (0..u64::from(self.layout.far)).map(move |copy| {
            let here = (u64::from(first), copy * stride);
            first = self.previous[usize::from(first)];
            here
        })
    }

    /// Rows of a member that a row of data takes.
    fn row_step(&self) -> u64 {
        if self.layout.offset { self.layout.far.into() } else { 1 }
    }

    /// Rows of data whose chunk in a slot comes before another.
    fn rows_before(&self, chunk: u64, slot: u64) -> u64 {
        let place = chunk * u64::from(self.layout.near);
        place.saturating_sub(slot).div_ceil(self.raid_disks.into())
    }

    /// The chunk in a slot of a row of data.
    fn chunk_at(&self, row: u64, slot: u64) -> u64 {
        (row.saturating_mul(self.raid_disks.into()).saturating_add(slot))
            / u64::from(self.layout.near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    use crate::{Config, Content, Geometry, Layout, Level, Sectors};

    fn raid10(word: u32, raid_disks: u16) -> Option<Raid10> {
        let layout = Layout::from_md(Level::Raid10, word).unwrap();
        let (level, chunk, component) = (Level::Raid10, Sectors(8), Sectors(8 * 11));
        let member_sizes = Vec::new();
        let config = Config { level, layout, chunk, raid_disks, component, member_sizes };
        match Geometry::new(&config) {
            Ok(Geometry::Raid10(raid10)) => Some(raid10),
            _ => None,
        }
    }

    /// Rows and chunks of what a member holds.
    fn held(raid10: &Raid10, slot: Slot) -> Vec<(u64, u64)> {
        let content = |row: u64| match raid10.content(slot, Sector(row * 8)) {
            Content::Data(sector) => Some((row, sector.0 / 8)),
            _ => None,
        };
        (0..raid10.used().0 / 8).filter_map(content).collect()
    }

    #[test]
    fn extents_are_those_of_what_members_hold() {
        let words = [0x102, 0x103, 0x201, 0x301, 0x10201, 0x10301, 0x10202, 0x20201, 0x40201];
        let mut tried = 0;
        for (word, disks) in words.into_iter().flat_map(|word| (2..8).map(move |n| (word, n))) {
            let Some(raid10) = raid10(word, disks) else { continue };
            for slot in (0..disks).map(Slot) {
                check(&raid10, slot);
                tried += 1;
            }
        }
        assert!(tried > 150, "{tried}");
    }

    fn check(raid10: &Raid10, slot: Slot) {
        let held = held(raid10, slot);
        let chunks = raid10.array_sectors().0 / 8;
        for chunk in 0..=chunks {
            let lowest = held.iter().filter(|it| it.1 >= chunk).map(|it| it.0).min();
            let end = held.iter().filter(|it| it.1 < chunk).map(|it| it.0 + 1).max();
            let found = |sector| raid10.lowest_from(slot, Sector(sector)).map(|at| at.0 / 8);
            assert_eq!(found(chunk * 8), lowest, "{raid10:?} {slot} {chunk}");
            assert_eq!(found(chunk * 8 + 7), lowest, "{raid10:?} {slot} {chunk}");
            let found = raid10.end_before(slot, Sector(chunk * 8)).0 / 8;
            assert_eq!(found, end.unwrap_or(0), "{raid10:?} {slot} {chunk}");
            assert_eq!(raid10.end_before(slot, Sector(chunk * 8 + 1)).0 / 8, {
                let end = held.iter().filter(|it| it.1 <= chunk).map(|it| it.0 + 1).max();
                end.unwrap_or(0)
            });
        }
        for row in 0..=raid10.used().0 / 8 {
            let below = held.iter().filter(|it| it.0 >= row).map(|it| it.1).min();
            let found = raid10.data_below(slot, Sector(row * 8)).0 / 8;
            assert_eq!(found, below.unwrap_or(chunks), "{raid10:?} {slot} row {row}");
            assert_eq!(raid10.data_below(slot, Sector(row * 8 + 7)).0 / 8, found);
            let from = held.iter().filter(|it| it.0 < row).map(|it| it.1 + 1).max();
            let found = raid10.data_from(slot, Sector(row * 8)).0 / 8;
            assert_eq!(found, from.unwrap_or(0), "{raid10:?} {slot} row {row}");
        }
    }
}
