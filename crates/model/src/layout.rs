//! Where logical blocks lie: zones, tracks, spares, slipped and remapped sectors, skews.
//!
//! Invariants: every block has one place; blocks that follow each other lie in rising physical order
//! within a zone, except where one is remapped. Zones are in the order of their blocks.
//!
//! Layouts are given by zone as DiskSim's first generation (`dm_layout_g1`) describes them; the sparing
//! schemes are worked out in [`sparing`] once, into runs of blocks that are physically consecutive.

pub mod sparing;

use crate::rotation::Angle;
use sparing::{Run, Sparing};

/// How blocks go from cylinder to cylinder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Every cylinder begins with its first head.
    Normal,
    /// Every second cylinder of a zone goes backwards, so that a cylinder switch keeps its head.
    SerpentineByZone,
    /// Every odd cylinder of the disk goes backwards.
    SerpentineByDisk,
}

/// A zone, as a profile gives it. Skews are in sectors.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneTable {
    /// Its first cylinder.
    pub first_cylinder: u32,
    /// Its last cylinder.
    pub last_cylinder: u32,
    /// Sectors of each track, spare ones and defects included.
    pub sectors_per_track: u32,
    /// Angle of its first sector.
    #[serde(default)]
    pub offset: f64,
    /// From the end of a track to the next track's beginning.
    pub track_skew: f64,
    /// From the end of a cylinder to the next cylinder's beginning.
    pub cylinder_skew: f64,
    /// Sectors at its front that the disk keeps to itself.
    #[serde(default)]
    pub reserved: u64,
    /// Spares of each track, cylinder, range or zone: what the scheme says.
    #[serde(default)]
    pub spares: u64,
    /// Places that are skipped, counted from the zone's first sector (tracks for track sparing).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slips: Vec<u64>,
    /// Places that lie elsewhere, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remaps: Vec<(u64, u64)>,
}

/// The whole layout, as a profile gives it.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutTable {
    /// Surfaces with data.
    pub heads: u32,
    /// How blocks go from cylinder to cylinder.
    pub order: Order,
    /// Where spare sectors are.
    pub sparing: Sparing,
    /// The zones, outermost first.
    pub zones: Vec<ZoneTable>,
}

/// Why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No heads, zones or blocks.
    #[error("the layout has no {what}")]
    Empty {
        /// What there is none of.
        what: &'static str,
    },
    /// A zone's numbers contradict each other.
    #[error("zone {zone}: {why}")]
    Zone {
        /// Its index, from 0.
        zone: usize,
        /// What is wrong.
        why: &'static str,
    },
}

/// A track: what the heads must be over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Where the arm is.
    pub cylinder: u32,
    /// Which head.
    pub head: u32,
}

/// Where a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Its track.
    pub track: Track,
    /// The angle at which it begins.
    pub angle: Angle,
}

/// A run of blocks that pass under one head one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they are.
    pub track: Track,
    /// Angle at which the first one begins.
    pub angle: Angle,
    /// Blocks.
    pub blocks: u64,
    /// What a block takes of a turn.
    pub width: Angle,
}

impl Extent {
    /// Where its first block begins.
    #[must_use]
    pub fn spot(&self) -> Spot {
        Spot { track: self.track, angle: self.angle }
    }
}

/// Cylinders of a disk at most.
pub(crate) const CYLINDERS_MAX: u64 = 1 << 23;
/// Cylinders, sectors of a track and heads of a disk at most; they bound what a table makes one allocate.
const MOST: [u64; 3] = [CYLINDERS_MAX, 1 << 20, 1 << 6];

#[derive(Clone, Debug)]
struct Zone {
    /// First block, and one past the last.
    lba: std::ops::Range<u64>,
    first_cylinder: u32,
    sectors_per_track: u64,
    offset: Angle,
    track_skew: Angle,
    cylinder_skew: Angle,
    width: Angle,
    /// Sorted by both fields, which count from the zone's first block and sector.
    runs: Vec<Run>,
    /// Places of the zone's blocks that are remapped, and where they are; sorted.
    remaps: Vec<(u64, u64)>,
    /// Sorted, if slips push later tracks on; how many sectors of slips count for a track.
    pushing_slips: Vec<u64>,
    push_unit: u64,
}

/// A layout that answers where a block is.
#[derive(Clone, Debug)]
pub struct Layout {
    heads: u64,
    order: Order,
    zones: Vec<Zone>,
    cylinders: u32,
}

impl Layout {
    /// Works out the runs of each zone.
    ///
    /// # Errors
    /// If the table contradicts itself.
    pub fn new(table: &LayoutTable) -> Result<Self, LayoutError> {
        if table.heads == 0 {
            return Err(LayoutError::Empty { what: "heads" });
        }
        let heads = u64::from(table.heads);
        let mut zones = Vec::with_capacity(table.zones.len());
        let mut lba = 0;
        for (index, zone) in table.zones.iter().enumerate() {
            let built = Zone::new(zone, heads, table.sparing, lba)
                .map_err(|why| LayoutError::Zone { zone: index, why })?;
            lba = built.lba.end;
            zones.push(built);
        }
        if lba == 0 {
            return Err(LayoutError::Empty { what: "blocks" });
        }
        let cylinders = table.zones.iter().map(|zone| zone.last_cylinder + 1).max().unwrap_or(0);
        Ok(Self { heads, order: table.order, zones, cylinders })
    }

    /// Blocks of the disk.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.lba.end)
    }

    /// Cylinders, up to the last one that holds data.
    #[must_use]
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Where a block is, and how many that follow it follow it there, too.
    ///
    /// # Panics
    /// If the disk has no such block.
    #[must_use]
    pub fn extent(&self, lba: u64) -> Extent {
        let zone = self.zone(lba);
        let logical = lba - zone.lba.start;
        let run = zone.run(logical);
        let place = run.physical + (logical - run.logical);
        let next_remap = zone.remaps.partition_point(|&(from, _)| from < place);
        let (place, blocks) = match zone.remaps.get(next_remap) {
            Some(&(from, to)) if from == place => (to, 1),
            Some(&(from, _)) => (place, zone.blocks_after(logical, place).min(from - place)),
            None => (place, zone.blocks_after(logical, place)),
        };
        let index = place / zone.sectors_per_track;
        Extent {
            track: self.track(zone, index),
            angle: zone.angle(index, place % zone.sectors_per_track, self.heads),
            blocks,
            width: zone.width,
        }
    }

    /// The blocks of the track that holds `lba`, remapped ones left out of account.
    ///
    /// # Panics
    /// If the disk has no such block.
    #[must_use]
    pub fn track_blocks(&self, lba: u64) -> std::ops::Range<u64> {
        let zone = self.zone(lba);
        let logical = lba - zone.lba.start;
        let run = zone.run(logical);
        let place = run.physical + (logical - run.logical);
        let first = place - place % zone.sectors_per_track;
        let blocks = zone.lba.end - zone.lba.start;
        let start = zone.logical_from(first);
        let end = zone.logical_from(first + zone.sectors_per_track).min(blocks);
        zone.lba.start + start..zone.lba.start + end
    }

    /// The first block of a cylinder's successor, or the end of the zone.
    #[must_use]
    pub fn cylinder_end(&self, lba: u64) -> u64 {
        let zone = self.zone(lba);
        let logical = lba - zone.lba.start;
        let run = zone.run(logical);
        let place = run.physical + (logical - run.logical);
        let cylinder = zone.sectors_per_track * self.heads;
        let end = zone.logical_from(place - place % cylinder + cylinder);
        (zone.lba.start + end).min(zone.lba.end)
    }

    /// The first block of a cylinder, or of the next that has any; the last block behind the end.
    #[must_use]
    pub fn first_block_from(&self, cylinder: u32) -> u64 {
        let index = self.zones.partition_point(|zone| {
            let cylinder_sectors = zone.sectors_per_track * self.heads;
            let wanted = u64::from(cylinder.saturating_sub(zone.first_cylinder));
            zone.logical_from(wanted * cylinder_sectors) >= zone.lba.end - zone.lba.start
        });
        let Some(zone) = self.zones.get(index) else { return self.blocks() - 1 };
        let wanted = u64::from(cylinder.saturating_sub(zone.first_cylinder));
        zone.lba.start + zone.logical_from(wanted * zone.sectors_per_track * self.heads)
    }

    /// The smallest of the zones' track skews.
    #[must_use]
    pub fn least_track_skew(&self) -> Angle {
        let skews = self.zones.iter().map(|zone| zone.track_skew);
        skews.min_by_key(|skew| skew.0).unwrap_or_default()
    }

    /// Sectors of the tracks where a block is.
    ///
    /// # Panics
    /// If the disk has no such block.
    #[must_use]
    pub fn sectors_per_track(&self, lba: u64) -> u64 {
        self.zone(lba).sectors_per_track
    }

    fn zone(&self, lba: u64) -> &Zone {
        let index = self.zones.partition_point(|zone| zone.lba.end <= lba);
        self.zones.get(index).expect("the block is on the disk")
    }

    fn track(&self, zone: &Zone, index: u64) -> Track {
        let cylinder = zone.first_cylinder + (index / self.heads) as u32;
        let head = (index % self.heads) as u32;
        let backwards = match self.order {
            Order::Normal => false,
            Order::SerpentineByZone => (cylinder - zone.first_cylinder) % 2 == 1,
            Order::SerpentineByDisk => cylinder % 2 == 1,
        };
        Track { cylinder, head: if backwards { self.heads as u32 - 1 - head } else { head } }
    }
}

impl Zone {
    fn new(
        table: &ZoneTable,
        heads: u64,
        sparing: Sparing,
        first_lba: u64,
    ) -> Result<Self, &'static str> {
        if table.last_cylinder < table.first_cylinder {
            return Err("its last cylinder comes before its first");
        }
        if table.sectors_per_track == 0 {
            return Err("its tracks have no sectors");
        }
        let numbers = [u64::from(table.last_cylinder), table.sectors_per_track.into(), heads];
        if numbers.iter().zip(MOST).any(|(number, most)| *number > most) {
            return Err("it is larger than any disk's");
        }
        let sectors = numbers.iter().product::<u64>() + heads * u64::from(table.sectors_per_track);
        let is_outside = |place: u64| place >= sectors;
        if table.remaps.iter().any(|&(from, to)| is_outside(from) || is_outside(to)) {
            return Err("it has remapped sectors outside of itself");
        }
        let (runs, blocks) = sparing.runs(table, heads)?;
        let spt = f64::from(table.sectors_per_track);
        let mut remaps: Vec<_> =
            table.remaps.iter().copied().filter(|(from, to)| from != to).collect();
        remaps.sort_unstable();
        let push_unit = sparing.push_unit(u64::from(table.sectors_per_track), heads);
        let mut pushing_slips = if push_unit > 0 { table.slips.clone() } else { Vec::new() };
        pushing_slips.sort_unstable();
        Ok(Self {
            lba: first_lba..first_lba + blocks,
            first_cylinder: table.first_cylinder,
            sectors_per_track: u64::from(table.sectors_per_track),
            offset: Angle::of(table.offset, spt),
            track_skew: Angle::of(table.track_skew, spt),
            cylinder_skew: Angle::of(table.cylinder_skew, spt),
            width: if table.sectors_per_track == 1 { Angle(u64::MAX) } else { Angle::of(1.0, spt) },
            runs,
            remaps,
            pushing_slips,
            push_unit,
        })
    }

    fn run(&self, logical: u64) -> Run {
        let index = self.runs.partition_point(|run| run.logical <= logical);
        self.runs[index - 1]
    }

    /// Blocks that follow `logical` on its track without a gap.
    fn blocks_after(&self, logical: u64, place: u64) -> u64 {
        let index = self.runs.partition_point(|run| run.logical <= logical);
        let end = self.runs.get(index).map_or(self.lba.end - self.lba.start, |run| run.logical);
        let on_track = self.sectors_per_track - place % self.sectors_per_track;
        on_track.min(end - logical)
    }

    /// The first block whose place is not before `place`.
    fn logical_from(&self, place: u64) -> u64 {
        let index = self.runs.partition_point(|run| run.physical <= place);
        let Some(run) = index.checked_sub(1).map(|index| self.runs[index]) else { return 0 };
        let end = self.runs.get(index).map_or(u64::MAX, |run| run.logical);
        (run.logical + (place - run.physical)).min(end)
    }

    fn angle(&self, track: u64, sector: u64, heads: u64) -> Angle {
        let cylinder = track / heads;
        let switches = track % heads + (heads - 1) * cylinder;
        let pushed = if self.push_unit == 0 {
            0
        } else {
            let start = track * self.sectors_per_track;
            let start = start - start % self.push_unit;
            self.pushing_slips.partition_point(|&slip| slip < start) as u64
        };
        self.offset
            .plus(self.track_skew, switches)
            .plus(self.cylinder_skew, cylinder)
            .plus(self.width, sector + pushed)
    }
}

#[cfg(test)]
mod tests;
