//! What experiments say, in the order in which one asks: [`Report::of`] works it out, the modules below show it.
//!
//! Invariants:
//! - A table holds what may be compared: one load, one phase, one unit. Cases of several experiments may stand in it.
//! - Verdicts are corrected within a table: all its pairs are one family, since its question is one ("which is faster at this?"),
//!   and the interval that is drawn is the one that decides. A pair has one verdict wherever it is shown.
//! - The null subject takes part in no verdict: it is the floor that the harness itself sets.
//! - What is predicted says so: at the head of a report that has nothing else, in every line beside what was measured.
//! - A subject has one colour in all figures.

mod compare;
mod data;
mod html;
mod line;
mod markdown;
pub(crate) mod matrix;
pub(crate) mod parts;
mod terminal;
mod verdict;
mod words;

#[cfg(test)]
mod tests;

pub mod units;

use crate::record::{Params, State, Unit};
use crate::store::{ExperimentId, Stored, StoredExperiment};

pub use compare::{Compared, compare};
pub use data::json;
pub use html::{html, is_page};
pub use line::{Cost, Line, Percentiles, Repeat};
pub use markdown::markdown;
pub use matrix::{Cell, Look, Matrix, Row, matrix};
pub use terminal::{columns, glance, terminal};
pub use verdict::{EQUAL_WITHIN, Pair, Standing, Verdict};
pub use words::{Section, plus_minus, words};

/// Experiments, worked out.
#[derive(Clone, Debug)]
pub struct Report {
    /// The experiments, in the order in which they were asked for.
    pub experiments: Vec<StoredExperiment>,
    /// A table for each load's phase.
    pub tables: Vec<Table>,
    /// Runs that failed.
    pub failures: Vec<Failure>,
}

/// What may be compared with each other.
#[derive(Clone, Debug)]
pub struct Table {
    /// The load.
    pub workload: String,
    /// Who ran it.
    pub runner: String,
    /// What sets it apart from others.
    pub params: Params,
    /// The load's phase; empty if it has but one.
    pub phase: String,
    /// What its figures count.
    pub unit: Unit,
    /// Cases, best first.
    pub lines: Vec<Line>,
    /// Cases against each other, by their places in `lines`; the null subject's are left out.
    pub pairs: Vec<Pair>,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In which experiment.
    pub experiment: ExperimentId,
    /// What was measured.
    pub subject: String,
    /// In what state.
    pub state: State,
    /// With what.
    pub workload: String,
    /// In which round.
    pub round: u32,
    /// Why it failed.
    pub error: String,
}

impl Report {
    /// Works experiments out, all their common loads side by side.
    #[must_use]
    pub fn of(stored: &[Stored]) -> Self {
        let mut tables: Vec<Table> = Vec::new();
        let mut failures = Vec::new();
        for (number, experiment) in stored.iter().enumerate() {
            for (place, (case, runs)) in experiment.cases.iter().enumerate() {
                failures.extend(runs.iter().filter_map(|run| {
                    Some(Failure {
                        experiment: experiment.head.id,
                        subject: case.subject.name.clone(),
                        state: case.state.clone(),
                        workload: case.workload.name.clone(),
                        round: run.round,
                        error: run.error.clone()?,
                    })
                }));
                for (phase, line) in line::of(experiment, (number, place), case, runs) {
                    let table = find(&mut tables, case, phase, line.unit);
                    table.lines.push(line);
                }
            }
        }
        let is_mixed = stored.iter().any(|one| !one.head.experiment.origin.is_predicted());
        let looks = matrix::looks(stored);
        for table in &mut tables {
            for line in &mut table.lines {
                line.is_marked = line.is_predicted && is_mixed;
                line.look = looks.get(&line.subject.name).copied().unwrap_or_default();
            }
            table.order();
            table.label(stored);
            table.pairs = verdict::pairs(table);
        }
        Self { experiments: stored.iter().map(|one| one.head.clone()).collect(), tables, failures }
    }

    /// What tells the tables apart: their titles, without the load's name if all are phases of one.
    #[must_use]
    pub fn headings(&self) -> Vec<String> {
        let is_one = self
            .tables
            .iter()
            .all(|table| table.workload == self.tables[0].workload && !table.phase.is_empty());
        let heading = |table: &Table| if is_one { table.phase.clone() } else { table.title() };
        self.tables.iter().map(heading).collect()
    }

    /// Whether no figure was measured, all were predicted.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        self.experiments.iter().all(|stored| stored.experiment.origin.is_predicted())
    }

    /// Whether any figure was not measured but predicted.
    #[must_use]
    pub fn has_predictions(&self) -> bool {
        self.experiments.iter().any(|stored| stored.experiment.origin.is_predicted())
    }
}

fn find<'a>(
    tables: &'a mut Vec<Table>,
    case: &crate::store::StoredCase,
    phase: &str,
    unit: Unit,
) -> &'a mut Table {
    let is_it = |table: &Table| {
        table.workload == case.workload.name && table.phase == phase && table.unit == unit
    };
    let place = tables.iter().position(is_it).unwrap_or_else(|| {
        tables.push(Table {
            workload: case.workload.name.clone(),
            runner: case.workload.runner.clone(),
            params: case.workload.params.clone(),
            phase: phase.to_owned(),
            unit,
            lines: Vec::new(),
            pairs: Vec::new(),
        });
        tables.len() - 1
    });
    &mut tables[place]
}

impl Table {
    /// The load and its phase.
    #[must_use]
    pub fn title(&self) -> String {
        if self.phase.is_empty() {
            self.workload.clone()
        } else {
            format!("{}: {}", self.workload, self.phase)
        }
    }

    /// How the line at `of` stands to the one at `to`; nothing if they are not compared.
    #[must_use]
    pub fn pair(&self, of: usize, to: usize) -> Option<Pair> {
        let found = |a, b| self.pairs.iter().copied().find(|pair| (pair.of, pair.to) == (a, b));
        found(of, to).or_else(|| found(to, of).map(Pair::reversed))
    }

    /// The lines of real subjects with their places, best first.
    pub fn real_lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(_, line)| !line.is_floor())
    }

    /// Whether the load went through the page cache, so that memory was measured with the disks.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        let is_direct = self.params.get("direct").and_then(serde_json::Value::as_bool);
        let defined = self.params.get("definition").and_then(serde_json::Value::as_str);
        let tool = defined.unwrap_or(&self.runner);
        // As the tools define their tests; hdparm has the cache emptied before.
        let by_rule = tool.starts_with("bonnie++") || tool.starts_with("iozone");
        // What is asked in the process or over NBD has no page cache in any case.
        let has_cache = |line: &Line| {
            let access = line.subject.params.get("access").and_then(serde_json::Value::as_str);
            !matches!(access, Some("in-process" | "nbd"))
        };
        is_direct.map_or(by_rule, |direct| !direct)
            && self.real_lines().any(|(_, line)| has_cache(line))
    }

    /// The best that is whole, of what was measured if anything was; nothing if the table has the floor only.
    #[must_use]
    pub fn best(&self) -> Option<usize> {
        let is_measured = self.real_lines().any(|(_, line)| !line.is_predicted);
        let first = |healthy: bool| {
            let mut lines = self.real_lines();
            let is_it = |line: &Line| {
                line.is_predicted != is_measured && (!healthy || line.state == State::Healthy)
            };
            lines.find(|(_, line)| is_it(line)).map(|(place, _)| place)
        };
        first(true).or_else(|| first(false))
    }

    /// The line that is whole of the subject whose line this is.
    #[must_use]
    pub fn whole(&self, line: &Line) -> Option<usize> {
        let is_it = |other: &Line| {
            other.state == State::Healthy
                && (&other.subject.name, other.experiment) == (&line.subject.name, line.experiment)
        };
        self.real_lines().find(|(_, other)| is_it(other)).map(|(place, _)| place)
    }

    /// How fast a line is, as a part of another's speed: more is faster, whatever the unit counts.
    #[must_use]
    pub fn speed(&self, of: usize, to: usize) -> Option<Pair> {
        if of == to {
            return None;
        }
        if self.unit.more_is_better() { self.pair(of, to) } else { self.pair(to, of) }
    }

    /// The harness's own floor, if it was measured: the best that any subject could have shown.
    #[must_use]
    pub fn floor(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.is_floor())
    }

    /// Names the experiment where the name of a case alone does not say which is meant.
    fn label(&mut self, stored: &[Stored]) {
        let names: Vec<String> = self.lines.iter().map(Line::name).collect();
        for (line, name) in self.lines.iter_mut().zip(&names) {
            if names.iter().filter(|other| *other == name).count() > 1 {
                let head = &stored[line.experiment].head;
                line.label = Some(format!("{} {}", head.experiment.name, head.id.0));
            }
        }
    }

    fn order(&mut self) {
        let more_is_better = self.unit.more_is_better();
        self.lines.sort_by(|a, b| {
            let order = a.summary.median.total_cmp(&b.summary.median);
            if more_is_better { order.reverse() } else { order }
        });
    }
}
