//! What fio printed once: at the end of a run, or in its midst. In JSON, and as which lines of `--minimal` are read.

use crate::record::{Flow, Latency};
use serde::Deserialize;
use std::collections::BTreeMap;

pub(super) type Options = BTreeMap<String, String>;

#[derive(Default, Deserialize)]
pub(super) struct Output {
    /// Seconds after 1970; not in every version.
    pub timestamp: Option<u64>,
    /// Of clients where fio was a client of servers.
    #[serde(alias = "client_stats")]
    pub jobs: Vec<Job>,
    #[serde(rename = "global options", default)]
    pub options: Options,
}

#[derive(Default, Deserialize)]
pub(super) struct Job {
    pub jobname: String,
    /// Groups run one after the other.
    #[serde(default)]
    pub groupid: u64,
    #[serde(default)]
    pub error: i64,
    #[serde(rename = "job options", default)]
    pub options: Options,
    pub read: Option<Direction>,
    pub write: Option<Direction>,
    pub trim: Option<Direction>,
    /// All directions together.
    pub mixed: Option<Direction>,
    /// Percent of the job's time.
    pub usr_cpu: f64,
    pub sys_cpu: f64,
    /// The job's time, in milliseconds of all its processes; since fio 3.
    pub job_runtime: Option<u64>,
    /// Seconds since the run began.
    pub elapsed: Option<u64>,
    /// When the job began, in milliseconds after 1970; since fio 3.35.
    pub job_start: Option<u64>,
    /// Of a client: its server.
    pub hostname: Option<String>,
    /// Where it is in the text, from 1.
    #[serde(skip)]
    pub line: usize,
    /// The text that tells of it.
    #[serde(skip)]
    pub raw: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Direction {
    /// In KiB up to fio 2, which has no `io_kbytes`.
    pub io_bytes: u64,
    pub io_kbytes: Option<u64>,
    /// KiB/s.
    pub bw: f64,
    pub bw_bytes: Option<f64>,
    pub iops: f64,
    pub total_ios: Option<u64>,
    /// Milliseconds.
    pub runtime: u64,
    /// Of completion; `clat` is of fio 2, in microseconds.
    #[serde(default)]
    pub clat_ns: Latencies,
    #[serde(default)]
    pub clat: Latencies,
    /// From submission to completion: has the bins where `lat_percentiles` was asked for.
    #[serde(default)]
    pub lat_ns: Latencies,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Latencies {
    #[serde(default)]
    pub min: f64,
    #[serde(default)]
    pub max: f64,
    #[serde(default)]
    pub mean: f64,
    #[serde(default)]
    pub bins: BTreeMap<String, u64>,
}

/// What fio calls the sum of all clients.
const ALL_CLIENTS: &str = "All clients";
/// `timestamp` and `elapsed` are rounded to seconds, each its way.
const ROUNDING_S: u64 = 1;
/// The least time between what `--status-interval` prints of a run.
const STATUS_INTERVAL_MIN_MS: u64 = 1000;

impl Output {
    /// Leaves out what is only the sum of the rest.
    pub fn without_sum(mut self) -> Self {
        self.jobs.retain(|job| job.hostname.is_none() || job.jobname != ALL_CLIENTS);
        self
    }

    /// The server of all jobs, if they had one, and one only.
    pub fn only_host(&self) -> Option<String> {
        let first = self.jobs.first()?.hostname.as_ref()?;
        self.jobs.iter().all(|job| job.hostname.as_ref() == Some(first)).then(|| first.clone())
    }

    /// Whether it tells of the same run as an earlier one, and more of it (`--status-interval`).
    pub fn continues(&self, earlier: &Self) -> bool {
        let began = |output: &Self| {
            let elapsed = output.jobs.iter().filter_map(|job| job.elapsed).max()?;
            output.timestamp?.checked_sub(elapsed)
        };
        let mut pairs = self.jobs.iter().zip(&earlier.jobs);
        let may_be_one_run = match (began(self), began(earlier)) {
            (Some(one), Some(other)) => one.abs_diff(other) <= ROUNDING_S,
            // Of two runs of one length the second may by chance have moved more, with latencies further apart.
            _ => {
                pairs.clone().any(|(job, earlier)| job.ran_on_after(earlier))
                    || pairs.clone().all(|(job, earlier)| job.directions().eq(earlier.directions()))
            }
        };
        may_be_one_run
            && self.options == earlier.options
            && self.jobs.len() == earlier.jobs.len()
            && pairs.all(|(job, earlier)| job.continues(earlier))
    }
}

impl Job {
    fn continues(&self, earlier: &Self) -> bool {
        let began =
            |job: &Self| job.job_start.filter(|_| job.directions().any(|one| one.bytes() > 0));
        let began_together = match (began(self), began(earlier)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let mut pairs = self.directions().zip(earlier.directions());
        began_together
            && (&self.jobname, self.groupid, &self.options, &self.hostname)
                == (&earlier.jobname, earlier.groupid, &earlier.options, &earlier.hostname)
            && self.directions().count() == earlier.directions().count()
            && pairs.all(|(one, earlier)| one.continues(earlier))
    }

    /// Whether it ran for another status interval since; told where no times are known.
    fn ran_on_after(&self, earlier: &Self) -> bool {
        let mut pairs = self.directions().zip(earlier.directions());
        pairs.any(|(one, was)| one.runtime >= was.runtime.saturating_add(STATUS_INTERVAL_MIN_MS))
    }

    fn directions(&self) -> impl Iterator<Item = &Direction> {
        [&self.read, &self.write, &self.trim, &self.mixed].into_iter().flatten()
    }

    /// The time that its share of a processor is of.
    pub fn seconds(&self) -> f64 {
        let longest = self.directions().map(Direction::seconds).fold(0.0, f64::max);
        self.job_runtime.map_or(longest, |ms| ms as f64 / 1000.0)
    }
}

impl Direction {
    pub fn bytes(&self) -> u64 {
        if self.io_kbytes.is_some() { self.io_bytes } else { self.io_bytes.saturating_mul(1024) }
    }

    /// Bytes in a second.
    pub fn rate(&self) -> f64 {
        self.bw_bytes.unwrap_or(self.bw * 1024.0)
    }

    pub fn seconds(&self) -> f64 {
        self.runtime as f64 / 1000.0
    }

    pub fn flow(&self) -> Result<Flow, String> {
        let mut latency = Latency::default();
        let all = if self.clat_ns.bins.is_empty() { &self.lat_ns } else { &self.clat_ns };
        for (ns, &count) in &all.bins {
            let ns = ns.parse().map_err(|_| format!("\"{ns}\" where a latency should be"))?;
            latency.record_many(ns, count);
        }
        for (index, &count) in self.clat.bins.iter().filter(|(name, _)| !name.starts_with("FIO_")) {
            let index = index.parse().map_err(|_| format!("\"{index}\" where a bin should be"))?;
            latency.record_many(bin_us(index).saturating_mul(1000), count);
        }
        let latency = (latency.count() > 0).then_some(latency);
        let counted = (self.iops * self.seconds()).round() as u64;
        Ok(Flow { bytes: self.bytes(), requests: self.total_ios.unwrap_or(counted), latency })
    }

    fn continues(&self, earlier: &Self) -> bool {
        let (own, was) = (self.latencies(), earlier.latencies());
        if self.bytes() == earlier.bytes() {
            return (own.min, own.max, own.mean) == (was.min, was.max, was.mean);
        }
        self.bytes() > earlier.bytes()
            && self.runtime >= earlier.runtime
            && (earlier.bytes() == 0 || own.min <= was.min && own.max >= was.max)
    }

    fn latencies(&self) -> &Latencies {
        if self.clat.max > 0.0 { &self.clat } else { &self.clat_ns }
    }
}

/// The middle of a bin of fio 2's JSON+, which names bins by number: 64 bins for each power of two, the first 128 of a
/// microsecond each.
fn bin_us(index: u64) -> u64 {
    const IN_POWER: u64 = 64;
    let (power, place) = (index / IN_POWER, index % IN_POWER);
    if power <= 1 {
        return index;
    }
    let width = 1u64.checked_shl((power - 1).min(63) as u32).unwrap_or(u64::MAX);
    (IN_POWER + place).saturating_mul(width).saturating_add(width / 2)
}
