//! Where data is moved to: the room on either side of members' data, and how much of it a reshape takes.

use super::least_raid10_shift;
use lapstrake_geometry::{Geometry, Sectors};
use lapstrake_metadata::{Superblock, Version};

/// Between superblock and data, for a bitmap that comes later.
const BITMAP_ROOM: u64 = 128;
/// Data is moved by no more than it takes for windows of a useful size.
const SHIFT_MAX: u64 = 8192;

/// Sectors before a member's data that hold nothing of the array.
#[must_use]
pub fn room_before(superblock: &Superblock) -> Sectors {
    if matches!(superblock.version(), Version::V090 | Version::V1_0) {
        return Sectors::ZERO;
    }
    let after_superblock = superblock.super_sector().0 + 8;
    let bitmap = superblock.bitmap_sector().zip(superblock.bitmap_room());
    let log = superblock.badblock_log().map(|(at, len)| at.0 + len.0);
    let bitmap =
        bitmap.map_or(after_superblock + BITMAP_ROOM, |(at, room)| at.0 + room.0.min(BITMAP_ROOM));
    let taken = log.into_iter().chain([after_superblock, bitmap]).max().unwrap_or(0);
    Sectors(superblock.data_offset().0.saturating_sub(taken.next_multiple_of(8)))
}

/// Sectors behind what the array uses of a member.
#[must_use]
pub fn room_behind(superblock: &Superblock) -> Sectors {
    match superblock.version() {
        Version::V090 => Sectors::ZERO,
        _ => Sectors(superblock.data_size().0.saturating_sub(superblock.component().0)),
    }
}

/// By how much data has to move at least, so that nothing is overwritten before its copy is on record.
#[must_use]
pub fn least_shift(old: &Geometry, new: &Geometry, is_backwards: bool) -> Sectors {
    let chunk = |geometry: &Geometry| match geometry {
        Geometry::Parity(parity) => parity.chunk(),
        Geometry::Raid10(raid10) => raid10.chunk(),
        _ => Sectors::ZERO,
    };
    let of_raid10 = match (old, new) {
        (Geometry::Raid10(old), Geometry::Raid10(new)) => {
            least_raid10_shift(old, new, is_backwards)
        }
        _ => None,
    };
    of_raid10.unwrap_or(chunk(old).max(chunk(new)))
}

/// By how much data moves into so much room, in steps of `unit`; none if that is more than there is. Half of it stays for the
/// next time, if one step does not take that.
#[must_use]
pub fn shift_within(room: Sectors, unit: Sectors) -> Option<Sectors> {
    let shift = (room.0 / 2).min(SHIFT_MAX).max(unit.0);
    (room >= unit).then(|| Sectors(shift - shift % unit.0))
}
