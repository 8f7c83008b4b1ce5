//! What a case is, and its name.

use std::fmt;
use std::str::FromStr;

use lapstrake_geometry::{Layout, Level, Sectors};
use lapstrake_metadata::Version;

/// Who makes the array, and what it is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Story {
    /// The kernel makes and fills it.
    Kernel,
    /// Lapstrake makes it and fills it over NBD.
    Ours,
    /// The kernel makes it with a filesystem.
    KernelExt4,
    /// Lapstrake makes it and a filesystem goes in over NBD.
    OursExt4,
}

impl Story {
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Ours, Self::KernelExt4, Self::OursExt4];

    pub const fn has_filesystem(self) -> bool {
        matches!(self, Self::KernelExt4 | Self::OursExt4)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Ours => "ours",
            Self::KernelExt4 => "kernel-ext4",
            Self::OursExt4 => "ours-ext4",
        }
    }
}

/// One point of the matrix. Displays as its name, which reads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    pub story: Story,
    pub level: Level,
    pub layout: Layout,
    /// Zero where there is none; for linear the rounding.
    pub chunk: Sectors,
    pub version: Version,
    pub members: u16,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { story, level, layout, chunk, version, members } = self;
        let story = story.name();
        write!(f, "{story}/{level}/{layout}/{}K/{version}/{members}", chunk.0 / 2)
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let broken = || {
            format!(
                "{name:?} is no case; a name is story/level/layout/chunk/metadata/members, such \
                 as ours/raid6/ddf-N-continue/64K/1.1/5"
            )
        };
        let parts: Vec<&str> = name.split('/').collect();
        let [story, level, layout, chunk, version, members] = parts[..] else {
            return Err(broken());
        };
        let level: Level = level.parse().map_err(|_| broken())?;
        let chunk = chunk.strip_suffix('K').and_then(|kib| kib.parse().ok()).ok_or_else(broken)?;
        Ok(Case {
            story: Story::ALL.into_iter().find(|s| s.name() == story).ok_or_else(broken)?,
            level,
            layout: match layout {
                "none" => Layout::None,
                name => Layout::from_name(level, name).map_err(|_| broken())?,
            },
            chunk: Sectors::from_kib(chunk),
            version: version.parse().map_err(|_| broken())?,
            members: members.parse().map_err(|_| broken())?,
        })
    }
}

impl Case {
    /// A digest of the name (FNV-1a), from which the rest of the case is drawn.
    pub fn seed(&self) -> u64 {
        self.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}
