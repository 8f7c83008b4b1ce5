//! fio's output: JSON and JSON+ of fio 2 and later, and the lines of `--minimal` of fio 1 and later. Each job, with all its
//! processes, is a load; each direction in which it moved something, a phase. JSON+ has every completion latency in bins,
//! of which the histogram is made; all else has percentiles only, which stay in the raw text.
//!
//! Invariants:
//! - What `--status-interval` printed while a run went on is not a result: of a run only the last counts.
//! - What ran at the same time (one name, one group) is one result; what ran one after the other is repeats.
//!
//! It does not read fio's text for people.

mod json;
mod output;
mod terse;

use super::{BadOutput, Told};
use crate::record::{Params, Phase, Unit, Workload};
use output::{Direction, Job, Output};
use serde_json::{Map, Value};

/// Reads it. What is printed around the JSON (warnings, text for people) is passed over; lines of `--minimal` are read
/// where there is no JSON.
///
/// # Errors
/// If there is nothing of fio's in it, it is cut off, or a job failed.
pub fn parse(text: &str) -> Result<Vec<Told>, BadOutput> {
    let mut outputs = json::outputs(text)?;
    if outputs.is_empty() {
        outputs = terse::outputs(text)?;
    }
    if outputs.is_empty() {
        let why =
            "no JSON of fio in it, and no line of its --minimal (text for people is not read)";
        return Err(BadOutput::at(1, why));
    }
    let mut told = Vec::new();
    for output in last_of_each_run(outputs) {
        told.extend(results(output)?);
    }
    Ok(told)
}

/// Whether a text has fio's output in it.
#[must_use]
pub fn is_in(text: &str) -> bool {
    text.contains("\"fio version\"")
        || text.trim_start().starts_with("fio")
        || text.lines().any(terse::is_line)
}

fn last_of_each_run(outputs: Vec<Output>) -> Vec<Output> {
    let mut runs: Vec<Output> = Vec::new();
    for output in outputs {
        match runs.last_mut() {
            Some(last) if output.continues(last) => *last = output,
            _ => runs.push(output),
        }
    }
    runs
}

/// The jobs of a run, those of several processes or clients put together.
fn results(output: Output) -> Result<Vec<Told>, BadOutput> {
    let mut all: Vec<(u64, Told)> = Vec::new();
    let only_host = output.only_host();
    for job in output.jobs {
        let mut next = told(&job, &output.options)?;
        next.subject.clone_from(&only_host);
        let same = |(group, told): &&mut (u64, Told)| {
            *group == job.groupid && told.workload == next.workload
        };
        match all.iter_mut().find(same) {
            Some((_, told)) => join(told, next),
            None => all.push((job.groupid, next)),
        }
    }
    Ok(all.into_iter().map(|(_, told)| told).collect())
}

/// Adds what another process of the same job did at the same time. As fio itself has it for a group: all that was moved, by
/// the longest time.
fn join(told: &mut Told, other: Told) {
    for phase in other.phases {
        let Some(own) = told.phases.iter_mut().find(|own| own.name == phase.name) else {
            told.phases.push(phase);
            continue;
        };
        let seconds = own.seconds.max(phase.seconds);
        let moved = own.figure.value * own.seconds + phase.figure.value * phase.seconds;
        own.figure.value = moved / seconds.max(f64::MIN_POSITIVE);
        own.seconds = seconds;
        own.cpu.user_s += phase.cpu.user_s;
        own.cpu.system_s += phase.cpu.system_s;
        own.read.add(phase.read);
        own.write.add(phase.write);
    }
    told.raw = format!("{}\n{}", told.raw, other.raw);
}

fn told(job: &Job, global: &output::Options) -> Result<Told, BadOutput> {
    if job.error != 0 {
        let why = format!("the job {} ended with error {}", job.jobname, job.error);
        return Err(BadOutput::at(job.line, why));
    }
    let params = params(global, &job.options);
    let moved = moved(job, &params);
    let both: f64 = moved.iter().map(|(_, direction)| direction.seconds()).sum();
    // The job's processor time is of all directions at once; each takes its share by the time it was busy.
    let share = job.seconds() / both.max(f64::MIN_POSITIVE) / 100.0;
    let mut phases = Vec::new();
    for (name, direction) in moved {
        let seconds = direction.seconds();
        let mut phase = Phase::new(name, direction.rate(), Unit::BytesPerSecond, seconds);
        let flow = direction.flow().map_err(|why| BadOutput::at(job.line, why))?;
        match name {
            "read" => phase.read = flow,
            "write" => phase.write = flow,
            // Which way the bytes of a mix went is not told, and what is trimmed goes neither way.
            _ => {}
        }
        phase.cpu.user_s = job.usr_cpu * share * seconds;
        phase.cpu.system_s = job.sys_cpu * share * seconds;
        phases.push(phase);
    }
    let workload = Workload { name: job.jobname.clone(), runner: "fio".into(), params };
    Ok(Told { subject: None, workload, phases, raw: job.raw.clone() })
}

/// The directions in which a job moved something. With `unified_rw_reporting` all are one, or that one stands beside them.
fn moved<'a>(job: &'a Job, params: &Params) -> Vec<(&'static str, &'a Direction)> {
    let directions = [("read", &job.read), ("write", &job.write), ("trim", &job.trim)];
    let moved = |direction: &&Option<Direction>| {
        direction.as_ref().is_some_and(|direction| direction.bytes() > 0)
    };
    let single = directions.into_iter().filter(|(_, direction)| moved(direction));
    let single: Vec<_> =
        single.filter_map(|(name, direction)| Some((name, direction.as_ref()?))).collect();
    if !single.is_empty() {
        return single;
    }
    let name = match params.get("rw").or(params.get("readwrite")).and_then(Value::as_str) {
        Some("read" | "randread") => "read",
        Some("write" | "randwrite") => "write",
        _ => "mixed",
    };
    let mixed = job.mixed.as_ref().filter(|mixed| mixed.bytes() > 0);
    mixed.map(|mixed| (name, mixed)).into_iter().collect()
}

/// The job's options over the global ones; those that reports know by other names are given those too.
fn params(global: &output::Options, job: &output::Options) -> Params {
    let all = global.iter().chain(job);
    let all: Map<String, Value> =
        all.map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let mut params: Params = all.into_iter().collect();
    for (theirs, ours) in [("iodepth", "queue_depth"), ("numjobs", "threads"), ("bs", "block_size")]
    {
        let number = params.get(theirs).and_then(Value::as_str).and_then(number);
        if let Some(number) = number {
            params.insert(ours.into(), number.into());
        }
    }
    params
}

fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << power)
}

#[cfg(test)]
mod tests;
