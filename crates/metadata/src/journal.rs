//! The journal of raid4, 5 and 6 (md's raid5-cache): meta blocks to values and back.
//!
//! The journal is a ring over the data of one member. A *unit* of it is a meta block of 4 KiB and
//! the blocks that its payloads describe, in order, right behind it; positions count sectors from the
//! journal's data offset, and what would go beyond the ring's end goes on at its beginning.
//! Units follow each other without a gap, each with the next sequence number. The superblock's
//! `journal_tail` says where the oldest one is that may be needed.
//!
//! Checksums are crc32c without the final inversion, begun with that of the array's uuid ([`Seed`]);
//! little-endian throughout (the kernel's `include/uapi/linux/raid/md_p.h` and
//! `drivers/md/raid5-cache.c`).
//!
//! Invariants: a [`Meta`] that was parsed encodes to bytes that parse to it again; its blocks, as many as
//! [`Meta::blocks`] says, fit behind it in the ring.

use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::Sectors;
use thiserror::Error;

use crate::{
    crc32c::crc32c,
    wire::{ByteOrder, Field, on_disk},
};

/// `magic` of a meta block.
pub const MAGIC: u32 = 0x6433_c509;
/// The only `version`.
pub const VERSION: u8 = 1;
/// Bytes of a meta block, and of each block that it describes.
pub const BLOCK_BYTES: usize = 4096;
/// The same in sectors.
pub const BLOCK: Sectors = Sectors(8);
/// By how much the sequence skips at each start, so that units left over from before never seem to follow.
pub const SEQ_SKIP: u64 = 10_000;

const DATA: u16 = 0;
const PARITY: u16 = 1;
const FLUSH: u16 = 2;
/// The only flag: of a flush payload.
const FLUSH_STRIPE: u16 = 1;

on_disk! {
    /// The fixed part of a meta block.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Head {
        /// [`MAGIC`].
        0 magic: u32,
        /// Of the whole block with zeros here.
        4 checksum: u32,
        /// [`VERSION`].
        8 version: u8,
        /// 0.
        9 pad: [u8; 3],
        /// Bytes used, these included.
        12 meta_size: u32,
        /// One more than in the unit before.
        16 seq: u64,
        /// Its own place.
        24 position: u64,
        = 32
    }
}

on_disk! {
    /// The fixed part of a payload; checksums or sectors follow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PayloadHead {
        /// 0 data, 1 parity, 2 flush.
        0 kind: u16,
        /// 1 in a flush: the stripes were written to the members.
        2 flags: u16,
        /// Sectors; of a flush, bytes that follow.
        4 size: u32,
        = 8
    }
}

/// Bytes of a data or parity payload of one block; each block more takes four.
const PAYLOAD_BYTES: usize = PayloadHead::SIZE + 8 + 4;

/// Where the checksums of one array's journal begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The journal's of the array with this uuid.
    #[must_use]
    pub fn new(set_uuid: [u8; 16]) -> Self {
        Self(crc32c(u32::MAX, &set_uuid))
    }

    /// The checksum of a block.
    #[must_use]
    pub fn checksum(self, block: &[u8]) -> u32 {
        crc32c(self.0, block)
    }
}

/// What a meta block says of the blocks behind it, or of stripes that need none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// New data.
    Data {
        /// The array sector; a multiple of a block's.
        sector: u64,
        /// Of each block.
        checksums: Vec<u32>,
    },
    /// The parity that goes with data before it: P, on raid6 also Q.
    Parity {
        /// The sector of the row on each member, from its data offset.
        sector: u64,
        /// Of each block.
        checksums: Vec<u32>,
    },
    /// Rows that the members hold: nothing before this is to be written there.
    Flush {
        /// The rows' sectors on each member.
        sectors: Vec<u64>,
    },
}

impl Payload {
    /// Blocks that follow the meta block for it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => checksums.len() as u64,
            Self::Flush { .. } => 0,
        }
    }

    /// Bytes that it takes in the meta block.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Flush { sectors } => PayloadHead::SIZE + 8 * sectors.len(),
            _ => PAYLOAD_BYTES - 4 + 4 * self.blocks() as usize,
        }
    }

    fn encode_into(&self, bytes: &mut [u8]) {
        let order = ByteOrder::Little;
        let (kind, flags, size) = match self {
            Self::Data { .. } => (DATA, 0, self.blocks() as u32 * BLOCK.0 as u32),
            Self::Parity { .. } => (PARITY, 0, self.blocks() as u32 * BLOCK.0 as u32),
            Self::Flush { sectors } => (FLUSH, FLUSH_STRIPE, 8 * sectors.len() as u32),
        };
        let (head, rest) = bytes.split_at_mut(PayloadHead::SIZE);
        let head: &mut [u8; PayloadHead::SIZE] = head.try_into().expect("split there");
        PayloadHead { kind, flags, size }.encode_into(head, order);
        match self {
            Self::Data { sector, checksums } | Self::Parity { sector, checksums } => {
                sector.put(&mut rest[..8], order);
                for (checksum, place) in checksums.iter().zip(rest[8..].chunks_exact_mut(4)) {
                    checksum.put(place, order);
                }
            }
            Self::Flush { sectors } => {
                for (sector, place) in sectors.iter().zip(rest.chunks_exact_mut(8)) {
                    sector.put(place, order);
                }
            }
        }
    }
}

/// A meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// One more than in the unit before.
    pub seq: u64,
    /// Its own place in the ring.
    pub position: u64,
    /// What it describes.
    pub payloads: Vec<Payload>,
}

/// Why bytes are no meta block. Most often that is simply the end of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MetaError {
    /// Not as many bytes as a block has.
    #[error("{found} bytes are no journal block")]
    Length {
        /// Bytes given.
        found: usize,
    },
    /// Another magic.
    #[error("no journal block: magic {found:#x}")]
    Magic {
        /// As stored.
        found: u32,
    },
    /// Another version.
    #[error("journal block of version {found}")]
    Version {
        /// As stored.
        found: u8,
    },
    /// It was written for another place.
    #[error("journal block for position {found}, at {expected}")]
    Position {
        /// As stored.
        found: u64,
        /// Where it was read.
        expected: u64,
    },
    /// The checksum does not fit.
    #[error("journal block with checksum {stored:#x}, {computed:#x} is right")]
    Checksum {
        /// As stored.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// More bytes used than there are, or fewer than every block has.
    #[error("journal block with {found} bytes in use")]
    MetaSize {
        /// As stored.
        found: u32,
    },
    /// A payload of a kind, size or place that cannot be.
    #[error("journal block with a payload at byte {offset} that cannot be")]
    Payload {
        /// Where it begins.
        offset: usize,
    },
    /// More blocks than the ring has.
    #[error("journal block that describes {found} more, in a ring of {room}")]
    Blocks {
        /// As it says.
        found: u64,
        /// Blocks of the ring.
        room: u64,
    },
}

impl Meta {
    /// Bytes for payloads in one.
    pub const ROOM: usize = BLOCK_BYTES - Head::SIZE;

    /// Reads a block found at `position` of a ring of `ring` sectors.
    ///
    /// # Errors
    /// [`MetaError`]: for any bytes, one of these or a value.
    pub fn parse(
        bytes: &[u8],
        seed: Seed,
        position: u64,
        ring: Sectors,
    ) -> Result<Self, MetaError> {
        let block: &[u8; BLOCK_BYTES] =
            bytes.try_into().map_err(|_| MetaError::Length { found: bytes.len() })?;
        let (head, _) = block.split_first_chunk().expect("a block is longer");
        let head = Head::decode(head, ByteOrder::Little);
        if head.magic != MAGIC {
            return Err(MetaError::Magic { found: head.magic });
        }
        if head.version != VERSION {
            return Err(MetaError::Version { found: head.version });
        }
        if head.position != position {
            return Err(MetaError::Position { found: head.position, expected: position });
        }
        let computed = checksum(block, seed);
        if head.checksum != computed {
            return Err(MetaError::Checksum { stored: head.checksum, computed });
        }
        let used = head.meta_size as usize;
        if !(Head::SIZE..=BLOCK_BYTES).contains(&used) {
            return Err(MetaError::MetaSize { found: head.meta_size });
        }
        let payloads = payloads(&block[..used])?;
        let meta = Self { seq: head.seq, position, payloads };
        let room = ring.0 / BLOCK.0;
        if meta.blocks() >= room {
            return Err(MetaError::Blocks { found: meta.blocks(), room });
        }
        Ok(meta)
    }

    /// The block to write.
    ///
    /// # Panics
    /// If the payloads take more than [`Meta::ROOM`].
    #[must_use]
    pub fn encode(&self, seed: Seed) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        let mut at = Head::SIZE;
        for payload in &self.payloads {
            payload.encode_into(&mut bytes[at..at + payload.bytes()]);
            at += payload.bytes();
        }
        let head = Head {
            magic: MAGIC,
            checksum: 0,
            version: VERSION,
            pad: [0; 3],
            meta_size: at as u32,
            seq: self.seq,
            position: self.position,
        };
        let place: &mut [u8; Head::SIZE] = bytes.first_chunk_mut().expect("a block is longer");
        head.encode_into(place, ByteOrder::Little);
        let sum = seed.checksum(&bytes);
        sum.put(&mut bytes[4..8], ByteOrder::Little);
        bytes
    }

    /// Blocks that follow it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.payloads.iter().map(Payload::blocks).sum()
    }

    /// Sectors of the unit.
    #[must_use]
    pub fn unit(&self) -> Sectors {
        BLOCK * (1 + self.blocks())
    }
}

fn payloads(used: &[u8]) -> Result<Vec<Payload>, MetaError> {
    let mut payloads = Vec::new();
    let mut offset = Head::SIZE;
    while offset < used.len() {
        let error = MetaError::Payload { offset };
        let (head, rest) = used[offset..].split_first_chunk().ok_or(error)?;
        let payload = payload(PayloadHead::decode(head, ByteOrder::Little), rest).ok_or(error)?;
        offset += payload.bytes();
        payloads.push(payload);
    }
    Ok(payloads)
}

/// None if it cannot be.
fn payload(head: PayloadHead, rest: &[u8]) -> Option<Payload> {
    let order = ByteOrder::Little;
    let size = head.size as usize;
    if head.kind == FLUSH {
        let sectors = rest.get(..size).filter(|_| size.is_multiple_of(8))?;
        let sectors = sectors.chunks_exact(8).map(|place| u64::get(place, order)).collect();
        return Some(Payload::Flush { sectors });
    }
    let blocks = size / BLOCK.0 as usize;
    if blocks == 0 || !size.is_multiple_of(BLOCK.0 as usize) {
        return None;
    }
    let sector = u64::get(rest.get(..8)?, order);
    let sums = rest.get(8..8 + 4 * blocks)?;
    let checksums = sums.chunks_exact(4).map(|place| u32::get(place, order)).collect();
    match head.kind {
        _ if !sector.is_multiple_of(BLOCK.0) => None,
        DATA => Some(Payload::Data { sector, checksums }),
        PARITY => Some(Payload::Parity { sector, checksums }),
        _ => None,
    }
}

/// Of a meta block, with its own field taken as 0.
fn checksum(block: &[u8; BLOCK_BYTES], seed: Seed) -> u32 {
    let sum = crc32c(seed.0, &block[..4]);
    crc32c(crc32c(sum, &[0; 4]), &block[8..])
}

/// The ring's size: what a journal's data has in whole blocks.
#[must_use]
pub fn ring(data_size: Sectors) -> Sectors {
    data_size.round_down(BLOCK)
}

/// The least that a ring should have: four rows of the array's stripes, each with its meta block. (md takes
/// any, and stands still where a stripe does not fit.)
#[must_use]
pub fn ring_min(raid_disks: u16) -> Sectors {
    BLOCK * (1 + u64::from(raid_disks)) * 4
}

/// A place `by` further on in a ring.
#[must_use]
pub fn ring_add(ring: Sectors, position: u64, by: Sectors) -> u64 {
    (position + by.0) % ring.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [
        0x0f, 0x52, 0x70, 0x57, 0x4d, 0xe3, 0xfa, 0x78, 0x55, 0xbb, 0x83, 0x1d, 0xbc, 0xd3, 0x65,
        0x55,
    ];
    const RING: Sectors = Sectors(129_024);

    /// A write of one block of a raid5, as Linux 6.1 logged it.
    fn from_the_kernel() -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        let head = "09c5336446fc281a0100000048000000c8c52d6f000000001000000000000000\
                    00000000080000001800000000000000410f10e6\
                    01000000080000001800000000000000410f10e6";
        for (place, digits) in bytes.iter_mut().zip(head.as_bytes().chunks(2)) {
            let digits = core::str::from_utf8(digits).expect("ASCII");
            *place = u8::from_str_radix(digits, 16).expect("hexadecimal");
        }
        bytes
    }

    #[test]
    fn a_block_of_the_kernel_parses_and_encodes_to_itself() {
        let bytes = from_the_kernel();
        let meta = Meta::parse(&bytes, Seed::new(UUID), 16, RING).expect("right");
        let checksums = vec![0xe610_0f41];
        assert_eq!(
            meta,
            Meta {
                seq: 0x6f2d_c5c8,
                position: 16,
                payloads: vec![
                    Payload::Data { sector: 24, checksums: checksums.clone() },
                    Payload::Parity { sector: 24, checksums },
                ],
            }
        );
        assert_eq!(meta.encode(Seed::new(UUID)), bytes);
        assert_eq!(meta.unit(), Sectors(24));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let bytes = from_the_kernel();
        for at in 0..BLOCK_BYTES {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Meta::parse(&changed, Seed::new(UUID), 16, RING).is_err(), "byte {at}");
        }
        let other = Seed::new([1; 16]);
        assert!(matches!(Meta::parse(&bytes, other, 16, RING), Err(MetaError::Checksum { .. })));
        let error = MetaError::Position { found: 16, expected: 24 };
        assert_eq!(Meta::parse(&bytes, Seed::new(UUID), 24, RING), Err(error));
    }

    #[test]
    fn all_payloads_come_back() {
        let meta = Meta {
            seq: u64::MAX,
            position: 0,
            payloads: vec![
                Payload::Parity { sector: 8, checksums: vec![1, 2] },
                Payload::Flush { sectors: vec![8, 16, u64::MAX] },
                Payload::Data { sector: 1 << 40, checksums: vec![3] },
                Payload::Flush { sectors: vec![] },
            ],
        };
        let seed = Seed::new([7; 16]);
        assert_eq!(Meta::parse(&meta.encode(seed), seed, 0, RING), Ok(meta.clone()));
        let error = MetaError::Blocks { found: 3, room: 3 };
        assert_eq!(Meta::parse(&meta.encode(seed), seed, 0, Sectors(24)), Err(error));
    }
}
