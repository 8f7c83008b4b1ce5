//! A farm that never fails proves nothing: each bug of `planted/` must be found.
//!
//! `cargo test --release -p lapstrake-sim --test planted -- --ignored --nocapture` copies the
//! workspace to a scratch directory (`LAPSTRAKE_PLANTED`, or one below the target directory, which
//! keeps its builds), plants one bug at a time, and prints the first seed that finds it, else the engine's test.
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

/// Builds in the copy, whatever the environment says.
fn cargo(work: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(work).env("CARGO_TARGET_DIR", work.join("target"));
    cargo
}

/// What was built, or why it was not.
fn build(work: &Path) -> Result<PathBuf, String> {
    let mut build = cargo(work);
    // Built once to run once.
    let quick = [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0")];
    build.envs(quick.map(|(key, value)| (format!("CARGO_PROFILE_RELEASE_{key}"), value)));
    match run(build.args(["build", "--release", "-p", "lapstrake-sim"])) {
        (true, _) => Ok(work.join("target/release/lapstrake-sim")),
        (false, text) => Err(text),
    }
}

/// The first seed that fails with the bug and not without it, and how.
fn first_failure(sound: &Path, planted: &Path, seeds: u64) -> Option<String> {
    let mut from = 0;
    loop {
        let (ok, text) = run(Command::new(planted).args(["--seeds", &format!("{from}..{seeds}")]));
        if ok {
            return None;
        }
        let mut lines = text.lines().skip_while(|line| !line.starts_with("seed "));
        let line = lines.next().unwrap_or_else(|| panic!("no seed in {text}"));
        let seed = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let seed: u64 = seed.unwrap_or_else(|| panic!("no seed in {text}"));
        if run(Command::new(sound).args(["--seed", &seed.to_string()])).0 {
            // Of a panic: what follows its place.
            let said = lines.skip_while(|line| !line.contains("panicked at")).nth(1);
            return Some(said.map_or_else(|| line.to_owned(), |said| format!("{line}: {said}")));
        }
        from = seed + 1;
    }
}

/// A test of the engine that fails with the bug.
fn failing_test(work: &Path) -> Option<String> {
    let mut tests = cargo(work);
    let (_, text) =
        run(tests.args(["test", "--release", "--no-fail-fast", "-p", "lapstrake-engine"]));
    let failed =
        text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed.map(|name| format!("no seed, but the test {name}"))
}

/// The bugs, by name.
fn patches(root: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(root.join("crates/sim/planted")).expect("planted bugs");
    let mut patches: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    patches.sort();
    patches
}

/// What a hunk of a patch takes for granted, with the file that it is for.
fn grounds(patch: &str) -> Vec<(String, String)> {
    let mut file = "";
    let mut grounds: Vec<(String, String)> = Vec::new();
    for line in patch.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = name;
        } else if line.starts_with("@@ ") {
            grounds.push((file.to_owned(), String::new()));
        } else if let (Some((_, old)), Some(' ' | '-')) = (grounds.last_mut(), line.chars().next())
            && !line.starts_with("--- ")
        {
            *old += &line[1..];
            old.push('\n');
        }
    }
    grounds
}

#[test]
fn each_planted_bug_has_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let patches = patches(&root);
    assert!(patches.len() >= 56, "{} planted bugs", patches.len());
    for patch in patches {
        let grounds = grounds(&fs::read_to_string(&patch).expect("a patch"));
        assert!(!grounds.is_empty(), "{patch:?} changes nothing");
        for (file, old) in grounds {
            let text = fs::read_to_string(root.join(&file)).expect("the file that it changes");
            assert_eq!(text.matches(&old).count(), 1, "{patch:?} in {file}, not once:\n{old}");
        }
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
    let mut patches = patches(&root);
    patches.retain(|path| only.as_ref().is_none_or(|name| path.file_stem() == Some(name.as_ref())));
    let sound = work.join("target/sound");
    fs::copy(build(&work).expect("the workspace builds"), &sound).expect("a copy");
    let mut missed = Vec::new();
    for patch in &patches {
        let name = patch.file_stem().expect("a name").to_string_lossy();
        let apply = |reverse: &[&str]| {
            let mut command = Command::new("patch");
            must(command.args(["-p1", "-s", "-i"]).arg(patch).args(reverse).current_dir(&work));
        };
        apply(&[]);
        let found = build(&work)
            .map(|planted| first_failure(&sound, &planted, seeds).or_else(|| failing_test(&work)));
        apply(&["-R"]);
        match &found {
            Ok(Some(line)) => println!("{name:<32} {line}"),
            Ok(None) => println!("{name:<32} NOT FOUND in {seeds} seeds nor by a test"),
            Err(text) => println!("{name:<32} DOES NOT BUILD\n{text}"),
        }
        if !matches!(found, Ok(Some(_))) {
            missed.push(name);
        }
    }
    assert!(!patches.is_empty() && missed.is_empty(), "not found: {missed:?}");
}
