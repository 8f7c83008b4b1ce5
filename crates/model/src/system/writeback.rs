//! Write-back: what goes to the volume when, and the journal.
//!
//! Dirty pages go in the order of their place in the file, round and round, while more than the background
//! threshold is dirty, when they are old, or when someone waits for them; files take turns, and a turn that was begun
//! goes on to its end, whatever the threshold. Every interval the journal commits what changed; ext3 writes new data
//! out before that.
//!
//! Source: mm/page-writeback.c and fs/fs-writeback.c of 2.6.21 and 3.16, fs/jbd.

use super::config::{FileSystem, SystemConfig};
use super::files::{self, FileId, META};
use super::throttle::Urgency;
use super::{PAGE_BLOCKS, Purpose, System};
use crate::Nanos;
use crate::request::Op;
use crate::system::cache::Cache;
use std::ops::Range;

const SECOND: Nanos = Nanos(1_000_000_000);

/// A commit's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    Idle,
    Blocks,
    FirstFlush,
    Record,
}

/// What write-back is at.
#[derive(Clone, Debug)]
pub(super) struct Writeback {
    /// Where each file's next turn begins.
    cursors: Vec<u64>,
    file: usize,
    turn_left: u64,
    /// Pages to write whatever the thresholds say.
    aged: u64,
    /// Since when something has been dirty.
    dirty_since: Option<Nanos>,
    next_look: Nanos,
    sync: Option<FileId>,
    commit: Commit,
    /// Blocks that the next commit writes, and where its record is.
    journal_at: u64,
    /// Something changed since the last commit.
    has_changed: bool,
    /// Whose time of change is on its way to the journal, and which.
    changed_at: Option<(FileId, u64)>,
    /// New blocks were given out since the last commit.
    has_grown: bool,
    /// Indirect blocks changed since then.
    changed_meta: Vec<u64>,
}

impl Writeback {
    pub fn new(config: &SystemConfig, now: Nanos) -> Self {
        Self {
            cursors: Vec::new(),
            file: 0,
            turn_left: 0,
            aged: 0,
            dirty_since: None,
            next_look: now + config.interval,
            sync: None,
            commit: Commit::Idle,
            journal_at: 0,
            has_changed: false,
            changed_at: None,
            has_grown: false,
            changed_meta: Vec::new(),
        }
    }

    pub fn sync(&mut self, file: FileId) {
        self.sync = Some(file);
    }

    pub fn end_sync(&mut self) {
        self.sync = None;
    }

    pub fn is_synced(&self, cache: &Cache, file: FileId) -> bool {
        cache.unwritten_of(file) == 0
    }

    pub fn is_committing(&self) -> bool {
        self.commit != Commit::Idle
    }

    /// From when on something is looked after that is due at intervals.
    pub fn next_look(&self) -> Nanos {
        self.next_look
    }

    pub fn next_event(&self, cache: &Cache) -> Option<Nanos> {
        let has_work = self.has_changed || cache.dirty() > 0;
        has_work.then_some(self.next_look)
    }
}

impl System {
    /// A page is written in memory.
    pub(super) fn dirty(&mut self, file: FileId, page: u64) {
        self.cache.make_dirty(file, page);
        let place = &mut self.places[file.0];
        let writeback = &mut self.writeback;
        // Of what is written over only the file's time changes; ext3's has seconds.
        let time = (file, self.now.0 / SECOND.0);
        let is_later = writeback.changed_at.replace(time) != Some(time);
        writeback.has_changed |= is_later || self.config.file_system != FileSystem::Ext3;
        writeback.dirty_since.get_or_insert(self.now);
        if page >= place.allocated_to {
            place.allocated_to = page + 1;
            (writeback.has_changed, writeback.has_grown) = (true, true);
            if let Some((_, meta)) = place.meta_of(page)
                && writeback.changed_meta.last() != Some(&meta)
            {
                writeback.changed_meta.push(meta);
                // It is made, not read.
                let _ = self.cache.make_dirty(META, meta);
                self.cache.activate(META, meta);
                self.cache.begin_write(META, meta..meta + 1);
                self.cache.end_write(META, meta..meta + 1);
            }
        }
    }

    /// The process waits while too much is dirty.
    pub(super) fn throttle(&mut self) {
        self.pump();
        let most = self.config.dirty_max();
        if self.cache.unwritten() > most {
            self.is_full = true;
            self.wait_until(|system| system.cache.unwritten() <= most);
            self.is_full = false;
            self.compute(self.config.processor.switch);
        }
    }

    /// What is due at intervals.
    pub(super) fn writeback_tick(&mut self) {
        if self.now < self.writeback.next_look {
            return;
        }
        self.writeback.next_look = self.now + self.config.interval;
        let since = self.writeback.dirty_since;
        let is_old = since.is_some_and(|since| self.now.since(since) >= self.config.expire);
        let is_ordered = self.config.file_system == FileSystem::Ext3 && self.writeback.has_grown;
        if is_old || is_ordered {
            self.writeback.aged = self.cache.dirty();
            if is_old {
                self.writeback.dirty_since = Some(self.now);
            }
        }
        if self.writeback.has_changed {
            self.commit();
        }
        self.pump();
    }

    /// Sends what is due, as far as the queue has room.
    pub(super) fn pump(&mut self) {
        while self.writes_out < self.writes_max {
            let is_over = self.cache.dirty() > self.config.background();
            let is_due = is_over || self.writeback.aged > 0 || self.writeback.turn_left > 0;
            let file = match self.writeback.sync {
                Some(file) if self.cache.dirty_of(file) > 0 => Some(file),
                _ if is_due => self.next_file(),
                _ => None,
            };
            let Some(file) = file else { return };
            let is_waited = self.writeback.sync == Some(file);
            let urgency = if is_waited { Urgency::Waited } else { Urgency::Sent };
            if !self.throttle.admits(urgency, self.is_full) || !self.write_run(file) {
                return;
            }
        }
    }

    /// Whose turn it is: the next file with dirty pages when a turn is over.
    fn next_file(&mut self) -> Option<FileId> {
        let count = self.places.len();
        let current = FileId(self.writeback.file % count);
        if self.writeback.turn_left > 0 && self.cache.dirty_of(current) > 0 {
            return Some(current);
        }
        let next = (1..=count).map(|step| FileId((current.0 + step) % count));
        let next = next.into_iter().find(|&file| self.cache.dirty_of(file) > 0)?;
        self.writeback.file = next.0;
        self.writeback.turn_left = self.config.turn();
        Some(next)
    }

    fn write_run(&mut self, file: FileId) -> bool {
        self.writeback.cursors.resize(self.places.len(), 0);
        let from = self.writeback.cursors[file.0];
        let most = self.config.request_pages();
        let run = self.cache.dirty_run(file, from, most);
        let Some(run) = run.or_else(|| self.cache.dirty_run(file, 0, most)) else { return false };
        let pages = self.send(file, run);
        self.writeback.cursors[file.0] = pages.end;
        let count = pages.end - pages.start;
        if file.0 == self.writeback.file {
            let left = self.writeback.turn_left.saturating_sub(count);
            self.writeback.turn_left = if self.cache.dirty_of(file) > 0 { left } else { 0 };
        }
        true
    }

    /// Sends dirty pages as far as they are consecutive on the volume; which.
    fn send(&mut self, file: FileId, run: Range<u64>) -> Range<u64> {
        let found = self.places[file.0].run(run.start, run.end);
        let pages = run.start..found.end;
        let count = pages.end - pages.start;
        self.writeback.aged = self.writeback.aged.saturating_sub(count);
        self.cache.begin_write(file, pages.clone());
        if self.cache.dirty() == 0 {
            self.writeback.dirty_since = None;
            self.writeback.aged = 0;
        }
        let (lba, blocks) = (found.at * PAGE_BLOCKS, count * PAGE_BLOCKS);
        self.submit(Op::Write, lba, blocks, Purpose::Write(file, pages.clone()));
        pages
    }

    /// Sends what is dirty of some pages, as far as the queue has room; one past the last that was looked at, or none
    /// if all were.
    pub(super) fn send_range(
        &mut self,
        file: FileId,
        pages: Range<u64>,
        urgency: Urgency,
    ) -> Option<u64> {
        let mut at = pages.start;
        while at < pages.end {
            let run = self.cache.dirty_run(file, at, self.config.request_pages());
            let Some(run) = run.filter(|run| run.start < pages.end) else { break };
            let has_room = self.writes_out < self.writes_max;
            if !has_room || !self.throttle.admits(urgency, self.is_full) {
                return Some(at);
            }
            at = self.send(file, run.start..run.end.min(pages.end)).end;
        }
        None
    }

    /// The journal takes what changed: its blocks, then the record that makes them count.
    pub(super) fn commit(&mut self) {
        if self.writeback.is_committing() {
            return;
        }
        if !std::mem::take(&mut self.writeback.has_changed) {
            return self.flush_alone();
        }
        self.writeback.has_grown = false;
        self.writeback.commit = Commit::Blocks;
        // A descriptor, the inode's block, a bitmap and the group's description, and indirect blocks.
        let blocks = 4 + self.writeback.changed_meta.len() as u64;
        self.write_journal(blocks);
    }

    fn write_journal(&mut self, blocks: u64) {
        let total = self.volume.blocks() / PAGE_BLOCKS;
        let journal = files::journal(&self.config, total);
        let room = journal.end - journal.start;
        let blocks = blocks.min(room).min(self.config.request_pages());
        if self.writeback.journal_at + blocks > room {
            self.writeback.journal_at = 0;
        }
        let at = journal.start + self.writeback.journal_at;
        self.writeback.journal_at += blocks;
        let (lba, blocks) = (at * PAGE_BLOCKS, blocks * PAGE_BLOCKS);
        self.enter(Op::Write, lba, blocks, Purpose::Journal, Urgency::Waited);
    }

    /// What a commit does when the last thing that it sent has ended.
    pub(super) fn go_on_with_commit(&mut self) {
        let has_barriers = self.config.file_system == FileSystem::Ext4;
        match self.writeback.commit {
            Commit::Blocks if has_barriers => {
                self.writeback.commit = Commit::FirstFlush;
                self.enter(Op::Flush, 0, 0, Purpose::Flush, Urgency::Waited);
            }
            Commit::Blocks | Commit::FirstFlush => {
                self.writeback.commit = Commit::Record;
                self.write_journal(1);
            }
            Commit::Record => {
                self.writeback.commit = Commit::Idle;
                // In their places they are written like any other pages.
                for meta in std::mem::take(&mut self.writeback.changed_meta) {
                    self.cache.make_dirty(META, meta);
                }
                self.writeback.dirty_since.get_or_insert(self.now);
            }
            Commit::Idle => {}
        }
    }

    /// With nothing to commit fsync still flushes, where there are barriers.
    fn flush_alone(&mut self) {
        if self.config.file_system == FileSystem::Ext4 {
            self.writeback.commit = Commit::Record;
            self.enter(Op::Flush, 0, 0, Purpose::Flush, Urgency::Sent);
        }
    }
}
