//! What is asked: disks, loads, wishes, and how the array will be looked after.

use super::Tried;
use crate::LabError;
use crate::plan::{Io, Pattern, Plan};
use crate::safety::{SCRUB_DAYS, SPARES, YEARS};
use lapstrake_model::profile::{Kind, Profile};
use lapstrake_model::queue::{QueueConfig, Queued};
use lapstrake_model::rack::Window;
use lapstrake_model::safety::Loss;
use lapstrake_model::{DiskModel, Processor, Volume};
use std::ops::Range;
use std::path::Path;

/// Hours from a failure until a new disk is in the machine. As with the other numbers, what is beyond is a slip.
const REPLACE_HOURS: (f64, f64) = (0.0, 100_000.0);
/// What a disk may cost, and all of them.
pub(super) const PRICES: (f64, f64) = (0.0, 1e12);

/// A disk that is there, or could be bought.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What this one is called.
    pub name: String,
    /// What kind it is: disks of one kind and price are alike.
    pub kind: String,
    /// Its profile.
    pub profile: Profile,
    /// The model that it describes.
    pub model: DiskModel,
    /// Its sectors.
    pub sectors: u64,
    /// It has an arm.
    pub is_rotational: bool,
    /// What it costs; 0 for one that is there.
    pub price: f64,
    /// The cable that it shares with others; none: a link of its own.
    pub cable: Option<Cable>,
}

/// A cable that a command keeps from its beginning to its end, as ATA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Which.
    pub number: usize,
    /// Bytes that it carries in a second.
    pub bytes_per_s: u64,
}

/// A load, and how much it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// How much it counts beside others.
    pub weight: f64,
    /// What it does.
    pub io: Io,
}

/// What the array should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// Bytes, at least.
    pub capacity: Option<u64>,
    /// Bytes a second of each load, at least; empty: none.
    pub speeds: Vec<Option<f64>>,
    /// The probability of losing data over the years, at most.
    pub loss: f64,
    /// Single sectors may be lost: what counts is the array as a whole.
    pub sectors_may_go: bool,
    /// Arrays may do without a bitmap: a crash costs a resync of the whole.
    pub bitmap_may_go: bool,
    /// What disks may cost, at most.
    pub budget: Option<f64>,
}

impl Wishes {
    /// Whether something lacks a bitmap that it should have.
    pub(super) fn want_bitmap(&self, tried: &Tried) -> bool {
        tried.candidate.no_bitmap && !self.bitmap_may_go
    }

    /// Whether nothing was said of size, speed and cost.
    pub(super) fn are_none(&self) -> bool {
        let has_speed = self.speeds.iter().any(Option::is_some);
        self.capacity.is_none() && self.budget.is_none() && !has_speed
    }

    /// What of a loss counts.
    pub(super) fn judged(&self, loss: &Loss) -> f64 {
        if self.sectors_may_go { loss.array.value } else { loss.data.value }
    }
}

/// How the array will be looked after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Care {
    /// For how long.
    pub years: f64,
    /// From a failure until somebody has put a new disk in, in hours.
    pub replace_hours: f64,
    /// Between two scrubs, in hours; none if nobody scrubs.
    pub scrub_hours: Option<f64>,
    /// Spares beside the disks named.
    pub spares: usize,
}

impl Default for Care {
    /// Five years; a new disk after three days; a scrub each month, as distributions have it.
    fn default() -> Self {
        Self { years: 5.0, replace_hours: 72.0, scrub_hours: Some(730.0), spares: 0 }
    }
}

/// A question.
#[derive(Clone, Debug)]
pub struct Question {
    /// What there is to build of.
    pub disks: Vec<Disk>,
    /// What it is for.
    pub loads: Vec<Load>,
    /// What it should be.
    pub wishes: Wishes,
    /// How it will be looked after.
    pub care: Care,
    /// On what it will run.
    pub processor: Processor,
    /// From which everything random is drawn.
    pub seed: u64,
}

impl Disk {
    /// A disk of a profile.
    ///
    /// # Errors
    /// If the profile describes none.
    pub fn new(name: &str, profile: Profile, price: f64) -> Result<Self, LabError> {
        let wrong = |error| LabError::Question { why: format!("{name}: {error}") };
        let model = profile.build().map_err(wrong)?;
        Ok(Self {
            name: name.to_owned(),
            kind: profile.name.clone(),
            sectors: model.blocks(),
            is_rotational: matches!(model, DiskModel::Hard(_)),
            profile,
            model,
            price,
            cable: None,
        })
    }

    /// Whether a load fills its cache zone within minutes, and meets it full from then on.
    pub(super) fn is_filled_by(&self, io: &Io) -> bool {
        let is_scattered = matches!(io.pattern, Pattern::Uniform | Pattern::Zipf(_));
        self.profile.is_shingled() && is_scattered && io.read < 1.0 && io.rate.is_none()
    }

    /// Its model as a load on these sectors of it meets it.
    pub(super) fn model_under(&self, io: &Io, sectors: Range<u64>) -> DiskModel {
        match self.is_filled_by(io) && !sectors.is_empty() {
            true => self.model.with_full_cache_zone(sectors),
            false => self.model.clone(),
        }
    }

    /// A window of it as arrays meet it: hard disks are behind the block layer's queue.
    pub(super) fn queued(&self, window: Window) -> Box<dyn Volume> {
        let config = match &self.profile.kind {
            Kind::HardDisk(hard) if hard.queue.value.depth > 1 => QueueConfig::QUEUED,
            Kind::HardDisk(_) => QueueConfig::IDE,
            Kind::SolidDisk(_) => return Box::new(window),
        };
        Box::new(Queued::new(Box::new(window), config))
    }
}

impl Question {
    pub(super) fn check(&self) -> Result<(), LabError> {
        let wrong = |why: String| Err(LabError::Question { why });
        if self.disks.is_empty() {
            return wrong("there are no disks".into());
        }
        if self.loads.is_empty() {
            return wrong("there is no load".into());
        }
        if self.loads.iter().any(|load| load.weight.is_nan() || load.weight <= 0.0) {
            return wrong("a load's weight must be more than 0".into());
        }
        if !(self.wishes.loss > 0.0 && self.wishes.loss <= 1.0) {
            return wrong("a probability is more than 0, and 1 at most".into());
        }
        let care = &self.care;
        let days = care.scrub_hours.map(|hours| hours / 24.0);
        let numbers = [
            ("the years that it must last", Some(care.years), YEARS),
            ("the hours until a new disk is in (replace)", Some(care.replace_hours), REPLACE_HOURS),
            ("the days between scrubs, unless 0 for none,", days, SCRUB_DAYS),
            ("the spares beside the disks named", Some(care.spares as f64), SPARES),
            ("the budget", self.wishes.budget, PRICES),
        ];
        for (what, found, (least, most)) in numbers {
            // Neither is true of what is no number.
            if let Some(found) = found.filter(|found| !(least..=most).contains(found)) {
                return wrong(format!("{what} must be from {least} to {most}, not {found:?}"));
            }
        }
        Ok(())
    }

    /// The mean of the loads' logarithms, by weight: twice as fast at half of it is worth as much as half as
    /// fast at the other half costs.
    pub(super) fn score(&self, speeds: &[f64]) -> f64 {
        let weights: f64 = self.loads.iter().map(|load| load.weight).sum();
        let logarithms = self.loads.iter().zip(speeds);
        logarithms.map(|(load, speed)| load.weight * speed.max(1.0).ln()).sum::<f64>() / weights
    }
}

/// The loads of a plan of the lab.
///
/// # Errors
/// If the plan is wrong, or has one whose requests are not the lab's own.
pub fn loads_of_plan(path: &Path) -> Result<Vec<Load>, LabError> {
    let plan = Plan::read(path).map_err(|error| LabError::Question { why: error.to_string() })?;
    let load = |workload: crate::plan::Workload| match workload.load {
        crate::plan::Load::Io(io) => Ok(Load { name: workload.name, weight: 1.0, io }),
        _ => Err(LabError::Question {
            why: format!(
                "{}: the workload {:?} has no pattern, and only such can be tried on models of many arrays: leave it out of the \
                 plan (`lapstrake predict` runs it on the plan's own arrays)",
                path.display(),
                workload.name
            ),
        }),
    };
    plan.workloads.into_iter().map(load).collect()
}
