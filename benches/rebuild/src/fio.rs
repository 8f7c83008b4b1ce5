//! What members give without an array, and an array its clients, as fio has it.

use serde_json::Value;
use std::{path::Path, process::Command, time::Duration};

/// Bytes that are read and written of a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub read: u64,
    pub written: u64,
}

impl Traffic {
    pub fn bytes(self) -> u64 {
        self.read + self.written
    }

    /// What fio does in order, in these shares.
    fn pattern(self) -> [String; 2] {
        let per_cent = 100 * self.read / self.bytes().max(1);
        ["--rw=rw".into(), format!("--rwmixread={per_cent}")]
    }
}

/// Only read, or only written.
const ONE_WAY: [Traffic; 2] = [Traffic { read: 1, written: 0 }, Traffic { read: 0, written: 1 }];

/// The rates of one fio run in bytes a second, one for each job.
fn run(jobs: &[(&Path, Traffic)], skip_mib: u64, mib: u64, time: Duration) -> Vec<f64> {
    let mut fio = Command::new("fio");
    // Whatever is larger may be cut in two on its way, and a rate limit charge it twice.
    fio.args(["--bs=256k", "--iodepth=8", "--ioengine=io_uring"]);
    fio.args([
        "--direct=1",
        "--time_based",
        "--thread",
        "--fallocate=none",
        "--allow_file_create=0",
    ]);
    fio.arg(format!("--runtime={}ms", time.as_millis()));
    for (path, traffic) in jobs {
        fio.arg("--name=member").arg(format!("--filename={}", path.display()));
        fio.args(traffic.pattern()).arg(format!("--offset={skip_mib}M"));
        fio.arg(format!("--size={}M", mib - skip_mib));
    }
    let parsed = report(fio);
    (0..jobs.len()).map(|job| both(&parsed["jobs"][job], "bw_bytes")).collect()
}

/// A figure of a job's reads and of its writes, together.
fn both(job: &Value, figure: &str) -> f64 {
    let of = |side: &str| job[side][figure].as_f64().expect("fio reports it");
    of("read") + of("write")
}

/// Runs it and reads its JSON.
fn report(mut fio: Command) -> Value {
    let out = fio.arg("--output-format=json").output().expect("fio runs; `make setup` installs it");
    let text = String::from_utf8_lossy(&out.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    serde_json::from_str(json)
        .unwrap_or_else(|_| panic!("fio failed: {text}{}", String::from_utf8_lossy(&out.stderr)))
}

/// A load on a served array.
#[derive(Clone, Copy)]
pub struct Load {
    /// For the report.
    pub name: &'static str,
    args: [&'static str; 3],
}

/// What clients do meanwhile.
pub const LOADS: [Load; 3] = [
    Load { name: "4K random read QD32", args: ["--rw=randread", "--bs=4k", "--iodepth=32"] },
    Load { name: "4K random write QD32", args: ["--rw=randwrite", "--bs=4k", "--iodepth=32"] },
    Load { name: "1M read QD4", args: ["--rw=read", "--bs=1M", "--iodepth=4"] },
];

/// What a client met.
#[derive(Clone, Copy)]
pub struct Served {
    /// Requests a second that were answered.
    pub iops: f64,
    /// How long the slowest one took, in seconds.
    pub slowest: f64,
}

/// What the array served at a socket answers.
pub fn served(socket: &Path, load: &Load, time: Duration) -> Served {
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=nbd", "--time_based", "--norandommap"]);
    fio.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
    fio.arg(format!("--runtime={}ms", time.as_millis())).args(load.args);
    let parsed = report(fio);
    let job = &parsed["jobs"][0];
    let slowest = |side: &str| job[side]["lat_ns"]["max"].as_f64().expect("fio reports it");
    Served { iops: both(job, "iops"), slowest: slowest("read").max(slowest("write")) / 1e9 }
}

/// The least of what the members give when read, and take when written, in order, one at a time.
pub fn slowest(members: &[impl AsRef<Path>], skip_mib: u64, mib: u64, time: Duration) -> f64 {
    let alone = |path: &Path, way| run(&[(path, way)], skip_mib, mib, time)[0];
    let each = members.iter().flat_map(|path| ONE_WAY.map(|way| alone(path.as_ref(), way)));
    each.fold(f64::INFINITY, f64::min)
}

/// All members read and written at once, a thread for each, in the shares of what is read and written of them: the rate of
/// the busiest if the last of them is done when it is.
pub fn together(
    members: &[impl AsRef<Path>],
    traffic: &[Traffic],
    skip_mib: u64,
    mib: u64,
    time: Duration,
) -> f64 {
    let members = members.iter().map(|path| path.as_ref());
    let jobs: Vec<_> = members.zip(traffic.iter().copied()).collect();
    let rates = run(&jobs, skip_mib, mib, time);
    let seconds = traffic.iter().zip(rates).map(|(of, rate)| of.bytes() as f64 / rate);
    busiest(traffic) as f64 / seconds.fold(0.0, f64::max)
}

/// Bytes of the member that is read and written most.
pub fn busiest(traffic: &[Traffic]) -> u64 {
    traffic.iter().map(|of| of.bytes()).max().unwrap_or(0)
}
