//! A candidate tried: the real engine on models of the disks, in virtual time.
//!
//! Each figure has a run of its own, on disks that have been idle: whole, without one disk, and while that
//! disk is rebuilt; loads that write without order meet shingled disks with their cache zone full. What it does not do: fill
//! disks. Solid-state disks are tried while their fast cells last, and nothing has been written where an array is new.

use super::candidate::{Array, Candidate, DiskWindow, Join};
use super::drive::{Pace, Span, rate};
use super::{Disk, Load, Question, risk};
use lapstrake_engine::SyncSpeed;
use lapstrake_geometry::{Level, Sector};
use lapstrake_metadata::create::BitmapChoice;
use lapstrake_model::rack::{Rack, SharedRack, Window};
use lapstrake_model::volume::Handled;
use lapstrake_model::{Channel, Volume};
use lapstrake_sim::array::{
    ArrayConfig, ArrayError, ArrayVolume, GrowingArray, Leg, SlotState, growth_time, sync_time,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Places at which the speed of a rebuild is taken.
const PLACES: u32 = 3;

/// What a disk is in a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Whole,
    Without(usize),
    /// What a disk held is rebuilt, up to this sector so far.
    Rebuilt {
        lost: usize,
        onto: usize,
        from: Sector,
    },
}

/// The pace of each load, whole, and bytes a second where a disk can be lost, without the one that it misses most.
pub(super) fn speeds(
    candidate: &Candidate,
    question: &Question,
    seed: u64,
    span: Span,
) -> Result<(Vec<Pace>, Option<Vec<f64>>), ArrayError> {
    let all = |state| -> Result<Vec<Pace>, ArrayError> {
        let speed = |load| speed(candidate, question, load, state, seed, span);
        question.loads.iter().map(speed).collect()
    };
    let mut degraded: Option<Vec<f64>> = None;
    // Which disk goes is not known: what is told must hold for each.
    for disk in candidate.unlike(&question.disks).into_iter().filter(|_| candidate.tolerance() > 0)
    {
        let without = all(State::Without(disk))?;
        let without: Vec<f64> = without.iter().map(|pace| pace.bytes_per_s).collect();
        degraded = Some(match degraded {
            None => without,
            Some(least) => least.iter().zip(&without).map(|(a, b)| a.min(*b)).collect(),
        });
    }
    Ok((all(State::Whole)?, degraded))
}

fn speed(
    candidate: &Candidate,
    question: &Question,
    load: &Load,
    state: State,
    seed: u64,
    span: Span,
) -> Result<Pace, ArrayError> {
    let is_filled = |disk: &usize| question.disks[*disk].is_filled_by(&load.io);
    let span = if candidate.disks().iter().any(is_filled) { Span::CLEANING } else { span };
    let volume = || volume(candidate, question, load, state, seed);
    // Whether it can be built is seen once; then it can be again.
    volume()?;
    Ok(rate(|| volume().expect("built before"), &load.io, span, seed))
}

/// The volume that a candidate is, as a load meets it.
fn volume(
    candidate: &Candidate,
    question: &Question,
    load: &Load,
    state: State,
    seed: u64,
) -> Result<Box<dyn Volume>, ArrayError> {
    let bench = Bench::new(&question.disks, Some((candidate, load)), seed);
    let mut volumes = Vec::new();
    for array in &candidate.arrays {
        volumes.push(match array.level {
            None => bench.window(&array.parts[0]),
            Some(level) => Box::new(bench.array(candidate, array, level, question, state)?),
        });
    }
    if volumes.len() == 1 {
        let volume = volumes.remove(0);
        return Ok(match candidate.arrays[0].level {
            None => Box::new(Handled::new(volume, question.processor.request)),
            Some(_) => volume,
        });
    }
    let level = if candidate.join == Join::Striped { Level::Raid0 } else { Level::Linear };
    let rotational = question.disks.iter().any(|disk| disk.is_rotational);
    let slots = volumes.into_iter().map(|volume| SlotState::InSync(Leg { volume, rotational }));
    let config = ArrayConfig::new(level, slots.collect(), question.processor);
    Ok(Box::new(ArrayVolume::new(config)?))
}

/// Hours to rebuild what a disk holds, onto the hot spare or one of its own kind: of the engine, on model disks,
/// without other requests.
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
        let onto = candidate.spare.unwrap_or(disk);
        let write_cache = question.disks[onto].model.write_cache();
        let time = sync_time(PLACES, write_cache, |from| {
            let state = State::Rebuilt { lost: disk, onto, from };
            Bench::new(&question.disks, None, question.seed)
                .array(candidate, array, level, question, state)
        })?;
        // Its places were tried with fast cells free. And it must be finite whatever happens: safety would take a disk
        // for never rebuilt.
        let least = risk::least_hours_of(array, &question.disks, disk, onto);
        hours += time.takes.map_or(least, |time| (time.0 as f64 / 3.6e12).max(least));
    }
    Ok(hours)
}

/// Hours to give an array one more disk, as its last one: of the engine, on model disks, without other requests. None if no
/// data moves for that, or there are several arrays.
pub(super) fn growth_hours(candidate: &Candidate, question: &Question) -> Option<f64> {
    let [array] = &candidate.arrays[..] else { return None };
    let level = array.level.filter(|level| level.is_parity() || *level == Level::Raid10)?;
    let disk = array.parts.last()?.disk;
    let grown = || {
        let bench = Bench::new(&question.disks, None, question.seed);
        let config = bench.config(candidate, array, level, question, State::Whole);
        (config, vec![bench.one_more(array, question.seed)])
    };
    let (config, more) = grown();
    let moved = GrowingArray::moved_share(&config, &more).ok()?;
    let write_cache = question.disks[disk].model.write_cache();
    let make = |from| {
        let (config, more) = grown();
        GrowingArray::new(config, more, from)
    };
    let time = growth_time(PLACES, moved, write_cache, make).ok()?.takes?;
    Some(time.0 as f64 / 3.6e12)
}

/// The disks, each on a link of its own unless it shares a cable.
struct Bench<'a> {
    disks: &'a [Disk],
    rack: SharedRack,
}

impl<'a> Bench<'a> {
    /// As a load on a candidate meets them, or idle ones.
    fn new(disks: &'a [Disk], under: Option<(&Candidate, &Load)>, seed: u64) -> Self {
        let mut rack = Rack::default();
        let mut cables = BTreeMap::new();
        for (disk, number) in disks.iter().zip(0..) {
            let link = match disk.cable {
                None => rack.add_channel(Channel::unbounded()),
                Some(cable) => *cables
                    .entry(cable.number)
                    .or_insert_with(|| rack.add_channel(Channel::held(cable.bytes_per_s))),
            };
            let model = match under {
                Some((candidate, load)) => {
                    disk.model_under(&load.io, candidate.extent(number as usize))
                }
                None => disk.model.clone(),
            };
            rack.add_disk(&model.another(seed ^ number << 32), link);
        }
        Self { disks, rack: Rc::new(RefCell::new(rack)) }
    }

    fn window(&self, part: &DiskWindow) -> Box<dyn Volume> {
        let window = Window::new(&self.rack, part.disk, part.first, part.sectors);
        self.disks[part.disk].queued(window)
    }

    /// An array of a candidate.
    fn array(
        &self,
        candidate: &Candidate,
        array: &Array,
        level: Level,
        question: &Question,
        state: State,
    ) -> Result<ArrayVolume, ArrayError> {
        ArrayVolume::new(self.config(candidate, array, level, question, state))
    }

    /// Another disk as the array's last one, on a link of its own.
    fn one_more(&self, array: &Array, seed: u64) -> Leg {
        let part = array.parts.last().expect("an array has disks");
        let disk = &self.disks[part.disk];
        let number = {
            let mut rack = self.rack.borrow_mut();
            let link = rack.add_channel(Channel::unbounded());
            rack.add_disk(&disk.model.another(seed ^ (self.disks.len() as u64) << 32), link)
        };
        let window = Window::new(&self.rack, number, part.first, part.sectors);
        Leg { volume: disk.queued(window), rotational: disk.is_rotational }
    }

    fn config(
        &self,
        candidate: &Candidate,
        array: &Array,
        level: Level,
        question: &Question,
        state: State,
    ) -> ArrayConfig {
        let slot_state = |part: &DiskWindow| {
            let leg = |disk: usize| Leg {
                volume: self.window(&DiskWindow { disk, ..*part }),
                rotational: self.disks[disk].is_rotational,
            };
            match state {
                State::Without(disk) if disk == part.disk => SlotState::Missing,
                State::Rebuilt { lost, onto, from } if lost == part.disk => {
                    SlotState::Recovering(leg(onto), from)
                }
                _ => SlotState::InSync(leg(part.disk)),
            }
        };
        let slots = array.parts.iter().map(slot_state).collect();
        let mut config = ArrayConfig::new(level, slots, question.processor);
        (config.layout, config.chunk) = (array.layout, array.chunk);
        config.bitmap = match candidate.no_bitmap || !level.has_redundancy() {
            true => BitmapChoice::None,
            false => BitmapChoice::Internal,
        };
        // Bits stay set for seconds, in which solid-state disks are written all over; trials are shorter.
        let mut disks = array.parts.iter().map(|part| &self.disks[part.disk]);
        let is_rebuilt = matches!(state, State::Rebuilt { .. });
        config.is_busy = !is_rebuilt && disks.all(|disk| !disk.is_rotational);
        config.speed = SyncSpeed::default();
        config
    }
}
