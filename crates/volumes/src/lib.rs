//! What lies on a block device: partitions, LVM2's physical and logical volumes, file systems with label, UUID, size and
//! last mount. All is read, nothing written.
//!
//! A device is its size and a function `get` that gives so many bytes from an offset: fewer, perhaps none, at its end and
//! where it cannot be read.
//!
//! Invariants: any bytes give a value or an error; a [`Map`] covers its volume without gap or overlap, and every range that
//! it names lies within 63 bits.
//!
//! What is not done: LVM1, volumes that are more than ranges of devices (snapshots, thin pools, mirrors, RAID, caches: named
//! with their kind, not mapped), and mending of metadata.

#![no_std]

extern crate alloc;

mod error;
mod filesystem;
mod group;
mod id;
mod label;
mod map;
mod survey;
mod text;

use alloc::vec::Vec;
use lapstrake_partitions::{Scheme, Table};

pub use error::LabelError;
pub use filesystem::{Filesystem, Kind};
pub use group::{Area, Group, Physical, Segment, Volume};
pub use id::Id;
pub use label::PhysicalVolume;
pub use map::{Map, MapError, Piece, Place};
pub use survey::{Device, Found, FoundGroup, FoundVolume, Part, Survey, VolumeError};
pub use text::{Section, TextError, Value, parse};

/// What a device holds, from its first byte on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing that is known here.
    Unknown,
    /// Partitions.
    Table(Table),
    /// An LVM2 physical volume, or why one that is labelled so cannot be used.
    PhysicalVolume(Result<PhysicalVolume, LabelError>),
    /// A file system, swap space or an encrypted volume.
    Filesystem(Filesystem),
}

/// Looks at a device of `size` bytes. `sector_bytes` is its logical block size, if that is known.
///
/// A GPT counts before all else, since what others left at its place would have destroyed it; an MBR after all else, since
/// file systems' first sectors look like one.
pub fn identify(
    size: u64,
    sector_bytes: Option<u32>,
    mut get: impl FnMut(u64, u64) -> Vec<u8>,
) -> Content {
    let table = lapstrake_partitions::read(size, sector_bytes, &mut get);
    if let Some(table) = table.as_ref().filter(|table| table.scheme == Scheme::Gpt) {
        return Content::Table(table.clone());
    }
    if let Some(volume) = label::read(size, &mut get) {
        return Content::PhysicalVolume(volume);
    }
    if let Some(filesystem) = filesystem::read(size, &mut get) {
        return Content::Filesystem(filesystem);
    }
    table.map_or(Content::Unknown, Content::Table)
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
