//! Disks on their cables, and windows of them: what arrays in virtual time are made of.
//!
//! A [`Rack`] drives its disks in the order of their events, so that two on one cable meet as they would. A
//! [`Window`] is a [`Volume`]: a whole disk, or a partition of one, of which there may be several.
//!
//! Invariant: a completion goes to the window that its command came from, whoever polls first.

use crate::Nanos;
use crate::channel::Channel;
use crate::disk::{Disk, DiskModel};
use crate::request::{Completion, Op, Request};
use crate::volume::Volume;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a disk was asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads that have ended.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes that have ended.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Flushes that have ended.
    pub flushes: u64,
    /// Commands under way, over time: nanoseconds times commands.
    pub queue_ns: u64,
}

/// Disks and the channels that they are on.
#[derive(Debug, Default)]
pub struct Rack {
    bays: Vec<Bay>,
    channels: Vec<Channel>,
    /// When the first of the disks is due.
    due: Option<Nanos>,
    /// Commands under way, by the tag that their disk knows; and free places among them.
    flights: Vec<Flight>,
    free: Vec<usize>,
    /// By window: what has ended and was not fetched.
    ended: Vec<VecDeque<Completion>>,
}

#[derive(Debug)]
struct Bay {
    disk: Disk,
    blocks: u64,
    channel: usize,
    due: Option<Nanos>,
    counts: Counts,
    under_way: u64,
    since: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    window: usize,
    request: Request,
}

/// A rack that windows share.
pub type SharedRack = Rc<RefCell<Rack>>;

/// A range of a disk's blocks.
#[derive(Debug)]
pub struct Window {
    rack: SharedRack,
    index: usize,
    disk: usize,
    first: u64,
    blocks: u64,
}

impl Rack {
    /// Adds a channel; its number.
    pub fn add_channel(&mut self, channel: Channel) -> usize {
        self.channels.push(channel);
        self.channels.len() - 1
    }

    /// Adds a disk that has been idle for long, on a channel; its number.
    pub fn add_disk(&mut self, model: &DiskModel, channel: usize) -> usize {
        self.bays.push(Bay {
            disk: model.disk(),
            blocks: model.blocks(),
            channel,
            due: None,
            counts: Counts::default(),
            under_way: 0,
            since: Nanos::ZERO,
        });
        self.bays.len() - 1
    }

    /// What a disk was asked to do until `now`.
    #[must_use]
    pub fn counts(&self, disk: usize, now: Nanos) -> Counts {
        let bay = &self.bays[disk];
        let queue_ns = bay.counts.queue_ns + bay.under_way * now.since(bay.since).0;
        Counts { queue_ns, ..bay.counts }
    }

    /// Who is on a channel looks again when something happened on it.
    fn look_again(&mut self, channel: usize) {
        for bay in self.bays.iter_mut().filter(|bay| bay.channel == channel) {
            bay.due = bay.disk.next_event(&self.channels[channel]);
        }
        self.due = self.bays.iter().filter_map(|bay| bay.due).min();
    }

    fn submit(&mut self, window: usize, disk: usize, request: Request, now: Nanos) {
        self.run(now);
        let flight = Flight { window, request };
        let tag = match self.free.pop() {
            Some(tag) => {
                self.flights[tag] = flight;
                tag
            }
            None => {
                self.flights.push(flight);
                self.flights.len() - 1
            }
        };
        let bay = &mut self.bays[disk];
        bay.pass(now);
        bay.under_way += 1;
        let request = Request { tag: tag as u64, ..request };
        bay.disk.submit(request, now, &mut self.channels[bay.channel]);
        let channel = bay.channel;
        self.look_again(channel);
    }

    /// Carries everything on until `now`, in the order of its happening.
    fn run(&mut self, now: Nanos) {
        while let Some(at) = self.due.filter(|at| *at <= now) {
            for disk in 0..self.bays.len() {
                if self.bays[disk].due.is_some_and(|due| due <= at) {
                    self.poll_disk(disk, at);
                }
            }
        }
    }

    fn poll_disk(&mut self, disk: usize, at: Nanos) {
        let bay = &mut self.bays[disk];
        let channel = bay.channel;
        while let Some(Completion { tag, at }) = bay.disk.poll(at, &mut self.channels[channel]) {
            let Flight { window, request } = self.flights[tag as usize];
            self.free.push(tag as usize);
            bay.pass(at);
            bay.under_way -= 1;
            bay.counts.count(&request);
            self.ended[window].push_back(Completion { tag: request.tag, at });
        }
        self.look_again(channel);
    }
}

impl Bay {
    fn pass(&mut self, now: Nanos) {
        self.counts.queue_ns += self.under_way * now.since(self.since).0;
        self.since = self.since.max(now);
    }
}

impl Counts {
    fn count(&mut self, request: &Request) {
        let bytes = request.blocks * 512;
        let (requests, total) = match request.op {
            Op::Read => (&mut self.reads, &mut self.read_bytes),
            Op::Write | Op::WriteThrough => (&mut self.writes, &mut self.written_bytes),
            Op::Flush => {
                self.flushes += 1;
                return;
            }
        };
        *requests += 1;
        *total += bytes;
    }

    /// What was done since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            flushes: self.flushes - earlier.flushes,
            queue_ns: self.queue_ns - earlier.queue_ns,
        }
    }
}

impl Window {
    /// A range of a disk's blocks.
    ///
    /// # Panics
    /// If it is not all on the disk.
    #[must_use]
    pub fn new(rack: &SharedRack, disk: usize, first: u64, blocks: u64) -> Self {
        let mut inner = rack.borrow_mut();
        let has = inner.bays[disk].blocks;
        assert!(first + blocks <= has, "{blocks} blocks from {first} on of a disk of {has}");
        inner.ended.push(VecDeque::new());
        Self { rack: rack.clone(), index: inner.ended.len() - 1, disk, first, blocks }
    }

    /// All of a disk.
    #[must_use]
    pub fn whole(rack: &SharedRack, disk: usize) -> Self {
        let blocks = rack.borrow().bays[disk].blocks;
        Self::new(rack, disk, 0, blocks)
    }
}

impl Volume for Window {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        assert!(request.range().end <= self.blocks, "{request:?} is beyond the window's end");
        let request = Request { lba: self.first + request.lba, ..request };
        self.rack.borrow_mut().submit(self.index, self.disk, request, now);
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        let mut rack = self.rack.borrow_mut();
        rack.run(now);
        let ended = &mut rack.ended[self.index];
        if ended.front()?.at <= now { ended.pop_front() } else { None }
    }

    fn next_event(&self) -> Option<Nanos> {
        let rack = self.rack.borrow();
        // What other disks do meanwhile is for their own windows to tell.
        let ended = rack.ended[self.index].front().map(|completion| completion.at);
        ended.or(rack.bays[self.disk].due)
    }

    fn cpu(&self) -> Nanos {
        Nanos::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::builtin;

    fn rack(names: &[&str], channel: Option<Channel>) -> (SharedRack, Vec<Window>) {
        let mut rack = Rack::default();
        let shared = channel.map(|channel| rack.add_channel(channel));
        for name in names {
            let own = || Channel::unbounded();
            let model = builtin::get(name).unwrap().unwrap().build().unwrap();
            let channel = shared.unwrap_or_else(|| rack.add_channel(own()));
            rack.add_disk(&model, channel);
        }
        let rack = Rc::new(RefCell::new(rack));
        let windows = (0..names.len()).map(|disk| Window::whole(&rack, disk)).collect();
        (rack, windows)
    }

    /// Reads `bytes` in order on each window, one command at a time; how long that takes.
    fn stream(windows: &mut [Window], bytes: u64) -> Nanos {
        let (mut at, mut now) = (vec![0; windows.len()], Nanos::ZERO);
        let read = |lba| Request { tag: lba, op: Op::Read, lba, blocks: 256 };
        for window in windows.iter_mut() {
            window.submit(read(0), now);
        }
        while at.iter().any(|&at| at < bytes / 512) {
            now = windows.iter().filter_map(Volume::next_event).min().unwrap().max(now);
            for (window, at) in windows.iter_mut().zip(&mut at) {
                while let Some(done) = window.poll(now) {
                    assert_eq!(done.tag, *at);
                    *at += 256;
                    if *at < bytes / 512 {
                        window.submit(read(*at), now);
                    }
                }
            }
        }
        now
    }

    #[test]
    fn disks_on_links_of_their_own_do_not_see_each_other() {
        let (_, mut one) = rack(&["hitachi-80"], None);
        let (_, mut two) = rack(&["hitachi-80", "hitachi-80"], None);
        assert_eq!(stream(&mut one, 64 << 20), stream(&mut two, 64 << 20));
    }

    #[test]
    fn a_cable_that_is_held_is_one_disk_wide() {
        let cable = Channel::held(100_000_000);
        let (_, mut one) = rack(&["hitachi-80"], Some(cable.clone()));
        let (_, mut two) = rack(&["hitachi-80", "hitachi-80"], Some(cable));
        let ratio = stream(&mut two, 64 << 20).0 as f64 / stream(&mut one, 64 << 20).0 as f64;
        assert!((1.2..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn windows_of_one_disk_share_its_arm_and_get_their_own_answers() {
        let (rack, _) = rack(&["hitachi-80"], None);
        let mut halves =
            [Window::new(&rack, 0, 0, 1 << 20), Window::new(&rack, 0, 1 << 26, 1 << 20)];
        let both = stream(&mut halves, 16 << 20);
        let counts = rack.borrow().counts(0, both);
        assert_eq!((counts.reads, counts.read_bytes), (256, 32 << 20));
        assert!(counts.queue_ns >= both.0, "{counts:?} in {both:?}");
    }
}
