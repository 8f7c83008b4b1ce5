//! Between what bounds a profile's numbers lie: one table for each kind of disk.
//!
//! Lower bounds keep out what has no meaning (a queue of no commands, a seek that takes less than none),
//! upper ones what would use up the memory or the time of whoever runs the model. Both are wider than any
//! disk; a figure that is not a number is in no range.
//!
//! What it does not do: units, how zones fit together ([`crate::layout`]), how disks fail (`reliability.rs`).

use super::{
    Figure, HardDiskProfile, LayoutForm, OverheadPair, Profile, ProfileError, SolidDiskProfile,
};
use crate::hard::{Order, WriteCache};
use crate::seek::SeekTable;
use std::ops::RangeInclusive;

/// A number's field, value and range.
type Row = (&'static str, f64, RangeInclusive<f64>);

/// Ten seconds: more than any part of a command takes.
const MS: RangeInclusive<f64> = 0.0..=10_000.0;
const US: RangeInclusive<f64> = 0.0..=10_000_000.0;
/// Below, a block takes half a second; above, less than a nanosecond.
const MB_S: RangeInclusive<f64> = 0.001..=1_000_000.0;
/// 512 TiB.
const BLOCKS: RangeInclusive<f64> = 1.0..=1_099_511_627_776.0;
/// Of a band of shingled tracks: a mebibyte at the least, since what is of each band is counted.
const BAND_BLOCKS: RangeInclusive<f64> = 2048.0..=1_099_511_627_776.0;
/// Of a buffer, which is looked at from end to end for each command.
pub(crate) const SEGMENTS_MAX: usize = 65_536;
/// Of a part of the buffer: 512 MiB, which a disk reads ahead block by block.
pub(crate) const SEGMENT_BLOCKS_MAX: u64 = 1_048_576;
/// Of writes that wait: 8 GiB.
pub(crate) const WRITE_BLOCKS_MAX: u64 = 16_777_216;
/// Of commands at once, each of which is looked at to choose the next.
const COMMANDS: RangeInclusive<f64> = 1.0..=65_536.0;
/// Of flash that reads side by side.
pub(crate) const UNITS_MAX: usize = 1_048_576;

/// Holds a hard disk's numbers against their ranges.
pub(super) fn hard(disk: &HardDiskProfile) -> Result<(), ProfileError> {
    let (buffer, caching, costs) = (&disk.buffer.value, &disk.caching.value, &disk.overheads.value);
    let segment = SEGMENT_BLOCKS_MAX as f64;
    // Without a write cache nothing waits.
    let least = if caching.write_cache == WriteCache::Off { 0.0 } else { 1.0 };
    let numbers: [Row; 17] = [
        ("rotation", disk.rotation.value, 1.0..=1_000_000.0),
        ("head_switch", disk.head_switch.value, MS),
        ("write_settle", disk.write_settle.value, -10_000.0..=10_000.0),
        ("interface", disk.interface.value, MB_S),
        ("buffer.segments", buffer.segments as f64, 1.0..=SEGMENTS_MAX as f64),
        ("buffer.segment_blocks", buffer.segment_blocks as f64, 1.0..=segment),
        ("buffer.write_extents", buffer.write_extents as f64, least..=1_048_576.0),
        ("buffer.write_blocks", buffer.write_blocks as f64, least..=WRITE_BLOCKS_MAX as f64),
        ("caching.read_ahead_min", caching.read_ahead_min as f64, 0.0..=segment),
        ("caching.read_ahead_max", caching.read_ahead_max as f64, 0.0..=segment),
        ("caching.read_watermark", caching.read_watermark, 0.0..=1.0),
        ("overheads.data_preparation", costs.data_preparation, MS),
        ("overheads.reselect", costs.reselect, MS),
        ("overheads.read_completion", costs.read_completion, MS),
        ("overheads.write_completion", costs.write_completion, MS),
        ("overheads.write_move_delay_min", costs.write_move_delay_min, -10_000.0..=10_000.0),
        ("queue.depth", disk.queue.value.depth as f64, COMMANDS),
    ];
    numbers.into_iter().try_for_each(check)?;
    let pairs: [(_, _, OverheadPair); 4] = [
        ("overheads.read_hit.after_read", "overheads.read_hit.after_write", costs.read_hit),
        ("overheads.read_miss.after_read", "overheads.read_miss.after_write", costs.read_miss),
        ("overheads.write_hit.after_read", "overheads.write_hit.after_write", costs.write_hit),
        ("overheads.write_miss.after_read", "overheads.write_miss.after_write", costs.write_miss),
    ];
    for (after_read, after_write, pair) in pairs {
        check((after_read, pair.after_read, MS))?;
        check((after_write, pair.after_write, MS))?;
    }
    match disk.queue.value.order {
        Order::VScan { turn } => check(("queue.order.turn", turn, 0.0..=1.0))?,
        Order::Sptf { ageing } => check(("queue.order.ageing", ageing, 0.0..=1000.0))?,
        Order::Fcfs | Order::CLook => {}
    }
    if let Some(shingled) = &disk.shingled {
        check(("shingled.band_blocks", shingled.value.band_blocks as f64, BAND_BLOCKS))?;
        check(("shingled.cache_blocks", shingled.value.cache_blocks as f64, BLOCKS))?;
    }
    seek(&disk.seek.value)?;
    layout(&disk.layout.value)?;
    let measured = [
        ("rotation.interval", &disk.rotation),
        ("head_switch.interval", &disk.head_switch),
        ("write_settle.interval", &disk.write_settle),
        ("interface.interval", &disk.interface),
    ];
    measured.into_iter().try_for_each(|(field, figure)| interval(field, figure))
}

fn seek(table: &SeekTable) -> Result<(), ProfileError> {
    match table {
        SeekTable::Constant { ms } => check(("seek.ms", *ms, MS)),
        SeekTable::Points { points } => {
            points.iter().try_for_each(|point| check(("seek.points", point.1, MS)))
        }
        &SeekTable::ThreePoint { single_ms, average_ms, full_ms }
        | &SeekTable::Linear { single_ms, average_ms, full_ms } => {
            // Farther takes longer.
            check(("seek.single_ms", single_ms, MS))?;
            check(("seek.full_ms", full_ms, single_ms..=*MS.end()))?;
            check(("seek.average_ms", average_ms, single_ms..=full_ms))
        }
        SeekTable::RootLine { root_ms, root_factor, line_ms, line_factor, first_ms, .. } => {
            // Constants of formulas, which may be below 0 where the sum is not.
            let either = -10_000.0..=10_000.0;
            check(("seek.root_ms", *root_ms, either.clone()))?;
            check(("seek.root_factor", *root_factor, either.clone()))?;
            check(("seek.line_ms", *line_ms, either.clone()))?;
            check(("seek.line_factor", *line_factor, either))?;
            first_ms.iter().try_for_each(|ms| check(("seek.first_ms", *ms, MS)))
        }
    }
}

fn layout(form: &LayoutForm) -> Result<(), ProfileError> {
    match form {
        LayoutForm::Rates(rates) => {
            check(("layout.blocks", rates.blocks as f64, BLOCKS))?;
            check(("layout.heads", rates.heads.into(), 1.0..=64.0))?;
            check(("layout.zones", rates.zones.into(), 1.0..=1000.0))?;
            check(("layout.outer_mb_s", rates.outer_mb_s, MB_S))?;
            // Outer tracks are the longest.
            check(("layout.inner_mb_s", rates.inner_mb_s, *MB_S.start()..=rates.outer_mb_s))
        }
        LayoutForm::Zones(table) => {
            check(("layout.heads", table.heads.into(), 1.0..=64.0))?;
            // A skew of some turns is one of the rest; the bound keeps the angle exact.
            let sectors = -1e9..=1e9;
            table.zones.iter().try_for_each(|zone| {
                check(("layout.zones.offset", zone.offset, sectors.clone()))?;
                check(("layout.zones.track_skew", zone.track_skew, sectors.clone()))?;
                check(("layout.zones.cylinder_skew", zone.cylinder_skew, sectors.clone()))?;
                check(("layout.zones.reserved", zone.reserved as f64, 0.0..=*BLOCKS.end()))?;
                check(("layout.zones.spares", zone.spares as f64, 0.0..=*BLOCKS.end()))
            })
        }
    }
}

/// Holds a solid-state disk's numbers against their ranges.
pub(super) fn solid(disk: &SolidDiskProfile) -> Result<(), ProfileError> {
    let times_and_rates = [
        ("read", "read.interval", &disk.read, US),
        ("read_command", "read_command.interval", &disk.read_command, US),
        ("write_command", "write_command.interval", &disk.write_command, US),
        ("write_accept", "write_accept.interval", &disk.write_accept, US),
        ("flush", "flush.interval", &disk.flush, US),
        ("program_wait", "program_wait.interval", &disk.program_wait, US),
        ("interface", "interface.interval", &disk.interface, MB_S),
        ("read_rate", "read_rate.interval", &disk.read_rate, MB_S),
        ("fast_rate", "fast_rate.interval", &disk.fast_rate, MB_S),
        ("slow_rate", "slow_rate.interval", &disk.slow_rate, MB_S),
        ("fast_cells", "fast_cells.interval", &disk.fast_cells, 0.0..=1_000_000_000.0),
        ("buffer", "buffer.interval", &disk.buffer, 0.001..=1_000_000_000.0),
        ("amplification", "amplification.interval", &disk.amplification, 1.0..=1000.0),
    ];
    for (field, its_interval, figure, bounds) in times_and_rates {
        check((field, figure.value, bounds))?;
        interval(its_interval, figure)?;
    }
    let counts: [Row; 5] = [
        ("capacity", disk.capacity.value as f64, BLOCKS),
        ("queue", disk.queue.value as f64, COMMANDS),
        ("units", disk.units.value as f64, 1.0..=UNITS_MAX as f64),
        ("page", disk.page.value as f64, 1.0..=SEGMENT_BLOCKS_MAX as f64),
        ("power_backed", disk.power_backed.value.into(), 0.0..=1.0),
    ];
    counts.into_iter().try_for_each(check)
}

/// Holds what every profile has against its range; how disks fail has a table of its own.
pub(super) fn common(profile: &Profile) -> Result<(), ProfileError> {
    profile.year.map_or(Ok(()), |year| check(("year", year.into(), 1956.0..=2999.0)))?;
    let Some(reliability) = &profile.reliability else { return Ok(()) };
    interval("reliability.afr.interval", &reliability.afr)?;
    interval("reliability.unreadable.interval", &reliability.unreadable)?;
    interval("reliability.latent.interval", &reliability.latent)
}

/// Bounds are numbers, and the value lies between them.
fn interval(field: &'static str, figure: &Figure<f64>) -> Result<(), ProfileError> {
    let Some((low, high)) = figure.interval else { return Ok(()) };
    check((field, low, f64::MIN..=figure.value))?;
    check((field, high, figure.value..=f64::MAX))
}

fn check((field, value, bounds): Row) -> Result<(), ProfileError> {
    if bounds.contains(&value) {
        return Ok(());
    }
    let expected = match (*bounds.start(), *bounds.end()) {
        (f64::MIN, most) => format!("{} at most", told(most)),
        (least, f64::MAX) => format!("{} at least", told(least)),
        (least, most) => format!("from {} to {}", told(least), told(most)),
    };
    Err(ProfileError::Range { field, found: told(value), expected })
}

/// A number as one writes it; thousands are set apart.
pub(super) fn told(value: f64) -> String {
    let is_plain = value == 0.0 || (1e-6..1e15).contains(&value.abs());
    if !is_plain {
        return if value.is_finite() { format!("{value:e}") } else { value.to_string() };
    }
    let text = value.to_string();
    let (whole, part) = text.split_once('.').map_or((text.as_str(), None), |(w, p)| (w, Some(p)));
    let digits = whole.trim_start_matches('-');
    let mut set_apart = whole[..whole.len() - digits.len()].to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            set_apart.push(',');
        }
        set_apart.push(digit);
    }
    part.map_or(set_apart.clone(), |part| format!("{set_apart}.{part}"))
}

#[cfg(test)]
mod tests;
