//! How fast members are rebuilt: beside the members' own rate, under load, and beside the kernel's md.
//!
//! Gates (with `--gate`): on loop devices that the kernel holds to 200 MB/s each, as a disk is held to its
//! rate, an array without clients rebuilds at 0.9 of the slowest member's sequential rate or more, in
//! the median of interleaved rounds; and clients keep at least half of their requests while it
//! rebuilds under them with the default `sync_speed_min`, beside the same array that waits for its
//! rebuild. Where such devices cannot be had nothing is gated, and `--gate` fails, but with `--quick`. Members
//! in memory have no rate of their own: there a rebuild is shown beside fio reading and writing the same
//! members at once, one thread to each, and beside the kernel's md in User-Mode Linux on RAM disks.

mod array;
mod disks;
mod fio;
mod kernel;

use array::{Shape, Share, Subject};
use disks::Disks;
use kernel::Kernel;
use lapstrake_geometry::Level;
use lapstrake_not_run::not_run;
use std::{process::ExitCode, time::Duration};

const DISK_RATE: u64 = 200_000_000;
/// Superblocks and what lies before the data.
const SKIP_MIB: u64 = 32;

const SHAPES: [Shape; 7] = [
    Shape { name: "raid1 of 2", level: Level::Raid1, layout: None, members: 2, lost: 1 },
    Shape { name: "raid5 of 4", level: Level::Raid5, layout: None, members: 4, lost: 1 },
    Shape { name: "raid6 of 6", level: Level::Raid6, layout: None, members: 6, lost: 1 },
    Shape { name: "raid6 of 6, two", level: Level::Raid6, layout: None, members: 6, lost: 2 },
    Shape { name: "raid10 n2 of 4", level: Level::Raid10, layout: Some("n2"), members: 4, lost: 1 },
    Shape { name: "raid10 f2 of 4", level: Level::Raid10, layout: Some("f2"), members: 4, lost: 1 },
    Shape { name: "raid10 o2 of 4", level: Level::Raid10, layout: Some("o2"), members: 4, lost: 1 },
];

struct Plan {
    rounds: usize,
    time: Duration,
    disk_mib: u64,
    memory_mib: u64,
    shapes: &'static [Shape],
}

#[derive(Default)]
struct Report {
    missed: usize,
}

impl Report {
    /// Prints a ratio: the median of `ours` over that of `of`.
    fn add(&mut self, what: &str, ours: &[f64], of: &[f64], scale: (f64, &str), gate: Option<f64>) {
        let ratio = median(ours) / median(of);
        let verdict = match gate {
            None => "-".into(),
            Some(gate) if ratio >= gate => format!(">= {gate} pass"),
            Some(gate) => {
                self.missed += 1;
                format!(">= {gate} MISS")
            }
        };
        let (scale, unit) = scale;
        let (ours, of) = (median(ours) / scale, median(of) / scale);
        println!("{what:<52} {ours:>8.1} {unit} of {of:>8.1}  {ratio:.2}x {verdict}");
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

const MB: (f64, &str) = (1e6, "MB/s");
const IOPS: (f64, &str) = (1.0, "IOPS");

/// Members with a rate of their own; false where there are none.
fn on_disks(plan: &Plan, shape: &Shape, report: &mut Report) -> bool {
    let disks = match Disks::limited(shape.members, plan.disk_mib, DISK_RATE) {
        Ok(disks) => disks,
        Err(error) => {
            not_run(format_args!("rebuilds of disks with a rate of their own: {error}"));
            return false;
        }
    };
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        raw.push(fio::slowest(&disks.members, SKIP_MIB, plan.disk_mib, plan.time / 2));
        let subject = Subject::new(shape, &disks);
        ours.push(subject.rebuild());
        subject.stop();
    }
    report.add(&format!("{}: of a member's rate", shape.name), &ours, &raw, MB, Some(0.9));
    for load in &fio::LOADS {
        let mut shares = Vec::new();
        for _ in 0..plan.rounds {
            let subject = Subject::new(shape, &disks);
            shares.push(subject.rebuild_under(load, plan.time));
            subject.stop();
        }
        let of = |field: fn(&Share) -> f64| shares.iter().map(field).collect::<Vec<f64>>();
        let (healthy, degraded) = (of(|share| share.healthy), of(|share| share.degraded));
        let what = format!("{}: {}", shape.name, load.name);
        report.add(&format!("{what}, degraded"), &degraded, &healthy, IOPS, None);
        let rebuilding = of(|share| share.rebuilding);
        report.add(&format!("{what}, rebuilding"), &rebuilding, &degraded, IOPS, Some(0.5));
        report.add(&format!("{what}: its rebuild"), &of(|share| share.rate), &raw, MB, None);
    }
    true
}

/// The rows beside the kernel's md are missing where that does not run.
fn in_memory(
    plan: &Plan,
    shape: &Shape,
    kernel: &mut Result<Kernel, lapstrake_kernel_md::Error>,
    report: &mut Report,
) {
    let disks = Disks::in_memory(shape.members, plan.memory_mib).expect("room in memory");
    let (mut ours, mut raw, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        raw.push(fio::together(&disks.members, SKIP_MIB, plan.memory_mib, plan.time / 2));
        let subject = Subject::new(shape, &disks);
        ours.push(subject.rebuild());
        subject.stop();
        if let Ok(guest) = kernel {
            match guest.rebuild(shape) {
                Ok(rate) => theirs.push(rate),
                Err(error) => *kernel = Err(error),
            }
        }
    }
    let name = shape.name;
    report.add(&format!("{name} in memory: of fio on all members"), &ours, &raw, MB, None);
    if !theirs.is_empty() {
        report.add(&format!("{name} in memory: of the kernel's"), &ours, &theirs, MB, None);
    }
}

fn main() -> ExitCode {
    let has = |wanted: &str| std::env::args().any(|arg| arg == wanted);
    let (is_quick, is_gated) = (has("--quick"), has("--gate"));
    let plan = if is_quick {
        let time = Duration::from_millis(200);
        Plan { rounds: 1, time, disk_mib: 64, memory_mib: 128, shapes: &SHAPES[1..2] }
    } else {
        let time = Duration::from_secs(3);
        Plan { rounds: 3, time, disk_mib: 512, memory_mib: 512, shapes: &SHAPES }
    };
    let mut report = Report::default();
    let has_disks = plan.shapes.iter().all(|shape| on_disks(&plan, shape, &mut report));
    let mut kernel = Kernel::boot();
    for shape in plan.shapes {
        in_memory(&plan, shape, &mut kernel, &mut report);
    }
    if let Err(error) = kernel {
        not_run(format_args!("rebuilds beside the kernel's md: {error}"));
    }
    if is_gated && !has_disks {
        eprintln!("gates NOT RUN: they need disks with a rate of their own");
    }
    if is_gated && report.missed > 0 {
        eprintln!("{} gates missed", report.missed);
    }
    let is_failed = report.missed > 0 || !has_disks && !is_quick;
    if is_gated && is_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
