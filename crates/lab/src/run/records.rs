//! Subjects and workloads as records have them, and what the store has already.

use super::live::Live;
use super::params;
use super::schedule::{Case, Schedule};
use crate::LabError;
use crate::plan::{Array, Plan, Workload};
use crate::record::{self, Size, State, Subject};
use crate::series::settled_value;
use crate::store::{ExperimentId, Store};
use crate::subject::tree::{Words, tree};
use std::collections::BTreeMap;

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
    let disks = array.disks().into_iter().filter_map(|name| plan.disk(name)?.bytes());
    let raw_bytes: u64 = disks.sum();
    let usable = live.bytes().ok().map(|range| range.end - range.start);
    usable.filter(|_| raw_bytes > 0).map(|usable_bytes| Size { raw_bytes, usable_bytes })
}

pub(crate) fn subject_record(
    plan: &Plan,
    array: &Array,
    size: Option<Size>,
    words: Words<'_>,
) -> Subject {
    Subject {
        name: array.name.clone(),
        kind: array.kind,
        params: params::of_array(array),
        size,
        detail: tree(plan, array, &State::Healthy, words),
    }
}

pub(crate) fn workload_record(workload: &Workload) -> record::Workload {
    let (runner, params) = params::of_load(&workload.load);
    record::Workload { name: workload.name.clone(), runner: runner.into(), params }
}
