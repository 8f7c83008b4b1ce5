//! The report as one HTML file that needs no network: words and tables as they are, charts drawn by the page's own script
//! from the data in it. Without scripts, words, tables and facts are still there.

use super::units::{bytes, digits, scale, time};
use super::{Line, Report, Table, data, terminal, words};
use crate::record::{Facts, Origin, PREDICTED};
use crate::store::{Stored, StoredExperiment};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page/page.css");
/// Libraries first, then what uses them.
const SCRIPTS: [&str; 6] = [
    include_str!("../../vendor/d3.min.js"),
    include_str!("../../vendor/plot.umd.min.js"),
    include_str!("page/common.js"),
    include_str!("page/charts.js"),
    include_str!("page/overall.js"),
    include_str!("page/page.js"),
];
/// The licence of both libraries asks for its text to go with them.
const LICENCES: [&str; 2] =
    [include_str!("../../vendor/d3.LICENSE"), include_str!("../../vendor/plot.LICENSE")];

/// The page. `stored` are the experiments that the report is of.
#[must_use]
pub fn html(report: &Report, stored: &[Stored]) -> String {
    let names: Vec<&str> =
        report.experiments.iter().map(|one| one.experiment.name.as_str()).collect();
    let title = names.join(", ");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{title} - Lapstrake lab")))
            body {
                a.skip href="#figures" { "Skip to the figures" }
                header { h1 { (title) } (origins(report)) }
                main {
                    (summary(report))
                    (controls(report))
                    div #figures { @for (place, table) in report.tables.iter().enumerate() { (section(place, table)) } }
                    (overall())
                    (beside_loads(report))
                    (failures(report))
                    (facts(report))
                    (downloads())
                }
                footer { details { summary { "Licences" } @for text in LICENCES { pre { (text) } } } }
                script type="application/gzip;base64" id="data" { (PreEscaped(data::packed(report, stored))) }
                @for script in SCRIPTS { script { (PreEscaped(script)) } }
            }
        }
    };
    page.into_string()
}

/// Whether a file that begins so is a page made here: all titles say so.
#[must_use]
pub fn is_page(head: &str) -> bool {
    head.split_once("</title>").is_some_and(|(title, _)| title.contains(" - Lapstrake"))
}

/// What every page begins with.
pub(crate) fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            style { (PreEscaped(STYLE)) }
        }
    }
}

fn origins(report: &Report) -> Markup {
    let told = |stored: &StoredExperiment| match &stored.experiment.origin {
        Origin::Measured => "measured".to_owned(),
        Origin::Predicted => "predicted on models of disks, not measured".to_owned(),
        Origin::Imported { tool } => format!("imported from {tool}"),
    };
    html! {
        @if report.has_predictions() { p.predicted {
            "Figures with \"(predicted)\" were not measured. Each repeat is a draw of the disks' profiles, and the \
             intervals are those of the median; the bars of lapstrake predict, in which 95 % of the draws lie, are wider."
        } }
        ul.origins {
            @for stored in &report.experiments {
                li {
                    strong { (stored.experiment.name) } ": " (told(stored)) ", "
                    time data-ms=(stored.started_ms) { "experiment " (stored.id.0) }
                    ", " (stored.cases) " cases, " (stored.runs) " runs"
                    @if stored.finished_ms.is_none() { ", not finished" }
                }
            }
        }
    }
}

fn summary(report: &Report) -> Markup {
    html! {
        section #summary {
            h2 { "In words" }
            @for part in words(report) {
                h3 { (part.title) }
                ul { @for sentence in &part.sentences { li { (sentence) } } }
            }
            p.small {
                "Figures are medians with the 95 % interval in brackets. Of the differences that are called real, fewer than \
                 5 in 100 are chance; docs/lab.md tells how. MB are 10" sup { "6" } " bytes, GiB 2" sup { "30" } "."
            }
        }
    }
}

fn controls(report: &Report) -> Markup {
    let mut names: Vec<String> = Vec::new();
    for (_, line) in report.tables.iter().flat_map(Table::real_lines) {
        let name = line.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    html! {
        form #controls aria-label="What the figures show" {
            label { "Compare with " select #baseline {
                option value="" { "nothing: show figures" }
                @for name in &names { option value=(name) { (name) } }
            } }
            label { "Sort " select #sort {
                option value="value" { "best first" }
                option value="name" { "by name" }
                option value="cpu" { "least processor time first" }
            } }
            label { "Show only " input #filter type="search" placeholder="words, such as raid5 64K" autocomplete="off"; }
            output #shown aria-live="polite" {}
        }
    }
}

fn section(place: usize, table: &Table) -> Markup {
    let has_latency = table.lines.iter().any(|line| line.latency_ns(50.0).is_some());
    html! {
        section.load data-table=(place) id={ "load-" (place) } {
            h2 { (table.title()) }
            @if let Some(sentence) = super::words::fastest(table) { p { (sentence) } }
            @if !table.params.is_empty() { p.small { (params(&table.params)) } }
            figure data-chart="bars" {}
            @if table.lines.iter().any(|line| line.cost.cpu_percent_per_mb_s.is_some()) {
                details { summary { "Processor time per MB/s" } figure data-chart="cpu" {} }
            }
            @if has_latency { details { summary { "Latency" } figure data-chart="latency" {} } }
            details { summary { "Over time" } figure data-chart="series" {} }
            details open { summary { "Table" } div.wide { (rows(table)) } }
        }
    }
}

/// Parameters that are bytes.
const SIZES: [&str; 9] = [
    "amount",
    "bitmap_chunk",
    "block_size",
    "chunk",
    "file_size",
    "from",
    "read_ahead",
    "size",
    "to",
];

fn params(params: &crate::record::Params) -> String {
    let told = params.iter().map(|(name, value)| {
        let size = value.as_u64().filter(|_| SIZES.contains(&name.as_str())).map(bytes);
        let value = size.or(value.as_str().map(str::to_owned)).unwrap_or(value.to_string());
        format!("{} {value}", name.replace('_', " "))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Headings, and whether the column holds numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("case", false),
    ("median", true),
    ("95 % interval", true),
    ("n", true),
    ("to the first", true),
    ("CPU s/GiB", true),
    ("CPU % per MB/s", true),
    ("written per byte", true),
    ("p99", true),
    ("p99.9", true),
    ("notes", false),
];

fn rows(table: &Table) -> Markup {
    html! {
        table {
            thead { tr { @for (name, is_number) in COLUMNS {
                th scope="col" .number[is_number] { button type="button" { (name) } }
            } } }
            tbody { @for (place, line) in table.lines.iter().enumerate() {
                tr data-line=(place) { (row(table, place, line)) }
            } }
        }
    }
}

fn row(table: &Table, place: usize, line: &Line) -> Markup {
    let (scale, unit) = scale(line.summary.median, table.unit);
    let ratio = table.real_lines().next().and_then(|(first, _)| table.pair(place, first));
    let number = |value: Option<f64>, text: String| {
        html! { td.number data-value=[value] { (text) } }
    };
    let known = |value: Option<f64>| number(value, value.map(digits).unwrap_or_default());
    let latency = |percent| {
        let ns = line.latency_ns(percent);
        number(ns.map(|ns| ns as f64), ns.map(time).unwrap_or_default())
    };
    html! {
        th scope="row" { (line.name()) }
        (number(Some(line.summary.median), format!("{} {unit}", digits(line.summary.median / scale))))
        (number(line.summary.interval.map(|interval| interval.low), terminal::interval(line, scale)))
        (number(Some(line.repeats.len() as f64), line.repeats.len().to_string()))
        (number(ratio.map(|pair| pair.ratio), terminal::to_first(table, place)))
        (known(line.cost.cpu_s_per_gib))
        (known(line.cost.cpu_percent_per_mb_s))
        (known(line.cost.write_amplification))
        (latency(99.0))
        (latency(99.9))
        td { (terminal::notes(line)) }
    }
}

fn overall() -> Markup {
    html! {
        section #all hidden { h2 { "All loads at once" }
            p { "Each case's figure as a part of the best one's, load by load." }
            figure data-chart="parallel" {} }
        section #scaling hidden { h2 { "Scaling" }
            p { "Cases that differ in one thing only." }
            div.figures {} }
        section #zones hidden { h2 { "Speed over the disk" } figure data-chart="zones" {} }
    }
}

fn failures(report: &Report) -> Markup {
    html! { @if !report.failures.is_empty() {
        section #failures { h2 { "Failed runs" }
            ul { @for failure in &report.failures { li {
                (failure.subject) ", " (failure.state) ", " (failure.workload) ", round " (failure.round) ": " (failure.error)
            } } }
        }
    } }
}

/// What was predicted of arrays without a load: rebuilds, resyncs, losses.
fn beside_loads(report: &Report) -> Markup {
    html! { @for stored in &report.experiments {
        @let told: Vec<(&str, &String)> = stored.experiment.facts.more.iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(PREDICTED)?, value)))
            .collect();
        @if !told.is_empty() { section { h2 { "Rebuilds and losses (predicted)" }
            div.wide { table {
                thead { tr { th scope="col" { "case" } th scope="col" { (stored.experiment.name) " (predicted)" } } }
                tbody { @for (name, value) in told { tr { th scope="row" { (name) } td.number { (value) } } } }
            } }
        } }
    } }
}

fn facts(report: &Report) -> Markup {
    html! {
        section #facts { h2 { "Facts" }
            @for stored in &report.experiments {
                details { summary { (stored.experiment.name) ": machine and disks" } (machine(&stored.experiment.facts)) }
                details { summary { (stored.experiment.name) ": plan" } pre { (stored.experiment.plan) } }
            }
            (subjects(report))
        }
    }
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
            @for (name, value) in facts.more.iter().filter(|(name, _)| !name.starts_with(PREDICTED)) {
                (fact(name, value))
            }
        }
        @if !facts.devices.is_empty() { div.wide { table {
            thead { tr { @for name in ["disk", "path", "model", "serial", "size", "scheduler", "queue"] { th scope="col" { (name) } } } }
            tbody { @for device in &facts.devices { tr {
                th scope="row" { (device.name) }
                td { (device.path) } td { (device.model) } td { (device.serial) } td.number { (bytes(device.bytes)) }
                td { (device.scheduler) }
                td { @for (name, value) in &device.queue { (name) " " (value) "; " } }
            } } }
        } } }
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
    html! { @for (name, detail) in told { details { summary { (name) } pre { (detail) } } } }
}

fn downloads() -> Markup {
    html! {
        section #downloads { h2 { "Raw data" }
            p { "Every run with its time series and histograms is in this file; the programs' own output is in the store." }
            button type="button" id="save-json" { "Save as JSON" } " "
            button type="button" id="save-csv" { "Save as CSV" }
        }
    }
}
