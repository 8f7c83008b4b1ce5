//! Workloads of a plan: which kind each is, with its defaults, and keys that belong to another kind refused.

use super::arrays::size_text;
use super::raw::{LikeName, PatternName, ProgramName, RawWorkload};
use super::resolve::Problems;
use super::values::{Bytes, Many, Place, Share};
use super::{Io, Like, Load, Pattern, Program, Rules, Workload};
use crate::{TEXT_MAX, read_text};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use toml::Spanned;

/// Requests are multiples of this: md's sector.
const SECTOR: u64 = 512;
/// What one of pgbench's transactions takes of a processor where nothing is said: PostgreSQL 15 and pgbench together took
/// 272 us on the machine on which Lapstrake was made (docs/accuracy.md).
const TRANSACTION_CPU: Duration = Duration::from_micros(300);
/// Of a file on a filesystem, if the plan says nothing.
pub(crate) const FILE_BYTES: u64 = 256 << 20;
/// The largest request: what an array's front ends take.
const BLOCK_MAX: u64 = 32 << 20;

pub(super) fn all(
    raw: &[Spanned<RawWorkload>],
    rules: &Rules,
    directory: &Path,
    problems: &mut Problems<'_>,
) -> Vec<Workload> {
    let mut all: Vec<Workload> = Vec::new();
    let mut names = BTreeSet::new();
    for entry in raw {
        let raw = entry.get_ref();
        let span = raw.name.span();
        foreign_keys(raw, problems);
        if let Some(time) = raw.time.as_ref().filter(|time| time.get_ref().0.is_zero()) {
            problems.at(time.span(), "a run of no length measures nothing");
        }
        let loads = match (&raw.like, &raw.program, &raw.pattern) {
            (Some(like), None, None) => {
                vec![(String::new(), Load::Like(like_load(raw, *like.get_ref(), problems)))]
            }
            (None, Some(program), None) => {
                program_load(raw, *program.get_ref(), directory, problems)
                    .map(|program| (String::new(), Load::Program(program)))
                    .into_iter()
                    .collect()
            }
            (None, None, Some(pattern)) => io_loads(raw, pattern, problems),
            (None, None, None) => {
                let text = "a workload has a pattern (requests of the lab's own), like (what another tool does) or program";
                problems.at(span.clone(), text);
                Vec::new()
            }
            _ => {
                problems.at(span.clone(), "pattern, like and program exclude each other");
                Vec::new()
            }
        };
        for (suffix, load) in loads {
            let name = format!("{}{suffix}", raw.name.get_ref());
            if name.trim().is_empty() || !names.insert(name.clone()) {
                problems.at(span.clone(), format!("there is another workload {name:?}"));
            }
            let warm_up = raw.warm_up.map_or(rules.warm_up, |time| time.0);
            let time = raw.time.as_ref().map_or(rules.time, |time| time.get_ref().0);
            all.push(Workload { name, load, warm_up, time });
        }
    }
    all
}

/// Keys of one kind on another would be silently without effect.
fn foreign_keys(raw: &RawWorkload, problems: &mut Problems<'_>) {
    let is_like = |wanted| raw.like.as_ref().is_some_and(|like| *like.get_ref() == wanted);
    let is_program =
        |wanted| raw.program.as_ref().is_some_and(|program| *program.get_ref() == wanted);
    let (bonnie, iozone) = (is_like(LikeName::Bonnie), is_like(LikeName::Iozone));
    let (fio, pgbench) = (is_program(ProgramName::Fio), is_program(ProgramName::Pgbench));
    let pattern = raw.pattern.is_some();
    let of = |wanted| raw.pattern.as_ref().is_some_and(|pattern| *pattern.get_ref() == wanted);
    let timed = pattern || pgbench;
    let (zones, whole) = (of(PatternName::Zones), pattern && !of(PatternName::Zones));
    let keys = [
        ("warm-up", raw.warm_up.is_some(), whole),
        ("time", raw.time.is_some(), timed),
        ("theta", raw.theta.is_some(), of(PatternName::Zipf)),
        ("stride", raw.stride.is_some(), of(PatternName::Strided)),
        ("streams", raw.streams.is_some(), of(PatternName::Streams)),
        ("zones", raw.zones.is_some(), zones),
        ("read", raw.read.is_some(), pattern),
        ("block", raw.block.is_some(), pattern),
        ("depth", raw.depth.is_some(), pattern),
        ("threads", raw.threads.is_some(), pattern || iozone),
        ("from", raw.from.is_some(), pattern),
        ("to", raw.to.is_some(), pattern),
        ("file-size", raw.file_size.is_some(), pattern),
        ("direct", raw.direct.is_some(), pattern || iozone),
        ("think", raw.think.is_some(), pattern),
        ("rate", raw.rate.is_some(), pattern),
        ("fsync-every", raw.fsync_every.is_some(), pattern),
        ("fsync-end", raw.fsync_end.is_some(), pattern),
        ("verify", raw.verify.is_some(), whole),
        ("amount", raw.amount.is_some(), pattern),
        ("version", raw.version.is_some(), bonnie),
        ("size", raw.size.is_some(), bonnie || iozone),
        ("size-predicted", raw.size_predicted.is_some(), bonnie || iozone),
        ("chunk", raw.chunk.is_some(), bonnie),
        ("files", raw.files.is_some(), bonnie),
        ("sync", raw.sync.is_some(), bonnie),
        ("times", raw.times.is_some(), bonnie),
        ("fast", raw.fast.is_some(), bonnie),
        ("tests", raw.tests.is_some(), iozone),
        ("record", raw.record.is_some(), iozone),
        ("flush", raw.flush.is_some(), iozone),
        ("job", raw.job.is_some(), fio),
        ("job-file", raw.job_file.is_some(), fio),
        ("arguments", raw.arguments.is_some(), is_program(ProgramName::Bonnie)),
        ("scale", raw.scale.is_some(), pgbench),
        ("clients", raw.clients.is_some(), pgbench),
        ("jobs", raw.jobs.is_some(), pgbench),
        ("mode", raw.mode.is_some(), pgbench),
        ("configuration", raw.configuration.is_some(), pgbench),
        ("transaction-cpu", raw.transaction_cpu.is_some(), pgbench),
    ];
    for (key, _, _) in keys.iter().filter(|(_, given, belongs)| *given && !belongs) {
        problems.at(
            raw.name.span(),
            format!("{key} has no effect on this kind of workload; take it out"),
        );
    }
}

fn io_loads(
    raw: &RawWorkload,
    pattern: &Spanned<PatternName>,
    problems: &mut Problems<'_>,
) -> Vec<(String, Load)> {
    let one = |value| Many(vec![value]);
    let blocks = raw.block.as_ref().map_or(one(Bytes(4096)), |blocks| blocks.get_ref().clone());
    let depths = raw.depth.as_ref().map_or(Many(vec![1]), |depths| depths.get_ref().clone());
    let threads = raw.threads.as_ref().map_or(Many(vec![1]), |threads| threads.get_ref().clone());
    let reads = raw.read.clone().unwrap_or(Many(vec![Share(1.0)]));
    ranges(raw, &blocks, &depths, &threads, problems);
    let from = raw.from.unwrap_or(Place::Share(0.0));
    let to = raw.to.as_ref().map_or(Place::Share(1.0), |to| *to.get_ref());
    let mut loads = Vec::new();
    for read in &reads.0 {
        for block in &blocks.0 {
            for depth in &depths.0 {
                for threads_each in &threads.0 {
                    let io = Io {
                        pattern: pattern_of(raw, pattern, block.0, problems),
                        read: read.0,
                        block: block.0,
                        depth: *depth,
                        threads: *threads_each,
                        from,
                        to,
                        file_size: raw.file_size.map_or(FILE_BYTES, |size| size.0),
                        direct: raw.direct.unwrap_or(true),
                        think: raw.think.map_or(Duration::ZERO, |time| time.0),
                        rate: raw.rate.as_ref().map(|rate| rate.get_ref().0),
                        fsync_every: raw.fsync_every.as_ref().map(|every| *every.get_ref()),
                        fsync_end: raw.fsync_end.unwrap_or(false),
                        verify: raw.verify.unwrap_or(false),
                        amount: raw.amount.as_ref().map(|amount| amount.get_ref().0),
                    };
                    let mut suffix = String::new();
                    let mut add = |several: bool, text: String| {
                        if several {
                            suffix += &format!(" {text}");
                        }
                    };
                    add(reads.0.len() > 1, format!("r{:.0}", read.0 * 100.0));
                    add(blocks.0.len() > 1, size_text(block.0));
                    add(depths.0.len() > 1, format!("q{depth}"));
                    add(threads.0.len() > 1, format!("t{threads_each}"));
                    loads.push((suffix, Load::Io(io)));
                }
            }
        }
    }
    loads
}

fn ranges(
    raw: &RawWorkload,
    blocks: &Many<Bytes>,
    depths: &Many<u32>,
    threads: &Many<u32>,
    problems: &mut Problems<'_>,
) {
    let span = raw.name.span();
    let at = |value: Option<std::ops::Range<usize>>| value.unwrap_or(span.clone());
    for Bytes(block) in &blocks.0 {
        if *block == 0 || block % SECTOR != 0 || *block > BLOCK_MAX {
            let text = format!("a block of {block} bytes: it is a multiple of 512, 32M at most");
            problems.at(at(raw.block.as_ref().map(Spanned::span)), text);
        }
    }
    if depths.0.iter().any(|depth| !(1..=1024).contains(depth)) {
        problems.at(at(raw.depth.as_ref().map(Spanned::span)), "depth is from 1 to 1024");
    }
    if threads.0.iter().any(|threads| !(1..=256).contains(threads)) {
        problems.at(at(raw.threads.as_ref().map(Spanned::span)), "threads are from 1 to 256");
    }
    if let (Some(Place::Bytes(from)), Some(to)) = (raw.from, &raw.to)
        && matches!(to.get_ref(), Place::Bytes(to) if *to <= from)
    {
        problems.at(to.span(), "the range ends before it begins");
    }
    if let (Some(Place::Share(from)), Some(to)) = (raw.from, &raw.to)
        && matches!(to.get_ref(), Place::Share(to) if *to <= from)
    {
        problems.at(to.span(), "the range ends before it begins");
    }
    if let Some(rate) = raw.rate.as_ref().filter(|rate| rate.get_ref().0 == 0) {
        problems.at(rate.span(), "at no bytes a second nothing would ever be done");
    }
    if let Some(every) = raw.fsync_every.as_ref().filter(|every| *every.get_ref() == 0) {
        problems.at(every.span(), "fsync-every counts writes, from 1");
    }
    if let Some(amount) = raw.amount.as_ref() {
        if amount.get_ref().0 == 0 {
            problems.at(amount.span(), "an amount of nothing measures nothing");
        }
        if raw.time.is_some() {
            problems.at(amount.span(), "a run ends after an amount or after a time, not both");
        }
    }
}

fn pattern_of(
    raw: &RawWorkload,
    name: &Spanned<PatternName>,
    block: u64,
    problems: &mut Problems<'_>,
) -> Pattern {
    match name.get_ref() {
        PatternName::Sequential => Pattern::Sequential,
        PatternName::Uniform => Pattern::Uniform,
        PatternName::Zipf => {
            let theta = raw.theta.as_ref().map_or(0.99, |theta| *theta.get_ref());
            if !(theta > 0.0 && theta <= 10.0) {
                let span = raw.theta.as_ref().map_or(name.span(), Spanned::span);
                problems.at(span, "theta is above 0 and 10 at most; 0.99 is usual");
            }
            Pattern::Zipf(theta)
        }
        PatternName::Strided => {
            let Some(stride) = &raw.stride else {
                problems.at(name.span(), "strided needs a stride, such as stride = \"1M\"");
                return Pattern::Strided(block);
            };
            let bytes = stride.get_ref().0;
            if bytes < block || block == 0 || bytes % block != 0 {
                problems.at(stride.span(), "the stride is a multiple of the block");
            }
            Pattern::Strided(bytes)
        }
        PatternName::Streams => {
            Pattern::Streams(parts(&raw.streams, name, "streams", "such as streams = 4", problems))
        }
        PatternName::Zones => {
            if let Some(amount) = &raw.amount {
                problems.at(amount.span(), "zones are measured for a time, not for an amount");
            }
            Pattern::Zones(parts(&raw.zones, name, "zones", "such as zones = 64", problems))
        }
    }
}

/// How many parts a pattern has.
fn parts(
    given: &Option<Spanned<u32>>,
    name: &Spanned<PatternName>,
    key: &str,
    example: &str,
    problems: &mut Problems<'_>,
) -> u32 {
    match given {
        Some(count) if (1..=1024).contains(count.get_ref()) => *count.get_ref(),
        Some(count) => {
            problems.at(count.span(), format!("{key} are from 1 to 1024"));
            1
        }
        None => {
            problems.at(name.span(), format!("this pattern needs their number, {example}"));
            1
        }
    }
}

fn like_load(raw: &RawWorkload, like: LikeName, problems: &mut Problems<'_>) -> Like {
    let size = raw.size.map_or(512 << 20, |size| size.0);
    let size_predicted = raw.size_predicted.map_or(size, |size| size.0);
    match like {
        LikeName::Hdparm => Like::Hdparm,
        LikeName::Bonnie => {
            let chunk = of_a_byte(raw.chunk.as_ref(), 8192, "chunk", problems);
            Like::Bonnie {
                version: raw.version.unwrap_or_default(),
                size,
                size_predicted,
                chunk,
                files: raw.files.unwrap_or(16 * 1024),
                sync: raw.sync.unwrap_or(false),
                times: at_least_one(raw.times.as_ref(), 1, "times", problems),
                fast: raw.fast.unwrap_or(false),
            }
        }
        LikeName::Iozone => {
            let tests = raw.tests.as_ref().map_or(vec![0, 1, 2], |tests| tests.get_ref().0.clone());
            if let Some(tests) = &raw.tests
                && (!tests.get_ref().0.contains(&0)
                    || tests.get_ref().0.iter().any(|test| *test > 2))
            {
                problems.at(tests.span(), "iozone's tests here are 0 (write, rewrite), 1 (read, reread), 2 (random); 0 makes the file");
            }
            let record = of_a_byte(raw.record.as_ref(), 4096, "record", problems);
            if let Some(threads) = raw.threads.as_ref().filter(|all| all.get_ref().0.len() > 1) {
                problems.at(threads.span(), "one number of threads here; name a load for each");
            }
            Like::Iozone {
                tests,
                size,
                size_predicted,
                record,
                threads: raw.threads.as_ref().map_or(0, |threads| threads.get_ref().0[0]),
                direct: raw.direct.unwrap_or(false),
                flush: raw.flush.unwrap_or(false),
            }
        }
    }
}

/// A size that something is divided by.
fn of_a_byte(
    raw: Option<&Spanned<Bytes>>,
    default: u64,
    what: &str,
    problems: &mut Problems<'_>,
) -> u64 {
    let Some(size) = raw else { return default };
    if size.get_ref().0 == 0 {
        problems.at(size.span(), format!("{what} is 1 byte at least"));
    }
    size.get_ref().0.max(1)
}

/// A number of something that a load cannot do without.
fn at_least_one(
    raw: Option<&Spanned<u32>>,
    default: u32,
    key: &str,
    problems: &mut Problems<'_>,
) -> u32 {
    let Some(number) = raw else { return default };
    if *number.get_ref() == 0 {
        problems.at(number.span(), format!("{key} is 1 at least"));
    }
    *number.get_ref()
}

/// Where a load goes is the array's to say: elsewhere nobody has asked whether it may be written to.
fn names_a_place(line: &str) -> Option<&str> {
    const PLACES: [&str; 5] = ["filename", "directory", "filename_format", "opendir", "include"];
    let key = line.trim_start().split(['=', ' ', '\t']).next().unwrap_or_default();
    PLACES.contains(&key).then_some(key)
}

fn fio(job: String, span: Range<usize>, problems: &mut Problems<'_>) -> Option<Program> {
    let Some(key) = job.lines().find_map(names_a_place) else { return Some(Program::Fio { job }) };
    let why = "the array is where the job runs";
    problems.at(span, format!("{key} in a fio job: {why}; leave it out"));
    None
}

fn program_load(
    raw: &RawWorkload,
    program: ProgramName,
    directory: &Path,
    problems: &mut Problems<'_>,
) -> Option<Program> {
    match program {
        ProgramName::Hdparm => Some(Program::Hdparm),
        ProgramName::Bonnie => {
            let arguments = raw.arguments.as_ref();
            if let Some(all) =
                arguments.filter(|all| all.get_ref().iter().any(|w| w.starts_with("-d")))
            {
                problems.at(all.span(), "-d: the array is where bonnie++ runs; leave it out");
            }
            let arguments = arguments.map_or(Vec::new(), |all| all.get_ref().clone());
            Some(Program::Bonnie { arguments })
        }
        ProgramName::Fio => match (&raw.job, &raw.job_file) {
            (Some(job), None) => fio(job.get_ref().clone(), job.span(), problems),
            (None, Some(file)) => match read_text(&directory.join(file.get_ref()), TEXT_MAX) {
                Ok(job) => fio(job, file.span(), problems),
                Err(error) => {
                    problems.at(file.span(), format!("cannot read the job file: {error}"));
                    None
                }
            },
            _ => {
                problems
                    .at(raw.name.span(), "fio needs a job (its text) or a job-file, one of them");
                None
            }
        },
        ProgramName::Pgbench => {
            let mode = raw.mode.as_ref().map_or("prepared", |mode| mode.get_ref());
            if !["simple", "extended", "prepared"].contains(&mode) {
                let span = raw.mode.as_ref().map_or(raw.name.span(), Spanned::span);
                problems.at(span, "mode is simple, extended or prepared");
            }
            Some(Program::Pgbench {
                scale: at_least_one(raw.scale.as_ref(), 10, "scale", problems),
                clients: at_least_one(raw.clients.as_ref(), 10, "clients", problems),
                jobs: at_least_one(raw.jobs.as_ref(), 2, "jobs", problems),
                mode: mode.to_owned(),
                configuration: raw.configuration.clone().unwrap_or_default(),
                transaction_cpu: raw.transaction_cpu.map_or(TRANSACTION_CPU, |time| time.0),
            })
        }
    }
}
