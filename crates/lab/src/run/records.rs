//! Subjects and workloads as records have them, and what the store has already.

use super::live::Live;
use super::schedule::{self, Case, Schedule};
use crate::LabError;
use crate::plan::{Array, DiskPlace, Leg, Plan, Workload};
use crate::record::{self, Size, State, Subject};
use crate::stats::settled_value;
use crate::store::{ExperimentId, Store};
use crate::subject::tree::tree;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};

/// By case: rounds that are done, with their figures; none for those that failed.
pub(super) type Done = BTreeMap<Case, BTreeMap<u32, Option<f64>>>;

/// Runs of an experiment that are kept already, by case and round.
pub(super) fn kept(
    plan: &Plan,
    store: &Store,
    experiment: ExperimentId,
    schedule: &Schedule,
) -> Result<Done, LabError> {
    let mut done = Done::new();
    let stored = store.cases(experiment)?;
    for case in schedule.cases() {
        let (array, state) = schedule.subject(plan, case.visit);
        let workload = &plan.workloads[case.workload];
        let same = stored.iter().find(|stored| {
            stored.subject.name == array.name
                && stored.state == *state
                && stored.workload.name == workload.name
        });
        let Some(same) = same else { continue };
        for run in store.runs(same.id)? {
            let figure = run.phases.first().filter(|_| run.error.is_none());
            let figure = figure.map(|phase| settled_value(phase).0);
            done.entry(case).or_default().insert(run.round, figure);
        }
    }
    Ok(done)
}

/// What an array costs in space, and leaves.
pub(super) fn size(plan: &Plan, array: &Array, live: &Live) -> Option<Size> {
    let raw = array.disks().into_iter().map(|name| match plan.disk(name).map(|disk| &disk.place) {
        Some(DiskPlace::Make { bytes }) => *bytes,
        Some(DiskPlace::Given { spec, .. }) => spec.size.unwrap_or_else(|| {
            let end = File::open(&spec.path).and_then(|mut file| file.seek(SeekFrom::End(0)));
            end.unwrap_or(0).saturating_sub(spec.offset)
        }),
        None => 0,
    });
    let raw_bytes: u64 = raw.sum();
    let usable = live.bytes().ok().map(|range| range.end - range.start);
    usable.filter(|_| raw_bytes > 0).map(|usable_bytes| Size { raw_bytes, usable_bytes })
}

pub(crate) fn subject_record(
    plan: &Plan,
    array: &Array,
    state: &State,
    size: Option<Size>,
) -> Subject {
    let shape = &array.shape;
    let mut params = BTreeMap::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            params.insert(name.to_owned(), value);
        }
    };
    set("level", shape.level.map(|level| json!(level.name())));
    set("layout", shape.layout.as_ref().map(|name| json!(name)));
    set("chunk", shape.chunk.map(|bytes| json!(bytes)));
    set("members", Some(json!(array.members.len())).filter(|_| !array.members.is_empty()));
    set("bitmap", shape.bitmap.as_ref().map(|word| json!(word)));
    set("bitmap_chunk", shape.bitmap_chunk.map(|bytes| json!(bytes)));
    set("stripe_cache", shape.stripe_cache.map(|pages| json!(pages)));
    set("read_ahead", shape.read_ahead.map(|bytes| json!(bytes)));
    set("filesystem", shape.filesystem.map(|filesystem| json!(filesystem.to_string())));
    let is_ours = array.kind == record::SubjectKind::Lapstrake;
    set("access", is_ours.then(|| json!(shape.over.to_string())));
    let nests = array.members.iter().any(|leg| matches!(leg, Leg::Array(_)));
    set("nested", nests.then_some(json!(true)));
    Subject {
        name: array.name.clone(),
        kind: array.kind,
        params,
        size,
        detail: tree(plan, array, state),
    }
}

pub(crate) fn workload_record(workload: &Workload) -> record::Workload {
    let (runner, params) = schedule::params(workload);
    record::Workload { name: workload.name.clone(), runner, params }
}
