//! How long a rebuild takes at the disks' own pace: capacity over the rate by place, which falls towards
//! the inner tracks.
//!
//! What it does not do: seeks, requests beside it, the bus, the processor. It is the least that a
//! rebuild takes; a run of the engine on model disks says more.

use crate::DiskModel;

/// A disk's part of an array.
#[derive(Clone, Debug)]
pub struct RebuildPart {
    /// The disk.
    pub model: DiskModel,
    /// The first block of the part.
    pub first: u64,
    /// Its blocks.
    pub blocks: u64,
}

/// Places at which the rate is looked at.
const STEPS: u64 = 64;

/// Hours to fill a part from what others hold; all go at the pace of the slowest at each place, and no faster than
/// `limit` bytes a second (md's `sync_speed_max`).
#[must_use]
pub fn rebuild_hours(target: &RebuildPart, sources: &[RebuildPart], limit: f64) -> f64 {
    let bytes = target.blocks as f64 * 512.0 / STEPS as f64;
    let rates = (0..STEPS).map(|step| {
        let place = (step as f64 + 0.5) / STEPS as f64;
        let reads = sources.iter().map(|part| part.rate(place, false));
        reads.fold(target.rate(place, true), f64::min).min(limit)
    });
    rates.map(|rate| bytes / rate).sum::<f64>() / 3600.0
}

impl RebuildPart {
    /// Bytes a second in order at a place of the part, 0 its beginning, 1 its end.
    fn rate(&self, place: f64, is_write: bool) -> f64 {
        match &self.model {
            DiskModel::Hard(disk) => {
                let mechanism = &disk.mechanism;
                let layout = &mechanism.layout;
                let last = (self.first + self.blocks).min(layout.blocks()).saturating_sub(1);
                let lba = (self.first + (self.blocks as f64 * place) as u64).min(last);
                let turn = mechanism.rotation.period().0 as f64 / 1e9;
                let skew = mechanism.rotation.time_of(layout.least_track_skew()).0 as f64 / 1e9;
                let rate = layout.sectors_per_track(lba) as f64 * 512.0 / (turn + skew);
                rate.min(512e12 / disk.block_ps.max(1) as f64)
            }
            DiskModel::Solid(disk) => {
                let is_fast = (self.blocks as f64 * place * 512.0) < disk.fast_bytes as f64;
                let rate = match (is_write, is_fast) {
                    (true, true) => disk.fast_rate,
                    (true, false) => disk.slow_rate,
                    (false, _) => disk.read_rate,
                };
                rate.min(disk.link_rate).max(1) as f64
            }
        }
    }
}
