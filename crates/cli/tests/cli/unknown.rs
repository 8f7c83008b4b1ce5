//! Superblocks that hold what Lapstrake does not know: shown, read on request, and never written; and the one field that
//! newer kernels brought, the logical block size.

use crate::support::{Lab, pattern};
use lapstrake_metadata::{Superblock, Version, read_at, v1};
use serde_json::json;
use std::fs;

/// Where a superblock of version 1.2 lies, bytes.
const SUPERBLOCK: u64 = 4096;

/// A RAID5 of three with known contents.
pub fn array() -> (Lab, Vec<u8>) {
    array_with("")
}

fn array_with(options: &str) -> (Lab, Vec<u8>) {
    let lab = Lab::new(&[24, 24, 24]);
    lab.run(&format!("create data -l5 -c64 --assume-clean {options} m0 m1 m2")).ok();
    let server = lab.serve("m0 m1 m2");
    let contents = pattern(3, server.facts["array_bytes"].as_u64().unwrap() as usize);
    fs::write(lab.path("in"), &contents).unwrap();
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    server.stop();
    (lab, contents)
}

/// Changes the superblocks of all three members.
fn change(lab: &Lab, change: impl Fn(&mut v1::Superblock)) {
    for name in ["m0", "m1", "m2"] {
        change_one(lab, name, &change);
    }
}

pub fn change_one(lab: &Lab, name: &str, mut change: impl FnMut(&mut v1::Superblock)) {
    let bytes = lab.read(name);
    let size = lapstrake_geometry::Sectors::from_bytes(bytes.len() as u64);
    let read = read_at(Version::V1_2, size, &bytes[SUPERBLOCK as usize..][..4096]).unwrap();
    let Superblock::V1(mut sb) = read else { panic!("version 1.2") };
    change(&mut sb);
    lab.write_at(name, SUPERBLOCK, &sb.encode());
}

fn members(lab: &Lab) -> [Vec<u8>; 3] {
    ["m0", "m1", "m2"].map(|name| lab.read(name))
}

#[test]
fn what_is_not_known_is_shown_and_read_on_request_only() {
    let (lab, contents) = array();
    type Spoil = fn(&mut v1::Superblock);
    let kinds: [(Spoil, &str); 3] = [
        (|sb| sb.feature_map |= 1 << 20, "unknown feature bits 0x100000"),
        (
            |sb| sb.pad3[4] = 9,
            "1 reserved bytes of the superblock are not zero, the first at byte 232",
        ),
        (|sb| sb.logical_block_size = 768, "a logical block size of 768"),
    ];
    for (spoil, words) in kinds {
        change(&lab, spoil);
        let before = members(&lab);

        let shown = lab.run("examine m0").ok().out;
        assert!(shown.contains("Raid Level : raid5") && shown.contains(words), "{shown}");
        let scanned = lab.run("scan m0 m1 m2");
        assert!(
            scanned.out.contains(": unsupported\n") && scanned.out.contains(words),
            "{scanned:?}"
        );
        assert_eq!(scanned.code, 3);
        for refused in ["cat -o out m0 m1 m2", "serve m0 m1 m2", "serve --read-only m0 m1 m2"] {
            let ran = lab.run(refused);
            assert_eq!(ran.code, 1, "{ran:?}");
            let says = |text: &str| ran.err.contains(text);
            assert!(
                says(words) && says("--ignore-unknown") && says("newer than Linux 7.2"),
                "{ran:?}"
            );
        }
        let ran = lab.run("serve --ignore-unknown m0 m1 m2");
        assert!(ran.code == 2 && ran.err.contains("--read-only"), "{ran:?}");

        let ran = lab.run("cat --ignore-unknown --overwrite -o out m0 m2 m1").ok();
        assert!(ran.err.contains(words) && lab.read("out") == contents, "{}", ran.err);
        let server = lab.serve("--ignore-unknown --read-only m0 m1 m2");
        lab.other(&format!("nbdcopy {} seen", server.uri())).unwrap().ok();
        server.stop();
        assert!(lab.read("seen") == contents);

        let server = lab.serve("--ignore-unknown --overlay cow m0 m1 m2");
        lab.file("zeros", contents.len() as u64);
        lab.other(&format!("nbdcopy --flush zeros {}", server.uri())).unwrap().ok();
        server.stop();
        let again = lab.serve("--ignore-unknown --overlay cow m0 m1 m2");
        lab.other(&format!("nbdcopy {} seen", again.uri())).unwrap().ok();
        again.stop();
        assert!(lab.read("seen") == lab.read("zeros"), "what is in the overlay is still there");
        fs::remove_file(lab.path("cow")).unwrap();
        assert!(members(&lab) == before, "nothing may be written to such members");
        change(&lab, |sb| {
            sb.feature_map &= v1::feature::ALL;
            (sb.pad3, sb.logical_block_size) = ([0; 28], 0);
        });
    }
    lab.run("cat --overwrite -o out m0 m1 m2").ok();
}

#[test]
fn unknown_bytes_are_listed_with_their_offsets() {
    let (lab, _) = array();
    change(&lab, |sb| (sb.pad3[0], sb.pad3[27], sb.pad0) = (1, 255, 0x0200));
    let told = lab.run("examine --json m1").ok().json();
    let byte = |offset: u32, value: u32| json!({ "offset": offset, "value": value });
    assert_eq!(
        told[0]["superblock"]["unknown_bytes"],
        json!([byte(13, 2), byte(228, 1), byte(255, 255)])
    );
    let shown = lab.run("examine m1").ok().out;
    assert!(shown.contains("byte 0xff of the superblock is 0xff"), "{shown}");
}

#[test]
fn a_member_that_is_not_understood_does_not_join_unless_forced() {
    let (lab, _) = array();
    lab.file("m3", 24 << 20);
    let server = lab.serve("m0 m1 m2");
    lab.run("fail data m2").ok();
    lab.run("remove data m2").ok();
    lab.run("add data m3").ok();
    lab.run("wait data").ok();
    change_one(&lab, "m2", |sb| sb.feature_map |= 1 << 30);
    let before = lab.read("m2");
    let ran = lab.run("add data m2");
    assert!(ran.code == 1 && ran.err.contains("nothing was written"), "{ran:?}");
    assert!(lab.read("m2") == before);
    lab.run("add --force data m2").ok();
    server.stop();
}

#[test]
fn a_member_of_an_unknown_role_is_told_and_never_written() {
    let (lab, contents) = array();
    // As a NAS marks a member that it dropped: slot 1, with the highest bit.
    for name in ["m0", "m1", "m2"] {
        change_one(&lab, name, |sb| sb.dev_roles[1] = 0x8001);
    }
    let before = lab.read("m1");
    assert!(
        lab.run("examine m1")
            .ok()
            .out
            .contains("Device Role : unknown role 0x8001 (perhaps slot 1)")
    );
    let words = "unknown role 0x8001 (perhaps slot 1)";
    assert!(lab.run("scan m0 m1 m2").out.contains(words));
    let ran = lab.run("cat -o out m0 m1 m2").ok();
    assert!(ran.err.contains(words) && lab.read("out") == contents, "{}", ran.err);
    let server = lab.serve("--degraded m0 m1 m2");
    lab.file("zeros", contents.len() as u64);
    lab.other(&format!("nbdcopy --flush zeros {}", server.uri())).unwrap().ok();
    for words in ["add data m1", "re-add data m1"] {
        let ran = lab.run(words);
        assert!(ran.code != 0 && ran.err.contains("unknown role 0x8001"), "{ran:?}");
    }
    assert!(lab.read("m1") == before, "a rebuild would have written over its data");
    lab.run("add --force data m1").ok();
    server.stop();
}

/// Where the bitmap of a superblock of version 1.2 lies, bytes.
const BITMAP: u64 = SUPERBLOCK + 4096;

#[test]
fn a_bitmap_that_is_not_known_is_told_and_not_written_over() {
    for (bitmap, at, bytes, words) in [
        ("internal", 4, vec![7, 0], "bitmap version 7 is not supported"),
        ("internal", 50, vec![0x10], "unknown bits 0x100000 of the bitmap's state"),
        (
            "lockless",
            139,
            vec![1, 0, 1],
            "2 reserved bytes of the bitmap's superblock are not zero, the first at byte 139",
        ),
        ("lockless", 1029, vec![9], "unknown state 9 of chunk 5 of the lockless bitmap"),
    ] {
        let (lab, contents) = array_with(&format!("--bitmap {bitmap}"));
        // Not the first one's: any copy would be written over.
        lab.write_at("m1", BITMAP + at, &bytes);
        let before = members(&lab);

        let shown = lab.run("examine m1").ok().out;
        assert!(shown.contains(&format!("Unsupported : internal bitmap: {words}")), "{shown}");
        let scanned = lab.run("scan m0 m1 m2");
        assert!(
            scanned.out.contains(": unsupported\n") && scanned.out.contains(words),
            "{scanned:?}"
        );
        assert!(!scanned.out.contains("lapstrake serve m0"), "{scanned:?}");
        for refused in ["serve m0 m1 m2", "serve --force m0 m1 m2", "serve --overlay cow m0 m1 m2"]
        {
            let ran = lab.run(refused);
            let says = |text: &str| ran.err.contains(text);
            assert!(
                ran.code == 1 && says(words) && says("--ignore-unknown") && says("m1"),
                "{ran:?}"
            );
        }
        lab.run("cat --overwrite -o out m0 m1 m2").ok();
        assert!(lab.read("out") == contents);
        let server = lab.serve("--ignore-unknown --overlay cow m0 m1 m2");
        lab.file("zeros", contents.len() as u64);
        lab.other(&format!("nbdcopy --flush zeros {}", server.uri())).unwrap().ok();
        server.stop();
        let server = lab.serve("--degraded --ignore-unknown --overlay cow3 m0 m1");
        server.stop();
        assert!(members(&lab) == before, "nothing may be written to such members");
    }
}

#[test]
fn a_bitmap_that_no_member_has_in_order_is_given_up_when_that_is_forced() {
    for (bitmap, at, bytes, words) in [
        ("internal", 0, vec![0; 4], "no bitmap: magic 0x00000000"),
        // As Linux 7.2 leaves it where logical blocks are large.
        ("lockless", 5, vec![3, 3, 3], "chunk states lie over the lockless bitmap's superblock"),
    ] {
        let (lab, contents) = array_with(&format!("--bitmap {bitmap}"));
        ["m0", "m1", "m2"].iter().for_each(|name| lab.write_at(name, BITMAP + at, &bytes));
        let before = members(&lab);
        let ran = lab.run("serve m0 m1 m2");
        assert!(ran.code == 1 && ran.err.contains(words) && ran.err.contains("--force"), "{ran:?}");
        let scanned = lab.run("scan m0 m1 m2").out;
        assert!(scanned.contains(": incomplete\n") && scanned.contains("--force"), "{scanned}");
        let server = lab.serve("--overlay cow m0 m1 m2");
        lab.run("wait data").ok();
        server.stop();
        assert!(members(&lab) == before);
        let server = lab.serve("--force m0 m1 m2");
        lab.run("wait data").ok();
        let detail = lab.detail();
        assert_eq!(detail["last_sync"]["action"], "resync", "{detail:#}");
        assert!(detail["bitmap_place"].is_null());
        lab.other(&format!("nbdcopy {} seen", server.uri())).unwrap().ok();
        server.stop();
        assert!(lab.read("seen") == contents);
        lab.serve("m0 m1 m2").stop();
        // A file that is no bitmap is nothing to give up.
        std::fs::write(lab.path("notes"), "not a bitmap").unwrap();
        for options in ["--force", "--overlay cow2"] {
            let ran = lab.run(&format!("serve {options} --bitmap notes m0 m1 m2"));
            assert!(ran.code == 1 && ran.err.contains("notes"), "{ran:?}");
            assert_eq!(lab.read("notes"), b"not a bitmap");
        }
        // Without a member there is nothing to make redundancy of.
        let (lab, contents) = array_with(&format!("--bitmap {bitmap}"));
        ["m0", "m2"].iter().for_each(|name| lab.write_at(name, BITMAP + at, &bytes));
        let ran = lab.run("serve --degraded --overlay cow m0 m2");
        assert!(ran.code == 1 && ran.err.contains(words), "{ran:?}");
        let server = lab.serve("--degraded --force m0 m2");
        lab.other(&format!("nbdcopy {} seen", server.uri())).unwrap().ok();
        server.stop();
        assert!(lab.read("seen") == contents);
    }
}

#[test]
fn words_of_090_that_are_not_known_are_told() {
    let lab = Lab::new(&[24, 24]);
    lab.run("create data -e 0.90 -l1 --assume-clean m0 m1").ok();
    let bytes = lab.read("m0");
    let size = lapstrake_geometry::Sectors::from_bytes(bytes.len() as u64);
    let at = Version::V090.superblock(size).unwrap().bytes();
    let read = read_at(Version::V090, size, &bytes[at as usize..]).unwrap();
    let Superblock::V090(mut sb) = read else { panic!("version 0.90") };
    sb.gstate_creserved[2] = 0x0500;
    sb.disks[26].reserved[26] = 1;
    lab.write_at("m0", at, &sb.encode());
    let before = lab.read("m0");
    let words = "2 reserved bytes of the superblock are not zero, the first at byte 73";
    let shown = lab.run("examine m0").ok().out;
    assert!(
        shown.contains(words) && shown.contains("byte 0x49 of the superblock is 0x05"),
        "{shown}"
    );
    for refused in ["serve m0 m1", "serve --degraded m0 m1"] {
        let ran = lab.run(refused);
        assert!(ran.code == 1 && ran.err.contains(words), "{ran:?}");
    }
    lab.run("cat --ignore-unknown -o out m0").ok();
    let server = lab.serve("--degraded --name data m1");
    let ran = lab.run("add data m0");
    assert!(ran.code == 1 && ran.err.contains(words), "{ran:?}");
    server.stop();
    assert!(lab.read("m0") == before);
}

#[test]
fn a_spare_that_is_not_understood_is_left_alone() {
    let (lab, _) = array();
    lab.file("m3", 24 << 20);
    let server = lab.serve("m0 m1 m2");
    lab.run("add data m3").ok();
    server.stop();
    change_one(&lab, "m3", |sb| sb.feature_map |= 1 << 30);
    let before = lab.read("m3");
    let server = lab.serve("m0 m1 m2 m3");
    lab.run("fail data m0").ok();
    assert!(lab.detail()["sync"].is_null(), "nobody is there to be rebuilt");
    server.stop();
    assert!(lab.read("m3") == before);
    let made = "create data -l1 --assume-clean m2 m3";
    let ran = lab.run(made);
    assert!(ran.code == 1 && ran.err.contains("m3"), "{ran:?}");
    assert!(lab.read("m3") == before);
    lab.run(&format!("{made} --force")).ok();
}

#[test]
fn a_logical_block_size_is_recorded_shown_and_announced() {
    let lab = Lab::new(&[24, 24, 24]);
    for (options, words) in [
        ("--logical-block-size 8K", "512, 1024, 2048 and 4096"),
        ("--logical-block-size 700", "512, 1024, 2048 and 4096"),
        ("--logical-block-size 4K -e 0.90", "metadata 0.90"),
        ("--logical-block-size 4K --data-offset 1026", "multiples"),
    ] {
        let ran = lab.run(&format!("create data -l5 {options} m0 m1 m2"));
        assert!(ran.code == 1 && ran.err.contains(words), "{ran:?}");
    }
    let made = lab.run("create data -l5 --logical-block-size 4096 --assume-clean --json m0 m1 m2");
    assert_eq!(made.ok().json()["logical_block_bytes"], 4096);
    let shown = lab.run("examine m0").ok().out;
    assert!(shown.contains("Logical Block Size : 4096 bytes"), "{shown}");
    let server = lab.serve("m0 m1 m2");
    let told = lab.other(&format!("nbdinfo --json {}", server.uri())).unwrap().ok().json();
    assert_eq!(told["exports"][0]["block_size_minimum"], 4096);
    assert_eq!(lab.detail()["block_bytes"], 4096);
    let told = lab.run("detail data").ok().out;
    assert!(told.contains("Logical Block : 4096 bytes"), "{told}");
    server.stop();
    let told = lab.run("examine --json m2").ok().json();
    assert_eq!(told[0]["superblock"]["logical_block_bytes"], 4096);

    let made = "create data -l5 --bitmap lockless --logical-block-size 4096 --force m0 m1 m2";
    let warned = lab.run(made).ok().err;
    assert!(warned.contains("where a logical block has 4096 bytes"), "{warned}");

    let made = lab.run("create data -l5 --assume-clean --force --json m0 m1 m2").ok().json();
    assert!(made["logical_block_bytes"].is_null(), "every kernel is to start a default array");
}
