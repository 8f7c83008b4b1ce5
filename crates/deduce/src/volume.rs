//! File systems and other volumes, and the structures in them that tell their own place.
//!
//! A [`Finding`] says: "at this byte of this device lies what belongs at this byte of the volume". It is believed only
//! if the structure names the volume (by UUID) or carries a checksum that does. What it does not tell is where the
//! volume begins in the array, and how the array is laid out: that is what hypotheses are tried for.

mod btrfs;
mod ext;
mod other;
mod xfs;

use crate::sample::{Interest, Kept, Samples};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::fmt;

/// What kind of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VolumeKind {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// NTFS.
    Ntfs,
    /// FAT16 or FAT32.
    Fat,
    /// A physical volume of LVM.
    Lvm,
    /// A GUID partition table.
    Gpt,
    /// A LUKS header: what follows is encrypted.
    Luks,
}

impl VolumeKind {
    /// Whether other volumes lie in it, not at its start.
    pub(crate) fn is_container(self) -> bool {
        matches!(self, Self::Lvm | Self::Gpt)
    }
}

impl fmt::Display for VolumeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ext => "ext2/3/4",
            Self::Xfs => "XFS",
            Self::Btrfs => "Btrfs",
            Self::Ntfs => "NTFS",
            Self::Fat => "FAT",
            Self::Lvm => "LVM",
            Self::Gpt => "GPT",
            Self::Luks => "LUKS",
        })
    }
}

/// A volume that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// What it is.
    pub kind: VolumeKind,
    /// Its UUID, or another number that tells it from others.
    pub id: [u8; 16],
    /// Its size as it says, bytes; 0 if it does not.
    pub bytes: u64,
    /// Where volumes within it begin, bytes from its start.
    pub(crate) inner: Vec<u64>,
}

/// What kind of structure: findings of one kind about one place are one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Structure {
    Superblock,
    InodeTable,
    Directory,
    Node,
    Data,
}

impl Structure {
    /// The first bytes of it, by which it is known whatever follows.
    pub(crate) fn proof(self) -> usize {
        match self {
            Self::Superblock | Self::InodeTable => 128,
            Self::Directory => 24,
            Self::Node => 48,
            Self::Data => 512,
        }
    }
}

/// Places in the volume at which it may lie; mostly one.
pub(crate) type Claims = SmallVec<[u64; 2]>;

/// A structure that tells its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) device: usize,
    pub(crate) at: u64,
    pub(crate) structure: Structure,
    pub(crate) claims: Claims,
}

/// One observation: something that belongs at a place of the volume was seen at these places of devices. In a journal
/// lie old copies, and parity over zeros is a copy; the observation holds if one of the places is right.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) structure: Structure,
    pub(crate) claims: Claims,
    pub(crate) places: Vec<(usize, u64)>,
}

/// A volume with its observations.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) volume: Volume,
    pub(crate) groups: Vec<Group>,
}

/// No volume has so many bytes: what says so is not believed, and sums of two such numbers fit into 64 bits.
const BYTES_MAX: u64 = 1 << 62;

const RARE: Interest = Interest { is_rare: true, is_long: false };
const COMMON: Interest = Interest { is_rare: false, is_long: false };

/// Whether a block of 4 KiB may tell its place.
pub(crate) fn is_of_interest(block: &[u8]) -> Option<Interest> {
    if ext::is_superblock(block) || xfs::is_header(block) || other::is_header(block) {
        return Some(RARE);
    }
    if btrfs::is_superblock(block) || btrfs::is_chunk_leaf(block) {
        return Some(Interest { is_rare: true, is_long: true });
    }
    if btrfs::is_sum_leaf(block) {
        return Some(Interest { is_rare: false, is_long: true });
    }
    let is_common = ext::is_of_interest(block)
        || xfs::is_block(block)
        || btrfs::is_node(block)
        || other::is_of_interest(block);
    is_common.then_some(COMMON)
}

/// Findings of a volume by what they say, without places that no volume has.
pub(crate) fn grouped(mut volume: Volume, findings: Vec<Finding>) -> Seen {
    volume.inner.retain(|start| *start < BYTES_MAX);
    let mut by_claim: HashMap<(Structure, Claims), Vec<(usize, u64)>> = HashMap::new();
    for Finding { device, at, structure, mut claims } in findings {
        claims.retain(|claim| *claim < BYTES_MAX);
        if claims.is_empty() {
            continue;
        }
        let places = by_claim.entry((structure, claims)).or_default();
        if !places.contains(&(device, at)) {
            places.push((device, at));
        }
    }
    let mut all: Vec<_> = by_claim.into_iter().collect();
    all.sort();
    let groups = all.into_iter();
    let group = |((structure, claims), places)| Group { structure, claims, places };
    let groups = groups.map(group).collect();
    Seen { volume, groups }
}

/// All volumes of which something was seen, those with most observations first.
pub(crate) fn find(samples: &Samples<'_>) -> Vec<Seen> {
    let kept = &samples.kept;
    let mut seen = ext::find(samples);
    seen.extend(xfs::find(kept));
    seen.extend(btrfs::find(samples));
    seen.extend(other::find(samples));
    seen.retain(|seen| !seen.groups.is_empty());
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.groups.len()));
    seen
}

fn one(claim: u64) -> Claims {
    smallvec![claim]
}

fn finding(kept: &Kept, inside: u64, structure: Structure, claims: Claims) -> Finding {
    Finding { device: kept.device, at: kept.at + inside, structure, claims }
}
