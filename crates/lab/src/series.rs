//! What a phase's time series says: where its warm-up ends, and whether it was steady after that.

use crate::record::{Phase, Series, Unit};
use statrs::statistics::Statistics;

/// Samples in a batch of the warm-up rule (MSER-5).
const BATCH: usize = 5;
/// With fewer batches than this the rule has nothing to go by.
const BATCHES_MIN: usize = 8;

/// Rounds that SNIA's test looks at.
const ROUNDS: usize = 5;
/// From highest to lowest round, as a part of their mean.
const EXCURSION_MAX: f64 = 0.20;
/// From end to end of the line through the rounds, as a part of their mean.
const SLOPE_MAX: f64 = 0.10;

/// Whether a phase was in its steady state, by SNIA's Performance Test Specification: over five rounds (here fifths of
/// what is left after the warm-up) the highest and the lowest lie within 20 % of the mean, and a line through them
/// rises or falls by no more than 10 % of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// From highest to lowest, as a part of the mean.
    pub excursion: f64,
    /// From end to end of the line, as a part of the mean; negative if it falls.
    pub slope: f64,
    /// Whether both are within their bounds.
    pub is_steady: bool,
}

/// How many samples at the beginning are warm-up, by the marginal standard error rule (White 1997) on batches of
/// five: what is left tells its mean best. At most the first half is dropped.
#[must_use]
pub fn warm_up(samples: &[u64]) -> usize {
    let batches: Vec<f64> = samples
        .chunks_exact(BATCH)
        .map(|batch| batch.iter().map(|&sample| sample as f64).sum())
        .collect();
    if batches.len() < BATCHES_MIN {
        return 0;
    }
    let error = |dropped: usize| {
        let left = &batches[dropped..];
        left.population_variance() / left.len() as f64
    };
    let best = (0..=batches.len() / 2).min_by(|&a, &b| error(a).total_cmp(&error(b)));
    best.unwrap_or_default() * BATCH
}

/// Whether the samples are steady; nothing if there are too few, or nothing moved.
#[must_use]
pub fn steady(samples: &[u64]) -> Option<Steady> {
    let length = samples.len() / ROUNDS;
    if length < BATCH {
        return None;
    }
    // What does not divide by five is left out at the beginning, where it is least like the rest.
    let rounds: Vec<f64> = samples[samples.len() % ROUNDS..]
        .chunks_exact(length)
        .map(|round| round.iter().map(|&sample| sample as f64).sum())
        .collect();
    let mean = rounds.iter().mean();
    if mean <= 0.0 {
        return None;
    }
    let excursion = (Statistics::max(rounds.iter()) - Statistics::min(rounds.iter())) / mean;
    // Least squares over x = -2 .. 2, whose squares add up to 10; the line's ends are 4 apart.
    let products = rounds.iter().zip(-2..).map(|(round, x)| round * f64::from(x)).sum::<f64>();
    let slope = products / 10.0 * 4.0 / mean;
    let is_steady = excursion <= EXCURSION_MAX && slope.abs() <= SLOPE_MAX;
    Some(Steady { excursion, slope, is_steady })
}

/// The figure of a phase by which it is compared: without its warm-up if it was bound by time, as it was given if not. Steady
/// or not is said of the same samples.
#[must_use]
pub fn settled_value(phase: &Phase) -> (f64, Option<Steady>) {
    let Some(samples) = samples(&phase.series, phase.figure.unit) else {
        return (phase.figure.value, None);
    };
    if phase.whole {
        return (phase.figure.value, steady(&samples));
    }
    let dropped = warm_up(&samples);
    let left = &samples[dropped..];
    if dropped == 0 || left.is_empty() {
        return (phase.figure.value, steady(&samples));
    }
    let seconds = left.len() as f64 * f64::from(phase.series.interval_ms) / 1000.0;
    (left.iter().sum::<u64>() as f64 / seconds, steady(left))
}

/// What the figure counts, sample by sample; nothing if the series does not tell.
fn samples(series: &Series, unit: Unit) -> Option<Vec<u64>> {
    let of = match unit {
        Unit::BytesPerSecond => {
            let sum = |at: usize| {
                let of = |list: &[u64]| list.get(at).copied().unwrap_or_default();
                of(&series.read_bytes) + of(&series.written_bytes)
            };
            (0..series.read_bytes.len().max(series.written_bytes.len())).map(sum).collect()
        }
        Unit::RequestsPerSecond | Unit::TransactionsPerSecond => series.requests.clone(),
        Unit::FilesPerSecond | Unit::Nanoseconds => Vec::new(),
    };
    (!of.is_empty() && series.interval_ms > 0).then_some(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow start, then 100 with a little up and down.
    fn slow_start(slow: usize) -> Vec<u64> {
        (0..200).map(|i| if i < slow { 10 } else { 98 + i as u64 * 7 % 5 }).collect()
    }

    #[test]
    fn a_slow_start_is_warm_up_and_an_even_run_has_none() {
        assert!((20..=25).contains(&warm_up(&slow_start(20))), "{}", warm_up(&slow_start(20)));
        assert!(warm_up(&slow_start(0)) <= 100);
        assert_eq!(warm_up(&[7; 200]), 0);
        assert_eq!(warm_up(&slow_start(20)[..30]), 0, "too short to tell");
        assert!(warm_up(&slow_start(150)) <= 100, "never more than half");
    }

    #[test]
    fn steady_is_what_snia_says() {
        assert!(steady(&[100; 50]).unwrap().is_steady);
        // Two percent down each fifth: 8 % from end to end is steady, 12 % is not.
        let falling = |step: u64| (0..50).map(|i| 1000 - i / 10 * step).collect::<Vec<u64>>();
        assert!(steady(&falling(20)).unwrap().is_steady);
        let steep = steady(&falling(30)).unwrap();
        assert!(!steep.is_steady && steep.slope < -0.10, "{steep:?}");
        // One fifth 25 % above the others, in the middle: no slope, too far out.
        let bump: Vec<u64> = (0..50).map(|i| if i / 10 == 2 { 125 } else { 100 }).collect();
        let bump = steady(&bump).unwrap();
        assert!(!bump.is_steady && bump.slope.abs() < 1e-9 && bump.excursion > 0.2, "{bump:?}");
        assert_eq!(steady(&[100; 20]), None);
        assert_eq!(steady(&[0; 50]), None);
    }

    #[test]
    fn warm_up_is_dropped_from_what_is_bound_by_time_only() {
        let mut phase = Phase::new("", 91.0, Unit::BytesPerSecond, 20.0);
        phase.series.interval_ms = 100;
        phase.series.written_bytes = slow_start(20);
        assert_eq!(settled_value(&phase).0, 91.0);
        phase.whole = false;
        let (value, steady) = settled_value(&phase);
        assert!((value - 1000.0).abs() < 10.0, "{value}");
        assert!(steady.unwrap().is_steady);
        phase.figure.unit = Unit::FilesPerSecond;
        assert_eq!(settled_value(&phase), (91.0, None));
        // A part of a sample at the end counts neither in the sum nor in the time.
        phase.figure.unit = Unit::TransactionsPerSecond;
        (phase.series.requests, phase.seconds) = (slow_start(20), 20.07);
        assert!((settled_value(&phase).0 - value).abs() < 1e-9);
    }
}
