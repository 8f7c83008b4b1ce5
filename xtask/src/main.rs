//! The project's own chores, run as `cargo xtask CHORE`: what a Makefile would say too clumsily.

mod accuracy;
mod bench;
mod fuzz;
mod imports;
mod licenses;
mod links;
mod module_cycles;
mod mutants;
mod nostd;
mod pictures;
mod quick;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use cargo_metadata::{Metadata, MetadataCommand};

const USAGE: &str = "\
usage: cargo xtask CHORE
  accuracy [CASES]               predict the arrays of published figures, of cases/ and of a directory of CSV files, beside them
  budget [--quick]               where the time of one 4 KiB request goes, beside nbdkit, as tables
  check-imports                  hold the imports of crates against the allowed arrows, circles of modules against the docs
  check-links                    hold links of Markdown, and what it names of the sources, against what is there
  check-nostd                    compile the pure crates without the standard library
  fuzz SECONDS|--quick [TARGET]...  run the fuzz targets (all), each for so long; --quick: whether they run
  licenses                       print the licenses of all that the command is made of
  mutants [--re R]... [--shard K/N]  change the ordering code, all or a part; a test must notice
  pictures LAPSTRAKE [STORE]     make docs/pictures anew with that command, of an experiment in STORE or one of its own
  quick [CRATE]... [-- TEST...]  format, lints and tests of these crates (those that differ from the last commit)
  schema                         write docs/control.schema.json anew, of the types in crates/control
  bench [--quick] [PACKAGE]...   run the packages of benches/ (all); --quick: seconds, no gates";

/// Why a chore failed: what to tell the user. Findings have been printed by then.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Failed(String),
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: std::io::Error },
    #[error("`{command}` failed ({status})")]
    Command { command: String, status: std::process::ExitStatus },
    #[error("cargo metadata: {0}")]
    Metadata(#[from] cargo_metadata::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["accuracy"] => accuracy::run(None),
        ["accuracy", directory] => accuracy::run(Some(directory)),
        ["budget"] => bench::budget(false),
        ["budget", "--quick"] => bench::budget(true),
        ["check-imports"] => imports::check().and_then(|()| module_cycles::check()),
        ["check-links"] => links::check(),
        ["check-nostd"] => nostd::check(),
        ["fuzz", "--quick", targets @ ..] => fuzz::run_all(None, targets),
        ["fuzz", seconds, targets @ ..] => match seconds.parse() {
            Ok(seconds) => fuzz::run_all(Some(Duration::from_secs(seconds)), targets),
            Err(_) => return usage(),
        },
        ["licenses"] => licenses::print(),
        ["mutants", choice @ ..] => mutants::run(choice),
        ["pictures", lapstrake] => pictures::make(lapstrake, None),
        ["pictures", lapstrake, store] => pictures::make(lapstrake, Some(store)),
        ["quick", arguments @ ..] => quick::check(arguments),
        ["schema"] => run(cargo()
            .args(["test", "--quiet", "-p", "lapstrake-control", "schema"])
            .env("LAPSTRAKE_WRITE_SCHEMA", "1")),
        ["bench", "--quick", packages @ ..] => bench::run_all(true, packages),
        ["bench", packages @ ..] => bench::run_all(false, packages),
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// The workspace's root directory.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The workspace's own packages and their direct dependencies.
fn workspace() -> Result<Metadata, Error> {
    Ok(MetadataCommand::new().current_dir(root()).no_deps().exec()?)
}

/// Cargo, as the one that runs us, in the workspace's root. It is not told what it has told us of this package: build
/// scripts that look at that (ring's does) would be run anew, and programs be replaced that run beside us.
fn cargo() -> Command {
    let program = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.current_dir(root());
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| is_of_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_of_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Runs a command with our own input and outputs.
fn run(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|source| Error::Spawn { program, source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Command { command: format!("{command:?}"), status })
}
