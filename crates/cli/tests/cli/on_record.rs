//! Promise: what superblocks do not record, or record as bad, the user can say or doubt, without a write.

use crate::support::md::can_copy;
use crate::support::{Lab, installed, not_run, pattern};

/// RAID0 of unlike members that does not record its layout.
fn unrecorded(layout: &str) -> (Lab, Vec<u8>) {
    let lab = Lab::new(&[12, 22, 32]);
    lab.run("create data -l0 -c64 -e 1.0 -p original m0 m1 m2").ok();
    let bytes = lab.run("cat m0 m1 m2 -o empty --json").ok().json()["bytes"].as_u64().unwrap();
    lab.file("in", bytes);
    lab.other("mke2fs -q -F -b 1024 in").unwrap().ok();
    for member in ["m0", "m1", "m2"] {
        let json = lab.run(&format!("examine --json {member}")).ok().json();
        let at = json[0]["superblock"]["super_offset_bytes"].as_u64().unwrap();
        let mut superblock = lab.read(member)[at as usize..][..4096].to_vec();
        // The feature RAID0_LAYOUT.
        superblock[9] &= !0x10;
        rewrite(&lab, member, at, &mut superblock);
    }
    let server = lab.serve_data(&format!("m0 m1 m2 --raid0-layout {layout}"));
    let contents = lab.read("in");
    lab.fill(&server, &contents);
    server.stop();
    (lab, contents)
}

#[test]
fn an_unrecorded_layout_is_said_and_what_is_on_it_tells_which() {
    let what = "layouts of RAID0 that are not recorded";
    if !can_copy(what) {
        return;
    }
    if !installed("mke2fs") {
        return not_run(what, "mke2fs is not installed");
    }
    for (layout, other) in [("original", "alternate"), ("alternate", "original")] {
        let (lab, contents) = unrecorded(layout);
        let ran = lab.run("cat m0 m1 m2 -o out");
        assert_eq!(ran.code, 1, "{ran:?}");
        let likely = format!("makes {layout} likely: of 4 structures");
        assert!(ran.err.contains(&likely) && ran.err.contains("--raid0-layout"), "{ran:?}");
        let ran = lab.run("scan m0 m1 m2");
        assert!(ran.code == 3 && ran.out.contains(": unsupported"), "{ran:?}");
        for (said, is_right) in [(layout, true), (other, false)] {
            lab.run(&format!("cat --raid0-layout {said} m0 m1 m2 -o {said}")).ok();
            assert_eq!(lab.read(said) == contents, is_right, "{layout}, {said}");
        }
    }
}

/// Bytes.
fn data_offset(lab: &Lab) -> u64 {
    let superblock = lab.run("examine --json m0").ok().json().take()[0]["superblock"].take();
    superblock["data_offset_bytes"].as_u64().unwrap()
}

/// RAID1 that has eight sectors from these on of the data on record as bad, on either member.
fn with_bad_blocks(on_record: [&[u64]; 2]) -> (Lab, Vec<u8>) {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --bitmap none --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let contents = pattern(8, 1 << 20);
    lab.fill(&server, &contents);
    server.stop();
    let first = data_offset(&lab) / 512;
    for (member, sectors) in ["m0", "m1"].iter().zip(on_record) {
        let words: Vec<u64> = sectors.iter().map(|at| (first + at) << 10 | 8).collect();
        record(&lab, member, &words);
    }
    (lab, contents)
}

/// Fills the bad-block log of a member of 1.2, and has its superblock say so.
fn record(lab: &Lab, member: &str, words: &[u64]) {
    let json = lab.run(&format!("examine --json {member}")).ok().json();
    let fields = &json[0]["superblock"]["fields"];
    let at = |field: &str| fields[field].as_i64().unwrap();
    let log = (at("super_offset") + at("bblog_offset")) as u64 * 512;
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    let mut bytes: Vec<u8> = words.collect();
    bytes.resize(4096, 0xff);
    lab.write_at(member, log, &bytes);
    let mut superblock = lab.read(member)[4096..8192].to_vec();
    // The feature BAD_BLOCKS.
    superblock[8] |= 8;
    rewrite(lab, member, 4096, &mut superblock);
}

#[test]
fn blocks_on_record_as_bad_are_read_where_nobody_else_has_them() {
    if !can_copy("blocks on record as bad") {
        return;
    }
    let (lab, contents) = with_bad_blocks([&[64, 128], &[64]]);
    // What was written to the second since is not on the first, which is not asked for what the second has.
    let ran = lab.run("examine --badblocks m0").ok();
    assert_eq!(ran.out.matches("for 8 sectors").count(), 2, "{ran:?}");
    let ran = lab.run("cat m0 m1 --length 1M -o out");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("4096 of these no other member here has"), "{ran:?}");
    assert!(ran.err.contains("--ignore-bad-block-log"), "{ran:?}");
    lab.write_at("m0", data_offset(&lab) + 128 * 512, &[1; 4096]);
    let before = lab.read("m0");
    lab.run("cat m0 m1 --length 1M --ignore-bad-block-log -o out").ok();
    assert!(lab.read("out") == contents);
    assert!(lab.read("m0") == before);
    let ran = lab.run("serve m0 m1 --ignore-bad-block-log");
    assert!(ran.code == 2 && ran.err.contains("--update force-no-bbl"), "{ran:?}");
    // For good.
    lab.serve("m1 --degraded --update force-no-bbl").stop();
    let ran = lab.run("examine --badblocks m1").ok();
    assert!(ran.out.contains("No bad-blocks list"), "{ran:?}");
    lab.run("cat m1 --length 1M -o out").ok();
    assert!(lab.read("out") == contents);
}

#[test]
fn scan_proposes_nothing_that_serve_would_refuse() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --bitmap none --assume-clean m0 m1").ok();
    // An entry beyond any device.
    record(&lab, "m0", &[u64::MAX - 1]);
    let refused = lab.run("serve m0 m1 --run true");
    let ran = lab.run("scan m0 m1");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("not to be started as it is: the bad-block log of m0"), "{ran:?}");
    assert!(!ran.out.contains("lapstrake serve"), "{ran:?}");
    assert!(ran.out.contains("--update force-no-bbl"), "the way on is told: {ran:?}");
}

/// Puts a superblock of 1.x back with the checksum that it has to have (md's: the sum of 32-bit words, folded).
pub fn rewrite(lab: &Lab, member: &str, at: u64, superblock: &mut [u8]) {
    superblock[216..220].fill(0);
    let count = u32::from_le_bytes(superblock[220..224].try_into().unwrap()) as usize;
    let size = 256 + count * 2;
    let words = superblock[..size].chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from(u32::from_le_bytes(word))
    });
    let sum: u64 = words.sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    superblock[216..220].copy_from_slice(&(folded as u32).to_le_bytes());
    lab.write_at(member, at, superblock);
}

#[test]
fn what_a_rescue_could_not_read_is_a_bad_block() {
    if !can_copy("images with a map of ddrescue") {
        return;
    }
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --bitmap none --assume-clean m0 m1").ok();
    let server = lab.serve_data("m0 m1");
    let contents = pattern(8, 1 << 20);
    lab.fill(&server, &contents);
    server.stop();
    // ddrescue leaves zeros, on either image in another place.
    for (member, place) in [("m0", 64 << 10), ("m1", 128 << 10)] {
        let at = data_offset(&lab) + place;
        lab.write_at(member, at, &[0; 4096]);
        let (behind, rest) = (at + 4096, (16 << 20) - at - 4096);
        let map = format!("# map\n0 + 1\n0 {at:#x} +\n{at:#x} 0x1000 -\n{behind:#x} {rest:#x} +\n");
        std::fs::write(lab.path(&format!("{member}.map")), map).unwrap();
    }
    let maps = "--ddrescue-map m0=m0.map --ddrescue-map m1=m1.map";
    lab.run(&format!("cat {maps} m0 m1 --length 1M -o out")).ok();
    assert!(lab.read("out") == contents);
    let ran = lab.run("cat --ddrescue-map m0=m0.map m0 --length 1M -o out");
    assert!(ran.code == 1 && ran.err.contains("cannot read the array at byte 65536"), "{ran:?}");
    let before = [lab.read("m0"), lab.read("m1")];
    let server = lab.serve_data(&format!("{maps} m0 m1 --overlay cow"));
    lab.run("check data").ok();
    lab.run("wait data --timeout 60").ok();
    assert!(lab.contents(&server)[..1 << 20] == contents);
    // What is written is in the overlay, and is read when it is continued.
    let contents = pattern(9, 1 << 20);
    lab.fill(&server, &contents);
    server.stop();
    assert!([lab.read("m0"), lab.read("m1")] == before);
    for lost in ["m0", "m1"] {
        std::fs::copy(lab.path("cow"), lab.path(&format!("cow-{lost}"))).unwrap();
        let again = lab.serve_data(&format!("{maps} m0 m1 --overlay cow-{lost}"));
        lab.run(&format!("fail data {lost}")).ok();
        assert!(lab.contents(&again)[..1 << 20] == contents, "without {lost}");
        again.stop();
    }
    assert!([lab.read("m0"), lab.read("m1")] == before);
    let ran = lab.run("cat --ddrescue-map x=m0.map m0 m1 -o out");
    assert!(ran.code == 1 && ran.err.contains("x is the path of no member"), "{ran:?}");
}
