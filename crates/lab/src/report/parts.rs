//! What pages are built of: their head, swatches, the grid of shares with its legend, the labelled scatter.
//!
//! Invariants: a column in which nothing stands is left out; what colours say, a sign or a word says as well.

use super::matrix::{HUES, Look, SHADES};
use maud::{Markup, PreEscaped, html};
use std::fmt::Write;

const STYLE: &str = include_str!("page/page.css");

/// What every page begins with.
pub fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            style { (PreEscaped(STYLE)) (PreEscaped(tones())) }
        }
    }
}

/// The classes of hues and shades.
fn tones() -> String {
    let mut css = String::new();
    for hue in 0..HUES {
        let _ = write!(css, ".h{hue}{{--c:var(--hue{hue})}}");
    }
    // Shades go to the ground and to the text in turn, so that neighbours are told apart.
    for (shade, to) in (1..SHADES).zip(["ground 68%", "text 66%", "ground 48%", "text 44%"]) {
        let (to, share) = to.split_once(' ').expect("a colour and a share");
        let _ = write!(css, ".s{shade}{{--k:color-mix(in oklab,var(--c) {share},var(--{to}))}}");
    }
    css
}

/// The classes of something in a subject's colour.
#[must_use]
pub fn tone(look: Look) -> String {
    format!("tone h{} s{}", look.hue, look.shade)
}

/// A square in a subject's colour, marked as its state is.
pub fn swatch(look: Look, state: &str) -> Markup {
    html! { span class={ "swatch " (state) " " (tone(look)) } aria-hidden="true" {} }
}

/// A column of a grid.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// What is said under it, small.
    pub note: String,
    /// Where its heading leads.
    pub href: Option<String>,
    /// What it means, in full.
    pub title: String,
}

/// A row of a grid.
#[derive(Clone, Debug)]
pub struct GridRow {
    /// What stands first in it.
    pub name: Markup,
    /// One for each column.
    pub cells: Vec<Field>,
    /// Whether it is the one that the page is about.
    pub is_chosen: bool,
}

/// A cell of a grid.
#[derive(Clone, Debug)]
pub enum Field {
    /// Nothing is known.
    Empty,
    /// A part of the best, shaded.
    Share {
        /// The part.
        share: f64,
        /// What is found of it.
        mark: Mark,
        /// Where it leads.
        href: Option<String>,
        /// In full.
        title: String,
        /// Table and line, for the page's script.
        place: Option<(usize, usize)>,
    },
    /// A part of something else, not shaded.
    Percent(f64),
    /// As it is, and by what it is sorted.
    Text(String, Option<f64>),
}

/// What is found of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is the best.
    Best,
    /// It is real.
    Real,
    /// It is no real difference from the best.
    Same,
    /// It is undecided.
    Open,
}

impl Column {
    /// A column without a link or a note.
    #[must_use]
    pub fn plain(name: &str, title: &str) -> Self {
        Self { name: name.into(), note: String::new(), href: None, title: title.into() }
    }
}

impl Mark {
    fn class(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Real => "real",
            Self::Same => "same",
            Self::Open => "open",
        }
    }

    /// What stands before the number.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Best | Self::Real => "",
            Self::Same => "≈ ",
            Self::Open => "~ ",
        }
    }
}

/// Rows against columns, shares shaded. Columns in which nothing stands are left out.
pub fn grid(label: &str, corner: &str, columns: &[Column], rows: &[GridRow]) -> Markup {
    let is_told = |column: usize| {
        rows.iter().any(|row| !matches!(&row.cells[column], Field::Empty))
            && !rows
                .iter()
                .all(|row| matches!(&row.cells[column], Field::Text(text, _) if text.is_empty()))
    };
    let told: Vec<usize> = (0..columns.len()).filter(|&column| is_told(column)).collect();
    html! {
        div.wide role="region" tabindex="0" aria-label=(label) {
            table.matrix {
                thead { tr {
                    th scope="col" { (corner) }
                    @for &place in &told { (heading(&columns[place])) }
                } }
                tbody { @for row in rows {
                    tr.chosen[row.is_chosen] {
                        th scope="row" { (row.name) }
                        @for &place in &told { (field(&row.cells[place])) }
                    }
                } }
            }
        }
    }
}

fn heading(column: &Column) -> Markup {
    html! {
        th.number scope="col" title=(column.title) {
            @if let Some(href) = &column.href { a href=(href) { (column.name) } } @else { (column.name) }
            @if !column.note.is_empty() { small { (column.note) } }
        }
    }
}

fn field(field: &Field) -> Markup {
    match field {
        Field::Empty => html! { td.number {} },
        Field::Text(text, value) => html! { td.number data-value=[value] { (text) } },
        Field::Percent(share) => {
            let text = format!("{:.0} %", share * 100.0);
            html! { td.number data-value=(share) { (text) } }
        }
        Field::Share { share, mark, href, title, place } => {
            let text = format!("{}{:.0}", mark.sign(), share * 100.0);
            let style = format!("--p:{:.0}", (share * 100.0).clamp(0.0, 100.0));
            html! {
                td class={ "share " (mark.class()) } style=(style) data-value=(share)
                    data-table=[place.map(|place| place.0)] data-line=[place.map(|place| place.1)] {
                    @if let Some(href) = href { a href=(href) title=(title) { (text) } }
                    @else { span title=(title) { (text) } }
                }
            }
        }
    }
}

/// What the shades and signs of a grid mean.
pub fn grid_legend(has_open: bool, has_same: bool) -> Markup {
    html! {
        p.key {
            span.scale aria-hidden="true" { @for step in [10, 40, 70, 100] { i style={ "--p:" (step) } {} } }
            span.told { "per cent of the best of each load" }
            @if has_same { span { b.same { "≈" } " no real difference from the best" } }
            @if has_open { span { b.open { "~" } " undecided" } }
        }
    }
}

/// A point of a scatter.
#[derive(Clone, Debug)]
pub struct Point {
    /// How far to the right, in the axis's unit.
    pub x: f64,
    /// How far up, 0 to 1.
    pub y: f64,
    /// Its label.
    pub label: String,
    /// What is said when it is pointed at.
    pub title: String,
    /// Its colour.
    pub look: Look,
    /// Filled, or only drawn around.
    pub is_filled: bool,
    /// Larger than the others.
    pub is_chosen: bool,
}

/// The scatter's width and height, what is left for its axes, and the size of its letters.
const SCATTER: (f64, f64) = (880.0, 420.0);
const EDGE: (f64, f64) = (56.0, 44.0);
const LETTER: (f64, f64) = (6.8, 14.0);

type Box4 = (f64, f64, f64, f64);

/// Points with labels that do not lie on each other; `name` tells what the horizontal axis is, `told` a value on it.
pub fn scatter(label: &str, name: &str, told: &dyn Fn(f64) -> String, points: &[Point]) -> Markup {
    let ((width, height), (left, bottom)) = (SCATTER, EDGE);
    let far = points.iter().map(|point| point.x).fold(0.0, f64::max).max(1e-9) * 1.06;
    let at = |point: &Point| {
        let x = left + point.x / far * (width - left - 16.0);
        (x, height - bottom - point.y.clamp(0.0, 1.0) * (height - bottom - 28.0))
    };
    let placed =
        labels(&points.iter().map(|point| (at(point), point.label.as_str())).collect::<Vec<_>>());
    let floor = height - bottom;
    html! {
        figure.scatter { svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(label) {
            @for part in [0.25, 0.5, 0.75, 1.0] { @let y = floor - part * (floor - 28.0);
                line.rule x1=(left) y1=(y) x2=(width) y2=(y) {}
                text.tick x=(left - 6.0) y=(y + 4.0) text-anchor="end" { (format!("{:.0} %", part * 100.0)) }
            }
            @for part in [0.25, 0.5, 0.75, 1.0] { @let x = left + part / 1.06 * (width - left - 16.0);
                line.rule x1=(x) y1="20" x2=(x) y2=(floor) {}
                text.tick x=(x) y=(floor + 16.0) text-anchor="middle" { (told(part * far / 1.06)) }
            }
            line.axis x1=(left) y1=(floor) x2=(width) y2=(floor) {}
            line.axis x1=(left) y1="20" x2=(left) y2=(floor) {}
            text.tick x=(width) y=(floor + 36.0) text-anchor="end" { (name) }
            text.tick x=(left) y="12" { "speed, per cent of the fastest" }
            @for (point, label) in points.iter().zip(placed) { @let (x, y) = at(point);
                @if !point.label.is_empty() {
                    line.lead x1=(x) y1=(y) x2=(x.clamp(label.0 - label.2, label.0 + label.2)) y2=(label.1 - 4.0) {}
                }
                @let filled = if point.is_filled { " filled" } else { "" };
                circle class={ (tone(point.look)) (filled) } cx=(x) cy=(y) r=(if point.is_chosen { 9 } else { 6 }) {
                    title { (point.title) }
                }
                text.label .chosen[point.is_chosen] x=(label.0) y=(label.1) text-anchor="middle" { (point.label) }
            }
        } }
    }
}

/// Middle, base and half the inner width of each label: where it hides neither a point nor another label, near its point.
fn labels(points: &[((f64, f64), &str)]) -> Vec<(f64, f64, f64)> {
    let mut taken: Vec<Box4> =
        points.iter().map(|((x, y), _)| (x - 6.0, y - 6.0, x + 6.0, y + 6.0)).collect();
    let mut placed = Vec::new();
    for ((x, y), text) in points {
        let half = text.chars().count() as f64 * LETTER.0 / 2.0;
        let of = |(dx, dy): (f64, f64)| {
            let middle = (x + dx * (half + 12.0)).clamp(half, SCATTER.0 - half);
            let base = (y + dy + 4.0).clamp(LETTER.1, SCATTER.1 - EDGE.1 - 2.0);
            (middle, base, (middle - half, base - LETTER.1 + 2.0, middle + half, base + 3.0))
        };
        let rings = (0..12).flat_map(|ring| {
            let far = f64::from(ring) * LETTER.1;
            [
                (1.0, -far),
                (1.0, far),
                (-1.0, -far),
                (-1.0, far),
                (0.0, -far - 12.0),
                (0.0, far + 14.0),
            ]
        });
        let hidden = |b: &Box4| {
            taken.iter().filter(|t| b.0 < t.2 && b.2 > t.0 && b.1 < t.3 && b.3 > t.1).count()
        };
        let best = rings.map(of).min_by_key(|(_, _, b)| hidden(b)).expect("there are rings");
        taken.push(best.2);
        placed.push((best.0, best.1, half));
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_points_that_lie_together_hide_nothing() {
        let points: Vec<((f64, f64), &str)> =
            (0..9).map(|i| ((300.0 + f64::from(i), 200.0), "raid5 of 4 64K")).collect();
        let placed = labels(&points);
        for (i, a) in placed.iter().enumerate() {
            for b in &placed[..i] {
                let apart = (a.0 - b.0).abs() >= a.2 + b.2 || (a.1 - b.1).abs() >= LETTER.1;
                assert!(apart, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_column_without_anything_is_left_out() {
        let columns =
            [Column::plain("there", ""), Column::plain("gone", ""), Column::plain("blank", "")];
        let cells = vec![Field::Percent(0.5), Field::Empty, Field::Text(String::new(), None)];
        let rows = [GridRow { name: html! { "a" }, cells, is_chosen: false }];
        let drawn = grid("", "", &columns, &rows).into_string();
        assert!(drawn.contains("there") && !drawn.contains("gone") && !drawn.contains("blank"));
    }
}
