//! Where files lie: what ext3 and ext4 do with a file that is written in order on a fresh file system.
//!
//! Invariants: no block belongs to two; runs are by rising page. What it does not do: directories, files
//! that grow in turns.

use super::config::{FileSystem, SystemConfig};
use std::ops::Range;

/// A file of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub(super) usize);

/// What tells where blocks are: indirect blocks.
pub(super) const META: FileId = FileId(0);

/// Blocks of a block group.
const GROUP: u64 = 32768;
/// A group's two bitmaps and its inodes (one for 16 KiB, 256 bytes each).
const TABLES: u64 = 2 + 512;
/// Groups whose tables are together (`flex_bg`).
const FLEX: u64 = 16;
/// Blocks that an inode names itself, and that an indirect block names.
const DIRECT: u64 = 12;
const INDIRECT: u64 = 1024;

/// Pages that are consecutive on the volume.
#[derive(Clone, Copy, Debug)]
struct Run {
    page: u64,
    at: u64,
    pages: u64,
}

/// Where a file lies, in blocks of the file system.
#[derive(Clone, Debug)]
pub(super) struct Place {
    runs: Vec<Run>,
    pages: u64,
    /// The first of its indirect blocks, in pages of [`META`]; none if extents tell where it is.
    meta: Option<u64>,
    /// Pages that have been written once.
    pub allocated_to: u64,
    /// One past its last block.
    end: u64,
}

/// Consecutive blocks from a page on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// One past the last page.
    pub end: u64,
    /// The first one's block.
    pub at: u64,
}

/// The journal's blocks.
pub(super) fn journal(config: &SystemConfig, total: u64) -> Range<u64> {
    // mke2fs: by the size of the file system.
    let blocks = match total {
        ..32_768 => 1024,
        ..262_144 => 4096,
        ..524_288 => 8192,
        ..1_048_576 => 16_384,
        _ => 32_768,
    };
    let start = match config.file_system {
        FileSystem::Ext3 => TABLES,
        FileSystem::Ext4 => total / 2 / GROUP * GROUP + FLEX * TABLES,
    };
    start.min(total.saturating_sub(blocks))..(start + blocks).min(total)
}

impl Place {
    /// What every system has: room for the names of indirect blocks.
    pub fn reserved(config: &SystemConfig, total: u64) -> Vec<Self> {
        let pages = match config.file_system {
            FileSystem::Ext3 => total / INDIRECT + 64,
            FileSystem::Ext4 => 64,
        };
        vec![Self { runs: Vec::new(), pages, meta: None, allocated_to: pages, end: 0 }]
    }

    /// The volume itself.
    pub fn raw(pages: u64) -> Self {
        let runs = vec![Run { page: 0, at: 0, pages }];
        Self { runs, pages, meta: None, allocated_to: pages, end: 0 }
    }

    /// A new file behind those that are there, and its indirect blocks.
    pub fn file(
        config: &SystemConfig,
        total: u64,
        pages: u64,
        meta: &mut Self,
        after: u64,
    ) -> Option<Self> {
        let mut allocator = Allocator { config, total, journal: journal(config, total), at: after };
        let is_mapped = config.file_system == FileSystem::Ext3;
        let first_meta = is_mapped.then_some(meta.runs.len() as u64);
        let mut runs: Vec<Run> = Vec::new();
        let mut page = 0;
        while page < pages {
            let names = is_mapped && page >= DIRECT && (page - DIRECT).is_multiple_of(INDIRECT);
            if names {
                let at = allocator.take(1)?.start;
                let page = meta.runs.len() as u64;
                meta.runs.push(Run { page, at, pages: 1 });
            }
            let most = match page {
                _ if !is_mapped => pages - page,
                0 => DIRECT,
                _ => INDIRECT - (page - DIRECT) % INDIRECT,
            };
            let got = allocator.take(most.min(pages - page))?;
            let blocks = got.end - got.start;
            match runs.last_mut() {
                Some(run) if run.at + run.pages == got.start => run.pages += blocks,
                _ => runs.push(Run { page, at: got.start, pages: blocks }),
            }
            page += blocks;
        }
        Some(Self { runs, pages, meta: first_meta, allocated_to: 0, end: allocator.at })
    }

    /// One past the last block in use.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// What is consecutive from a page on, at most to `end`.
    pub fn run(&self, page: u64, end: u64) -> Found {
        let index = self.runs.partition_point(|run| run.page <= page) - 1;
        let run = self.runs[index];
        Found { end: end.min(run.page + run.pages), at: run.at + (page - run.page) }
    }

    /// The page of [`META`] that tells where a page is.
    pub fn meta_of(&self, page: u64) -> Option<(FileId, u64)> {
        let first = self.meta?;
        let index = page.checked_sub(DIRECT)? / INDIRECT;
        Some((META, first + index))
    }

    /// Up to which page one page of [`META`] tells.
    pub fn meta_end(&self, page: u64) -> u64 {
        match (self.meta, page.checked_sub(DIRECT)) {
            (None, _) => u64::MAX,
            (_, None) => DIRECT,
            (_, Some(index)) => (index / INDIRECT + 1) * INDIRECT + DIRECT,
        }
    }
}

struct Allocator<'a> {
    config: &'a SystemConfig,
    total: u64,
    journal: Range<u64>,
    at: u64,
}

impl Allocator<'_> {
    /// Consecutive free blocks, at most so many.
    fn take(&mut self, most: u64) -> Option<Range<u64>> {
        self.skip();
        let every = match self.config.file_system {
            FileSystem::Ext3 => GROUP,
            FileSystem::Ext4 => GROUP * FLEX,
        };
        let mut end = (self.at / every + 1) * every;
        if self.journal.start > self.at {
            end = end.min(self.journal.start);
        }
        let end = end.min(self.total).min(self.at + most);
        if end <= self.at {
            return None;
        }
        let got = self.at..end;
        self.at = end;
        Some(got)
    }

    /// Goes on to the next block that is not a table's or the journal's.
    fn skip(&mut self) {
        loop {
            let (every, tables) = match self.config.file_system {
                FileSystem::Ext3 => (GROUP, TABLES),
                FileSystem::Ext4 => (GROUP * FLEX, TABLES * FLEX),
            };
            if self.at % every < tables {
                self.at = self.at / every * every + tables;
            }
            if !self.journal.contains(&self.at) {
                return;
            }
            self.at = self.journal.end;
        }
    }
}
