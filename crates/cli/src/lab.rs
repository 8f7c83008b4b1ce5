//! `lapstrake lab`: measures arrays against each other.

mod compare;
mod export;
mod import;
mod list;
mod report;
mod run;
mod show;

use crate::exit::{Failure, Outcome};
use clap::Subcommand;
use lapstrake_lab::record::Origin;
use lapstrake_lab::store::{ExperimentId, Store, Stored};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Examples:
  lapstrake lab check plans/quick.toml
  lapstrake lab run
  lapstrake lab report -o report.html
  lapstrake lab compare 'raid5 64K' 'raid10 64K'

Exit codes:
  0  done
  1  failed; the message says what was left untouched
  2  usage, or the plan is wrong or cannot be read
  3  done in part (see each command)";

/// Measure arrays against each other, and say whether a difference is real.
///
/// A plan names disks, the arrays to build of them, and loads. Its results are kept in a store, one SQLite file,
/// beside those of other plans and of other tools.
#[derive(clap::Args)]
#[command(after_long_help = HELP, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(run::CheckArgs),
    Run(run::RunArgs),
    List(list::Args),
    Show(show::Args),
    Compare(compare::Args),
    Report(report::Args),
    Export(export::Args),
    Import(import::Args),
}

impl Args {
    pub fn run(&self) -> Outcome {
        match &self.command {
            Command::Check(args) => run::check(args),
            Command::Run(args) => run::run(args),
            Command::List(args) => list::run(args),
            Command::Show(args) => show::run(args),
            Command::Compare(args) => compare::run(args),
            Command::Report(args) => report::run(args),
            Command::Export(args) => export::run(args),
            Command::Import(args) => import::run(args),
        }
    }

    /// Whether the report was asked for in JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Check(args) => args.what.json,
            Command::Run(args) => args.what.json,
            Command::List(args) => args.json,
            Command::Show(args) => args.json,
            Command::Compare(args) => args.json,
            Command::Report(args) => args.json,
            Command::Export(args) => args.json,
            Command::Import(args) => args.json,
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

/// Loads experiments by their numbers; the latest if none is named.
pub(crate) fn load(store: &Path, ids: &[i64]) -> Result<Vec<Stored>, Failure> {
    let opened = Store::open_to_read(store)?;
    let mut ids: Vec<i64> = ids.to_vec();
    if ids.is_empty() {
        let latest = opened.experiments()?.last().map(|experiment| experiment.id.0);
        let none = || Failure::new(format!("{}: no experiment is in it", store.display()));
        ids.push(latest.ok_or_else(none)?);
    }
    let one = |id: &i64| {
        let found = opened.load(ExperimentId(*id))?;
        found.ok_or_else(|| {
            Failure::usage(format!(
                "{}: no experiment {id} is in it; `lapstrake lab list` names them",
                store.display()
            ))
        })
    };
    ids.iter().map(one).collect()
}

/// Where an experiment's figures come from.
fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Measured => "measured".into(),
        Origin::Predicted => "predicted".into(),
        Origin::Imported { tool } => format!("imported from {tool}"),
    }
}

/// Writes a file, or prints it if none is named. A file is there whole or not at all.
pub(crate) fn write(to: Option<&Path>, text: &str) -> Result<(), Failure> {
    let Some(path) = to else {
        out!("{text}");
        return Ok(());
    };
    let beside = beside(path);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        Failure::new(format!("{}: {error}; it was left as it was", path.display()))
    })
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
}

/// Bytes in which a page's title is.
const PAGE_HEAD: u64 = 64 << 10;

/// Whether a file is empty or a page that may be replaced.
fn is_page(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(PAGE_HEAD).read_to_end(&mut head)?;
    Ok(head.is_empty() || lapstrake_lab::report::is_page(&String::from_utf8_lossy(&head)))
}

/// Refuses a page that has another name than pages have, that cannot be written, or that would replace something else,
/// before there is work to lose.
pub(crate) fn page_to_come(to: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = to else { return Ok(()) };
    if path.extension().is_none_or(|extension| extension != "html") {
        return Err(Failure::usage(format!(
            "{}: the page's name must end in .html",
            path.display()
        )));
    }
    let refuse = |why: &str| {
        Err(Failure::usage(format!(
            "{}: {why}; nothing was begun: choose another name",
            path.display()
        )))
    };
    if path.is_dir() {
        return refuse("it is a directory");
    }
    if path.is_file() {
        match is_page(path) {
            Ok(true) => {}
            Ok(false) => {
                return refuse("it holds something else than a page of Lapstrake's");
            }
            Err(error) => return refuse(&format!("what is there cannot be read: {error}")),
        }
    }
    let beside = beside(path);
    let options = || File::options().write(true).clone();
    let tried = match options().create_new(true).open(&beside) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            options().open(&beside).map(drop)
        }
        made => made.and_then(|_| std::fs::remove_file(&beside)),
    };
    tried.map_err(|error| {
        let why =
            format!("{}: {error}: it could not be written; nothing was begun", path.display());
        Failure::usage(why)
    })
}
