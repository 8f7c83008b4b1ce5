//! Says aloud what a test could not try, and records it for the list at the end of `make test`.
//!
//! The file of the list is named by the environment variable `LAPSTRAKE_NOT_RUN`, which the Makefile sets. A line of it is
//! the test's name, a tab, and what was said; `scripts/not-run.sh` counts them.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::thread;

/// Something could not be tried, because this machine lacks what it takes: `what: why`, on standard error and in the list.
pub fn not_run(why: impl Display) {
    let why = say("NOT RUN", why);
    let Some(list) = std::env::var_os("LAPSTRAKE_NOT_RUN") else { return };
    let line = format!("{}\t{why}\n", place());
    let mut file = OpenOptions::new();
    let written = file.create(true).append(true).open(&list).and_then(|mut file| {
        // One write: other tests add to it meanwhile.
        file.write_all(line.as_bytes())
    });
    if let Err(error) = written {
        say("NOT RECORDED", format_args!("{}: {error}", list.display()));
    }
}

/// Something was left out because another suite of the same run does it: `what: why`, on standard error only.
pub fn left_out(why: impl Display) {
    say("LEFT OUT", why);
}

/// Prints a line past the test harness, which keeps the output of tests that pass. Gives what it says, in one line.
fn say(word: &str, why: impl Display) -> String {
    let why = why.to_string();
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    // One write, on a line of its own: other tests print meanwhile.
    let _ = io::stderr().write_all(format!("\n{word}: {why}\n").as_bytes());
    why
}

/// The test, whose thread the harness gives its name, or the program.
fn place() -> String {
    let program = std::env::args().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    // Without the digest that cargo adds to the names of tests.
    let program = program
        .rsplit_once('-')
        .map_or(program, |(name, digest)| if digest.len() == 16 { name } else { program });
    match thread::current().name() {
        Some(test) if test != "main" => format!("{program} {test}"),
        _ => program.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_one_line() {
        assert_eq!(say("TRIED", "mounts:\n  none here"), "mounts: none here");
    }

    #[test]
    fn a_test_is_named_by_its_program_and_itself() {
        let name = "tests::a_test_is_named_by_its_program_and_itself";
        assert_eq!(place(), format!("lapstrake_not_run {name}"));
    }
}
