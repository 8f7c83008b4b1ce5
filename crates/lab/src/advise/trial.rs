//! A candidate tried: the real engine on models of the disks, in virtual time.
//!
//! Each figure has a run of its own, on disks that have been idle: whole, without one disk, and while that
//! disk is rebuilt. What it does not do: fill disks. Solid-state disks are tried while their fast cells
//! last, and nothing has been written where an array is new.

use super::candidate::{Array, Candidate, Join, Part, usable};
use super::drive::{Span, rate};
use super::{Disk, Load, Question};
use lapstrake_engine::SyncSpeed;
use lapstrake_geometry::{Level, Sector};
use lapstrake_model::rack::{Rack, SharedRack, Window};
use lapstrake_model::{Channel, Nanos, Volume};
use lapstrake_sim::array::{ArrayConfig, ArrayError, ArrayVolume, Leg, Seat};
use std::cell::RefCell;
use std::rc::Rc;

/// Of a rebuild's way, where its pace is looked at, and what each place stands for (Simpson's rule).
const PLACES: [(f64, f64); 3] = [(0.0, 1.0 / 6.0), (0.49, 4.0 / 6.0), (0.98, 1.0 / 6.0)];
/// Virtual time before and while a rebuild's pace is looked at.
const REBUILD: (Nanos, Nanos) = (Nanos(300_000_000), Nanos(1_500_000_000));

/// What a disk is in a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Whole,
    Without(usize),
}

/// Bytes a second of each load, whole, and without one disk where that can be.
pub(super) fn speeds(
    candidate: &Candidate,
    question: &Question,
    span: Span,
) -> Result<(Vec<f64>, Option<Vec<f64>>), ArrayError> {
    let all = |state| -> Result<Vec<f64>, ArrayError> {
        question.loads.iter().map(|load| speed(candidate, question, load, state, span)).collect()
    };
    let lost = candidate.arrays[0].parts.first().map(|part| State::Without(part.disk));
    let degraded = lost.filter(|_| candidate.tolerance() > 0).map(all).transpose()?;
    Ok((all(State::Whole)?, degraded))
}

fn speed(
    candidate: &Candidate,
    question: &Question,
    load: &Load,
    state: State,
    span: Span,
) -> Result<f64, ArrayError> {
    // Whether it can be built is seen once; then it can be again.
    volume(candidate, question, state)?;
    let make = || volume(candidate, question, state).expect("built before");
    Ok(rate(make, &load.io, span, question.seed))
}

/// The volume that a candidate is.
fn volume(
    candidate: &Candidate,
    question: &Question,
    state: State,
) -> Result<Box<dyn Volume>, ArrayError> {
    let bench = Bench::new(&question.disks);
    let mut volumes = Vec::new();
    for array in &candidate.arrays {
        volumes.push(match array.level {
            None => Box::new(bench.window(&array.parts[0])) as Box<dyn Volume>,
            Some(level) => Box::new(bench.array(array, level, question, state, None)?),
        });
    }
    if volumes.len() == 1 {
        return Ok(volumes.remove(0));
    }
    let level = if candidate.join == Join::Striped { Level::Raid0 } else { Level::Linear };
    let rotational = question.disks.iter().any(|disk| disk.is_rotational);
    let seats = volumes.into_iter().map(|volume| Seat::InSync(Leg { volume, rotational }));
    let config = ArrayConfig::new(level, seats.collect(), question.processor);
    Ok(Box::new(ArrayVolume::new(config)?))
}

/// Hours to rebuild what a disk holds: of the engine, on model disks, without other requests.
pub(super) fn rebuild_hours(
    candidate: &Candidate,
    question: &Question,
    disk: usize,
) -> Result<f64, ArrayError> {
    let mut hours = 0.0;
    for array in &candidate.arrays {
        let Some(level) = array.level.filter(|_| array.tolerance() > 0) else { continue };
        if !array.parts.iter().any(|part| part.disk == disk) {
            continue;
        }
        for (place, weight) in PLACES {
            let bench = Bench::new(&question.disks);
            let state = State::Without(disk);
            let mut volume = bench.array(array, level, question, state, Some(place))?;
            hours += weight / pace(&mut volume, place) / 3600.0;
        }
    }
    Ok(hours)
}

/// The share of a rebuild that a second does; it began at `place`.
fn pace(volume: &mut ArrayVolume, place: f64) -> f64 {
    let (warm_up, time) = REBUILD;
    let (before, from) = come(volume, place, warm_up);
    let (after, until) = come(volume, before, warm_up + time);
    // What was over in the warm-up is judged by that.
    let (share, time) = match until > from {
        true => (after - before, until.since(from)),
        false => (before - place, from),
    };
    share.max(1e-12) / (time.0.max(1) as f64 / 1e9)
}

/// Lets time pass; how far a rebuild has come, and when that was.
fn come(volume: &mut ArrayVolume, before: f64, until: Nanos) -> (f64, Nanos) {
    volume.poll(until);
    match (volume.progress(), volume.ended().first()) {
        (_, Some((_, _, at))) => (1.0, *at),
        (Some(progress), None) => {
            (progress.done.0 as f64 / progress.end.0.max(1) as f64, until)
        }
        (None, None) => (before, until),
    }
}

/// The disks, each on a link of its own.
struct Bench<'a> {
    disks: &'a [Disk],
    rack: SharedRack,
}

impl<'a> Bench<'a> {
    fn new(disks: &'a [Disk]) -> Self {
        let mut rack = Rack::default();
        for disk in disks {
            let link = rack.add_channel(Channel::unbounded());
            rack.add_disk(&disk.model, link);
        }
        Self { disks, rack: Rc::new(RefCell::new(rack)) }
    }

    fn window(&self, part: &Part) -> Window {
        Window::new(&self.rack, part.disk, part.first, part.sectors)
    }

    /// An array; a disk that is not there may be under rebuild, and so far.
    fn array(
        &self,
        array: &Array,
        level: Level,
        question: &Question,
        state: State,
        rebuilt: Option<f64>,
    ) -> Result<ArrayVolume, ArrayError> {
        let seat = |part: &Part| {
            let rotational = self.disks[part.disk].is_rotational;
            let leg = || Leg { volume: Box::new(self.window(part)), rotational };
            match (state, rebuilt) {
                (State::Without(disk), None) if disk == part.disk => Seat::Missing,
                (State::Without(disk), Some(place)) if disk == part.disk => {
                    let sector = (usable(part.sectors) as f64 * place) as u64 / 2048 * 2048;
                    Seat::Recovering(leg(), Sector(sector))
                }
                _ => Seat::InSync(leg()),
            }
        };
        let seats = array.parts.iter().map(seat).collect();
        let mut config = ArrayConfig::new(level, seats, question.processor);
        (config.layout, config.chunk) = (array.layout, array.chunk);
        config.speed = SyncSpeed::default();
        ArrayVolume::new(config)
    }
}
