//! RAID1: every sector at the same address on every member.

use crate::config::Config;
use crate::error::GeometryError;
use crate::run::{Content, Home, Run};
use crate::units::{Sector, Sectors, Slot};

/// A RAID1 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    raid_disks: u16,
    size: u64,
}

impl Mirror {
    pub(crate) fn new(config: &Config) -> Result<Mirror, GeometryError> {
        if config.component.is_zero() {
            return Err(GeometryError::NoRoom { component: config.component });
        }
        Ok(Mirror { raid_disks: config.raid_disks, size: config.component.0 })
    }

    /// Members of the array.
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Size of the array, and of each member's part in it.
    pub fn array_sectors(&self) -> Sectors {
        Sectors(self.size)
    }

    /// The homes of an array sector, one per slot in order. Panics at or past the array's end.
    #[inline]
    pub fn map(&self, sector: Sector) -> Run {
        assert!(sector.0 < self.size, "{sector} is past the array's end");
        let homes = (0..self.raid_disks).map(|slot| Home { slot: Slot(slot), sector }).collect();
        Run { len: Sectors(self.size - sector.0), homes }
    }

    /// What a member's sector holds. Panics if there is no such slot.
    pub fn content(&self, slot: Slot, sector: Sector) -> Content {
        assert!(slot.0 < self.raid_disks, "no {slot}");
        if sector.0 < self.size { Content::Data(sector) } else { Content::Unused }
    }
}
