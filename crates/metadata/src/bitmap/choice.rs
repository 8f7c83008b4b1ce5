//! Where mdadm puts a new bitmap and how large it makes the chunks.
//!
//! The limits are those of the room set aside: 4, 64 or 128 KiB for 1.x by the size of the
//! member, 60 KiB for 0.90.

use lapstrake_geometry::Sectors;
use lapstrake_geometry::size::bitmap_space;

use super::Superblock;
use crate::{Version, v090};

/// Chunks below this do not work with pages of 4 KiB.
const MIN_CHUNK: u64 = 4096;
/// Chunks of an internal bitmap by default, if the room allows.
const DEFAULT_CHUNK: u64 = 64 << 20;
/// Sectors of the bad-block log, which lies beside the bitmap.
const BBLOG: i32 = 8;

/// Where an internal bitmap goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Sectors from the superblock; negative: before it.
    pub offset: i32,
    /// Bytes to a bit.
    pub chunk: u32,
    /// Sectors that mdadm writes, and that belong to the bitmap.
    pub sectors: Sectors,
}

/// Sectors, rounded up to 4 KiB, of a bitmap over `sync_size`.
fn image_sectors(sync_size: Sectors, chunk: u64) -> Sectors {
    let bits = sync_size.0.div_ceil(chunk / 512);
    Sectors((Superblock::SIZE as u64 + bits.div_ceil(8)).next_multiple_of(4096) / 512)
}

/// The smallest chunk with which `sync_size` fits into `room`, as mdadm counts (one bit more
/// than needed, halved with rounding up).
fn smallest_chunk(sync_size: Sectors, room: Sectors) -> u64 {
    let max_bits = (room.bytes() - Superblock::SIZE as u64) * 8;
    let (mut chunk, mut bits) = (MIN_CHUNK, sync_size.bytes() / MIN_CHUNK + 1);
    while bits > max_bits {
        chunk *= 2;
        bits = bits.div_ceil(2);
    }
    chunk
}

/// Place and chunk of an internal bitmap over `sync_size` on members that use `component`.
/// `wanted` is the chunk in bytes if the user gave one.
///
/// None if there is no room for a bitmap, or none for one with that chunk.
pub fn internal(
    version: Version,
    component: Sectors,
    sync_size: Sectors,
    wanted: Option<u32>,
) -> Option<Placement> {
    let room = match version {
        Version::V090 => Sectors(v090::BITMAP_SECTORS),
        _ => bitmap_space(component),
    };
    if room.is_zero() {
        return None;
    }
    let smallest = smallest_chunk(sync_size, room);
    let chunk = wanted.map_or(smallest.max(DEFAULT_CHUNK), u64::from);
    if chunk < smallest || !chunk.is_power_of_two() {
        return None;
    }
    let sectors = image_sectors(sync_size, chunk);
    let (offset, sectors) = match version {
        Version::V090 => (v090::BITMAP_DISTANCE as i32, room),
        Version::V1_0 => {
            // One bit more than needed, as above: the place may lie 4 KiB lower than it has to.
            let bits = sync_size.bytes() / chunk + 1;
            let pages = (bits.div_ceil(8) + Superblock::SIZE as u64).div_ceil(4096);
            (-(pages as i32 * 8) - BBLOG, sectors)
        }
        Version::V1_1 | Version::V1_2 => (8, sectors),
    };
    Some(Placement { offset, chunk: chunk.try_into().ok()?, sectors })
}

/// The chunk, in bytes, of a bitmap in a file of its own: at most 2^20 chunks.
pub fn external_chunk(sync_size: Sectors) -> u32 {
    let mut chunk = MIN_CHUNK;
    while sync_size.0 > chunk << (20 - 9) {
        chunk <<= 1;
    }
    chunk.try_into().unwrap_or(1 << 31)
}
