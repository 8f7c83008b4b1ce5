//! Where mdadm puts a new bitmap and how large it makes the chunks.
//!
//! The limits are those of the room set aside: 4, 64 or 128 KiB for 1.x by the size of the
//! member, 60 KiB for 0.90.

use lapstrake_geometry::Sectors;
use lapstrake_geometry::size::bitmap_space;

use super::Superblock;
use crate::{Version, v090};
use thiserror::Error;

/// Chunks below this do not work with pages of 4 KiB.
const MIN_CHUNK: u64 = 4096;
/// Chunks of an internal bitmap by default, if the room allows.
const DEFAULT_CHUNK: u64 = 64 << 20;
/// md takes no bitmap of so many bytes.
const EXTERNAL_BYTES: u64 = 1 << 30;
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

/// Why an array can have no bitmap as it is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddError {
    /// Nothing is free beside the superblocks.
    #[error("there is no room for a write-intent bitmap beside the superblocks")]
    NoRoom,
    /// No chunk that can be, or more bits than there is room for.
    #[error(
        "a bit of the write-intent bitmap cannot stand for {found} bytes: it takes a power of two, here \
         from {least} on"
    )]
    Chunk {
        /// As asked for.
        found: u32,
        /// The smallest that fits.
        least: u64,
    },
    /// Even with the largest chunk there are too many bits.
    #[error("a write-intent bitmap over {sync_size} of each member would have too many bits")]
    Size {
        /// What it would cover.
        sync_size: Sectors,
    },
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

/// Where a bitmap begins that ends `log` sectors before the superblock, with one bit more than needed, as
/// above: it may lie 4 KiB lower than it has to.
fn before(sync_size: Sectors, chunk: u64, log: i32) -> i32 {
    let bits = sync_size.bytes() / chunk + 1;
    let pages = (bits.div_ceil(8) + Superblock::SIZE as u64).div_ceil(4096);
    -(pages as i32 * 8) - log
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
        Version::V1_0 => (before(sync_size, chunk, BBLOG), sectors),
        Version::V1_1 | Version::V1_2 => (8, sectors),
    };
    Some(Placement { offset, chunk: chunk.try_into().ok()?, sectors })
}

/// Sectors in which a bitmap can be added to a member that is in use, up to its bad-block log or data;
/// a 1.0 member has them before these.
fn free_room(member: &crate::Superblock) -> Sectors {
    match member {
        crate::Superblock::V090(_) => Sectors(v090::BITMAP_SECTORS),
        crate::Superblock::V1(sb) if sb.minor_version == 0 => {
            let behind_data = sb.data_offset.saturating_add(sb.size);
            let log = u64::from(sb.bblog_offset.min(-BBLOG).unsigned_abs());
            Sectors(sb.super_offset.saturating_sub(behind_data).saturating_sub(log))
        }
        crate::Superblock::V1(sb) => {
            let data = sb.data_offset.saturating_sub(sb.super_offset);
            let log = u64::try_from(sb.bblog_offset).ok().filter(|_| sb.bblog_size > 0);
            let end = log.unwrap_or(data.saturating_sub(BBLOG as u64)).min(data);
            Sectors(end.saturating_sub(8))
        }
    }
}

/// Place and chunk of an internal bitmap that is added to an array with these members, as mdadm's
/// `--grow` chooses them: 4 KiB behind the superblocks, up to the bad-block logs; for 1.0 before the log.
///
/// # Errors
/// [`AddError`].
pub fn added<'a>(
    members: impl IntoIterator<Item = &'a crate::Superblock>,
    sync_size: Sectors,
    wanted: Option<u32>,
) -> Result<Placement, AddError> {
    let (mut room, mut log, mut version) = (Sectors(u64::MAX), BBLOG, None);
    for member in members {
        room = room.min(free_room(member));
        version = Some(member.version());
        if let crate::Superblock::V1(sb) = member {
            log = log.max(sb.bblog_offset.saturating_neg());
        }
    }
    let version = version.ok_or(AddError::NoRoom)?;
    if wanted.is_none() && version != Version::V090 {
        room = room.min(Sectors(256));
    }
    if room.0 < 8 {
        return Err(AddError::NoRoom);
    }
    let least = smallest_chunk(sync_size, room);
    let chunk = wanted.map_or(least.max(DEFAULT_CHUNK), u64::from);
    if let Some(found) = wanted.filter(|_| chunk < least || !chunk.is_power_of_two()) {
        return Err(AddError::Chunk { found, least });
    }
    let sectors = image_sectors(sync_size, chunk);
    let offset = match version {
        Version::V1_0 => before(sync_size, chunk, log),
        _ => 8,
    };
    let chunk = chunk.try_into().map_err(|_| AddError::Size { sync_size })?;
    Ok(Placement { offset, chunk, sectors })
}

/// The chunk of a bitmap in a file of its own over `sync_size`, in bytes: as asked for, or mdadm's choice.
///
/// # Errors
/// [`AddError::Chunk`] and [`AddError::Size`], by md's bound on the number of its bits.
pub fn external(sync_size: Sectors, wanted: Option<u32>) -> Result<u32, AddError> {
    let fits = |chunk: u64| sync_size.0.div_ceil(chunk / 512) / 8 < EXTERNAL_BYTES;
    let chunk = wanted.unwrap_or_else(|| external_chunk(sync_size));
    if chunk >= 512 && chunk.is_power_of_two() && fits(chunk.into()) {
        return Ok(chunk);
    }
    let least = (9..32).map(|shift| 1 << shift).find(|&chunk| fits(chunk));
    match (wanted, least) {
        (Some(found), Some(least)) => Err(AddError::Chunk { found, least }),
        _ => Err(AddError::Size { sync_size }),
    }
}

/// The chunk, in bytes, of a bitmap in a file of its own: at most 2^20 chunks.
fn external_chunk(sync_size: Sectors) -> u32 {
    let mut chunk = MIN_CHUNK;
    while sync_size.0 > chunk << (20 - 9) {
        chunk <<= 1;
    }
    chunk.try_into().unwrap_or(1 << 31)
}
