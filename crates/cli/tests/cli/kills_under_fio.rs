//! Promise: after a `kill -9` of the server amid the writes of fio, each write that was answered is there, by fio's own
//! check of what it reads from Lapstrake and from the kernel's md.
//!
//! fio kills the server itself, right after it has noted which of its writes are done, and what it has drawn them
//! from. Its check draws them anew and stops before the first one that was not done: what was in flight may be old or
//! new, which `kills.rs` looks at.

use crate::support::md::{Md, can_copy};
use crate::support::{Lab, Ran, Server, exists, installed, not_run, pattern};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Of writes in flight.
const DEPTH: u64 = 16;
/// fio's note.
const NOTE: &str = "local-load-0-verify.state";

/// Options, members and their MiB. While a resync is due, one runs; a RAID5 would begin with a recovery, and what is
/// killed without a member has a write hole.
const ARRAYS: [(&str, &str, u64); 4] = [
    ("-l5 -c64 --force -b internal --bitmap-chunk 64K", "m0 m1 m2", 12),
    ("-l10 -c64 -p f2", "m0 m1 m2 m3", 12),
    ("-l6 -c64", "m0 m1 m2 m3", 12),
    ("-l1", "m0 m1", 24),
];

#[test]
fn what_fio_saw_answered_outlives_kills() {
    ARRAYS[..2].iter().for_each(|array| kill_under_load(*array, 2));
}

#[test]
#[ignore = "takes minutes; make soak plays it"]
fn what_fio_saw_answered_outlives_fifty_kills_of_every_level() {
    if crate::support::soaks("what fio saw answered outlives fifty kills of every level") {
        ARRAYS.iter().for_each(|array| kill_under_load(*array, 50));
    }
}

fn kill_under_load((options, members, mib): (&str, &str, u64), kills: u64) {
    let what = format!("kills under fio, {options}");
    if !can_copy(&what) {
        return;
    }
    if !installed("fio") {
        return not_run(&what, "fio is not installed");
    }
    let lab = Lab::new(&vec![mib; members.split(' ').count()]);
    lab.run(&format!("create data {options} {members}")).ok();
    let mut md = Md::boot(&what);
    let mut server = lab.serve_data(members);
    let bytes = server.facts["array_bytes"].as_u64().unwrap();
    for (kill, word) in (0..kills).zip(pattern(bytes, 2 * kills as usize).chunks(2)) {
        let load = Load { bytes, seed: kill + 1 };
        // A request counts once for each shard that it goes to.
        let requests = 100 + u64::from(u16::from_le_bytes([word[0], word[1]])) % 300;
        kill_one(&lab, server, &load, requests);
        // fio goes by what it finds, not by its note alone.
        lab.file("nothing", bytes);
        let missed = load.check(&lab, "--ioengine=psync --filename=nothing");
        assert_ne!(missed.code, 0, "{missed:?}");
        if let Some(md) = &mut md {
            let copies = members.split(' ').map(|name| {
                std::fs::copy(lab.path(name), lab.path(&format!("{name}.copy"))).unwrap();
                format!("{name}.copy")
            });
            let script = "quietly mdadm --assemble /dev/md0 ${devices[@]}
                settle
                dump $dir/dump
                matches
                quietly mdadm --stop /dev/md0
                healthy";
            md.play(&lab, &copies.collect::<Vec<_>>().join(" "), script);
            load.is_there(&lab, "--ioengine=psync --filename=dump");
        }
        server = lab.serve_data(members);
        load.is_there(&lab, &format!("--ioengine=nbd --uri={}", server.uri()));
        println!("{options}: kill {kill}, {} writes were begun", begun(&lab));
    }
    lab.run("wait data --timeout 60").ok();
    lab.run("check data").ok();
    assert_eq!(lab.run("wait data --json --timeout 60").json()["mismatch_sectors"], 0);
    server.stop();
}

/// Kills the server when it has had so many more requests.
fn kill_one(lab: &Lab, mut server: Server, load: &Load, more: u64) {
    let _ = std::fs::remove_file(lab.path(NOTE));
    let requests = |detail: &serde_json::Value| detail["work"]["requests"].as_u64().unwrap();
    let before = requests(&lab.detail());
    let mut fio = load.begin(lab, &server);
    lab.until("requests", |detail| requests(detail) >= before + more);
    lab.file("trip", 0);
    while exists(lab.path("trip")) {
        let ended = fio.try_wait().unwrap();
        assert!(ended.is_none(), "it ended before the kill: {ended:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.end();
    // Its engine may look for the lost server for ever.
    fio.kill().unwrap();
    fio.wait().unwrap();
}

/// Writes at random, each block once.
struct Load {
    bytes: u64,
    seed: u64,
}

impl Load {
    fn fio(&self, lab: &Lab, arguments: &str) -> std::process::Command {
        let mut fio = lab.command("fio");
        fio.args(["--name=load", "--thread", "--rw=randwrite", "--bsrange=4k-64k"]);
        fio.args([format!("--size={}", self.bytes), format!("--randseed={}", self.seed)]);
        fio.arg("--verify=crc32c").args(arguments.split_whitespace());
        fio
    }

    /// Long enough to be killed, and flushed now and then.
    fn begin(&self, lab: &Lab, server: &Server) -> Child {
        let arguments = format!(
            "--ioengine=nbd --uri={} --iodepth={DEPTH} --rate_iops=400 --fsync=32 --do_verify=0 \
             --verify_state_save=1 --trigger-file=trip",
            server.uri()
        );
        let mut fio = self.fio(lab, &arguments);
        fio.arg(format!("--trigger=kill -9 {}", server.facts["pid"]));
        fio.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What fio says of what it noted as done.
    fn check(&self, lab: &Lab, place: &str) -> Ran {
        // At any depth of its own it goes on for as many blocks beyond.
        let arguments = format!(
            "{place} --iodepth=1 --verify_only --verify_state_load=1 --verify_state_save=0 \
             --output-format=json"
        );
        Ran::of(self.fio(lab, &arguments).output().unwrap())
    }

    /// All that it noted as done is there, but perhaps those after the first that was not.
    fn is_there(&self, lab: &Lab, place: &str) {
        let mut found = self.check(lab, place).ok();
        // Its engines speak before it does.
        found.out.drain(..found.out.find('{').unwrap());
        let read = found.json()["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
        let begun = begun(lab);
        assert!(begun > 2 * DEPTH && read + DEPTH >= begun, "{read} of {begun} were looked at");
    }
}

/// How many writes fio had begun when it took its note, which has that behind the head of the file, the number of
/// completions, the depth and the number of files. Version 4, of fio 3.39, has one more number before it.
fn begun(lab: &Lab) -> u64 {
    let note = lab.read(NOTE);
    let number = |at: usize| u64::from_le_bytes(note[at..at + 8].try_into().unwrap());
    match number(0) {
        3 => number(40),
        4 => number(48),
        version => panic!("fio's notes are of version {version} now: where has it the number?"),
    }
}
