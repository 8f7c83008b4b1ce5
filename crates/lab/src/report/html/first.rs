//! What the page opens with: what was measured on what, a sentence for each load, the matrix; and the scatter made of it.

use crate::record::{Device, Facts, Origin};
use crate::report::matrix::{Blank, Cell, Matrix, Row, mean};
use crate::report::parts::{
    Column, Field, GridRow, Mark, Point, grid, grid_legend, scatter, swatch,
};
use crate::report::units::{bytes, digits, scale};
use crate::report::words::{fastest, plus_minus};
use crate::report::{Report, Standing, Table, Verdict};
use crate::store::StoredExperiment;
use jiff::Timestamp;
use maud::{Markup, html};

/// A line for each experiment: machine, disks, when, how many rounds.
pub(super) fn origins(report: &Report) -> Markup {
    html! {
        @if report.is_predicted() { p.predicted {
            strong { "Predicted" } " on models of disks, not measured. The repeats are draws of the disks' profiles, and the \
             intervals are those of the median. Error bars, which hold what the models were off elsewhere, are wider: "
            a href="#bars" { "predicted figures and their error bars" } "."
        } } @else if report.has_predictions() { p.predicted {
            "Figures with \"(predicted)\" were not measured but worked out on models of disks; their bars are hollow."
        } }
        ul.origins { @for (place, stored) in report.experiments.iter().enumerate() { li { (origin(report, place, stored)) } } }
    }
}

fn origin(report: &Report, place: usize, stored: &StoredExperiment) -> Markup {
    let facts = &stored.experiment.facts;
    let told = match &stored.experiment.origin {
        Origin::Measured => "measured".to_owned(),
        Origin::Predicted => "predicted".to_owned(),
        Origin::Imported { tool } => format!("imported from {tool}"),
    };
    let mut parts = vec![machine(facts), disks(&facts.devices)];
    parts.push(rounds(report, place));
    parts.push(format!("{} cases, {} runs", stored.cases, stored.runs));
    parts.retain(|part| !part.is_empty());
    html! {
        @if report.experiments.len() > 1 { strong { (stored.experiment.name) } " " }
        "experiment " (stored.id.0) ", " (told) " "
        time data-ms=(stored.started_ms) datetime=[when(stored.started_ms)] { (when(stored.started_ms).unwrap_or_default()) }
        @if stored.finished_ms.is_none() { ", " strong { "not finished" } }
        @for part in &parts { " · " (part) }
    }
}

/// In UTC; the page's script puts it into the reader's zone.
fn when(ms: i64) -> Option<String> {
    Timestamp::from_millisecond(ms).ok().map(|time| time.strftime("%Y-%m-%dT%H:%MZ").to_string())
}

fn machine(facts: &Facts) -> String {
    let cpus = match (facts.cpus, facts.cpu.is_empty()) {
        (0, _) => facts.cpu.clone(),
        (cpus, true) => format!("{cpus} CPUs"),
        (cpus, false) => format!("{} ({cpus} CPU{})", facts.cpu, if cpus == 1 { "" } else { "s" }),
    };
    let memory = if facts.memory_bytes > 0 { bytes(facts.memory_bytes) } else { String::new() };
    let parts = [cpus, memory, facts.kernel.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Disks of one model and size together.
fn disks(devices: &[Device]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for device in devices {
        let model = if device.model.is_empty() { "disk" } else { &device.model };
        let size = (device.bytes > 0).then(|| format!(", {}", bytes(device.bytes)));
        let kind = format!("{model}{}", size.unwrap_or_default());
        match kinds.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let told = kinds.iter().map(|(kind, count)| format!("{count} × {kind}"));
    told.collect::<Vec<_>>().join("; ")
}

/// How many rounds the cases of an experiment have.
fn rounds(report: &Report, place: usize) -> String {
    let lines = report.tables.iter().flat_map(|table| &table.lines);
    let counts = lines.filter(|line| line.experiment == place).map(|line| line.repeats.len());
    match (counts.clone().min(), counts.max()) {
        (Some(1), Some(1)) => "1 round".into(),
        (Some(least), Some(most)) if least == most => format!("{least} rounds"),
        (Some(least), Some(most)) => format!("{least} to {most} rounds"),
        _ => String::new(),
    }
}

/// Who is ahead at each load, by how much, and whether that is real.
pub(super) fn sentences(report: &Report) -> Markup {
    html! {
        section #summary {
            h2 { "What is faster" }
            ul.verdicts { @for (place, table) in report.tables.iter().enumerate() { @if let Some(sentence) = fastest(table) {
                @let title = table.title();
                @let rest = sentence.strip_prefix(&title).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&sentence);
                li { a href={ "#load-" (place) } { (title) } ": " (rest) }
            } } }
        }
    }
}

/// What the script offers: hidden until it runs.
pub(super) fn controls(report: &Report) -> Markup {
    let mut names: Vec<String> = Vec::new();
    for (_, line) in report.tables.iter().flat_map(Table::real_lines) {
        let name = line.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    html! {
        form #controls hidden aria-label="What the figures show" {
            label { "Per cent of " select #baseline {
                option value="" { "the best of each load" }
                @for name in &names { option value=(name) { (name) } }
            } }
            label { "Show only " input #filter type="search" placeholder="words, such as raid5 64K" autocomplete="off"; }
            output #shown aria-live="polite" {}
        }
    }
}

/// The matrix.
pub(super) fn at_a_glance(report: &Report, matrix: &Matrix) -> Markup {
    let rows: Vec<GridRow> = matrix.rows.iter().map(|row| grid_row(report, row)).collect();
    let marks = || matrix.rows.iter().flat_map(|row| row.cells.iter().flatten()).map(mark);
    let has = |asked| marks().any(|mark| mark == asked);
    html! {
        section #matrix {
            h2 #at-a-glance { "At a glance" }
            (grid_of(report, &rows))
            (grid_legend(has(Mark::Open), has(Mark::Same)))
            @if is_blank(matrix, Blank::NotMeasured) { p.small { "- not measured" } }
            @if is_blank(matrix, Blank::Stalled) { p.small { "0 a round of it, or of the best, came to nothing" } }
            @if report.tables.iter().any(Table::is_cached) {
                p.small { "† through the page cache: a figure of memory and disks together, not a disk's" }
            }
        }
    }
}

fn is_blank(matrix: &Matrix, asked: Blank) -> bool {
    let mut cells = matrix.rows.iter().flat_map(|row| row.cells.iter().zip(&row.blanks));
    cells.any(|(cell, blank)| cell.is_none() && *blank == asked)
}

fn grid_of(report: &Report, rows: &[GridRow]) -> Markup {
    let loads = report.tables.iter().enumerate().zip(report.headings());
    let mut columns: Vec<Column> = loads.map(load_column).collect();
    columns.extend([
        Column::plain("all loads", "The geometric mean of the loads' per cents"),
        Column::plain("usable", "Space for data, and its share of the members' space"),
        Column::plain(
            "CPU s/GiB",
            "Processor seconds for each GiB, the geometric mean of all loads",
        ),
        Column::plain("degraded", "Speed with members missing, per cent of its own when whole"),
        Column::plain("rebuilding", "Speed while it rebuilds, per cent of its own when whole"),
        Column::plain("loses data", "How likely, predicted"),
    ]);
    grid("Arrays against loads", "array", &columns, rows)
}

fn load_column(((place, table), name): ((usize, &Table), String)) -> Column {
    let best = table.best().map(|best| &table.lines[best]);
    let note = best.map(|line| {
        let (scale, unit) = scale(line.summary.median, table.unit);
        format!("100 = {} {unit}", digits(line.summary.median / scale))
    });
    let cached = if table.is_cached() { " †" } else { "" };
    Column {
        name,
        note: note.unwrap_or_default() + cached,
        href: Some(format!("#load-{place}")),
        title: fastest(table).unwrap_or_default(),
    }
}

fn mark(cell: &Cell) -> Mark {
    match cell.verdict {
        None => Mark::Best,
        Some(Verdict::Real(_)) => Mark::Real,
        Some(Verdict::NoRealDifference) => Mark::Same,
        Some(Verdict::CannotTell) => Mark::Open,
    }
}

fn grid_row(report: &Report, row: &Row) -> GridRow {
    let known = |value: Option<f64>| match value {
        Some(value) => Field::Text(digits(value), Some(value)),
        None => Field::Empty,
    };
    let percent = |share: Option<f64>| share.map_or(Field::Empty, Field::Percent);
    let shares = row.cells.iter().enumerate();
    let mut cells: Vec<Field> = shares
        .map(|(place, cell)| match cell {
            Some(cell) => share(report, place, cell),
            None => Field::Text(row.blanks[place].sign().into(), None),
        })
        .collect();
    let size = row.size.filter(|size| size.raw_bytes > 0);
    cells.extend([
        row.mean
            .map_or(Field::Empty, |mean| Field::Text(format!("{:.0}", mean * 100.0), Some(mean))),
        size.map_or(Field::Empty, |size| {
            let part = size.usable_bytes as f64 / size.raw_bytes as f64 * 100.0;
            Field::Text(
                format!("{} ({part:.0} %)", bytes(size.usable_bytes)),
                Some(size.usable_bytes as f64),
            )
        }),
        known(row.cpu_s_per_gib),
        percent(row.degraded),
        percent(row.rebuilding),
        row.loss.clone().map_or(Field::Empty, |loss| Field::Text(loss, None)),
    ]);
    let name = html! { (swatch(row.look, "healthy")) (row.name) };
    GridRow { name, cells, is_chosen: false }
}

fn share(report: &Report, place: usize, cell: &Cell) -> Field {
    let table = &report.tables[place];
    let line = &table.lines[cell.line];
    let (scale, unit) = scale(line.summary.median, table.unit);
    let found = match cell.verdict {
        None => "the best",
        Some(Verdict::Real(Standing::Lower)) => "slower than the best, that is real",
        Some(Verdict::Real(Standing::Higher)) => "faster round by round, that is real",
        Some(verdict) => verdict.word(),
    };
    let figure = digits(line.summary.median / scale);
    Field::Share {
        share: cell.share,
        mark: mark(cell),
        href: Some(format!("#load-{place}-{}", cell.line)),
        title: format!(
            "{}, {}: {figure} {unit} {}, {found}",
            line.name(),
            table.title(),
            plus_minus(line)
        ),
        place: Some((place, cell.line)),
    }
}

/// Capacity against speed, where capacities are known and differ.
pub(super) fn space_and_speed(report: &Report, matrix: &Matrix) -> Markup {
    let speed = |row: &Row| match report.tables.len() {
        1 => row.cells[0].map(|cell| cell.share),
        _ => row.mean,
    };
    let known = matrix.rows.iter().filter_map(|row| Some((row, row.size?, speed(row)?)));
    let known: Vec<_> = known.collect();
    let fastest = known.iter().map(|(_, _, speed)| *speed).fold(0.0, f64::max);
    let differ = known.iter().any(|(_, size, _)| size.usable_bytes != known[0].1.usable_bytes);
    let point = |(row, size, speed): &(&Row, crate::record::Size, f64)| Point {
        x: size.usable_bytes as f64,
        y: speed / fastest,
        label: row.loss.as_ref().map_or(row.name.clone(), |loss| format!("{}, {loss}", row.name)),
        title: format!("{}: {}", row.name, bytes(size.usable_bytes)),
        look: row.look,
        is_filled: !row.is_marked,
        is_chosen: false,
    };
    let points: Vec<Point> = known.iter().map(point).collect();
    let has_loss = known.iter().any(|(row, _, _)| row.loss.is_some());
    html! { @if differ && mean([fastest].into_iter()).is_some() {
        section #scatter {
            h2 { @if has_loss { "Capacity, speed and safety" } @else { "Capacity and speed" } }
            p.small {
                "Speed is the mean of all loads." @if has_loss { " Beside each name: how likely it loses data, predicted." }
            }
            (scatter("Usable space against speed", "usable space", &|x| bytes(x as u64), &points))
        }
    } }
}
