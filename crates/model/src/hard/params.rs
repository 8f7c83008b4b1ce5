//! What a hard disk's firmware does, in figures: overheads, read-ahead, write cache, queue.

use super::Shingles;
use crate::Nanos;
use crate::cache::CacheSize;
use crate::mechanism::{Arrival, Mechanism};
use std::ops::Range;

/// How far a disk reads on when nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// Not at all.
    Off,
    /// To the end of the track.
    Track,
    /// To the end of the cylinder.
    Cylinder,
    /// Until the segment is full.
    Segment,
    /// The same, but only after a read that goes on where one of the last ones ended, as many as there are segments; then
    /// the segment is full before another command gets the arm.
    Streams,
    /// To the end of the next track: after any read if the buffer is a window, else after one that goes on where an earlier
    /// one ended.
    NextTrack,
}

/// What becomes of a write before it is on the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// It is done when it is on the media.
    Off,
    /// It is done when it is in the buffer, and goes to the media at once, before anything else.
    Immediate,
    /// It is done when it is in the buffer; reads go first until half of the room is used.
    Lazy,
}

/// In which order commands that wait get the arm.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", tag = "policy")]
pub enum Order {
    /// As they came.
    Fcfs,
    /// Upwards, then from the lowest again.
    CLook,
    /// The nearest, where turning round counts as this part of the disk.
    VScan {
        /// 0: always the nearest; 1: up to the last, then down.
        turn: f64,
    },
    /// The one that is reached first, less what it has waited times `ageing`.
    Sptf {
        /// 0: ignores age.
        ageing: f64,
    },
}

/// A command's cost before anything moves, by what the command before it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overhead {
    /// After a read.
    pub after_read: Nanos,
    /// After a write.
    pub after_write: Nanos,
}

impl Overhead {
    pub(super) fn get(&self, is_after_write: bool) -> Nanos {
        if is_after_write { self.after_write } else { self.after_read }
    }

    /// What it is where nothing else of the last command is left to be done.
    pub(super) fn least(&self) -> Nanos {
        self.after_read.min(self.after_write)
    }
}

/// What commands cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overheads {
    /// A read that the buffer answers.
    pub read_hit: Overhead,
    /// What that is after the last command holds after a pause, too.
    pub read_hit_outlasts: bool,
    /// A read that needs the arm: before the arm moves.
    pub read_miss: Overhead,
    /// A write that the buffer takes.
    pub write_hit: Overhead,
    /// A write that is done on the media only: before the arm moves.
    pub write_miss: Overhead,
    /// Before data go over the link.
    pub data_preparation: Nanos,
    /// Before data that were waited for go over the link.
    pub reselect: Nanos,
    /// After a read's last block.
    pub read_completion: Nanos,
    /// After a write's last block.
    pub write_completion: Nanos,
    /// A write's arm sets out this much earlier or later than its data.
    pub write_move_delay_min: Nanos,
}

/// A hard disk, ready to run.
#[derive(Clone, Debug)]
pub struct HardDiskModel {
    /// Arm, heads and platters.
    pub mechanism: Mechanism,
    /// The buffer.
    pub cache: CacheSize,
    /// Whether reads are answered from the buffer.
    pub caches_reads: bool,
    /// How far it reads on.
    pub read_ahead: ReadAhead,
    /// At least so many blocks, before another command gets the arm.
    pub read_ahead_min: u64,
    /// At most so many blocks; 0: as many as the segment has.
    pub read_ahead_max: u64,
    /// What is read ahead may push out what was asked for.
    pub read_ahead_over_requested: bool,
    /// A read that the buffer answers makes an idle disk read on.
    pub read_ahead_on_hit: bool,
    /// A prefetch is broken off in the midst of a sector.
    pub stops_in_sector: bool,
    /// In what order a track's blocks are read.
    pub read_arrival: Arrival,
    /// The share of a read's blocks that is in the buffer before they go to the host (DiskSim's high watermark).
    pub read_watermark: f64,
    /// In what order a track's blocks are written.
    pub write_arrival: Arrival,
    /// What becomes of writes.
    pub write_cache: WriteCache,
    /// What commands cost.
    pub overheads: Overheads,
    /// A block's time on the disk's own link, in picoseconds.
    pub block_ps: u64,
    /// Bands, if tracks overlap.
    pub shingles: Option<Shingles>,
    /// The cache zone of these is full at first, of what was written all over these blocks.
    pub cache_zone_full_of: Option<Range<u64>>,
    /// Commands that the disk takes in at once.
    pub queue_depth: usize,
    /// In which order they get the arm.
    pub order: Order,
}

impl HardDiskModel {
    /// Blocks of the disk.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.mechanism.layout.blocks()
    }

    /// What blocks take on the disk's own link.
    #[must_use]
    pub fn link_time(&self, blocks: u64) -> Nanos {
        Nanos(blocks.saturating_mul(self.block_ps).div_ceil(1000))
    }

    /// Whether it reads ahead only for a read that goes on where an earlier one ended. A buffer whose read-ahead may push
    /// out what was asked for is a window, which reads on after any.
    pub(super) fn looks_for_streams(&self) -> bool {
        self.read_ahead == ReadAhead::NextTrack && !self.read_ahead_over_requested
    }
}
