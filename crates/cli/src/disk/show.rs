//! `lapstrake disk list` and `show`.

use super::profile;
use crate::complete;
use crate::exit::{Exit, Failure, Outcome};
use lapstrake_lab::width;
use lapstrake_model::profile::{Kind, Profile, builtin};
use serde_json::{Value, json};

const LIST_HELP: &str = "\
Examples:
  lapstrake disk list
  lapstrake disk list --json | jq '.[].name'

Exit codes:
  0  listed
  2  usage";

/// List the built-in profiles.
#[derive(clap::Args)]
#[command(after_long_help = LIST_HELP)]
pub struct ListArgs {
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

const SHOW_HELP: &str = "\
Examples:
  lapstrake disk show ST340015A
  lapstrake disk show hdd-20tb > mine.toml

Exit codes:
  0  shown
  1  there is no such profile, or it is not sound
  2  usage";

/// Show a profile: every figure with its unit, its source and how far to trust it.
#[derive(clap::Args)]
#[command(after_long_help = SHOW_HELP)]
pub struct ShowArgs {
    /// A built-in profile's name, or a file
    #[arg(add = complete::profiles())]
    profile: String,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn list(args: &ListArgs) -> Outcome {
    let mut rows = Vec::new();
    for name in builtin::names() {
        let (profile, _) = profile(name)?;
        let blocks = blocks(&profile)?;
        rows.push((profile, blocks));
    }
    if args.json {
        let rows: Vec<Value> = rows.iter().map(|(profile, blocks)| row(profile, *blocks)).collect();
        outln!("{:#}", Value::from(rows));
        return Ok(Exit::Done);
    }
    let line = |(profile, blocks): &(Profile, u64)| {
        let gigabytes = *blocks as f64 * 512.0 / 1e9;
        let size = format!("{gigabytes:.0}");
        vec![profile.name.clone(), size, kind(profile).into(), profile.model.clone()]
    };
    let header = ["profile", "GB", "kind", "model"].map(Into::into);
    out!("{}", width::table(&header, &rows.iter().map(line).collect::<Vec<_>>(), |at| at == 1));
    Ok(Exit::Done)
}

pub fn show(args: &ShowArgs) -> Outcome {
    let (profile, text) = profile(&args.profile)?;
    let blocks = blocks(&profile)?;
    if args.json {
        let mut value = serde_json::to_value(&profile)?;
        value["blocks"] = json!(blocks);
        outln!("{value:#}");
    } else {
        out!("{text}");
    }
    Ok(Exit::Done)
}

fn blocks(profile: &Profile) -> Result<u64, Failure> {
    let model = profile.build();
    let failed = |error| Failure::new(format!("{}: {error}", profile.name));
    Ok(model.map_err(failed)?.blocks())
}

fn row(profile: &Profile, blocks: u64) -> Value {
    json!({
        "name": profile.name,
        "model": profile.model,
        "kind": kind(profile),
        "year": profile.year,
        "bytes": blocks * 512,
    })
}

fn kind(profile: &Profile) -> &'static str {
    match profile.kind {
        Kind::HardDisk(_) => "hard disk",
        Kind::SolidDisk(_) => "solid disk",
    }
}
