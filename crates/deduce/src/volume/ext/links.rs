//! ext2, ext3 and ext4 without metadata checksums: inodes do not tell their numbers, but directories do.
//!
//! A block of an inode table with directories in it says where the first blocks of these lie. Each such block begins
//! with its directory's number. So the numbers that a block of the table can have are those for which each of its
//! directories has been seen, and none of its other inodes has. Mostly that is one.

use super::super::{Claims, Finding, Structure, finding};
use super::{Superblock, Tables, directory, first_block, inode_place};
use crate::bytes::{BLOCK, has, le16, le32};
use crate::sample::Kept;
use std::collections::{BTreeSet, HashMap};

/// Numbers that a block of a table may have; with more it tells nothing.
const CLAIMS: usize = 3;
/// Groups whose metadata lie together.
const FLEX: u64 = 16;

/// A directory's inode, as far as its bytes tell.
fn is_directory(inode: &[u8]) -> bool {
    let size = le32(inode, 4);
    le16(inode, 0) >> 12 == 4
        && (2..=65000).contains(&le16(inode, 26))
        && le32(inode, 20) == 0
        && size > 0
        && size.is_multiple_of(1024)
        && first_block(inode).is_some_and(|block| block > 0)
}

/// Whether a block may be one of an inode table, with a directory in it. (What begins like an inode of 256 bytes is one
/// of 128 bytes, too.)
pub(super) fn is_table(block: &[u8]) -> bool {
    block.chunks_exact(128).any(|inode| is_directory(inode) && has(inode, 108, &[0; 4]))
}

/// A block of an inode table.
struct Table<'a> {
    kept: &'a Kept,
    inside: u64,
    /// Index in the block, and first block of what it holds.
    directories: Vec<(u32, u64)>,
}

pub(super) fn find(kept: &[Kept], sb: &Superblock, tables: &Tables, findings: &mut Vec<Finding>) {
    let part = (sb.block as usize).min(BLOCK);
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    let mut blocks: Vec<Table<'_>> = Vec::new();
    let of_block = |kept: &Kept| kept.bytes.len().min(BLOCK);
    for kept in kept {
        for (index, bytes) in kept.bytes[..of_block(kept)].chunks_exact(part).enumerate() {
            seen.extend(directory(bytes).filter(|number| *number <= sb.inodes));
            let directories = directories(sb, bytes);
            if !directories.is_empty() {
                blocks.push(Table { kept, inside: (index * part) as u64, directories });
            }
        }
    }
    let each = (part as u64 / sb.inode_bytes) as u32;
    let mut first: HashMap<u32, BTreeSet<u64>> = HashMap::new();
    for table in &blocks {
        let bases = bases(sb, table, &seen, each);
        let place = |base: &u32| inode_place(sb, tables, base + 1);
        let claims: Claims = bases.iter().filter_map(place).collect();
        if claims.is_empty() || bases.len() > CLAIMS {
            continue;
        }
        for base in &bases {
            for (index, block) in &table.directories {
                first.entry(base.saturating_add(*index + 1)).or_default().insert(block * sb.block);
            }
        }
        findings.push(finding(table.kept, table.inside, Structure::InodeTable, claims));
    }
    for kept in kept {
        for (index, bytes) in kept.bytes[..of_block(kept)].chunks_exact(part).enumerate() {
            let claims = directory(bytes).and_then(|number| first.get(&number));
            let Some(claims) = claims.filter(|claims| claims.len() <= CLAIMS) else { continue };
            let claims = claims.iter().copied().collect();
            findings.push(finding(kept, (index * part) as u64, Structure::Directory, claims));
        }
    }
}

/// Directories of a block, if it is one of an inode table.
fn directories(sb: &Superblock, bytes: &[u8]) -> Vec<(u32, u64)> {
    let inodes = bytes.chunks_exact(sb.inode_bytes as usize).zip(0..);
    let directories = inodes.filter(|(inode, _)| is_directory(inode));
    let found = directories.filter_map(|(inode, index)| Some((index, first_block(inode)?)));
    found.filter(|(_, block)| *block < sb.blocks).collect()
}

/// The numbers before the block's first inode that agree with all that was seen.
fn bases(sb: &Superblock, table: &Table<'_>, seen: &BTreeSet<u32>, each: u32) -> Vec<u32> {
    let Some((index, block)) = table.directories.first() else { return Vec::new() };
    let fits = |number: &u32| (number - 1) % each == *index;
    let group = (block - sb.first_block.min(*block)) / sb.group_blocks / FLEX;
    let is_near = |number: &u32| u64::from((number - 1) / sb.group_inodes) / FLEX == group;
    let near = seen.iter().filter(|number| fits(number) && is_near(number));
    let bases = near.map(|number| number - 1 - index);
    let seen_of = |base: u32| {
        table
            .directories
            .iter()
            .filter(|(index, _)| seen.contains(&(base.saturating_add(index + 1))))
            .count()
    };
    // Of a directory that was not seen nothing is known; of one that was, that it is one.
    let agrees = |base: &u32| {
        (0..each).filter(|index| seen.contains(&(base.saturating_add(index + 1)))).count()
            == seen_of(*base)
    };
    let bases: Vec<u32> = bases.filter(agrees).collect();
    let most = bases.iter().map(|base| seen_of(*base)).max();
    bases.into_iter().filter(|base| Some(seen_of(*base)) == most).collect()
}
