//! Single cases: what has been wrong once, and what must not be claimed.

use crate::members::{Made, Sparse};
use crate::random::Case;
use lapstrake_deduce::{Shape, Source, deduce};
use lapstrake_geometry::{Layout, Level, ParityLayout, Sectors};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

fn raid5() -> Made {
    let shape = Shape {
        level: Level::Raid5,
        layout: Layout::Parity(ParityLayout::LeftSymmetric),
        chunk: Sectors::from_kib(64),
        slots: 4,
    };
    Made { shape, data_offset: 1 << 20, component: Sectors::from_kib(8192) }
}

/// Of bytes that tell nothing, parity is right under every order: none is claimed.
#[test]
fn encrypted_contents_are_not_guessed_at() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut contents = Sparse::new(16 << 20);
    for block in 0..2048 {
        let mut bytes = [0; 4096];
        random.fill_bytes(&mut bytes);
        contents.write(block * 4096, &bytes);
    }
    let members = raid5().members(&contents);
    let sources: Vec<&dyn Source> = members.iter().map(|member| member as &dyn Source).collect();
    let report = deduce(&sources, u64::MAX, |_, _| {});
    assert!(report.candidates.iter().all(|candidate| !candidate.is_certain));
    let kinship = report.kinship;
    assert!(kinship.rows > 16 && kinship.zero == kinship.rows, "{kinship:?}");
}

/// Parity over zeros is a copy: a RAID4's parity disk was taken for the missing data disk of a RAID0.
#[test]
fn a_parity_disk_is_no_data_disk() {
    for case in [25, 158, 223, 252].into_iter().filter_map(Case::draw) {
        let report = case.deduce();
        let is_certain = report.candidates.first().is_some_and(|first| first.is_certain);
        assert!(!is_certain || case.is_right(&report, 0), "{}", case.describe());
    }
}

/// Tree blocks that a chunk's end cuts were read on into another's: all that followed was wrong alike.
#[test]
fn cut_tree_blocks_are_not_believed() {
    if let Some(case) = Case::draw(128) {
        let report = case.deduce();
        let is_certain = report.candidates.first().is_some_and(|first| first.is_certain);
        assert!(!is_certain || case.is_right(&report, 0), "{}", case.describe());
    }
}

/// An image of 4 TB that holds little is looked at in no time.
#[test]
fn holes_cost_nothing() {
    let mut made = raid5();
    made.component = Sectors::from_kib(4 << 30);
    let mut contents = Sparse::new(11 << 40);
    contents.write(10 << 40, &[7; 512]);
    let members = made.members(&contents);
    let sources: Vec<&dyn Source> = members.iter().map(|member| member as &dyn Source).collect();
    let report = deduce(&sources, 2 << 30, |_, _| {});
    assert!(report.bytes_read <= 4 << 20, "{}", report.bytes_read);
}
