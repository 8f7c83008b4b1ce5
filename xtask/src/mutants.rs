//! Changes the code that keeps the orderings, one place at a time, and demands that a test notices.
//!
//! cargo-mutants lists the changes, `.cargo/mutants.toml` says where; the engine's tests and [`SEEDS`] seeds judge. They
//! are built [`together`]. What survives must be in [`KNOWN`] with a reason. Several in one function may have one
//! name; each has an entry of its own.

mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{Error, cargo, root};
use together::Mutant;

/// The version that [`KNOWN`] was made with: names of mutants may change with it.
const VERSION: &str = "27.1.0";
const SEEDS: &str = "300";
const KNOWN: &str = "crates/engine/mutants.txt";
/// Below the target directory: the tool, and the copy that is changed.
const TOOLS: &str = "target/tools";
const SCRATCH: &str = "target/mutants";
/// A program has this much time of a processor, at least; another one may be busy with something else.
const PATIENCE: Duration = Duration::from_secs(2);
/// As it is without a mutant; and as long as the clock may run for one that waits for ever.
const LONG: Duration = Duration::from_secs(600);

/// Tries all mutants, or those that cargo-mutants' options choose (`--re`, `--shard`), and compares the survivors with
/// the list.
///
/// # Errors
/// If one survived that is not in the list, or nothing could be tried.
pub fn run(choice: &[&str]) -> Result<(), Error> {
    install()?;
    let known = parse(&std::fs::read_to_string(root().join(KNOWN))?)?;
    let mut command = Command::new(root().join(TOOLS).join("bin/cargo-mutants"));
    command.current_dir(root()).args(["mutants", "--list", "--json", "--colors=never"]);
    command.args(choice).stderr(Stdio::inherit());
    let listed = command.output()?;
    let list = serde_json::from_slice(&listed.stdout)
        .map_err(|error| Error::Failed(format!("cargo-mutants' list: {error}")))?;
    let mutants = together::parse(&list);
    let (numbers, programs) = together::build(&mutants, &root().join(SCRATCH))?;
    println!("mutants: {} of {} compile", numbers.len(), mutants.len());
    let survivors = survivors(&mutants, &numbers, &programs)?;
    let new = beyond(&survivors, &known);
    for name in &new {
        println!("mutants: survived, and is not in {KNOWN}: {name}");
    }
    if choice.is_empty() {
        for name in beyond(&known, &survivors) {
            println!("mutants: does not survive any more: {name}");
        }
    }
    println!("mutants: {} survived, {} of them are not in the list", survivors.len(), new.len());
    if new.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("{} mutants survived unexplained", new.len())))
}

/// Runs every test program on each mutant until one notices, the quick ones first.
fn survivors(
    mutants: &[Mutant],
    numbers: &BTreeSet<usize>,
    programs: &[PathBuf],
) -> Result<Vec<String>, Error> {
    let mut timed = Vec::new();
    // Planted bugs are builds of their own.
    for program in
        programs.iter().filter(|program| !program.to_string_lossy().contains("/planted-"))
    {
        let began = Instant::now();
        if !passes(program, 0, LONG)? {
            return Err(Error::Failed(format!("{} fails without a mutant", program.display())));
        }
        timed.push((began.elapsed(), program));
    }
    timed.sort();
    let (queue, survivors) = (Mutex::new(numbers.iter().copied()), Mutex::new(Vec::new()));
    let work = || -> Result<(), Error> {
        loop {
            let Some(number) = queue.lock().expect("nobody panics").next() else { return Ok(()) };
            let mut noticed = false;
            for (time, program) in &timed {
                noticed = !passes(program, number, PATIENCE.max(*time * 3))?;
                if noticed {
                    break;
                }
            }
            if !noticed {
                println!("mutants: survived: {}", mutants[number - 1].name);
                survivors.lock().expect("nobody panics").push(number);
            }
        }
    };
    let workers = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("nobody panics"))
    })?;
    let mut survivors = survivors.into_inner().expect("nobody panics");
    survivors.sort_unstable();
    Ok(survivors.iter().map(|number| without_place(&mutants[number - 1].name)).collect())
}

/// Whether a test program ends well in time. One that runs on and on has noticed.
fn passes(program: &Path, mutant: usize, limit: Duration) -> Result<bool, Error> {
    // Tests find their files from their package's directory, which is the copy's.
    let package = if program.to_string_lossy().contains("seeds-") { "sim" } else { "engine" };
    let status = Command::new("timeout")
        .args(["--signal=KILL", &LONG.as_secs().to_string(), "prlimit"])
        .arg(format!("--cpu={}", limit.as_secs_f64().ceil()))
        .arg(program)
        .current_dir(root().join(SCRATCH).join("crates").join(package))
        .envs([(together::CHOICE, mutant.to_string()), ("LAPSTRAKE_SIM_SEEDS", SEEDS.into())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

/// What there is more of than there are others of the name.
fn beyond<'a>(names: &'a [String], others: &[String]) -> Vec<&'a String> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    others.iter().for_each(|name| *left.entry(name).or_default() += 1);
    let is_beyond = |name: &&String| match left.get_mut(name.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    names.iter().filter(is_beyond).collect()
}

fn install() -> Result<(), Error> {
    let wanted = format!("cargo-mutants {VERSION}");
    let program = root().join(TOOLS).join("bin/cargo-mutants");
    let found = Command::new(program).args(["mutants", "--version"]).output();
    if found.is_ok_and(|found| String::from_utf8_lossy(&found.stdout).trim() == wanted) {
        return Ok(());
    }
    let package = format!("cargo-mutants@{VERSION}");
    crate::run(cargo().args(["install", "--locked", "--root", TOOLS, &package]))
}

/// The mutants that have a reason, which is indented.
fn parse(text: &str) -> Result<Vec<String>, Error> {
    let mut known: Vec<(String, bool)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        match (known.last_mut(), line.starts_with("    ")) {
            (Some((_, has_reason)), true) => *has_reason = true,
            (None, true) => return Err(Error::Failed(format!("{KNOWN}: a reason for nothing"))),
            (_, false) => known.push((line.to_owned(), false)),
        }
    }
    match known.iter().find(|(_, has_reason)| !has_reason) {
        Some((name, _)) => Err(Error::Failed(format!("{KNOWN} has no reason for: {name}"))),
        None => Ok(known.into_iter().map(|(name, _)| name).collect()),
    }
}

/// `FILE:LINE:COLUMN: WHAT` as `FILE: WHAT`, which edits elsewhere in the file leave alone.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_count() {
        let line = "crates/engine/src/a.rs:93:35: replace < with == in S::f";
        assert_eq!(without_place(line), "crates/engine/src/a.rs: replace < with == in S::f");
    }

    #[test]
    fn of_two_with_one_name_each_needs_a_reason() {
        let named =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let survivors = named(&["a.rs: replace x", "a.rs: replace x", "a.rs: replace y"]);
        let known = named(&["a.rs: replace x", "a.rs: replace z"]);
        assert_eq!(beyond(&survivors, &known), ["a.rs: replace x", "a.rs: replace y"]);
        assert_eq!(beyond(&known, &survivors), ["a.rs: replace z"]);
    }

    #[test]
    fn every_survivor_has_a_reason() {
        let known = parse("# a\na.rs: replace x\n    It is the\n    same.\n").expect("a list");
        assert_eq!(known, ["a.rs: replace x"]);
        assert!(parse("a.rs: replace x\nb.rs: replace y\n    So.\n").is_err());
        assert!(parse(&std::fs::read_to_string(root().join(KNOWN)).expect("the list")).is_ok());
    }

    /// The function of an entry, and whether it is in the entry's file.
    fn is_there(entry: &str) -> bool {
        let (file, what) = entry.split_once(": ").expect("a file and what is changed there");
        let name = what
            .split(' ')
            .rev()
            .find_map(|word| word.rsplit_once("::"))
            .map_or_else(|| what.split(" in ").last().expect("a function"), |path| path.1);
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        ['(', '<'].iter().any(|after| text.contains(&format!("fn {name}{after}")))
    }

    #[test]
    fn survivors_and_globs_are_of_sources_that_are_there() {
        let known = parse(&std::fs::read_to_string(root().join(KNOWN)).expect("the list"));
        let lost: Vec<_> = known.expect("a list").into_iter().filter(|e| !is_there(e)).collect();
        assert_eq!(lost, Vec::<String>::new());
        let config = std::fs::read_to_string(root().join(".cargo/mutants.toml")).expect("it");
        let globs = config.lines().filter_map(|line| line.trim().strip_prefix("\"crates/"));
        for glob in globs.map(|glob| glob.trim_end_matches(['"', ','])) {
            let place = root().join("crates").join(glob.trim_end_matches("*.rs"));
            assert!(place.exists(), "{glob}");
        }
        assert!(!is_there("crates/engine/src/shard.rs: replace < with == in Shard::no_such"));
    }
}
