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
    /// Where the true ratio lies, all pairs of the table taken together: it leaves out 1 just when the difference is real.
    pub interval: Option<Interval>,
    /// How likely so large a difference is between equals, corrected for all pairs of the table.
    pub p: Option<f64>,
    /// How many rounds more would settle it, if it is open and they go on as they went.
    pub more_rounds: Option<u32>,
}

/// Nobody waits for more rounds than this.
const MORE_ROUNDS_MAX: u32 = 100;

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
            ..self
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

/// All pairs of a table's real lines. They are one family: one correction, one level for all intervals, so that a pair has the
/// same verdict wherever it is shown, and the interval that is drawn is the one that decides.
pub fn pairs(table: &Table) -> Vec<Pair> {
    let real: Vec<usize> = table.real_lines().map(|(place, _)| place).collect();
    let mut compared = Vec::new();
    for (i, &of) in real.iter().enumerate() {
        let others = real[i + 1..].iter();
        compared.extend(others.filter_map(|&to| Some((of, to, comparison(table, of, to)?))));
    }
    let p: Vec<f64> = compared.iter().filter_map(|(_, _, one)| one.p).collect();
    let level = stats::family_level(&p);
    let mut corrected = stats::corrected(&p).into_iter();
    let pair = |(of, to, one): (usize, usize, Comparison)| {
        let p = one.p.and_then(|_| corrected.next());
        let (ratio, interval) = (one.ratio, one.interval_at(level));
        let pair = Pair { of, to, ratio, interval, p, more_rounds: None };
        let is_open = pair.verdict() == Verdict::CannotTell;
        let more_rounds =
            is_open.then(|| one.rounds_to_settle(level, EQUAL_WITHIN, MORE_ROUNDS_MAX)).flatten();
        Pair { more_rounds, ..pair }
    };
    compared.into_iter().map(pair).collect()
}

/// Two lines by themselves; nothing if they are not to be compared.
fn comparison(table: &Table, of: usize, to: usize) -> Option<Comparison> {
    let (a, b) = (&table.lines[of], &table.lines[to]);
    // How far a model is from the truth is no matter of repeats.
    if a.is_predicted != b.is_predicted {
        let ratio = a.summary.median / b.summary.median;
        let found = Comparison { ratio, interval: None, p: None, spread: None };
        return ratio.is_finite().then_some(found);
    }
    if a.load != b.load {
        // They have no more in common than a name.
        return None;
    }
    let design = if a.experiment == b.experiment { Design::Paired } else { Design::Apart };
    stats::compare(&a.values(), &b.values(), design)
}
