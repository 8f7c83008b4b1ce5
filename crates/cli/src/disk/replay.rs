//! `lapstrake disk replay`.

use super::{TRACE_MAX, profile, text};
use crate::complete;
use crate::exit::{Exit, Failure, Outcome};
use lapstrake_model::{replay, trace};
use serde_json::json;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  lapstrake disk replay atlas.toml atlas.trace
  lapstrake disk replay atlas.toml atlas.trace --json | jq .demerit_percent

Exit codes:
  0  replayed
  1  the profile or the trace could not be used
  2  usage";

/// Replay a measured trace on a profile's disk and tell how far the two are apart.
///
/// A line of TRACE is a request: R or W, what the original's buffer did, first block, blocks, measured
/// service time and the idle time after it, both in microseconds. The demerit is the root mean square
/// of the distance between the distributions of measured and simulated times, rank by rank, over
/// the measured mean, which must not be 0. A service time is at most 1,000 seconds, an idle time 28 hours, a
/// trace 256 MiB. The ladder tells what knowing less of the disk comes to.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// A built-in profile's name, or a file
    #[arg(add = complete::profiles())]
    profile: String,
    /// Requests and their measured times
    trace: PathBuf,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let (profile, _) = profile(&args.profile)?;
    let told = |error: &dyn std::error::Error, what: &str| Failure::new(format!("{what}: {error}"));
    let disk = profile.build().map_err(|error| told(&error, &args.profile))?;
    let path = args.trace.display().to_string();
    let trace =
        trace::parse(&text(&args.trace, TRACE_MAX)?).map_err(|error| told(&error, &path))?;
    let rungs = replay::ladder(&disk, &trace).map_err(|error| told(&error, &path))?;
    let full = rungs.last().expect("the full model is always there").judgement.clone();
    if args.json {
        let mut report = serde_json::to_value(&full)?;
        report["profile"] = json!(profile.name);
        report["trace"] = json!(path);
        report["ladder"] = serde_json::to_value(&rungs)?;
        outln!("{report:#}");
        return Ok(Exit::Done);
    }
    outln!("{} on {path}: {} requests", profile.name, full.requests);
    outln!("mean: {:.3} ms measured", full.measured_mean_ms);
    for rung in &rungs {
        let judged = &rung.judgement;
        outln!(
            "{:>10}: mean {:.3} ms, demerit {:.3} ms, {:.1} %",
            rung.rung,
            judged.simulated_mean_ms,
            judged.demerit_ms,
            judged.demerit_percent
        );
    }
    Ok(Exit::Done)
}
