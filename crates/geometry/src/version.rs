//! The superblock versions, and where each lies on a member.

use core::fmt;
use core::str::FromStr;

use crate::error::GeometryError;
use crate::units::{MAX_SECTORS, Sector, Sectors};

/// Room at the end of a device that 0.90 takes for superblock and bitmap, and its alignment.
pub(crate) const RESERVED_090: u64 = 128;
/// The smallest device that a superblock of 1.x is written to.
pub(crate) const SMALLEST_1: Sectors = Sectors(24);

/// A superblock version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 0.90, 64 KiB to 128 KiB before the end.
    V090,
    /// 1.0, 8 KiB to 12 KiB before the end.
    V1_0,
    /// 1.1, at the start.
    V1_1,
    /// 1.2, at 4 KiB.
    V1_2,
}

impl Version {
    /// Every version, in the order in which md looks for them.
    pub const ALL: [Self; 4] = [Self::V1_2, Self::V1_1, Self::V1_0, Self::V090];

    /// Where the superblock lies on a device of this size.
    pub fn superblock(self, device: Sectors) -> Result<Sector, GeometryError> {
        let needed = match self {
            Version::V090 => Sectors(RESERVED_090),
            _ => SMALLEST_1,
        };
        if device < needed {
            return Err(GeometryError::DeviceTooSmall { found: device, needed });
        }
        if device > MAX_SECTORS {
            return Err(GeometryError::TooLarge);
        }
        Ok(Sector(match self {
            Version::V090 => (device.0 & !(RESERVED_090 - 1)) - RESERVED_090,
            Version::V1_0 => (device.0 - 16) & !7,
            Version::V1_1 => 0,
            Version::V1_2 => 8,
        }))
    }

    /// md's spelling: "0.90", "1.0", "1.1" or "1.2".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V090 => "0.90",
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text names no superblock version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata versions are 0.90, 1.0, 1.1 and 1.2")]
pub struct UnknownVersion;

impl FromStr for Version {
    type Err = UnknownVersion;

    /// Takes what mdadm's `--metadata` takes for these versions.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        match text {
            "0" | "0.90" | "00.90" => Ok(Self::V090),
            "1.0" => Ok(Self::V1_0),
            "1.1" => Ok(Self::V1_1),
            "1" | "1.2" | "default" => Ok(Self::V1_2),
            _ => Err(UnknownVersion),
        }
    }
}
