//! Making arrays: what is refused leaves every member as it was, what is made says so.

use crate::support::{Lab, Ran, exists, installed, not_run};
use serde_json::json;

/// Runs a `create` that must be refused, and sees that no byte of any member changed.
fn refused(lab: &Lab, members: &[&str], line: &str, code: i32, words: &[&str]) {
    let before: Vec<_> = members.iter().map(|name| lab.read(name)).collect();
    let ran = lab.run(&format!("create data {line}"));
    assert_eq!(ran.code, code, "{line}: {ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "{line}: no {word:?} in {ran:?}");
    }
    for (name, before) in members.iter().zip(before) {
        assert!(lab.read(name) == before, "{line}: {name} was written");
    }
}

#[test]
fn wrong_counts_chunks_layouts_and_levels_are_refused() {
    let lab = Lab::new(&[16, 16, 16, 16]);
    let all = ["m0", "m1", "m2", "m3"];
    let cases: [(&str, i32, &[&str]); 22] = [
        ("-l5 -n3 m0 m1", 1, &["3 devices are needed", "2 were given", "nothing was written"]),
        ("-l5 -n3 m0 m1 m2 m3", 1, &["3 devices are needed", "4 were given"]),
        ("-l6 m0 m1 m2", 1, &["raid6", "4"]),
        ("-l5 -n3 -x1 m0 m1 m2", 1, &["4 devices are needed"]),
        ("-l5 -x2 m0 m1 m2", 1, &["raid devices (spares not counted), not 1"]),
        ("-l0 -x1 m0 m1 m2", 1, &["spare"]),
        ("-l5 -x9 m0 m1 m2", 2, &["more spares than members"]),
        ("-l1 m0", 1, &["--force"]),
        ("-l5 -c3 m0 m1 m2", 1, &["a chunk of 3 KiB"]),
        ("-l1 -e0.90 --data-offset 1M m0 m1", 1, &["at 1024 KiB", "leave --data-offset out"]),
        ("-l5 -c24 m0 m1 m2", 1, &["power of two"]),
        ("-l1 -c64 m0 m1", 1, &["raid1 takes no chunk"]),
        ("-l5 -p n2 m0 m1 m2", 2, &["layout"]),
        ("-l5 -p nonsense m0 m1 m2", 2, &["nonsense"]),
        ("-l0 m0 missing", 1, &["missing"]),
        ("-l1 missing missing", 1, &["missing"]),
        ("-l5 m0 m1 missing missing", 1, &["2 members missing"]),
        ("-l0 -z 4M m0 m1", 1, &["all of each member"]),
        ("-l0 -b internal m0 m1", 1, &["bitmap"]),
        ("-l1 --bitmap-chunk 64M m0 m1", 1, &["no bitmap", "nothing was written"]),
        ("-l0 --bitmap-chunk 64M m0 m1", 1, &["no bitmap"]),
        ("-l1 m0 m1@515", 1, &["m1@515: the window", "multiple of 512, as m1@512 does"]),
    ];
    for (line, code, words) in cases {
        refused(&lab, &all, line, code, words);
    }
    for line in ["-l7 m0 m1", "-l5 -e2 m0 m1 m2", "-l1 -u12 m0 m1", "m0 m1", "-l1 -b file m0 m1"] {
        refused(&lab, &all, line, 2, &[]);
    }
}

#[test]
fn members_that_are_too_small_twice_or_absent_are_refused_by_name() {
    let lab = Lab::new(&[16, 16]);
    lab.file("tiny", 8192);
    std::os::unix::fs::symlink("m0", lab.path("link")).unwrap();
    let all = ["m0", "m1", "tiny"];
    refused(&lab, &all, "-l1 m0 tiny", 1, &["tiny: ", "too small", "nothing was written"]);
    refused(&lab, &all, "-l1 -z 64M m0 m1", 1, &["m0: ", "nothing was written"]);
    refused(&lab, &all, "-l1 m0 m0", 1, &["m0 and m0", "nothing was written"]);
    refused(&lab, &all, "-l1 m0 link", 1, &["link", "the same device"]);
    refused(&lab, &all, "-l1 m0@0+8M m0@4M+8M", 1, &["the same device"]);
    refused(&lab, &all, "-l1 m0 m9", 1, &["m9", "No such file"]);
    refused(&lab, &all, "-l1 m0 .", 1, &["not a file or block device"]);
    refused(&lab, &all, "-l1 m0 m1@12M+8M", 1, &["window"]);
}

#[test]
fn the_smallest_members_of_each_version_make_an_array_that_starts() {
    let lab = Lab::new(&[]);
    for (version, bytes, refused_below) in
        [("1.0", 20 << 10, true), ("1.1", 1029 << 10, true), ("0.90", 128 << 10, false)]
    {
        for name in ["m0", "m1"] {
            lab.file(name, bytes - 1024);
        }
        if refused_below {
            let line = format!("-e {version} -l linear m0 m1");
            refused(&lab, &["m0", "m1"], &line, 1, &["m0: ", "too small", "nothing was written"]);
        }
        for name in ["m0", "m1"] {
            lab.file(name, bytes);
        }
        lab.run(&format!("create data -e {version} -l linear m0 m1")).ok();
        lab.run("scan m0 m1").ok();
    }
}

#[test]
fn a_raid0_that_090_cannot_describe_says_what_can_be_done() {
    let lab = Lab::new(&[16, 32, 32]);
    let words = ["members of 2 sizes", "choose 1.0, 1.1 or 1.2, or members"];
    refused(&lab, &["m0", "m1", "m2"], "-l0 -e0.90 m0 m1 m2", 1, &words);
    let ran = lab.run("create even -l0 -e0.90 m1 m2").ok();
    assert!(ran.out.contains("no layout is recorded for raid0") && !ran.out.contains("dangerous"));
}

#[test]
fn members_in_use_are_refused() {
    let lab = Lab::new(&[16, 16, 16]);
    lab.run("create used -l1 --assume-clean m0 m1").ok();
    let server = lab.serve("m0 m1");
    refused(&lab, &["m2"], "-l1 --force m1 m2", 1, &["m1: in use", "nothing was written"]);
    server.stop();
}

#[test]
fn what_is_there_is_refused_by_name_and_place_unless_forced() {
    let lab = Lab::new(&[16, 16, 16]);
    lab.run("create old -l1 --assume-clean m0 m1").ok();
    let line = "-l1 --assume-clean m0 m2";
    refused(&lab, &["m0", "m2"], line, 1, &["m0: holds an md superblock 1.2", "old", "--force"]);
    if installed("mke2fs") {
        lab.other("mke2fs -q -F m2").unwrap().ok();
        let words = ["m2: holds an ext2 filesystem (at byte 1080)", "m0: holds an md superblock"];
        refused(&lab, &["m0", "m2"], line, 1, &words);
    } else {
        not_run("refusal of a filesystem", "mke2fs is not installed");
    }
    let made = lab.run(&format!("create new --force {line}")).ok();
    assert!(made.err.contains("m0: holds an md superblock 1.2 of array"), "{made:?}");
    let found = lab.run("examine --json m0 m2").ok().json();
    assert_eq!(found[0]["superblock"]["uuid"], found[1]["superblock"]["uuid"]);
    assert!(found[0]["superblock"]["name"].as_str().unwrap().ends_with("new"));
}

#[test]
fn an_older_superblock_elsewhere_is_erased() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create old -l1 --assume-clean -e 1.0 m0 m1").ok();
    lab.run("create new -l1 --assume-clean --run -e 1.2 m0 m1").ok();
    let found = lab.run("examine --json m0").ok().json();
    assert_eq!(found[0]["findings"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found[0]["superblock"]["version"], "1.2");
}

#[test]
fn a_bitmap_file_that_exists_is_refused_unless_forced() {
    let lab = Lab::new(&[16, 16]);
    std::fs::write(lab.path("bits"), "precious").unwrap();
    let line = "-l1 --assume-clean -b ./bits m0 m1";
    refused(&lab, &["m0", "m1", "bits"], line, 1, &["./bits: exists already"]);
    let run = format!("--run {line}");
    refused(&lab, &["m0", "m1", "bits"], &run, 1, &["./bits: exists already"]);
    let made = lab.run(&format!("create data --force {line}")).ok();
    assert!(!made.err.contains("bits"), "it held nothing known: {made:?}");
    let again = lab.run(&format!("create data --force {line}")).ok();
    let what = "./bits: holds the write-intent bitmap of array ";
    assert!(again.err.contains(what), "{again:?}");
    let printed = lab.run("examine --bitmap bits").ok();
    assert!(printed.out.contains("Magic : 6d746962"), "{printed:?}");
}

/// What would be lost: the way to repeat the command once there is room.
#[test]
fn a_bitmap_file_that_cannot_be_written_is_gone_again() {
    let lab = Lab::new(&[16, 16]);
    let program = env!("CARGO_BIN_EXE_lapstrake");
    // Files are opened, and nothing can be written to them.
    let line = format!("ulimit -f 0; trap '' XFSZ; exec {program} create data -l1 -b ./bits m0 m1");
    let refused = Ran::of(lab.command("sh").args(["-c", &line]).output().unwrap());
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("bits: cannot write the bitmap"), "{refused:?}");
    assert!(!lab.path("bits").exists());
    lab.run("create data -l1 -b ./bits m0 m1").ok();
}

#[test]
fn a_bitmap_file_that_cannot_be_made_says_what_to_do() {
    let lab = Lab::new(&[16, 16]);
    let line = "-l1 --assume-clean -b ./none/bits m0 m1";
    let words = ["./none/bits: cannot make", "nothing was written; make its directory first"];
    refused(&lab, &["m0", "m1"], line, 1, &words);
}

#[test]
fn disk_images_with_a_format_and_files_that_hold_something_are_not_written_over_unseen() {
    let lab = Lab::new(&[16, 16, 16]);
    lab.write_at("m1", 0, b"QFI\xfb\0\0\0\x03");
    refused(&lab, &["m0", "m1"], "-l1 m0 m1", 1, &["m1: holds a disk image in qcow format"]);
    lab.run("create data -l1 --assume-clean m0 missing").ok();
    let server = lab.serve_data("--overlay over m0");
    lab.fill(&server, &vec![1; 8 << 20]);
    server.stop();
    refused(&lab, &["over"], "-l1 over missing", 1, &["over: holds an overlay of Lapstrake's"]);
    // A bitmap's file is written over by force, nothing else is.
    lab.run("create other -l1 --assume-clean m2 missing").ok();
    let line = "--force -l1 --assume-clean -b ./m2 m0 m1";
    refused(&lab, &["m0", "m1", "m2"], line, 1, &["./m2: holds an md superblock", "no bitmap"]);
}

#[test]
fn one_missing_member_makes_a_degraded_array() {
    let lab = Lab::new(&[16, 16, 16]);
    let made = lab.run("create data -l5 -n3 --json m0 missing m2").ok().json();
    assert_eq!(made["members"].as_array().unwrap().len(), 2);
    let scanned = lab.run("scan m0 m2");
    assert_eq!(scanned.code, 3, "{scanned:?}");
    assert!(scanned.out.contains(": degraded"), "{scanned:?}");
}

#[test]
fn members_of_different_sizes_are_warned_about() {
    let lab = Lab::new(&[16, 24]);
    let made = lab.run("create data -l1 --assume-clean m0 m1").ok();
    assert!(made.err.contains("m1: more than 1 %"), "{made:?}");
    let lab = Lab::new(&[16, 24]);
    assert_eq!(lab.run("create data -l0 m0 m1").ok().err, "");
}

#[test]
fn json_tells_what_was_made() {
    let lab = Lab::new(&[64, 64, 64, 64, 64]);
    let uuid = "00112233:44556677:8899aabb:ccddeeff";
    let line = format!("create /dev/md/data -l6 -n4 -x1 -c64 --uuid {uuid} --homehost nas --json");
    let made = lab.run(&format!("{line} --assume-clean m0 m1 m2 m3 m4")).ok().json();
    for (field, value) in [
        ("name", json!("data")),
        ("set_name", json!("nas:data")),
        ("uuid", json!(uuid)),
        ("version", json!("1.2")),
        ("level", json!("raid6")),
        ("layout", json!("left-symmetric")),
        ("chunk_bytes", json!(65536)),
        ("raid_devices", json!(4)),
        ("spare_devices", json!(1)),
        ("component_bytes", json!(63 << 20)),
        ("array_bytes", json!(126 << 20)),
        ("bitmap", json!("none")),
        ("warnings", json!([])),
    ] {
        assert_eq!(made[field], value, "{field} in {made}");
    }
    assert_eq!(made["members"][1]["path"], "m1");
    assert_eq!(made["members"][1]["slot"], 1);
    assert_eq!(made["members"][4]["role"], "spare");
    assert!(!exists(lab.path("run")), "nothing was served");
}

#[test]
fn windows_of_one_file_become_members() {
    let lab = Lab::new(&[64]);
    lab.run("create data -l1 --assume-clean m0@0+16M m0@16M+16M").ok();
    let scanned = lab.run("scan --json m0@0+16M m0@16M").json();
    assert_eq!(scanned["arrays"][0]["state"], "complete", "{scanned}");
}

#[test]
fn what_lies_around_a_window_is_not_written_over() {
    let lab = Lab::new(&[64, 64]);
    let mut ext4 = vec![0; 4096];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    lab.write_at("m0", 0, &ext4);
    let before = lab.read("m0");
    let refused = lab.run("create data -l1 --assume-clean m0@16M+16M m1");
    assert!(refused.code == 1 && refused.err.contains("m0: holds an ext2"), "{refused:?}");
    assert!(lab.read("m0") == before);
    lab.run("create data -l1 --assume-clean --force m0@16M+16M m1").ok();
    // Beside the member of another array there is room.
    let lab = Lab::new(&[64, 64]);
    lab.run("create one -l1 --assume-clean m0@0+16M m1@0+16M").ok();
    lab.run("create two -l1 --assume-clean m0@16M+16M m1@16M+16M").ok();
    let refused = lab.run("create three -l1 --assume-clean m0@8M+16M m1@40M+8M");
    assert!(refused.code == 1 && refused.err.contains("m0: holds an md"), "{refused:?}");
    // A partition table is what windows are for.
    let lab = Lab::new(&[64, 64]);
    let mut table = vec![0; 512];
    table[446..462].copy_from_slice(&[0, 0, 1, 0, 0x83, 0, 1, 0, 0, 8, 0, 0, 0, 0, 1, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    lab.write_at("m0", 0, &table);
    let whole = lab.run("create data -l1 --assume-clean m0 m1");
    assert!(whole.code == 1 && whole.err.contains("partition table"), "{whole:?}");
    lab.run("create data -l1 --assume-clean m0@1M+32M m1").ok();
}

#[test]
fn an_array_that_is_not_in_sync_says_what_to_do() {
    let lab = Lab::new(&[16, 16, 16]);
    let made = lab.run("create data -l5 m0 m1 m2").ok();
    assert!(made.out.contains("--assume-clean"), "{made:?}");
    assert!(made.out.contains("lapstrake serve m0 m1 m2"), "{made:?}");
}

#[test]
fn a_file_named_as_a_window_is_not_taken_for_another() {
    let lab = Lab::new(&[32, 32]);
    lab.file("m0@2026", 32 << 20);
    let before = lab.read("m0");
    for line in ["create data -l1 m0@2026 m1", "examine m0@2026", "scan m0@2026"] {
        let ran = lab.run(line);
        assert_eq!(ran.code, 2, "{line}: {ran:?}");
        assert!(ran.err.contains("m0@2026@0"), "{line}: {ran:?}");
    }
    assert!(lab.read("m0") == before);
    lab.run("create data -l1 --assume-clean m0@2026@0 m1").ok();
    lab.run("examine m0@2026@0").ok();
    assert!(lab.read("m0") == before);
}

#[test]
fn what_fails_is_told_in_json_too() {
    let lab = Lab::new(&[32, 32]);
    let ran = lab.run("create data -l1 --json m0 nothing");
    assert_eq!(ran.code, 1);
    assert!(ran.json()["error"].as_str().unwrap().contains("nothing"), "{ran:?}");
    let ran = lab.run("examine --json m0 nothing");
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()[1]["member"], "nothing");
    assert!(ran.json()[1]["error"].as_str().unwrap().contains("No such file"), "{ran:?}");
    assert!(lab.run("detail --json nowhere").json()["error"].is_string());
    for wrong in ["detail --json", "create data --json -l9 m0", "nonsense --json"] {
        let ran = lab.run(wrong);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.json()["error"].as_str().unwrap().contains("Usage") || wrong.contains("-l9"));
        assert!(ran.err.starts_with("error:"), "{ran:?}");
    }
    assert_eq!(lab.run("detail --json --help").ok().err, "");
}
