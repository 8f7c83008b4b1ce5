//! fio as a client, its figures read from its JSON.

use serde_json::Value;
use std::{process::Command, time::Duration};

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub name: &'static str,
    pub rw: &'static str,
    pub block: &'static str,
    pub depth: u32,
}

/// A MiB at a time, in order.
pub(crate) const STREAMS: [Load; 2] = [
    Load { name: "write 1M QD4", rw: "write", block: "1M", depth: 4 },
    Load { name: "read 1M QD4", rw: "read", block: "1M", depth: 4 },
];

impl Load {
    /// 4 KiB at random places.
    pub(crate) const fn small(name: &'static str, rw: &'static str, depth: u32) -> Self {
        Self { name, rw, block: "4k", depth }
    }

    pub(crate) fn is_sequential(&self) -> bool {
        self.block == "1M"
    }
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub bytes: f64,
    pub iops: f64,
}

/// Runs a load with these further arguments; the sum over all jobs.
pub(crate) fn run(load: &Load, time: Duration, more: &[String]) -> Rate {
    let out = Command::new("fio")
        .args(["--name=bench", "--output-format=json", "--time_based", "--group_reporting"])
        .args(["--norandommap", "--randrepeat=0", "--fallocate=none"])
        .arg(format!("--runtime={}ms", time.as_millis()))
        .arg(format!("--rw={}", load.rw))
        .arg(format!("--bs={}", load.block))
        .arg(format!("--iodepth={}", load.depth))
        .args(more)
        .output()
        .expect("fio runs; `make setup` installs it");
    let text = String::from_utf8_lossy(&out.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let parsed: Value = serde_json::from_str(json)
        .unwrap_or_else(|_| panic!("fio failed: {text}{}", String::from_utf8_lossy(&out.stderr)));
    let side = if load.rw.ends_with("read") { "read" } else { "write" };
    let figures = &parsed["jobs"][0][side];
    let number = |key: &str| figures[key].as_f64().expect("fio reports it");
    Rate { bytes: number("bw_bytes"), iops: number("iops") }
}
