//! `lapstrake completions` and `lapstrake man`: from the same table that parses the options.

mod manual;

use crate::Cli;
use crate::complete::VARIABLE;
use crate::exit::{Exit, Failure, Outcome};
use clap::{Arg, ArgGroup, Command, CommandFactory, Id};
use clap_complete::Shell;
use clap_complete::env::Shells;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

const COMPLETIONS_HELP: &str = "\
Examples:
  lapstrake completions bash > /etc/bash_completion.d/lapstrake
  lapstrake completions zsh > ~/.zfunc/_lapstrake

Exit codes:
  0  printed
  1  it could not be written
  2  usage";

/// zsh runs a file that it finds in $fpath as a function's first call, which is to complete, too.
const ZSH_END: &[u8] =
    b"[[ ${funcstack[1]} != _lapstrake ]] || _clap_dynamic_completer_lapstrake \"$@\"\n";

/// Print what makes a shell complete commands.
///
/// The shell then asks `lapstrake` itself, which offers commands, options and their values, the arrays that are served,
/// their members, disk profiles, and the settings of `lapstrake set`.
#[derive(clap::Args)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// For which shell
    shell: Shell,
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
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&shell).expect("those that clap_complete can write");
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "lapstrake", "lapstrake", "lapstrake", &mut script)?;
    if args.shell == Shell::Zsh {
        script.extend_from_slice(ZSH_END);
    }
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush())?;
    Ok(Exit::Done)
}

pub fn man(args: &ManArgs) -> Outcome {
    let failed = |error: io::Error| {
        let next = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "; name a directory for the pages"
            }
            _ => "",
        };
        Failure::new(format!("{}: cannot write the pages there: {error}{next}", args.dir.display()))
    };
    fs::create_dir_all(&args.dir).map_err(failed)?;
    let mut command = Cli::command();
    command.build();
    manual::write(&with_usage(command), &args.dir).map_err(failed)?;
    Ok(Exit::Done)
}

/// A command that is built, with a synopsis of all that is its own: without it `clap_mangen` tells no values.
fn with_usage(command: Command) -> Command {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    if command.has_subcommands() {
        return command.mut_subcommands(with_usage).override_usage(name + " <COMMAND>");
    }
    let alternatives = |group: &ArgGroup| {
        let members =
            command.get_arguments().filter(|arg| group.get_args().any(|id| id == arg.get_id()));
        format!("<{}>", members.map(ToString::to_string).collect::<Vec<_>>().join("|"))
    };
    let groups: Vec<_> = command.get_groups().filter(|group| group.is_required_set()).collect();
    let grouped: Vec<&Id> = groups.iter().flat_map(|group| group.get_args()).collect();
    let is_own =
        |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let own = command.get_arguments().filter(is_own);
    let alone = own.filter(|arg| !grouped.contains(&arg.get_id()));
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) = alone.partition(|arg| arg.is_positional());
    let (required, optional): (Vec<&Arg>, Vec<&Arg>) =
        options.into_iter().partition(|arg| arg.is_required_set());
    let words = [name]
        .into_iter()
        .chain(required.into_iter().map(ToString::to_string))
        .chain(groups.into_iter().map(alternatives))
        .chain(optional.into_iter().map(|arg| format!("[{arg}]")))
        .chain(positional.into_iter().map(ToString::to_string));
    let usage = words.collect::<Vec<_>>().join(" ");
    command.override_usage(usage)
}
