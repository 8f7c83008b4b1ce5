//! A solid-state disk in virtual time: controller, flash units, write buffer, fast cells, clean-up.
//!
//! The world calls it as it calls a hard disk. Invariants: the controller starts one command at a
//! time; a page of flash is read by one unit; what was written leaves the buffer in order, at the
//! rate of the fast cells while they last and of the others, divided by the write amplification,
//! after that.
//! What it does not do: keep a map. Which writes are sequential is seen from their addresses.

use crate::Nanos;
use crate::channel::Channel;
use crate::request::{Completion, Op, Request};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A solid-state disk, ready to run. Blocks are 512 bytes.
#[derive(Clone, Debug)]
pub struct SolidDiskModel {
    /// Blocks of the disk.
    pub blocks: u64,
    /// Units that read pages side by side.
    pub units: usize,
    /// Blocks that one unit reads at a time.
    pub page_blocks: u64,
    /// A page's read.
    pub read: Nanos,
    /// What the controller takes at least from a read to the next command.
    pub read_command: Nanos,
    /// What the controller takes at least from a write to the next command.
    pub write_command: Nanos,
    /// From a write's start until it is in the buffer, beyond its transfer.
    pub write_accept: Nanos,
    /// A flush with an empty buffer.
    pub flush: Nanos,
    /// A flush needs no empty buffer: its power is backed up.
    pub keeps_buffer: bool,
    /// What a read waits for if the flash is being written, at worst.
    pub program_wait: Nanos,
    /// A second's bytes that are read at most.
    pub read_rate: u64,
    /// A second's bytes over the link.
    pub link_rate: u64,
    /// A second's bytes that fast cells take.
    pub fast_rate: u64,
    /// A second's bytes that the other cells take.
    pub slow_rate: u64,
    /// Bytes of fast cells.
    pub fast_bytes: u64,
    /// Bytes of the write buffer.
    pub buffer_bytes: u64,
    /// Bytes written to flash for each that is written at random, on a full disk.
    pub amplification: f64,
    /// Commands that it takes in at once.
    pub queue_depth: usize,
}

/// A solid-state disk and what it is doing.
#[derive(Clone, Debug)]
pub struct SolidDisk {
    model: Arc<SolidDiskModel>,
    inbox: VecDeque<(Request, Nanos)>,
    done: BTreeSet<(Nanos, u64)>,
    controller_free: Nanos,
    units: Vec<Nanos>,
    /// When what is in the buffer has left it.
    drained: Nanos,
    /// Bytes of fast cells that are used.
    fast_used: f64,
    /// Up to when `fast_used` is right.
    fast_at: Nanos,
    /// One past the last block of each run of writes in order, those written to last at the end.
    write_ends: VecDeque<u64>,
    holder: Option<u64>,
}

/// Writers in order that are told apart.
const STREAMS: usize = 64;
/// Blocks that a write may be away from where the writer was: they come together in the buffer.
const NEAR: u64 = 8192;
/// So many bytes of a write that begins anew cost as scattered ones do: erasing blocks, each of which holds more, moves
/// what else is in them.
const SCATTERED: u64 = 1 << 20;

fn time_of(bytes: u64, rate: u64) -> Nanos {
    Nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64)
}

impl SolidDisk {
    /// A disk that has been idle for long, its fast cells free.
    #[must_use]
    pub fn new(model: Arc<SolidDiskModel>) -> Self {
        Self {
            units: vec![Nanos::ZERO; model.units.max(1)],
            model,
            inbox: VecDeque::new(),
            done: BTreeSet::new(),
            controller_free: Nanos::ZERO,
            drained: Nanos::ZERO,
            fast_used: 0.0,
            fast_at: Nanos::ZERO,
            write_ends: VecDeque::new(),
            holder: None,
        }
    }

    /// Takes a command at `now`.
    ///
    /// # Panics
    /// If its blocks are not all on the disk.
    pub fn submit(&mut self, request: Request, now: Nanos, channel: &mut Channel) {
        assert!(request.range().end <= self.model.blocks, "{request:?} is beyond the disk's end");
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
        [done, self.next_start(channel)].into_iter().flatten().min()
    }

    fn next_start(&self, channel: &Channel) -> Option<Nanos> {
        let &(_, since) = self.inbox.front()?;
        let start = channel.ready(since.max(self.controller_free))?;
        if self.done.iter().filter(|(at, _)| *at > start).count() < self.model.queue_depth.max(1) {
            return Some(start);
        }
        self.done.iter().map(|(at, _)| *at).find(|at| *at > start)
    }

    fn advance(&mut self, now: Nanos, channel: &mut Channel) {
        while let Some(start) = self.next_start(channel).filter(|start| *start <= now) {
            let Some((request, _)) = self.inbox.pop_front() else { return };
            channel.begin();
            self.holder = Some(request.tag);
            let end = match request.op {
                Op::Read => self.read(&request, start, channel),
                Op::Write => self.write(&request, start, channel),
                Op::WriteThrough => {
                    let end = self.write(&request, start, channel);
                    if self.model.keeps_buffer { end } else { end.max(self.drained) }
                }
                Op::Flush => self.flush(start),
            };
            self.done.insert((end, request.tag));
            if self.holder.take() == Some(request.tag) {
                channel.end(end);
            }
        }
    }

    fn read(&mut self, request: &Request, start: Nanos, channel: &mut Channel) -> Nanos {
        let model = self.model.clone();
        let bytes = request.blocks * 512;
        self.controller_free = start + model.read_command.max(time_of(bytes, model.read_rate));
        let ready = start + model.read_command;
        let busy = self.busy_part(start);
        let wait = Nanos((model.program_wait.0 as f64 * busy) as u64);
        let page = model.page_blocks.max(1);
        let pages = request.lba / page..=(request.lba + request.blocks - 1) / page;
        let mut last = ready;
        for index in pages {
            // Neighbouring pages lie on different units; each row of them begins anywhere, so that
            // strides do not meet one unit again and again.
            let units = self.units.len() as u64;
            let turn = (index / units).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let unit = ((index + turn) % units) as usize;
            let from = self.units[unit].max(ready);
            self.units[unit] = from + model.read;
            last = last.max(self.units[unit] + wait);
        }
        let own = time_of(bytes, model.link_rate);
        let (sent, length) = channel.transfer(last, bytes, own.min(time_of(4096, model.link_rate)));
        (sent + length).max(self.controller_free)
    }

    /// How much of the flash's time writing takes.
    fn busy_part(&self, now: Nanos) -> f64 {
        if self.drained > now { 1.0 } else { 0.0 }
    }

    fn write(&mut self, request: &Request, start: Nanos, channel: &mut Channel) -> Nanos {
        let model = self.model.clone();
        let bytes = request.blocks * 512;
        let (sent, length) = channel.transfer(start, bytes, time_of(bytes, model.link_rate));
        self.controller_free = (sent + length).max(start + model.write_command);
        let scattered = if self.goes_on(request) { 0 } else { bytes.min(SCATTERED) };
        let drain = self.drain_time(bytes, scattered, start);
        self.drained = self.drained.max(start) + drain;
        // There is room once all but a buffer's worth has been drained.
        let ahead =
            Nanos((drain.0 as f64 * model.buffer_bytes as f64 / bytes.max(1) as f64) as u64);
        let room = Nanos(self.drained.0.saturating_sub(ahead.0));
        self.controller_free = self.controller_free.max(room);
        (sent + length + model.write_accept).max(room)
    }

    /// Whether a write goes on about where one before it ended: several writers in order are told apart.
    fn goes_on(&mut self, request: &Request) -> bool {
        let run = self.write_ends.iter().position(|end| end.abs_diff(request.lba) <= NEAR);
        let end = run.and_then(|run| self.write_ends.remove(run));
        if self.write_ends.len() == STREAMS {
            self.write_ends.pop_front();
        }
        self.write_ends.push_back((request.lba + request.blocks).max(end.unwrap_or(0)));
        run.is_some()
    }

    /// How long the flash takes for a write, and what of the fast cells that uses up.
    fn drain_time(&mut self, bytes: u64, scattered: u64, now: Nanos) -> Nanos {
        let model = &self.model;
        let more = (model.amplification.max(1.0) - 1.0) * scattered as f64 / bytes.max(1) as f64;
        let amplification = 1.0 + more;
        // An idle disk moves what is in fast cells to the others.
        let idle = now.since(self.fast_at.max(self.drained)).0 as f64 / 1e9;
        self.fast_used = (self.fast_used - idle * model.slow_rate as f64).max(0.0);
        self.fast_at = now;
        let fast = (model.fast_bytes as f64 - self.fast_used).clamp(0.0, bytes as f64);
        self.fast_used += fast;
        let slow = (bytes as f64 - fast) * amplification;
        let seconds = fast / model.fast_rate.max(1) as f64 + slow / model.slow_rate.max(1) as f64;
        Nanos((seconds * 1e9) as u64)
    }

    fn flush(&mut self, start: Nanos) -> Nanos {
        let ready = if self.model.keeps_buffer { start } else { start.max(self.drained) };
        self.controller_free = start;
        ready + self.model.flush
    }
}

#[cfg(test)]
mod tests;
