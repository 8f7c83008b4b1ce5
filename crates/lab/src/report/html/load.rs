//! One load: who is ahead, a row for each case with its bar, the charts that the script draws, the harness as a footnote.

use crate::record::{Params, Unit};
use crate::report::line::Line;
use crate::report::parts::{Mark, swatch, tone};
use crate::report::terminal::notes;
use crate::report::units::{bytes, digits, scale};
use crate::report::words::{fastest, plus_minus};
use crate::report::{Pair, Table, Verdict};
use lapstrake_stats::Interval;
use maud::{Markup, html};

pub(super) fn section(place: usize, table: &Table) -> Markup {
    let has_latency = table.lines.iter().any(|line| line.latency_ns(50.0).is_some());
    let has_states = table.lines.iter().any(|line| line.state.word() != "healthy");
    html! {
        section.load data-table=(place) id={ "load-" (place) } {
            h2 { (table.title()) }
            @if let Some(sentence) = fastest(table) { p.lead { (sentence.strip_prefix(&format!("{}: ", table.title())).unwrap_or(&sentence)) } }
            @if !table.params.is_empty() { p.small { (params(&table.params)) } }
            @if table.is_cached() {
                p.cached { "Through the page cache: memory and disks together, not a disk's figure." }
            }
            (rows(place, table))
            p.key {
                span { i.example aria-hidden="true" {} "the interval that decides: where it holds 100, nothing is decided" }
                @if has_states {
                    span { span.swatch.degraded.tone aria-hidden="true" {} "degraded" }
                    span { span.swatch.rebuilding.tone aria-hidden="true" {} "rebuilding" }
                }
            }
            (footnote(table))
            @if has_latency { details { summary { "Latency" } figure data-chart="latency" {} } }
            details { summary { "Over time" } figure data-chart="series" {} }
        }
    }
}

/// What the harness does without a subject.
fn footnote(table: &Table) -> Markup {
    html! { @for floor in table.lines.iter().filter(|line| line.is_floor()) {
        @let (scale, unit) = scale(floor.summary.median, table.unit);
        p.small.floor {
            "The harness alone (" (floor.name()) "): " (digits(floor.summary.median / scale)) " " (unit)
            @if let Some(cpu) = floor.cost.cpu_s_per_gib { ", " (digits(cpu)) " CPU s/GiB" }
            ". No subject can be shown to do more."
        }
    } }
}

/// Parameters that are bytes.
const SIZES: [&str; 9] = [
    "amount",
    "bitmap_chunk",
    "block_size",
    "chunk",
    "file_size",
    "from",
    "read_ahead",
    "size",
    "to",
];

fn params(params: &Params) -> String {
    let told = params.iter().map(|(name, value)| {
        let size = value.as_u64().filter(|_| SIZES.contains(&name.as_str())).map(bytes);
        let value = size.or(value.as_str().map(str::to_owned)).unwrap_or(value.to_string());
        format!("{} {value}", name.replace('_', " "))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// A column: its heading, and for each line a number to sort by and a text.
struct Column {
    name: String,
    values: Vec<(Option<f64>, String)>,
}

/// The columns of figures in which something stands; each has one unit.
fn columns(table: &Table, places: &[usize]) -> Vec<Column> {
    let lines: Vec<&Line> = places.iter().map(|&place| &table.lines[place]).collect();
    let best = table.best().map_or(0.0, |best| table.lines[best].summary.median);
    let (size, unit) = scale(best, table.unit);
    let of = |name: &str, value: &dyn Fn(&Line) -> Option<f64>| Column {
        name: name.into(),
        values: lines
            .iter()
            .map(|line| (value(line), value(line).map(digits).unwrap_or_default()))
            .collect(),
    };
    let latency = |percent: f64| {
        let ns: Vec<Option<u64>> = lines.iter().map(|line| line.latency_ns(percent)).collect();
        let least = ns.iter().flatten().min().copied().unwrap_or_default();
        let (size, unit) = scale(least as f64, Unit::Nanoseconds);
        let own = |line: &Line| line.latency_ns(percent).map(|ns| ns as f64 / size);
        of(&format!("p{percent} {unit}"), &own)
    };
    let counts: Vec<usize> = lines.iter().map(|line| line.repeats.len()).collect();
    let differ = counts.iter().any(|count| *count != counts[0]);
    let rounds = counts.iter().map(|&count| {
        // Where all have as many, the page's head says how many.
        (Some(count as f64), if differ { count.to_string() } else { String::new() })
    });
    let around = lines.iter().map(|line| (None, plus_minus(line))).collect();
    let told = lines.iter().map(|line| (None, notes(line))).collect();
    let mut columns = vec![
        of(unit, &|line| Some(line.summary.median / size)),
        Column { name: "±".into(), values: around },
        Column { name: "rounds".into(), values: rounds.collect() },
        of("CPU s/GiB", &|line| line.cost.cpu_s_per_gib),
        of("written per byte", &|line| line.cost.write_amplification),
        latency(50.0),
        latency(99.0),
        latency(99.9),
        Column { name: "notes".into(), values: told },
    ];
    columns.retain(|column| column.values.iter().any(|(_, text)| !text.is_empty()));
    columns
}

fn rows(number: usize, table: &Table) -> Markup {
    let places: Vec<usize> = table.real_lines().map(|(place, _)| place).collect();
    let columns = columns(table, &places);
    let far = far(table, &places);
    html! {
        div.wide role="region" tabindex="0" aria-label={ "Figures: " (table.title()) } { table.figures {
            thead { tr {
                th scope="col" { "case" }
                th.number scope="col" { "% of best" }
                th.bars scope="col" { span.unseen { "as a bar" } }
                @for column in &columns { th.number[column.name != "notes"] scope="col" { (column.name) } }
            } }
            tbody { @for (index, &place) in places.iter().enumerate() {
                @let line = &table.lines[place];
                tr data-line=(place) id={ "load-" (number) "-" (place) } {
                    th scope="row" { (swatch(line.look, line.state.word())) (line.name()) }
                    (standing(table, place, far))
                    @for column in &columns {
                        @let (value, text) = &column.values[index];
                        td.number[column.name != "notes"] data-value=[value] data-name=[(column.name != "±").then_some(&column.name)] { (text) }
                    }
                }
            } }
        } }
    }
}

/// The pair with the best, as speeds.
fn against_best(table: &Table, place: usize) -> Option<Pair> {
    table.speed(place, table.best()?)
}

/// How far bars reach: 1 is the best. An interval that goes far beyond is cut off.
fn far(table: &Table, places: &[usize]) -> f64 {
    let pairs = places.iter().filter_map(|&place| against_best(table, place));
    let ends = pairs.map(|pair| pair.interval.map_or(pair.ratio, |interval| interval.high));
    ends.fold(1.0, f64::max).min(1.5)
}

/// Per cent of the best with the verdict's sign, and the bar with the interval that decides.
fn standing(table: &Table, place: usize, far: f64) -> Markup {
    let line = &table.lines[place];
    let pair = against_best(table, place);
    let is_best = table.best() == Some(place);
    let (share, mark) = match pair {
        _ if is_best => (Some(1.0), Mark::Best),
        Some(pair) => (Some(pair.ratio), mark(pair.verdict())),
        None => (None, Mark::Open),
    };
    let text = share.map(|share| format!("{}{}", mark.sign(), digits(share * 100.0)));
    html! {
        td.number.share-of data-value=[share] data-name="% of best" { (text.unwrap_or_default()) }
        td.bars aria-hidden="true" { (bar(line, share, pair.and_then(|pair| pair.interval), far)) }
    }
}

fn mark(verdict: Verdict) -> Mark {
    match verdict {
        Verdict::Real(_) => Mark::Real,
        Verdict::NoRealDifference => Mark::Same,
        Verdict::CannotTell => Mark::Open,
    }
}

fn bar(line: &Line, share: Option<f64>, interval: Option<Interval>, far: f64) -> Markup {
    let Some(share) = share else { return html! {} };
    let at = |value: f64| (value / far * 100.0).clamp(0.0, 100.0);
    let mut style = format!("--w:{:.1};--base:{:.1}", at(share), at(1.0));
    if let Some(interval) = interval {
        style += &format!(";--low:{:.1};--high:{:.1}", at(interval.low), at(interval.high));
    }
    let hollow = if line.is_marked { " hollow" } else { "" };
    html! {
        span.track style=(style) {
            i class={ "fill " (line.state.word()) " " (tone(line.look)) (hollow) } {}
            @if interval.is_some() { b {} }
        }
    }
}
