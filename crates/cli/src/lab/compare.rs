//! `lapstrake lab compare`.

use super::{StoreArgs, load};
use crate::exit::{Exit, Failure, Outcome};
use lapstrake_lab::record::Unit;
use lapstrake_lab::report::units::{digits, scale};
use lapstrake_lab::report::{Compared, Line, Pair, Report, Verdict, columns, compare, plus_minus};
use lapstrake_lab::width;
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
/// is compared. The ratio is A's figure to B's, with the interval that decides: the verdict is that of `lab report`,
/// corrected for all pairs of a load (docs/lab.md). "~" says undecided, "≈" no real difference.
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
    out!("{}", text(args, &compared));
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

/// A table for each unit, and what its signs mean.
fn text(args: &Args, compared: &[Compared<'_>]) -> String {
    let mut units: Vec<Unit> = compared.iter().map(|one| one.table.unit).collect();
    units.sort_unstable();
    units.dedup();
    let mut out = String::new();
    for unit in units {
        let of: Vec<&Compared<'_>> = compared.iter().filter(|one| one.table.unit == unit).collect();
        out += &format!("{}\n\n", table(args, &of));
    }
    out + &signs(compared)
}

/// The figures of both sides, their ratio and its interval; the geometric mean of the ratios last.
fn table(args: &Args, compared: &[&Compared<'_>]) -> String {
    let unit = compared[0].table.unit;
    let medians = compared.iter().flat_map(|one| [one.of.summary.median, one.to.summary.median]);
    let (size, unit) = scale(medians.fold(0.0, f64::max), unit);
    let names = |side: fn(&Compared<'_>) -> String| {
        let mut names: Vec<String> = compared.iter().map(|one| side(one)).collect();
        names.dedup();
        names
    };
    let (of, to) = (names(|one| one.of.name()), names(|one| one.to.name()));
    // Where one side has several names, each row says which it is.
    let is_one = of.len() == 1 && to.len() == 1;
    let row = |one: &&Compared<'_>| {
        let case = match (of == to, is_one) {
            (_, true) => String::new(),
            (true, _) => format!(": {}", one.of.name()),
            _ => format!(": {}, {}", one.of.name(), one.to.name()),
        };
        let figure = |line: &Line| digits(line.summary.median / size);
        let (ratio, interval) = ratio(one);
        vec![
            format!("{}{case}", one.table.title()),
            figure(one.to),
            plus_minus(one.to),
            figure(one.of),
            plus_minus(one.of),
            ratio,
            interval,
        ]
    };
    let mut rows: Vec<Vec<String>> = compared.iter().map(row).collect();
    let logs: Vec<f64> = compared.iter().filter_map(|one| Some(one.pair?.ratio.ln())).collect();
    if logs.len() > 1 {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        let mut last = vec![String::new(); 7];
        (last[0], last[5]) = ("geometric mean".into(), format!("x {}", digits(mean)));
        rows.push(last);
    }
    let side = |names: &[String], asked: &str| {
        if names.len() == 1 { names[0].clone() } else { asked.to_owned() }
    };
    let (of, to) = (side(&of, &args.of), side(&to, &args.to));
    let header = [unit.into(), to, String::new(), of, String::new(), "ratio".into(), String::new()];
    columns(&header, &rows)
}

/// The ratio with its verdict's sign, and its interval.
fn ratio(compared: &Compared<'_>) -> (String, String) {
    let Some(pair) = compared.pair else { return ("-".into(), String::new()) };
    let sign = match pair.verdict() {
        Verdict::Real(_) => "",
        Verdict::NoRealDifference => "≈ ",
        Verdict::CannotTell => "~ ",
    };
    let interval = pair.interval;
    let interval =
        interval.map(|interval| format!("{} to {}", digits(interval.low), digits(interval.high)));
    (format!("{sign}x {}", digits(pair.ratio)), interval.unwrap_or_default())
}

/// What the signs mean, of those that there are.
fn signs(compared: &[Compared<'_>]) -> String {
    let has = |of: &dyn Fn(&Compared<'_>) -> bool| compared.iter().any(of);
    let is = |one: &Compared<'_>, asked| one.pair.is_some_and(|pair| pair.verdict() == asked);
    let is_modelled = |one: &Compared<'_>| one.of.is_predicted != one.to.is_predicted;
    let open = |one: &Compared<'_>| is(one, Verdict::CannotTell) && !is_modelled(one);
    let has_stalled = |line: &Line| line.values().iter().any(|value| value.value <= 0.0);
    let stalled = |one: &Compared<'_>| has_stalled(one.of) || has_stalled(one.to);
    let mut lines = Vec::new();
    if has(&open) {
        let more = compared.iter().filter(|one| open(one)).map(|one| one.pair?.more_rounds);
        let more = more.collect::<Option<Vec<u32>>>().and_then(|more| more.into_iter().max());
        let more = match more {
            Some(1) => ": about one more round would settle it".to_owned(),
            Some(more) => format!(": about {more} more rounds would settle it"),
            None => ": too few rounds, or too much noise".to_owned(),
        };
        let count = compared.iter().filter(|one| open(one)).count();
        lines.push(format!("~ undecided ({count} of {}){more}", compared.len()));
    }
    if has(&|one| is(one, Verdict::NoRealDifference)) {
        lines.push("≈ no real difference: within 5 %".to_owned());
    }
    if has(&is_modelled) {
        lines.push("one of the two was predicted: ratios without a verdict".to_owned());
    }
    if has(&|one| one.pair.is_none() && stalled(one)) {
        lines.push("- no ratio: a round came to 0".to_owned());
    }
    if has(&|one| one.of.load != one.to.load) {
        lines.push("- no verdict: the loads have no more in common than their name".to_owned());
    }
    lines.iter().map(|line| width::wrapped(line, "", "  ")).collect()
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
