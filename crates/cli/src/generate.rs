//! `lapstrake completions` and `lapstrake man`: from the same table that parses the options.

use crate::Cli;
use crate::exit::{Exit, Failure, Outcome};
use clap::CommandFactory;
use std::io::{self, Write};
use std::path::PathBuf;

const COMPLETIONS_HELP: &str = "\
Examples:
  lapstrake completions bash > /etc/bash_completion.d/lapstrake
  lapstrake completions zsh > ~/.zfunc/_lapstrake

Exit codes:
  0  printed
  1  it could not be written
  2  usage";

/// Print a shell's completions.
#[derive(clap::Args)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// For which shell
    shell: clap_complete::Shell,
}

const MAN_HELP: &str = "\
Examples:
  lapstrake man /usr/local/share/man/man1

Exit codes:
  0  the pages are written
  1  a page could not be written
  2  usage";

/// Write the manual pages into a directory, one for each command.
#[derive(clap::Args)]
#[command(after_long_help = MAN_HELP)]
pub struct ManArgs {
    /// The directory, which is made if it is not there
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lapstrake", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Exit::Done)
}

pub fn man(args: &ManArgs) -> Outcome {
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", args.dir.display()));
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)?;
    Ok(Exit::Done)
}
