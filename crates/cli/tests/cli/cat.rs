//! Reading an array without serving it.

use crate::support::{Lab, Ran, pattern};
use serde_json::{Value, json};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

/// A mirror whose contents are known, written past the array code: raid1 data lies as it is.
fn mirror() -> (Lab, Vec<u8>) {
    let lab = Lab::new(&[32, 32]);
    let made = lab.run("create data -l1 --assume-clean --json m0 m1").ok().json();
    let bytes = made["array_bytes"].as_u64().unwrap() as usize;
    let start = made["members"][0]["data_offset_bytes"].as_u64().unwrap();
    let mut contents = pattern(7, bytes);
    contents[1 << 20..20 << 20].fill(0);
    for member in ["m0", "m1"] {
        lab.write_at(member, start, &contents);
    }
    (lab, contents)
}

#[test]
fn all_of_it_any_part_of_it_and_nothing_are_read() {
    let (lab, contents) = mirror();
    let size = contents.len();
    for (from, len) in
        [(0, size), (1, 1), (511, 1026), (size - 7, 7), (5, 3 << 20), (9, 0), (size, 0)]
    {
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        command.args(["cat", "m0", "m1", "--offset", &from.to_string()]);
        let output = command.args(["--length", &len.to_string()]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == contents[from..from + len], "{len} bytes at {from}");
    }
    let ran = lab.run("cat -o part --json --length 1T --offset 4K m0 m1");
    assert_eq!((ran.code, &ran.json()["bytes"]), (3, &(size - 4096).into()), "{ran:?}");
    assert!(ran.err.contains("the array ends after") && lab.read("part") == contents[4096..]);
    let ran = lab.run("cat --offset 1T m0 m1");
    assert_eq!(ran.code, 2, "{}", ran.err);
}

#[test]
fn zeros_become_holes_in_a_file() {
    let (lab, contents) = mirror();
    let told = lab.run("cat -o out --json m0 m1").ok().json();
    assert!(lab.read("out") == contents);
    assert_eq!(told["bytes"], contents.len());
    assert_eq!(told["hole_bytes"], 19 << 20);
    let blocks = std::fs::metadata(lab.path("out")).unwrap().blocks() * 512;
    assert!(blocks < contents.len() as u64 - (18 << 20), "{blocks} bytes are allocated");
}

#[test]
fn members_are_never_written() {
    let (lab, _) = mirror();
    let before = (lab.read("m0"), lab.read("m1"));
    let mut permissions = std::fs::metadata(lab.path("m0")).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(lab.path("m0"), permissions).unwrap();
    let old = "this is an old state";
    assert!(!lab.run("cat -o out m0 m1").ok().err.contains(old));
    assert_eq!(lab.run("cat -o out --json m0 m1").ok().json()["may_be_old"], false);
    let half = lab.run("cat -o out --json m1").ok();
    assert!(half.err.contains(old), "m0 may have been in use without it");
    assert_eq!(half.json()["may_be_old"], true);
    let ran = lab.run("cat -o m1 m0 m1");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("m1: is the member m1"), "{ran:?}");
    std::os::unix::fs::symlink("m1", lab.path("link")).unwrap();
    assert_eq!(lab.run("cat -o link m0").code, 1, "m1 is a member, listed or not");
    assert_eq!(lab.run("cat -o link m0 m1").code, 1);
    let refused = lab.run("cat -o . m0 m1");
    assert!(refused.code == 1 && refused.err.contains(".: cannot write to it"), "{refused:?}");
    assert!(refused.err.contains("name a file"), "{refused:?}");
    assert!((lab.read("m0"), lab.read("m1")) == before);
}

#[test]
fn a_reader_that_leaves_is_no_fault() {
    let (lab, _) = mirror();
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let mut child = command
        .args(["cat", "m0", "m1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_limit_of_files_sizes_is_an_error_as_any_other() {
    let (lab, _) = mirror();
    let script =
        format!("ulimit -f 100; exec {} cat m0 m1 -o out", env!("CARGO_BIN_EXE_lapstrake"));
    let ran = Ran::of(lab.command("sh").args(["-c", &script]).output().unwrap());
    assert!(ran.code == 1 && ran.err.contains("File too large"), "{ran:?}");
}

#[test]
fn too_few_members_are_refused_and_explained() {
    let lab = Lab::new(&[32, 32, 32]);
    lab.run("create data -l5 --assume-clean m0 m1 m2").ok();
    let ran = lab.run("cat -o out m0");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("at least 2 are needed"), "{ran:?}");
    assert!(!crate::support::exists(lab.path("out")), "no file is left for nothing");
}

#[test]
fn an_output_in_use_or_of_worth_is_not_overwritten() {
    let lab = Lab::new(&[32, 32, 32, 32]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    lab.run("create other -l1 --assume-clean m2 m3").ok();
    let before = lab.read("m2");
    let ran = lab.run("cat -o m2 m0 m1");
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("md superblock") && ran.err.contains("nothing was written"),
        "{ran:?}"
    );
    assert!(lab.read("m2") == before);
    let server = lab.serve("m2 m3 --name other");
    let ran = lab.run("cat -o m2 --overwrite m0 m1");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("in use by lapstrake"), "{ran:?}");
    server.stop();
    assert_eq!(lab.run("scan m2 m3").code, 0, "the other array is whole");
    lab.run("cat -o m2 --overwrite m0 m1").ok();
    lab.run("cat -o plain m0 m1").ok();
    assert!(lab.read("m2") == lab.read("plain"));
}

#[test]
fn what_nobody_has_is_skipped_if_that_is_asked_for_and_told() {
    let (lab, contents) = mirror();
    let start = lab.run("examine m0 --json").ok().json()[0]["superblock"]["data_offset_bytes"]
        .as_u64()
        .unwrap();
    let bad = [(24 << 20) + 8192..(24 << 20) + 16384, (28 << 20) + 4096..(28 << 20) + 8192];
    let fault = |range: &Range<usize>| {
        format!("op=read,range={}+{},errno=EIO", start + range.start as u64, range.len())
    };
    let faults = bad.iter().map(fault).collect::<Vec<_>>().join(";");
    let read = |line: &str| {
        let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
        command.env("LAPSTRAKE_FAULT", &faults).args(line.split(' ')).output().unwrap()
    };
    let refused = read("cat -o part m0 m1");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("--skip-unreadable"), "{said}");
    let part = lab.read("part");
    assert!(part == contents[..bad[0].start], "what comes before is there: {}", part.len());
    let done = read("cat --skip-unreadable --json -o all m0 m1");
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let ranges = bad.clone().map(|range| json!({ "offset": range.start, "bytes": range.len() }));
    assert_eq!(told["unreadable"], json!(ranges));
    let mut expected = contents;
    bad.into_iter().for_each(|range| expected[range].fill(0));
    assert!(lab.read("all") == expected);
}
