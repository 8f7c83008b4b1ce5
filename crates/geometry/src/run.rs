//! Answers of the maps: where a run of array sectors lives, and what a member's sector holds.

use smallvec::SmallVec;

use crate::units::{Sector, Sectors, Slot, StripeNo};

/// One place where data lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// The member.
    pub slot: Slot,
    /// The sector on it, relative to its data offset.
    pub sector: Sector,
}

/// The homes of a run of consecutive array sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Sectors from the asked address on, at least 1, for which every home runs on without a
    /// break. It may end before the array forces it to.
    pub len: Sectors,
    /// Every copy; the first is the one that md calls copy 0. Their slots differ.
    pub homes: SmallVec<[Home; 4]>,
}

impl Run {
    /// A run with one home.
    #[inline]
    pub(crate) fn single(len: u64, slot: u16, sector: u64) -> Run {
        let mut homes = SmallVec::new();
        homes.push(Home { slot: Slot(slot), sector: Sector(sector) });
        Run { len: Sectors(len), homes }
    }
}

/// What a sector of a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// The array's sector with this address.
    Data(Sector),
    /// The stripe's first syndrome, the XOR of its data.
    P(StripeNo),
    /// The stripe's second syndrome.
    Q(StripeNo),
    /// Nothing: rounding, or past the size that the array uses.
    Unused,
}
