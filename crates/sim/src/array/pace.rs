//! How long a recovery or resync of a whole array takes.
//!
//! One of a large disk takes hours, of which a model need not live through all: its speed is taken at a few places,
//! from the outer tracks to the inner ones, and each speaks for its part of the way.

use super::ArrayVolume;
use lapstrake_geometry::Sector;
use lapstrake_model::{Nanos, Volume};

/// How long a sync run runs into its stride before its speed is looked at.
const RUN_UP: Nanos = Nanos(250_000_000);
/// How much faster what is read may be than what is written, in bytes a second: where its speed speaks for its part of a
/// long way, write caches have to be full before.
const SURPLUS: u64 = 64_000_000;
/// Over how long its speed is taken.
const LENGTH: Nanos = Nanos(1_000_000_000);
/// A sync run that takes no longer than about this for each place is lived through: behind the middle of the last place
/// its speed must be taken before it ends, even if it is a fifth higher there.
const SHORT_S: f64 = 3.0;

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
pub fn sync_time<E>(
    places: u32,
    write_cache: u64,
    mut make: impl FnMut(Sector) -> Result<ArrayVolume, E>,
) -> Result<SyncTime, E> {
    let mut whole = make(Sector(0))?;
    let mut timed = SyncTime::default();
    let Some(end) = whole.progress().map(|progress| progress.end.0 as f64) else {
        return Ok(timed);
    };
    let places = places.max(1);
    let short = SHORT_S * f64::from(places);
    let Some(first) = speed(&mut whole, RUN_UP).filter(|speed| end > speed * short) else {
        return Ok(lived_through(&mut whole, end, Nanos((4.0 * short * 1e9) as u64)));
    };
    timed.lived = RUN_UP + LENGTH;
    let fills = Nanos(write_cache.saturating_mul(1_000_000_000) / SURPLUS);
    // Half of a place is what the last one has.
    let half_s = end / first / f64::from(places) / 2.0;
    let run_up = (RUN_UP + fills).min(Nanos((half_s / 1.2 * 1e9) as u64).since(LENGTH));
    let mut seconds = 0.0;
    for place in 0..places {
        let middle = end * (2.0 * f64::from(place) + 1.0) / (2.0 * f64::from(places));
        let at = Sector(middle as u64 / 2048 * 2048);
        timed.lived += run_up + LENGTH;
        let Some(speed) = speed(&mut make(at)?, run_up) else { return Ok(timed) };
        seconds += end / f64::from(places) / speed;
    }
    timed.takes = Some(Nanos((seconds * 1e9) as u64));
    Ok(timed)
}

/// A short sync run, to its end; one that is slower than it seemed, and takes more than `long`, goes on as it went.
fn lived_through(array: &mut ArrayVolume, end: f64, long: Nanos) -> SyncTime {
    let _ = array.poll(long);
    let Some(progress) = array.progress() else {
        let ended = array.ended().first().map(|(_, _, at)| *at);
        return SyncTime { takes: ended, lived: ended.unwrap_or(long) };
    };
    let done = progress.done.0 as f64;
    let takes = (done > 0.0).then(|| Nanos((long.0 as f64 * end / done) as u64));
    SyncTime { takes, lived: long }
}

/// Sectors a second of an array's sync run, where it is; none if it ends before.
fn speed(array: &mut ArrayVolume, run_up: Nanos) -> Option<f64> {
    let _ = array.poll(run_up);
    let from = array.progress()?.done.0;
    let _ = array.poll(run_up + LENGTH);
    let to = array.progress()?.done.0;
    (to > from).then(|| (to - from) as f64 * 1e9 / LENGTH.0 as f64)
}
