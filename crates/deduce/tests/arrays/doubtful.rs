//! Arrays of which the contents do not tell enough: none is told as sure, and none as the same as another.
//!
//! The contents are XFS as far as it tells its own place: a superblock, headers of groups, and blocks of metadata.

use crate::members::{Made, Sparse};
use lapstrake_deduce::{Candidate, Report, Shape, Source, deduce};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Raid0Layout, Sectors};

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = [9; 16];

/// A volume of so many bytes, with a block of metadata at each of these addresses.
pub fn xfs(size: u64, addresses: impl Iterator<Item = u64>) -> Sparse {
    xfs_of(UUID, size, addresses)
}

/// The same, of this UUID.
pub fn xfs_of(uuid: [u8; 16], size: u64, addresses: impl Iterator<Item = u64>) -> Sparse {
    let mut volume = Sparse::new(size);
    let mut sb = [0; 512];
    let mut put = |at: usize, field: &[u8]| sb[at..at + field.len()].copy_from_slice(field);
    put(0, b"XFSB");
    put(4, &4096u32.to_be_bytes());
    put(8, &(size / 4096).to_be_bytes());
    put(32, &uuid);
    put(84, &((size / 4096) as u32).to_be_bytes());
    put(88, &1u32.to_be_bytes());
    put(102, &512u16.to_be_bytes());
    put(104, &512u16.to_be_bytes());
    volume.write(0, &sb);
    for address in addresses {
        let mut block = [0; 4096];
        block[..4].copy_from_slice(b"AB3B");
        block[16..24].copy_from_slice(&(address / 512).to_be_bytes());
        block[32..48].copy_from_slice(&uuid);
        block[64..72].copy_from_slice(&address.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        volume.write(address, &block);
    }
    volume
}

fn made(level: Level, slots: u16, mib: u64) -> Made {
    let shape = Shape { level, layout: Layout::None, chunk: Sectors::ZERO, slots };
    Made { shape, data_offset: MIB, component: Sectors::from_kib(mib << 10) }
}

pub fn deduced(members: &[Sparse]) -> Report {
    let sources: Vec<&dyn Source> = members.iter().map(|member| member as &dyn Source).collect();
    deduce(&sources, u64::MAX, |_, _| {})
}

fn assert_unsure(report: &Report) -> &Candidate {
    assert!(report.candidates.iter().all(|found| !found.is_certain), "{:?}", report.candidates);
    report.candidates.first().expect("a candidate")
}

fn orders(candidate: &Candidate) -> Vec<Vec<Option<usize>>> {
    let equal = candidate.equal.iter().map(|found| found.order.clone());
    std::iter::once(candidate.arrangement.order.clone()).chain(equal).collect()
}

#[test]
fn members_of_a_linear_array_without_structures_have_no_order() {
    let contents = xfs(1024 * MIB, (1..60).map(|n| n * 2 * MIB));
    let members = made(Level::Linear, 3, 400).members(&contents);
    let report = deduced(&members);
    let first = assert_unsure(&report);
    let (one, other) = ([0, 1, 2].map(Some).to_vec(), [0, 2, 1].map(Some).to_vec());
    assert_eq!(first.arrangement.shape.level, Level::Linear);
    let is_linear = |found: &&Candidate| found.arrangement.shape.level == Level::Linear;
    for found in report.candidates.iter().filter(is_linear) {
        let orders = orders(found);
        assert!(!(orders.contains(&one) && orders.contains(&other)), "{found:?}");
        assert!(!found.equal.iter().any(|equal| equal.order == found.arrangement.order));
    }
}

#[test]
fn a_linear_array_with_structures_on_each_member_is_sure() {
    let contents = xfs(1024 * MIB, (1..100).map(|n| n * 10 * MIB));
    let mut members = made(Level::Linear, 3, 400).members(&contents);
    members.swap(1, 2);
    let report = deduced(&members);
    assert!(report.candidates[0].is_certain, "{:?}", report.candidates[0]);
    assert_eq!(report.candidates[0].arrangement.order, [0, 2, 1].map(Some));
}

#[test]
fn a_linear_array_that_is_smaller_than_its_volume_lacks_a_member() {
    let contents = xfs(1024 * MIB, (1..100).map(|n| n * 10 * MIB));
    let mut members = made(Level::Linear, 3, 400).members(&contents);
    members.pop();
    assert_unsure(&deduced(&members));
}

#[test]
fn a_mirror_beside_its_blank_replacement_is_no_linear_array() {
    let contents = xfs(300 * MIB, (1..100).map(|n| n * 2 * MIB));
    let mut members = made(Level::Raid1, 2, 400).members(&contents);
    members[1] = Sparse::new(members[0].size);
    assert_unsure(&deduced(&members));
}

#[test]
fn layouts_of_unlike_members_are_two_arrays() {
    // An odd number of chunks before the second zone, or both layouts were the same.
    let sizes = [3201, 6400, 6400].map(|chunks| Sectors::from_kib(chunks * 64));
    let geometry = Geometry::new(&Config {
        level: Level::Raid0,
        layout: Layout::Raid0(Raid0Layout::Alternate),
        chunk: Sectors::from_kib(64),
        raid_disks: 3,
        component: Sectors::ZERO,
        member_sizes: sizes.to_vec(),
    });
    let contents = xfs(900 * MIB, (1..200).map(|n| n * 2 * MIB + n % 16 * 4096 * 5));
    let mut members: Vec<Sparse> =
        sizes.iter().map(|size| Sparse::new(size.bytes() + MIB)).collect();
    contents.spread(&geometry.unwrap(), MIB, &mut members);
    let report = deduced(&members);
    assert_unsure(&report);
    let layouts = |found: &Candidate| {
        let equal = found.equal.iter().map(|found| found.shape.layout);
        std::iter::once(found.arrangement.shape.layout).chain(equal).collect::<Vec<_>>()
    };
    let is_of_chunk = |found: &&Candidate| found.arrangement.shape.chunk == Sectors::from_kib(64);
    for found in report.candidates.iter().filter(is_of_chunk) {
        let layouts = layouts(found);
        let has = |layout| layouts.contains(&Layout::Raid0(layout));
        assert!(!(has(Raid0Layout::Original) && has(Raid0Layout::Alternate)), "{found:?}");
    }
    assert!(report.candidates.len() > 1);
}
