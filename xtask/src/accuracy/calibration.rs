//! Error bars that hold: how far off the model is, by kind of figure, from what was left out.
//!
//! A bar reaches a factor up and down. Its logarithm is the quantile of the absolute logarithms of errors on figures
//! whose case had no say (conformal: of n the one of rank 0.95 (n + 1)); of fewer than 19 there is no such rank, and it is
//! what a t distribution around none with their mean square says. Whether bars hold is tried without a case's own
//! errors.
//!
//! What it does not do: bars of kinds that nobody published (solid-state disks, latencies, controllers of which no
//! other was seen): these are guesses and counted as such.

use super::refit::{Cell, Fitted};
use super::table::median;
use std::fmt::Write;

/// The least errors of a kind for a bar.
const LEAST: usize = 5;

/// Kinds of figures whose errors have causes in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Reads,
    Writes,
    Random,
    Processor,
    /// A controller whose firmware nobody knows.
    Controller,
}

const KINDS: [Kind; 5] =
    [Kind::Reads, Kind::Writes, Kind::Random, Kind::Processor, Kind::Controller];

impl Kind {
    fn of(cell: &Cell) -> Self {
        match cell.column {
            _ if cell.array.starts_with("3ware") => Self::Controller,
            "seeks_s" | "iozone_random_write_kb_s" => Self::Random,
            "read_mb_s" | "hdparm_mb_s" | "get_block_kb_s" => Self::Reads,
            column if column.ends_with("cpu_pct") => Self::Processor,
            _ => Self::Writes,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Reads => "streams of reads",
            Self::Writes => "streams of writes",
            Self::Random => "seeks and random writes",
            Self::Processor => "processor time",
            Self::Controller => "controllers",
        }
    }
}

/// The absolute logarithm of an error on a figure whose case had no say.
fn off(cell: &Cell) -> f64 {
    (cell.left_out[1] / cell.published).ln().abs()
}

/// How far a bar reaches, as a logarithm; none of too little.
fn reach(mut errors: Vec<f64>) -> Option<f64> {
    errors.sort_by(f64::total_cmp);
    let n = errors.len();
    if n < LEAST {
        return None;
    }
    let rank = (0.95 * (n as f64 + 1.0)).ceil() as usize;
    if rank <= n {
        return Some(errors[rank - 1]);
    }
    let count = n as f64;
    let square = errors.iter().map(|error| error * error).sum::<f64>() / count;
    Some(t_quantile(count) * (square * (1.0 + 1.0 / count)).sqrt())
}

/// The 97.5th percentile of Student's t, by the expansion around the normal one (0.2 % off at five degrees).
fn t_quantile(degrees: f64) -> f64 {
    let z: f64 = 1.959_964;
    let first = (z.powi(3) + z) / (4.0 * degrees);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees * degrees);
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z)
        / (384.0 * degrees.powi(3));
    z + first + second + third
}

/// Errors of a kind in all cases but one.
fn errors(fitted: &[Fitted], kind: Kind, without: Option<&str>) -> Vec<f64> {
    let others = fitted.iter().filter(|case| Some(case.case) != without);
    let cells = others.flat_map(|case| &case.cells);
    cells.filter(|cell| Kind::of(cell) == kind).map(off).collect()
}

/// Bars by kind, how many of the left-out figures lie in them, and how wide they are.
#[must_use]
pub fn report(fitted: &[Fitted]) -> String {
    let mut text =
        String::from("error bars: factor up and down, from figures whose case had no say\n");
    let (mut all, mut held, mut widths) = (0, 0, Vec::new());
    for kind in KINDS {
        let of_kind = errors(fitted, kind, None);
        let bar = reach(of_kind.clone());
        let shown = match bar {
            Some(reach) if kind != Kind::Controller => {
                format!("{:.2} (logarithm {reach:.3})", reach.exp())
            }
            _ => "a guess".to_owned(),
        };
        let (mut tried, mut within) = (0, 0);
        for case in fitted {
            // A controller's firmware is its own: others tell nothing of it.
            let bar = reach(errors(fitted, kind, Some(case.case)));
            let Some(reach) = bar.filter(|_| kind != Kind::Controller) else { continue };
            for cell in case.cells.iter().filter(|cell| Kind::of(cell) == kind) {
                tried += 1;
                within += usize::from(off(cell) <= reach);
                widths.push(reach.exp() - (-reach).exp());
            }
        }
        all += tried;
        held += within;
        let (name, count) = (kind.name(), of_kind.len());
        let _ = writeln!(
            text,
            "  {name:<24} {shown:<24} of {count} figures; without the case itself {within} of {tried} in the bar"
        );
    }
    if all > 0 {
        let share = 100.0 * held as f64 / all as f64;
        let width = 100.0 * median(widths);
        let _ = writeln!(
            text,
            "  all: {held} of {all} in bars that their case had no say in ({share:.0} %), median width {width:.0} % of the figure"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::refit::case_of;
    use super::*;

    #[test]
    fn a_bar_of_many_is_a_quantile_and_one_of_few_is_wider_than_all() {
        let many: Vec<f64> = (1..=39).map(|nth| f64::from(nth) / 100.0).collect();
        assert_eq!(reach(many), Some(0.38));
        let few = reach(vec![0.1; 5]).unwrap();
        assert!((few - 2.571 * 0.1 * 1.2_f64.sqrt()).abs() < 0.0006, "{few}");
        assert_eq!(reach(vec![0.1; 4]), None);
    }

    #[test]
    fn a_case_is_held_against_bars_of_the_others() {
        let good: &[(f64, f64)] = &[(100.0, 101.0); 6];
        let bad: &[(f64, f64)] = &[(100.0, 150.0); 6];
        let cases = [case_of("a", "seeks_s", good), case_of("b", "seeks_s", bad)];
        let text = report(&cases);
        // b is out of a's narrow bars, a within b's wide ones.
        assert!(text.contains("6 of 12 in the bar"), "{text}");
    }
}
