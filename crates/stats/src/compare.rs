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
    /// How well the ratio is known; nothing if there are too few values to tell.
    pub spread: Option<Spread>,
}

/// How well the logarithm of a ratio is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Its standard error.
    error: f64,
    /// Degrees of freedom of that.
    freedom: f64,
    /// Rounds that it comes from.
    rounds: f64,
}

impl Comparison {
    /// Where the true ratio lies, at a level: it leaves out 1 just when `p` is below the level. Nothing if there are too few
    /// values, or if it leaves 1 in and reaches further than ten times the ratio, which tells nothing.
    #[must_use]
    pub fn interval_at(&self, level: f64) -> Option<Interval> {
        let difference = self.ratio.ln();
        let reach = self.spread?.reach(level);
        let tells = reach <= USEFUL.ln() || reach < difference.abs();
        let interval =
            Interval { low: (difference - reach).exp(), high: (difference + reach).exp() };
        Some(interval).filter(|_| tells)
    }

    /// How many rounds more would settle it at a level, if they go on as they went: until the interval leaves out 1, or lies
    /// wholly within a part `equal_within` of it. Nothing if `most` would not do.
    #[must_use]
    pub fn rounds_to_settle(&self, level: f64, equal_within: f64, most: u32) -> Option<u32> {
        let (spread, difference) = (self.spread?, self.ratio.ln().abs());
        let settled = |more: &u32| {
            let reach = spread.after(f64::from(*more)).reach(level);
            reach < difference || difference + reach <= equal_within.ln_1p()
        };
        (1..=most).find(settled)
    }
}

impl Spread {
    /// How far an interval reaches to either side, as a logarithm.
    fn reach(&self, level: f64) -> f64 {
        let t = StudentsT::new(0.0, 1.0, self.freedom).ok().filter(|_| self.error > NO_SPREAD);
        // Repeats without any spread, as a prediction has them: they are what they are.
        t.map_or(0.0, |t| t.inverse_cdf(1.0 - level / 2.0) * self.error)
    }

    /// The same with so many rounds more.
    fn after(&self, more: f64) -> Self {
        let rounds = self.rounds + more;
        let part = self.rounds / rounds;
        Self { error: self.error * part.sqrt(), freedom: self.freedom / part, rounds }
    }
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
            let (freedom, rounds) = (differences.freedom(), differences.count);
            Some(verdict(differences.mean, differences.error(), freedom, rounds))
        }
        Design::Apart => {
            let a = Moments::of(a.into_iter().map(|(_, log)| log))?;
            let b = Moments::of(b.into_iter().map(|(_, log)| log))?;
            let error = a.error().zip(b.error()).map(|(a, b)| a.hypot(b));
            let rounds = a.count.min(b.count);
            Some(verdict(a.mean - b.mean, error, welch_freedom(&a, &b), rounds))
        }
    }
}

/// What the p of several comparisons come to when they are made at once (Benjamini and Hochberg): of the differences that are
/// then called real, at most the level's share is not.
#[must_use]
pub fn corrected(p: &[f64]) -> Vec<f64> {
    if p.is_empty() { Vec::new() } else { adjustp::adjust(p, Procedure::BenjaminiHochberg) }
}

/// The level of the intervals that say of each of several comparisons made at once what its corrected p says: an interval
/// leaves out 1 just when the corrected p is below [`LEVEL`] (Benjamini and Yekutieli 2005: where R of m are called real, that
/// is the level times R / m).
#[must_use]
pub fn family_level(p: &[f64]) -> f64 {
    let real = corrected(p).iter().filter(|p| **p < LEVEL).count();
    LEVEL * real.max(1) as f64 / p.len().max(1) as f64
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

fn verdict(difference: f64, error: Option<f64>, freedom: f64, rounds: f64) -> Comparison {
    let ratio = difference.exp();
    let Some(error) = error else {
        return Comparison { ratio, interval: None, p: None, spread: None };
    };
    let t = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| error > NO_SPREAD);
    let p = match t {
        Some(t) => 2.0 * t.sf((difference / error).abs()),
        None => f64::from(difference.abs() <= NO_SPREAD),
    };
    let spread = Some(Spread { error, freedom, rounds });
    let alone = Comparison { ratio, interval: None, p: Some(p), spread };
    Comparison { interval: alone.interval_at(LEVEL), ..alone }
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

    #[test]
    fn the_intervals_of_many_say_what_their_corrected_p_say() {
        let noise = [0.4, -1.1, 0.9, -0.6, 0.7, 1.3, -0.8];
        let base = values(&[1.00, 1.02, 0.99, 1.01, 0.97]);
        let compared: Vec<Comparison> = (0..7)
            .map(|case| {
                let value = |round: usize| {
                    1.0 + 0.012 * case as f64 + 0.01 * noise[(round * 3 + case) % noise.len()]
                };
                let own: Vec<f64> = (0..5).map(value).collect();
                compare(&values(&own), &base, Design::Paired).unwrap()
            })
            .collect();
        let p: Vec<f64> = compared.iter().map(|one| one.p.unwrap()).collect();
        let (level, corrected) = (family_level(&p), corrected(&p));
        let real = corrected.iter().filter(|p| **p < LEVEL).count();
        assert!(real > 0 && real < p.len(), "the family has both: {corrected:?}");
        for (one, p) in compared.iter().zip(corrected) {
            let interval = one.interval_at(level).unwrap();
            assert_eq!(interval.low > 1.0 || interval.high < 1.0, p < LEVEL, "{one:?}");
        }
        assert_eq!(family_level(&[]), LEVEL);
        assert_eq!(family_level(&[0.5, 0.9]), LEVEL / 2.0);
    }

    #[test]
    fn rounds_that_would_settle_it_are_fewer_for_larger_differences() {
        let base = values(&[1.00, 1.02, 0.99, 1.01, 0.97]);
        let more = |shift: f64| {
            let own = values(&[1.03, 0.95, 1.06, 0.98, 1.01].map(|value| value * shift));
            compare(&own, &base, Design::Paired).unwrap().rounds_to_settle(LEVEL, 0.05, 100)
        };
        let (near, far) = (more(1.04).unwrap(), more(1.08).unwrap());
        assert!(near > far && far >= 1, "{near} {far}");
        let one = values(&[2.0]);
        let alone = compare(&one, &base, Design::Paired).unwrap();
        assert_eq!(alone.rounds_to_settle(LEVEL, 0.05, 100), None, "one round tells no spread");
    }
}
