//! The period of rotation, from the ends of reads of one sector.

use super::hard::BufferAnswers;
use super::{Measured, Outcome, Probe, Target};
use crate::Nanos;

/// Ends of reads that are looked at.
const SAMPLES: usize = 32;
/// Turns in a second that are thought of: 3,000 to 18,000 rpm.
const HERTZ: (f64, f64) = (50.0, 300.0);
/// How well ends must agree, 1 being wholly: reads of flash, which end at any time, come to 0.5 at most.
const AGREE: f64 = 0.9;

/// The period in ms; none if the disk does not turn.
pub(super) fn find<T: Target>(
    probe: &mut Probe<'_, T>,
    buffer: &BufferAnswers,
) -> Outcome<Option<Measured>, T> {
    let ends = ends_of_one_sector(probe, buffer)?;
    if ends.len() < SAMPLES {
        return Ok(None);
    }
    let span = ends[ends.len() - 1] - ends[0];
    // The ends' phases shift by a tenth of a turn over the whole span from step to step.
    let step = 0.1 / (span / 1e3);
    let steps = ((HERTZ.1 - HERTZ.0) / step) as usize;
    let hertz = |index: usize| HERTZ.0 + step * index as f64;
    let best = (0..steps).map(|index| agreement(&ends, hertz(index))).fold(0.0, f64::max);
    if best < AGREE {
        return Ok(None);
    }
    // What fits a turn fits half of one: the slowest that fits as well is it.
    let first = (0..steps).find(|&index| agreement(&ends, hertz(index)) > best - 0.04);
    let Some(first) = first else { return Ok(None) };
    let (hertz, agrees) = refine(&ends, hertz(first), step);
    if agrees < AGREE {
        return Ok(None);
    }
    let period = 1e3 / hertz;
    // A tenth of the phase's spread over the span.
    let off = period * (1.0 - agrees).max(1e-4).sqrt() * period / span;
    Ok(Some(Measured::about(period, off)))
}

/// Ends, in ms, of reads of one sector that was not in the buffer.
fn ends_of_one_sector<T: Target>(
    probe: &mut Probe<'_, T>,
    buffer: &BufferAnswers,
) -> Outcome<Vec<f64>, T> {
    let mut ends = Vec::new();
    let sector = probe.place(8);
    // Reads elsewhere that push the sector out; more of them when it is found to be still there.
    let mut others = 4;
    while ends.len() < SAMPLES && others <= 1024 {
        let (end, ms) = probe.read(sector, 8)?;
        if ms > buffer.hit_ms(8) * 1.5 {
            ends.push(end.0 as f64 / 1e6);
        } else {
            others *= 2;
        }
        for _ in 0..others {
            let place = probe.place(8);
            probe.read(place, 8)?;
        }
        let pause = probe.below(50_000_000);
        probe.target.pause(Nanos(pause));
    }
    Ok(ends)
}

/// How well ends agree in their angle at a speed: the length of their mean as points on a circle.
fn agreement(ends: &[f64], hertz: f64) -> f64 {
    let angle = |end: &f64| (end - ends[0]) / 1e3 * hertz * std::f64::consts::TAU;
    let (x, y) = ends.iter().map(angle).fold((0.0, 0.0), |(x, y), a| (x + a.cos(), y + a.sin()));
    x.hypot(y) / ends.len() as f64
}

/// The speed near `hertz` at which ends agree best, and how well.
fn refine(ends: &[f64], hertz: f64, step: f64) -> (f64, f64) {
    let (mut hertz, mut step) = (hertz, step);
    for _ in 0..40 {
        let around = [hertz - step, hertz, hertz + step];
        let best =
            around.into_iter().max_by(|a, b| agreement(ends, *a).total_cmp(&agreement(ends, *b)));
        let best = best.unwrap_or(hertz);
        if best == hertz {
            step /= 2.0;
        }
        hertz = best;
    }
    (hertz, agreement(ends, hertz))
}
