use super::*;
use crate::record::{Experiment, Facts, Origin, Phase, Run, Subject, SubjectKind, Workload};
use crate::store::Store;

/// An experiment of one load: subject, state and the value of each repeat.
fn stored(store: &mut Store, origin: Origin, cases: &[(&str, State, &[f64])]) -> Stored {
    let (name, plan) = ("e".to_owned(), String::new());
    let new = Experiment { name, origin, plan, facts: Facts::default() };
    let id = store.begin_experiment(&new).unwrap();
    for (name, state, values) in cases {
        let kind = if *name == "null" { SubjectKind::Null } else { SubjectKind::Lapstrake };
        let (params, detail) = (Params::new(), String::new());
        let subject = Subject { name: (*name).into(), kind, params, size: None, detail };
        let workload =
            Workload { name: "write".into(), runner: "own".into(), params: Params::new() };
        let case = store.case(id, &subject, state, &workload).unwrap();
        for (round, &value) in (0..).zip(*values) {
            let phases = vec![Phase::new("", value * 1e6, Unit::BytesPerSecond, 1.0)];
            store.add_run(case, &Run { round, phases, ..Run::default() }).unwrap();
        }
    }
    store.finish_experiment(id).unwrap();
    store.load(id).unwrap().unwrap()
}

const FAST: [f64; 5] = [200.0, 202.0, 199.0, 201.0, 203.0];
const ALSO: [f64; 5] = [201.0, 200.0, 201.0, 199.0, 202.0];
const SLOW: [f64; 5] = [100.0, 101.0, 99.0, 100.5, 100.2];

fn lost() -> State {
    State::Degraded(vec!["b".into()])
}

#[test]
fn a_table_ranks_compares_and_leaves_the_floor_out() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 4] = [
        ("slow", State::Healthy, &SLOW),
        ("fast", State::Healthy, &FAST),
        ("also", State::Healthy, &ALSO),
        ("null", State::Healthy, &[240.0; 5]),
    ];
    let report = Report::of(&[stored(&mut store, Origin::Measured, &cases)]);
    let [table] = &report.tables[..] else { panic!("{report:?}") };
    let names: Vec<String> = table.lines.iter().map(Line::name).collect();
    assert_eq!(names, ["null", "fast", "also", "slow"]);
    assert_eq!(table.pairs.len(), 3);
    assert_eq!(table.pair(2, 1).unwrap().verdict(), Verdict::NoRealDifference);
    let slow = table.pair(3, 1).unwrap();
    assert_eq!(slow.verdict(), Verdict::Real(Standing::Lower));
    let back = table.pair(1, 3).unwrap();
    assert_eq!(back.verdict(), Verdict::Real(Standing::Higher));
    assert!((slow.ratio * back.ratio - 1.0).abs() < 1e-12);
    assert!(slow.interval.unwrap().low < slow.ratio && slow.ratio < slow.interval.unwrap().high);
    assert!(table.pair(0, 1).is_none());

    let words = words(&report);
    let fastest = &words[0].sentences[0];
    for part in [
        "write: fast is fastest, 201 MB/s ± 1.0 %, 2.01 times as fast as slow, the slowest; that is real.",
        "No real difference from it: also.",
    ] {
        assert!(fastest.contains(part), "{fastest}");
    }
    let caveats = &words.last().unwrap().sentences;
    assert!(
        caveats[0].contains("harness's own floor") && caveats[0].contains("fast in write"),
        "{caveats:?}"
    );
}

#[test]
fn what_noise_hides_is_not_called_equal() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 3] = [
        ("a", State::Healthy, &[100.0, 150.0, 90.0, 120.0, 70.0]),
        ("b", State::Healthy, &[80.0, 100.0, 130.0, 75.0, 110.0]),
        ("few", State::Healthy, &[101.0, 99.0]),
    ];
    let report = Report::of(&[stored(&mut store, Origin::Measured, &cases)]);
    let verdicts: Vec<Verdict> = report.tables[0].pairs.iter().map(Pair::verdict).collect();
    assert_eq!(verdicts, [Verdict::CannotTell; 3]);
    let fastest = &words(&report)[0].sentences[0];
    assert!(fastest.contains("2 of 2 undecided: ") && !fastest.contains("is real"), "{fastest}");
}

#[test]
fn the_last_is_not_told_to_be_ahead() {
    let mut store = Store::in_memory().unwrap();
    // By medians a is ahead; round by round, two bad rounds make b twice as fast.
    let cases: [(&str, State, &[f64]); 2] = [
        ("a", State::Healthy, &[10.0, 100.0, 10.0, 100.0, 100.0]),
        ("b", State::Healthy, &[90.0; 5]),
    ];
    let report = Report::of(&[stored(&mut store, Origin::Measured, &cases)]);
    let fastest = &words(&report)[0].sentences[0];
    assert!(
        fastest.contains("write: a is ahead, 100 MB/s") && !fastest.contains("times as fast"),
        "{fastest}"
    );
}

#[test]
fn a_missing_member_is_told_against_the_same_subject_whole() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 2] =
        [("raid5", State::Healthy, &FAST), ("raid5", lost(), &SLOW)];
    let report = Report::of(&[stored(&mut store, Origin::Measured, &cases)]);
    let told =
        words(&report).into_iter().find(|section| section.title.contains("missing")).unwrap();
    assert!(
        told.sentences[0].starts_with("write, degraded: raid5 at 0.498 times healthy"),
        "{told:?}"
    );
    assert_eq!(report.tables[0].lines[1].name(), "raid5, degraded (b missing)");
}

#[test]
fn which_member_is_missing_is_told_where_several_are_in_turn() {
    let mut store = Store::in_memory().unwrap();
    let without = |name: &str| State::Degraded(vec![name.into()]);
    let cases: [(&str, State, &[f64]); 3] = [
        ("raid5", State::Healthy, &FAST),
        ("raid5", without("b"), &SLOW),
        ("raid5", without("c"), &ALSO),
    ];
    let report = Report::of(&[stored(&mut store, Origin::Measured, &cases)]);
    let told =
        words(&report).into_iter().find(|section| section.title.contains("missing")).unwrap();
    let sentence = &told.sentences[0];
    assert!(sentence.contains("raid5, degraded (c missing) at 0.998"), "{sentence}");
    assert!(sentence.contains("down to raid5, degraded (b missing) at 0.498"), "{sentence}");
}

#[test]
fn a_name_that_is_there_means_nothing_else() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 3] = [
        ("raid1", State::Healthy, &FAST),
        ("raid10", State::Healthy, &SLOW),
        ("raid1", lost(), &SLOW),
    ];
    let report = Report::of(&[stored(&mut store, Origin::Measured, &cases)]);
    assert_eq!(compare(&report, "raid10", "raid1").len(), 1);
    // Words that are no whole name mean all that have them.
    assert_eq!(compare(&report, "raid1 degraded", "raid").len(), 2);
}

#[test]
fn predictions_say_so_everywhere_and_get_no_verdict_against_measurements() {
    let mut store = Store::in_memory().unwrap();
    let measured = stored(&mut store, Origin::Measured, &[("raid5", State::Healthy, &FAST)]);
    let predicted = stored(&mut store, Origin::Predicted, &[("raid5", State::Healthy, &[210.0])]);
    let both = [measured, predicted];
    let report = Report::of(&both);
    assert_eq!(report.tables[0].pairs[0].verdict(), Verdict::CannotTell);
    let name = "raid5 (predicted)";
    for text in
        [terminal(&report), markdown(&report), html(&report, &both), json(&report).to_string()]
    {
        assert!(text.contains(name), "{text}");
    }
    let compared = compare(&report, "raid5 predicted", "raid5");
    assert!((compared[0].pair.unwrap().ratio - 210.0 / 201.0).abs() < 1e-9);
}

#[test]
fn the_same_case_of_two_experiments_is_told_apart_and_compared() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 2] =
        [("a", State::Healthy, &SLOW), ("b", State::Healthy, &SLOW)];
    let old = stored(&mut store, Origin::Measured, &cases);
    let new = stored(&mut store, Origin::Measured, &[("a", State::Healthy, &FAST)]);
    let report = Report::of(&[old, new]);
    let names: Vec<String> = report.tables[0].lines.iter().map(Line::name).collect();
    assert_eq!(names, ["a [e 2]", "a [e 1]", "b"]);
    let compared = compare(&report, "2", "1");
    let [only] = &compared[..] else { panic!("{compared:?}") };
    assert_eq!(only.pair.unwrap().verdict(), Verdict::Real(Standing::Higher));
    let by_name = compare(&report, "a", "b");
    assert_eq!(by_name.len(), 2, "a of both experiments against b");
}

#[test]
fn a_failed_run_is_told_and_counts_in_nothing() {
    let mut store = Store::in_memory().unwrap();
    let one = stored(&mut store, Origin::Measured, &[("raid5", State::Healthy, &FAST)]);
    let case = one.cases[0].0.id;
    let failed = Run { round: 5, error: Some("the disk is full".into()), ..Run::default() };
    store.add_run(case, &failed).unwrap();
    let report = Report::of(&[store.load(one.head.id).unwrap().unwrap()]);
    assert_eq!(report.tables[0].lines[0].repeats.len(), 5);
    assert_eq!(report.failures[0].error, "the disk is full");
    assert!(terminal(&report).contains("round 6: the disk is full"));
}

#[test]
fn markup_in_names_stays_text() {
    let mut store = Store::in_memory().unwrap();
    let name = "<b>|*x*</script>";
    let one = [stored(&mut store, Origin::Measured, &[(name, State::Healthy, &FAST)])];
    let report = Report::of(&one);
    let page = html(&report, &one);
    assert!(page.contains("&lt;b&gt;|*x*&lt;/script&gt;") && !page.contains("<b>|"));
    assert!(markdown(&report).contains("\\<b>\\|\\*x\\*"));
}

/// Noise as a lab has it: some pairs are real, some are not.
fn noisy(store: &mut Store) -> Stored {
    let values: Vec<Vec<f64>> = (0..6)
        .map(|case| {
            let noise = |round: i32| f64::from((case * 5 + round * 7) % 11 - 5);
            (0..5).map(|round| 100.0 + 2.0 * f64::from(case) + noise(round)).collect()
        })
        .collect();
    let names = ["a", "b", "c", "d", "e", "f"];
    let cases: Vec<(&str, State, &[f64])> =
        names.iter().zip(&values).map(|(name, v)| (*name, State::Healthy, &v[..])).collect();
    stored(store, Origin::Measured, &cases)
}

#[test]
fn a_pair_has_one_verdict_wherever_it_is_shown_and_its_interval_decides() {
    let mut store = Store::in_memory().unwrap();
    let all = [noisy(&mut store)];
    let report = Report::of(&all);
    let table = &report.tables[0];
    let mut kinds = Vec::new();
    for pair in &table.pairs {
        let interval = pair.interval.unwrap();
        let is_real = matches!(pair.verdict(), Verdict::Real(_));
        assert_eq!(interval.low > 1.0 || interval.high < 1.0, is_real, "{pair:?}");
        kinds.push(is_real);
        // Alone, against all, or in the matrix: the same.
        let name = |place: usize| table.lines[place].name();
        let compared = compare(&report, &name(pair.of), &name(pair.to));
        assert_eq!(compared[0].pair, Some(*pair));
    }
    assert!(kinds.contains(&true) && kinds.contains(&false), "{kinds:?}");
    let best = table.best().unwrap();
    for row in matrix(&report).rows {
        let cell = row.cells[0].unwrap();
        let pair = table.pair(cell.line, best);
        assert_eq!(cell.verdict, pair.map(|pair| pair.verdict()));
    }
    // The page's script has the same, and the page tells how many rounds would settle what is open.
    let pairs = json(&report)["tables"][0]["pairs"].as_array().unwrap().clone();
    for (told, pair) in pairs.iter().zip(&table.pairs) {
        assert_eq!(told[5], pair.verdict().word());
    }
    let fastest = &words(&report)[0].sentences[0];
    assert!(fastest.contains("more round"), "{fastest}");
}

#[test]
fn every_link_of_the_page_leads_somewhere_and_ids_are_there_once() {
    let mut store = Store::in_memory().unwrap();
    let all = [noisy(&mut store)];
    let page = html(&Report::of(&all), &all);
    let body = &page[page.find("<body>").unwrap()..page.find("<script").unwrap()];
    let of = |what: &str| -> Vec<&str> {
        body.split(what).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
    };
    let (mut ids, links) = (of(" id=\""), of("href=\"#"));
    assert_eq!(links.iter().filter(|link| link.starts_with("load-0-")).count(), 6, "{links:?}");
    // Where the script finds nothing to draw it takes the link out.
    let drawn = ["scatter", "zones", "scaling"];
    for link in links.iter().filter(|link| !drawn.contains(link)) {
        assert!(ids.contains(link), "{link}");
    }
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn the_harness_is_a_footnote_and_no_row() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 2] =
        [("raid5", State::Healthy, &FAST), ("null", State::Healthy, &[4000.0; 5])];
    let all = [stored(&mut store, Origin::Measured, &cases)];
    let report = Report::of(&all);
    let page = html(&report, &all);
    assert!(page.contains("The harness alone (null): 4,000 MB/s"), "a footnote");
    assert!(!page.contains("</span>null</th>"), "no row");
    assert_eq!(matrix(&report).rows.len(), 1);
    assert!(terminal(&report).contains("the harness alone (null): 4,000 MB/s"));
}

#[test]
fn a_report_that_is_all_predicted_says_so_once() {
    let mut store = Store::in_memory().unwrap();
    let cases: [(&str, State, &[f64]); 2] =
        [("raid0", State::Healthy, &FAST), ("raid5", State::Healthy, &SLOW)];
    let all = [stored(&mut store, Origin::Predicted, &cases)];
    let report = Report::of(&all);
    let page = html(&report, &all);
    assert!(page.contains("<strong>Predicted</strong> on models of disks, not measured."));
    let body = &page[..page.find("<script").unwrap()];
    assert!(!body.contains("(predicted)"), "{body}");
    assert!(terminal(&report).starts_with("Predicted on models of disks, not measured.\n"));
}

#[test]
fn a_subject_has_one_colour_and_those_of_a_level_share_a_hue() {
    let mut store = Store::in_memory().unwrap();
    let all = [noisy(&mut store)];
    let looks: Vec<Look> = matrix(&Report::of(&all)).rows.iter().map(|row| row.look).collect();
    assert!(looks.iter().all(|look| look.hue == looks[0].hue), "one kind: {looks:?}");
    let shades: std::collections::BTreeSet<usize> = looks.iter().map(|look| look.shade).collect();
    assert_eq!(shades.len(), matrix::SHADES, "of six, as many shades as there are");
}

#[test]
fn what_went_through_the_page_cache_says_so() {
    let mut store = Store::in_memory().unwrap();
    let mut all = [noisy(&mut store)];
    assert!(!html(&Report::of(&all), &all).contains("hrough the page cache:"));
    for (case, _) in &mut all[0].cases {
        case.workload.params.insert("direct".into(), false.into());
    }
    let page = html(&Report::of(&all), &all);
    assert!(page.contains("Through the page cache: memory and disks together"));
    assert!(page.contains("† through the page cache"));
}
