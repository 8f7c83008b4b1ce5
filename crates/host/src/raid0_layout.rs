//! Which layout a RAID0 of unlike members has that does not record it: structures of a file system that name their own place
//! are looked for where either layout would put them.

use lapstrake_device::Member;
use lapstrake_geometry::{Geometry, Raid0Layout, Sector};
use lapstrake_metadata::{
    Superblock,
    assemble::{Assembly, Candidate, Options, assemble},
};
use std::sync::Arc;

/// Structures that are looked for, at most.
const PLACES_MAX: u64 = 64;

/// How many structures are where a layout would put them, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Evidence {
    right: u64,
    of: u64,
}

/// What the contents say of both layouts, as a clause; None if they tell nothing.
pub(crate) fn likely(
    devices: &[Arc<Member>],
    candidates: &[Candidate<'_>],
    options: &Options,
) -> Option<String> {
    let [original, alternate] = [Raid0Layout::Original, Raid0Layout::Alternate].map(|layout| {
        let options = Options { raid0_layout: Some(layout), run: true, ..options.clone() };
        let assembly = assemble(candidates, &options).ok()?;
        let array = Array { devices, candidates, geometry: assembly.geometry.clone()?, assembly };
        Some(array.evidence())
    });
    let (name, more, less) = clearly(original?, alternate?)?;
    Some(format!(
        "what is on it makes {name} likely: of {} structures that are looked for in their places, {} are there by that \
         layout, {} by the other",
        more.of, more.right, less.right
    ))
}

/// The layout that most structures speak for, its evidence and the other's. Where both layouts agree, both find a
/// structure: of those that one does not find, the other has to find more than half.
fn clearly(original: Evidence, alternate: Evidence) -> Option<(&'static str, Evidence, Evidence)> {
    let (name, more, less) = match original.right > alternate.right {
        true => ("original", original, alternate),
        false => ("alternate", alternate, original),
    };
    let only_here = more.right - less.right;
    (only_here > 0 && only_here * 2 > more.of - less.right).then_some((name, more, less))
}

/// An array as a layout has it, read without being started.
struct Array<'a> {
    devices: &'a [Arc<Member>],
    candidates: &'a [Candidate<'a>],
    geometry: Geometry,
    assembly: Assembly,
}

impl Array<'_> {
    fn read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        for (index, sector) in bytes.chunks_mut(512).enumerate() {
            let place = Sector(at / 512 + index as u64);
            if place.bytes() >= self.geometry.array_sectors().bytes() {
                return None;
            }
            let run = self.geometry.map(place);
            let home = run.homes[0];
            let id = self.assembly.members[home.slot.index()]?;
            let superblock: &Superblock = self.candidates.iter().find(|it| it.id == id)?.superblock;
            let offset = superblock.data_offset().bytes() + home.sector.bytes();
            self.devices[id].read_at(offset, sector).ok()?;
        }
        Some(bytes)
    }

    fn evidence(&self) -> Evidence {
        let Some(head) = self.read(0, 4096) else { return Evidence::default() };
        let places = ext(&head).or_else(|| xfs(&head)).or_else(|| gpt(&head));
        let places = places.unwrap_or_else(|| btrfs(self.read(64 << 10, 4096)));
        let mut found = Evidence::default();
        for (at, is_right) in places {
            let Some(block) = self.read(at & !511, 1024) else { continue };
            found.of += 1;
            found.right += u64::from(is_right(&block[(at & 511) as usize..]));
        }
        found
    }
}

/// Where something lies, and whether it does by the bytes there.
type Place = (u64, Box<dyn Fn(&[u8]) -> bool>);

fn le<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Copies of the superblock, which hold the number of their group, or 0.
fn ext(head: &[u8]) -> Option<Vec<Place>> {
    if le(head, 1024 + 56)? != [0x53, 0xef] {
        return None;
    }
    let uuid: [u8; 16] = le(head, 1024 + 104)?;
    let word = |at: usize| le(head, 1024 + at).map(u32::from_le_bytes).map(u64::from);
    let block = 1024_u64.checked_shl(word(24)? as u32).filter(|&block| block <= 65536)?;
    let (blocks, first, per_group) = (word(4)?, word(20)?, word(32)?.max(1));
    let groups = groups_with_copy(blocks.div_ceil(per_group));
    Some(
        groups
            .into_iter()
            .map(|group| {
                let is_right = move |bytes: &[u8]| {
                    le(bytes, 56) == Some([0x53, 0xef])
                        && le(bytes, 104) == Some(uuid)
                        && le(bytes, 90)
                            .map(u16::from_le_bytes)
                            .is_some_and(|it| it == 0 || it == group as u16)
                };
                ((first + group * per_group) * block, Box::new(is_right) as Box<_>)
            })
            .collect(),
    )
}

/// 1, and the powers of 3, 5 and 7. A damaged superblock may tell of 2^32 groups.
fn groups_with_copy(groups: u64) -> Vec<u64> {
    let powers =
        |of: u64| std::iter::successors(Some(of), move |power: &u64| power.checked_mul(of));
    let powers = [3, 5, 7].into_iter().flat_map(|of| powers(of).take_while(|&it| it < groups));
    let mut all: Vec<u64> = std::iter::once(1).filter(|&it| it < groups).chain(powers).collect();
    all.sort_unstable();
    all.truncate(PLACES_MAX as usize);
    all
}

/// Allocation groups, whose second sector holds their number.
fn xfs(head: &[u8]) -> Option<Vec<Place>> {
    let word = |at: usize| le(head, at).map(u32::from_be_bytes).map(u64::from);
    if !head.starts_with(b"XFSB") {
        return None;
    }
    let (block, blocks, groups) = (word(4)?, word(84)?, word(88)?);
    let sector = u64::from(u16::from_be_bytes(le(head, 102)?));
    let size = block.checked_mul(blocks)?;
    Some(
        (1..groups.min(PLACES_MAX))
            .map(|group| {
                let is_right = move |bytes: &[u8]| {
                    bytes.starts_with(b"XAGF")
                        && le(bytes, 8).map(u32::from_be_bytes) == Some(group as u32)
                };
                (group.saturating_mul(size).saturating_add(sector), Box::new(is_right) as Box<_>)
            })
            .collect(),
    )
}

/// The copy of a header, which holds its own sector's number.
fn gpt(head: &[u8]) -> Option<Vec<Place>> {
    let own = head.get(512..).filter(|header| header.starts_with(b"EFI PART"))?;
    let copy = u64::from_le_bytes(le(own, 32)?);
    let is_right = move |bytes: &[u8]| {
        bytes.starts_with(b"EFI PART") && le(bytes, 24).map(u64::from_le_bytes) == Some(copy)
    };
    Some(vec![(copy.saturating_mul(512), Box::new(is_right) as Box<_>)])
}

/// Copies of the superblock, which hold their byte's number.
fn btrfs(first: Option<Vec<u8>>) -> Vec<Place> {
    let is_copy = |bytes: &[u8], at: u64| {
        le(bytes, 64) == Some(*b"_BHRfS_M") && le(bytes, 48).map(u64::from_le_bytes) == Some(at)
    };
    if !first.is_some_and(|bytes| is_copy(&bytes, 64 << 10)) {
        return Vec::new();
    }
    let place = |at: u64| -> Place { (at, Box::new(move |bytes| is_copy(bytes, at))) };
    vec![place(64 << 20), place(256 << 30)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_called_likely_by_a_clear_majority_only() {
        let of = |right, of| Evidence { right, of };
        let name = |original, alternate| clearly(original, alternate).map(|(name, ..)| name);
        assert_eq!(name(of(1, 64), of(0, 64)), None);
        assert_eq!(name(of(34, 64), of(33, 64)), None, "most are where both layouts agree");
        assert_eq!(name(of(0, 0), of(0, 0)), None);
        assert_eq!(name(of(32, 64), of(32, 64)), None);
        assert_eq!(name(of(64, 64), of(40, 64)), Some("original"));
        assert_eq!(name(of(0, 1), of(1, 1)), Some("alternate"));
    }

    #[test]
    fn copies_of_an_ext_superblock_are_in_groups_of_powers() {
        assert!(groups_with_copy(0).is_empty());
        assert!(groups_with_copy(1).is_empty());
        assert_eq!(groups_with_copy(28), [1, 3, 5, 7, 9, 25, 27]);
        assert!(groups_with_copy(u64::from(u32::MAX)).len() < PLACES_MAX as usize);
    }
}
