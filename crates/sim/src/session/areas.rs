//! Where a member's data and log are, and what an array of a plan needs and is dealt in.

use crate::plan::Plan;
use lapstrake_engine::PAGE_BYTES;
use lapstrake_geometry::{Geometry, Level};
use lapstrake_metadata::Superblock;

/// Units of recovery, resync and check that a shard does at a time on levels with copies, and their pages.
const UNITS_MAX: u32 = 4;
const UNIT_PAGES: u32 = 16;

/// Room for some of the largest operations: units of all copies, and a chunk of each member.
pub(super) fn cache_pages(plan: &Plan, geometry: &Geometry) -> u32 {
    let to = plan.reshape;
    let copies = match geometry {
        Geometry::Mirror(mirror) => u32::from(mirror.raid_disks()),
        Geometry::Raid10(raid10) => raid10.copies(),
        _ => to.filter(|to| to.level == Level::Raid1).map_or(0, |to| to.disks.into()),
    };
    let of_copies = UNITS_MAX * copies * UNIT_PAGES;
    if copies > 0 && to.is_none() {
        return of_copies;
    }
    let chunk = to.map_or(plan.chunk, |to| to.chunk.max(plan.chunk)).0 as u32;
    // A RAID6 has its second parity on one member more before that goes.
    let disks = u32::from(to.map_or(0, |to| to.disks + 1).max(geometry.raid_disks()));
    let chunk_pages = (chunk * 512).div_ceil(PAGE_BYTES).next_power_of_two();
    // An operation that is logged takes one block more, and each log a page.
    let logs = plan.log.map_or(0, |_| chunk_pages + u32::from(geometry.raid_disks()));
    of_copies.max(chunk_pages * disks * plan.cache_ops + logs.next_multiple_of(8))
}

/// First sector of a member's data, and that behind the last.
pub(super) fn data_area(sb: &Superblock) -> (u64, u64) {
    (sb.data_offset().0, sb.data_offset().0 + sb.data_size().0)
}

/// First sector of a member's log, and that behind the last.
pub(super) fn log_area(sb: &Superblock) -> (u64, u64) {
    sb.ppl().map_or((0, 0), |(at, shape)| (at.0, at.0 + shape.size.0))
}

pub(super) fn span(plan: &Plan, geometry: &Geometry) -> u64 {
    let unit = match geometry {
        Geometry::Parity(parity) => parity.stripe_data().0,
        Geometry::Raid0(raid0) => raid0.chunk().0,
        Geometry::Raid10(raid10) => raid10.chunk().0,
        Geometry::Linear(_) | Geometry::Mirror(_) => 8,
    };
    unit * plan.span_units
}
