//! The bad-block log: ranges of a member's sectors that hold no valid data.
//!
//! On disk: eight sectors of 64-bit little-endian words, `sector << 10 | count`, in units of
//! `512 << shift` bytes, the rest filled with ones. Sectors count from the start of the member,
//! not of its data. md writes at most 512 units to a word and keeps no order.
//!
//! In memory: sorted ranges that neither overlap nor touch, in sectors, at multiples of the unit.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::{Sector, Sectors};
use thiserror::Error;

/// Most units in one word as md writes them.
const UNITS_MAX: u64 = 512;
/// Sectors that a word can address.
const SECTORS_MAX: u64 = 1 << 54;
/// Larger units are no device's.
const SHIFT_MAX: u8 = 20;

/// What is wrong with a bad-block log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadBlocksError {
    /// The unit is beyond any device's block.
    #[error("bad-block log in units of 512 << {found} bytes")]
    Shift {
        /// As stored.
        found: u8,
    },
    /// More sectors than the log may have (8), or none.
    #[error("bad-block log of {found} sectors")]
    Size {
        /// As stored.
        found: u64,
    },
    /// An entry is beyond any member.
    #[error("bad-block log entry {index} is {found:#x}, beyond any device")]
    Entry {
        /// Its number.
        index: usize,
        /// As stored.
        found: u64,
    },
    /// mdadm 4.6 places the log within a lockless bitmap, and both were written.
    #[error(
        "the bad-block log lies within the lockless bitmap, so that either may have overwritten the other"
    )]
    WithinBitmap,
    /// No entry is left for another range: the member has to fail instead.
    #[error("bad-block log is full: {needed} entries needed, {room} possible")]
    Full {
        /// Entries that the ranges take.
        needed: usize,
        /// Entries that the log has.
        room: usize,
    },
}

/// The bad blocks of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlocks {
    shift: u8,
    ranges: Vec<Range<u64>>,
}

impl BadBlocks {
    /// None bad, in units of `512 << shift` bytes.
    pub fn new(shift: u8) -> Result<Self, BadBlocksError> {
        if shift > SHIFT_MAX {
            return Err(BadBlocksError::Shift { found: shift });
        }
        Ok(Self { shift, ranges: Vec::new() })
    }

    /// Reads a log; `bytes` are the whole sectors that the superblock's `bblog_size` tells.
    pub fn parse(bytes: &[u8], shift: u8) -> Result<Self, BadBlocksError> {
        let mut log = Self::new(shift)?;
        check_size(bytes.len())?;
        for (index, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("chunks of 8"));
            if word == u64::MAX {
                break;
            }
            let (unit, count) = (word >> 10, word & 0x3ff);
            let end = (unit + count) << shift;
            if end >> shift != unit + count || end > SECTORS_MAX {
                return Err(BadBlocksError::Entry { index, found: word });
            }
            log.add(unit << shift..end);
        }
        Ok(log)
    }

    /// The log of `size` sectors (at most 8) to write.
    pub fn encode(&self, size: Sectors) -> Result<Vec<u8>, BadBlocksError> {
        let len = size.0.saturating_mul(512).try_into().unwrap_or(usize::MAX);
        check_size(len)?;
        let (needed, room) = (self.entries(), len / 8);
        if needed > room {
            return Err(BadBlocksError::Full { needed, room });
        }
        let mut bytes = vec![0xff; len];
        for (word, place) in self.words().zip(bytes.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    /// The ranges cut into words.
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges.iter().flat_map(move |range| {
            let end = range.end >> self.shift;
            let starts = (range.start >> self.shift..end).step_by(UNITS_MAX as usize);
            starts.map(move |at| at << 10 | (end - at).min(UNITS_MAX))
        })
    }

    /// Entries that [`BadBlocks::encode`] needs.
    pub fn entries(&self) -> usize {
        let units = |range: &Range<u64>| (range.end - range.start) >> self.shift;
        self.ranges.iter().map(|range| units(range).div_ceil(UNITS_MAX) as usize).sum()
    }

    /// Marks sectors as bad, rounded out to whole units. Whether the log still has room for
    /// them is for [`BadBlocks::fits`] to say.
    pub fn insert(&mut self, start: Sector, len: Sectors) {
        let unit = 1u64 << self.shift;
        let first = start.0.min(SECTORS_MAX) & !(unit - 1);
        let end = start.0.saturating_add(len.0).min(SECTORS_MAX).next_multiple_of(unit);
        if !len.is_zero() {
            self.add(first..end);
        }
    }

    /// Joins a range of whole units with those it overlaps or touches.
    fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        if first < last {
            range.start = range.start.min(self.ranges[first].start);
            range.end = range.end.max(self.ranges[last - 1].end);
        }
        self.ranges.splice(first..last, [range]);
    }

    /// Marks sectors as good again; units that are covered in part stay bad.
    pub fn remove(&mut self, start: Sector, len: Sectors) {
        let unit = 1u64 << self.shift;
        let Some(first) = start.0.checked_next_multiple_of(unit) else { return };
        let end = start.0.saturating_add(len.0) & !(unit - 1);
        if first >= end {
            return;
        }
        let from = self.ranges.partition_point(|r| r.end <= first);
        let to = self.ranges.partition_point(|r| r.start < end);
        if from >= to {
            return;
        }
        let before = self.ranges[from].start..first;
        let after = end..self.ranges[to - 1].end;
        let rest = [before, after].into_iter().filter(|r| !r.is_empty());
        self.ranges.splice(from..to, rest);
    }

    /// The first bad range that touches these sectors, whole.
    pub fn first_within(&self, start: Sector, len: Sectors) -> Option<(Sector, Sectors)> {
        let end = start.0.saturating_add(len.0);
        let range = self.ranges.get(self.ranges.partition_point(|r| r.end <= start.0))?;
        (range.start < end).then_some((Sector(range.start), Sectors(range.end - range.start)))
    }

    /// Whether any of these sectors is bad.
    pub fn contains(&self, start: Sector, len: Sectors) -> bool {
        self.first_within(start, len).is_some()
    }

    /// The ranges of these sectors that are not bad, in order.
    pub fn good_within(&self, start: Sector, len: Sectors) -> Vec<(Sector, Sectors)> {
        let end = start.0.saturating_add(len.0);
        let (mut good, mut at) = (Vec::new(), start.0);
        for (Sector(bad), Sectors(len)) in self.iter().chain([(Sector(end), Sectors::ZERO)]) {
            let until = bad.min(end);
            if at < until {
                good.push((Sector(at), Sectors(until - at)));
            }
            at = at.max(bad.saturating_add(len));
        }
        good
    }

    /// How many of these sectors are bad.
    pub fn count_within(&self, start: Sector, len: Sectors) -> Sectors {
        let end = start.0.saturating_add(len.0);
        let part = |r: &Range<u64>| r.end.min(end).saturating_sub(r.start.max(start.0));
        Sectors(self.ranges.iter().map(part).sum())
    }

    /// The bad ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (Sector, Sectors)> + '_ {
        self.ranges.iter().map(|r| (Sector(r.start), Sectors(r.end - r.start)))
    }

    /// Whether nothing is bad.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the ranges fit into a log of `size` sectors.
    pub fn fits(&self, size: Sectors) -> bool {
        self.entries() as u64 <= size.0.saturating_mul(64)
    }

    /// Units of `512 << this` bytes.
    pub fn shift(&self) -> u8 {
        self.shift
    }
}

/// md keeps the log within a page.
fn check_size(len: usize) -> Result<(), BadBlocksError> {
    if len == 0 || len > 4096 || !len.is_multiple_of(512) {
        return Err(BadBlocksError::Size { found: len as u64 / 512 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_bad_lies_between_the_ranges() {
        let mut log = BadBlocks::new(0).unwrap();
        let good = |log: &BadBlocks, start, len| {
            let found = log.good_within(Sector(start), Sectors(len));
            found.into_iter().map(|(at, len)| (at.0, len.0)).collect::<Vec<_>>()
        };
        assert_eq!(good(&log, 8, 8), [(8, 8)]);
        log.insert(Sector(10), Sectors(2));
        log.insert(Sector(14), Sectors(20));
        assert_eq!(good(&log, 8, 8), [(8, 2), (12, 2)]);
        assert_eq!(good(&log, 11, 2), [(12, 1)]);
        assert_eq!(good(&log, 16, 40), [(34, 22)]);
        assert_eq!(good(&log, 10, 2), []);
        assert_eq!(good(&log, 100, 8), [(100, 8)]);
    }

    #[test]
    fn reads_what_the_kernel_wrote() {
        // Entries in the order in which a kernel had them: 100, 5512 and 5000, 512 of each.
        let mut bytes = vec![0xff; 4096];
        for (i, word) in [100u64 << 10 | 8, 5512 << 10 | 88, 5000 << 10 | 512].iter().enumerate() {
            bytes[i * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let log = BadBlocks::parse(&bytes, 0).unwrap();
        let all: Vec<_> = log.iter().map(|(at, len)| (at.0, len.0)).collect();
        assert_eq!(all, [(100, 8), (5000, 600)]);
        assert_eq!(log.entries(), 3);
        assert!(log.contains(Sector(107), Sectors(1)) && !log.contains(Sector(108), Sectors(4892)));
    }

    #[test]
    fn units_round_out_when_bad_and_in_when_good() {
        let mut log = BadBlocks::new(3).unwrap();
        log.insert(Sector(9), Sectors(8));
        assert_eq!(log.iter().next(), Some((Sector(8), Sectors(16))));
        log.remove(Sector(9), Sectors(8));
        assert!(log.contains(Sector(8), Sectors(1)));
        log.remove(Sector(8), Sectors(9));
        assert_eq!(log.iter().next(), Some((Sector(16), Sectors(8))));
        assert_eq!(log.count_within(Sector(20), Sectors(100)), Sectors(4));
        assert_eq!(log.count_within(Sector(0), Sectors(16)), Sectors(0));
    }

    #[test]
    fn a_full_log_says_so() {
        let mut log = BadBlocks::new(0).unwrap();
        (0..513).for_each(|i| log.insert(Sector(i * 4), Sectors(1)));
        assert!(!log.fits(Sectors(8)));
        assert_eq!(log.encode(Sectors(8)), Err(BadBlocksError::Full { needed: 513, room: 512 }));
        log.remove(Sector(0), Sectors(1));
        assert_eq!(BadBlocks::parse(&log.encode(Sectors(8)).unwrap(), 0).unwrap(), log);
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_of_sectors(
            steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u64..60), 0..40),
        ) {
            let mut log = BadBlocks::new(0).unwrap();
            let mut model = [false; 400];
            for (bad, at, len) in steps {
                if bad {
                    log.insert(Sector(at), Sectors(len));
                } else {
                    log.remove(Sector(at), Sectors(len));
                }
                model[at as usize..(at + len) as usize].fill(bad);
            }
            for (at, bad) in model.iter().enumerate() {
                prop_assert_eq!(log.contains(Sector(at as u64), Sectors(1)), *bad);
            }
            prop_assert!(log.ranges.windows(2).all(|w| w[0].end < w[1].start));
            prop_assert_eq!(BadBlocks::parse(&log.encode(Sectors(8)).unwrap(), 0).unwrap(), log);
        }

        #[test]
        fn any_bytes_give_a_log_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..5000), shift: u8,
        ) {
            if let Ok(log) = BadBlocks::parse(&bytes, shift) {
                let again = log.encode(Sectors(8)).map(|b| BadBlocks::parse(&b, shift).unwrap());
                prop_assert!(again.is_err() || again == Ok(log));
            }
        }
    }
}
