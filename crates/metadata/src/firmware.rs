//! Arrays that a computer's firmware manages, whose metadata are other makers' and lie at the ends of the disks: what one
//! disk tells of its volumes, in md's terms, to be read.
//!
//! A volume becomes a superblock that is on no disk: of version 1.0, since the place of that lies behind the data. Nothing
//! here encodes such metadata, so they are never written.

pub(crate) mod ddf;
pub(crate) mod imsm;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use lapstrake_geometry::{Layout, Level, Sector, Sectors, Slot};
use sha1::{Digest, Sha1};

use crate::{MAGIC, Superblock, Version, v1};

/// RAID metadata other than md's own, kept in containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// Intel Matrix Storage Manager.
    Imsm,
    /// SNIA's Disk Data Format.
    Ddf,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Imsm => "IMSM (Intel) RAID metadata",
            Self::Ddf => "DDF RAID metadata",
        })
    }
}

/// What tells a disk's slot, beside its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    /// They tell it themselves.
    Known(Slot),
    /// They list serial numbers, and the disk knows its own: slots of this volume by these.
    BySerial(Serials),
}

/// Disks' serial numbers, with the slots that they have in a volume.
type Serials = Vec<(String, Slot)>;

/// A volume, as one of its disks tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    level: Level,
    layout: Layout,
    chunk: Sectors,
    component: Sectors,
    name: String,
    uuid: [u8; 16],
    /// Where its data begin on this disk, and how many sectors are set aside for them.
    data: (Sector, Sectors),
    /// For each slot whether its member has all data.
    in_sync: Vec<bool>,
    own: Own,
    /// Counts changes of the metadata.
    events: u64,
    clean: bool,
    device: Sectors,
}

/// Why metadata, or one volume in them, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FirmwareError {
    /// Less than a whole: it reaches beyond the device, or is not what it has to be.
    #[error("the metadata are cut off or damaged at byte {0}")]
    Damaged(u64),
    /// The checksum is not that of the bytes.
    #[error("the metadata's checksum is {stored:#010x}, their bytes give {computed:#010x}")]
    Checksum {
        /// On the disk.
        stored: u32,
        /// Of what is there.
        computed: u32,
    },
    /// A volume of a kind that is not read.
    #[error("the volume {volume:?} {what}, which cannot be read")]
    Volume {
        /// Its name.
        volume: String,
        /// What it is or does.
        what: &'static str,
    },
}

/// What metadata of firmware hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Volumes of which the disk is, or may be, a member.
    pub all: Vec<Volume>,
    /// What cannot be used.
    pub errors: Vec<FirmwareError>,
}

/// Roles of disks that nobody knows yet, from here on: none of md's words, and no slot.
const NOBODYS_ROLE: u16 = 0xff01;

impl Volume {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its UUID, as mdadm makes it of what the metadata hold.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Serial numbers of its disks, slot by slot, where the metadata tell a disk by that only.
    pub fn serials(&self) -> impl Iterator<Item = &str> {
        let serials = match &self.own {
            Own::Known(_) => &[][..],
            Own::BySerial(serials) => serials,
        };
        serials.iter().map(|(serial, _)| &**serial)
    }

    /// The superblock that md would have of the disk. `is_own` knows the disk's serial number; a disk of which nobody knows
    /// it has an unknown role, and `stranger` is its number among such.
    #[must_use]
    pub fn superblock(&self, is_own: impl Fn(&str) -> bool, stranger: u16) -> Superblock {
        let slots = self.in_sync.len() as u16;
        let own = match &self.own {
            Own::Known(slot) => Some(*slot),
            Own::BySerial(serials) => {
                serials.iter().find(|(serial, _)| is_own(serial)).map(|(_, slot)| *slot)
            }
        };
        let mut dev_roles: Vec<u16> = self.in_sync.iter().zip(0..).map(role).collect();
        dev_roles.resize(usize::from(slots + stranger) + 1, v1::role::SPARE);
        let number = own.map_or(slots + stranger, |slot| slot.0);
        if own.is_none() {
            dev_roles[usize::from(number)] = NOBODYS_ROLE;
        }
        let mut set_name = [0; 32];
        set_name.iter_mut().zip(self.name.bytes()).for_each(|(to, from)| *to = from);
        let of_members = matches!(self.level, Level::Raid0 | Level::Linear);
        Superblock::V1(v1::Superblock {
            magic: MAGIC,
            major_version: 1,
            feature_map: if self.level == Level::Raid0 { v1::feature::RAID0_LAYOUT } else { 0 },
            pad0: 0,
            set_uuid: self.uuid,
            set_name,
            ctime: 0,
            level: self.level.to_md(),
            layout: self.layout.to_md(),
            size: if of_members { 0 } else { self.component.0 },
            chunksize: self.chunk.0 as u32,
            raid_disks: slots.into(),
            bitmap_offset: 0,
            new_level: 0,
            reshape_position: 0,
            delta_disks: 0,
            new_layout: 0,
            new_chunk: 0,
            new_offset: 0,
            data_offset: self.data.0.0,
            data_size: if of_members { self.component.0 } else { self.data.1.0 },
            super_offset: Version::V1_0.superblock(self.device).map_or(0, |sector| sector.0),
            recovery_offset: 0,
            dev_number: number.into(),
            cnt_corrected_read: 0,
            device_uuid: hash(&[&self.uuid, &number.to_le_bytes()]),
            devflags: 0,
            bblog_shift: 0,
            bblog_size: 0,
            bblog_offset: 0,
            utime: 0,
            events: self.events,
            resync_offset: if self.clean { v1::MAX_SECTOR } else { 0 },
            sb_csum: 0,
            max_dev: dev_roles.len() as u32,
            logical_block_size: 0,
            pad3: [0; 28],
            minor_version: 0,
            dev_roles,
        })
    }
}

fn role((is_in_sync, slot): (&bool, u16)) -> u16 {
    if *is_in_sync { slot } else { v1::role::FAULTY }
}

/// The beginning of a SHA-1 as mdadm makes a UUID of it: in words that it prints most significant byte first.
fn hash(parts: &[&[u8]]) -> [u8; 16] {
    let mut sha = Sha1::new();
    parts.iter().for_each(|part| sha.update(part));
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&sha.finalize()[..16]);
    uuid.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    uuid
}

/// A name without what fills its room.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| matches!(byte, 0 | 0xff)).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().into()
}

/// Looks at metadata whose signature was found at `sector` of a device of this size. `get` gives bytes from an offset on,
/// fewer at the device's end.
///
/// # Errors
/// Those of `get`.
pub(crate) fn volumes<E>(
    kind: Container,
    device: Sectors,
    sector: Sector,
    get: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Volumes, E> {
    match kind {
        Container::Imsm => imsm::volumes(device, sector, get),
        Container::Ddf => ddf::volumes(device, sector, get),
    }
}

/// Words of a structure; what lies beyond its end is damage.
struct Bytes<'a> {
    bytes: &'a [u8],
    /// The structure's place on the device.
    at: u64,
}

impl<'a> Bytes<'a> {
    fn get(&self, offset: usize, len: usize) -> Result<&'a [u8], FirmwareError> {
        let end = offset.checked_add(len);
        let found = end.and_then(|end| self.bytes.get(offset..end));
        found.ok_or(FirmwareError::Damaged(self.at.saturating_add(offset as u64)))
    }

    fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], FirmwareError> {
        Ok(self.get(offset, N)?.try_into().expect("of this length"))
    }
}
