//! iozone 3: tests 0 (write, rewrite), 1 (read, reread) and 2 (random read, random write).
//!
//! Every phase goes to each record of the file once, in order or in an order drawn beforehand. fsync counts only
//! with `-e`.

use super::Counted;

/// What to do, as iozone's options say it.
#[derive(Clone, Debug)]
pub struct Iozone {
    /// Tests, of 0, 1 and 2 (`-i`).
    pub tests: Vec<u8>,
    /// Bytes of the file (`-s`).
    pub size: u64,
    /// Bytes of a record (`-r`).
    pub record: u64,
    /// fsync is part of what is timed (`-e`).
    pub flush: bool,
}

/// One phase of a test.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// iozone's name for it, in lower case.
    pub name: &'static str,
    /// What throughput mode calls the processes that do it.
    pub processes: &'static str,
    /// What its figure counts: bytes read or bytes written.
    pub counted: Counted,
    /// Records are visited in an order drawn beforehand.
    pub is_random: bool,
    /// It makes the file.
    pub creates: bool,
}

impl Iozone {
    /// The phases, in order.
    pub fn phases(&self) -> impl Iterator<Item = Phase> + '_ {
        self.tests.iter().flat_map(|test| phases_of(*test))
    }

    /// Records of the file: what is left at its end is not touched.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.size / self.record
    }
}

fn phases_of(test: u8) -> [Phase; 2] {
    let phase = |name, processes, counted| Phase {
        name,
        processes,
        counted,
        is_random: test == 2,
        creates: name == "write",
    };
    match test {
        0 => [
            phase("write", "initial writers", Counted::BytesWritten),
            phase("rewrite", "rewriters", Counted::BytesWritten),
        ],
        1 => [
            phase("read", "readers", Counted::BytesRead),
            phase("reread", "re-readers", Counted::BytesRead),
        ],
        2 => [
            phase("random read", "random readers", Counted::BytesRead),
            phase("random write", "random writers", Counted::BytesWritten),
        ],
        _ => unreachable!("tests are checked where they are read"),
    }
}

/// All records in random order, by Fisher and Yates; `below` draws a number below its argument.
pub fn random_order(records: u64, mut below: impl FnMut(usize) -> usize) -> Vec<u64> {
    let mut order: Vec<u64> = (0..records).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, below(index + 1));
    }
    order
}
