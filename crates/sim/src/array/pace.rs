//! How long a recovery or resync of a whole array takes.
//!
//! One of a large disk takes hours, of which a model need not live through all: its speed is taken at a few places,
//! from the outer tracks to the inner ones, and each speaks for its part of the way.

use super::ArrayVolume;
use lapstrake_geometry::Sector;
use lapstrake_model::{Nanos, Volume};

/// How long a course may run into its stride before its speed is taken.
const RUN_UP: Nanos = Nanos(500_000_000);
/// Over how long its speed is taken.
const LENGTH: Nanos = Nanos(2_000_000_000);
/// A course that ends within this time is lived through.
const SHORT: Nanos = Nanos(10_000_000_000);

/// How long the first course of an array takes, from its beginning to its end, by its speed at `places` places (one at
/// least). `make` makes the array with its course at a sector: 0, and some multiples of a mebibyte. None: it has no course,
/// or one that does not move.
///
/// # Errors
/// Those of `make`.
pub fn course_time<E>(
    places: u32,
    mut make: impl FnMut(Sector) -> Result<ArrayVolume, E>,
) -> Result<Option<Nanos>, E> {
    let mut whole = make(Sector(0))?;
    let Some(end) = whole.progress().map(|progress| progress.end.0) else { return Ok(None) };
    let _ = whole.poll(SHORT);
    if let Some((_, _, at)) = whole.ended().first() {
        return Ok(Some(*at));
    }
    let places = u64::from(places.max(1));
    let mut ns = 0.0;
    for place in 0..places {
        let middle = end * (2 * place + 1) / (2 * places) / 2048 * 2048;
        let Some(speed) = speed(&mut make(Sector(middle))?) else { return Ok(None) };
        ns += end as f64 / places as f64 / speed * 1e9;
    }
    Ok(Some(Nanos(ns as u64)))
}

/// Sectors a second of an array's course, where it is.
fn speed(array: &mut ArrayVolume) -> Option<f64> {
    let _ = array.poll(RUN_UP);
    let from = array.progress()?.done.0;
    let _ = array.poll(RUN_UP + LENGTH);
    let to = array.progress()?.done.0;
    let seconds = LENGTH.0 as f64 / 1e9;
    (to > from).then(|| (to - from) as f64 / seconds)
}
