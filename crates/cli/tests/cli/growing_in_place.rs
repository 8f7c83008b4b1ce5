//! Promise: an array that has no room to move its data grows all the same: what is written over itself is kept on the members
//! that come to it, and a cut in that moment costs nothing, here and with mdadm.

use crate::reshaping::{all, create, half_done, lengthened, refused};
use crate::support::md::Md;
use crate::support::{Lab, pattern};

/// Superblocks of which there is no room before the data, or none that says of it; more members for data.
const COURSES: [(&str, &str, &str); 4] = [
    ("-l5 -c64 -e 1.0", "m0 m1 m2", "--raid-devices 4 m3"),
    ("-l4 -c64 -e 0.90", "m0 m1 m2", "--raid-devices 5 m3 m4"),
    ("-l6 -c32 -e 1.0", "m0 m1 m2 m3", "--raid-devices 5 --layout right-symmetric m4"),
    ("-l5 -c64 -e 0.90", "m0 m1 m2", "--level 6 --raid-devices 5 m3 m4"),
];

#[test]
fn what_grows_in_place_is_carried_on_here_and_by_the_kernel() {
    let Some(mut md) = Md::boot("arrays that grow in place") else { return };
    for (options, members, wish) in COURSES {
        let (lab, all) = (Lab::new(&[20; 5]), all(members, wish));
        let bytes = half_done(&lab, options, members, wish);
        let copies = Lab::new(&[20; 5]);
        all.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        let server = lab.serve_data(&format!("--shards 2 {all}"));
        lab.run("wait data").ok();
        let bytes = lengthened(bytes, lab.contents(&server).len());
        assert!(lab.contents(&server) == bytes, "{options}, {wish}: read afterwards");
        server.stop();
        md.agrees(&lab, &all, &bytes);
        md.finishes(&copies, &all, &bytes, "");
    }
}

const CHUNK: usize = 4 << 20;
/// Linux 7.2 ends the reshape of an array that was not clean as it would a resync, and shows the size only once it is started
/// anew.
const ANEW: &str = "quietly mdadm --stop /dev/md0; quietly mdadm --assemble /dev/md0 ${devices[@]}";

/// A RAID5 of three that is to become one of four, and its bytes.
fn about_to_grow() -> (Lab, Vec<u8>) {
    let lab = Lab::new(&[48; 4]);
    create(&lab, "-l5 -c4096 -e 1.0", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    let bytes = pattern(7, lab.detail()["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    server.stop();
    (lab, bytes)
}

/// Kills a server while it moves the first rows over themselves; if it was too fast, again with what there was before.
fn cut(lab: &Lab) {
    let before: Vec<Vec<u8>> = (0..4).map(|index| lab.read(&format!("m{index}"))).collect();
    for _ in 0..20 {
        let server = lab.serve_data("--shards 2 m0 m1 m2");
        let begun = lab.run("grow data --raid-devices 4 m3").ok();
        server.kill();
        assert!(begun.out.contains("it is becoming"), "{begun:?}");
        let examined = lab.run("examine m0").ok();
        if examined.out.contains("Reshape pos'n : 0") {
            return;
        }
        before.iter().enumerate().for_each(|(index, it)| lab.write_at(&format!("m{index}"), 0, it));
    }
    panic!("it was faster than its end twenty times");
}

#[test]
fn a_cut_in_the_critical_section_is_mended_here_and_by_mdadm() {
    let Some(mut md) = Md::boot("an array that was cut in its critical section") else { return };
    let (lab, bytes) = about_to_grow();
    cut(&lab);
    // Two rows are what is moved over itself.
    for name in ["m0", "m1", "m2"] {
        lab.write_at(name, 0, &vec![0x5a; 2 * CHUNK]);
    }
    let (copies, without) = (Lab::new(&[48; 4]), Lab::new(&[48; 4]));
    for name in ["m0", "m1", "m2", "m3"] {
        copies.write_at(name, 0, &lab.read(name));
        without.write_at(name, 0, &lab.read(name));
    }
    // Who keeps the copy may have failed since.
    without.run("update --degraded --backup-file m3 m0 m1 m2").ok();
    without.run("cat --force m0 m1 m2 -o read").ok();
    assert!(without.read("read")[..bytes.len()] == bytes);
    let server = without.serve_data("--shards 2 --force m0 m1 m2");
    let waited = without.run("wait data");
    assert!(waited.out.contains("reshape done"), "{waited:?}");
    assert!(without.contents(&server)[..bytes.len()] == bytes);
    server.stop();
    let refused = lab.run("serve m0 m1 m2 m3");
    assert!(
        refused.code == 1 && refused.err.contains("lapstrake update --backup-file"),
        "{refused:?}"
    );
    lab.run("update --backup-file m3 --keep edit m0 m1 m2 m3").ok();
    // A start gives the copy up, which the edit's undoing does not bring back.
    lab.serve_data("--shards 2 --frozen m0 m1 m2 m3").stop();
    lab.run("update --undo edit").ok();
    let given_up = lab.run("update --backup-file m3 m0 m1 m2 m3");
    assert!(given_up.code == 1 && given_up.err.contains("--finish"), "{given_up:?}");
    lab.run("update --finish edit").ok();
    let server = lab.serve_data("--shards 2 m0 m1 m2 m3");
    lab.run("wait data").ok();
    let bytes = lengthened(bytes, lab.contents(&server).len());
    assert!(lab.contents(&server) == bytes);
    server.stop();
    md.agrees(&lab, "m0 m1 m2 m3", &bytes);
    md.finishes(&copies, "m0 m1 m2 m3", &bytes, ANEW);
}

/// What would be lost: what was answered after the copy was made, once that is put back. mdadm puts it back also where
/// superblocks tell of its end.
#[test]
fn what_is_written_once_the_critical_section_is_moved_stays() {
    let Some(mut md) = Md::boot("an array that stopped behind its critical section") else {
        return;
    };
    let (lab, mut bytes) = about_to_grow();
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    lab.run("grow data --raid-devices 4 m3").ok();
    server.stop();
    let examined = lab.run("examine m0").ok();
    assert!(examined.out.contains("Reshape pos'n"), "it has ended already: {examined:?}");
    assert!(!examined.out.contains("Reshape pos'n : 0"), "{examined:?}");
    let server = lab.serve_data("--frozen --shards 2 m0 m1 m2 m3");
    let new = pattern(9, 16 << 20);
    lab.fill(&server, &new);
    bytes[..new.len()].copy_from_slice(&new);
    server.stop();
    let bytes = lengthened(bytes.clone(), bytes.len() / 2 * 3);
    md.finishes(&lab, "m0 m1 m2 m3", &bytes, ANEW);
}

/// What would be lost: what is computed of a second parity that the array before never had. 0.90 has no recovery offset.
#[test]
fn a_second_parity_that_is_being_made_stands_in_for_nobody() {
    let lab = Lab::new(&[20; 5]);
    let (options, members, wish) = COURSES[3];
    let bytes = half_done(&lab, options, members, wish);
    let without = lab.run("cat --force --overwrite -o out m1 m2 m3 m4").ok();
    assert!(lab.read("out") == bytes, "{without:?}");
    let refused = lab.run("cat --force --overwrite -o out m2 m3 m4");
    assert!(refused.code == 1 && refused.err.contains("at least 2 are needed"), "{refused:?}");
}

#[test]
fn what_cannot_be_kept_is_not_begun() {
    let lab = Lab::new(&[20; 4]);
    create(&lab, "-l5 -c4096 -e 1.0", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    let says = "has 0 KiB between superblock and data";
    let small = lab.run("grow data --raid-devices 4 m3");
    assert!(small.code == 1 && small.err.contains(says), "{small:?}");
    server.stop();
    let lab = Lab::new(&[20; 4]);
    create(&lab, "-l5 -c64 -e 0.90", "m0 m1 m2");
    let server = lab.serve_data("--shards 2 m0 m1 m2");
    refused(&lab, "--chunk 32K", says);
    let other = lab.run("grow data --raid-devices 4 --chunk 32K m3");
    assert!(other.code == 1 && other.err.contains(says), "{other:?}");
    let told = lab.run("grow data --raid-devices 4 --dry-run m3").ok();
    assert!(told.out.contains("first 384K are written over themselves"), "{told:?}");
    server.stop();
}
