//! bonnie++'s CSV: a line for each run, in the layout of 1.03 (27 fields, the name first) or of 1.9x and later (48 fields, 50 since
//! 1.98, the layout's version first). Speeds are in KiB/s; a test too fast to be measured is "+++++", one left out is empty.
//!
//! It gives the share of a processor that each test took, not whether in user mode or in the kernel: all of it counts as user.

use super::{BadOutput, Told};
use crate::record::{Params, Phase, Unit, Workload};
use lapstrake_model::benchmark::bonnie::CHARACTERS;
use serde_json::json;

/// Each test in the order of the file, with what it counts. The lab's own definitions of them bear the same names.
pub const PHASES: [(&str, Unit); 12] = [
    ("per-character output", Unit::BytesPerSecond),
    ("block output", Unit::BytesPerSecond),
    ("rewrite", Unit::BytesPerSecond),
    ("per-character input", Unit::BytesPerSecond),
    ("block input", Unit::BytesPerSecond),
    ("seeks", Unit::RequestsPerSecond),
    ("sequential create", Unit::FilesPerSecond),
    ("sequential stat", Unit::FilesPerSecond),
    ("sequential delete", Unit::FilesPerSecond),
    ("random create", Unit::FilesPerSecond),
    ("random stat", Unit::FilesPerSecond),
    ("random delete", Unit::FilesPerSecond),
];
/// Tests before those of files.
const IO_PHASES: usize = 6;

/// Where the fields are.
struct Layout {
    name: usize,
    size: usize,
    chunk: Option<usize>,
    concurrency: Option<usize>,
    /// Of the tests of I/O.
    io: usize,
    /// Of the number of files.
    files: usize,
    /// Of the tests of files.
    file_tests: usize,
    fields: usize,
}

const V1_03: Layout = Layout {
    name: 0,
    size: 1,
    chunk: None,
    concurrency: None,
    io: 2,
    files: 14,
    file_tests: 15,
    fields: 27,
};
const V1_9X: Layout = Layout {
    name: 2,
    size: 5,
    chunk: Some(6),
    concurrency: Some(3),
    io: 7,
    files: 19,
    file_tests: 24,
    fields: 36,
};
/// Two more fields, of the seek test, before the tests.
const V1_98: Layout = Layout { io: 9, files: 21, file_tests: 26, fields: 38, ..V1_9X };

/// Reads it, a run from each line. Lines of other things (headings, a human's table) are passed over.
///
/// # Errors
/// If a line of it holds what is no number.
pub fn parse(text: &str) -> Result<Vec<Told>, BadOutput> {
    let lines = text.lines().enumerate().filter(|(_, line)| is_line(line));
    let told = lines.map(|(number, line)| run(line).map_err(|why| BadOutput::at(number + 1, why)));
    told.collect()
}

/// Whether a line looks like one of it.
#[must_use]
pub fn is_line(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').collect();
    let layout = layout(&fields);
    fields.len() >= layout.fields
        && size(fields[layout.size]).is_some()
        && !line.starts_with(['#', '<'])
}

fn layout(fields: &[&str]) -> Layout {
    // 1.03 has a machine's name and a size where the later ones have two versions.
    let version = fields[0].trim_end_matches(|c: char| c.is_ascii_lowercase()).parse::<f64>();
    match version {
        Ok(version) if fields.len() >= V1_98.fields && (1.98..100.0).contains(&version) => V1_98,
        Ok(version) if fields.len() >= V1_9X.fields && (1.9..1.98).contains(&version) => V1_9X,
        _ => V1_03,
    }
}

/// A size such as 4G, 300M or 4096 (of MiB), perhaps with the chunk's after a colon.
fn size(text: &str) -> Option<(u64, Option<u64>)> {
    let (size, chunk) = match text.split_once(':') {
        Some((size, chunk)) => (size, Some(chunk)),
        None => (text, None),
    };
    Some((in_units(size, 20)?, chunk.and_then(|chunk| in_units(chunk, 0))))
}

/// A number with a unit; without one it counts 2^`bare`.
fn in_units(text: &str, bare: u32) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text[number.len()..].to_ascii_lowercase().as_str() {
        "" => bare,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << power)
}

fn run(line: &str) -> Result<Told, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let layout = layout(&fields);
    let (bytes, chunk) = size(fields[layout.size]).ok_or("no size where one should be")?;
    let mut params = Params::from([("size".into(), json!(bytes))]);
    let chunk = chunk.or(layout.chunk.and_then(|place| in_units(fields[place], 0)));
    if let Some(chunk) = chunk.filter(|chunk| *chunk > 0) {
        params.insert("block_size".into(), json!(chunk));
    }
    let concurrency = layout.concurrency.and_then(|place| fields[place].parse::<u64>().ok());
    if let Some(concurrency) = concurrency.filter(|concurrency| *concurrency > 1) {
        params.insert("threads".into(), json!(concurrency));
    }
    // The number of files is in units of 1024; with limits of size it goes on after a colon.
    let files = fields[layout.files].split(':').next().unwrap_or_default().parse::<f64>();
    let files = files.unwrap_or(0.0) * 1024.0;
    let places = (0..IO_PHASES).map(|test| layout.io + 2 * test);
    let places =
        places.chain((0..PHASES.len() - IO_PHASES).map(|test| layout.file_tests + 2 * test));
    let mut phases = Vec::new();
    for ((name, unit), place) in PHASES.into_iter().zip(places) {
        let Some(rate) = number(fields[place])? else { continue };
        let share = number(fields[place + 1])?.unwrap_or(0.0) / 100.0;
        // Of 2.00 only the first 3 MiB go by characters.
        let by_characters = name.starts_with("per-character") && fields[0].starts_with("2.");
        let bytes = if by_characters { bytes.min(CHARACTERS) } else { bytes };
        phases.push(phase(name, unit, rate, share, bytes, files));
    }
    Ok(Told {
        subject: Some(fields[layout.name].to_owned()).filter(|name| !name.is_empty()),
        // Runs of several sizes are different loads.
        workload: Workload {
            name: format!("bonnie++ -s {}m", bytes >> 20),
            runner: "bonnie++".into(),
            params,
        },
        phases,
        raw: line.to_owned(),
    })
}

/// A rate; nothing for a test that was left out or too fast.
fn number(text: &str) -> Result<Option<f64>, String> {
    if text.is_empty() || text.starts_with('+') {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.map(Some).ok_or_else(|| format!("\"{text}\" where a number should be"))
}

fn phase(name: &str, unit: Unit, rate: f64, cpu_share: f64, bytes: u64, files: f64) -> Phase {
    let value = if unit == Unit::BytesPerSecond { rate * 1024.0 } else { rate };
    let seconds = match unit {
        Unit::BytesPerSecond if value > 0.0 => bytes as f64 / value,
        Unit::FilesPerSecond if value > 0.0 => files / value,
        // How many seeks there were is not told: nothing to work the time out from.
        _ => 0.0,
    };
    let mut phase = Phase::new(name, value, unit, seconds);
    phase.cpu.user_s = cpu_share * seconds;
    if unit == Unit::BytesPerSecond {
        let is_output = name.ends_with("output");
        phase.read.bytes = if is_output { 0 } else { bytes };
        phase.write.bytes = if is_output || name == "rewrite" { bytes } else { 0 };
    }
    phase
}
