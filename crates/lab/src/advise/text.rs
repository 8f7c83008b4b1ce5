//! An answer for a terminal: the pick and why, what would change it, a table of what no other beats, and a chart.

use super::choose::SAME;
use super::{Advice, Candidate, Load, Question, Tried, bars};
use crate::plan::{Pattern, listed};
use crate::record::Unit;
use crate::report::units::{bytes, digits, scale, value};
use crate::width;
use std::collections::BTreeMap;

/// Places of a bar.
const BAR: usize = 20;
/// What a line of the chart has beside the name.
const BESIDE_NAME: usize = 4 + BAR + 1 + 12 + 2;

/// The answer as text.
#[must_use]
pub fn text(question: &Question, advice: &Advice) -> String {
    let mut out = String::new();
    for line in words(question, advice) {
        out += &width::line(&line);
    }
    if advice.tried.is_empty() {
        return out;
    }
    out += &format!("\nWhat no other beats, of {} tried:\n", advice.tried.len());
    out += &table(question, advice);
    out += "\nSpeed, whole (#) and without one disk (=):\n";
    out += &chart(question, advice);
    out
}

/// The answer in sentences.
pub(super) fn words(question: &Question, advice: &Advice) -> Vec<String> {
    let Some(pick) = advice.choice.pick else {
        let why = match advice.possible {
            0 => "Nothing can be built of these disks that has room for the loads.".into(),
            possible => format!(
                "Nothing comes near the wishes: of {possible} that could be built, the largest of {}, {} are large \
                 and cheap enough, and each misses more than one of the wishes ({}), or could not be tried.",
                bytes(advice.largest),
                advice.fitting,
                wished(question),
            ),
        };
        return std::iter::once(why).chain(untried(advice)).collect();
    };
    let mut lines = vec![format!("Build: {}", name(question, advice, pick))];
    let one = &advice.tried[pick];
    lines.push(format!("  {}", figures(question, one)));
    lines.extend(one.candidate.commands(&question.disks).iter().map(|line| format!("    {line}")));
    lines.push(why(advice, one));
    lines.extend(certainty(question, one));
    lines.extend(what_the_spare_buys(advice, one));
    for offer in &advice.choice.offers {
        let other = &advice.tried[offer.place];
        let name = name(question, advice, offer.place);
        lines.push(format!("Or {}: {name}", offer.what));
        lines.push(format!("  {}", figures(question, other)));
    }
    if !advice.choice.runners_up.is_empty() {
        lines.push("Next:".into());
    }
    for &place in &advice.choice.runners_up {
        let other = &advice.tried[place];
        let name = name(question, advice, place);
        lines.push(format!("  {name}: {}", compared(one, other)));
    }
    if !advice.choice.changes.is_empty() {
        lines.push(
            "What would change that, of what was tried (with such a wish more of its kind are):"
                .into(),
        );
    }
    for change in &advice.choice.changes {
        let other = &advice.tried[change.pick];
        let name = name(question, advice, change.pick);
        let compared = compared(one, other);
        lines.push(format!("  {}: {name} ({compared})", change.wish));
    }
    lines.extend(untried(advice));
    lines
}

/// The wishes for which something was left out before it was tried.
fn wished(question: &Question) -> String {
    let wishes = &question.wishes;
    let named = [
        ("--capacity", wishes.capacity.is_some()),
        ("--budget", wishes.budget.is_some()),
        ("--loss", true),
    ];
    let named = named.iter().filter(|(_, is_wished)| *is_wished).map(|(name, _)| *name);
    named.collect::<Vec<_>>().join(", ")
}

fn untried(advice: &Advice) -> impl Iterator<Item = String> {
    advice.notes.iter().map(|note| format!("Not tried: {note}"))
}

fn why(advice: &Advice, pick: &Tried) -> String {
    let could = format!(
        "{} could be built, {} of them large and cheap enough; {} were tried on models of the disks.",
        advice.possible,
        advice.fitting,
        advice.tried.len()
    );
    if pick.misses.is_empty() {
        return format!(
            "Why: the fastest of those that meet every wish; within 10 %, which models do not tell apart, the larger, then \
             the safer, then the simpler. {could}"
        );
    }
    let misses = pick.misses.join(" and ");
    format!("Why: nothing that was tried meets every wish; this misses only {misses}. {could}")
}

/// Of each load, from where to where 95 % of such figures lie; of others, why they are a guess.
fn certainty(question: &Question, one: &Tried) -> Vec<String> {
    let (mut told, mut guesses): (Vec<String>, BTreeMap<&str, Vec<&str>>) = Default::default();
    for (place, load) in question.loads.iter().enumerate() {
        match bars::bar(question, one, place, load) {
            Ok([low, high]) => {
                let [low, high] = [low, high].map(|end| rate(load, end));
                told.push(format!("{} {low} to {high}", load.name));
            }
            Err(why) => guesses.entry(why).or_default().push(&load.name),
        }
    }
    let mut lines = Vec::new();
    if !told.is_empty() {
        let told = told.join(", ");
        lines.push(format!("With 95 %, by what the models were off on published arrays: {told}."));
    }
    let guess = |(why, names): (&str, Vec<&str>)| {
        format!("A guess, without a bar: {}: {why}.", listed(&names))
    };
    lines.extend(guesses.into_iter().map(guess));
    let bound = question.loads.iter().enumerate().filter(|(place, _)| one.is_core_bound(*place));
    let bound: Vec<&str> = bound.map(|(_, load)| load.name.as_str()).collect();
    if !bound.is_empty() {
        lines.push(format!(
            "One processor core limits {}: it makes all requests, and faster disks or more of them would change nothing.",
            listed(&bound)
        ));
    }
    lines
}

/// What a pick with a hot spare would be without it.
fn what_the_spare_buys(advice: &Advice, pick: &Tried) -> Option<String> {
    pick.candidate.spare?;
    let plain = Candidate { spare: None, ..pick.candidate.clone() };
    let plain = advice.tried.iter().find(|one| one.candidate == plain)?;
    let cost = match pick.cost - plain.cost {
        saved if saved > 0.0 => format!("; it costs {}", digits(saved)),
        _ => String::new(),
    };
    Some(format!(
        "The hot spare: without it a sector or more is lost with a probability of {}, the array with {}{cost}.",
        probability(plain.loss.data.value),
        probability(plain.loss.array.value),
    ))
}

pub(super) fn name(question: &Question, advice: &Advice, place: usize) -> String {
    advice.tried[place].candidate.words(&question.disks)
}

fn figures(question: &Question, one: &Tried) -> String {
    let speeds = question.loads.iter().enumerate().map(|(place, load)| {
        let range = one.range(place).map_or_else(String::new, |(low, high)| {
            format!(" ({} to {})", rate(load, low), rate(load, high))
        });
        format!("{} {}{range}", load.name, rate(load, one.speeds[place]))
    });
    let mut parts = vec![bytes(one.capacity)];
    parts.extend(speeds);
    if let Some(hours) = one.longest_rebuild() {
        parts.push(format!("rebuilt in {} h", digits(hours)));
    }
    if let Some(hours) = one.growth_hours {
        parts.push(format!("given one more disk in {} h", digits(hours)));
    }
    parts.push(format!(
        "in {} years loses the array with a probability of {}, a sector or more with {} ({} to {})",
        digits(question.care.years),
        probability(one.loss.array.value),
        probability(one.loss.data.value),
        probability(one.loss.data.low),
        probability(one.loss.data.high),
    ));
    if one.cost > 0.0 {
        parts.push(format!("costs {}", digits(one.cost)));
    }
    parts.join(", ")
}

/// What another has more or less than the pick.
fn compared(pick: &Tried, other: &Tried) -> String {
    let ratio = (other.score - pick.score).exp();
    let mut parts = vec![match ratio {
        _ if ratio.ln().abs() < SAME => "as fast, as far as models tell".to_owned(),
        _ => format!("{} x as fast", digits(ratio)),
    }];
    if other.capacity.abs_diff(pick.capacity) > pick.capacity / 50 {
        parts.push(bytes(other.capacity));
    }
    let (loss, picked) = (other.loss.data.value.max(1e-15), pick.loss.data.value.max(1e-15));
    if !(0.5..2.0).contains(&(loss / picked)) {
        parts.push(format!("loses a sector or more with {}", probability(loss)));
    }
    if (other.cost - pick.cost).abs() > 0.01 * pick.cost {
        parts.push(format!("costs {}", digits(other.cost)));
    }
    parts.join(", ")
}

/// A row for each, with one unit in each column.
fn table(question: &Question, advice: &Advice) -> String {
    let places = shown(advice);
    let tried: Vec<&Tried> = places.iter().map(|&place| &advice.tried[place]).collect();
    let most = tried.iter().map(|one| one.capacity).max().unwrap_or_default();
    let (size, size_unit) = binary(most);
    let units: Vec<(f64, &str)> = (0..question.loads.len())
        .map(|index| {
            let speeds = tried.iter().map(|one| speed(&question.loads[index], one.speeds[index]));
            scale(speeds.fold(0.0, f64::max), speed_unit(&question.loads[index]))
        })
        .collect();
    let mut header = vec!["array".to_owned(), size_unit.to_owned()];
    let loads = question.loads.iter().zip(&units);
    header.extend(loads.map(|(load, (_, unit))| format!("{} {unit}", load.name)));
    header.extend(["less a disk %", "rebuild h", "loses data %", "cost", "misses"].map(Into::into));
    let row = |(&place, one): (&usize, &&Tried)| {
        let mark = if Some(place) == advice.choice.pick { "* " } else { "" };
        let mut row = vec![
            format!("{mark}{}", name(question, advice, place)),
            digits(one.capacity as f64 / size),
        ];
        let loads = question.loads.iter().zip(&one.speeds).zip(&units);
        row.extend(loads.map(|((load, bytes), (size, _))| digits(speed(load, *bytes) / size)));
        let share = one.degraded_score.map(|score| (score - one.score).exp() * 100.0);
        row.push(share.map_or("lost".into(), |share| format!("{share:.0}")));
        row.push(one.longest_rebuild().map_or(String::new(), digits));
        row.push(percent(one.loss.data.value));
        row.push(if one.cost > 0.0 { digits(one.cost) } else { String::new() });
        row.push(one.misses.join(", "));
        row
    };
    let rows: Vec<Vec<String>> = places.iter().zip(&tried).map(row).collect();
    let last = header.len() - 1;
    width::table(&header, &rows, |column| column > 0 && column < last)
}

/// The largest of the units of sizes that leaves at least one.
fn binary(bytes: u64) -> (f64, &'static str) {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB")];
    let found = units.into_iter().find(|(unit, _)| bytes >= *unit);
    let (unit, word) = found.unwrap_or((1 << 20, "MiB"));
    (unit as f64, word)
}

/// What is worth a line: what no other beats, and what was said.
pub(super) fn shown(advice: &Advice) -> Vec<usize> {
    let choice = &advice.choice;
    let offered = choice.offers.iter().map(|offer| offer.place);
    let said = choice.changes.iter().map(|change| change.pick).chain(offered);
    let said = choice.pick.into_iter().chain(choice.runners_up.iter().copied()).chain(said);
    let mut shown: Vec<usize> = choice.pareto.iter().copied().chain(said).collect();
    shown.sort_by(|&a, &b| advice.tried[b].score.total_cmp(&advice.tried[a].score).then(a.cmp(&b)));
    shown.dedup();
    shown
}

fn chart(question: &Question, advice: &Advice) -> String {
    let mut out = String::new();
    let places = shown(advice);
    for (index, load) in question.loads.iter().enumerate() {
        let speeds = places.iter().map(|&place| advice.tried[place].speeds[index]);
        let most = speeds.fold(1.0, f64::max);
        out += &format!("  {}\n", load.name);
        for &place in &places {
            let one = &advice.tried[place];
            let reach = |speed: f64| (speed / most * BAR as f64).round() as usize;
            let whole = reach(one.speeds[index]);
            let degraded = one.degraded.as_ref().map_or(0, |speeds| reach(speeds[index]));
            let bar = "=".repeat(degraded.min(whole)) + &"#".repeat(whole.saturating_sub(degraded));
            let name = cut(name(question, advice, place));
            out += &format!("    {bar:<BAR$} {:>12}  {name}\n", rate(load, one.speeds[index]));
        }
    }
    out
}

/// A name as far as there is room; the table has all of it.
fn cut(name: String) -> String {
    let room = usize::from(width::columns()).saturating_sub(BESIDE_NAME);
    if name.chars().count() <= room {
        return name;
    }
    name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// A speed as its load is usually told.
pub(super) fn rate(load: &Load, bytes: f64) -> String {
    value(speed(load, bytes), speed_unit(load))
}

/// Bytes a second in the unit of its load.
fn speed(load: &Load, bytes: f64) -> f64 {
    match speed_unit(load) {
        Unit::RequestsPerSecond => bytes / load.io.block as f64,
        _ => bytes,
    }
}

fn speed_unit(load: &Load) -> Unit {
    let scattered = matches!(load.io.pattern, Pattern::Uniform | Pattern::Zipf(_));
    match scattered || load.io.fsync_every.is_some() {
        true => Unit::RequestsPerSecond,
        false => Unit::BytesPerSecond,
    }
}

/// A probability in a column of per cent.
fn percent(value: f64) -> String {
    match value * 100.0 {
        share @ 0.001.. => digits(share),
        share => format!("{share:.1e}"),
    }
}

pub(super) fn probability(value: f64) -> String {
    match value {
        0.001.. => format!("{} %", digits(value * 100.0)),
        _ => format!("{value:.1e}"),
    }
}
