//! Why the write-intent bitmap is not changed.

use crate::coordinator::loss::WriteLoss;
use lapstrake_control::SyncAction;
use lapstrake_metadata::bitmap::{AddError, WRITE_BEHIND_MAX};
use std::path::PathBuf;
use thiserror::Error;

/// Why the write-intent bitmap is not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BitmapError {
    /// The level has no redundancy.
    #[error("a {level} array has no use for a write-intent bitmap; nothing was changed")]
    NoRedundancy {
        /// The array's level.
        level: String,
    },
    /// A lockless bitmap was asked for.
    #[error("a lockless bitmap comes with a new array only, as with mdadm; nothing was changed")]
    LocklessComesWithNewArray,
    /// The array has a lockless bitmap.
    #[error(
        "the array has a lockless bitmap, which has neither another chunk nor another place; take it away first \
         (--bitmap none); nothing was changed"
    )]
    IsLockless,
    /// What a lockless bitmap tells of cannot be resynced.
    #[error(
        "a member is missing, and without the lockless bitmap all redundancy is to be made right; nothing was changed; \
         add a member first"
    )]
    LocklessWhileDegraded,
    /// Write-mostly members would lag behind by more writes than md lets them.
    #[error("write-behind of {found}, at most {WRITE_BEHIND_MAX}; nothing was changed")]
    WriteBehindAboveMost {
        /// Writes that were asked for.
        found: u32,
    },
    /// Only mirrors have write-behind.
    #[error("write-behind of {found} is for raid1, not for {level}; nothing was changed")]
    WriteBehindLevel {
        /// Writes that were asked for.
        found: u32,
        /// The array's level.
        level: String,
    },
    /// A journal or partial parity logs do what a bitmap would.
    #[error(
        "an array with a journal or partial parity logs takes no bitmap: it needs no resync after an unclean stop; \
         nothing was changed"
    )]
    HasLogs,
    /// No member is left to hold it.
    #[error("every member is faulty or removed, and none could hold a bitmap; nothing was changed")]
    NoMember,
    /// It does not fit, or its chunk does not.
    #[error("{0}; nothing was changed")]
    Unfit(#[from] AddError),
    /// Another change is under way.
    #[error("the bitmap is being changed or given up just now; nothing was changed; try again")]
    IsChanging,
    /// A sync action goes by the bitmap.
    #[error(
        "the bitmap cannot be changed during a {action}; `lapstrake wait {array}` waits for its end; nothing was changed"
    )]
    DuringSync {
        /// What runs.
        action: SyncAction,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// It is in a file, and was asked for in another.
    #[error(
        "the bitmap is in {} now; take it away first (--bitmap none); nothing was changed",
        file.display()
    )]
    IsInFile {
        /// Where it is.
        file: PathBuf,
    },
    /// A bitmap's file would be written though an overlay takes the members' writes.
    #[error(
        "all writes go to the overlay, and a bitmap's file would be none of it; nothing was changed"
    )]
    Overlaid,
    /// The place that was planned for it is no longer the right one.
    #[error("members have come or gone meanwhile; nothing was changed; try again")]
    MembersChanged,
    /// The supervisor refuses the change.
    #[error("the array does something else; nothing was changed")]
    Busy,
    /// Its file refuses writes or is gone.
    #[error(
        "{}: the write-intent bitmap's file cannot be kept (the server's log says why), and is given up; the array goes \
         on without a bitmap, so that after an unclean stop all is resynced; no data was changed; `lapstrake grow \
         {array} --bitmap` with `internal` or another file makes a new one; a start that still names this file resyncs \
         all, too",
        file.display()
    )]
    FileLost {
        /// The bitmap's file.
        file: PathBuf,
        /// The array's name as a shell takes it.
        array: String,
    },
    /// The array takes no more writes, and the change has begun: with some superblocks written it may be half done, which
    /// the next start takes for the old bitmap, none, or the new one.
    #[error(
        "{loss}: the bitmap is not changed any further, and is the old one, none or the new one at the next start, each \
         of which is right; no data was changed; {}; then ask again",
        loss.next()
    )]
    NotRecorded {
        /// Why the array takes no more writes.
        loss: WriteLoss,
    },
    /// The array was stopped when the change had begun.
    #[error(
        "the array was stopped before the bitmap was changed: it is the old one, none or the new one at the next start, \
         each of which is right"
    )]
    StoppedMeanwhile,
}
