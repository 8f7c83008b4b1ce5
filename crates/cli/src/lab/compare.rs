//! `lapstrake lab compare`.

use super::{StoreArgs, load};
use crate::exit::{Exit, Failure, Outcome};
use lapstrake_lab::report::units::{digits, value};
use lapstrake_lab::report::{Compared, Line, Pair, Report, compare};
use serde_json::{Value, json};

const HELP: &str = "\
Examples:
  lapstrake lab compare 'raid5 64K' 'raid10 64K'
  lapstrake lab compare 'raid5 degraded' raid5
  lapstrake lab compare 4 3

Exit codes:
  0  compared
  1  the store could not be read
  2  usage, or nothing there bears the names";

/// Compare two subjects, or two experiments, over all loads.
///
/// A and B are words that name cases, such as 'raid5 64K'; those of a subject with members missing are meant only if
/// the words say so ('raid5 degraded'). Or both are numbers of experiments: then what has the same name in both
/// is compared. The ratio is A's figure to B's, with its interval; a difference is called real at a rate of false
/// alarms below 5 %, corrected for all comparisons that are made at once (docs/lab.md).
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// What is asked about
    #[arg(value_name = "A")]
    of: String,
    /// What it is measured by
    #[arg(value_name = "B")]
    to: String,
    /// The experiments in which to look for names; the latest if none is given
    #[arg(long, value_name = "NUMBER")]
    experiment: Vec<i64>,
    #[command(flatten)]
    store: StoreArgs,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let numbers = args.of.parse().ok().zip(args.to.parse().ok());
    let ids = numbers.map_or(args.experiment.clone(), |(of, to): (i64, i64)| vec![of, to]);
    let report = Report::of(&load(&args.store.store, &ids)?);
    let compared = compare(&report, &args.of, &args.to);
    if compared.is_empty() {
        return Err(Failure::usage(nothing(&report, args)));
    }
    if args.json {
        outln!("{:#}", Value::from_iter(compared.iter().map(entry)));
        return Ok(Exit::Done);
    }
    for one in &compared {
        outln!("{}", line(one));
    }
    Ok(Exit::Done)
}

fn nothing(report: &Report, args: &Args) -> String {
    let mut names: Vec<String> = Vec::new();
    for (_, line) in report.tables.iter().flat_map(|table| table.real_lines()) {
        if !names.contains(&line.name()) {
            names.push(line.name());
        }
    }
    let names = names.join("\n  ");
    let floor = "the null subject is the harness alone: `lapstrake lab report` shows it beside every figure";
    format!("no load has both {} and {}; there are\n  {names}\n{floor}", args.of, args.to)
}

fn line(compared: &Compared<'_>) -> String {
    let figure = |line: &Line| format!("{} {}", line.name(), value(line.summary.median, line.unit));
    let (of, to) = (figure(compared.of), figure(compared.to));
    let has_stalled = |line: &Line| line.values().iter().any(|value| value.value <= 0.0);
    let is_zero = has_stalled(compared.of) || has_stalled(compared.to);
    let none = if compared.of.load != compared.to.load {
        "no verdict: the loads have no more in common than their name"
    } else if is_zero {
        "no ratio: a repeat came to 0"
    } else {
        "no verdict"
    };
    let verdict = compared.pair.map_or(none.into(), |pair| {
        let interval = pair
            .interval
            .map(|interval| format!(" ({} to {})", digits(interval.low), digits(interval.high)));
        let interval = interval.unwrap_or_default();
        format!("x {}{interval}, {}", digits(pair.ratio), verdict(compared, pair))
    });
    format!("{}: {of}, {to}: {verdict}", compared.table.title())
}

fn verdict(compared: &Compared<'_>, pair: Pair) -> &'static str {
    match compared.of.is_predicted == compared.to.is_predicted {
        true => pair.verdict().word(),
        false => "no verdict: one of the two was predicted",
    }
}

fn entry(compared: &Compared<'_>) -> Value {
    let side = |line: &Line| {
        json!({
            "name": line.name(),
            "median": line.summary.median,
            "n": line.repeats.len(),
            "predicted": line.is_predicted,
        })
    };
    let interval = compared.pair.and_then(|pair| pair.interval);
    json!({
        "load": compared.table.title(),
        "unit": compared.table.unit,
        "a": side(compared.of),
        "b": side(compared.to),
        "ratio": compared.pair.map(|pair| pair.ratio),
        "low": interval.map(|interval| interval.low),
        "high": interval.map(|interval| interval.high),
        "p": compared.pair.and_then(|pair| pair.p),
        "verdict": compared.pair.map(|pair| verdict(compared, pair)),
    })
}
