//! `serve --config`: the members and options of a server, in a file.
//!
//! A file's keys are the names of options, so that it can say all that a command line can, and nothing else: it becomes
//! a command line, which is read as any other.

use crate::words::plain;
use crate::{Cli, options};
use clap::error::ErrorKind;
use clap::{CommandFactory, Error, Parser};
use lapstrake_device::MemberSpec;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};

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
    let refused = |faults: &[Fault]| {
        let lines = faults.iter().map(|fault| fault.told(&file)).collect::<Vec<_>>().join("\n");
        Error::raw(ErrorKind::ValueValidation, format!("{lines}; nothing was written\n"))
    };
    let text = std::fs::read_to_string(&file).map_err(|error| refused(&[Fault::whole(error)]))?;
    let table: Entries =
        toml::from_str(&text).map_err(|error| refused(&[Fault::of_toml(&text, &error)]))?;
    let (mut options, mut faults) = (Vec::new(), Vec::new());
    if let Some(name) = name.filter(|_| !is_named && !table.contains_key("name")) {
        options.push(joined("--name=", name));
    }
    for (key, value) in table.iter().filter(|(key, _)| *key != "members") {
        let line = line(&text, value.span().start);
        match words(key, value.get_ref()) {
            Ok(words) => options.extend(words),
            Err(what) => faults.push(Fault { line: Some(line), what }),
        }
    }
    let given = table.get("members");
    let members = members(given.map(Spanned::get_ref)).unwrap_or_else(|why| {
        let line = given.map(|value| line(&text, value.span().start));
        faults.push(Fault { line, what: format!("members: {why}") });
        Vec::new()
    });
    if faults.is_empty()
        && let Err(error) = read(&options, &members)
    {
        faults.push(Fault::whole(error));
    }
    if faults.is_empty() {
        return Ok(Words { options, members });
    }
    faults.sort_by_key(|fault| fault.line.unwrap_or(usize::MAX));
    Err(refused(&faults))
}

/// A file's keys, each value with its place.
type Entries = BTreeMap<String, Spanned<Value>>;

/// Something wrong in a file.
struct Fault {
    /// From 1; none where it is of the file as a whole.
    line: Option<usize>,
    what: String,
}

impl Fault {
    fn whole(what: impl Display) -> Self {
        Self { line: None, what: plain(&what.to_string()) }
    }

    fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| line(text, span.start));
        Self { line, what: format!("no TOML: {}", error.message().replace('\n', "; ")) }
    }

    fn told(&self, file: &Path) -> String {
        match self.line {
            Some(line) => format!("{}:{line}: {}", file.display(), self.what),
            None => format!("{}: {}", file.display(), self.what),
        }
    }
}

/// The line, from 1, of a byte.
fn line(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&b| b == b'\n').count()
}

/// A key and its value as options; each is tried by itself, so that what is wrong with it is told with its line.
fn words(key: &str, value: &Value) -> Result<Vec<OsString>, String> {
    check_key(key)?;
    let shapes = "neither a text, a number, true or false, nor a list of such";
    let words = option(key, value).ok_or_else(|| format!("{key}: {shapes}"))?;
    read(&words, &["member".into()]).or_else(|error| match error.0 {
        // Together with others it may be right.
        ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
        _ => Err(error.1),
    })?;
    Ok(words)
}

/// Reads a command line of these, for what is wrong with it.
fn read(options: &[OsString], members: &[OsString]) -> Result<(), Refusal> {
    let [command, serve, end]: [OsString; 3] = ["lapstrake", "serve", "--"].map(Into::into);
    let line = [&command, &serve].into_iter().chain(options).chain([&end]).chain(members);
    let Err(error) = Cli::try_parse_from(line) else { return Ok(()) };
    let text = error.to_string();
    // Behind a blank line it tells of options as they are on a command line.
    let told: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    Err(Refusal(error.kind(), told.join(" ").trim_start_matches("error: ").to_owned()))
}

/// Why clap refused.
struct Refusal(ErrorKind, String);

impl Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
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
    let tip = options::near(key, &known);
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
    let mut refused = Vec::new();
    for pattern in patterns {
        let found = matches(pattern).unwrap_or_else(|why| {
            refused.push(why);
            Vec::new()
        });
        for member in found {
            if !members.contains(&member) {
                members.push(member);
            }
        }
    }
    if !refused.is_empty() {
        return Err(refused.join("; "));
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
