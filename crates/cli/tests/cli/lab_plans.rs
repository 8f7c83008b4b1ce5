//! Promise: every plan that is shipped runs to its end. Here in short: one round, small images, little time.

use crate::support::soaks;
use std::path::Path;
use std::process::Command;
use toml::{Table, Value};

/// Enough for a btrfs, and for PostgreSQL on a mirror.
const IMAGE: &str = "256M";

fn replace(table: &mut Table, key: &str, value: impl Into<Value>) {
    if table.contains_key(key) {
        table.insert(key.into(), value.into());
    }
}

/// The same plan in short. What is compared stays: arrays, states, loads.
fn shortened(text: &str, work: &Path) -> String {
    let mut plan: Table = text.parse().unwrap();
    let run = plan["run"].as_table_mut().unwrap();
    run.insert("repeats".into(), 1.into());
    run.insert("repeats-max".into(), 1.into());
    run.insert("warm-up".into(), "10ms".into());
    run.insert("time".into(), "200ms".into());
    run.insert("directory".into(), work.to_str().unwrap().into());
    run.remove("budget");
    for disk in plan["disk"].as_array_mut().unwrap() {
        replace(disk.as_table_mut().unwrap(), "size", IMAGE);
    }
    for load in plan["workload"].as_array_mut().unwrap() {
        let load = load.as_table_mut().unwrap();
        for key in ["amount", "file-size", "size"] {
            replace(load, key, "8M");
        }
        replace(load, "files", 64);
        replace(load, "scale", 1);
        // On a busy machine no transaction may end within a second.
        replace(load, "time", "3s");
    }
    plan.to_string()
}

#[test]
fn every_shipped_plan_runs_to_its_end() {
    if !soaks("every shipped plan, in short") {
        return;
    }
    // Images are dropped after each array; a plan has at most eight, which memory has room for.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    // PostgreSQL's own user has to get there.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(plans).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let plan = dir.path().join(format!("{name}.toml"));
        std::fs::write(&plan, shortened(&text, &dir.path().join("work"))).unwrap();
        let store = dir.path().join("lab.sqlite");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lapstrake"));
        let ran = command.args(["lab", "run", "--store"]).arg(&store).arg(&plan).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        eprintln!("{name}: {}", String::from_utf8_lossy(&ran.stdout).trim());
        let odd = said.lines().filter(|l| l.contains("FAILED") || l.contains("is not measured"));
        odd.for_each(|line| eprintln!("    {line}"));
        if said.contains("can be measured on this machine") {
            lapstrake_not_run::not_run(&name);
        } else if !ran.status.success() {
            faults.push(format!("{name}: {}\n{said}", ran.status));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
