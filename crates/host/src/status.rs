//! What a running array tells about itself.

use lapstrake_geometry::{Layout, Level, read_ahead, row_chunks};
use serde::Serialize;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// One shard's counts, written by its thread alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub requests: AtomicU64,
    pub member_reads: AtomicU64,
    pub member_writes: AtomicU64,
    pub member_read_sectors: AtomicU64,
    pub member_write_sectors: AtomicU64,
    pub full_writes: AtomicU64,
    pub rmw_writes: AtomicU64,
    pub rcw_writes: AtomicU64,
    pub recovered: AtomicU64,
    pub scratch_waits: AtomicU64,
    pub behind_writes: AtomicU64,
    pub cache_pages_used: AtomicU64,
    pub cache_bytes: AtomicU64,
    pub pool_bytes: AtomicU64,
    /// By [`MemberId`].
    ///
    /// [`MemberId`]: lapstrake_engine::MemberId
    pub members: Mutex<Vec<MemberWork>>,
}

/// Sums over all shards since the start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Work {
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
    pub bitmap_writes: u64,
    /// Writes answered, or to be answered, before write-mostly members have them.
    pub behind_writes: u64,
}

/// Memory of an array, bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemoryUse {
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
    /// What the whole process has in memory; 0 if the system does not tell.
    pub resident: u64,
}

/// See [`MemoryUse::resident`].
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    // SAFETY: asks for a constant.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or(0) * u64::try_from(page).unwrap_or(0)
}

impl Counters {
    /// Adds what this shard has sent to a member.
    pub(crate) fn add_member(&self, id: usize, work: &mut MemberWork) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = members.get(id) {
            work.reads += more.reads;
            work.writes += more.writes;
            work.read_bytes += more.read_bytes;
            work.written_bytes += more.written_bytes;
        }
    }

    pub(crate) fn add_to(&self, work: &mut Work, memory: &mut MemoryUse) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        work.requests += get(&self.requests);
        work.member_reads += get(&self.member_reads);
        work.member_writes += get(&self.member_writes);
        work.member_read_bytes += get(&self.member_read_sectors) * 512;
        work.member_write_bytes += get(&self.member_write_sectors) * 512;
        work.full_stripe_writes += get(&self.full_writes);
        work.read_modify_writes += get(&self.rmw_writes);
        work.reconstruct_writes += get(&self.rcw_writes);
        work.recovered += get(&self.recovered);
        work.stripe_cache_waits += get(&self.scratch_waits);
        work.behind_writes += get(&self.behind_writes);
        memory.stripe_cache_used += get(&self.cache_pages_used) * 4096;
        memory.stripe_cache += get(&self.cache_bytes);
        memory.buffers_used += get(&self.pool_bytes);
    }
}

/// What has been sent to one member since the start. Flushes count as writes of no bytes; superblocks and bitmap pages
/// do not count.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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

impl MemberWork {
    pub(crate) fn count(&mut self, is_read: bool, bytes: u64) {
        let (requests, sum) = match is_read {
            true => (&mut self.reads, &mut self.read_bytes),
            false => (&mut self.writes, &mut self.written_bytes),
        };
        *requests += 1;
        *sum += bytes;
    }
}

/// One member of a running array.
#[derive(Clone, Debug, Serialize)]
pub struct MemberDetail {
    /// As it was named.
    pub path: String,
    /// The file or device by its absolute path without links, and without a window.
    pub file: String,
    /// Its number in the superblocks.
    pub number: u32,
    /// Its slot.
    pub slot: Option<u16>,
    /// `in_sync`, `recovering`, `replacement`, `spare`, `journal` or `faulty`.
    pub state: &'static str,
    /// While it recovers: up to where, of its data.
    pub recovered_bytes: Option<u64>,
    /// Of its part of the array on record as bad: not read, until written.
    pub bad_block_bytes: u64,
    /// Read only where no other member has the data.
    pub write_mostly: bool,
    /// It is to be replaced as soon as there is a spare.
    pub awaits_replacement: bool,
    /// Opened with O_DIRECT.
    pub direct: bool,
    /// Its file was deleted while it was served: it is gone when the server ends.
    pub deleted: bool,
    /// What has been sent to it.
    pub work: MemberWork,
}

/// A recovery, resync, check or repair that runs. Bytes of a member; of the array for a RAID10 that is not
/// recovering.
#[derive(Clone, Debug, Serialize)]
pub struct SyncDetail {
    /// `recovery`, `resync`, `check` or `repair`.
    pub action: &'static str,
    /// How far it has come.
    pub done_bytes: u64,
    /// To where it goes.
    pub total_bytes: u64,
    /// A second, over the last seconds.
    pub speed_bytes: u64,
    /// Seconds to its end at this speed; none while it stands still.
    pub finish_s: Option<u64>,
    /// It stands still.
    pub frozen: bool,
    /// It waits for the part of the day in which checks run.
    pub awaits_window: bool,
}

/// How the last one ended.
#[derive(Clone, Debug, Serialize)]
pub struct LastSync {
    /// As in [`SyncDetail`].
    pub action: &'static str,
    /// `done`, `interrupted` or `failed`.
    pub result: &'static str,
}

/// A range of the array whose copies or parity differ.
#[derive(Clone, Debug, Serialize)]
pub struct Range {
    /// From the array's start.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Who is wrong, if that can be told.
    pub member: Option<String>,
}

/// What fits an array, for whoever puts something on it.
#[derive(Clone, Debug, Serialize)]
pub struct Tuning {
    /// What md gives its own device for it; for the kernel's device on top of this one.
    pub read_ahead_bytes: u64,
    /// Options of mkfs.ext4, for blocks of 4 KiB; none where the level has no chunks.
    pub mkfs_ext4: Option<String>,
    /// Options of mkfs.xfs; none too where it may refuse them: the array is too small, or its rows too large.
    pub mkfs_xfs: Option<String>,
}

impl Tuning {
    /// Below it mkfs.xfs may divide a striped device into allocation groups that are too small for its log, and
    /// refuse it.
    const XFS_MIN: u64 = 2 << 30;
    /// It refuses rows of chunks of so many bytes.
    const XFS_ROW: u64 = 1 << 31;

    pub(crate) fn of(
        level: Level,
        layout: Layout,
        raid_disks: u16,
        chunk_bytes: u64,
        array_bytes: u64,
    ) -> Self {
        let row = row_chunks(level, layout, raid_disks).filter(|&row| row > 0).map(u64::from);
        let aligned = row.filter(|_| chunk_bytes > 0 && chunk_bytes.is_multiple_of(4096));
        let ext4 = |row: u64| {
            let stride = chunk_bytes / 4096;
            format!("-E stride={stride},stripe_width={}", stride * row)
        };
        let xfs = |row: u64| format!("-d su={}k,sw={row}", chunk_bytes >> 10);
        Self {
            read_ahead_bytes: read_ahead(row.unwrap_or(0) * chunk_bytes),
            mkfs_ext4: aligned.map(ext4),
            mkfs_xfs: aligned
                .filter(|row| array_bytes >= Self::XFS_MIN && row * chunk_bytes < Self::XFS_ROW)
                .map(xfs),
        }
    }
}

/// Everything about a running array.
#[derive(Clone, Debug, Serialize)]
pub struct Detail {
    /// Its name here.
    pub name: String,
    /// Superblock version.
    pub version: String,
    /// The name in the superblocks.
    pub set_name: String,
    /// The array's UUID as mdadm prints it.
    pub uuid: String,
    /// The file that takes all writes, so that the members stay as they are.
    pub overlay: Option<String>,
    /// That file was deleted or spoiled: what was written is gone when the array stops.
    pub overlay_lost: bool,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Seconds since 1970.
    pub update_time: u64,
    /// As mdadm names it.
    pub level: String,
    /// As mdadm names it; none where the level has none.
    pub layout: Option<String>,
    /// Bytes; 0 where the level has none.
    pub chunk_bytes: u64,
    /// The array's logical block, bytes: the unit of requests ([`crate::Parts::block_bytes`]).
    pub block_bytes: u32,
    /// Bytes.
    pub array_bytes: u64,
    /// Bytes used of each member; 0 where all is used.
    pub component_bytes: u64,
    /// Slots.
    pub raid_devices: u16,
    /// `clean`, `active` or `read-only`, then perhaps `degraded` or `failed` (it lacks more than its level
    /// survives, or could not be written); `recovering`, `resyncing`, `checking`, `repairing` or
    /// `resyncing (PENDING)`; `frozen`.
    pub state: Vec<&'static str>,
    /// The number of the kernel's device for it, which a 0.90 superblock holds.
    pub preferred_minor: Option<u32>,
    /// Event counter.
    pub events: u64,
    /// As mdadm names it: `ppl`, `journal`, `bitmap`, `resync` or `none`.
    pub consistency_policy: &'static str,
    /// Dirty and all bits of the write-intent bitmap.
    pub bitmap_bits: Option<(u64, u64)>,
    /// Where it lies: `internal` or `external`.
    pub bitmap_place: Option<&'static str>,
    /// The file of an external one.
    pub bitmap_file: Option<String>,
    /// Writes that write-mostly members may lag behind.
    pub write_behind: u32,
    /// What a bit of it stands for.
    pub bitmap_chunk_bytes: Option<u64>,
    /// Chunks of a lockless bitmap in each state, in the order of `bitmap::ChunkState::ALL`; none if it is none.
    pub bitmap_states: Option<[u64; 8]>,
    /// From which byte on a resync is due.
    pub resync_from_bytes: Option<u64>,
    /// Whether a resync of what was written under a lockless bitmap will begin by itself.
    pub awaits_lazy_resync: bool,
    /// What is being mended.
    pub sync: Option<SyncDetail>,
    /// How the last synchronisation ended.
    pub last_sync: Option<LastSync>,
    /// What the last check, repair or resync found to differ, as md counts it.
    pub mismatch_sectors: u64,
    /// The first 16384 ranges of that.
    pub mismatches: Vec<Range>,
    /// How many ranges more there are.
    pub mismatches_omitted: u64,
    /// The least speed of recovery and resync beside requests, KiB a second of a member.
    pub sync_speed_min_kib: u64,
    /// The greatest at all times; 0: as fast as can be.
    pub sync_speed_max_kib: u64,
    /// The part of the local day in which checks and repairs run; none: all of it.
    pub check_window: Option<String>,
    /// Pages of 4 KiB of the stripe cache for each member, in each shard; 0: the level has none.
    pub stripe_cache_size: u32,
    /// The members: those in sync in the order of their slots, then those that recover, replacements, spares,
    /// the journal, and those that were added since the start.
    pub members: Vec<MemberDetail>,
    /// The queue's back end.
    pub backend: &'static str,
    /// Threads that serve it.
    pub shards: usize,
    /// Clients connected.
    pub clients: usize,
    /// What fits it.
    pub tuning: Tuning,
    /// What has been done since the start.
    pub work: Work,
    /// What memory it holds.
    pub memory: MemoryUse,
}
