//! The write-intent bitmap: its superblock, its bits, and where md puts it.
//!
//! On disk it is a 256-byte superblock and, right after it, one bit for each chunk of the
//! array's sync range: of a member's data for raid1, 4, 5 and 6, of the array for raid10. A set
//! bit says that the chunk may be out of sync. The same image lies near each member's
//! superblock, or alone in a file.
//!
//! A lockless bitmap (kernels from 6.18 on) has a byte for each chunk instead, [`ChunkState`], from byte 1024 on, and
//! its superblock counts a chunk in sectors.
//!
//! Facts: the kernel's `drivers/md/md-bitmap.h`, `md-bitmap.c` and `md-llbitmap.c`.

mod bits;
mod choice;
mod chunk_state;
mod lockless;

use alloc::vec::Vec;
use lapstrake_geometry::Sectors;
use thiserror::Error;

use crate::wire::{ByteOrder, on_disk};

pub use bits::{Bits, PAGE};
pub use choice::{AddError, Placement, added, external, internal};
pub use chunk_state::ChunkState;
pub use lockless::{RESERVED as LOCKLESS_RESERVED, placed as lockless};

/// `magic`: "bitm".
pub const MAGIC: u32 = 0x6d74_6962;
/// `version` of a bitmap whose bits are in the order of the machine that wrote them.
pub const VERSION_HOST_ENDIAN: u32 = 3;
/// `version` as written today.
pub const VERSION: u32 = 4;
/// `version` of a bitmap with a byte to a chunk.
pub const VERSION_LOCKLESS: u32 = 6;
/// Where the states of a lockless bitmap begin, in bytes.
pub const LOCKLESS_START: u64 = 1024;
/// Largest `write_behind`.
pub const WRITE_BEHIND_MAX: u32 = 16383;
/// Seconds between passes that clear bits, by default.
pub const DAEMON_SLEEP: u32 = 5;

/// Bits of `state`.
pub mod state {
    /// In use; kernels of old set it.
    pub const ACTIVE: u32 = 1;
    /// The bits are not to be trusted.
    pub const STALE: u32 = 1 << 1;
    /// A write of it failed.
    pub const WRITE_ERROR: u32 = 1 << 2;
    /// Of a lockless bitmap: mdadm has made it, and its states are still to be written.
    pub const FIRST_USE: u32 = 1 << 3;
    /// With [`FIRST_USE`]: redundancy is taken to be right.
    pub const CLEAN: u32 = 1 << 4;
    /// A kernel's pass over a lockless bitmap took longer than its time.
    pub const DAEMON_BUSY: u32 = 1 << 5;
    /// A kernel was ending its use of a lockless bitmap.
    pub const SHUTDOWN: u32 = 1 << 6;
    /// The bits are in the order of the machine that wrote them.
    pub const HOST_ENDIAN: u32 = 1 << 15;
    /// All of them, as of Linux 7.2.
    pub const ALL: u32 =
        ACTIVE | STALE | WRITE_ERROR | FIRST_USE | CLEAN | DAEMON_BUSY | SHUTDOWN | HOST_ENDIAN;
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
        /// Bytes to a bit, a power of two; sectors if it is lockless. See [`Superblock::chunk`].
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
    /// A cluster's (5), or one that Linux 7.2 does not know.
    #[error("bitmap version {found} is not supported")]
    Version {
        /// As stored.
        found: u32,
    },
    /// It covers nothing.
    #[error("bitmap of 0 sectors")]
    Empty,
    /// States of a lockless bitmap where its superblock was.
    #[error(
        "chunk states lie over the lockless bitmap's superblock (version {found:#010x}), as Linux 7.2 writes them where a \
         logical block has 2048 bytes or more"
    )]
    Overwritten {
        /// The version as stored.
        found: u32,
    },
    /// Bits of `state` that Linux 7.2 does not know.
    #[error("unknown bits {0:#x} of the bitmap's state")]
    UnknownState(u32),
    /// Reserved bytes that are not zero.
    #[error(
        "{count} reserved bytes of the bitmap's superblock are not zero, the first at byte {first}"
    )]
    UnknownBytes {
        /// How many.
        count: usize,
        /// The first one's offset from the bitmap's start.
        first: usize,
    },
    /// A byte of a lockless bitmap that is no [`ChunkState`].
    #[error("unknown state {found} of chunk {chunk} of the lockless bitmap")]
    UnknownChunkState {
        /// The first such chunk.
        chunk: u64,
        /// As stored.
        found: u8,
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

impl BitmapError {
    /// Whether it is something that nobody knew when this was written, so that nothing may be written over it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Version { found } => *found > VERSION_LOCKLESS,
            Self::UnknownState(_) | Self::UnknownBytes { .. } | Self::UnknownChunkState { .. } => {
                true
            }
            _ => false,
        }
    }
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
        let [lowest, others @ ..] = sb.version.to_le_bytes();
        if u32::from(lowest) == VERSION_LOCKLESS && others.iter().all(|byte| (1..8).contains(byte))
        {
            return Err(BitmapError::Overwritten { found: sb.version });
        }
        if !matches!(sb.version, VERSION_HOST_ENDIAN..=VERSION | VERSION_LOCKLESS) {
            return Err(BitmapError::Version { found: sb.version });
        }
        // The first use chooses the chunk.
        let has_chunk = !sb.is_first_use();
        let least = if sb.is_lockless() { 1 } else { 512 };
        if has_chunk && (sb.chunksize < least || !sb.chunksize.is_power_of_two()) {
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
        if self.is_first_use() {
            return Ok(true);
        }
        let distrusted = match self.is_lockless() {
            true => state::STALE | state::WRITE_ERROR,
            false => state::STALE,
        };
        Ok(self.events >= events && self.state & distrusted == 0)
    }

    /// The offsets, from the bitmap's start, of reserved bytes that are not zero.
    pub fn unknown_bytes(&self) -> impl Iterator<Item = usize> + '_ {
        self.pad
            .iter()
            .enumerate()
            .filter(|byte| *byte.1 != 0)
            .map(|(i, _)| Self::SIZE - self.pad.len() + i)
    }

    /// What no kernel up to Linux 7.2 would have written.
    pub fn unknown(&self) -> Option<BitmapError> {
        let bits = self.state & !state::ALL;
        let bytes = || {
            let first = self.unknown_bytes().next()?;
            Some(BitmapError::UnknownBytes { count: self.unknown_bytes().count(), first })
        };
        if bits != 0 { Some(BitmapError::UnknownState(bits)) } else { bytes() }
    }

    /// Whether it has a byte to a chunk instead of a bit.
    pub fn is_lockless(&self) -> bool {
        self.version == VERSION_LOCKLESS
    }

    /// Whether it is a lockless bitmap that is still to be decided on: it has no chunk yet, and no states.
    pub fn is_first_use(&self) -> bool {
        self.is_lockless() && self.state & state::FIRST_USE != 0
    }

    /// Sectors to a bit or state.
    pub fn chunk(&self) -> Sectors {
        let chunk = u64::from(self.chunksize);
        Sectors(if self.is_lockless() { chunk } else { chunk / 512 })
    }

    /// Bytes before the first bit or state.
    pub fn head_bytes(&self) -> u64 {
        if self.is_lockless() { LOCKLESS_START } else { Self::SIZE as u64 }
    }

    /// The 256 bytes.
    pub fn encode(&self) -> [u8; 256] {
        let mut bytes = [0; 256];
        self.encode_into(&mut bytes, ByteOrder::Little);
        bytes
    }

    /// Number of bits or states; none of a lockless bitmap before its first use.
    pub fn bits(&self) -> u64 {
        if self.is_first_use() { 0 } else { self.sync_size.div_ceil(self.chunk().0) }
    }

    /// Bytes of superblock and bits together. Hold this against the room that there is before
    /// reading so many: the field it comes from is not checked.
    pub fn image_bytes(&self) -> u64 {
        let bits = self.bits();
        self.head_bytes() + if self.is_lockless() { bits } else { bits.div_ceil(8) }
    }

    /// A whole new image, every chunk dirty: superblock and set bits, filled up with ones to
    /// `bytes`; of a lockless bitmap what mdadm writes, whose ones nobody reads before the first use.
    pub fn dirty_image(&self, bytes: usize) -> Vec<u8> {
        let mut image = alloc::vec![0xff; bytes.max(Self::SIZE)];
        image[..Self::SIZE].copy_from_slice(&self.encode());
        image
    }
}
