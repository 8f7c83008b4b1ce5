//! What a system is made of.

use super::PAGE;
use crate::Nanos;
use crate::processor::Processor;

/// How files come to their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Block groups of 128 MiB with their own tables, an indirect block for each 4 MiB among the data, journal in the
    /// first group, data before their metadata (`data=ordered`), no barriers.
    Ext3,
    /// Extents, tables of sixteen groups together, delayed allocation, journal in the middle, barriers.
    Ext4,
}

/// A system.
#[derive(Clone, Debug)]
pub struct SystemConfig {
    /// Memory, in bytes.
    pub memory: u64,
    /// The part of it that a kernel of 32 bits has in its own address space, 896 MiB: only that counts for the
    /// thresholds (`highmem_is_dirtyable`).
    pub low_memory: u64,
    /// Per cent of memory that may be dirty before writers wait (`vm.dirty_ratio`).
    pub dirty_percent: u64,
    /// Per cent from where on write-back goes on (`vm.dirty_background_ratio`).
    pub background_percent: u64,
    /// Writers are slowed down from halfway between the two on (from Linux 3.1).
    pub paces_writers: bool,
    /// Pages of one file that write-back sends at least before it looks whether it is to go on.
    pub turn_pages: u64,
    /// It sends an eighth of the threshold, if that is more (from Linux 3.2).
    pub scales_turns: bool,
    /// Pages that are used often stay in the page cache while they are the fewer (from Linux 2.6.31); before, they
    /// last twice as long as others.
    pub keeps_active: bool,
    /// How old dirty pages get (`vm.dirty_expire_centisecs`).
    pub expire: Nanos,
    /// Between two looks for old ones (`vm.dirty_writeback_centisecs`), and two commits of a journal.
    pub interval: Nanos,
    /// Most that is read ahead on a device without stripes, in pages.
    pub read_ahead_pages: u64,
    /// The largest request that it makes, in blocks.
    pub request_blocks: u64,
    /// Requests in one direction that wait in a queue at once (`nr_requests`).
    pub requests: usize,
    /// A device's queue throttles writes (`blk-wbt`, from Linux 4.10).
    pub throttles_writes: bool,
    /// The file system.
    pub file_system: FileSystem,
    /// The processor.
    pub processor: Processor,
}

/// `MAX_WRITEBACK_PAGES`.
const TURN: u64 = 1024;
/// What ext4 makes of it (`s_max_writeback_mb_bump`).
const EXT4_TURN: u64 = 128 * 1024 * 1024 / PAGE;
/// Pages a second that a device is taken to write (`INIT_BW`).
const BANDWIDTH_PAGES: u64 = 100 * 1024 * 1024 / PAGE;

impl SystemConfig {
    /// Linux of a version (2.6.21 is 20621, 3.16 is 31600) as it is delivered.
    #[must_use]
    pub fn linux(version: u32, memory: u64, file_system: FileSystem, processor: Processor) -> Self {
        // mm/page-writeback.c: 40/10 until 2.6.21, 10/5 until 2.6.28, 20/10 since.
        let (dirty_percent, background_percent) = match version {
            0..20622 => (40, 10),
            20622..20629 => (10, 5),
            _ => (20, 10),
        };
        let turn_pages = match (version, file_system) {
            (20632..31100, FileSystem::Ext4) => EXT4_TURN,
            _ => TURN,
        };
        Self {
            memory,
            low_memory: memory,
            dirty_percent,
            background_percent,
            paces_writers: version >= 30100,
            turn_pages,
            scales_turns: version >= 30200,
            keeps_active: version >= 20631,
            expire: Nanos(30_000_000_000),
            interval: Nanos(5_000_000_000),
            read_ahead_pages: 128 * 1024 / PAGE,
            request_blocks: if version >= 40200 { 2560 } else { 1024 },
            requests: 128,
            throttles_writes: version >= 41000,
            file_system,
            processor,
        }
    }

    /// Pages that the page cache may hold: kernel and programs take 15 %.
    #[must_use]
    pub fn cache_pages(&self) -> u64 {
        (self.memory / 100 * 85 / PAGE).max(1024)
    }

    /// Pages of which the thresholds are per cent.
    fn dirtyable(&self) -> u64 {
        let low = Self { memory: self.low_memory.min(self.memory), ..self.clone() };
        low.cache_pages()
    }

    /// Dirty pages that `dirty_percent` comes to.
    fn threshold(&self) -> u64 {
        self.dirtyable() * self.dirty_percent / 100
    }

    /// Dirty pages at which writers wait.
    #[must_use]
    pub fn dirty_max(&self) -> u64 {
        let most = self.threshold();
        if self.paces_writers { (most + self.background()) / 2 } else { most }
    }

    /// Dirty pages from where on write-back goes on.
    #[must_use]
    pub fn background(&self) -> u64 {
        self.dirtyable() * self.background_percent / 100
    }

    /// Pages that a turn of a file has.
    pub(super) fn turn(&self) -> u64 {
        if !self.scales_turns {
            return self.turn_pages;
        }
        let scaled = (self.threshold() / 8).min(BANDWIDTH_PAGES / 2);
        self.turn_pages.max((scaled + TURN) / TURN * TURN)
    }

    pub(super) fn request_pages(&self) -> u64 {
        self.request_blocks * 512 / PAGE
    }
}
