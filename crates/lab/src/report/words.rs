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
        ("Processor time", report.tables.iter().filter_map(processor).collect()),
        ("Space", space(report)),
        ("With members missing or rebuilt", report.tables.iter().flat_map(states).collect()),
        ("To keep in mind", caveats(report)),
    ];
    let told =
        sections.into_iter().filter(|(_, sentences): &(_, Vec<String>)| !sentences.is_empty());
    told.map(|(title, sentences)| Section { title, sentences }).collect()
}

/// Who is ahead in a table, and whether that is real. What is predicted stands in it only if nothing was measured, and what
/// lacks a member only if nothing is whole.
pub fn fastest(table: &Table) -> Option<String> {
    let best = table.best()?;
    let line = &table.lines[best];
    let is_alike = |other: &Line| {
        other.is_predicted == line.is_predicted
            && (line.state != State::Healthy || other.state == State::Healthy)
    };
    let others: Vec<(usize, &Line)> =
        table.real_lines().filter(|(place, other)| *place != best && is_alike(other)).collect();
    if line.summary.median <= 0.0 {
        return Some(format!("{}: in the middle round none did anything.", table.title()));
    }
    let (verb, name, figure) = (verb(table), line.name(), figure(line));
    if others.is_empty() {
        return Some(format!("{}: {name}, {figure}.", table.title()));
    }
    let of = |asked| {
        others.iter().filter(move |(place, _)| standing(table, *place, best) == Some(asked))
    };
    let equals: Vec<String> = of(Verdict::NoRealDifference).map(|(_, line)| line.name()).collect();
    if equals.len() == others.len() {
        let among = match &equals[..] {
            [other] => format!("between {name} and {other}"),
            _ => format!("between {name} and {} others", others.len()),
        };
        return Some(format!("{}: no real difference {among}, {figure}.", table.title()));
    }
    let open = open(table, best, &others);
    if open.len() == others.len() {
        let sentence = format!("{}: {name} is ahead, {figure}.", table.title());
        return Some(sentence + &undecided(table, best, &open, others.len()));
    }
    let mut sentence = format!("{}: {name} {verb} fastest, {figure}", table.title());
    sentence += &last(table, best, &others);
    if !equals.is_empty() {
        sentence += &format!(" No real difference from it: {}.", listed(&equals));
    }
    Some(sentence + &undecided(table, best, &open, others.len()))
}

/// What is found of a line's speed against another's.
fn standing(table: &Table, of: usize, to: usize) -> Option<Verdict> {
    table.speed(of, to).map(|pair| pair.verdict())
}

/// How far the slowest is behind, the end of a sentence.
fn last(table: &Table, best: usize, others: &[(usize, &Line)]) -> String {
    let Some((place, line)) = others.last() else { return ".".into() };
    // Rounds compared one by one may say the opposite of medians, if neither tells much.
    let Some(pair) = table.speed(best, *place).filter(|pair| pair.ratio > 1.0) else {
        return ".".into();
    };
    let which = if others.len() > 1 { ", the slowest" } else { "" };
    let found = match pair.verdict() {
        Verdict::Real(_) => "that is real",
        Verdict::NoRealDifference => "that is no real difference",
        Verdict::CannotTell => "that is undecided",
    };
    format!(", {} times as fast as {}{which}; {found}.", digits(pair.ratio), line.name())
}

/// Those that are not told apart from the best, and are not its equals either.
fn open(table: &Table, best: usize, others: &[(usize, &Line)]) -> Vec<usize> {
    let is_told = |place| {
        matches!(
            standing(table, place, best),
            Some(Verdict::Real(Standing::Lower) | Verdict::NoRealDifference)
        )
    };
    others.iter().map(|(place, _)| *place).filter(|place| !is_told(*place)).collect()
}

/// How many of `all` are open, and what would settle it.
fn undecided(table: &Table, best: usize, open: &[usize], all: usize) -> String {
    if open.is_empty() {
        return String::new();
    }
    let count = match *open {
        [only] if all > 1 => format!(" Undecided: {}", table.lines[only].name()),
        [_] => " Undecided".to_owned(),
        _ => format!(" {} of {all} undecided", open.len()),
    };
    if table.lines[best].repeats.len() < 2 {
        return format!("{count}: one round tells nothing of chance.");
    }
    let more = open.iter().map(|&place| table.speed(place, best)?.more_rounds);
    match more.collect::<Option<Vec<u32>>>().and_then(|more| more.into_iter().max()) {
        Some(1) => format!("{count}: about one more round would settle it."),
        Some(more) => format!("{count}: about {more} more rounds would settle it."),
        None => format!("{count}: more rounds of so much noise would hardly settle it."),
    }
}

/// What a load does, for a sentence on who does it fastest.
fn verb(table: &Table) -> &'static str {
    match table.params.get("read_share").and_then(serde_json::Value::as_f64) {
        Some(share) if share >= 1.0 => "reads",
        Some(share) if share <= 0.0 => "writes",
        _ => "is",
    }
}

/// The median with how well it is known.
fn figure(line: &Line) -> String {
    let around = plus_minus(line);
    let around = if around.is_empty() { around } else { format!(" {around}") };
    value(line.summary.median, line.unit) + &around
}

/// How far the interval of the median reaches to the further side, as a part of it.
#[must_use]
pub fn plus_minus(line: &Line) -> String {
    let median = line.summary.median;
    let reach = |interval: Interval| (interval.high - median).max(median - interval.low) / median;
    match line.summary.interval.map(reach) {
        Some(part) if part.is_finite() && part < 0.0005 => "± 0 %".into(),
        Some(part) if part.is_finite() => format!("± {:.1} %", part * 100.0),
        _ => String::new(),
    }
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
            .filter_map(|(place, line)| Some((table.pair(*place, table.whole(line)?)?, name(line))))
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

fn caveats(report: &Report) -> Vec<String> {
    let mut sentences = Vec::new();
    for stored in &report.experiments {
        let name = &stored.experiment.name;
        match &stored.experiment.origin {
            Origin::Measured => {}
            Origin::Predicted => {
                sentences.push(format!("{name}: predicted on models of disks, not measured; lapstrake predict tells how far off models may be."));
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
