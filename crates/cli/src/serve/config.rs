//! `serve --config`: the members and options of a server, in a file.
//!
//! A file's keys are the names of options, so that it can say all that a command line can, and nothing else: it becomes
//! a command line, which is read as any other.

use crate::Cli;
use clap::error::ErrorKind;
use clap::{CommandFactory, Error, Parser};
use lapstrake_device::MemberSpec;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// What whoever runs the server says, on the command line.
const NOT_IN_A_FILE: [&str; 8] =
    ["config", "daemon", "help", "json", "log-format", "run", "verbose", "version"];

/// What a file stands for on a command line.
pub struct Words {
    /// Options, each in one word.
    pub options: Vec<OsString>,
    /// Members, as they are given there.
    pub members: Vec<OsString>,
}

/// What the file stands for on a command line; `is_named`: the array has its name there already.
///
/// # Errors
/// It cannot be read, or says what no option says; or a pattern matches nothing.
pub fn arguments(config: &Path, is_named: bool) -> Result<Words, Error> {
    let Source { file, name } = source(config)?;
    let fault = |what: &dyn Display| {
        let text = format!("{}: {what}; nothing was written\n", file.display());
        Error::raw(ErrorKind::ValueValidation, text)
    };
    let text = std::fs::read_to_string(&file).map_err(|error| fault(&error))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| fault(&error))?;
    let mut options = Vec::new();
    if let Some(name) = name.filter(|_| !is_named && !table.contains_key("name")) {
        options.push(joined("--name=", name));
    }
    for (key, value) in table.iter().filter(|(key, _)| *key != "members") {
        check_key(key).map_err(|why| fault(&why))?;
        let option = option(key, value);
        let shapes = "neither a text, a number, true or false, nor a list of such";
        options.extend(option.ok_or_else(|| fault(&format!("{key}: {shapes}")))?);
    }
    let members = members(table.get("members"));
    let members = members.map_err(|why| fault(&format!("members: {why}")))?;
    // By itself first, so that what is wrong with it is told with its name.
    let [command, serve, end]: [OsString; 3] = ["lapstrake", "serve", "--"].map(Into::into);
    let alone = [&command, &serve].into_iter().chain(&options).chain([&end]).chain(&members);
    if let Err(error) = Cli::try_parse_from(alone) {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        return Err(fault(&first.trim_start_matches("error: ")));
    }
    Ok(Words { options, members })
}

/// Where a configuration is.
struct Source {
    file: PathBuf,
    /// By which it was named, without the suffix; none of a file somewhere else.
    name: Option<OsString>,
}

/// What has no directory is a name below /etc/lapstrake, with or without its suffix.
fn source(config: &Path) -> Result<Source, Error> {
    if config.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Ok(Source { file: config.to_owned(), name: None });
    }
    // Of "." and ".." there is none.
    let Some(name) = config.file_name().filter(|name| *name != ".") else {
        let text = format!("--config {}: no name of a configuration\n", config.display());
        return Err(Error::raw(ErrorKind::ValueValidation, text));
    };
    let has_suffix = config.extension().is_some_and(|suffix| suffix == "toml");
    let name = if has_suffix { config.file_stem().unwrap_or(name) } else { name };
    let set = std::env::var_os("LAPSTRAKE_CONFIG_DIR").filter(|dir| !dir.is_empty());
    let dir = set.unwrap_or_else(|| "/etc/lapstrake".into());
    let mut file = name.to_owned();
    file.push(".toml");
    Ok(Source { file: Path::new(&dir).join(file), name: Some(name.to_owned()) })
}

fn joined(option: &str, value: impl Into<OsString>) -> OsString {
    let mut word = OsString::from(option);
    word.push(value.into());
    word
}

/// Refuses a key that is no option, or one of the command line's.
fn check_key(key: &str) -> Result<(), String> {
    if NOT_IN_A_FILE.contains(&key) {
        return Err(format!("{key} is said on the command line only"));
    }
    let cli = Cli::command();
    let serve = cli.find_subcommand("serve").expect("it is a command");
    let known: Vec<&str> = serve.get_arguments().filter_map(clap::Arg::get_long).collect();
    if known.contains(&key) {
        return Ok(());
    }
    let like = known.iter().find(|option| strsim::damerau_levenshtein(option, key) <= 2);
    let tip = like.map_or(String::new(), |like| format!("; did you mean {like}?"));
    Err(format!("{key:?} is no option of `lapstrake serve`{tip}"))
}

/// An option as on a command line; none if its value is nothing that options have.
fn option(key: &str, value: &Value) -> Option<Vec<OsString>> {
    Some(match value {
        Value::Boolean(false) => Vec::new(),
        Value::Boolean(true) => vec![format!("--{key}").into()],
        Value::String(text) => vec![format!("--{key}={text}").into()],
        Value::Integer(number) => vec![format!("--{key}={number}").into()],
        Value::Array(values) => {
            let each: Option<Vec<_>> = values.iter().map(|value| option(key, value)).collect();
            each?.concat()
        }
        _ => return None,
    })
}

/// The members of all patterns, each once.
fn members(value: Option<&Value>) -> Result<Vec<OsString>, String> {
    let patterns: Option<Vec<&str>> = match value {
        Some(Value::Array(patterns)) => patterns.iter().map(Value::as_str).collect(),
        Some(one) => one.as_str().map(|pattern| vec![pattern]),
        None => Some(Vec::new()),
    };
    let patterns = patterns.ok_or("not a list of texts")?;
    let mut members: Vec<OsString> = Vec::new();
    for pattern in patterns {
        for member in matches(pattern)? {
            if !members.contains(&member) {
                members.push(member);
            }
        }
    }
    if members.is_empty() {
        return Err("none are named".into());
    }
    Ok(members)
}

/// The members of a pattern, in the order of their names. Of one without a wildcard it is told when it is opened whether
/// it is there.
fn matches(pattern: &str) -> Result<Vec<OsString>, String> {
    let told = |why: &dyn Display| format!("{pattern:?}: {why}");
    let spec: MemberSpec = pattern.parse().map_err(|error| told(&error))?;
    let path = spec.path.to_string_lossy();
    if !path.contains(['*', '?', '[']) || spec.path.exists() {
        return Ok(vec![pattern.into()]);
    }
    // As a shell does it.
    let as_shell = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::default()
    };
    let paths = glob::glob_with(&path, as_shell).map_err(|error| told(&error))?;
    let found = paths.map(|path| {
        let path = path.map_err(|error| told(&error))?;
        Ok(MemberSpec { path, ..spec.clone() }.argument())
    });
    let found: Vec<OsString> = found.collect::<Result<_, String>>()?;
    if found.is_empty() {
        return Err(told(&"no file matches"));
    }
    Ok(found)
}
