//! One run of one workload on an array that stands.

use super::live::{Live, OWN_FILE, forget, open_file};
use super::meter::{Costs, later};
use super::tools::{like_another, of_others};
use crate::plan::{Io, Load, Pattern, Place, Workload};
use crate::record::{Figure, Flow, Mark, Phase, Unit, Zone};
use crate::subject::Target;
use crate::workload::drive::{self, Outcome, Stop};
use crate::workload::generator::End;
use crate::workload::recorder::{Recorded, Recorder};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Blocks below this are compared by requests, not by bytes, if they go to places without order.
const SMALL: u64 = 64 << 10;
/// How often it is seen whether a rebuild still runs.
const PACE: Duration = Duration::from_millis(100);

/// What a run gave.
pub(crate) struct Measured {
    pub phases: Vec<Phase>,
    /// A program's own words.
    pub raw: String,
}

/// Runs a workload.
///
/// # Errors
/// What failed.
pub(crate) fn measure(
    live: &Live,
    workload: &Workload,
    rebuilding: bool,
    seed: u64,
    stop: &Arc<Stop>,
) -> Result<Measured, String> {
    match &workload.load {
        Load::Io(io @ Io { pattern: Pattern::Zones(count), .. }) => {
            zones(live, workload, io, *count, stop)
        }
        Load::Io(io) => own(live, workload, io, rebuilding, seed, stop),
        Load::Like(like) => like_another(live, like, seed, stop),
        Load::Program(program) => of_others(live, program, workload, stop),
    }
}

fn own(
    live: &Live,
    workload: &Workload,
    io: &Io,
    rebuilding: bool,
    seed: u64,
    stop: &Arc<Stop>,
) -> Result<Measured, String> {
    let (file, range, mut raw) = prepare(live, io, stop)?;
    let end = drive::end(workload, io);
    let generators = drive::generators(io, &range, end, seed);
    let warm_up = if io.amount.is_some() { Duration::ZERO } else { workload.warm_up };
    let over = AtomicBool::new(false);
    // Without a warm-up the first request counts, too.
    let at_once = warm_up.is_zero().then(|| live.read());
    let (outcome, before, after, mark) = std::thread::scope(|scope| {
        let warmed = at_once.is_none().then(|| later(scope, warm_up, || live.read()));
        let mark = scope.spawn(|| rebuilding.then(|| watch(live, warm_up, &over)).flatten());
        let outcome: Result<Outcome, String> = match &live.hosted {
            Some(hosted) => hosted.run(generators, stop),
            None => drive::run(generators, || live.port(file.as_ref(), io.depth), stop),
        };
        let after = live.read();
        over.store(true, Ordering::Relaxed);
        let mark = mark.join().expect("watching does not panic");
        let warmed = warmed.map(|reading| reading.join().expect("reading does not panic"));
        (outcome, at_once.or(warmed).expect("one of the two"), after, mark)
    });
    let outcome = outcome?;
    if io.verify {
        raw.push_str(&format!("{} reads were verified\n", outcome.checked));
    }
    let mut phase = phase_of(outcome.recorded, io, after.since(&before));
    phase.whole = io.amount.is_some() || io.fsync_end;
    phase.series.marks.extend(mark);
    Ok(Measured { phases: vec![phase], raw })
}

/// Reads or writes each part of a range for its share of the time.
fn zones(
    live: &Live,
    workload: &Workload,
    io: &Io,
    count: u32,
    stop: &Arc<Stop>,
) -> Result<Measured, String> {
    let (file, range, raw) = prepare(live, io, stop)?;
    let each_ns = (workload.time / count).as_nanos() as u64;
    let before = live.read();
    let (recorded, zones) = by_zones(&range, io.block, count, |part, zone| {
        let end = End::Time { from_ns: 0, until_ns: each_ns };
        let generators = drive::generators(io, part, end, zone);
        match &live.hosted {
            Some(hosted) => hosted.run(generators, stop),
            None => drive::run(generators, || live.port(file.as_ref(), io.depth), stop),
        }
    })?;
    let mut phase = phase_of(recorded, io, live.read().since(&before));
    phase.whole = true;
    phase.zones = zones;
    Ok(Measured { phases: vec![phase], raw })
}

/// Runs a load on each of so many parts of a range: all that it did, and how fast each part was.
pub(crate) fn by_zones(
    range: &Range<u64>,
    block: u64,
    count: u32,
    mut run: impl FnMut(&Range<u64>, u64) -> Result<Outcome, String>,
) -> Result<(Recorded, Vec<Zone>), String> {
    let blocks = (range.end - range.start) / block;
    let (mut all, mut zones) = (None::<Recorder>, Vec::new());
    for zone in 0..u64::from(count) {
        let edge = |zone: u64| range.start + blocks * zone / u64::from(count) * block;
        let part = edge(zone)..edge(zone + 1).max(edge(zone) + block);
        let outcome = run(&part, zone)?;
        let moved = outcome.recorded.read.bytes + outcome.recorded.write.bytes;
        let bytes_per_second = moved as f64 / outcome.recorded.seconds.max(1e-9);
        zones.push(Zone { offset_bytes: part.start, bytes_per_second });
        match &mut all {
            None => all = Some(outcome.recorder),
            Some(all) => all.follow(&outcome.recorder),
        }
    }
    Ok((all.map_or_else(Recorded::default, Recorder::finish), zones))
}

/// A phase of the lab's own requests.
pub(crate) fn phase_of(recorded: Recorded, io: &Io, costs: Costs) -> Phase {
    let seconds = recorded.seconds;
    let figure = figure(io, &recorded.read, &recorded.write, seconds);
    Phase { whole: false, ..costs.phase("", figure, seconds, recorded) }
}

fn figure(io: &Io, read: &Flow, write: &Flow, seconds: f64) -> Figure {
    let over = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let has_order =
        matches!(io.pattern, Pattern::Sequential | Pattern::Streams(_) | Pattern::Zones(_));
    if io.block < SMALL && !has_order {
        return Figure {
            value: over(read.requests + write.requests),
            unit: Unit::RequestsPerSecond,
        };
    }
    Figure { value: over(read.bytes + write.bytes), unit: Unit::BytesPerSecond }
}

/// When a rebuild ended, if it did before the load.
fn watch(live: &Live, warm_up: Duration, over: &AtomicBool) -> Option<Mark> {
    let began = Instant::now();
    let mut until = None;
    while !over.load(Ordering::Relaxed) {
        if live.is_rebuilding()? {
            std::thread::sleep(PACE);
        } else {
            until = Some(began.elapsed().saturating_sub(warm_up).as_millis() as u64);
            break;
        }
    }
    Some(Mark { what: "rebuild".into(), from_ms: 0, until_ms: until })
}

/// The file that a load goes to, if it is one; its range; what is to be told of it.
pub(super) type Prepared = (Option<Arc<File>>, Range<u64>, String);

/// Opens what the load goes to, and finds its range.
pub(super) fn prepare(live: &Live, io: &Io, stop: &Stop) -> Result<Prepared, String> {
    let writes = io.read < 1.0;
    let (file, bytes, raw) = match &live.target {
        Target::Null | Target::Process { .. } | Target::Nbd { .. } => {
            (None, live.bytes()?, String::new())
        }
        Target::File { path, .. } => {
            let (file, as_wished) = open_file(Path::new(path), writes, io.direct)?;
            (Some(file), live.bytes()?, refusal(as_wished))
        }
        Target::Directory { path } => {
            let path = Path::new(path).join(OWN_FILE);
            lay_out(&path, io.file_size, stop)?;
            let (file, as_wished) = open_file(&path, writes, io.direct)?;
            (Some(file), 0..io.file_size, refusal(as_wished))
        }
    };
    if let Some(file) = &file {
        forget(file)?;
    }
    Ok((file, range(io, &bytes)?, raw))
}

/// The part of all these bytes that a load goes to.
///
/// # Errors
/// If no block has room in it.
pub(crate) fn range(io: &Io, bytes: &Range<u64>) -> Result<Range<u64>, String> {
    let length = bytes.end - bytes.start;
    let at = |place: Place| match place {
        Place::Share(share) => (length as f64 * share) as u64,
        Place::Bytes(bytes) => bytes,
    };
    let from = (at(io.from) / io.block * io.block).min(length);
    let to = at(io.to).min(length);
    if to < from + io.block {
        return Err(format!(
            "a range of {} bytes has no room for blocks of {}; nothing was written",
            to.saturating_sub(from),
            io.block
        ));
    }
    Ok(bytes.start + from..bytes.start + to)
}

fn refusal(as_wished: bool) -> String {
    let words = "O_DIRECT was refused: through the page cache\n";
    if as_wished { String::new() } else { words.to_owned() }
}

/// A file in which loads read and write, all of it written, of random bytes.
fn lay_out(path: &Path, bytes: u64, stop: &Stop) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() == bytes) {
        return Ok(());
    }
    let mut file = File::create(path).map_err(failed)?;
    let mut block = vec![0; 1 << 20];
    drive::fill(&mut block, 1);
    let mut left = bytes;
    while left > 0 {
        if stop.is_set() {
            return Err(drive::INTERRUPTED.into());
        }
        let now = left.min(block.len() as u64) as usize;
        file.write_all(&block[..now]).map_err(failed)?;
        left -= now as u64;
    }
    file.sync_all().map_err(failed)
}
