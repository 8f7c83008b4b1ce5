//! How fast a candidate is at best, from what its disks do alone: which to try first.
//!
//! A bound is no prediction: it knows how many disks a request moves, not how they wait for each other.

use super::candidate::{Array, Candidate, Join};
use super::drive::{Span, rate};
use super::{Disk, Load};
use crate::plan::{Io, Pattern};
use lapstrake_geometry::{Layout, Level};
use lapstrake_model::rack::{Rack, SharedRack, Window};
use lapstrake_model::{Channel, Volume};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes a second of one disk alone.
#[derive(Clone, Copy, Debug)]
struct Alone {
    read: f64,
    write: f64,
}

/// What each kind of disk does alone: whole, and its outer quarter.
pub(super) struct Bounds<'a> {
    disks: &'a [Disk],
    loads: &'a [Load],
    alone: BTreeMap<(&'a str, bool, usize), Alone>,
}

/// Of the outer tracks.
const SHORT: u64 = 4;

impl<'a> Bounds<'a> {
    pub(super) fn new(disks: &'a [Disk], loads: &'a [Load], span: Span, seed: u64) -> Self {
        let mut alone = BTreeMap::new();
        for disk in disks {
            for (index, load) in loads.iter().enumerate() {
                let span = if disk.is_filled_by(&load.io) { Span::CLEANING } else { span };
                for is_short in [false, true] {
                    let parts = if is_short { SHORT } else { 1 };
                    let pace = |read| {
                        let io = Io { read, rate: None, ..load.io.clone() };
                        let make = || window(disk, disk.sectors / parts, &load.io);
                        rate(make, &io, span, seed).bytes_per_s
                    };
                    let key = (disk.kind.as_str(), is_short, index);
                    alone.entry(key).or_insert_with(|| Alone { read: pace(1.0), write: pace(0.0) });
                }
            }
        }
        Self { disks, loads, alone }
    }

    /// How fast a candidate is at best: the mean of its loads' logarithms, by weight.
    pub(super) fn score(&self, candidate: &Candidate) -> f64 {
        let weights: f64 = self.loads.iter().map(|load| load.weight).sum();
        let logarithm =
            |(index, load): (usize, &Load)| load.weight * self.of(candidate, index).max(1.0).ln();
        self.loads.iter().enumerate().map(logarithm).sum::<f64>() / weights
    }

    fn of(&self, candidate: &Candidate, load: usize) -> f64 {
        let rates = candidate.arrays.iter().map(|array| self.of_array(array, load));
        let (sum, least) = rates
            .fold((0.0, f64::INFINITY), |(sum, least), rate: f64| (sum + rate, least.min(rate)));
        match candidate.join {
            Join::Striped => least * candidate.arrays.len() as f64,
            Join::Linear => sum / candidate.arrays.len() as f64,
        }
    }

    fn of_array(&self, array: &Array, load: usize) -> f64 {
        let io = &self.loads[load].io;
        let alone = array.parts.iter().map(|part| {
            let disk = &self.disks[part.disk];
            let is_short = part.first == 0 && part.sectors < disk.sectors * 7 / 10;
            self.alone[&(disk.kind.as_str(), is_short, load)]
        });
        let slowest =
            alone.fold(Alone { read: f64::INFINITY, write: f64::INFINITY }, |least, one| Alone {
                read: least.read.min(one.read),
                write: least.write.min(one.write),
            });
        let in_order = !matches!(io.pattern, Pattern::Uniform | Pattern::Zipf(_));
        let has_head = array.parts.iter().any(|part| self.disks[part.disk].is_rotational);
        let is_alone = io.depth.saturating_mul(io.threads) == 1;
        let (reads, writes) = members_at_work(array, in_order, has_head || is_alone);
        let seconds = io.read / (slowest.read * reads) + (1.0 - io.read) / (slowest.write * writes);
        1.0 / seconds
    }
}

/// How many disks' worth of reads and of writes an array does at best; a stream may stay on one copy, where going on costs
/// nothing or there is one request at a time.
fn members_at_work(array: &Array, in_order: bool, stays: bool) -> (f64, f64) {
    let members = array.parts.len() as f64;
    let copies = array.tolerance() as f64 + 1.0;
    match array.level {
        None => (1.0, 1.0),
        Some(Level::Linear) if in_order => (1.0, 1.0),
        Some(Level::Linear | Level::Raid0) => (members, members),
        Some(Level::Raid1) => (if in_order && stays { 1.0 } else { members }, 1.0),
        Some(Level::Raid10) => {
            let near = matches!(array.layout, Some(Layout::Raid10(layout)) if layout.near > 1);
            let reads = if in_order && stays && near { members / copies } else { members };
            (reads, members / copies)
        }
        // A small write reads and writes its own block, and those of parity.
        Some(level @ (Level::Raid4 | Level::Raid5 | Level::Raid6)) => {
            let parity = if level == Level::Raid6 { 2.0 } else { 1.0 };
            let writes = if in_order { members - parity } else { members / (2.0 + 2.0 * parity) };
            (if in_order { members - parity } else { members }, writes)
        }
    }
}

/// The first sectors of a disk as a load meets it, on a link of its own.
fn window(disk: &Disk, sectors: u64, io: &Io) -> Box<dyn Volume> {
    let rack: SharedRack = Rc::new(RefCell::new(Rack::default()));
    let index = {
        let mut rack = rack.borrow_mut();
        let link = rack.add_channel(Channel::unbounded());
        rack.add_disk(&disk.model_under(io, 0..sectors), link)
    };
    disk.queued(Window::new(&rack, index, 0, sectors))
}
