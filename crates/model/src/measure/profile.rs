//! A profile from what was found. What reading cannot tell is a guess there, and says so.

use super::{Findings, HardFindings, Measured, SolidFindings};
use crate::hard::{Order, ReadAhead, WriteCache};
use crate::mechanism::{Arrival, Latency};
use crate::profile::limits::UNITS_MAX;
use crate::profile::{
    BufferTable, CachingTable, Confidence, Figure, HardDiskProfile, Kind, LayoutForm, OverheadPair,
    OverheadTable, Profile, QueueTable, RatesTable, SolidDiskProfile,
};
use crate::seek::SeekTable;

const SOURCE: &str = "lapstrake disk measure";
const GUESS: &str = "not measured: what such disks have";

fn found<T>(value: T, unit: &str) -> Figure<T> {
    Figure::measured(value, unit, SOURCE)
}

fn guess<T>(value: T, unit: &str) -> Figure<T> {
    let (unit, source) = (unit.to_owned(), GUESS.to_owned());
    Figure { value, unit, source, confidence: Confidence::Guess, interval: None }
}

fn within(measured: Measured, unit: &str) -> Figure<f64> {
    let interval = Some((measured.low, measured.high));
    Figure { interval, ..found(measured.value, unit) }
}

impl Findings {
    /// The profile that this comes to.
    #[must_use]
    pub fn profile(&self, name: &str, model: &str) -> Profile {
        let kind = match self {
            Self::HardDisk(findings) => Kind::HardDisk(Box::new(hard(findings))),
            Self::SolidDisk(findings) => Kind::SolidDisk(Box::new(solid(findings))),
        };
        let (name, model) = (name.to_owned(), model.to_owned());
        let note = Some("measured by reading only".into());
        Profile { name, model, year: None, note, kind, reliability: None }
    }
}

fn hard(findings: &HardFindings) -> HardDiskProfile {
    let rpm = |ms: f64| 60_000.0 / ms;
    let period = findings.period_ms;
    let rotation =
        Measured { value: rpm(period.value), low: rpm(period.high), high: rpm(period.low) };
    let pair = |ms: f64| OverheadPair { after_read: ms, after_write: ms };
    let (hit, miss) = (findings.hit_overhead_ms.value, findings.miss_overhead_ms.value);
    let segment_blocks = findings.read_ahead_blocks.max(8);
    // What is noise in a measurement must not become what no disk has: a buffer that takes less than no
    // time, inner tracks longer than outer ones, long seeks shorter than short ones.
    let (hit, miss) = (hit.max(0.0), miss.max(0.0));
    let rate = |zone: Option<&(u64, f64)>| zone.map_or(1.0, |zone| zone.1).max(0.001);
    let outer_mb_s = rate(findings.zones_mb_s.first());
    let single_ms = findings.single_seek_ms.value;
    let average_ms = findings.average_seek_ms.value.max(single_ms);
    let full_ms = findings.full_seek_ms.value.max(average_ms);
    // Straight lines, where the mean is so short that the root's factor is below 0: it could fall below nothing.
    let seek = if average_ms - single_ms < (full_ms - single_ms) / 3.0 {
        SeekTable::Linear { single_ms, average_ms, full_ms }
    } else {
        SeekTable::ThreePoint { single_ms, average_ms, full_ms }
    };
    HardDiskProfile {
        rotation: within(rotation, "rpm"),
        head_switch: within(findings.single_seek_ms, "ms"),
        write_settle: guess(0.4, "ms"),
        interface: within(findings.link_mb_s, "MB/s"),
        shingled: None,
        latency: Latency::Position,
        buffer: found(
            BufferTable {
                segments: findings.segments.max(1),
                segment_blocks,
                has_write_segment: false,
                write_extents: 64,
                write_blocks: 8192,
            },
            "blocks",
        ),
        caching: found(
            CachingTable {
                reads: findings.segments > 0,
                hits_on_writes: true,
                read_ahead: if findings.read_ahead_blocks > 0 {
                    ReadAhead::Segment
                } else {
                    ReadAhead::Off
                },
                read_ahead_min: 0,
                read_ahead_max: findings.read_ahead_blocks,
                read_ahead_over_requested: true,
                read_ahead_on_hit: true,
                stops_in_sector: false,
                read_watermark: 0.0,
                read_arrival: Arrival::InOrder,
                write_arrival: Arrival::InOrder,
                write_cache: WriteCache::Lazy,
                combines: true,
                combines_under_way: true,
            },
            "blocks",
        ),
        overheads: found(
            OverheadTable {
                read_hit: pair(hit),
                read_hit_outlasts: false,
                read_miss: pair(miss),
                write_hit: pair(hit),
                write_miss: pair(miss),
                ..OverheadTable::default()
            },
            "ms",
        ),
        queue: found(queue(&findings.queue), "commands"),
        seek: found(seek, "ms"),
        layout: found(
            LayoutForm::Rates(RatesTable {
                blocks: findings.blocks,
                heads: 2,
                zones: 16,
                outer_mb_s,
                inner_mb_s: rate(findings.zones_mb_s.last()).min(outer_mb_s),
            }),
            "sectors",
        ),
    }
}

/// A queue is of use if many random reads at once go faster than one.
fn queue(rates: &[(usize, f64)]) -> QueueTable {
    let one = rates.first().map_or(1.0, |rate| rate.1);
    let gains = |rate: &&(usize, f64)| rate.1 > 1.15 * one;
    let reorders = rates.iter().any(|rate| gains(&rate));
    // As deep as reads still go notably faster than at half the depth.
    let mut still = rates.windows(2).filter(|pair| pair[1].1 > 1.03 * pair[0].1);
    let depth = still.next_back().map_or(1, |pair| pair[1].0);
    let order = if reorders { Order::Sptf { ageing: 0.02 } } else { Order::Fcfs };
    QueueTable { depth: if reorders { depth } else { 1 }, order }
}

/// The greatest of some figures by its value.
fn greatest(figures: impl Iterator<Item = Measured>) -> Measured {
    let least = Measured { value: 1.0, low: 1.0, high: 1.0 };
    figures.fold(least, |most, next| if next.value > most.value { next } else { most })
}

/// Half the width of the bounds above which passes have measured something else than the disk.
const SCATTER: f64 = 0.2;

/// A figure with its bounds; where these are wide, it is no more than a guess, and says so.
fn scattered(measured: Measured, unit: &str) -> Figure<f64> {
    let figure = within(measured, unit);
    if measured.spread() <= SCATTER {
        return figure;
    }
    let Measured { low, high, .. } = measured;
    let source = format!("{SOURCE}, but its passes differ: {low:.1} to {high:.1} {unit}");
    Figure { source, confidence: Confidence::Guess, ..figure }
}

fn solid(findings: &SolidFindings) -> SolidDiskProfile {
    let most = greatest(findings.reads.iter().map(|reads| reads.1));
    let us = |reads: f64| 1e6 / reads.max(1e-3);
    let command = Measured { value: us(most.value), low: us(most.high), high: us(most.low) };
    let rate = greatest(findings.rates_mb_s.iter().map(|rate| rate.2));
    let latency = findings.latency_us;
    // So many reads are under way when the controller is busy all the time; twice that, to be seldom
    // in each other's way.
    let units = (2.0 * latency.value / command.value).ceil().clamp(1.0, UNITS_MAX as f64) as usize;
    // The command and the way over the link are parts of a read's latency.
    let link_us = |rate: f64| 4096.0 / rate.max(1e-3);
    let flash =
        |latency: f64, command: f64, rate: f64| (latency - command - link_us(rate)).max(0.0);
    let read = Measured {
        value: flash(latency.value, command.value, rate.value),
        low: flash(latency.low, command.high, rate.low),
        high: flash(latency.high, command.low, rate.high),
    };
    SolidDiskProfile {
        capacity: found(findings.blocks, "sectors"),
        interface: scattered(rate, "MB/s"),
        queue: found(findings.reads.last().map_or(32, |reads| reads.0), "commands"),
        units: found(units, "units"),
        page: guess(8, "blocks"),
        read: scattered(read, "us"),
        read_command: scattered(command, "us"),
        write_command: guess(command.value, "us"),
        write_accept: guess(20.0, "us"),
        flush: guess(500.0, "us"),
        power_backed: guess(0, "flag"),
        program_wait: guess(60.0, "us"),
        read_rate: scattered(rate, "MB/s"),
        fast_rate: guess(rate.value * 0.8, "MB/s"),
        slow_rate: guess(rate.value * 0.4, "MB/s"),
        fast_cells: guess(40.0, "GB"),
        buffer: guess(8.0, "MB"),
        amplification: guess(4.0, "bytes"),
    }
}
