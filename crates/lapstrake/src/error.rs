//! Why an array is not opened, read, written or closed.

use lapstrake_host::{OpenArrayError, StartError};
use lapstrake_metadata::assemble::Refusal;
use std::io;
use thiserror::Error;

/// Why an array is not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The members make no array that may be started. Nothing was written.
    #[error(transparent)]
    Assemble(#[from] OpenArrayError),
    /// The array did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A reader does not tell where it ends.
    #[error("{name}: cannot find its end: {source}; nothing was read of it")]
    Reader {
        /// As it was named.
        name: String,
        /// Its reason.
        source: io::Error,
    },
    /// The array was not stopped cleanly and lacks a member, and what its partial parity logs hold could not be brought
    /// together with the members: what is made of parity could be wrong where it was being written.
    #[error(
        "the array was not stopped cleanly and lacks a member, and its partial parity logs were not replayed: what \
         the member held may come out wrong where it was being written; nothing was written; open copies of the \
         members that are files, with room for temporary files, or use OpenOptions::force to take the parity as it is"
    )]
    LogsNotReplayed,
    /// An overlay, or a bitmap's file, beside readers.
    #[error(
        "members that are readers take neither an overlay nor a bitmap's file; open them without"
    )]
    NotForReaders,
}

impl OpenError {
    /// Why the array, which was found, may not be started, if it is that: what members are missing, or that it was not
    /// stopped cleanly.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Assemble(OpenArrayError::Refused { refusal, .. }) => Some(refusal),
            _ => None,
        }
    }
}

/// Why an array was not read or written. Bytes count from its start.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// Beyond the array's end.
    #[error(
        "{len} bytes at byte {offset} are not within the array's {size} bytes; nothing was read or written"
    )]
    OutOfRange {
        /// Where they begin.
        offset: u64,
        /// How many.
        len: u64,
        /// The array's.
        size: u64,
    },
    /// No redundancy is left to read this.
    #[error(
        "the array cannot be read at byte {offset}: its members cannot give that block, and not enough are left to \
         make it of; what lies before it was read, and what lies behind it can be asked for"
    )]
    Unreadable {
        /// The first byte that cannot be read.
        offset: u64,
    },
    /// Too few members took it.
    #[error(
        "the array cannot be written at byte {offset}: more members failed than its level survives; what was to \
         be written from there on may be there in part"
    )]
    Unwritable {
        /// What lies before was written.
        offset: u64,
    },
    /// What takes the writes is full, or was cut off.
    #[error(
        "no room for what was to be written at byte {offset}: the overlay's file takes no more; reads go on, and \
         what was flushed stays in it"
    )]
    NoSpace {
        /// What lies before was written.
        offset: u64,
    },
    /// It was opened for reading, or started without its journal.
    #[error(
        "the array is open for reading only; nothing was written; open it with Array::open to write"
    )]
    ReadOnly,
    /// A flush failed.
    #[error(
        "what was written could not be made stable: more members failed than the array's level survives"
    )]
    Unflushed,
    /// Its threads have ended.
    #[error("the array has stopped; open it again")]
    Stopped,
}

impl From<IoError> for io::Error {
    fn from(error: IoError) -> Self {
        let kind = match error {
            IoError::OutOfRange { .. } => io::ErrorKind::InvalidInput,
            IoError::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            IoError::NoSpace { .. } => io::ErrorKind::StorageFull,
            IoError::Stopped => io::ErrorKind::BrokenPipe,
            IoError::Unreadable { .. } | IoError::Unwritable { .. } | IoError::Unflushed => {
                io::ErrorKind::Other
            }
        };
        Self::new(kind, error)
    }
}

/// An array that did not close cleanly.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseError {
    /// The superblocks do not say clean.
    #[error(
        "the array could not be recorded as clean: members failed, or what was written could not be made stable; it \
         is resynced when it is opened for writing again"
    )]
    NotClean,
}
