//! The report for a terminal: the words, then a table for each load with bars and intervals.

use super::units::{digits, scale, time};
use super::{Line, Report, Table, Verdict, words};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement};

/// Places of a bar.
const BAR: usize = 24;

/// The report as text; tables are as wide as the terminal, if there is one.
#[must_use]
pub fn terminal(report: &Report) -> String {
    let mut out = String::new();
    for section in words(report) {
        out += &format!("{}\n", section.title);
        for sentence in &section.sentences {
            out += &format!("  - {sentence}\n");
        }
        out.push('\n');
    }
    for table in &report.tables {
        out += &format!("{}\n{}\n\n", table.title(), drawn(table));
    }
    for failure in &report.failures {
        out += &format!(
            "failed: {}, {}, {}, round {}: {}\n",
            failure.subject, failure.state, failure.workload, failure.round, failure.error
        );
    }
    out
}

fn drawn(table: &Table) -> comfy_table::Table {
    let reach = reach(table);
    let (scale, unit) = scale(reach, table.unit);
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(UTF8_FULL_CONDENSED);
    drawn.set_content_arrangement(ContentArrangement::Dynamic);
    drawn.set_header([
        "case",
        unit,
        "95 % interval",
        "",
        "n",
        "to the first",
        "cpu s/GiB",
        "p99",
        "notes",
    ]);
    for (place, line) in table.lines.iter().enumerate() {
        let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        drawn.add_row([
            Cell::new(line.name()),
            number(digits(line.summary.median / scale)),
            number(interval(line, scale)),
            Cell::new(bar(line, reach)),
            number(line.repeats.len().to_string()),
            Cell::new(to_first(table, place)),
            number(line.cost.cpu_s_per_gib.map(digits).unwrap_or_default()),
            number(line.latency_ns(99.0).map(time).unwrap_or_default()),
            Cell::new(notes(line)),
        ]);
    }
    drawn
}

/// The far end of the longest bar; the harness's own floor, which is often far beyond, is cut off there.
fn reach(table: &Table) -> f64 {
    let end =
        |line: &Line| line.summary.interval.map_or(line.summary.median, |interval| interval.high);
    table.real_lines().map(|(_, line)| end(line)).fold(0.0, f64::max)
}

/// The interval of the median.
pub fn interval(line: &Line, scale: f64) -> String {
    let told = |interval: lapstrake_stats::Interval| {
        format!("{} to {}", digits(interval.low / scale), digits(interval.high / scale))
    };
    line.summary.interval.map(told).unwrap_or_default()
}

/// A bar up to the median, with the interval drawn over it.
fn bar(line: &Line, reach: f64) -> String {
    let place = |value: f64| ((value / reach * BAR as f64).round() as usize).min(BAR);
    let end = place(line.summary.median);
    let (low, high) = line
        .summary
        .interval
        .map_or((end, end), |interval| (place(interval.low), place(interval.high)));
    let of = |at: usize| match at {
        _ if (low..high).contains(&at) => {
            if at < end {
                '▓'
            } else {
                '░'
            }
        }
        _ if at < end => '█',
        _ => ' ',
    };
    (0..BAR).map(of).collect()
}

/// How a line stands to the best real one.
pub fn to_first(table: &Table, place: usize) -> String {
    let Some((first, _)) = table.real_lines().next() else { return String::new() };
    if table.lines[place].is_floor() {
        return "harness alone".into();
    }
    if place == first {
        return "first".into();
    }
    let Some(pair) = table.pair(place, first) else { return String::new() };
    match pair.verdict() {
        Verdict::Real(_) => format!("x {}", digits(pair.ratio)),
        verdict => format!("x {}, {}", digits(pair.ratio), verdict.word()),
    }
}

/// What has to be said of a line.
pub fn notes(line: &Line) -> String {
    let (unsteady, known) = line.unsteady();
    let mut notes = Vec::new();
    if line.is_predicted {
        notes.push("predicted".into());
    }
    if unsteady > 0 {
        notes.push(format!("not steady {unsteady}/{known}"));
    }
    if line.outliers() > 0 {
        notes.push(format!("outliers {}", line.outliers()));
    }
    notes.join(", ")
}
