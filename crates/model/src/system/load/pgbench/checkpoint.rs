//! The checkpointer and the background writer.
//!
//! A checkpoint writes what was dirty when it began, so fast that its share of `checkpoint_timeout` and of the log is
//! not passed (`IsCheckpointOnSchedule`), then waits for it file by file. From 9.6 on it goes by place, and what it
//! wrote is sent to the disks every 256 KiB.
//!
//! Source: src/backend/postmaster/checkpointer.c, storage/buffer/bufmgr.c, read for what they do.

use super::buffers::Buffers;
use super::log::Log;
use super::{Files, is_full};
use crate::Nanos;
use crate::benchmark::pgbench::{SEGMENT, Server};
use crate::system::bits::Bits;
use crate::system::throttle::Urgency;
use crate::system::{FileId, System};
use std::ops::Range;

/// Between two looks while a checkpoint is ahead of its schedule.
const NAP: Nanos = Nanos(100_000_000);
/// Between two rounds of the background writer (`bgwriter_delay`).
const ROUND: Nanos = Nanos(200_000_000);
/// Pages that are sent together (`checkpoint_flush_after`, `bgwriter_flush_after`).
const CHECKPOINT_SENDS: usize = 32;
const BACKGROUND_SENDS: usize = 64;

/// What a checkpoint synchronises before its pages, from 9.6 on: `pg_logical/mappings`, the state of replication's origins
/// with its directory and its renaming (3), and the directories of the four SLRUs that last (`CheckPointGuts`).
const PREPARES: usize = 8;

#[derive(Debug)]
enum Stage {
    Idle,
    /// Directories and small files are synchronised one after the other, so many more of them, then come pages.
    Prepares(usize, Vec<u64>),
    /// What is left, the next one last.
    Writes(Vec<u64>),
    /// The file that is waited for, and from where on; files before it are done.
    Syncs(usize, u64),
    /// What was sent of a file is to end: so many writes of the system's.
    Ends(usize, u64),
    Commits(usize),
}

/// Pages of files that one of the two wrote and is to send to the disks; it does nothing else while they find no room.
#[derive(Debug)]
struct Sender {
    pages: Vec<(FileId, Range<u64>)>,
    /// Once they are so many.
    together: usize,
    is_sending: bool,
}

impl Sender {
    fn new(together: usize) -> Self {
        Self { pages: Vec::new(), together, is_sending: false }
    }

    /// Sends what is to be sent; false while it has no room.
    fn go_on(&mut self, system: &mut System) -> bool {
        self.is_sending |= self.pages.len() >= self.together;
        while self.is_sending
            && let Some((file, pages)) = self.pages.pop()
        {
            if let Some(at) = system.send_range(file, pages.clone(), Urgency::Sent) {
                self.pages.push((file, at..pages.end));
                return false;
            }
        }
        self.is_sending = false;
        true
    }
}

#[derive(Debug)]
pub(super) struct Checkpointer {
    server: Server,
    stage: Stage,
    began: Nanos,
    /// The log when it began, and pages that it has to write.
    log_at: u64,
    all: usize,
    next_look: Nanos,
    next_round: Nanos,
    sends: Sender,
    background_sends: Sender,
    begun: u32,
}

impl Checkpointer {
    /// One has just ended.
    pub fn new(server: &Server, log: &Log, now: Nanos) -> Self {
        Self {
            server: server.clone(),
            stage: Stage::Idle,
            began: now,
            log_at: log.inserted(),
            all: 0,
            next_look: now,
            next_round: now + ROUND,
            sends: Sender::new(CHECKPOINT_SENDS),
            background_sends: Sender::new(BACKGROUND_SENDS),
            begun: 0,
        }
    }

    pub fn begun(&self) -> u32 {
        self.begun
    }

    pub fn due(&self) -> Nanos {
        let own = match self.stage {
            Stage::Idle => self.began + self.server.checkpoint_timeout,
            Stage::Writes(_) => self.next_look,
            Stage::Prepares(..) | Stage::Syncs(..) | Stage::Ends(..) | Stage::Commits(_) => {
                Nanos::MAX
            }
        };
        own.min(self.next_round)
    }

    /// Does what is due; false if there is nothing.
    pub fn go_on(
        &mut self,
        system: &mut System,
        buffers: &mut Buffers,
        files: &Files,
        log: &Log,
        imaged: &mut Bits,
    ) -> bool {
        let rounds = self.background(system, buffers, files);
        // The last ones are sent when all are written.
        self.sends.is_sending |= !matches!(self.stage, Stage::Writes(_));
        if !self.sends.go_on(system) {
            return rounds;
        }
        let did = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => self.begin(system, buffers, log, imaged),
            Stage::Prepares(count, pages) if system.is_committing() => {
                self.stage = Stage::Prepares(count, pages);
                false
            }
            Stage::Prepares(0, pages) => {
                self.stage = Stage::Writes(pages);
                true
            }
            Stage::Prepares(count, pages) => {
                system.end_fsync();
                self.stage = Stage::Prepares(count - 1, pages);
                true
            }
            Stage::Writes(left) => self.write(system, buffers, files, log, left),
            Stage::Syncs(file, at) => self.sync(system, files, file, at),
            Stage::Ends(file, count) if system.writes_ended < count => {
                self.stage = Stage::Ends(file, count);
                false
            }
            Stage::Ends(file, _) => {
                system.end_fsync();
                self.stage = Stage::Commits(file);
                true
            }
            Stage::Commits(file) if system.is_committing() => {
                self.stage = Stage::Commits(file);
                false
            }
            Stage::Commits(file) => {
                self.stage = if file < 3 { Stage::Syncs(file + 1, 0) } else { Stage::Idle };
                true
            }
        };
        rounds || did
    }

    /// The background writer's round.
    fn background(&mut self, system: &mut System, buffers: &mut Buffers, files: &Files) -> bool {
        if !self.background_sends.go_on(system) || system.now() < self.next_round || is_full(system)
        {
            return false;
        }
        self.next_round = system.now() + ROUND;
        for page in buffers.soon_out(self.server.background_pages) {
            let (file, pages) = files.place(page);
            system.write_behind(file, pages.clone());
            if self.server.sorts_checkpoints {
                self.background_sends.pages.push((file, pages));
            }
        }
        true
    }

    fn begin(&mut self, system: &System, buffers: &Buffers, log: &Log, imaged: &mut Bits) -> bool {
        let is_old = system.now().since(self.began) >= self.server.checkpoint_timeout;
        let segments = log.segment().saturating_sub(self.log_at / SEGMENT);
        if !is_old && segments < self.server.checkpoint_segments {
            return false;
        }
        (self.began, self.log_at) = (system.now(), log.inserted());
        self.begun += 1;
        imaged.clear();
        let mut pages = buffers.all_dirty();
        if self.server.sorts_checkpoints {
            pages.sort_unstable();
        }
        pages.reverse();
        self.all = pages.len();
        self.next_look = self.began;
        let count = if self.server.sorts_checkpoints { PREPARES } else { 0 };
        self.stage = Stage::Prepares(count, pages);
        true
    }

    fn write(
        &mut self,
        system: &mut System,
        buffers: &mut Buffers,
        files: &Files,
        log: &Log,
        mut left: Vec<u64>,
    ) -> bool {
        let now = system.now();
        let mut did = false;
        let together = self.sends.together;
        while now >= self.next_look && !is_full(system) && self.sends.pages.len() < together {
            let Some(page) = left.pop() else {
                self.stage = Stage::Syncs(0, 0);
                return true;
            };
            did = true;
            if buffers.clean(page) {
                let (file, pages) = files.place(page);
                system.write_behind(file, pages.clone());
                if self.server.sorts_checkpoints {
                    self.sends.pages.push((file, pages));
                }
            }
            if self.is_on_schedule(now, log, left.len()) {
                self.next_look = now + NAP;
            }
        }
        self.stage = Stage::Writes(left);
        did
    }

    fn is_on_schedule(&self, now: Nanos, log: &Log, left: usize) -> bool {
        let done = (self.all - left) as f64 / self.all.max(1) as f64;
        let done = done * self.server.checkpoint_completion_target;
        let segments = (log.inserted() - self.log_at) as f64 / SEGMENT as f64;
        let log = segments / self.server.checkpoint_segments as f64;
        let time = now.since(self.began).0 as f64 / self.server.checkpoint_timeout.0 as f64;
        done >= log && done >= time
    }

    /// Sends what is dirty of a file, from its beginning to its end, and has the journal say so.
    fn sync(&mut self, system: &mut System, files: &Files, file: usize, at: u64) -> bool {
        let id = files.ids[file];
        if let Some(at) = system.send_range(id, at..u64::MAX, Urgency::Waited) {
            self.stage = Stage::Syncs(file, at);
            return false;
        }
        self.stage = Stage::Ends(file, system.writes_ended + system.writes_out as u64);
        true
    }
}
