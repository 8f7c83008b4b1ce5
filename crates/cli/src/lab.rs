//! `lapstrake lab`: measures arrays against each other.

mod list;

use crate::exit::Outcome;
use clap::Subcommand;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  lapstrake lab list
  lapstrake lab list --store old.sqlite

Exit codes:
  0  done
  1  failed; the message says what was left untouched
  2  usage";

/// Measure arrays against each other, and say whether a difference is real.
///
/// A plan names disks, the arrays to build of them, and loads. Its results are kept in a store, one SQLite file,
/// beside those of other plans and of other tools.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::Args),
}

impl Args {
    pub fn run(&self) -> Outcome {
        match &self.command {
            Command::List(args) => list::run(args),
        }
    }

    /// Whether the report was asked for in JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::List(args) => args.json,
        }
    }
}

/// Which store.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// The file with the results
    #[arg(long, value_name = "FILE", default_value = "lab.sqlite")]
    pub store: PathBuf,
}
