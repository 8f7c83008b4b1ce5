//! `lapstrake stop`.

use crate::exit::{Exit, Failure, Outcome};
use crate::target::Target;
use lapstrake::control::{Request, Stopped};
use lapstrake_host::control::{self, ControlError};
use serde_json::json;
use tracing::warn;

const HELP: &str = "\
Examples:
  lapstrake stop data

Exit codes:
  0  the array is stopped and clean (also if it was not being served)
  1  it could not be stopped cleanly, or its server did not answer; or it serves on, since its file is open,
     since so many of its members' files were deleted meanwhile that it could never be started again, or
     since its overlay's file was
  2  usage
  3  its server had vanished (killed or crashed), and is forgotten now: superblocks may say active still";

/// Stop serving an array: what is in flight is done, everything is flushed, the superblocks say
/// clean.
///
/// Returns when it is so: the members and the name are then free. Members whose files were deleted while
/// they were served are gone then; if the array could not be started without them, it is not stopped.
/// Nor is it if its overlay's file was deleted, and with it all that was written.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub target: Target,
    /// Stop it even if its file is open (what its users have not written is lost), if it can never be started
    /// again, since its members' files were deleted, or if what was written goes with its overlay's file
    #[arg(short, long)]
    force: bool,
}

pub fn run(args: &Args) -> Outcome {
    let name = &args.target.name;
    let (served, stopped) = match args.target.ask(&Request::Stop { force: args.force }) {
        Ok(stopped) => (true, stopped),
        Err(ControlError::NotServed { .. }) => (false, nothing(true)),
        Err(error @ ControlError::Vanished { .. }) => {
            control::forget(&args.target.dir(), name)?;
            warn!("{error}");
            (false, nothing(false))
        }
        Err(error) => return Err(error.into()),
    };
    let Stopped { clean, deleted, is_end, overlay_lost } = stopped;
    if let Some(overlay) = &overlay_lost {
        warn!(
            "{name}: the overlay's file {overlay} was deleted or spoiled before: all that was \
             written to the array is gone; the members are as they were"
        );
    }
    if !deleted.is_empty() {
        let next = match is_end {
            true => "the array cannot be started again",
            false => {
                "the array lacks them (serve --degraded starts it; if one was its journal, --force \
                 --without-journal); `lapstrake add` gives it other members"
            }
        };
        let paths = deleted.join(", ");
        warn!("{name}: the files of {paths} were deleted before, and are gone now: {next}");
    }
    if args.target.json {
        let report = json!({
            "name": name,
            "was_served": served,
            "clean": clean,
            "deleted": deleted,
            "overlay_lost": overlay_lost,
        });
        outln!("{report}");
    } else if !served {
        let others = control::served(&args.target.dir()).unwrap_or_default();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; what is served: {}", others.join(", ")),
        };
        match clean {
            true => outln!("{name}: not being served, nothing to stop{others}"),
            false => outln!("{name}: its server had vanished, and is forgotten{others}"),
        }
    } else if clean {
        outln!("{name}: stopped");
    }
    if clean {
        Ok(Exit::Done)
    } else if !served {
        Ok(Exit::Degraded)
    } else {
        Err(Failure::new(format!(
            "{name}: stopped, but its superblocks could not be marked clean; the server's messages \
             say why"
        )))
    }
}

/// What comes of a stop where there was no server.
fn nothing(clean: bool) -> Stopped {
    Stopped { clean, deleted: Vec::new(), is_end: false, overlay_lost: None }
}
