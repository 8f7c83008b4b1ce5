//! The write-ahead log: what is in its buffers, and how it comes to the disks.
//!
//! Invariants: `flushed` <= `sent` <= `inserted`; one write and flush is under way at a time, whoever waits.

use super::SYSTEM_PAGES;
use crate::Nanos;
use crate::benchmark::pgbench::{PAGE, Server};
use crate::system::{FileId, PAGE as CACHE_PAGE, System};

/// Segments go round in so many pages of the page cache, at most: 1 GiB.
const ROUND: u64 = 1 << 18;
/// The writer of the log flushes once so many bytes have gathered (`wal_writer_flush_after`).
const GATHERED: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Writes,
    Flushes,
}

#[derive(Debug)]
pub(super) struct Log {
    file: FileId,
    pages: u64,
    inserted: u64,
    /// Up to where the write under way goes; what of it is still to be sent, in pages.
    sent: u64,
    rest: u64,
    flushed: u64,
    stage: Stage,
    buffers: u64,
    delay: Nanos,
    next_look: Nanos,
    now: Nanos,
}

impl Log {
    /// None if there is no room for it.
    pub fn new(system: &mut System, server: &Server) -> Option<Self> {
        let pages =
            ROUND.min(server.checkpoint_log * 2 / CACHE_PAGE).min(system.volume_pages() / 16);
        let pages = pages.max(SYSTEM_PAGES);
        Some(Self {
            file: system.create_read(pages)?,
            pages,
            inserted: 0,
            sent: 0,
            rest: 0,
            flushed: 0,
            stage: Stage::Idle,
            buffers: server.wal_buffers,
            delay: server.wal_writer_delay,
            next_look: system.now() + server.wal_writer_delay,
            now: system.now(),
        })
    }

    pub fn insert(&mut self, bytes: u64) {
        self.inserted += bytes;
    }

    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Whether a transaction may add its own; who finds no room writes the log.
    pub fn has_room(&self) -> bool {
        self.inserted - self.flushed < self.buffers
    }

    /// When the log is written though nobody waits for it.
    pub fn due(&self) -> Nanos {
        if self.stage == Stage::Idle && self.flushed < self.inserted {
            self.next_look
        } else {
            Nanos::MAX
        }
    }

    /// Begins to write and flush all there is, if somebody waits for it or it is due; false if not.
    pub fn start(&mut self, system: &mut System, waits: bool) -> bool {
        self.now = system.now();
        let waiting = self.inserted - self.flushed;
        let is_due = self.now >= self.next_look || waiting >= GATHERED || !self.has_room();
        if self.stage != Stage::Idle || waiting == 0 || !(waits || is_due) {
            return false;
        }
        self.next_look = self.now + self.delay;
        // Its last page is written again and again while it fills.
        let first = self.sent / PAGE;
        self.sent = self.inserted;
        self.rest = (self.sent.div_ceil(PAGE) - first) * SYSTEM_PAGES;
        self.stage = Stage::Writes;
        self.write(system);
        true
    }

    fn write(&mut self, system: &mut System) {
        let end = self.sent.div_ceil(PAGE) * SYSTEM_PAGES;
        let at = (end - self.rest) % self.pages;
        let pages = self.rest.min(self.pages - at).min(system.config().request_pages());
        self.rest -= pages;
        system.write_own(self.file, at..at + pages, 0);
    }

    /// What was sent has ended.
    pub fn go_on(&mut self, system: &mut System) {
        if self.stage == Stage::Writes {
            if self.rest > 0 {
                return self.write(system);
            }
            self.stage = Stage::Flushes;
            if system.flush_own(0) {
                return;
            }
        }
        self.stage = Stage::Idle;
        self.flushed = self.sent;
    }
}
