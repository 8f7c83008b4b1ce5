//! fio's JSON and JSON+. Each job, with all its processes, is a load; each direction in which it moved something, a phase.
//! JSON+ has every completion latency in bins, of which the histogram is made; plain JSON has percentiles only, which stay
//! in the raw text.

use super::{BadOutput, Told};
use crate::record::{Flow, Latency, Params, Phase, Unit, Workload};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
    #[serde(rename = "global options", default)]
    options: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    #[serde(default)]
    error: i64,
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, String>,
    read: Direction,
    write: Direction,
    /// Percent of the job's time.
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    bw_bytes: f64,
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
    #[serde(default)]
    clat_ns: Latencies,
}

#[derive(Default, Deserialize)]
struct Latencies {
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

/// Reads it. What fio prints before the JSON (warnings) is passed over.
///
/// # Errors
/// If there is no JSON in it, or not fio's.
pub fn parse(text: &str) -> Result<Vec<Told>, BadOutput> {
    let start = text.find('{').ok_or_else(|| BadOutput::at(1, "no JSON in it"))?;
    let before = text[..start].lines().count();
    let bad = |error: serde_json::Error| {
        BadOutput::at((before + error.line()).max(1), format!("not fio's JSON: {error}"))
    };
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    let value = values.next().ok_or_else(|| BadOutput::at(1, "no JSON in it"))?.map_err(bad)?;
    let raw = value["jobs"].as_array().cloned().unwrap_or_default();
    let output: Output = serde_json::from_value(value).map_err(bad)?;
    let mut all: Vec<Told> = Vec::new();
    for (job, raw) in output.jobs.into_iter().zip(raw) {
        let next = told(job, &output.options, &raw)?;
        match all.iter_mut().find(|told| told.workload == next.workload) {
            Some(told) => join(told, next),
            None => all.push(next),
        }
    }
    Ok(all)
}

/// Adds what another process of the same job did at the same time (numjobs without group_reporting).
fn join(told: &mut Told, other: Told) {
    for phase in other.phases {
        let Some(own) = told.phases.iter_mut().find(|own| own.name == phase.name) else {
            told.phases.push(phase);
            continue;
        };
        own.figure.value += phase.figure.value;
        own.seconds = own.seconds.max(phase.seconds);
        own.cpu.user_s += phase.cpu.user_s;
        own.cpu.system_s += phase.cpu.system_s;
        own.read.add(phase.read);
        own.write.add(phase.write);
    }
    told.raw = format!("{}\n{}", told.raw, other.raw);
}

fn told(job: Job, global: &BTreeMap<String, String>, raw: &Value) -> Result<Told, BadOutput> {
    if job.error != 0 {
        let why = format!("the job {} ended with error {}", job.jobname, job.error);
        return Err(BadOutput::at(1, why));
    }
    let busy = |direction: &Direction| direction.runtime as f64 / 1000.0;
    let both = busy(&job.read) + busy(&job.write);
    let seconds = busy(&job.read).max(busy(&job.write));
    let mut phases = Vec::new();
    for (name, direction) in [("read", &job.read), ("write", &job.write)] {
        if direction.total_ios == 0 {
            continue;
        }
        let mut phase = Phase::new(name, direction.bw_bytes, Unit::BytesPerSecond, busy(direction));
        let flow = flow(direction).map_err(|why| BadOutput::at(1, why))?;
        *(if name == "read" { &mut phase.read } else { &mut phase.write }) = flow;
        // The job's processor time is of both directions at once; each takes its share by the time it was busy.
        let share = seconds * busy(direction) / both.max(f64::MIN_POSITIVE) / 100.0;
        phase.cpu.user_s = job.usr_cpu * share;
        phase.cpu.system_s = job.sys_cpu * share;
        phases.push(phase);
    }
    let params = params(global, &job.options);
    let workload = Workload { name: job.jobname, runner: "fio".into(), params };
    Ok(Told { subject: None, workload, phases, raw: raw.to_string() })
}

fn flow(direction: &Direction) -> Result<Flow, String> {
    let mut latency = Latency::default();
    for (ns, &count) in &direction.clat_ns.bins {
        let ns = ns.parse().map_err(|_| format!("\"{ns}\" where a latency should be"))?;
        latency.record_many(ns, count);
    }
    let latency = (latency.count() > 0).then_some(latency);
    Ok(Flow { bytes: direction.io_bytes, requests: direction.total_ios, latency })
}

/// The job's options over the global ones; those that reports know by other names are given those too.
fn params(global: &BTreeMap<String, String>, job: &BTreeMap<String, String>) -> Params {
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
