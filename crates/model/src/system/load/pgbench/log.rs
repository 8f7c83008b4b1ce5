//! The write-ahead log: what is in its buffers, who writes and flushes it, and when it is on the disks.
//!
//! Who writes it holds a lock (`WALWriteLock`) until that is flushed. A commit that finds the lock free flushes all that is
//! in the log by then; one that does not looks again when it is free: it is done if its record was flushed, or else the
//! first of those that wait flushes for all of them. The log's own writer looks for complete pages every `wal_writer_delay`
//! after its last work, or at once if much has gathered, has its turn when no commit wants the lock, and goes no further
//! than to the end of the ring that the buffers are. Buffers that are written are free for more of the log once the flush
//! has ended, too.
//!
//! Invariants: `flushed` <= `sent` <= `inserted`; one write and flush is under way at a time.
//!
//! Source: `XLogFlush`, `XLogBackgroundFlush`, `AdvanceXLInsertBuffer` of src/backend/access/transam/xlog.c, `LWLockRelease`
//! of storage/lmgr/lwlock.c, read for what they do.

use super::SYSTEM_PAGES;
use crate::Nanos;
use crate::benchmark::pgbench::{FILLED, FILLED_UNIT, PAGE, Pgbench, SEGMENT};
use crate::system::{FileId, PAGE as CACHE_PAGE, System};

/// Segments go round in so many pages of the page cache, at most: 1 GiB.
const ROUND: u64 = 1 << 18;
/// The log's writer does not sleep once so many bytes of commits that do not wait have gathered
/// (`wal_writer_flush_after`).
const GATHERED: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Writes,
    Flushes,
}

/// The log's writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// Until then.
    Sleeps(Nanos),
    /// It wants the log flushed up to there, and waits for the lock.
    Wants(u64),
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
    /// Up to where buffers are free again.
    freed: u64,
    stage: Stage,
    writer: Writer,
    buffers: u64,
    delay: Nanos,
    commits_wait: bool,
    /// A commit that does not wait has seen so much gathered that the log's writer is to look once more.
    is_woken: bool,
}

impl Log {
    /// The log after the tables were filled; none if there is no room for it.
    pub fn new(system: &mut System, load: &Pgbench) -> Option<Self> {
        let server = &load.server;
        let begun = (FILLED + FILLED_UNIT * load.scale) % SEGMENT;
        let log = server.checkpoint_segments * SEGMENT * 2;
        let pages = ROUND.min(log / CACHE_PAGE).min(system.volume_pages() / 16);
        let pages = pages.max(SYSTEM_PAGES);
        Some(Self {
            file: system.create_read(pages)?,
            pages,
            inserted: begun,
            sent: begun,
            rest: 0,
            flushed: begun,
            freed: begun,
            stage: Stage::Idle,
            writer: Writer::Sleeps(system.now() + server.wal_writer_delay),
            buffers: server.wal_buffers,
            delay: server.wal_writer_delay,
            commits_wait: server.synchronous_commit,
            is_woken: false,
        })
    }

    pub fn insert(&mut self, bytes: u64) {
        self.inserted += bytes;
    }

    /// A commit that does not wait. Once so much has gathered it wakes the log's writer: that looks at once, or when it has
    /// done what it is at.
    pub fn commit(&mut self) {
        if self.inserted - self.flushed < GATHERED {
            return;
        }
        match &mut self.writer {
            Writer::Sleeps(until) => *until = Nanos::ZERO,
            Writer::Wants(_) | Writer::Flushes => self.is_woken = true,
        }
    }

    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// The segment that is being written.
    pub fn segment(&self) -> u64 {
        self.sent / SEGMENT
    }

    /// Whether a transaction may add its own. Who finds no room writes the oldest page to the page cache, which takes the
    /// lock and no flush.
    pub fn has_room(&mut self) -> bool {
        if self.stage == Stage::Idle {
            self.freed = self.freed.max((self.inserted + PAGE).saturating_sub(self.buffers));
        }
        self.inserted - self.freed < self.buffers
    }

    /// When the log's writer looks next.
    pub fn due(&self) -> Nanos {
        match self.writer {
            Writer::Sleeps(until) if self.flushed < self.inserted => until,
            _ => Nanos::MAX,
        }
    }

    /// Begins to write and flush, if a commit waits for it or the log's writer wants it; false if not.
    pub fn start(&mut self, system: &mut System, waits: bool) -> bool {
        self.look(system.now());
        if self.stage != Stage::Idle || self.flushed == self.inserted {
            return false;
        }
        let to = match self.writer {
            _ if waits => self.inserted,
            Writer::Wants(to) if to > self.flushed => {
                self.writer = Writer::Flushes;
                to.min((self.flushed / self.buffers + 1) * self.buffers)
            }
            Writer::Wants(_) => {
                self.writer = self.rests(system.now());
                return true;
            }
            Writer::Sleeps(_) | Writer::Flushes => return false,
        };
        // Its last page is written again and again while it fills.
        let first = self.flushed / PAGE;
        self.sent = to;
        self.rest = (to.div_ceil(PAGE) - first) * SYSTEM_PAGES;
        self.stage = Stage::Writes;
        self.write(system);
        true
    }

    /// The log's writer looks, if it is time: at complete pages, or without any at commits that do not wait.
    fn look(&mut self, now: Nanos) {
        let Writer::Sleeps(until) = self.writer else { return };
        if now < until {
            return;
        }
        let complete = self.inserted / PAGE * PAGE;
        self.writer = match complete > self.flushed {
            true => Writer::Wants(complete),
            false if !self.commits_wait && self.inserted > self.flushed => {
                Writer::Wants(self.inserted)
            }
            false => Writer::Sleeps(now + self.delay),
        };
    }

    fn rests(&mut self, now: Nanos) -> Writer {
        let delay = if std::mem::take(&mut self.is_woken) { Nanos::ZERO } else { self.delay };
        Writer::Sleeps(now + delay)
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
        self.freed = self.freed.max(self.flushed);
        if self.writer == Writer::Flushes {
            self.writer = self.rests(system.now());
        }
    }
}
