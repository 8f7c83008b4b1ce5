//! `lapstrake lab report`.

use super::{StoreArgs, load, page_to_come, write};
use crate::exit::{Exit, Failure, Outcome};
use lapstrake_lab::report::{self, Report};
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  lapstrake lab report
  lapstrake lab report -o report.html
  lapstrake lab report 3 5 -o both.md

Exit codes:
  0  reported
  1  the store could not be read, or the file not be written
  2  usage, or there is no such experiment";

/// Report what experiments say: in words, then a table or picture for each load.
///
/// Without -o on the terminal. A name that ends in .html makes one file with charts that needs no network, .md makes
/// Markdown. Several experiments stand side by side, load by load.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Numbers of experiments; the latest if none is named
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<i64>,
    /// The file to write: *.html or *.md
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Report in JSON
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let Some(path) = &args.output else {
        let report = Report::of(&load(&args.store.store, &args.experiments)?);
        if args.json {
            outln!("{:#}", report::json(&report));
        } else {
            out!("{}", report::terminal(&report));
        }
        return Ok(Exit::Done);
    };
    let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if !["html", "md"].contains(&kind) {
        return Err(Failure::usage(format!(
            "{}: the name must end in .html or .md, which says what to write",
            path.display()
        )));
    }
    if kind == "html" {
        page_to_come(Some(path))?;
    }
    let stored = load(&args.store.store, &args.experiments)?;
    let report = Report::of(&stored);
    let text = match kind {
        "html" => report::html(&report, &stored),
        _ => report::markdown(&report),
    };
    write(Some(path), &text)?;
    Ok(Exit::Done)
}
