//! The report as one HTML file that needs no network: what was measured, a sentence for each load and the matrix come first,
//! then each load with its bars. Without scripts all that is there; the page's own script adds baselines, sorting, and the
//! charts of latency, time and scaling, which it draws from the data in the page.

mod facts;
mod first;
mod load;

use super::matrix::matrix;
use super::parts::head;
use super::{Report, data, words};
use crate::store::Stored;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Libraries first, then what uses them.
const SCRIPTS: [&str; 6] = [
    include_str!("../../vendor/d3.min.js"),
    include_str!("../../vendor/plot.umd.min.js"),
    include_str!("page/common.js"),
    include_str!("page/charts.js"),
    include_str!("page/overall.js"),
    include_str!("page/page.js"),
];
/// The licence of both libraries asks for its text to go with them.
const LICENCES: [&str; 2] =
    [include_str!("../../vendor/d3.LICENSE"), include_str!("../../vendor/plot.LICENSE")];

/// The page. `stored` are the experiments that the report is of.
#[must_use]
pub fn html(report: &Report, stored: &[Stored]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for one in &report.experiments {
        if !names.contains(&one.experiment.name.as_str()) {
            names.push(&one.experiment.name);
        }
    }
    let title = names.join(", ");
    let matrix = matrix(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{title} - Lapstrake lab")))
            body {
                a.skip href="#figures" { "Skip to the figures" }
                header { h1 { (title) } (first::origins(report)) }
                main {
                    (first::sentences(report))
                    (first::controls(report))
                    (first::at_a_glance(report, &matrix))
                    (contents(report))
                    div #figures {
                        @for (place, table) in report.tables.iter().enumerate() { (load::section(place, table)) }
                    }
                    (first::space_and_speed(report, &matrix))
                    (overall())
                    (facts::bars(report))
                    (facts::beside_loads(report))
                    (more_words(report))
                    (facts::failures(report))
                    (facts::facts(report))
                    (facts::downloads())
                }
                footer { details { summary { "Licences of the charts' libraries" } @for text in LICENCES { pre tabindex="0" { (text) } } } }
                script type="application/gzip;base64" id="data" { (PreEscaped(data::packed(report, stored))) }
                @for script in SCRIPTS { script { (PreEscaped(script)) } }
            }
        }
    };
    page.into_string()
}

/// Whether a file that begins so is a page made here: all titles say so.
#[must_use]
pub fn is_page(head: &str) -> bool {
    head.split_once("</title>").is_some_and(|(title, _)| title.contains(" - Lapstrake"))
}

/// The list of what the page holds; what the script finds nothing for it takes out.
fn contents(report: &Report) -> Markup {
    html! {
        nav.contents aria-label="Contents" {
            @for (place, table) in report.tables.iter().enumerate() { a href={ "#load-" (place) } { (table.title()) } }
            @for (id, name) in [("scatter", "Capacity and speed"), ("scaling", "Scaling"), ("zones", "Speed over the disk"),
                ("more", "Costs and cautions"), ("facts", "Machine, disks, plan"), ("downloads", "Raw data")] {
                a href={ "#" (id) } { (name) }
            }
        }
    }
}

/// What is left to say in words; who is faster stands at the page's head.
fn more_words(report: &Report) -> Markup {
    html! {
        section #more {
            h2 { "Costs and cautions" }
            @for part in words(report).iter().skip_while(|part| part.title == "What is faster") {
                h3 { (part.title) }
                ul { @for sentence in &part.sentences { li { (sentence) } } }
            }
            p.small {
                "Figures are medians; ± is how far the 95 % interval of the median reaches. Of the differences that are called \
                 real, fewer than 5 in 100 are chance; docs/lab.md tells how. MB are 10" sup { "6" } " bytes, GiB 2" sup { "30" } "."
            }
        }
    }
}

fn overall() -> Markup {
    html! {
        section #scaling hidden { h2 { "Scaling" }
            p.small { "Cases that differ in one thing only." }
            div.figures {} }
        section #zones hidden { h2 { "Speed over the disk" } figure data-chart="zones" {} }
    }
}
