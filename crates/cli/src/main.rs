//! The `lapstrake` command: parsing, printing and exit codes. What is worth testing on its own
//! lives in the other crates.

// They panic when nobody can take what they print; see `print`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
mod print;

mod advise;
mod cat;
mod complete;
mod create;
mod deduce;
mod detail;
mod disk;
mod examine;
mod exit;
mod gateway;
mod generate;
mod grow;
mod lab;
mod logging;
mod look;
mod mdadm;
mod members;
mod monitor;
mod on_top;
mod options;
mod patience;
mod predict;
mod reader;
mod scan;
mod serve;
mod set;
mod stack;
mod status;
mod stop;
mod sync;
mod target;
mod text;
mod tree;
mod update;
mod wait;
mod words;

use clap::{CommandFactory, Parser, Subcommand};
use exit::{Failure, Outcome};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::process::ExitCode;

/// Linux software RAID (md) in user space.
///
/// Creates, reads, serves and explains md arrays in files and block devices, without the kernel's
/// md driver and without root. What it writes, the kernel's md assembles, and the other way round.
#[derive(Parser)]
#[command(
    name = "lapstrake",
    version,
    max_term_width = 100,
    propagate_version = true,
    disable_help_subcommand = true,
    after_long_help = options::MEMBERS_AND_CODES
)]
pub struct Cli {
    #[command(flatten)]
    logging: logging::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Box<create::Args>),
    Examine(examine::Args),
    Scan(scan::Args),
    Deduce(deduce::Args),
    Look(look::Args),
    Cat(cat::Args),
    Serve(Box<serve::Args>),
    Gateway(gateway::Args),
    Status(status::Args),
    Monitor(monitor::Args),
    Detail(detail::Args),
    #[command(flatten)]
    Members(members::Command),
    Grow(grow::Args),
    #[command(flatten)]
    Sync(sync::Command),
    Wait(wait::Args),
    Set(set::Args),
    Stop(stop::Args),
    Update(Box<update::UpdateArgs>),
    ZeroSuperblock(update::ZeroArgs),
    Dump(update::DumpArgs),
    Restore(update::RestoreArgs),
    Disk(disk::Args),
    Lab(lab::Args),
    Predict(predict::Args),
    Advise(Box<advise::Args>),
    Completions(generate::CompletionsArgs),
    Man(generate::ManArgs),
}

impl Command {
    fn run(self) -> Outcome {
        match self {
            Self::Create(args) => create::run(&args),
            Self::Examine(args) => examine::run(&args),
            Self::Scan(args) => scan::run(&args),
            Self::Deduce(args) => deduce::run(&args),
            Self::Look(args) => look::run(&args),
            Self::Cat(args) => cat::run(&args),
            Self::Serve(args) => serve::run(&args),
            Self::Gateway(args) => gateway::run(&args),
            Self::Status(args) => status::run(&args),
            Self::Monitor(args) => monitor::run(&args),
            Self::Detail(args) => detail::run(&args),
            Self::Members(command) => command.run(),
            Self::Grow(args) => grow::run(&args),
            Self::Sync(command) => command.run(),
            Self::Wait(args) => wait::run(&args),
            Self::Set(args) => set::run(&args),
            Self::Stop(args) => stop::run(&args),
            Self::Update(args) => update::run_update(&args),
            Self::ZeroSuperblock(args) => update::run_zero(&args),
            Self::Dump(args) => update::run_dump(&args),
            Self::Restore(args) => update::run_restore(&args),
            Self::Disk(args) => disk::run(&args),
            Self::Lab(args) => args.run(),
            Self::Predict(args) => predict::run(&args),
            Self::Advise(args) => advise::run(&args),
            Self::Completions(args) => generate::completions(&args),
            Self::Man(args) => generate::man(&args),
        }
    }
}

impl Command {
    /// Whether its report was asked for in JSON.
    fn json(&self) -> bool {
        match self {
            Self::Create(args) => args.json,
            Self::Examine(args) => args.json,
            Self::Scan(args) => args.json,
            Self::Deduce(args) => args.json,
            Self::Look(args) => args.json,
            Self::Cat(args) => args.json,
            Self::Serve(args) => args.json,
            Self::Gateway(args) => args.json,
            Self::Status(args) => args.json,
            Self::Monitor(args) => args.json,
            Self::Detail(args) => args.target.json,
            Self::Members(command) => command.target().json,
            Self::Grow(args) => args.target.json,
            Self::Sync(command) => command.target().json,
            Self::Wait(args) => args.target.json,
            Self::Set(args) => args.target.json,
            Self::Stop(args) => args.target.json,
            Self::Update(args) => args.how.json,
            Self::ZeroSuperblock(args) => args.how.json,
            Self::Dump(args) => args.json,
            Self::Restore(args) => args.how.json,
            Self::Disk(args) => args.json(),
            Self::Lab(args) => args.json(),
            Self::Predict(args) => args.json,
            Self::Advise(args) => args.json,
            Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

fn main() -> ExitCode {
    clap_complete::CompleteEnv::with_factory(Cli::command).var(complete::VARIABLE).complete();
    let line = mdadm::with_help(std::env::args_os().collect());
    let cli = Cli::try_parse_from(line)
        .and_then(with_config)
        .unwrap_or_else(|error| misunderstood(error));
    let json = cli.command.json();
    let lends_output = matches!(&cli.command, Command::Serve(args) if args.run.is_some());
    outlive_file_limits();
    let serves = matches!(cli.command, Command::Serve(_) | Command::Gateway(_));
    if !serves {
        end_quietly_without_reader();
    }
    logging::start(&cli.logging, serves);
    if matches!(&cli.command, Command::Serve(args) if args.daemon)
        && let Err(error) = serve::daemon::detach()
    {
        logging::tell_failure(&format!("cannot go on in the background: {error}"));
        return exit::Exit::Failed.into();
    }
    let words = if serves { speak_without_waiting() } else { Ok(()) };
    let exit = match words.map_err(Failure::new).and_then(|()| cli.command.run()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            logging::tell_failure(&failure.message);
            if json {
                let report = serde_json::json!({ "error": words::plain(&failure.message) });
                // Who started a server may have gone, or lent its output to a command.
                match lends_output {
                    true => errln!("{report}"),
                    false => print::try_print(format_args!("{report}\n")).unwrap_or_default(),
                }
            }
            failure.exit.into()
        }
    };
    words::finish();
    exit
}

/// With what the file of `serve --config` says.
fn with_config(cli: Cli) -> Result<Cli, clap::Error> {
    let Command::Serve(args) = &cli.command else { return Ok(cli) };
    let Some(config) = &args.config else { return Ok(cli) };
    if !args.members.is_empty() {
        let text = "--config: the members are those that the file names; give none here\n";
        return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, text));
    }
    let words = serve::config::arguments(config, args.name.is_some())?;
    let mut line: Vec<_> = std::env::args_os().collect();
    let behind = line.iter().position(|word| word == "serve").expect("it was read just now") + 1;
    line.splice(behind..behind, words.options);
    line.push("--".into());
    line.extend(words.members);
    Cli::try_parse_from(line)
}

/// Ends for a command line that asks for help, or for what there is not.
fn misunderstood(mut error: clap::Error) -> ! {
    mdadm::translate(&mut error);
    // Help and version are no errors.
    if error.use_stderr() {
        if std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json") {
            let report = serde_json::json!({ "error": words::plain(error.to_string().trim_end()) });
            let _ = print::try_print(format_args!("{report}\n"));
        }
        // With nowhere to say it, it is left unsaid.
        let _ = error.print();
    } else if let Err(unprinted) = error.print() {
        if unprinted.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(print::PIPE_CLOSED);
        }
        errln!("lapstrake: cannot write to standard output: {unprinted}");
        std::process::exit(1);
    }
    std::process::exit(error.exit_code())
}

/// A server waits for nobody to read its words, its last ones before it ends by a fault of its own included.
fn speak_without_waiting() -> std::io::Result<()> {
    words::queue()?;
    std::panic::set_hook(Box::new(|info| {
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => tracing::error!("{info}\n{trace}"),
            _ => tracing::error!("{info}"),
        }
        words::finish();
    }));
    Ok(())
}

/// A write beyond the limit of a file's size (`ulimit -f`) is an error as any other.
fn outlive_file_limits() {
    // SAFETY: sets a disposition; no handler is involved, no thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// `lapstrake cat ... | head` ends when `head` does, as other commands in a pipe do. A server must
/// not, so it keeps Rust's way of ignoring the signal.
fn end_quietly_without_reader() {
    // SAFETY: resets a signal to its default; no handler is involved, no thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_options_is_sound() {
        Cli::command().debug_assert();
    }

    /// All commands, those with commands below them and those below.
    fn commands() -> Vec<clap::Command> {
        let mut found: Vec<clap::Command> = Cli::command().get_subcommands().cloned().collect();
        let below: Vec<_> =
            found.iter().flat_map(|command| command.get_subcommands().cloned()).collect();
        found.extend(below);
        found
    }

    #[test]
    fn every_command_explains_itself_by_example_and_exit_codes() {
        for mut command in commands() {
            let help = command.render_long_help().to_string();
            for part in ["Examples:", "Exit codes:", "--help"] {
                assert!(help.contains(part), "{} has no {part}\n{help}", command.get_name());
            }
        }
    }

    /// Words of a line as a shell has them, up to what is the shell's own.
    fn shell_words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in line.chars().chain([' ']) {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, ' ') => {
                    words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty()))
                }
                (_, c) => word.push(c),
            }
        }
        words
            .into_iter()
            .take_while(|word| !["|", ">", "&", "&&"].contains(&word.as_str()))
            .collect()
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        let mut seen = 0;
        for mut command in commands() {
            let help = command.render_long_help().to_string();
            let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
            for part in
                lines.take_while(|line| line.starts_with("  ")).flat_map(|line| line.split(" && "))
            {
                let line = part.trim().trim_start_matches("watch -n1 ");
                // A remark is set off by blanks.
                let line = line.split("   ").next().unwrap_or_default();
                if line.starts_with("lapstrake ") {
                    seen += 1;
                    let read = Cli::try_parse_from(shell_words(line));
                    assert!(read.is_ok(), "{line}: {}", read.err().unwrap());
                }
            }
        }
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn every_command_that_reports_has_json() {
        for command in commands().iter().filter(|command| !command.has_subcommands()) {
            let has = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            let generates = ["completions", "man"].contains(&command.get_name());
            assert!(has != generates, "{}", command.get_name());
        }
    }
}
