//! ext2, ext3 and ext4.
//!
//! Superblocks name their group. With metadata checksums (ext4's default since 2015) each inode's checksum covers its
//! number, which follows from it backwards ([`crc32c`]); the group descriptors say where that inode lies, and the inode
//! of a directory where the directory's first block lies, which begins with the directory's number.
//!
//! Source: the kernel's `Documentation/filesystems/ext4`.

mod links;

use super::{BYTES_MAX, Finding, Seen, Structure, Volume, VolumeKind, finding, grouped, one};
use crate::bytes::{BLOCK, has, id, le16, le32};
use crate::crc32c;
use crate::sample::{Kept, Samples};
use std::collections::{BTreeMap, HashMap};

/// Where a superblock may lie in a block of 4 KiB: the first one lies 1 KiB into the volume.
const SUPERBLOCK_PLACES: [usize; 2] = [0, 1024];
const INODE: usize = 256;
const METADATA_CSUM: u32 = 0x400;
const CSUM_SEED: u32 = 0x2000;
const WIDE: u32 = 0x80;
const META_BG: u32 = 0x10;

/// What of a superblock is of use.
#[derive(Clone, Debug)]
struct Superblock {
    uuid: [u8; 16],
    block: u64,
    blocks: u64,
    first_block: u64,
    group_blocks: u64,
    group_inodes: u32,
    inodes: u32,
    inode_bytes: u64,
    group: u64,
    descriptor: usize,
    has_checksums: bool,
    is_meta_bg: bool,
    seed: u32,
}

impl Superblock {
    fn parse(sb: &[u8]) -> Option<Self> {
        let (incompat, log) = (le32(sb, 0x60), le32(sb, 0x18));
        if !has(sb, 0x38, &[0x53, 0xef]) || log > 6 || le32(sb, 0x4c) > 1 {
            return None;
        }
        let block = 1024u64 << log;
        let is_wide = incompat & WIDE != 0;
        let high = if is_wide { u64::from(le32(sb, 0x150)) << 32 } else { 0 };
        let uuid = id(sb, 0x68);
        let is_old = le32(sb, 0x4c) == 0;
        let found = Self {
            uuid,
            block,
            blocks: u64::from(le32(sb, 4)) | high,
            first_block: le32(sb, 0x14).into(),
            group_blocks: le32(sb, 0x20).into(),
            group_inodes: le32(sb, 0x28),
            inodes: le32(sb, 0),
            inode_bytes: if is_old { 128 } else { le16(sb, 0x58).into() },
            group: le16(sb, 0x5a).into(),
            descriptor: if is_wide { usize::from(le16(sb, 0xfe)).clamp(32, 1024) } else { 32 },
            has_checksums: le32(sb, 0x64) & METADATA_CSUM != 0,
            is_meta_bg: incompat & META_BG != 0,
            seed: if incompat & CSUM_SEED != 0 {
                le32(sb, 0x270)
            } else {
                crc32c::forward(!0, &uuid)
            },
        };
        let is_sound = (1..=8 * block).contains(&found.group_blocks)
            && found.group_inodes > 0
            && found.first_block == u64::from(log == 0)
            && found.group * found.group_blocks < found.blocks
            && (128..=block.min(BLOCK as u64)).contains(&found.inode_bytes)
            && found.inode_bytes.is_power_of_two()
            && found.blocks.checked_mul(block).is_some_and(|bytes| bytes < BYTES_MAX)
            && !found.has_checksums | (crc32c::forward(!0, &sb[..0x3fc]) == le32(sb, 0x3fc));
        is_sound.then_some(found)
    }

    fn groups(&self) -> u64 {
        (self.blocks - self.first_block).div_ceil(self.group_blocks)
    }

    /// Where a group begins, bytes into the volume.
    fn group_start(&self, group: u64) -> u64 {
        (self.first_block + group * self.group_blocks) * self.block
    }

    /// Where this superblock lies.
    fn place(&self) -> u64 {
        if self.group == 0 { 1024 } else { self.group_start(self.group) }
    }
}

fn superblocks(kept: &[Kept]) -> impl Iterator<Item = (&Kept, u64, Superblock)> {
    kept.iter().flat_map(|kept| {
        SUPERBLOCK_PLACES.into_iter().filter_map(move |from| {
            let bytes = kept.bytes.get(from..from + 1024)?;
            Some((kept, from as u64, Superblock::parse(bytes)?))
        })
    })
}

pub(super) fn is_superblock(block: &[u8]) -> bool {
    SUPERBLOCK_PLACES
        .iter()
        .any(|&from| block.get(from..from + 1024).is_some_and(|sb| Superblock::parse(sb).is_some()))
}

pub(super) fn is_of_interest(block: &[u8]) -> bool {
    let is_inode = block.chunks_exact(INODE).any(is_inode);
    is_inode
        || block.chunks_exact(1024).any(|part| directory(part).is_some())
        || links::is_table(block)
}

/// A used inode with room for a checksum.
fn is_inode(inode: &[u8]) -> bool {
    let extra = le16(inode, 128);
    let is_type = matches!(le16(inode, 0) >> 12, 1 | 2 | 4 | 6 | 8 | 10 | 12);
    is_type
        && (4..=128).contains(&extra)
        && extra.is_multiple_of(4)
        && (1..=65000).contains(&le16(inode, 26))
        && le32(inode, 20) == 0
}

/// The number that a directory's first block says the directory has.
fn directory(part: &[u8]) -> Option<u32> {
    let is_dots = has(part, 4, &[12, 0, 1]) && has(part, 8, b".\0\0\0") && has(part, 20, b"..");
    (is_dots && part[18] == 2 && le32(part, 0) != 0).then(|| le32(part, 0))
}

/// The number that an inode's checksum says it has.
fn number(sb: &Superblock, inode: &[u8]) -> Option<u32> {
    let stored = u32::from(le16(inode, 124)) | u32::from(le16(inode, 130)) << 16;
    let mut bytes = inode.to_vec();
    bytes[124..126].fill(0);
    bytes[130..132].fill(0);
    let after = crc32c::backward(stored, &bytes);
    let after = crc32c::backward(after, &inode[100..104]);
    let number = crc32c::between(sb.seed, after);
    (1..=sb.inodes).contains(&number).then_some(number)
}

/// Where each group's inode table begins, as far as known, by block number.
type Tables = HashMap<u64, u64>;

/// Reads the group descriptors behind a superblock, if they lie behind it or beside it on another device.
fn tables(samples: &Samples<'_>, kept: &Kept, from: u64, sb: &Superblock, tables: &mut Tables) {
    if sb.is_meta_bg {
        return;
    }
    // The descriptors begin in the block after the superblock's.
    let start =
        (kept.at + from) / sb.block * sb.block + if sb.block == 1024 { 1024 } else { sb.block };
    let each = sb.block as usize / sb.descriptor;
    for device in [kept.device].into_iter().chain(0..samples.devices()) {
        for row in [0, sb.block] {
            for index in 0..sb.groups().div_ceil(each as u64) {
                if tables.contains_key(&(index * each as u64)) {
                    continue;
                }
                let place = (start - row) + index * sb.block;
                let Some(block) = samples.bytes(device, place, sb.block as usize) else { break };
                if !read_descriptors(sb, index * each as u64, &block, tables) {
                    break;
                }
            }
        }
    }
}

fn read_descriptors(sb: &Superblock, first: u64, block: &[u8], tables: &mut Tables) -> bool {
    let descriptors = block.chunks_exact(sb.descriptor).zip(first..sb.groups());
    let mut found = Vec::new();
    for (bytes, group) in descriptors {
        let high = if sb.descriptor >= 64 { u64::from(le32(bytes, 0x28)) << 32 } else { 0 };
        let table = u64::from(le32(bytes, 8)) | high;
        let is_sound = table > 0 && table < sb.blocks && u64::from(le32(bytes, 0)) < sb.blocks;
        if !is_sound || sb.has_checksums && !is_summed(sb, group, bytes) {
            return false;
        }
        found.push((group, table));
    }
    tables.extend(found.iter().copied());
    !found.is_empty()
}

fn is_summed(sb: &Superblock, group: u64, descriptor: &[u8]) -> bool {
    let mut bytes = descriptor.to_vec();
    bytes[0x1e..0x20].fill(0);
    let state = crc32c::forward(sb.seed, &(group as u32).to_le_bytes());
    crc32c::forward(state, &bytes) as u16 == le16(descriptor, 0x1e)
}

/// Where an inode lies in the volume.
fn inode_place(sb: &Superblock, tables: &Tables, number: u32) -> Option<u64> {
    let (group, index) = ((number - 1) / sb.group_inodes, (number - 1) % sb.group_inodes);
    let table = tables.get(&group.into())?;
    Some(table * sb.block + u64::from(index) * sb.inode_bytes)
}

/// The first block of what an inode holds.
fn first_block(inode: &[u8]) -> Option<u64> {
    const EXTENTS: u32 = 0x8_0000;
    let map = inode.get(40..100)?;
    if le32(inode, 32) & EXTENTS == 0 {
        return Some(le32(map, 0).into()).filter(|block| *block > 0);
    }
    let is_leaf = has(map, 0, &[0x0a, 0xf3]) && le16(map, 6) == 0 && le16(map, 2) > 0;
    let start = u64::from(le16(map, 18)) << 32 | u64::from(le32(map, 20));
    (is_leaf && le32(map, 12) == 0).then_some(start)
}

pub(super) fn find(samples: &Samples<'_>) -> Vec<Seen> {
    let mut by_id: BTreeMap<[u8; 16], (Superblock, Tables, Vec<Finding>)> = BTreeMap::new();
    for (kept, from, sb) in superblocks(&samples.kept) {
        let known = by_id.entry(sb.uuid).or_insert_with(|| (sb.clone(), Tables::new(), Vec::new()));
        known.2.push(finding(kept, from, Structure::Superblock, one(sb.place())));
        if (known.1.len() as u64) < sb.groups() {
            tables(samples, kept, from, &sb, &mut known.1);
        }
        if sb.blocks > known.0.blocks {
            known.0 = sb;
        }
    }
    let seen = by_id.into_values().map(|(sb, tables, mut findings)| {
        if sb.has_checksums && sb.inode_bytes == INODE as u64 {
            let directories = inodes(&samples.kept, &sb, &tables, &mut findings);
            blocks_of(&samples.kept, &sb, &directories, &mut findings);
        } else {
            links::find(&samples.kept, &sb, &tables, &mut findings);
        }
        let bytes = sb.blocks * sb.block;
        let volume = Volume { kind: VolumeKind::Ext, id: sb.uuid, bytes, inner: Vec::new() };
        grouped(volume, findings)
    });
    seen.collect()
}

/// Finds inodes, and gives the first blocks of directories by their numbers.
fn inodes(
    kept: &[Kept],
    sb: &Superblock,
    tables: &Tables,
    findings: &mut Vec<Finding>,
) -> HashMap<u32, Vec<u64>> {
    let mut directories: HashMap<u32, Vec<u64>> = HashMap::new();
    for kept in kept {
        let mut part_done = None;
        for (slot, inode) in
            kept.bytes[..kept.bytes.len().min(BLOCK)].chunks_exact(INODE).enumerate()
        {
            if !is_inode(inode) {
                continue;
            }
            let Some(number) = number(sb, inode) else { continue };
            let place = inode_place(sb, tables, number);
            // Tables lie at whole blocks, so that a right number fits its place in the block.
            let inside = (slot * INODE) as u64;
            let Some(place) = place.filter(|place| place % 1024 == inside % 1024) else { continue };
            if le16(inode, 0) >> 12 == 4 {
                directories.entry(number).or_default().extend(first_block(inode));
            }
            // One of each KiB tells all that its neighbours would.
            if part_done != Some(slot / 4) {
                part_done = Some(slot / 4);
                findings.push(finding(kept, inside, Structure::InodeTable, one(place)));
            }
        }
    }
    directories
}

fn blocks_of(
    kept: &[Kept],
    sb: &Superblock,
    directories: &HashMap<u32, Vec<u64>>,
    findings: &mut Vec<Finding>,
) {
    for kept in kept {
        for (index, part) in kept.bytes.chunks_exact(1024).enumerate() {
            let Some(number) = directory(part) else { continue };
            for block in directories.get(&number).into_iter().flatten() {
                let claim = one(block.saturating_mul(sb.block));
                findings.push(finding(kept, index as u64 * 1024, Structure::Directory, claim));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume;

    /// A superblock without checksums at the first KiB of 16 KiB, and all 4 KiB behind it full of inodes of directories.
    fn device(inode_bytes: u16, change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut bytes = vec![0; 16 << 10];
        let sb = &mut bytes[1024..2048];
        let mut put = |at: usize, field: &[u8]| sb[at..at + field.len()].copy_from_slice(field);
        put(0, &4096u32.to_le_bytes());
        put(4, &4096u32.to_le_bytes());
        put(0x18, &2u32.to_le_bytes());
        put(0x20, &4096u32.to_le_bytes());
        put(0x28, &4096u32.to_le_bytes());
        put(0x38, &[0x53, 0xef]);
        put(0x4c, &1u32.to_le_bytes());
        put(0x58, &inode_bytes.to_le_bytes());
        put(0x68, &[7; 16]);
        change(sb);
        for inode in bytes[4096..8192].chunks_exact_mut(usize::from(inode_bytes).max(32)) {
            inode[..2].copy_from_slice(&0x41edu16.to_le_bytes());
            inode[4..8].copy_from_slice(&4096u32.to_le_bytes());
            inode[26] = 2;
            if let Some(first) = inode.get_mut(40) {
                *first = 3;
            }
        }
        bytes
    }

    fn seen(bytes: Vec<u8>) -> Vec<Seen> {
        let sources: [&dyn crate::Source; 1] = [&bytes];
        volume::find(&Samples::read(&sources, u64::MAX, volume::is_of_interest, |_, _| {}))
    }

    #[test]
    fn a_superblock_with_inodes_of_an_impossible_size_is_none() {
        for inode_bytes in [0, 1, 32, 64, 8192, 1 << 15] {
            assert_eq!(seen(device(inode_bytes, |_| ())).len(), 0, "{inode_bytes}");
        }
        for inode_bytes in [128, 256, 4096] {
            assert_eq!(seen(device(inode_bytes, |_| ())).len(), 1, "{inode_bytes}");
        }
    }

    #[test]
    fn a_superblock_that_tells_more_bytes_than_there_can_be_is_none() {
        let is_wide = |sb: &mut [u8]| sb[0x60] = WIDE as u8;
        assert_eq!(seen(device(256, is_wide)).len(), 1);
        let is_huge = |sb: &mut [u8]| {
            is_wide(sb);
            sb[0x150..0x154].fill(0xff);
        };
        assert_eq!(seen(device(256, is_huge)).len(), 0);
    }

    #[test]
    fn the_last_inode_numbers_have_none_behind_them() {
        let mut bytes = device(128, |sb| sb[..4].fill(0xff));
        let directory = &mut bytes[12 << 10..][..32];
        directory[..4].copy_from_slice(&(u32::MAX - 30).to_le_bytes());
        directory[4..8].copy_from_slice(&[12, 0, 1, 2]);
        directory[8] = b'.';
        directory[18] = 2;
        directory[20..22].copy_from_slice(b"..");
        // Under this group's size the number is near the block that the inodes tell.
        bytes[1024 + 0x28..1024 + 0x2c].fill(0xff);
        assert_eq!(seen(bytes).len(), 1);
    }

    /// By hash the order of volumes with equally many structures changed from run to run.
    #[test]
    fn volumes_are_told_in_order_of_their_uuids() {
        let volume = |id: u8| device(256, |sb| sb[0x68..0x78].fill(id));
        let bytes: Vec<u8> = (1..=12).rev().flat_map(volume).collect();
        let ids: Vec<u8> = seen(bytes).iter().map(|seen| seen.volume.id[0]).collect();
        assert_eq!(ids, (1..=12).collect::<Vec<u8>>());
    }
}
