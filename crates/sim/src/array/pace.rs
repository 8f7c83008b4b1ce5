//! How long a recovery or resync of a whole array takes.
//!
//! One of a large disk takes hours, of which a model need not live through all: its speed is taken at a few places,
//! from the outer tracks to the inner ones, and each speaks for its part of the way.

use super::ArrayVolume;
use lapstrake_geometry::Sector;
use lapstrake_model::{Nanos, Volume};

/// How long a course runs into its stride before its speed is taken.
const RUN_UP: Nanos = Nanos(250_000_000);
/// Over how long its speed is taken.
const LENGTH: Nanos = Nanos(1_000_000_000);
/// A course that takes no longer than about this for each place is lived through: behind the middle of the last place
/// its speed must be taken before it ends, even if it is a fifth higher there.
const SHORT_S: f64 = 3.0;

/// How long the first course of an array takes, from its beginning to its end, by its speed at `places` places (one at
/// least). `make` makes the array with its course at a sector: 0, and multiples of a mebibyte. None: it has no course,
/// or one that does not move.
///
/// # Errors
/// Those of `make`.
pub fn course_time<E>(
    places: u32,
    mut make: impl FnMut(Sector) -> Result<ArrayVolume, E>,
) -> Result<Option<Nanos>, E> {
    let mut whole = make(Sector(0))?;
    let Some(end) = whole.progress().map(|progress| progress.end.0 as f64) else { return Ok(None) };
    let places = places.max(1);
    let short = SHORT_S * f64::from(places);
    if speed(&mut whole).is_none_or(|speed| end <= speed * short) {
        return Ok(lived_through(&mut whole, end, 4.0 * short));
    }
    let mut seconds = 0.0;
    for place in 0..places {
        let middle = end * (2.0 * f64::from(place) + 1.0) / (2.0 * f64::from(places));
        let at = Sector(middle as u64 / 2048 * 2048);
        let Some(speed) = speed(&mut make(at)?) else { return Ok(None) };
        seconds += end / f64::from(places) / speed;
    }
    Ok(Some(Nanos((seconds * 1e9) as u64)))
}

/// When a short course ends; one that is slower than it seemed, and takes more than `long` seconds, goes on as it went.
fn lived_through(array: &mut ArrayVolume, end: f64, long: f64) -> Option<Nanos> {
    let _ = array.poll(Nanos((long * 1e9) as u64));
    let Some(progress) = array.progress() else {
        return array.ended().first().map(|(_, _, at)| *at);
    };
    let done = progress.done.0 as f64;
    (done > 0.0).then(|| Nanos((long * 1e9 * end / done) as u64))
}

/// Sectors a second of an array's course, where it is; none if it ends before.
fn speed(array: &mut ArrayVolume) -> Option<f64> {
    let _ = array.poll(RUN_UP);
    let from = array.progress()?.done.0;
    let _ = array.poll(RUN_UP + LENGTH);
    let to = array.progress()?.done.0;
    (to > from).then(|| (to - from) as f64 * 1e9 / LENGTH.0 as f64)
}
