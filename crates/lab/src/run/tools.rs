//! Runs of what other tools do, and of the tools themselves.

use super::live::Live;
use super::measure::{Measured, phase_of, prepare};
use crate::builtin::{Bench, bonnie, hdparm, iozone};
use crate::clients::{self, pgbench};
use crate::plan::{Like, Program, Workload};
use crate::subject::Target;
use crate::workload::drive::{self, Stop};
use lapstrake_model::benchmark::Iozone;
use std::path::Path;
use std::sync::Arc;

/// What another tool does.
pub(super) fn like_another(
    live: &Live,
    like: &Like,
    seed: u64,
    stop: &Arc<Stop>,
) -> Result<Measured, String> {
    let meter = || live.read();
    let bench = Bench { meter: &meter, stop };
    match like {
        Like::Hdparm => like_hdparm(live, stop),
        Like::Bonnie { version, size, chunk, files, sync, times, fast, .. } => {
            let load = bonnie::load(*version, *size, *chunk, *sync, *fast);
            let settings = bonnie::Settings { load, files: *files };
            let mut phases = Vec::new();
            for time in 1..=*times {
                let more = bonnie::run(&bench, directory(live)?, settings, seed ^ u64::from(time))?;
                phases.extend(more.into_iter().map(|mut phase| {
                    if *times > 1 {
                        phase.name = format!("{time} {}", phase.name);
                    }
                    phase
                }));
            }
            Ok(Measured { phases, raw: small(*size) })
        }
        Like::Iozone { tests, size, record, threads, direct, flush, .. } => {
            let load = Iozone { tests: tests.clone(), size: *size, record: *record, flush: *flush };
            let settings = iozone::Settings { load, threads: *threads, direct: *direct };
            let (phases, text) = iozone::run(&bench, directory(live)?, &settings, seed)?;
            let all = *size * u64::from(*threads).max(1);
            let note = if *direct { String::new() } else { small(all) };
            Ok(Measured { phases, raw: text + &note })
        }
    }
}

/// What has to be known of a size that fits in memory.
fn small(size: u64) -> String {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = info.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok()
    });
    match kib {
        Some(kib) if size < kib << 11 => {
            "less than twice the memory: reads may come from the page cache, as with the tool itself\n".into()
        }
        _ => String::new(),
    }
}

fn like_hdparm(live: &Live, stop: &Arc<Stop>) -> Result<Measured, String> {
    let io = hdparm::io();
    let (file, range, raw) = prepare(live, &io, stop)?;
    hdparm::rest(stop);
    let before = live.read();
    let generators = hdparm::generators(&range);
    let outcome = match &live.hosted {
        Some(hosted) => hosted.run(generators, stop),
        None => drive::run(generators, || live.port(file.as_ref(), io.depth), stop),
    }?;
    let mut phase = phase_of(outcome.recorded, &io, live.read().since(&before));
    phase.whole = true;
    Ok(Measured { phases: vec![phase], raw })
}

fn directory(live: &Live) -> Result<&Path, String> {
    match &live.target {
        Target::Directory { path } => Ok(Path::new(path)),
        _ => Err("it needs a filesystem on the array".into()),
    }
}

/// A program of others.
pub(super) fn of_others(
    live: &Live,
    program: &Program,
    workload: &Workload,
    stop: &Arc<Stop>,
) -> Result<Measured, String> {
    // Of a load with a preparation, the moment at which that is over.
    let mut before = live.read();
    let work = &live.work;
    let told = match program {
        Program::Fio { job } => {
            let path = match &live.target {
                Target::File { path, offset: 0, size: None } | Target::Directory { path } => path,
                _ => {
                    return Err(
                        "fio is not run on windows of files; use a whole file or a device".into()
                    );
                }
            };
            clients::fio(job, Path::new(path), work, stop)
        }
        Program::Bonnie { arguments } => clients::bonnie(arguments, directory(live)?, work, stop),
        Program::Hdparm => {
            let device = live.device.as_deref().ok_or("it needs a block device")?;
            clients::hdparm(device, work, stop)
        }
        Program::Pgbench { .. } => {
            let settings = pgbench::settings(program).expect("it is pgbench");
            let mut during = || before = live.read();
            pgbench::pgbench(directory(live)?, work, workload, settings, stop, &mut during)
        }
    }?;
    let costs = live.read().since(&before);
    let mut phases = told.phases;
    // A program with several phases does not tell when one ends and the next begins.
    if let [phase] = &mut phases[..] {
        phase.cpu = costs.cpu;
        phase.members = costs.members;
        phase.memory_bytes_max = costs.memory_bytes_max;
    }
    Ok(Measured { phases, raw: told.raw })
}
