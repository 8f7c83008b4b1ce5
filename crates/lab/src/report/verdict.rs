//! Cases against each other.

use super::Table;
use lapstrake_stats::{self as stats, Comparison, Design, Interval, LEVEL};

/// Two cases show no real difference if the whole interval of their ratio is this near to 1: not to see one among wide
/// intervals says nothing.
pub const EQUAL_WITHIN: f64 = 0.05;

/// How one line stands to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The line.
    pub of: usize,
    /// The line that it is measured by.
    pub to: usize,
    /// How many times the other's value.
    pub ratio: f64,
    /// Where the true ratio lies, this pair taken by itself.
    pub interval: Option<Interval>,
    /// How likely so large a difference is between equals, corrected for all pairs of the table.
    pub p: Option<f64>,
}

/// What a pair says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The difference is real.
    Real(Standing),
    /// There is none, or one that is smaller than [`EQUAL_WITHIN`].
    NoRealDifference,
    /// Too few repeats, or too much noise; or one of the two was predicted and the other measured.
    CannotTell,
}

/// Which of two is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The value is higher.
    Higher,
    /// The value is lower.
    Lower,
}

impl Pair {
    /// What it says.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.p {
            None => Verdict::CannotTell,
            Some(p) if p >= LEVEL && self.is_narrow() => Verdict::NoRealDifference,
            Some(p) if p >= LEVEL => Verdict::CannotTell,
            Some(_) if self.ratio > 1.0 => Verdict::Real(Standing::Higher),
            Some(_) => Verdict::Real(Standing::Lower),
        }
    }

    fn is_narrow(&self) -> bool {
        let far = 1.0 + EQUAL_WITHIN;
        self.interval.is_some_and(|interval| interval.low >= 1.0 / far && interval.high <= far)
    }

    /// The same seen from the other line.
    #[must_use]
    pub fn reversed(self) -> Self {
        let turned =
            |interval: Interval| Interval { low: 1.0 / interval.high, high: 1.0 / interval.low };
        Self {
            of: self.to,
            to: self.of,
            ratio: 1.0 / self.ratio,
            interval: self.interval.map(turned),
            p: self.p,
        }
    }
}

impl Verdict {
    /// For people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Real(Standing::Higher) => "higher",
            Self::Real(Standing::Lower) => "lower",
            Self::NoRealDifference => "no real difference",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// All pairs of a table's real lines.
pub fn pairs(table: &Table) -> Vec<Pair> {
    let real: Vec<usize> = table.real_lines().map(|(place, _)| place).collect();
    let mut pairs = Vec::new();
    for (i, &of) in real.iter().enumerate() {
        pairs.extend(real[i + 1..].iter().filter_map(|&to| pair(table, of, to)));
    }
    correct(pairs.iter_mut());
    pairs
}

/// Corrects the p of pairs that were compared for one question.
pub fn correct<'a>(pairs: impl Iterator<Item = &'a mut Pair>) {
    let told: Vec<&mut f64> = pairs.filter_map(|pair| pair.p.as_mut()).collect();
    let corrected = stats::corrected(&told.iter().map(|p| **p).collect::<Vec<_>>());
    for (p, corrected) in told.into_iter().zip(corrected) {
        *p = corrected;
    }
}

/// Two lines by themselves.
pub fn pair(table: &Table, of: usize, to: usize) -> Option<Pair> {
    let (a, b) = (&table.lines[of], &table.lines[to]);
    // How far a model is from the truth is no matter of repeats.
    if a.is_predicted != b.is_predicted {
        let ratio = a.summary.median / b.summary.median;
        return ratio.is_finite().then_some(Pair { of, to, ratio, interval: None, p: None });
    }
    let design = if a.experiment == b.experiment { Design::Paired } else { Design::Apart };
    if a.load != b.load {
        // They have no more in common than a name.
        return None;
    }
    let Comparison { ratio, interval, p } = stats::compare(&a.values(), &b.values(), design)?;
    Some(Pair { of, to, ratio, interval, p })
}
