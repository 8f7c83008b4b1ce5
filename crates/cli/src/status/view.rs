//! What a server tells about its array, as far as it is printed.

use lapstrake_geometry::{Layout, Level};
use serde::Deserialize;

/// One array; fields as in `lapstrake_host::Detail`.
#[derive(Debug, Deserialize)]
pub struct View {
    pub name: String,
    pub version: String,
    pub set_name: String,
    pub uuid: String,
    pub creation_time: u64,
    pub update_time: u64,
    pub level: String,
    pub layout: Option<String>,
    pub chunk_bytes: u64,
    pub array_bytes: u64,
    pub component_bytes: u64,
    pub raid_devices: u16,
    pub state: Vec<String>,
    pub preferred_minor: Option<u32>,
    pub events: u64,
    pub consistency_policy: String,
    pub bitmap_bits: Option<(u64, u64)>,
    pub bitmap_place: Option<String>,
    pub members: Vec<MemberView>,
    pub backend: String,
    pub shards: usize,
    pub clients: usize,
    pub work: WorkView,
    pub memory: MemoryView,
    #[serde(default)]
    pub pid: Option<u32>,
    #[serde(default)]
    pub exports: Vec<String>,
}

/// One member.
#[derive(Debug, Deserialize)]
pub struct MemberView {
    pub path: String,
    pub number: u32,
    pub slot: Option<u16>,
    pub state: String,
    pub write_mostly: bool,
    pub direct: bool,
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

    /// Whether the array is neither degraded nor failed.
    pub fn is_whole(&self) -> bool {
        !self.state.iter().any(|word| word == "degraded" || word == "failed")
    }

    /// For each slot the member in sync.
    pub fn slots(&self) -> Vec<Option<&MemberView>> {
        let in_sync = |slot| {
            let holds = |m: &&MemberView| m.slot == Some(slot) && m.state == "in_sync";
            self.members.iter().find(holds)
        };
        (0..self.raid_devices).map(in_sync).collect()
    }

    /// Members in a state.
    pub fn count(&self, state: &str) -> usize {
        self.members.iter().filter(|member| member.state == state).count()
    }
}
