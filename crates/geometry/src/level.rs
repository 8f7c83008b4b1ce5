//! The RAID levels, under md's numbers and mdadm's names.

use core::fmt;
use core::str::FromStr;

use alloc::string::ToString;

use crate::{Slot, error::GeometryError};

/// A RAID level that has a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after the other.
    Linear,
    /// Chunks dealt round the members.
    Raid0,
    /// The same data on every member.
    Raid1,
    /// Parity on the last member.
    Raid4,
    /// Parity moving round the members.
    Raid5,
    /// Two syndromes, P and Q.
    Raid6,
    /// Chunks and their copies dealt round the members.
    Raid10,
}

impl Level {
    /// Every level, in md's order of numbers.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// The number that md's superblocks hold.
    pub const fn to_md(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }

    /// The level with md's number `number`. Multipath (-4), faulty (-5) and containers (-100) have
    /// no geometry and give [`GeometryError::UnknownLevel`] as any other number does.
    pub fn from_md(number: i32) -> Result<Level, GeometryError> {
        Level::ALL
            .into_iter()
            .find(|level| level.to_md() == number)
            .ok_or(GeometryError::UnknownLevel { number })
    }

    /// mdadm's name, which is also the one in `/proc/mdstat`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        }
    }

    /// The slot in which another level, which lays data out alike, has what this one has in a slot; none if only this one has
    /// a copy there.
    pub const fn slot_when_taken_over(self, other: Level, slot: Slot) -> Option<Slot> {
        match (self, other) {
            (Level::Raid0, Level::Raid10) => Some(Slot(slot.0.saturating_mul(2))),
            (Level::Raid10, Level::Raid0 | Level::Raid5) => match slot.0 % 2 {
                0 => Some(Slot(slot.0 / 2)),
                _ => None,
            },
            _ => Some(slot),
        }
    }

    /// Does an array of this level outlive the loss of a member?
    pub const fn has_redundancy(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid0)
    }

    /// Does it hold computed parity (levels 4, 5 and 6)?
    pub const fn is_parity(self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// Does it have a chunk size? Linear has an optional rounding in that field, RAID1 nothing.
    pub const fn is_striped(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid1)
    }

    /// Fewest members that md runs it with. (mdadm wants `--force` for a RAID0 or RAID1 of one.)
    pub const fn min_members(self) -> u16 {
        match self {
            Level::Linear | Level::Raid0 | Level::Raid1 => 1,
            Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
            Level::Raid6 => 4,
        }
    }

    /// Most members that it can have. RAID6's second syndrome has 255 distinct coefficients, one for each data chunk,
    /// or for each slot with DDF's layouts, which [`Geometry::new`](crate::Geometry::new) holds to 255; the others are
    /// bounded by the superblock alone.
    pub const fn max_members(self) -> u16 {
        match self {
            Level::Raid6 => 256,
            _ => u16::MAX,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = GeometryError;

    /// Reads the names that mdadm's `--level` takes.
    fn from_str(name: &str) -> Result<Level, GeometryError> {
        Ok(match name {
            "linear" => Level::Linear,
            "raid0" | "0" | "stripe" => Level::Raid0,
            "raid1" | "1" | "mirror" => Level::Raid1,
            "raid4" | "4" => Level::Raid4,
            "raid5" | "5" => Level::Raid5,
            "raid6" | "6" => Level::Raid6,
            "raid10" | "10" => Level::Raid10,
            _ => return Err(GeometryError::UnknownLevelName { name: name.to_string() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_name_lead_back_to_the_level() {
        for level in Level::ALL {
            assert_eq!(Level::from_md(level.to_md()), Ok(level));
            assert_eq!(level.name().parse(), Ok(level));
        }
    }

    #[test]
    fn levels_without_geometry_are_refused() {
        for number in [-1_000_000, -100, -5, -4, 2, 3, 7, 11] {
            assert_eq!(Level::from_md(number), Err(GeometryError::UnknownLevel { number }));
        }
        assert!("raid7".parse::<Level>().is_err());
    }
}
