//! iozone's text: the table of its automatic and single-stream modes, the throughput mode (`-t`, `-l` and `-u`; processes or
//! threads), and the part for Excel (`-R`), which repeats what the rest says and is read where it is all there is. Speeds are
//! in KiB/s; where a run says that it counts operations or microseconds, it is refused.

mod excel;
mod throughput;

use super::{BadOutput, Told};
use crate::record::{Params, Phase, Unit, Workload};
use serde_json::json;

/// The table's columns in its order. The lab's own definitions of the tests bear the same names.
pub const PHASES: [&str; 13] = [
    "write",
    "rewrite",
    "read",
    "reread",
    "random read",
    "random write",
    "backward read",
    "record rewrite",
    "stride read",
    "fwrite",
    "frewrite",
    "fread",
    "freread",
];

/// Reads it: a run from each line of a table, and from each number of processes in the throughput mode.
///
/// # Errors
/// If a line of it cannot be understood.
pub fn parse(text: &str) -> Result<Vec<Told>, BadOutput> {
    if let Some(line) = text.lines().position(counts_otherwise) {
        return Err(BadOutput::at(line + 1, "figures of operations or times, not of KiB/s"));
    }
    let mut told = tables(text)?;
    told.extend(throughput::runs(text)?);
    if told.is_empty() { excel::runs(text) } else { Ok(told) }
}

/// Whether a text has iozone's output in it.
#[must_use]
pub fn is_in(text: &str) -> bool {
    ["iozone", "reclen", "Children see"].iter().any(|word| text.contains(word))
        || text.lines().any(excel::is_heading)
}

/// Of `-O` and `-N`: in the head of the output, or in that of the part for Excel.
fn counts_otherwise(line: &str) -> bool {
    let counts = ["ops/sec", "operations per second", "microseconds"];
    counts.iter().any(|what| line.contains(&format!("Output is in {what}")))
}

fn tables(text: &str) -> Result<Vec<Told>, BadOutput> {
    let mut told = Vec::new();
    let mut columns = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = expanded(line);
        let words = words(&line);
        if words.get(1).is_some_and(|(word, _)| *word == "reclen") {
            columns = words.iter().map(|(_, end)| *end).collect();
        } else if !columns.is_empty() && words.len() > 2 {
            let row = row(&words, &columns).map_err(|why| BadOutput::at(number + 1, why))?;
            told.extend(row.map(|row| Told { raw: line.clone(), ..row }));
        }
    }
    Ok(told)
}

/// A line's words, each with the column after its last letter.
fn words(line: &str) -> Vec<(&str, usize)> {
    let end = |word: &str| word.as_ptr() as usize - line.as_ptr() as usize + word.len();
    line.split_ascii_whitespace().map(|word| (word, end(word))).collect()
}

/// Without tabs, so that columns can be told by their places.
fn expanded(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', 8 - out.len() % 8)),
            c => out.push(c),
        }
    }
    out
}

/// A line of figures; nothing if it is another sort of line. A test that was left out leaves its column blank, so each figure
/// belongs to the heading whose end is nearest to its own.
fn row(words: &[(&str, usize)], columns: &[usize]) -> Result<Option<Told>, String> {
    let figures: Result<Vec<f64>, _> = words.iter().map(|(word, _)| word.parse::<f64>()).collect();
    let Ok(figures) = figures else { return Ok(None) };
    if !figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0) {
        return Err("a figure that is none".into());
    }
    let (size, record) = (kib(figures[0] as u64), kib(figures[1] as u64));
    let mut phases: Vec<Phase> = Vec::new();
    for ((_, end), speed) in words.iter().zip(&figures).skip(2) {
        let distance = |column: &usize| column.abs_diff(*end);
        let nearest = (2..columns.len()).min_by_key(|&column| distance(&columns[column]));
        let column = nearest.ok_or("a figure below no heading")?;
        let name = PHASES.get(column - 2).ok_or("a figure below an unknown heading")?;
        if phases.iter().any(|phase| phase.name == *name) {
            return Err(format!("two figures below \"{name}\""));
        }
        phases.push(phase(name, *speed, size));
    }
    Ok(Some(run(phases, &[("size", size), ("block_size", record)])))
}

/// KiB in bytes; what is no size that can be, as large as can be.
fn kib(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}

fn run(phases: Vec<Phase>, params: &[(&str, u64)]) -> Told {
    let known = params.iter().filter(|(_, value)| *value > 0);
    let params: Params = known.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let number = |name: &str| params.get(name).and_then(serde_json::Value::as_u64);
    // Rows of several sizes are different loads.
    let size = number("size").map_or_else(String::new, |size| format!(" -s {}k", size / 1024));
    let record =
        number("block_size").map_or_else(String::new, |size| format!(" -r {}k", size / 1024));
    let threads = number("threads").map_or_else(String::new, |threads| format!(" -t {threads}"));
    let name = format!("iozone{size}{record}{threads}");
    let workload = Workload { name, runner: "iozone".into(), params };
    Told { subject: None, workload, phases, raw: String::new() }
}

fn phase(name: &str, kib_per_second: f64, bytes: u64) -> Phase {
    let value = kib_per_second * 1024.0;
    let seconds = if value > 0.0 { bytes as f64 / value } else { 0.0 };
    let mut phase = Phase::new(name, value, Unit::BytesPerSecond, seconds);
    match name {
        // How much of it went which way is not told.
        "mixed workload" => {}
        name if name.contains("write") => phase.write.bytes = bytes,
        _ => phase.read.bytes = bytes,
    }
    phase
}

#[cfg(test)]
mod tests;
