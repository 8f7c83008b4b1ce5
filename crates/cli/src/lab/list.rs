//! `lapstrake lab list`.

use super::{StoreArgs, origin};
use crate::exit::{Exit, Outcome};
use crate::text;
use lapstrake_lab::store::{Store, StoredExperiment};
use serde_json::{Value, json};

const HELP: &str = "\
Examples:
  lapstrake lab list
  lapstrake lab list --store old.sqlite --json

Exit codes:
  0  listed
  1  the store could not be read
  2  usage";

/// List the experiments in a store.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let experiments = Store::open_to_read(&args.store.store)?.experiments()?;
    if args.json {
        outln!("{:#}", Value::from_iter(experiments.iter().map(entry)));
    } else {
        for experiment in &experiments {
            outln!("{}", line(experiment));
        }
    }
    Ok(Exit::Done)
}

fn line(stored: &StoredExperiment) -> String {
    let began = text::time(stored.started_ms.unsigned_abs() / 1000);
    let end = if stored.finished_ms.is_some() { "" } else { ", not finished" };
    let (id, name) = (stored.id.0, &stored.experiment.name);
    let (origin, cases, runs) = (origin(&stored.experiment.origin), stored.cases, stored.runs);
    format!("{id:>4}  {began}  {name}: {origin}, {cases} cases, {runs} runs{end}")
}

fn entry(stored: &StoredExperiment) -> Value {
    json!({
        "id": stored.id.0,
        "name": stored.experiment.name,
        "origin": origin(&stored.experiment.origin),
        "started_ms": stored.started_ms,
        "finished_ms": stored.finished_ms,
        "cases": stored.cases,
        "runs": stored.runs,
    })
}
