//! What is known of a measurement: an experiment holds cases, a case its repeats, a repeat its phases.
//!
//! Invariants:
//! - Whoever measures, predicts or imports writes these records and no others; [`Origin`] says which it was.
//! - Records are raw: what statistics make of them (warm-up, steady state, outliers, verdicts) is worked out anew
//!   whenever it is asked for, so nothing derived can go stale.
//! - Within an experiment a subject and a workload are known by their names.
//! - Times are seconds (`f64`) or nanoseconds (`_ns`), sizes are bytes.
//!
//! It does not measure, and does no statistics.

mod latency;
mod subject;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use latency::{BadHistogram, Latency};
pub use subject::{Params, Size, State, Subject, SubjectKind, Workload};

/// Where an experiment's figures come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured on this machine, or on the one that [`Facts`] tell of.
    Measured,
    /// Worked out on models of disks. Every figure of it is called "predicted" wherever it is shown.
    Predicted,
    /// Read from another tool's output.
    Imported {
        /// The tool, such as "bonnie++ 1.03".
        tool: String,
    },
}

impl Origin {
    /// Whether no disk was ever asked.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        *self == Self::Predicted
    }
}

/// One plan, carried out once on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// A name for people.
    pub name: String,
    /// Measured, predicted or imported.
    pub origin: Origin,
    /// The whole text of the plan; of an import, the name of the file.
    pub plan: String,
    /// The machine.
    pub facts: Facts,
}

/// How the names of facts begin that were predicted.
pub const PREDICTED: &str = "predicted: ";
/// And those of figures under loads, with their bars.
pub const PREDICTED_LOAD: &str = "predicted load: ";

/// What a result depends on besides the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// As `uname -sr` has it.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that the lab could use.
    pub cpus: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Programs by name, Lapstrake's own among them.
    pub versions: BTreeMap<String, String>,
    /// The disks.
    pub devices: Vec<Device>,
    /// All else that is worth keeping; what begins with [`PREDICTED`] or [`PREDICTED_LOAD`] was not found but predicted.
    pub more: BTreeMap<String, String>,
}

/// A disk, or a file that stands for one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The plan's name of it.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// Vendor and model, empty if not known.
    pub model: String,
    /// Serial number, empty if not known.
    pub serial: String,
    /// Its size.
    pub bytes: u64,
    /// The I/O scheduler, empty if there is none.
    pub scheduler: String,
    /// Queue settings as the kernel names them (rotational, nr_requests, read_ahead_kb ...).
    pub queue: BTreeMap<String, String>,
}

/// One repeat of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Which repeat, from 0. Repeats of one number were run in one round, so those of two cases make a pair.
    pub round: u32,
    /// Which of the round's cases it was, from 0: what order can have done to it.
    pub position: u32,
    /// When it began, milliseconds after 1970.
    pub started_ms: i64,
    /// What failed, if it did. Such a run is kept and told of, and counts in no statistics.
    pub error: Option<String>,
    /// What was measured, a phase for each figure that the workload gives.
    pub phases: Vec<Phase>,
    /// The output of the program that ran, as it came.
    pub raw: String,
}

/// A part of a run that has a figure of its own, such as bonnie++'s "rewrite".
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name within the workload; empty if the workload has but one.
    pub name: String,
    /// The figure by which phases are compared.
    pub figure: Figure,
    /// Whether the figure is of the whole phase by definition (an amount that has to be moved, as bonnie++ does it).
    /// Otherwise the phase was bound by time, and its warm-up is dropped by rule.
    pub whole: bool,
    /// How long it took.
    pub seconds: f64,
    /// What was read.
    pub read: Flow,
    /// What was written.
    pub write: Flow,
    /// Processor time.
    pub cpu: Cpu,
    /// What each member had to do for it.
    pub members: Vec<MemberIo>,
    /// The most memory that the subject's processes held, if known.
    pub memory_bytes_max: Option<u64>,
    /// How it went over time.
    pub series: Series,
    /// Speed over the place on the disk, if that was measured.
    pub zones: Vec<Zone>,
}

/// A number and what it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes in a second.
    BytesPerSecond,
    /// Requests in a second (IOPS, bonnie++'s seeks).
    RequestsPerSecond,
    /// Transactions in a second (pgbench's tps).
    TransactionsPerSecond,
    /// Files made, looked up or deleted in a second.
    FilesPerSecond,
    /// A time, in nanoseconds: less is better.
    Nanoseconds,
}

/// Requests in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// Bytes moved.
    pub bytes: u64,
    /// Requests answered.
    pub requests: u64,
    /// How long each took, if known.
    pub latency: Option<Latency>,
}

impl Flow {
    /// Adds what went on at the same time.
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.requests += other.requests;
        match (&mut self.latency, other.latency) {
            (Some(own), Some(other)) => own.add(&other),
            (own @ None, other) => *own = other,
            (Some(_), None) => {}
        }
    }
}

/// Processor time spent, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// By all of the machine in user mode, of which `processes` are part.
    pub user_s: f64,
    /// By all of the machine in the kernel.
    pub system_s: f64,
    /// By process: the load's own, the server's, and so on.
    pub processes: BTreeMap<String, CpuTime>,
}

/// Processor time of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
}

/// What one member did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberIo {
    /// Its name.
    pub member: String,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Read requests.
    pub read_requests: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Write requests.
    pub write_requests: u64,
    /// Requests under way, on average, if known.
    pub queue_depth: Option<f64>,
    /// Temperature at the end, in degrees Celsius, if it can be read.
    pub temperature_c: Option<f64>,
    /// SMART attributes at the end by name, if they can be read.
    pub smart: BTreeMap<String, String>,
}

/// A phase over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Length of a sample in milliseconds.
    pub interval_ms: u32,
    /// Bytes read in each sample.
    pub read_bytes: Vec<u64>,
    /// Bytes written in each sample.
    pub written_bytes: Vec<u64>,
    /// Requests answered in each sample.
    pub requests: Vec<u64>,
    /// What happened meanwhile.
    pub marks: Vec<Mark>,
}

/// Something that happened during a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What, such as "rebuild".
    pub what: String,
    /// From when, in milliseconds after the phase began.
    pub from_ms: u64,
    /// Until when; nothing if it had not ended when the phase did.
    pub until_ms: Option<u64>,
}

/// Speed at a place of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// Where, in bytes from the start.
    pub offset_bytes: u64,
    /// How fast.
    pub bytes_per_second: f64,
}

impl Unit {
    /// Whether more is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        self != Self::Nanoseconds
    }
}

impl Cpu {
    /// Processor time in all, of user and kernel.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.user_s + self.system_s
    }
}

impl Phase {
    /// A phase of which no more is known than its figure and how long it took.
    #[must_use]
    pub fn new(name: &str, value: f64, unit: Unit, seconds: f64) -> Self {
        Self {
            name: name.to_owned(),
            figure: Figure { value, unit },
            whole: true,
            seconds,
            read: Flow::default(),
            write: Flow::default(),
            cpu: Cpu::default(),
            members: Vec::new(),
            memory_bytes_max: None,
            series: Series::default(),
            zones: Vec::new(),
        }
    }

    /// Bytes moved in both directions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// Processor seconds for each GiB moved, if any was moved and the time is known.
    #[must_use]
    pub fn cpu_s_per_gib(&self) -> Option<f64> {
        let gib = self.bytes() as f64 / f64::from(1 << 30);
        (gib > 0.0 && self.cpu.seconds() > 0.0).then(|| self.cpu.seconds() / gib)
    }

    /// Bytes written to members for each byte written to the array, if both are known.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let members: u64 = self.members.iter().map(|member| member.written_bytes).sum();
        // One of which only the temperature is known was not counted.
        let is_counted =
            self.members.iter().any(|member| member.read_bytes + member.written_bytes > 0);
        (self.write.bytes > 0 && is_counted).then(|| members as f64 / self.write.bytes as f64)
    }

    /// The share of what was written to members that is parity, another copy or a log, if it is known.
    #[must_use]
    pub fn redundant_share(&self) -> Option<f64> {
        let amplification = self.write_amplification().filter(|factor| *factor >= 1.0)?;
        Some(1.0 - 1.0 / amplification)
    }
}
