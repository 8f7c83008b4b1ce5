//! Why a description of an array is not a geometry.

use alloc::{format, string::String, vec::Vec};

use crate::layout::Layout;
use crate::level::Level;
use crate::parity_layout::ParityLayout;
use crate::units::{Sectors, Slot};

/// What is wrong with a level, a layout, a configuration or a device's size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// md's level number has no geometry here.
    #[error("level {number} is not one that stores data in a known way")]
    UnknownLevel {
        /// The number found.
        number: i32,
    },
    /// Not a name of a level.
    #[error("\"{name}\" is not the name of a RAID level")]
    UnknownLevelName {
        /// The name given.
        name: String,
    },
    /// md would not accept this layout word for this level.
    #[error("layout {word:#x} does not exist for {level}")]
    UnknownLayout {
        /// The array's level.
        level: Level,
        /// The layout word found.
        word: u32,
    },
    /// Not a name of a layout of this level.
    #[error("\"{name}\" is not a layout of {level}; {}", names_of_layouts(*level))]
    UnknownLayoutName {
        /// The array's level.
        level: Level,
        /// The name given.
        name: String,
    },
    /// The layout belongs to another level.
    #[error("layout {layout} does not belong to {level}")]
    LayoutOfOtherLevel {
        /// The array's level.
        level: Level,
        /// The layout given.
        layout: Layout,
    },
    /// The level needs a chunk size that is not below a minimum.
    #[error("{level} needs a chunk of at least {min}, not {found}")]
    ChunkTooSmall {
        /// The array's level.
        level: Level,
        /// The chunk given.
        found: Sectors,
        /// The least allowed.
        min: Sectors,
    },
    /// The level needs a chunk that is a power of two.
    #[error("{level} needs a chunk that is a power of two, not {found}")]
    ChunkNotPowerOfTwo {
        /// The array's level.
        level: Level,
        /// The chunk given.
        found: Sectors,
    },
    /// A chunk that no size could be a multiple of.
    #[error("a chunk of {found} is larger than any member")]
    ChunkTooLarge {
        /// The chunk given.
        found: Sectors,
    },
    /// Member count outside the level's limits.
    #[error("{level} takes {min} to {max} members, not {found}")]
    MemberCount {
        /// The array's level.
        level: Level,
        /// The count given.
        found: u16,
        /// The fewest.
        min: u16,
        /// The most.
        max: u16,
    },
    /// RAID10 with fewer than two copies, or with more than it has members.
    #[error("RAID10 with {copies} copies cannot live on {raid_disks} members")]
    CopyCount {
        /// Near copies times far copies.
        copies: u32,
        /// Members of the array.
        raid_disks: u16,
    },
    /// A RAID10 layout that sends two copies to one member, or two chunks to one place. The kernel
    /// accepts such a layout and loses data on it.
    #[error("RAID10 layout {word:#x} puts copies on top of each other with {raid_disks} members")]
    CopiesCollide {
        /// The layout word.
        word: u32,
        /// Members of the array.
        raid_disks: u16,
    },
    /// RAID0 of several zones without a recorded layout: two kernels would read it differently.
    #[error(
        "RAID0 with members of {zones} sizes and no recorded layout: what lies where depends on the kernel that wrote \
         it. Have it recorded by `lapstrake update` (or `mdadm --assemble`): `--update=layout-original` for kernels \
         before 3.14, `--update=layout-alternate` for 3.14 to 5.3"
    )]
    AmbiguousRaid0 {
        /// Number of strip zones.
        zones: usize,
    },
    /// Linear and RAID0 need the size of each member.
    #[error("{expected} member sizes are needed, {found} are given")]
    MemberSizes {
        /// Members of the array.
        expected: u16,
        /// Sizes given.
        found: usize,
    },
    /// A member holds less than one chunk.
    #[error("the member in {slot} has {found}, less than one chunk of {chunk}")]
    MemberTooSmall {
        /// Which member.
        slot: Slot,
        /// Its data size.
        found: Sectors,
        /// The array's chunk.
        chunk: Sectors,
    },
    /// The members are too small to hold any data.
    #[error(
        "members of {component} leave no room for data; take larger ones, or a smaller chunk if there are chunks"
    )]
    NoRoom {
        /// Size used of each member.
        component: Sectors,
    },
    /// A member or the array would be larger than a file offset can say.
    #[error("an array of such members would pass 2^63 bytes")]
    TooLarge,
    /// A device cannot hold the metadata, or the component asked for beside it.
    #[error("a device of {found} is too small: {needed} are needed")]
    DeviceTooSmall {
        /// Size of the device.
        found: Sectors,
        /// The least that would do.
        needed: Sectors,
    },
    /// The size asked for is above what the smallest device has.
    #[error("{asked} of each member are asked for, but the smallest has {available}")]
    SizeAboveDevice {
        /// The size asked for.
        asked: Sectors,
        /// The most that would do.
        available: Sectors,
    },
    /// 0.90 cannot describe members of this size.
    #[error("0.90 metadata takes less than {limit} of each member, not {found}")]
    ComponentTooLarge {
        /// The component size.
        found: Sectors,
        /// The first size that is too large.
        limit: Sectors,
    },
    /// 0.90 has no field for a data offset.
    #[error(
        "0.90 metadata takes no data offset, its data begin at 0, not at {found}: \
         leave --data-offset out, or choose metadata 1.0, 1.1 or 1.2"
    )]
    NoDataOffset {
        /// The offset asked for.
        found: Sectors,
    },
    /// The data offset asked for would put data on top of metadata.
    #[error("a data offset of {found} is not between {min} and {max}")]
    DataOffset {
        /// The offset asked for.
        found: Sectors,
        /// The least that would do.
        min: Sectors,
        /// The most that would do.
        max: Sectors,
    },
}

fn names_of_layouts(level: Level) -> String {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => "it has no choice".into(),
        Level::Raid0 => "they are original and alternate".into(),
        Level::Raid5 | Level::Raid6 => {
            let layouts = ParityLayout::all().filter(|layout| layout.belongs_to(level));
            format!("they are {}", layouts.map(ParityLayout::name).collect::<Vec<_>>().join(", "))
        }
        Level::Raid10 => "they are n, f or o with a number of copies: n2".into(),
    }
}
