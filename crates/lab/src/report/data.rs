//! What experiments say, for programs; and what the page's script draws from: that and the export, compressed. Of time series
//! only those are in the page that it draws, of the run of each case that is nearest to the median; of latencies the percentiles.

use super::{Line, Pair, Percentiles, Report, Table, words};
use crate::export;
use crate::store::Stored;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;

/// The summary in words, and the tables.
#[must_use]
pub fn json(report: &Report) -> Value {
    let sections = words(report);
    let sections =
        sections.iter().map(|one| json!({ "title": one.title, "sentences": one.sentences }));
    json!({
        "words": sections.collect::<Vec<_>>(),
        "tables": report.tables.iter().map(table).collect::<Vec<_>>(),
    })
}

/// The page's data: gzip in base64.
pub fn packed(report: &Report, stored: &[Stored]) -> String {
    let mut export = export::json(stored, false);
    keep_what_is_drawn(report, &mut export);
    let data = json!({ "export": export, "tables": json(report)["tables"] });
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(data.to_string().as_bytes());
    let bytes = written.and_then(|()| encoder.finish()).expect("a vector takes every byte");
    BASE64_STANDARD.encode(bytes)
}

/// Empties the time series of all runs but those that are drawn, and leaves histograms out: they are most of an export.
fn keep_what_is_drawn(report: &Report, export: &mut Value) {
    let mut drawn = BTreeSet::new();
    for line in report.tables.iter().flat_map(|table| &table.lines) {
        if let Some(round) = line.middle_round() {
            drawn.insert((line.experiment, line.case, round));
        }
    }
    for (number, experiment) in items(&mut export["experiments"]).enumerate() {
        for (place, case) in items(&mut experiment["cases"]).enumerate() {
            for run in items(&mut case["runs"]) {
                let round = run["round"].as_u64().and_then(|round| u32::try_from(round).ok());
                let is_drawn = round.is_some_and(|round| drawn.contains(&(number, place, round)));
                for phase in items(&mut run["phases"]) {
                    for flow in ["read", "write"] {
                        if let Some(latency) = phase[flow]["latency"].as_object_mut() {
                            latency.remove("histogram");
                        }
                    }
                    if !is_drawn {
                        phase["series"] = json!({});
                    }
                }
            }
        }
    }
}

fn items(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

fn table(table: &Table) -> Value {
    json!({
        "title": table.title(),
        "workload": table.workload,
        "phase": table.phase,
        "params": table.params,
        "unit": table.unit,
        "cached": table.is_cached(),
        "best": table.best(),
        "moreIsBetter": table.unit.more_is_better(),
        "lines": table.lines.iter().map(line).collect::<Vec<_>>(),
        "pairs": table.pairs.iter().map(pair).collect::<Vec<_>>(),
    })
}

fn line(line: &Line) -> Value {
    let repeats = line.repeats.iter().map(|repeat| {
        json!({
            "round": repeat.value.round,
            "value": repeat.value.value,
            "outlier": repeat.is_outlier,
            "steady": repeat.steady.map(|steady| steady.is_steady),
        })
    });
    json!({
        "experiment": line.experiment,
        "case": line.case,
        "name": line.name(),
        "kind": line.subject.kind,
        "params": line.subject.params,
        "state": line.state,
        "predicted": line.is_predicted,
        "floor": line.is_floor(),
        "hue": line.look.hue,
        "shade": line.look.shade,
        "hollow": line.is_marked,
        "middle": line.middle_round(),
        "median": line.summary.median,
        "low": line.summary.interval.map(|interval| interval.low),
        "high": line.summary.interval.map(|interval| interval.high),
        "repeats": repeats.collect::<Vec<_>>(),
        "cpu": line.cost.cpu_percent_per_mb_s,
        "read": line.read_latency.as_ref().map(percentiles),
        "write": line.write_latency.as_ref().map(percentiles),
    })
}

fn percentiles(all: &Percentiles) -> Value {
    json!({ "count": all.count, "points": all.points, "max": all.max_ns })
}

fn pair(pair: &Pair) -> Value {
    let interval = pair.interval;
    json!([
        pair.of,
        pair.to,
        pair.ratio,
        interval.map(|interval| interval.low),
        interval.map(|interval| interval.high),
        pair.verdict().word(),
    ])
}
