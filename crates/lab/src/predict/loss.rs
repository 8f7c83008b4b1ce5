//! How likely each array is to lose data over the years, by its predicted rebuild times.

use super::machine::{Drives, drive_of, layout};
use super::metrics::{Metric, spread};
use super::syncs::{SyncKind, SyncOutcome};
use super::{Case, Plan};
use crate::plan::{Array, Leg};
use crate::record::{State, SubjectKind};
use crate::safety::{self, Slot};
use lapstrake_geometry::Level;
use lapstrake_model::safety::{
    Care, DiskRisk, Effort, Estimate, Group, Loss, Rebuilds, System, YEAR_HOURS, loss,
};
use std::collections::BTreeMap;

/// A figure need not be surer than the profiles are.
const EFFORT: Effort = Effort { precision: 0.1, lives_max: 50_000 };

/// Hours of a rebuild of each array in one draw, by its name.
type Hours<'a> = BTreeMap<&'a str, f64>;

/// An array's losses in one draw.
pub(super) struct LossJob<'a> {
    pub array: &'a Array,
    pub round: u32,
    hours: Hours<'a>,
}

/// The arrays of which a loss can be told: md's and disks as they are, each once.
pub(super) fn jobs<'a>(
    cases: &[Case<'a>],
    syncs: &[(&'a Array, SyncKind)],
    done: &[SyncOutcome],
    draws: u32,
) -> Vec<LossJob<'a>> {
    let mut arrays: Vec<&Array> = Vec::new();
    for &(array, ..) in cases {
        let is_one =
            matches!(array.kind, SubjectKind::Lapstrake | SubjectKind::Md | SubjectKind::Disk);
        if is_one && !arrays.iter().any(|known| known.name == array.name) {
            arrays.push(array);
        }
    }
    let hours = |round: u32| -> Hours<'a> {
        let rebuilds = syncs.iter().zip(done.chunks(draws as usize));
        let rebuilds = rebuilds.filter(|((_, sync), _)| *sync == SyncKind::Rebuild);
        let time = |((array, _), done): (&(&'a Array, SyncKind), &[SyncOutcome])| {
            let time = done[round as usize].as_ref().ok()?.takes?;
            Some((array.name.as_str(), time.0 as f64 / 3.6e12))
        };
        rebuilds.filter_map(time).collect()
    };
    let all: Vec<Hours<'a>> = (0..draws).map(hours).collect();
    let job = |array| (0..draws).map(move |round| (array, round));
    let jobs = arrays.into_iter().flat_map(job);
    jobs.map(|(array, round)| LossJob { array, round, hours: all[round as usize].clone() })
        .collect()
}

impl LossJob<'_> {
    /// Its losses; none if that cannot be told: a member is missing, a rebuild never ends, redundancy is of redundancy.
    pub(super) fn run(&self, plan: &Plan, drives: &Drives) -> Option<Loss> {
        let mut parts = Parts { job: self, plan, drives, names: Vec::new(), disks: Vec::new() };
        let groups = parts.groups(self.array)?;
        let care = &plan.care;
        let seed = plan.rules.seed ^ (u64::from(self.round) << 16);
        let system = System {
            disks: parts.disks,
            groups,
            care: Care {
                hot_spares: care.spares,
                replace_hours: care.replace_hours,
                scrub_hours: care.scrub_hours,
                rebuilds: Rebuilds::Fixed,
            },
        };
        Some(loss(&system, care.years * YEAR_HOURS, seed, EFFORT))
    }
}

/// The drives of an array, gathered on the way through it.
struct Parts<'a> {
    job: &'a LossJob<'a>,
    plan: &'a Plan,
    drives: &'a Drives,
    names: Vec<String>,
    disks: Vec<DiskRisk>,
}

impl Parts<'_> {
    fn groups(&mut self, array: &Array) -> Option<Vec<Group>> {
        let level = array.shape.level;
        let is_redundant = level.is_some_and(Level::has_redundancy);
        let hours = match self.job.hours.get(array.name.as_str()) {
            Some(hours) => *hours,
            None if is_redundant => return None,
            None => 0.0,
        };
        let (mut slots, mut groups) = (Vec::new(), Vec::new());
        for leg in &array.members {
            match leg {
                Leg::Missing => return None,
                Leg::Array(below) if below.shape.level.is_some_and(Level::has_redundancy) => {
                    if is_redundant {
                        return None;
                    }
                    groups.extend(self.groups(below)?);
                }
                _ => slots.push(self.slot(leg, hours)?),
            }
        }
        let layout = level.and_then(|level| layout(level, array.shape.layout.as_deref()).ok()?);
        groups.extend(safety::groups(level, layout, slots));
        Some(groups)
    }

    fn slot(&mut self, leg: &Leg, hours: f64) -> Option<Slot> {
        let mut slot = Slot { disks: Vec::new(), bits: f64::INFINITY };
        for name in leg.disks() {
            let disk = self.plan.disk(name)?;
            slot.bits = slot.bits.min(self.drives.bytes(disk) as f64 * 8.0);
            let drive = drive_of(disk);
            let known = self.names.iter().position(|known| *known == drive);
            slot.disks.push(known.unwrap_or(self.names.len()));
            if known.is_none() {
                let (reliability, blocks) = self.drives.reliability(disk, self.job.round);
                self.names.push(drive);
                self.disks.push(reliability.risk(blocks, hours));
            }
        }
        Some(slot)
    }
}

/// The figures of one array: between low and high lie 95 % of the draws, and what drawing lives left open.
pub(super) fn metrics(array: &Array, years: f64, done: &[Option<Loss>]) -> Vec<Metric> {
    let done: Vec<&Loss> = done.iter().flatten().collect();
    let figure = |metric: &str, of: &dyn Fn(&Loss) -> Estimate| {
        let ends = |end: &dyn Fn(Estimate) -> f64| -> Vec<f64> {
            done.iter().map(|loss| end(of(loss))).collect()
        };
        let [value, low, high] =
            spread(&ends(&|it| it.value), &ends(&|it| it.low), &ends(&|it| it.high))?;
        Some(Metric {
            array: array.name.clone(),
            state: State::Healthy.to_string(),
            workload: format!("{years} years"),
            metric: metric.to_owned(),
            value,
            low: Some(low),
            high: Some(high),
            unit: "probability",
            evidence: "how often disks fail, as their profiles say it".to_owned(),
        })
    };
    let data = figure("loss of data", &|loss| loss.data);
    let all = figure("loss of the array", &|loss| loss.array);
    data.into_iter().chain(all).collect()
}
