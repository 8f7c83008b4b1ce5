//! How many chunks of data lie side by side on the members, and what follows from that for who reads and writes.

use crate::layout::Layout;
use crate::level::Level;

/// What the kernel gives a block device that says nothing of itself, bytes.
const READ_AHEAD_LEAST: u64 = 128 << 10;

/// Chunks of data in a row across the members; none for levels without chunks. Chunk times this is md's optimal I/O
/// size (`io_opt`), from which mkfs takes its stripe width.
///
/// A RAID10's row holds what lies at one address of the members: far copies lie elsewhere, and where near copies do not
/// come out even, md counts all members.
pub fn row_chunks(level: Level, layout: Layout, raid_disks: u16) -> Option<u16> {
    match (level, layout) {
        (Level::Linear | Level::Raid1, _) => None,
        (Level::Raid0, _) => Some(raid_disks),
        (Level::Raid4 | Level::Raid5, _) => Some(raid_disks.saturating_sub(1)),
        (Level::Raid6, _) => Some(raid_disks.saturating_sub(2)),
        (Level::Raid10, Layout::Raid10(layout)) => {
            let near = u16::from(layout.near).max(1);
            Some(if raid_disks.is_multiple_of(near) { raid_disks / near } else { raid_disks })
        }
        (Level::Raid10, _) => None,
    }
}

/// The read-ahead that a kernel's md device of that row has, bytes: two rows, but not less than any device
/// (`blk_apply_bdi_limits`).
pub fn read_ahead(row_bytes: u64) -> u64 {
    (2 * row_bytes).max(READ_AHEAD_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 6.1 says of arrays of four with chunks of 64 KiB (`queue/read_ahead_kb`).
    #[test]
    fn rows_are_what_md_says() {
        for (level, layout, kib) in [
            (Level::Linear, None, 128),
            (Level::Raid0, None, 512),
            (Level::Raid1, None, 128),
            (Level::Raid4, None, 384),
            (Level::Raid5, Some("left-symmetric"), 384),
            (Level::Raid6, Some("left-symmetric"), 256),
            (Level::Raid10, Some("n2"), 256),
            (Level::Raid10, Some("f2"), 512),
            (Level::Raid10, Some("n3"), 512),
        ] {
            let layout =
                layout.map_or(Layout::None, |name| Layout::from_name(level, name).unwrap());
            let row = row_chunks(level, layout, 4).map_or(0, |chunks| u64::from(chunks) << 16);
            assert_eq!(read_ahead(row) >> 10, kib, "{level} {layout:?}");
        }
    }
}
