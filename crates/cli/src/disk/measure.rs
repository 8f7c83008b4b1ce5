//! `lapstrake disk measure`: a real disk as the target of a measurement.

mod memory;

use super::{target, write};
use crate::exit::{Exit, Failure, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
use lapstrake_model::Nanos;
use lapstrake_model::measure::{self, Findings, MeasureError, Target};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tracing::warn;

const HELP: &str = "\
Examples:
  lapstrake disk measure /dev/sdb -o sdb.toml
  lapstrake disk measure /dev/sdb -o sdb.toml --json | jq .period_ms

Exit codes:
  0  measured; the profile is written
  1  it could not be read, or is too small; no profile was written
  2  usage";

/// Measure a disk by reading only, and make a profile of it.
///
/// Finds rotation, zones, seeks, overheads, what the buffer remembers and reads ahead, and what a
/// queue gains; of a solid-state disk latency and rate by depth and size, in repeated passes that tell how far
/// they can be trusted. A file is as good as what lies beneath it: one with holes, or on a file system in
/// memory, is warned of. What reading cannot tell stays
/// a guess in the profile, and says so. Nothing is written to the disk. Takes minutes; other load on
/// the disk makes it worthless. Ctrl-C breaks it off.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// A block device or a file
    disk: PathBuf,
    /// The profile to write
    #[arg(short, long, value_name = "PROFILE")]
    output: PathBuf,
    /// What the profile is called [default: the disk's file name]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// Replace a file that holds something else
    #[arg(long)]
    force: bool,
    /// Report in JSON what was found, with its bounds
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let path = args.disk.display();
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{path}: {error}"));
    // Minutes of measuring are not to end with a profile that cannot be written.
    target(&args.output, &[&args.disk], None, args.force)?;
    let mut target = RealDisk::open(args).map_err(|error| failed(&error))?;
    if let Some(why) = memory::instead_of_disk(&target.file, target.blocks * 512) {
        warn!("warning: {path}: {why}: what is read there is memory, not a disk");
    }
    let bar = bar();
    let findings = measure::measure(&mut target, 1, &mut |step, done| {
        bar.set_message(step);
        bar.set_position((done * 1000.0) as u64);
        true
    });
    bar.finish_and_clear();
    let findings = findings.map_err(|error| match error {
        MeasureError::Target(error) => failed(&format!("cannot read it: {error}")),
        other => failed(&other),
    })?;
    let own = || args.disk.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(own).unwrap_or_else(|| "measured".to_owned());
    let profile = findings.profile(&name, &format!("{path}, measured"));
    write(&args.output, &[&args.disk], &profile.to_toml()?, args.force)?;
    if let Err(error) = profile.build() {
        let output = args.output.display();
        warn!("warning: {output}: {error}; measure again, or mend it, before it is used");
    }
    if args.json {
        outln!("{:#}", json!(findings));
    } else {
        out!("{}", summary(&findings));
        outln!("{}: written: {name}", args.output.display());
    }
    Ok(Exit::Done)
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent}% {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn summary(findings: &Findings) -> String {
    match findings {
        Findings::HardDisk(found) => format!(
            "hard disk, {:.1} GB\n{:.2} rpm\nseeks: {:.2} ms next track, {:.2} ms mean, {:.2} ms full\n\
             rates: {:.1} MB/s outside, {:.1} MB/s inside\nreads ahead {} KiB, remembers {} places\n",
            found.blocks as f64 * 512.0 / 1e9,
            60_000.0 / found.period_ms.value,
            found.single_seek_ms.value,
            found.average_seek_ms.value,
            found.full_seek_ms.value,
            found.zones_mb_s.first().map_or(0.0, |zone| zone.1),
            found.zones_mb_s.last().map_or(0.0, |zone| zone.1),
            found.read_ahead_blocks / 2,
            found.segments,
        ),
        Findings::SolidDisk(found) => format!(
            "solid-state disk, {:.1} GB\n{:.1} us a random read of 4 KiB\n{:.0} of them in a second\n",
            found.blocks as f64 * 512.0 / 1e9,
            found.latency_us.value,
            found.reads.iter().map(|reads| reads.1.value).fold(0.0, f64::max),
        ),
    }
}

/// A device or file, read past the page cache.
struct RealDisk {
    file: File,
    blocks: u64,
    begun: Instant,
}

impl RealDisk {
    fn open(args: &Args) -> io::Result<Self> {
        // Before it is opened: that of a FIFO waits for a writer.
        let kind = std::fs::metadata(&args.disk)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::other(
                "no regular file or block device; there is nothing to measure",
            ));
        }
        let mut options = OpenOptions::new();
        let file =
            options.read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK).open(&args.disk)?;
        let mut end = &file;
        let bytes = io::Seek::seek(&mut end, io::SeekFrom::End(0))?;
        Ok(Self { file, blocks: bytes / 4096 * 8, begun: Instant::now() })
    }

    fn now(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }
}

/// Bytes on which direct I/O wants memory to lie.
const ALIGNED: usize = 4096;

fn read_at(file: &File, buffer: &mut [u8], (lba, blocks): (u64, u64)) -> io::Result<()> {
    let start = buffer.as_ptr().align_offset(ALIGNED);
    file.read_exact_at(&mut buffer[start..start + blocks as usize * 512], lba * 512)
}

fn buffer(places: &[(u64, u64)]) -> Vec<u8> {
    let most = places.iter().map(|place| place.1).max().unwrap_or(0);
    vec![0; most as usize * 512 + ALIGNED]
}

impl Target for RealDisk {
    type Error = io::Error;

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, lba: u64, blocks: u64) -> io::Result<(Nanos, Nanos)> {
        let mut buffer = buffer(&[(lba, blocks)]);
        let begin = self.now();
        read_at(&self.file, &mut buffer, (lba, blocks))?;
        Ok((begin, self.now()))
    }

    fn read_many(&mut self, places: &[(u64, u64)], depth: usize) -> io::Result<Nanos> {
        let begin = self.now();
        let next = AtomicUsize::new(0);
        let read = || -> io::Result<()> {
            let mut buffer = buffer(places);
            while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                read_at(&self.file, &mut buffer, *place)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..depth).map(|_| scope.spawn(read)).collect();
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().expect("a reader does not panic"))
        })?;
        Ok(self.now().since(begin))
    }

    fn pause(&mut self, time: Nanos) {
        std::thread::sleep(Duration::from_nanos(time.0));
    }
}
