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
    command.args(["-c", &format!("{files} | tar c --null -T - | tar xm -C \"$1\"")]);
    must(command.arg(from).arg(to));
}

fn build(work: &Path) -> PathBuf {
    let mut build = Command::new("cargo");
    // Built once to run once.
    let quick = [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0")];
    build.envs(quick.map(|(key, value)| (format!("CARGO_PROFILE_RELEASE_{key}"), value)));
    must(build.args(["build", "--release", "-p", "lapstrake-sim"]).current_dir(work));
    work.join("target/release/lapstrake-sim")
}

/// The first seed that fails with the bug and not without it, and how.
fn first_failure(sound: &Path, planted: &Path, seeds: u64) -> Option<String> {
    let mut from = 0;
    loop {
        let (ok, text) = run(Command::new(planted).args(["--seeds", &format!("{from}..{seeds}")]));
        if ok {
            return None;
        }
        let line = text.lines().find(|line| line.starts_with("seed ")).unwrap_or(&text);
        let seed = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let seed: u64 = seed.unwrap_or_else(|| panic!("no seed in {text}"));
        if run(Command::new(sound).args(["--seed", &seed.to_string()])).0 {
            return Some(line.to_owned());
        }
        from = seed + 1;
    }
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
    let sound = work.join("target/sound");
    fs::copy(build(&work), &sound).expect("a copy of what was built");
    let mut missed = Vec::new();
    for patch in &patches {
        let name = patch.file_stem().expect("a name").to_string_lossy();
        let apply = |reverse: &[&str]| {
            let mut command = Command::new("patch");
            must(command.args(["-p1", "-s", "-i"]).arg(patch).args(reverse).current_dir(&work));
        };
        apply(&[]);
        let found = first_failure(&sound, &build(&work), seeds);
        apply(&["-R"]);
        println!("{name:<32} {}", found.as_deref().unwrap_or("NOT FOUND"));
        if found.is_none() {
            missed.push(name);
        }
    }
    assert!(!patches.is_empty() && missed.is_empty(), "not found in {seeds} seeds: {missed:?}");
}
