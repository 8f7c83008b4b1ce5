//! Partition tables of disks and of their images: GPT and MBR with its extended partitions, in sectors of 512 or of 4096
//! bytes. Tables are read, never written.
//!
//! Invariants: any bytes give a table or none; every partition of a table begins behind the table's first sector, is not
//! empty, and ends within 63 bits, though perhaps behind the end of a device that was cut short.
//!
//! What is not done: no table is mended, and none of another kind (BSD, Sun, Apple) is known.

#![no_std]

extern crate alloc;

mod gpt;
mod mbr;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use thiserror::Error;

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// GUID partition table (UEFI specification, chapter 5).
    Gpt,
    /// Master boot record.
    Mbr,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// What a table says that a partition is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// MBR's type byte.
    Mbr(u8),
    /// GPT's type, its bytes as they are stored.
    Gpt([u8; 16]),
}

impl Kind {
    /// Whether it only holds other partitions.
    #[must_use]
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As Linux numbers it: MBR's from 1 to 4, what is in an extended one from 5 on, GPT's by its place in the table.
    pub number: u32,
    /// Its first byte.
    pub start: u64,
    /// Its length, bytes.
    pub size: u64,
    /// What it is for.
    pub kind: Kind,
    /// Its name, in GPT.
    pub name: String,
}

impl Partition {
    /// The byte behind its last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its kind.
    pub scheme: Scheme,
    /// Bytes of the sectors that it counts in. MBR does not say; see [`read`].
    pub sector_bytes: u32,
    /// GPT: the first copy cannot be used, and this is the one at the device's end.
    pub is_backup: bool,
    /// The partitions by number, extended ones too.
    pub partitions: Vec<Partition>,
}

impl Table {
    /// The partition of this number.
    ///
    /// # Errors
    /// There is none that could hold data.
    pub fn partition(&self, number: u32) -> Result<&Partition, PartitionError> {
        let found = self.partitions.iter().find(|partition| partition.number == number);
        let numbers = || self.data().map(|partition| partition.number).collect();
        match found {
            Some(found) if found.kind.is_extended() => Err(PartitionError::Extended { number }),
            Some(found) => Ok(found),
            None => Err(PartitionError::NoSuch { number, numbers: numbers() }),
        }
    }

    /// The partitions that can hold data.
    pub fn data(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|partition| !partition.kind.is_extended())
    }
}

/// Why a partition cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// No table, or none that can be used.
    #[error("there is no partition table that can be used (GPT and MBR are known)")]
    NoTable,
    /// No partition of this number.
    #[error("the partition table has no partition {number}{}", known(.numbers))]
    NoSuch {
        /// The number asked for.
        number: u32,
        /// Numbers that there are.
        numbers: Vec<u32>,
    },
    /// It holds other partitions only.
    #[error("partition {number} is an extended one, which only holds others, from number 5 on")]
    Extended {
        /// Its number.
        number: u32,
    },
}

fn known(numbers: &[u32]) -> String {
    use core::fmt::Write;
    let mut text = String::from("; there is");
    for (place, number) in numbers.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(text, "{comma} {number}");
    }
    if numbers.is_empty() { String::from("; it is empty") } else { text }
}

/// Reads the table of a device of `size` bytes; None if there is none that can be used.
///
/// `get` gives so many bytes from an offset: fewer, perhaps none, at the device's end and where it cannot be read.
/// `sector_bytes` is the device's logical block size, if that is known. Of an image it is not: GPT shows it, and a table of
/// MBR is taken for one of 4096-byte sectors only if all its partitions then begin at whole MiB and lie on the device,
/// and do not begin at whole MiB if sectors have 512 bytes.
pub fn read(
    size: u64,
    sector_bytes: Option<u32>,
    mut get: impl FnMut(u64, u64) -> Vec<u8>,
) -> Option<Table> {
    let first = get(0, 512);
    let first: &[u8; 512] = first.first_chunk()?;
    // As for the kernel: whoever made an MBR over a GPT meant the MBR.
    let (is_protective, is_own) = mbr::claims(first);
    let gpt = if is_own && !is_protective {
        None
    } else {
        gpt::read(size, sector_bytes, is_protective, &mut get)
    };
    gpt.or_else(|| mbr::read(size, sector_bytes, first, &mut get))
}
