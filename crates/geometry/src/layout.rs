//! Layouts: how a level arranges its chunks, under md's numbers and mdadm's names.
//!
//! A [`Layout`] is valid by itself; whether it fits a member count is for
//! [`Geometry::new`](crate::Geometry::new) to say.

use core::fmt;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString;

use crate::error::GeometryError;
use crate::level::Level;
use crate::parity_layout::ParityLayout;

/// How a level arranges its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The level has no choice: linear, RAID1, RAID4 (whose layout word md ignores).
    None,
    /// RAID0's rule for zones after the first.
    Raid0(Raid0Layout),
    /// Where parity and data go in RAID5 and RAID6.
    Parity(ParityLayout),
    /// RAID10's copies.
    Raid10(Raid10Layout),
}

/// Which member starts a RAID0's second and later zones; of no effect when there is one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// Not recorded. Refused if it would matter.
    Unset,
    /// The chunk's number in the array decides (kernels before 3.14, and 5.4 on).
    Original,
    /// The chunk's number in its zone decides (3.14 to 5.3).
    Alternate,
}

/// RAID10's copies: `near * far` of each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Layout {
    /// Copies side by side, at one address on neighbouring members.
    pub near: u8,
    /// Copies at different addresses.
    pub far: u8,
    /// Far copies follow in the next row instead of in another section of the member.
    pub offset: bool,
    /// Between which members far copies move.
    pub far_sets: FarSets,
}

/// Groups of members inside which far copies are shifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarSets {
    /// One group of all members; all that mdadm makes.
    Whole,
    /// `raid_disks / far` members (layout bit 17).
    DisksByFar,
    /// `near * far` members (layout bit 18).
    Copies,
}

impl Layout {
    /// The layout that md's `word` means for `level`.
    ///
    /// As in md, RAID0 takes any word other than 1 and 2 for "not recorded", and the word is
    /// ignored for levels without a choice.
    pub fn from_md(level: Level, word: u32) -> Result<Layout, GeometryError> {
        let unknown = GeometryError::UnknownLayout { level, word };
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => Ok(Layout::None),
            Level::Raid0 => Ok(Layout::Raid0(Raid0Layout::from_md(word))),
            Level::Raid5 | Level::Raid6 => {
                ParityLayout::from_md(level, word).map(Layout::Parity).ok_or(unknown)
            }
            Level::Raid10 => Raid10Layout::from_md(word).map(Layout::Raid10).ok_or(unknown),
        }
    }

    /// The word that md's superblocks hold.
    pub fn to_md(self) -> u32 {
        match self {
            Layout::None => 0,
            Layout::Raid0(layout) => layout.to_md(),
            Layout::Parity(layout) => layout.to_md(),
            Layout::Raid10(layout) => layout.to_md(),
        }
    }

    /// The layout that mdadm's `--layout=name` means for `level`. RAID10 also takes the layout
    /// word in hexadecimal, for the layouts that have no name.
    pub fn from_name(level: Level, name: &str) -> Result<Layout, GeometryError> {
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => None,
            Level::Raid0 => Raid0Layout::from_name(name).map(Layout::Raid0),
            Level::Raid5 | Level::Raid6 => ParityLayout::from_name(level, name).map(Layout::Parity),
            Level::Raid10 => Raid10Layout::from_name(name).map(Layout::Raid10),
        }
        .ok_or_else(|| GeometryError::UnknownLayoutName { level, name: name.to_string() })
    }

    /// A name that [`Layout::from_name`] reads; "none" for levels without a choice.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Layout::None => Cow::Borrowed("none"),
            Layout::Raid0(layout) => Cow::Borrowed(layout.name()),
            Layout::Parity(layout) => Cow::Borrowed(layout.name()),
            Layout::Raid10(layout) => layout.name(),
        }
    }

    /// What mdadm chooses when nothing is said (for metadata 1.x).
    pub const fn default_for(level: Level) -> Layout {
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => Layout::None,
            Level::Raid0 => Layout::Raid0(Raid0Layout::Original),
            Level::Raid5 | Level::Raid6 => Layout::Parity(ParityLayout::LeftSymmetric),
            Level::Raid10 => Layout::Raid10(Raid10Layout::near(2)),
        }
    }

    /// Is this a layout of `level`?
    pub fn belongs_to(self, level: Level) -> bool {
        match self {
            Layout::None => matches!(level, Level::Linear | Level::Raid1 | Level::Raid4),
            Layout::Raid0(_) => level == Level::Raid0,
            Layout::Parity(layout) => layout.belongs_to(level),
            Layout::Raid10(_) => level == Level::Raid10,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl Raid0Layout {
    const fn from_md(word: u32) -> Raid0Layout {
        match word {
            1 => Raid0Layout::Original,
            2 => Raid0Layout::Alternate,
            _ => Raid0Layout::Unset,
        }
    }

    const fn to_md(self) -> u32 {
        match self {
            Raid0Layout::Unset => 0,
            Raid0Layout::Original => 1,
            Raid0Layout::Alternate => 2,
        }
    }

    fn from_name(name: &str) -> Option<Raid0Layout> {
        Some(match name {
            "original" | "1" | "default" => Raid0Layout::Original,
            "alternate" | "2" => Raid0Layout::Alternate,
            "dangerous" => Raid0Layout::Unset,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Raid0Layout::Unset => "dangerous",
            Raid0Layout::Original => "original",
            Raid0Layout::Alternate => "alternate",
        }
    }
}

impl Raid10Layout {
    /// Most copies that mdadm lets a name ask for.
    const NAME_COPIES_MAX: u8 = 200;

    /// `copies` near copies (mdadm's `nN`).
    pub const fn near(copies: u8) -> Raid10Layout {
        Raid10Layout { near: copies, far: 1, offset: false, far_sets: FarSets::Whole }
    }

    /// `copies` far copies (mdadm's `fN`).
    pub const fn far(copies: u8) -> Raid10Layout {
        Raid10Layout { near: 1, far: copies, offset: false, far_sets: FarSets::Whole }
    }

    /// `copies` copies in consecutive rows (mdadm's `oN`).
    pub const fn offset(copies: u8) -> Raid10Layout {
        Raid10Layout { near: 1, far: copies, offset: true, far_sets: FarSets::Whole }
    }

    /// Copies of each chunk.
    pub const fn copies(self) -> u32 {
        self.near as u32 * self.far as u32
    }

    /// Members in a far set of an array of `raid_disks`; below one if the layout cannot be used.
    pub(crate) const fn far_set_size(self, raid_disks: u16) -> u16 {
        match self.far_sets {
            FarSets::Whole => raid_disks,
            FarSets::DisksByFar => raid_disks / self.far as u16,
            FarSets::Copies => self.near as u16 * self.far as u16,
        }
    }

    /// md's word: near in bits 0 to 7, far in 8 to 15, offset 16, far sets 17 and 18.
    const fn from_md(word: u32) -> Option<Raid10Layout> {
        let [near, far, flags, rest] = word.to_le_bytes();
        if near == 0 || far == 0 || rest != 0 {
            return None;
        }
        let far_sets = match flags >> 1 {
            0 => FarSets::Whole,
            1 => FarSets::DisksByFar,
            2 => FarSets::Copies,
            _ => return None,
        };
        Some(Raid10Layout { near, far, offset: flags & 1 != 0, far_sets })
    }

    pub(crate) const fn to_md(self) -> u32 {
        let sets = match self.far_sets {
            FarSets::Whole => 0,
            FarSets::DisksByFar => 0x20000,
            FarSets::Copies => 0x40000,
        };
        sets | (self.offset as u32) << 16 | (self.far as u32) << 8 | self.near as u32
    }

    fn from_name(name: &str) -> Option<Raid10Layout> {
        if let Some(word) = name.strip_prefix("0x") {
            return Raid10Layout::from_md(u32::from_str_radix(word, 16).ok()?);
        }
        if name == "default" {
            return Some(Raid10Layout::near(2));
        }
        let digits = name.get(1..)?;
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let copies = digits.parse::<u8>().ok()?;
        if copies == 0 || copies > Raid10Layout::NAME_COPIES_MAX {
            return None;
        }
        match name.as_bytes()[0] {
            b'n' => Some(Raid10Layout::near(copies)),
            b'f' => Some(Raid10Layout::far(copies)),
            b'o' => Some(Raid10Layout::offset(copies)),
            _ => None,
        }
    }

    fn name(self) -> Cow<'static, str> {
        let Raid10Layout { near, far, offset, far_sets } = self;
        Cow::Owned(match (near, far, offset, far_sets) {
            (_, 1, false, FarSets::Whole) => format!("n{near}"),
            (1, _, false, FarSets::Whole) => format!("f{far}"),
            (1, _, true, FarSets::Whole) => format!("o{far}"),
            _ => format!("{:#x}", self.to_md()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_word_and_name_leads_back() {
        for level in Level::ALL {
            for word in 0..0x100_0000 {
                let Ok(layout) = Layout::from_md(level, word) else { continue };
                assert!(layout.belongs_to(level), "{level} {word:#x}");
                if matches!(level, Level::Raid5 | Level::Raid6 | Level::Raid10) {
                    assert_eq!(layout.to_md(), word);
                    if word & 0xf8f8 == 0 {
                        assert_eq!(Layout::from_name(level, &layout.name()), Ok(layout));
                    }
                }
            }
        }
    }

    #[test]
    fn mdadm_names_give_md_words() {
        let word = |level, name| Layout::from_name(level, name).map(Layout::to_md).ok();
        assert_eq!(word(Level::Raid10, "n2"), Some(0x102));
        assert_eq!(word(Level::Raid10, "f3"), Some(0x301));
        assert_eq!(word(Level::Raid10, "o2"), Some(0x10201));
        assert_eq!(word(Level::Raid10, "0x40201"), Some(0x40201));
        assert_eq!(word(Level::Raid0, "dangerous"), Some(0));
        assert_eq!(word(Level::Raid0, "alternate"), Some(2));
        for refused in ["", "n", "n0", "n201", "n+2", "x2", "n2x", "0x60201", "0x1000102", "é2"] {
            assert_eq!(word(Level::Raid10, refused), None, "{refused}");
        }
        assert_eq!(word(Level::Raid1, "n2"), None);
    }
}
