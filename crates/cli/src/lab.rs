//! `lapstrake lab`: measures arrays against each other.

mod run;

use crate::exit::Outcome;
use clap::Subcommand;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  lapstrake lab check plans/quick.toml
  lapstrake lab run plans/quick.toml

Exit codes:
  0  done
  1  failed; the message says what was left untouched
  2  usage, or the plan is wrong
  3  done in part (see each command)";

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
    Check(run::CheckArgs),
    Run(run::RunArgs),
}

impl Args {
    pub fn run(&self) -> Outcome {
        match &self.command {
            Command::Check(args) => run::check(args),
            Command::Run(args) => run::run(args),
        }
    }

    /// Whether the report was asked for in JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Check(args) => args.what.json,
            Command::Run(args) => args.what.json,
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
