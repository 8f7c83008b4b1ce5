//! A prediction as a table for the terminal.

use super::{Metric, Prediction, metrics};
use crate::report::units::digits;
use crate::width;

/// A row for each case and figure, latencies beside it.
#[must_use]
pub fn table(prediction: &Prediction) -> String {
    let header = ["array", "load", "predicted", "from", "to", "", "p50", "p99"];
    let mut rows = Vec::new();
    let all = metrics(prediction);
    for metric in all.iter().filter(|metric| is_figure(metric)) {
        // Of the same phase: a rebuild beside a load has none.
        let prefix = match metric.metric.as_str() {
            "throughput" | "rate" => String::new(),
            phase => format!("{phase} "),
        };
        let latency = |word: &str| {
            let of_case = |other: &&Metric| {
                (&other.array, &other.state, &other.workload)
                    == (&metric.array, &metric.state, &metric.workload)
            };
            let names =
                ["read", "write"].map(|direction| format!("{prefix}{direction} latency {word}"));
            let mut found =
                all.iter().filter(of_case).filter(|other| names.contains(&other.metric));
            found.next().map_or_else(String::new, |latency| time(latency.value))
        };
        let array = match metric.state.as_str() {
            "healthy" => metric.array.clone(),
            state => format!("{} {state}", metric.array),
        };
        let load = match metric.metric.as_str() {
            "throughput" | "rate" | "time" => metric.workload.clone(),
            name => format!("{}: {name}", metric.workload),
        };
        let [value, low, high, unit] = cells(metric);
        rows.push(vec![array, load, value, low, high, unit, latency("p50"), latency("p99")]);
    }
    let is_number = |column| [2, 3, 4, 6, 7].contains(&column);
    width::table(&header.map(Into::into), &rows, is_number).trim_end().to_owned()
}

pub(super) fn is_figure(metric: &Metric) -> bool {
    !metric.metric.contains("latency") && !metric.metric.ends_with("processor time")
}

/// A figure with its bar, in words.
pub(super) fn words(metric: &Metric) -> String {
    let [value, low, high, unit] = cells(metric);
    let to = if high.is_empty() { "" } else { " to " };
    format!("{} ({low}{to}{high})", format!("{value} {unit}").trim_end())
}

/// Value, low, high and unit as they are shown.
fn cells(metric: &Metric) -> [String; 4] {
    let (scale, unit) = shown(metric);
    let number = |value: f64| match unit {
        "" => time(value * 1e9),
        "%" if value > 0.0 && value < 1e-4 => format!("{:.1e}", value / scale),
        _ => digits(value / scale),
    };
    let low = metric.low.map_or("a guess".to_owned(), number);
    let high = metric.high.map_or(String::new(), number);
    [number(metric.value), low, high, unit.to_owned()]
}

fn shown(metric: &Metric) -> (f64, &'static str) {
    match metric.unit {
        "bytes/s" => (1e6, "MB/s"),
        "requests/s" => (1.0, "/s"),
        "s" => (1.0, ""),
        "probability" => (0.01, "%"),
        unit => (1.0, unit),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 3.6e12 => format!("{} h", digits(ns / 3.6e12)),
        ns if ns >= 6e11 => format!("{} min", digits(ns / 6e10)),
        ns if ns >= 1e9 => format!("{} s", digits(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} us", digits(ns / 1e3)),
    }
}
