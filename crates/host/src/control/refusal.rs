//! Why a served array does not do what it is asked over its control socket.

use super::{CONNECTIONS_MAX, LINE_MAX};
use crate::{
    command_error::CommandError, grow::GrowBitmapError, join::JoinError, window::CheckWindowError,
};
use lapstrake_control::VERSION;
use lapstrake_device::SpecError;
use serde_json::Value;
use std::{fmt, path::PathBuf};
use thiserror::Error;

/// Why a request is not carried out.
#[derive(Debug, Error)]
pub(super) enum RefusedRequest {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRequest),
    /// The array refuses it, or has stopped.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A device does not join the array.
    #[error(transparent)]
    Join(#[from] Box<JoinError>),
    /// The write-intent bitmap is not changed.
    #[error(transparent)]
    Grow(#[from] GrowBitmapError),
    /// What it names can be no device.
    #[error(transparent)]
    Device(#[from] SpecError),
    /// The server's working directory is not the asker's.
    #[error(
        "\"bitmap\" is {path:?}, neither none nor internal nor lockless nor an absolute path; nothing was changed"
    )]
    BitmapPath {
        /// What was given.
        path: PathBuf,
    },
    /// What lies on the array itself would wait for itself, and so for ever.
    #[error(
        "{}: lies on this array itself (by {}); nothing was written; take one that does not",
        path.display(),
        file.display()
    )]
    OnItself {
        /// What lies on it.
        path: PathBuf,
        /// The array's contents as a file.
        file: PathBuf,
    },
    /// The part of the day in which checks run cannot be read.
    #[error("check_window: {0}; nothing was changed")]
    Window(#[from] CheckWindowError),
    /// What uses the file of its contents would lose what it has not written.
    #[error(
        "{} is open (by a loop device, another array or a program); it serves on, nothing was changed; unmount what lies \
         on it, detach the loop device (`losetup -d`), and stop it then; `lapstrake stop {array} --force` takes it from \
         its users, and what they have not written is lost",
        file.display()
    )]
    IsOpen {
        /// The array's contents as a file.
        file: PathBuf,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// The array could never be started again.
    #[error(
        "the files of {} were deleted while it is served, and are gone for good once it stops: it could never be started \
         again; it serves on, nothing was changed; copy it off first (`nbdcopy '{export}' FILE`), or, if it has \
         redundancy, `lapstrake add` spares and `lapstrake replace` these members; `lapstrake stop {array} --force` gives \
         its data up",
        members.join(", ")
    )]
    MembersDeleted {
        /// Their paths.
        members: Vec<String>,
        /// Where the contents can be had.
        export: String,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// What was written to the overlay would be gone.
    #[error(
        "the overlay's file {overlay} was deleted or spoiled while it is served: all that was written to the array is \
         gone for good once it stops, and the members are as they were; it serves on, nothing was changed; copy off what \
         can still be read (`nbdcopy '{export}' FILE`); `lapstrake stop {array} --force` gives it up"
    )]
    OverlayLost {
        /// The overlay's file.
        overlay: String,
        /// Where the contents can be had.
        export: String,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// Somebody else has asked for that.
    #[error("the array is being stopped already")]
    IsStopping,
    /// Too many ask at once.
    #[error(
        "its server is busy with {CONNECTIONS_MAX} other connections; nothing was changed; try again when one of them is \
         done"
    )]
    Busy,
    /// It has no end within what a request may be.
    #[error("a request of more than {LINE_MAX} bytes")]
    TooLong,
}

/// Why a request cannot be read.
#[derive(Debug, Error)]
pub(super) enum UnreadableRequest {
    /// The line is no JSON.
    #[error("not JSON: {0}; nothing was changed")]
    NotJson(#[source] serde_json::Error),
    /// It is JSON, but no object.
    #[error("no \"command\" in the request; nothing was changed")]
    NoObject,
    /// It wants several sizes, or none.
    #[error(
        "resize takes one of \"size\", \"array_size\" and \"raid_devices\"; nothing was changed"
    )]
    NoSingleResize,
    /// Another request than one for another size or geometry is to be planned.
    #[error("plan takes a \"request\" that is a resize or a reshape; nothing was changed")]
    NotPlanned,
    /// There is no such level.
    #[error("{0}; nothing was changed")]
    Level(#[source] lapstrake_geometry::GeometryError),
    /// A field is of another type than it should be.
    #[error("{field:?} is {found}, not {wanted}; nothing was changed")]
    Type {
        /// Its name.
        field: &'static str,
        /// What is in it.
        found: Value,
        /// What should be.
        wanted: Type,
    },
    /// The asker speaks a newer version of the protocol.
    #[error(
        "the request needs version {found} of the control protocol, and this server speaks {VERSION}; nothing was \
         changed"
    )]
    Version {
        /// The version that the request needs.
        found: u64,
    },
    /// A field that the command takes is missing.
    #[error("no {field:?} in the request; nothing was changed")]
    Missing {
        /// Its name.
        field: String,
    },
    /// A word that nobody knows.
    #[error("unknown {what} {word:?}; known are {known}; nothing was changed")]
    Unknown {
        /// What it was to name.
        what: Word,
        /// The word.
        word: String,
        /// Those that are known, as serde lists them.
        known: String,
    },
    /// Anything else that serde has against it.
    #[error("{0}; nothing was changed")]
    Other(#[source] serde_json::Error),
}

/// What a word in a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Command,
    Action,
    Setting,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "command",
            Self::Action => "action",
            Self::Setting => "setting",
        })
    }
}

/// What a field of a request is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    Text,
    Flag,
    /// A whole number, at most this.
    Number(u64),
    Object,
}

impl Type {
    pub(super) fn has(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number(most) => value.as_u64().is_some_and(|number| number <= most),
            Self::Object => value.is_object(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text"),
            Self::Flag => f.write_str("true or false"),
            Self::Number(most) => write!(f, "a whole number up to {most}"),
            Self::Object => f.write_str("an object"),
        }
    }
}
