//! `lapstrake stop`.

use crate::exit::{Exit, Failure, Outcome};
use crate::target::Target;
use lapstrake_host::control::ControlError;
use serde_json::json;

const HELP: &str = "\
Examples:
  lapstrake stop data

Exit codes:
  0  the array is stopped and clean (also if it was not being served)
  1  it could not be stopped cleanly, or its server did not answer
  2  usage";

/// Stop serving an array: what is in flight is done, everything is flushed, the superblocks say
/// clean.
///
/// Returns when it is so: the members and the name are then free.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
}

pub fn run(args: &Args) -> Outcome {
    let name = &args.target.name;
    let (served, clean) = match args.target.ask(&json!({ "command": "stop" })) {
        Ok(reply) => (true, reply["clean"] == true),
        Err(ControlError::NotServed { .. }) => (false, true),
        Err(error) => return Err(error.into()),
    };
    if args.target.json {
        println!("{}", json!({ "name": name, "was_served": served, "clean": clean }));
    } else if !served {
        println!("{name}: not being served, nothing to stop");
    } else if clean {
        println!("{name}: stopped");
    }
    if clean {
        Ok(Exit::Done)
    } else {
        Err(Failure::new(format!(
            "{name}: stopped, but its superblocks could not be marked clean; the server's messages \
             say why"
        )))
    }
}
