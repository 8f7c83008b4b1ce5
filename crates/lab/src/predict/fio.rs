//! fio's job files on the models: each process as fio has it, jobs of one group at the same time, groups one after the
//! other. What comes of it has the phases that fio's own output has (`import::fio`).

mod permutation;
mod process;

use super::drive;
use crate::clients::phase_name;
use crate::fio_job::JobFile;
use crate::record::{Flow, Phase, Unit};
use crate::workload::recorder::Recorder;
use lapstrake_model::{Nanos, Volume};
use process::Process;

const DIRECTIONS: [&str; 2] = ["read", "write"];

/// Runs a job file on a volume; its phases, and when it was over. `look` is called at the beginning and at the end.
///
/// # Errors
/// If the file is not understood, or asks for more room than there is.
pub(super) fn run<V: Volume>(
    volume: &mut V,
    text: &str,
    seed: u64,
    mut look: impl FnMut(&V, Nanos),
) -> Result<(Vec<Phase>, Nanos), String> {
    let file = JobFile::parse(text)?;
    let bytes = volume.blocks() * 512;
    let mut done: Vec<Recorder> = Vec::new();
    let mut now = Nanos::ZERO;
    look(volume, now);
    for group in file.jobs.chunk_by(|a, b| a.group == b.group) {
        let first = done.len();
        let mut processes = Vec::new();
        for (at, job) in group.iter().enumerate() {
            for nth in 0..job.processes {
                let seed = seed ^ (((first + at) as u64) << 40 | u64::from(nth) << 20);
                processes.push(Process::new(job, bytes, seed)?);
            }
        }
        now = drive::run(volume, &mut processes, now, now, |_, _| ())?;
        let mut left = &processes[..];
        for job in group {
            let (own, others) = left.split_at(job.processes as usize);
            left = others;
            done.push(together(own.iter().map(Process::recorder)));
        }
    }
    look(volume, now);
    let reports = file.reports();
    let mut phases = Vec::new();
    for (nth, report) in reports.iter().enumerate() {
        let recorded = together(report.iter().map(|at| &done[*at])).finish();
        let is_several = reports.len() > 1;
        for (name, flow) in DIRECTIONS.into_iter().zip([recorded.read, recorded.write]) {
            if flow.bytes > 0 {
                let name = phase_name(is_several, nth, name);
                phases.push(phase(&name, flow, name.ends_with(DIRECTIONS[0]), recorded.seconds));
            }
        }
    }
    Ok((phases, now))
}

/// What some did at the same time.
fn together<'a>(mut all: impl Iterator<Item = &'a Recorder>) -> Recorder {
    let mut first = all.next().expect("a job has a process").clone();
    all.for_each(|other| first.merge(other));
    first
}

fn phase(name: &str, flow: Flow, reads: bool, seconds: f64) -> Phase {
    let rate = flow.bytes as f64 / seconds.max(1e-9);
    let mut phase = Phase::new(name, rate, Unit::BytesPerSecond, seconds);
    // As fio's own: of the whole run after its ramp.
    phase.whole = true;
    *(if reads { &mut phase.read } else { &mut phase.write }) = flow;
    phase
}
