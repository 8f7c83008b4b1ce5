//! An answer as one HTML page that needs no network and no script: what to build, the matrix of what no other beats, capacity
//! against speed and safety, then the reasons. Built of the parts of the lab's report.

use super::text::{name, probability, rate, shown, words};
use super::{Advice, Load, Question, Tried};
use crate::report::matrix::{HUES, Look, SHADES, hue};
use crate::report::parts::{
    Column, Field, GridRow, Mark, Point, grid, grid_legend, head, scatter, swatch,
};
use crate::report::units::{bytes, digits};
use maud::{DOCTYPE, Markup, html};

/// Models cannot tell apart what is nearer than this.
const SAME: f64 = 0.95;
/// Letters of a label in the scatter.
const LABEL: usize = 40;

/// The page.
#[must_use]
pub fn page(question: &Question, advice: &Advice) -> String {
    let lines = words(question, advice);
    let (answer, reasons) = lines.split_at(lines.len().min(1));
    let has_some = !advice.tried.is_empty();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("What to build - Lapstrake"))
            body {
                header {
                    h1 { "What to build" }
                    p.predicted { strong { "Predicted" } " on models of disks, not measured." }
                }
                main {
                    section #answer { @for line in answer { p.lead { (line) } } }
                    @if has_some { section #matrix { h2 { "What no other beats" } (matrix(question, advice)) } }
                    @if has_some { section #scatter { h2 { "Capacity, speed and safety" } (chart(question, advice)) } }
                    section #why { h2 { "Why, and how to build it" } (prose(reasons)) }
                }
            }
        }
    };
    page.into_string()
}

/// Sentences as paragraphs, what is set in as lists, commands as they are typed.
fn prose(lines: &[String]) -> Markup {
    let kind = |line: &String| line.len() - line.trim_start().len();
    html! {
        @for lines in lines.chunk_by(|a, b| kind(a) == kind(b)) {
            @match kind(&lines[0]) {
                0 => @for line in lines { p { (line) } },
                1..=3 => ul { @for line in lines { li { (line.trim_start()) } } },
                _ => pre tabindex="0" { @for line in lines { (line.trim_start()) "\n" } },
            }
        }
    }
}

/// The colour of each that was tried: as everywhere, hues tell levels apart.
fn looks(advice: &Advice) -> Vec<Look> {
    let mut shades = [0; HUES];
    let look = |one: &Tried| {
        let level = one.candidate.arrays.first().and_then(|array| array.level);
        let hue = hue(level.map_or("disk", |level| level.name())).unwrap_or_default();
        shades[hue] += 1;
        Look { hue, shade: (shades[hue] - 1) % SHADES }
    };
    advice.tried.iter().map(look).collect()
}

fn matrix(question: &Question, advice: &Advice) -> Markup {
    let places = shown(advice);
    let fastest: Vec<f64> = (0..question.loads.len())
        .map(|load| places.iter().map(|&at| advice.tried[at].speeds[load]).fold(0.0, f64::max))
        .collect();
    let heading = |(load, most): (&Load, &f64)| Column {
        note: format!("100 = {}", rate(load, *most)),
        ..Column::plain(&load.name, "Per cent of the fastest")
    };
    let years = question.care.years;
    let mut columns: Vec<Column> = question.loads.iter().zip(&fastest).map(heading).collect();
    columns.extend([
        Column::plain("usable", "Space for data"),
        Column::plain("degraded", "Speed without one disk, per cent of its own when whole"),
        Column::plain("rebuild h", "Hours until the slowest kind of disk is rebuilt"),
        Column::plain(&format!("loses data in {years} years"), "How likely some of it is lost"),
        Column::plain("all of it", "How likely all of it is lost"),
        Column::plain("cost", "What its disks cost"),
        Column::plain("misses", "Wishes that it does not meet"),
    ]);
    let looks = looks(advice);
    let row = |&place: &usize| {
        let is_chosen = Some(place) == advice.choice.pick;
        let name = html! { (swatch(looks[place], "healthy")) (name(question, advice, place)) };
        GridRow { name, cells: cells(question, &advice.tried[place], &fastest), is_chosen }
    };
    let rows: Vec<GridRow> = places.iter().map(row).collect();
    html! {
        (grid("What no other beats", "array", &columns, &rows))
        (grid_legend(false, true))
        p.small { "Nearer than 5 % models cannot tell apart. The framed row is what to build." }
    }
}

fn cells(question: &Question, one: &Tried, fastest: &[f64]) -> Vec<Field> {
    let share = |(index, load): (usize, &Load)| {
        let share = one.speeds[index] / fastest[index];
        let range = one.range(index);
        let range =
            range.map(|(low, high)| format!(" ({} to {})", rate(load, low), rate(load, high)));
        let mark = match share {
            1.0.. => Mark::Best,
            SAME.. => Mark::Same,
            _ => Mark::Real,
        };
        let title = rate(load, one.speeds[index]) + &range.unwrap_or_default();
        Field::Share { share, mark, href: None, title, place: None }
    };
    let number = |text: String, value: f64| Field::Text(text, Some(value));
    let degraded = one.degraded_score.map(|score| (score - one.score).exp());
    let mut cells: Vec<Field> = question.loads.iter().enumerate().map(share).collect();
    cells.extend([
        number(bytes(one.capacity), one.capacity as f64),
        degraded.map_or(Field::Text("lost".into(), None), Field::Percent),
        one.longest_rebuild().map_or(Field::Empty, |hours| number(digits(hours), hours)),
        number(probability(one.loss.data.value), one.loss.data.value),
        number(probability(one.loss.array.value), one.loss.array.value),
        if one.cost > 0.0 { number(digits(one.cost), one.cost) } else { Field::Empty },
        Field::Text(one.misses.join(", "), None),
    ]);
    cells
}

/// Capacity against speed, with how likely data are lost beside the names of what no other beats.
fn chart(question: &Question, advice: &Advice) -> Markup {
    let (looks, told) = (looks(advice), shown(advice));
    let fastest = advice.tried.iter().map(|one| one.score).fold(f64::NEG_INFINITY, f64::max);
    let point = |(place, one): (usize, &Tried)| {
        let (name, loss) = (name(question, advice, place), probability(one.loss.data.value));
        let short: String = name.chars().take(LABEL).collect();
        let cut = if short.len() < name.len() { "…" } else { "" };
        let label = told.contains(&place).then(|| format!("{short}{cut}, {loss}"));
        Point {
            x: one.capacity as f64,
            y: (one.score - fastest).exp(),
            label: label.unwrap_or_default(),
            title: format!("{name}: {}, loses data with {loss}", bytes(one.capacity)),
            look: looks[place],
            is_filled: one.misses.is_empty(),
            is_chosen: Some(place) == advice.choice.pick,
        }
    };
    let points: Vec<Point> = advice.tried.iter().enumerate().map(point).collect();
    html! {
        (scatter("Usable space against speed", "usable space", &|x| bytes(x as u64), &points))
        p.small {
            "Filled: meets every wish. Large: what to build. Beside each name: how likely data are lost in "
            (question.care.years) " years."
        }
    }
}
