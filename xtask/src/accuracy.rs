//! Published figures of arrays beside what the shipped plans predict.
//!
//! For each case whose CSV is in the directory, `lapstrake predict PLAN --json` runs the plan that rebuilds it, with the
//! profiles as they are and several seeds, of which the median counts: where platters and places are is chance. More cases
//! are in `cases`, each with its source, its plan and its rows; two of these are held out for good. Per
//! column: published, predicted, error; then the median absolute error over arrays and Kendall's tau (b, which counts
//! ties) over arrays and over all rows. Rows of single disks are what the disks' profiles were calibrated on.
//!
//! Then what was chosen with arrays' rows in sight is chosen again without those that are judged: without an array's
//! own rows, and without all of its case. What was left out is what `lapstrake predict` makes its error bars of, and
//! whether these hold is tried (`calibration`).
//!
//! What it does not do: judge. A row that no plan predicts is named.

mod calibration;
mod refit;
mod sources;
mod table;
mod world;

use crate::{Error, root};
use refit::Fitted;
use serde_json::Value;
use sources::{Column, KIB, MIB, Published, SOURCES, Source, Unit};
use std::fs;
use std::path::{Path, PathBuf};
use table::{Case, Figure, Row};
use world::World;

/// Runs of the plans as they are shipped; odd, so that there is a median. Refits have a third as many.
const SEEDS: usize = 9;

/// Predicts the cases of this repository, and those whose files are in a directory if one is given, by the command that was
/// built.
pub fn run(directory: Option<&str>) -> Result<(), Error> {
    let lapstrake = std::env::var_os("LAPSTRAKE")
        .map_or_else(|| root().join("target/release/lapstrake"), PathBuf::from);
    let seeds = match std::env::var("ACCURACY_SEEDS") {
        Ok(text) => text.parse().map_err(|_| Error::Failed(format!("ACCURACY_SEEDS={text}")))?,
        Err(_) => SEEDS,
    };
    let (mut fitted, mut cases): (Vec<Fitted>, Vec<(&[Source], Case)>) = (Vec::new(), Vec::new());
    for sources in SOURCES.chunk_by(|a, b| a.csv == b.csv) {
        let published = sources[0].published;
        let Some(directory) = directory_of(published, directory) else {
            println!("NOT RUN: {}: its directory is not given", sources[0].csv);
            continue;
        };
        let path = directory.join(format!("{}.csv", sources[0].csv));
        let case = match fs::read_to_string(&path) {
            Ok(text) => Case::parse(&text),
            Err(error) => {
                println!("NOT RUN: {}: {error}", path.display());
                continue;
            }
        };
        for source in sources {
            let rows = rows(source, &case, &World::shipped(source)?, &lapstrake, seeds)?;
            print!("{}", table::report(source.csv, &case, &rows));
            if published != Published::Given {
                print!("{}", table::bars(&case, &rows));
            }
        }
        if published == Published::HeldOut {
            continue;
        }
        fitted.push(refit::refit(sources, &case, &lapstrake, seeds.div_ceil(3))?);
        cases.push((sources, case));
    }
    print!("{}", refit::report(&fitted));
    for (at, (sources, case)) in cases.iter().enumerate() {
        let evidence = calibration::evidence(&fitted, Some(fitted[at].case))?;
        fitted[at].try_bars(sources, case, &lapstrake, &evidence)?;
    }
    print!("{}", calibration::report(&fitted)?);
    let all = SOURCES.iter().filter(|source| source.published != Published::HeldOut);
    if cases.len() == all.collect::<Vec<_>>().chunk_by(|a, b| a.csv == b.csv).count() {
        calibration::ship(&fitted)?;
    }
    Ok(())
}

/// Where a case's rows are; none if nobody says it.
fn directory_of(published: Published, given: Option<&str>) -> Option<PathBuf> {
    match published {
        Published::Given => given.map(PathBuf::from),
        Published::Beside | Published::HeldOut => Some(root().join("cases")),
    }
}

/// What is predicted of a case's rows, by so many seeds.
fn rows(
    source: &Source,
    case: &Case,
    world: &World,
    lapstrake: &Path,
    seeds: usize,
) -> Result<Vec<Row>, Error> {
    let of_seed = |seed| world.predict(lapstrake, seed);
    let runs = (0..seeds).map(of_seed).collect::<Result<Vec<_>, Error>>()?;
    Ok((0..case.rows.len()).map(|row| source.row(case, row, &runs)).collect())
}

impl Source {
    /// What is predicted of a row, by the records of each seed.
    fn row(&self, case: &Case, row: usize, runs: &[Vec<Value>]) -> Row {
        let name = &case.rows[row][0];
        let Some((_, array, state)) = self.rows.iter().find(|known| known.0 == name) else {
            return Row::default();
        };
        let record = |records: &[Value], workload: &str, metric: &str| {
            let is_it = |record: &&Value| {
                record["array"] == *array
                    && record["state"] == *state
                    && record["workload"] == workload
                    && record["metric"] == metric
            };
            records.iter().find(is_it).cloned()
        };
        let value = |records: &[Value], workload: &str, metric: &str| {
            record(records, workload, metric)?["value"].as_f64()
        };
        let found = |column: &Column, records: &[Value]| {
            let rate = value(records, column.workload, column.metric)?;
            Some(match column.unit {
                Unit::Of(unit) => rate / unit,
                Unit::Percent => {
                    let metric = format!("{} processor time", column.metric);
                    100.0 * value(records, column.workload, &metric)? * rate / (KIB * MIB)
                }
            })
        };
        let figure = |column: &Column| {
            let found = |run| Some((found(column, run)?, run));
            let mut all =
                runs.iter().map(|run| found(run)).collect::<Option<Vec<(f64, &[Value])>>>()?;
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (value, run) = all.get(all.len() / 2)?;
            let median = record(run, column.workload, column.metric)?;
            Some((column.name, column.figure(*value, &median)))
        };
        Row {
            figures: self.columns.iter().filter_map(figure).collect(),
            is_array: !array.starts_with("single"),
        }
    }
}

impl Column {
    /// A figure with the bar of its record, in the column's unit.
    fn figure(&self, value: f64, record: &Value) -> Figure {
        let evidence = record["evidence"].as_str().filter(|_| matches!(self.unit, Unit::Of(_)));
        let kind =
            evidence.map_or(calibration::GUESS, |kind| kind.split(':').next().unwrap_or(kind));
        let end = |key: &str| match self.unit {
            Unit::Of(unit) => record[key].as_f64().map(|end| end / unit),
            Unit::Percent => None,
        };
        let bar = end("low").zip(end("high")).map(|(low, high)| [low, high]);
        Figure { value, kind: kind.to_owned(), bar }
    }
}
