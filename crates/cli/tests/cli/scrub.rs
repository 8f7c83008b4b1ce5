//! Promise: what does not match is counted as the kernel's md counts it, and named where it can be told;
//! after a repair, or a resync of what was being written, everything matches.

use crate::support::md::Md;
use crate::support::{Lab, pattern};
use serde_json::Value;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// Where the data of these members starts.
const DATA: u64 = MIB;

/// KiB/s of a check of ours that is to be caught half done.
const SLOW: &str = "--sync-speed-max 6000";

/// An array in sync, filled and stopped: options, members.
fn filled(options: &str, members: &str) -> (Lab, Vec<u8>) {
    let lab = Lab::new(&vec![8; members.split(' ').count()]);
    lab.run(&format!("create data --assume-clean {options} {members}")).ok();
    let server = lab.serve_data(members);
    let bytes = pattern(31, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    server.stop();
    (lab, bytes)
}

/// Turns over the bits of some of a member's bytes.
fn corrupt(lab: &Lab, member: &str, offset: u64, len: u64) {
    let file = std::fs::File::open(lab.path(member)).unwrap();
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, DATA + offset).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    lab.write_at(member, DATA + offset, &bytes);
}

/// Runs it to its end: what `wait` says of it.
fn scrub(lab: &Lab, action: &str) -> Value {
    lab.run(&format!("{action} data")).ok();
    lab.run("wait data --json --timeout 60").json()
}

/// What the kernel counts.
fn kernels_count(md: &mut Md, lab: &Lab, members: &str) -> u64 {
    let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}; settle; scrub /dev/md0";
    md.play(lab, members, script).trim().parse().unwrap()
}

/// Options, members, who is corrupted, and whether that can be told. In RAID1 and RAID10 not the first
/// copy, and elsewhere redundancy as well as data: what a repair makes of these keeps the bytes or
/// not, as md's does.
const CASES: [(&str, &str, &str, bool); 10] = [
    ("-l1", "m0 m1 m2", "m1", true),
    ("-l5 -c64", "m0 m1 m2 m3", "m1", false),
    ("-l6 -c64", "m0 m1 m2 m3 m4", "m2", true),
    ("-l10 -c64 -p n2", "m0 m1 m2", "m2", false),
    ("-l1", "m0 m1", "m1", false),
    ("-l4 -c64", "m0 m1 m2", "m2", false),
    ("-l6 -c64 -p ddf-N-continue", "m0 m1 m2 m3", "m0", true),
    ("-l10 -c64 -p n2", "m0 m1 m2 m3", "m1", false),
    ("-l10 -c64 -p f2", "m0 m1 m2 m3", "m3", false),
    ("-l10 -c64 -p o2", "m0 m1 m2", "m0", false),
];

/// What `cargo test` plays of these; of the others below it is one in either direction.
const SAMPLE: usize = 3;

#[test]
fn a_check_counts_what_the_kernels_counts_and_a_repair_ends_it() {
    check_and_repair(&CASES[..SAMPLE]);
}

fn check_and_repair(cases: &[(&str, &str, &str, bool)]) {
    let Some(mut md) = Md::boot("counts of mismatches beside the kernel's") else { return };
    for &(options, members, member, is_told) in cases {
        let what = format!("{options} {members}");
        let (lab, _) = filled(options, members);
        // A byte; pages with one between; more than a chunk, ending within a page; the end.
        let end = 7 * MIB - 64 * KIB;
        for (offset, len) in [
            (5 * KIB, 1),
            (130 * KIB, 100),
            (138 * KIB, 512),
            (MIB, 201_000),
            (end + 60 * KIB, 4096),
        ] {
            corrupt(&lab, member, offset, len);
        }
        let theirs = kernels_count(&mut md, &lab, members);
        let server = lab.serve_data(members);
        let found = scrub(&lab, "check");
        assert_eq!(found["mismatch_sectors"], theirs, "{what}: {found:#}");
        let ranges = found["mismatches"].as_array().unwrap();
        assert!(!ranges.is_empty(), "{what}");
        for range in ranges {
            let named = range["member"].as_str().is_some_and(|path| path.ends_with(member));
            assert_eq!(named, is_told, "{what}: {range}");
        }
        assert_eq!(scrub(&lab, "repair")["mismatch_sectors"], theirs, "{what}");
        assert_eq!(scrub(&lab, "check")["mismatch_sectors"], 0, "{what}");
        let bytes = lab.contents(&server);
        server.stop();
        md.agrees(&lab, members, &bytes);
    }
}

/// Arrays with a bitmap whose last member holds redundancy only, where its data starts and in
/// every twelfth chunk from there.
const WITH_BITMAP: [(&str, &str); 4] = [
    ("-l5 -c64", "m0 m1 m2"),
    ("-l1", "m0 m1"),
    ("-l6 -c64", "m0 m1 m2 m3"),
    ("-l10 -c64 -p n2", "m0 m1 m2 m3"),
];
const BITMAP: &str = "-b internal --bitmap-chunk 64K";
/// As much as the first stripe of any of them takes.
const DIRTY: usize = 192 << 10;

/// Of a dirty array: what was not written everywhere under a set bit, and what differs elsewhere, which
/// nobody has to look at.
fn leave_differences(lab: &Lab, members: &str) {
    let last = members.rsplit(' ').next().unwrap();
    corrupt(lab, last, 0, 9000);
    corrupt(lab, last, 24 * 64 * KIB, 9000);
}

/// The array is clean and whole now, and only what no bit stood for differs.
fn only_the_other_differs(md: &mut Md, lab: &Lab, members: &str, news: &[u8]) {
    let server = lab.serve_data(members);
    let found = scrub(lab, "check");
    let chunk = 64 * KIB;
    let ranges = found["mismatches"].as_array().unwrap();
    let at = |range: &Value| range["offset_bytes"].as_u64().unwrap();
    assert!(!ranges.is_empty() && ranges.iter().all(|r| at(r) >= 24 * chunk), "{found:#}");
    // The rest of copies that differ is whichever is read.
    assert!(lab.contents(&server)[..DIRTY] == *news, "{members}");
    server.stop();
    assert_eq!(found["mismatch_sectors"], kernels_count(md, lab, members), "{members}");
}

#[test]
fn we_resync_what_the_kernel_was_writing_and_no_more() {
    resync_theirs(&WITH_BITMAP[..1]);
}

fn resync_theirs(shapes: &[(&str, &str)]) {
    let Some(mut md) = Md::boot("dirty bitmaps of the kernel") else { return };
    for &(options, members) in shapes {
        let (lab, _) = filled(&format!("{options} {BITMAP}"), members);
        let news = pattern(32, DIRTY);
        std::fs::write(lab.path("news"), &news).unwrap();
        // What is on the disks at this moment is what a power cut would leave.
        let script = "
            quietly mdadm --assemble /dev/md0 ${devices[@]}
            echo 0 >$md/safe_mode_delay
            dd if=/host$dir/news of=/dev/md0 bs=64k oflag=direct status=none
            sync
            for member in /host$dir/m?; do cp $member /host$dir/cut-${member##*/}; done
            sync";
        md.play(&lab, members, script);
        for member in members.split(' ') {
            // The guest keeps the file that it has open.
            std::fs::copy(lab.path(&format!("cut-{member}")), lab.path(member)).unwrap();
        }
        leave_differences(&lab, members);
        let server = lab.serve_data(members);
        let ended = lab.run("wait data --json --timeout 60").ok().json();
        assert_eq!(ended["last_sync"]["action"], "resync", "{options}: {ended:#}");
        server.stop();
        only_the_other_differs(&mut md, &lab, members, &news);
    }
}

#[test]
fn the_kernel_resyncs_what_we_were_writing_and_no_more() {
    leave_to_resync(&WITH_BITMAP[1..2]);
}

fn leave_to_resync(shapes: &[(&str, &str)]) {
    let Some(mut md) = Md::boot("dirty bitmaps of ours") else { return };
    for &(options, members) in shapes {
        let (lab, _) = filled(&format!("{options} {BITMAP}"), members);
        let server = lab.serve_data(&format!("--safe-mode-delay 0 {members}"));
        let news = pattern(33, DIRTY);
        lab.fill(&server, &news);
        server.kill();
        leave_differences(&lab, members);
        let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            settle
            dump $dir/dump
            quietly mdadm --stop /dev/md0
            healthy";
        md.play(&lab, members, script);
        assert!(lab.read("dump")[..DIRTY] == news, "{options}: the kernel reads otherwise");
        only_the_other_differs(&mut md, &lab, members, &news);
    }
}

#[test]
fn a_frozen_check_goes_on_where_it_was_with_what_it_has_found() {
    if !crate::support::md::can_copy("a frozen check") {
        return;
    }
    let (lab, _) = filled("-l1", "m0 m1");
    corrupt(&lab, "m1", 0, 4096);
    corrupt(&lab, "m1", 6 * MIB, 4096);
    let server = lab.serve_data("--sync-speed-max 2000 m0 m1");
    lab.run("check data").ok();
    lab.until("the first difference", |detail| detail["mismatch_sectors"] != 0);
    lab.run("freeze data").ok();
    let frozen = lab.run("wait data --json --timeout 60");
    assert_eq!(frozen.code, 1, "{frozen:?}");
    let held = lab.detail();
    let done = |detail: &Value| detail["sync"]["done_bytes"].as_u64();
    assert!(held["sync"]["frozen"] == true && done(&held) < Some(6 * MIB), "{held:#}");
    lab.run("set data sync_speed_max=0").ok();
    assert_eq!(lab.run("check data").code, 1, "another one");
    lab.run("resume data").ok();
    let found = lab.run("wait data --json --timeout 60").json();
    assert_eq!(found["last_sync"]["result"], "done", "{found:#}");
    let count = |detail: &Value| detail["mismatch_sectors"].as_u64().unwrap();
    assert_eq!(count(&found), 2 * count(&held), "each of two pages once: {found:#}");
    server.stop();
}

/// What of a check is left on record when it is stopped: nothing, so that the next one begins anew. Options
/// and members.
const STOPPED: [(&str, &str); 3] =
    [("-l5 -c64", "m0 m1 m2"), ("-l1", "m0 m1 m2"), ("-l10 -c64 -p f2", "m0 m1 m2 m3")];

#[test]
fn a_check_that_one_leaves_half_done_the_other_does_anew() {
    let Some(mut md) = Md::boot("checks that are stopped") else { return };
    for (options, members) in STOPPED {
        let (lab, _) = filled(options, members);
        // Before and behind where it is stopped, in what no read of the data meets first.
        corrupt(&lab, "m1", 200 * KIB, 4096);
        corrupt(&lab, "m1", 6 * MIB, 4096);
        let all = kernels_count(&mut md, &lab, members);
        let stops = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            begin() { echo check >$md/sync_action; }
            reach $(part $(span)) begin";
        md.play(&lab, members, stops);
        let server = lab.serve_data(&format!("{SLOW} {members}"));
        let detail = lab.detail();
        assert!(detail["sync"].is_null() && detail["resync_from_bytes"].is_null(), "{detail:#}");
        assert_eq!(scrub(&lab, "check")["mismatch_sectors"], all, "{options}: begun by the kernel");
        // And the reverse.
        lab.run("check data").ok();
        let detail = lab.until("a third of a check", |detail| {
            let of = |key: &str| detail["sync"][key].as_u64().unwrap();
            of("done_bytes") >= of("total_bytes") * 3 / 10
        });
        assert_eq!(detail["sync"]["action"], "check");
        server.stop();
        let anew = "quietly mdadm --assemble /dev/md0 ${devices[@]}
            read -r action <$md/sync_action; read -r resync <$md/resync_start
            [ \"$action $resync\" = 'idle none' ] || { echo \"due: $action $resync\"; exit 1; }
            scrub /dev/md0";
        let theirs: u64 = md.play(&lab, members, anew).trim().parse().unwrap();
        assert_eq!(theirs, all, "{options}: begun by us");
    }
}

#[test]
#[ignore = "takes minutes; make soak plays it"]
fn every_level_and_layout_is_counted_and_resynced_as_the_kernel_does() {
    if !crate::support::soaks("every level and layout is counted and resynced as the kernel does") {
        return;
    }
    check_and_repair(&CASES[SAMPLE..]);
    resync_theirs(&WITH_BITMAP);
    leave_to_resync(&WITH_BITMAP);
}

#[test]
fn a_repair_says_where_it_did_not_know_who_was_wrong() {
    if !crate::support::md::can_copy("what a repair says") {
        return;
    }
    for (options, members, words) in [
        ("-l5 -c64", "m0 m1 m2", Some("data was taken to be right, and parity made anew")),
        ("-l1", "m0 m1", Some("of copies the first was taken to be right")),
        ("-l1", "m0 m1 m2", None),
    ] {
        let (lab, _) = filled(options, members);
        corrupt(&lab, "m1", MIB, 4096);
        let server = lab.serve_data(members);
        lab.run("repair data").ok();
        let said = lab.run("wait data --timeout 60").ok().out;
        let Some(words) = words else {
            assert!(said.contains("  4096 bytes at 1048576: m1 was made anew\n"), "{said}");
            assert!(!said.contains("md's rule"), "{said}");
            server.stop();
            continue;
        };
        assert!(said.contains(": it could not be told who was wrong\n"), "{options}: {said}");
        let rule = "1 of the ranges listed, 4096 bytes, were rewritten by md's rule";
        assert!(said.contains(rule) && said.contains(words), "{options}: {said}");
        server.stop();
    }
}

#[test]
fn what_is_found_beyond_the_list_is_counted() {
    const LISTED: u64 = 16384;
    const FOUND: u64 = LISTED + 616;
    let lab = Lab::new(&[136; 2]);
    lab.run("create data -l1 -e 1.0 --assume-clean m0 m1").ok();
    let second = std::fs::File::options().write(true).open(lab.path("m1")).unwrap();
    for page in 0..FOUND {
        // So that no two are one range.
        second.write_all_at(b"x", page * 8 * KIB).unwrap();
    }
    let server = lab.serve_data("m0 m1");
    lab.run("check data").ok();
    let waited = lab.run("wait data --timeout 60 --report found.json");
    assert_eq!(waited.code, 3, "{waited:?}");
    let report: Value = serde_json::from_slice(&lab.read("found.json")).unwrap();
    let ranges = report["mismatches"].as_array().unwrap();
    assert_eq!(ranges.len() as u64, LISTED);
    assert_eq!(report["mismatches_omitted"], FOUND - LISTED);
    let more = format!("and {} more ranges, which --report", LISTED - 20);
    assert!(
        waited.out.contains(&more) && waited.out.contains("and 616 ranges that are on no list")
    );
    server.stop();
}

#[test]
fn a_check_waits_for_its_part_of_the_day() {
    if !crate::support::md::can_copy("a check that waits") {
        return;
    }
    let lab = Lab::new(&[24; 3]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let server = lab.serve_data("m0 m1 m2");
    // The lab's time zone is three hours ahead.
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let hour = (seconds / 3600 + 3) % 24;
    let closed = format!("{:02}:00-{:02}:00", (hour + 2) % 24, (hour + 3) % 24);
    let open = format!("{hour:02}:00-{:02}:00", (hour + 2) % 24);
    let set = format!("set data check_window={closed} sync_speed_max=7000 --json");
    let said = lab.run(&set).ok().json();
    assert_eq!(said["settings"]["check_window"], closed.as_str());
    lab.run("check data").ok();
    let bytes = pattern(71, server.facts["array_bytes"].as_u64().unwrap() as usize);
    lab.fill(&server, &bytes);
    let detail = lab.detail();
    assert_eq!(
        (&detail["sync"]["action"], &detail["sync"]["done_bytes"]),
        (&"check".into(), &0.into())
    );
    assert_eq!(detail["check_window"], closed.as_str());
    let sync = &detail["sync"];
    assert!(sync["awaits_window"] == true && sync["finish_s"].is_null(), "{sync}");
    assert_eq!(sync["speed_bytes"], 0);
    let waits = format!("waits for check_window {closed}");
    let status = lab.run("status data").ok().out;
    assert!(status.contains(&format!("check=DELAYED ({waits})")), "{status}");
    let shown = lab.run("detail data").ok().out;
    let limits = "Sync Speed : at least 1000K/sec beside requests, at most 7000K/sec";
    for words in [&*format!("0% complete, {waits}"), &format!("Check Window : {closed}"), limits] {
        assert!(shown.contains(words), "no {words:?} in {shown}");
    }
    let late = lab.run("wait data --timeout 1");
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.err.starts_with(&format!("data: check {waits}\n")), "{late:?}");
    assert!(late.err.contains(&format!("check does not run: 0.0% {waits}")), "{late:?}");
    lab.run("set data sync_speed_max=0").ok();
    // What is needed does not wait.
    lab.run("idle data").ok();
    lab.file("m3", 24 << 20);
    lab.run("fail data m1").ok();
    lab.run("add data m3").ok();
    lab.run("wait data --timeout 60").ok();
    assert_eq!(lab.detail()["last_sync"]["action"], "recovery");
    lab.run(&format!("set data check_window={open}")).ok();
    lab.run("check data").ok();
    lab.run("wait data --timeout 60").ok();
    assert_eq!(lab.detail()["last_sync"]["action"], "check");
    assert_eq!(lab.detail()["mismatch_sectors"], 0);
    let refused = lab.run("set data check_window=22-6");
    assert!(refused.code == 1 && refused.err.contains("such as 22:00-06:00"), "{refused:?}");
    assert!(refused.err.contains("nothing was changed"), "{refused:?}");
    assert_eq!(lab.detail()["check_window"], open.as_str());
    lab.run("set data check_window=always").ok();
    assert!(lab.detail()["check_window"].is_null());
    server.stop();
}

#[test]
fn what_is_frozen_stays_so_until_it_is_thawed() {
    let lab = Lab::new(&[12; 4]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let usage = lab.run("serve --sync-speed-min 2000 --sync-speed-max 1000 m0 m1 m2");
    assert!(usage.code == 2 && usage.err.contains("would be above"), "{usage:?}");
    let server = lab.serve_data("--frozen --sync-speed-max 900 m0 m1 m2");
    let refused = |action: &str, why: &str| {
        let ran = lab.run(&format!("{action} data"));
        assert!(ran.code == 1 && ran.err.contains(why), "{action}: {ran:?}");
    };
    for action in ["check", "repair", "resync"] {
        refused(action, "the array is frozen");
    }
    lab.run("fail data m2").ok();
    lab.run("add data m3").ok();
    refused("check", "the array is frozen");
    let detail = lab.detail();
    assert!(detail["state"].as_array().unwrap().contains(&"frozen".into()), "{detail:#}");
    assert_eq!(crate::support::md::state(&detail, "m3"), "spare");
    lab.run("resume data").ok();
    lab.until("the recovery", |detail| crate::support::md::state(detail, "m3") == "recovering");
    refused("check", "recovery is running");
    server.stop();
}
