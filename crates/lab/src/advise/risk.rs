//! How likely a candidate is to lose data.

use super::candidate::{Array, Candidate, DiskWindow};
use super::{Disk, Question};
use crate::safety::{self, Slot};
use lapstrake_model::safety::{
    Care, Effort, Group, Loss, RebuildPart, Rebuilds, System, YEAR_HOURS, loss, rebuild_hours,
};

/// How likely losses are; `hours` are those of rebuilding each disk.
pub(super) fn risk(
    candidate: &Candidate,
    question: &Question,
    hours: impl Fn(usize) -> f64,
    effort: Effort,
) -> Loss {
    let used = candidate.disks();
    let used: Vec<usize> = used.into_iter().filter(|disk| candidate.spare != Some(*disk)).collect();
    let place = |disk: usize| used.iter().position(|&other| other == disk).unwrap_or(0);
    let risk = |&disk: &usize| {
        let it = &question.disks[disk];
        it.profile.reliability().risk(it.sectors, hours(disk))
    };
    let system = System {
        disks: used.iter().map(risk).collect(),
        groups: candidate.arrays.iter().flat_map(|array| groups(array, place)).collect(),
        care: Care {
            hot_spares: question.care.spares + usize::from(candidate.spare.is_some()),
            replace_hours: question.care.replace_hours,
            scrub_hours: question.care.scrub_hours,
            rebuilds: Rebuilds::Fixed,
        },
    };
    loss(&system, question.care.years * YEAR_HOURS, question.seed, effort)
}

/// The slots of an array that keep data for each other.
fn groups(array: &Array, place: impl Fn(usize) -> usize) -> Vec<Group> {
    let slot = |part: &DiskWindow| Slot {
        disks: vec![place(part.disk)],
        bits: part.sectors as f64 * 4096.0,
    };
    safety::groups(array.level, array.layout, array.parts.iter().map(slot).collect())
}

/// Hours to rebuild what a disk holds, onto the hot spare or one of its own kind, at the disks' own pace.
pub(super) fn least_rebuild_hours(candidate: &Candidate, disks: &[Disk], disk: usize) -> f64 {
    let onto = candidate.spare.unwrap_or(disk);
    let arrays = candidate.arrays.iter().filter(|array| array.tolerance() > 0);
    arrays.map(|array| least_hours_of(array, disks, disk, onto)).sum()
}

/// The same of one array, onto a given disk.
pub(super) fn least_hours_of(array: &Array, disks: &[Disk], lost: usize, onto: usize) -> f64 {
    let part = |part: &DiskWindow, disk: usize| RebuildPart {
        model: disks[disk].model.clone(),
        first: part.first,
        blocks: part.sectors,
    };
    let Some(target) = array.parts.iter().find(|part| part.disk == lost) else { return 0.0 };
    let sources = array.parts.iter().filter(|part| part.disk != lost);
    let sources: Vec<RebuildPart> = sources.map(|source| part(source, source.disk)).collect();
    rebuild_hours(&part(target, onto), &sources, f64::INFINITY)
}
