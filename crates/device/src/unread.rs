//! What an image lacks, as the map file of GNU ddrescue tells it: places that could not be read, or were not yet. In the image
//! they are zeroes; here they are bad blocks, so that redundancy stands in for them, until they are written.

use crate::fault::Kind;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// Why a text is no map file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MapError {
    /// A line that is none of a map's.
    #[error(
        "line {line} is none of a ddrescue map: {text:?} (expected: position, size and one of ? * / - +)"
    )]
    Line {
        /// Counted from 1.
        line: usize,
        /// As it is.
        text: String,
    },
    /// Blocks have to follow one another.
    #[error("line {line} begins at byte {found}, where the line before ends at byte {expected}")]
    Gap {
        /// Counted from 1.
        line: usize,
        /// Its first byte.
        found: u64,
        /// The end of the block before.
        expected: u64,
    },
    /// It tells of nothing.
    #[error("it names no block")]
    Empty,
}

/// The ranges, bytes, that a map file does not call finished; what it does not cover is among them.
///
/// # Errors
/// [`MapError`].
pub fn parse_map(text: &str) -> Result<Vec<Range<u64>>, MapError> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    // The state of the run: its position and what it does.
    lines.next().ok_or(MapError::Empty)?;
    let mut unread: Vec<Range<u64>> = Vec::new();
    let mut end = None;
    for (line, text) in lines {
        let bad = || MapError::Line { line, text: text.into() };
        let (block, is_finished) = block(text).ok_or_else(bad)?;
        let found = block.start;
        match end {
            Some(expected) if expected != found => {
                return Err(MapError::Gap { line, found, expected });
            }
            None if found > 0 => unread.push(0..found),
            _ => {}
        }
        end = Some(block.end);
        if !is_finished {
            unread.push(block);
        }
    }
    unread.push(end.ok_or(MapError::Empty)?..u64::MAX);
    Ok(unread)
}

fn block(text: &str) -> Option<(Range<u64>, bool)> {
    let mut words = text.split_whitespace();
    let (start, size) = (number(words.next()?)?, number(words.next()?)?);
    let is_finished = match words.next()? {
        "+" => true,
        "?" | "*" | "/" | "-" => false,
        _ => return None,
    };
    let end = start.checked_add(size).filter(|_| words.next().is_none())?;
    Some((start..end, is_finished))
}

/// As C has it: 0x for hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

const SECTOR: u64 = 512;

/// What of a member is not there to be read, bytes from its start.
#[derive(Debug)]
pub(crate) struct Unread(Mutex<Vec<Range<u64>>>);

impl Unread {
    /// `ranges` count from the start of the file, the member begins at `offset`.
    pub(crate) fn new(ranges: &[Range<u64>], offset: u64) -> Self {
        let moved = ranges
            .iter()
            .map(|range| range.start.saturating_sub(offset)..range.end.saturating_sub(offset));
        Self(Mutex::new(moved.filter(|range| !range.is_empty()).collect()))
    }

    /// Of eight sectors from `start` on, a bit for each of which something is not there.
    pub(crate) fn sectors_from(&self, start: u64) -> u8 {
        let ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let meets = |nth: &u64| {
            let sector = start + nth * SECTOR..start + (nth + 1) * SECTOR;
            ranges.iter().any(|range| range.start < sector.end && sector.start < range.end)
        };
        (0..8).filter(meets).fold(0, |bits, nth| bits | 1 << nth)
    }

    /// What is written over eight sectors from `start` on, but those of these bits, can be read.
    pub(crate) fn written_from(&self, start: u64, lacks: u8) {
        for nth in (0..8).filter(|nth| lacks & 1 << nth == 0) {
            self.refuses(Kind::Write, start + nth * SECTOR, SECTOR);
        }
    }

    /// Whether an operation fails; what is written can be read from then on.
    pub(crate) fn refuses(&self, kind: Kind, offset: u64, len: u64) -> bool {
        let mut ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let op = offset..offset.saturating_add(len);
        let meets = |range: &Range<u64>| range.start < op.end && op.start < range.end;
        match kind {
            Kind::Read => ranges.iter().any(meets),
            Kind::Write | Kind::Zero if ranges.iter().any(meets) => {
                let rest = |range: &Range<u64>| {
                    [range.start..range.end.min(op.start), range.start.max(op.end)..range.end]
                };
                *ranges = ranges.iter().flat_map(rest).filter(|range| !range.is_empty()).collect();
                false
            }
            Kind::Write | Kind::Zero | Kind::Flush | Kind::Discard => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n\
                       # current_pos  current_status  current_pass\n\
                       0x00012000     +               1\n\
                       #      pos        size  status\n\
                       0x00000000  0x00010000  +\n\
                       0x00010000  0x00001000  -\n\
                       0x00011000  4096        *\n\
                       0x00012000  0x00010000  +\n";

    #[test]
    fn what_is_not_finished_is_unread() {
        let end = 0x22000;
        assert_eq!(parse_map(MAP), Ok(vec![0x10000..0x11000, 0x11000..0x12000, end..u64::MAX]));
        assert_eq!(parse_map("0 ?\n0x1000 0x1000 +"), Ok(vec![0..0x1000, 0x2000..u64::MAX]));
        assert_eq!(parse_map("# nothing"), Err(MapError::Empty));
        assert_eq!(parse_map("0 +"), Err(MapError::Empty));
        let gap = MapError::Gap { line: 3, found: 2, expected: 1 };
        assert_eq!(parse_map("0 +\n0 1 +\n2 1 +"), Err(gap));
        for bad in ["0 1 x", "0 1", "0 1 + +", "-1 1 +", "0xffffffffffffffff 2 +"] {
            let fault = parse_map(&format!("0 +\n{bad}"));
            assert!(matches!(fault, Err(MapError::Line { line: 2, .. })), "{bad}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let unread = Unread::new(&[0x1000..0x3000, 0x9000..u64::MAX], 0x1000);
        assert!(unread.refuses(Kind::Read, 0x1e00, 0x400));
        assert!(!unread.refuses(Kind::Read, 0x2000, 0x6000));
        assert!(!unread.refuses(Kind::Write, 0x800, 0x200));
        assert!(!unread.refuses(Kind::Read, 0x800, 0x200));
        assert!(unread.refuses(Kind::Read, 0x600, 0x400));
        assert!(unread.refuses(Kind::Read, 0xa00, 1));
        assert!(unread.refuses(Kind::Read, 0x7fff, 2));
    }
}
