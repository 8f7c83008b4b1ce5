//! What shells offer behind a command: the command itself is asked, as `lapstrake completions` has them do, so that it can
//! offer what is there now: arrays that are served, their members, profiles.
//!
//! What cannot be known, as a server that does not answer at once, is not offered; nothing is told of it.

use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use lapstrake_host::control;
use std::env::args_os;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// In which shells name the one that asks.
pub const VARIABLE: &str = "LAPSTRAKE_COMPLETE";
/// A server that takes longer is left out: somebody waits at the keyboard.
const PATIENCE: Duration = Duration::from_millis(500);

/// Words of a list.
pub fn words(list: &'static [&'static str]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| fitting(current, list.iter().copied()))
}

/// Words of a list, each with a = behind it.
pub fn keys(list: &'static [&'static str]) -> ArgValueCompleter {
    let with_sign = |word: &&str| format!("{word}=");
    ArgValueCompleter::new(move |current: &OsStr| fitting(current, list.iter().map(with_sign)))
}

/// Files, and words.
pub fn files(list: &'static [&'static str]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let mut found = fitting(current, list.iter().copied());
        found.extend(PathCompleter::file().complete(current));
        found
    })
}

/// Profiles of disks that are built in, and files.
pub fn profiles() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = fitting(current, lapstrake_model::profile::builtin::names());
        found.extend(PathCompleter::file().complete(current));
        found
    })
}

/// Arrays that are served.
pub fn arrays() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        fitting(current, control::served(&directory(args_os())).unwrap_or_default())
    })
}

/// Members of arrays that are served, and words.
pub fn members(list: &'static [&'static str]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let dir = directory(args_os());
        let arrays = control::served(&dir).unwrap_or_default();
        let named = arrays.into_iter().filter(|name| is_on_the_line(name));
        let details =
            named.filter_map(|name| control::ask_detail(&dir, &name, Some(PATIENCE)).ok());
        let mut found = fitting(current, list.iter().copied());
        for array in details {
            found.extend(fitting(current, array.members.into_iter().map(|member| member.path)));
        }
        found
    })
}

/// Whether the array is the one that the command line names.
fn is_on_the_line(name: &str) -> bool {
    args_os().any(|word| word == name)
}

/// Where servers are looked for: as the command line that is typed says, or as anywhere else. bash takes the sign of
/// equality for a word.
fn directory(words: impl Iterator<Item = OsString>) -> PathBuf {
    let mut words = words.filter(|word| word != "=");
    while let Some(word) = words.next() {
        let named = match word.to_str().and_then(|word| word.strip_prefix("--control-dir")) {
            Some("") => words.next(),
            Some(behind) => behind.strip_prefix('=').map(OsString::from),
            None => None,
        };
        if let Some(directory) = named {
            return directory.into();
        }
    }
    control::directory()
}

fn fitting(
    current: &OsStr,
    words: impl IntoIterator<Item = impl Into<String>>,
) -> Vec<CompletionCandidate> {
    let words = words.into_iter().map(Into::into);
    let current = current.to_string_lossy();
    words.filter(|word| word.starts_with(&*current)).map(CompletionCandidate::new).collect()
}
