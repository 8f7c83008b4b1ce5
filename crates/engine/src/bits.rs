//! A shard's share of the write-intent bitmap: which bits it knows to be stable on all members,
//! and which of them its writes use.
//!
//! Invariants: a write goes out only while all its bits are in `stable`; a bit leaves `stable`
//! only when no write uses it and none has for a whole sweep, and the supervisor clears it on
//! disk only after that.

use alloc::{collections::BTreeMap, vec::Vec};
use lapstrake_geometry::{Geometry, Sector, Sectors};

#[derive(Debug)]
struct Bit {
    users: u32,
    rested: bool,
}

/// Bits known to one shard.
#[derive(Debug)]
pub struct Bits {
    chunk: u64,
    stable: BTreeMap<u64, Bit>,
}

impl Bits {
    /// For a bitmap whose bits cover `chunk` sectors each.
    #[must_use]
    pub fn new(chunk: u64) -> Self {
        Self { chunk, stable: BTreeMap::new() }
    }

    /// Sectors to a bit.
    #[must_use]
    pub fn chunk(&self) -> Sectors {
        Sectors(self.chunk)
    }

    /// The bits of a sector range, first and last.
    #[must_use]
    pub fn covering(&self, start: u64, end: u64) -> (u64, u64) {
        (start / self.chunk, (end - 1) / self.chunk)
    }

    /// Whether all of them are.
    #[must_use]
    pub fn are_stable(&self, (first, last): (u64, u64)) -> bool {
        (first..=last).all(|bit| self.stable.contains_key(&bit))
    }

    /// Begins a write under these bits; false (and nothing begun) if one is not stable yet.
    pub fn begin(&mut self, (first, last): (u64, u64)) -> bool {
        if !self.are_stable((first, last)) {
            return false;
        }
        for bit in self.stable.range_mut(first..=last) {
            bit.1.users += 1;
            bit.1.rested = false;
        }
        true
    }

    /// Takes in a write that was on its way before there was a bitmap: its bits are stable, as all are then.
    pub fn adopt(&mut self, (first, last): (u64, u64)) {
        self.set(first, last);
        self.begin((first, last));
    }

    /// Ends a write that [`Self::begin`] began.
    pub fn end(&mut self, (first, last): (u64, u64)) {
        for bit in self.stable.range_mut(first..=last) {
            bit.1.users -= 1;
        }
    }

    /// The supervisor has them stable.
    pub fn set(&mut self, first: u64, last: u64) {
        for bit in first..=last {
            self.stable.entry(bit).or_insert(Bit { users: 0, rested: false });
        }
    }

    /// Gives up what rested since the last sweep.
    pub fn sweep(&mut self) -> Vec<u64> {
        let mut idle = Vec::new();
        self.stable.retain(|&number, bit| {
            if bit.users > 0 {
                return true;
            }
            if bit.rested {
                idle.push(number);
            }
            !core::mem::replace(&mut bit.rested, true)
        });
        idle
    }
}

/// What a change of these array sectors means in the bitmap's own terms: member sectors, for RAID10 array
/// sectors.
pub(crate) fn covered(geometry: &Geometry, (start, end): (u64, u64)) -> (u64, u64) {
    let Geometry::Parity(parity) = geometry else { return (start, end) };
    let (first, data, offset) = parity.locate(Sector(start));
    let (last, last_data, last_offset) = parity.locate(Sector(end - 1));
    if (first, data) == (last, last_data) {
        let at = parity.member_sector(first, offset).0;
        return (at, at + (last_offset.0 - offset.0) + 1);
    }
    let begin = parity.member_sector(first, Sectors(0)).0;
    (begin, parity.member_sector(last, Sectors(0)).0 + parity.chunk().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_given_up_after_a_whole_sweep_without_writes() {
        let mut bits = Bits::new(8);
        assert_eq!(bits.covering(7, 9), (0, 1));
        assert!(!bits.begin((0, 1)));
        bits.set(0, 1);
        assert!(bits.begin((0, 1)));
        assert!(bits.sweep().is_empty());
        bits.end((0, 1));
        assert!(bits.sweep().is_empty(), "used since the last sweep");
        assert!(bits.begin((1, 1)));
        bits.end((1, 1));
        assert_eq!(bits.sweep(), [0]);
        assert!(!bits.begin((0, 0)));
        assert_eq!(bits.sweep(), [1]);
    }
}
