//! What repeats say: a median with its interval, whether two cases differ, when to stop repeating.
//!
//! Invariants:
//! - Nothing is random from call to call: resampling draws from a fixed seed.
//! - Nothing is dropped; outliers are marked.
//! - A verdict holds for the whole way to it, the stop rule included: the test's level is lower than the rate of
//!   false alarms that is promised ([`LEVEL`]).
//!
//! docs/lab.md tells why these methods; the lab's `tests/statistics.rs` proves what is promised.

mod compare;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use statrs::statistics::{Data, OrderStatistics};

pub use compare::{Comparison, Design, LEVEL, Spread, Value, compare, corrected, family_level};

/// Samples drawn for an interval.
const RESAMPLES: usize = 2_000;
const SEED: u64 = 0x6c61_7073;

/// Distance from the median, in robust standard deviations, from which a value is marked (Iglewicz and Hoaglin).
const OUTLIER: f64 = 3.5;
/// The median absolute deviation of a normal distribution is this part of its standard deviation.
const MAD_TO_SD: f64 = 0.6745;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Values of a case's repeats in short.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The 95 % bootstrap interval of the median; nothing if there are fewer than two values.
    pub interval: Option<Interval>,
    /// Which values are far from the others.
    pub outliers: Vec<bool>,
}

/// When a load has been repeated often enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// Never fewer.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// Enough when the interval reaches no further than this from the median to either side, as a part of it.
    pub width: f64,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { min: 5, max: 20, width: 0.02 }
    }
}

impl Repeats {
    /// Whether no more repeats are needed of cases that are compared with each other (those of one load). Rounds
    /// go on for all of them until the widest is narrow, so that every round has all and cases can be compared
    /// round by round.
    #[must_use]
    pub fn enough<V: AsRef<[f64]>>(&self, cases: &[V]) -> bool {
        let fewest = cases.iter().map(|values| values.as_ref().len()).min().unwrap_or_default();
        let narrow = |values: &V| {
            let summary = summary(values.as_ref());
            let half = summary.interval.map(|interval| (interval.high - interval.low) / 2.0);
            half.is_some_and(|half| half <= self.width * summary.median.abs())
        };
        let (min, max) = (self.min as usize, self.max.max(self.min) as usize);
        fewest >= max || (fewest >= min && cases.iter().all(narrow))
    }
}

/// The values in short; of none, a median of 0.
#[must_use]
pub fn summary(values: &[f64]) -> Summary {
    if values.is_empty() {
        return Summary { median: 0.0, interval: None, outliers: Vec::new() };
    }
    let interval = (values.len() > 1).then(|| bootstrap(values));
    Summary { median: median(values), interval, outliers: outliers(values) }
}

fn median(values: &[f64]) -> f64 {
    Data::new(values.to_vec()).median()
}

/// The percentile bootstrap of the median.
fn bootstrap(values: &[f64]) -> Interval {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut drawn = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill_with(|| values[rng.random_range(..values.len())]);
            Data::new(&mut *drawn).median()
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    Interval { low: medians[tail], high: medians[RESAMPLES - 1 - tail] }
}

fn outliers(values: &[f64]) -> Vec<bool> {
    let centre = median(values);
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let mad = median(&deviations);
    deviations.iter().map(|deviation| MAD_TO_SD * deviation > OUTLIER * mad && mad > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_have_wide_intervals_and_one_has_none() {
        assert_eq!(summary(&[]).median, 0.0);
        assert_eq!(summary(&[7.0]).interval, None);
        let five = summary(&[3.0, 1.0, 5.0, 2.0, 4.0]);
        assert_eq!(five.median, 3.0);
        assert_eq!(five.interval, Some(Interval { low: 1.0, high: 5.0 }));
        let many: Vec<f64> = (0..101).map(f64::from).collect();
        let interval = summary(&many).interval.unwrap();
        // The interval by ranks, of which the bootstrap is an image: 40 to 60 of 0 to 100.
        assert!((36.0..=42.0).contains(&interval.low), "{interval:?}");
        assert!((58.0..=64.0).contains(&interval.high), "{interval:?}");
    }

    #[test]
    fn the_far_one_is_marked_and_still_counts() {
        let with = summary(&[100.0, 101.0, 99.0, 100.5, 40.0]);
        assert_eq!(with.outliers, [false, false, false, false, true]);
        assert_eq!(with.interval.unwrap().low, 40.0);
        assert!(summary(&[5.0; 4]).outliers.iter().all(|marked| !marked));
    }

    #[test]
    fn rounds_go_on_until_the_widest_case_is_narrow() {
        let rule = Repeats::default();
        let narrow = vec![100.0, 100.1, 99.9, 100.0, 100.2];
        let wide = vec![100.0, 130.0, 90.0, 100.0, 120.0];
        assert!(!rule.enough(&[&narrow[..4]]));
        assert!(rule.enough(&[narrow.clone(), narrow.clone()]));
        assert!(!rule.enough(&[narrow, wide.clone()]));
        assert!(rule.enough(&[wide.repeat(4)]));
    }
}
