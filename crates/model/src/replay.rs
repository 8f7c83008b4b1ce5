//! Replays a trace on a model and says how far the two are apart.
//!
//! The demerit figure: sort the measured and the simulated service times, take the root mean square of
//! the differences rank by rank, over the measured mean (Ruemmler and Wilkes, 1994). A request begins
//! the trace's idle time after the simulated end of the one before.

use crate::Nanos;
use crate::channel::Channel;
use crate::disk::{Disk, DiskModel};
use crate::hard::{HardDiskModel, WriteCache};
use crate::mechanism::Latency;
use crate::request::{Op, Request};
use crate::trace::Entry;
use std::sync::Arc;

/// How far a model is from a trace.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Judgement {
    /// Requests.
    pub requests: usize,
    /// Mean measured service time, in ms.
    pub measured_mean_ms: f64,
    /// Mean simulated service time, in ms.
    pub simulated_mean_ms: f64,
    /// Root mean square difference of the distributions, in ms.
    pub demerit_ms: f64,
    /// The same over the measured mean, in per cent.
    pub demerit_percent: f64,
}

/// Why a trace cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// There are no requests.
    #[error("the trace has no requests")]
    Empty,
    /// The requests took no time, so nothing can be told in parts of it.
    #[error("the trace's requests took no time: their mean service time is 0")]
    NoTime,
    /// A request is beyond the disk's end.
    #[error("request {index} ends at block {end}; the disk has {blocks}")]
    Beyond {
        /// Which one, from 1.
        index: usize,
        /// One past its last block.
        end: u64,
        /// Blocks of the disk.
        blocks: u64,
    },
}

/// The simulated service time of each request.
///
/// # Errors
/// If a request is not on the disk, or there is none.
pub fn service_times(model: &DiskModel, trace: &[Entry]) -> Result<Vec<Nanos>, ReplayError> {
    check(model, trace)?;
    let mut disk = model.disk();
    let mut channel = Channel::unbounded();
    let mut now = Nanos::ZERO;
    let mut times = Vec::with_capacity(trace.len());
    for (tag, entry) in (0..).zip(trace) {
        let op = if entry.is_write { Op::Write } else { Op::Read };
        disk.submit(Request { tag, op, lba: entry.lba, blocks: entry.blocks }, now, &mut channel);
        let end = run_to_end(&mut disk, &mut channel);
        times.push(end.since(now));
        now = end + entry.think;
    }
    Ok(times)
}

fn check(model: &DiskModel, trace: &[Entry]) -> Result<(), ReplayError> {
    if trace.is_empty() {
        return Err(ReplayError::Empty);
    }
    let blocks = model.blocks();
    let beyond = trace.iter().position(|entry| entry.lba.saturating_add(entry.blocks) > blocks);
    match beyond {
        Some(at) => {
            let end = trace[at].lba.saturating_add(trace[at].blocks);
            Err(ReplayError::Beyond { index: at + 1, end, blocks })
        }
        None => Ok(()),
    }
}

fn run_to_end(disk: &mut Disk, channel: &mut Channel) -> Nanos {
    loop {
        let next = disk.next_event(channel).expect("a command that was submitted ends");
        if let Some(completion) = disk.poll(next, channel) {
            return completion.at;
        }
    }
}

/// Compares simulated times with a trace's.
#[must_use]
pub fn judge(trace: &[Entry], simulated: &[Nanos]) -> Judgement {
    let ms = |times: &mut dyn Iterator<Item = Nanos>| {
        let mut times: Vec<f64> = times.map(Nanos::as_ms).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let measured = ms(&mut trace.iter().map(|entry| entry.measured));
    let simulated = ms(&mut simulated.iter().copied());
    let count = measured.len() as f64;
    let mean = |times: &[f64]| times.iter().sum::<f64>() / count;
    let squares: f64 = measured.iter().zip(&simulated).map(|(m, s)| (m - s).powi(2)).sum();
    let demerit_ms = (squares / count).sqrt();
    Judgement {
        requests: measured.len(),
        measured_mean_ms: mean(&measured),
        simulated_mean_ms: mean(&simulated),
        demerit_ms,
        demerit_percent: demerit_ms / mean(&measured) * 100.0,
    }
}

/// A rung of the ladder: what is gained by knowing more of a disk.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Rung {
    /// What is known.
    pub rung: &'static str,
    /// What that comes to.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// From knowing nothing but the mean to knowing everything: each model's distance from the trace.
///
/// Constant: the measured mean each time. Data sheet: a mean seek, half a turn, the transfer. Seek curve:
/// seeks by distance, half a turn, no buffer. Cache: the same with the buffer. Full: also where
/// the platters are. A disk without an arm has the first and the last.
///
/// # Errors
/// If a request is not on the disk, there is none, or they took no time.
pub fn ladder(model: &DiskModel, trace: &[Entry]) -> Result<Vec<Rung>, ReplayError> {
    check(model, trace)?;
    if trace.iter().all(|entry| entry.measured == Nanos::ZERO) {
        return Err(ReplayError::NoTime);
    }
    let mut rungs = Vec::new();
    let mut add = |rung, times: &[Nanos]| {
        rungs.push(Rung { rung, judgement: judge(trace, times) });
    };
    let sum: u128 = trace.iter().map(|entry| u128::from(entry.measured.0)).sum();
    add("constant", &vec![Nanos((sum / trace.len() as u128) as u64); trace.len()]);
    if let DiskModel::Hard(disk) = model {
        add("data sheet", &data_sheet(disk, trace));
        let mut known = (**disk).clone();
        known.mechanism.latency = Latency::HalfTurn;
        let cached = DiskModel::Hard(Arc::new(known.clone()));
        known.caches_reads = false;
        known.cache.hits_on_writes = false;
        known.write_cache = WriteCache::Off;
        let bare = DiskModel::Hard(Arc::new(known));
        add("seek curve", &service_times(&bare, trace)?);
        add("cache", &service_times(&cached, trace)?);
    }
    add("full", &service_times(model, trace)?);
    Ok(rungs)
}

/// What one works out from three figures: overhead and mean seek, half a turn, the transfer.
fn data_sheet(disk: &HardDiskModel, trace: &[Entry]) -> Vec<Nanos> {
    let mechanism = &disk.mechanism;
    let seek = mechanism.seek.mean(mechanism.layout.cylinders());
    let turn = mechanism.rotation.period();
    let fixed = disk.overheads.read_miss.after_write + seek + Nanos(turn.0 / 2);
    let time = |entry: &Entry| {
        let media = turn.0 * entry.blocks / mechanism.layout.sectors_per_track(entry.lba);
        fixed + Nanos(media).max(disk.link_time(entry.blocks))
    };
    trace.iter().map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(us: &[u64]) -> Vec<Entry> {
        let entry = |us: &u64| Entry {
            is_write: false,
            lba: 8,
            blocks: 8,
            measured: Nanos(us * 1000),
            think: Nanos::ZERO,
        };
        us.iter().map(entry).collect()
    }

    #[test]
    fn the_demerit_compares_ranks_not_requests() {
        let trace = entries(&[1000, 3000]);
        let same = judge(&trace, &[Nanos(3_000_000), Nanos(1_000_000)]);
        assert_eq!((same.demerit_ms, same.measured_mean_ms), (0.0, 2.0));
        let off = judge(&trace, &[Nanos(2_000_000), Nanos(4_000_000)]);
        assert_eq!((off.demerit_ms, off.demerit_percent), (1.0, 50.0));
    }

    #[test]
    fn a_trace_made_by_a_model_is_reproduced_by_it_and_by_no_lower_rung() {
        let model = crate::profile::builtin::get("hitachi-80").unwrap().unwrap().build().unwrap();
        let mut trace = entries(&[0; 400]);
        for (index, entry) in (0..).zip(&mut trace) {
            let far = if index % 3 == 0 { 0 } else { index * 8 };
            entry.lba = (index / 3 * 97_654_321) % 150_000_000 + far;
            entry.is_write = index % 5 == 0;
            entry.think = Nanos(20_000_000);
        }
        let times = service_times(&model, &trace).unwrap();
        for (entry, time) in trace.iter_mut().zip(&times) {
            entry.measured = *time;
        }
        let rungs = ladder(&model, &trace).unwrap();
        let percent: Vec<f64> = rungs.iter().map(|rung| rung.judgement.demerit_percent).collect();
        assert_eq!(percent.last(), Some(&0.0));
        assert!(percent[..4].iter().all(|percent| *percent > 5.0), "{percent:?}");
    }

    #[test]
    fn a_request_beyond_the_end_is_named() {
        let model = crate::profile::builtin::get("ST340015A").unwrap().unwrap().build().unwrap();
        let mut trace = entries(&[1, 1]);
        trace[1].lba = 78_165_353;
        let error = service_times(&model, &trace).unwrap_err();
        let (end, blocks) = (78_165_361, 78_165_360);
        assert_eq!(error, ReplayError::Beyond { index: 2, end, blocks });
        assert_eq!(service_times(&model, &[]).unwrap_err(), ReplayError::Empty);
        assert_eq!(ladder(&model, &entries(&[0, 0])).unwrap_err(), ReplayError::NoTime);
        assert!(
            ladder(&model, &entries(&[0, 1])).unwrap()[0].judgement.demerit_percent.is_finite()
        );
    }
}
