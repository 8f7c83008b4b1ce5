//! The throughput mode: several processes or threads at once, a run for each number of them.

use super::super::{BadOutput, Told};
use super::{kib, phase, run};
use crate::record::Phase;

/// What the mode calls its tests, and the same in the table.
const CHILDREN: [(&str, &str); 13] = [
    ("initial writers", "write"),
    ("rewriters", "rewrite"),
    ("readers", "read"),
    ("re-readers", "reread"),
    ("reverse readers", "backward read"),
    ("stride readers", "stride read"),
    ("random readers", "random read"),
    ("mixed workload", "mixed workload"),
    ("random writers", "random write"),
    ("pwrite writers", "pwrite"),
    ("pread readers", "pread"),
    ("fwriters", "fwrite"),
    ("freaders", "fread"),
];

/// One number of processes, as far as it is read.
#[derive(Clone, Default)]
struct Section {
    size: u64,
    record: u64,
    children: u64,
    phases: Vec<Phase>,
    raw: String,
}

/// A run begins where its sizes are told; where that is cut off, where the number of processes changes or a test comes again.
pub(super) fn runs(text: &str) -> Result<Vec<Told>, BadOutput> {
    let (mut told, mut section) = (Vec::new(), Section::default());
    for (index, line) in text.lines().enumerate() {
        let bad = |why: &str| BadOutput::at(index + 1, why);
        if let Some((size, record)) = sizes(line) {
            told.extend(section.end());
            section = Section { size, record, ..Section::default() };
        } else if let Some((children, name, speed)) = figure(line).map_err(bad)? {
            let is_other = section.children != children && section.children > 0;
            if is_other || section.phases.iter().any(|phase| phase.name == name) {
                told.extend(section.clone().end());
                section =
                    Section { size: section.size, record: section.record, ..Section::default() };
            }
            section.children = children;
            section.phases.push(phase(name, speed, section.size.saturating_mul(children)));
        }
        section.raw.push_str(line);
        section.raw.push('\n');
    }
    told.extend(section.end());
    Ok(told)
}

impl Section {
    fn end(self) -> Option<Told> {
        let params = [("size", self.size), ("block_size", self.record), ("threads", self.children)];
        let is_empty = self.phases.is_empty();
        (!is_empty).then(|| Told { raw: self.raw, ..run(self.phases, &params) })
    }
}

/// "Each process writes a 2097152 kByte file in 128 kByte records", in bytes. Records that come from a file (telemetry) have no
/// size.
fn sizes(line: &str) -> Option<(u64, u64)> {
    let rest = line.trim().strip_prefix("Each ")?;
    let rest = rest.strip_prefix("process").or(rest.strip_prefix("thread"))?;
    let rest = rest.strip_prefix(" writes a ")?;
    let mut numbers = rest.split(' ').filter_map(|word| word.parse().ok());
    Some((kib(numbers.next()?), kib(numbers.next().unwrap_or(0))))
}

/// "Children see throughput for  4 initial writers = 109333.84 kB/sec": how many, which test, and the figure.
fn figure(line: &str) -> Result<Option<(u64, &str, f64)>, &'static str> {
    const WRONG: &str = "not as iozone's throughput mode has it";
    let Some(rest) = line.trim().strip_prefix("Children see throughput for") else {
        return Ok(None);
    };
    let (what, figure) = rest.split_once('=').ok_or(WRONG)?;
    let (count, what) = what.trim().split_once(' ').ok_or(WRONG)?;
    let count = count.parse().map_err(|_| WRONG)?;
    let mut words = figure.split_whitespace();
    let speed: f64 = words.next().unwrap_or_default().parse().map_err(|_| WRONG)?;
    if !(speed.is_finite() && speed >= 0.0) {
        return Err(WRONG);
    }
    if words.next().is_some_and(|unit| !unit.starts_with(['k', 'K'])) {
        return Err("a figure of operations or times, not of KiB/s");
    }
    let known = CHILDREN.iter().find(|(theirs, _)| *theirs == what.trim());
    Ok(Some((count, known.map_or(what.trim(), |(_, ours)| ours), speed)))
}
