//! `lapstrake predict`: a plan on models of its disks, in virtual time.

use crate::complete;
use crate::exit::{Exit, Failure, Outcome};
use crate::lab::{StoreArgs, load, page_to_come, write};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lapstrake_device::quoted_path;
use lapstrake_lab::plan::Plan;
use lapstrake_lab::predict::{
    DEFAULT_PROCESSOR, DEFAULT_PROFILE, Evidence, HERE, Options, Prediction, keep, metrics,
    predict, processor_profile, profile_named, table, virtual_time,
};
use lapstrake_lab::report::{self, Report};
use lapstrake_lab::store::Store;
use lapstrake_lab::{TEXT_MAX, read_text, width};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::info;

/// A prediction of more virtual time than this is told to be long.
const LONG: Duration = Duration::from_secs(10 * 3600);

const HELP: &str = "\
Examples:
  lapstrake predict plans/home-2015.toml
  lapstrake predict --draws 25 -o report.html plans/three-disks-2008.toml
  lapstrake predict --profile ssd-nvme-1tb plans/quick.toml

Profiles:
  Each [[disk]] of the plan names its profile (`lapstrake disk list`, `lapstrake disk measure`). Disks that the lab
  would make and that name none are taken for --profile.

Error bars:
  Each case runs once with the profiles as they are, then with every figure drawn as far off as its confidence lets it
  be, each time with other places, where the load has no order, and other angles of the platters. Value: the median of
  these runs. 95 % of such figures lie between low and high: where 95 % of the runs lie, and as far off as the models
  were on published arrays that had no say in them. Where nobody published such figures, it is said to be a guess.

Exit codes:
  0  predicted
  1  it could not be predicted, and nothing was kept; or the report could not be written, the last thing that is done
  2  usage, or the plan is wrong or cannot be read
  3  predicted in part: a run failed";

/// Predict what a plan would measure, without the disks.
///
/// The real engine runs on models of the disks in virtual time. The figures go into the store as predicted ones, beside
/// those that were measured.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The plan, a TOML file
    plan: PathBuf,
    /// From which all that is chance is drawn: profiles, places, platters, lives; the plan's own if none is given
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Runs of each case, for the error bars
    #[arg(
        long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000),
        allow_negative_numbers = true
    )]
    draws: u32,
    /// The profile of disks for which the plan names none
    #[arg(long, value_name = "PROFILE", help = profile_help(), add = complete::profiles())]
    profile: Option<String>,
    /// On what the arrays run, whatever the plan says
    #[arg(long, value_name = "PROCESSOR", help = processor_help())]
    processor: Option<String>,
    /// What models were off elsewhere, instead of what is built in: a CSV file of case, array, figure, kind, published,
    /// predicted
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Threads that predict; as many as there are processors if none is given
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true
    )]
    threads: Option<u16>,
    /// Write the report there as well: *.html; it replaces a page of Lapstrake's, nothing else
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Report in JSON: a record for each figure
    #[arg(long)]
    pub json: bool,
}

fn profile_help() -> String {
    format!(
        "The profile of disks for which the plan names none (of those to make: {DEFAULT_PROFILE})"
    )
}

fn processor_help() -> String {
    format!(
        "On what the arrays run, whatever the plan says (where it says nothing: {DEFAULT_PROCESSOR}; {HERE}: this machine, measured)"
    )
}

pub fn run(args: &Args) -> Outcome {
    page_to_come(args.output.as_deref())?;
    let plan = Plan::read(&args.plan).map_err(Failure::usage)?;
    let options = Options {
        seed: args.seed,
        draws: args.draws,
        profile: named(args.profile.as_deref(), profile_named)?,
        processor: named(args.processor.as_deref(), processor_profile)?,
        threads: match args.threads {
            Some(threads) => threads.into(),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        },
        evidence: evidence(args.evidence.as_deref())?,
    };
    // Before what takes long: is it a store that can be written?
    let mut store = Store::open(&args.store.store)?;
    let ahead = virtual_time(&plan, &options);
    if ahead > LONG {
        info!(
            "note: about {:.0} h pass on the models; hard disks are some hundred times faster than real time, \
             the fastest ones slower than it. Until it has ended nothing is kept; Ctrl-C ends it",
            ahead.as_secs_f64() / 3600.0
        );
    }
    let prediction = predicted(&plan, &options)?;
    let failed = failures(&prediction);
    let runs: usize = prediction.cases.iter().map(|case| case.runs.len()).sum();
    if failed.len() == runs && prediction.syncs.is_empty() {
        let why = failed.join("\n  ");
        return Err(Failure::new(format!("no run succeeded; nothing was kept:\n  {why}")));
    }
    let experiment = keep(&plan, &prediction, &options, &mut store)?;
    drop(store);
    if args.json {
        outln!("{:#}", records(&plan, &prediction, experiment.0, args.draws));
    } else {
        tell(&prediction, experiment.0, &args.store.store);
    }
    if let Some(path) = &args.output {
        let stored = load(&args.store.store, &[experiment.0])?;
        write(Some(path), &report::html(&Report::of(&stored), &stored))?;
    }
    Ok(if failed.is_empty() { Exit::Done } else { Exit::Degraded })
}

fn evidence(path: Option<&Path>) -> Result<Evidence, Failure> {
    let Some(path) = path else { return Ok(Evidence::default()) };
    let failed = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
    let text = read_text(path, TEXT_MAX).map_err(|error| failed(&error))?;
    Evidence::parse(&text).map_err(|why| failed(&why))
}

fn named<P>(
    name: Option<&str>,
    find: impl Fn(&str) -> Result<P, String>,
) -> Result<Option<P>, Failure> {
    name.map(find).transpose().map_err(Failure::usage)
}

fn predicted(plan: &Plan, options: &Options) -> Result<Prediction, Failure> {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left");
    bar.set_style(style.expect("the template is sound"));
    let prediction = predict(plan, options, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    Ok(prediction?)
}

fn records(plan: &Plan, prediction: &Prediction, experiment: i64, draws: u32) -> serde_json::Value {
    json!({
        "plan": plan.name,
        "experiment": experiment,
        "seed": prediction.seed,
        "draws": draws,
        "records": metrics(prediction),
        "notes": prediction.notes,
        "failed": failures(prediction),
        "virtual_s": prediction.virtual_time.as_secs_f64(),
        "worked_s": prediction.worked.as_secs_f64(),
        "took_s": prediction.took.as_secs_f64(),
        "speed_up": prediction.speed_up(),
    })
}

/// A line for each run that failed.
fn failures(prediction: &Prediction) -> Vec<String> {
    let mut lines = Vec::new();
    for case in &prediction.cases {
        for run in &case.runs {
            lines.extend(run.error.as_ref().map(|why| {
                format!(
                    "{} {}, {}, draw {}: {why}",
                    case.subject.name,
                    case.state,
                    case.workload.name,
                    run.round + 1
                )
            }));
        }
    }
    lines
}

fn tell(prediction: &Prediction, experiment: i64, store: &Path) {
    for note in &prediction.notes {
        out!("{}", width::wrapped(note, "note: ", "  "));
    }
    outln!("{}", table(prediction));
    for line in failures(prediction) {
        outln!("FAILED: {line}");
    }
    let told = format!(
        "{:.0} s of virtual time in {:.2} s of processor time: {:.0} times faster than real time on one core; it took \
         {:.1} s; experiment {experiment} in {} (`lapstrake lab report --store {}`)",
        prediction.virtual_time.as_secs_f64(),
        prediction.worked.as_secs_f64(),
        prediction.speed_up(),
        prediction.took.as_secs_f64(),
        store.display(),
        quoted_path(store)
    );
    out!("{}", width::wrapped(&told, "", ""));
}
