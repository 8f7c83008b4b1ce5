//! `lapstrake status`.

mod mdstat;
pub mod view;

use crate::exit::{Exit, Failure, Outcome};
use crate::target::{self, Place};
use lapstrake_host::control::{self, ControlError};
use serde_json::{Value, json};
use std::path::Path;
use view::View;

const HELP: &str = "\
Examples:
  lapstrake status
  lapstrake status data
  watch -n1 lapstrake status

Exit codes:
  0  every array that was asked about is whole (or none is served)
  1  a server did not answer, or no array of that name is served
  2  usage
  3  an array is degraded or failed";

/// Show the arrays that are being served, in the words of /proc/mdstat.
///
/// Members are in the order of their numbers, the highest first; (F) is faulty, (S) a spare; the
/// file of a (deleted) one is gone when the server stops. In brackets: slots and members in sync,
/// then U for each slot that has one, _ for each that has not.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Only this array
    name: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Report in JSON: all that is known about each array
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let dir = args.place.dir();
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => control::served(&dir)?,
    };
    let (mut arrays, mut failures) = (Vec::new(), Vec::new());
    let mut whole = true;
    let mut text = String::new();
    for name in &names {
        match seen(&dir, name) {
            Ok((detail, view)) => {
                arrays.push(detail);
                whole &= view.is_whole();
                text += &mdstat::stanza(&view);
            }
            // It has been stopped since it was listed.
            Err(ControlError::NotServed { .. }) if args.name.is_none() => {}
            Err(error) => failures.push(error.to_string()),
        }
    }
    if arrays.is_empty() && !failures.is_empty() {
        return Err(Failure::new(failures.join("\n")));
    }
    match (args.json, arrays.is_empty()) {
        (true, _) => println!("{:#}", json!({ "arrays": arrays, "errors": failures })),
        (false, true) => println!("no array is being served"),
        (false, false) => print!("{text}"),
    }
    failures.iter().for_each(|failure| eprintln!("lapstrake: {failure}"));
    Ok(match (failures.is_empty(), whole) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Done,
        (true, false) => Exit::Degraded,
    })
}

fn seen(dir: &Path, name: &str) -> Result<(Value, View), ControlError> {
    let detail = target::detail(dir, name)?;
    match serde_json::from_value(detail.clone()) {
        Ok(view) => Ok((detail, view)),
        Err(error) => Err(ControlError::Refused {
            name: name.into(),
            error: format!("its server's answer is not understood: {error}"),
        }),
    }
}
