//! The write-intent bitmap: its superblock, its bits, and where md puts it.
//!
//! On disk it is a 256-byte superblock and, right after it, one bit for each chunk of the
//! array's sync range: of a member's data for raid1, 4, 5 and 6, of the array for raid10. A set
//! bit says that the chunk may be out of sync. The same image lies near each member's
//! superblock, or alone in a file.
//!
//! Facts: the kernel's `drivers/md/md-bitmap.h` and `md-bitmap.c`.

mod bits;
mod choice;

use alloc::vec::Vec;
use lapstrake_geometry::Sectors;
use thiserror::Error;

use crate::wire::{ByteOrder, on_disk};

pub use bits::{Bits, PAGE};
pub use choice::{AddError, Placement, added, external, internal};

/// `magic`: "bitm".
pub const MAGIC: u32 = 0x6d74_6962;
/// `version` of a bitmap whose bits are in the order of the machine that wrote them.
pub const VERSION_HOST_ENDIAN: u32 = 3;
/// `version` as written today.
pub const VERSION: u32 = 4;
/// Largest `write_behind`.
pub const WRITE_BEHIND_MAX: u32 = 16383;
/// Seconds between passes that clear bits, by default.
pub const DAEMON_SLEEP: u32 = 5;

/// Bits of `state`.
pub mod state {
    /// The bits are not to be trusted.
    pub const STALE: u32 = 1 << 1;
    /// The bits are in the order of the machine that wrote them.
    pub const HOST_ENDIAN: u32 = 1 << 15;
}

on_disk! {
    /// The superblock of a bitmap.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Superblock {
        /// [`MAGIC`].
        0 magic: u32,
        /// [`VERSION`].
        4 version: u32,
        /// The array's, see [`crate::Superblock::bitmap_uuid`].
        8 uuid: [u8; 16],
        /// The array's event count when this was written.
        24 events: u64,
        /// The event count when a bit was last cleared, all members being there.
        32 events_cleared: u64,
        /// Sectors that the bits cover.
        40 sync_size: u64,
        /// See [`state`].
        48 state: u32,
        /// Bytes to a bit, a power of two.
        52 chunksize: u32,
        /// Seconds between passes that clear bits.
        56 daemon_sleep: u32,
        /// Writes that a write-mostly member may lag behind.
        60 write_behind: u32,
        /// Sectors set aside for the bitmap; 0: not known.
        64 sectors_reserved: u32,
        /// Nodes of a cluster.
        68 nodes: u32,
        /// The cluster's name.
        72 cluster_name: [u8; 64],
        /// 0.
        136 pad: [u8; 120],
        = 256
    }
}

/// Why bytes are not a bitmap that md would take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BitmapError {
    /// Fewer bytes than the bitmap takes.
    #[error("too short: it has {found} bytes, and {needed} are needed")]
    Truncated {
        /// Bytes given.
        found: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// No bitmap here.
    #[error("no bitmap: magic {found:#010x}")]
    Magic {
        /// As stored.
        found: u32,
    },
    /// A version that is not supported: 5 is a cluster's, 6 a lockless bitmap.
    #[error("bitmap version {found} is not supported")]
    Version {
        /// As stored.
        found: u32,
    },
    /// The chunk is no power of two of at least 512 bytes.
    #[error("bitmap chunk of {found} bytes")]
    Chunk {
        /// As stored.
        found: u32,
    },
    /// No time between passes.
    #[error("bitmap daemon sleep of {found} s")]
    DaemonSleep {
        /// As stored.
        found: u32,
    },
    /// More than md allows.
    #[error("bitmap write-behind of {found}, at most {WRITE_BEHIND_MAX}")]
    WriteBehind {
        /// As stored.
        found: u32,
    },
    /// It would begin before the member does.
    #[error("the superblock places it {offset} sectors from itself, outside of the member")]
    Beyond {
        /// As stored.
        offset: i32,
    },
    /// The bitmap is another array's.
    #[error("bitmap belongs to another array")]
    Uuid {
        /// As stored.
        found: [u8; 16],
    },
}

impl Superblock {
    /// A new bitmap's superblock, as mdadm fills it.
    pub fn new(uuid: [u8; 16], sync_size: Sectors, chunksize: u32) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            uuid,
            events: 0,
            events_cleared: 0,
            sync_size: sync_size.0,
            state: 0,
            chunksize,
            daemon_sleep: DAEMON_SLEEP,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
            pad: [0; 120],
        }
    }

    /// Reads and checks the superblock at the start of `bytes` as the kernel does
    /// (`md_bitmap_read_sb`), save for what depends on the array: see [`Superblock::check_array`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BitmapError> {
        let found = bytes.len() as u64;
        let fixed = bytes.first_chunk().ok_or(BitmapError::Truncated { found, needed: 256 })?;
        let sb = Self::decode(fixed, ByteOrder::Little);
        if sb.magic != MAGIC {
            return Err(BitmapError::Magic { found: sb.magic });
        }
        if !(VERSION_HOST_ENDIAN..=VERSION).contains(&sb.version) {
            return Err(BitmapError::Version { found: sb.version });
        }
        if sb.chunksize < 512 || !sb.chunksize.is_power_of_two() {
            return Err(BitmapError::Chunk { found: sb.chunksize });
        }
        if sb.daemon_sleep == 0 {
            return Err(BitmapError::DaemonSleep { found: 0 });
        }
        if sb.write_behind > WRITE_BEHIND_MAX {
            return Err(BitmapError::WriteBehind { found: sb.write_behind });
        }
        Ok(sb)
    }

    /// Whether the bits of this bitmap can be trusted for the array with `uuid` (see
    /// [`crate::Superblock::bitmap_uuid`]) and `events`. If not, all chunks count as dirty.
    pub fn check_array(&self, uuid: [u8; 16], events: u64) -> Result<bool, BitmapError> {
        if self.uuid != uuid {
            return Err(BitmapError::Uuid { found: self.uuid });
        }
        Ok(self.events >= events && self.state & state::STALE == 0)
    }

    /// The 256 bytes.
    pub fn encode(&self) -> [u8; 256] {
        let mut bytes = [0; 256];
        self.encode_into(&mut bytes, ByteOrder::Little);
        bytes
    }

    /// Number of bits.
    pub fn bits(&self) -> u64 {
        self.sync_size.div_ceil(u64::from(self.chunksize) / 512)
    }

    /// Bytes of superblock and bits together. Hold this against the room that there is before
    /// reading so many: the field it comes from is not checked.
    pub fn image_bytes(&self) -> u64 {
        Self::SIZE as u64 + self.bits().div_ceil(8)
    }

    /// A whole new image, every chunk dirty: superblock and set bits, filled up with ones to
    /// `bytes`.
    pub fn dirty_image(&self, bytes: usize) -> Vec<u8> {
        let mut image = alloc::vec![0xff; bytes.max(Self::SIZE)];
        image[..Self::SIZE].copy_from_slice(&self.encode());
        image
    }
}
