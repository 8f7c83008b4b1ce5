//! The disk specs: `disksim_disk` with buffer, overheads and queue.

use super::model::Mechanics;
use super::{Fields, File, ImportError};
use crate::hard::{Order, ReadAhead, WriteCache};
use crate::mechanism::Arrival;
use crate::profile::limits::{SEGMENTS_MAX, WRITE_BLOCKS_MAX};
use crate::profile::{
    BufferTable, CachingTable, Confidence, Figure, HardDiskProfile, LayoutForm, OverheadPair,
    OverheadTable, QueueTable,
};

/// Where an imported profile's figures come from.
const SOURCE: &str = "DiskSim parameter files (DIXtrac)";

pub(super) fn read(
    specs: &Fields<'_>,
    mechanics: Mechanics,
) -> Result<HardDiskProfile, ImportError> {
    let figure = |value, unit| Figure::measured(value, unit, SOURCE);
    Ok(HardDiskProfile {
        rotation: figure(mechanics.rpm, "rpm"),
        head_switch: figure(mechanics.head_switch_ms, "ms"),
        write_settle: figure(mechanics.write_settle_ms, "ms"),
        interface: interface(specs)?,
        shingled: None,
        latency: mechanics.latency,
        buffer: Figure::measured(buffer(specs)?, "blocks", SOURCE),
        caching: Figure::measured(caching(specs)?, "blocks", SOURCE),
        overheads: Figure::measured(overheads(specs)?, "ms", SOURCE),
        queue: Figure::measured(queue(specs)?, "commands", SOURCE),
        seek: Figure::measured(mechanics.seek, "ms", SOURCE),
        layout: Figure::measured(LayoutForm::Zones(mechanics.layout), "sectors", SOURCE),
    })
}

/// Nominal rates of SCSI buses, in MB/s.
const SCSI_MB_S: [f64; 7] = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0];
/// How far a measured block time may be from a nominal one to be taken for it.
const SCSI_TOLERANCE: f64 = 0.05;
/// The bus that is meant where the specs leave it to DiskSim's model of a bus (a block time of 0): SCSI
/// with asynchronous handshakes, as hosts had that negotiated no rate.
const ASYNCHRONOUS_MB_S: f64 = 3.3;

/// A block's time on the bus, in ms.
const BLOCK_TIME: &str = "Bulk sector transfer time";

/// Whether the bus is another file's business.
fn leaves_bus_open(specs: &Fields<'_>) -> Result<bool, ImportError> {
    Ok(specs.number(BLOCK_TIME)? <= 0.0)
}

/// The link's rate. A bus is clocked: a block time near that of a nominal rate is that rate.
fn interface(specs: &Fields<'_>) -> Result<Figure<f64>, ImportError> {
    let ms = specs.number(BLOCK_TIME)?;
    if leaves_bus_open(specs)? {
        let source = "asynchronous SCSI: the disk specs leave the bus open".to_owned();
        let (value, unit, confidence) = (ASYNCHRONOUS_MB_S, "MB/s".to_owned(), Confidence::Guess);
        return Ok(Figure { value, unit, source, confidence, interval: None });
    }
    let rate = 0.512 / ms;
    let nominal = SCSI_MB_S.iter().find(|nominal| (rate / *nominal - 1.0).abs() <= SCSI_TOLERANCE);
    Ok(match nominal {
        Some(&nominal) => {
            let source = format!("{SOURCE}: {ms} ms a block, the nearest rate of a SCSI bus");
            Figure::measured(nominal, "MB/s", &source)
        }
        None => Figure::measured(rate, "MB/s", SOURCE),
    })
}

/// Ageing and turning where the files give no weight.
const AGEING: f64 = 0.02;
const TURN: f64 = 0.2;

fn buffer(specs: &Fields<'_>) -> Result<BufferTable, ImportError> {
    let segments = specs.whole("Number of buffer segments")?.clamp(1, SEGMENTS_MAX as u64) as usize;
    let segment_blocks = specs.whole("Segment size (in blks)")?.max(1);
    let write_extents = specs.whole_or("Maximum number of write segments", 1)?.clamp(1, 1 << 20);
    Ok(BufferTable {
        segments,
        segment_blocks,
        has_write_segment: specs.flag_or("Use separate write segment", false)?,
        write_extents: write_extents as usize,
        write_blocks: write_extents.saturating_mul(segment_blocks).min(WRITE_BLOCKS_MAX),
    })
}

fn caching(specs: &Fields<'_>) -> Result<CachingTable, ImportError> {
    let reads = specs.flag_or("Enable caching in buffer", true)?;
    let read_ahead = match specs.whole_or("Buffer continuous read", 0)? {
        0 => ReadAhead::Off,
        1 => ReadAhead::Track,
        2 => ReadAhead::Cylinder,
        3 => ReadAhead::Segment,
        4 => ReadAhead::NextTrack,
        other => return Err(specs.wrong("Buffer continuous read", other, "from 0 to 4")),
    };
    let write_cache = match specs.whole_or("Fast write level", 0)? {
        0 => WriteCache::Off,
        1 | 2 => WriteCache::Immediate,
        other => return Err(specs.wrong("Fast write level", other, "from 0 to 2")),
    };
    let arrival =
        |is_immediate: bool| if is_immediate { Arrival::Wanted } else { Arrival::InOrder };
    let read_arrival = if specs.flag_or("Read any free blocks", false)? {
        Arrival::Any
    } else {
        arrival(specs.flag_or("Immediate buffer read", false)?)
    };
    // -1, 0 or 1 in DiskSim; only 1 lets read-ahead push out what was asked for.
    let over_requested = specs.number_or("Read-ahead over requested", 1.0)? == 1.0;
    let mut read_watermark = specs.number_or("High (read) water mark", 0.0)?;
    // DiskSim's share of a segment: taken for all of the read.
    if read_watermark > 0.0 && !specs.flag_or("Set watermark by reqsize", false)? {
        read_watermark = 1.0;
    }
    Ok(CachingTable {
        reads,
        hits_on_writes: specs.flag_or("Allow read hits on write data", false)?,
        read_ahead,
        read_ahead_min: specs.whole_or("Minimum read-ahead (blks)", 0)?,
        read_ahead_max: specs.whole_or("Maximum read-ahead (blks)", 0)?,
        read_ahead_over_requested: over_requested,
        // A buffer whose read-ahead may push out what was asked for is a window that goes with its reader.
        read_ahead_on_hit: over_requested || specs.flag_or("Read-ahead on idle hit", false)?,
        stops_in_sector: specs.flag_or("Stop prefetch in sector", false)?,
        read_arrival,
        read_watermark,
        write_arrival: arrival(specs.flag_or("Immediate buffer write", false)?),
        write_cache,
        combines: specs.flag_or("Combine seq writes", false)?,
        combines_under_way: true,
    })
}

fn overheads(specs: &Fields<'_>) -> Result<OverheadTable, ImportError> {
    let scale = specs.number_or("Time scale for overheads", 1.0)?;
    let each = specs.number_or("Per-request overhead time", 0.0)?;
    let ms = |field| match specs.number_or(field, 0.0)? {
        ms if ms < 0.0 => Err(specs.wrong(field, ms, "0 ms or more")),
        ms => Ok(ms * scale),
    };
    // DIXtrac writes 0 for what it could not tell: a command costs the same after the other kind then.
    let pair = |after_read, after_write| {
        let (after_read, after_write) = (ms(after_read)?, ms(after_write)?);
        let or = |ms: f64, other: f64| if ms > 0.0 { ms } else { other } + each * scale;
        Ok::<_, ImportError>(OverheadPair {
            after_read: or(after_read, after_write),
            after_write: or(after_write, after_read),
        })
    };
    Ok(OverheadTable {
        read_hit: pair("Read hit over. after read", "Read hit over. after write")?,
        // Such files are older than DIXtrac, and were not measured back to back.
        read_hit_outlasts: leaves_bus_open(specs)?,
        read_miss: pair("Read miss over. after read", "Read miss over. after write")?,
        write_hit: pair("Write hit over. after read", "Write hit over. after write")?,
        write_miss: pair("Write miss over. after read", "Write miss over. after write")?,
        data_preparation: ms("Data preparation overhead")?,
        reselect: ms("First reselect overhead")?,
        read_completion: ms("Read completion overhead")?,
        write_completion: ms("Write completion overhead")?,
        write_move_delay_min: specs.number_or("Minimum seek delay", 0.0)?,
    })
}

fn queue(specs: &Fields<'_>) -> Result<QueueTable, ImportError> {
    let depth = specs.whole_or("Max queue length", 1)?.clamp(1, 1 << 16) as usize;
    let Some(scheduler) = specs.block("Scheduler")? else {
        return Ok(QueueTable { depth, order: Order::Fcfs });
    };
    // Ageing per wait, or how much of the disk turning round counts as; 0 in files that leave it open.
    let weight = scheduler.number_or("Timeout time/weight", 0.0)?;
    let order = match scheduler.whole("Scheduling policy")? {
        1 | 28 => Order::Fcfs,
        // Elevators that turn round at the last request; those that begin anew.
        2 | 5 => Order::VScan { turn: 1.0 },
        3 | 6 => Order::CLook,
        // The nearest in blocks or cylinders.
        4 | 7 | 22 | 23 => Order::VScan { turn: 0.0 },
        // The shortest positioning time, plain, weighted or aged.
        8..=10 | 24 => Order::Sptf { ageing: 0.0 },
        11..=16 | 20 | 21 | 25 | 26 => {
            Order::Sptf { ageing: if weight > 0.0 && weight < 1.0 { weight } else { AGEING } }
        }
        17..=19 => Order::VScan { turn: if weight > 0.0 && weight <= 1.0 { weight } else { TURN } },
        other => {
            let what = format!("the scheduling policy {other}");
            return Err(ImportError::NotModelled { file: File::Specs, what });
        }
    };
    Ok(QueueTable { depth, order })
}
