//! XFS.
//!
//! An allocation group's headers tell its number. Since version 5 (2014) every block of metadata has a header with its
//! own address and the volume's UUID, and every inode its number, which is its address.
//!
//! Source: the XFS Algorithms & Data Structures book (xfs.wiki.kernel.org).

use super::{BYTES_MAX, Finding, Seen, Structure, Volume, VolumeKind, finding, grouped, one};
use crate::bytes::{be16, be32, be64, has, id};
use crate::sample::Kept;

/// Magic numbers of blocks, where the magic lies, where the block's address, and where the UUID.
const BLOCKS: [(&[u8], usize, usize, usize); 17] = [
    (b"AB3B", 0, 16, 32),
    (b"AB3C", 0, 16, 32),
    (b"IAB3", 0, 16, 32),
    (b"FIB3", 0, 16, 32),
    (b"RMB3", 0, 16, 32),
    (b"R3FC", 0, 16, 32),
    (b"BMA3", 0, 24, 40),
    (b"XDB3", 0, 8, 24),
    (b"XDD3", 0, 8, 24),
    (b"XDF3", 0, 8, 24),
    (&[0x3e, 0xbe], 8, 16, 32),
    (&[0x3d, 0xf1], 8, 16, 32),
    (&[0x3d, 0xff], 8, 16, 32),
    (&[0x3b, 0xee], 8, 16, 32),
    (b"XSLM", 0, 40, 16),
    (b"XARM", 0, 40, 16),
    (b"XAFD", 0, 16, 32),
];
/// Where an inode tells its number, and where the UUID lies.
const INODE_NUMBER: usize = 152;
const INODE_ID: usize = 160;
/// Headers of an allocation group: magic, where the number lies, which sector of the group it is.
const HEADERS: [(&[u8], usize, u64); 3] = [(b"XAGF", 8, 1), (b"XAGI", 8, 2), (b"XAFL", 4, 3)];

#[derive(Clone, Debug)]
struct Superblock {
    uuids: [[u8; 16]; 2],
    block: u64,
    blocks: u64,
    group_blocks: u64,
    groups: u64,
    sector: u64,
    inode_bytes: u64,
    inode_shift: u8,
    group_shift: u8,
}

impl Superblock {
    fn parse(sb: &[u8]) -> Option<Self> {
        let found = Self {
            uuids: [id(sb, 32), id(sb, 248)],
            block: be32(sb, 4).into(),
            blocks: be64(sb, 8),
            group_blocks: be32(sb, 84).into(),
            groups: be32(sb, 88).into(),
            sector: be16(sb, 102).into(),
            inode_bytes: be16(sb, 104).into(),
            inode_shift: *sb.get(123)?,
            group_shift: *sb.get(124)?,
        };
        let is_sound = has(sb, 0, b"XFSB")
            && (512..=65536).contains(&found.block)
            && found.block.is_power_of_two()
            && (512..=32768).contains(&found.sector)
            && found.group_blocks > 0
            && found.groups > 0
            && found.inode_shift < 16
            && found.group_shift <= 32
            && found.blocks <= found.group_blocks.saturating_mul(found.groups);
        // All that follows from it then fits into 64 bits.
        let bytes = found.group_blocks.saturating_mul(found.groups).saturating_mul(found.block);
        let is_sound = is_sound && bytes < BYTES_MAX;
        is_sound.then_some(found)
    }

    /// Where an allocation group begins, bytes.
    fn group_start(&self, group: u64) -> Option<u64> {
        (group < self.groups).then(|| group * self.group_blocks * self.block)
    }

    fn inode_place(&self, number: u64) -> Option<u64> {
        let start = self.group_start(number >> (self.group_shift + self.inode_shift))?;
        let block = (number >> self.inode_shift) & ((1 << self.group_shift) - 1);
        let index = number & ((1 << self.inode_shift) - 1);
        Some(start + block * self.block + index * self.inode_bytes)
    }

    fn is_mine(&self, bytes: &[u8], at: usize) -> bool {
        self.uuids.contains(&id(bytes, at)) && id(bytes, at) != [0; 16]
    }
}

pub(super) fn is_header(block: &[u8]) -> bool {
    let is_sector = |sector: &[u8]| HEADERS.iter().any(|(magic, ..)| has(sector, 0, magic));
    has(block, 0, b"XFSB") || block.chunks(512).any(is_sector)
}

pub(super) fn is_block(block: &[u8]) -> bool {
    let is_magic = BLOCKS
        .iter()
        .any(|(magic, at, address, _)| has(block, *at, magic) && be64(block, *address) != 0);
    is_magic || is_inode(block)
}

fn is_inode(block: &[u8]) -> bool {
    has(block, 0, b"IN") && block.get(4) == Some(&3) && be64(block, INODE_NUMBER) != 0
}

/// Of an allocation group's headers in a block, which are of a volume that has `sb`.
fn headers(kept: &Kept, sb: &Superblock, findings: &mut Vec<Finding>) {
    for (index, sector) in kept.bytes.chunks(512).enumerate() {
        for (magic, at, place) in HEADERS {
            if !has(sector, 0, magic) || has(sector, 0, b"XAGF") && !is_group(sector, sb) {
                continue;
            }
            if let Some(start) = sb.group_start(be32(sector, at).into()) {
                let claim = one(start + place * sb.sector);
                findings.push(finding(kept, index as u64 * 512, Structure::Superblock, claim));
            }
        }
    }
}

/// Whether a header's group is as long as this volume's are.
fn is_group(sector: &[u8], sb: &Superblock) -> bool {
    let (number, length) = (u64::from(be32(sector, 8)), u64::from(be32(sector, 12)));
    length == sb.group_blocks || number + 1 == sb.groups && length < sb.group_blocks
}

pub(super) fn find(kept: &[Kept]) -> Vec<Seen> {
    let mut volumes: Vec<Superblock> = Vec::new();
    for sb in kept.iter().filter_map(|kept| Superblock::parse(&kept.bytes)) {
        if !volumes.iter().any(|known| known.uuids[0] == sb.uuids[0]) {
            volumes.push(sb);
        }
    }
    volumes.iter().map(|sb| of_volume(kept, sb)).collect()
}

fn of_volume(kept: &[Kept], sb: &Superblock) -> Seen {
    let mut findings = Vec::new();
    for kept in kept {
        let bytes = &kept.bytes;
        headers(kept, sb, &mut findings);
        for (magic, at, address, uuid) in BLOCKS {
            if has(bytes, at, magic) && sb.is_mine(bytes, uuid) {
                let claim = one(be64(bytes, address).saturating_mul(512));
                findings.push(finding(kept, 0, Structure::Node, claim));
            }
        }
        if is_inode(bytes)
            && sb.is_mine(bytes, INODE_ID)
            && let Some(place) = sb.inode_place(be64(bytes, INODE_NUMBER))
        {
            findings.push(finding(kept, 0, Structure::InodeTable, one(place)));
        }
    }
    let bytes = sb.blocks * sb.block;
    let volume = Volume { kind: VolumeKind::Xfs, id: sb.uuids[0], bytes, inner: Vec::new() };
    grouped(volume, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Samples;
    use crate::volume;

    /// A superblock and, 4 KiB behind it, a header of the last group and a block of metadata at the last address.
    fn device(group_blocks: u32, groups: u32) -> Vec<u8> {
        let mut bytes = vec![0; 12 << 10];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, b"XFSB");
        put(4, &4096u32.to_be_bytes());
        put(8, &1000u64.to_be_bytes());
        put(32, &[9; 16]);
        put(84, &group_blocks.to_be_bytes());
        put(88, &groups.to_be_bytes());
        put(102, &512u16.to_be_bytes());
        put(104, &512u16.to_be_bytes());
        put(4096, b"XAGI");
        put(4096 + 8, &(groups - 1).to_be_bytes());
        put(8192, b"AB3B");
        put(8192 + 16, &[0xff; 8]);
        put(8192 + 32, &[9; 16]);
        bytes
    }

    fn seen(bytes: Vec<u8>) -> Vec<Seen> {
        let sources: [&dyn crate::Source; 1] = [&bytes];
        volume::find(&Samples::read(&sources, u64::MAX, volume::is_of_interest, |_, _| {}))
    }

    #[test]
    fn addresses_beyond_any_volume_place_nothing() {
        let seen_of = |group_blocks, groups| seen(device(group_blocks, groups));
        let sound = seen_of(1000, 4);
        assert_eq!(sound.len(), 1);
        let claims = sound[0].groups.iter().flat_map(|group| group.claims.iter().copied());
        assert_eq!(claims.collect::<Vec<u64>>(), [3 * 1000 * 4096 + 1024]);
        assert_eq!(seen_of(u32::MAX, u32::MAX).len(), 0, "more bytes than there can be");
    }
}
