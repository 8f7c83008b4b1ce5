//! Single cases: what has been wrong once, and what must not be claimed.

use crate::doubtful;
use crate::members::{Made, Sparse};
use lapstrake_deduce::{Candidate, Shape, Source, deduce};
use lapstrake_geometry::{Layout, Level, ParityLayout, Raid0Layout, Sectors};
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
    assert_eq!(report.likely_chunk, None);
    let agreement = report.agreement;
    assert!(agreement.rows > 16 && agreement.zero == agreement.rows, "{agreement:?}");
}

/// Texts, tables of numbers and bytes that look compressed, in turns of any length, at whole blocks.
fn unlike_runs(mib: u64) -> Sparse {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut contents = Sparse::new(mib << 20);
    let (mut kind, mut left) = (0, 0);
    for block in 0..mib * 256 {
        if left == 0 {
            (kind, left) = (random.next_u64() % 3, 5 + random.next_u64() % 60);
        }
        left -= 1;
        let mut bytes = [0; 4096];
        random.fill_bytes(&mut bytes);
        match kind {
            0 => bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26),
            1 => bytes.chunks_mut(4).for_each(|number| number[1..].fill(0)),
            _ => {}
        }
        contents.write(block * 4096, &bytes);
    }
    contents
}

/// Where no structure is known, contents change at borders of chunks all the same; on a mirror nowhere in particular.
#[test]
fn changes_of_contents_tell_the_chunk_and_nothing_more() {
    let contents = unlike_runs(96);
    let parity = Layout::Parity(ParityLayout::LeftSymmetric);
    let striped = Layout::Raid0(Raid0Layout::Original);
    for (level, layout, slots, kib) in [
        (Level::Raid5, parity, 4, 64),
        (Level::Raid5, parity, 3, 256),
        (Level::Raid0, striped, 3, 16),
        (Level::Raid0, striped, 2, 512),
        (Level::Raid1, Layout::None, 2, 0),
    ] {
        let shape = Shape { level, layout, chunk: Sectors::from_kib(kib), slots };
        let made = Made { shape, data_offset: 1 << 20, component: Sectors::from_kib(100 << 10) };
        let report = doubtful::deduced(&made.members(&contents));
        let found = report.likely_chunk.map(|chunk| chunk.bytes);
        assert_eq!(found.unwrap_or(0), kib << 10, "{level} {kib}K: {:?}", report.likely_chunk);
        assert!(report.candidates.iter().all(|candidate| !candidate.is_certain));
    }
}

/// Structures in one place leave every larger chunk open, and parity is right under each: what changes of contents tell decides the rank,
/// but makes nothing sure.
#[test]
fn changes_of_contents_decide_between_chunks_and_make_none_sure() {
    let mut contents = unlike_runs(96);
    contents.write_all(0, &doubtful::xfs(96 << 20, (1..6).map(|n| n * 8192)));
    let mut made = raid5();
    made.component = Sectors::from_kib(40 << 10);
    let report = doubtful::deduced(&made.members(&contents));
    let first = report.candidates.first().expect("a candidate");
    assert_eq!(first.arrangement.shape.chunk, Sectors::from_kib(64), "{first:?}");
    assert!(report.candidates.iter().all(|candidate| !candidate.is_certain), "{first:?}");
    let others = report
        .candidates
        .iter()
        .map(|other| (other.arrangement.shape.chunk, other.weights.changes));
    for (chunk, weight) in others {
        assert!((-3.0..=0.0).contains(&weight), "{chunk}: {weight}");
    }
}

/// Parity over zeros is a copy: a RAID4's parity disk was taken for the missing data disk of a RAID0.
#[test]
fn a_parity_disk_is_no_data_disk() {
    let shape =
        Shape { level: Level::Raid4, layout: Layout::None, chunk: Sectors::from_kib(64), slots: 3 };
    let made = Made { shape, data_offset: 1 << 20, component: Sectors::from_kib(64 << 10) };
    // Every other chunk of 64 KiB is zeros, so that P is a copy of one data disk or the other.
    let contents = doubtful::xfs(120 << 20, (1..120).map(|n| n * (1 << 20) + n % 2 * (64 << 10)));
    let mut members = made.members(&contents);
    for (missing, given) in [(0, [1, 2]), (1, [0, 2])] {
        let given_members = given.map(|slot| std::mem::take(&mut members[slot]));
        let report = doubtful::deduced(&given_members);
        let first = report.candidates.first().expect("a candidate");
        let is_right = made.is_read_by(&first.arrangement, &given, 0, 120 << 20);
        assert!(is_right || !first.is_certain, "without slot {missing}: {first:?}");
        for (slot, member) in given.into_iter().zip(given_members) {
            members[slot] = member;
        }
    }
}

/// Where all data of a stripe but one chunk are zeros, parity passes for what is missing, and votes for its slot: of a RAID6
/// with two members left none of the orders that were tried was the right one.
#[test]
fn half_a_raid6_is_found_though_its_parity_votes_for_slots_that_are_missing() {
    let shape = Shape {
        level: Level::Raid6,
        layout: Layout::Parity(ParityLayout::LeftSymmetric),
        chunk: Sectors::from_kib(128),
        slots: 4,
    };
    let made = Made { shape, data_offset: 1 << 20, component: Sectors::from_kib(99 << 10) };
    let contents = doubtful::xfs(160 << 20, (1..70).map(|n| n * (2 << 20) + n % 3 * (192 << 10)));
    for given in [[2, 3], [1, 3], [0, 2]] {
        let mut members = made.members(&contents);
        let report = doubtful::deduced(&given.map(|slot| std::mem::take(&mut members[slot])));
        let is_right =
            |found: &Candidate| made.is_read_by(&found.arrangement, &given, 0, 160 << 20);
        assert!(report.candidates.iter().any(is_right), "{given:?}: {report:?}");
        assert!(report.candidates.iter().all(|found| !found.is_certain), "others explain it, too");
    }
}

/// Addresses in many chunks of 64 KiB, at one depth of them.
fn strewn(n: u64) -> u64 {
    (n * 16 + n * 7919 % 16) * (64 << 10) + 8192
}

/// A volume with another one in it. All chunks hold something at that depth: over zeros parity is a copy.
fn with_another(mib: u64, at: u64) -> Sparse {
    let mut contents = Sparse::new(mib << 20);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    for chunk in 0..mib * 16 {
        let mut bytes = [0; 4096];
        random.fill_bytes(&mut bytes);
        contents.write(chunk * (64 << 10) + 8192, &bytes);
    }
    contents.write_all(0, &doubtful::xfs(mib << 20, (1..40).map(strewn)));
    contents.write_all(at, &doubtful::xfs_of([3; 16], 100 << 20, (1..99).map(strewn)));
    contents
}

/// The image of a virtual machine, in a file of the file system on the array, holds more structures than that has itself.
#[test]
fn a_file_system_in_a_file_is_not_the_arrays() {
    let mut made = raid5();
    made.component = Sectors::from_kib(128 << 10);
    // A whole turn of the layout: the same order fits, from another place on.
    let contents = with_another(380, 48 << 20);
    let report = doubtful::deduced(&made.members(&contents));
    let first = report.candidates.first().expect("a candidate");
    assert!(first.is_certain, "{:?}", report.candidates);
    assert!(made.is_read_by(&first.arrangement, &[0, 1, 2, 3], 0, 380 << 20), "{first:?}");
}

/// What was made on a new array over an old one: which of them is alive is not known.
#[test]
fn a_file_system_of_a_later_array_is_no_content_of_the_old_one() {
    let mut made = raid5();
    made.component = Sectors::from_kib(512 << 10);
    // mdadm's data offset of 128 MiB, in place of 1 MiB.
    let contents = with_another(1500, (127 * 3) << 20);
    let report = doubtful::deduced(&made.members(&contents));
    assert!(report.candidates.iter().all(|found| !found.is_certain), "{:?}", report.candidates);
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
