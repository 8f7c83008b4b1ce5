//! Why an array takes no more writes, in words for the operator.

use thiserror::Error;

/// Why an array takes no more writes, or cannot say that it is clean.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteLoss {
    /// A write failed on a member that the array cannot do without.
    #[error("a write failed on a member that the array cannot do without")]
    Data,
    /// Members failed while a reshape moved its first rows over themselves.
    #[error(
        "a write failed on a member that the array cannot do without, while a reshape moved its first rows over themselves"
    )]
    CriticalSection,
    /// The journal failed.
    #[error("the journal failed")]
    Journal,
    /// Superblocks or bitmap can no longer be written.
    #[error("superblocks or bitmap can no longer be written")]
    Metadata,
    /// The overlay's file cannot grow.
    #[error("there is no room left for the overlay's file {file}")]
    OverlayFull {
        /// The overlay's file.
        file: String,
    },
    /// The overlay's file was deleted, spoiled or cut off.
    #[error("the overlay's file {file} takes no more")]
    OverlayLost {
        /// The overlay's file.
        file: String,
    },
    /// A member could not flush at the end.
    #[error("a member could not flush at the end")]
    FinalFlush,
}

impl WriteLoss {
    /// What is safe, and what to do.
    #[must_use]
    pub fn next(&self) -> &'static str {
        match self {
            Self::CriticalSection => {
                "what was being moved cannot be read; each member that came with the reshape keeps a copy of it: stop the \
                 array, then `lapstrake update --degraded --backup-file NEW MEMBERS` with the members that are left, and \
                 start it again, with --force if the start asks for it (docs/rescue.md)"
            }
            Self::Data => {
                "stripes that were not being written are as they were; of the one that was, with a member missing \
                 and neither a log nor a journal, also what was flushed before may be lost; mend the cause (is \
                 there room left?), then start it again, with --force if the start asks for it"
            }
            Self::Journal => {
                "what was answered is on the members; mend the journal's device, then start it again \
                 with it; or without it, by --force --without-journal"
            }
            Self::OverlayLost { .. } => "copy off what can still be read, then stop it by force",
            Self::OverlayFull { .. } => {
                "no member is failed for it, and what was flushed before is safe; stop the array, make room where the \
                 overlay is, or move it to where there is some, then start it again with it"
            }
            Self::Metadata => {
                "what was flushed before is safe; mend what refuses writes (the server's log says which member, and \
                 where), then start it again"
            }
            Self::FinalFlush => "start it again",
        }
    }
}
