//! Linear: the members one after the other.
//!
//! Invariant: `ends` is ascending, one entry per slot; slot `i` holds array sectors
//! `ends[i - 1]..ends[i]`. Each member is first rounded down to the chunk, which md calls
//! rounding here and which may be zero.

use alloc::boxed::Box;

use crate::config::Config;
use crate::error::GeometryError;
use crate::run::{Content, Run};
use crate::units::{MAX_SECTORS, Sector, Sectors, Slot};

/// A linear array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    ends: Box<[u64]>,
}

impl Linear {
    pub(crate) fn new(config: &Config) -> Result<Linear, GeometryError> {
        let mut end = 0u64;
        let mut ends = alloc::vec::Vec::with_capacity(config.member_sizes.len());
        for size in config.sizes_per_slot()? {
            end += size.round_down(config.chunk).0;
            if end > MAX_SECTORS.0 {
                return Err(GeometryError::TooLarge);
            }
            ends.push(end);
        }
        if end == 0 {
            return Err(GeometryError::NoRoom { component: Sectors::ZERO });
        }
        Ok(Linear { ends: ends.into_boxed_slice() })
    }

    /// Members of the array.
    pub fn raid_disks(&self) -> u16 {
        self.ends.len() as u16
    }

    /// Size of the array.
    pub fn array_sectors(&self) -> Sectors {
        Sectors(self.ends[self.ends.len() - 1])
    }

    /// Sectors of a member that the array uses.
    pub fn used(&self, slot: Slot) -> Sectors {
        Sectors(self.ends[slot.index()] - self.start(slot.index()))
    }

    /// The one home of an array sector. Panics at or past the array's end.
    #[inline]
    pub fn map(&self, sector: Sector) -> Run {
        let index = self.ends.partition_point(|&end| end <= sector.0);
        assert!(index < self.ends.len(), "{sector} is past the array's end");
        let start = self.start(index);
        Run::single(self.ends[index] - sector.0, index as u16, sector.0 - start)
    }

    /// What a member's sector holds. Panics if there is no such slot.
    pub fn content(&self, slot: Slot, sector: Sector) -> Content {
        if sector.0 >= self.used(slot).0 {
            return Content::Unused;
        }
        Content::Data(Sector(self.start(slot.index()) + sector.0))
    }

    #[inline]
    fn start(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }
}
