//! What can be wrong with metadata.

use thiserror::Error;

use crate::Version;

/// Why bytes are not a superblock that md would take. Nothing was changed anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// Fewer bytes than the superblock takes.
    #[error("superblock cut off: {found} bytes of {needed}")]
    Truncated {
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// No superblock here.
    #[error("no md superblock: magic {found:#010x}")]
    Magic {
        /// The word in the magic's place, little-endian.
        found: u32,
    },
    /// Neither 0.90 nor 1.x.
    #[error("unknown superblock major version {found}")]
    MajorVersion {
        /// As stored.
        found: u32,
    },
    /// 0.90 to 0.91 are known.
    #[error("unknown superblock minor version {found}")]
    MinorVersion {
        /// As stored.
        found: u32,
    },
    /// The checksum is wrong.
    #[error("superblock checksum {stored:#010x} should be {computed:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// More devices than the format has room for.
    #[error("superblock lists {found} devices, at most {max} are possible")]
    TooManyDevices {
        /// As stored.
        found: u32,
        /// The format's limit.
        max: u32,
    },
    /// The superblock says that it belongs elsewhere: a copy, or a member whose size changed.
    #[error("superblock at sector {at} says that it belongs at sector {stored}")]
    SuperOffset {
        /// `super_offset` as stored.
        stored: u64,
        /// Where it was found.
        at: u64,
    },
    /// Feature bits that exclude each other, or the level.
    #[error("feature bits {feature_map:#x} contradict each other or the level")]
    FeatureConflict {
        /// All feature bits.
        feature_map: u32,
    },
    /// `data_size` is less than md wants.
    #[error("a data size of {found} sectors is less than any array has")]
    DataSize {
        /// Sectors, as stored.
        found: u64,
    },
    /// The member has less room for data than `data_size`.
    #[error(
        "it tells of {found} sectors of data, where {room} fit: the device is cut short, a part of \
         the member only. Where no redundancy stands in for it, lengthen a copy by {} bytes (of \
         a file: truncate -s +BYTES; of a window: its SIZE): what is lost reads as zeros there", (.found - .room).saturating_mul(512)
    )]
    CutShort {
        /// Sectors, as stored.
        found: u64,
        /// Sectors.
        room: u64,
    },
    /// The data would lie over the superblock, or not on the member.
    #[error(
        "data offset {found} lies before the end of the superblock, or behind that of the member: the device is then \
         cut short, a part of the member only"
    )]
    DataOffset {
        /// Sectors, as stored.
        found: u64,
    },
    /// `dev_number` is beyond what the format has room for.
    #[error("superblock says it belongs to device number {found}")]
    DevNumber {
        /// As stored.
        found: u32,
    },
    /// `this_disk` names no entry of the table of disks.
    #[error("superblock says it belongs to disk number {found}")]
    ThisDisk {
        /// As stored.
        found: u32,
    },
    /// A field has a value that no array can have.
    #[error("{field} is {found}, which no array can have")]
    Field {
        /// md's name of the field.
        field: &'static str,
        /// As stored.
        found: i64,
    },
    /// The member is too small to hold such a superblock.
    #[error("a member of {sectors} sectors is too small for a superblock {version}")]
    MemberTooSmall {
        /// The member's size.
        sectors: u64,
        /// The version asked for.
        version: Version,
    },
}
