//! The geometry of an array of any level.

use crate::config::Config;
use crate::error::GeometryError;
use crate::layout::{Layout, Raid0Layout};
use crate::level::Level;
use crate::linear::Linear;
use crate::mirror::Mirror;
use crate::parity::Parity;
use crate::raid0::Raid0;
use crate::raid10::Raid10;
use crate::run::{Content, Run};
use crate::units::{Sector, Sectors, Slot};

/// A checked geometry: what it is made from, md would run too; the converse fails
/// only for RAID10 layouts that lose data (see [`GeometryError::CopiesCollide`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Members one after the other.
    Linear(Linear),
    /// Chunks dealt round.
    Raid0(Raid0),
    /// RAID1.
    Mirror(Mirror),
    /// RAID4, RAID5, RAID6.
    Parity(Parity),
    /// RAID10.
    Raid10(Raid10),
}

impl Geometry {
    /// Checks a description and makes its geometry.
    pub fn new(config: &Config) -> Result<Geometry, GeometryError> {
        config.check()?;
        match (config.level, config.layout) {
            (Level::Linear, _) => Linear::new(config).map(Geometry::Linear),
            (Level::Raid1, _) => Mirror::new(config).map(Geometry::Mirror),
            (Level::Raid0, Layout::Raid0(layout)) => {
                Raid0::new(config, layout).map(Geometry::Raid0)
            }
            (Level::Raid0, _) => Raid0::new(config, Raid0Layout::Unset).map(Geometry::Raid0),
            (Level::Raid10, Layout::Raid10(layout)) => {
                Raid10::new(config, layout).map(Geometry::Raid10)
            }
            (level @ Level::Raid10, layout) => {
                Err(GeometryError::LayoutOfOtherLevel { level, layout })
            }
            (Level::Raid4 | Level::Raid5 | Level::Raid6, _) => {
                Parity::new(config).map(Geometry::Parity)
            }
        }
    }

    /// Size of the array.
    pub fn array_sectors(&self) -> Sectors {
        match self {
            Geometry::Linear(linear) => linear.array_sectors(),
            Geometry::Raid0(raid0) => raid0.array_sectors(),
            Geometry::Mirror(mirror) => mirror.array_sectors(),
            Geometry::Parity(parity) => parity.array_sectors(),
            Geometry::Raid10(raid10) => raid10.array_sectors(),
        }
    }

    /// The component size as md states it: the sectors of each member that are in use. 0 for
    /// linear and RAID0, whose members may differ.
    pub fn component(&self) -> Sectors {
        match self {
            Geometry::Linear(_) | Geometry::Raid0(_) => Sectors::ZERO,
            Geometry::Mirror(mirror) => mirror.array_sectors(),
            Geometry::Parity(parity) => parity.used(),
            Geometry::Raid10(raid10) => raid10.used(),
        }
    }

    /// Number of slots.
    pub fn raid_disks(&self) -> u16 {
        match self {
            Geometry::Linear(linear) => linear.raid_disks(),
            Geometry::Raid0(raid0) => raid0.raid_disks(),
            Geometry::Mirror(mirror) => mirror.raid_disks(),
            Geometry::Parity(parity) => parity.raid_disks(),
            Geometry::Raid10(raid10) => raid10.raid_disks(),
        }
    }

    /// The level.
    pub fn level(&self) -> Level {
        match self {
            Geometry::Linear(_) => Level::Linear,
            Geometry::Raid0(_) => Level::Raid0,
            Geometry::Mirror(_) => Level::Raid1,
            Geometry::Parity(parity) => parity.level(),
            Geometry::Raid10(_) => Level::Raid10,
        }
    }

    /// Where an array sector's data is: every copy, or for RAID4, RAID5 and RAID6 the one member
    /// that has it. Panics at or past the array's end.
    #[inline]
    pub fn map(&self, sector: Sector) -> Run {
        match self {
            Geometry::Linear(linear) => linear.map(sector),
            Geometry::Raid0(raid0) => raid0.map(sector),
            Geometry::Mirror(mirror) => mirror.map(sector),
            Geometry::Parity(parity) => parity.map(sector),
            Geometry::Raid10(raid10) => raid10.map(sector),
        }
    }

    /// What the member in `slot` holds at `sector`. Panics if there is no such slot.
    pub fn content(&self, slot: Slot, sector: Sector) -> Content {
        match self {
            Geometry::Linear(linear) => linear.content(slot, sector),
            Geometry::Raid0(raid0) => raid0.content(slot, sector),
            Geometry::Mirror(mirror) => mirror.content(slot, sector),
            Geometry::Parity(parity) => parity.content(slot, sector),
            Geometry::Raid10(raid10) => raid10.content(slot, sector),
        }
    }

    /// Are the present slots enough to read all data?
    pub fn survives(&self, present: impl Fn(Slot) -> bool) -> bool {
        let mut slots = (0..self.raid_disks()).map(Slot);
        match self {
            Geometry::Linear(_) | Geometry::Raid0(_) => slots.all(present),
            Geometry::Mirror(_) => slots.any(present),
            Geometry::Parity(parity) => {
                slots.filter(|&slot| !present(slot)).count() <= parity.parity_disks() as usize
            }
            Geometry::Raid10(raid10) => raid10.survives(present),
        }
    }
}
