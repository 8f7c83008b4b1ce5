//! Changes the code that keeps the orderings, one place at a time, and demands that a test notices.
//!
//! cargo-mutants makes the changes, `.cargo/mutants.toml` says where and which tests judge: the engine's
//! and [`SEEDS`] fates. What survives must be in [`KNOWN`] with a reason. Several in one function may have one
//! name; each has an entry of its own.

use std::collections::BTreeMap;
use std::process::Command;

use crate::{Error, cargo, root};

/// The version that [`KNOWN`] was made with: names of mutants may change with it.
const VERSION: &str = "27.1.0";
const SEEDS: &str = "300";
const KNOWN: &str = "crates/engine/mutants.txt";
/// Below the target directory: the tool, and what it says.
const TOOLS: &str = "target/tools";
const OUTPUT: &str = "target";

/// Tries all mutants, or those of a shard (`K/N`), and compares the survivors with the list.
///
/// # Errors
/// If one survived that is not in the list, or nothing could be tried.
pub fn run(shard: Option<&str>) -> Result<(), Error> {
    install()?;
    let known = parse(&std::fs::read_to_string(root().join(KNOWN))?)?;
    let mut command = Command::new(root().join(TOOLS).join("bin/cargo-mutants"));
    command.current_dir(root()).env("LAPSTRAKE_SIM_SEEDS", SEEDS);
    command.args(["mutants", "--no-shuffle", "--colors=never", "--output", OUTPUT]);
    command.args(shard.into_iter().flat_map(|shard| ["--shard", shard]));
    // 2: some survived; 3: some hung. Both are results.
    let status = command.status()?;
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        return Err(Error::Command { command: format!("{command:?}"), status });
    }
    let missed = std::fs::read_to_string(root().join(OUTPUT).join("mutants.out/missed.txt"))?;
    let survivors: Vec<String> = missed.lines().map(without_place).collect();
    let new = beyond(&survivors, &known);
    for name in &new {
        println!("mutants: survived, and is not in {KNOWN}: {name}");
    }
    if shard.is_none() {
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
}
