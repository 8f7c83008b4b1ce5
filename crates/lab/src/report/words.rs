//! The report in words: what is faster, what it costs, what happens without a member, what to keep in mind.

use super::units::{digits, value};
use super::{Line, Pair, Report, Standing, Table, Verdict};
use crate::record::{Origin, State};
use lapstrake_stats::Interval;
use std::collections::BTreeMap;

/// Sentences under a heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// A sentence or two each.
    pub sentences: Vec<String>,
}

/// A figure this close to the null subject's says more of the harness than of the subject.
const NEAR_FLOOR: f64 = 0.8;
/// Names told in full; of more, the number.
const NAMES: usize = 6;

/// The summary. Sections without anything to say are left out.
#[must_use]
pub fn words(report: &Report) -> Vec<Section> {
    let sections = [
        ("What is faster", report.tables.iter().filter_map(fastest).collect()),
        ("What it costs in processor time", report.tables.iter().filter_map(processor).collect()),
        ("What it costs in space", space(report)),
        ("With members missing or being rebuilt", report.tables.iter().flat_map(states).collect()),
        ("To keep in mind", caveats(report)),
    ];
    let told =
        sections.into_iter().filter(|(_, sentences): &(_, Vec<String>)| !sentences.is_empty());
    told.map(|(title, sentences)| Section { title, sentences }).collect()
}

/// Who is ahead in a table, and whether that is real. What is predicted stands in it only if nothing was measured.
pub fn fastest(table: &Table) -> Option<String> {
    let is_measured = table.real_lines().any(|(_, line)| !line.is_predicted);
    let lines = table.real_lines().filter(|(_, line)| line.is_predicted != is_measured);
    let lines: Vec<(usize, &Line)> = lines.collect();
    let (&(best, line), others) = lines.split_first()?;
    let mut sentence = format!("{}: {} at {}", table.title(), line.name(), figure(line));
    let Some(&(last, last_line)) = others.last() else { return Some(sentence + ".") };
    let verdict = |place| table.pair(place, best).map(|pair| pair.verdict());
    let of = |asked| others.iter().filter(move |(place, _)| verdict(*place) == Some(asked));
    let equals: Vec<String> = of(Verdict::NoRealDifference).map(|(_, line)| line.name()).collect();
    // Also those of which nothing can be told, and those whose rounds say the opposite of their medians.
    let ahead =
        Verdict::Real(if table.unit.more_is_better() { Standing::Lower } else { Standing::Higher });
    let untold = others.len() - of(ahead).count() - equals.len();
    sentence += if equals.is_empty() && untold == 0 { ", ahead of all others." } else { "." };
    if !equals.is_empty() {
        sentence += &format!(" No real difference from it: {}.", listed(&equals));
    }
    if untold > 0 {
        let others = others.len();
        sentence += &format!(" Too few repeats or too much noise to tell of {untold} of {others}.");
    }
    if let Some(pair) = table.pair(last, best)
        && !equals.contains(&last_line.name())
        // Rounds compared one by one may say the opposite of medians, if neither tells much.
        && (pair.ratio < 1.0) == table.unit.more_is_better()
    {
        let (name, figure) = (last_line.name(), figure(last_line));
        sentence += &format!(" Last: {name} at {figure}, {}.", times(&pair, "that"));
    }
    Some(sentence)
}

/// The median with its interval.
fn figure(line: &Line) -> String {
    let median = line.summary.median;
    let range = line.summary.interval.map(|interval| {
        let (scale, _) = super::units::scale(median, line.unit);
        format!(" ({} to {})", digits(interval.low / scale), digits(interval.high / scale))
    });
    value(median, line.unit) + &range.unwrap_or_default()
}

/// A ratio to something, with its interval.
fn times(pair: &Pair, what: &str) -> String {
    let range =
        |interval: Interval| format!(" ({} to {})", digits(interval.low), digits(interval.high));
    format!("{} times {what}{}", digits(pair.ratio), pair.interval.map(range).unwrap_or_default())
}

fn listed(names: &[String]) -> String {
    match names.get(NAMES..) {
        Some(more) if !more.is_empty() => {
            format!("{} and {} more", names[..NAMES].join(", "), more.len())
        }
        _ => names.join(", "),
    }
}

fn processor(table: &Table) -> Option<String> {
    let known = table.real_lines().filter_map(|(_, line)| Some((line.cost.cpu_s_per_gib?, line)));
    let mut known: Vec<(f64, &Line)> = known.collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (&least, &most) = (known.first()?, known.last()?);
    let of = |(cpu, line): (f64, &Line)| format!("{} s ({})", digits(cpu), line.name());
    let range = match digits(least.0) == digits(most.0) {
        true if known.len() > 1 => format!("{} s", digits(least.0)),
        true => of(least),
        false => format!("from {} to {}", of(least), of(most)),
    };
    let floor = table.floor().and_then(|line| line.cost.cpu_s_per_gib);
    let floor = floor.map(|cpu| format!("; the harness alone takes {} s", digits(cpu)));
    Some(format!("{}: {range} for each GiB{}.", table.title(), floor.unwrap_or_default()))
}

fn space(report: &Report) -> Vec<String> {
    let mut shares: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (_, line) in report.tables.iter().flat_map(Table::real_lines) {
        if let Some(size) = line.subject.size.filter(|size| size.raw_bytes > 0) {
            let percent = (size.usable_bytes as f64 / size.raw_bytes as f64 * 100.0).round() as u64;
            let names = shares.entry(percent).or_default();
            if !names.contains(&line.subject.name) {
                names.push(line.subject.name.clone());
            }
        }
    }
    let told = |(percent, mut names): (u64, Vec<String>)| {
        names.sort();
        format!("{percent} % of the members' space is left for data: {}.", names.join(", "))
    };
    shares.into_iter().rev().map(told).collect()
}

/// Cases with members missing, each against the same subject whole: the least hit, the hardest hit, and those of which it
/// cannot be told.
fn states(table: &Table) -> Vec<String> {
    let told = |word| {
        let lacking = table.real_lines().filter(|(_, line)| line.state.word() == word);
        let lacking: Vec<(usize, &Line)> = lacking.collect();
        // With several members of one subject missing in turn, which it is has to be told.
        let name = |line: &Line| {
            let same = |other: &&(usize, &Line)| other.1.subject.name == line.subject.name;
            let is_one = lacking.iter().filter(same).count() == 1;
            if is_one { line.subject.name.clone() } else { line.name() }
        };
        let mut hit: Vec<(Pair, String)> = lacking
            .iter()
            .filter_map(|(place, line)| Some((against_whole(table, *place)?, name(line))))
            .collect();
        hit.sort_by(|a, b| b.0.ratio.total_cmp(&a.0.ratio));
        let (least, hardest) = (hit.first()?, hit.last()?);
        let of = |(pair, name): &(Pair, String)| format!("{name} at {}", times(pair, "healthy"));
        let mut sentence = format!("{}, {word}: {}", table.title(), of(least));
        if hit.len() > 1 {
            sentence += &format!(", down to {}", of(hardest));
        }
        let equal = hit.iter().filter(|(pair, _)| pair.verdict() == Verdict::NoRealDifference);
        let equal: Vec<String> = equal.map(|(_, name)| name.clone()).collect();
        if !equal.is_empty() {
            sentence += &format!("; no real difference: {}", listed(&equal));
        }
        if hit.iter().any(|(pair, _)| pair.verdict() == Verdict::CannotTell) {
            sentence += "; too few repeats or too much noise to tell of some";
        }
        Some(sentence + ".")
    };
    ["degraded", "rebuilding"].into_iter().filter_map(told).collect()
}

/// How a line stands to the same subject's when nothing is missing.
fn against_whole(table: &Table, place: usize) -> Option<Pair> {
    let line = &table.lines[place];
    let (whole, _) = table.real_lines().find(|(_, other)| {
        other.state == State::Healthy
            && (&other.subject.name, other.experiment) == (&line.subject.name, line.experiment)
    })?;
    table.pair(place, whole)
}

fn caveats(report: &Report) -> Vec<String> {
    let mut sentences = Vec::new();
    for stored in &report.experiments {
        let name = &stored.experiment.name;
        match &stored.experiment.origin {
            Origin::Measured => {}
            Origin::Predicted => {
                sentences.push(format!("{name}: predicted on models of disks, not measured."));
            }
            Origin::Imported { tool } => sentences.push(format!("{name}: imported from {tool}.")),
        }
        if stored.finished_ms.is_none() {
            sentences
                .push(format!("{name}: not finished; more runs may change what is said here."));
        }
    }
    let mut told = |sentence: &str, of: &dyn Fn(&Table, &Line) -> bool| {
        let lines = report.tables.iter().flat_map(|table| {
            let lines = table.real_lines().map(|(_, line)| line);
            lines
                .filter(|line| of(table, line))
                .map(|line| format!("{} in {}", line.name(), table.title()))
        });
        let names: Vec<String> = lines.collect();
        if !names.is_empty() {
            sentences.push(format!("{sentence}: {}.", listed(&names)));
        }
    };
    told("So near to the harness's own floor that they say little of the subject", &near_floor);
    told("Not in a steady state (SNIA) in every repeat", &|_, line| line.unsteady().0 > 0);
    let has_stalled = |_: &Table, line: &Line| line.values().iter().any(|v| v.value <= 0.0);
    told("With a repeat of 0, to which nothing has a ratio", &has_stalled);
    told("With outliers, which count in full", &|_, line| line.outliers() > 0);
    if !report.failures.is_empty() {
        sentences.push(format!(
            "{} runs failed and count in nothing; they are listed below.",
            report.failures.len()
        ));
    }
    sentences
}

fn near_floor(table: &Table, line: &Line) -> bool {
    table.floor().is_some_and(|floor| {
        let (value, floor) = (line.summary.median, floor.summary.median);
        let part = if table.unit.more_is_better() { value / floor } else { floor / value };
        part >= NEAR_FLOOR
    })
}
