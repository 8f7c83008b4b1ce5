//! What a running array tells about itself.

use lapstrake_control::{MemberWork, MemoryDetail, TuningDetail, WorkDetail};
use lapstrake_geometry::{Layout, Level, read_ahead, row_chunks};
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

/// See [`MemoryDetail::resident`].
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

    pub(crate) fn add_to(&self, work: &mut WorkDetail, memory: &mut MemoryDetail) {
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

/// Counts what is sent to one member.
pub(crate) fn count_io(work: &mut MemberWork, is_read: bool, bytes: u64) {
    let (requests, sum) = match is_read {
        true => (&mut work.reads, &mut work.read_bytes),
        false => (&mut work.writes, &mut work.written_bytes),
    };
    *requests += 1;
    *sum += bytes;
}

/// Below it mkfs.xfs may divide a striped device into allocation groups that are too small for its log, and refuse it.
const XFS_MIN: u64 = 2 << 30;
/// It refuses rows of chunks of so many bytes.
const XFS_ROW: u64 = 1 << 31;

/// What fits an array: md's read-ahead of its own device, and for blocks of 4 KiB the options of mkfs. None of mkfs.xfs
/// where that may refuse them: the array is too small, or its rows too large.
pub(crate) fn tuning(
    level: Level,
    layout: Layout,
    raid_disks: u16,
    chunk_bytes: u64,
    array_bytes: u64,
) -> TuningDetail {
    let row = row_chunks(level, layout, raid_disks).filter(|&row| row > 0).map(u64::from);
    let aligned = row.filter(|_| chunk_bytes > 0 && chunk_bytes.is_multiple_of(4096));
    let ext4 = |row: u64| {
        let stride = chunk_bytes / 4096;
        format!("-E stride={stride},stripe_width={}", stride * row)
    };
    let xfs = |row: u64| format!("-d su={}k,sw={row}", chunk_bytes >> 10);
    TuningDetail {
        read_ahead_bytes: read_ahead(row.unwrap_or(0) * chunk_bytes),
        mkfs_ext4: aligned.map(ext4),
        mkfs_xfs: aligned
            .filter(|row| array_bytes >= XFS_MIN && row * chunk_bytes < XFS_ROW)
            .map(xfs),
    }
}
