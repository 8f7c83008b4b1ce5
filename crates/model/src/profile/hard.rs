//! A hard disk's figures, and the model that they make.

use super::rates::RatesTable;
use super::{Figure, ProfileError, limits, unit};
use crate::Nanos;
use crate::cache::CacheSize;
use crate::hard::{HardDiskModel, Order, Overhead, Overheads, ReadAhead, Shingles, WriteCache};
use crate::layout::{Layout, LayoutTable};
use crate::mechanism::{Arrival, Latency, Mechanism};
use crate::rotation::Rotation;
use crate::seek::{SeekCurve, SeekError, SeekTable};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A hard disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardDiskProfile {
    /// In rpm.
    pub rotation: Figure<f64>,
    /// To another head of the same cylinder, in ms.
    pub head_switch: Figure<f64>,
    /// What a write needs more than a read to settle, in ms.
    pub write_settle: Figure<f64>,
    /// Of the disk's own link, in MB/s.
    pub interface: Figure<f64>,
    /// Bands of overlapping tracks, in blocks; none if tracks do not overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shingled: Option<Figure<Shingles>>,
    /// How latency comes about.
    #[serde(default = "Latency::by_position")]
    pub latency: Latency,
    /// In blocks.
    pub buffer: Figure<BufferTable>,
    /// Sizes in blocks.
    pub caching: Figure<CachingTable>,
    /// In ms.
    pub overheads: Figure<OverheadTable>,
    /// In commands.
    pub queue: Figure<QueueTable>,
    /// In ms by cylinders.
    pub seek: Figure<SeekTable>,
    /// In sectors.
    pub layout: Figure<LayoutForm>,
}

impl Latency {
    fn by_position() -> Self {
        Self::Position
    }
}

/// Where blocks are: as extracted, or as a data sheet lets one work it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "form")]
pub enum LayoutForm {
    /// Zone by zone.
    Zones(LayoutTable),
    /// From capacity and rates.
    Rates(RatesTable),
}

/// The buffer's size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferTable {
    /// Segments.
    pub segments: usize,
    /// Blocks of each.
    pub segment_blocks: u64,
    /// One of them is for writes alone.
    #[serde(default)]
    pub has_write_segment: bool,
    /// Runs of written blocks that may wait for the media.
    pub write_extents: usize,
    /// Written blocks that may wait for the media.
    pub write_blocks: u64,
}

/// What the buffer is used for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachingTable {
    /// Reads are answered from it.
    pub reads: bool,
    /// Also from what was written.
    pub hits_on_writes: bool,
    /// How far the disk reads on.
    pub read_ahead: ReadAhead,
    /// At least so many blocks, before anything else.
    #[serde(default)]
    pub read_ahead_min: u64,
    /// At most so many blocks; 0: a segment.
    #[serde(default)]
    pub read_ahead_max: u64,
    /// What is read ahead may push out what was asked for.
    #[serde(default)]
    pub read_ahead_over_requested: bool,
    /// A hit makes an idle disk read on.
    #[serde(default)]
    pub read_ahead_on_hit: bool,
    /// A prefetch is broken off in the midst of a sector.
    #[serde(default)]
    pub stops_in_sector: bool,
    /// In what order a track's blocks are read.
    pub read_arrival: Arrival,
    /// A read's data go to the host when this share of them is in the buffer, from 0 to 1; 0: at once.
    #[serde(default)]
    pub read_watermark: f64,
    /// In what order a track's blocks are written.
    pub write_arrival: Arrival,
    /// What becomes of writes.
    pub write_cache: WriteCache,
    /// A write that goes on where another ends joins it.
    pub combines: bool,
    /// Also where that one is on its way to the media. If not, what comes meanwhile is a write of its own, that the
    /// firmware sets up when the one before it has ended.
    #[serde(default = "yes")]
    pub combines_under_way: bool,
}

fn yes() -> bool {
    true
}

/// A command's cost after a read and after a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadPair {
    /// After a read.
    pub after_read: f64,
    /// After a write.
    pub after_write: f64,
}

/// What commands cost, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverheadTable {
    /// A read that the buffer answers.
    pub read_hit: OverheadPair,
    /// What that is after the last command holds after a pause, too; else what holds is its cost after a write.
    #[serde(default)]
    pub read_hit_outlasts: bool,
    /// A read that needs the arm.
    pub read_miss: OverheadPair,
    /// A write that the buffer takes.
    pub write_hit: OverheadPair,
    /// A write that waits for the media.
    pub write_miss: OverheadPair,
    /// Before data go over the link.
    #[serde(default)]
    pub data_preparation: f64,
    /// Before data that were waited for go over the link.
    #[serde(default)]
    pub reselect: f64,
    /// After a read.
    #[serde(default)]
    pub read_completion: f64,
    /// After a write.
    #[serde(default)]
    pub write_completion: f64,
    /// From a write's beginning to its first block at least.
    #[serde(default)]
    pub write_move_delay_min: f64,
}

/// Commands at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTable {
    /// How many the disk takes in.
    pub depth: usize,
    /// In which order they get the arm.
    pub order: Order,
}

impl HardDiskProfile {
    pub(super) fn build(&self) -> Result<HardDiskModel, ProfileError> {
        self.check()?;
        let rotation = Rotation::new(self.rotation.value);
        let layout = match &self.layout.value {
            LayoutForm::Zones(table) => Layout::new(table)?,
            LayoutForm::Rates(rates) => {
                // Skews leave room for what takes longest: settling to write.
                let settle = self.write_settle.value.max(0.0);
                let single = rates.single_cylinder_ms(&self.seek.value)?;
                let switch = self.head_switch.value.max(single) + settle;
                Layout::new(&rates.zones(self.rotation.value, switch, single + settle)?)?
            }
        };
        let seek = SeekCurve::new(&self.seek.value, layout.cylinders())?;
        if !seek.is_never_negative(layout.cylinders()) {
            return Err(SeekError::Negative.into());
        }
        let write_settle_ns = (self.write_settle.value * 1e6).round() as i64;
        let latency = self.latency;
        // The shortest seek is all settling, and so is a change of head or from writing to reading (whose
        // heads are not the same, and not over the same track). A skew leaves room for a change of head and for
        // settling to write.
        let turn = seek.time(1);
        let skew = rotation.time_of(layout.least_track_skew());
        let room = skew.since(Nanos::from_ms(self.write_settle.value.max(0.0)));
        let head_switch = Nanos::from_ms(self.head_switch.value).max(turn.min(room));
        let layout = Arc::new(layout);
        let mechanism =
            Mechanism { turn, layout, seek, rotation, latency, head_switch, write_settle_ns };
        let (buffer, caching) = (&self.buffer.value, &self.caching.value);
        Ok(HardDiskModel {
            mechanism,
            cache: CacheSize {
                segments: buffer.segments,
                segment_blocks: buffer.segment_blocks,
                has_write_segment: buffer.has_write_segment,
                hits_on_writes: caching.hits_on_writes,
                dirty_extents_max: buffer.write_extents,
                dirty_blocks_max: buffer.write_blocks,
                combines: caching.combines,
                combines_under_way: caching.combines_under_way,
            },
            caches_reads: caching.reads,
            read_ahead: caching.read_ahead,
            read_ahead_min: caching.read_ahead_min,
            read_ahead_max: caching.read_ahead_max,
            read_ahead_over_requested: caching.read_ahead_over_requested,
            read_ahead_on_hit: caching.read_ahead_on_hit,
            stops_in_sector: caching.stops_in_sector,
            read_arrival: caching.read_arrival,
            read_watermark: caching.read_watermark,
            write_arrival: caching.write_arrival,
            write_cache: caching.write_cache,
            overheads: self.overheads.value.build(),
            block_ps: (512e6 / self.interface.value).round() as u64,
            shingles: self.shingled.as_ref().map(|figure| figure.value),
            cache_zone_full_of: None,
            queue_depth: self.queue.value.depth,
            order: self.queue.value.order,
        })
    }

    fn check(&self) -> Result<(), ProfileError> {
        unit("rotation", &self.rotation, "rpm")?;
        unit("head_switch", &self.head_switch, "ms")?;
        unit("write_settle", &self.write_settle, "ms")?;
        unit("interface", &self.interface, "MB/s")?;
        unit("buffer", &self.buffer, "blocks")?;
        unit("caching", &self.caching, "blocks")?;
        unit("overheads", &self.overheads, "ms")?;
        unit("queue", &self.queue, "commands")?;
        unit("seek", &self.seek, "ms")?;
        unit("layout", &self.layout, "sectors")?;
        if let Some(shingled) = &self.shingled {
            unit("shingled", shingled, "blocks")?;
        }
        limits::hard(self)
    }
}

impl OverheadTable {
    fn build(&self) -> Overheads {
        let pair = |pair: OverheadPair| Overhead {
            after_read: Nanos::from_ms(pair.after_read),
            after_write: Nanos::from_ms(pair.after_write),
        };
        Overheads {
            read_hit: pair(self.read_hit),
            read_hit_outlasts: self.read_hit_outlasts,
            read_miss: pair(self.read_miss),
            write_hit: pair(self.write_hit),
            write_miss: pair(self.write_miss),
            data_preparation: Nanos::from_ms(self.data_preparation),
            reselect: Nanos::from_ms(self.reselect),
            read_completion: Nanos::from_ms(self.read_completion),
            write_completion: Nanos::from_ms(self.write_completion),
            write_move_delay_min: Nanos::from_ms(self.write_move_delay_min),
        }
    }
}
