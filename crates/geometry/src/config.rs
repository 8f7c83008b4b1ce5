//! What is known of an array before its geometry is.

use alloc::vec::Vec;

use crate::error::GeometryError;
use crate::layout::Layout;
use crate::level::Level;
use crate::units::{MAX_SECTORS, Sectors};

/// Least chunk of the levels whose chunk must be a power of two: the kernel wants a page.
pub const MIN_CHUNK: Sectors = Sectors(8);

/// A description of an array, to be checked by [`Geometry::new`](crate::Geometry::new).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The level.
    pub level: Level,
    /// Its layout.
    pub layout: Layout,
    /// Chunk size. For linear the rounding of members; 0 where there is none.
    pub chunk: Sectors,
    /// Number of slots.
    pub raid_disks: u16,
    /// Size used of each member. Not looked at for linear and RAID0.
    pub component: Sectors,
    /// Data size of the member in each slot. Needed by linear and RAID0; others do not look.
    pub member_sizes: Vec<Sectors>,
}

impl Config {
    /// The checks that concern every level.
    pub(crate) fn check(&self) -> Result<(), GeometryError> {
        let Config { level, layout, raid_disks: found, .. } = *self;
        let (min, max) = (level.min_members(), level.max_members());
        if found < min || found > max {
            return Err(GeometryError::MemberCount { level, found, min, max });
        }
        if !layout.belongs_to(level) {
            return Err(GeometryError::LayoutOfOtherLevel { level, layout });
        }
        if self.chunk > MAX_SECTORS {
            return Err(GeometryError::ChunkTooLarge { found: self.chunk });
        }
        if self.component > MAX_SECTORS {
            return Err(GeometryError::TooLarge);
        }
        Ok(())
    }

    /// The member sizes, if there is one for each slot.
    pub(crate) fn sizes_per_slot(&self) -> Result<impl Iterator<Item = Sectors>, GeometryError> {
        let (expected, found) = (self.raid_disks, self.member_sizes.len());
        if found != expected as usize {
            return Err(GeometryError::MemberSizes { expected, found });
        }
        if self.member_sizes.iter().any(|size| *size > MAX_SECTORS) {
            return Err(GeometryError::TooLarge);
        }
        Ok(self.member_sizes.iter().copied())
    }

    pub(crate) fn check_power_of_two_chunk(&self) -> Result<(), GeometryError> {
        if self.chunk < MIN_CHUNK {
            return Err(self.chunk_too_small(MIN_CHUNK));
        }
        if !self.chunk.0.is_power_of_two() {
            return Err(GeometryError::ChunkNotPowerOfTwo { level: self.level, found: self.chunk });
        }
        Ok(())
    }

    pub(crate) fn chunk_too_small(&self, min: Sectors) -> GeometryError {
        GeometryError::ChunkTooSmall { level: self.level, found: self.chunk, min }
    }
}
