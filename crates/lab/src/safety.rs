//! Which slots of an array keep data for each other: what the probability of a loss is estimated from.

use lapstrake_geometry::{Config, Geometry, Layout, Level, Sector, Sectors};
use lapstrake_model::safety::Group;
use std::collections::BTreeMap;

// What is said of an array's care, the bounds included: beyond, no estimate means anything.
/// For how many years losses are told.
pub(crate) const YEARS: (f64, f64) = (0.01, 100.0);
/// Days from one scrub to the next.
pub(crate) const SCRUB_DAYS: (f64, f64) = (0.01, 36_500.0);
/// Disks that wait for a failure.
pub(crate) const SPARES: (f64, f64) = (0.0, 1_000.0);

/// What stands in a slot: a disk, or several that are no use without each other.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Which of the disks.
    pub disks: Vec<usize>,
    /// Bits of each disk that belong to the array.
    pub bits: f64,
}

/// How many slots may be lost, whichever they are.
pub(crate) fn tolerance(level: Option<Level>, layout: Option<Layout>, slots: usize) -> usize {
    match level {
        None | Some(Level::Linear | Level::Raid0) => 0,
        Some(Level::Raid1) => slots - 1,
        Some(Level::Raid4 | Level::Raid5) => 1,
        Some(Level::Raid6) => 2,
        Some(Level::Raid10) => match layout {
            Some(Layout::Raid10(layout)) => layout.copies() as usize - 1,
            _ => 1,
        },
    }
}

/// The groups of an array.
pub(crate) fn groups(level: Option<Level>, layout: Option<Layout>, slots: Vec<Slot>) -> Vec<Group> {
    let tolerance = tolerance(level, layout, slots.len());
    let least = slots.iter().map(|slot| slot.bits).fold(f64::INFINITY, f64::min);
    if level == Some(Level::Raid10) {
        let layout = layout.unwrap_or(Layout::default_for(Level::Raid10));
        let group = |(set, share): (Vec<usize>, f64)| Group {
            slots: set.iter().map(|&slot| slots[slot].disks.clone()).collect(),
            tolerance: set.len() - 1,
            bits: least * share,
        };
        return sharing(layout, slots.len() as u64).into_iter().map(group).collect();
    }
    if tolerance == 0 {
        let alone = |slot: Slot| Group { slots: vec![slot.disks], tolerance, bits: slot.bits };
        return slots.into_iter().map(alone).collect();
    }
    let slots = slots.into_iter().map(|slot| slot.disks).collect();
    vec![Group { slots, tolerance, bits: least }]
}

/// Which slots of a RAID10 hold copies of the same chunks, and what share of each of them that is.
fn sharing(layout: Layout, members: u64) -> Vec<(Vec<usize>, f64)> {
    const CHUNK: u64 = 8;
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

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_geometry::Raid10Layout;

    fn shares(layout: Raid10Layout, members: u64) -> Vec<(Vec<usize>, f64)> {
        sharing(Layout::Raid10(layout), members)
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
            assert_eq!(sets.len() as u64, members, "{sets:?}");
            for slot in 0..members as usize {
                let of_slot = sets.iter().filter(|(set, _)| set.contains(&slot));
                let sum: f64 = of_slot.map(|(_, share)| share).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{sets:?}");
            }
        }
    }
}
