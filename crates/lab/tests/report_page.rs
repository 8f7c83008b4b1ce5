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
const LARGE_BYTES_MAX: usize = 2_000_000;
const FIRST_PAINT_MS_MAX: u64 = 1_000;

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
    let Some(page) = Page::open(&page("report.html", SMALL, true), 1400, 900) else { return };
    assert_eq!(page.number("document.querySelectorAll('section.load').length"), 3);
    // A disk, 9 arrays of which 5 have two more states, and a disk and 3 arrays of the prediction; without nulls.
    let lines = 1 + 9 + 2 * 5 + 4;
    let bars = "document.querySelectorAll('#load-0 .track .fill').length";
    assert_eq!(page.number(bars), lines);
    assert_eq!(page.number("document.querySelectorAll('#load-0 tbody tr').length"), lines);
    let cells = "document.querySelectorAll('.matrix tbody tr td.share').length";
    assert_eq!(page.number(cells), (1 + 9 + 4) * 3, "a row for each that is whole");
    assert_eq!(page.number(EMPTY_COLUMNS), 0);
    picture(&page, "report-glance.png", "main");
    picture(&page, "report-load.png", "#load-0");

    // A cell leads to its row, whose bar it is.
    page.enter(".matrix tbody tr:nth-child(3) td:nth-child(3) a");
    let target = "document.querySelector('tr:target').textContent";
    let name = page.text("document.querySelector('.matrix tbody tr:nth-child(3) th').textContent");
    assert!(page.text(target).starts_with(&name), "{name}: {}", page.text(target));

    // Charts are drawn when they are looked at; what is folded away when it is opened, by the keyboard.
    for figure in ["#zones figure", "#scaling figure"] {
        page.evaluate(&format!("document.querySelector('{figure}').scrollIntoView()"));
        page.wait_for(&format!("{figure} svg path"));
    }
    picture(&page, "report-scaling.png", "#scaling");
    picture(&page, "report-zones.png", "#zones");
    picture(&page, "report-scatter.png", "#scatter");
    let curves = |chart| {
        format!(
            "document.querySelectorAll('#load-0 figure[data-chart={chart}] .curve path').length"
        )
    };
    let floors = 2;
    for (chart, count) in [("latency", lines + floors), ("series", lines)] {
        assert_eq!(page.number(&curves(chart)), 0);
        page.enter(&format!("#load-0 details:has([data-chart={chart}]) summary"));
        page.wait_for(&format!("#load-0 figure[data-chart={chart}] .curve path"));
        assert_eq!(page.number(&curves(chart)), count, "{chart}");
    }
    picture(&page, "report-latency.png", "#load-0 figure[data-chart=latency]");
    picture(&page, "report-series.png", "#load-0 figure[data-chart=series]");
    let rebuilds = "document.querySelectorAll('#load-0 .happened rect').length";
    assert_eq!(page.number(rebuilds), 5);
    assert_eq!(page.text(INACCESSIBLE), "");
    page.no_complaints();
}

/// What a screen reader would stumble over: controls, pictures and headings of tables without a name, labels on what has no
/// role, text areas that scroll and take no keys, ids that are there twice. axe-core found no more when it was last asked.
const INACCESSIBLE: &str = "(() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const isNamed = (one) => one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length;
    const ids = all('[id]').map((one) => one.id);
    return [
        ...all('button, select, input, main a').filter((one) => !isNamed(one)),
        ...all('figure svg[viewBox]').filter((one) => one.getAttribute('role') !== 'img' || !one.getAttribute('aria-label')),
        ...all('th').filter((one) => !isNamed(one)),
        ...all('g[aria-label], span[aria-label], div[aria-label]:not([role])'),
        ...all('.wide, pre').filter((one) => one.tabIndex < 0),
    ].map((one) => one.outerHTML.slice(0, 200)).concat(ids.filter((id, place) => ids.indexOf(id) !== place)).join('\\n');
})()";

/// Columns of all tables in which nothing stands.
const EMPTY_COLUMNS: &str = "[...document.querySelectorAll('main table')].flatMap((table) =>
    [...table.tHead.rows[0].cells].filter((heading, column) =>
        !heading.classList.contains('bars') &&
        [...table.tBodies[0].rows].every((row) => !row.cells[column].textContent.trim()))).length";

#[test]
fn headings_sort_words_filter_and_a_baseline_turns_all_figures() {
    let Some(page) = Page::open(&page("report-controls.html", SMALL, false), 1400, 900) else {
        return;
    };
    let first = "document.querySelector('#load-0 tbody tr th').textContent";
    let heading = |words: &str| {
        page.evaluate(&format!(
            "[...document.querySelectorAll('#load-0 thead button')].find((b) => b.textContent.includes('{words}')).id = 'asked'"
        ));
        page.enter("#asked");
        page.evaluate("document.getElementById('asked').removeAttribute('id')");
    };
    heading("CPU");
    assert!(page.text(first).contains("rebuilding"), "the dearest: {}", page.text(first));
    heading("case");
    heading("case");
    assert!(page.text(first).starts_with("raid5 of 4"), "{}", page.text(first));

    let rows =
        "[...document.querySelectorAll('#load-0 tbody tr')].filter((row) => !row.hidden).length";
    page.focus("#filter");
    page.write("raid5 degraded");
    assert_eq!(page.number(rows), 2);
    assert!(page.text("document.getElementById('shown').textContent").starts_with("2 of "));
    page.evaluate("filter.value = ''; filter.dispatchEvent(new Event('input'))");
    assert_eq!(page.number(rows), 20);

    page.evaluate("baseline.value = 'raid5 of 4 64K'; baseline.dispatchEvent(new Event('change'))");
    let cell = |name: &str| {
        format!(
            "[...document.querySelectorAll('.matrix tbody tr')].find((row) => row.cells[0].textContent === '{name}').cells[1]"
        )
    };
    assert_eq!(page.text(&format!("{}.textContent", cell("raid5 of 4 64K"))), "100");
    assert!(page.number(&format!("{}.textContent", cell("raid0 of 4 64K"))) > 150);
    assert!(page.text(&format!("{}.className", cell("raid0 of 4 64K"))).contains("above"));
    assert!(page.text(first).starts_with("raid0 of 4"), "sorted anew: {}", page.text(first));
    assert!(
        page.text("document.querySelector('#load-0 thead').textContent")
            .contains("% of raid5 of 4 64K")
    );
    picture(&page, "report-baseline.png", "main");
    page.evaluate("baseline.value = ''; baseline.dispatchEvent(new Event('change'))");
    assert_eq!(page.text(&format!("{}.className", cell("raid0 of 4 512K"))), "share best");
    page.no_complaints();
}

/// What is in the file that a button saves, as the browser leaves it in a directory.
fn saved(page: &Page, directory: &Path, button: &str, name: &str) -> String {
    page.enter(button);
    let file = directory.join(name);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        // The browser takes the name with an empty file, in whose place it puts the whole one.
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if !text.is_empty() {
            return text;
        }
        assert!(Instant::now() < until, "{button} saves nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
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
    let has_series =
        |run: &&serde_json::Value| !run["phases"][0]["series"]["interval_ms"].is_null();
    for case in cases {
        let with_series = case["runs"].as_array().unwrap().iter().filter(has_series).count();
        assert_eq!(with_series, 1, "the middle round's");
    }
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
    page.evaluate("document.querySelector('#scaling figure').scrollIntoView()");
    page.wait_for("#load-2 figure[data-chart=series] .curve path");
    page.wait_for("#scaling figure svg path");
    for part in ["table", "figure[data-chart=latency]", "figure[data-chart=series]"] {
        for load in 0..3 {
            let text =
                page.text(&format!("document.querySelector('#load-{load} {part}').textContent"));
            assert!(text.contains("raid0 of 2 64K (predicted)"), "{part} {load}: {text}");
        }
    }
    let text = page.text("document.querySelector('#scaling .figures').textContent");
    assert!(text.contains("(predicted)"), "{text}");
    page.no_complaints();
}

#[test]
fn it_is_readable_on_a_phone_in_the_dark_and_on_paper() {
    let file = page("report-small.html", SMALL, false);
    let Some(page) = Page::open(&file, 1200, 900) else { return };
    page.resize(390);
    let wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(page.number(wider), 0, "the page is wider than the phone");
    let clipped = "[...document.querySelectorAll('table.figures')].filter((one) => one.scrollWidth > one.parentElement.clientWidth).length";
    assert_eq!(page.number(clipped), 0, "a load's table is wider than the phone");
    picture(&page, "report-phone.png", "#load-0");
    picture(&page, "report-phone-glance.png", "#matrix");

    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(page.text(ground), "rgb(255, 255, 255)");
    let dark = json!({ "name": "prefers-color-scheme", "value": "dark" });
    page.call("Emulation.setEmulatedMedia", json!({ "features": [dark] }));
    assert_eq!(page.text(ground), "rgb(20, 23, 26)");
    picture(&page, "report-dark.png", "#matrix");

    page.call("Emulation.setEmulatedMedia", json!({ "features": [] }));
    std::fs::write(scratch("report.pdf"), page.print()).unwrap();
    page.evaluate("dispatchEvent(new Event('beforeprint'))");
    let empty = "[...document.querySelectorAll('section:not([hidden]) figure')].filter((one) => !one.firstChild).length";
    assert_eq!(page.number(empty), 0, "on paper nothing is folded away");
    page.no_complaints();
}

/// A benchmark: `make bench` runs it alone.
#[test]
#[ignore = "times are for make bench"]
fn a_large_report_is_painted_soon() {
    let file = page("report-large.html", LARGE, false);
    let began = Instant::now();
    let Some(page) = Page::open(&file, 1400, 900) else { return };
    let opened = began.elapsed();
    let ms = page.number("document.documentElement.dataset.ready");
    println!("unpacked and drawn in {ms} ms; browser, page and all: {} ms", opened.as_millis());
    let paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))",
    );
    let paint = page.number(paint);
    println!("first paint after {paint} ms");
    assert!(paint <= FIRST_PAINT_MS_MAX, "{paint}");
}

#[test]
fn a_large_report_is_small_and_its_matrix_fits() {
    let file = page("report-large.html", LARGE, false);
    let bytes = std::fs::metadata(&file).unwrap().len() as usize;
    println!("17 arrays x 6 loads x 5 repeats: {bytes} bytes");
    assert!(bytes <= LARGE_BYTES_MAX, "{bytes}");
    let Some(page) = Page::open(&file, 1400, 900) else { return };
    let bottom = page.number("document.querySelector('.matrix').getBoundingClientRect().bottom");
    println!("the matrix of 18 rows and 6 loads ends at {bottom} of 900 pixels");
    assert!(bottom <= 900, "the first fold has it whole: {bottom}");
    assert_eq!(page.number(EMPTY_COLUMNS), 0);
    page.no_complaints();
}
