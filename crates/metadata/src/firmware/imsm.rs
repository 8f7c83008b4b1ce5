//! Intel's metadata (Matrix Storage Manager, later RST and VROC): one copy on each disk, the same on all. It begins in the
//! last sector but one, of 512 or 4096 bytes; what has no room there lies before it. It knows disks by their serial numbers
//! only.
//!
//! Little-endian. Names, offsets and meanings: mdadm's `super-intel.c`.

use super::{Bytes, FirmwareError, Own, Serials, Volume, Volumes, hash, name};
use alloc::string::String;
use alloc::vec::Vec;
use lapstrake_geometry::{
    Layout, Level, ParityLayout, Raid0Layout, Raid10Layout, Sector, Sectors, Slot,
};

pub(crate) const SIGNATURE: &[u8] = b"Intel Raid ISM Cfg Sig. ";
/// From the end, in sectors of 512 bytes: on disks whose logical sectors are such, and on those where they are of 4096.
pub(crate) const PLACES: [u64; 2] = [2, 16];
/// Larger than of 255 disks and volumes.
const BYTES_MAX: u64 = 1 << 20;
const HEAD: usize = 0xd8;
const DISK: usize = 48;
const SERIAL: usize = 16;

const SPARE: u32 = 1;
const FAILED: u32 = 4;
/// Of an entry of a volume's table of disks: the member is being rebuilt.
const REBUILD: u32 = 1 << 24;

/// What a volume in migration does.
mod migration {
    pub const INIT: u8 = 0;
    pub const GENERAL: u8 = 3;
    pub const STATE_CHANGE: u8 = 4;
}

struct Disk {
    serial: String,
    is_sound: bool,
}

pub(super) fn volumes<E>(
    device: Sectors,
    sector: Sector,
    mut get: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Volumes, E> {
    let anchor = sector.bytes();
    // Logical sectors, in which sizes and places are counted.
    let block = device.bytes().saturating_sub(anchor) / 2;
    let mut bytes = get(anchor, block)?;
    let size = bytes
        .get(0x24..0x28)
        .map_or(0, |size| u32::from_le_bytes([size[0], size[1], size[2], size[3]]));
    let size = u64::from(size);
    let rest = size.saturating_sub(block).next_multiple_of(block.max(512));
    let mut found = Volumes::default();
    if size < HEAD as u64 || size > BYTES_MAX || rest > anchor {
        found.errors.push(FirmwareError::Damaged(anchor + 0x24));
        return Ok(found);
    }
    bytes.extend(get(anchor - rest, rest)?);
    bytes.truncate(size as usize);
    let bytes = Bytes { bytes: &bytes, at: anchor };
    if let Err(error) = parse(device, block / 512, &bytes, &mut found) {
        found.errors.push(error);
    }
    Ok(found)
}

fn parse(
    device: Sectors,
    scale: u64,
    bytes: &Bytes<'_>,
    found: &mut Volumes,
) -> Result<(), FirmwareError> {
    let stored = word(bytes, 0x20)?;
    let words =
        bytes.bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("of 4")));
    let computed = words.fold(0, u32::wrapping_add).wrapping_sub(stored);
    if computed != stored {
        return Err(FirmwareError::Checksum { stored, computed });
    }
    let [disks, volumes] = bytes.array(0x38)?;
    let family = match word(bytes, 0x40)? {
        0 => word(bytes, 0x28)?,
        family => family,
    };
    let disk = |index: u8| {
        let at = HEAD + usize::from(index) * DISK;
        let status = word(bytes, at + 24)?;
        let serial = name(bytes.get(at, SERIAL)?);
        Ok(Disk { serial, is_sound: status & (FAILED | SPARE) == 0 })
    };
    let disks = (0..disks).map(disk).collect::<Result<Vec<_>, _>>()?;
    let mut at = HEAD + disks.len() * DISK;
    for index in 0..volumes {
        let uuid_of = |volume: &[u8]| {
            hash(&[SIGNATURE, &family.to_le_bytes(), &u32::from(index).to_le_bytes(), volume])
        };
        let (volume, len) =
            one((device, scale), bytes, at, &disks, u64::from(word(bytes, 0x2c)?), uuid_of)?;
        at += len;
        match volume {
            Ok(volume) => found.all.push(volume),
            Err(error) => found.errors.push(error),
        }
    }
    Ok(())
}

/// Of a volume's description: its head, and what goes before the first map.
const VOLUME: usize = 80;
const MAP: usize = VOLUME + 32;
/// Of a map: what goes before its table of disks.
const TABLE: usize = 48;

/// The volume that is described at an offset, and how long its description is. `scale`: what is counted in, in sectors of
/// 512 bytes.
fn one(
    (device, scale): (Sectors, u64),
    bytes: &Bytes<'_>,
    at: usize,
    disks: &[Disk],
    events: u64,
    uuid_of: impl Fn(&[u8]) -> [u8; 16],
) -> Result<(Result<Volume, FirmwareError>, usize), FirmwareError> {
    let map = at + MAP;
    let [_, level, members, domains] = bytes.array(map + 14)?;
    let [is_migrating, migration, is_dirty, _] = bytes.array(at + VOLUME + 8)?;
    let is_migrating = is_migrating != 0;
    let mut len = MAP + TABLE + 4 * usize::from(members);
    let mut tables = Vec::from([map + TABLE]);
    if is_migrating {
        // The map of before lies behind that of afterwards.
        let [_, _, before, _] = bytes.array(at + len + 14)?;
        tables.extend((migration != migration::INIT).then_some(at + len + TABLE));
        len += TABLE + 4 * usize::from(before);
    }
    let label = bytes.get(at, SERIAL)?;
    let refused = |what| Ok((Err(FirmwareError::Volume { volume: name(label), what }), len));
    if is_migrating && matches!(migration, migration::GENERAL | migration::STATE_CHANGE) {
        return refused("is being reshaped");
    }
    let Some((level, layout, data_disks)) = level_of(level, members.into()) else {
        return refused("has a level that is not known, or too few members for it");
    };
    let chunk = u64::from(u16::from_le_bytes(bytes.array(map + 12)?)) * scale;
    if chunk == 0 {
        return refused("has no chunk");
    }
    let scaled = |low, high| Ok(wide(bytes, low, high)?.saturating_mul(scale));
    let size = scaled(at + SERIAL, at + SERIAL + 4)?;
    let rows = wide(bytes, map + 8, map + 28)?;
    let by_rows = rows.saturating_mul(chunk).saturating_mul(domains.max(1).into());
    // Where a volume was grown, the number of rows is left as it was.
    let differs = by_rows.saturating_mul(data_disks).abs_diff(size) > 2048 * data_disks;
    let (in_sync, serials) = members_of(bytes, &tables, members.into(), disks)?;
    let volume = Volume {
        level,
        layout,
        chunk: Sectors(if level == Level::Raid1 { 0 } else { chunk }),
        component: Sectors(if differs { size / data_disks } else { by_rows }),
        name: name(label),
        uuid: uuid_of(label),
        data: (Sector(scaled(map, map + 20)?), Sectors(scaled(map + 4, map + 24)?)),
        in_sync,
        own: Own::BySerial(serials),
        events,
        clean: is_dirty & 1 == 0 && !(is_migrating && migration == migration::INIT),
        device,
    };
    Ok((Ok(volume), len))
}

fn word(bytes: &Bytes<'_>, at: usize) -> Result<u32, FirmwareError> {
    bytes.array(at).map(u32::from_le_bytes)
}

/// A number whose halves lie apart.
fn wide(bytes: &Bytes<'_>, low: usize, high: usize) -> Result<u64, FirmwareError> {
    Ok(u64::from(word(bytes, low)?) | u64::from(word(bytes, high)?) << 32)
}

/// What md calls a level, and how many members' worth of data it has.
fn level_of(level: u8, members: u64) -> Option<(Level, Layout, u64)> {
    let found = match (level, members) {
        (0, _) => (Level::Raid0, Layout::Raid0(Raid0Layout::Original), members),
        (1, 4..) | (10, _) => (Level::Raid10, Layout::Raid10(Raid10Layout::near(2)), members / 2),
        (1, _) => (Level::Raid1, Layout::None, members.min(1)),
        (5, _) => {
            let layout = Layout::Parity(ParityLayout::LeftAsymmetric);
            (Level::Raid5, layout, members.saturating_sub(1))
        }
        _ => return None,
    };
    (found.2 > 0).then_some(found)
}

/// For each slot whether its member has all data, by all tables of disks; and serial numbers, by the first.
fn members_of(
    bytes: &Bytes<'_>,
    tables: &[usize],
    members: u16,
    disks: &[Disk],
) -> Result<(Vec<bool>, Serials), FirmwareError> {
    let (mut in_sync, mut serials) = (Vec::new(), Vec::new());
    for slot in 0..members {
        let mut is_in_sync = true;
        for (nth, table) in tables.iter().enumerate() {
            let entry = word(bytes, table + 4 * usize::from(slot))?;
            let disk = disks.get((entry & 0xff_ffff) as usize);
            is_in_sync &= entry & REBUILD == 0 && disk.is_some_and(|disk| disk.is_sound);
            let first = disk.filter(|_| nth == 0);
            serials.extend(first.map(|disk| (disk.serial.clone(), Slot(slot))));
        }
        in_sync.push(is_in_sync);
    }
    Ok((in_sync, serials))
}
