//! Predicts the field cases of a directory from models of their disks, and holds them against what was published.
//!
//! `lapstrake-cases DIR`: for each case whose CSV is in DIR, per column: published, predicted, error; then the median
//! absolute error over arrays and Kendall's tau (b, which counts ties) over arrays and over all rows. Rows of single disks
//! are what the disks' profiles were calibrated on; nothing else is set for a row.
//!
//! What it does not do: judge. A row that it cannot make is named.

mod machines;
mod table;

use machines::{home, ide, raid5, sas};
use std::path::Path;
use std::process::ExitCode;
use table::{Case, Figures};

/// Predicts a row by its fields; none if it is no row that is known here.
type Predict = fn(&Case, usize) -> Option<Figures>;

/// Cases by their files.
const CASES: &[(&str, Predict)] =
    &[("ide-2008", ide), ("home-2015", home), ("raid5-2011", raid5), ("sas-2009", sas)];

fn main() -> ExitCode {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("usage: lapstrake-cases DIR");
        return ExitCode::from(2);
    };
    for (name, predict) in CASES {
        let path = Path::new(&directory).join(format!("{name}.csv"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                println!("NOT RUN: {}: {error}", path.display());
                continue;
            }
        };
        let case = Case::parse(&text);
        let predicted: Vec<Option<Figures>> =
            (0..case.rows.len()).map(|row| predict(&case, row)).collect();
        print!("{}", table::report(name, &case, &predicted));
    }
    ExitCode::SUCCESS
}
