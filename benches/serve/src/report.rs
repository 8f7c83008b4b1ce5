//! One line a comparison: medians, their range, the ratio round by round, and its gate.

use std::process::ExitCode;

/// What was compared so far.
#[derive(Default)]
pub(crate) struct Report {
    missed: usize,
}

/// Samples of one subject and one peer, taken in turns.
#[derive(Default)]
pub(crate) struct Pairs {
    pub ours: Vec<f64>,
    pub peer: Vec<f64>,
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn range(samples: &[f64]) -> String {
    let low = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let high = samples.iter().copied().fold(0.0, f64::max);
    format!("{low:.0}..{high:.0}")
}

impl Report {
    /// How the program ends: with `gates`, badly if some were missed.
    pub(crate) fn end(&self, gates: bool) -> ExitCode {
        if self.missed > 0 && gates {
            eprintln!("{} gates missed", self.missed);
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }

    /// Prints a comparison; more is better.
    pub(crate) fn add(&mut self, what: &str, unit: &str, pairs: &Pairs, gate: Option<f64>) {
        let ratios: Vec<f64> = pairs.ours.iter().zip(&pairs.peer).map(|(a, b)| a / b).collect();
        let ratio = median(&ratios);
        let verdict = match gate {
            Some(gate) if ratio >= gate => format!(">= {gate} pass"),
            Some(gate) => {
                self.missed += 1;
                format!(">= {gate} MISS")
            }
            None => "-".into(),
        };
        println!(
            "{what:<56} {:>9.0} [{}] {unit:<5} peer {:>9.0} [{}]  {ratio:.2}x {verdict}",
            median(&pairs.ours),
            range(&pairs.ours),
            median(&pairs.peer),
            range(&pairs.peer),
        );
    }

    /// Prints a figure that must not exceed another.
    pub(crate) fn at_most(&mut self, what: &str, unit: &str, ours: f64, bound: f64) {
        let verdict = if ours <= bound { "pass" } else { "MISS" };
        self.missed += usize::from(ours > bound);
        println!("{what:<56} {ours:>9.2} {unit:<5} <= {bound:.2} {verdict}");
    }
}
