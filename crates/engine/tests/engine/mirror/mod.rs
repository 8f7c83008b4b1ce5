//! A shard of a mirror, for stories told I/O by I/O.

use lapstrake_engine::{BitmapTerms, BufId, FULLY_TRUSTED, MemberConfig, Shard, ShardConfig, Time};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors, Slot};
use std::ops::Range;

pub const NOW: Time = Time(0);

/// A member: whether it is in sync, whether it is mostly for writing, what is bad.
pub type Half = (bool, bool, Option<Range<u64>>);

/// With a bitmap, writes may be left behind for those that are mostly for writing.
pub fn mirror<const N: usize>(halves: [Half; N], bitmap: Option<BitmapTerms>) -> Shard {
    made(halves, bitmap, false)
}

/// Two halves in sync; nothing may be written.
pub fn read_only() -> Shard {
    made([(true, false, None), (true, false, None)], None, true)
}

/// Its halves' sectors.
pub const SECTORS: u64 = 4 * 65536;

fn made<const N: usize>(halves: [Half; N], bitmap: Option<BitmapTerms>, read_only: bool) -> Shard {
    let geometry = Geometry::new(&Config {
        level: Level::Raid1,
        layout: Layout::default_for(Level::Raid1),
        chunk: Sectors(0),
        raid_disks: N as u16,
        component: Sectors(SECTORS),
        member_sizes: Vec::new(),
    })
    .expect("a mirror");
    let members = (0..).map(Slot).zip(halves).map(|(slot, (in_sync, write_mostly, bad))| {
        let trusted_to = if in_sync { FULLY_TRUSTED } else { Sector(0) };
        MemberConfig {
            data_offset: Sector(64),
            slot: Some(slot),
            trusted_to,
            rotational: false,
            write_mostly,
            bad_blocks: Some(bad.into_iter().collect()),
            log: None,
        }
    });
    Shard::new(ShardConfig {
        geometry,
        members: members.collect(),
        read_only,
        block: Sectors(1),
        in_sync_to: FULLY_TRUSTED,
        bitmap,
        scratch: BufId(0),
        scratch_pages: 64,
        log_signature: None,
        lost: Vec::new(),
        journal: None,
        behind_pages: bitmap.map_or(0, |_| 64),
        unsynced: None,
    })
}
