//! What stands below the loads: what was predicted without one, failed runs, machine, disks, plans, raw data.

use crate::record::{Facts, PREDICTED, PREDICTED_LOAD};
use crate::report::Report;
use crate::report::units::bytes;
use maud::{Markup, html};
use std::collections::BTreeMap;

pub(super) fn failures(report: &Report) -> Markup {
    html! { @if !report.failures.is_empty() {
        section #failures { h2 { "Failed runs" }
            ul { @for failure in &report.failures { li {
                (failure.subject) ", " (failure.state) ", " (failure.workload) ", round " (failure.round + 1) ": " (failure.error)
            } } }
        }
    } }
}

/// What was predicted of arrays without a load, an array a row: rebuilds, resyncs, losses.
pub(super) fn beside_loads(report: &Report) -> Markup {
    html! { @for stored in &report.experiments {
        @let told = by_array(&stored.experiment.facts);
        @let names = columns(&told);
        @if !told.is_empty() { section { h2 { "Rebuilds and losses, predicted" }
            div.wide role="region" tabindex="0" aria-label="Rebuilds and losses" { table {
                thead { tr { th scope="col" { "array" } @for name in &names { th.number scope="col" { (name) } } } }
                tbody { @for (array, figures) in &told { tr {
                    th scope="row" { (array) }
                    @for name in &names { td.number { (figures.get(name).copied().unwrap_or_default()) } }
                } } }
            } }
        } }
    } }
}

/// What was predicted under loads, with bars that hold what models were off elsewhere.
pub(super) fn bars(report: &Report) -> Markup {
    let told = |facts: &Facts| -> Vec<(String, String)> {
        let more = facts.more.iter();
        more.filter_map(|(name, value)| {
            Some((name.strip_prefix(PREDICTED_LOAD)?.to_owned(), value.clone()))
        })
        .collect()
    };
    html! { @for stored in &report.experiments {
        @let told = told(&stored.experiment.facts);
        @if !told.is_empty() { section #bars { h2 { "Predicted figures and their error bars" }
            p.small { "95 % of such figures lie in such bars, by published figures of other arrays; where nobody published any, \
                       a figure is a guess (docs/predict.md)." }
            div.wide role="region" tabindex="0" aria-label="Error bars" { table {
                thead { tr { th scope="col" { "array and load" } th.number scope="col" { "predicted" } } }
                tbody { @for (name, value) in &told { tr { th scope="row" { (name) } td.number { (value) } } } }
            } }
        } }
    } }
}

type ByArray<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>;

/// Facts are named "predicted: ARRAY: WHAT".
fn by_array(facts: &Facts) -> ByArray<'_> {
    let mut told = ByArray::new();
    for (name, value) in &facts.more {
        let Some((array, what)) =
            name.strip_prefix(PREDICTED).and_then(|name| name.split_once(": "))
        else {
            continue;
        };
        told.entry(array).or_default().insert(what, value);
    }
    told
}

fn columns<'a>(told: &ByArray<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = told.values().flat_map(|figures| figures.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub(super) fn facts(report: &Report) -> Markup {
    html! {
        section #facts { h2 { "Machine, disks, plan" }
            @for stored in &report.experiments {
                details { summary { (stored.experiment.name) ": machine and disks" } (machine(&stored.experiment.facts)) }
                details { summary { (stored.experiment.name) ": plan" } pre tabindex="0" { (stored.experiment.plan) } }
            }
            (subjects(report))
        }
    }
}

/// It is no prediction.
fn is_own(name: &str) -> bool {
    !name.starts_with(PREDICTED) && !name.starts_with(PREDICTED_LOAD)
}

fn machine(facts: &Facts) -> Markup {
    let fact =
        |name: &str, value: &str| html! { @if !value.is_empty() { dt { (name) } dd { (value) } } };
    html! {
        dl {
            (fact("kernel", &facts.kernel))
            (fact("processor", &facts.cpu))
            @if facts.cpus > 0 { (fact("processors", &facts.cpus.to_string())) }
            @if facts.memory_bytes > 0 { (fact("memory", &bytes(facts.memory_bytes))) }
            @for (name, version) in &facts.versions { (fact(name, version)) }
            @for (name, value) in facts.more.iter().filter(|(name, _)| is_own(name)) {
                (fact(name, value))
            }
        }
        @if !facts.devices.is_empty() { (disks(facts)) }
    }
}

/// The disks; of columns only those in which something stands.
fn disks(facts: &Facts) -> Markup {
    const NAMES: [&str; 7] = ["disk", "path", "model", "serial", "size", "scheduler", "queue"];
    let rows: Vec<[String; 7]> = facts
        .devices
        .iter()
        .map(|device| {
            let queue = device.queue.iter().map(|(name, value)| format!("{name} {value}"));
            let size = if device.bytes > 0 { bytes(device.bytes) } else { String::new() };
            let [path, model, serial, scheduler] =
                [&device.path, &device.model, &device.serial, &device.scheduler].map(String::clone);
            let queue = queue.collect::<Vec<_>>().join("; ");
            [device.name.clone(), path, model, serial, size, scheduler, queue]
        })
        .collect();
    let told: Vec<usize> =
        (0..NAMES.len()).filter(|&at| rows.iter().any(|row| !row[at].is_empty())).collect();
    html! {
        div.wide role="region" tabindex="0" aria-label="Disks" { table {
            thead { tr { @for &at in &told { th scope="col" { (NAMES[at]) } } } }
            tbody { @for row in &rows { tr { @for &at in &told { td { (row[at]) } } } } }
        } }
    }
}

fn subjects(report: &Report) -> Markup {
    let mut told: Vec<(&str, &str)> = Vec::new();
    for line in report.tables.iter().flat_map(|table| &table.lines) {
        let one = (line.subject.name.as_str(), line.subject.detail.as_str());
        if !one.1.is_empty() && !told.contains(&one) {
            told.push(one);
        }
    }
    html! { @for (name, detail) in told { details { summary { (name) } pre tabindex="0" { (detail) } } } }
}

pub(super) fn downloads() -> Markup {
    html! {
        section #downloads { h2 { "Raw data" }
            p { "Every run with its percentiles is in this file, and the time series of the middle round of each case. \
                 " code { "lapstrake lab export --json" } " has all time series and histograms; the programs' own output is in the store." }
            p.buttons hidden {
                button type="button" id="save-json" { "Save as JSON" } " "
                button type="button" id="save-csv" { "Save as CSV" }
            }
        }
    }
}
