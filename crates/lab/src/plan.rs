//! Plans: which disks, which arrays of them, in which states, under which loads, how often.
//!
//! A plan is TOML (docs/plans.md). Reading it is total: either a [`Plan`] in which every name leads somewhere and
//! every combination is one that can be built, or all [`Problem`]s with their lines. Combinations of a matrix that
//! cannot be (a RAID6 of three) are left out, and [`Plan::notes`] says so.
//!
//! Of disks that are there the size is asked, and nothing else; who may be written over is decided when the plan is
//! carried out.

mod arrays;
mod drives;
mod raw;
pub(crate) mod reading;
mod resolve;
mod values;
mod workloads;

use crate::advise::Care;
use crate::record::{State, SubjectKind};
use crate::{TEXT_MAX, read_text};
use lapstrake_device::{Member, MemberSpec};
use lapstrake_geometry::{Level, Version};
use lapstrake_model::ProcessorProfile;
use lapstrake_model::profile::Profile;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

pub(crate) use arrays::size_text;
pub(crate) use drives::{processor_named, profile};
pub(crate) use resolve::{listed, told};
pub use values::Place;
pub(crate) use workloads::FILE_BYTES;

/// The plan for whoever has none.
const QUICK: &str = include_str!("../../../plans/quick.toml");

/// A plan, ready to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// Its whole text.
    pub text: String,
    /// How often, how long, in which order.
    pub rules: Rules,
    /// On what arrays are predicted to run.
    pub machine: Machine,
    /// How disks are looked after, where their loss is predicted.
    pub care: Care,
    /// What disks share on their way, when they are predicted.
    pub channels: Vec<Channel>,
    /// Controllers that disks are behind, when they are predicted.
    pub controllers: Vec<Controller>,
    /// The disks.
    pub disks: Vec<Disk>,
    /// What is measured.
    pub arrays: Vec<Array>,
    /// With what.
    pub workloads: Vec<Workload>,
    /// Combinations that were left out, and why.
    pub notes: Vec<String>,
}

/// How a plan is carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Repeats of each case, at least.
    pub repeats: u32,
    /// And at most.
    pub repeats_max: u32,
    /// Repeats end early when the 95 % interval of the median is within this share of it on either side.
    pub interval: f64,
    /// Dropped from the start of each timed run.
    pub warm_up: Duration,
    /// Length of a timed run, after its warm-up.
    pub time: Duration,
    /// The whole takes no longer.
    pub budget: Option<Duration>,
    /// The order of the arrays within a round.
    pub order: Order,
    /// How arrays on given disks get their redundancy.
    pub prepare: Prepare,
    /// From which all random places are drawn.
    pub seed: u64,
    /// Where images, sockets and mount points are made.
    pub directory: Option<PathBuf>,
}

/// The order of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Forth in one round and back in the next, so that a drift of the machine falls on all alike.
    Abba,
    /// As in the plan, each round.
    Given,
}

/// How arrays on given disks get their redundancy. (Images that the lab made hold zeros, which agree.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prepare {
    /// By a resync or recovery, which is waited for.
    Sync,
    /// Not at all: parity and copies are wrong, which costs the same time but must not be verified.
    AssumeClean,
}

/// A disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// Its name in the plan.
    pub name: String,
    /// What it is.
    pub place: DiskPlace,
    /// What it is when it is predicted.
    pub model: DiskShape,
}

impl Disk {
    /// How large it is, or would be made; none if it is not there.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match &self.place {
            DiskPlace::Make { bytes } => Some(*bytes),
            DiskPlace::Given { spec, .. } => Member::peek(spec).ok().map(|member| member.size()),
        }
    }
}

/// What a disk is when it is predicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskShape {
    /// What is known of its drive; the prediction's default if none is said.
    pub profile: Option<Profile>,
    /// The drive that it is on, if other disks are on it, too.
    pub drive: Option<String>,
    /// The channel that its drive is on; none: a link of its own.
    pub channel: Option<String>,
    /// The controller that its drive is behind.
    pub controller: Option<String>,
    /// Where on its drive it begins.
    pub at: Option<Place>,
    /// How large it is, where it is not as large as the image that is made.
    pub size: Option<Place>,
}

/// On what arrays are predicted to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its processor; the prediction's default if none is said.
    pub processor: Option<ProcessorProfile>,
    /// Its memory in bytes; the prediction's default if none is said.
    pub memory: Option<u64>,
    /// The part of it that a kernel of 32 bits has in its own address space; all if none is said.
    pub low_memory: Option<u64>,
    /// Its Linux: 20621 is 2.6.21; the prediction's default if none is said.
    pub linux: Option<u32>,
}

/// What drives share.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name in the plan.
    pub name: String,
    /// Bytes in a second.
    pub rate: u64,
    /// A command keeps it from its beginning to its end.
    pub holds: bool,
}

/// A RAID controller with a battery behind its cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Its name in the plan.
    pub name: String,
    /// Bytes of cache for writes: of a volume of its own all of it, of a disk that it passes on its share.
    pub cache: u64,
    /// Bytes in a second between it and the host.
    pub rate: Option<u64>,
    /// From a command to its first byte.
    pub overhead: Option<Duration>,
    /// Bytes of what it writes to its disks at once.
    pub run: Option<u64>,
}

/// What a disk is.
#[derive(Clone, Debug, PartialEq)]
pub enum DiskPlace {
    /// An image file that the lab makes, full of zeros, and removes.
    Make {
        /// Its size.
        bytes: u64,
    },
    /// A file, a block device, or a window of either.
    Given {
        /// Where.
        spec: MemberSpec,
        /// The plan says that what it holds may go.
        expendable: bool,
    },
}

/// Something to measure: an array, a disk, a filesystem, or nothing at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: SubjectKind,
    /// Its settings.
    pub shape: Shape,
    /// Of what it is made.
    pub members: Vec<Leg>,
    /// In which states it is measured; empty for one that is only a member of others.
    pub states: Vec<State>,
    /// Of one that was there before: where.
    pub path: Option<PathBuf>,
    /// Of one that was there before: it may be written over.
    pub expendable: bool,
    /// Its bytes for data, where the disks' sizes tell.
    pub bytes: Option<u64>,
}

/// A member of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Leg {
    /// A disk, by name.
    Disk(String),
    /// Another array.
    Array(Box<Array>),
    /// Nobody: the array is built without it.
    Missing,
}

/// What sets an array apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// None for what has no level.
    pub level: Option<Level>,
    /// By mdadm's name.
    pub layout: Option<String>,
    /// Bytes.
    pub chunk: Option<u64>,
    /// Of superblocks.
    pub metadata: Option<Version>,
    /// `internal` or `none`.
    pub bitmap: Option<String>,
    /// Bytes that a bit stands for.
    pub bitmap_chunk: Option<u64>,
    /// Pages for each member.
    pub stripe_cache: Option<u32>,
    /// Bytes.
    pub read_ahead: Option<u64>,
    /// How a Lapstrake array is reached.
    pub over: Over,
    /// On it.
    pub filesystem: Option<Filesystem>,
    /// The filesystem is told of chunk and width.
    pub stride: bool,
    /// For mount(8).
    pub mount_options: Option<String>,
    /// Bytes a second of each member that recovery has beside requests.
    pub sync_speed_min: Option<u64>,
    /// And at most.
    pub sync_speed_max: Option<u64>,
}

/// How a Lapstrake array is reached: each way adds a layer, and its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// The load runs on the shards' own threads.
    #[default]
    Process,
    /// A server of its own, by NBD on a Unix socket.
    Nbd,
    /// A server of its own, as a file by FUSE.
    Fuse,
    /// A loop device on that file.
    Loop,
}

/// A filesystem that the lab makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filesystem {
    /// ext3: what old articles used.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs on the one device.
    Btrfs,
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What it does.
    pub load: Load,
    /// Dropped from the start of each run.
    pub warm_up: Duration,
    /// Length of a timed run, after its warm-up.
    pub time: Duration,
}

/// What a load does.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Requests of the lab's own.
    Io(Io),
    /// Exactly what another tool does, done by the lab.
    Like(Like),
    /// A program of others.
    Program(Program),
}

/// Requests of the lab's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Io {
    /// Where they go.
    pub pattern: Pattern,
    /// The share that reads, 0 to 1.
    pub read: f64,
    /// Bytes of each.
    pub block: u64,
    /// Under way at once, in each thread.
    pub depth: u32,
    /// Threads; each has its own part of the range, if the pattern is one of order.
    pub threads: u32,
    /// From here.
    pub from: Place,
    /// To here.
    pub to: Place,
    /// Of a file on a filesystem: its size.
    pub file_size: u64,
    /// Past the page cache.
    pub direct: bool,
    /// Pause after each request, for each of `depth`.
    pub think: Duration,
    /// Bytes a second that all threads may move together.
    pub rate: Option<u64>,
    /// A flush after so many writes of a thread.
    pub fsync_every: Option<u32>,
    /// A flush at the end, within the measured time.
    pub fsync_end: bool,
    /// Every read is held against what was written.
    pub verify: bool,
    /// Ends after so many bytes, not after a time.
    pub amount: Option<u64>,
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One after the other; from the start again at the end.
    Sequential,
    /// Each block as likely as any.
    Uniform,
    /// Few blocks often, by Zipf's law with this exponent.
    Zipf(f64),
    /// One each so many bytes; then again, one block further.
    Strided(u64),
    /// So many sequences, in turns.
    Streams(u32),
    /// So many parts of the range one after the other, each in order for its share of the time: how speed falls from a
    /// disk's outer tracks to its inner ones.
    Zones(u32),
}

/// What another tool does, done by the lab.
#[derive(Clone, Debug, PartialEq)]
pub enum Like {
    /// bonnie++.
    Bonnie {
        /// Whose way of working.
        version: BonnieVersion,
        /// `-s`, bytes.
        size: u64,
        /// The same where it is predicted.
        size_predicted: u64,
        /// Of a write and read, bytes.
        chunk: u64,
        /// `-n`, as a number of files; 0: none are made.
        files: u64,
        /// `-b`: a sync after every file.
        sync: bool,
        /// `-x`: times.
        times: u32,
        /// Without the per-character tests (`-f`).
        fast: bool,
    },
    /// iozone.
    Iozone {
        /// `-i`.
        tests: Vec<u8>,
        /// `-s`, bytes.
        size: u64,
        /// The same where it is predicted.
        size_predicted: u64,
        /// `-r`, bytes.
        record: u64,
        /// `-t`; 0: without, as one process.
        threads: u32,
        /// `-I`.
        direct: bool,
        /// `-e`: flushes are part of the time.
        flush: bool,
    },
    /// `hdparm -t`.
    Hdparm,
}

/// What versions of bonnie++ do differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum BonnieVersion {
    /// Characters go through stdio, over the whole size; three processes seek.
    #[serde(rename = "1.03")]
    V1_03,
    /// Each character is a call, 3 MiB of them; five seek.
    #[default]
    #[serde(rename = "2.00a")]
    V2_00a,
}

/// A program of others.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// fio, with this job file's text.
    Fio {
        /// The job file.
        job: String,
    },
    /// bonnie++, with these arguments besides directory and user.
    Bonnie {
        /// Such as `-s`, `2g`.
        arguments: Vec<String>,
    },
    /// `hdparm -t`.
    Hdparm,
    /// pgbench, against a PostgreSQL that the lab makes on the array's filesystem.
    Pgbench {
        /// `-s`.
        scale: u32,
        /// `-c`.
        clients: u32,
        /// `-j`.
        jobs: u32,
        /// `-M`: simple, extended or prepared.
        mode: String,
        /// Lines for postgresql.conf.
        configuration: String,
        /// What a transaction takes of a processor where it is predicted.
        transaction_cpu: Duration,
    },
}

/// What a load can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Whatever takes requests.
    Any,
    /// No filesystem: the array as one range of bytes.
    Raw,
    /// The array as a block device.
    BlockDevice,
    /// A path, be it a file, a device or a directory.
    Path,
    /// A mounted filesystem.
    Filesystem,
}

/// Something wrong in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1; none where it is of the plan as a whole.
    pub line: Option<usize>,
    /// What, and what to do.
    pub text: String,
}

impl Problem {
    /// With its place in a file.
    pub(crate) fn in_file(&self, path: &Path) -> String {
        match self.line {
            Some(line) => format!("{}:{line}: {}", path.display(), self.text),
            None => format!("{}: {}", path.display(), self.text),
        }
    }
}

/// A plan that cannot be carried out: everything that is wrong with it.
#[derive(Debug, Error)]
pub enum PlanError {
    /// It cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The plan.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It cannot be understood.
    #[error("{}\nnothing was started", lines(path, problems))]
    Problems {
        /// The plan.
        path: PathBuf,
        /// In the order of their lines.
        problems: Vec<Problem>,
    },
}

fn lines(path: &Path, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.in_file(path)).collect::<Vec<_>>().join("\n")
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`PlanError`], with every problem that was found.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let failed = |source| PlanError::Read { path: path.to_owned(), source };
        let text = read_text(path, TEXT_MAX).map_err(failed)?;
        // Programs are run elsewhere: a path must not depend on where one stands.
        let path_there = std::path::absolute(path).map_err(failed)?;
        let directory = path_there.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, directory)
            .map_err(|problems| PlanError::Problems { path: path.to_owned(), problems })
    }

    /// The levels on image files, in a few minutes: `plans/quick.toml`, built in.
    ///
    /// # Panics
    /// If that were wrong, which a test rules out.
    #[must_use]
    pub fn quick() -> Self {
        Self::parse(QUICK, Path::new("/")).expect("the built-in plan is right")
    }

    /// Reads a plan's text. Relative paths in it are relative to `directory`.
    ///
    /// # Errors
    /// Every problem that was found, in the order of their lines.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, Vec<Problem>> {
        resolve::plan(text, directory)
    }

    /// The disk of a name.
    #[must_use]
    pub fn disk(&self, name: &str) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// Arrays that are measured, each with its states.
    pub fn subjects(&self) -> impl Iterator<Item = (&Array, &State)> {
        self.arrays.iter().flat_map(|array| array.states.iter().map(move |state| (array, state)))
    }

    /// Workloads that can run on an array.
    pub fn loads<'a>(&'a self, array: &'a Array) -> impl Iterator<Item = &'a Workload> {
        self.workloads.iter().filter(|workload| workload.unfit(array).is_none())
    }
}

impl Like {
    /// As it is predicted, where sizes need not fit on images.
    #[must_use]
    pub(crate) fn into_predicted(mut self) -> Self {
        match &mut self {
            Self::Bonnie { size, size_predicted, .. }
            | Self::Iozone { size, size_predicted, .. } => *size = *size_predicted,
            Self::Hdparm => {}
        }
        self
    }
}

impl Io {
    /// Reads of `block` bytes over the whole of a range, one after the other, through the page cache.
    #[must_use]
    pub(crate) fn reads(pattern: Pattern, block: u64) -> Self {
        Self {
            pattern,
            read: 1.0,
            block,
            depth: 1,
            threads: 1,
            from: Place::Share(0.0),
            to: Place::Share(1.0),
            file_size: 0,
            direct: false,
            think: Duration::ZERO,
            rate: None,
            fsync_every: None,
            fsync_end: false,
            verify: false,
            amount: None,
        }
    }
}

impl Workload {
    /// What it can run on.
    #[must_use]
    pub fn surface(&self) -> Surface {
        match &self.load {
            Load::Io(_) => Surface::Any,
            Load::Like(Like::Hdparm) => Surface::Raw,
            Load::Program(Program::Hdparm) => Surface::BlockDevice,
            Load::Program(Program::Fio { .. }) => Surface::Path,
            Load::Like(_) | Load::Program(_) => Surface::Filesystem,
        }
    }

    /// Why it cannot run on an array, if it cannot.
    #[must_use]
    pub fn unfit(&self, array: &Array) -> Option<&'static str> {
        let (mounted, over) = (array.has_filesystem(), array.shape.over);
        let is_file = array.kind == SubjectKind::Lapstrake && over == Over::Fuse;
        let verifies = matches!(&self.load, Load::Io(io) if io.verify);
        let room = array.bytes.filter(|_| !mounted);
        match self.surface() {
            Surface::Any if room.is_some_and(|bytes| self.begins_beyond(bytes)) => {
                Some("its range begins where the array has ended")
            }
            Surface::Any if verifies && array.kind == SubjectKind::Null => {
                Some("the null subject keeps nothing that could be verified")
            }
            Surface::Any => None,
            Surface::Raw if mounted => Some("it needs an array without a filesystem"),
            Surface::Raw => None,
            _ if array.kind == SubjectKind::Null => Some("the null subject has no path"),
            Surface::BlockDevice if mounted => Some("it needs a block device, not a filesystem"),
            Surface::BlockDevice if array.is_pathless() || is_file => {
                Some("it needs a block device; over = \"loop\" makes one")
            }
            Surface::Filesystem if !mounted => Some("it needs a filesystem on the array"),
            Surface::Path if array.is_pathless() => {
                Some("it needs a path; over = \"fuse\" or \"loop\" makes one")
            }
            Surface::BlockDevice | Surface::Path | Surface::Filesystem => None,
        }
    }

    fn begins_beyond(&self, end: u64) -> bool {
        matches!(&self.load, Load::Io(Io { from: Place::Bytes(from), .. }) if *from >= end)
    }

    /// Whether it writes to what it runs on.
    #[must_use]
    pub fn writes(&self) -> bool {
        match &self.load {
            Load::Io(io) => io.read < 1.0,
            Load::Like(Like::Hdparm) | Load::Program(Program::Hdparm) => false,
            Load::Like(_) | Load::Program(_) => true,
        }
    }
}

impl Array {
    /// Whether the lab does not build it: a controller's volume, and md on md.
    pub(crate) fn is_only_predicted(&self) -> bool {
        let nests = self.members.iter().any(|leg| matches!(leg, Leg::Array(_)));
        self.kind == SubjectKind::Controller || (self.kind == SubjectKind::Md && nests)
    }

    /// Whether loads meet a mounted filesystem.
    #[must_use]
    pub fn has_filesystem(&self) -> bool {
        let brings = matches!(self.kind, SubjectKind::Btrfs | SubjectKind::Zfs);
        let is_directory = self.path.as_ref().is_some_and(|path| path.is_dir());
        brings || is_directory || self.shape.filesystem.is_some()
    }

    /// Whether it can be reached by the lab alone, not by a path.
    fn is_pathless(&self) -> bool {
        self.kind == SubjectKind::Lapstrake && matches!(self.shape.over, Over::Process | Over::Nbd)
    }

    /// All disks below it, by name.
    #[must_use]
    pub fn disks(&self) -> Vec<&str> {
        self.members.iter().flat_map(Leg::disks).collect()
    }
}

impl Leg {
    /// All disks below it, by name.
    #[must_use]
    pub fn disks(&self) -> Vec<&str> {
        match self {
            Self::Disk(name) => vec![name],
            Self::Array(array) => array.disks(),
            Self::Missing => Vec::new(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Disk(name) => name,
            Self::Array(array) => &array.name,
            Self::Missing => "missing",
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        })
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "in-process",
            Self::Nbd => "nbd",
            Self::Fuse => "fuse",
            Self::Loop => "loop",
        })
    }
}

#[cfg(test)]
mod tests;
