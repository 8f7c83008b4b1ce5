//! Promise: a member of a served array is named by any path that leads to its file, also once it is deleted,
//! and by no path that leads to another.

use crate::support::md::state;
use crate::support::{Lab, Ran};

/// Runs the command in a directory of the lab.
fn run_in(lab: &Lab, directory: &str, line: &str) -> Ran {
    let mut command = lab.command(env!("CARGO_BIN_EXE_lapstrake"));
    command.current_dir(lab.path(directory)).args(line.split_whitespace());
    Ran::of(command.output().unwrap())
}

#[test]
fn a_path_means_the_file_that_it_leads_to() {
    let lab = Lab::new(&[8; 5]);
    lab.run("create data -l6 -c64 --assume-clean m0 m1 m2 m3").ok();
    std::fs::create_dir(lab.path("other")).unwrap();
    lab.file("other/m1", 8 << 20);
    std::os::unix::fs::symlink("../m2", lab.path("other/link")).unwrap();
    let server = lab.serve_data("m0 m1 m2 m3");
    for line in ["fail data m1", "remove data m1", "replace data m1", "fail data failed"] {
        let refused = run_in(&lab, "other", line);
        assert!(refused.code == 1 && refused.err.contains("is no member of this"), "{refused:?}");
    }
    assert_eq!(state(&lab.detail(), "m1"), "in_sync");
    let absolute = lab.path("m3").display().to_string();
    for (line, number) in [("link", 2), (&absolute, 3), ("../m2", 2), ("1", 1)] {
        for what in ["fail", "remove", "re-add"] {
            let (line, member) = match what {
                "re-add" => ("add data".to_owned(), format!("../m{number}")),
                what => (format!("{what} data"), line.to_owned()),
            };
            run_in(&lab, "other", &format!("{line} {member}")).ok();
        }
        lab.run("wait data --timeout 60").ok();
        assert_eq!(state(&lab.detail(), &format!("m{number}")), "in_sync");
    }
    run_in(&lab, "other", "add data ../m4").ok();
    run_in(&lab, "other", "replace data ../m0 --with ../m4").ok();
    run_in(&lab, "other", "wait data --timeout 60").ok();
    assert_eq!(state(&lab.detail(), "m0"), "faulty");
    // Deleted files keep their names.
    std::fs::remove_file(lab.path("m1")).unwrap();
    run_in(&lab, "other", "fail data ../m1").ok();
    assert_eq!(state(&lab.detail(), "m1"), "faulty");
    server.stop();
}

#[test]
fn windows_of_a_file_are_told_apart() {
    let lab = Lab::new(&[32]);
    let windows = "m0@0+8M m0@8M+8M m0@16M+8M";
    lab.run(&format!("create data -l1 --assume-clean {windows}")).ok();
    std::fs::create_dir(lab.path("other")).unwrap();
    let server = lab.serve_data(windows);
    let whole = run_in(&lab, "other", "fail data ../m0");
    assert!(whole.code == 1 && whole.err.contains("is no member of this"), "{whole:?}");
    run_in(&lab, "other", "fail data ../m0@8192K+8M").ok();
    assert_eq!(state(&lab.detail(), "m0@8388608+8388608"), "faulty");
    assert_eq!(state(&lab.detail(), "m0@16777216+8388608"), "in_sync");
    server.stop();
}
