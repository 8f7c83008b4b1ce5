use super::*;
use crate::record::Unit;
use proptest::prelude::*;

/// Written by bonnie++ 2.00a; 1.03's line is as its documentation has it.
const BONNIE_1_98: &str = include_str!("../../tests/data/bonnie-2.00a.csv");
const BONNIE_1_97: &str = include_str!("../../tests/data/bonnie-1.97.csv");
const BONNIE_1_03: &str = include_str!("../../tests/data/bonnie-1.03.csv");
const FIO: &str = include_str!("../../tests/data/fio-json+.json");
const IOZONE: &str = include_str!("../../tests/data/iozone.txt");
const IOZONE_T: &str = include_str!("../../tests/data/iozone-t.txt");

fn figure(told: &Told, phase: &str) -> Option<f64> {
    told.phases.iter().find(|found| found.name == phase).map(|phase| phase.figure.value)
}

#[test]
fn bonnie_1_03_is_read() {
    let told = Tool::Bonnie.parse(BONNIE_1_03).unwrap();
    let [one, two] = &told[..] else { panic!("{told:?}") };
    assert_eq!(one.subject.as_deref(), Some("ide-raid0"));
    assert_eq!(one.workload.params["size"], 4096u64 << 20);
    assert_eq!(figure(one, "per-character output"), Some(20_100.0 * 1024.0));
    assert_eq!(figure(one, "block input"), Some(61_234.0 * 1024.0));
    assert_eq!(figure(one, "seeks"), Some(171.3));
    assert_eq!(figure(one, "sequential stat"), None, "too fast to be measured");
    assert_eq!(figure(one, "random delete"), Some(1_833.0));
    let block = &one.phases[1];
    assert!((block.cpu.seconds() - 0.31 * block.seconds).abs() < 1e-9);
    assert!((block.seconds - (4096.0 * 1024.0 / 41_233.0)).abs() < 1e-9);
    assert_eq!(two.workload.params["block_size"], 8192, "size:chunk");
}

#[test]
fn bonnie_1_9x_is_read_in_both_of_its_layouts() {
    let old = &Tool::Bonnie.parse(BONNIE_1_97).unwrap()[0];
    assert_eq!(old.subject.as_deref(), Some("sas"));
    assert_eq!(old.workload.params["size"], 64u64 << 30);
    assert_eq!(figure(old, "block output"), Some(210_345.0 * 1024.0));
    assert_eq!(figure(old, "seeks"), Some(845.2));
    assert_eq!(figure(old, "sequential create"), Some(15_000.0));

    let new = &Tool::Bonnie.parse(BONNIE_1_98).unwrap()[0];
    assert_eq!(new.subject.as_deref(), Some("mylabel"));
    assert_eq!(figure(new, "per-character output"), Some(587.0 * 1024.0));
    assert_eq!(figure(new, "per-character input"), Some(975.0 * 1024.0));
    assert_eq!(new.phases.len(), 2, "all else was too fast: {:?}", new.phases);
}

#[test]
fn bonnies_of_several_sizes_are_several_loads() {
    let line = BONNIE_1_03.lines().find(|line| bonnie::is_line(line)).unwrap();
    let mut fields: Vec<&str> = line.split(',').collect();
    fields[1] = "300M";
    let told = bonnie::parse(&format!("{line}\n{}\n", fields.join(","))).unwrap();
    let names: Vec<&str> = told.iter().map(|one| &*one.workload.name).collect();
    assert_eq!(names, ["bonnie++ -s 4096m", "bonnie++ -s 300m"]);
}

#[test]
fn bonnie_says_what_is_wrong_and_where() {
    let broken = BONNIE_1_03.replace("61234", "fast");
    let error = Tool::Bonnie.parse(&broken).unwrap_err();
    assert_eq!((error.line, error.why.contains("\"fast\"")), (1, true), "{error}");
    assert!(Tool::Bonnie.parse("a table\nfor people\n").is_err());
}

#[test]
fn fio_is_read_with_every_latency() {
    let told = Tool::Fio.parse(&format!("fio: a warning\n{FIO}")).unwrap();
    let [mix] = &told[..] else { panic!("{told:?}") };
    assert_eq!(mix.workload.name, "rw");
    assert_eq!(mix.workload.params["block_size"], 4096);
    let [read, write] = &mix.phases[..] else { panic!("{:?}", mix.phases) };
    assert_eq!((read.name.as_str(), write.name.as_str()), ("read", "write"));
    assert_eq!(read.read.bytes + write.write.bytes, 16 << 20);
    for flow in [&read.read, &write.write] {
        assert_eq!(flow.latency.as_ref().unwrap().count(), flow.requests);
    }
    // fio's own median, which is of the same bins.
    let value: serde_json::Value = serde_json::from_str(FIO).unwrap();
    let median = value["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap();
    let ours = read.read.latency.as_ref().unwrap().percentile(50.0);
    assert!(ours.abs_diff(median) * 50 <= median, "{ours} {median}");
    assert!(Tool::Fio.parse("{\"jobs\": [{}]}").is_err());
    assert!(Tool::Fio.parse("").is_err());
}

#[test]
fn processes_of_one_fio_job_count_together() {
    let mut value: serde_json::Value = serde_json::from_str(FIO).unwrap();
    let job = value["jobs"][0].clone();
    value["jobs"].as_array_mut().unwrap().push(job);
    let (one, two) = (Tool::Fio.parse(FIO).unwrap(), Tool::Fio.parse(&value.to_string()).unwrap());
    let ([one], [two]) = (&one[..], &two[..]) else { panic!("{two:?}") };
    for (one, two) in one.phases.iter().zip(&two.phases) {
        let ratio = two.figure.value / one.figure.value;
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
        assert_eq!(two.seconds, one.seconds);
        assert_eq!(two.cpu.user_s, 2.0 * one.cpu.user_s);
        for (one, two) in [(&one.read, &two.read), (&one.write, &two.write)] {
            assert_eq!((two.bytes, two.requests), (2 * one.bytes, 2 * one.requests));
            let count = |flow: &crate::record::Flow| flow.latency.as_ref().map(|all| all.count());
            assert_eq!(count(two), count(one).map(|count| 2 * count));
        }
    }
}

#[test]
fn iozone_tables_are_read_by_their_columns() {
    let told = Tool::Iozone.parse(IOZONE).unwrap();
    let [part, whole] = &told[..] else { panic!("{told:?}") };
    let names =
        |told: &Told| told.phases.iter().map(|phase| phase.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(part), ["write", "rewrite", "random read", "random write"]);
    assert_eq!(figure(part, "random read"), Some(290_025.0 * 1024.0));
    assert_eq!(names(whole), PHASES_OF_IOZONE);
    assert_eq!(figure(whole, "freread"), Some(3_824_589.0 * 1024.0));
    assert_eq!(whole.workload.name, "iozone -s 16384k -r 4k");
    assert_eq!(whole.phases[0].write.bytes, 16_384 * 1024);
    let operations = IOZONE.replace("Output is in kBytes/sec", "Output is in ops/sec");
    assert!(Tool::Iozone.parse(&operations).is_err());
}

const PHASES_OF_IOZONE: [&str; 13] = iozone::PHASES;

#[test]
fn iozone_throughput_is_what_the_children_see() {
    let told = Tool::Iozone.parse(IOZONE_T).unwrap();
    let [run] = &told[..] else { panic!("{told:?}") };
    assert_eq!(run.workload.name, "iozone -s 2097152k -r 128k -t 4");
    assert_eq!(figure(run, "write"), Some(109_333.84 * 1024.0));
    assert_eq!(figure(run, "random write"), Some(1_220.5 * 1024.0));
    assert_eq!(run.phases[0].write.bytes, 4 * 2_097_152 * 1024);
    assert_eq!(run.phases[0].figure.unit, Unit::BytesPerSecond);
}

#[test]
fn the_tool_is_told_by_the_text() {
    for (text, tool) in [
        (BONNIE_1_98, Tool::Bonnie),
        (BONNIE_1_03, Tool::Bonnie),
        (FIO, Tool::Fio),
        (IOZONE, Tool::Iozone),
        (IOZONE_T, Tool::Iozone),
    ] {
        assert_eq!(Tool::guess(text), Some(tool));
    }
    assert_eq!(Tool::guess("hello\n"), None);
}

#[test]
fn files_become_repeats_and_a_bad_one_leaves_the_store_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let good = [write("a.csv", BONNIE_1_98), write("b.csv", BONNIE_1_98)];
    let bad = write("bad.csv", "nothing\n");
    let mut store = Store::in_memory().unwrap();
    let import = |store: &mut Store, files: &[PathBuf]| {
        let (files, subject) = (files.to_vec(), Some("md0".to_owned()));
        super::import(store, &Import { files, tool: None, name: None, subject })
    };
    let error = import(&mut store, &[good[0].clone(), bad]).unwrap_err().to_string();
    assert!(error.contains("bad.csv") && error.contains("line 1"), "{error}");
    assert!(store.experiments().unwrap().is_empty());
    let id = import(&mut store, &good).unwrap();
    let stored = store.load(id).unwrap().unwrap();
    assert_eq!(stored.head.experiment.origin, Origin::Imported { tool: "bonnie++".into() });
    assert!(stored.head.finished_ms.is_some());
    let [(case, runs)] = &stored.cases[..] else { panic!("{stored:?}") };
    assert_eq!((case.subject.name.as_str(), runs.len()), ("md0", 2));
    assert_eq!((runs[0].round, runs[1].round), (0, 1));
    assert_eq!(runs[0].raw, BONNIE_1_98.trim_end());
}

#[test]
fn what_a_file_holds_several_times_is_stored_as_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let rounds = |text: &str| {
        let path = directory.path().join("results");
        fs::write(&path, text).unwrap();
        let mut store = Store::in_memory().unwrap();
        let what = Import { files: vec![path], tool: None, name: None, subject: None };
        let id = super::import(&mut store, &what).unwrap();
        let cases = store.load(id).unwrap().unwrap().cases.into_iter();
        let of =
            |(case, runs): (crate::store::StoredCase, Vec<Run>)| (case.workload.name, runs.len());
        cases.map(of).collect::<Vec<_>>()
    };
    let four = "iozone -s 2097152k -r 128k -t 4".to_owned();
    assert_eq!(rounds(&format!("{IOZONE_T}{IOZONE_T}")), [(four, 2)]);
    let appended = include_str!("../../tests/data/fio-appended.json");
    assert_eq!(rounds(appended), [("again".to_owned(), 4)]);
    // The second run was of other blocks.
    let at = appended.rfind("\"bs\": \"4k\"").unwrap();
    let other = format!("{}{}", &appended[..at], appended[at..].replacen("4k", "8k", 1));
    let apart =
        [("again (block_size=4096)".to_owned(), 2), ("again (block_size=8192)".to_owned(), 2)];
    assert_eq!(rounds(&other), apart);
}

const ODD: [&str; 11] = [
    BONNIE_1_98,
    BONNIE_1_03,
    FIO,
    IOZONE,
    IOZONE_T,
    include_str!("../../tests/data/fio-status-interval.json"),
    include_str!("../../tests/data/fio-client.txt"),
    include_str!("../../tests/data/fio-minimal.txt"),
    include_str!("../../tests/data/iozone-threads.txt"),
    include_str!("../../tests/data/iozone-processes.txt"),
    "\"Writer report\"\n        \"16\"  \"64\"\n\"64\"   1001  1002 \n",
];

proptest! {
    /// Bytes of the tools' own output, changed here and there, are read or refused.
    #[test]
    fn no_text_is_too_odd(
        which in 0usize..11,
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[-+0-9eE.,:{}\"GkA \n\t]{0,4}"), 1..12),
    ) {
        let mut text = ODD[which].to_owned();
        for (at, with) in edits {
            let at = at.index(text.len());
            text.replace_range(at..at + 1, &with);
        }
        for tool in [Tool::Fio, Tool::Bonnie, Tool::Iozone] {
            let _ = tool.parse(&text);
        }
    }
}
