//! fio as the NBD client.

use crate::server::Server;
use serde_json::Value;
use std::{error::Error, process::Command};

/// Block size and depth.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    Sequential,
    Random,
}

/// One run of fio.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub rw: &'static str,
    pub load: Load,
    pub size: u64,
    /// None: once over the whole array.
    pub seconds: Option<u64>,
}

impl Run {
    /// Stamps each block with its checksum when writing, and checks it when reading.
    pub(crate) fn stamped(self) -> Stamped {
        Stamped { run: self, stamps: true }
    }
}

/// A run, with or without stamps.
#[derive(Clone, Copy)]
pub(crate) struct Stamped {
    run: Run,
    stamps: bool,
}

impl From<&Run> for Stamped {
    fn from(run: &Run) -> Self {
        Self { run: *run, stamps: false }
    }
}

/// What fio measured.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    /// Bytes a second.
    pub bytes: f64,
    pub iops: f64,
    /// Bytes in all.
    pub moved: f64,
}

/// Runs fio against a server.
pub(crate) fn run(server: &Server, run: impl Into<Stamped>) -> Result<Rate, Box<dyn Error>> {
    let Stamped { run, stamps } = run.into();
    let mut command = Command::new("fio");
    command.args(["--name=demo", "--ioengine=nbd", "--output-format=json", "--randrepeat=0"]);
    command.arg(format!("--uri={}", server.uri())).arg(format!("--rw={}", run.rw));
    let size = run.size / (1 << 20) * (1 << 20);
    command.arg(format!("--size={size}"));
    match run.load {
        Load::Sequential => command.args(["--bs=1M", "--iodepth=4"]),
        Load::Random => command.args(["--bs=4k", "--iodepth=32", "--norandommap"]),
    };
    if let Some(seconds) = run.seconds {
        command.arg("--time_based").arg(format!("--runtime={seconds}"));
    }
    if stamps {
        command.args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=0",
            "--verify_state_save=0",
        ]);
        if run.rw == "read" {
            command.arg("--do_verify=1");
        }
    }
    let out = command.output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let complaint = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        return Err(format!("{command:?} failed: {complaint}{text}").into());
    }
    let json: Value = serde_json::from_str(text.find('{').map_or("", |at| &text[at..]))?;
    let side = if run.rw.ends_with("read") { "read" } else { "write" };
    let number = |key: &str| json["jobs"][0][side][key].as_f64().ok_or("fio left a figure out");
    Ok(Rate { bytes: number("bw_bytes")?, iops: number("iops")?, moved: number("io_bytes")? })
}
