//! iozone 3 as one process: tests 0 (write, rewrite), 1 (read, reread) and 2 (random read, random write).
//!
//! Records of whole pages; fsync counts only with `-e`. The random tests go to every record once.

use super::{Part, part};
use crate::dice::Dice;
use crate::system::{FileId, PAGE, Reader, System};
use std::ops::Range;

/// What to do, as iozone's options say it.
#[derive(Clone, Debug)]
pub struct Iozone {
    /// Tests, of 0, 1 and 2.
    pub tests: Vec<u8>,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of a record; a multiple of a page.
    pub record: u64,
    /// fsync is part of what is timed (`-e`).
    pub flush: bool,
}

/// Runs it once on a fresh file; none if it does not fit.
pub fn iozone(system: &mut System, load: &Iozone, seed: u64) -> Option<Vec<Part>> {
    let record = (load.record / PAGE).max(1);
    let records = load.size / PAGE / record;
    let bytes = (records * record * PAGE) as f64;
    let file = system.create(records * record)?;
    let range = |index: u64| index * record..(index + 1) * record;
    let in_order = || (0..records).map(range);
    let mut parts = Vec::new();
    for test in &load.tests {
        let done = match test {
            0 => ["write", "rewrite"].map(|name| {
                let done = part(system, name, bytes, |system| {
                    writes(system, file, in_order(), load.flush);
                });
                // Before it closes the file, and out of its time unless -e says otherwise.
                system.fsync(file);
                done
            }),
            1 => ["read", "reread"]
                .map(|name| part(system, name, bytes, |system| reads(system, file, in_order()))),
            _ => {
                let order = shuffled(records, seed);
                let order = || order.iter().map(|&index| range(index));
                let read =
                    part(system, "random read", bytes, |system| reads(system, file, order()));
                let write = |system: &mut System| writes(system, file, order(), load.flush);
                [read, part(system, "random write", bytes, write)]
            }
        };
        parts.extend(done);
    }
    Some(parts)
}

fn writes(system: &mut System, file: FileId, order: impl Iterator<Item = Range<u64>>, flush: bool) {
    order.for_each(|record| system.write(file, record));
    if flush {
        system.fsync(file);
    }
}

fn reads(system: &mut System, file: FileId, order: impl Iterator<Item = Range<u64>>) {
    let mut reader = Reader::default();
    order.for_each(|record| system.read(file, record, &mut reader));
}

/// Fisher and Yates.
fn shuffled(records: u64, seed: u64) -> Vec<u64> {
    let mut dice = Dice::new(seed);
    let mut order: Vec<u64> = (0..records).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, dice.below(index as u64 + 1) as usize);
    }
    order
}
