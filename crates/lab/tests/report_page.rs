//! The HTML report in a browser, as a person uses it: Chromium, without a window and without a network.

mod browser;
mod support;

use browser::Page;
use lapstrake_lab::report::{Report, html};
use lapstrake_lab::store::Store;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::Amount;

const SMALL: Amount = Amount { arrays: 9, workloads: 3, repeats: 5, samples: 100, with_states: 9 };

/// The plan whose page's size and time docs/lab.md tells.
const LARGE: Amount = Amount { arrays: 17, workloads: 6, repeats: 5, samples: 300, with_states: 0 };
const LARGE_BYTES_MAX: usize = 6 << 20;
const LARGE_MS_MAX: u64 = 10_000;

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Leaves a picture of an element where a person finds it.
fn picture(page: &Page, name: &str, of: &str) {
    std::fs::write(scratch(name), page.picture(of)).unwrap();
}

/// A page of a measured experiment, and of a predicted one beside it if asked for.
fn page(name: &str, amount: Amount, with_prediction: bool) -> PathBuf {
    let mut store = Store::in_memory().unwrap();
    let mut stored = vec![support::measured(&mut store, amount)];
    if with_prediction {
        stored.push(support::predicted(&mut store, Amount { with_states: 0, arrays: 3, ..amount }));
    }
    let path = scratch(name);
    std::fs::write(&path, html(&Report::of(&stored), &stored)).unwrap();
    path
}

#[test]
fn figures_are_drawn_and_controls_work() {
    let Some(page) = Page::open(&page("report.html", SMALL, true), 1200, 900) else { return };
    let sections = page.number("document.querySelectorAll('section.load').length");
    assert_eq!(sections, 3);
    // null, a disk, 9 arrays of which 5 have two more states, and 5 of the prediction (its null and disk too).
    let lines = 2 + 9 + 2 * 5 + 5;
    let floors = 2;
    let bars = "document.querySelectorAll('#load-0 figure[data-chart=bars] .bar rect').length";
    assert_eq!(page.number(bars), lines - floors);
    assert_eq!(page.number("document.querySelectorAll('#load-0 tbody tr').length"), lines);
    for figure in ["#all figure", "#zones figure", "#scaling figure"] {
        assert!(
            page.number(&format!("document.querySelectorAll('{figure} svg path').length")) > 0,
            "{figure}"
        );
    }
    picture(&page, "report-words.png", "#summary");
    picture(&page, "report-bars.png", "#load-0");
    picture(&page, "report-all.png", "#all");
    picture(&page, "report-scaling.png", "#scaling");
    picture(&page, "report-zones.png", "#zones");

    // What is folded away is drawn when it is opened, by the keyboard.
    let curves = |chart| {
        format!(
            "document.querySelectorAll('#load-0 figure[data-chart={chart}] .curve path').length"
        )
    };
    for (chart, count) in [("latency", lines), ("series", lines - floors)] {
        assert_eq!(page.number(&curves(chart)), 0);
        page.enter(&format!("#load-0 details:has([data-chart={chart}]) summary"));
        page.wait_for(&format!("#load-0 figure[data-chart={chart}] .curve path"));
        assert_eq!(page.number(&curves(chart)), count, "{chart}");
    }
    picture(&page, "report-latency.png", "#load-0 figure[data-chart=latency]");
    picture(&page, "report-series.png", "#load-0 figure[data-chart=series]");
    let rebuilds = "document.querySelectorAll('#load-0 .happened rect').length";
    assert_eq!(page.number(rebuilds), 5);

    // Sorting by a heading, and back.
    let first = "document.querySelector('#load-0 tbody tr th').textContent";
    page.enter("#load-0 thead th:nth-child(6) button");
    assert!(page.text(first).starts_with("null"), "least processor time: {}", page.text(first));
    page.enter("#load-0 thead th:nth-child(1) button");
    page.enter("#load-0 thead th:nth-child(1) button");
    assert!(
        page.text(first).starts_with("raid6 of 4") || page.text(first).starts_with("raid5"),
        "{}",
        page.text(first)
    );

    // The filter leaves what it names, in figures and tables.
    page.focus("#filter");
    page.write("raid5 degraded");
    let shown =
        "[...document.querySelectorAll('#load-0 tbody tr')].filter((row) => !row.hidden).length";
    assert_eq!((page.number(shown), page.number(bars)), (2, 2));
    assert!(page.text("document.getElementById('shown').textContent").starts_with("2 of "));
    page.evaluate("filter.value = ''; filter.dispatchEvent(new Event('input'))");
    assert_eq!(page.number(bars), lines - floors);

    // Against a baseline: percents, without the null subject, and the baseline itself is 100.
    page.evaluate("baseline.value = 'raid5 of 4 64K'; baseline.dispatchEvent(new Event('change'))");
    let texts = page.text("document.querySelector('#load-0 figure[data-chart=bars]').textContent");
    assert!(texts.contains("percent of raid5 of 4 64K") && texts.contains("100 %"), "{texts}");
    assert_eq!(page.number(bars), lines - floors);
    picture(&page, "report-baseline.png", "#load-0");
    page.no_complaints();
}

/// What is in the file that a button saves, as the browser leaves it in a directory.
fn saved(page: &Page, directory: &Path, button: &str, name: &str) -> String {
    page.enter(button);
    let file = directory.join(name);
    let until = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < until, "{button} saves nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    // It appears under its name when it is whole.
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn raw_data_can_be_saved_without_a_network() {
    let Some(page) = Page::open(&page("report-raw.html", SMALL, false), 1200, 900) else { return };
    let directory = tempfile::tempdir().unwrap();
    let allow = json!({ "behavior": "allow", "downloadPath": directory.path() });
    page.call("Browser.setDownloadBehavior", allow);
    let json = saved(&page, directory.path(), "#save-json", "lab.json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cases = json["experiments"][0]["cases"].as_array().unwrap();
    // null, a disk, 9 arrays of which 5 have two more states; three loads.
    assert_eq!(cases.len(), (2 + 9 + 2 * 5) * 3);
    assert!(cases.iter().all(|case| case["runs"].as_array().unwrap().len() == 5));
    let phase = &cases[0]["runs"][0]["phases"][0];
    assert!(phase["series"].is_object() && phase["cpu"].is_object(), "{phase}");
    let csv = saved(&page, directory.path(), "#save-csv", "lab.csv");
    assert_eq!(csv.lines().count(), 1 + cases.len() * 5);
    page.no_complaints();
}

#[test]
fn what_is_predicted_says_so_in_every_figure() {
    let Some(page) = Page::open(&page("report-predicted.html", SMALL, true), 1200, 900) else {
        return;
    };
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))");
    page.wait_for("#load-2 figure[data-chart=series] .curve path");
    for figure in ["bars", "cpu", "latency", "series"] {
        for load in 0..3 {
            let text = page.text(&format!(
                "document.querySelector('#load-{load} figure[data-chart={figure}]').textContent"
            ));
            assert!(text.contains("raid0 of 2 64K (predicted)"), "{figure} {load}: {text}");
        }
    }
    for figure in ["#all figure", "#scaling .figures"] {
        let text = page.text(&format!("document.querySelector('{figure}').textContent"));
        assert!(text.contains("(predicted)"), "{figure}: {text}");
    }
    page.no_complaints();
}

#[test]
fn it_is_readable_on_a_phone_in_the_dark_and_on_paper() {
    let file = page("report-small.html", SMALL, false);
    let Some(page) = Page::open(&file, 1200, 900) else { return };
    page.resize(390);
    let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(page.number(wider), 0, "the page is wider than the phone");
    picture(&page, "report-phone.png", "#load-0");
    picture(&page, "report-phone-words.png", "header");
    picture(&page, "report-phone-all.png", "#all");

    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(page.text(ground), "rgb(255, 255, 255)");
    let dark = json!({ "name": "prefers-color-scheme", "value": "dark" });
    page.call("Emulation.setEmulatedMedia", json!({ "features": [dark] }));
    assert_eq!(page.text(ground), "rgb(20, 23, 26)");
    picture(&page, "report-dark.png", "#load-0");

    page.call("Emulation.setEmulatedMedia", json!({ "features": [] }));
    std::fs::write(scratch("report.pdf"), page.print()).unwrap();
    page.evaluate("dispatchEvent(new Event('beforeprint'))");
    let empty = "[...document.querySelectorAll('section.load figure')].filter((one) => !one.firstChild).length";
    assert_eq!(page.number(empty), 0, "on paper nothing is folded away");
    page.no_complaints();
}

#[test]
fn a_large_report_is_small_and_fast_enough() {
    let file = page("report-large.html", LARGE, false);
    let bytes = std::fs::metadata(&file).unwrap().len() as usize;
    println!("17 arrays x 6 loads x 5 repeats: {bytes} bytes");
    assert!(bytes <= LARGE_BYTES_MAX, "{bytes}");
    let began = Instant::now();
    let Some(page) = Page::open(&file, 1200, 900) else { return };
    let opened = began.elapsed();
    let ms = page.number("document.documentElement.dataset.ready");
    println!("unpacked and drawn in {ms} ms; browser, page and all: {} ms", opened.as_millis());
    assert!(ms <= LARGE_MS_MAX, "{ms}");
    page.no_complaints();
}
