//! How long each array's rebuild and resync take when nothing else is asked of it.

use super::machine::{Drives, Machine};
use super::{Case, metrics::Metric, metrics::bar};
use crate::plan::{Array, Leg, Plan, listed};
use crate::record::{State, SubjectKind};
use lapstrake_geometry::{Level, Sector};
use lapstrake_model::Nanos;
use lapstrake_sim::array::{CourseTime, course_time};

/// Places at which a course's speed is taken.
const PLACES: u32 = 4;

/// What an array does on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Its last member is new.
    Rebuild,
    /// All of its redundancy is made anew.
    Resync,
}

/// A course of an array in one draw.
#[derive(Clone, Copy)]
pub(super) struct CourseJob<'a> {
    pub array: &'a Array,
    pub course: Course,
    pub round: u32,
}

/// How long it takes, or why that cannot be told.
pub(super) type CourseDone = Result<CourseTime, String>;

/// An array and those within it.
fn with_nested(array: &Array) -> Vec<&Array> {
    let below = array.members.iter().flat_map(|leg| match leg {
        Leg::Array(below) => with_nested(below),
        _ => Vec::new(),
    });
    std::iter::once(array).chain(below).collect()
}

/// The courses of a plan's arrays, and of those within them.
pub(super) fn courses<'a>(cases: &[Case<'a>]) -> Vec<(&'a Array, Course)> {
    let mut courses: Vec<(&Array, Course)> = Vec::new();
    for array in cases.iter().flat_map(|&(array, ..)| with_nested(array)) {
        let is_md = matches!(array.kind, SubjectKind::Lapstrake | SubjectKind::Md);
        let is_redundant = array.shape.level.is_some_and(Level::has_redundancy);
        let is_whole = !array.members.contains(&Leg::Missing);
        let is_known = courses.iter().any(|(known, _)| known.name == array.name);
        if is_md && is_redundant && is_whole && !is_known {
            courses.extend([(array, Course::Rebuild), (array, Course::Resync)]);
        }
    }
    courses
}

/// Of which arrays with redundancy no rebuild and resync is told, and why; `done` has `draws` of each course.
pub(super) fn untold(
    cases: &[Case<'_>],
    courses: &[(&Array, Course)],
    done: &[CourseDone],
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
    for ((array, course), done) in courses.iter().zip(done.chunks(draws)) {
        if done.iter().any(|done| done.as_ref().is_ok_and(|time| time.takes.is_some())) {
            continue;
        }
        let why = done.iter().find_map(|done| done.as_ref().err());
        let why = why.map_or("it did not move", String::as_str);
        notes.push(format!("not predicted: {} of {}: {why}", course.name(), array.name));
    }
    notes
}

impl Course {
    /// The state of an array in which it runs.
    fn state(self, array: &Array) -> State {
        let last = array.members.last().map(|leg| leg.name().to_owned());
        match self {
            Self::Rebuild => State::Rebuilding(last.into_iter().collect()),
            Self::Resync => State::Healthy,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Resync => "resync",
        }
    }
}

impl CourseJob<'_> {
    pub(super) fn run(&self, plan: &Plan, drives: &Drives) -> CourseDone {
        let state = self.course.state(self.array);
        let write_cache = drives.write_cache(plan, &self.array.disks(), self.round);
        let make = |from| Machine::with_course(plan, drives, self.array, &state, self.round, from);
        let timed = course_time(PLACES, write_cache, make)?;
        let target = self.array.members.last().filter(|_| self.course == Course::Rebuild);
        let (Some(takes), Some(Leg::Disk(name))) = (timed.takes, target) else { return Ok(timed) };
        // Its places were tried with the fast cells of solid-state disks free.
        let component = make(Sector(0))?.geometry().component();
        let least_h = drives.fill_hours(plan, name, component, self.round);
        Ok(CourseTime { takes: Some(takes.max(Nanos((least_h * 3.6e12) as u64))), ..timed })
    }
}

/// The figures of one array's course.
pub(super) fn metric((array, course): (&Array, Course), done: &[CourseDone]) -> Option<Metric> {
    let times = done.iter().filter_map(|done| done.as_ref().ok()?.takes);
    let seconds = times.map(|time| time.0 as f64 / 1e9);
    let [value, low, high] = bar(&seconds.collect::<Vec<_>>())?;
    Some(Metric {
        array: array.name.clone(),
        state: course.state(array).to_string(),
        workload: course.name().to_owned(),
        metric: "time".to_owned(),
        value,
        low,
        high,
        unit: "s",
    })
}
