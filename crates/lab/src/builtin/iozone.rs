//! iozone 3 on real files: the phases of [`lapstrake_model::benchmark::iozone`], as one process or in throughput mode.
//!
//! Without threads: one file, each phase from open to the last record. With them (`-t`): a file for each, all begin
//! together, and each phase ends for all when the first is done; a child's speed is what it moved by then over its own
//! time, and the children's speeds are added up. A KB is 1024 bytes.

use super::{Bench, Clock, at, phase};
use crate::record::{Phase, Unit};
use crate::workload::buffers::Buffers;
use crate::workload::drive::fill;
use crate::workload::recorder::{Kind, Recorder};
use lapstrake_model::benchmark::Iozone;
use lapstrake_model::benchmark::iozone::{self, random_order};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What to do, as iozone's options say it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub load: Iozone,
    /// 0: as one process.
    pub threads: u32,
    pub direct: bool,
}

/// One child's share of a phase.
struct Child {
    seconds: f64,
    bytes: u64,
    recorder: Recorder,
}

/// Runs it once in a directory; with its phases the text that iozone would print.
pub(crate) fn run(
    bench: &Bench<'_>,
    directory: &Path,
    settings: &Settings,
    seed: u64,
) -> Result<(Vec<Phase>, String), String> {
    let count = settings.threads.max(1);
    let paths: Vec<PathBuf> =
        (0..count).map(|i| directory.join(format!("iozone.DUMMY.{i}"))).collect();
    let mut phases = Vec::new();
    let mut text = String::new();
    let mut done = Ok(());
    for definition in settings.load.phases() {
        match one(bench, &paths, settings, definition, seed, &mut text) {
            Ok(phase) => phases.push(phase),
            Err(why) => {
                done = Err(why);
                break;
            }
        }
    }
    for path in &paths {
        // Those that a failed part did not make are not there.
        let _ = fs::remove_file(path);
    }
    done.map(|()| (phases, text))
}

fn one(
    bench: &Bench<'_>,
    paths: &[PathBuf],
    settings: &Settings,
    definition: iozone::Phase,
    seed: u64,
    text: &mut String,
) -> Result<Phase, String> {
    let (start, first_done) = (Barrier::new(paths.len()), AtomicBool::new(false));
    let before = (bench.meter)();
    let began = Instant::now();
    let child = |(index, path): (usize, &PathBuf)| {
        let clock = Clock::new(began, bench.stop);
        let seed = seed ^ ((index as u64) << 40);
        work(path, settings, definition, seed, clock, &start, &first_done)
    };
    let children: Vec<Result<Child, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            paths.iter().enumerate().map(|child_of| scope.spawn(move || child(child_of))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a child does not panic")).collect()
    });
    let parent_s = began.elapsed().as_secs_f64();
    let children = children.into_iter().collect::<Result<Vec<Child>, String>>()?;
    let costs = (bench.meter)().since(&before);
    let mut all = Recorder::new(0, None);
    children.iter().for_each(|child| all.merge(&child.recorder));
    let speeds: Vec<f64> =
        children.iter().map(|child| child.bytes as f64 / child.seconds).collect();
    let sum: f64 = speeds.iter().sum();
    tell(text, definition, settings, &children, &speeds, parent_s);
    // The figure is the children's; the time is the parent's.
    Ok(phase(definition.name, Unit::BytesPerSecond, sum * parent_s, parent_s, all, costs))
}

/// As iozone prints it.
fn tell(
    text: &mut String,
    definition: iozone::Phase,
    settings: &Settings,
    children: &[Child],
    speeds: &[f64],
    parent_s: f64,
) {
    let kib = |bytes: f64| bytes / 1024.0;
    let (sum, count) = (speeds.iter().sum::<f64>(), speeds.len());
    if settings.threads == 0 {
        *text += &format!("{:>14} {:>10.0} kB/sec\n", definition.name, kib(sum));
        return;
    }
    let (min, max) =
        speeds.iter().fold((f64::MAX, 0f64), |(min, max), &s| (min.min(s), max.max(s)));
    let moved: u64 = children.iter().map(|child| child.bytes).sum();
    let least = children.iter().map(|child| child.bytes).min().unwrap_or(0);
    let lines = [
        (format!("Children see throughput for {count:2} {}", definition.processes), sum, "kB/sec"),
        (
            format!("Parent sees throughput for {count:2} {}", definition.processes),
            moved as f64 / parent_s,
            "kB/sec",
        ),
        ("Min throughput per process".to_owned(), min, "kB/sec"),
        ("Max throughput per process".to_owned(), max, "kB/sec"),
        ("Avg throughput per process".to_owned(), sum / count as f64, "kB/sec"),
        ("Min xfer".to_owned(), least as f64, "kB"),
    ];
    for (what, bytes, unit) in lines {
        *text += &format!("\t{what:<48}= {:>10.2} {unit}\n", kib(bytes));
    }
    text.push('\n');
}

fn open(path: &Path, settings: &Settings, definition: iozone::Phase) -> Result<File, String> {
    let flags = if settings.direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).mode(0o640);
    if definition.counted.writes() {
        options.write(true).create(definition.creates).truncate(definition.creates);
    }
    options.open(path).map_err(at("opening its file"))
}

fn work(
    path: &Path,
    settings: &Settings,
    definition: iozone::Phase,
    seed: u64,
    mut clock: Clock<'_>,
    start: &Barrier,
    first_done: &AtomicBool,
) -> Result<Child, String> {
    let (record, records) = (settings.load.record, settings.load.records());
    let order = if definition.is_random {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        random_order(records, |limit| random.random_range(0..limit))
    } else {
        (0..records).collect()
    };
    let mut buffers = Buffers::new(1, record as usize, |memory| fill(memory, seed));
    // SAFETY: no request is under way: all calls here return when they are done.
    let buffer = unsafe { buffers.slot(0) };
    let file = open(path, settings, definition);
    start.wait();
    let (file, began) = (file?, Instant::now());
    let mut bytes = 0;
    for index in order {
        // Another has moved all: from here on the load would be a different one.
        if first_done.load(Ordering::Relaxed) {
            break;
        }
        let place = index * record;
        if definition.counted.reads() {
            clock.time(Kind::Read, record, || file.read_exact_at(buffer, place))?;
        } else {
            clock.time(Kind::Write, record, || file.write_all_at(buffer, place))?;
        }
        bytes += record;
    }
    first_done.store(true, Ordering::Relaxed);
    if settings.load.flush && definition.counted.writes() {
        file.sync_all().map_err(at("fsync"))?;
    }
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    if definition.creates {
        // The other tests need the whole file; this is in no figure.
        for place in (bytes..records * record).step_by(record as usize) {
            file.write_all_at(buffer, place).map_err(at("completing its file"))?;
        }
    }
    Ok(Child { seconds, bytes, recorder: clock.recorder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Sources;
    use crate::workload::drive::Stop;

    fn run_it(threads: u32) -> (Vec<Phase>, String) {
        let (directory, stop) = (tempfile::tempdir().unwrap(), Stop::new());
        let sources = Sources::default();
        let meter = || sources.read(None);
        let bench = Bench { meter: &meter, stop: &stop };
        let load = Iozone { tests: vec![0, 1, 2], size: 1 << 20, record: 4096, flush: true };
        let settings = Settings { load, threads, direct: false };
        let done = run(&bench, directory.path(), &settings, 1).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "it leaves nothing");
        done
    }

    #[test]
    fn each_test_goes_to_every_record_once() {
        let (phases, text) = run_it(0);
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["write", "rewrite", "read", "reread", "random read", "random write"]);
        for phase in &phases {
            let (bytes, other) = if phase.name.contains("write") {
                (phase.write.bytes, phase.read.bytes)
            } else {
                (phase.read.bytes, phase.write.bytes)
            };
            assert_eq!((bytes, other), (1 << 20, 0), "{}", phase.name);
        }
        assert_eq!(text.lines().count(), 6);
    }

    #[test]
    fn children_end_with_the_first_of_them() {
        let (phases, text) = run_it(3);
        for phase in &phases {
            let bytes = phase.bytes();
            assert!((1 << 20..=3 << 20).contains(&bytes), "{}: {bytes}", phase.name);
        }
        assert_eq!(text.matches("Children see throughput for  3").count(), 6, "{text}");
        assert!(text.contains("initial writers") && text.contains("Min xfer"));
    }
}
