//! Superblock 1.x: one format, three places (minor versions 0, 1 and 2).
//!
//! Little-endian; 256 fixed bytes, then `max_dev` roles of two bytes. A value of this type is a superblock whose
//! checksum, place and sizes [`Superblock::parse`] found right. Features that this crate cannot act upon, and bits and
//! bytes that no kernel up to Linux 7.2 knows, are no error here, so that all else of the superblock can be shown:
//! [`crate::Superblock::unsupported`] names them, and encoding keeps them.
//!
//! Field names, offsets and meanings: the kernel's `include/uapi/linux/raid/md_p.h`.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::Sectors;

use crate::Version;
use crate::error::SuperblockError;
use crate::superblock::MAGIC;
use crate::wire::{ByteOrder, Field, on_disk};

/// Most entries of `dev_roles`: what is left of 4096 bytes.
pub const MAX_DEV: u32 = Version::V1_2.max_members() as u32;
/// `resync_offset` and `recovery_offset` when all is in sync.
pub const MAX_SECTOR: u64 = u64::MAX;

/// Bits of `feature_map`.
pub mod feature {
    /// `bitmap_offset` is valid.
    pub const BITMAP_OFFSET: u32 = 1;
    /// `recovery_offset` is valid: the member is being recovered.
    pub const RECOVERY_OFFSET: u32 = 2;
    /// A reshape is under way.
    pub const RESHAPE_ACTIVE: u32 = 4;
    /// The bad-block log holds entries.
    pub const BAD_BLOCKS: u32 = 8;
    /// The member is replacing another one that holds the same slot.
    pub const REPLACEMENT: u32 = 16;
    /// The reshape works from the end to the start.
    pub const RESHAPE_BACKWARDS: u32 = 32;
    /// `new_offset` is valid.
    pub const NEW_OFFSET: u32 = 64;
    /// The recovery is guided by the bitmap.
    pub const RECOVERY_BITMAP: u32 = 128;
    /// The array is shared by the nodes of a cluster.
    pub const CLUSTERED: u32 = 256;
    /// The array has a journal.
    pub const JOURNAL: u32 = 512;
    /// The array has a partial parity log.
    pub const PPL: u32 = 1024;
    /// The partial parity log is a ring of several.
    pub const MULTIPLE_PPLS: u32 = 2048;
    /// `layout` of a raid0 is valid.
    pub const RAID0_LAYOUT: u32 = 4096;
    /// Every bit that md knows, up to Linux 7.2.
    pub const ALL: u32 = 8191;
}

/// Values of `dev_roles` that are not slots.
pub mod role {
    /// A spare.
    pub const SPARE: u16 = 0xffff;
    /// Failed.
    pub const FAULTY: u16 = 0xfffe;
    /// The journal.
    pub const JOURNAL: u16 = 0xfffd;
    /// Above this, not a slot.
    pub const MAX: u16 = 0xff00;
}

/// Bits of `devflags`.
pub mod devflag {
    /// Read from this member only when there is no other.
    pub const WRITE_MOSTLY: u8 = 1;
    /// Do not retry on this member.
    pub const FAILFAST: u8 = 2;
}

/// The bytes in which every kernel up to Linux 7.2 writes zeros.
pub(crate) const RESERVED: [Range<usize>; 2] = [12..16, 228..256];

on_disk! {
    /// A superblock of version 1.0, 1.1 or 1.2, as one member holds it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Superblock {
        /// [`MAGIC`].
        0 magic: u32,
        /// 1.
        4 major_version: u32,
        /// See [`feature`].
        8 feature_map: u32,
        /// 0.
        12 pad0: u32,
        /// The array's UUID.
        16 set_uuid: [u8; 16],
        /// "host:name" or "name", padded with NUL.
        32 set_name: [u8; 32],
        /// Creation: low 40 bits seconds since 1970, high 24 bits microseconds.
        64 ctime: u64,
        /// -1 linear, 0, 1, 4, 5, 6, 10.
        72 level: i32,
        /// The level's layout.
        76 layout: u32,
        /// Sectors used of each member; 0 for linear and raid0, which use all.
        80 size: u64,
        /// Sectors.
        88 chunksize: u32,
        /// Number of slots; during a reshape those to come.
        92 raid_disks: u32,
        /// Sectors from this superblock to the bitmap; or offset (i16) and size (u16) of the
        /// partial parity log.
        96 bitmap_offset: i32,
        /// During a reshape: the level to come.
        100 new_level: i32,
        /// Array sectors that were reshaped.
        104 reshape_position: u64,
        /// Change in the number of slots.
        112 delta_disks: i32,
        /// The layout to come.
        116 new_layout: u32,
        /// The chunk to come, sectors.
        120 new_chunk: u32,
        /// Sectors to add to `data_offset` for the layout to come.
        124 new_offset: i32,
        /// First sector of data on this member.
        128 data_offset: u64,
        /// Sectors from there that may hold data.
        136 data_size: u64,
        /// The sector of this superblock.
        144 super_offset: u64,
        /// Sectors from `data_offset` that were recovered; the journal's tail in a journal.
        152 recovery_offset: u64,
        /// This member's index into `dev_roles`, for life.
        160 dev_number: u32,
        /// Read errors that were repaired.
        164 cnt_corrected_read: u32,
        /// This member's own UUID.
        168 device_uuid: [u8; 16],
        /// See [`devflag`].
        184 devflags: u8,
        /// Bad-block sectors are counted in units of 512 << this bytes.
        185 bblog_shift: u8,
        /// Sectors that the bad-block log has.
        186 bblog_size: u16,
        /// Sectors from this superblock to the bad-block log.
        188 bblog_offset: i32,
        /// Last update, as `ctime`.
        192 utime: u64,
        /// Updates so far.
        200 events: u64,
        /// In sync up to here; [`MAX_SECTOR`] when clean.
        208 resync_offset: u64,
        /// See [`checksum`]; set by [`Superblock::encode`].
        216 sb_csum: u32,
        /// Entries of `dev_roles` on disk.
        220 max_dev: u32,
        /// Bytes, the smallest unit of a request; 0: not set. Linux writes it from 6.19 on, and before that refuses
        /// an array that has it.
        224 logical_block_size: u32,
        /// 0 in every kernel up to Linux 7.2.
        228 pad3: [u8; 28],
        = 256
    }
    beside {
        /// 0, 1 or 2: which place this superblock has. Not stored; the place says it.
        minor_version: u8,
        /// Role of every dev_number: a slot, or a value of [`role`].
        dev_roles: Vec<u16>,
    }
}

/// md's sum over a 1.x superblock (fixed part and roles), with the checksum itself taken as 0.
pub fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(4).enumerate().map(|(i, w)| match (i * 4, w) {
        (216, _) => 0,
        (_, [a, b, c, d]) => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        (_, [a, b, ..]) => u64::from(u16::from_le_bytes([*a, *b])),
        _ => 0,
    });
    let sum: u64 = words.sum();
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// Bytes of a superblock with `max_dev` roles, and the whole sectors that md writes for it.
fn lengths(max_dev: u32) -> (usize, usize) {
    let len = Superblock::SIZE + 2 * max_dev as usize;
    (len, len.next_multiple_of(512))
}

impl Superblock {
    /// A superblock of version 1.0 in which nothing else is said.
    pub(crate) fn empty() -> Self {
        let mut sb = Self::decode(&[0; Self::SIZE], ByteOrder::Little, 0, Vec::new());
        (sb.magic, sb.major_version) = (MAGIC, 1);
        sb
    }

    /// Reads a superblock found at sector `at` of a member, the place that minor version
    /// `minor_version` has there. 4096 bytes always suffice.
    ///
    /// The checks are md's (`super_1_load`), save for unknown feature bits and reserved bytes: see the module.
    /// `data_size` is held against the member's size by [`crate::read_at`].
    pub fn parse(bytes: &[u8], minor_version: u8, at: u64) -> Result<Self, SuperblockError> {
        let fixed: &[u8; 256] = bytes
            .first_chunk()
            .ok_or(SuperblockError::Truncated { found: bytes.len(), needed: 256 })?;
        let mut sb = Self::decode(fixed, ByteOrder::Little, minor_version, Vec::new());
        if sb.magic != MAGIC {
            return Err(SuperblockError::Magic { found: sb.magic });
        }
        if sb.major_version != 1 {
            return Err(SuperblockError::MajorVersion { found: sb.major_version });
        }
        if sb.max_dev > MAX_DEV {
            return Err(SuperblockError::TooManyDevices { found: sb.max_dev, max: MAX_DEV });
        }
        let (len, _) = lengths(sb.max_dev);
        let all = bytes
            .get(..len)
            .ok_or(SuperblockError::Truncated { found: bytes.len(), needed: len })?;
        let computed = checksum(all);
        if sb.sb_csum != computed {
            return Err(SuperblockError::Checksum { stored: sb.sb_csum, computed });
        }
        sb.dev_roles = all[Self::SIZE..]
            .chunks_exact(2)
            .map(|role| u16::get(role, ByteOrder::Little))
            .collect();
        sb.check(at)?;
        Ok(sb)
    }

    /// The rules on single fields, after magic and checksum were found right.
    fn check(&self, at: u64) -> Result<(), SuperblockError> {
        if self.super_offset != at {
            return Err(SuperblockError::SuperOffset { stored: self.super_offset, at });
        }
        if Sectors(self.data_size) < Version::V1_0.data_size_min() {
            return Err(SuperblockError::DataSize { found: self.data_size });
        }
        if self.dev_number >= MAX_DEV {
            return Err(SuperblockError::DevNumber { found: self.dev_number });
        }
        if self.raid_disks == 0 || self.raid_disks > u32::from(role::MAX) {
            let found = self.raid_disks.into();
            return Err(SuperblockError::Field { field: "raid_disks", found });
        }
        // There must be room for this member's own number, should it not be in the table yet.
        let (_, written) = lengths(self.max_dev.max(self.dev_number + 1));
        if self.minor_version > 0 && self.data_offset < at + written as u64 / 512 {
            return Err(SuperblockError::DataOffset { found: self.data_offset });
        }
        if self.feature_map & feature::PPL != 0
            && self.feature_map & (feature::BITMAP_OFFSET | feature::JOURNAL) != 0
        {
            return Err(SuperblockError::FeatureConflict { feature_map: self.feature_map });
        }
        if self.feature_map & feature::RAID0_LAYOUT != 0 && self.level != 0 {
            return Err(SuperblockError::FeatureConflict { feature_map: self.feature_map });
        }
        Ok(())
    }

    /// The bytes to write at `super_offset`, with the right checksum: the fixed part and the
    /// roles, filled up with ones (unused roles) to whole sectors, as mdadm writes it.
    ///
    /// `max_dev` follows `dev_roles`.
    pub fn encode(&self) -> Vec<u8> {
        let max_dev = self.dev_roles.len().min(MAX_DEV as usize);
        let (len, written) = lengths(max_dev as u32);
        let mut bytes = vec![0xff; written];
        let (fixed, roles) = bytes.split_at_mut(Self::SIZE);
        let fixed: &mut [u8; 256] = fixed.try_into().expect("split at SIZE");
        self.encode_into(fixed, ByteOrder::Little);
        fixed[220..224].copy_from_slice(&(max_dev as u32).to_le_bytes());
        for (role, place) in self.dev_roles.iter().zip(roles.chunks_exact_mut(2)).take(max_dev) {
            role.put(place, ByteOrder::Little);
        }
        let sum = checksum(&bytes[..len]);
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Offset from the superblock and size of the partial parity log, sectors: what `bitmap_offset` is
    /// where there is one.
    pub fn ppl(&self) -> (i16, u16) {
        let [a, b, c, d] = self.bitmap_offset.to_le_bytes();
        (i16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
    }

    /// Sets them.
    pub fn set_ppl(&mut self, offset: i16, size: u16) {
        let ([a, b], [c, d]) = (offset.to_le_bytes(), size.to_le_bytes());
        self.bitmap_offset = i32::from_le_bytes([a, b, c, d]);
    }

    /// Whether every bit of `bits` (see [`feature`]) is set.
    pub fn has(&self, bits: u32) -> bool {
        self.feature_map & bits == bits
    }
}
