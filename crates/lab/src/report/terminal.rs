//! The report for a terminal: who is ahead and the matrix, then a table for each load with bars, then what else to know.
//!
//! Nothing is wider than [`width::columns`]. Columns in which nothing stands are left out.

use super::matrix::{Blank, Cell, Row, matrix};
use super::units::{digits, scale};
use super::words::{Section, plus_minus};
use super::{Line, Report, Table, Verdict, words};
use crate::record::Unit;
use crate::width;

/// Places of a bar.
const BAR: usize = 20;

/// The report as text.
#[must_use]
pub fn terminal(report: &Report) -> String {
    let mut out = glance(report);
    for table in &report.tables {
        out += &format!("\n{}\n{}\n", table.title(), drawn(table));
        for floor in table.lines.iter().filter(|line| line.is_floor()) {
            let (scale, unit) = scale(floor.summary.median, table.unit);
            let figure = digits(floor.summary.median / scale);
            out += &format!("the harness alone ({}): {figure} {unit}\n", floor.name());
        }
    }
    for section in words(report).iter().filter(|section| section.title != "What is faster") {
        out += &format!("\n{}", told(section));
    }
    if !report.failures.is_empty() {
        out.push('\n');
    }
    for failure in &report.failures {
        out += &format!(
            "failed: {}, {}, {}, round {}: {}\n",
            failure.subject,
            failure.state,
            failure.workload,
            failure.round + 1,
            failure.error
        );
    }
    out
}

/// The report at a glance: a sentence for each load, then arrays against loads.
#[must_use]
pub fn glance(report: &Report) -> String {
    let mut out = String::new();
    if report.is_predicted() {
        out += "Predicted on models of disks, not measured.\n\n";
    }
    for section in words(report).iter().filter(|section| section.title == "What is faster") {
        out += &told(section);
    }
    let matrix = matrix(report);
    if matrix.rows.len() < 2 || report.tables.len() < 2 {
        return out;
    }
    let mut header = vec!["case".to_owned()];
    header.extend(report.headings());
    header.extend(["all", "degraded"].map(Into::into));
    let percent =
        |share: Option<f64>| share.map_or(String::new(), |share| format!("{:.0}", share * 100.0));
    let row = |row: &Row| -> Vec<String> {
        let told = |(cell, blank): (&Option<Cell>, &Blank)| {
            cell.map_or(blank.sign().into(), |cell| signed(&cell))
        };
        let cells = row.cells.iter().zip(&row.blanks).map(told);
        let rest = [percent(row.mean), percent(row.degraded)];
        std::iter::once(row.name.clone()).chain(cells).chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = matrix.rows.iter().map(row).collect();
    let is_blank = |asked| {
        let blanks = matrix.rows.iter().flat_map(|row| row.cells.iter().zip(&row.blanks));
        blanks.into_iter().any(|(cell, blank)| cell.is_none() && *blank == asked)
    };
    let has = |sign: char| rows.iter().flatten().any(|cell| cell.starts_with(sign));
    let keys = [
        (has('~'), "~ undecided"),
        (has('≈'), "≈ no real difference from the best"),
        (is_blank(Blank::NotMeasured), "- not measured"),
        (is_blank(Blank::Stalled), "0 a round came to nothing"),
        (
            matrix.rows.iter().any(|row| row.degraded.is_some()),
            "degraded: of its own speed when whole",
        ),
    ];
    let keys: Vec<&str> =
        keys.iter().filter(|(is_there, _)| *is_there).map(|(_, key)| *key).collect();
    out += &format!("\nPer cent of the best of each load\n{}\n", columns(&header, &rows));
    if keys.is_empty() { out } else { out + &width::wrapped(&keys.join(", "), "", "") }
}

/// A section, its sentences as wide as the terminal.
fn told(section: &Section) -> String {
    let sentence = |sentence: &String| width::wrapped(sentence, "  - ", "    ");
    format!("{}\n{}", section.title, section.sentences.iter().map(sentence).collect::<String>())
}

/// A share with its verdict's sign.
fn signed(cell: &Cell) -> String {
    let sign = match cell.verdict {
        None | Some(Verdict::Real(_)) => "",
        Some(Verdict::NoRealDifference) => "≈",
        Some(Verdict::CannotTell) => "~",
    };
    format!("{sign}{:.0}", cell.share * 100.0)
}

/// A table of text; all columns but the first are numbers.
#[must_use]
pub fn columns(header: &[String], rows: &[Vec<String>]) -> String {
    width::table(header, rows, |column| column > 0).trim_end().to_owned()
}

fn drawn(table: &Table) -> String {
    let places: Vec<usize> = table.real_lines().map(|(place, _)| place).collect();
    let lines: Vec<&Line> = places.iter().map(|&place| &table.lines[place]).collect();
    let most = lines.iter().map(|line| line.summary.median).fold(0.0, f64::max);
    let (size, unit) = scale(most, table.unit);
    let latencies = lines.iter().filter_map(|line| line.latency_ns(99.0));
    let (time, time_unit) = scale(latencies.min().unwrap_or_default() as f64, Unit::Nanoseconds);
    let p99 = format!("p99 {time_unit}");
    let header = ["case", unit, "±", "", "% of best", "rounds", "CPU s/GiB", &p99, "notes"];
    let row = |&place: &usize| {
        let line = &table.lines[place];
        let latency = line.latency_ns(99.0).map(|ns| digits(ns as f64 / time));
        vec![
            line.name(),
            digits(line.summary.median / size),
            plus_minus(line),
            bar(line.summary.median / most),
            to_best(table, place),
            line.repeats.len().to_string(),
            line.cost.cpu_s_per_gib.map(digits).unwrap_or_default(),
            latency.unwrap_or_default(),
            notes(line),
        ]
    };
    let rows: Vec<Vec<String>> = places.iter().map(row).collect();
    columns(&header.map(Into::into), &rows)
}

fn bar(share: f64) -> String {
    let places = (share * BAR as f64).round() as usize;
    format!("{:<BAR$}", "█".repeat(places.min(BAR)))
}

/// How fast a line is, as per cent of the best, with the verdict's sign.
pub fn to_best(table: &Table, place: usize) -> String {
    let Some(best) = table.best() else { return String::new() };
    if table.lines[place].is_floor() {
        return "harness alone".into();
    }
    if place == best {
        return "100".into();
    }
    let Some(pair) = table.speed(place, best) else { return String::new() };
    let sign = match pair.verdict() {
        Verdict::Real(_) => "",
        Verdict::NoRealDifference => "≈ ",
        Verdict::CannotTell => "~ ",
    };
    format!("{sign}{}", digits(pair.ratio * 100.0))
}

/// What has to be said of a line.
pub fn notes(line: &Line) -> String {
    let (unsteady, known) = line.unsteady();
    let mut notes = Vec::new();
    if unsteady > 0 {
        notes.push(format!("not steady {unsteady}/{known}"));
    }
    if line.outliers() > 0 {
        notes.push(format!("outliers {}", line.outliers()));
    }
    notes.join(", ")
}
