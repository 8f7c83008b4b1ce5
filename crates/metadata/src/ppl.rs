//! The partial parity log of a raid5 member: what has to be known to make parity fit data again after
//! a power cut, of the stripes whose parity the member holds.
//!
//! On disk: units of a header (4096 bytes, little-endian) and the partial parity of its entries, one
//! behind the other. A large area is a ring of units, each with a higher generation than the one
//! before; a small one holds one unit. Only the last unit counts: md sends it when every
//! write that the one before describes has ended.
//!
//! An entry describes a write to chunks of one stripe that follow each other. Its partial parity is the
//! XOR of the data that was not written, so parity is the XOR of that and of what the written chunks
//! hold now. None is kept when every chunk was written.
//!
//! Field names: the kernel's `include/uapi/linux/raid/md_p.h`.

use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::Sectors;
use thiserror::Error;

use crate::crc32c::crc32c;
use crate::wire::{ByteOrder, on_disk};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 4096;
/// Sectors of a header.
pub const HEADER: Sectors = Sectors(8);
/// Most slots of an array with such logs.
pub const DISKS_MAX: u32 = 64;
/// Most entries of a header.
pub const ENTRIES_MAX: usize = 148;
/// Most partial parity of a unit in a ring, sectors.
const RING_UNIT: Sectors = Sectors(256);
/// Where the entries begin.
const ENTRIES_AT: usize = Fixed::SIZE;
/// Partial parity goes by what md calls a page.
const PAGE: Sectors = Sectors(8);

on_disk! {
    /// A header without its entries.
    #[derive(Clone, Debug)]
    pub struct Fixed {
        /// Ones.
        0 reserved: [u8; 512],
        /// Whose log it is: [`signature`].
        512 signature: u32,
        /// 0.
        516 padding: u32,
        /// Grows from unit to unit.
        520 generation: u64,
        /// How many entries follow.
        528 entries_count: u32,
        /// Of the header, taken with 0 here.
        532 checksum: u32,
        = 536
    }
}

on_disk! {
    /// A write to chunks of one stripe that follow each other.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Entry {
        /// First array sector written.
        0 data_sector: u64,
        /// Bytes of partial parity: the write's height in its chunks, or 0 if all chunks were written.
        8 pp_size: u32,
        /// Bytes written, in all chunks together.
        12 data_size: u32,
        /// The slot that holds the stripe's parity.
        16 parity_disk: u32,
        /// Of the partial parity.
        20 checksum: u32,
        = 24
    }
}

const _: () = assert!(ENTRIES_AT + ENTRIES_MAX * Entry::SIZE <= HEADER_BYTES);

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PplError {
    /// Less than a header.
    #[error("partial parity log header of {found} bytes, {HEADER_BYTES} needed")]
    Truncated {
        /// Bytes given.
        found: usize,
    },
    /// It was written in part, or by nobody.
    #[error("partial parity log header with checksum {stored:#x}, computed {computed:#x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
    /// More entries than a header has room for.
    #[error("partial parity log header with {found} entries, {ENTRIES_MAX} possible")]
    Entries {
        /// As stored.
        found: u32,
    },
}

/// A unit's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose log it is: [`signature`].
    pub signature: u32,
    /// Grows from unit to unit.
    pub generation: u64,
    /// At most [`ENTRIES_MAX`].
    pub entries: Vec<Entry>,
}

/// The mark of an array's logs.
#[must_use]
pub fn signature(set_uuid: [u8; 16]) -> u32 {
    checksum(&set_uuid)
}

/// The log's sum over partial parity, or over a header whose checksum is 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    !crc32c(!0, bytes)
}

impl Header {
    /// The header that an area without anything to replay begins with.
    #[must_use]
    pub fn empty(signature: u32) -> Self {
        Self { signature, generation: 0, entries: Vec::new() }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`PplError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PplError> {
        let bytes: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or(PplError::Truncated { found: bytes.len() })?;
        let (fixed, entries) = bytes.split_first_chunk().expect("shorter than a header");
        let fixed = Fixed::decode(fixed, ByteOrder::Little);
        let mut blank = *bytes;
        blank[532..536].fill(0);
        let (stored, computed) = (fixed.checksum, checksum(&blank));
        if stored != computed {
            return Err(PplError::Checksum { stored, computed });
        }
        let found = fixed.entries_count;
        if found as usize > ENTRIES_MAX {
            return Err(PplError::Entries { found });
        }
        let entries = entries.as_chunks::<{ Entry::SIZE }>().0.iter().take(found as usize);
        Ok(Self {
            signature: fixed.signature,
            generation: fixed.generation,
            entries: entries.map(|entry| Entry::decode(entry, ByteOrder::Little)).collect(),
        })
    }

    /// The bytes to write, with the right checksum.
    ///
    /// # Panics
    /// With more than [`ENTRIES_MAX`] entries.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.entries.len() <= ENTRIES_MAX, "a header has room for {ENTRIES_MAX} entries");
        let mut bytes = [0; HEADER_BYTES];
        let mut fixed = Fixed {
            reserved: [0xff; 512],
            signature: self.signature,
            padding: 0,
            generation: self.generation,
            entries_count: self.entries.len() as u32,
            checksum: 0,
        };
        let (head, entries) = bytes.split_first_chunk_mut().expect("shorter than a header");
        fixed.encode_into(head, ByteOrder::Little);
        let places = entries.as_chunks_mut::<{ Entry::SIZE }>().0;
        for (entry, place) in self.entries.iter().zip(places) {
            entry.encode_into(place, ByteOrder::Little);
        }
        fixed.checksum = checksum(&bytes);
        let (head, _) = bytes.split_first_chunk_mut().expect("shorter than a header");
        fixed.encode_into(head, ByteOrder::Little);
        bytes
    }

    /// Bytes of partial parity behind it.
    #[must_use]
    pub fn partial_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.pp_size)).sum()
    }
}

/// An area with nothing to replay, and nothing left that could be taken for a unit later.
#[must_use]
pub fn empty_area(shape: Shape, set_uuid: [u8; 16]) -> Vec<u8> {
    let mut bytes = Header::empty(signature(set_uuid)).encode().to_vec();
    bytes.resize(shape.size.bytes() as usize, 0);
    bytes
}

/// Where an area's units go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sectors of the area that are used.
    pub size: Sectors,
    /// Most sectors of partial parity in a unit.
    pub unit: Sectors,
    /// Units follow each other; else each takes the place of the one before.
    pub is_ring: bool,
}

impl Shape {
    /// The shape of an area of `size` sectors; none if it is too small for a unit.
    ///
    /// A header's room is left behind every unit: a kernel that does not meet a bad header behind
    /// the last unit takes that unit for one further on (`ppl_load_distributed`, as its source reads).
    #[must_use]
    pub fn of(size: Sectors) -> Option<Self> {
        let size = size.round_down(PAGE);
        let is_ring = size >= (HEADER + RING_UNIT) * 2;
        let room = size.0.saturating_sub(2 * HEADER.0 + PAGE.0);
        let unit = RING_UNIT.min(Sectors(room).round_down(PAGE));
        (!unit.is_zero()).then_some(Self { size, unit, is_ring })
    }

    /// Where a unit goes with `partial` sectors of partial parity, if the last one ended at `next`.
    #[must_use]
    pub fn place(&self, next: Sectors, partial: Sectors) -> Sectors {
        let fits = next + HEADER + partial + HEADER < self.size;
        if self.is_ring && fits { next } else { Sectors::ZERO }
    }
}

/// The unit that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its header.
    pub header: Header,
    /// Where it begins, bytes from the area's start.
    pub at: usize,
}

impl Unit {
    /// Each entry, and where in the area its partial parity lies. What would lie beyond the area ends there.
    pub fn entries<'a>(
        &'a self,
        area: &'a [u8],
    ) -> impl Iterator<Item = (&'a Entry, Range<usize>)> {
        let mut at = self.at + HEADER_BYTES;
        self.header.entries.iter().map(move |entry| {
            let start = at.min(area.len());
            at = at.saturating_add(entry.pp_size as usize);
            (entry, start..at.min(area.len()))
        })
    }
}

/// The last unit of an area, as md finds it: units are followed from the start while they are sound, the
/// array's, and their generation does not fall. None if the first one is not sound.
#[must_use]
pub fn latest(area: &[u8], signature: u32) -> Option<Unit> {
    let mut last: Option<Unit> = None;
    let mut at = 0;
    while at + HEADER_BYTES < area.len() {
        let Ok(header) = Header::parse(&area[at..]) else { break };
        let falls = last.as_ref().is_some_and(|last| last.header.generation > header.generation);
        if header.signature != signature || falls {
            break;
        }
        let next = (at as u64).saturating_add(HEADER_BYTES as u64 + header.partial_bytes());
        last = Some(Unit { header, at });
        at = usize::try_from(next).unwrap_or(usize::MAX).min(area.len());
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// What kernel 6.1 wrote to the log of slot 2 for a 4 KiB write of a new array.
    fn from_kernel() -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..512].fill(0xff);
        let words: [u32; 12] =
            [0xb0d1_7b2e, 0, 1, 0, 1, 0xfb3e_f1c2, 0x28, 0, 0x1000, 0x1000, 2, 0x98f9_4189];
        for (word, place) in words.iter().zip(bytes[512..].chunks_exact_mut(4)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_header_of_the_kernel_is_read_and_made_again() {
        let header = Header::parse(&from_kernel()).unwrap();
        assert_eq!((header.signature, header.generation), (0xb0d1_7b2e, 1));
        let entry = Entry {
            data_sector: 0x28,
            pp_size: 4096,
            data_size: 4096,
            parity_disk: 2,
            checksum: checksum(&[0; 4096]),
        };
        assert_eq!(header.entries, [entry]);
        assert_eq!(header.encode(), from_kernel());
    }

    #[test]
    fn the_empty_header_is_the_kernels() {
        let bytes = Header::empty(0xb0d1_7b2e).encode();
        assert_eq!(bytes[532..536], 0x84ab_e45a_u32.to_le_bytes());
        assert_eq!(Header::parse(&bytes).unwrap(), Header::empty(0xb0d1_7b2e));
    }

    #[test]
    fn what_is_not_sound_is_named() {
        let mut bytes = from_kernel();
        bytes[4000] ^= 1;
        assert!(matches!(Header::parse(&bytes), Err(PplError::Checksum { .. })));
        assert_eq!(Header::parse(&bytes[1..]), Err(PplError::Truncated { found: 4095 }));
        let mut bytes = from_kernel();
        bytes[528] = 149;
        bytes[532..536].fill(0);
        let sum = checksum(&bytes);
        bytes[532..536].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Err(PplError::Entries { found: 149 }));
    }

    fn unit(generation: u64, pp_size: u32) -> Header {
        let entry = Entry { pp_size, data_size: pp_size, ..Entry::default() };
        Header { signature: 7, generation, entries: vec![entry] }
    }

    fn put(area: &mut [u8], at: usize, header: &Header) {
        area[at..at + HEADER_BYTES].copy_from_slice(&header.encode());
    }

    #[test]
    fn the_last_unit_of_a_ring_counts() {
        let mut area = vec![0; 1 << 20];
        assert_eq!(latest(&area, 7), None);
        put(&mut area, 0, &unit(5, 4096));
        put(&mut area, 8192, &unit(6, 512));
        put(&mut area, 12800, &unit(7, 512));
        let at = |area: &[u8]| latest(area, 7).map(|unit| (unit.at, unit.header.generation));
        assert_eq!(at(&area), Some((12800, 7)));
        assert_eq!(latest(&area, 8), None, "another array's");
        put(&mut area, 12800, &unit(4, 512));
        assert_eq!(at(&area), Some((8192, 6)), "left over from the round before");
        area[8192 + 600] ^= 1;
        assert_eq!(at(&area), Some((0, 5)), "torn");
        let found = latest(&area, 7).unwrap();
        assert!(found.entries(&area).map(|(_, range)| range).eq(core::iter::once(4096..8192)));
    }

    #[test]
    fn a_ring_turns_before_its_end() {
        let ring = Shape::of(Sectors(2048)).unwrap();
        assert_eq!(ring, Shape { size: Sectors(2048), unit: Sectors(256), is_ring: true });
        assert_eq!(ring.place(Sectors(0), Sectors(256)), Sectors(0));
        assert_eq!(ring.place(Sectors(1775), Sectors(256)), Sectors(1775));
        assert_eq!(ring.place(Sectors(1776), Sectors(256)), Sectors(0));
        let single = Shape::of(Sectors(128)).unwrap();
        assert_eq!(single, Shape { size: Sectors(128), unit: Sectors(104), is_ring: false });
        assert_eq!(single.place(Sectors(16), Sectors(8)), Sectors(0));
        assert_eq!(Shape::of(Sectors(24)), None);
    }
}
