//! `make demo`: four disk image files become every kind of array in turn. Each is created and
//! served by the `lapstrake` command, written and verified through its NBD export by fio, read
//! again with a member missing where the level allows it, and measured once. Then the lab
//! measures the levels against each other, and says which differences are real.
//!
//! `lapstrake-demo RESULTS [PLAN]`: the directory for the lab's store and page, and the lab's plan, if not the one that is
//! built in. Images lie in the directory for temporary files.

mod fio;
mod lab;
mod server;

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use fio::{Load, Run};
use server::{Server, lapstrake};
use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
};
use tempfile::TempDir;

/// What the images become: name, level, layout, and whether it can lose a member.
const ARRAYS: [(&str, &str, Option<&str>, bool); 9] = [
    ("linear", "linear", None, false),
    ("raid0", "0", None, false),
    ("raid1", "1", None, true),
    ("raid4", "4", None, true),
    ("raid5", "5", None, true),
    ("raid6", "6", None, true),
    ("raid10 near", "10", Some("n2"), true),
    ("raid10 far", "10", Some("f2"), true),
    ("raid10 offset", "10", Some("o2"), true),
];
const MEMBERS: usize = 4;

const HEADER: [&str; 10] = [
    "array",
    "size MiB",
    "write MB/s",
    "rewrite MB/s",
    "read MB/s",
    "4K rand read /s",
    "4K rand write /s",
    "CPU s/GiB",
    "verified",
    "member missing",
];

/// Of each image.
const MEMBER_MIB: u64 = 128;
/// Of each timed run.
const SECONDS: u64 = 1;

fn main() -> ExitCode {
    let Some(results) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("demo: where are results to go? `make demo` says target/demo");
        return ExitCode::from(2);
    };
    let plan = std::env::args_os().nth(2).map(PathBuf::from);
    match run(&results, plan.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(results: &Path, plan: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let parent = std::env::temp_dir();
    println!("1. Every level: written, verified, read with a member missing, measured once\n");
    println!("\n{}\n", levels(&parent)?);
    println!(
        "Through NBD on a Unix socket, fio as the client; 1 MiB blocks 4 deep, 4 KiB blocks \
         32 deep.\nCPU: the server's, over the sequential and random runs. Images in {}.",
        parent.display()
    );
    println!(
        "\n2. The lab: levels against each other, in rounds, and whether a difference is real\n"
    );
    lab::run(results, plan)
}

fn levels(parent: &Path) -> Result<Table, Box<dyn Error>> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(HEADER);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (name, level, layout, redundant) in ARRAYS {
        println!("{name}: {MEMBERS} images of {MEMBER_MIB} MiB");
        let dir = TempDir::with_prefix_in("lapstrake-demo-", parent)?;
        let members = images(dir.path())?;
        create(&members, level, layout)?;
        let mut cells = vec![name.to_owned()];
        cells.extend(measure(dir.path(), &members, redundant)?);
        table.add_row(cells);
    }
    Ok(table)
}

/// Empty image files, as `truncate` makes them.
fn images(dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let make = |i| {
        let path = dir.join(format!("disk{i}.img"));
        std::fs::File::create(&path)?.set_len(MEMBER_MIB << 20)?;
        Ok(path)
    };
    (0..MEMBERS).map(make).collect()
}

fn create(members: &[PathBuf], level: &str, layout: Option<&str>) -> Result<(), Box<dyn Error>> {
    let mut command = lapstrake()?;
    command.args(["create", "demo", "--level", level]);
    command.args(["--raid-devices", &MEMBERS.to_string()]);
    if level != "linear" && level != "0" {
        // New images read as zeros, and zeros are their own parity and copies.
        command.arg("--assume-clean");
    }
    if let Some(layout) = layout {
        command.args(["--layout", layout]);
    }
    server::check(command.args(members))
}

/// The cells of one array's row.
fn measure(
    dir: &Path,
    members: &[PathBuf],
    redundant: bool,
) -> Result<Vec<String>, Box<dyn Error>> {
    let all: Vec<&Path> = members.iter().map(PathBuf::as_path).collect();
    let server = Server::start(dir, &all, &[])?;
    let size = server.export_bytes()?;
    let whole = |rw: &'static str| Run { rw, load: Load::Sequential, size, seconds: None };
    let timed = |rw: &'static str, load| Run { rw, load, size, seconds: Some(SECONDS) };
    let write = fio::run(&server, whole("write").stamped())?;
    fio::run(&server, whole("read").stamped())?;
    server.stop()?;
    let missing = if redundant {
        let some: Vec<&Path> = all.iter().copied().skip(1).collect();
        let server = Server::start(dir, &some, &["--degraded", "--read-only"])?;
        let read = fio::run(&server, whole("read").stamped())?;
        server.stop()?;
        format!("verified, {:.0} MB/s", read.bytes / 1e6)
    } else {
        "-".into()
    };
    let server = Server::start(dir, &all, &[])?;
    let before = server.cpu_seconds()?;
    let rewrite = fio::run(&server, &timed("write", Load::Sequential))?;
    let read = fio::run(&server, &timed("read", Load::Sequential))?;
    let random_read = fio::run(&server, &timed("randread", Load::Random))?;
    let random_write = fio::run(&server, &timed("randwrite", Load::Random))?;
    let moved: f64 = [rewrite, read, random_read, random_write].iter().map(|r| r.moved).sum();
    let cpu = (server.cpu_seconds()? - before) / (moved / f64::from(1 << 30));
    server.stop()?;
    Ok(vec![
        (size >> 20).to_string(),
        format!("{:.0}", write.bytes / 1e6),
        format!("{:.0}", rewrite.bytes / 1e6),
        format!("{:.0}", read.bytes / 1e6),
        format!("{:.0}", random_read.iops),
        format!("{:.0}", random_write.iops),
        format!("{cpu:.2}"),
        "yes".into(),
        missing,
    ])
}
