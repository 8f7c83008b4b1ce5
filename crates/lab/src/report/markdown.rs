//! The report in Markdown, for a wiki or an issue.

use super::terminal::{notes, to_best};
use super::units::{digits, scale, time};
use super::words::plus_minus;
use super::{Report, Table, words};
use std::fmt::Write;

const HEADINGS: [&str; 8] =
    ["case", "median", "±", "% of best", "rounds", "CPU s/GiB", "p99", "notes"];

/// The report in Markdown.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let names: Vec<&str> =
        report.experiments.iter().map(|stored| stored.experiment.name.as_str()).collect();
    let mut out = format!("# {}\n", escaped(&names.join(", ")));
    for section in words(report) {
        out += &format!("\n## {}\n\n", section.title);
        section.sentences.iter().for_each(|sentence| out += &format!("- {}\n", escaped(sentence)));
    }
    for table in &report.tables {
        out += &format!("\n## {}\n\n{}", escaped(&table.title()), rows(table));
    }
    if !report.failures.is_empty() {
        out += "\n## Failed runs\n\n";
    }
    for failure in &report.failures {
        let (subject, state) = (&failure.subject, &failure.state);
        let line = format!(
            "{subject}, {state}, {}, round {}: {}",
            failure.workload,
            failure.round + 1,
            failure.error
        );
        out += &format!("- {}\n", escaped(&line));
    }
    out
}

fn rows(table: &Table) -> String {
    let mut out =
        format!("| {} |\n|---|---:|---:|---:|---:|---:|---:|---|\n", HEADINGS.join(" | "));
    for (place, line) in table.lines.iter().enumerate() {
        let (scale, unit) = scale(line.summary.median, table.unit);
        let cells = [
            line.name(),
            format!("{} {unit}", digits(line.summary.median / scale)),
            plus_minus(line),
            to_best(table, place),
            line.repeats.len().to_string(),
            line.cost.cpu_s_per_gib.map(digits).unwrap_or_default(),
            line.latency_ns(99.0).map(time).unwrap_or_default(),
            notes(line),
        ];
        let cells = cells.map(|cell| escaped(&cell));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Text in which nothing is markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '|' | '*' | '_' | '`' | '<' | '[' | ']' | '#') {
            out.push('\\');
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}
