//! Promise: what is printed is no wider than 80 columns where `COLUMNS` says so, no table wider than 100 in a pipe, and
//! nothing coloured that is not for a terminal.

use crate::support::{Lab, Ran};

const PLAN: &str = r#"
name = "small"
[run]
repeats = 2
repeats-max = 2
warm-up = "10ms"
time = "60ms"
[[disk]]
make = ["a", "b", "c", "d"]
size = "16M"
profile = "ssd-sata-1tb"
[[array]]
level = [0, 5, 10]
members = 4
[[workload]]
name = "sequential read in large blocks"
pattern = "sequential"
block = "256K"
depth = [1, 4]
[[workload]]
name = "random write"
pattern = "uniform"
read = 0.0
depth = 4
"#;

/// With a terminal's columns, or in a pipe.
fn run(lab: &Lab, columns: Option<&str>, line: &str) -> Ran {
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.envs(columns.map(|columns| ("COLUMNS", columns)));
    Ran::of(command.args(line.split_whitespace()).output().unwrap())
}

/// Holds both widths, and that what is told is told in either.
fn hold(lab: &Lab, line: &str) {
    for (columns, most) in [(Some("80"), 80), (None, 100)] {
        let ran = run(lab, columns, line);
        assert!([0, 3].contains(&ran.code) && ran.out.len() > 20, "{line}: {ran:?}");
        assert!(!ran.out.contains('\u{1b}'), "{line}: colours in a pipe: {}", ran.out);
        for text in ran.out.lines() {
            assert!(text.chars().count() <= most, "{line}: more than {most}: {text}\n{}", ran.out);
        }
    }
}

#[test]
fn what_the_lab_prints_fits() {
    let lab = Lab::new(&[]);
    std::fs::write(lab.path("plan.toml"), PLAN).unwrap();
    let ran = run(&lab, None, "lab run plan.toml");
    assert_eq!(ran.code, 0, "{ran:?}");
    hold(&lab, "lab report");
    hold(&lab, "lab compare raid5 raid10");
    hold(&lab, "lab list");
    hold(&lab, "predict plan.toml --draws 1");
}

#[test]
fn what_is_known_of_disks_and_advised_fits() {
    let lab = Lab::new(&[]);
    hold(&lab, "disk list");
    hold(&lab, "advise --disk=hitachi-80x3@20 --load=backup --loss=5%");
}

#[test]
fn what_is_told_of_arrays_fits() {
    let lab = Lab::new(&[32, 32, 32, 32]);
    lab.run("create data -l5 --assume-clean m0 m1 m2").ok();
    let ran = run(&lab, Some("80"), "scan m0 m1 m2 m3");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 80), "{ran:?}");
    let server = lab.serve("m0 m1 m2");
    lab.run("fail data m1").ok();
    lab.run("set data sync_speed_max=1000").ok();
    lab.run("add data m3").ok();
    for line in ["status", "status --tree", "detail data", "scan m0 m1 m2 m3"] {
        let ran = run(&lab, Some("80"), line);
        let wide = ran.out.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{line}: {ran:?}");
    }
    // As md writes it, for those who take it apart.
    let ran = run(&lab, None, "status");
    let told = ran.out.lines().find(|line| line.contains("recovery =")).map(str::to_owned);
    assert!(told.is_some_and(|line| line.contains("finish=")), "{ran:?}");
    server.stop();
}
