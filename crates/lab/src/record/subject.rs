//! What is measured, and with what: the two sides of a case.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// What sets a subject or a workload apart, by name. Reports draw scaling over those that are numbers.
///
/// A subject's usual names: `level`, `layout`, `chunk` (bytes), `members`, `bitmap`, `stripe_cache`,
/// `read_ahead` (bytes), `filesystem`, `access` (in-process, nbd, fuse). A workload's: `block_size` (bytes),
/// `queue_depth`, `threads`, `read_share` (0 to 1), `pattern`, `direct`, `fsync`.
pub type Params = BTreeMap<String, Value>;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Its name in the plan.
    pub name: String,
    /// What it is.
    pub kind: SubjectKind,
    /// What sets it apart from others.
    pub params: Params,
    /// What it costs in space, if known.
    pub size: Option<Size>,
    /// Its members and settings as a tree, for people to read.
    pub detail: String,
}

/// A sort of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// Answers at once: the floor of the harness.
    Null,
    /// One disk or file as it is.
    Disk,
    /// An array of Lapstrake's.
    Lapstrake,
    /// An array of the kernel's md.
    Md,
    /// A btrfs filesystem over several devices.
    Btrfs,
    /// A ZFS pool.
    Zfs,
    /// A volume that a RAID controller makes of its disks: only predicted.
    Controller,
    /// A block device or mount point that was there before.
    Existing,
}

/// Space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// All members' bytes.
    pub raw_bytes: u64,
    /// What is left for data.
    pub usable_bytes: u64,
}

/// In what state a subject was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing is missing.
    #[default]
    Healthy,
    /// Members are missing.
    Degraded(Vec<String>),
    /// Members are being rebuilt meanwhile.
    Rebuilding(Vec<String>),
}

impl State {
    /// The state without the members that it concerns.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded(_) => "degraded",
            Self::Rebuilding(_) => "rebuilding",
        }
    }

    /// That of the arrays in an array that is in it: what is missing may be theirs, what is rebuilt is the array's own.
    pub(crate) fn below(&self) -> &Self {
        match self {
            Self::Degraded(_) => self,
            Self::Healthy | Self::Rebuilding(_) => &Self::Healthy,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Degraded(members) => write!(f, "degraded ({} missing)", members.join(", ")),
            Self::Rebuilding(members) => write!(f, "rebuilding ({})", members.join(", ")),
        }
    }
}

/// A load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Its name in the plan.
    pub name: String,
    /// Who runs it: `own`, or the program (fio, bonnie++, iozone, hdparm, pgbench).
    pub runner: String,
    /// What sets it apart from others.
    pub params: Params,
}
