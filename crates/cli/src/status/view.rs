//! What a server tells about its array, as far as it is printed.

use lapstrake_geometry::{Layout, Level};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One array; fields as in `lapstrake_host::Detail`.
#[derive(Debug, Deserialize)]
pub struct View {
    pub name: String,
    pub version: String,
    pub set_name: String,
    pub uuid: String,
    /// The file that takes all writes.
    #[serde(default)]
    pub overlay: Option<String>,
    #[serde(default)]
    pub overlay_lost: bool,
    pub creation_time: u64,
    pub update_time: u64,
    pub level: String,
    pub layout: Option<String>,
    pub chunk_bytes: u64,
    /// The unit of requests.
    #[serde(default)]
    pub block_bytes: u32,
    pub array_bytes: u64,
    pub component_bytes: u64,
    pub raid_devices: u16,
    pub state: Vec<String>,
    pub preferred_minor: Option<u32>,
    pub events: u64,
    pub consistency_policy: String,
    pub bitmap_bits: Option<(u64, u64)>,
    pub bitmap_states: Option<[u64; 8]>,
    #[serde(default)]
    pub awaits_lazy_resync: bool,
    pub bitmap_place: Option<String>,
    pub bitmap_file: Option<String>,
    pub write_behind: u32,
    pub members: Vec<MemberView>,
    pub backend: String,
    pub shards: usize,
    pub clients: usize,
    pub work: WorkView,
    pub memory: MemoryView,
    pub stripe_cache_size: u32,
    pub tuning: TuningView,
    /// What runs now, or is frozen half done.
    #[serde(default)]
    pub sync: Option<SyncView>,
    /// What ran last.
    #[serde(default)]
    pub last_sync: Option<LastSyncView>,
    /// Of the last or running check or repair.
    #[serde(default)]
    pub mismatch_sectors: u64,
    #[serde(default)]
    pub mismatches: Vec<MismatchView>,
    /// Ranges besides.
    #[serde(default)]
    pub mismatches_omitted: u64,
    pub sync_speed_min_kib: u64,
    pub sync_speed_max_kib: u64,
    /// The part of the day in which checks run.
    #[serde(default)]
    pub check_window: Option<String>,
    #[serde(default)]
    pub pid: Option<u32>,
    #[serde(default)]
    pub exports: Vec<String>,
}

/// One member.
#[derive(Debug, Deserialize)]
pub struct MemberView {
    pub path: String,
    /// By its absolute path.
    #[serde(default)]
    pub file: PathBuf,
    /// The array that it is, if another server's.
    #[serde(default)]
    pub array: Option<Box<View>>,
    #[serde(default)]
    pub recovered_bytes: Option<u64>,
    pub number: u32,
    pub slot: Option<u16>,
    pub state: String,
    /// On record as bad.
    #[serde(default)]
    pub bad_block_bytes: u64,
    pub write_mostly: bool,
    pub awaits_replacement: bool,
    pub direct: bool,
    /// Its file, while it was served.
    #[serde(default)]
    pub deleted: bool,
}

/// A sync action.
#[derive(Debug, Deserialize)]
pub struct SyncView {
    pub action: String,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// A second.
    pub speed_bytes: u64,
    pub finish_s: Option<u64>,
    pub frozen: bool,
    /// Until the part of the day in which checks run.
    #[serde(default)]
    pub awaits_window: bool,
}

/// How a sync action ended.
#[derive(Debug, Deserialize, Serialize)]
pub struct LastSyncView {
    pub action: String,
    pub result: String,
}

/// A range of the array whose redundancy does not agree with its data.
#[derive(Debug, Deserialize, Serialize)]
pub struct MismatchView {
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// Who disagrees, if that can be told.
    pub member: Option<String>,
}

impl SyncView {
    /// How much is done.
    pub fn per_mille(&self) -> u64 {
        let total = u128::from(self.total_bytes.max(1));
        // At most 1000.
        (u128::from(self.done_bytes) * 1000 / total).min(1000) as u64
    }

    /// When it will be done, if that can be told, and how fast it is; in md's words.
    pub fn pace(&self) -> String {
        let finish = self.finish_s.map(|s| format!("finish={}.{}min ", s / 60, s % 60 / 6));
        format!("{}speed={}K/sec", finish.unwrap_or_default(), self.speed_bytes >> 10)
    }
}

/// Sums since the start.
#[derive(Debug, Deserialize)]
pub struct WorkView {
    pub requests: u64,
    pub member_reads: u64,
    pub member_writes: u64,
    pub member_read_bytes: u64,
    pub member_write_bytes: u64,
    pub full_stripe_writes: u64,
    pub read_modify_writes: u64,
    pub reconstruct_writes: u64,
    pub recovered: u64,
    pub stripe_cache_waits: u64,
}

/// Memory, bytes.
#[derive(Debug, Deserialize)]
pub struct MemoryView {
    pub stripe_cache: u64,
    pub stripe_cache_used: u64,
    pub buffers: u64,
    pub buffers_used: u64,
    pub locked: bool,
    /// Zero if it is not known.
    #[serde(default)]
    pub resident: u64,
}

/// What fits the array.
#[derive(Debug, Deserialize)]
pub struct TuningView {
    pub read_ahead_bytes: u64,
    pub mkfs_ext4: Option<String>,
    pub mkfs_xfs: Option<String>,
}

impl View {
    /// The level.
    pub fn level(&self) -> Option<Level> {
        self.level.parse().ok()
    }

    /// The layout.
    pub fn layout(&self) -> Option<Layout> {
        Layout::from_name(self.level()?, self.layout.as_deref()?).ok()
    }

    /// The file that it is served as, if it is.
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
    pub fn is(&self, word: &str) -> bool {
        self.state.iter().any(|other| other == word)
    }

    /// Whether the array is neither degraded nor failed.
    pub fn is_whole(&self) -> bool {
        !self.is("degraded") && !self.is("failed")
    }

    /// For each slot the member in sync.
    pub fn slots(&self) -> Vec<Option<&MemberView>> {
        let in_sync = |slot| {
            let holds = |m: &&MemberView| m.slot == Some(slot) && m.state == "in_sync";
            self.members.iter().find(holds)
        };
        (0..self.raid_devices).map(in_sync).collect()
    }

    /// What a check or repair that could run waits for.
    pub fn waits(&self) -> Option<String> {
        self.sync.as_ref().filter(|sync| sync.awaits_window && !sync.frozen)?;
        Some(format!("waits for check_window {}", self.check_window.as_deref().unwrap_or_default()))
    }

    /// Members of use with something on record as bad.
    pub fn with_bad_blocks(&self) -> impl Iterator<Item = &MemberView> {
        self.members.iter().filter(|member| member.bad_block_bytes > 0 && member.state != "faulty")
    }

    /// Members in a state.
    pub fn count(&self, state: &str) -> usize {
        self.members.iter().filter(|member| member.state == state).count()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A RAID5 of three and a spare as its server tells it, with some fields changed.
    pub fn raid5(changes: Value) -> View {
        let sample = include_str!("../../tests/cli/support/detail.json");
        let mut view: Value = serde_json::from_str(sample).unwrap();
        for (field, value) in changes.as_object().unwrap() {
            view[field] = value.clone();
        }
        serde_json::from_value(view).unwrap()
    }

    /// A sync action 12.6 per cent done, of 64512 KiB.
    pub fn sync(action: &str, frozen: bool) -> Value {
        json!({
            "action": action, "done_bytes": 8144 << 10, "total_bytes": 64512 << 10,
            "speed_bytes": 33440 << 10, "finish_s": 7650, "frozen": frozen,
        })
    }

    #[test]
    fn a_files_name_is_read_from_its_uri() {
        let file = |uris: Value| raid5(json!({ "exports": uris })).file();
        let uris = json!(["nbd+unix:///data?socket=/x.nbd", "file:///a%20b/data%25.raw"]);
        assert_eq!(file(uris), Some("/a b/data%.raw".into()));
        assert_eq!(file(json!(["nbd://localhost:10809/data"])), None);
    }

    #[test]
    fn progress_is_told_however_odd_the_numbers() {
        let view = |done: u64, total: u64| SyncView {
            action: "check".into(),
            done_bytes: done,
            total_bytes: total,
            speed_bytes: 0,
            finish_s: None,
            frozen: false,
            awaits_window: false,
        };
        for (done, total, per_mille) in
            [(0, 0, 0), (999, 1000, 999), (2, 1, 1000), (u64::MAX, u64::MAX, 1000)]
        {
            assert_eq!(view(done, total).per_mille(), per_mille);
        }
        assert_eq!(view(0, 1).pace(), "speed=0K/sec");
    }
}
