//! Sizes that every world that runs arrays chooses alike.

use crate::journal::JOURNAL_PAGES;
use crate::reshape::owned_unit;
use crate::scratch::PAGE_BYTES;
use crate::stripe::OP_SECTORS_MAX;
use core::ops::RangeInclusive;
use lapstrake_geometry::{Geometry, Sectors};

/// The least length of a span that one shard is dealt: long enough that most requests stay on one
/// shard, short enough that a few sequential ones in flight keep every shard busy.
const SPAN_SECTORS_MIN: u64 = (2 << 20) / 512;
/// Pages of a stripe cache for each member: what the largest parity operation takes, to md's own bound.
pub const STRIPE_CACHE_SIZES: RangeInclusive<u32> = OP_SECTORS_MAX * 512 / PAGE_BYTES..=32768;
/// As md has it, if nothing is said.
pub const STRIPE_CACHE_SIZE: u32 = 256;
/// What partial parity logs add to that, for each member: headers and partial parity are taken from it.
const PAGES_PER_LOG: u32 = 32;
/// Pages of a shard for copies that are left behind: 4 MiB.
pub const BEHIND_PAGES: u32 = 1024;
/// Pages of a shard's whole stripe cache: with what else may lie beside it just below 4 GiB, since a place there is
/// named by 32 bits.
const CACHE_PAGES_MAX: u32 = (1 << 20) - 1 - BEHIND_PAGES - JOURNAL_PAGES;

/// Sectors of the array that a shard is dealt in one go.
#[must_use]
pub fn span(geometry: &Geometry) -> Sectors {
    Sectors(SPAN_SECTORS_MIN.next_multiple_of(owned_unit(geometry)))
}

/// Members that have pages in stripe caches: none on levels without redundancy. (Those with copies need them for
/// recovery and the like.)
#[must_use]
pub fn stripe_cache_members(geometry: &Geometry) -> u32 {
    if geometry.level().has_redundancy() { geometry.raid_disks().into() } else { 0 }
}

/// Pages of a shard's stripe cache, of so many for each of so many members.
#[must_use]
pub fn stripe_cache_pages(members: u32, per_member: u32, has_logs: bool) -> u32 {
    let per_member = per_member.max(*STRIPE_CACHE_SIZES.start()).saturating_add(if has_logs {
        PAGES_PER_LOG
    } else {
        0
    });
    per_member.saturating_mul(members).min(CACHE_PAGES_MAX)
}
