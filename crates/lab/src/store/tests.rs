use super::*;
use crate::record::*;
use serde_json::json;
use std::collections::BTreeMap;

fn experiment() -> Experiment {
    Experiment {
        name: "quick".into(),
        origin: Origin::Measured,
        plan: "[[disk]]\n".into(),
        facts: Facts { kernel: "Linux 6.18".into(), cpus: 2, ..Facts::default() },
    }
}

fn subject() -> Subject {
    Subject {
        name: "raid5".into(),
        kind: SubjectKind::Lapstrake,
        params: Params::from([("chunk".into(), json!(65536)), ("level".into(), json!("raid5"))]),
        size: Some(Size { raw_bytes: 4 << 30, usable_bytes: 3 << 30 }),
        detail: "raid5\n  a\n  b\n".into(),
    }
}

fn workload() -> Workload {
    Workload { name: "write".into(), runner: "own".into(), params: Params::new() }
}

fn run(round: u32) -> Run {
    let mut latency = Latency::default();
    latency.record(1_000);
    let mut phase = Phase::new("", 1e8, Unit::BytesPerSecond, 2.0);
    phase.write = Flow { bytes: 200_000_000, requests: 200, latency: Some(latency) };
    phase.cpu.user_s = 0.25;
    phase.cpu.processes =
        BTreeMap::from([("load".into(), CpuTime { user_s: 0.125, system_s: 0.5 })]);
    phase.members = vec![MemberIo { member: "a".into(), written_bytes: 7, ..MemberIo::default() }];
    phase.memory_bytes_max = Some(1 << 20);
    phase.series.interval_ms = 100;
    phase.series.written_bytes = vec![1, 2, 3];
    phase.series.marks = vec![Mark { what: "rebuild".into(), from_ms: 0, until_ms: None }];
    phase.zones = vec![Zone { offset_bytes: 0, bytes_per_second: 1e8 }];
    Run { round, position: 1, started_ms: 7, phases: vec![phase], raw: "raw".into(), error: None }
}

#[test]
fn what_is_kept_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.sqlite");
    let mut store = Store::open(&path).unwrap();
    let id = store.begin_experiment(&experiment()).unwrap();
    let degraded = State::Degraded(vec!["b".into()]);
    let healthy = store.case(id, &subject(), &State::Healthy, &workload()).unwrap();
    let case = store.case(id, &subject(), &degraded, &workload()).unwrap();
    assert_ne!(healthy, case);
    let failed = Run { error: Some("no space".into()), round: 1, ..Run::default() };
    store.add_run(case, &run(0)).unwrap();
    store.add_run(case, &failed).unwrap();
    drop(store);

    let store = Store::open_to_read(&path).unwrap();
    let stored = store.load(id).unwrap().unwrap();
    assert_eq!(stored.head.experiment, experiment());
    assert_eq!((stored.head.cases, stored.head.runs), (2, 2));
    let (last, runs) = &stored.cases[1];
    assert_eq!((&last.subject, &last.state, &last.workload), (&subject(), &degraded, &workload()));
    assert_eq!(runs, &[run(0), failed]);
    assert!(store.load(ExperimentId(9)).unwrap().is_none());
}

#[test]
fn an_unfinished_plan_is_found_by_its_text_and_its_cases_by_their_names() {
    let mut store = Store::in_memory().unwrap();
    let id = store.begin_experiment(&experiment()).unwrap();
    let case = store.case(id, &subject(), &State::Healthy, &workload()).unwrap();
    assert_eq!(store.unfinished("[[disk]]\n").unwrap(), Some(id));
    assert_eq!(store.unfinished("another").unwrap(), None);
    let mut changed = subject();
    changed.detail = "as it was found".into();
    assert_eq!(store.case(id, &changed, &State::Healthy, &workload()).unwrap(), case);
    assert_eq!(store.cases(id).unwrap()[0].subject, changed);
    store.finish_experiment(id).unwrap();
    assert_eq!(store.unfinished("[[disk]]\n").unwrap(), None);
}

#[test]
fn a_round_is_kept_whole_or_not_at_all_and_once() {
    let mut store = Store::in_memory().unwrap();
    let id = store.begin_experiment(&experiment()).unwrap();
    let case = store.case(id, &subject(), &State::Healthy, &workload()).unwrap();
    let mut twice = run(0);
    twice.phases.push(twice.phases[0].clone());
    assert!(store.add_run(case, &twice).is_err(), "two phases of one name");
    assert!(store.runs(case).unwrap().is_empty());
    store.add_run(case, &run(0)).unwrap();
    assert!(store.add_run(case, &run(0)).is_err());
    assert_eq!(store.runs(case).unwrap(), [run(0)]);
}

#[test]
fn what_is_no_store_or_a_later_one_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.sqlite");
    assert!(matches!(Store::open_to_read(&path), Err(LabError::NoStore { .. })));
    assert!(!path.exists());
    std::fs::write(&path, "a text that is no database, long enough to have a header of one")
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(Store::open(&path), Err(LabError::BadStore { .. })));
    assert!(matches!(Store::open_to_read(&path), Err(LabError::BadStore { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);

    std::fs::remove_file(&path).unwrap();
    Store::open(&path).unwrap().db.pragma_update(None, "user_version", 99).unwrap();
    for opened in [Store::open(&path), Store::open_to_read(&path)] {
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("later version"), "{error}");
    }

    std::fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.contains("another program's"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn the_steps_of_the_schema_are_sound() {
    MIGRATIONS.validate().unwrap();
}

#[test]
fn who_find_no_store_at_the_same_time_make_one() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = directory.path().join(format!("{round}.sqlite"));
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let mut store = Store::open(&path).unwrap();
                    store.begin_experiment(&experiment()).unwrap();
                });
            }
        });
        assert_eq!(Store::open_to_read(&path).unwrap().experiments().unwrap().len(), 4);
    }
}
