//! The chunks of a lockless bitmap where redundancy is not right yet, as a shard knows them.
//!
//! Nothing was ever written there, or it was and a resync has not been there since. Parity there can only be made anew,
//! not updated, and copies may differ, so that always the same one is read.
//!
//! Invariant: chunks leave the set and never come back: a chunk whose redundancy is right stays so, but for writes
//! under way.

use crate::members::FULLY_TRUSTED;
use alloc::{vec, vec::Vec};
use core::ops::Range;
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::bitmap;

/// A set of chunks, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedChunks {
    chunk: Sectors,
    words: Vec<u64>,
    left: u64,
}

impl UnsyncedChunks {
    /// Those of a bitmap; none if it says nothing of that.
    #[must_use]
    pub fn of(bits: &bitmap::Bits) -> Option<Self> {
        if !bits.is_lockless() {
            return None;
        }
        let words = vec![0; bits.count().div_ceil(64) as usize];
        let mut this = Self { chunk: bits.chunk(), words, left: 0 };
        for chunk in (0..bits.count()).filter(|&chunk| !bits.is_synced(chunk)) {
            this.words[(chunk / 64) as usize] |= 1 << (chunk % 64);
            this.left += 1;
        }
        Some(this)
    }

    fn contains(&self, chunk: u64) -> bool {
        let word = self.words.get((chunk / 64) as usize);
        word.is_some_and(|word| word >> (chunk % 64) & 1 == 1)
    }

    /// Whether one of them covers some of these sectors.
    #[must_use]
    pub fn touches(&self, range: Range<u64>) -> bool {
        let (first, end) = (range.start / self.chunk.0, range.end.div_ceil(self.chunk.0));
        self.left > 0 && (first..end).any(|chunk| self.contains(chunk))
    }

    /// Redundancy is right in chunks `first..=last`.
    pub fn synced(&mut self, first: u64, last: u64) {
        for chunk in first..=last {
            if self.contains(chunk) {
                self.words[(chunk / 64) as usize] &= !(1 << (chunk % 64));
                self.left -= 1;
            }
        }
    }
}

/// Where redundancy is right, but for writes under way: in member sectors, of RAID10 in array sectors.
///
/// Invariant: chunks leave `unsynced` and never come back, but with the bitmap.
#[derive(Debug)]
pub(crate) struct InSync {
    /// It is right below this sector; above it a resync is due.
    to: Sector,
    /// Where it is not right, whatever `to` says.
    unsynced: Option<UnsyncedChunks>,
}

impl InSync {
    pub(crate) fn new(to: Sector, unsynced: Option<UnsyncedChunks>) -> Self {
        Self { to, unsynced }
    }

    /// Whether redundancy is right in all these sectors.
    pub(crate) fn covers(&self, range: Range<u64>) -> bool {
        let is_unsynced = self.unsynced.as_ref().is_some_and(|u| u.touches(range.clone()));
        range.end <= self.to.0 && !is_unsynced
    }

    /// Whether no resync is due, but for chunks of a lockless bitmap.
    pub(crate) fn is_whole(&self) -> bool {
        self.to == FULLY_TRUSTED
    }

    /// A resync has come there, or one is due from there on.
    pub(crate) fn set_to(&mut self, to: Sector) {
        self.to = to;
    }

    /// Redundancy is right in chunks `first..=last`.
    pub(crate) fn synced(&mut self, first: u64, last: u64) {
        if let Some(unsynced) = &mut self.unsynced {
            unsynced.synced(first, last);
        }
    }

    /// There is another bitmap. A lockless one goes with all redundancy due to be made right, and none comes later.
    pub(crate) fn forget_chunks(&mut self) {
        self.unsynced = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitmap::{Bits, Superblock};

    #[test]
    fn chunks_leave_the_set_when_redundancy_is_right() {
        let mut sb = Superblock::new_lockless([7; 16], Sectors(1280), false);
        sb.begin_use(Sectors(256));
        let mut bits = Bits::new(&sb, false);
        bits.set(3);
        bits.clear(3);
        let mut chunks = UnsyncedChunks::of(&bits).expect("it is lockless");
        assert!(chunks.touches(0..1) && chunks.touches(383..385) && !chunks.touches(384..512));
        chunks.synced(0, 4);
        assert!(!chunks.touches(0..640) && chunks.touches(639..641));
        chunks.synced(0, 9);
        assert_eq!(chunks.left, 0);
    }

    #[test]
    fn redundancy_is_right_below_a_resync_but_for_chunks_until_they_are_forgotten() {
        let mut unsynced = UnsyncedChunks { chunk: Sectors(8), words: vec![0b10], left: 1 };
        let mut in_sync = InSync::new(Sector(32), Some(unsynced.clone()));
        assert!(in_sync.covers(0..8) && !in_sync.covers(0..9) && in_sync.covers(16..32));
        assert!(!in_sync.covers(24..33) && !in_sync.is_whole());
        in_sync.set_to(FULLY_TRUSTED);
        assert!(in_sync.is_whole() && !in_sync.covers(8..16) && in_sync.covers(32..64));
        in_sync.forget_chunks();
        assert!(in_sync.covers(8..16));
        unsynced.synced(1, 1);
        assert!(InSync::new(FULLY_TRUSTED, Some(unsynced)).covers(8..16));
    }
}
