//! The kernel's md as a subject of the lab, in User-Mode Linux: built by mdadm, measured, taken down again.

use lapstrake_kernel_md::{Guest, Kernel, Output, available_or_say};
use lapstrake_lab::record::{Phase, SubjectKind};
use lapstrake_lab::store::{Store, Stored};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Images are in the guest's memory. `x` and `y` are the user's own: their mirror gets its redundancy by a resync.
const PLAN: &str = r#"
name = "kernels-md"
[run]
repeats = 1
repeats-max = 1
warm-up = "0ms"
time = "200ms"
directory = "/run"
[[disk]]
make = ["a", "b", "c"]
size = "48M"
[[disk]]
name = "x"
path = "/run/x.img"
expendable = true
[[disk]]
name = "y"
path = "/run/y.img"
expendable = true
[[array]]
system = "null"
[[array]]
name = "five"
system = ["lapstrake", "md"]
level = 5
chunk = "64K"
members = ["a", "b", "c"]
stripe-cache = 1024
sync-speed-min = "1M"
sync-speed-max = "4M"
states = ["healthy", { missing = "b" }, { rebuilding = "b" }]
[[array]]
name = "mirror"
system = "md"
level = 1
members = ["x", "y"]
bitmap = "internal"
[[array]]
name = "far"
system = "md"
level = 10
layout = "f2"
members = ["a", "b", "c"]
filesystem = "ext4"
read-ahead = "1M"
[[workload]]
name = "write"
pattern = "sequential"
read = 0.0
block = "128K"
amount = "4M"
file-size = "8M"
[[workload]]
name = "verify"
pattern = "uniform"
read = 0.3
verify = true
depth = 4
amount = "1M"
file-size = "8M"
"#;

/// Runs a script with the host's programs, in the guest's kernel.
fn run(guest: &mut Guest, dir: &Path, script: &str) -> Output {
    std::fs::write(dir.join("script"), script).unwrap();
    let dir = dir.display();
    let around = format!(
        "for d in dev proc sys run; do mount --bind /$d /host/$d; done
         chroot /host /bin/bash -c 'cd {dir} && . ./script'
         for d in run sys proc dev; do umount /host/$d; done"
    );
    guest.run(&around).unwrap()
}

fn stored(dir: &Path) -> Stored {
    let store = Store::open_to_read(&dir.join("lab.sqlite")).unwrap();
    let experiments = store.experiments().unwrap();
    assert_eq!(experiments.len(), 1);
    store.load(experiments[0].id).unwrap().unwrap()
}

/// First phases of a subject's runs.
fn phases<'a>(stored: &'a Stored, subject: &str, state: &str, load: &str) -> Vec<&'a Phase> {
    let is_it = |case: &&(lapstrake_lab::store::StoredCase, Vec<lapstrake_lab::record::Run>)| {
        let case = &case.0;
        case.subject.name == subject
            && case.state.to_string().starts_with(state)
            && case.workload.name == load
    };
    let (_, runs) =
        stored.cases.iter().find(is_it).unwrap_or_else(|| panic!("no {subject} {state} {load}"));
    runs.iter().map(|run| &run.phases[0]).collect()
}

#[test]
fn the_kernels_md_is_built_measured_and_taken_down() {
    if !available_or_say("the kernel's md as a subject of the lab") {
        return;
    }
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("plan.toml"), PLAN).unwrap();
    let mut guest =
        Kernel::new().memory_mib(1024).timeout(Duration::from_secs(500)).boot().unwrap();
    let lapstrake = env!("CARGO_BIN_EXE_lapstrake");
    let script = format!(
        "truncate -s 48M /run/x.img /run/y.img
         '{lapstrake}' lab run --destroy plan.toml; echo \"status $?\"
         cat /proc/mdstat; losetup --all; ls /run; grep /run/ /proc/mounts; rm -f /run/*.img"
    );
    let output = run(&mut guest, dir.path(), &script);
    drop(guest);
    let told = output.to_string();
    assert!(told.contains("status 0"), "{told}");
    let left = told.split("status 0").nth(1).unwrap();
    for word in ["md127 :", "/dev/loop", "lapstrake-lab-"] {
        assert!(!left.contains(word), "{word} is left: {told}");
    }

    let stored = stored(dir.path());
    for (case, runs) in &stored.cases {
        let label = format!("{} {} {}", case.subject.name, case.state, case.workload.name);
        assert_eq!(runs.len(), 1, "{label}");
        assert!(runs.iter().all(|run| run.error.is_none()), "{label}: {:?}", runs[0].error);
    }
    for state in ["healthy", "degraded", "rebuilding"] {
        for phase in phases(&stored, "five-md", state, "write") {
            assert_eq!(phase.write.bytes, 4 << 20);
            // The kernel counts what reaches each loop device; parity is half of the data.
            let written: u64 = phase.members.iter().map(|member| member.written_bytes).sum();
            assert!(written >= 4 << 20, "{state}: {:?}", phase.members);
        }
    }
    for phase in phases(&stored, "five-md", "rebuilding", "write") {
        let mark = &phase.series.marks[0];
        assert!(mark.what == "rebuild" && mark.until_ms.is_none_or(|ms| ms > 0), "{mark:?}");
    }
    let far = stored.cases.iter().find(|(case, _)| case.subject.name == "far").unwrap();
    assert_eq!(far.0.subject.kind, SubjectKind::Md);
}
