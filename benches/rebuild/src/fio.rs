//! What members give without an array, and an array its clients, as fio has it.

use serde_json::Value;
use std::{path::Path, process::Command, time::Duration};

/// The rates of one fio run in bytes a second, one for each job.
fn run(jobs: &[(&Path, &str)], skip_mib: u64, mib: u64, time: Duration) -> Vec<f64> {
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
    for (path, rw) in jobs {
        fio.arg("--name=member").arg(format!("--filename={}", path.display()));
        fio.args([format!("--rw={rw}"), format!("--offset={skip_mib}M")]);
        fio.arg(format!("--size={}M", mib - skip_mib));
    }
    let parsed = report(fio);
    let rate = |(i, (_, rw)): (usize, &(&Path, &str))| parsed["jobs"][i][*rw]["bw_bytes"].as_f64();
    jobs.iter().enumerate().map(|job| rate(job).expect("fio reports it")).collect()
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

/// What clients do while it rebuilds.
pub const LOADS: [Load; 3] = [
    Load { name: "4K random read QD32", args: ["--rw=randread", "--bs=4k", "--iodepth=32"] },
    Load { name: "4K random write QD32", args: ["--rw=randwrite", "--bs=4k", "--iodepth=32"] },
    Load { name: "1M read QD4", args: ["--rw=read", "--bs=1M", "--iodepth=4"] },
];

/// Requests a second that the array served at a socket answers.
pub fn served(socket: &Path, load: &Load, time: Duration) -> f64 {
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=nbd", "--time_based", "--norandommap"]);
    fio.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
    fio.arg(format!("--runtime={}ms", time.as_millis())).args(load.args);
    let parsed = report(fio);
    let iops = |side: &str| parsed["jobs"][0][side]["iops"].as_f64().expect("fio reports it");
    iops("read") + iops("write")
}

/// The least of what the members give when read, and take when written, in order, one at a time.
pub fn slowest(members: &[impl AsRef<Path>], skip_mib: u64, mib: u64, time: Duration) -> f64 {
    let each = |rw| {
        let alone =
            move |path: &_| run(&[(AsRef::<Path>::as_ref(path), rw)], skip_mib, mib, time)[0];
        members.iter().map(alone).fold(f64::INFINITY, f64::min)
    };
    each("read").min(each("write"))
}

/// One member written while the others are read, a thread for each: the least of their rates.
pub fn together(members: &[impl AsRef<Path>], skip_mib: u64, mib: u64, time: Duration) -> f64 {
    let job = |(i, path)| (AsRef::<Path>::as_ref(path), if i == 0 { "write" } else { "read" });
    let jobs: Vec<_> = members.iter().enumerate().map(job).collect();
    run(&jobs, skip_mib, mib, time).into_iter().fold(f64::INFINITY, f64::min)
}
