//! A hard disk in virtual time: front end (commands, buffer, link) and arm.
//!
//! The world calls [`HardDisk::submit`] and [`HardDisk::poll`] with times that never go back, and asks
//! [`HardDisk::next_event`] when to come again. Disks on one [`Channel`] are all polled at each of
//! these times.
//!
//! Invariants: the front end does one command at a time, the arm one job; a command ends once. What a
//! job does is planned when it begins; a prefetch is cut off by what comes next and does not lie in its way.
//! What it does not do: hold data.

mod arm;
mod front;
mod job;
mod params;
mod pick;
mod shingle;
mod streams;

pub use params::{HardDiskModel, Order, Overhead, Overheads, ReadAhead, WriteCache};
pub use shingle::Shingles;

use crate::Nanos;
use crate::cache::Cache;
use crate::channel::Channel;
use crate::layout::Track;
use crate::request::{Completion, Request};
use job::Job;
use shingle::ShingleState;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use streams::Streams;

/// A command that needs the arm.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    /// When the command came.
    since: Nanos,
    /// When the arm may set out.
    ready: Nanos,
    /// The first block that is not in the buffer.
    from: u64,
    /// The segment that holds those before it.
    segment: Option<usize>,
    /// When the link may carry what is there; for a write, when all of its data are in the buffer.
    data: Nanos,
    /// A read that goes on with a stream.
    goes_on: bool,
}

/// Data that go over the link at a time to come.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    tag: u64,
    /// When it takes the channel.
    at: Nanos,
    blocks: u64,
    /// When it ends if the channel is free.
    end: Nanos,
    /// What the command takes after that; none if it does not end with its data.
    completion: Option<Nanos>,
}

/// A hard disk and what it is doing.
#[derive(Clone, Debug)]
pub struct HardDisk {
    model: Arc<HardDiskModel>,
    cache: Cache,
    /// Commands that have not been looked at.
    inbox: VecDeque<(Request, Nanos)>,
    front_free: Nanos,
    last_was_write: bool,
    streams: Streams,
    /// When the command ended, or will end, that ends last.
    last_end: Nanos,
    waiting: Vec<Waiting>,
    /// Writes that the buffer has no room for.
    stalled: VecDeque<(Request, Nanos)>,
    /// Flushes, and the number of the last write that they cover.
    flushes: Vec<(Request, u64)>,
    transfers: Vec<Transfer>,
    /// Commands that end, by time.
    done: BTreeSet<(Nanos, u64)>,
    arm: Track,
    arm_free: Nanos,
    /// The arm's last job was a write.
    arm_wrote: bool,
    /// One past the last block that it wrote, or will have written.
    written_to: u64,
    /// Blocks that it wrote out of the buffer without being set up anew.
    pass_blocks: u64,
    /// The number of the write out of the buffer that it did last.
    written_order: u64,
    job: Option<Job>,
    /// A waiting write had the arm last, though reads waited.
    last_was_clean: bool,
    /// While more than half of the room for writes is used: whether it is emptied, or commands are served.
    is_emptying: bool,
    /// How many more in a row.
    run_left: u32,
    /// The command that holds the channel.
    holder: Option<u64>,
    /// The direction of a scan.
    is_downwards: bool,
    shingles: Option<ShingleState>,
}

impl HardDisk {
    /// A disk that has been idle for long, its arm over the first track.
    #[must_use]
    pub fn new(model: Arc<HardDiskModel>) -> Self {
        let arm = model.mechanism.layout.extent(0).track;
        let shingles = model.shingles.map(|sizes| match &model.cache_zone_full_of {
            Some(blocks) => ShingleState::full(sizes, blocks),
            None => ShingleState::new(sizes),
        });
        Self {
            cache: Cache::new(&model.cache),
            model,
            inbox: VecDeque::new(),
            front_free: Nanos::ZERO,
            last_was_write: false,
            streams: Streams::default(),
            last_end: Nanos::ZERO,
            waiting: Vec::new(),
            stalled: VecDeque::new(),
            flushes: Vec::new(),
            transfers: Vec::new(),
            done: BTreeSet::new(),
            arm,
            arm_free: Nanos::ZERO,
            arm_wrote: false,
            written_to: 0,
            written_order: 0,
            pass_blocks: 0,
            job: None,
            last_was_clean: false,
            is_emptying: false,
            run_left: 0,
            holder: None,
            is_downwards: false,
            shingles,
        }
    }

    /// Takes a command at `now`.
    ///
    /// # Panics
    /// If its blocks are not all on the disk.
    pub fn submit(&mut self, request: Request, now: Nanos, channel: &mut Channel) {
        assert!(request.range().end <= self.model.blocks(), "{request:?} is beyond the disk's end");
        self.advance(now, channel);
        self.inbox.push_back((request, now));
        self.advance(now, channel);
    }

    /// Gives a command that has ended by `now`, those first that ended first.
    pub fn poll(&mut self, now: Nanos, channel: &mut Channel) -> Option<Completion> {
        self.advance(now, channel);
        let &(at, tag) = self.done.first().filter(|(at, _)| *at <= now)?;
        self.done.pop_first();
        Some(Completion { tag, at })
    }

    /// When to poll again; none if nothing goes on.
    #[must_use]
    pub fn next_event(&self, channel: &Channel) -> Option<Nanos> {
        let done = self.done.first().map(|(at, _)| *at);
        let transfer = self.transfers.iter().map(|transfer| transfer.at).min();
        [done, transfer, self.front_next(channel), self.arm_next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, channel: &mut Channel) {
        loop {
            let transfer = self.transfers.iter().map(|transfer| transfer.at).min();
            let front = self.front_next(channel);
            let arm = self.arm_next();
            let Some(next) = [transfer, arm, front].into_iter().flatten().min() else { return };
            if next > now {
                return;
            }
            // Data first, since they free what the others wait for; then the arm, so that a command
            // finds the buffer as it is.
            if transfer == Some(next) {
                self.transfer_run(next, channel);
            } else if arm == Some(next) {
                self.arm_run(next, channel);
            } else {
                self.front_run(next, channel);
            }
        }
    }

    fn transfer_run(&mut self, now: Nanos, channel: &mut Channel) {
        let index = self.transfers.iter().position(|transfer| transfer.at == now);
        let transfer = self.transfers.swap_remove(index.expect("it is due"));
        let own = self.model.link_time(transfer.blocks);
        let (start, length) = channel.transfer(transfer.at, transfer.blocks * 512, own);
        if let Some(completion) = transfer.completion {
            let end = transfer.end.max(start + length) + completion;
            self.end(transfer.tag, end, channel);
        }
    }

    fn end(&mut self, tag: u64, at: Nanos, channel: &mut Channel) {
        self.done.insert((at, tag));
        self.last_end = self.last_end.max(at);
        if self.holder == Some(tag) {
            self.holder = None;
            channel.end(at);
        }
    }
}

#[cfg(test)]
mod tests;
