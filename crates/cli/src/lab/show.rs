//! `lapstrake lab show`.

use super::{StoreArgs, load, origin};
use crate::exit::{Exit, Outcome};
use crate::text;
use lapstrake_lab::export;
use lapstrake_lab::record::{Facts, Phase, Run};
use lapstrake_lab::report::units;
use lapstrake_lab::series;
use lapstrake_lab::store::{Stored, StoredCase};

const HELP: &str = "\
Examples:
  lapstrake lab show
  lapstrake lab show 3 --store old.sqlite

Exit codes:
  0  shown
  1  the store could not be read
  2  usage, or there is no such experiment";

/// Show an experiment as it stands in the store: machine, cases, each run.
///
/// Nothing is worked out but the figure without its warm-up. With --json it is all that is known, time series,
/// histograms and the programs' own output among it.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Its number; the latest if none is named
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<i64>,
    #[command(flatten)]
    store: StoreArgs,
    /// Show the plan, too
    #[arg(long)]
    plan: bool,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let stored = load(&args.store.store, args.experiment.as_slice())?;
    if args.json {
        outln!("{:#}", export::json(&stored, true));
        return Ok(Exit::Done);
    }
    for one in &stored {
        out!("{}", shown(one, args.plan));
    }
    Ok(Exit::Done)
}

fn shown(stored: &Stored, with_plan: bool) -> String {
    let head = &stored.head;
    let time = |ms: i64| text::time(ms.unsigned_abs() / 1000);
    let ended =
        head.finished_ms.map_or("not finished".into(), |ms| format!("finished {}", time(ms)));
    let mut out = format!(
        "experiment {}: {}, {}\n  begun {}, {ended}\n",
        head.id.0,
        head.experiment.name,
        origin(&head.experiment.origin),
        time(head.started_ms)
    );
    out += &facts(&head.experiment.facts);
    if with_plan {
        out += "  plan:\n";
        head.experiment.plan.lines().for_each(|line| out += &format!("    {line}\n"));
    }
    let mut last = "";
    for (case, runs) in &stored.cases {
        if case.subject.name != last {
            out += &format!("\n{}\n", case.subject.name);
            case.subject.detail.lines().for_each(|line| out += &format!("  {line}\n"));
        }
        last = &case.subject.name;
        out += &one_case(case, runs);
    }
    out
}

fn facts(facts: &Facts) -> String {
    let mut out = String::new();
    for line in [&facts.kernel, &facts.cpu] {
        if !line.is_empty() {
            out += &format!("  {line}\n");
        }
    }
    for (name, version) in &facts.versions {
        out += &format!("  {name} {version}\n");
    }
    for device in &facts.devices {
        let (name, path, model) = (&device.name, &device.path, &device.model);
        out += &format!("  disk {name}: {path} {model} {}\n", units::bytes(device.bytes));
    }
    out
}

fn one_case(case: &StoredCase, runs: &[Run]) -> String {
    let mut out = format!("  {}, {}\n", case.workload.name, case.state);
    for run in runs {
        if let Some(error) = &run.error {
            out += &format!("    round {}: failed: {error}\n", run.round + 1);
        }
        for phase in &run.phases {
            out += &format!("    round {}: {}\n", run.round + 1, figure(phase));
        }
    }
    out
}

fn figure(phase: &Phase) -> String {
    let (settled, steady) = series::settled_value(phase);
    let mut out = String::new();
    if !phase.name.is_empty() {
        out += &format!("{} ", phase.name);
    }
    out += &units::value(settled, phase.figure.unit);
    if (settled - phase.figure.value).abs() > f64::EPSILON * settled.abs() {
        out +=
            &format!(" ({} with its warm-up)", units::value(phase.figure.value, phase.figure.unit));
    }
    if phase.seconds > 0.0 {
        out += &format!(" in {} s", units::digits(phase.seconds));
    }
    if steady.is_some_and(|steady| !steady.is_steady) {
        out += ", not steady";
    }
    out
}
