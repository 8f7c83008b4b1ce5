//! pgbench's own transaction (`tpcb-like`) on PostgreSQL: sizes of its tables, and what the server is told.
//!
//! A transaction changes one account, one teller, one branch, and writes a line of history. Pages are PostgreSQL's of
//! 8 KiB. A new table's pages are full: the first change of one puts the new row elsewhere, with an entry in the index,
//! and later ones find the room of the row that is dead (pruning; HOT).
//!
//! Source: src/bin/pgbench/pgbench.c, storage/page layout of PostgreSQL's documentation.

use crate::Nanos;

/// Bytes of a page.
pub const PAGE: u64 = 8192;
/// Accounts of a unit of scale.
pub const ACCOUNTS: u64 = 100_000;
/// Tellers of a unit of scale; there is one branch.
pub const TELLERS: u64 = 10;
/// Accounts on a page: rows of 128 bytes and their pointers of 4 in 8168.
const ROWS: u64 = 61;
/// Entries of a leaf of the index, nine tenths full: 16 bytes and pointers of 4.
const ENTRIES: u64 = 366;
/// Lines of history on a page: 48 bytes of row and padding, and pointers.
pub const LINES: u64 = 157;

/// Bytes of log of a transaction that changes its rows where they are, by
/// `pg_current_wal_insert_lsn` of PostgreSQL 15 without images.
pub const LOG: u64 = 350;
/// What the account's new row on another page adds, with its entry in the index.
pub const LOG_MOVED: u64 = 260;
/// An image of a full page.
pub const IMAGE: u64 = 8192;
/// Where the log of a new cluster with a database ends, by `pg_current_wal_insert_lsn` of PostgreSQL 15.
pub const FILLED: u64 = 26_407_564;
/// Bytes of log of a unit of scale that is filled, by the same.
pub const FILLED_UNIT: u64 = 12_880_412;
/// Bytes of a segment of the log.
pub const SEGMENT: u64 = 16 << 20;

/// What pgbench is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Pgbench {
    /// `-s`.
    pub scale: u64,
    /// `-c`.
    pub clients: usize,
    /// `-T`.
    pub time: Nanos,
    /// Processor time of a transaction, pgbench's part included.
    pub processor: Nanos,
    /// What of the configuration counts.
    pub server: Server,
}

/// What of a server's configuration counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// `shared_buffers`, in bytes.
    pub shared_buffers: u64,
    /// `wal_buffers`, in bytes.
    pub wal_buffers: u64,
    /// `synchronous_commit`: a commit waits until its log is on the disks.
    pub synchronous_commit: bool,
    /// `full_page_writes`: a page's first change after a checkpoint puts all of it into the log.
    pub full_page_writes: bool,
    /// `wal_writer_delay`: how often the log is written without commits that wait.
    pub wal_writer_delay: Nanos,
    /// `checkpoint_timeout`.
    pub checkpoint_timeout: Nanos,
    /// `checkpoint_completion_target`.
    pub checkpoint_completion_target: f64,
    /// Segments of the log after whose end a checkpoint begins, that in which the last one began counted as a whole:
    /// those of `max_wal_size` / (1 + `checkpoint_completion_target`), or `checkpoint_segments`.
    pub checkpoint_segments: u64,
    /// Checkpoints write pages in order and have them written back at once (from 9.6 on).
    pub sorts_checkpoints: bool,
    /// `bgwriter_lru_maxpages`; 0: there is no background writer.
    pub background_pages: usize,
}

impl Default for Server {
    /// PostgreSQL 9.6 and later as it is delivered.
    fn default() -> Self {
        Self {
            shared_buffers: 128 << 20,
            wal_buffers: 4 << 20,
            synchronous_commit: true,
            full_page_writes: true,
            wal_writer_delay: Nanos::from_ms(200.0),
            checkpoint_timeout: Nanos::from_ms(300e3),
            checkpoint_completion_target: 0.9,
            checkpoint_segments: 33,
            sorts_checkpoints: true,
            background_pages: 100,
        }
    }
}

/// Pages of the accounts as they are filled.
#[must_use]
pub fn heap_pages(scale: u64) -> u64 {
    (scale * ACCOUNTS).div_ceil(ROWS)
}

/// Leaves of the accounts' index.
#[must_use]
pub fn index_pages(scale: u64) -> u64 {
    (scale * ACCOUNTS).div_ceil(ENTRIES)
}

/// On which page of the accounts one is, and on which leaf its entry.
#[must_use]
pub fn places(account: u64) -> (u64, u64) {
    (account / ROWS, account / ENTRIES)
}

/// Rows of an account's page.
#[must_use]
pub fn rows() -> u64 {
    ROWS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of PostgreSQL 15: `pgbench -i -s 1` has 1640 pages of accounts and 276 of its index, two of which are no leaves.
    #[test]
    fn tables_are_as_large_as_postgresqls() {
        assert_eq!((heap_pages(1), index_pages(1)), (1640, 274));
        let mib = (heap_pages(1000) + index_pages(1000)) * PAGE / (1 << 20);
        assert!((14_900..15_000).contains(&mib), "{mib}");
    }
}
