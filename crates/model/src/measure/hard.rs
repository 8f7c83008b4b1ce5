//! What a disk with an arm tells: zones, seeks, overheads, buffer, queue.

use super::{Measured, Outcome, Probe, Target, median};
use crate::Nanos;

/// What was found of a hard disk.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HardFindings {
    /// Blocks.
    pub blocks: u64,
    /// A turn, in ms.
    pub period_ms: Measured,
    /// Read in order, by first block, in MB/s.
    pub zones_mb_s: Vec<(u64, f64)>,
    /// To the next track, in ms.
    pub single_seek_ms: Measured,
    /// Over random places, in ms.
    pub average_seek_ms: Measured,
    /// From end to end, in ms.
    pub full_seek_ms: Measured,
    /// Seeks by distance as a part of all blocks, in ms.
    pub seeks_ms: Vec<(f64, Measured)>,
    /// Before the arm moves, in ms.
    pub miss_overhead_ms: Measured,
    /// Before the buffer answers, in ms.
    pub hit_overhead_ms: Measured,
    /// Of the link, in MB/s.
    pub link_mb_s: Measured,
    /// Blocks read ahead.
    pub read_ahead_blocks: u64,
    /// Places that the buffer remembers.
    pub segments: usize,
    /// Random reads in a second, by depth.
    pub queue: Vec<(usize, f64)>,
}

/// What a read from the buffer takes.
pub(super) struct BufferAnswers {
    pub overhead_ms: Measured,
    pub block_ms: f64,
}

impl BufferAnswers {
    pub fn hit_ms(&self, blocks: u64) -> f64 {
        self.overhead_ms.value + self.block_ms * blocks as f64
    }
}

/// Samples for a shortest access: of a short seek, which must be known to a hundredth of a turn, and of
/// a long one.
const SHORT_OF: usize = 3000;
const LONG_OF: usize = 240;
/// Samples for a mean.
const MEAN_OF: usize = 1500;

/// Reads the same blocks again at once, few and many.
pub(super) fn buffer_answers<T: Target>(probe: &mut Probe<'_, T>) -> Outcome<BufferAnswers, T> {
    let again = |probe: &mut Probe<'_, T>, blocks| {
        let mut times = Vec::new();
        for _ in 0..24 {
            let place = probe.place(blocks);
            probe.read(place, blocks)?;
            times.push(probe.read(place, blocks)?.1);
        }
        Ok(median(&mut times))
    };
    let (few, many) = (again(probe, 8)?, again(probe, 128)?);
    let block_ms = ((many - few) / 120.0).max(0.0);
    let overhead = few - 8.0 * block_ms;
    Ok(BufferAnswers { overhead_ms: Measured::about(overhead, overhead * 0.02), block_ms })
}

pub(super) fn find<T: Target>(
    probe: &mut Probe<'_, T>,
    buffer: BufferAnswers,
    period_ms: Measured,
) -> Outcome<HardFindings, T> {
    let blocks = probe.target.blocks();
    let turn = period_ms.value;
    probe.step("zones", 0.25)?;
    let zones_mb_s = zones(probe)?;
    let track = (zones_mb_s[0].1 * turn * 1e3 / 512.0) as u64;
    probe.step("read-ahead", 0.37)?;
    let read_ahead_blocks = read_ahead(probe, &buffer, turn)?;
    let segments = segments(probe, &buffer)?;
    probe.step("overhead", 0.4)?;
    // A block's own time under the head and on the link is part of each access.
    let own_ms = 8.0 * turn / track as f64 + buffer.block_ms;
    // Where reading ahead has led on to another track the arm has to move: those are not the shortest.
    let ahead = (read_ahead_blocks + track / 16) as f64 / track as f64;
    let stays = (1.0 - ahead).max(0.1);
    let stride = (2 * read_ahead_blocks + 4 * track) / 8 * 8;
    let mut march = March { next: 8192, stride, end: blocks / 4 };
    let bare = shortest(probe, turn / stays, SHORT_OF, |probe| {
        let (to, back) = (march.step(), (8 + probe.below(track / 8)) / 8 * 8);
        Ok((to + back, to))
    })?;
    let miss_overhead_ms = less(bare, own_ms);
    probe.step("short seeks", 0.5)?;
    // A track holds more than a turn's worth of the rate, which has the changes of track in it.
    let beyond = (read_ahead_blocks + track + track / 4) / 8 * 8;
    let next = shortest(probe, turn, SHORT_OF, |_| {
        let from = march.step();
        Ok((from, from + 8 + beyond))
    })?;
    probe.step("random seeks", 0.55)?;
    let mean = mean_access(probe)?;
    probe.step("long seeks", 0.75)?;
    let mut march = March { next: 0, stride: 2 * read_ahead_blocks + 16, end: blocks / 100 };
    let full = shortest(probe, turn, LONG_OF, |probe| {
        let low = march.step();
        let high = blocks - 8 - low;
        Ok(if probe.below(2) == 0 { (low, high) } else { (high, low) })
    })?;
    let seeks_ms = curve(probe, turn, bare.value)?;
    probe.step("queue", 0.9)?;
    let queue = queue(probe)?;
    probe.step("done", 1.0)?;
    // Random places lie in zones whose tracks are shorter: the mean of the rates tells how much.
    let rates = zones_mb_s.iter().map(|zone| zone.1).sum::<f64>() / zones_mb_s.len() as f64;
    let own_mean = 8.0 * 512.0 / rates / 1e3 + buffer.block_ms;
    let average = less(mean, miss_overhead_ms.value + own_mean + turn / 2.0);
    let own_full = 8.0 * 512.0 / zones_mb_s.last().map_or(rates, |zone| zone.1) / 1e3;
    let outer_full = less(full, miss_overhead_ms.value + own_ms.min(own_full + buffer.block_ms));
    let link = 0.512 / buffer.block_ms.max(1e-6);
    Ok(HardFindings {
        blocks,
        period_ms,
        single_seek_ms: less(next, bare.value),
        average_seek_ms: average,
        full_seek_ms: outer_full,
        seeks_ms,
        miss_overhead_ms,
        hit_overhead_ms: buffer.overhead_ms,
        link_mb_s: Measured::about(link, link * 0.02),
        read_ahead_blocks,
        segments,
        queue,
        zones_mb_s,
    })
}

fn less(measured: Measured, by: f64) -> Measured {
    let Measured { value, low, high } = measured;
    Measured { value: (value - by).max(0.0), low: (low - by).max(0.0), high: (high - by).max(0.0) }
}

/// Reads in order at places from the first block to the last.
fn zones<T: Target>(probe: &mut Probe<'_, T>) -> Outcome<Vec<(u64, f64)>, T> {
    const PLACES: u64 = 32;
    const WARM: u64 = 8;
    const COUNT: u64 = 64;
    const BLOCKS: u64 = 256;
    let last = probe.target.blocks() - (WARM + COUNT) * BLOCKS;
    let mut zones = Vec::new();
    for index in 0..PLACES {
        let first = last / (PLACES - 1) * index / 8 * 8;
        let mut begin = Nanos::ZERO;
        let mut end = Nanos::ZERO;
        for count in 0..WARM + COUNT {
            let read = probe.read(first + count * BLOCKS, BLOCKS)?;
            if count < WARM {
                begin = read.0;
            }
            end = read.0;
        }
        let bytes = (COUNT * BLOCKS * 512) as f64;
        zones.push((first, bytes / end.since(begin).0 as f64 * 1e3));
    }
    Ok(zones)
}

/// The shortest of many accesses, less what even the luckiest of so many waits, in ms. `turn` is more than
/// a turn if only a part of the accesses may be the shortest.
fn shortest<T: Target>(
    probe: &mut Probe<'_, T>,
    turn: f64,
    samples: usize,
    mut access: impl FnMut(&mut Probe<'_, T>) -> Outcome<(u64, u64), T>,
) -> Outcome<Measured, T> {
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let (from, to) = access(probe)?;
        probe.read(from, 8)?;
        // Time to read ahead, so that the arm stands; then any angle is as likely as any other.
        let pause = probe.below((turn * 1e6) as u64);
        probe.target.pause(Nanos(pause) + Nanos::from_ms(turn));
        let ms = probe.read(to, 8)?.1;
        // The buffer may know the place from an earlier sample.
        if ms > probe.hit_ms * 1.5 {
            times.push(ms);
        }
    }
    // Some may have been short for another reason: the buffer knew a part of it.
    let rank = if samples == SHORT_OF { 3 } else { times.len() / 100 };
    times.sort_by(f64::total_cmp);
    let least = times.get(rank).copied().unwrap_or(0.0);
    let luck = turn * (rank + 1) as f64 / (times.len() + 1) as f64;
    Ok(Measured { value: least - luck, low: least - 4.0 * luck, high: least })
}

/// Places one behind the other, none of which the buffer knows yet.
struct March {
    next: u64,
    stride: u64,
    end: u64,
}

impl March {
    fn step(&mut self) -> u64 {
        let place = self.next;
        self.next += self.stride;
        if self.next > self.end {
            self.next = 8192 + self.next % 4096 / 8 * 8;
        }
        place
    }
}

/// The mean of accesses to random places, in ms.
fn mean_access<T: Target>(probe: &mut Probe<'_, T>) -> Outcome<Measured, T> {
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..MEAN_OF {
        let place = probe.place(8);
        let ms = probe.read(place, 8)?.1;
        sum += ms;
        squares += ms * ms;
    }
    let count = MEAN_OF as f64;
    let mean = sum / count;
    let deviation = (squares / count - mean * mean).max(0.0).sqrt();
    Ok(Measured::about(mean, 2.0 * deviation / count.sqrt()))
}

/// Seeks over parts of the disk.
fn curve<T: Target>(
    probe: &mut Probe<'_, T>,
    turn: f64,
    bare: f64,
) -> Outcome<Vec<(f64, Measured)>, T> {
    let blocks = probe.target.blocks();
    let mut points = Vec::new();
    for (index, part) in [0.001, 0.01, 0.03, 0.1, 0.2, 0.33, 0.5, 0.75].into_iter().enumerate() {
        probe.step("seeks by distance", 0.78 + 0.01 * index as f64)?;
        let distance = (blocks as f64 * part) as u64 / 8 * 8;
        let access = shortest(probe, turn, LONG_OF, |probe| {
            let from = probe.below(blocks - distance - 8) / 8 * 8;
            Ok(if probe.below(2) == 0 { (from, from + distance) } else { (from + distance, from) })
        })?;
        points.push((part, less(access, bare)));
    }
    Ok(points)
}

/// How many blocks behind a stream of reads are in the buffer when the disk has had time for all.
fn read_ahead<T: Target>(
    probe: &mut Probe<'_, T>,
    buffer: &BufferAnswers,
    turn: f64,
) -> Outcome<u64, T> {
    let is_there = |probe: &mut Probe<'_, T>, distance: u64| {
        let place = probe.place(1 << 17);
        // Two that follow each other: many disks read ahead for streams only.
        probe.read(place, 8)?;
        probe.read(place + 8, 8)?;
        probe.target.pause(Nanos::from_ms(turn * 40.0));
        let ms = probe.read(place + 16 + distance * 8, 8)?.1;
        Ok(ms < buffer.hit_ms(8) * 1.5)
    };
    Ok(last_true(probe, 1 << 13, is_there)? * 8)
}

/// How many places the buffer remembers.
fn segments<T: Target>(probe: &mut Probe<'_, T>, buffer: &BufferAnswers) -> Outcome<usize, T> {
    let remembers = |probe: &mut Probe<'_, T>, others: u64| {
        let place = probe.place(8);
        probe.read(place, 8)?;
        for _ in 0..others {
            let other = probe.place(8);
            probe.read(other, 8)?;
        }
        Ok(probe.read(place, 8)?.1 < buffer.hit_ms(8) * 1.5)
    };
    Ok(last_true(probe, 1 << 10, remembers)? as usize)
}

/// How many numbers from 0 on are answered with yes, where all yeses come before all noes; at most
/// `limit`.
fn last_true<T: Target>(
    probe: &mut Probe<'_, T>,
    limit: u64,
    mut is_true: impl FnMut(&mut Probe<'_, T>, u64) -> Outcome<bool, T>,
) -> Outcome<u64, T> {
    if !is_true(probe, 0)? {
        return Ok(0);
    }
    let mut yes = 0;
    let mut no = 1;
    while no < limit && is_true(probe, no)? {
        (yes, no) = (no, no * 2);
    }
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if is_true(probe, middle)? {
            yes = middle;
        } else {
            no = middle;
        }
    }
    Ok(yes + 1)
}

/// Random reads in a second, by depth.
pub(super) fn queue<T: Target>(probe: &mut Probe<'_, T>) -> Outcome<Vec<(usize, f64)>, T> {
    let mut queue = Vec::new();
    for depth in [1, 2, 4, 8, 16, 32] {
        let places: Vec<(u64, u64)> = (0..400).map(|_| (probe.place(8), 8)).collect();
        let ms = probe.read_many(&places, depth)?;
        queue.push((depth, places.len() as f64 / ms.max(1e-9) * 1e3));
    }
    Ok(queue)
}
