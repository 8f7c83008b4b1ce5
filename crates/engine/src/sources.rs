//! Where reads go, for who wants to know what of an array its members have never been given.

use crate::{shard::Shard, types::MemberId};
use lapstrake_geometry::{Geometry, Home, Sector};
use smallvec::SmallVec;

/// Members, each with the sector from its own start (the data offset is in).
pub type Sources = SmallVec<[(MemberId, Sector); 4]>;

impl Shard {
    /// The members to any of which a read of the sectors from `at` on may go, and for how many sectors that holds: at
    /// most `len`. Nobody if the data has to be recovered, or cannot be read, or lies beyond the array's end.
    #[must_use]
    pub fn sources(&self, at: Sector, len: u64) -> (Sources, u64) {
        let left = self.usable_sectors().0.saturating_sub(at.0);
        if left == 0 {
            return (Sources::new(), len);
        }
        let (homes, run) = self.homes(at);
        let len = self.clip(&homes, run.min(len).min(left));
        let source = |home: &Home| {
            let range = home.sector.0..home.sector.0 + len;
            let member = self.members.usable(home.slot, range)?;
            Some((member, Sector(home.sector.0 + self.members.data_offset(member).0)))
        };
        (homes.iter().filter_map(source).collect(), len)
    }

    fn homes(&self, at: Sector) -> (SmallVec<[Home; 4]>, u64) {
        let Geometry::Parity(parity) = &self.geometry else {
            let run = self.geometry.map(at);
            return (run.homes.iter().copied().collect(), run.len.0);
        };
        let (stripe, data, offset) = parity.locate(at);
        let slot = parity.slot_of_data(stripe, data);
        let home = Home { slot, sector: parity.member_sector(stripe, offset) };
        (SmallVec::from_elem(home, 1), parity.chunk().0 - offset.0)
    }
}
