//! What a device or file already holds: md superblocks, other RAID metadata, and what belongs to
//! someone else.
//!
//! Every md version is looked for in its own place, both byte orders for 0.90; a superblock that
//! is there but damaged is reported as such. Foreign signatures are only those at fixed places
//! that the owner would miss: it is a guard before writing, not an identification of files.
//! All reads are at multiples of 4096 bytes and of such lengths, cut off only by the end of the
//! device, so that a reader with direct I/O can serve them.

mod choice;
mod foreign;

use alloc::vec;
use alloc::vec::Vec;
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_partitions::Table;

use crate::firmware::{self, Volumes, ddf, imsm};
use crate::{Superblock, SuperblockError, Version, read_at};

pub use crate::firmware::Container;
pub use choice::{Doubt, Other, Undecided, Wanted};
pub use foreign::{Filesystem, Foreign};

/// Something that was found.
#[allow(clippy::large_enum_variant)] // a handful per device, and short-lived
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An md superblock, or what remains of one.
    Md {
        /// Which place it has.
        version: Version,
        /// That place.
        sector: Sector,
        /// The superblock, or why it is none that md would take.
        superblock: Result<Superblock, SuperblockError>,
    },
    /// RAID metadata of others', which are read.
    Container {
        /// Whose.
        kind: Container,
        /// Where.
        sector: Sector,
        /// What they hold.
        volumes: Volumes,
    },
    /// Something of another owner.
    Foreign {
        /// What.
        kind: Foreign,
        /// Byte at which its signature lies.
        offset: u64,
    },
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Each thing, md superblocks first.
    pub all: Vec<Finding>,
    /// The device's partition table.
    pub table: Option<Table>,
    /// The file system that begins with the device, if it says how large it is.
    pub filesystem: Option<Filesystem>,
}

impl Findings {
    /// The sound md superblocks.
    pub fn superblocks(&self) -> impl Iterator<Item = &Superblock> {
        self.all.iter().filter_map(|finding| match finding {
            Finding::Md { superblock: Ok(superblock), .. } => Some(superblock),
            _ => None,
        })
    }

    /// Volumes of firmware RAID.
    pub fn volumes(&self) -> impl Iterator<Item = &firmware::Volume> {
        self.all.iter().flat_map(|finding| match finding {
            Finding::Container { volumes, .. } => &volumes.all[..],
            _ => &[],
        })
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.table.is_none()
    }
}

/// A device of known size behind a reader.
struct Reader<R> {
    bytes: u64,
    read: R,
}

impl<E, R: FnMut(u64, &mut [u8]) -> Result<(), E>> Reader<R> {
    /// `len` bytes at `offset`; fewer, perhaps none, at the end of the device.
    fn get(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, E> {
        let start = (offset & !4095).min(self.bytes);
        let end = offset.saturating_add(len).checked_next_multiple_of(4096);
        let end = end.unwrap_or(u64::MAX).min(self.bytes);
        let mut block = vec![0; end.saturating_sub(start) as usize];
        if !block.is_empty() {
            (self.read)(start, &mut block)?;
        }
        let skip = (offset - start).min(block.len() as u64) as usize;
        block.drain(..skip);
        block.truncate(len as usize);
        Ok(block)
    }
}

/// Looks at a device of `size` through `read`, which fills its buffer from a byte offset.
///
/// An error of `read` ends the search and is returned.
pub fn probe<E>(
    size: Sectors,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Findings, E> {
    search(size, read, false)
}

/// The same for an array's members, which nothing is to replace: what else could be there is passed over from the first
/// place on that cannot be read. A bad sector among a member's data is no reason to do without it.
pub fn probe_member<E>(
    size: Sectors,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Findings, E> {
    search(size, read, true)
}

fn search<E>(
    size: Sectors,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    may_be_member: bool,
) -> Result<Findings, E> {
    let mut device = Reader { bytes: size.0.saturating_mul(512), read };
    let mut found = Vec::new();
    for version in Version::ALL {
        let Ok(Sector(sector)) = version.superblock(size) else { continue };
        let superblock = read_at(version, size, &device.get(sector.saturating_mul(512), 4096)?);
        let is_elsewhere = found.iter().any(|finding| {
            matches!(finding, Finding::Md { sector: Sector(at), superblock: Ok(_), .. } if *at == sector)
        });
        let is_none = match &superblock {
            Err(SuperblockError::Magic { .. } | SuperblockError::Truncated { .. }) => true,
            // On a small device two versions can share a place.
            Err(SuperblockError::MajorVersion { found: 0 | 1 }) => true,
            _ => is_elsewhere,
        };
        if !is_none {
            found.push(Finding::Md { version, sector: Sector(sector), superblock });
        }
    }
    let is_member =
        found.iter().any(|finding| matches!(finding, Finding::Md { superblock: Ok(_), .. }));
    match find_others(&mut device, &mut found) {
        Err(error) if !(may_be_member && is_member) => return Err(error),
        _ => {}
    }
    // What cannot be read of them is as good as not there.
    let table = lapstrake_partitions::read(device.bytes, None, |offset, len| {
        device.get(offset, len).unwrap_or_default()
    });
    let filesystem = device.get(0, foreign::HEAD).ok().and_then(|head| foreign::filesystem(&head));
    Ok(Findings { all: found, table, filesystem })
}

/// What is not md's own; ends at the first error.
fn find_others<E>(
    device: &mut Reader<impl FnMut(u64, &mut [u8]) -> Result<(), E>>,
    found: &mut Vec<Finding>,
) -> Result<(), E> {
    for (kind, from_end, magic) in CONTAINERS {
        let Some(offset) = device.bytes.checked_sub(from_end * 512) else { continue };
        if device.get(offset, magic.len() as u64)? == magic {
            let (size, sector) = (Sectors(device.bytes / 512), Sector(offset / 512));
            let get = |offset, len| device.get(offset, len);
            let volumes = firmware::volumes(kind, size, sector, get)?;
            found.push(Finding::Container { kind, sector, volumes });
        }
    }
    foreign::find(
        device.bytes,
        |offset, len| device.get(offset, len),
        |kind, offset| found.push(Finding::Foreign { kind, offset }),
    )
}

/// Kind, sectors from the end, signature.
const CONTAINERS: [(Container, u64, &[u8]); 4] = [
    (Container::Imsm, imsm::PLACES[0], imsm::SIGNATURE),
    (Container::Imsm, imsm::PLACES[1], imsm::SIGNATURE),
    (Container::Ddf, ddf::PLACES[0], ddf::SIGNATURE),
    (Container::Ddf, ddf::PLACES[1], ddf::SIGNATURE),
];
