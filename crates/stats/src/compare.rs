//! Whether two cases differ, and by how much.
//!
//! Values are compared as logarithms, so a difference is a ratio and what it takes to double is what it takes to halve. Cases
//! of one experiment were run in the same rounds, so they are compared round by round (Student's paired t): what
//! slowed a whole round down does not count. Others are compared as they are (Welch's t).
//!
//! A permutation test would ask less of the noise, but of five pairs it has no result below 0.06.

use crate::Interval;
use adjustp::Procedure;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;

/// A difference is called real at this p. With the stop rule, which ends early where values happen to lie close, that makes
/// fewer than 5 % of false alarms; a test at 5 % would make 6.
pub const LEVEL: f64 = 0.03;

/// A repeat's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// In which round.
    pub round: u32,
    /// The value, above 0.
    pub value: f64,
}

/// How two cases' values belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Run in the same rounds.
    Paired,
    /// Run at different times.
    Apart,
}

/// How a case's values stand to another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many times the other's value, on (geometric) average.
    pub ratio: f64,
    /// Where the true ratio lies, at [`LEVEL`]: it leaves out 1 just when `p` is below the level. Nothing if
    /// there are too few values to tell, or it reaches further than ten times the ratio, which tells nothing.
    pub interval: Option<Interval>,
    /// How likely so large a difference is between equals; nothing if there are too few values to tell.
    pub p: Option<f64>,
}

/// Compares `a` with `b`; nothing if one has no value, or one that is not above 0: to that nothing has a ratio, and to leave
/// it out would better who stood still.
#[must_use]
pub fn compare(a: &[Value], b: &[Value], design: Design) -> Option<Comparison> {
    let (a, b) = (logs(a)?, logs(b)?);
    match design {
        Design::Paired => {
            let others: BTreeMap<u32, f64> = b.into_iter().collect();
            let pairs = a.iter().filter_map(|(round, log)| Some(log - others.get(round)?));
            let differences = Moments::of(pairs)?;
            Some(verdict(differences.mean, differences.error(), differences.freedom()))
        }
        Design::Apart => {
            let a = Moments::of(a.into_iter().map(|(_, log)| log))?;
            let b = Moments::of(b.into_iter().map(|(_, log)| log))?;
            let error = a.error().zip(b.error()).map(|(a, b)| a.hypot(b));
            Some(verdict(a.mean - b.mean, error, welch_freedom(&a, &b)))
        }
    }
}

/// What the p of several comparisons come to when they are made at once (Benjamini and Hochberg): of the differences that are
/// then called real, at most the level's share is not.
#[must_use]
pub fn corrected(p: &[f64]) -> Vec<f64> {
    if p.is_empty() { Vec::new() } else { adjustp::adjust(p, Procedure::BenjaminiHochberg) }
}

fn logs(values: &[Value]) -> Option<Vec<(u32, f64)>> {
    let log = |value: &Value| {
        let is_usable = value.value > 0.0 && value.value.is_finite();
        is_usable.then(|| (value.round, value.value.ln()))
    };
    values.iter().map(log).collect()
}

struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // Of one value the variance is not known: NaN, which `error` takes out.
        (count > 0.0).then(|| Self { count, mean, variance: squares / (count - 1.0) })
    }

    /// The standard error of the mean.
    fn error(&self) -> Option<f64> {
        (self.count > 1.0).then(|| (self.variance / self.count).sqrt())
    }

    fn freedom(&self) -> f64 {
        self.count - 1.0
    }
}

/// Degrees of freedom by Welch and Satterthwaite.
fn welch_freedom(a: &Moments, b: &Moments) -> f64 {
    let part = |m: &Moments| m.variance / m.count;
    let (a_part, b_part) = (part(a), part(b));
    (a_part + b_part).powi(2) / (a_part.powi(2) / a.freedom() + b_part.powi(2) / b.freedom())
}

/// An interval that reaches further than so many times its middle tells nothing.
const USEFUL: f64 = 10.0;
/// Spread below this is rounding.
const NO_SPREAD: f64 = 1e-9;

fn verdict(difference: f64, error: Option<f64>, freedom: f64) -> Comparison {
    let ratio = difference.exp();
    let Some(error) = error else { return Comparison { ratio, interval: None, p: None } };
    let t = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| error > NO_SPREAD);
    let Some(t) = t else {
        // Repeats without any spread, as a prediction has them: they are what they are.
        let p = f64::from(difference.abs() <= NO_SPREAD);
        return Comparison {
            ratio,
            interval: Some(Interval { low: ratio, high: ratio }),
            p: Some(p),
        };
    };
    let reach = t.inverse_cdf(1.0 - LEVEL / 2.0) * error;
    let interval = Interval { low: (difference - reach).exp(), high: (difference + reach).exp() };
    let interval = Some(interval).filter(|_| reach <= USEFUL.ln());
    Comparison { ratio, interval, p: Some(2.0 * t.sf((difference / error).abs())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[f64]) -> Vec<Value> {
        (0..).zip(of).map(|(round, &value)| Value { round, value }).collect()
    }

    #[test]
    fn what_slows_a_whole_round_is_no_difference_between_cases() {
        // The second round was slow for both; the ratio is 1.1 in each.
        let a = values(&[110.0, 55.1, 110.2, 109.8, 110.1]);
        let b = values(&[100.0, 50.0, 100.0, 100.0, 100.0]);
        let paired = compare(&a, &b, Design::Paired).unwrap();
        assert!((paired.ratio - 1.1).abs() < 0.002 && paired.p.unwrap() < 1e-6, "{paired:?}");
        let apart = compare(&a, &b, Design::Apart).unwrap();
        assert!((apart.ratio - paired.ratio).abs() < 1e-9 && apart.p.unwrap() > 0.3, "{apart:?}");
    }

    #[test]
    fn an_interval_that_tells_nothing_is_left_out() {
        let (a, b) = (values(&[100.0, 130.0]), values(&[110.0, 100.0]));
        let two = compare(&a, &b, Design::Paired).unwrap();
        assert!(two.interval.is_none() && two.p.unwrap() > 0.5, "{two:?}");
    }

    #[test]
    fn p_is_that_of_the_textbook() {
        // Student's sleep data (1908), hours gained by two drugs: paired p = 0.002833, Welch p = 0.07939 (R's t.test).
        let a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0].map(f64::exp);
        let b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4].map(f64::exp);
        let p = |design| compare(&values(&a), &values(&b), design).unwrap().p.unwrap();
        assert!((p(Design::Paired) - 0.002_833).abs() < 1e-6);
        assert!((p(Design::Apart) - 0.079_39).abs() < 1e-5);
    }

    #[test]
    fn the_interval_says_what_p_says() {
        for shift in [1.0, 1.01, 1.02, 1.03, 1.05, 1.1] {
            let a = values(&[1.00, 1.02, 0.99, 1.01, 0.97].map(|value| value * shift));
            let b = values(&[1.01, 0.98, 1.00, 1.00, 1.02]);
            for design in [Design::Paired, Design::Apart] {
                let found = compare(&a, &b, design).unwrap();
                let interval = found.interval.unwrap();
                let without_one = interval.low > 1.0 || interval.high < 1.0;
                assert_eq!(without_one, found.p.unwrap() < LEVEL, "{found:?}");
            }
        }
    }

    #[test]
    fn too_little_to_tell_is_said() {
        let (one, none) = (values(&[2.0]), values(&[0.0]));
        let found = compare(&one, &values(&[1.0]), Design::Paired).unwrap();
        assert_eq!((found.ratio, found.p), (2.0, None));
        assert_eq!(compare(&one, &none, Design::Apart), None);
        let stalled = values(&[2.0, 0.0, 2.0]);
        for design in [Design::Paired, Design::Apart] {
            assert_eq!(compare(&stalled, &values(&[1.0, 1.0, 1.0]), design), None);
        }
        let same = values(&[2.0, 2.0, 2.0]);
        assert_eq!(compare(&same, &same, Design::Apart).unwrap().p, Some(1.0));
        let more = values(&[3.0, 3.0, 3.0]);
        for design in [Design::Paired, Design::Apart] {
            assert_eq!(compare(&more, &same, design).unwrap().p, Some(0.0));
        }
    }

    #[test]
    fn many_comparisons_make_each_count_less() {
        assert_eq!(corrected(&[]), Vec::<f64>::new());
        assert_eq!(corrected(&[0.02]), [0.02]);
        let five = corrected(&[0.001, 0.02, 0.04, 0.5, 0.9]);
        let expected = [0.005, 0.05, 0.2 / 3.0, 0.625, 0.9];
        assert!(five.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{five:?}");
    }
}
