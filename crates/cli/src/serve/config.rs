//! `serve --config`: the members and options of a server, in a file.
//!
//! A file's keys are the names of options, so that it can say all that a command line can, and nothing else: it becomes
//! a command line, which is read as any other.

use clap::error::ErrorKind;
use lapstrake_device::MemberSpec;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Whoever runs the server says these.
const NOT_IN_A_FILE: [&str; 4] = ["config", "daemon", "json", "verbose"];

/// What the file stands for on a command line: options, then members.
///
/// # Errors
/// It cannot be read, or says what no option says; or a pattern matches nothing.
pub fn arguments(config: &Path) -> Result<Vec<OsString>, clap::Error> {
    let file = file(config);
    let fault = |what: &dyn std::fmt::Display| {
        let text = format!("{}: {what}; nothing was written\n", file.display());
        clap::Error::raw(ErrorKind::ValueValidation, text)
    };
    let text = std::fs::read_to_string(&file).map_err(|error| fault(&error))?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| fault(&error))?;
    let members = table.remove("members").ok_or_else(|| fault(&"no members"))?;
    let mut words = Vec::new();
    for (key, value) in &table {
        if NOT_IN_A_FILE.contains(&key.as_str()) {
            return Err(fault(&format!("{key} is said on the command line only")));
        }
        words.extend(option(key, value).ok_or_else(|| {
            fault(&format!("{key}: neither a text, a number, true or false, nor a list of such"))
        })?);
    }
    words.push("--".into());
    let patterns = match &members {
        Value::Array(patterns) => patterns.iter().map(Value::as_str).collect(),
        one => one.as_str().map(|pattern| vec![pattern]),
    };
    let patterns: Vec<&str> = patterns.ok_or_else(|| fault(&"members: not a list of texts"))?;
    for pattern in patterns {
        words.extend(matches(pattern).map_err(|why| fault(&format!("members: {why}")))?);
    }
    Ok(words)
}

/// Where a configuration is: what has neither a directory nor the suffix is a name below /etc/lapstrake.
fn file(config: &Path) -> PathBuf {
    let is_name =
        config.components().count() == 1 && !config.as_os_str().as_encoded_bytes().contains(&b'/');
    if !is_name {
        return config.to_owned();
    }
    let dir = std::env::var_os("LAPSTRAKE_CONFIG_DIR").unwrap_or_else(|| "/etc/lapstrake".into());
    let mut name = config.as_os_str().to_owned();
    name.push(".toml");
    Path::new(&dir).join(name)
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

/// The members of a pattern, in the order of their names. One without a wildcard need not be there: why not is told when
/// it is opened.
fn matches(pattern: &str) -> Result<Vec<OsString>, String> {
    let spec: MemberSpec = pattern.parse().map_err(|error| format!("{pattern}: {error}"))?;
    let path = spec.path.to_string_lossy();
    if !path.contains(['*', '?', '[']) || spec.path.exists() {
        return Ok(vec![pattern.into()]);
    }
    let paths = glob::glob(&path).map_err(|error| format!("{pattern}: {error}"))?;
    let found = paths.map(|path| {
        let path = path.map_err(|error| format!("{pattern}: {error}"))?;
        Ok(MemberSpec { path, ..spec.clone() }.to_string().into())
    });
    let found: Vec<OsString> = found.collect::<Result<_, String>>()?;
    if found.is_empty() {
        return Err(format!("{pattern}: no file matches"));
    }
    Ok(found)
}
