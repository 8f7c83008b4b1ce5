//! How long each array's rebuild, resync and growth by a member take when nothing else is asked of it.

use super::machine::{Drives, Machine};
use super::{Case, metrics::Metric, metrics::bar, trust};
use crate::plan::{Array, Leg, Plan, listed};
use crate::record::{State, SubjectKind};
use lapstrake_geometry::{Level, Sector};
use lapstrake_model::Nanos;
use lapstrake_sim::array::{SyncTime, growth_time, sync_time};

/// Places at which a sync run's speed is taken.
const PLACES: u32 = 4;

/// What an array does on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncKind {
    /// Its last member is new.
    Rebuild,
    /// All of its redundancy is made anew.
    Resync,
    /// It gets one more member, for which all data moves.
    Growth,
}

/// A sync run of an array in one draw.
#[derive(Clone, Copy)]
pub(super) struct SyncJob<'a> {
    pub array: &'a Array,
    pub sync: SyncKind,
    pub round: u32,
}

/// How long it takes, or why that cannot be told.
pub(super) type SyncOutcome = Result<SyncTime, String>;

/// An array and those within it.
fn with_nested(array: &Array) -> Vec<&Array> {
    let below = array.members.iter().flat_map(|leg| match leg {
        Leg::Array(below) => with_nested(below),
        _ => Vec::new(),
    });
    std::iter::once(array).chain(below).collect()
}

/// The sync runs of a plan's arrays, and of those within them.
pub(super) fn syncs<'a>(cases: &[Case<'a>]) -> Vec<(&'a Array, SyncKind)> {
    let mut syncs: Vec<(&Array, SyncKind)> = Vec::new();
    for array in cases.iter().flat_map(|&(array, ..)| with_nested(array)) {
        let is_md = matches!(array.kind, SubjectKind::Lapstrake | SubjectKind::Md);
        let is_redundant = array.shape.level.is_some_and(Level::has_redundancy);
        let is_whole = !array.members.contains(&Leg::Missing);
        let is_known = syncs.iter().any(|(known, _)| known.name == array.name);
        if is_md && is_redundant && is_whole && !is_known {
            syncs.extend([(array, SyncKind::Rebuild), (array, SyncKind::Resync)]);
            // Linux moves data in ways of its own.
            let is_ours = array.kind == SubjectKind::Lapstrake;
            let ends_in_disk = matches!(array.members.last(), Some(Leg::Disk(_)));
            let level = array.shape.level;
            let is_moved = level.is_some_and(|level| level.is_parity() || level == Level::Raid10);
            if is_ours && ends_in_disk && is_moved {
                syncs.push((array, SyncKind::Growth));
            }
        }
    }
    syncs
}

/// Of which arrays with redundancy no rebuild and resync is told, and why; `done` has `draws` of each sync run.
pub(super) fn untold(
    cases: &[Case<'_>],
    syncs: &[(&Array, SyncKind)],
    done: &[SyncOutcome],
    draws: usize,
) -> Vec<String> {
    let (mut volumes, mut lacking) = (Vec::new(), Vec::new());
    for array in cases.iter().flat_map(|&(array, ..)| with_nested(array)) {
        let of = match array.kind {
            _ if !array.shape.level.is_some_and(Level::has_redundancy) => continue,
            SubjectKind::Controller => &mut volumes,
            SubjectKind::Lapstrake | SubjectKind::Md if array.members.contains(&Leg::Missing) => {
                &mut lacking
            }
            _ => continue,
        };
        if !of.contains(&array.name.as_str()) {
            of.push(array.name.as_str());
        }
    }
    let note = |arrays: &[&str], why: &str| {
        let told =
            format!("not predicted: rebuild, resync and loss of data of {}: {why}", listed(arrays));
        (!arrays.is_empty()).then_some(told)
    };
    let mut notes: Vec<String> = Vec::new();
    notes.extend(note(&volumes, "how a controller rebuilds its volumes is its own"));
    notes.extend(note(&lacking, "a member is missing"));
    for ((array, sync), done) in syncs.iter().zip(done.chunks(draws)) {
        if done.iter().any(|done| done.as_ref().is_ok_and(|time| time.takes.is_some())) {
            continue;
        }
        let why = done.iter().find_map(|done| done.as_ref().err());
        let why = why.map_or("it did not move", String::as_str);
        notes.push(format!("not predicted: {} of {}: {why}", sync.name(), array.name));
    }
    notes
}

impl SyncKind {
    /// The state of an array in which it runs.
    fn state(self, array: &Array) -> State {
        let last = array.members.last().map(|leg| leg.name().to_owned());
        match self {
            Self::Rebuild => State::Rebuilding(last.into_iter().collect()),
            Self::Resync | Self::Growth => State::Healthy,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Resync => "resync",
            Self::Growth => "growth by a member",
        }
    }
}

impl SyncJob<'_> {
    pub(super) fn run(&self, plan: &Plan, drives: &Drives) -> SyncOutcome {
        let state = self.sync.state(self.array);
        let write_cache = drives.write_cache(plan, &self.array.disks(), self.round);
        if self.sync == SyncKind::Growth {
            let moved = Machine::moved_share(plan, drives, self.array, self.round)?;
            let make = |from| Machine::with_growth(plan, drives, self.array, self.round, from);
            return growth_time(PLACES, moved, write_cache, make);
        }
        let make = |from| Machine::with_sync(plan, drives, self.array, &state, self.round, from);
        let timed = sync_time(PLACES, write_cache, make)?;
        let target = self.array.members.last().filter(|_| self.sync == SyncKind::Rebuild);
        let (Some(takes), Some(Leg::Disk(name))) = (timed.takes, target) else { return Ok(timed) };
        // Its places were tried with the fast cells of solid-state disks free.
        let component = make(Sector(0))?.geometry().component();
        let least_h = drives.fill_hours(plan, name, component, self.round);
        Ok(SyncTime { takes: Some(takes.max(Nanos((least_h * 3.6e12) as u64))), ..timed })
    }
}

/// The figures of one array's sync run.
pub(super) fn metric((array, sync): (&Array, SyncKind), done: &[SyncOutcome]) -> Option<Metric> {
    let times = done.iter().filter_map(|done| done.as_ref().ok()?.takes);
    let seconds = times.map(|time| time.0 as f64 / 1e9);
    let [value, ..] = bar(&seconds.collect::<Vec<_>>())?;
    Some(Metric {
        array: array.name.clone(),
        state: sync.state(array).to_string(),
        workload: sync.name().to_owned(),
        metric: "time".to_owned(),
        value,
        low: None,
        high: None,
        unit: "s",
        evidence: format!("a guess: {}", trust::SYNC),
    })
}
