//! The client.

use crate::{Effort, FILE_BYTES, Failure};
use std::{path::Path, process::Command};

/// What fio does, and how its figure is told.
pub struct Load {
    pub name: &'static str,
    pub unit: &'static str,
    rw: &'static str,
    side: &'static str,
    block: &'static str,
    depth: &'static str,
    field: &'static str,
    scale: f64,
}

const fn sequential(name: &'static str, rw: &'static str) -> Load {
    let (unit, field, scale) = ("MB/s", "bw_bytes", 1e-6);
    Load { name, unit, rw, side: rw, block: "1M", depth: "4", field, scale }
}

const fn random(name: &'static str, rw: &'static str, side: &'static str) -> Load {
    let (unit, field, scale) = ("k IOPS", "iops", 1e-3);
    Load { name, unit, rw, side, block: "4k", depth: "32", field, scale }
}

/// All loads.
pub const LOADS: [Load; 4] = [
    sequential("sequential write, 1 MiB, QD 4", "write"),
    sequential("sequential read, 1 MiB, QD 4", "read"),
    random("random write, 4 KiB, QD 32", "randwrite", "write"),
    random("random read, 4 KiB, QD 32", "randread", "read"),
];

/// Writes the whole file once, so that no load meets fresh memory.
pub fn fill(file: &Path) -> Result<(), Failure> {
    fio(file, &["--rw=write", "--bs=1M", "--iodepth=4"])?;
    Ok(())
}

/// Runs a load; its figure in its unit.
pub fn run(load: &Load, file: &Path, effort: Effort) -> Result<f64, Failure> {
    let (rw, block) = (format!("--rw={}", load.rw), format!("--bs={}", load.block));
    let depth = format!("--iodepth={}", load.depth);
    let time = format!("--runtime={}ms", effort.run.as_millis());
    let warm_up = format!("--ramp_time={}ms", effort.warm_up.as_millis());
    let report = fio(file, &[&rw, &block, &depth, "--time_based", &time, &warm_up])?;
    let figure = report["jobs"][0][load.side][load.field].as_f64();
    Ok(figure.ok_or("fio's report lacks the figure")? * load.scale)
}

fn fio(file: &Path, args: &[&str]) -> Result<serde_json::Value, Failure> {
    let output = Command::new("fio")
        .args(["--name=load", "--ioengine=io_uring", "--direct=1", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={FILE_BYTES}"))
        .args(args)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("fio {args:?}: {}: {said}", output.status).into());
    }
    // A note may stand before the report.
    let text = String::from_utf8(output.stdout)?;
    let start = text.find('{').ok_or("fio printed no report")?;
    Ok(serde_json::from_str(&text[start..])?)
}
