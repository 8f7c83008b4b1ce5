//! Promise: arrays nest: a member may be the file of an array that another server serves. Its own members fail and are
//! replaced without the array above noticing, and what is shown is a tree.

use crate::support::{Lab, Ran, Server, exists, not_run, pattern};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// RAID0 over two RAID1 pairs of m0 to m3; m4 is spare. None, said aloud, where there is no FUSE.
fn raid0_over_raid1(lab: &Lab) -> Option<[Server; 3]> {
    if !exists("/dev/fuse") {
        not_run("nested arrays", "there is no /dev/fuse");
        return None;
    }
    let pair = |name: &str, members: &str| {
        lab.run(&format!("create {name} -l1 --bitmap none --assume-clean {members}")).ok();
        lab.serve(&format!("--fuse {name}.raw {members}"))
    };
    let (one, two) = (pair("one", "m0 m1"), pair("two", "m2 m3"));
    lab.run("create top -l0 -c64 one.raw two.raw").ok();
    let top = lab.serve("--fuse top.raw one.raw two.raw");
    Some([top, one, two])
}

/// Top first: it holds the others' files.
fn stop(servers: [Server; 3]) {
    servers.into_iter().for_each(Server::stop);
}

#[test]
fn an_inner_member_fails_and_is_rebuilt_beneath_a_load() {
    let lab = Lab::new(&[24; 5]);
    let Some(servers) = raid0_over_raid1(&lab) else { return };
    let file = File::options().read(true).write(true).open(lab.path("top.raw")).unwrap();
    let contents = pattern(9, 8 << 20);
    file.write_all_at(&contents[..4 << 20], 0).unwrap();
    lab.run("fail one m0").ok();
    file.write_all_at(&contents[4 << 20..], 4 << 20).unwrap();
    file.sync_all().unwrap();
    let detail = lab.run("detail top --json").ok().json();
    assert_eq!(detail["state"].as_array().unwrap().last(), Some(&detail["state"][0]), "whole");
    let one = &detail["members"][0]["array"];
    assert_eq!((&one["name"], &one["state"][1]), (&json!("one"), &json!("degraded")));
    let text = lab.run("detail top").ok().out;
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start:?} in\n{text}")).to_owned()
    };
    assert!(line("├─ one.raw: one").contains("degraded"), "{text}");
    assert!(line("│  ├─ m0").contains("faulty") || line("│  └─ m0").contains("faulty"), "{text}");

    lab.run("remove one m0").ok();
    lab.run("add one m4").ok();
    lab.run("wait one --timeout 60").ok();
    lab.run("fail one m1").ok();
    let mut read = vec![0; contents.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == contents, "what was written is not what is read from the rebuilt member");
    drop(file);
    stop(servers);
}

#[test]
fn a_server_below_that_is_stopped_is_waited_for_no_longer_than_any() {
    let lab = Lab::new(&[24; 5]);
    let Some(servers) = raid0_over_raid1(&lab) else { return };
    servers[1].signal("-STOP");
    let begun = Instant::now();
    for (line, code) in [("status --tree", 1), ("detail top", 0), ("status top --tree", 0)] {
        let ran = lab.run(line);
        assert_eq!(ran.code, code, "{line}: {ran:?}");
        assert!(ran.out.contains("one.raw") && ran.out.contains("two.raw"), "{line}: {ran:?}");
        assert!(ran.err.contains("one.raw has not answered within 1s"), "{line}: {ran:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    servers[1].signal("-CONT");
    stop(servers);
}

#[test]
fn who_looks_for_arrays_says_whose_answer_it_awaits() {
    let lab = Lab::new(&[24; 5]);
    let Some(servers) = raid0_over_raid1(&lab) else { return };
    std::os::unix::fs::symlink("one.raw", lab.path("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", lab.path("lost")).unwrap();
    std::os::unix::fs::symlink("/dev/null", lab.path("null")).unwrap();
    for (line, code) in [("scan .", 0), ("scan m0 one.raw", 3), ("examine m0 one.raw", 0)] {
        // The link comes first where both are met.
        let first = if line == "scan ." { "link" } else { "one.raw" };
        let ran = run_while_stopped(&lab, &servers[1], line, first);
        assert!(ran.code == code && ran.out.contains(first), "{line}: {ran:?}");
        assert!(!ran.err.contains(": no answer within"), "{line}: {ran:?}");
    }
    stop(servers);
}

#[test]
fn who_works_on_members_says_whose_answer_it_awaits() {
    let lab = Lab::new(&[24; 5]);
    let Some([top, one, two]) = raid0_over_raid1(&lab) else { return };
    top.stop();
    lab.run("create data -l1 -fn1 -z16M m4").ok();
    let data = lab.serve("m4");
    for line in
        ["cat one.raw two.raw -o copy", "create x -l1 -f one.raw missing", "add data one.raw -f"]
    {
        run_while_stopped(&lab, &one, line, "one.raw").ok();
    }
    stop([data, one, two]);
}

/// Runs a command while a server is stopped, until it has named the file that does not answer; then both go on.
fn run_while_stopped(lab: &Lab, server: &Server, line: &str, file: &str) -> Ran {
    server.signal("-STOP");
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    let command = command.args(line.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut said = BufReader::new(running.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains(&format!("{file} has not answered within 1s")) {
        assert!(said.read_line(&mut err).unwrap() > 0, "{line}: {err}");
    }
    server.signal("-CONT");
    said.read_to_string(&mut err).unwrap();
    Ran { err, ..Ran::of(running.wait_with_output().unwrap()) }
}

#[test]
fn status_shows_a_tree_of_units() {
    let lab = Lab::new(&[24; 5]);
    let Some(servers) = raid0_over_raid1(&lab) else { return };
    let text = lab.run("status --tree").ok().out;
    let units: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(units.len(), 7, "one root, and everything below it:\n{text}");
    for (unit, words) in units.iter().zip([
        ["top", "raid0", "64K"],
        ["├─ one.raw: one", "raid1", "23M"],
        ["│  ├─ m0", "disk", "in sync"],
        ["│  └─ m1", "disk", "in sync"],
        ["└─ two.raw: two", "raid1", "23M"],
        ["   ├─ m2", "disk", "in sync"],
        ["   └─ m3", "disk", "in sync"],
    ]) {
        assert!(unit.starts_with(words[0]), "{text}");
        assert!(words.iter().all(|word| unit.contains(word)), "{words:?} in {unit:?}");
    }
    let json = lab.run("status --tree --json").ok().json();
    let roots: Vec<&Value> = json["arrays"].as_array().unwrap().iter().collect();
    assert_eq!(roots.len(), 1);
    assert_eq!(roots[0]["members"][1]["array"]["members"][0]["path"], "m2");
    let flat = lab.run("status --json").ok().json();
    assert_eq!(
        flat["arrays"].as_array().unwrap().len(),
        3,
        "without --tree all stand side by side"
    );
    stop(servers);
}
