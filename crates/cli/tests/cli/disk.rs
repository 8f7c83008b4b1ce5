//! Promise: profiles of disks can be listed, shown, made of DiskSim's files or by reading, and judged by a
//! trace; what cannot be used is named, and nothing is written then.

use crate::support::{Lab, exists};
use serde_json::Value;

const MODEL: &str = include_str!("../../../model/tests/data/small.model");
const SEEK: &str = include_str!("../../../model/tests/data/small.seek");
const SPECS: &str = include_str!("../../../model/tests/data/small.diskspecs");

/// A directory with DiskSim's files for a disk that never was.
fn lab() -> Lab {
    let lab = Lab::new(&[]);
    for (name, text) in [("x.model", MODEL), ("x.seek", SEEK), ("x.diskspecs", SPECS)] {
        lab.file(name, 0);
        lab.write_at(name, 0, text.as_bytes());
    }
    lab
}

const IMPORT: &str = "disk import --model x.model --diskspecs x.diskspecs -o x.toml";

#[test]
fn built_in_profiles_are_listed_and_shown() {
    let lab = Lab::new(&[]);
    let listed = lab.run("disk list --json").ok().json();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    for name in ["ST340015A", "ST3160215A", "SP1614N", "ST9146803SS", "ST973402SS", "hdd-20tb"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(lab.run("disk list").ok().out.contains("ST340015A"));
    let shown = lab.run("disk show hdd-20tb --json").ok().json();
    let rotation = &shown["hard-disk"]["rotation"];
    assert_eq!(
        (rotation["value"].as_f64(), rotation["unit"].as_str()),
        (Some(7200.0), Some("rpm"))
    );
    assert_eq!(shown["blocks"], 39_063_650_304_u64);
    let unknown = lab.run("disk show floppy");
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("disk list"), "{unknown:?}");
}

#[test]
fn files_of_disksim_become_a_profile_that_replays_a_trace() {
    let lab = lab();
    let made = lab.run(&format!("{IMPORT} --json")).ok().json();
    assert_eq!((made["name"].as_str(), made["was_there"].as_bool()), (Some("SMALL"), Some(false)));
    let told = lab.run(IMPORT).ok().out;
    assert!(told.contains("already so") && told.contains("its Block count is 4500"), "{told}");
    assert_eq!(made["declared_blocks"], 4500);
    let trace = "R Hit 0 8 12000 20000\nW Hit 3000 8 1500 20000\nR Hit 8 8 900 20000\n";
    lab.file("x.trace", 0);
    lab.write_at("x.trace", 0, trace.as_bytes());
    let report = lab.run("disk replay x.toml x.trace --json").ok().json();
    assert_eq!(report["requests"], 3);
    assert_eq!(report["measured_mean_ms"], 4.8);
    assert!(report["demerit_percent"].as_f64().unwrap() > 0.0);
    let rungs: Vec<&str> = report["ladder"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rung| rung["rung"].as_str().unwrap())
        .collect();
    assert_eq!(rungs, ["constant", "data sheet", "seek curve", "cache", "full"]);
    assert!(lab.run("disk replay x.toml x.trace").ok().out.contains("demerit"));
}

#[test]
fn what_cannot_be_used_is_named_and_nothing_is_written() {
    let lab = lab();
    lab.file("x.trace", 0);
    let told = |command: &str, part: &str| {
        let ran = lab.run(command);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains(part), "{ran:?}");
    };
    told(&IMPORT.replace("x.model", "x.seek"), "the model: line 1");
    told(&IMPORT.replace("x.model", "y.model"), "y.model: cannot read it");
    assert!(!exists(lab.path("x.toml")));
    lab.run(IMPORT).ok();
    told("disk replay x.toml x.trace", "the trace has no requests");
    told("disk replay x.trace x.trace", "x.trace: not a profile");
    lab.write_at("x.trace", 0, b"R Hit 9000 8 1 1\n");
    told("disk replay x.toml x.trace", "request 1 ends at block 9008");
    lab.write_at("x.toml", 0, b"#");
    told(IMPORT, "--force replaces it");
    lab.run(&format!("{IMPORT} --force")).ok();
    let over = IMPORT.replace("x.toml", "x.diskspecs");
    told(&format!("{over} --force"), "is x.diskspecs itself; name another file to write");
    lab.run(&format!("{IMPORT} --force")).ok();
}

#[test]
fn blocks_in_files_of_their_own_are_read_relative_to_who_names_them() {
    let lab = lab();
    lab.run(IMPORT).ok();
    let whole = std::fs::read_to_string(lab.path("x.toml")).unwrap();
    let (start, rest) = MODEL.split_once("dm_layout_g1 {").unwrap();
    let (zones, rest) = rest.split_once("      ]\n   },").unwrap();
    let (scheme, first) = zones.split_once("dm_layout_g1_zone {").unwrap();
    let (first, second) = first.split_once("},").unwrap();
    let layout = format!("dm_layout_g1 L {{{scheme}source x.zone,{second}      ]\n}}\n");
    std::fs::create_dir(lab.path("parts")).unwrap();
    std::fs::write(lab.path("x.model"), format!("{start}source parts/x.layout,{rest}")).unwrap();
    let again = IMPORT.replace("x.toml", "y.toml");
    let gone = lab.run(&again);
    let told =
        "x.model: the model: \"Layout Model\" is in the file parts/x.layout, which is not there";
    assert!(gone.code == 1 && gone.err.contains(told), "{gone:?}");
    std::fs::write(lab.path("parts/x.layout"), &layout).unwrap();
    std::fs::write(lab.path("parts/x.zone"), format!("dm_layout_g1_zone Z {{{first}}}\n")).unwrap();
    lab.run(&again).ok();
    assert_eq!(std::fs::read_to_string(lab.path("y.toml")).unwrap(), whole);
    let onto = lab.run(&format!("{} --force", IMPORT.replace("x.toml", "parts/x.zone")));
    assert!(onto.code == 1 && onto.err.contains("x.zone"), "{onto:?}");
    std::fs::write(lab.path("parts/x.zone"), "source x.zone\n").unwrap();
    let circle = lab.run(&again);
    let told = "each other more than 4 deep; nothing was written";
    assert!(circle.code == 1 && circle.err.contains(told), "{circle:?}");
}

#[test]
fn a_disk_that_is_too_small_or_absent_is_not_measured() {
    let lab = Lab::new(&[1]);
    let small = lab.run("disk measure m0 -o m0.toml");
    assert_eq!(small.code, 1, "{small:?}");
    assert!(!exists(lab.path("m0.toml")));
    let absent: Value = lab.run("disk measure m9 -o m9.toml --json").json();
    assert!(absent["error"].as_str().unwrap().contains("m9"), "{absent}");
}

#[test]
fn a_profile_that_cannot_be_and_input_without_end_are_refused() {
    let lab = lab();
    let text = lab.run("disk show hdd-4tb").ok().out;
    let told = |command: &str, part: &str| {
        let ran = lab.run(command);
        assert_eq!(ran.code, 1, "{command}: {ran:?}");
        assert!(ran.err.contains(part), "{command}: {ran:?}");
    };
    for (old, new, part) in [
        ("full_ms = 20.00", "full_ms = -20.0", "x.toml: seek.full_ms is -20; it must be from 0.7"),
        ("segments = 64", "segments = 4000000000", "buffer.segments is 4,000,000,000; it must be"),
        ("segments = 64\n", "", "missing field `segments`"),
    ] {
        std::fs::write(lab.path("x.toml"), text.replacen(old, new, 1)).unwrap();
        told("disk show x.toml", part);
    }
    assert!(!lab.run("disk show x.toml").err.contains("line 1,"));
    std::fs::write(lab.path("x.toml"), &text).unwrap();
    told("disk show /dev/zero", "longer than 16 MiB");
    told("disk replay x.toml /dev/zero", "longer than 256 MiB");
    told("disk show STM3160215A", "is ST3160215A meant?");
    std::fs::write(lab.path("x.trace"), "R Hit 0 8 0 0\nR Hit 8 8 0 0\n").unwrap();
    told("disk replay x.toml x.trace", "their mean service time is 0");
    std::fs::write(lab.path("x.trace"), "R Hit 0 8 1e30 0\n").unwrap();
    told("disk replay x.toml x.trace", "line 1: its service time is no number from 0 to 10^9");
}

#[test]
fn what_is_no_disk_is_named_and_what_is_memory_is_warned_of() {
    let lab = Lab::new(&[1, 128]);
    let told = |command: &str, part: &str| {
        let ran = lab.run(command);
        assert_eq!(ran.code, 1, "{command}: {ran:?}");
        assert!(ran.err.contains(part), "{command}: {ran:?}");
    };
    let fifo = std::process::Command::new("mkfifo").arg(lab.path("fifo")).status();
    assert!(fifo.is_ok_and(|status| status.success()));
    for not in ["fifo", "/dev/null", "/dev/zero", "."] {
        told(&format!("disk measure {not} -o x.toml"), "no regular file or block device");
    }
    told("disk measure m0 -o x.toml", "262144 (128 MiB) are the least");
    told("disk measure m1 -o .", "is a directory");
    told("disk measure m1 -o none/x.toml", "there is no such directory");
    let json = lab.run("disk measure m1 -o x.toml --json").ok();
    // Temporary files may lie in memory as a whole.
    let words = ["it has a hole at byte 0", "it lies on a file system in memory"]
        .map(|why| format!("{why}: what is read there is memory, not a disk"));
    assert!(words.iter().any(|words| json.err.contains(words)), "{json:?}");
    let found = json.json();
    assert_eq!(found["kind"], "solid-disk", "{found}");
    let latency = &found["latency_us"];
    assert!(latency["low"].as_f64() <= latency["value"].as_f64(), "{latency}");
    assert!(latency["value"].as_f64() <= latency["high"].as_f64(), "{latency}");
    let shown = lab.run("disk show x.toml --json").ok().json();
    assert!(shown["solid-disk"]["interface"]["interval"].is_array(), "{shown}");
    told("disk measure m1 -o x.toml", "is there already; --force replaces it");
    std::fs::hard_link(lab.path("m1"), lab.path("alias")).unwrap();
    told("disk measure m1 -o alias --force", "alias: is m1 itself; name another file to write");
}
