//! A farm that never fails proves nothing: each bug of `planted/` must be found.
//!
//! `cargo test --release -p lapstrake-sim --test planted -- --ignored --nocapture` copies the
//! workspace to a scratch directory (`LAPSTRAKE_PLANTED`, or one below the target directory, which
//! keeps its builds), plants one bug at a time, and prints the first seed that finds it.
//! `LAPSTRAKE_PLANTED_ONLY` names one of them, `LAPSTRAKE_PLANTED_SEEDS` how many seeds to try.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn must(command: &mut Command) {
    let (ok, text) = run(command);
    assert!(ok, "{command:?}\n{text}");
}

/// The workspace as it is, uncommitted changes included, without what was built.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a scratch directory");
    let mut command = Command::new("sh");
    let files = "cd \"$0\" && git ls-files -co --exclude-standard -z";
    command.args(["-c", &format!("{files} | tar c --null -T - | tar x -C \"$1\"")]);
    must(command.arg(from).arg(to));
}

fn first_failure(work: &Path, seeds: u64) -> Option<String> {
    let mut build = Command::new("cargo");
    // Built once to run once.
    let quick = [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0")];
    build.envs(quick.map(|(key, value)| (format!("CARGO_PROFILE_RELEASE_{key}"), value)));
    must(build.args(["build", "--release", "-p", "lapstrake-sim"]).current_dir(work));
    let mut sim = Command::new(work.join("target/release/lapstrake-sim"));
    let (ok, text) = run(sim.args(["--seeds", &format!("0..{seeds}")]));
    let found = || text.lines().find(|line| line.starts_with("seed ")).unwrap_or(&text).to_owned();
    (!ok).then(found)
}

#[test]
#[ignore = "builds the workspace once for each planted bug"]
fn each_planted_bug_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = env::var_os("LAPSTRAKE_PLANTED").map(PathBuf::from);
    let work = scratch.unwrap_or_else(|| root.join("target/planted"));
    let seeds =
        env::var("LAPSTRAKE_PLANTED_SEEDS").map_or(50_000, |n| n.parse().expect("a number"));
    let only = env::var("LAPSTRAKE_PLANTED_ONLY").ok();
    copy(&root, &work);
    let mut patches: Vec<PathBuf> = fs::read_dir(root.join("crates/sim/planted"))
        .expect("planted bugs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| only.as_ref().is_none_or(|name| path.file_stem() == Some(name.as_ref())))
        .collect();
    patches.sort();
    let mut missed = Vec::new();
    for patch in &patches {
        let name = patch.file_stem().expect("a name").to_string_lossy();
        let apply = |reverse: &[&str]| {
            let mut command = Command::new("patch");
            must(command.args(["-p1", "-s", "-i"]).arg(patch).args(reverse).current_dir(&work));
        };
        apply(&[]);
        let found = first_failure(&work, seeds);
        apply(&["-R"]);
        println!("{name:<32} {}", found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(!patches.is_empty() && missed.is_empty(), "not found in {seeds} seeds: {missed:?}");
}
