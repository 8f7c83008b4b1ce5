//! SNIA's Disk Data Format: an anchor in the last sector leads to a header and its sections. Some sections are the same on
//! all disks (disks, volumes), others tell of this disk only (who it is, and its volumes' configurations).
//!
//! Big-endian. Names, offsets and meanings: SNIA's specification 2.0, and mdadm's `super-ddf.c`.

use super::{Bytes, FirmwareError, Own, Volume, Volumes, hash, name};
use crate::v1;
use alloc::vec::Vec;
use crc::{Algorithm, CRC_32_ISO_HDLC, Crc};
use lapstrake_geometry::{
    Layout, Level, ParityLayout, Raid0Layout, Raid10Layout, Sector, Sectors, Slot,
};

pub(crate) const SIGNATURE: &[u8] = &[0xde, 0x11, 0xde, 0x11];
/// Where anchors lie, sectors from the end: where they have to, and where some controllers put them.
pub(crate) const PLACES: [u64; 2] = [1, 257];
const SECTOR: u64 = 512;
/// No section is longer.
const SECTION_MAX: u64 = 1024;
const GUID: usize = 24;
/// Of the tables of disks and volumes: their heads and entries.
const ENTRY: usize = 64;
const CONFIGURATION: [u8; 4] = [0xee; 4];
const THIS_DISK: [u8; 4] = [0x33; 4];
/// Whose volumes get another GUID at each start.
const CHANGES_GUIDS: &[u8] = b"LSI     ";

/// CRC-32 that begins and ends as it is.
const PLAIN: Algorithm<u32> = Algorithm { init: 0, xorout: 0, ..CRC_32_ISO_HDLC };
const CRC: Crc<u32> = Crc::<u32>::new(&PLAIN);

/// Failed, being rebuilt, or missing.
const NOT_SOUND: u16 = 2 | 4 | 64;
const INCONSISTENT: u8 = 0x10;
const MORPHING: u8 = 8;
const INITIALISED: u8 = 2;

pub(super) fn volumes<E>(
    device: Sectors,
    anchor: Sector,
    mut get: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Volumes, E> {
    let at = anchor.bytes();
    let anchor = get(at, SECTOR)?;
    let anchor = Bytes { bytes: &anchor, at };
    let mut found = Volumes::default();
    let mut why = FirmwareError::Damaged(at);
    // The first copy of the header, and the second.
    for place in [96, 104] {
        let header = match checked(&anchor).and_then(|()| anchor.array(place)) {
            Ok(lba) => {
                u64::from_be_bytes(lba).checked_mul(SECTOR).filter(|at| *at < device.bytes())
            }
            Err(error) => {
                why = error;
                break;
            }
        };
        let Some(at) = header else { continue };
        let bytes = get(at, SECTOR)?;
        let header = Bytes { bytes: &bytes, at };
        match checked(&header).and_then(|()| sections(&header)) {
            Ok(sections) => {
                let mut read = Vec::new();
                for (offset, len) in sections {
                    read.push(get(at + offset * SECTOR, len * SECTOR)?);
                }
                let section = |index: usize| Bytes {
                    bytes: &read[index],
                    at: at + sections[index].0 * SECTOR,
                };
                let parts = Parts {
                    header,
                    disks: section(0),
                    volumes: section(1),
                    configurations: section(2),
                    own: section(3),
                };
                if let Err(error) = parts.volumes(device, &mut found) {
                    found.errors.push(error);
                }
                return Ok(found);
            }
            Err(error) => why = error,
        }
    }
    found.errors.push(why);
    Ok(found)
}

/// Whether a header's bytes are those that were written.
fn checked(header: &Bytes<'_>) -> Result<(), FirmwareError> {
    if header.get(0, 4)? != SIGNATURE {
        return Err(FirmwareError::Damaged(header.at));
    }
    let stored = u32::from_be_bytes(header.array(4)?);
    let mut digest = CRC.digest();
    digest.update(header.get(0, 4)?);
    digest.update(&[0xff; 4]);
    digest.update(header.get(8, 504)?);
    match digest.finalize() {
        computed if computed == stored => Ok(()),
        computed => Err(FirmwareError::Checksum { stored, computed }),
    }
}

/// Of disks, volumes, configurations and this disk: sectors from the header, and how many.
fn sections(header: &Bytes<'_>) -> Result<[(u64, u64); 4], FirmwareError> {
    let mut found = [(0, 0); 4];
    for (section, at) in found.iter_mut().zip([200, 208, 216, 224]) {
        let words = [at, at + 4].map(|at| header.array(at).map(u32::from_be_bytes));
        let [offset, len] = words;
        *section = (u64::from(offset?), u64::from(len?).min(SECTION_MAX));
    }
    Ok(found)
}

struct Parts<'a> {
    header: Bytes<'a>,
    disks: Bytes<'a>,
    volumes: Bytes<'a>,
    configurations: Bytes<'a>,
    own: Bytes<'a>,
}

/// A volume's entry in the table of all.
struct Entry {
    index: u16,
    label: [u8; 16],
    state: u8,
    initialised: u8,
}

impl Parts<'_> {
    fn volumes(&self, device: Sectors, found: &mut Volumes) -> Result<(), FirmwareError> {
        if self.own.get(0, 4)? != THIS_DISK {
            return Err(FirmwareError::Damaged(self.own.at));
        }
        let own: [u8; 4] = self.own.array(32)?;
        let record = usize::from(self.short(130 + 4)?) * SECTOR as usize;
        let mut records = match record {
            0 => return Err(FirmwareError::Damaged(self.header.at + 134)),
            len => self.configurations.bytes.chunks_exact(len).zip((0..).step_by(len)),
        };
        let is_configuration = |(bytes, _): &(&[u8], usize)| bytes.starts_with(&CONFIGURATION);
        for (bytes, at) in records.by_ref().filter(is_configuration) {
            let record = Bytes { bytes, at: self.configurations.at + at as u64 };
            match self.one(device, &record, own)? {
                Ok(volume) => found.all.push(volume),
                Err(error) => found.errors.push(error),
            }
        }
        Ok(())
    }

    fn short(&self, at: usize) -> Result<u16, FirmwareError> {
        self.header.array(at).map(u16::from_be_bytes)
    }

    fn one(
        &self,
        device: Sectors,
        record: &Bytes<'_>,
        own: [u8; 4],
    ) -> Result<Result<Volume, FirmwareError>, FirmwareError> {
        const MEMBERS: usize = 512;
        let entry = self.entry(record.get(8, GUID)?)?;
        let refused = |what| FirmwareError::Volume { volume: name(&entry.label), what };
        let primary = u16::from_be_bytes(record.array(64)?);
        let [shift, level, qualifier, secondary, place, _] = record.array(66)?;
        let Some((level, layout)) = level_of(level, qualifier, primary, secondary) else {
            return Ok(Err(refused("has a level or layout that is not known")));
        };
        if entry.state & MORPHING != 0 {
            return Ok(Err(refused("is being reshaped")));
        }
        let members = (0..usize::from(primary)).map(|index| record.array(MEMBERS + 4 * index));
        let members: Vec<[u8; 4]> = members.collect::<Result<_, _>>()?;
        let Some(index) = members.iter().position(|member| *member == own) else {
            return Ok(Err(refused("does not name the disk that tells of it")));
        };
        let offsets = MEMBERS + 4 * usize::from(self.short(136)?);
        let offset = u64::from_be_bytes(record.array(offsets + 8 * index)?);
        let blocks = u64::from_be_bytes(record.array(72)?);
        let chunk = match level {
            Level::Raid1 | Level::Linear => 0,
            _ => 1u64.checked_shl(shift.into()).unwrap_or(0),
        };
        // Of a mirror's half nobody but its own disks tells more.
        let slots = usize::from(primary) * usize::from(secondary.max(1));
        if slots > v1::MAX_DEV as usize {
            return Ok(Err(refused("has more members than md can have")));
        }
        let mut in_sync = alloc::vec![true; slots];
        let first = usize::from(primary) * usize::from(place);
        let own_slots = in_sync.get_mut(first..first + members.len());
        let Some(own_slots) = own_slots else {
            return Ok(Err(refused("has this disk in a place that it does not have")));
        };
        for (is_in_sync, member) in own_slots.iter_mut().zip(&members) {
            *is_in_sync = self.is_sound(*member)?;
        }
        let whole = blocks - blocks.checked_rem(chunk).unwrap_or(0);
        Ok(Ok(Volume {
            level,
            layout,
            chunk: Sectors(chunk),
            component: Sectors(whole),
            uuid: self.uuid(record.get(8, GUID)?, &entry)?,
            data: (Sector(offset), Sectors(blocks)),
            in_sync,
            own: Own::Known(Slot((first + index) as u16)),
            events: u32::from_be_bytes(self.header.array(40)?).into(),
            clean: entry.state & INCONSISTENT == 0 && entry.initialised & 3 == INITIALISED,
            device,
            name: name(&entry.label),
        }))
    }

    fn entry(&self, guid: &[u8]) -> Result<Entry, FirmwareError> {
        for index in 0..self.short(130)? {
            let at = ENTRY * (usize::from(index) + 1);
            if self.volumes.get(at, GUID)? == guid {
                let [state, initialised] = self.volumes.array(at + 32)?;
                let label = self.volumes.array(at + 48)?;
                return Ok(Entry { index, label, state, initialised });
            }
        }
        Err(FirmwareError::Damaged(self.volumes.at))
    }

    fn is_sound(&self, member: [u8; 4]) -> Result<bool, FirmwareError> {
        for index in 0..usize::from(self.short(128)?) {
            let at = ENTRY * (index + 1);
            if self.disks.array(at + GUID)? == member {
                return Ok(u16::from_be_bytes(self.disks.array(at + 30)?) & NOT_SOUND == 0);
            }
        }
        Ok(false)
    }

    fn uuid(&self, guid: &[u8], entry: &Entry) -> Result<[u8; 16], FirmwareError> {
        let container = self.header.get(8, GUID)?;
        match container.starts_with(CHANGES_GUIDS) {
            true => Ok(hash(&[container, &entry.label, &entry.index.to_le_bytes()])),
            false => Ok(hash(&[guid])),
        }
    }
}

/// What md calls a level, its qualifier, and mirrors (of so many) that are members of something.
fn level_of(level: u8, qualifier: u8, primary: u16, secondary: u8) -> Option<(Level, Layout)> {
    use ParityLayout::{
        DdfNContinue, DdfNRestart, DdfZeroRestart, LeftAsymmetric, LeftSymmetric, RightAsymmetric,
    };
    let is_mirror = matches!((qualifier, primary), (0, 2) | (1, 3));
    if secondary > 1 {
        let layout = Layout::Raid10(Raid10Layout::near(primary as u8));
        return (level == 1 && is_mirror).then_some((Level::Raid10, layout));
    }
    Some(match (level, qualifier) {
        (0x1f, _) => (Level::Linear, Layout::None),
        (0, 0) => (Level::Raid0, Layout::Raid0(Raid0Layout::Original)),
        (1, _) if is_mirror => (Level::Raid1, Layout::None),
        (0x11, 0) => (Level::Raid10, Layout::Raid10(Raid10Layout::near(2))),
        (0x11, 1) => (Level::Raid10, Layout::Raid10(Raid10Layout::offset(2))),
        (4, 1) => (Level::Raid4, Layout::None),
        (5, 0) => (Level::Raid5, Layout::Parity(RightAsymmetric)),
        (5, 2) => (Level::Raid5, Layout::Parity(LeftAsymmetric)),
        (5, 3) => (Level::Raid5, Layout::Parity(LeftSymmetric)),
        (6, 1) => (Level::Raid6, Layout::Parity(DdfZeroRestart)),
        (6, 2) => (Level::Raid6, Layout::Parity(DdfNRestart)),
        (6, 3) => (Level::Raid6, Layout::Parity(DdfNContinue)),
        _ => return None,
    })
}
