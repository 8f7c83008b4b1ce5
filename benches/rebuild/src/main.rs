//! How fast members are rebuilt, and data is moved to where an array with one more member has it: beside the members' own
//! rate, under load, and beside the kernel's md.
//!
//! Gates (with `--gate`): on loop devices that the kernel holds to 200 MB/s each, as a disk is held to its
//! rate, an array without clients rebuilds at 0.9 of the slowest member's sequential rate or more, and grows so that what it
//! reads and writes of its busiest member passes at 0.9 of what fio gets when it reads and writes all members at once in these
//! shares (the kernel holds reads and writes apart, so that a member's rate of one is not enough), in
//! the median of interleaved rounds; and clients keep at least half of their requests while it
//! rebuilds under them with the default `sync_speed_min`, beside the same array that waits for its
//! rebuild, or while it grows, beside the array before. How long the slowest request of theirs takes is shown. Where such
//! devices cannot be had nothing is gated, and `--gate` fails, but with `--quick`. Members
//! in memory have no rate of their own: there it is shown beside fio reading and writing the same
//! members at once, one thread to each, and beside the kernel's md in User-Mode Linux on RAM disks.

mod array;
mod disks;
mod fio;
mod kernel;

use array::{Shape, Share, Subject, Task};
use disks::Disks;
use kernel::Kernel;
use lapstrake_geometry::Level;
use lapstrake_not_run::not_run;
use std::{process::ExitCode, time::Duration};

const DISK_RATE: u64 = 200_000_000;
/// Superblocks and what lies before the data.
const SKIP_MIB: u64 = 32;

const SHAPES: [Shape; 10] = [
    rebuild("raid1 of 2", Level::Raid1, None, 2, 1),
    rebuild("raid5 of 4", Level::Raid5, None, 4, 1),
    rebuild("raid6 of 6", Level::Raid6, None, 6, 1),
    rebuild("raid6 of 6, two", Level::Raid6, None, 6, 2),
    rebuild("raid10 n2 of 4", Level::Raid10, Some("n2"), 4, 1),
    rebuild("raid10 f2 of 4", Level::Raid10, Some("f2"), 4, 1),
    rebuild("raid10 o2 of 4", Level::Raid10, Some("o2"), 4, 1),
    growth("raid5 of 3 to 4", Level::Raid5, None, 3),
    growth("raid6 of 4 to 5", Level::Raid6, None, 4),
    growth("raid10 n2 of 4 to 5", Level::Raid10, Some("n2"), 4),
];
/// Those that are tried quickly.
const QUICK: [Shape; 2] = [SHAPES[1], SHAPES[7]];

const fn rebuild(
    name: &'static str,
    level: Level,
    layout: Option<&'static str>,
    members: usize,
    lost: usize,
) -> Shape {
    Shape { name, level, layout, members, task: Task::Rebuild { lost } }
}

const fn growth(
    name: &'static str,
    level: Level,
    layout: Option<&'static str>,
    members: usize,
) -> Shape {
    Shape { name, level, layout, members, task: Task::Growth }
}

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
const MS: (f64, &str) = (1e-3, "ms  ");

/// Members with a rate of their own; false where there are none.
fn on_disks(plan: &Plan, shape: &Shape, report: &mut Report) -> bool {
    let disks = match Disks::limited(shape.disks(), plan.disk_mib, DISK_RATE) {
        Ok(disks) => disks,
        Err(error) => {
            not_run(format_args!("disks with a rate of their own: {error}"));
            return false;
        }
    };
    let (mut ours, mut raw, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        raw.push(fio::slowest(&disks.members, SKIP_MIB, plan.disk_mib, plan.time / 2));
        let subject = Subject::new(shape, &disks);
        let run = subject.run();
        subject.stop();
        ours.push(run.rate());
        let (mib, time) = (plan.disk_mib, plan.time / 2);
        both.push(fio::together(&disks.members, &run.traffic, SKIP_MIB, mib, time));
    }
    let name = shape.name;
    // Reads and writes are held apart, so that who does both may have more than a member's rate of one.
    let (alone, together) = match shape.task {
        Task::Growth => (None, Some(0.9)),
        Task::Rebuild { .. } => (Some(0.9), None),
    };
    report.add(&format!("{name}: of a member's rate"), &ours, &raw, MB, alone);
    report.add(&format!("{name}: of fio on all members"), &ours, &both, MB, together);
    for load in &fio::LOADS {
        under_load(plan, shape, &disks, load, &raw, report);
    }
    true
}

fn under_load(
    plan: &Plan,
    shape: &Shape,
    disks: &Disks,
    load: &fio::Load,
    raw: &[f64],
    report: &mut Report,
) {
    let mut shares = Vec::new();
    for _ in 0..plan.rounds {
        let subject = Subject::new(shape, disks);
        shares.push(subject.run_under(load, plan.time));
        subject.stop();
    }
    let of = |field: fn(&Share) -> f64| shares.iter().map(field).collect::<Vec<f64>>();
    let what = format!("{}: {}", shape.name, load.name);
    let (healthy, waiting) = (of(|share| share.healthy.iops), of(|share| share.waiting.iops));
    let verb = match shape.task {
        Task::Rebuild { .. } => {
            report.add(&format!("{what}, degraded"), &waiting, &healthy, IOPS, None);
            "rebuilding"
        }
        Task::Growth => "growing",
    };
    let under_way = of(|share| share.under_way.iops);
    report.add(&format!("{what}, {verb}"), &under_way, &waiting, IOPS, Some(0.5));
    let slowest = [of(|share| share.under_way.slowest), of(|share| share.waiting.slowest)];
    report.add(&format!("{what}: slowest request"), &slowest[0], &slowest[1], MS, None);
    report.add(&format!("{what}: {verb} at"), &of(|share| share.rate), raw, MB, None);
}

/// The rows beside the kernel's md are missing where that does not run.
fn in_memory(
    plan: &Plan,
    shape: &Shape,
    kernel: &mut Result<Kernel, lapstrake_kernel_md::Error>,
    report: &mut Report,
) {
    let disks = Disks::in_memory(shape.disks(), plan.memory_mib).expect("room in memory");
    let (mut ours, mut raw, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let subject = Subject::new(shape, &disks);
        let run = subject.run();
        subject.stop();
        ours.push(run.rate());
        let (mib, time) = (plan.memory_mib, plan.time / 2);
        raw.push(fio::together(&disks.members, &run.traffic, SKIP_MIB, mib, time));
        if let Ok(guest) = kernel {
            match guest.run(shape) {
                Ok(rate) => theirs.push(rate * run.share()),
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
        Plan { rounds: 1, time, disk_mib: 64, memory_mib: 128, shapes: &QUICK }
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
        not_run(format_args!("what stands beside the kernel's md: {error}"));
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
