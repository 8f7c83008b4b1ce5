//! `lapstrake lab`: what a store answers, from import to report.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// bonnie++'s line for a disk, block output a little different from run to run.
fn bonnie(name: &str, block_output: u32) -> String {
    format!(
        "{name},4G,20100,94,{block_output},31,21345,14,22300,88,61234,20,171.3,1,16,1543,96,+++++,+++,+++++,\
         +++,1622,97,+++++,+++,1833,95\n"
    )
}

fn lab(directory: &Path, args: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_lapstrake");
    Command::new(command).current_dir(directory).arg("lab").args(args).output().unwrap()
}

fn text(directory: &Path, args: &[&str]) -> String {
    let output = lab(directory, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn imported() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let runs =
        |name: &str, base: u32| (0..5).map(|i| bonnie(name, base + i * 100)).collect::<String>();
    std::fs::write(directory.path().join("old.csv"), runs("fast", 80_000) + &runs("slow", 40_000))
        .unwrap();
    assert_eq!(
        text(directory.path(), &["import", "old.csv", "--name", "old days"]),
        "experiment 1\n"
    );
    directory
}

#[test]
fn old_results_are_imported_listed_and_shown() {
    let directory = imported();
    let listed = text(directory.path(), &["list"]);
    assert!(listed.contains("old days: imported from bonnie++, 2 cases, 10 runs"), "{listed}");
    let shown = text(directory.path(), &["show", "--plan"]);
    assert!(
        shown.contains("old.csv") && shown.contains("round 5: block output 82.3 MB/s"),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&text(directory.path(), &["show", "--json"])).unwrap();
    assert_eq!(json["experiments"][0]["cases"][1]["subject"]["name"], "slow");
}

#[test]
fn a_difference_is_real_where_it_is_and_none_where_there_is_none() {
    let directory = imported();
    let compared = text(directory.path(), &["compare", "fast", "slow"]);
    let lines: Vec<&str> = compared.lines().collect();
    let block = lines.iter().find(|line| line.contains("block output")).unwrap();
    // Figures in one unit, the ratio, the interval that decides.
    assert!(
        block.contains("41.2 ") && block.contains("82.1 ") && block.contains(" x 2.00"),
        "{block}"
    );
    let rewrite = lines.iter().find(|line| line.contains("rewrite")).unwrap();
    assert!(rewrite.contains("≈ x 1.00"), "{rewrite}");
    assert!(
        compared.contains("geometric mean") && compared.contains("≈ no real difference"),
        "{compared}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{compared}");
    let missing = lab(directory.path(), &["compare", "fast", "raid5"]);
    assert_eq!(missing.status.code(), Some(2));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("no load has both fast and raid5") && said.contains("slow"), "{said}");
}

#[test]
fn reports_are_printed_and_written() {
    let directory = imported();
    let report = text(directory.path(), &["report"]);
    assert!(report.starts_with("What is faster\n") && report.contains('█'), "{report}");
    assert!(
        report.contains("bonnie++ -s 4096m: block output: fast is fastest, 82.1 MB/s ±"),
        "{report}"
    );
    for (name, start) in [("r.html", "<!DOCTYPE html>"), ("r.md", "# old days")] {
        assert_eq!(text(directory.path(), &["report", "-o", name]), "");
        let written = std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(written.starts_with(start), "{name}");
    }
    let refused = lab(directory.path(), &["report", "-o", "r.pdf"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(!directory.path().join("r.pdf").exists());
}

#[test]
fn exports_are_what_other_programs_read() {
    let directory = imported();
    let csv = text(directory.path(), &["export", "--csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    // Ten runs of the nine tests that were not too fast.
    assert_eq!(lines.len(), 1 + 10 * 9, "{csv}");
    assert!(lines[0].starts_with("experiment,name,origin,subject"));
    let json = text(directory.path(), &["export", "--json", "1"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["experiments"][0]["cases"][0]["runs"].as_array().unwrap().len(), 5);
    assert!(text(directory.path(), &["export", "--markdown"]).starts_with("# old days"));
    assert_eq!(lab(directory.path(), &["export"]).status.code(), Some(2));
    assert_eq!(lab(directory.path(), &["export", "--csv", "7"]).status.code(), Some(2));
}

#[test]
fn what_cannot_be_read_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let none = lab(directory.path(), &["list"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is no store"));
    std::fs::write(directory.path().join("x.txt"), "hello\n").unwrap();
    let bad = lab(directory.path(), &["import", "x.txt"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("nothing was imported"));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
