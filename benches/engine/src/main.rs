//! How fast the engine is by itself, and beside the kernel's md.
//!
//! Gates (with `--gate`, medians): RAID6 8+2, 128 KiB chunk, on one core: 86,000 random 4 KiB
//! writes a second and, with a member missing, 130,000 random 4 KiB reads; two cores at least
//! 1.8 times one; full-stripe sequential writes at least 3 times the kernel's md in User-Mode
//! Linux on RAM disks, measured in the same run; no byte of a full-stripe write copied.

mod kernel;
mod world;

use kernel::Kernel;
use lapstrake_geometry::{Config, Layout, Level, Sectors};
use std::{
    process::ExitCode,
    sync::Barrier,
    time::{Duration, Instant},
};
use world::{Disks, World};

const DEPTH: u32 = 32;
const BLOCK: u64 = 8;

/// What is measured, and what it must reach.
struct Row {
    name: String,
    unit: &'static str,
    samples: Vec<f64>,
    gate: Option<f64>,
}

impl Row {
    fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn passes(&self) -> bool {
        self.gate.is_none_or(|gate| self.median() >= gate)
    }

    fn print(&self) {
        let range = self.samples.iter().fold((f64::MAX, 0f64), |r, &s| (r.0.min(s), r.1.max(s)));
        let gate = match self.gate {
            Some(gate) => format!(">= {gate:.1}: {}", if self.passes() { "pass" } else { "MISS" }),
            None => "-".into(),
        };
        println!(
            "{:<58} {:>11.1} {:<8} {:>11.1} .. {:<11.1} {gate}",
            self.name,
            self.median(),
            self.unit,
            range.0,
            range.1
        );
    }
}

struct Plan {
    rounds: usize,
    time: Duration,
    /// Of memory for each member.
    member: Sectors,
    quick: bool,
}

fn config(plan: &Plan, level: Level, disks: u16, chunk_kib: u64) -> Config {
    let layout = match level {
        Level::Raid0 => Layout::from_md(level, 1),
        Level::Raid10 => Layout::from_md(level, 0x102),
        Level::Raid5 | Level::Raid6 => Layout::from_md(level, 2),
        _ => Layout::from_md(level, 0),
    };
    Config {
        level,
        layout: layout.expect("a layout of the level"),
        chunk: Sectors(if level == Level::Raid1 { 0 } else { chunk_kib * 2 }),
        raid_disks: disks,
        component: plan.member,
        member_sizes: vec![plan.member; usize::from(disks)],
    }
}

/// What this thread has used of a core. The rows for one core count that and not the clock on the
/// wall, so that they hold on a machine whose cores are shared.
fn core_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Random 4 KiB requests in `part` of so many parts of the array: per second of a core, and of
/// the clock.
fn random(disks: &Disks, lost: &[u16], write: bool, part: (u64, u64), time: Duration) -> Rate {
    let mut world = World::new(disks, lost, DEPTH as usize * 4096);
    let blocks = disks.geometry.array_sectors().0 / BLOCK / part.1;
    let base = blocks * part.0;
    let mut seed = 0x9e37_79b9_7f4a_7c15u64 ^ part.0;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (base + seed % blocks) * BLOCK
    };
    let mut free: Vec<u32> = (0..DEPTH).map(|i| i * 4096).collect();
    let (began, core) = (Instant::now(), core_time());
    while began.elapsed() < time {
        for _ in 0..16 {
            for place in free.drain(..) {
                world.send(write, place, next(), BLOCK);
            }
            world.run(|place| free.push(place));
        }
    }
    let done = world.finished as f64;
    Rate {
        core: done / (core_time() - core).as_secs_f64(),
        clock: done / began.elapsed().as_secs_f64(),
    }
}

struct Rate {
    core: f64,
    clock: f64,
}

fn random_on_two_cores(disks: &Disks, write: bool, time: Duration) -> f64 {
    let barrier = Barrier::new(2);
    let one = |part| {
        barrier.wait();
        random(disks, &[], write, (part, 2), time).clock
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|part| scope.spawn(move || one(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("ran")).sum()
    })
}

/// Sequential writes of whole stripes, MB of data a second; and what members got from clients'
/// memory and from elsewhere, per byte of data.
fn sequential(disks: &Disks, stripe_sectors: u64, time: Duration) -> (f64, f64, f64) {
    let bytes = stripe_sectors * 512;
    let mut world = World::new(disks, &[], bytes as usize * 4);
    let stripes = disks.geometry.array_sectors().0 / stripe_sectors;
    let (mut at, mut moved) = (0, 0u64);
    let (began, core) = (Instant::now(), core_time());
    loop {
        for place in 0..4 {
            world.send(true, (place * bytes) as u32, at * stripe_sectors, stripe_sectors);
            at = (at + 1) % stripes;
            moved += bytes;
        }
        world.run(|_| {});
        if began.elapsed() >= time {
            break;
        }
    }
    let rate = moved as f64 / (core_time() - core).as_secs_f64() / 1e6;
    (rate, world.memory.straight as f64 / moved as f64, world.memory.made as f64 / moved as f64)
}

fn repeat(
    plan: &Plan,
    name: &str,
    unit: &'static str,
    gate: Option<f64>,
    f: impl Fn() -> f64,
) -> Row {
    let samples = (0..plan.rounds).map(|_| f()).collect();
    let row = Row { name: name.into(), unit, samples, gate };
    row.print();
    row
}

fn random_rows(plan: &Plan, rows: &mut Vec<Row>) {
    let raid6 = Disks::new(&config(plan, Level::Raid6, 10, 128));
    let time = plan.time;
    let whole = (0, 1);
    rows.push(repeat(plan, "raid6 8+2 c128K, 4K random write, 1 core", "k/s", Some(86.0), || {
        random(&raid6, &[], true, whole, time).core / 1e3
    }));
    rows.push(repeat(
        plan,
        "raid6 8+2 c128K, 1 missing, 4K random read, 1 core",
        "k/s",
        Some(130.0),
        || random(&raid6, &[3], false, whole, time).core / 1e3,
    ));
    rows.push(repeat(
        plan,
        "raid6 8+2 c128K, 2 missing, 4K random read, 1 core",
        "k/s",
        None,
        || random(&raid6, &[3, 7], false, whole, time).core / 1e3,
    ));
    rows.push(repeat(
        plan,
        "raid6 8+2 c128K, 4K random write, 2 cores over 1",
        "x",
        Some(1.8),
        || {
            let one = random(&raid6, &[], true, whole, time).clock;
            let two = random_on_two_cores(&raid6, true, time);
            two / ((one + random(&raid6, &[], true, whole, time).clock) / 2.0)
        },
    ));
    for (level, disks) in
        [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid10, 4)]
    {
        let array = Disks::new(&config(plan, level, disks, 128));
        for write in [true, false] {
            let what = if write { "write" } else { "read" };
            let name = format!("{level} of {disks}, 4K random {what}, 1 core");
            rows.push(repeat(plan, &name, "k/s", None, || {
                random(&array, &[], write, whole, time).core / 1e3
            }));
        }
    }
}

/// The rows beside the kernel's md are missing where that does not run: then the reason is returned.
fn sequential_rows(plan: &Plan, rows: &mut Vec<Row>) -> Result<(), lapstrake_kernel_md::Error> {
    let mut kernel = Kernel::boot(plan.quick);
    for (level, disks, data) in [(Level::Raid5, 4, 3u64), (Level::Raid6, 6, 4)] {
        let array = Disks::new(&config(plan, level, disks, 512));
        let stripe = data * 1024;
        let (mut ours, mut theirs, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
        let (mut straight, mut made) = (0.0, 0.0);
        for _ in 0..plan.rounds {
            let (rate, s, m) = sequential(&array, stripe, plan.time);
            (straight, made) = (s, m);
            ours.push(rate);
            if let Ok(guest) = &mut kernel {
                match guest.full_stripes(level, disks, data, plan.quick) {
                    Ok(rate) => {
                        theirs.push(rate);
                        ratio.push(ours[ours.len() - 1] / rate);
                    }
                    Err(error) => kernel = Err(error),
                }
            }
        }
        let parity = (disks as f64 - data as f64) / data as f64;
        let copied = (straight + made - 1.0 - parity).abs() + (straight - 1.0).abs();
        let named =
            |what: &str| format!("{level} of {disks}, full-stripe sequential write, {what}");
        let mut add = |what: &str, unit, samples: Vec<f64>, gate| {
            if !samples.is_empty() {
                rows.push(Row { name: named(what), unit, samples, gate });
                rows[rows.len() - 1].print();
            }
        };
        add("1 core", "MB/s", ours, None);
        add("kernel's md in UML", "MB/s", theirs, None);
        add("over the kernel", "x", ratio, Some(3.0));
        println!("{:<58} {copied:>11.3} bytes per byte written", named("copied"));
        assert!(copied < 1e-9, "a full-stripe write was copied");
    }
    kernel.map(drop)
}

fn main() -> ExitCode {
    let has = |wanted: &str| std::env::args().any(|arg| arg == wanted);
    let quick = has("--quick");
    let plan = Plan {
        rounds: if quick { 1 } else { 5 },
        time: Duration::from_millis(if quick { 200 } else { 1000 }),
        member: Sectors(if quick { 16 << 11 } else { 128 << 11 }),
        quick,
    };
    println!("parity kernels: {}", lapstrake_parity::kernels().name());
    let mut rows = Vec::new();
    random_rows(&plan, &mut rows);
    let beside_kernel = sequential_rows(&plan, &mut rows);
    let mut missed = rows.iter().filter(|row| !row.passes()).count();
    if let Err(error) = beside_kernel {
        lapstrake_not_run::not_run(format_args!(
            "full-stripe writes beside the kernel's md: {error}"
        ));
        missed += 1;
    }
    if has("--gate") && missed > 0 {
        eprintln!("{missed} gates missed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
