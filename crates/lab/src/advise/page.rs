//! An answer as one HTML page that needs no network and no script: words, a chart, the table.

use super::text::{name, probability, rate, shown, words};
use super::{Advice, Question};
use crate::report::html::head;
use crate::report::units::{bytes, digits};
use maud::{DOCTYPE, Markup, html};

/// The chart's size, and what is left for its labels.
const CHART: (f64, f64, f64) = (640.0, 360.0, 48.0);

/// The page.
#[must_use]
pub fn page(question: &Question, advice: &Advice) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("What to build - Lapstrake"))
            body {
                header { h1 { "What to build" } p.predicted { "Every figure is predicted on models of disks, none was measured." } }
                main {
                    section { pre { @for line in words(question, advice) { (line) "\n" } } }
                    section { h2 { "Capacity and speed" } (chart(question, advice)) }
                    section { h2 { "What no other beats" } div.wide { (table(question, advice)) } }
                }
            }
        }
    };
    page.into_string()
}

fn table(question: &Question, advice: &Advice) -> Markup {
    html! {
        table {
            thead { tr {
                th { "" } th.number { "usable" }
                @for load in &question.loads { th.number { (load.name) } th.number { "without one disk" } }
                th.number { "rebuild h" } th.number { "loses data in " (digits(question.care.years)) " years" }
                th.number { "all of it" } th.number { "cost" } th { "misses" }
            } }
            tbody { @for place in shown(advice) { @let one = &advice.tried[place]; tr {
                th { @if Some(place) == advice.choice.pick { strong { (name(question, advice, place)) } } @else { (name(question, advice, place)) } }
                td.number { (bytes(one.capacity)) }
                @for (index, load) in question.loads.iter().enumerate() {
                    @let range = one.range(index).map(|(low, high)| format!("{} to {}", rate(load, low), rate(load, high)));
                    td.number title=[range] { (rate(load, one.speeds[index])) }
                    td.number { @if let Some(speeds) = &one.degraded { (rate(load, speeds[index])) } @else { "lost" } }
                }
                td.number { @if let Some(hours) = one.longest_rebuild() { (digits(hours)) } }
                td.number title={ (probability(one.loss.data.low)) " to " (probability(one.loss.data.high)) } { (probability(one.loss.data.value)) }
                td.number { (probability(one.loss.array.value)) }
                td.number { @if one.cost > 0.0 { (digits(one.cost)) } }
                td { (one.misses.join(", ")) }
            } } }
        }
    }
}

/// Capacity against speed; what meets every wish is filled, the pick is large.
fn chart(question: &Question, advice: &Advice) -> Markup {
    let (width, height, edge) = CHART;
    let tried = &advice.tried;
    let largest = tried.iter().map(|one| one.capacity).max().unwrap_or(1).max(1) as f64;
    let fastest = tried.iter().map(|one| one.score).fold(f64::NEG_INFINITY, f64::max);
    let dots = tried.iter().enumerate().map(|(place, one)| {
        let x = edge + one.capacity as f64 / largest * (width - 2.0 * edge);
        let y = height - edge - (one.score - fastest).exp() * (height - 2.0 * edge);
        (place, one, x, y)
    });
    html! {
        figure {
            svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label="Capacity and speed of what was tried" {
                line x1=(edge) y1=(height - edge) x2=(width - edge) y2=(height - edge) stroke="currentColor" {}
                line x1=(edge) y1=(edge) x2=(edge) y2=(height - edge) stroke="currentColor" {}
                text x=(width - edge) y=(height - edge + 28.0) text-anchor="end" fill="currentColor" { "usable, up to " (bytes(largest as u64)) }
                text x=(edge) y=(edge - 16.0) fill="currentColor" { "speed, relative to the fastest" }
                @for (place, one, x, y) in dots {
                    @let is_pick = Some(place) == advice.choice.pick;
                    circle cx=(x) cy=(y) r=(if is_pick { 9 } else { 5 }) stroke="var(--healthy)"
                        fill=(if one.misses.is_empty() { "var(--healthy)" } else { "none" }) {
                        title { (name(question, advice, place)) ": " (bytes(one.capacity)) ", loses data with " (probability(one.loss.data.value)) }
                    }
                }
            }
            figcaption { "Filled: meets every wish. Large: the pick. Names appear when pointed at." }
        }
    }
}
