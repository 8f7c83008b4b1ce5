//! The HTML report in a browser, as a person uses it: Chromium, without a window and without a network.

mod support;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use headless_chrome::protocol::cdp::Browser::{
    SetDownloadBehavior, SetDownloadBehaviorBehaviorOption,
};
use headless_chrome::protocol::cdp::Emulation::{
    MediaFeature, SetDeviceMetricsOverride, SetEmulatedMedia,
};
use headless_chrome::protocol::cdp::Page::CaptureScreenshotFormatOption::Png;
use headless_chrome::protocol::cdp::Page::{CaptureScreenshot, Viewport};
use headless_chrome::protocol::cdp::types::Event;
use headless_chrome::{Browser, LaunchOptions, Tab};
use lapstrake_lab::report::{Report, html};
use lapstrake_lab::store::Store;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::Amount;

const SMALL: Amount = Amount { arrays: 9, workloads: 3, repeats: 5, samples: 100, with_states: 9 };

/// The plan whose page's size and time docs/lab.md tells.
const LARGE: Amount = Amount { arrays: 17, workloads: 6, repeats: 5, samples: 300, with_states: 0 };
const LARGE_BYTES_MAX: usize = 6 << 20;
const LARGE_MS_MAX: u64 = 10_000;

/// A page in a browser, and what its console said.
struct Page {
    browser: Browser,
    tab: Arc<Tab>,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl Page {
    /// Opens a file; nothing, said aloud, where there is no Chromium.
    fn open(file: &Path, width: u32, height: u32) -> Option<Self> {
        let Ok(chromium) = headless_chrome::browser::default_executable() else {
            eprintln!("NOT RUN: there is no Chromium here (make setup installs it)");
            assert!(std::env::var_os("CI").is_none(), "CI must have Chromium");
            return None;
        };
        let options = LaunchOptions::default_builder()
            .path(Some(chromium))
            // As root, which a container often is, Chromium has no sandbox.
            .sandbox(false)
            .window_size(Some((width, height)))
            .args(vec![
                "--host-resolver-rules=MAP * ~NOTFOUND".as_ref(),
                "--hide-scrollbars".as_ref(),
            ])
            .build()
            .unwrap();
        let browser = Browser::new(options).unwrap();
        let tab = browser.new_tab().unwrap();
        let complaints = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&complaints);
        tab.enable_log().unwrap().enable_runtime().unwrap();
        tab.add_event_listener(Arc::new(move |event: &Event| {
            let said = match event {
                Event::RuntimeExceptionThrown(thrown) => format!("{thrown:?}"),
                Event::RuntimeConsoleAPICalled(called) => format!("{called:?}"),
                Event::LogEntryAdded(entry) => format!("{entry:?}"),
                _ => return,
            };
            heard.lock().unwrap().push(said);
        }))
        .unwrap();
        tab.set_default_timeout(Duration::from_secs(60));
        tab.navigate_to(&format!("file://{}", file.display())).unwrap();
        tab.wait_for_element("html[data-ready]").unwrap();
        Some(Self { browser, tab, complaints })
    }

    /// What an expression comes to, as a number.
    fn number(&self, expression: &str) -> u64 {
        let value = self.tab.evaluate(&format!("Number({expression})"), true).unwrap();
        value.value.and_then(|value| value.as_f64()).unwrap_or_else(|| panic!("{expression}"))
            as u64
    }

    fn text(&self, expression: &str) -> String {
        let value = self.tab.evaluate(&format!("String({expression})"), true).unwrap();
        value.value.unwrap().as_str().unwrap().to_owned()
    }

    fn press(&self, selector: &str, key: &str) {
        self.tab.wait_for_element(selector).unwrap().focus().unwrap();
        self.tab.press_key(key).unwrap();
    }

    /// Makes the page so wide, as a phone would.
    fn resize(&self, width: u32) {
        let metrics = SetDeviceMetricsOverride {
            width,
            height: 844,
            device_scale_factor: 1.0,
            mobile: true,
            scale: None,
            screen_width: None,
            screen_height: None,
            position_x: None,
            position_y: None,
            dont_set_visible_size: None,
            screen_orientation: None,
            viewport: None,
            display_feature: None,
            device_posture: None,
        };
        self.tab.call_method(metrics).unwrap();
        self.tab.reload(false, None).unwrap();
        self.tab.wait_for_element("html[data-ready]").unwrap();
    }

    /// Leaves a picture of an element where a person finds it.
    fn picture(&self, name: &str, of: &str) {
        let side = |side| {
            let at = format!("document.querySelector('{of}').getBoundingClientRect().{side}");
            self.number(&at) as f64
        };
        self.tab.evaluate("scrollTo(0, 0)", false).unwrap();
        let (x, y, width, height) = (side("x"), side("y"), side("width"), side("height"));
        let capture = CaptureScreenshot {
            format: Some(Png),
            quality: None,
            clip: Some(Viewport { x, y, width, height, scale: 1.0 }),
            from_surface: Some(true),
            capture_beyond_viewport: Some(true),
            optimize_for_speed: None,
        };
        let picture = self.tab.call_method(capture).unwrap().data;
        std::fs::write(scratch(name), BASE64_STANDARD.decode(picture).unwrap()).unwrap();
    }

    fn no_complaints(&self) {
        let complaints = self.complaints.lock().unwrap();
        assert!(complaints.is_empty(), "{complaints:#?}");
        assert!(self.browser.get_version().is_ok());
    }
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
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
    page.picture("report-words.png", "#summary");
    page.picture("report-bars.png", "#load-0");
    page.picture("report-all.png", "#all");
    page.picture("report-scaling.png", "#scaling");
    page.picture("report-zones.png", "#zones");

    // What is folded away is drawn when it is opened, by the keyboard.
    let curves = |chart| {
        format!(
            "document.querySelectorAll('#load-0 figure[data-chart={chart}] .curve path').length"
        )
    };
    for (chart, count) in [("latency", lines), ("series", lines - floors)] {
        assert_eq!(page.number(&curves(chart)), 0);
        page.press(&format!("#load-0 details:has([data-chart={chart}]) summary"), "Enter");
        page.tab
            .wait_for_element(&format!("#load-0 figure[data-chart={chart}] .curve path"))
            .unwrap();
        assert_eq!(page.number(&curves(chart)), count, "{chart}");
    }
    page.picture("report-latency.png", "#load-0 figure[data-chart=latency]");
    page.picture("report-series.png", "#load-0 figure[data-chart=series]");
    let rebuilds = "document.querySelectorAll('#load-0 .happened rect').length";
    assert_eq!(page.number(rebuilds), 5);

    // Sorting by a heading, and back.
    let first = "document.querySelector('#load-0 tbody tr th').textContent";
    page.press("#load-0 thead th:nth-child(6) button", "Enter");
    assert!(page.text(first).starts_with("null"), "least processor time: {}", page.text(first));
    page.press("#load-0 thead th:nth-child(1) button", "Enter");
    page.press("#load-0 thead th:nth-child(1) button", "Enter");
    assert!(
        page.text(first).starts_with("raid6 of 4") || page.text(first).starts_with("raid5"),
        "{}",
        page.text(first)
    );

    // The filter leaves what it names, in figures and tables.
    page.tab.wait_for_element("#filter").unwrap().focus().unwrap();
    page.tab.type_str("raid5 degraded").unwrap();
    let shown =
        "[...document.querySelectorAll('#load-0 tbody tr')].filter((row) => !row.hidden).length";
    assert_eq!((page.number(shown), page.number(bars)), (2, 2));
    assert!(page.text("document.getElementById('shown').textContent").starts_with("2 of "));
    page.tab
        .evaluate("filter.value = ''; filter.dispatchEvent(new Event('input'))", false)
        .unwrap();
    assert_eq!(page.number(bars), lines - floors);

    // Against a baseline: percents, without the null subject, and the baseline itself is 100.
    page.tab
        .evaluate(
            "baseline.value = 'raid5 of 4 64K'; baseline.dispatchEvent(new Event('change'))",
            false,
        )
        .unwrap();
    let texts = page.text("document.querySelector('#load-0 figure[data-chart=bars]').textContent");
    assert!(texts.contains("percent of raid5 of 4 64K") && texts.contains("100 %"), "{texts}");
    assert_eq!(page.number(bars), lines - floors);
    page.picture("report-baseline.png", "#load-0");
    page.no_complaints();
}

/// What is in the file that a button saves, as the browser leaves it in a directory.
fn saved(page: &Page, directory: &Path, button: &str, name: &str) -> String {
    page.press(button, "Enter");
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
    let allow = SetDownloadBehavior {
        behavior: SetDownloadBehaviorBehaviorOption::Allow,
        browser_context_id: None,
        download_path: Some(directory.path().display().to_string()),
        events_enabled: None,
    };
    page.tab.call_method(allow).unwrap();
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
    page.tab
        .evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))", false)
        .unwrap();
    page.tab.wait_for_element("#load-2 figure[data-chart=series] .curve path").unwrap();
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
    page.picture("report-phone.png", "#load-0");
    page.picture("report-phone-words.png", "header");
    page.picture("report-phone-all.png", "#all");

    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(page.text(ground), "rgb(255, 255, 255)");
    let dark = MediaFeature { name: "prefers-color-scheme".into(), value: "dark".into() };
    page.tab.call_method(SetEmulatedMedia { media: None, features: Some(vec![dark]) }).unwrap();
    assert_eq!(page.text(ground), "rgb(20, 23, 26)");
    page.picture("report-dark.png", "#load-0");

    page.tab.call_method(SetEmulatedMedia { media: None, features: None }).unwrap();
    let pdf = page.tab.print_to_pdf(None).unwrap();
    std::fs::write(scratch("report.pdf"), pdf).unwrap();
    page.tab.evaluate("dispatchEvent(new Event('beforeprint'))", false).unwrap();
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
