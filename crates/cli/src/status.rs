//! `lapstrake status`.

mod mdstat;
pub mod view;

use crate::exit::{Exit, Failure, Outcome};
use crate::target::Place;
use crate::{complete, options, tree};
use lapstrake_device::quoted;
use lapstrake_host::control::{self, ControlError};
use lapstrake_lab::width;
use serde_json::json;
use tracing::error;
use view::View;

const HELP: &str = "\
Examples:
  lapstrake status
  lapstrake status data
  lapstrake status --tree
  watch -n1 lapstrake status

Exit codes:
  0  every array that was asked about is whole (or none is served)
  1  a server did not answer, or no array of that name is served
  2  usage
  3  an array is degraded or failed, or its server has vanished (killed or crashed)";

/// Show the arrays that are being served, in the words of /proc/mdstat.
///
/// An array is (failed) if it lacks more members than its level survives, or could not be written; an (overlay)
/// takes its writes.
/// Members are in the order of their numbers, the highest first; (F) is faulty, (S) a spare; the
/// file of a (deleted) one is gone when the server stops. In brackets: slots and members in sync,
/// then U for each slot that has one, _ for each that has not.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Only this array
    #[arg(value_parser = options::array_name, add = complete::arrays())]
    name: Option<String>,
    /// As a tree: arrays whose members are arrays that are served, with these; each unit's type, status, how far a sync
    /// action has come, members, stripe (chunk) and size
    #[arg(long)]
    tree: bool,
    #[command(flatten)]
    place: Place,
    /// Report in JSON: all that is known about each array
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let dir = args.place.dir();
    let (mut arrays, failures, vanished) = match &args.name {
        Some(name) => match control::ask_detail(&dir, name, None) {
            Err(ControlError::Vanished { name, .. }) => (Vec::new(), Vec::new(), vec![name]),
            told => (vec![told?], Vec::new(), Vec::new()),
        },
        None => {
            let (arrays, failures) = tree::served(&dir)?;
            (arrays, failures, control::vanished(&dir)?)
        }
    };
    if arrays.is_empty() && !failures.is_empty() {
        return Err(Failure::new(failures.join("\n")));
    }
    let whole = vanished.is_empty() && arrays.iter().all(View::is_whole);
    if args.tree {
        arrays = match &args.name {
            Some(name) => {
                let all = tree::others(&dir, name)?;
                arrays.iter_mut().for_each(|array| tree::nest(array, &all, &mut Vec::new()));
                arrays
            }
            None => tree::roots(&arrays),
        };
    }
    let text = match args.tree {
        true => tree::table(&arrays),
        false => width::fitted(&arrays.iter().map(mdstat::stanza).collect::<String>()),
    };
    match (args.json, arrays.is_empty() && vanished.is_empty()) {
        (true, _) => {
            outln!("{:#}", json!({ "arrays": arrays, "errors": failures, "vanished": vanished }))
        }
        (false, true) => outln!("no array is being served"),
        (false, false) => out!("{text}"),
    }
    for name in &vanished {
        error!(
            "{name}: its server has vanished: it was killed or has crashed; serving its members again goes on where it \
             was, and `lapstrake stop {}` forgets it",
            quoted(name)
        );
    }
    failures.iter().for_each(|failure| error!("{failure}"));
    Ok(match (failures.is_empty(), whole) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Done,
        (true, false) => Exit::Degraded,
    })
}
