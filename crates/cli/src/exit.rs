//! How a command ends.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// Exit codes, the same for all commands; each command's help says when it uses which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Not done; the message says why, and what was left untouched.
    Failed,
    /// The command line asks for what cannot be. (Also what clap exits with.)
    Usage,
    /// Done, but what was looked at is degraded, incomplete or does not match.
    Degraded,
    /// The status of the command that `serve --run` ran.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Degraded => 3,
            Exit::Of(status) => status,
        })
    }
}

/// Why a command was not carried out.
#[derive(Debug)]
pub struct Failure {
    /// Its exit code.
    pub exit: Exit,
    /// What to tell the user, perhaps on several lines.
    pub message: String,
}

/// What a command comes to.
pub type Outcome = Result<Exit, Failure>;

impl Failure {
    /// Something went wrong.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Failed, message: message.to_string() }
    }

    /// The command line is at fault.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string() }
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
