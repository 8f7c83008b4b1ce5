//! Everything at a glance: subjects against loads, each figure as a part of the load's best.
//!
//! Invariants:
//! - A cell's share and verdict are those of the table's pair with its best line: nothing is worked out twice.
//! - A mean is told only of rows that have all columns, so that means of rows can be compared.
//!
//! It does not draw: [`super::parts`] does.

use super::{Line, Report, Table, Verdict};
use crate::record::{PREDICTED, Size, State, Subject, SubjectKind};
use crate::store::Stored;
use std::collections::BTreeMap;

/// How a subject is drawn everywhere: hues tell levels apart, shades tell those of one level apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Which of the page's hues.
    pub hue: usize,
    /// Which shade of it.
    pub shade: usize,
}

/// Hues that the page has.
pub const HUES: usize = 8;
/// Shades that it makes of each.
pub const SHADES: usize = 5;

/// Subjects against loads.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Fastest first by their means; those without a mean after them.
    pub rows: Vec<Row>,
}

/// A subject.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, with the state if it was measured in no other.
    pub name: String,
    /// How it is drawn.
    pub look: Look,
    /// Whether it is predicted beside what was measured.
    pub is_marked: bool,
    /// A cell for each of the report's tables; none where it has no share.
    pub cells: Vec<Option<Cell>>,
    /// Why there is none, for each table.
    pub blanks: Vec<Blank>,
    /// The geometric mean of its cells' shares, if it has all.
    pub mean: Option<f64>,
    /// What it takes and offers in space.
    pub size: Option<Size>,
    /// Processor seconds for each GiB, the geometric mean of all loads, if it is known of all.
    pub cpu_s_per_gib: Option<f64>,
    /// How fast it is degraded, as a part of its speed when whole, the geometric mean of what was measured.
    pub degraded: Option<f64>,
    /// How fast it is while it rebuilds.
    pub rebuilding: Option<f64>,
    /// How likely it loses data, as it was predicted.
    pub loss: Option<String>,
}

/// A subject's figure for one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Its line in the table.
    pub line: usize,
    /// How fast it is as a part of the best.
    pub share: f64,
    /// What was found against the best; nothing if it is the best itself.
    pub verdict: Option<Verdict>,
}

/// Why a subject has no share of a load's best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// No round of it was measured.
    NotMeasured,
    /// A round of it, or of the best, came to 0.
    Stalled,
    /// The loads are not the same.
    NoRatio,
}

impl Blank {
    /// What stands in its cell.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::NotMeasured => "-",
            Self::Stalled => "0",
            Self::NoRatio => "no ratio",
        }
    }
}

/// The matrix of a report.
#[must_use]
pub fn matrix(report: &Report) -> Matrix {
    let mut keys: Vec<(usize, &str, &State)> = Vec::new();
    for line in report.tables.iter().flat_map(Table::real_lines).map(|(_, line)| line) {
        let key = (line.experiment, line.subject.name.as_str(), &line.state);
        if !keys.contains(&key) && (line.state == State::Healthy || !has_whole(report, line)) {
            keys.push(key);
        }
    }
    let mut rows: Vec<Row> = keys.into_iter().filter_map(|key| row(report, key)).collect();
    keep_whole_columns(&mut rows, report);
    rows.sort_by(|a, b| b.mean.unwrap_or(-1.0).total_cmp(&a.mean.unwrap_or(-1.0)));
    Matrix { rows }
}

fn has_whole(report: &Report, line: &Line) -> bool {
    report.tables.iter().any(|table| table.whole(line).is_some())
}

fn row(report: &Report, key: (usize, &str, &State)) -> Option<Row> {
    let is_it = |line: &Line| (line.experiment, line.subject.name.as_str(), &line.state) == key;
    let lines: Vec<Option<(usize, &Line)>> = report
        .tables
        .iter()
        .map(|table| table.real_lines().find(|(_, line)| is_it(line)))
        .collect();
    let known = || lines.iter().flatten().map(|(_, line)| *line);
    // Some tables have another of that name, and there it is told which is meant.
    let named = known().find(|line| line.label.is_some()).or_else(|| known().next())?;
    let cell = |(table, line): (&Table, &Option<(usize, &Line)>)| cell(table, (*line)?.0);
    Some(Row {
        name: named.name(),
        look: named.look,
        is_marked: named.is_marked,
        cells: report.tables.iter().zip(&lines).map(cell).collect(),
        blanks: report.tables.iter().zip(&lines).map(blank).collect(),
        mean: None,
        size: named.subject.size,
        cpu_s_per_gib: mean(known().filter_map(|line| line.cost.cpu_s_per_gib)),
        degraded: beside_whole(report, named, "degraded"),
        rebuilding: beside_whole(report, named, "rebuilding"),
        loss: loss(report, named),
    })
}

fn blank((table, line): (&Table, &Option<(usize, &Line)>)) -> Blank {
    let has_stalled = |line: &Line| line.repeats.iter().any(|repeat| repeat.value.value <= 0.0);
    let best = table.best().map(|best| &table.lines[best]);
    match line {
        None => Blank::NotMeasured,
        Some((_, line)) if has_stalled(line) || best.is_some_and(has_stalled) => Blank::Stalled,
        Some(_) => Blank::NoRatio,
    }
}

fn cell(table: &Table, line: usize) -> Option<Cell> {
    let best = table.best()?;
    // Of nothing there is no share.
    if table.lines[best].summary.median <= 0.0 {
        return None;
    }
    if line == best {
        return Some(Cell { line, share: 1.0, verdict: None });
    }
    let pair = table.speed(line, best)?;
    Some(Cell { line, share: pair.ratio, verdict: Some(pair.verdict()) })
}

/// Takes out the means of rows that lack a column that others have: they could not be compared.
fn keep_whole_columns(rows: &mut [Row], report: &Report) {
    let columns: Vec<usize> = (0..report.tables.len())
        .filter(|&column| rows.iter().any(|row| row.cells[column].is_some()))
        .collect();
    for row in rows {
        let shares: Option<Vec<f64>> =
            columns.iter().map(|&column| Some(row.cells[column]?.share)).collect();
        row.mean = shares.filter(|_| columns.len() > 1).and_then(|shares| mean(shares.into_iter()));
        let is_whole = columns.iter().all(|&column| row.cells[column].is_some());
        row.cpu_s_per_gib = row.cpu_s_per_gib.filter(|_| is_whole);
    }
}

/// How fast a subject is in a state, as a part of its speed when whole: over all loads and members that were missing.
fn beside_whole(report: &Report, whole: &Line, word: &str) -> Option<f64> {
    let of_table = |table: &Table| -> Vec<f64> {
        let is_it = |line: &Line| {
            line.state.word() == word
                && whole.state == State::Healthy
                && (&line.subject.name, line.experiment) == (&whole.subject.name, whole.experiment)
        };
        let Some(to) = table.whole(whole) else { return Vec::new() };
        let lines = table.real_lines().filter(|(_, line)| is_it(line));
        lines.filter_map(|(of, _)| Some(table.speed(of, to)?.ratio)).collect()
    };
    mean(report.tables.iter().flat_map(of_table))
}

/// What was predicted of an array's losses, without its bar.
fn loss(report: &Report, line: &Line) -> Option<String> {
    let more = &report.experiments.get(line.experiment)?.experiment.facts.more;
    let is_it = |name: &&String| {
        let rest =
            name.strip_prefix(PREDICTED).and_then(|name| name.strip_prefix(&line.subject.name));
        rest.is_some_and(|rest| rest.starts_with(": ") && rest.ends_with(", loss of data"))
    };
    let name = more.keys().find(is_it)?;
    Some(more[name].split(" (").next().unwrap_or_default().to_owned())
}

/// The geometric mean of what is above 0; nothing if there is none, or one that is not.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    (!logs.is_empty() && mean.is_finite()).then(|| mean.exp())
}

/// Hues of what most reports have, the same in all of them; the page's list of hues begins with blue.
const FAMILIES: [(&str, usize); 9] = [
    ("raid5", 0),
    ("raid0", 1),
    ("raid1", 2),
    ("raid4", 3),
    ("linear", 4),
    ("raid6", 5),
    ("raid10", 6),
    ("disk", 7),
    ("existing", 7),
];

/// How each subject is drawn, by its name: a hue for its level, a shade for its place among those of that level.
pub(super) fn looks(stored: &[Stored]) -> BTreeMap<String, Look> {
    let mut families: BTreeMap<String, Look> = BTreeMap::new();
    let mut looks = BTreeMap::new();
    for (case, _) in stored.iter().flat_map(|one| &one.cases) {
        let subject = &case.subject;
        if looks.contains_key(&subject.name) || subject.kind == SubjectKind::Null {
            continue;
        }
        let others = families.len();
        let look = families.entry(family(subject)).or_insert_with_key(|family| Look {
            hue: hue(family).unwrap_or(others % HUES),
            shade: 0,
        });
        looks.insert(subject.name.clone(), *look);
        look.shade = (look.shade + 1) % SHADES;
    }
    looks
}

/// The hue of a level, the same on all pages.
pub fn hue(family: &str) -> Option<usize> {
    FAMILIES.iter().find(|(name, _)| *name == family).map(|(_, hue)| *hue)
}

/// The level without its layout; what has none is of a kind.
fn family(subject: &Subject) -> String {
    let level = subject.params.get("level").and_then(serde_json::Value::as_str);
    let word = level.and_then(|level| level.split_whitespace().next());
    word.map_or_else(|| format!("{:?}", subject.kind).to_lowercase(), str::to_owned)
}
