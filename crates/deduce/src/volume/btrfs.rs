//! Btrfs.
//!
//! Every tree block's header has the volume's UUID and the block's own address, which the chunk tree translates into
//! one place, or two where metadata is kept twice.
//!
//! Source: btrfs.readthedocs.io, "On-disk format".

use super::{Claims, Finding, Seen, Structure, Volume, VolumeKind, finding, grouped};
use crate::bytes::{BLOCK, has, id, le16, le32, le64};
use crate::crc32c;
use crate::sample::{NODE, Samples};
use std::collections::{BTreeMap, HashMap};

const MAGIC: &[u8] = b"_BHRfS_M";
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const HEADER: usize = 101;
const CHUNK_TREE: u64 = 3;
const CHUNK_ITEM: u8 = 228;
const SUM_TREE: u64 = 7;
const SUM_ITEM: u8 = 128;
/// Checksums of data that are looked for.
const SUMS_MAX: usize = 20_000;

/// From where in the address space: how long, and where its copies begin on the device.
type Chunks = BTreeMap<u64, (u64, Vec<u64>)>;

pub(super) fn is_superblock(block: &[u8]) -> bool {
    has(block, 64, MAGIC)
}

/// A tree block by its flags: written, with back references as they are since 2009.
pub(super) fn is_node(block: &[u8]) -> bool {
    let address = le64(block, 48);
    let is_flags = block.get(63) == Some(&1) && le64(block, 56) & 0x00ff_ffff_ffff_fffc == 0;
    let is_id = id(block, 32) != [0; 16] && id(block, 64) != [0; 16];
    is_flags
        && is_id
        && address != 0
        && address.is_multiple_of(4096)
        && block.get(100).is_some_and(|level| *level < 8)
}

pub(super) fn is_chunk_leaf(block: &[u8]) -> bool {
    is_node(block) && le64(block, 88) == CHUNK_TREE && block.get(100) == Some(&0)
}

pub(super) fn is_sum_leaf(block: &[u8]) -> bool {
    is_node(block) && le64(block, 88) == SUM_TREE && block.get(100) == Some(&0)
}

/// Whether a leaf is whole: where a chunk ends in it, what follows is of another node, and would tell lies.
fn is_whole(leaf: &[u8]) -> bool {
    leaf.get(32..NODE).is_some_and(|bytes| !crc32c::forward(!0, bytes) == le32(leaf, 0))
}

/// Addresses of data blocks by their checksums, which a leaf of the checksum tree lists.
fn sums(leaf: &[u8], most: usize, found: &mut HashMap<u32, u64>) {
    for index in 0..le32(leaf, 96).min(1000) as usize {
        let item = HEADER + 25 * index;
        let data = HEADER + le32(leaf, item + 17) as usize;
        let bytes = leaf.get(data..data + le32(leaf, item + 21) as usize).unwrap_or_default();
        if leaf.get(item + 8) != Some(&SUM_ITEM) {
            continue;
        }
        for (block, sum) in bytes.chunks_exact(4).enumerate().take(most - found.len().min(most)) {
            let address = le64(leaf, item + 9).saturating_add(block as u64 * BLOCK as u64);
            // Blocks with the same contents tell nothing. (Leaves are there twice.)
            let known = found.entry(le32(sum, 0)).or_insert(address);
            if *known != address {
                *known = u64::MAX;
            }
        }
    }
}

/// Reads a chunk item: its length, and what of the bytes it takes.
fn chunk(start: u64, item: &[u8], chunks: &mut Chunks) -> usize {
    let stripes = usize::from(le16(item, 44));
    let places = (0..stripes.min(8)).map(|index| le64(item, 48 + 32 * index + 8)).collect();
    let length = le64(item, 0);
    if length > 0 && stripes > 0 {
        chunks.insert(start, (length, places));
    }
    48 + 32 * stripes
}

/// The system chunks, which a superblock lists.
fn system_chunks(sb: &[u8], chunks: &mut Chunks) {
    let length = le32(sb, 160) as usize;
    let Some(array) = sb.get(811..811 + length.min(2048)) else { return };
    let mut at = 0;
    while at + 65 <= array.len() && array[at + 8] == CHUNK_ITEM {
        at += 17 + chunk(le64(array, at + 9), &array[at + 17..], chunks);
    }
}

/// The chunks of a leaf of the chunk tree, as far as it is there.
fn leaf_chunks(leaf: &[u8], chunks: &mut Chunks) {
    for index in 0..le32(leaf, 96).min(1000) as usize {
        let item = HEADER + 25 * index;
        let (kind, start) = (leaf.get(item + 8).copied(), le64(leaf, item + 9));
        let data = HEADER + le32(leaf, item + 17) as usize;
        if let (Some(CHUNK_ITEM), Some(data)) = (kind, leaf.get(data..)) {
            chunk(start, data, chunks);
        }
    }
}

/// Where an address lies on the device: as often as it is kept.
fn places(chunks: &Chunks, address: u64) -> Claims {
    let Some((start, (length, copies))) = chunks.range(..=address).next_back() else {
        return Claims::new();
    };
    let inside = address - start;
    let is_inside = inside < *length;
    copies.iter().filter(|_| is_inside).map(|copy| copy.saturating_add(inside)).collect()
}

pub(super) fn find(samples: &Samples<'_>) -> Vec<Seen> {
    let kept = &samples.kept;
    let mut volumes: BTreeMap<[u8; 16], (u64, Chunks, Vec<Finding>)> = BTreeMap::new();
    for kept in kept.iter().filter(|kept| is_superblock(&kept.bytes)) {
        let sb = &kept.bytes;
        let address = le64(sb, 48);
        if !SUPERBLOCKS.contains(&address) {
            continue;
        }
        let known = volumes.entry(id(sb, 32)).or_default();
        known.0 = le64(sb, 112);
        system_chunks(sb, &mut known.1);
        let claims = [address].into_iter().collect();
        known.2.push(finding(kept, 0, Structure::Superblock, claims));
    }
    let seen = volumes.into_iter().map(|(uuid, (bytes, mut chunks, mut findings))| {
        let nodes = || kept.iter().filter(|k| is_node(&k.bytes) && id(&k.bytes, 32) == uuid);
        for leaf in nodes().filter(|k| is_chunk_leaf(&k.bytes) && is_whole(&k.bytes)) {
            leaf_chunks(&leaf.bytes, &mut chunks);
        }
        for node in nodes() {
            let claims = places(&chunks, le64(&node.bytes, 48));
            if !claims.is_empty() {
                findings.push(finding(node, 0, Structure::Node, claims));
            }
        }
        let mut by_sum = HashMap::new();
        for leaf in nodes().filter(|k| is_sum_leaf(&k.bytes) && is_whole(&k.bytes)) {
            sums(&leaf.bytes, SUMS_MAX, &mut by_sum);
        }
        for (device, at, sum) in samples.sums.iter().copied() {
            let address = by_sum.get(&!sum).filter(|address| **address != u64::MAX);
            let claims = address.map(|address| places(&chunks, *address));
            if let Some(claims) = claims.filter(|claims| !claims.is_empty()) {
                findings.push(Finding { device, at, structure: Structure::Data, claims });
            }
        }
        let volume = Volume { kind: VolumeKind::Btrfs, id: uuid, bytes, inner: Vec::new() };
        grouped(volume, findings)
    });
    seen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_at_the_end_of_all_addresses_does_not_wrap() {
        let chunks: Chunks = [(4096, (8192, vec![u64::MAX - 1, 100]))].into();
        assert_eq!(places(&chunks, 8192).as_slice(), [u64::MAX, 4196]);
        assert_eq!(places(&chunks, 4096 + 8192).as_slice(), [0; 0]);
    }

    /// Tree blocks that a chunk's end cuts were read on into another's: all that followed was wrong alike.
    #[test]
    fn a_leaf_that_goes_on_in_another_chunk_is_not_believed() {
        let mut leaf = vec![5; NODE];
        let sum = !crc32c::forward(!0, &leaf[32..]);
        leaf[..4].copy_from_slice(&sum.to_le_bytes());
        assert!(is_whole(&leaf) && !is_whole(&leaf[..NODE / 2]));
        leaf[NODE / 2..].fill(6);
        assert!(!is_whole(&leaf));
    }

    #[test]
    fn a_node_that_is_cut_before_its_level_is_none() {
        let mut block = vec![1; 101];
        block[48..64].copy_from_slice(&[0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert!(is_node(&block) && !is_node(&block[..100]));
    }
}
