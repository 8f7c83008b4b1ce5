//! Members whose superblocks cannot be followed to the letter: a role that is none, a bad-block log or a bitmap that
//! cannot be used, halves of an array that were used without each other.

use crate::support::{Lab, Ran, pattern};
use crate::unknown::{array, change_one};
use lapstrake_metadata::v1::feature;
use std::fs;

fn bytes(lab: &Lab, names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| lab.read(name)).collect()
}

fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, 1, "{ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "{word:?} is not said: {}", ran.err);
    }
}

#[test]
fn a_role_that_is_none_is_left_out_until_a_slot_is_named_for_it() {
    let (lab, contents) = array();
    // As some NAS mark a member.
    change_one(&lab, "m1", |sb| sb.dev_roles[1] = 0x8001);
    let before = bytes(&lab, &["m0", "m1", "m2"]);
    let told = ["unknown role 0x8001", "perhaps slot 1", "--force-role DEVICE=SLOT"];
    refused(&lab.run("serve m0 m1 m2"), &told);
    let ran = lab.run("cat -o out m0 m1 m2").ok();
    assert!(ran.err.contains("perhaps slot 1") && lab.read("out") == contents, "{}", ran.err);
    refused(&lab.run("serve --force-role m1=3 m0 m1 m2"), &["slot 3", "has 3 slots"]);
    refused(&lab.run("cat -o out --force-role m0=0 m0 m1 m2"), &["m0", "does not know"]);
    refused(&lab.run("cat -o out --force-role m3=0 m0 m1 m2"), &["m3", "none of the members"]);
    assert!(bytes(&lab, &["m0", "m1", "m2"]) == before, "nothing was written");
    // What it holds is read: without m0 nothing else has it.
    lab.run("cat --overwrite -o out --force-role m1=1 m1 m2").ok();
    assert!(lab.read("out") == contents);
    let server = lab.serve("--force-role m1=1 m0 m1 m2");
    lab.run("status").ok();
    server.stop();
    lab.run("cat --overwrite -o out m1 m0 m2").ok();
    assert!(lab.read("out") == contents, "its superblock says now what it is");
}

/// Every superblock calls it so: without a word it is no reason to write to the others and leave it behind.
#[test]
fn others_are_not_written_without_the_one_whose_role_is_none() {
    let (lab, contents) = array();
    for name in ["m0", "m1", "m2"] {
        change_one(&lab, name, |sb| sb.dev_roles[1] = 0x8001);
    }
    let before = bytes(&lab, &["m0", "m1", "m2"]);
    refused(&lab.run("serve m0 m1 m2"), &["unknown role 0x8001", "slot 1 is empty", "--degraded"]);
    assert!(lab.run("scan m0 m1 m2").out.contains("not to be started as it is"));
    lab.run("cat -o out m0 m1 m2").ok();
    assert!(lab.read("out") == contents);
    assert!(bytes(&lab, &["m0", "m1", "m2"]) == before, "nothing was written");
    let server = lab.serve("--degraded m0 m1 m2");
    server.stop();
    assert!(lab.read("m1") == before[1], "what is left is never written");
}

#[test]
fn a_bad_block_log_that_cannot_be_used_costs_its_member_only_where_that_is_written() {
    let (lab, contents) = array();
    change_one(&lab, "m1", |sb| {
        sb.feature_map |= feature::BAD_BLOCKS;
        // Units of 512 << 40 bytes, larger than any device.
        sb.bblog_shift = 40;
    });
    let ran = lab.run("cat -o out m0 m1 m2").ok();
    assert!(ran.err.contains("bad-block log") && ran.err.contains("m1"), "{}", ran.err);
    assert!(lab.read("out") == contents);
    let server = lab.serve("--overlay cow m0 m1 m2");
    server.stop();
    let before = lab.read("m1");
    refused(
        &lab.run("serve m0 m1 m2"),
        &["m1: left", "bad-block log cannot be used", "--degraded"],
    );
    let server = lab.serve("--degraded m0 m1 m2");
    lab.file("zeros", contents.len() as u64);
    lab.other(&format!("nbdcopy --flush zeros {}", server.uri())).unwrap().ok();
    server.stop();
    assert!(lab.read("m1") == before, "it was left out");
    lab.run("cat --overwrite -o out m0 m2").ok();
    assert!(lab.read("out") == lab.read("zeros"));
}

#[test]
fn a_bitmap_may_reach_over_a_bad_block_log_without_entries() {
    let lab = Lab::new(&[24, 24]);
    lab.run("create data -l1 --bitmap internal --assume-clean m0 m1").ok();
    for name in ["m0", "m1"] {
        // The bitmap's superblock is 256 bytes; its bits go on to where the log is said to be.
        change_one(&lab, name, |sb| {
            (sb.bblog_offset, sb.bblog_size) = (sb.bitmap_offset + 1, 8);
        });
    }
    let server = lab.serve("m0 m1");
    let contents = pattern(5, server.facts["array_bytes"].as_u64().unwrap() as usize);
    fs::write(lab.path("in"), &contents).unwrap();
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    let detail = lab.run("detail data --json").ok().json();
    assert_eq!(detail["bitmap_place"], "internal", "{detail}");
    server.stop();
    lab.run("cat -o out m1").ok();
    assert!(lab.read("out") == contents);
}

#[test]
fn of_two_halves_that_saw_as_many_events_the_user_prefers_one() {
    let lab = Lab::new(&[24, 24]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    lab.serve("m0 m1").stop();
    for (name, seed) in [("m0", 1), ("m1", 2)] {
        let server = lab.serve(&format!("--degraded {name}"));
        let contents = pattern(seed, server.facts["array_bytes"].as_u64().unwrap() as usize);
        fs::write(lab.path(&format!("of-{name}")), &contents).unwrap();
        lab.other(&format!("nbdcopy --flush of-{name} {}", server.uri())).unwrap().ok();
        server.stop();
    }
    for name in ["m0", "m1"] {
        change_one(&lab, name, |sb| sb.events = 40);
    }
    let before = bytes(&lab, &["m0", "m1"]);
    for order in ["m0 m1", "m1 m0"] {
        let told =
            ["split", "m0", "m1", "--prefer", "as many events, 40", "m0 was last updated 20"];
        refused(&lab.run(&format!("serve {order}")), &told);
        refused(&lab.run(&format!("cat -o out {order}")), &told);
        let scanned = lab.run(&format!("scan {order}")).out;
        assert_eq!(scanned.matches("; last updated").count(), 2, "{scanned}");
        for name in ["m0", "m1"] {
            lab.run(&format!("cat --overwrite -o out --prefer {name} {order}")).ok();
            assert!(lab.read("out") == lab.read(&format!("of-{name}")), "{name} of {order}");
        }
    }
    lab.run("cat --overwrite -o out m1").ok();
    assert!(lab.read("out") == lab.read("of-m1"), "each can be read by itself");
    assert!(bytes(&lab, &["m0", "m1"]) == before, "nothing was written");
    let server = lab.serve("--degraded --prefer m1 m0 m1");
    lab.other(&format!("nbdcopy --flush of-m1 {}", server.uri())).unwrap().ok();
    server.stop();
    lab.run("cat --overwrite -o out m0 m1").ok();
    assert!(lab.read("out") == lab.read("of-m1"), "m0 is out of date now");
    assert!(lab.read("m0") == before[0]);
}

#[test]
fn of_two_halves_it_is_told_how_much_each_has_written() {
    let lab = Lab::new(&[24, 24]);
    lab.run("create data -l1 --bitmap internal --bitmap-chunk 1M --assume-clean m0 m1").ok();
    let server = lab.serve("m0 m1");
    let all = server.facts["array_bytes"].as_u64().unwrap().div_ceil(1 << 20);
    server.stop();
    for (name, mib) in [("m0", 1), ("m1", 3)] {
        let server = lab.serve(&format!("--degraded {name}"));
        lab.fill(&server, &pattern(mib, (mib as usize) << 20));
        server.stop();
        change_one(&lab, name, |sb| sb.events = 40);
    }
    let told = [("m0", 1), ("m1", 3)].map(|(name, dirty)| {
        let written =
            format!("by its bitmap, {dirty} of {all} chunks of 1024 KiB were written since");
        (name, written)
    });
    let ran = lab.run("serve m0 m1");
    for (name, written) in told {
        let line = ran.err.lines().find(|line| line.contains(&format!("{name} was last updated")));
        assert!(line.is_some_and(|line| line.contains(&written)), "{written}: {}", ran.err);
    }
}
