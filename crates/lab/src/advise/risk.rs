//! How likely a candidate is to lose data: which slots keep data for each other, and how long rebuilds take.

use super::candidate::{Array, Candidate};
use super::{Disk, Question};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors};
use lapstrake_model::safety::{
    Care, Effort, Group, Loss, Part as RiskPart, Rebuilds, System, YEAR_HOURS, loss, rebuild_hours,
};
use std::collections::BTreeMap;

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
    let bits = |sectors: u64| sectors as f64 * 4096.0;
    let least = array.parts.iter().map(|part| part.sectors).min().unwrap_or(0);
    let slots = || array.parts.iter().map(|part| vec![place(part.disk)]);
    if array.level == Some(Level::Raid10) {
        let sharing = sharing(array).into_iter().map(|(set, share)| Group {
            slots: set.iter().map(|&slot| vec![place(array.parts[slot].disk)]).collect(),
            tolerance: set.len() - 1,
            bits: bits(least) * share,
        });
        return sharing.collect();
    }
    if array.tolerance() == 0 {
        let alone = |(slot, part): (Vec<usize>, &super::candidate::Part)| Group {
            slots: vec![slot],
            tolerance: 0,
            bits: bits(part.sectors),
        };
        return slots().zip(&array.parts).map(alone).collect();
    }
    vec![Group { slots: slots().collect(), tolerance: array.tolerance(), bits: bits(least) }]
}

/// Which slots of a RAID10 hold copies of the same chunks, and what share of each of them that is.
fn sharing(array: &Array) -> Vec<(Vec<usize>, f64)> {
    const CHUNK: u64 = 8;
    let members = array.parts.len() as u64;
    let layout = array.layout.unwrap_or(Layout::default_for(Level::Raid10));
    // So many chunks of each member that every layout goes round.
    let rows = 12 * members;
    let config = Config {
        level: Level::Raid10,
        layout,
        chunk: Sectors(CHUNK),
        raid_disks: members as u16,
        component: Sectors(rows * CHUNK),
        member_sizes: Vec::new(),
    };
    let Ok(geometry) = Geometry::new(&config) else { return Vec::new() };
    let mut counts: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    for chunk in 0..geometry.array_sectors().0 / CHUNK {
        let run = geometry.map(Sector(chunk * CHUNK));
        let mut set: Vec<usize> = run.homes.iter().map(|home| usize::from(home.slot.0)).collect();
        set.sort_unstable();
        *counts.entry(set).or_default() += 1;
    }
    counts.into_iter().map(|(set, count)| (set, count as f64 / rows as f64)).collect()
}

/// Hours to rebuild what a disk holds, at the disks' own pace.
pub(super) fn least_rebuild_hours(candidate: &Candidate, disks: &[Disk], disk: usize) -> f64 {
    let part = |part: &super::candidate::Part| RiskPart {
        model: disks[part.disk].model.clone(),
        first: part.first,
        blocks: part.sectors,
    };
    let arrays = candidate.arrays.iter().filter(|array| array.tolerance() > 0);
    let hours = arrays.filter_map(|array| {
        let target = array.parts.iter().find(|part| part.disk == disk)?;
        let sources = array.parts.iter().filter(|part| part.disk != disk);
        let sources: Vec<RiskPart> = sources.map(part).collect();
        Some(rebuild_hours(&part(target), &sources, f64::INFINITY))
    });
    hours.sum()
}

#[cfg(test)]
mod tests {
    use super::super::candidate::Part;
    use super::*;
    use lapstrake_geometry::Raid10Layout;

    fn shares(layout: Raid10Layout, members: usize) -> Vec<(Vec<usize>, f64)> {
        let part = |disk| Part { disk, first: 0, sectors: 1 << 20 };
        let layout = Some(Layout::Raid10(layout));
        let parts = (0..members).map(part).collect();
        sharing(&Array { level: Some(Level::Raid10), layout, chunk: None, parts })
    }

    #[test]
    fn near_copies_pair_members_and_far_ones_chain_them() {
        let near = shares(Raid10Layout::near(2), 4);
        assert_eq!(near, [(vec![0, 1], 1.0), (vec![2, 3], 1.0)]);
        for layout in [Raid10Layout::far(2), Raid10Layout::offset(2)] {
            let sets = shares(layout, 4);
            let slots: Vec<_> = sets.iter().map(|(set, _)| set.clone()).collect();
            assert_eq!(slots, [[0, 1], [0, 3], [1, 2], [2, 3]]);
            assert!(sets.iter().all(|(_, share)| (share - 0.5).abs() < 1e-9), "{sets:?}");
        }
    }

    #[test]
    fn an_odd_member_shares_with_both_neighbours_and_shares_add_up() {
        for (layout, members) in [(Raid10Layout::near(2), 5), (Raid10Layout::near(3), 4)] {
            let sets = shares(layout, members);
            assert_eq!(sets.len(), members, "{sets:?}");
            for slot in 0..members {
                let of_slot = sets.iter().filter(|(set, _)| set.contains(&slot));
                let sum: f64 = of_slot.map(|(_, share)| share).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{sets:?}");
            }
        }
    }
}
