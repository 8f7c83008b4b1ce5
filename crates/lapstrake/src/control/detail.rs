//! What a server tells about its array. `docs/control.md` has the fields; one that a server does not know stays at its
//! default, one that it knows beside these is passed over.

use lapstrake_geometry::{Layout, Level};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// An enum of words of the protocol; one that is not known is kept as it was said.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
            /// A word of a later version.
            #[serde(untagged)]
            Other(String),
        }

        impl $name {
            /// The protocol's word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What a member is to its array.
    MemberState {
        /// It has all of its part.
        InSync = "in_sync",
        /// It is being rebuilt.
        Recovering = "recovering",
        /// It is to take the place of the member of its slot.
        Replacement = "replacement",
        /// It waits to be used.
        Spare = "spare",
        /// What is written goes there first.
        Journal = "journal",
        /// It is used no more.
        Faulty = "faulty",
    }
}

words! {
    /// What runs over the whole array.
    SyncAction {
        /// A member is made anew of the others.
        Recovery = "recovery",
        /// Redundancy is made anew of the data.
        Resync = "resync",
        /// What does not match is counted.
        Check = "check",
        /// What does not match is made to.
        Repair = "repair",
    }
}

words! {
    /// How a sync action ended.
    SyncResult {
        /// At its end.
        Done = "done",
        /// Before it: it was told to, or a member failed.
        Interrupted = "interrupted",
        /// It could not go on.
        Failed = "failed",
    }
}

/// One array.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// By which it is served.
    pub name: String,
    /// Of the superblocks.
    pub version: String,
    /// The name in the superblocks.
    pub set_name: String,
    /// As mdadm prints it.
    pub uuid: String,
    /// The file that takes all writes.
    #[serde(default)]
    pub overlay: Option<String>,
    /// That file was deleted or spoiled: what was written is gone when the array stops.
    #[serde(default)]
    pub overlay_lost: bool,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Seconds since 1970.
    pub update_time: u64,
    /// As mdadm names it; [`Detail::level`].
    pub level: String,
    /// As mdadm names it; [`Detail::layout`].
    pub layout: Option<String>,
    /// 0 where the level has none.
    pub chunk_bytes: u64,
    /// The unit of requests.
    #[serde(default)]
    pub block_bytes: u32,
    /// Of the array.
    pub array_bytes: u64,
    /// Used of each member; 0 where all is used.
    pub component_bytes: u64,
    /// Slots.
    pub raid_devices: u16,
    /// `clean`, `active` or `read-only`, then perhaps `degraded` or `failed`, and what runs or is due, as
    /// `docs/control.md` has it; [`Detail::is`].
    pub state: Vec<String>,
    /// The number of the kernel's device for it, of a 0.90 superblock.
    pub preferred_minor: Option<u32>,
    /// The superblocks' count of changes.
    pub events: u64,
    /// `ppl`, `journal`, `bitmap`, `resync` or `none`.
    pub consistency_policy: String,
    /// Dirty and all bits of the write-intent bitmap.
    pub bitmap_bits: Option<(u64, u64)>,
    /// Chunks of a lockless bitmap in each state, in the order of `metadata::bitmap::ChunkState::ALL`.
    pub bitmap_states: Option<[u64; 8]>,
    /// Whether a resync of what was written under a lockless bitmap will begin by itself.
    #[serde(default)]
    pub awaits_lazy_resync: bool,
    /// `internal` or `external`.
    pub bitmap_place: Option<String>,
    /// The file of an external one.
    pub bitmap_file: Option<String>,
    /// Writes that write-mostly members may lag behind.
    pub write_behind: u32,
    /// Those in sync in the order of their slots first.
    pub members: Vec<MemberDetail>,
    /// What drives the I/O.
    pub backend: String,
    /// Threads that serve it.
    pub shards: usize,
    /// Connections.
    pub clients: usize,
    /// What was done since the start.
    pub work: WorkDetail,
    /// What memory it holds.
    pub memory: MemoryDetail,
    /// Pages of 4 KiB for each member, in each shard; 0: the level has none.
    pub stripe_cache_size: u32,
    /// What fits the array.
    pub tuning: TuningDetail,
    /// What runs now, or is frozen half done.
    #[serde(default)]
    pub sync: Option<SyncDetail>,
    /// What ran last.
    #[serde(default)]
    pub last_sync: Option<LastSyncDetail>,
    /// Of the last or running check or repair.
    #[serde(default)]
    pub mismatch_sectors: u64,
    /// Where, the first 16384 of them.
    #[serde(default)]
    pub mismatches: Vec<Mismatch>,
    /// Ranges besides.
    #[serde(default)]
    pub mismatches_omitted: u64,
    /// The least speed of recovery and resync beside requests, KiB a second of a member.
    pub sync_speed_min_kib: u64,
    /// The greatest at all times; 0: as fast as can be.
    pub sync_speed_max_kib: u64,
    /// The part of the day in which checks and repairs run; None: all of it.
    #[serde(default)]
    pub check_window: Option<String>,
    /// The server's process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Where clients find the array: URIs.
    #[serde(default)]
    pub exports: Vec<String>,
}

/// One member.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct MemberDetail {
    /// As it was named.
    pub path: String,
    /// By its absolute path.
    #[serde(default)]
    pub file: PathBuf,
    /// The array that it is, if another server's. `lapstrake status --tree --json` tells of it; a server does not.
    #[serde(default)]
    pub array: Option<Box<Detail>>,
    /// While it recovers: up to where.
    #[serde(default)]
    pub recovered_bytes: Option<u64>,
    /// Its number in the superblocks.
    pub number: u32,
    /// Its slot.
    pub slot: Option<u16>,
    /// What it is to the array.
    pub state: MemberState,
    /// On record as bad: not read until it is written.
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
}

/// A sync action. Bytes of a member; of the array for a RAID10 that is not recovering.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct SyncDetail {
    /// Which.
    pub action: SyncAction,
    /// How far it has come.
    pub done_bytes: u64,
    /// To where it goes.
    pub total_bytes: u64,
    /// A second, over the last seconds.
    pub speed_bytes: u64,
    /// Seconds to its end at this speed; None while it stands still.
    pub finish_s: Option<u64>,
    /// It stands still.
    pub frozen: bool,
    /// It waits for the part of the day in which checks run.
    #[serde(default)]
    pub awaits_window: bool,
}

/// How a sync action ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[non_exhaustive]
pub struct LastSyncDetail {
    /// Which.
    pub action: SyncAction,
    /// How.
    pub result: SyncResult,
}

/// A range of the array whose redundancy does not agree with its data.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Mismatch {
    /// From the array's start.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Who disagrees, if that can be told.
    pub member: Option<String>,
}

/// Sums since the start.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
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
}

/// Memory, bytes.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct MemoryDetail {
    /// The stripe caches.
    pub stripe_cache: u64,
    /// Of it in use now.
    pub stripe_cache_used: u64,
    /// For requests of clients.
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
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TuningDetail {
    /// Read-ahead of a kernel's device on top.
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
    /// What a server's answer to `detail` tells: its array with the process and the exports.
    pub(super) fn of_reply(mut reply: Value) -> Result<Self, serde_json::Error> {
        let mut detail = reply["detail"].take();
        if let Some(detail) = detail.as_object_mut() {
            for beside in ["pid", "exports"] {
                detail.insert(beside.into(), reply[beside].take());
            }
            detail.retain(|_, value| !value.is_null());
        }
        serde_json::from_value(detail)
    }

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
        let uri = self.exports.iter().find_map(|uri| uri.strip_prefix("file://"))?;
        let mut bytes = Vec::new();
        let mut rest = uri.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                _ => byte,
            });
        }
        Some(OsString::from_vec(bytes).into())
    }

    /// Whether a word is in the array's state.
    #[must_use]
    pub fn is(&self, word: &str) -> bool {
        self.state.iter().any(|other| other == word)
    }

    /// Whether the array is neither degraded nor failed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is("degraded") && !self.is("failed")
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
    fn words_of_later_versions_are_kept() {
        let state: MemberState = serde_json::from_str("\"asleep\"").unwrap();
        assert_eq!(state, MemberState::Other("asleep".into()));
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"asleep\"");
        let state: MemberState = serde_json::from_str("\"in_sync\"").unwrap();
        assert_eq!((&state, state.as_str()), (&MemberState::InSync, "in_sync"));
    }

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
