//! What can go wrong in the lab, sorted by who must act.

use crate::import::BadOutput;
use std::io;
use std::path::PathBuf;

/// Why the lab could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The caller: a store that is to be read is not there.
    #[error("{}: there is no store; `lapstrake lab run` makes one", path.display())]
    NoStore {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The bytes on disk: the file is no store, or damaged, or of a later version of Lapstrake.
    #[error("{}: {why}; nothing was changed in it", path.display())]
    BadStore {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The bytes on disk: a record in the store cannot be understood.
    #[error("the store's {what} {id} cannot be read: {why}; nothing was changed")]
    BadRecord {
        /// The table.
        what: &'static str,
        /// The row.
        id: i64,
        /// What is wrong with it.
        why: String,
    },
    /// The bytes on disk: another tool's output cannot be understood.
    #[error("{}: {why}; nothing was imported", path.display())]
    BadOutput {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong.
        why: BadOutput,
    },
    /// The environment: the store could not be read or written.
    #[error("the store: {0}; what was finished before is kept")]
    Store(#[from] rusqlite::Error),
    /// The environment: CSV could not be written.
    #[error("CSV: {0}")]
    Csv(#[from] csv::Error),
    /// The environment: a file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The caller: the plan may not be carried out as it is.
    #[error("{}\nnothing was started", faults.join("\n"))]
    Forbidden {
        /// A line for each reason.
        faults: Vec<String>,
    },
    /// The caller: the plan cannot be predicted as it is.
    #[error("{}\nnothing was predicted", faults.join("\n"))]
    Unpredictable {
        /// A line for each reason.
        faults: Vec<String>,
    },
    /// The caller: there is nothing to go on with.
    #[error(
        "no unfinished run of this very plan ({plan}) is in the store; without --resume a new one begins"
    )]
    NothingToResume {
        /// Its name.
        plan: String,
    },
    /// The environment: this machine has none of what the plan compares.
    #[error(
        "no array of {plan} can be measured on this machine; nothing was started. `lapstrake predict` works it out \
         on models where the plan names disks' profiles"
    )]
    NothingToMeasure {
        /// Its name.
        plan: String,
    },
    /// The caller: what `advise` is asked makes no sense.
    #[error("{why}; nothing was tried")]
    Question {
        /// What is wrong with it.
        why: String,
    },
    /// The environment: another run of the plan uses the work directory.
    #[error("{}: another run of this plan is under way; nothing was started", path.display())]
    Busy {
        /// The work directory.
        path: PathBuf,
    },
    /// The environment: somebody else's directory is where the work directory should be.
    #[error(
        "{} was not made by a run of the lab, or others may write to it; nothing was started; move it away, or \
         name another place in the plan (directory in [run])", path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// The environment: what was built cannot be taken down.
    #[error(
        "{subject} cannot be taken down: {why}\nthe run ends here, and what is done is kept; free what keeps it in use, then \
         go on with --resume, which takes it down first"
    )]
    Stands {
        /// What was measured.
        subject: String,
        /// What the commands said.
        why: String,
    },
    /// The environment: what a run that was killed left cannot be taken down.
    #[error("an earlier run left something that cannot be taken down: {0}; nothing was started")]
    Left(String),
}
