//! A superblock for a device that joins an array.

use lapstrake_geometry::{GeometryError, Sectors};

use crate::v1::{self, feature};
use crate::{Superblock, v090};

/// The superblock of a new spare. `like` is a member's; `number` its place in the table of devices. Where
/// bitmap, partial parity log and bad-block log lie, seen from the superblock, is as on the member, and so is the data
/// offset, so that all members go on to have the same room for them.
///
/// # Errors
/// [`GeometryError::DeviceTooSmall`].
pub fn spare(
    like: &Superblock,
    device: Sectors,
    number: u32,
    device_uuid: [u8; 16],
    write_mostly: bool,
) -> Result<Superblock, GeometryError> {
    let at = like.version().superblock(device)?.0;
    let least = like.version().data_size_min();
    let needed = like.data_offset().0 + like.component().max(least).0;
    let too_small = |room: u64| GeometryError::DeviceTooSmall {
        found: device,
        needed: Sectors(needed + device.0.saturating_sub(room)),
    };
    match like {
        Superblock::V090(sb) => {
            let mut sb = sb.clone();
            sb.sb_start = at;
            sb.this_disk = v090::Disk { number, raid_disk: number, ..v090::Disk::default() };
            if write_mostly {
                sb.this_disk.state |= v090::disk_state::WRITE_MOSTLY;
            }
            if let Some(entry) = sb.disks.get_mut(number as usize) {
                *entry = sb.this_disk;
            }
            if at < needed { Err(too_small(at)) } else { Ok(Superblock::V090(sb)) }
        }
        Superblock::V1(sb) => {
            let mut sb = sb.clone();
            let logs = [
                (sb.has(feature::BITMAP_OFFSET), sb.bitmap_offset),
                (like.has_ppl(), sb.ppl().0.into()),
                (true, sb.bblog_offset),
            ];
            let before = logs.iter().filter(|log| log.0 && log.1 < 0).map(|log| log.1).min();
            let end = match sb.minor_version {
                0 => at.saturating_add_signed(before.unwrap_or(0).into()),
                _ => device.0,
            };
            if end < needed {
                return Err(too_small(end));
            }
            sb.feature_map &= !(feature::RECOVERY_OFFSET
                | feature::RECOVERY_BITMAP
                | feature::BAD_BLOCKS
                | feature::REPLACEMENT);
            (sb.super_offset, sb.data_size) = (at, end - sb.data_offset);
            (sb.recovery_offset, sb.cnt_corrected_read, sb.events) = (0, 0, 0);
            (sb.dev_number, sb.device_uuid) = (number, device_uuid);
            sb.devflags = if write_mostly { v1::devflag::WRITE_MOSTLY } else { 0 };
            Ok(Superblock::V1(sb))
        }
    }
}
