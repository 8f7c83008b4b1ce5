//! `lapstrake lab import`.

use super::StoreArgs;
use crate::exit::{Exit, Outcome};
use clap::ValueEnum;
use lapstrake_lab::import::{self, Import};
use lapstrake_lab::store::Store;
use serde_json::json;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  lapstrake lab import --name 'old server' bonnie-*.csv
  lapstrake lab import --tool fio --subject md0 run1.json run2.json run3.json

Exit codes:
  0  imported
  1  a file could not be read or understood, or the store not be written; nothing was imported
  2  usage";

/// Import what fio (JSON, JSON+, --minimal), bonnie++ (CSV of 1.03 and of 1.9x and later) or iozone (text) printed.
///
/// The files become one experiment. What they tell of the same load on the same subject are its repeats, in
/// the order in which they are given, several in one file among them. docs/lab.md says what is read of each tool.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The tools' output
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The tool; found out from the text if not given
    #[arg(long)]
    tool: Option<Tool>,
    /// The experiment's name; the first file's if not given
    #[arg(long)]
    name: Option<String>,
    /// What was measured; what the output calls it, or the file's name, if not given
    #[arg(long)]
    subject: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Tool {
    Fio,
    #[value(name = "bonnie++")]
    Bonnie,
    Iozone,
}

impl From<Tool> for import::Tool {
    fn from(tool: Tool) -> Self {
        match tool {
            Tool::Fio => Self::Fio,
            Tool::Bonnie => Self::Bonnie,
            Tool::Iozone => Self::Iozone,
        }
    }
}

pub fn run(args: &Args) -> Outcome {
    let what = Import {
        files: args.files.clone(),
        tool: args.tool.map(Into::into),
        name: args.name.clone(),
        subject: args.subject.clone(),
    };
    let was_there = args.store.store.exists();
    let mut store = Store::open(&args.store.store)?;
    let id = import::import(&mut store, &what).inspect_err(|_| {
        // An empty store that nobody asked for would be left behind.
        if !was_there {
            let _ = std::fs::remove_file(&args.store.store);
        }
    })?;
    if args.json {
        outln!("{:#}", json!({ "experiment": id.0 }));
    } else {
        outln!("experiment {}", id.0);
    }
    Ok(Exit::Done)
}
