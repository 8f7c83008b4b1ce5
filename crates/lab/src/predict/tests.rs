//! Predictions of small plans, and what is refused.

use super::*;
use crate::store::Store;

fn options(draws: u32, threads: usize) -> Options {
    let evidence = Evidence::default();
    Options { seed: None, draws, profile: None, processor: None, threads, evidence }
}

fn plan(more: &str) -> Plan {
    let text = format!(
        "name = \"t\"\n[run]\ntime = \"500ms\"\nwarm-up = \"100ms\"\n\
         [[disk]]\nmake = [\"a\", \"b\", \"c\", \"d\"]\nsize = \"64M\"\nprofile = \"hitachi-80\"\n{more}"
    );
    Plan::parse(&text, Path::new("/")).unwrap_or_else(|problems| panic!("{problems:?}"))
}

const LOADS: &str = "[[workload]]\nname = \"read\"\npattern = \"sequential\"\nblock = \"1M\"\ndepth = 4\n\
     [[workload]]\nname = \"random write\"\npattern = \"uniform\"\nread = 0.0\ndepth = 8\n";

fn predicted(plan: &Plan, options: &Options) -> Prediction {
    predict(plan, options, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn value(prediction: &Prediction, array: &str, workload: &str, metric: &str) -> Metric {
    let all = metrics(prediction);
    let mut found = all.iter().filter(|found| {
        (found.array.as_str(), found.workload.as_str(), found.metric.as_str())
            == (array, workload, metric)
    });
    found.next().unwrap_or_else(|| panic!("{array} {workload} {metric} is not in {all:?}")).clone()
}

fn ends(metric: &Metric) -> Option<[f64; 2]> {
    Some([metric.low?, metric.high?])
}

#[test]
fn levels_differ_as_they_should_and_bars_hold_their_values() {
    let arrays = "[[array]]\nsystem = \"disk\"\nname = \"one\"\nmembers = [\"a\"]\n\
         [[array]]\nlevel = [0, 1, 5]\nmembers = 4\nstates = [\"healthy\", \"degraded\"]\n";
    let plan = plan(&format!("{arrays}{LOADS}"));
    let prediction = predicted(&plan, &options(3, 2));
    let read = |array| value(&prediction, array, "read", "throughput").value;
    let single = read("one");
    assert!((60e6..90e6).contains(&single), "{single}");
    assert!(read("raid0") > 3.5 * single, "{}", read("raid0"));
    let writes = |array| value(&prediction, array, "random write", "rate").value;
    assert!(writes("raid5") < writes("raid0") / 2.0);
    for metric in metrics(&prediction) {
        let Some([low, high]) = ends(&metric) else {
            assert!(metric.evidence.starts_with("a guess: "), "{metric:?}");
            continue;
        };
        assert!(low < metric.value && metric.value < high, "{metric:?}");
    }
    let width = |array, load, figure| {
        let [low, high] = ends(&value(&prediction, array, load, figure)).unwrap();
        high / low
    };
    // Of a disk by itself more is known.
    assert!(width("one", "read", "throughput") < 1.2 && width("raid0", "read", "throughput") > 1.5);
    let rebuild = value(&prediction, "raid5", "rebuild", "time");
    // 64 MiB at no more than the disk's rate.
    assert!((0.5..5.0).contains(&rebuild.value), "{rebuild:?}");
    assert_eq!(rebuild.state, "rebuilding (d)");
    // One disk more is written as a new one is, and so are the others, of which three quarters are read besides.
    let growth = value(&prediction, "raid5", "growth by a member", "time");
    assert!((1.2..6.0).contains(&(growth.value / rebuild.value)), "{growth:?}, {rebuild:?}");
    let raid5 = prediction.cases.iter().find(|case| case.subject.name == "raid5").unwrap();
    let members = &raid5.runs[0].phases[0].members;
    assert_eq!(members.len(), 4);
    assert!(members.iter().all(|member| member.read_bytes > 1 << 20), "{members:?}");
    assert!(raid5.runs[0].phases[0].cpu.user_s > 0.0);
}

#[test]
fn a_core_that_limits_fast_disks_is_told() {
    let fast = |name: &str| plan(LOADED).text.replace("hitachi-80", name);
    let told = |name: &str| {
        let plan = Plan::parse(&fast(name), Path::new("/")).unwrap();
        let prediction = predicted(&plan, &options(1, 1));
        let told: Vec<_> =
            prediction.notes.iter().filter(|note| note.contains("processor")).cloned().collect();
        let rate = |array| value(&prediction, array, "random", "rate").value;
        (rate("one"), rate("raid0"), told)
    };
    let (one, two, notes) = told("ssd-nvme-1tb");
    // A request to the array, and one to its member.
    assert!((1.8..2.2).contains(&(one / two)), "{one} and {two}");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("random on one, random on raid0:"), "{notes:?}");
    assert_eq!(told("hitachi-80").2, [""; 0]);
}

const LOADED: &str = "[[array]]\nsystem = \"disk\"\nname = \"one\"\nmembers = [\"a\"]\n\
     [[array]]\nlevel = 0\nmembers = 4\n\
     [[workload]]\nname = \"random\"\npattern = \"uniform\"\ndepth = 32\n";

#[test]
fn a_seed_gives_the_same_figures_on_any_number_of_threads() {
    let plan = plan(&format!("[[array]]\nlevel = 6\nmembers = 4\n{LOADS}"));
    let figures = |seed, threads| {
        metrics(&predicted(&plan, &Options { seed: Some(seed), ..options(2, threads) }))
    };
    let once = figures(5, 1);
    assert_eq!(once, figures(5, 3));
    assert_ne!(once, figures(6, 1));
    // Of one draw, which has the profiles as they are, the places of loads and platters and the lives are drawn.
    let one = |seed| predicted(&plan, &Options { seed: Some(seed), ..options(1, 1) });
    let (five, six) = (one(5), one(6));
    assert_ne!(metrics(&five), metrics(&six));
    let loss = |prediction: &Prediction| prediction.losses[0].value;
    assert!(loss(&five) > 0.0 && loss(&five) != loss(&six), "{}", loss(&five));
}

#[test]
fn no_two_drives_of_a_profile_turn_as_one() {
    let disk = |name| {
        format!("[[array]]\nsystem = \"disk\"\nname = \"on-{name}\"\nmembers = [\"{name}\"]\n")
    };
    let plan = plan(&format!("{}{}{LOADS}", disk("a"), disk("b")));
    // Both do the same at the same places. In half a second they may write as many blocks.
    let plan = Plan::parse(&plan.text.replace("500ms", "4s"), Path::new("/")).unwrap();
    let rate = |name| value(&predicted(&plan, &options(1, 1)), name, "random write", "rate").value;
    assert_ne!(rate("on-a"), rate("on-b"));
}

#[test]
fn disks_that_lie_over_each_other_are_told() {
    let overlapping = |at: &str| {
        let disks = format!(
            "[[disk]]\nmake = \"x1\"\nsize = \"64M\"\nprofile = \"hitachi-80\"\ndrive = \"x\"\n\
             [[disk]]\nmake = \"x2\"\nsize = \"64M\"\nprofile = \"hitachi-80\"\ndrive = \"x\"\n{at}\
             [[array]]\nlevel = 0\nmembers = [\"x1\", \"x2\"]\n{LOADS}"
        );
        let notes = predicted(&plan(&disks), &options(1, 1)).notes;
        notes.iter().any(|note| note.contains("\"x1\" and \"x2\" lie on the same blocks"))
    };
    assert!(overlapping(""));
    assert!(overlapping("at = \"63M\"\n"));
    assert!(!overlapping("at = \"64M\"\n"));
}

#[test]
fn a_rebuild_is_seen_beside_a_load() {
    let array = "[[array]]\nlevel = 1\nmembers = 2\nstates = [\"rebuilding\"]\n";
    let prediction = predicted(&plan(&format!("{array}{LOADS}")), &options(1, 1));
    let rate = value(&prediction, "raid1", "random write", "rebuild");
    // md's least, 1 MB/s of a member, or somewhat more.
    assert!((0.1e6..40e6).contains(&rate.value), "{rate:?}");
    let marks = &prediction.cases[0].runs[0].phases[0].series.marks;
    assert_eq!(marks[0].what, "rebuild");
}

#[test]
fn a_table_has_latencies_beside_their_phase_and_says_of_a_guess_that_it_is_one() {
    let array = "[[array]]\nlevel = 1\nmembers = 2\nstates = [\"healthy\", \"rebuilding\"]\n";
    let plan = plan(&format!("{array}{LOADS}"));
    let prediction = predicted(&plan, &options(1, 2));
    let told = table(&prediction);
    let row = |load: &str| {
        let row = told.lines().find(|line| line.contains(load)).map(str::to_owned);
        row.unwrap_or_else(|| panic!("{load} is not in {told}"))
    };
    let times = |row: &str| row.matches(" ms").count() + row.matches(" us").count();
    let load = row("  random write ");
    assert_eq!(times(&load), 2, "{load}");
    let rebuild = row("random write: rebuild");
    assert_eq!(times(&rebuild), 0, "{rebuild}");
    let numbers =
        |row: &str| row.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count();
    assert!(load.contains("a guess") && rebuild.contains("a guess"), "{told}");
    assert_eq!(numbers(&row("raid1  ")), numbers(&load) + 2, "from and to");
    let notes = prediction.notes.join("\n");
    assert!(notes.contains("a guess, without a bar: random write: one case"), "{notes}");
    let detail = prediction.cases[0].subject.detail.clone();
    assert!(detail.contains("a: 64 MiB of hitachi-80"), "{detail}");
}

#[test]
fn a_cable_costs_what_two_disks_on_it_take_from_each_other() {
    let disks = |holds| {
        let text = format!(
            "name = \"t\"\n[run]\ntime = \"1s\"\nwarm-up = \"100ms\"\n[[channel]]\nname = \"ide\"\nrate = \"100M\"\n\
             holds = {holds}\n[[disk]]\nmake = [\"a\", \"b\"]\nsize = \"128M\"\nprofile = \"hitachi-80\"\nchannel = \"ide\"\n\
             [[array]]\nlevel = 0\nmembers = 2\n{LOADS}"
        );
        let plan = Plan::parse(&text, Path::new("/")).unwrap();
        let read = value(&predicted(&plan, &options(1, 1)), "raid0", "read", "throughput");
        assert_eq!(read.low.is_none(), holds, "{read:?}");
        read.value
    };
    let (held, shared) = (disks(true), disks(false));
    assert!(held < 0.9 * shared, "{held} held, {shared} shared");
    assert!(shared < 105e6, "{shared}");
}

#[test]
fn bonnie_and_iozone_run_on_the_model_of_a_system() {
    let arrays = "[machine]\nmemory = \"256M\"\nlinux = \"2.6.32\"\nprocessor = \"xeon-e5520\"\n\
         [[array]]\nlevel = 0\nmembers = 4\nfilesystem = \"ext4\"\n\
         [[workload]]\nname = \"bonnie++\"\nlike = \"bonnie++\"\nsize = \"64M\"\nfast = true\n\
         [[workload]]\nname = \"iozone\"\nlike = \"iozone\"\nsize = \"32M\"\n\
         [[workload]]\nname = \"four\"\nlike = \"iozone\"\nsize = \"8M\"\nthreads = 4\n";
    let prediction = predicted(&plan(arrays), &options(1, 2));
    let bonnie = value(&prediction, "raid0", "bonnie++", "block output");
    assert!(bonnie.unit == "bytes/s" && bonnie.value > 20e6, "{bonnie:?}");
    assert_eq!(value(&prediction, "raid0", "bonnie++", "seeks").unit, "requests/s");
    assert!(value(&prediction, "raid0", "iozone", "reread").value > 50e6);
    let note = prediction.notes.iter().find(|note| note.contains("four on raid0"));
    assert!(note.is_some_and(|note| note.contains("one process")), "{:?}", prediction.notes);
}

#[test]
fn a_disk_that_is_there_needs_a_profile() {
    let text = "name = \"t\"\n[[disk]]\nname = \"a\"\npath = \"/dev/null@0+64M\"\n\
         [[array]]\nsystem = \"disk\"\nmembers = [\"a\"]\n[[workload]]\nname = \"r\"\npattern = \"uniform\"\n";
    let plan = Plan::parse(text, Path::new("/")).unwrap();
    let error = predict(&plan, &options(1, 1), &|_, _| ()).unwrap_err().to_string();
    assert!(error.contains("\"a\" has no profile") && error.contains("profile = "), "{error}");
    let named = Options { profile: Some(profile_named("hdd-4tb").unwrap()), ..options(1, 1) };
    assert_eq!(predicted(&plan, &named).cases.len(), 1);
}

#[test]
fn a_disk_beyond_its_drive_and_a_drive_of_two_kinds_are_refused() {
    let text = |disk: &str| {
        format!(
            "name = \"t\"\n[[disk]]\nmake = [\"a\"]\nsize = \"64M\"\nprofile = \"hitachi-80\"\ndrive = \"x\"\n\
             [[disk]]\nmake = [\"b\"]\nsize = \"64M\"\n{disk}\n[[array]]\nlevel = 0\nmembers = 2\n\
             [[workload]]\nname = \"r\"\npattern = \"uniform\"\n"
        )
    };
    let refused = |disk| {
        let plan = Plan::parse(&text(disk), Path::new("/")).unwrap();
        predict(&plan, &options(1, 1), &|_, _| ()).unwrap_err().to_string()
    };
    let error = refused("profile = \"hitachi-80\"\nat = \"80G\"");
    assert!(error.contains("\"b\" is to have"), "{error}");
    let error = refused("profile = \"hdd-4tb\"\ndrive = \"x\"");
    assert!(error.contains("two profiles"), "{error}");
}

#[test]
fn wrong_keys_are_problems_with_their_lines() {
    let wrong = |key: &str, expected: &str| {
        let text = format!(
            "name = \"t\"\n[[disk]]\nmake = [\"a\"]\nsize = \"64M\"\n{key}\n[[array]]\nsystem = \"disk\"\n\
             members = [\"a\"]\n[[workload]]\nname = \"r\"\npattern = \"uniform\"\n"
        );
        let problems = Plan::parse(&text, Path::new("/")).unwrap_err();
        assert!(
            problems.iter().any(|p| p.text.contains(expected) && p.line.is_some()),
            "{problems:?}"
        );
    };
    wrong("profile = \"abacus\"", "no profile that is built in");
    wrong("channel = \"ide\"", "there is no [[channel]]");
    wrong("[machine]\nprocessor = \"abacus\"", "there are duron-1300");
    wrong("[machine]\nlinux = \"newest\"", "no version of Linux");
    wrong("[[channel]]\nname = \"c\"\nrate = \"1M\"", "no disk is on channel");
}

#[test]
fn a_prediction_is_kept_as_one() {
    let plan = plan(&format!("[[array]]\nlevel = 0\nmembers = 2\n{LOADS}"));
    let options = options(2, 1);
    let prediction = predicted(&plan, &options);
    let mut store = Store::in_memory().unwrap();
    let id = keep(&plan, &prediction, &options, &mut store).unwrap();
    let stored = store.load(id).unwrap().unwrap();
    assert_eq!(stored.head.experiment.origin, Origin::Predicted);
    assert!(stored.head.finished_ms.is_some());
    let runs: usize = stored.cases.iter().map(|(_, runs)| runs.len()).sum();
    assert_eq!((stored.cases.len(), runs), (2, 4));
}

#[test]
fn a_controllers_cache_takes_small_writes() {
    let text = format!(
        "name = \"t\"\n[run]\ntime = \"500ms\"\nwarm-up = \"100ms\"\n[[controller]]\nname = \"hba\"\ncache = \"64M\"\n\
         [[disk]]\nmake = [\"a\", \"b\", \"c\", \"d\"]\nsize = \"64M\"\nprofile = \"hitachi-80\"\ncontroller = \"hba\"\n\
         [[disk]]\nmake = [\"e\", \"f\", \"g\", \"h\"]\nsize = \"64M\"\nprofile = \"hitachi-80\"\n\
         [[array]]\nname = \"own\"\nsystem = \"controller\"\nlevel = 10\nmembers = [\"a\", \"b\", \"c\", \"d\"]\n\
         [[array]]\nname = \"behind\"\nsystem = \"md\"\nlevel = 10\nmembers = [\"a\", \"b\", \"c\", \"d\"]\nbitmap = \"none\"\n\
         [[array]]\nname = \"bare\"\nsystem = \"md\"\nlevel = 10\nmembers = [\"e\", \"f\", \"g\", \"h\"]\nbitmap = \"none\"\n{LOADS}"
    );
    let plan = Plan::parse(&text, Path::new("/")).unwrap_or_else(|problems| panic!("{problems:?}"));
    let prediction = predicted(&plan, &options(1, 2));
    let writes = |array: &str| value(&prediction, array, "random write", "rate").value;
    let [own, behind, bare] = ["own", "behind", "bare"].map(writes);
    assert!(own > 2.0 * bare && behind > 2.0 * bare, "{own} own, {behind} behind it, {bare} bare");
    let has_bar = |array: &str| value(&prediction, array, "read", "throughput").low.is_some();
    assert!(!has_bar("own") && has_bar("behind") && has_bar("bare"));
}

#[test]
fn md_holds_what_it_writes_in_its_stripe_cache() {
    let array = "[[array]]\nsystem = \"md\"\nlevel = 5\nmembers = 4\nstripe-cache = [64, 8192]\n\
         [[workload]]\nname = \"write\"\npattern = \"sequential\"\nread = 0.0\nblock = \"1M\"\ndepth = 4\n";
    let prediction = predicted(&plan(array), &options(1, 2));
    let write = |array| value(&prediction, array, "write", "throughput").value;
    let (few, many) = (write("md-raid5-cache-64"), write("md-raid5-cache-8192"));
    assert!(few < 0.8 * many, "{few} with 64 pages, {many} with 8192");
}

#[test]
fn losses_are_told_by_redundancy_and_the_years_of_the_plan() {
    let arrays = "[care]\nyears = 3\n[[array]]\nlevel = [0, 5, 6]\nmembers = 4\n\
         [[array]]\nname = \"p\"\nlevel = 1\nmembers = [\"a\", \"b\"]\nmeasure = false\n\
         [[array]]\nname = \"q\"\nlevel = 1\nmembers = [\"c\", \"d\"]\nmeasure = false\n\
         [[array]]\nname = \"nested\"\nlevel = 0\nmembers = [\"p\", \"q\"]\n";
    let prediction = predicted(&plan(&format!("{arrays}{LOADS}")), &options(3, 2));
    let loss = |array| value(&prediction, array, "3 years", "loss of the array");
    let [raid0, raid5, raid6, nested] = ["raid0", "raid5", "raid6", "nested"].map(loss);
    assert!(raid6.value < raid5.value && raid5.value < raid0.value / 100.0, "{raid6:?} {raid5:?}");
    // A mirror's half of the disks that share data with one that failed: one of three.
    let part = nested.value / raid5.value;
    assert!((0.2..0.5).contains(&part), "{part}");
    for loss in [raid0, raid5, raid6, nested] {
        let [low, high] = ends(&loss).unwrap();
        assert!(loss.unit == "probability" && low < high, "{loss:?}");
        assert!(low <= loss.value && loss.value <= high, "{loss:?}");
    }
}

#[test]
fn predicted_sizes_old_versions_and_little_memory_are_heeded() {
    let arrays = |low: &str| {
        format!(
            "[machine]\nmemory = \"256M\"\n{low}\n[[array]]\nlevel = 0\nmembers = 4\nfilesystem = \"ext3\"\n\
             [[workload]]\nname = \"b\"\nlike = \"bonnie++\"\nversion = \"1.03\"\nsize = \"16M\"\nsize-predicted = \"48M\"\n\
             [[workload]]\nname = \"i\"\nlike = \"iozone\"\nsize = \"16M\"\ntests = 0\n"
        )
    };
    let all = predicted(&plan(&arrays("")), &options(1, 2));
    let written = &all.cases[0].runs[0].phases[0];
    assert_eq!((written.name.as_str(), written.write.bytes), ("per-character output", 48 << 20));
    let little = predicted(&plan(&arrays("low-memory = \"16M\"")), &options(1, 2));
    let write = |prediction| value(prediction, "raid0", "i", "write").value;
    assert!(write(&little) < 0.8 * write(&all), "{} {}", write(&little), write(&all));
}

#[test]
fn a_resync_is_told_of_arrays_with_a_bitmap() {
    let array = "[[array]]\nlevel = 5\nmembers = 4\nbitmap = [\"internal\", \"none\"]\n";
    let prediction = predicted(&plan(&format!("{array}{LOADS}")), &options(1, 2));
    let time = |array| value(&prediction, array, "resync", "time").value;
    let part = time("raid5-bitmap-internal") / time("raid5-bitmap-none");
    assert!((0.9..1.1).contains(&part), "{part}");
}

/// As Linux 7.2 was seen to: beside random requests well above the minimum speed.
#[test]
fn linux_of_6_16_makes_copies_beside_a_load_as_without() {
    let rate = |linux: &str| {
        let array = format!(
            "[[disk]]\nmake = [\"e\", \"f\"]\nsize = \"8G\"\nprofile = \"ssd-sata-1tb\"\n\
             [machine]\nlinux = \"{linux}\"\n\
             [[array]]\nsystem = \"md\"\nlevel = 1\nmembers = [\"e\", \"f\"]\n\
             bitmap = \"none\"\nstates = [\"rebuilding\"]\n\
             [[workload]]\nname = \"x\"\npattern = \"uniform\"\ndepth = 4\ntime = \"3s\"\n"
        );
        let prediction = predicted(&plan(&array), &options(1, 1));
        value(&prediction, "md-raid1", "x", "rebuild").value
    };
    let [before, since] = ["6.15", "6.16"].map(rate);
    assert!(since > 10.0 * before, "{since} {before}");
}

#[test]
fn a_load_beside_a_rebuild_gets_its_writes_whatever_is_drawn() {
    let array = "[[array]]\nlevel = 1\nmembers = 2\nstates = [\"rebuilding\"]\n";
    let load = "[[workload]]\nname = \"write\"\npattern = \"sequential\"\nread = 0.0\nblock = \"64K\"\ndepth = 4\n";
    let plan = plan(&format!("{array}{load}"));
    let plan = plan.text.replace("64M", "20G").replace("hitachi-80", "seagate-250-x510");
    let prediction = predicted(&Plan::parse(&plan, Path::new("/")).unwrap(), &options(6, 2));
    // Rebuilding gives way, to 1 MB/s.
    let written = value(&prediction, "raid1", "write", "throughput");
    assert!(written.value > 70e6 && written.low.is_none(), "{written:?}");
}

#[test]
fn a_bitmap_at_the_end_of_disks_costs_more_of_a_stream_than_one_at_their_start() {
    let arrays = "[[array]]\nsystem = \"md\"\nlevel = 5\nmembers = 3\nmetadata = [\"0.90\", \"1.2\"]\nbitmap = \"internal\"\n\
                  bitmap-chunk = \"4M\"\n";
    let plan = plan(&format!("{arrays}{LOADS}").replace("read = 0.0\ndepth = 8", "read = 0.0\ndepth = 8\n\
                  [[workload]]\nname = \"write\"\npattern = \"sequential\"\nread = 0.0\nblock = \"1M\"\ndepth = 4"));
    let plan = plan.text.replace("\"64M\"", "\"40G\"").replace("500ms", "3s");
    let prediction = predicted(&Plan::parse(&plan, Path::new("/")).unwrap(), &options(1, 2));
    let of = |array| value(&prediction, array, "write", "throughput").value;
    let (end, start) = (of("md-raid5-metadata-0.90"), of("md-raid5-metadata-1.2"));
    assert!(end < 0.95 * start, "{end} {start}");
}

const FIO: &str = "[[array]]\nsystem = \"disk\"\nname = \"one\"\nmembers = [\"a\"]\n\
     [[array]]\nname = \"raid0\"\nsystem = \"md\"\nlevel = 0\nmembers = 4\n";

fn fio(job: &str) -> String {
    format!("{FIO}[[workload]]\nname = \"fio\"\nprogram = \"fio\"\njob = \"\"\"\n{job}\"\"\"\n")
}

#[test]
fn a_job_of_fios_is_what_the_same_load_of_the_labs_own_is() {
    let job = "[a]\ndirect=1\nioengine=libaio\niodepth=8\nrw=randread\nramp_time=100ms\nruntime=500ms\ntime_based\nnorandommap\n";
    let own = "[[workload]]\nname = \"own\"\npattern = \"uniform\"\ndepth = 8\n";
    let prediction = predicted(&plan(&format!("{}{own}", fio(job))), &options(1, 2));
    for array in ["one", "raid0"] {
        let own = value(&prediction, array, "own", "rate").value * 4096.0;
        let job = value(&prediction, array, "fio", "read").value;
        assert!((0.9..1.1).contains(&(job / own)), "{array}: {job} {own}");
    }
    assert!(value(&prediction, "raid0", "fio", "read").evidence.contains("reads without order"));
}

#[test]
fn jobs_follow_each_other_and_each_direction_is_a_phase() {
    let job = "[global]\ndirect=1\nsize=16m\nbs=64k\n[fill]\nrw=write\n[mix]\nstonewall\nrw=rw\nnumjobs=2\nsize=4m\n";
    let prediction = predicted(&plan(&fio(job)), &options(1, 2));
    let phases = &prediction.cases[1].runs[0].phases;
    let told: Vec<(&str, u64)> = phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.read.bytes + phase.write.bytes))
        .collect();
    let [("1 write", filled), ("2 read", read), ("2 write", written)] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((filled, read + written), (16 << 20, 8 << 20));
    // What is read was just written, and nothing of it is kept but in the disks' buffers.
    assert!(phases[0].seconds > 0.0 && phases[1].seconds == phases[2].seconds);
}

#[test]
fn a_job_that_is_not_understood_or_has_no_room_is_told_and_has_no_figure() {
    let told = |job: &str, more: &str| {
        let text = format!("{}{more}", fio(job));
        match predict(&plan(&text), &options(1, 1), &|_, _| ()) {
            Err(LabError::Unpredictable { faults }) => faults.join("; "),
            Err(error) => panic!("{error}"),
            Ok(prediction) => prediction.cases[0].runs[0].error.clone().unwrap_or_default(),
        }
    };
    let why = told("[a]\ndirect=1\nverify=md5\n", "");
    assert!(why.contains("its job file: line 3: verify is not understood"), "{why}");
    let why = told("[a]\ndirect=1\nrw=read\nsize=1g\n", "");
    assert!(why.contains("the array has"), "{why}");
}
