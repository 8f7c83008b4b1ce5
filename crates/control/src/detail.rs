//! What a server tells about its array. `docs/control.md` has the fields; one that a server does not know stays at its
//! default, one that it knows beside these is passed over.

use crate::{
    ArrayState, BitmapLocation, ConsistencyPolicy, MemberState, SyncAction, SyncResult, percent,
};
use lapstrake_geometry::{Layout, Level};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One array.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Detail {
    /// The name by which it is served.
    pub name: String,
    /// The superblocks' version.
    pub version: String,
    /// The name in the superblocks.
    pub set_name: String,
    /// The array's UUID as mdadm prints it.
    pub uuid: String,
    /// What clients see in the array's place, if not all of it.
    #[serde(default)]
    pub part: Option<PartDetail>,
    /// What the array's geometry is being changed to.
    #[serde(default)]
    pub reshape: Option<ReshapeDetail>,
    /// The file that takes all writes.
    #[serde(default)]
    pub overlay: Option<String>,
    /// That file was deleted or spoiled: what was written is gone when the array stops.
    #[serde(default)]
    pub overlay_lost: bool,
    /// When it was made, seconds since 1970.
    pub creation_time: u64,
    /// When its superblocks were last written, seconds since 1970.
    pub update_time: u64,
    /// The level as mdadm names it.
    pub level: String,
    /// The layout as mdadm names it; null where the level has none.
    pub layout: Option<String>,
    /// Bytes of a chunk; 0 where the level has none.
    pub chunk_bytes: u64,
    /// The array's logical block, bytes: what requests start at and are multiples of.
    #[serde(default)]
    pub block_bytes: u32,
    /// Bytes of the array.
    pub array_bytes: u64,
    /// Bytes used of each member; 0 where all is used.
    pub component_bytes: u64,
    /// How many slots it has.
    pub raid_devices: u16,
    /// `clean`, `active` or `read-only`, then perhaps `degraded` or `failed`, and what runs or is due.
    pub state: Vec<ArrayState>,
    /// The number of the kernel's device for it, of a 0.90 superblock.
    pub preferred_minor: Option<u32>,
    /// The superblocks' count of changes.
    pub events: u64,
    /// What keeps redundancy right over an unclean stop.
    pub consistency_policy: ConsistencyPolicy,
    /// Dirty and all bits of the write-intent bitmap.
    pub bitmap_bits: Option<(u64, u64)>,
    /// Chunks of a lockless bitmap in each state, in the order of docs/formats.md (`ChunkState::ALL`).
    pub bitmap_states: Option<[u64; 8]>,
    /// Whether a resync of what was written under a lockless bitmap will begin by itself.
    #[serde(default)]
    pub awaits_lazy_resync: bool,
    /// Where the write-intent bitmap lies.
    pub bitmap_place: Option<BitmapLocation>,
    /// The file of an external one.
    pub bitmap_file: Option<String>,
    /// Bytes that a bit of it stands for.
    pub bitmap_chunk_bytes: Option<u64>,
    /// Writes that write-mostly members may lag behind.
    pub write_behind: u32,
    /// From which byte on a resync is due.
    pub resync_from_bytes: Option<u64>,
    /// Those in sync in the order of their slots first.
    pub members: Vec<MemberDetail>,
    /// What drives the I/O.
    pub backend: String,
    /// Threads that serve it.
    pub shards: usize,
    /// Clients connected.
    pub clients: usize,
    /// What was done since the start.
    pub work: WorkDetail,
    /// What memory it holds.
    pub memory: MemoryDetail,
    /// Pages of 4 KiB of the stripe cache for each member, in each shard; 0: the level has none.
    pub stripe_cache_size: u32,
    /// What fits the array.
    pub tuning: TuningDetail,
    /// What runs now, or is frozen half done.
    #[serde(default)]
    pub sync: Option<SyncDetail>,
    /// What ran last.
    #[serde(default)]
    pub last_sync: Option<LastSyncDetail>,
    /// Sectors of 512 bytes that the last or running check or repair found to differ; md's `mismatch_cnt`.
    #[serde(default)]
    pub mismatch_sectors: u64,
    /// Where that is, the first 16384 ranges.
    #[serde(default)]
    pub mismatches: Vec<Mismatch>,
    /// How many such ranges there are besides.
    #[serde(default)]
    pub mismatches_omitted: u64,
    /// The least speed of recovery and resync beside requests, KiB a second of a member.
    pub sync_speed_min_kib: u64,
    /// The greatest at all times, KiB a second of a member; 0: as fast as can be.
    pub sync_speed_max_kib: u64,
    /// The part of the day in which checks and repairs run; null: all of it.
    #[serde(default)]
    pub check_window: Option<String>,
    /// The server's process; a server says it beside the array, `lapstrake detail --json` here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Where clients find the array: URIs; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<String>,
}

fn path_of(encoded: &str) -> Option<PathBuf> {
    percent::decoded(encoded).map(|bytes| OsString::from_vec(bytes).into())
}

/// A part of an array that clients see in its place.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PartDetail {
    /// `partition 2`, or `volume GROUP/VOLUME`.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
}

/// The reshape that an array is in the midst of, and the geometry that it makes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReshapeDetail {
    /// The array's byte at which the two geometries meet.
    pub position_bytes: u64,
    /// The new geometry holds from there on; else up to there.
    pub is_backwards: bool,
    /// The level as mdadm names it.
    pub level: String,
    /// The layout as mdadm names it; null where the level has none.
    pub layout: Option<String>,
    /// Bytes of a chunk; 0 where the level has none.
    pub chunk_bytes: u64,
    /// How many slots it has.
    pub raid_devices: u16,
}

/// One member.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemberDetail {
    /// As it was named.
    pub path: String,
    /// The file or device by its absolute path without links, and without a window.
    #[serde(default)]
    pub file: PathBuf,
    /// The array that it is, if another server's. `lapstrake status --tree --json` tells of it; a server does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<Detail>>,
    /// While it recovers: bytes of its data up to where it has.
    pub recovered_bytes: Option<u64>,
    /// Its number in the superblocks.
    pub number: u32,
    /// Its slot.
    pub slot: Option<u16>,
    /// What it is to the array.
    pub state: MemberState,
    /// Bytes of its part of the array on record as bad: not read until they are written.
    #[serde(default)]
    pub bad_block_bytes: u64,
    /// Read only where no other member has the data.
    pub write_mostly: bool,
    /// It is to be replaced as soon as there is a spare.
    pub awaits_replacement: bool,
    /// The page cache is passed by.
    pub direct: bool,
    /// Its file was deleted while it was served: it is gone when the server ends.
    #[serde(default)]
    pub deleted: bool,
    /// What has been sent to it.
    #[serde(default)]
    pub work: MemberWork,
}

/// What has been sent to one member since the start. Flushes count as writes of no bytes; superblocks and bitmap pages
/// do not count.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemberWork {
    /// Reads.
    pub reads: u64,
    /// All else.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// A sync action. Bytes of a member; of the array for a RAID10 that is not recovering.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SyncDetail {
    /// Which.
    pub action: SyncAction,
    /// Bytes up to where it has come.
    pub done_bytes: u64,
    /// Bytes up to where it goes.
    pub total_bytes: u64,
    /// Bytes a second, over the last seconds.
    pub speed_bytes: u64,
    /// Seconds to its end at this speed; null while it stands still.
    pub finish_s: Option<u64>,
    /// It stands still.
    pub frozen: bool,
    /// It waits for the part of the day in which checks run.
    #[serde(default)]
    pub awaits_window: bool,
}

/// How a sync action ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastSyncDetail {
    /// Which.
    pub action: SyncAction,
    /// How.
    pub result: SyncResult,
}

/// A range of the array whose redundancy does not agree with its data.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mismatch {
    /// Bytes from the array's start.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// The member that disagrees, if that can be told.
    pub member: Option<String>,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkDetail {
    /// Requests answered.
    pub requests: u64,
    /// Reads sent to members.
    pub member_reads: u64,
    /// Writes sent to members.
    pub member_writes: u64,
    /// Bytes read from members.
    pub member_read_bytes: u64,
    /// Bytes written to members.
    pub member_write_bytes: u64,
    /// Parts of stripes written without reading.
    pub full_stripe_writes: u64,
    /// Parts of stripes written by read-modify-write.
    pub read_modify_writes: u64,
    /// Parts of stripes written by reconstruct-write.
    pub reconstruct_writes: u64,
    /// Parts of stripes for which lost blocks were recovered.
    pub recovered: u64,
    /// Times that work on a stripe waited for room in the stripe cache.
    pub stripe_cache_waits: u64,
    /// Pages of the write-intent bitmap written, counted for each member that gets one.
    #[serde(default)]
    pub bitmap_writes: u64,
    /// Writes answered, or to be answered, before write-mostly members have them.
    #[serde(default)]
    pub behind_writes: u64,
}

/// Memory, bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryDetail {
    /// The stripe caches: pages per member x 4096 x members x shards; and what logs, a journal and writes left behind
    /// take.
    pub stripe_cache: u64,
    /// Of it in use now.
    pub stripe_cache_used: u64,
    /// For the requests of clients, large ones included, which take memory only while they run.
    pub buffers: u64,
    /// Of it in use now.
    pub buffers_used: u64,
    /// Whether all of it is locked against being swapped out.
    pub locked: bool,
    /// Of the whole process; 0 if it is not known.
    #[serde(default)]
    pub resident: u64,
}

/// What fits the array, for whoever puts something on it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TuningDetail {
    /// Bytes of read-ahead of a kernel's device on top.
    pub read_ahead_bytes: u64,
    /// Options of mkfs.ext4.
    pub mkfs_ext4: Option<String>,
    /// Options of mkfs.xfs.
    pub mkfs_xfs: Option<String>,
}

impl SyncDetail {
    /// How much is done, of 1000.
    #[must_use]
    pub fn per_mille(&self) -> u64 {
        let total = u128::from(self.total_bytes.max(1));
        // At most 1000.
        (u128::from(self.done_bytes) * 1000 / total).min(1000) as u64
    }
}

impl Detail {
    /// The level; None if it is of a later version.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        self.level.parse().ok()
    }

    /// The layout; None where the level has none.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        Layout::from_name(self.level()?, self.layout.as_deref()?).ok()
    }

    /// The file that it is served as, if it is.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        path_of(self.exports.iter().find_map(|uri| uri.strip_prefix("file://"))?)
    }

    /// The Unix socket at which it is served over NBD, if it is; the first, if there are several.
    #[must_use]
    pub fn nbd_socket(&self) -> Option<PathBuf> {
        let behind = self.exports.iter().find_map(|uri| uri.strip_prefix("nbd+unix:///"))?;
        path_of(behind.split_once("?socket=")?.1)
    }

    /// Whether a word is in the array's state.
    #[must_use]
    pub fn is(&self, state: &ArrayState) -> bool {
        self.state.contains(state)
    }

    /// The words of the array's state, with commas.
    #[must_use]
    pub fn state_text(&self) -> String {
        self.state.iter().map(ArrayState::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Whether the array is neither degraded nor failed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is(&ArrayState::Degraded) && !self.is(&ArrayState::Failed)
    }

    /// The sync action that runs, and is not frozen.
    #[must_use]
    pub fn running(&self) -> Option<&SyncDetail> {
        self.sync.as_ref().filter(|sync| !sync.frozen)
    }

    /// Whether no sync action runs, or is about to begin by itself.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.running().is_none() && !self.awaits_lazy_resync
    }

    /// For each slot the member in sync.
    #[must_use]
    pub fn slots(&self) -> Vec<Option<&MemberDetail>> {
        let in_sync = |slot| {
            let holds = |m: &&MemberDetail| m.slot == Some(slot) && m.state == MemberState::InSync;
            self.members.iter().find(holds)
        };
        (0..self.raid_devices).map(in_sync).collect()
    }

    /// Members of use with something on record as bad.
    pub fn with_bad_blocks(&self) -> impl Iterator<Item = &MemberDetail> {
        let is_of_use = |m: &&MemberDetail| m.bad_block_bytes > 0 && m.state != MemberState::Faulty;
        self.members.iter().filter(is_of_use)
    }

    /// Members in a state.
    #[must_use]
    pub fn count(&self, state: &MemberState) -> usize {
        self.members.iter().filter(|member| member.state == *state).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_however_odd_the_numbers() {
        for (done, total, per_mille) in
            [(0, 0, 0), (999, 1000, 999), (2, 1, 1000), (u64::MAX, u64::MAX, 1000)]
        {
            let sync = SyncDetail {
                action: SyncAction::Check,
                done_bytes: done,
                total_bytes: total,
                speed_bytes: 0,
                finish_s: None,
                frozen: false,
                awaits_window: false,
            };
            assert_eq!(sync.per_mille(), per_mille);
        }
    }
}
