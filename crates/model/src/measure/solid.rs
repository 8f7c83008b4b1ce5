//! What a disk without an arm tells: latency and rate, by depth and size.

use super::{Outcome, Probe, Target, median};

/// What was found of a solid-state disk.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SolidFindings {
    /// Blocks.
    pub blocks: u64,
    /// A random read of 4 KiB, in us.
    pub latency_us: f64,
    /// Random reads of 4 KiB in a second, by depth.
    pub reads: Vec<(usize, f64)>,
    /// Reads in order in MB/s, by blocks of a read and depth.
    pub rates_mb_s: Vec<(u64, usize, f64)>,
}

pub(super) fn find<T: Target>(probe: &mut Probe<'_, T>) -> Outcome<SolidFindings, T> {
    probe.step("latency", 0.3)?;
    let mut times = Vec::new();
    for _ in 0..1000 {
        let place = probe.place(8);
        times.push(probe.read(place, 8)?.1);
    }
    let latency_us = median(&mut times) * 1e3;
    probe.step("depth", 0.5)?;
    let mut reads = Vec::new();
    for depth in [1, 4, 16, 64, 256] {
        let places: Vec<(u64, u64)> = (0..20_000).map(|_| (probe.place(8), 8)).collect();
        let ms = probe.read_many(&places, depth)?;
        reads.push((depth, places.len() as f64 / ms.max(1e-9) * 1e3));
    }
    probe.step("rates", 0.8)?;
    let mut rates_mb_s = Vec::new();
    for (blocks, depth) in [(8, 1), (256, 1), (256, 8), (2048, 8)] {
        let count = 4096.min(probe.target.blocks() / blocks);
        let places: Vec<(u64, u64)> = (0..count).map(|index| (index * blocks, blocks)).collect();
        let ms = probe.read_many(&places, depth)?;
        rates_mb_s.push((blocks, depth, (count * blocks * 512) as f64 / ms.max(1e-9) / 1e3));
    }
    probe.step("done", 1.0)?;
    Ok(SolidFindings { blocks: probe.target.blocks(), latency_us, reads, rates_mb_s })
}
