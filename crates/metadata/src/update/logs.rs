//! Where an edit places bad-block logs and partial parity logs.

use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::{Sector, Sectors};

use super::{Refused, Subject, Write};
use crate::v1::{self, feature};
use crate::{Superblock, bitmap, ppl};

/// Sectors of a bad-block log.
const LOG: i64 = 8;
/// Sectors that mdadm leaves for a bitmap before the bad-block log.
const BITMAP_ROOM: i64 = 64;
/// Sectors of an area of partial parity logs, where there is room: 1 MiB.
const PPL_AREA: i64 = 2048;
/// Sectors of partial parity in the smaller area that mdadm chooses elsewhere, at least.
const PPL_PARITY: i64 = 256;

/// Gives a member room for a bad-block log, where mdadm does. One that has room keeps it.
pub(super) fn add_bad_block_log(
    sb: &mut v1::Superblock,
    bitmap: Option<&bitmap::Superblock>,
) -> Result<(), Refused> {
    if sb.bblog_size != 0 {
        return Ok(());
    }
    let no_room = Refused::NoRoom { what: "a bad-block log" };
    let taken = neighbour(sb, bitmap);
    let offset = if sb.minor_version == 0 {
        let data_end = sb.data_offset.saturating_add(sb.data_size);
        let free = match taken {
            Some((start, len)) if start < 0 => -start - len,
            _ => sb.super_offset.saturating_sub(data_end) as i64,
        };
        (free >= LOG).then_some(-LOG)
    } else {
        let behind = taken.filter(|(start, _)| *start > 0).map_or(8, |(start, len)| start + len);
        // mdadm counts the place from the superblock, and the room from the member's start.
        let (own, data) = (sb.super_offset as i64, sb.data_offset as i64);
        let mut at = if taken.is_some() { behind } else { own + 8 };
        while at < own + 8 + BITMAP_ROOM && at + 8 + LOG <= data {
            at += 8;
        }
        (own + at + LOG <= data).then_some(at)
    };
    let offset = offset.and_then(|at| i32::try_from(at).ok()).ok_or(no_room)?;
    (sb.bblog_size, sb.bblog_offset, sb.bblog_shift) = (LOG as u16, offset, 0);
    Ok(())
}

/// Where the bitmap or the partial parity logs begin, sectors from the superblock, and how many sectors they take.
fn neighbour(sb: &v1::Superblock, bitmap: Option<&bitmap::Superblock>) -> Option<(i64, i64)> {
    if sb.has(feature::BITMAP_OFFSET) {
        let bytes = bitmap.map_or(0, bitmap::Superblock::image_bytes).next_multiple_of(4096);
        return Some((sb.bitmap_offset.into(), bytes.max(4096) as i64 / 512));
    }
    let (offset, size) = sb.ppl();
    let has_ppl = sb.feature_map & (feature::PPL | feature::MULTIPLE_PPLS) != 0;
    has_ppl.then_some((offset.into(), size.into()))
}

/// Gives a member of a RAID5 partial parity logs, where mdadm does, and empties their area, as mdadm does when it next
/// assembles the array. One that has them keeps them.
pub(super) fn with_ppl(
    member: &Subject<'_>,
    mut sb: v1::Superblock,
) -> Result<Vec<Write>, Refused> {
    if sb.level != 5 {
        return Err(Refused::Level { wanted: "RAID5" });
    }
    if sb.has(feature::BITMAP_OFFSET) || sb.has(feature::JOURNAL) {
        return Err(Refused::Excluded { by: "a write-intent bitmap or a journal" });
    }
    let write = |sb: v1::Superblock| Write { sector: Sector(sb.super_offset), bytes: sb.encode() };
    if member.superblock.has_ppl() {
        return Ok(vec![write(sb)]);
    }
    if !member.superblock.clean() {
        return Err(Refused::Unclean { what: "redundancy" });
    }
    let no_room = Refused::NoRoomForPpl { has_log: sb.bblog_size != 0 };
    let (offset, space) = place_ppl(&sb);
    if space < 8 + 8 {
        return Err(no_room);
    }
    let chunk = i64::from(sb.chunksize).max(PPL_PARITY);
    let size = if space >= PPL_AREA { PPL_AREA } else { space.min(8 + chunk) };
    sb.set_ppl(offset as i16, size as u16);
    sb.feature_map |= feature::PPL;
    let area = Superblock::V1(sb.clone());
    let (Some((sector, _)), Some(shape)) = (area.ppl(), ppl::Shape::of(Sectors(size as u64)))
    else {
        return Err(no_room);
    };
    let bytes = ppl::empty_area(ppl::Shape { size: Sectors(size as u64), ..shape }, sb.set_uuid);
    Ok(vec![Write { sector, bytes }, write(sb)])
}

/// Offset from the superblock, and room: up to the bad-block log or the data.
fn place_ppl(sb: &v1::Superblock) -> (i64, i64) {
    let log = i64::from(sb.bblog_offset);
    let (own, data) = (sb.super_offset as i64, sb.data_offset as i64);
    if sb.minor_version > 0 {
        let end = if log > 0 { log } else { data - own };
        return (8, end - 8);
    }
    let offset = (data.saturating_add_unsigned(sb.data_size) - own).max(i16::MIN.into());
    (offset, log.min(0) - offset)
}
