//! What a disk without an arm tells: latency and rate, by depth and size.
//!
//! Everything is measured in passes that follow each other, each with a part of the reads, so that what
//! changes while it is measured shows in the bounds.

use super::{Measured, Outcome, PASSES, Probe, Target, median};

/// What was found of a solid-state disk.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SolidFindings {
    /// Blocks.
    pub blocks: u64,
    /// A random read of 4 KiB, in us.
    pub latency_us: Measured,
    /// Random reads of 4 KiB in a second, by depth.
    pub reads: Vec<(usize, Measured)>,
    /// Reads in order in MB/s, by blocks of a read and depth.
    pub rates_mb_s: Vec<(u64, usize, Measured)>,
}

/// Depths of random reads.
const DEPTHS: [usize; 5] = [1, 4, 16, 64, 256];
/// Blocks of a read in order, and depth.
const ORDERED: [(u64, usize); 4] = [(8, 1), (256, 1), (256, 8), (2048, 8)];
/// Reads of a pass: alone, at a depth (the more, the deeper: the first and the last ones of a pass do not have
/// the depth), in order.
const ALONE: usize = 150;
const fn at_depth(depth: usize) -> usize {
    2000 + 64 * depth
}
const IN_ORDER: u64 = 600;

pub(super) fn find<T: Target>(probe: &mut Probe<'_, T>) -> Outcome<SolidFindings, T> {
    let blocks = probe.target.blocks();
    let mut latency = Vec::new();
    let mut reads = [const { Vec::new() }; DEPTHS.len()];
    let mut rates = [const { Vec::new() }; ORDERED.len()];
    for pass in 0..PASSES {
        let done = |part: f64| 0.1 + 0.9 * (pass as f64 + part) / PASSES as f64;
        probe.step("latency", done(0.0))?;
        let mut times = Vec::new();
        for _ in 0..ALONE {
            let place = probe.place(8);
            times.push(probe.read(place, 8)?.1);
        }
        latency.push(median(&mut times) * 1e3);
        probe.step("depth", done(0.2))?;
        for (depth, reads) in DEPTHS.into_iter().zip(&mut reads) {
            let places: Vec<(u64, u64)> =
                (0..at_depth(depth)).map(|_| (probe.place(8), 8)).collect();
            let ms = probe.read_many(&places, depth)?;
            reads.push(places.len() as f64 / ms.max(1e-9) * 1e3);
        }
        probe.step("rates", done(0.6))?;
        for ((size, depth), rates) in ORDERED.into_iter().zip(&mut rates) {
            // Each pass goes on where the last one ended, as far as there is room.
            let count = IN_ORDER.min(blocks / size);
            let first = pass as u64 * count * size;
            let first = if first + count * size <= blocks { first } else { 0 };
            let places: Vec<(u64, u64)> =
                (0..count).map(|index| (first + index * size, size)).collect();
            let ms = probe.read_many(&places, depth)?;
            rates.push((count * size * 512) as f64 / ms.max(1e-9) / 1e3);
        }
    }
    probe.step("done", 1.0)?;
    let reads = DEPTHS.into_iter().zip(&mut reads);
    let rates = ORDERED.into_iter().zip(&mut rates);
    Ok(SolidFindings {
        blocks,
        latency_us: Measured::of_passes(&mut latency),
        reads: reads.map(|(depth, passes)| (depth, Measured::of_passes(passes))).collect(),
        rates_mb_s: rates
            .map(|((size, depth), passes)| (size, depth, Measured::of_passes(passes)))
            .collect(),
    })
}
