//! `lapstrake check`, `repair`, `resync`, `idle`, `freeze` and `resume`: mdadm's `--action`, and a way on.

use crate::exit::{Exit, Outcome};
use crate::status::view::{ArrayState, View};
use crate::target::Target;
use lapstrake::control::{Begun, Request, SyncRequest};
use lapstrake_device::quoted;
use serde_json::json;

/// The end of a command's help.
macro_rules! help {
    (begins: $example:literal, $done:literal) => {
        help!($example, $done, "it has not: something else runs, or the array is not served")
    };
    (holds: $example:literal, $done:literal) => {
        help!($example, $done, "the array is not served, or its server did not answer")
    };
    ($example:literal, $done:literal, $failed:literal) => {
        concat!(
            "Examples:\n  lapstrake ",
            $example,
            "\n\nExit codes:\n  0  ",
            $done,
            "\n  1  ",
            $failed,
            "\n  2  usage"
        )
    };
}

const CHECK_HELP: &str = help!(
    begins: "check data && lapstrake wait data --report mismatches.json",
    "it has begun (`lapstrake wait` waits for its end, and tells what it found)"
);
const REPAIR_HELP: &str = help!(
    begins: "repair data && lapstrake wait data",
    "it has begun (`lapstrake wait` waits for its end)"
);
const RESYNC_HELP: &str = help!(
    begins: "resync data && lapstrake wait data",
    "it has begun (`lapstrake wait` waits for its end)"
);
const IDLE_HELP: &str = help!(holds: "idle data", "no check or repair runs, and nothing is frozen");
const FREEZE_HELP: &str =
    help!(holds: "freeze data && sleep 3600 && lapstrake resume data", "nothing runs");
const RESUME_HELP: &str = help!(holds: "resume data && lapstrake wait data", "nothing is frozen");

#[derive(clap::Subcommand)]
pub enum Command {
    /// Read everything and count what does not match; write nothing.
    ///
    /// What cannot be read is recovered and rewritten. Returns when it has begun.
    #[command(after_long_help = CHECK_HELP)]
    Check(Target),
    /// Read everything, and rewrite what does not match.
    ///
    /// Where it can be told which member is wrong (RAID6, three or more copies), that one is made
    /// anew. Else, as md does it, data is taken to be right and parity wrong, and of copies the first
    /// to be right. Returns when it has begun.
    #[command(after_long_help = REPAIR_HELP)]
    Repair(Target),
    /// Compute all redundancy anew.
    ///
    /// Returns when it has begun.
    #[command(after_long_help = RESYNC_HELP)]
    Resync(Target),
    /// End a check or repair, a frozen one too, and let recovery and resync go on.
    ///
    /// A recovery or resync that is needed goes on, or begins by itself.
    #[command(after_long_help = IDLE_HELP)]
    Idle(Target),
    /// Pause whatever runs, and let nothing begin, until `lapstrake resume` or `lapstrake idle`.
    #[command(after_long_help = FREEZE_HELP)]
    Freeze(Target),
    /// Let what was frozen go on where it was: a check or repair, too, with what it has found.
    #[command(after_long_help = RESUME_HELP)]
    Resume(Target),
}

impl Command {
    pub fn target(&self) -> &Target {
        match self {
            Self::Check(target)
            | Self::Repair(target)
            | Self::Resync(target)
            | Self::Idle(target)
            | Self::Freeze(target)
            | Self::Resume(target) => target,
        }
    }

    fn action(&self) -> SyncRequest {
        match self {
            Self::Check(_) => SyncRequest::Check,
            Self::Repair(_) => SyncRequest::Repair,
            Self::Resync(_) => SyncRequest::Resync,
            Self::Idle(_) => SyncRequest::Idle,
            Self::Freeze(_) => SyncRequest::Frozen,
            Self::Resume(_) => SyncRequest::Resume,
        }
    }

    pub fn run(&self) -> Outcome {
        let (target, action) = (self.target(), self.action());
        let name = &target.name;
        let was = match self {
            Self::Resume(_) => Some(target.detail(None)?),
            _ => None,
        };
        let Begun {} = target.ask(&Request::Sync { action: action.clone() })?;
        if target.json {
            outln!("{}", json!({ "name": name, "action": action }));
        } else {
            match self {
                Self::Resume(_) => outln!("{name}: {}", was.map_or_else(String::new, resumed)),
                Self::Idle(_) => outln!("{name}: idle"),
                Self::Freeze(_) => {
                    outln!("{name}: frozen until `lapstrake resume {}`", quoted(name));
                }
                _ => outln!(
                    "{name}: {action} has begun; `lapstrake wait {}` waits for it",
                    quoted(name)
                ),
            }
        }
        Ok(Exit::Done)
    }
}

/// What an array that was frozen, or not, goes on with.
fn resumed(was: View) -> String {
    let name = &was.name;
    match &was.sync {
        _ if !was.is(&ArrayState::Frozen) => "nothing was frozen".into(),
        Some(sync) => {
            format!("{} goes on; `lapstrake wait {}` waits for it", sync.action, quoted(name))
        }
        None => "frozen no more".into(),
    }
}
