//! bonnie++ 2.00a, and 1.03, on real files: [`lapstrake_model::benchmark::bonnie`], and files without contents.
//!
//! The files without contents are made, looked up and deleted, in the order of their names and in random order; making
//! and deleting end with sync(2), which is part of the time. 1.03's characters go through stdio (a buffer of a page).
//! Seekers are threads, which take their places from a list drawn beforehand.
//!
//! Source: bonnie++.cpp, bon_io.cpp and bon_file.cpp of Debian's 2.00a+nmu1, and of 1.03e, read for what they do.

use super::{Bench, Clock, at, phase};
use crate::plan::BonnieVersion;
use crate::record::{Phase, Unit};
use crate::workload::recorder::{Kind, Recorder};
use lapstrake_model::benchmark::Bonnie;
use lapstrake_model::benchmark::bonnie::{Access, FilePhase, SEEKS, UPDATE};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// stdio's buffer for a file.
const STDIO: usize = 4096;
const NAME_EXTRA: usize = 12;
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// What to do, as bonnie++'s options say it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub load: Bonnie,
    /// Files without contents (`-n`).
    pub files: u64,
}

/// The load that a version does with these options: `fast` leaves out characters.
pub(crate) fn load(
    version: BonnieVersion,
    size: u64,
    chunk: u64,
    sync: bool,
    fast: bool,
) -> Bonnie {
    let load = match version {
        BonnieVersion::V1_03 => Bonnie::v1_03(size),
        BonnieVersion::V2_00a => Bonnie::v2_00(size),
    };
    let characters = if fast { 0 } else { load.characters };
    Bonnie { chunk, sync, characters, ..load }
}

/// Runs it once in a directory.
pub(crate) fn run(
    bench: &Bench<'_>,
    directory: &Path,
    settings: Settings,
    seed: u64,
) -> Result<Vec<Phase>, String> {
    let path = directory.join("Bonnie.lab");
    let mut phases = Vec::new();
    if settings.load.size > 0 {
        let done = file_phases(bench, &path, &settings.load, seed, &mut phases);
        // Also after a part that failed.
        let removed = fs::remove_file(&path);
        done?;
        removed.map_err(at("removing the file"))?;
    }
    if settings.files > 0 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let place = directory.join("Bonnie.files");
        let done = directory_parts(bench, &place, settings, &mut random, &mut phases);
        if done.is_err() {
            // What is left of it; the error is what counts.
            let _ = fs::remove_dir_all(&place);
        }
        done?;
    }
    Ok(phases)
}

fn open(path: &Path, create: bool) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if create {
        // As it does: a file of the last part is no part of this one.
        let _ = fs::remove_file(path);
        options.create_new(true);
    }
    options.open(path).map_err(at("opening the file"))
}

/// Its way to close: what was written is out before the time ends.
fn close(file: File) -> Result<(), String> {
    file.sync_all().map_err(at("fsync"))
}

fn file_phases(
    bench: &Bench<'_>,
    path: &Path,
    load: &Bonnie,
    seed: u64,
    phases: &mut Vec<Phase>,
) -> Result<(), String> {
    let mut buffer = vec![0u8; load.chunk as usize];
    for phase in load.file_phases() {
        let file = open(path, phase.access.creates())?;
        let bytes = (phase.chunks * load.chunk) as f64;
        phases.push(bench.part(phase.name, Unit::BytesPerSecond, bytes, |clock| {
            carry_out(&file, load, phase, &mut buffer, clock)?;
            close(file)
        })?);
    }
    phases.push(seeks(bench, path, load, seed)?);
    Ok(())
}

/// Goes over the file once.
fn carry_out(
    mut file: &File,
    load: &Bonnie,
    phase: FilePhase,
    buffer: &mut [u8],
    clock: &mut Clock<'_>,
) -> Result<(), String> {
    let FilePhase { access, chunks, .. } = phase;
    match access {
        Access::WriteCharacters if load.calls_characters => {
            return write_characters(file, load.chunk, chunks, clock);
        }
        Access::WriteCharacters => {
            let stdio = BufWriter::with_capacity(STDIO, file);
            return write_characters(stdio, load.chunk, chunks, clock);
        }
        Access::ReadCharacters if load.calls_characters => {
            return read_characters(file, load.chunk, chunks, clock);
        }
        Access::ReadCharacters => {
            let stdio = BufReader::with_capacity(STDIO, file);
            return read_characters(stdio, load.chunk, chunks, clock);
        }
        Access::Write | Access::Rewrite | Access::Read => {}
    }
    for i in 0..chunks {
        if access.counted().reads() {
            clock.time(Kind::Read, load.chunk, || file.read_exact(buffer))?;
        }
        if access == Access::Rewrite {
            file.seek(SeekFrom::Current(-(load.chunk as i64))).map_err(at("lseek"))?;
        }
        if access.counted().writes() {
            let at = (i % load.chunk) as usize;
            buffer[at] = buffer[at].wrapping_add(1);
            clock.time(Kind::Write, load.chunk, || file.write_all(buffer))?;
        }
    }
    Ok(())
}

fn write_characters(
    mut out: impl Write,
    chunk: u64,
    chunks: u64,
    clock: &mut Clock<'_>,
) -> Result<(), String> {
    for _ in 0..chunks {
        clock.time(Kind::Write, chunk, || {
            (0..chunk).try_for_each(|i| out.write_all(&[(i & 0x7f) as u8]))
        })?;
    }
    out.flush().map_err(at("writing"))
}

fn read_characters(
    mut input: impl Read,
    chunk: u64,
    chunks: u64,
    clock: &mut Clock<'_>,
) -> Result<(), String> {
    let mut byte = [0u8];
    for _ in 0..chunks {
        clock
            .time(Kind::Read, chunk, || (0..chunk).try_for_each(|_| input.read_exact(&mut byte)))?;
    }
    Ok(())
}

/// Tickets, dealt to whichever seeker comes first.
fn seeks(bench: &Bench<'_>, path: &Path, load: &Bonnie, seed: u64) -> Result<Phase, String> {
    let Bonnie { chunk, seekers, sync, .. } = *load;
    let chunks = load.chunks().max(1);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let tickets: Vec<u32> =
        (0..load.seeks).map(|_| random.random_range(0..i32::MAX as u32)).collect();
    let (next, start) = (AtomicUsize::new(0), Barrier::new(seekers));
    let before = (bench.meter)();
    let began = Instant::now();
    let seeker = || -> Result<(Instant, Instant, Recorder), String> {
        let file = open(path, false);
        start.wait();
        let (file, first) = (file?, Instant::now());
        let mut clock = Clock::new(began, bench.stop);
        let mut buffer = vec![0u8; chunk as usize];
        while let Some(&ticket) = tickets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let block = u64::from(ticket) % chunks;
            clock.time(Kind::Read, chunk, || file.read_exact_at(&mut buffer, block * chunk))?;
            if u64::from(ticket) % UPDATE == 0 {
                let at = (block % chunk) as usize;
                buffer[at] = buffer[at].wrapping_sub(1);
                clock.time(Kind::Write, chunk, || {
                    file.write_all_at(&buffer, block * chunk)?;
                    if sync { file.sync_all() } else { Ok(()) }
                })?;
            }
        }
        close(file)?;
        Ok((first, Instant::now(), clock.recorder))
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..seekers).map(|_| scope.spawn(seeker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a seeker does not panic")).collect()
    });
    let done = done.into_iter().collect::<Result<Vec<_>, String>>()?;
    let costs = (bench.meter)().since(&before);
    let first = done.iter().map(|(first, ..)| *first).min().unwrap_or(began);
    let last = done.iter().map(|(_, last, _)| *last).max().unwrap_or(began);
    let mut all = Recorder::new(0, None);
    done.iter().for_each(|(_, _, recorder)| all.merge(recorder));
    let seconds = (last - first).as_secs_f64();
    Ok(phase(SEEKS, Unit::RequestsPerSecond, load.seeks as f64, seconds, all, costs))
}

fn names(count: u64, in_order: bool, random: &mut Xoshiro256PlusPlus) -> Vec<String> {
    let mut extra = || -> String {
        let length = random.random_range(0..=NAME_EXTRA);
        (0..length).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
    };
    let name = |i: u64| {
        let extra = extra();
        if in_order { format!("{i:010x}{extra}") } else { format!("{extra}{i:010x}") }
    };
    (0..count).map(name).collect()
}

/// Its way to put names in random order: each changes place with any other.
fn shuffle(names: &mut [PathBuf], random: &mut Xoshiro256PlusPlus) {
    for i in 0..names.len() {
        let other = random.random_range(0..names.len());
        names.swap(i, other);
    }
}

fn directory_parts(
    bench: &Bench<'_>,
    place: &Path,
    settings: Settings,
    random: &mut Xoshiro256PlusPlus,
    phases: &mut Vec<Phase>,
) -> Result<(), String> {
    let (count, sync) = (settings.files, settings.load.sync);
    let mut part =
        |name: &str, act: &mut dyn FnMut() -> Result<(), String>| -> Result<(), String> {
            phases.push(bench.part(name, Unit::FilesPerSecond, count as f64, |_| act())?);
            if bench.stop.is_set() { Err(super::INTERRUPTED.into()) } else { Ok(()) }
        };
    let paths: Vec<PathBuf> =
        names(count, true, random).iter().map(|name| place.join(name)).collect();
    fs::create_dir(place).map_err(at("mkdir"))?;
    part("sequential create", &mut || create(place, &paths, sync))?;
    part("sequential stat", &mut || each(place, stat))?;
    part("sequential delete", &mut || {
        let handle = File::open(place).map_err(at("opening the directory"))?;
        each(place, |path| remove(path, &handle, sync))?;
        fs::remove_dir(place).map_err(at("rmdir"))?;
        sync_all();
        Ok(())
    })?;
    let mut paths: Vec<PathBuf> =
        names(count, false, random).iter().map(|name| place.join(name)).collect();
    fs::create_dir(place).map_err(at("mkdir"))?;
    part("random create", &mut || create(place, &paths, sync))?;
    shuffle(&mut paths, random);
    part("random stat", &mut || paths.iter().try_for_each(|path| stat(path)))?;
    shuffle(&mut paths, random);
    part("random delete", &mut || {
        let handle = File::open(place).map_err(at("opening the directory"))?;
        paths.iter().try_for_each(|path| remove(path, &handle, sync))?;
        fs::remove_dir(place).map_err(at("rmdir"))?;
        sync_all();
        Ok(())
    })
}

fn create(place: &Path, paths: &[PathBuf], sync: bool) -> Result<(), String> {
    let handle = File::open(place).map_err(at("opening the directory"))?;
    for path in paths {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(at("creating a file"))?;
        if sync {
            file.sync_all().and_then(|()| handle.sync_all()).map_err(at("fsync"))?;
        }
    }
    sync_all();
    Ok(())
}

/// Every file of a directory, in the order in which it lists them.
fn each(place: &Path, act: impl Fn(&Path) -> Result<(), String>) -> Result<(), String> {
    for entry in fs::read_dir(place).map_err(at("reading the directory"))? {
        act(&entry.map_err(at("reading the directory"))?.path())?;
    }
    Ok(())
}

fn stat(path: &Path) -> Result<(), String> {
    fs::metadata(path).map(drop).map_err(at("stat"))
}

fn remove(path: &Path, handle: &File, sync: bool) -> Result<(), String> {
    fs::remove_file(path).map_err(at("unlink"))?;
    if sync { handle.sync_all().map_err(at("fsync")) } else { Ok(()) }
}

fn sync_all() {
    // SAFETY: takes nothing, changes no memory.
    unsafe { libc::sync() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Sources;
    use crate::workload::drive::Stop;

    fn run_it(settings: Settings) -> Vec<Phase> {
        let (directory, stop) = (tempfile::tempdir().unwrap(), Stop::new());
        let sources = Sources::default();
        let meter = || sources.read(None);
        let phases =
            run(&Bench { meter: &meter, stop: &stop }, directory.path(), settings, 1).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "it leaves nothing");
        phases
    }

    #[test]
    fn each_part_moves_what_bonnie_moves() {
        let size = 4 << 20;
        let phases = run_it(Settings { load: Bonnie::v2_00(size), files: 64 });
        let moved = |phase: &Phase| {
            (
                phase.name.clone(),
                phase.read.bytes,
                phase.read.requests,
                phase.write.bytes,
                phase.write.requests,
            )
        };
        let expected = [
            ("per-character output", 0, 0, 3 << 20, 384),
            ("block output", 0, 0, size, 512),
            ("rewrite", size, 512, size, 512),
            ("per-character input", 3 << 20, 384, 0, 0),
            ("block input", size, 512, 0, 0),
        ];
        for (phase, (name, read, reads, written, writes)) in phases.iter().zip(expected) {
            assert_eq!(moved(phase), (name.into(), read, reads, written, writes));
            assert!(phase.whole && phase.figure.value > 0.0);
        }
        // As bonnie++ counts, a rewritten byte is one byte.
        assert!((phases[2].figure.value * phases[2].seconds - size as f64).abs() < 1.0);
        let seeks = &phases[5];
        assert_eq!((seeks.name.as_str(), seeks.read.requests), ("seeks", 8192));
        // One in ten of random tickets: 819, give or take six times its deviation of 27.
        assert!((655..=983).contains(&seeks.write.requests), "{}", seeks.write.requests);
        let rest: Vec<&str> = phases[6..].iter().map(|phase| phase.name.as_str()).collect();
        let files = [
            "sequential create",
            "sequential stat",
            "sequential delete",
            "random create",
            "random stat",
            "random delete",
        ];
        assert_eq!(rest, files);
        assert!(
            phases[6..]
                .iter()
                .all(|phase| (phase.figure.value * phase.seconds - 64.0).abs() < 1e-6)
        );
    }

    #[test]
    fn fast_leaves_out_characters() {
        let load = load(BonnieVersion::V2_00a, 1 << 20, 65536, true, true);
        let phases = run_it(Settings { load, files: 0 });
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["block output", "rewrite", "block input", "seeks"]);
    }

    #[test]
    fn a_file_smaller_than_what_goes_by_characters_is_all_of_it() {
        let phases = run_it(Settings { load: Bonnie::v2_00(1 << 20), files: 0 });
        assert_eq!((phases[0].write.bytes, phases[3].read.bytes), (1 << 20, 1 << 20));
    }

    #[test]
    fn the_old_version_writes_all_by_characters_through_a_buffer() {
        let (size, chunk) = (1 << 20, 8192);
        let load = load(BonnieVersion::V1_03, size, chunk, false, false);
        let phases = run_it(Settings { load, files: 0 });
        let moved = |phase: &Phase| (phase.name.clone(), phase.read.bytes + phase.write.bytes);
        assert_eq!(moved(&phases[0]), ("per-character output".into(), size));
        assert_eq!(moved(&phases[3]), ("per-character input".into(), size));
        assert_eq!(phases[5].name, "seeks");
    }
}
