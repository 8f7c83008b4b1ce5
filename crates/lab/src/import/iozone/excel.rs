//! The part for Excel where it was cut out of the rest: a matrix for each test (file sizes down, record sizes across), or
//! for the throughput mode a line for each test.
//!
//! A matrix has 0 where nothing was measured. The throughput mode's part does not say how large the files were nor how
//! many processes ran, so its runs have neither.

use super::super::{BadOutput, Told};
use super::{kib, phase, run};

/// What it calls its tests where that differs from the table by more than capitals.
const TESTS: [(&str, &str); 9] = [
    ("writer", "write"),
    ("re-writer", "rewrite"),
    ("reader", "read"),
    ("re-reader", "reread"),
    ("re-fwrite", "frewrite"),
    ("re-fread", "freread"),
    // Of the throughput mode.
    ("initial write", "write"),
    ("re-read", "reread"),
    ("reverse read", "backward read"),
];

/// What the lines that follow are of.
enum Part {
    /// None of its figures: the shares of a processor, or other text.
    Other,
    Matrix {
        test: String,
        heading: String,
        records: Vec<u64>,
    },
    Throughput {
        record: u64,
    },
}

pub(super) fn is_heading(line: &str) -> bool {
    !matches!(heading(line), None | Some(Part::Other))
}

pub(super) fn runs(text: &str) -> Result<Vec<Told>, BadOutput> {
    let (mut told, mut part) = (Vec::new(), Part::Other);
    for (index, line) in text.lines().enumerate() {
        if let Some(next) = heading(line) {
            part = next;
            continue;
        }
        let runs = part.line(line).map_err(|why| BadOutput::at(index + 1, why))?;
        runs.into_iter().for_each(|run| add(&mut told, run));
    }
    Ok(told)
}

impl Part {
    /// What a line of it tells, a run of one figure each.
    fn line(&mut self, line: &str) -> Result<Vec<Told>, &'static str> {
        let (quoted, figures) = cells(line);
        match self {
            Self::Matrix { records, .. } if records.is_empty() => {
                let sizes = quoted.iter().filter_map(|record| record.parse().ok());
                *records = sizes.map(kib).collect();
                Ok(Vec::new())
            }
            Self::Matrix { test, heading, records } => match quoted[..] {
                [size] => {
                    matrix_row(size, &figures?, test, records, &format!("{heading}\n{line}\n"))
                }
                _ => Ok(Vec::new()),
            },
            Self::Throughput { record } => match quoted[..] {
                [test] => {
                    *record = record_size(test).map_or(*record, kib);
                    Ok(throughput_row(test, &figures?, *record, &format!("{line}\n")))
                }
                _ => Ok(Vec::new()),
            },
            Self::Other => Ok(Vec::new()),
        }
    }
}

/// A file's size, and the speed with each size of records.
fn matrix_row(
    size: &str,
    figures: &[f64],
    test: &str,
    records: &[u64],
    raw: &str,
) -> Result<Vec<Told>, &'static str> {
    let size = size.parse().map(kib).map_err(|_| "a file's size that is none")?;
    if figures.len() > records.len() {
        return Err("a figure below no size of records");
    }
    let measured = records.iter().zip(figures).filter(|(_, speed)| **speed > 0.0);
    let runs = measured.map(|(record, speed)| {
        let params = [("size", size), ("block_size", *record)];
        Told { raw: raw.to_owned(), ..run(vec![phase(test, *speed, size)], &params) }
    });
    Ok(runs.collect())
}

/// A test's speed with each number of processes.
fn throughput_row(test: &str, figures: &[f64], record: u64, raw: &str) -> Vec<Told> {
    let runs = figures.iter().enumerate().map(|(column, speed)| {
        let mut told = run(vec![phase(&name(test), *speed, 0)], &[("block_size", record)]);
        if figures.len() > 1 {
            told.workload.name.push_str(&format!(", column {}", column + 1));
        }
        Told { raw: raw.to_owned(), ..told }
    });
    runs.collect()
}

/// Puts a figure to the others of its run: the last of that load which has no such figure yet.
fn add(told: &mut Vec<Told>, next: Told) {
    let last = told.iter_mut().rev().find(|told| told.workload == next.workload);
    match last {
        Some(last) if last.phases.iter().all(|phase| phase.name != next.phases[0].name) => {
            last.phases.extend(next.phases);
            last.raw.push_str(&next.raw);
        }
        _ => told.push(next),
    }
}

/// The part that a line begins.
fn heading(line: &str) -> Option<Part> {
    let text = line.trim().strip_prefix('"')?.strip_suffix('"')?;
    if text.contains("CPU utilization report") {
        return Some(Part::Other);
    }
    if text.starts_with("Throughput report") {
        return Some(Part::Throughput { record: 0 });
    }
    let test = text.strip_suffix(" report")?;
    Some(Part::Matrix { test: name(test), heading: line.trim().to_owned(), records: Vec::new() })
}

fn name(theirs: &str) -> String {
    let theirs = theirs.trim().to_lowercase();
    let known = TESTS.iter().find(|(name, _)| *name == theirs);
    known.map_or(theirs.clone(), |(_, ours)| (*ours).to_owned())
}

/// "Record size = 64 kBytes", in KiB.
fn record_size(text: &str) -> Option<u64> {
    text.trim().strip_prefix("Record size =")?.split_whitespace().next()?.parse().ok()
}

/// A line's quoted cells, and the figures after them.
fn cells(line: &str) -> (Vec<&str>, Result<Vec<f64>, &'static str>) {
    let line = line.trim();
    let Some(end) = line.rfind('"') else { return (Vec::new(), Ok(Vec::new())) };
    let quoted = line[..end].split('"').enumerate().filter(|(place, _)| place % 2 == 1);
    let figures = line[end + 1..].split_whitespace().map(|word| {
        let figure = word.parse().ok().filter(|figure: &f64| figure.is_finite() && *figure >= 0.0);
        figure.ok_or("a figure that is none")
    });
    (quoted.map(|(_, cell)| cell).collect(), figures.collect())
}
