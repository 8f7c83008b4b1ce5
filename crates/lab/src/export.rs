//! Experiments for other programs: JSON with everything, CSV with a line for each run's phase.

use crate::LabError;
use crate::record::{Flow, Latency, Phase, Run};
use crate::series;
use crate::store::{Stored, StoredCase};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Percentiles that are told of each run; the histogram itself has all.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

/// Everything, as one JSON value. `raw` says whether the programs' own output goes with it.
#[must_use]
pub fn json(stored: &[Stored], raw: bool) -> Value {
    let experiments: Vec<Value> = stored.iter().map(|one| experiment(one, raw)).collect();
    json!({ "format": "lapstrake-lab", "version": 1, "experiments": experiments })
}

fn experiment(stored: &Stored, raw: bool) -> Value {
    let cases = stored.cases.iter().map(|(case, runs)| {
        json!({
            "subject": case.subject,
            "state": case.state,
            "workload": case.workload,
            "runs": runs.iter().map(|one| run(one, raw)).collect::<Vec<_>>(),
        })
    });
    let head = &stored.head;
    json!({
        "id": head.id.0,
        "name": head.experiment.name,
        "origin": head.experiment.origin,
        "predicted": head.experiment.origin.is_predicted(),
        "started_ms": head.started_ms,
        "finished_ms": head.finished_ms,
        "plan": head.experiment.plan,
        "facts": head.experiment.facts,
        "cases": cases.collect::<Vec<_>>(),
    })
}

fn run(run: &Run, raw: bool) -> Value {
    json!({
        "round": run.round,
        "position": run.position,
        "started_ms": run.started_ms,
        "error": run.error,
        "phases": run.phases.iter().map(phase).collect::<Vec<_>>(),
        "raw": if raw { run.raw.as_str() } else { "" },
    })
}

fn phase(phase: &Phase) -> Value {
    let (settled, steady) = series::settled_value(phase);
    json!({
        "name": phase.name,
        "unit": phase.figure.unit,
        "value": phase.figure.value,
        "settled_value": settled,
        "steady": steady.map(|steady| steady.is_steady),
        "whole": phase.whole,
        "seconds": phase.seconds,
        "read": flow(&phase.read),
        "write": flow(&phase.write),
        "cpu": phase.cpu,
        "cpu_s_per_gib": phase.cpu_s_per_gib(),
        "members": phase.members,
        "write_amplification": phase.write_amplification(),
        "redundant_share": phase.redundant_share(),
        "memory_bytes_max": phase.memory_bytes_max,
        "series": phase.series,
        "zones": phase.zones,
    })
}

fn flow(flow: &Flow) -> Value {
    json!({
        "bytes": flow.bytes,
        "requests": flow.requests,
        "latency": flow.latency.as_ref().map(latency),
    })
}

/// The histogram in the format that HdrHistogram's other tools read, and what most people ask of it.
fn latency(latency: &Latency) -> Value {
    let percentiles = PERCENTILES.map(|percent| (percent, latency.percentile(percent)));
    json!({
        "mean_ns": latency.mean(),
        "percentiles_ns": percentiles,
        "histogram": BASE64_STANDARD.encode(latency.to_bytes()),
    })
}

const HEADINGS: [&str; 34] = [
    "experiment",
    "name",
    "origin",
    "subject",
    "kind",
    "subject_params",
    "state",
    "workload",
    "workload_params",
    "phase",
    "round",
    "position",
    "started_ms",
    "error",
    "unit",
    "value",
    "settled_value",
    "steady",
    "seconds",
    "read_bytes",
    "read_requests",
    "read_p50_ns",
    "read_p99_ns",
    "read_max_ns",
    "written_bytes",
    "write_requests",
    "write_p50_ns",
    "write_p99_ns",
    "write_max_ns",
    "cpu_user_s",
    "cpu_system_s",
    "cpu_s_per_gib",
    "members_written_bytes",
    "memory_bytes_max",
];

/// A line for each phase of each run; a run that failed has one line without figures.
///
/// # Errors
/// Never, in truth: memory takes every byte.
pub fn csv(stored: &[Stored]) -> Result<String, LabError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(HEADINGS)?;
    for one in stored {
        for (case, runs) in &one.cases {
            for run in runs {
                let failed = run.phases.is_empty().then_some(None);
                let phases = run.phases.iter().map(Some).chain(failed);
                for phase in phases {
                    writer.write_record(record(one, case, run, phase))?;
                }
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn record(one: &Stored, case: &StoredCase, run: &Run, phase: Option<&Phase>) -> Vec<String> {
    let word = |value: Value| value.as_str().map_or(value.to_string(), str::to_owned);
    let mut record = vec![
        one.head.id.0.to_string(),
        one.head.experiment.name.clone(),
        word(json!(one.head.experiment.origin)),
        case.subject.name.clone(),
        word(json!(case.subject.kind)),
        json!(case.subject.params).to_string(),
        case.state.to_string(),
        case.workload.name.clone(),
        json!(case.workload.params).to_string(),
        phase.map(|phase| phase.name.clone()).unwrap_or_default(),
        (run.round + 1).to_string(),
        run.position.to_string(),
        run.started_ms.to_string(),
        run.error.clone().unwrap_or_default(),
    ];
    if let Some(phase) = phase {
        let (settled, steady) = series::settled_value(phase);
        let known = |value: Option<String>| value.unwrap_or_default();
        record.extend([
            word(json!(phase.figure.unit)),
            phase.figure.value.to_string(),
            settled.to_string(),
            known(steady.map(|steady| steady.is_steady.to_string())),
            phase.seconds.to_string(),
        ]);
        record.extend(flow_fields(&phase.read));
        record.extend(flow_fields(&phase.write));
        record.extend([
            phase.cpu.user_s.to_string(),
            phase.cpu.system_s.to_string(),
            known(phase.cpu_s_per_gib().map(|cpu| cpu.to_string())),
            phase.members.iter().map(|member| member.written_bytes).sum::<u64>().to_string(),
            known(phase.memory_bytes_max.map(|bytes| bytes.to_string())),
        ]);
    }
    record.resize(HEADINGS.len(), String::new());
    record
}

fn flow_fields(flow: &Flow) -> [String; 5] {
    let of = |percent| {
        let latency = flow.latency.as_ref().map(|latency| latency.percentile(percent).to_string());
        latency.unwrap_or_default()
    };
    [flow.bytes.to_string(), flow.requests.to_string(), of(50.0), of(99.0), of(100.0)]
}
