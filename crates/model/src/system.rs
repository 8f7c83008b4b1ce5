//! An operating system in virtual time: page cache, read-ahead, write-back, a file system's allocation.
//!
//! It sits on any [`Volume`] and does what one process asks of it, call by call, as Linux does; several
//! processes are for a load to keep apart ([`System::start_read`], [`System::is_there`]). Its clock goes
//! on by what the processor takes and by what is waited for.
//!
//! Invariants: a page is dirty or under write-back only if it is there; dirty pages stay within the
//! threshold but for one call's; a page that is read is waited for; the same calls give the same times.
//! What it does not do: memory of its own for programs, swapping, several block devices.

mod ahead;
mod bits;
mod cache;
mod config;
mod files;
pub mod load;
mod throttle;
mod writeback;

pub use config::{FileSystem, SystemConfig};
pub use files::FileId;

use crate::Nanos;
use crate::request::{Op, Request};
use crate::volume::Volume;
use ahead::Window;
use cache::Cache;
use files::{META, Place};
use std::collections::VecDeque;
use std::ops::Range;
use throttle::{Throttle, Urgency};
use writeback::Writeback;

/// Bytes of a page, and of a file system's block.
pub const PAGE: u64 = 4096;
/// Blocks of a page.
const PAGE_BLOCKS: u64 = PAGE / 512;

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Read(FileId, Range<u64>),
    Write(FileId, Range<u64>),
    Journal,
    Flush,
    /// A load's own request, past the page cache.
    Own(u64),
}

/// An open file's state of reading in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    window: Window,
}

/// A running system.
pub struct System {
    config: SystemConfig,
    volume: Box<dyn Volume>,
    now: Nanos,
    /// Processor time of the load's processes.
    spent: Nanos,
    /// Of the volume, as far as the processor has made up for it.
    volume_spent: Nanos,
    cache: Cache,
    places: Vec<Place>,
    writeback: Writeback,
    requests: Vec<Option<Purpose>>,
    free_tags: Vec<usize>,
    reads_out: usize,
    writes_out: usize,
    /// Writes that have ended.
    writes_ended: u64,
    /// Requests of the load's own that have ended.
    own_ended: Vec<u64>,
    /// Writes under way at which write-back waits.
    writes_max: usize,
    throttle: Throttle,
    /// What sleeps there: writes and flushes that somebody waits for.
    sleepers: VecDeque<(Op, u64, u64, Purpose)>,
    /// A writer waits for room in the page cache.
    is_full: bool,
    /// Most blocks that are read ahead at once, in pages.
    ahead_max: u64,
    /// When the volume is to be polled next; none if that has to be asked anew.
    volume_due: Option<Nanos>,
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("now", &self.now).finish_non_exhaustive()
    }
}

impl System {
    /// A system that has just mounted a file system on `volume`, or opened it if there is none.
    #[must_use]
    pub fn new(config: SystemConfig, volume: Box<dyn Volume>) -> Self {
        let stripe = volume.stripe_blocks() / PAGE_BLOCKS;
        let ahead_max = (config.read_ahead_pages).max(2 * stripe);
        let writes_max = config.requests * volume.queues();
        // An array of md's has no queue of its own.
        let is_throttled = config.throttles_writes && volume.queues() == 1;
        let throttle = Throttle::new(is_throttled.then_some(config.requests));
        let places = Place::reserved(&config, volume.blocks() / PAGE_BLOCKS);
        let mut cache = Cache::new(config.cache_pages(), config.keeps_active);
        places.iter().for_each(|place| cache.add_file(place.pages()));
        Self {
            writeback: Writeback::new(&config, Nanos::ZERO),
            config,
            volume,
            now: Nanos::ZERO,
            spent: Nanos::ZERO,
            volume_spent: Nanos::ZERO,
            cache,
            places,
            requests: Vec::new(),
            free_tags: Vec::new(),
            reads_out: 0,
            writes_out: 0,
            writes_ended: 0,
            own_ended: Vec::new(),
            writes_max,
            throttle,
            sleepers: VecDeque::new(),
            is_full: false,
            ahead_max,
            volume_due: None,
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Processor time of the load's processes so far, with what the volume did in their contexts.
    #[must_use]
    pub fn spent(&self) -> Nanos {
        self.spent + self.volume.called()
    }

    /// Processor time of the whole machine so far, arrays included.
    #[must_use]
    pub fn spent_by_all(&self) -> Nanos {
        self.spent + self.volume.cpu()
    }

    /// Pages of its volume.
    #[must_use]
    pub fn volume_pages(&self) -> u64 {
        self.volume.blocks() / PAGE_BLOCKS
    }

    /// What it runs on.
    #[must_use]
    pub fn config(&self) -> &SystemConfig {
        &self.config
    }

    /// The volume itself as a file.
    pub fn open_volume(&mut self) -> FileId {
        self.add(Place::raw(self.volume.blocks() / PAGE_BLOCKS))
    }

    /// A new file of `pages`; its blocks are found as they will be when it is written in order. None if
    /// the file system has not so many.
    pub fn create(&mut self, pages: u64) -> Option<FileId> {
        let total = self.volume.blocks() / PAGE_BLOCKS;
        let after = self.places.iter().map(Place::end).max().unwrap_or(0);
        let meta = &mut self.places[META.0];
        let place = Place::file(&self.config, total, pages, meta, after)?;
        Some(self.add(place))
    }

    fn add(&mut self, place: Place) -> FileId {
        self.cache.add_file(place.pages());
        self.places.push(place);
        FileId(self.places.len() - 1)
    }

    /// The process computes. Work of the volume is made up for where there is one processor.
    pub fn compute(&mut self, time: Nanos) {
        self.spent += time;
        let mut until = self.now + time;
        if self.config.processor.cores == 1 {
            let volume = self.volume.cpu();
            until += volume.since(self.volume_spent);
            self.volume_spent = volume;
        }
        self.run_to(until);
    }

    /// Does nothing for a while.
    pub fn rest(&mut self, time: Nanos) {
        let until = self.now + time;
        self.run_to(until);
    }

    /// Reads pages into the process's memory; it waits for them.
    pub fn read(&mut self, file: FileId, pages: Range<u64>, reader: &mut Reader) {
        let processor = self.config.processor;
        self.compute(processor.system_call);
        for page in pages.clone() {
            self.ahead(file, page, pages.end - page, reader);
            if !self.cache.is_there(file, page) {
                self.wait_until(|system| system.cache.is_there(file, page));
                self.compute(processor.switch);
            }
            self.compute(processor.copy(PAGE));
        }
    }

    /// Begins to read pages by themselves, with what tells where they are; done when they are
    /// [`System::is_there`]. True if everything is on its way; if not, call again after the next event.
    pub fn start_read(&mut self, file: FileId, pages: Range<u64>) -> bool {
        if pages.clone().all(|page| self.cache.is_known(file, page)) {
            return true;
        }
        if let Some((meta, page)) = self.places[file.0].meta_of(pages.start) {
            self.cache.activate(meta, page);
            if !self.cache.is_there(meta, page) {
                self.fetch(meta, page..page + 1);
                return false;
            }
        }
        self.fetch(file, pages);
        true
    }

    /// Whether pages have been read.
    #[must_use]
    pub fn is_there(&self, file: FileId, mut pages: Range<u64>) -> bool {
        pages.all(|page| self.cache.is_there(file, page))
    }

    /// Goes on to the next moment at which something ends, at most to `limit`.
    pub fn next(&mut self, limit: Nanos) {
        let next = self.next_event().unwrap_or(limit).min(limit).max(self.now);
        self.run_to(next);
    }

    /// Writes whole pages: into the page cache. The process waits while too much is dirty.
    pub fn write(&mut self, file: FileId, pages: Range<u64>) {
        let processor = self.config.processor;
        self.compute(processor.system_call);
        for page in pages {
            self.dirty(file, page);
            self.compute(processor.copy(PAGE) + processor.page_write);
        }
        self.throttle();
    }

    /// Writes whole pages and does not wait, whatever is dirty; the caller accounts for its time.
    pub fn write_behind(&mut self, file: FileId, pages: Range<u64>) {
        pages.for_each(|page| self.dirty(file, page));
    }

    /// All of a file is on the volume when this returns, and the journal says so.
    pub fn fsync(&mut self, file: FileId) {
        self.start_fsync(file);
        self.wait_until(|system| system.is_written(file));
        self.end_fsync();
        self.wait_until(|system| !system.is_committing());
    }

    /// Begins to write all of a file, which [`System::is_written`] then; while it is others may run.
    pub fn start_fsync(&mut self, file: FileId) {
        self.compute(self.config.processor.system_call);
        self.writeback.sync(file);
        self.pump();
    }

    /// Whether nothing of a file is left to be written.
    #[must_use]
    pub fn is_written(&self, file: FileId) -> bool {
        self.writeback.is_synced(&self.cache, file)
    }

    /// The file is written: the journal is to say so, and does when it [`System::is_committing`] no more.
    pub fn end_fsync(&mut self) {
        self.writeback.end_sync();
        self.commit();
    }

    /// Whether the journal is being written.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.writeback.is_committing()
    }

    /// Drops what is clean from the page cache, as `echo 3 > drop_caches` does.
    pub fn drop_caches(&mut self) {
        self.cache.drop_clean();
    }

    /// A file that was written before, whose pages are in the page cache as far as there is room, the last ones first.
    fn create_read(&mut self, pages: u64) -> Option<FileId> {
        let file = self.create(pages)?;
        self.places[file.0].allocated_to = pages;
        Some(file)
    }

    /// Pages come into the page cache as if they had been read.
    fn keep(&mut self, file: FileId, pages: Range<u64>) {
        self.cache.begin_read(file, pages.clone());
        self.cache.end_read(file, pages);
    }

    /// Writes pages of a file to the volume, past what is dirty; [`System::take_own`] gives `id` when that has ended.
    fn write_own(&mut self, file: FileId, pages: Range<u64>, id: u64) {
        let found = self.places[file.0].run(pages.start, pages.end);
        let blocks = (found.end - pages.start) * PAGE_BLOCKS;
        let lba = found.at * PAGE_BLOCKS;
        self.enter(Op::Write, lba, blocks, Purpose::Own(id), Urgency::Waited);
    }

    /// Flushes the volume, where the file system has barriers; false if it has none.
    fn flush_own(&mut self, id: u64) -> bool {
        let has_barriers = self.config.file_system == FileSystem::Ext4;
        if has_barriers {
            self.enter(Op::Flush, 0, 0, Purpose::Own(id), Urgency::Sent);
        }
        has_barriers
    }

    /// Requests of the load's own that have ended.
    fn take_own(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.own_ended)
    }

    /// What is wanted but not there is sent for.
    fn fetch(&mut self, file: FileId, pages: Range<u64>) {
        let pages = pages.start..pages.end.min(self.places[file.0].pages());
        let mut page = pages.start;
        while page < pages.end {
            if self.cache.is_known(file, page) {
                page += 1;
                continue;
            }
            let run =
                self.places[file.0].run(page, pages.end.min(page + self.config.request_pages()));
            let end =
                (page..run.end).find(|&page| self.cache.is_known(file, page)).unwrap_or(run.end);
            self.cache.begin_read(file, page..end);
            let blocks = (end - page) * PAGE_BLOCKS;
            let lba = run.at * PAGE_BLOCKS;
            self.submit(Op::Read, lba, blocks, Purpose::Read(file, page..end));
            page = end;
        }
    }

    /// A write or flush whose sender sleeps while the queue does not take it.
    fn enter(&mut self, op: Op, lba: u64, blocks: u64, purpose: Purpose, urgency: Urgency) {
        match self.throttle.admits(urgency, self.is_full) {
            true => self.submit(op, lba, blocks, purpose),
            false => self.sleepers.push_back((op, lba, blocks, purpose)),
        }
    }

    fn submit(&mut self, op: Op, lba: u64, blocks: u64, purpose: Purpose) {
        match purpose {
            Purpose::Read(..) => self.reads_out += 1,
            _ => {
                self.writes_out += 1;
                self.throttle.begins();
            }
        }
        let tag = self.free_tags.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[tag] = Some(purpose);
        self.volume_due = None;
        self.volume.submit(Request { tag: tag as u64, op, lba, blocks }, self.now);
    }

    fn next_event(&mut self) -> Option<Nanos> {
        [self.volume_next(), self.writeback.next_event(&self.cache)].into_iter().flatten().min()
    }

    fn run_to(&mut self, until: Nanos) {
        while self.go_on(until) {}
        self.now = self.now.max(until);
    }

    /// Goes on up to `until` to the next moment at which something may change; false if there is none.
    fn go_on(&mut self, until: Nanos) -> bool {
        let look = self.writeback.next_look();
        let own = self.writeback.next_event(&self.cache).filter(|at| *at <= until);
        let limit = own.unwrap_or(until);
        let due = self.volume_next().filter(|due| *due <= limit);
        let at = match due {
            Some(due) if due >= self.now => {
                self.volume_due = None;
                self.volume.go_on(limit, look).or(own)
            }
            _ => due.or(own),
        };
        let Some(at) = at else { return false };
        self.now = self.now.max(at);
        self.volume_due = None;
        while let Some(done) = self.volume.poll(self.now) {
            self.end(done.tag as usize);
        }
        self.writeback_tick();
        true
    }

    /// When the volume is to be polled next.
    fn volume_next(&mut self) -> Option<Nanos> {
        let due = self.volume_due.or_else(|| self.volume.next_event()).unwrap_or(Nanos::MAX);
        self.volume_due = Some(due);
        Some(due).filter(|at| *at < Nanos::MAX)
    }

    fn wait_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            self.pump();
            assert!(self.go_on(Nanos::MAX), "what is waited for is under way");
        }
    }

    fn end(&mut self, tag: usize) {
        let purpose = self.requests[tag].take().expect("it is under way");
        self.free_tags.push(tag);
        if let Purpose::Read(file, pages) = purpose {
            self.reads_out -= 1;
            return self.cache.end_read(file, pages);
        }
        self.writes_out -= 1;
        self.writes_ended += 1;
        let wakes = self.throttle.ends(self.is_full);
        if wakes {
            for (op, lba, blocks, purpose) in std::mem::take(&mut self.sleepers) {
                self.submit(op, lba, blocks, purpose);
            }
        }
        match purpose {
            Purpose::Write(file, pages) => {
                self.cache.end_write(file, pages);
                self.pump();
            }
            Purpose::Own(id) => {
                self.own_ended.push(id);
                self.pump();
            }
            Purpose::Journal | Purpose::Flush => self.go_on_with_commit(),
            Purpose::Read(..) => unreachable!("it has ended above"),
        }
        if wakes {
            self.pump();
        }
    }
}

#[cfg(test)]
mod tests;
