//! Why an array cannot be created as asked, and what is odd about one that can.

use lapstrake_geometry::{GeometryError, Layout, Level, Sectors};
use thiserror::Error;

use crate::{Version, bitmap::AddError};

/// Why an array cannot be created as asked. Nothing was written. All are the caller's to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The level takes another number of slots.
    #[error("{level} takes {min} to {max} raid devices (spares not counted), not {found}")]
    MemberCount {
        /// The level.
        level: Level,
        /// Slots asked for.
        found: u16,
        /// The fewest.
        min: u16,
        /// The most.
        max: u16,
    },
    /// One slot is most likely a mistake.
    #[error("an array of one member is unusual; say --force if it is meant")]
    SingleMember,
    /// Without redundancy a spare has nothing to do.
    #[error("{level} takes no spares")]
    SparesNotAllowed {
        /// The level.
        level: Level,
    },
    /// Devices given (missing ones counted) and slots plus spares differ.
    #[error("{expected} devices are needed (or \"missing\"), {found} were given")]
    DeviceCount {
        /// Slots plus spares.
        expected: usize,
        /// Devices given.
        found: usize,
    },
    /// The superblock has no room for so many.
    #[error("metadata {version} supports {max} devices, not {found}")]
    TooManyDevices {
        /// Slots plus spares.
        found: usize,
        /// The version asked for.
        version: Version,
        /// Its limit.
        max: usize,
    },
    /// Only raid5 has them.
    #[error("partial parity logs are for raid5, not for {level}")]
    PplLevel {
        /// The level.
        level: Level,
    },
    /// 0.90 has no place for them.
    #[error("metadata 0.90 has no partial parity log; 1.0, 1.1 and 1.2 do")]
    PplVersion,
    /// 0.90 has no place for it.
    #[error("metadata 0.90 records no logical block size; 1.0, 1.1 and 1.2 do")]
    LogicalBlockVersion,
    /// Not a size that every kernel accepts.
    #[error("a logical block size of {found} bytes is not possible: 512, 1024, 2048 and 4096 are")]
    LogicalBlock {
        /// Bytes asked for.
        found: u32,
    },
    /// A member cannot be written in such units.
    #[error(
        "a logical block size of {found} bytes is less than the {own} of a member; at least that much is needed"
    )]
    LogicalBlockOfMember {
        /// The member's index.
        index: usize,
        /// The member's own, bytes.
        own: u32,
        /// Bytes asked for.
        found: u32,
    },
    /// Chunk, data offset and size have to hold whole blocks.
    #[error(
        "chunk, data offset and size have to be multiples of the logical block size, {found} bytes"
    )]
    LogicalBlockCut {
        /// Bytes asked for.
        found: u32,
    },
    /// Without redundancy there is nothing to keep right.
    #[error("{level} has no consistency policy")]
    PolicyNotAllowed {
        /// The level.
        level: Level,
    },
    /// The bitmap is a policy of its own.
    #[error("consistency policy {policy} excludes a bitmap")]
    PolicyAndBitmap {
        /// The policy asked for.
        policy: &'static str,
    },
    /// Where it is to be has to be said.
    #[error("consistency policy bitmap needs a bitmap, and it has to be said where")]
    PolicyNeedsBitmap,
    /// md has bits for so many.
    #[error("an array with partial parity logs takes {max} raid devices at most, not {found}")]
    PplMembers {
        /// Slots asked for.
        found: u16,
        /// The limit.
        max: u32,
    },
    /// Not one device for a slot.
    #[error("the members cannot all be missing")]
    AllMissing,
    /// The level cannot run without one.
    #[error("{level} cannot be created with a missing member (number {index})")]
    MissingNotAllowed {
        /// The level.
        level: Level,
        /// The first that is missing.
        index: usize,
    },
    /// More missing than the level survives.
    #[error("{level} cannot run with {missing} members missing")]
    TooManyMissing {
        /// The level.
        level: Level,
        /// How many are.
        missing: usize,
    },
    /// The level has no chunk.
    #[error("{level} takes no chunk size")]
    ChunkNotAllowed {
        /// The level.
        level: Level,
    },
    /// Not a chunk of this level.
    #[error(
        "a chunk of {found} is not allowed for {level}: at least 4 KiB, whole KiB, \
         and a power of two for raid4, 5, 6 and 10"
    )]
    Chunk {
        /// The level.
        level: Level,
        /// The chunk asked for.
        found: Sectors,
    },
    /// Not a layout of this level.
    #[error("layout {layout} is not one of {level}")]
    Layout {
        /// The level.
        level: Level,
        /// The layout asked for.
        layout: Layout,
    },
    /// 0.90 has no field for it.
    #[error("metadata 0.90 cannot record the raid0 layout {layout}: choose 1.0, 1.1 or 1.2")]
    LayoutNotRecorded {
        /// The layout asked for.
        layout: Layout,
    },
    /// 0.90 has no field for the layout that several zones need.
    #[error(
        "raid0 of members of {zones} sizes needs a layout on record, which metadata 0.90 has no \
         place for: choose 1.0, 1.1 or 1.2, or members (or windows, PATH@OFFSET+SIZE) of one size"
    )]
    ZonesNotRecorded {
        /// Number of strip zones.
        zones: usize,
    },
    /// No layout was to be recorded for a raid0 of several zones.
    #[error(
        "raid0 of members of {zones} sizes needs a layout on record: choose original or alternate, or name none and \
         get the kernel's choice"
    )]
    ZonesUnset {
        /// Number of strip zones.
        zones: usize,
    },
    /// Linear and raid0 use all of each member.
    #[error("{level} uses all of each member, a size cannot be chosen")]
    SizeNotAllowed {
        /// The level.
        level: Level,
    },
    /// Less than a chunk, or a KiB.
    #[error("a size of {found} is less than one chunk")]
    Size {
        /// The size asked for.
        found: Sectors,
    },
    /// Linear and raid0 have nothing to resync.
    #[error("{level} takes no bitmap")]
    BitmapNotAllowed {
        /// The level.
        level: Level,
    },
    /// Only levels with parity write stripes.
    #[error("{level} takes no journal: raid4, raid5 and raid6 do")]
    JournalNotAllowed {
        /// The level.
        level: Level,
    },
    /// 0.90 has no role for it.
    #[error("metadata 0.90 cannot record a journal: choose 1.0, 1.1 or 1.2")]
    JournalNotRecorded,
    /// What a bitmap is for, a journal does.
    #[error("an array with a journal takes no bitmap")]
    JournalAndBitmap,
    /// A journal is a consistency policy itself.
    #[error("an array with a journal takes no other consistency policy ({policy})")]
    JournalAndPolicy {
        /// As asked for.
        policy: &'static str,
    },
    /// Only raid1 reads a member less than others, or writes it later.
    #[error("{level} takes no write-mostly members and no write-behind, which are for raid1")]
    WriteMostlyNotAllowed {
        /// The level.
        level: Level,
    },
    /// What a member lacks has to be on record.
    #[error("write-behind needs a write-intent bitmap")]
    WriteBehindWithoutBitmap,
    /// More than md takes.
    #[error("write-behind of {found}, at most {}", crate::bitmap::WRITE_BEHIND_MAX)]
    WriteBehind {
        /// As asked for.
        found: u32,
    },
    /// Members this small have no room beside the superblock.
    #[error("members of {component} leave no room for an internal bitmap")]
    NoRoomForBitmap {
        /// Size used of each member.
        component: Sectors,
    },
    /// Not a power of two, or so small that the bits do not fit.
    #[error(
        "a bitmap chunk of {found} bytes is not possible here: it has to be a power of two, and so large that \
         the bits fit beside the superblock"
    )]
    BitmapChunk {
        /// Bytes asked for.
        found: u32,
    },
    /// mdadm makes a lockless bitmap beside superblocks 1.2 only.
    #[error("a lockless bitmap takes superblocks 1.2, not {}", found.as_str())]
    LocklessVersion {
        /// As asked for.
        found: Version,
    },
    /// Whoever starts the array first chooses it.
    #[error(
        "the chunk of a lockless bitmap cannot be chosen: the first start makes it as small as can be"
    )]
    LocklessChunk,
    /// There can be no such bitmap in a file.
    #[error(transparent)]
    Bitmap(AddError),
    /// One member will not do.
    #[error("member number {index}: {source}")]
    Member {
        /// Index into the request's members.
        index: usize,
        /// Why.
        source: GeometryError,
    },
    /// The members together will not do.
    #[error(transparent)]
    Geometry(GeometryError),
}

/// Something to tell the user, who may have meant it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Warning {
    /// More than one percent of the largest member is left unused.
    #[error("the largest member, number {index}, has {available}, of which {used} are used")]
    SizeSpread {
        /// The largest member's index.
        index: usize,
        /// What it has.
        available: Sectors,
        /// What the array uses.
        used: Sectors,
    },
    /// A lockless bitmap beside logical blocks in which its superblock and its first states lie together.
    #[error(
        "Linux 7.2 writes states over a lockless bitmap's superblock where a logical block has {bytes} bytes, and starts \
         such an array once only; --bitmap internal has no such fault"
    )]
    LocklessInLargeBlocks {
        /// A logical block.
        bytes: u32,
    },
}
