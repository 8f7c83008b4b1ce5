//! `lapstrake disk`: profiles of disks, and the models that they describe.

mod import;
mod measure;
mod replay;
mod show;

use crate::exit::{Failure, Outcome};
use lapstrake_device::quoted;
use lapstrake_lab::{TEXT_MAX, near, read_text};
use lapstrake_model::profile::{Profile, builtin};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

const HELP: &str = "\
Examples:
  lapstrake disk list
  lapstrake disk show hdd-20tb
  lapstrake disk import --model cheetah.model --diskspecs cheetah.diskspecs -o cheetah.toml
  lapstrake disk replay cheetah.toml cheetah.trace --json
  lapstrake disk measure /dev/sdb -o sdb.toml

Profiles:
  A PROFILE is the name of a built-in one (`lapstrake disk list`) or a file.

Exit codes:
  0  done
  1  failed; the message says what was left untouched
  2  usage";

/// Profiles of disks: list, show, import, measure, and judge them by a trace.
#[derive(clap::Args)]
#[command(after_long_help = HELP, subcommand_required = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(show::ListArgs),
    Show(show::ShowArgs),
    Import(import::Args),
    Replay(replay::Args),
    Measure(measure::Args),
}

impl Args {
    /// Whether the report was asked for in JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::List(args) => args.json,
            Command::Show(args) => args.json,
            Command::Import(args) => args.json,
            Command::Replay(args) => args.json,
            Command::Measure(args) => args.json,
        }
    }
}

pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::List(args) => show::list(args),
        Command::Show(args) => show::show(args),
        Command::Import(args) => import::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Measure(args) => measure::run(args),
    }
}

/// Bytes of a trace at most: some millions of requests.
const TRACE_MAX: u64 = 256 << 20;

/// A file's text, or why there is none.
fn text(path: &Path, most: u64) -> Result<String, Failure> {
    let failed = |error| Failure::new(format!("{}: cannot read it: {error}", path.display()));
    read_text(path, most).map_err(failed)
}

/// The profile that a user means, and its text.
fn profile(name: &str) -> Result<(Profile, String), Failure> {
    let text = match builtin::text(name) {
        Some(text) => text.to_owned(),
        None if Path::new(name).exists() => text(Path::new(name), TEXT_MAX)?,
        None => {
            let like = near::names(name, &builtin::names());
            let like = like.map_or(String::new(), |like| format!(" (is {like} meant?)"));
            return Err(Failure::new(format!(
                "{}: no built-in profile and no file{like}; lapstrake disk list names the built-in ones",
                quoted(name)
            )));
        }
    };
    let profile = Profile::from_toml(&text);
    let profile = profile.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok((profile, text))
}

/// Whether a profile of what these files hold can be written to a path: none if there is no such file, else whether it
/// holds `text`.
fn target(
    path: &Path,
    sources: &[&Path],
    text: Option<&str>,
    force: bool,
) -> Result<Option<bool>, Failure> {
    let told = |why: &str| Failure::new(format!("{}: {why}; nothing was written", path.display()));
    let Ok(is) = std::fs::metadata(path) else {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        return match parent {
            Some(parent) if !parent.is_dir() => Err(told("there is no such directory")),
            _ if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                Err(told("a directory's name, not a file's"))
            }
            _ => Ok(None),
        };
    };
    if is.is_dir() {
        return Err(told("is a directory; name the file to write"));
    }
    if is.file_type().is_block_device() {
        return Err(told("is a block device; name the file to write"));
    }
    // What goes to a terminal or a pipe replaces nothing.
    if !is.is_file() {
        return Ok(None);
    }
    let is_it = |source: &&&Path| {
        std::fs::metadata(source).is_ok_and(|it| (it.dev(), it.ino()) == (is.dev(), is.ino()))
    };
    if let Some(source) = sources.iter().find(is_it) {
        return Err(told(&format!("is {} itself; name another file to write", source.display())));
    }
    let is_same = text.is_some_and(|text| {
        is.len() == text.len() as u64 && std::fs::read(path).is_ok_and(|old| old == text.as_bytes())
    });
    if !is_same && !force {
        let what = if text.is_some() { "holds something else" } else { "is there already" };
        return Err(told(&format!("{what}; --force replaces it")));
    }
    Ok(Some(is_same))
}

/// Writes a profile; whether it was there already.
fn write(path: &Path, sources: &[&Path], text: &str, force: bool) -> Result<bool, Failure> {
    if target(path, sources, Some(text), force)? == Some(true) {
        return Ok(true);
    }
    let failed = |error| Failure::new(format!("{}: cannot write it: {error}", path.display()));
    std::fs::write(path, text).map_err(failed)?;
    Ok(false)
}
