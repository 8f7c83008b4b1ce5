//! `lapstrake status`.

mod mdstat;
pub mod view;

use crate::exit::{Exit, Outcome};
use crate::target::{self, Place};
use lapstrake_host::control::{self, ControlError};
use serde_json::json;
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
/// file of a (deleted) one is gone when the server stops. In brackets: slots and members in sync, then U for each slot that has one, _ for each that has not.
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
    let mut arrays = Vec::new();
    for name in &names {
        match target::detail(&dir, name) {
            Ok(detail) => arrays.push(detail),
            // It has been stopped since it was listed.
            Err(ControlError::NotServed { .. }) if args.name.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut whole = true;
    let mut text = String::new();
    for array in &arrays {
        let view: View = serde_json::from_value(array.clone())?;
        whole &= view.is_whole();
        text += &mdstat::stanza(&view);
    }
    if args.json {
        println!("{:#}", json!({ "arrays": arrays }));
    } else if arrays.is_empty() {
        println!("no array is being served");
    } else {
        print!("{text}");
    }
    Ok(if whole { Exit::Done } else { Exit::Degraded })
}
