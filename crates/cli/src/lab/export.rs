//! `lapstrake lab export`.

use super::{StoreArgs, load, write};
use crate::exit::{Exit, Outcome};
use lapstrake_lab::export;
use lapstrake_lab::report::{self, Report};
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  lapstrake lab export --csv -o runs.csv
  lapstrake lab export --json 1 2 > all.json
  lapstrake lab export --markdown

Exit codes:
  0  exported
  1  the store could not be read, or the file not be written
  2  usage, or there is no such experiment";

/// Export experiments: every run as CSV, everything as JSON, or the report as Markdown.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
#[command(group = clap::ArgGroup::new("format").required(true))]
pub struct Args {
    /// Numbers of experiments; the latest if none is named
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<i64>,
    /// A line for each run's phase
    #[arg(long, group = "format")]
    csv: bool,
    /// Everything: plan, facts, runs, time series, histograms, the programs' own output
    #[arg(long, group = "format")]
    pub json: bool,
    /// What `report` says
    #[arg(long, group = "format")]
    markdown: bool,
    /// The file to write; printed if none is named
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

pub fn run(args: &Args) -> Outcome {
    let stored = load(&args.store.store, &args.experiments)?;
    let text = if args.csv {
        export::csv(&stored)?
    } else if args.markdown {
        report::markdown(&Report::of(&stored))
    } else {
        format!("{:#}\n", export::json(&stored, true))
    };
    write(args.output.as_deref(), &text)?;
    Ok(Exit::Done)
}
