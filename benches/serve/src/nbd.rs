//! Served over NBD on a Unix socket, against `nbdkit file` on one file, fio's nbd engine as the
//! client of both.

use crate::{
    Plan,
    arrays::{Files, Kind, Place, filled, lapstrake, make},
    fio::{Load, STREAMS, run},
    report::{Pairs, Report},
};
use std::{
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) const READS: [Load; 3] = [
    Load::small("4K random read QD1", "randread", 1),
    Load::small("4K random read QD4", "randread", 4),
    Load::small("4K random read QD32", "randread", 32),
];
pub(crate) const WRITES: [Load; 3] = [
    Load::small("4K random write QD1", "randwrite", 1),
    Load::small("4K random write QD4", "randwrite", 4),
    Load::small("4K random write QD32", "randwrite", 32),
];

/// The least ratios that are asked for, of loads by their depth.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gates {
    pub streams: [Option<f64>; 2],
    pub reads: [Option<f64>; 3],
    pub writes: [Option<f64>; 3],
}

/// A server that is up; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    uri: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command, socket: &Path) -> Self {
        let child = command.stdout(Stdio::null()).spawn().expect("the server starts");
        let patience = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < patience, "no server at {}", socket.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, uri: format!("nbd+unix:///?socket={}", socket.display()) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A figure of /proc/PID/status, summed over threads for context switches.
    fn status(&self, field: &str) -> f64 {
        let tasks = format!("/proc/{}/task", self.child.id());
        let of = |path: std::path::PathBuf| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(field))?;
            line.split_whitespace().nth(1)?.parse::<f64>().ok()
        };
        if field.ends_with("switches") {
            let tasks = std::fs::read_dir(tasks).expect("the server runs").flatten();
            return tasks.filter_map(|task| of(task.path().join("status"))).sum();
        }
        of(format!("/proc/{}/status", self.child.id()).into()).unwrap_or(0.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        // A server that is gone already needs no signal.
        let _ = Command::new("kill").arg(&pid).status();
        let _ = self.child.wait();
    }
}

pub(crate) fn client(server: &Server, plan: &Plan) -> Vec<String> {
    let size = plan.member_mib * 3 / 2;
    vec!["--ioengine=nbd".into(), format!("--uri={}", server.uri), format!("--size={size}M")]
}

/// An array and a file, each with its server.
struct Bed {
    ours: Server,
    peer: Server,
    _files: Files,
}

impl Bed {
    fn make(plan: &Plan, place: &Place, kind: Kind) -> Self {
        let files = make(place, kind, plan.member_mib);
        let socket = files.dir.path().join("ours");
        let mut command = Command::new(lapstrake());
        command.arg("serve").args(&files.members).arg("--nbd");
        command.arg(format!("unix:{}", socket.display())).stderr(Stdio::null());
        let ours = Server::start(&mut command, &socket);
        let plain = files.dir.path().join("plain");
        filled(&plain, plan.member_mib * 3 / 2);
        let socket = files.dir.path().join("peer");
        let mut command = Command::new("nbdkit");
        command
            .args(["--foreground", "--unix"])
            .arg(&socket)
            .arg("file")
            .arg(&plain)
            .stderr(Stdio::null());
        let peer = Server::start(&mut command, &socket);
        Self { ours, peer, _files: files }
    }
}

/// Streams, and small requests at each depth; and what the server costs. Each round has files of its own, made while those of
/// the round before are there: a machine's memory may be faster in one place than in another.
pub(crate) fn compare(plan: &Plan, place: &Place, kind: Kind, gates: Gates, report: &mut Report) {
    let streams = STREAMS.iter().zip(gates.streams);
    let reads = READS.iter().zip(gates.reads);
    let writes = WRITES.iter().zip(gates.writes);
    let loads: Vec<_> = streams.chain(reads).chain(writes).collect();
    let mut pairs: Vec<Pairs> = loads.iter().map(|_| Pairs::default()).collect();
    let mut bed = Bed::make(plan, place, kind);
    for round in 0..plan.rounds {
        if round > 0 {
            bed = Bed::make(plan, place, kind);
        }
        for ((load, _), pairs) in loads.iter().zip(&mut pairs) {
            let rate = |server| {
                let rate = run(load, plan.time, &client(server, plan));
                if load.is_sequential() { rate.bytes / 1e6 } else { rate.iops }
            };
            pairs.ours.push(rate(&bed.ours));
            pairs.peer.push(rate(&bed.peer));
        }
    }
    for ((load, gate), pairs) in loads.iter().zip(&pairs) {
        let unit = if load.is_sequential() { "MB/s" } else { "IOPS" };
        let what = format!("NBD {} {}", kind.name(), load.name);
        report.add(&what, unit, pairs, *gate);
    }
    if kind == Kind::Raid0Of4 {
        switches(plan, &bed, report);
    }
    resident(kind, &bed.ours, report);
}

/// At depth 1 each hand-over between threads is a context switch that a request waits for.
fn switches(plan: &Plan, bed: &Bed, report: &mut Report) {
    let load = &READS[0];
    let [ours, peer] = [&bed.ours, &bed.peer].map(|server| {
        let before = server.status("voluntary_ctxt_switches");
        let rate = run(load, plan.time, &client(server, plan));
        let requests = rate.iops * plan.time.as_secs_f64();
        (server.status("voluntary_ctxt_switches") - before) / requests
    });
    report.at_most("NBD QD1: context switches a request", "", ours, peer.max(1.0) * 1.05);
}

/// Resident memory after all loads, with the stripe cache and the buffers set apart.
fn resident(kind: Kind, server: &Server, report: &mut Report) {
    let mib = server.status("VmRSS") / 1024.0;
    let shards = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let members = if kind == Kind::Raid6Of6 { 6.0 } else { 4.0 };
    let parity = matches!(kind, Kind::Raid5Of4 | Kind::Raid6Of6);
    let cache = if parity { members * shards } else { 0.0 };
    // Nothing is in flight any more.
    let bound = 64.0 + cache;
    report.at_most(&format!("NBD {}: resident memory", kind.name()), "MiB", mib, bound);
}
