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

/// Reads a trace: direction (R or W), what the original's buffer did, first block, blocks, service time
/// and the time until the next request, both in microseconds.
///
/// # Errors
/// If a line has other columns.
pub fn parse(text: &str) -> Result<Vec<Entry>, TraceError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| entry(line).map_err(|why| TraceError { line: index + 1, why }))
        .collect()
}

fn entry(line: &str) -> Result<Entry, &'static str> {
    let mut words = line.split_whitespace();
    let is_write = match words.next() {
        Some("R") => false,
        Some("W") => true,
        _ => return Err("it does not begin with R or W"),
    };
    words.next().ok_or("it says nothing of the buffer")?;
    let whole = |word: Option<&str>| word.and_then(|word| word.parse().ok());
    let lba = whole(words.next()).ok_or("its first block is no number")?;
    let blocks = whole(words.next()).filter(|&blocks| blocks > 0).ok_or("it has no blocks")?;
    let time = |word: Option<&str>| {
        let us: f64 = word?.parse().ok()?;
        (us.is_finite() && us >= 0.0).then(|| Nanos::from_ms(us / 1e3))
    };
    let measured = time(words.next()).ok_or("its service time is no time")?;
    let think = time(words.next()).ok_or("its idle time is no time")?;
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
    }
}
