//! iozone 3: tests 0 (write, rewrite), 1 (read, reread) and 2 (random read, random write).
//!
//! Without threads: one file, each test from open to the last record; fsync and close count only with `-e`. With them
//! (`-t`): a file for each, all begin together, and each test ends for all when the first is done; a child's speed is
//! what it moved by then over its own time, and the children's speeds are added up. Random tests go to every
//! record once, in an order drawn beforehand. A KB is 1024 bytes.

use super::{Bench, Clock, at, phase};
use crate::record::{Phase, Unit};
use crate::workload::buffers::Buffers;
use crate::workload::drive::fill;
use crate::workload::recorder::{Kind, Recorder};
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
    pub tests: Vec<u8>,
    pub size: u64,
    pub record: u64,
    /// 0: as one process.
    pub threads: u32,
    pub direct: bool,
    pub flush: bool,
}

/// A part: its name, iozone's word for those who do it in throughput mode, and what it does.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    doers: &'static str,
    kind: Kind,
    random: bool,
    create: bool,
}

const fn part(
    name: &'static str,
    doers: &'static str,
    kind: Kind,
    random: bool,
    create: bool,
) -> Part {
    Part { name, doers, kind, random, create }
}

fn parts(test: u8) -> [Part; 2] {
    match test {
        0 => [
            part("write", "initial writers", Kind::Write, false, true),
            part("rewrite", "rewriters", Kind::Write, false, false),
        ],
        1 => [
            part("read", "readers", Kind::Read, false, false),
            part("reread", "re-readers", Kind::Read, false, false),
        ],
        _ => [
            part("random read", "random readers", Kind::Read, true, false),
            part("random write", "random writers", Kind::Write, true, false),
        ],
    }
}

/// One child's share of a part.
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
    for part in settings.tests.iter().flat_map(|test| parts(*test)) {
        match one(bench, &paths, settings, part, seed, &mut text) {
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
    part: Part,
    seed: u64,
    text: &mut String,
) -> Result<Phase, String> {
    let (start, first_done) = (Barrier::new(paths.len()), AtomicBool::new(false));
    let before = (bench.meter)();
    let began = Instant::now();
    let child = |(index, path): (usize, &PathBuf)| {
        let clock = Clock::new(began, bench.stop);
        let seed = seed ^ ((index as u64) << 40);
        work(path, settings, part, seed, clock, &start, &first_done)
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
    tell(text, part, settings, &children, &speeds, parent_s);
    // The figure is the children's; the time is the parent's.
    Ok(phase(part.name, Unit::BytesPerSecond, sum * parent_s, parent_s, all, costs))
}

/// As iozone prints it.
fn tell(
    text: &mut String,
    part: Part,
    settings: &Settings,
    children: &[Child],
    speeds: &[f64],
    parent_s: f64,
) {
    let kib = |bytes: f64| bytes / 1024.0;
    let (sum, count) = (speeds.iter().sum::<f64>(), speeds.len());
    if settings.threads == 0 {
        *text += &format!("{:>14} {:>10.0} kB/sec\n", part.name, kib(sum));
        return;
    }
    let (min, max) =
        speeds.iter().fold((f64::MAX, 0f64), |(min, max), &s| (min.min(s), max.max(s)));
    let moved: u64 = children.iter().map(|child| child.bytes).sum();
    let least = children.iter().map(|child| child.bytes).min().unwrap_or(0);
    let lines = [
        (format!("Children see throughput for {count:2} {}", part.doers), sum, "kB/sec"),
        (
            format!("Parent sees throughput for {count:2} {}", part.doers),
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

fn open(path: &Path, settings: &Settings, part: Part) -> Result<File, String> {
    let flags = if settings.direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).mode(0o640);
    if part.kind == Kind::Write {
        options.write(true).create(part.create).truncate(part.create);
    }
    options.open(path).map_err(at("opening its file"))
}

fn work(
    path: &Path,
    settings: &Settings,
    part: Part,
    seed: u64,
    mut clock: Clock<'_>,
    start: &Barrier,
    first_done: &AtomicBool,
) -> Result<Child, String> {
    let record = settings.record;
    let records = settings.size / record;
    let mut order: Vec<u64> = (0..records).collect();
    if part.random {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Fisher and Yates.
        for i in (1..order.len()).rev() {
            order.swap(i, random.random_range(0..=i));
        }
    }
    let mut buffers = Buffers::new(1, record as usize, |memory| fill(memory, seed));
    // SAFETY: no request is under way: all calls here return when they are done.
    let buffer = unsafe { buffers.slot(0) };
    let file = open(path, settings, part);
    start.wait();
    let (file, began) = (file?, Instant::now());
    let mut bytes = 0;
    for index in order {
        // Another has moved all: from here on the load would be a different one.
        if first_done.load(Ordering::Relaxed) {
            break;
        }
        let place = index * record;
        match part.kind {
            Kind::Read => clock.time(Kind::Read, record, || file.read_exact_at(buffer, place))?,
            _ => clock.time(Kind::Write, record, || file.write_all_at(buffer, place))?,
        }
        bytes += record;
    }
    first_done.store(true, Ordering::Relaxed);
    if settings.flush && part.kind == Kind::Write {
        file.sync_all().map_err(at("fsync"))?;
    }
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    if part.create {
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
        let settings = Settings {
            tests: vec![0, 1, 2],
            size: 1 << 20,
            record: 4096,
            threads,
            direct: false,
            flush: true,
        };
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
