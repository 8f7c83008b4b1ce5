//! Where spare sectors are, and what slipped ones do to those after them.
//!
//! A zone's blocks are its sectors in physical order without the reserved front, the spares and the
//! slipped places. In most schemes a slip uses up a spare of its own region, so that later regions stay
//! where they are; in the others it pushes the rest of the zone on.

use super::ZoneTable;

/// Where spare sectors are (DiskSim's schemes 0 to 10, by what they do).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", tag = "scheme")]
pub enum Sparing {
    /// Nowhere; nothing is slipped.
    None,
    /// Whole tracks at the end of each zone; slips and remaps count tracks.
    Tracks,
    /// At the end of each track.
    PerTrack,
    /// At the end of each cylinder.
    PerCylinder,
    /// At the end of each cylinder, for remaps only: slips push the zone on.
    PerCylinderSlipToEnd,
    /// At the front of each cylinder.
    CylinderFront,
    /// At the front of each cylinder, for remaps only.
    CylinderFrontSlipToEnd,
    /// At the end of the disk.
    DiskEnd,
    /// At the end of each range of cylinders.
    PerRange {
        /// Cylinders of a range.
        cylinders: u64,
    },
    /// At the end of each zone.
    PerZone,
    /// At the end of each zone, for remaps only.
    PerZoneSlipToEnd,
}

/// Blocks that follow each other physically, up to the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block, counted from the zone's first.
    pub logical: u64,
    /// Its sector, counted from the zone's first.
    pub physical: u64,
}

/// A region of a zone with room for blocks: `room` of the sectors of `start..end` that are not slipped.
struct Region {
    start: u64,
    end: u64,
    room: u64,
}

/// Regions of a zone at most, each of which is a run in memory.
const REGIONS_MAX: u64 = 1 << 24;

impl Sparing {
    /// The runs of a zone and its number of blocks.
    pub(super) fn runs(
        self,
        zone: &ZoneTable,
        heads: u64,
    ) -> Result<(Vec<Run>, u64), &'static str> {
        let spt = u64::from(zone.sectors_per_track);
        let cylinders = u64::from(zone.last_cylinder - zone.first_cylinder) + 1;
        let sectors = cylinders * heads * spt;
        let mut slips = self.slipped_sectors(zone, spt, sectors);
        slips.sort_unstable();
        slips.dedup();
        let regions = self.regions(zone, heads, sectors, slips.len() as u64)?;
        let mut runs = Vec::new();
        let mut logical = 0;
        let mut skip = zone.reserved;
        for region in regions {
            add_region(&region, &slips, &mut runs, &mut logical, &mut skip);
        }
        if logical == 0 { Err("it has no room for blocks") } else { Ok((runs, logical)) }
    }

    fn slipped_sectors(self, zone: &ZoneTable, spt: u64, sectors: u64) -> Vec<u64> {
        let slips = zone.slips.iter().copied();
        match self {
            Self::None => Vec::new(),
            Self::Tracks => {
                let tracks = slips.filter(|&track| track < sectors / spt);
                tracks.flat_map(|track| track * spt..(track + 1) * spt).collect()
            }
            _ => slips.filter(|&slip| slip < sectors).collect(),
        }
    }

    fn regions(
        self,
        zone: &ZoneTable,
        heads: u64,
        sectors: u64,
        slips: u64,
    ) -> Result<Vec<Region>, &'static str> {
        let spt = u64::from(zone.sectors_per_track);
        let cylinder = heads * spt;
        let (unit, front) = match self {
            Self::PerTrack => (spt, 0),
            Self::PerCylinder | Self::PerCylinderSlipToEnd => (cylinder, 0),
            Self::CylinderFront | Self::CylinderFrontSlipToEnd => (cylinder, zone.spares),
            Self::PerRange { cylinders } => (cylinder.saturating_mul(cylinders), 0),
            Self::None | Self::DiskEnd => (sectors, 0),
            Self::Tracks | Self::PerZone | Self::PerZoneSlipToEnd => (sectors, 0),
        };
        let spares = match self {
            Self::None | Self::DiskEnd => 0,
            Self::Tracks => zone.spares.saturating_mul(spt),
            _ => zone.spares,
        };
        if unit == 0 || spares >= unit.min(sectors) {
            return Err("its spares leave no room for blocks");
        }
        if sectors / unit > REGIONS_MAX {
            return Err("it has more regions with spares than any disk's");
        }
        // Where slips push on, they do not use spares up; where they do not, a region's room is fixed.
        let pushes = matches!(
            self,
            Self::PerCylinderSlipToEnd
                | Self::CylinderFrontSlipToEnd
                | Self::DiskEnd
                | Self::PerZoneSlipToEnd
        );
        if pushes && slips >= sectors {
            return Err("it has more slips than sectors");
        }
        let region = |start: u64| {
            let end = start.saturating_add(unit).min(sectors);
            let is_whole = end - start == unit;
            let spares = if is_whole { spares } else { 0 };
            if pushes {
                // Room for all of its sectors but the spares; slips are taken off as they come.
                let (start, end) =
                    if front > 0 { (start + spares, end) } else { (start, end - spares) };
                Region { start, end, room: end - start }
            } else {
                let start = if front > 0 { start + spares } else { start };
                let room = end - start - if front > 0 { 0 } else { spares };
                Region { start, end, room }
            }
        };
        // The unit may be more than a zone, never more than a usize where disks are.
        Ok((0..sectors).step_by(unit.min(sectors) as usize).map(region).collect())
    }

    /// In units of how many sectors slips push the skew of what follows on; 0 if they do not.
    pub(super) fn push_unit(self, spt: u64, heads: u64) -> u64 {
        match self {
            Self::PerTrack => spt,
            Self::PerCylinder
            | Self::PerCylinderSlipToEnd
            | Self::CylinderFront
            | Self::CylinderFrontSlipToEnd => spt * heads,
            _ => 0,
        }
    }
}

/// Adds a region's blocks as runs, the first `skip` of which are reserved.
fn add_region(
    region: &Region,
    slips: &[u64],
    runs: &mut Vec<Run>,
    logical: &mut u64,
    skip: &mut u64,
) {
    let mut place = region.start;
    let mut room = region.room;
    let mut next = slips.partition_point(|&slip| slip < place);
    while place < region.end && room > 0 {
        if slips.get(next) == Some(&place) {
            place += 1;
            next += 1;
            continue;
        }
        let end = slips.get(next).map_or(region.end, |&slip| slip.min(region.end));
        let mut blocks = (end - place).min(room);
        room -= blocks;
        let reserved = blocks.min(*skip);
        *skip -= reserved;
        place += reserved;
        blocks -= reserved;
        if blocks > 0 {
            let follows =
                runs.last().is_some_and(|run| run.physical + (*logical - run.logical) == place);
            if !follows {
                runs.push(Run { logical: *logical, physical: place });
            }
            *logical += blocks;
            place += blocks;
        }
    }
}
