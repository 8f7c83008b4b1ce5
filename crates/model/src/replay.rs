//! Replays a trace on a model and says how far the two are apart.
//!
//! The demerit figure: sort the measured and the simulated service times, take the root mean square of
//! the differences rank by rank, over the measured mean (Ruemmler and Wilkes, 1994). A request begins
//! the trace's idle time after the simulated end of the one before.

use crate::channel::Channel;
use crate::disk::{Disk, DiskModel};
use crate::request::{Op, Request};
use crate::trace::Entry;
use crate::Nanos;

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
pub fn service_times(
    model: &DiskModel,
    trace: &[Entry],
) -> Result<Vec<Nanos>, ReplayError> {
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
