//! Traces of measured service times: one request at a time, as DiskSim's validation suite has them.

use crate::Nanos;

/// A request, what it took on the real disk, and what came after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// A write, not a read.
    pub is_write: bool,
    /// Its first block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u64,
    /// What it took.
    pub measured: Nanos,
    /// From its end to the next one's beginning.
    pub think: Nanos,
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// A request took so much at most: more than the longest recovery of a disk.
const SERVICE_US_MAX: f64 = 1e9;
/// So much lies between two of them at most: virtual time must not run out in a long trace.
const THINK_US_MAX: f64 = 1e11;

/// A command of ATA moves so many blocks at most.
const BLOCKS_MAX: u64 = 65_536;

/// Reads a trace: direction (R or W), what the original's buffer did, first block, blocks, service time
/// and the time until the next request, both in microseconds. What follows on a line is passed over.
///
/// # Errors
/// If a line has fewer columns, more blocks than a command moves, or a time that no disk takes.
pub fn parse(text: &str) -> Result<Vec<Entry>, TraceError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| entry(line).map_err(|why| TraceError { line: index + 1, why }))
        .collect()
}

fn entry(line: &str) -> Result<Entry, &'static str> {
    if line.split_whitespace().count() < 6 {
        return Err(
            "it has fewer than six columns: R or W, buffer, first block, blocks, service time, idle time",
        );
    }
    let mut words = line.split_whitespace();
    let is_write = match words.next() {
        Some("R") => false,
        Some("W") => true,
        _ => return Err("it does not begin with R or W"),
    };
    let _buffer = words.next();
    let whole = |word: Option<&str>| word.and_then(|word| word.parse().ok());
    let lba = whole(words.next()).ok_or("its first block is no number")?;
    let blocks = whole(words.next())
        .filter(|blocks| (1..=BLOCKS_MAX).contains(blocks))
        .ok_or("its blocks are no number from 1 to 65,536")?;
    let time = |word: Option<&str>, most: f64| {
        let us: f64 = word?.parse().ok()?;
        (0.0..=most).contains(&us).then(|| Nanos::from_ms(us / 1e3))
    };
    let measured = time(words.next(), SERVICE_US_MAX)
        .ok_or("its service time is no number from 0 to 10^9 (us: 1,000 seconds)")?;
    let think = time(words.next(), THINK_US_MAX)
        .ok_or("its idle time is no number from 0 to 10^11 (us: 28 hours)")?;
    Ok(Entry { is_write, lba, blocks, measured, think })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_and_bad_lines_named() {
        let entries = parse("R Hit 15 4 1500.5 20\nW Miss 7 1 3 0\n\n").unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].lba, entries[0].measured), (15, Nanos(1_500_500)));
        assert!(entries[1].is_write);
        let error = parse("R Hit 15 4 1500.5 20\nX Hit 1 1 1 1\n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(parse("R Hit 15 0 1 1").is_err());
        assert!(parse("R Hit 15 1 -1 1").is_err());
        for (line, part) in [
            ("R Hit 15 1 1e30 1", "service time is no number from 0 to 10^9"),
            ("R Hit 15 1 nan 1", "service time"),
            ("R Hit 15 4", "fewer than six columns"),
            ("R Hit 15 4000000000 1 1", "blocks are no number from 1 to 65,536"),
            ("R Hit 15 1 1 inf", "idle time is no number from 0 to 10^11"),
        ] {
            let told = parse(line).unwrap_err().to_string();
            assert!(told.contains(part), "{line}: {told}");
        }
    }
}
