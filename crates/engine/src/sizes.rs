//! Sizes that every world that runs arrays chooses alike.

use crate::scratch::PAGE_BYTES;
use crate::stripe::OP_SECTORS_MAX;
use lapstrake_geometry::{Geometry, Sectors};

/// The least length of a span that one shard is dealt: long enough that most requests stay on one
/// shard, short enough that a few sequential ones in flight keep every shard busy.
const SPAN_SECTORS_MIN: u64 = (2 << 20) / 512;
/// Pages of a shard's whole stripe cache, just below 4 GiB: a place in it is named by 32 bits.
const CACHE_PAGES_MAX: u32 = (1 << 20) - 1;
/// Pages per member that the largest parity operation takes.
const CACHE_PAGES_MIN: u32 = OP_SECTORS_MAX * 512 / PAGE_BYTES;

/// Sectors of the array that a shard is dealt in one go.
#[must_use]
pub fn span(geometry: &Geometry) -> Sectors {
    let unit = match geometry {
        Geometry::Parity(parity) => parity.stripe_data().0,
        Geometry::Raid0(raid0) => raid0.chunk().0,
        Geometry::Raid10(raid10) => raid10.chunk().0,
        Geometry::Linear(_) | Geometry::Mirror(_) => 8,
    };
    Sectors(SPAN_SECTORS_MIN.next_multiple_of(unit))
}

/// Pages of a shard's stripe cache, of so many for each member and so many for its log. Levels with copies need it
/// for recovery and the like.
#[must_use]
pub fn stripe_cache_pages(geometry: &Geometry, per_member: u32, per_log: u32) -> u32 {
    if !geometry.level().has_redundancy() {
        return 0;
    }
    let per_member = per_member.max(CACHE_PAGES_MIN).saturating_add(per_log);
    per_member.saturating_mul(geometry.raid_disks().into()).min(CACHE_PAGES_MAX)
}
