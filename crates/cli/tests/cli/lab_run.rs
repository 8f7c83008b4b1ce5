//! `lapstrake lab check` and `lab run`: plans are explained, carried out, interrupted, resumed, and leave nothing behind.

use crate::support::LoopDevices;
use lapstrake_lab::record::{Phase, Run, SubjectKind};
use lapstrake_lab::store::{Store, Stored};
use lapstrake_not_run::not_run;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LAPSTRAKE: &str = env!("CARGO_BIN_EXE_lapstrake");

/// A plan of the null subject, a disk and a RAID5 in process and over NBD.
fn plan(dir: &Path, more: &str) {
    let text = format!(
        r#"
name = "small"
[run]
repeats = 2
repeats-max = 2
warm-up = "10ms"
time = "300ms"
directory = "work"
[[disk]]
make = ["a", "b", "c"]
size = "16M"
[[array]]
system = "null"
[[array]]
system = "disk"
members = ["a"]
[[array]]
name = "five"
level = 5
chunk = "64K"
members = 3
over = ["process", "nbd"]
{more}
[[workload]]
name = "write"
pattern = "sequential"
read = 0.0
block = "128K"
depth = 4
amount = "4M"
[[workload]]
name = "mix"
pattern = "uniform"
read = 0.5
depth = 4
"#
    );
    fs::create_dir_all(dir.join("work")).unwrap();
    fs::write(dir.join("plan.toml"), text).unwrap();
}

/// A directory that no other program's I/O keeps waiting, where there is one.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn lab(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(LAPSTRAKE);
    command.arg("lab").args(arguments).current_dir(dir);
    command
}

fn output(dir: &Path, arguments: &[&str]) -> Output {
    lab(dir, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn stored(dir: &Path) -> Stored {
    let store = Store::open_to_read(&dir.join("lab.sqlite")).unwrap();
    let experiments = store.experiments().unwrap();
    assert_eq!(experiments.len(), 1, "a run that is resumed stays one experiment");
    store.load(experiments[0].id).unwrap().expect("it is there")
}

/// Rounds of each case: all there, once.
fn assert_whole(stored: &Stored, cases: usize) {
    assert_eq!(stored.cases.len(), cases);
    for (case, runs) in &stored.cases {
        let rounds: Vec<u32> = runs.iter().map(|run| run.round).collect();
        assert_eq!(rounds, [0, 1], "{} {} {}", case.subject.name, case.state, case.workload.name);
        for run in runs {
            assert_eq!(run.error, None, "{} {}", case.subject.name, case.workload.name);
        }
    }
    assert!(stored.head.finished_ms.is_some());
}

fn runs<'a>(stored: &'a Stored, subject: &str, workload: &str) -> &'a [Run] {
    let is_it = |name: &str, load: &str| name == subject && load == workload;
    let found = stored.cases.iter().find(|(c, _)| is_it(&c.subject.name, &c.workload.name));
    &found.unwrap_or_else(|| panic!("no {subject} with {workload}")).1
}

#[test]
fn a_small_plan_is_carried_out_and_everything_is_kept() {
    let dir = in_memory();
    plan(dir.path(), "");
    let done = output(dir.path(), &["run", "plan.toml", "--json"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&told["ending"], &told["runs"], &told["failures"]),
        (&"done".into(), &16.into(), &0.into())
    );

    let stored = stored(dir.path());
    assert_whole(&stored, 8);
    for (case, runs) in &stored.cases {
        for run in runs.iter().filter(|_| case.workload.name == "write") {
            let phase = &run.phases[0];
            assert_eq!(
                (phase.write.bytes, phase.write.requests),
                (4 << 20, 32),
                "{}",
                case.subject.name
            );
            assert_eq!(phase.write.latency.as_ref().map(|latency| latency.count()), Some(32));
            assert!(phase.whole && phase.figure.value > 0.0);
        }
        if case.workload.name == "mix" {
            let phases: Vec<&Phase> = runs.iter().map(|run| &run.phases[0]).collect();
            assert!(phases.iter().all(|p| p.seconds == 0.3 && p.series.interval_ms == 100));
            // Over all rounds: in one alone a busy machine may have answered nothing.
            let (read, written) = phases.iter().fold((0, 0), |(read, written), phase| {
                (read + phase.read.requests, written + phase.write.requests)
            });
            assert!(read > 0 && written > 0, "{}: {read} {written}", case.subject.name);
        }
    }
    // Four KiB of parity to eight of data; superblocks come on top.
    for name in ["five-in-process", "five-nbd"] {
        for run in runs(&stored, name, "write") {
            let amplification = run.phases[0].write_amplification().unwrap();
            assert!((1.4..2.5).contains(&amplification), "{name}: {amplification}");
            let members = &run.phases[0].members;
            let names: Vec<&str> = members.iter().map(|member| &*member.member).collect();
            assert_eq!(names, ["a", "b", "c"], "{name}");
            assert!(members.iter().all(|member| member.written_bytes > 1 << 20), "{members:?}");
        }
    }
    // Forth in one round and back in the other.
    let positions = |name| -> Vec<u32> {
        runs(&stored, name, "write").iter().map(|run| run.position).collect()
    };
    assert_eq!(positions("null"), [0, 6]);
    assert_eq!(positions("five-nbd"), [6, 0]);
    let served = &runs(&stored, "five-nbd", "mix")[0].phases[0].cpu;
    assert!(served.processes.contains_key("lapstrake serve"), "{served:?}");
    let facts = &stored.head.experiment.facts;
    assert!(!facts.kernel.is_empty() && facts.cpus > 0 && facts.devices.len() == 3);
    let five = stored.cases.iter().find(|(case, _)| case.subject.name == "five-nbd").unwrap();
    assert_eq!(five.0.subject.kind, SubjectKind::Lapstrake);
    let size = five.0.subject.size.unwrap();
    assert_eq!(size.raw_bytes, 48 << 20);
    assert!((20 << 20..32 << 20).contains(&size.usable_bytes), "{size:?}");
    assert_eq!(fs::read_dir(dir.path().join("work")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn states_are_measured_and_verified() {
    let dir = TempDir::new().unwrap();
    let more = "states = [\"healthy\", { missing = \"b\" }, { rebuilding = \"b\" }]\nsync-speed-max = \"1M\"\n\
                [[workload]]\nname = \"verify\"\npattern = \"uniform\"\nread = 0.3\nverify = true\ndepth = 8\namount = \"2M\"\n";
    plan(dir.path(), more);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let log = text(&done.stderr);
    assert!(log.contains("round 1: 0% is done, about "), "{log}");
    assert!(log.contains("round 2: ") && !log.contains(", write: "), "a line a round: {log}");
    let stored = stored(dir.path());
    // The null subject has nothing to verify; two arrays are measured in three states.
    assert_whole(&stored, 2 + 3 + 2 * 3 * 3);
    for (case, runs) in &stored.cases {
        let label = format!("{} {} {}", case.subject.name, case.state, case.workload.name);
        for run in runs {
            if case.state.to_string().starts_with("rebuilding") && case.workload.name == "mix" {
                assert_eq!(run.phases[0].series.marks[0].what, "rebuild", "{label}");
            }
            if case.workload.name == "verify" {
                assert!(run.raw.contains("reads were verified"), "{label}: {}", run.raw);
            }
        }
    }
}

/// Starts a run, and waits until `count` runs are kept.
fn begun(dir: &Path, arguments: &[&str], count: usize) -> Child {
    let mut child =
        lab(dir, arguments).arg("-v").stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut all = lines
        .map(Result::unwrap)
        .filter(|line| line.contains(", write: ") || line.contains(", mix: "));
    for _ in 0..count {
        // A line comes before its run is kept; the next one comes after.
        all.next().expect("--verbose tells runs one by one");
    }
    child
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: our own child, which was not waited for yet.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

#[test]
fn an_interrupted_run_is_resumed() {
    let dir = TempDir::new().unwrap();
    plan(dir.path(), "");
    let mut child = begun(dir.path(), &["run", "plan.toml"], 6);
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(fs::read_dir(dir.path().join("work")).unwrap().count(), 0, "nothing is left");
    let kept: usize = stored(dir.path()).cases.iter().map(|(_, runs)| runs.len()).sum();
    assert!((5..16).contains(&kept), "{kept}");
    let done = output(dir.path(), &["run", "plan.toml", "--resume", "--json"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["runs"], 16 - kept);
    assert_whole(&stored(dir.path()), 8);
    let again = output(dir.path(), &["run", "plan.toml", "--resume"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("no unfinished run of this very plan"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn a_killed_run_keeps_what_was_done_and_the_next_clears_up_after_it() {
    let dir = TempDir::new().unwrap();
    plan(dir.path(), "");
    // In the second subject's second load, so that an image lies about.
    let mut child = begun(dir.path(), &["run", "plan.toml"], 4);
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    let kept: usize = stored(dir.path()).cases.iter().map(|(_, runs)| runs.len()).sum();
    assert!((3..16).contains(&kept), "{kept}");
    let done = output(dir.path(), &["run", "plan.toml", "--resume"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_whole(&stored(dir.path()), 8);
    assert_eq!(fs::read_dir(dir.path().join("work")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn check_tells_errors_by_line_and_else_every_command() {
    let dir = TempDir::new().unwrap();
    plan(dir.path(), "levels = 5\n");
    let wrong = output(dir.path(), &["check", "plan.toml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("plan.toml:23: unknown field `levels`; did you mean level?"),
        "{}",
        text(&wrong.stderr)
    );
    plan(dir.path(), "");
    for arguments in [&["check", "plan.toml"][..], &["run", "--dry-run", "plan.toml"]] {
        let good = output(dir.path(), arguments);
        assert!(good.status.success());
        let told = text(&good.stdout);
        for part in [
            "create lab --homehost none",
            "serve ",
            "dd if=/dev/zero",
            "8 cases, 2 to 2 repeats",
            "├─ a: image of 16M",
        ] {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
    }
    assert!(
        !dir.path().join("lab.sqlite").exists()
            && fs::read_dir(dir.path().join("work")).unwrap().next().is_none()
    );
}

#[test]
fn a_disk_of_the_users_is_not_touched_without_leave() {
    let dir = TempDir::new().unwrap();
    let disk = dir.path().join("mine.img");
    fs::write(&disk, vec![7; 16 << 20]).unwrap();
    let made = "[[array]]\nname = \"mine\"\nsystem = \"disk\"\nmembers = [\"x\"]\n[[disk]]\nname = \"x\"\npath = \"mine.img\"\n";
    for (more, arguments, words) in [
        (made.to_owned(), &["run", "plan.toml"][..], "does not call it expendable"),
        (format!("{made}expendable = true\n"), &["run", "plan.toml"][..], "--destroy allows it"),
    ] {
        plan(dir.path(), &more);
        let refused = output(dir.path(), arguments);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
        assert!(fs::read(&disk).unwrap().iter().all(|byte| *byte == 7));
    }
    let done = output(dir.path(), &["run", "--destroy", "plan.toml"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(fs::read(&disk).unwrap().iter().any(|byte| *byte != 7));
}

/// Loop devices, mounts and FUSE: what servers, kernels and tools make of an array.
#[test]
fn layers_filesystems_and_nested_arrays_are_measured() {
    let has = |path: &str| Path::new(path).exists();
    if !is_root() || !has("/dev/fuse") || !has("/dev/loop-control") || !has("/sbin/mkfs.ext4") {
        not_run("layers: they need root, /dev/fuse, loop devices and mkfs.ext4");
        return;
    }
    let dir = TempDir::new().unwrap();
    let text = r#"
name = "layers"
[run]
repeats = 2
repeats-max = 2
warm-up = "0ms"
time = "50ms"
directory = "work"
[[disk]]
make = ["a", "b", "c", "d"]
size = "48M"
[[array]]
name = "left"
level = 1
members = ["a", "b"]
measure = false
[[array]]
name = "right"
level = 1
members = ["c", "d"]
measure = false
[[array]]
name = "nested"
level = 0
chunk = "64K"
members = ["left", "right"]
over = ["process", "fuse", "loop"]
[[array]]
name = "ext4"
level = 10
chunk = "64K"
members = 4
filesystem = "ext4"
read-ahead = "1M"
[[workload]]
name = "write"
pattern = "sequential"
read = 0.0
block = "128K"
amount = "4M"
file-size = "8M"
fsync-end = true
[[workload]]
name = "bonnie++"
like = "bonnie++"
size = "8M"
files = 64
fast = true
[[workload]]
name = "iozone"
like = "iozone"
size = "2M"
threads = 2
"#;
    fs::create_dir_all(dir.path().join("work")).unwrap();
    fs::write(dir.path().join("plan.toml"), text).unwrap();
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let stored = stored(dir.path());
    assert_whole(&stored, 3 + 3);
    for name in ["nested-in-process", "nested-fuse", "nested-loop", "ext4"] {
        let phase = &runs(&stored, name, "write")[0].phases[0];
        assert_eq!(phase.write.bytes, 4 << 20, "{name}");
    }
    let bonnie = &runs(&stored, "ext4", "bonnie++")[0].phases;
    assert_eq!(bonnie.len(), 4 + 6);
    assert!(bonnie.iter().all(|phase| phase.figure.value > 0.0));
    let nested = stored.cases.iter().find(|(case, _)| case.subject.name == "nested-loop").unwrap();
    assert!(
        nested.0.subject.detail.contains("├─ left: Lapstrake, raid1 of 2"),
        "{}",
        nested.0.subject.detail
    );
    assert_eq!(fs::read_dir(dir.path().join("work")).unwrap().count(), 0, "nothing is left");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(dir.path().to_str().unwrap()), "{mounts}");
}

fn text_of(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// A plan of what needs neither root nor time.
fn light(dir: &Path, rules: &str, arrays: &str, workloads: &str) {
    let text =
        format!("name = \"light\"\n[run]\ndirectory = \"work\"\n{rules}\n{arrays}\n{workloads}");
    fs::create_dir_all(dir.join("work")).unwrap();
    fs::write(dir.join("plan.toml"), text).unwrap();
}

const NULL: &str = "[[array]]\nsystem = \"null\"\n";
const QUICK: &str = "[[workload]]\nname = \"w\"\npattern = \"uniform\"\nread = 0.5\ntime = \"20ms\"\nwarm-up = \"0ms\"\n";

#[test]
fn rounds_end_when_intervals_are_narrow_and_at_the_most_at_their_maximum() {
    for (interval, rounds) in [("100%", 2), ("0%", 4)] {
        let dir = TempDir::new().unwrap();
        let rules = format!("repeats = 2\nrepeats-max = 4\ninterval = \"{interval}\"");
        light(dir.path(), &rules, NULL, QUICK);
        let done = output(dir.path(), &["run", "plan.toml"]);
        assert!(done.status.success(), "{}", text_of(&done));
        assert_eq!(stored(dir.path()).cases[0].1.len(), rounds, "{interval}");
    }
}

#[test]
fn a_budget_that_is_spent_ends_a_run() {
    let dir = TempDir::new().unwrap();
    light(dir.path(), "budget = \"1ms\"", NULL, QUICK);
    let done = output(dir.path(), &["run", "plan.toml", "--json"]);
    assert_eq!(done.status.code(), Some(3), "{}", text_of(&done));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&told["ending"], &told["runs"]), (&"out of time".into(), &0.into()));
}

#[test]
fn a_plan_of_which_nothing_can_be_measured_is_an_error() {
    if Path::new("/proc/mdstat").exists() {
        not_run("a plan of nothing that can be measured: this kernel has md");
        return;
    }
    let dir = TempDir::new().unwrap();
    let arrays = "[[disk]]\nmake = [\"a\", \"b\"]\nsize = \"16M\"\n\
                  [[array]]\nname = \"pair\"\nsystem = \"md\"\nlevel = 1\nmembers = 2\n";
    light(dir.path(), "", arrays, QUICK);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert_eq!(done.status.code(), Some(1), "{}", text_of(&done));
    let said = text(&done.stderr);
    assert!(said.contains("pair is not measured: this kernel has no md"), "{said}");
    assert!(said.contains("no array of light can be measured on this machine"), "{said}");
    let store = Store::open_to_read(&dir.path().join("lab.sqlite")).unwrap();
    assert_eq!(store.experiments().unwrap().len(), 0);
}

#[test]
fn a_budget_that_is_spent_after_the_least_repeats_is_enough() {
    let dir = TempDir::new().unwrap();
    let rules = "budget = \"5s\"\nrepeats = 2\nrepeats-max = 100000\ninterval = \"0%\"";
    light(dir.path(), rules, NULL, QUICK);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    assert!(text(&done.stdout).contains("done") || text(&done.stderr).contains("done"));
    let runs = stored(dir.path()).cases[0].1.len();
    assert!((2..100_000).contains(&runs), "{runs}");
}

#[test]
fn a_directory_that_exists_is_measured_and_left_as_it_was() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    fs::write(dir.path().join("there/mine"), "mine").unwrap();
    let array = "[[array]]\nname = \"there\"\nsystem = \"existing\"\npath = \"there\"\n";
    let mut loads = format!("{QUICK}file-size = \"1M\"\n");
    loads +=
        "[[workload]]\nname = \"b\"\nlike = \"bonnie++\"\nsize = \"1M\"\nfiles = 16\nfast = true\n";
    light(dir.path(), "repeats = 2\nrepeats-max = 2", array, &loads);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    assert_whole(&stored(dir.path()), 2);
    assert_eq!(fs::read(dir.path().join("there/mine")).unwrap(), b"mine");
    let left = fs::read_dir(dir.path().join("there")).unwrap().count();
    assert_eq!(left, 1, "the lab's own files are gone");
}

fn is_missing(files: &[&str]) -> bool {
    let missing = files.iter().find(|file| !Path::new(file).exists());
    if let Some(file) = missing {
        not_run(format_args!("there is no {file}; `make setup` installs it"));
    }
    missing.is_some()
}

fn is_root() -> bool {
    // SAFETY: asks only.
    let is_root = unsafe { libc::geteuid() == 0 };
    if !is_root {
        not_run("loop devices and mounts need root");
    }
    is_root
}

#[test]
fn the_parity_of_btrfs_is_no_space_for_data() {
    if !is_root() || is_missing(&["/dev/loop-control", "/sbin/mkfs.btrfs"]) {
        return;
    }
    let dir = in_memory();
    let arrays = "[[disk]]\nmake = [\"a\", \"b\", \"c\", \"d\"]\nsize = \"256M\"\n\
                  [[array]]\nname = \"five\"\nsystem = \"btrfs\"\nlevel = 5\nmembers = 4\n";
    let loads = format!("{QUICK}file-size = \"8M\"\n");
    light(dir.path(), "repeats = 1\nrepeats-max = 1", arrays, &loads);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let size = stored(dir.path()).cases[0].0.subject.size.expect("a size");
    assert_eq!(size.raw_bytes, 4 * (256 << 20));
    let share = size.usable_bytes as f64 / size.raw_bytes as f64;
    assert!((0.3..0.75).contains(&share), "{share}");
}

#[test]
fn what_a_killed_run_mounted_is_taken_down_before_its_disks_are_looked_at() {
    if !is_root() || is_missing(&["/dev/loop-control", "/sbin/mkfs.btrfs"]) {
        return;
    }
    let dir = in_memory();
    let image = |name: &str| {
        let path = dir.path().join(name);
        fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).unwrap();
        path
    };
    let what = "a killed run on devices";
    let Some(loops) = LoopDevices::over(&[image("a"), image("b")], &[], what) else { return };
    let disk = |(name, path): (&str, &String)| {
        format!("[[disk]]\nname = \"{name}\"\npath = \"{path}\"\nexpendable = true\n")
    };
    let disks: String = ["a", "b"].into_iter().zip(&loops.0).map(disk).collect();
    let array = "[[array]]\nname = \"one\"\nsystem = \"btrfs\"\nlevel = 1\nmembers = 2\n";
    let load = |name: &str| {
        format!("{}file-size = \"8M\"\n", QUICK.replace("\"w\"", &format!("\"{name}\"")))
    };
    let rules = "repeats = 2\nrepeats-max = 2";
    light(dir.path(), rules, &(disks + array), &(load("write") + &load("mix")));
    let leave = ["--destroy", "--overwrite", &loops.0[0], "--overwrite", &loops.0[1]];
    let words = |first: &[&'static str]| [first, &leave].concat();
    let mut child = begun(dir.path(), &words(&["run", "plan.toml"]), 1);
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    let work = dir.path().join("work").display().to_string();
    let is_mounted = || fs::read_to_string("/proc/self/mounts").unwrap().contains(&work);
    assert!(is_mounted(), "killed with the filesystem mounted");
    let done = output(dir.path(), &words(&["run", "plan.toml", "--resume"]));
    assert!(done.status.success(), "{}", text_of(&done));
    assert!(text_of(&done).contains("an earlier run left something: umount"), "{}", text_of(&done));
    assert_whole(&stored(dir.path()), 2);
    assert!(!is_mounted());
}

#[test]
fn fio_is_run_as_a_client_and_its_figures_are_read() {
    if is_missing(&["/usr/bin/fio"]) {
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    let array = "[[array]]\nname = \"there\"\nsystem = \"existing\"\npath = \"there\"\n";
    let job = "[[workload]]\nname = \"fio\"\nprogram = \"fio\"\njob = \"[j]\\nrw=randread\\nbs=4k\\nsize=1M\\nunlink=1\\n\"\n";
    light(dir.path(), "repeats = 2\nrepeats-max = 2", array, job);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let stored = stored(dir.path());
    assert_whole(&stored, 1);
    let run = &runs(&stored, "there", "fio")[0];
    let read: u64 = run.phases.iter().map(|phase| phase.read.bytes).sum();
    assert_eq!(read, 1 << 20);
    assert!(run.raw.contains("\"fio version\""));
    assert_eq!(stored.cases[0].0.workload.runner, "fio");
}

#[test]
fn bonnie_is_run_as_a_client_and_its_figures_are_read() {
    if is_missing(&["/usr/sbin/bonnie++"]) {
        return;
    }
    let dir = in_memory();
    fs::create_dir(dir.path().join("there")).unwrap();
    let array = "[[array]]\nname = \"there\"\nsystem = \"existing\"\npath = \"there\"\n";
    let arguments = "arguments = [\"-s\", \"16\", \"-r\", \"8\", \"-n\", \"0\", \"-x\", \"2\"]";
    let load = format!("[[workload]]\nname = \"b\"\nprogram = \"bonnie++\"\n{arguments}\n");
    light(dir.path(), "repeats = 1\nrepeats-max = 1", array, &load);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let stored = stored(dir.path());
    assert_eq!(stored.cases[0].0.workload.runner, "bonnie++");
    let run = &runs(&stored, "there", "b")[0];
    // What was too fast to be measured is left out; characters never are.
    for name in ["1 per-character output", "2 per-character output"] {
        let phase = run.phases.iter().find(|phase| phase.name == name);
        assert!(phase.is_some_and(|phase| phase.figure.value > 0.0), "{name}: {}", run.raw);
    }
    assert_eq!(fs::read_dir(dir.path().join("there")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn hdparm_is_run_on_a_block_device() {
    if !is_root() || is_missing(&["/usr/sbin/hdparm", "/dev/loop-control", "/dev/fuse"]) {
        not_run("hdparm on an array: it needs root and these");
        return;
    }
    let dir = TempDir::new().unwrap();
    let array = "[[disk]]\nmake = [\"a\", \"b\"]\nsize = \"32M\"\n\
                 [[array]]\nname = \"pair\"\nlevel = 0\nmembers = 2\nover = \"loop\"\nread-ahead = \"1M\"\n";
    let load = "[[workload]]\nname = \"h\"\nprogram = \"hdparm\"\n";
    light(dir.path(), "repeats = 1\nrepeats-max = 1", array, load);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let stored = stored(dir.path());
    let run = &runs(&stored, "pair", "h")[0];
    assert!(run.phases[0].figure.value > 0.0 && run.raw.contains("/dev/loop"), "{}", run.raw);
}

#[test]
fn a_dry_run_tells_what_programs_are_called_with() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    let array = "[[array]]\nname = \"there\"\nsystem = \"existing\"\npath = \"there\"\n";
    let loads = "[[workload]]\nname = \"pg\"\nprogram = \"pgbench\"\nscale = 7\ntime = \"9s\"\n\
                 [[workload]]\nname = \"f\"\nprogram = \"fio\"\njob = \"[j]\"\n\
                 [[workload]]\nname = \"b\"\nprogram = \"bonnie++\"\narguments = [\"-s\", \"1g\"]\n";
    light(dir.path(), "", array, loads);
    let told = text(&output(dir.path(), &["run", "--dry-run", "plan.toml"]).stdout);
    let there = fs::canonicalize(dir.path().join("there")).unwrap();
    for part in [
        format!("own=$(mktemp --directory {}/lapstrake-lab.XXXXXX)", there.display()),
        "initdb --pgdata {own}/lapstrake-lab-pgdata".into(),
        "pgbench --initialize --quiet --scale 7 --host".into(),
        "--username lab --command CHECKPOINT lab".into(),
        "--time 9 --protocol prepared --log".into(),
        "fio --output-format=json+ ".into(),
        "bonnie++ -q -d {own}".into(),
    ] {
        assert!(told.contains(&part), "no {part:?} in {told}");
    }
    assert_eq!(fs::read_dir(there).unwrap().count(), 0, "nothing was done");
}

/// A plan of a directory with a PostgreSQL in it, where there is one.
fn with_postgresql() -> Option<TempDir> {
    // Debian's, whatever its version.
    let servers = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    if !servers.into_iter().any(|entry| entry.path().join("bin/initdb").exists()) {
        is_missing(&["/usr/lib/postgresql/*/bin/initdb"]);
        return None;
    }
    let dir = TempDir::new().unwrap();
    // PostgreSQL refuses to be root's; its user has to get there.
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    let array = "[[array]]\nname = \"there\"\nsystem = \"existing\"\npath = \"there\"\n";
    let load = "[[workload]]\nname = \"pg\"\nprogram = \"pgbench\"\nscale = 1\nclients = 2\ntime = \"1s\"\nconfiguration = \"fsync = off\"\n";
    light(dir.path(), "repeats = 1\nrepeats-max = 1", array, load);
    Some(dir)
}

#[test]
fn a_killed_run_leaves_its_postgresql_to_the_next() {
    // While initdb runs, which clears up when it is told to end; and when the server does, which is told to by nobody.
    let marks =
        ["there/lapstrake-lab-pgdata/postmaster.pid", "work/lapstrake-lab-light/pg/server.log"];
    for mark in marks {
        let Some(dir) = with_postgresql() else { return };
        let mut child = lab(dir.path(), &["run", "plan.toml"]).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(120);
        let is_there = || match mark.strip_prefix("there/") {
            Some(inner) => {
                let own = fs::read_dir(dir.path().join("there")).unwrap().flatten();
                own.into_iter().any(|own| own.path().join(inner).exists())
            }
            None => dir.path().join(mark).exists(),
        };
        while !is_there() {
            assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "{mark}");
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&child, libc::SIGKILL);
        child.wait().unwrap();
        let done = output(dir.path(), &["run", "plan.toml", "--resume"]);
        assert!(done.status.success(), "{mark}: {}", text_of(&done));
        let told = text(&done.stderr);
        assert!(told.contains("an earlier run left something: "), "{mark}: {told}");
        let left = fs::read_dir(dir.path().join("there")).unwrap().count();
        assert_eq!(left, 0, "{mark}: nothing is left");
    }
}

#[test]
fn what_is_in_an_existing_directory_stays_as_it_is() {
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("there");
    fs::create_dir_all(there.join("Bonnie.files")).unwrap();
    let theirs = ["Bonnie.files/mine", "Bonnie.lab", "lapstrake-lab.dat", "f.0.0", "iozone.lab.0"];
    theirs.iter().for_each(|name| fs::write(there.join(name), name).unwrap());
    let array = "[[array]]\nname = \"there\"\nsystem = \"existing\"\npath = \"there\"\n";
    let mut loads = format!(
        "{QUICK}file-size = \"1M\"\n\
         [[workload]]\nname = \"b\"\nlike = \"bonnie++\"\nsize = \"4M\"\nfiles = 1\n\
         [[workload]]\nname = \"i\"\nlike = \"iozone\"\nsize = \"1M\"\n"
    );
    if !is_missing(&["/usr/bin/fio"]) {
        loads += "[[workload]]\nname = \"f\"\nprogram = \"fio\"\njob = \"[f]\\nrw=write\\nsize=1M\\n\"\n";
    }
    light(dir.path(), "repeats = 1\nrepeats-max = 1", array, &loads);
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    theirs.iter().for_each(|name| assert_eq!(fs::read_to_string(there.join(name)).unwrap(), *name));
    assert_eq!(fs::read_dir(&there).unwrap().count(), 5, "nothing is left");
}

#[test]
fn a_work_directory_that_is_not_the_labs_is_left_alone() {
    let dir = TempDir::new().unwrap();
    light(dir.path(), "repeats = 1\nrepeats-max = 1", NULL, QUICK);
    let (work, mine) = (dir.path().join("work/lapstrake-lab-light"), dir.path().join("mine"));
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("a.img"), "mine").unwrap();
    let refused = |what: &str| {
        let refused = output(dir.path(), &["run", "plan.toml"]);
        let said = text_of(&refused);
        assert!(refused.status.code() == Some(1), "{what}: {said}");
        assert!(said.contains("was not made by a run of the lab"), "{what}: {said}");
        assert_eq!(fs::read_to_string(mine.join("a.img")).unwrap(), "mine", "{what}");
    };
    std::os::unix::fs::symlink(&mine, &work).unwrap();
    refused("a link");
    fs::remove_file(&work).unwrap();
    fs::rename(&mine, &work).unwrap();
    std::os::unix::fs::symlink(&work, &mine).unwrap();
    refused("a directory with files");
    fs::write(work.join("lock"), "").unwrap();
    fs::set_permissions(&work, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    refused("a directory in which others may write");
}

#[test]
fn pgbench_has_a_postgresql_of_its_own() {
    let Some(dir) = with_postgresql() else { return };
    let done = output(dir.path(), &["run", "plan.toml"]);
    assert!(done.status.success(), "{}", text_of(&done));
    let stored = stored(dir.path());
    let run = &runs(&stored, "there", "pg")[0];
    let phase = &run.phases[0];
    assert!(phase.figure.value > 1.0, "{:?}", phase.figure);
    // Each transaction is in pgbench's log.
    let counted: u64 = phase.series.requests.iter().sum();
    assert_eq!(counted, phase.write.requests);
    assert!(phase.write.requests > 0 && phase.write.latency.is_some());
    assert!(run.raw.contains("database system is shut down"), "{}", run.raw);
    assert_eq!(fs::read_dir(dir.path().join("there")).unwrap().count(), 0, "nothing is left");
}
