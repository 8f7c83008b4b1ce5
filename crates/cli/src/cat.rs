//! `lapstrake cat`.

mod writer;

use crate::exit::{Exit, Failure, Outcome};
use crate::reader::Reader;
use crate::stack::{Source, Stack};
use crate::{complete, options, patience, serve};
use lapstrake_device::{Access, Member, MemberSpec};
use lapstrake_host::create::describe_finding;
use lapstrake_host::scan::Look;
use lapstrake_host::{Array, OpenRequest, Options, open_whole};
use lapstrake_volumes::{Map, Place, VolumeError};
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::warn;
use writer::Output;

const HELP: &str = "\
Examples:
  lapstrake cat -o array.img disk1.img disk2.img disk3.img
  lapstrake cat /dev/sd[b-d]1 | zstd > array.zst
  lapstrake cat --volume vg1/data -o data.raw sd[a-d].img#5 sd[a-d].img#6
  lapstrake cat --offset 1M --length 4K *.img | xxd
  lapstrake cat --skip-unreadable --json -o rescued.img disk1.img disk3.img

Exit codes:
  0  everything was read
  1  the array cannot be assembled, or something could not be read or written
  2  usage
  3  all was read but what --skip-unreadable left out, or the array ends before --length";

/// Write an array's contents to standard output or a file, without serving it.
///
/// Members are opened for reading only and nothing is ever written to them. An array that lacks
/// members is read as long as its redundancy allows it. What a journal or partial parity logs hold and the
/// members lack is brought together with them in a temporary file, which has no name, takes about as much
/// room as what they hold, and is where TMPDIR says, or in /tmp.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The array's members
    #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
    members: Vec<MemberSpec>,
    /// File to write; blocks of zeros become holes in it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only this logical volume of LVM's; the members may be those of all arrays that it lies on
    #[arg(long, value_name = "GROUP/VOLUME", conflicts_with = "partition")]
    volume: Option<String>,
    /// Only this partition of the array
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Where to begin, in bytes (with K, M, G or T: powers of 1024)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = options::bytes)]
    offset: u64,
    /// How much to write [default: up to the end]; where the array ends before, what there is
    #[arg(long, value_name = "SIZE", value_parser = options::bytes)]
    length: Option<u64>,
    #[command(flatten)]
    which: serve::Which,
    /// Also use members that are out of date, and an array that is dirty and degraded
    #[arg(short, long)]
    force: bool,
    /// Write to FILE though it holds an array's superblock, a filesystem or the like
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// Write zeros for blocks that nobody has, tell which they are, and go on
    #[arg(long)]
    skip_unreadable: bool,
    /// Report in JSON when done
    #[arg(long, requires = "output")]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    if args.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an array's contents are no text: send them into a pipe or a file, or use -o FILE",
        ));
    }
    if let Some(path) = &args.output {
        refuse_member(path, &args.members)?;
    }
    let (copied, may_be_old) = match (&args.volume, args.partition) {
        (None, None) => array(args)?,
        _ => part(args)?,
    };
    let Copied { bytes, holes, skipped } = copied?;
    if args.json {
        let unreadable: Vec<Value> = skipped
            .iter()
            .map(|range| json!({ "offset": range.start, "bytes": range.end - range.start }))
            .collect();
        outln!(
            "{:#}",
            json!({
                "offset": args.offset,
                "bytes": bytes,
                "hole_bytes": holes,
                "unreadable": unreadable,
                "may_be_old": may_be_old,
            })
        );
    }
    tell_skipped(&skipped);
    let is_short = args.length.is_some_and(|wanted| bytes < wanted);
    Ok(if skipped.is_empty() && !is_short { Exit::Done } else { Exit::Degraded })
}

/// Copies an array; whether it may be an old state of it, too.
fn array(args: &Args) -> Result<(Result<Copied, Failure>, bool), Failure> {
    let request = OpenRequest {
        members: args.members.clone(),
        read_only: true,
        force: args.force,
        degraded: true,
        ..args.which.request()
    };
    let opened = patience::telling(&args.members, || open_whole(request));
    let opened = serve::assembled(opened, true)?;
    let may_be_old = opened.parts.plan.assembly.newly_degraded;
    let settings = Options { read_only: true, shards: 1, ..Options::default() };
    let held = held(args)?;
    let array = Array::start(opened.parts, &settings)?;
    let whole = Map::range(Place { device: 0, offset: 0 }, array.bytes());
    let copied = copy(args, &[&array], &whole);
    array.stop();
    drop(held);
    Ok((copied, may_be_old))
}

/// The same of a volume, or a partition, of one or several arrays.
fn part(args: &Args) -> Result<(Result<Copied, Failure>, bool), Failure> {
    let stack = Stack::open(&args.members, &args.which, args.force)?;
    let arrays: Vec<&Array> = stack.sources.iter().filter_map(Source::array).collect();
    if arrays.len() < stack.sources.len() {
        let other = stack.sources.iter().find(|source| !source.is_array()).expect("it is counted");
        return Err(Failure::new(format!(
            "{}: is no array's member; nothing was written: leave it out",
            other.name()
        )));
    }
    let refused = |error: VolumeError| Failure::new(format!("{error}; nothing was written"));
    let map = match (&args.volume, args.partition) {
        (Some(name), _) => {
            let found = stack.survey.volume(name).map_err(refused)?.1;
            found.map.clone().map_err(|error| refused(error.into()))?
        }
        (None, Some(_)) if arrays.len() > 1 => {
            return Err(Failure::usage(
                "--partition: the members are those of several arrays: name those of one",
            ));
        }
        (None, number) => {
            let number = number.expect("one of both is asked for");
            stack.survey.partition(0, number).map_err(refused)?
        }
    };
    let held = held(args)?;
    let copied = copy(args, &arrays, &map);
    drop(held);
    let may_be_old = stack.may_be_old;
    stack.stop();
    Ok((copied, may_be_old))
}

fn held(args: &Args) -> Result<Option<Member>, Failure> {
    args.output.as_ref().map_or(Ok(None), |path| hold_output(path, args.overwrite))
}

/// What was copied, bytes.
struct Copied {
    bytes: u64,
    holes: u64,
    /// Ranges of the array for which zeros stand.
    skipped: Vec<Range<u64>>,
}

fn tell_skipped(skipped: &[Range<u64>]) {
    const TOLD: usize = 20;
    for range in skipped.iter().take(TOLD) {
        let len = range.end - range.start;
        warn!("{len} bytes at byte {} cannot be read; zeros stand for them", range.start);
    }
    if skipped.len() > TOLD {
        let bytes: u64 = skipped.iter().map(|range| range.end - range.start).sum();
        warn!("and {} more ranges, {bytes} bytes in all; --json lists them", skipped.len() - TOLD);
    }
}

/// Writing the contents over what they are read from would destroy both.
fn refuse_member(output: &Path, members: &[MemberSpec]) -> Result<(), Failure> {
    let id =
        |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino(), meta.rdev()));
    let Some(target) = id(output) else { return Ok(()) };
    let same = |spec: &&MemberSpec| {
        id(&spec.path).is_some_and(|(dev, ino, rdev)| {
            (dev, ino) == (target.0, target.1) || rdev != 0 && rdev == target.2
        })
    };
    match members.iter().find(same) {
        Some(spec) => Err(Failure::new(format!(
            "{}: is the member {spec}; nothing was written: choose another file",
            output.display()
        ))),
        None => Ok(()),
    }
}

/// Keeps others off an output that exists, and looks at what would be lost.
fn hold_output(path: &Path, overwrite: bool) -> Result<Option<Member>, Failure> {
    let there = fs::metadata(path).ok();
    let kind = there.as_ref().map(|meta| (meta.file_type(), meta.len()));
    let holds_bytes =
        kind.is_some_and(|(kind, len)| kind.is_block_device() || kind.is_file() && len > 0);
    if !holds_bytes {
        return Ok(None);
    }
    let untouched = |what: &dyn Display| {
        Failure::new(format!("{what}; nothing was written: choose another file"))
    };
    let spec = MemberSpec::whole(path);
    let member = Member::open(&spec, Access::ReadWrite).map_err(|error| untouched(&error))?;
    let look = Look::at(&spec).map_err(|error| untouched(&error))?;
    match look.findings().all.iter().map(describe_finding).next() {
        Some((what, at)) if !overwrite => Err(Failure::new(format!(
            "{}: holds {what} at byte {at}; nothing was written: choose another file, or say \
             --overwrite",
            path.display()
        ))),
        _ => Ok(Some(member)),
    }
}

/// Copies what was asked for.
fn copy(args: &Args, arrays: &[&Array], map: &Map) -> Result<Copied, Failure> {
    let size = map.bytes();
    if args.offset > size {
        return Err(Failure::usage(format!(
            "--offset {} is beyond the {size} bytes that there are",
            args.offset
        )));
    }
    let len = args.length.unwrap_or(u64::MAX).min(size - args.offset);
    if args.length.is_some_and(|wanted| wanted > len) {
        warn!("the array ends after {len} of the bytes asked for");
    }
    let mut output = match &args.output {
        Some(path) => Output::file(path).map_err(|error| {
            let next = match error.kind() {
                ErrorKind::IsADirectory | ErrorKind::NotADirectory => "; name a file",
                ErrorKind::NotFound => "; make its directory first",
                _ => "",
            };
            Failure::new(format!("{}: cannot write to it: {error}{next}", path.display()))
        })?,
        None => Output::stdout()?,
    };
    let mut progress = Progress::new(len, args.output.is_some());
    let (mut unread, mut skipped) = (None, Vec::new());
    let mut at = args.offset;
    for piece in map.pieces(at..at + len) {
        let Place { device, offset: from } = piece.place;
        let mut reader = Reader::new(arrays[device], from, piece.len, args.skip_unreadable);
        let in_volume = |place: u64| place.saturating_sub(from) + at;
        while let Some(block) = reader.next() {
            let (offset, bytes) = match block {
                Ok(read) => read,
                Err((place, error)) => {
                    unread = Some((in_volume(place), error));
                    break;
                }
            };
            output.write(bytes).map_err(|error| {
                let done = in_volume(offset) - args.offset;
                Failure::new(format!("cannot write the contents after {done} bytes: {error}"))
            })?;
            progress.add(bytes.len() as u64);
        }
        skipped.extend(reader.skipped().iter().map(|it| in_volume(it.start)..in_volume(it.end)));
        if unread.is_some() {
            break;
        }
        at += piece.len;
    }
    let holes = output.finish()?;
    progress.end();
    if let Some((offset, error)) = unread {
        return Err(Failure::new(format!(
            "cannot read the array at byte {offset}: {error}; only what comes before was copied; with \
             --skip-unreadable zeros stand for what cannot be read"
        )));
    }
    Ok(Copied { bytes: len, holes, skipped })
}

/// A line on the terminal that tells how far it is.
struct Progress {
    shown: bool,
    done: u64,
    all: u64,
    began: Instant,
    told: Instant,
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(200);

    fn new(all: u64, to_file: bool) -> Self {
        let shown = io::stderr().is_terminal() && (to_file || !io::stdout().is_terminal());
        Self { shown, done: 0, all, began: Instant::now(), told: Instant::now() }
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if self.shown && self.told.elapsed() >= Self::EVERY {
            self.told = Instant::now();
            self.tell("");
        }
    }

    fn end(&self) {
        if self.shown {
            self.tell("\n");
        }
    }

    fn tell(&self, end: &str) {
        let percent = 100.0 * self.done as f64 / self.all.max(1) as f64;
        let mib = self.done as f64 / f64::from(1 << 20);
        let rate = mib / self.began.elapsed().as_secs_f64().max(0.001);
        let line = format!("\r{percent:5.1} %  {mib:.0} MiB  {rate:.0} MiB/s {end}");
        // A terminal that is gone shows no progress, and that is all.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
