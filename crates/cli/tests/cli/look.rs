//! Promise: what is on arrays is shown and read, also where LVM's volumes lie on several of them.

use crate::support::md::can_copy;
use crate::support::{Lab, exists, pattern};
use flate2::read::GzDecoder;
use std::io::Read;

const MIB: usize = 1 << 20;

/// What lvm2 wrote at a physical volume's start, with other bytes behind it, 32 MiB in all.
fn physical(packed: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes.resize(MIB, 0);
    bytes.extend(pattern(seed, 31 * MIB));
    bytes
}

/// A mirror of two members with these bytes, written past the array code: raid1 data lies as it is.
fn mirror(lab: &Lab, name: &str, members: [&str; 2], bytes: &[u8]) {
    let line = format!("create {name} -l1 --assume-clean --json {} {}", members[0], members[1]);
    let made = lab.run(&line).ok().json();
    let start = made["members"][0]["data_offset_bytes"].as_u64().unwrap();
    members.iter().for_each(|member| lab.write_at(member, start, bytes));
}

/// Arrays of 64 MiB and more, the size of the sample's physical volumes.
fn group_over_two_arrays() -> (Lab, [Vec<u8>; 2]) {
    let lab = Lab::new(&[96, 96, 96, 96]);
    let first = physical(include_bytes!("../../../volumes/tests/fixtures/pv0.gz"), 1);
    let second = physical(include_bytes!("../../../volumes/tests/fixtures/pv1.gz"), 2);
    mirror(&lab, "one", ["m0", "m1"], &first);
    mirror(&lab, "two", ["m2", "m3"], &second);
    (lab, [first, second])
}

#[test]
fn a_group_over_two_arrays_is_shown_and_its_volumes_are_read() {
    let (lab, [first, second]) = group_over_two_arrays();
    let told = lab.run("look --json m0 m1 m2 m3").ok().json();
    let group = &told["groups"][0];
    assert_eq!((&group["name"], &group["physical_volumes_found"]), (&"vg1000".into(), &2.into()));
    assert_eq!(group["volumes"][1]["name"], "vg1000/spanned");
    assert_eq!(group["volumes"][1]["on"], serde_json::json!(["one", "two"]));

    // As `lvs -o +devices` showed it: extents of 1 MiB behind the first MiB.
    let of = |bytes: &[u8], from: usize, len: usize| bytes[from * MIB..(from + len) * MIB].to_vec();
    let spanned = [of(&second, 1, 6), of(&first, 9, 3)].concat();
    let stripes = |bytes: Vec<u8>| bytes.chunks(65536).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let both = stripes(of(&first, 12, 4)).into_iter().zip(stripes(of(&second, 7, 4)));
    let striped: Vec<u8> = both.flat_map(|(one, two)| [one, two].concat()).collect();
    for (name, bytes) in [("linear", of(&first, 1, 8)), ("spanned", spanned), ("striped", striped)]
    {
        // With a member of each missing.
        lab.run(&format!("cat --volume vg1000/{name} -o {name} m1 m2")).ok();
        assert!(lab.read(name) == bytes, "{name}");
        lab.run(&format!(
            "cat --volume vg1000/{name} --offset 100001 --length 2M -o part --overwrite m0 m3"
        ))
        .ok();
        assert!(lab.read("part") == bytes[100_001..][..2 * MIB], "part of {name}");
    }
}

#[test]
fn what_is_not_here_is_named_and_nothing_is_written() {
    let (lab, _) = group_over_two_arrays();
    let ran = lab.run("look m0 m1");
    assert!(ran.code == 3 && ran.out.contains("1 of 2 physical volumes"), "{ran:?}");
    for (volume, words) in [
        (
            "vg1000/spanned",
            "a physical volume that is not here, IcEi5B-0uo9-PJLB-7pOT-EFVm-GkzN-b6NfNr",
        ),
        (
            "vg1000/none",
            "there is vg1000/linear, vg1000/spanned, vg1000/striped; nothing was written",
        ),
    ] {
        let ran = lab.run(&format!("cat --volume {volume} -o out m0 m1"));
        assert!(ran.code == 1 && ran.err.contains(words), "{volume}: {ran:?}");
    }
    let ran = lab.run("cat --partition 1 -o out m0 m1");
    assert!(ran.code == 1 && ran.err.contains("no partition table"), "{ran:?}");
    assert!(!lab.path("out").exists());
}

/// 8 MiB, of which partition 1 is from the first to the third.
fn partitioned() -> Vec<u8> {
    let mut bytes = pattern(3, 8 * MIB);
    bytes[..512].fill(0);
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[446 + 12..][..4].copy_from_slice(&4096_u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

#[test]
fn partitions_of_an_array_are_shown_and_read() {
    let lab = Lab::new(&[32, 32]);
    let bytes = partitioned();
    mirror(&lab, "data", ["m0", "m1"], &bytes);
    let told = lab.run("look --json m0 m1").ok().json();
    let part = &told["devices"][0]["partitions"][0];
    assert_eq!((&part["number"], &part["offset"]), (&1.into(), &MIB.into()));
    lab.run("cat --partition 1 -o out m0 m1").ok();
    assert!(lab.read("out") == bytes[MIB..3 * MIB]);
    let ran = lab.run("cat --partition 2 -o other m0 m1");
    assert!(ran.code == 1 && ran.err.contains("no partition 2; there is 1"), "{ran:?}");
}

/// What is behind its first MiB lies in extents of 4 MiB: root's are 0, 1, 5 and 6, data's those between.
#[test]
fn a_volume_in_two_pieces_is_served_and_nothing_else_is_written() {
    if !can_copy("a volume, served") {
        return;
    }
    let lab = Lab::new(&[64, 64]);
    let before = physical(include_bytes!("../../../volumes/tests/fixtures/pv2.gz"), 5);
    mirror(&lab, "data", ["m0", "m1"], &before);
    let server = lab.serve_data("--volume single/root --shards 2 m0 m1");
    assert_eq!(server.facts["export_bytes"], 16 * MIB);
    let root = |bytes: &[u8]| [&bytes[MIB..9 * MIB], &bytes[21 * MIB..29 * MIB]].concat();
    assert!(lab.contents(&server) == root(&before));
    let new = pattern(6, 16 * MIB);
    lab.fill(&server, &new);
    assert!(lab.contents(&server) == new);
    server.stop();
    let mut after = before;
    after[MIB..9 * MIB].copy_from_slice(&new[..8 * MIB]);
    after[21 * MIB..29 * MIB].copy_from_slice(&new[8 * MIB..]);
    lab.run("cat --length 32M -o out m0").ok();
    assert!(lab.read("out") == after);
}

#[test]
fn a_partition_is_served_by_file_and_what_cannot_be_is_refused() {
    let lab = Lab::new(&[32, 32]);
    let bytes = partitioned();
    mirror(&lab, "data", ["m0", "m1"], &bytes);
    for (what, words) in [
        ("--partition 2", "no partition 2; there is 1; nothing is served"),
        ("--volume vg/none", "no volume group was found; nothing is served"),
    ] {
        let ran = lab.run(&format!("serve {what} m0 m1"));
        assert!(ran.code == 1 && ran.err.contains(words), "{what}: {ran:?}");
    }
    if !can_copy("a partition, served") {
        return;
    }
    let server = lab.serve_data("--read-only --partition 1 m0 m1");
    assert!(lab.contents(&server) == bytes[MIB..3 * MIB]);
    server.stop();
    // What becomes of the array meanwhile is not the partition's.
    lab.file("m2", 32 << 20);
    let server = lab.serve_data("--partition 1 m0 m1");
    lab.run("grow data --raid-devices 3 m2").ok();
    let refused = lab.run("grow data --size max");
    assert!(refused.code == 1 && refused.err.contains("nothing was changed"), "{refused:?}");
    assert!(lab.contents(&server) == bytes[MIB..3 * MIB]);
    server.stop();
}

#[test]
fn a_served_array_is_looked_at_by_its_name() {
    let lab = Lab::new(&[32, 32]);
    mirror(&lab, "data", ["m0", "m1"], &partitioned());
    if !exists("/dev/fuse") {
        return lapstrake_not_run::not_run("look of a served array: there is no /dev/fuse");
    }
    let server = lab.serve("m0 m1 --fuse data.raw");
    let told = lab.run("look --json data").ok().json();
    assert_eq!(told["devices"][0]["partitions"][0]["offset"], MIB);
    server.stop();
    let server = lab.serve("m0 m1");
    let ran = lab.run("look data");
    assert!(ran.code == 2 && ran.err.contains("lapstrake serve --fuse FILE"), "{ran:?}");
    server.stop();
}

#[test]
fn a_part_that_is_served_is_told_of() {
    let lab = Lab::new(&[32, 32]);
    mirror(&lab, "data", ["m0", "m1"], &partitioned());
    let server = lab.serve("m0 m1 --partition 1");
    let part = serde_json::json!({ "name": "partition 1", "bytes": 2 * MIB });
    assert_eq!(lab.run("detail --json data").ok().json()["part"], part);
    assert_eq!(lab.run("status --json").ok().json()["arrays"][0]["part"], part);
    let ran = lab.run("detail data").ok();
    assert!(ran.out.contains("Shows : partition 1, 2048 KiB"), "{ran:?}");
    let ran = lab.run("status").ok();
    assert!(ran.out.contains("partition 1: 2048 blocks"), "{ran:?}");
    server.stop();
}
