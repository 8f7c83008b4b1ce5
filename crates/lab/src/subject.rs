//! Subjects: how each array of a plan is built, reached and taken down again.
//!
//! A [`recipe::Recipe`] is the whole of it as data: the steps in their order, each with what undoes it, and the
//! [`Target`] that a load then meets. A dry run prints the steps, a run carries out the same ones
//! ([`steps::BuiltSubject`]), so what is shown is what is done.
//!
//! Invariants:
//! - nothing is written to a disk of the user's that [`guard`] has not let pass;
//! - whatever a step has made, its undo is on record in the work directory before the step begins, so that even
//!   after a kill the next run takes it down.

pub(crate) mod guard;
pub(crate) mod obstacle;
pub(crate) mod process;
pub(crate) mod recipe;
pub(crate) mod steps;
pub(crate) mod tree;

use lapstrake_device::MemberSpec;
use std::path::PathBuf;

/// What a load meets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// Answers at once.
    Null,
    /// An array that this process serves to itself.
    Process {
        members: Vec<MemberSpec>,
        stripe_cache: Option<u32>,
        sync_speed_min: Option<u64>,
        sync_speed_max: Option<u64>,
    },
    /// An array behind this socket.
    Nbd { socket: PathBuf },
    /// A file or a block device, or a window of it; its path may hold names of steps' outputs.
    File { path: String, offset: u64, size: Option<u64> },
    /// A mounted filesystem.
    Directory { path: String },
}
