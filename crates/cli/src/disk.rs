//! `lapstrake disk`: profiles of disks, and the models that they describe.

mod import;
mod measure;
mod replay;
mod show;

use crate::exit::{Failure, Outcome};
use lapstrake_model::profile::{Profile, builtin};
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

/// A file's text, or why there is none.
fn text(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::new(format!("{}: cannot read it: {error}", path.display()));
    std::fs::read_to_string(path).map_err(failed)
}

/// The profile that a user means, and its text.
fn profile(name: &str) -> Result<(Profile, String), Failure> {
    let text = match builtin::text(name) {
        Some(text) => text.to_owned(),
        None if Path::new(name).exists() => text(Path::new(name))?,
        None => {
            let why =
                "no built-in profile and no file; lapstrake disk list names the built-in ones";
            return Err(Failure::new(format!("{name}: {why}")));
        }
    };
    let profile = Profile::from_toml(&text);
    let profile = profile.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    Ok((profile, text))
}

/// Writes a profile; whether it was there already.
fn write(path: &Path, text: &str, force: bool) -> Result<bool, Failure> {
    match std::fs::read_to_string(path) {
        Ok(old) if old == text => return Ok(true),
        Ok(_) if !force => {
            let path = path.display();
            return Err(Failure::new(format!("{path}: holds something else; --force replaces it")));
        }
        _ => {}
    }
    let failed = |error| Failure::new(format!("{}: cannot write it: {error}", path.display()));
    std::fs::write(path, text).map_err(failed)?;
    Ok(false)
}
