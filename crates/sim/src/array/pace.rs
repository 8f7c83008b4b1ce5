//! How long a recovery, resync or reshape of a whole array takes.
//!
//! One of a large disk takes hours, of which a model need not live through all: its speed is taken at a few places,
//! from the outer tracks to the inner ones, and each speaks for its part of the way.

use super::ArrayVolume;
use lapstrake_engine::SyncProgress;
use lapstrake_geometry::Sector;
use lapstrake_model::{Nanos, Volume};

/// How long a sync run runs into its stride before its speed is looked at.
const RUN_UP: Nanos = Nanos(250_000_000);
/// How much faster what is read may be than what is written, in bytes a second: where its speed speaks for its part of a
/// long way, write caches have to be full before.
const SURPLUS: u64 = 64_000_000;
/// Over how long its speed is taken.
const LENGTH: Nanos = Nanos(1_000_000_000);
/// The same of a reshape, which tells how far it has come only after each window.
const RESHAPE_LENGTH: Nanos = Nanos(6_000_000_000);
/// A sync run that takes no longer than about this for each place is lived through: behind the middle of the last place
/// its speed must be taken before it ends, even if it is a fifth higher there.
const SHORT_S: f64 = 3.0;

/// An array of which nothing is asked but its sync run.
pub trait Run {
    /// Lives up to this time.
    fn run_to(&mut self, at: Nanos);
    /// How far the sync run has come, while there is one.
    fn progress(&self) -> Option<SyncProgress>;
    /// When the first has ended.
    fn end(&self) -> Option<Nanos>;
}

impl Run for ArrayVolume {
    fn run_to(&mut self, at: Nanos) {
        let _ = self.poll(at);
    }

    fn progress(&self) -> Option<SyncProgress> {
        Self::progress(self)
    }

    fn end(&self) -> Option<Nanos> {
        self.ended().first().map(|(_, _, at)| *at)
    }
}

/// A sync run, timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncTime {
    /// What it takes from its beginning to its end; none if there is none, or it does not move.
    pub takes: Option<Nanos>,
    /// What passed of it in the worlds that were made for that.
    pub lived: Nanos,
}

/// How long the first sync run of an array takes, by its speed at `places` places (one at least). `make` makes the array
/// with its sync run at a sector: 0, and multiples of a mebibyte. `write_cache`: bytes that a member's holds at most.
///
/// # Errors
/// Those of `make`.
pub fn sync_time<E, R: Run>(
    places: u32,
    write_cache: u64,
    make: impl FnMut(Sector) -> Result<R, E>,
) -> Result<SyncTime, E> {
    timed(&even(0.0, 1.0, places), LENGTH, write_cache, make)
}

/// The same of a reshape that gives an array more members: of which only this share of the way moves data, and the rest writes
/// zeros.
///
/// # Errors
/// Those of `make`.
pub fn growth_time<E, R: Run>(
    places: u32,
    moved: f64,
    write_cache: u64,
    make: impl FnMut(Sector) -> Result<R, E>,
) -> Result<SyncTime, E> {
    let rest = (f64::from(places) * (1.0 - moved)).ceil().max(1.0) as u32;
    let parts = [even(0.0, moved, places), even(moved, 1.0, rest)].concat();
    timed(&parts, RESHAPE_LENGTH, write_cache, make)
}

/// Parts of the way from one place to another, as many.
fn even(from: f64, to: f64, parts: u32) -> Vec<(f64, f64)> {
    let parts = parts.max(1);
    let at = |part: u32| from + (to - from) * f64::from(part) / f64::from(parts);
    (0..parts).map(|part| (at(part), at(part + 1))).collect()
}

/// How long it takes by its speed in the middle of each part of the way.
fn timed<E, R: Run>(
    parts: &[(f64, f64)],
    length: Nanos,
    write_cache: u64,
    mut make: impl FnMut(Sector) -> Result<R, E>,
) -> Result<SyncTime, E> {
    let mut whole = make(Sector(0))?;
    let mut timed = SyncTime::default();
    let Some(end) = whole.progress().map(|progress| progress.end.0 as f64) else {
        return Ok(timed);
    };
    let length_s = length.0 as f64 / 1e9;
    let short = SHORT_S * length_s * parts.len() as f64;
    let Some(first) = speed(&mut whole, RUN_UP, length).filter(|speed| end > speed * short) else {
        return Ok(lived_through(&mut whole, end, Nanos((4.0 * short * 1e9) as u64)));
    };
    timed.lived = RUN_UP + length;
    let fills = Nanos(write_cache.saturating_mul(1_000_000_000) / SURPLUS);
    // Half of a place is what the last one has.
    let shortest = parts.iter().map(|(from, to)| to - from).fold(1.0, f64::min);
    let half_s = end / first * shortest / 2.0;
    let run_up = (RUN_UP + fills).min(Nanos((half_s / 1.2 * 1e9) as u64).since(length));
    let mut seconds = 0.0;
    for (from, to) in parts {
        let middle = end * (from + to) / 2.0;
        let at = Sector(middle as u64 / 2048 * 2048);
        timed.lived += run_up + length;
        let Some(speed) = speed(&mut make(at)?, run_up, length) else { return Ok(timed) };
        seconds += end * (to - from) / speed;
    }
    timed.takes = Some(Nanos((seconds * 1e9) as u64));
    Ok(timed)
}

/// A short sync run, to its end; one that is slower than it seemed, and takes more than `long`, goes on as it went.
fn lived_through(array: &mut impl Run, end: f64, long: Nanos) -> SyncTime {
    array.run_to(long);
    let Some(progress) = array.progress().filter(|_| array.end().is_none()) else {
        let ended = array.end();
        return SyncTime { takes: ended, lived: ended.unwrap_or(long) };
    };
    let done = progress.done.0 as f64;
    let takes = (done > 0.0).then(|| Nanos((long.0 as f64 * end / done) as u64));
    SyncTime { takes, lived: long }
}

/// Sectors a second of an array's sync run, where it is; none if it ends before.
fn speed(array: &mut impl Run, run_up: Nanos, length: Nanos) -> Option<f64> {
    array.run_to(run_up);
    let from = array.progress()?.done.0;
    array.run_to(run_up + length);
    let to = array.progress()?.done.0;
    (to > from).then(|| (to - from) as f64 * 1e9 / length.0 as f64)
}
