//! What carrying out a plan would do.

use super::schedule::Schedule;
use super::{Options, subject_name, work_directory};
use crate::clients::commands;
use crate::plan::{Plan, Workload};
use crate::subject::recipe::{Places, Recipe, recipe};
use crate::subject::steps::shown;
use crate::subject::tree::{place, tree};
use crate::subject::{Target, guard};
use std::path::Path;
use std::time::Duration;

/// What carrying out a plan would do.
#[derive(Clone, Debug)]
pub struct Preview {
    /// For each array in each state: its tree, the commands that build it, what takes it down, its loads.
    pub subjects: Vec<SubjectPreview>,
    /// How many cases can be measured here.
    pub cases: usize,
    /// How long they take, about, with the least number of repeats.
    pub expected: Duration,
    /// What forbids it.
    pub faults: Vec<String>,
    /// What to know besides.
    pub notes: Vec<String>,
}

/// One array in one state.
#[derive(Clone, Debug)]
pub struct SubjectPreview {
    /// Its name and state.
    pub name: String,
    /// It as a tree.
    pub tree: String,
    /// Commands in their order.
    pub commands: Vec<String>,
    /// Loads, each with the commands of its program, if it is one of others.
    pub workloads: Vec<(String, Vec<String>)>,
}

/// What carrying out a plan would do, without doing it.
#[must_use]
pub fn preview(plan: &Plan, options: &Options) -> Preview {
    let places = Places { lapstrake: options.lapstrake.clone(), work: work_directory(plan) };
    let mut subjects = Vec::new();
    for (array, state) in plan.subjects() {
        let recipe = recipe(plan, array, state, &places);
        let mut commands: Vec<String> =
            recipe.steps.iter().map(|step| step.action.shown()).collect();
        let undo = recipe.steps.iter().rev().filter_map(|step| step.undo.as_ref());
        commands.extend(undo.map(|words| format!("{}   # at the end", shown(words))));
        subjects.push(SubjectPreview {
            name: subject_name(array, state),
            tree: tree(plan, array, state, &place),
            commands,
            workloads: plan
                .loads(array)
                .map(|workload| (workload.name.clone(), clients(workload, &recipe, &places)))
                .collect(),
        });
    }
    let faults = guard::faults(plan, &options.leave, &places.work);
    let obstacles = guard::obstacles(plan);
    let mut notes = plan.notes.clone();
    let told = obstacles.iter().map(|(name, why)| format!("{name} cannot be measured here: {why}"));
    notes.extend(told);
    let left_out: Vec<String> = obstacles.into_iter().map(|(name, _)| name).collect();
    let schedule = Schedule::new(plan, &left_out);
    let expected = schedule.ahead(plan, plan.rules.repeats, |_, _| false);
    Preview { subjects, cases: schedule.cases().count(), expected, faults, notes }
}

/// What a load's program is called with.
fn clients(workload: &Workload, recipe: &Recipe, places: &Places) -> Vec<String> {
    let path = match (&recipe.target, &recipe.device) {
        (Target::Directory { path } | Target::File { path, .. }, _) => path,
        (_, Some(device)) => device,
        _ => return Vec::new(),
    };
    let commands = commands(workload, Path::new(path), &places.work);
    commands.iter().map(|words| shown(words)).collect()
}
