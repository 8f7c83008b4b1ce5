//! The way from one geometry to another: some lay data out alike, between which superblocks alone decide; data is moved to
//! these.

use lapstrake_geometry::{
    Config, Geometry, Layout, Level, MAX_SECTORS, ParityLayout, Raid10, Raid10Layout, Sector,
    Sectors, Slot,
};

/// So many chunks are looked at: layouts repeat after as many as there are members.
const PLACES_COMPARED: usize = 1024;

/// One step of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the array is after it.
    pub config: Config,
    /// All data stays where it is.
    pub stays: bool,
}

impl Step {
    /// The first one from an array's geometry to one that is wished for.
    #[must_use]
    pub fn first(now: &Geometry, goal: &Config) -> Self {
        if let Some(config) = taken_over(now, goal) {
            return Self { config, stays: true };
        }
        match origin(now, goal) {
            None => Self { config: goal.clone(), stays: false },
            Some(alike) if Geometry::new(&alike).as_ref() == Ok(now) => {
                Self { config: goal.clone(), stays: true }
            }
            Some(alike) => Self::first(now, &alike),
        }
    }
}

/// What an array of a level without parity can be called without a block being moved, on the way to another geometry. Of a
/// RAID10 one copy stays in use, as the data of a RAID5 that lacks its parity.
fn taken_over(now: &Geometry, goal: &Config) -> Option<Config> {
    let parity = |level, layout, raid_disks| Config {
        level,
        layout: Layout::Parity(layout),
        raid_disks,
        ..goal.clone()
    };
    match (now, goal.level) {
        (Geometry::Linear(_), Level::Linear) => Some(goal.clone()),
        (Geometry::Mirror(_), level) if level.is_parity() => {
            Some(parity(Level::Raid5, ParityLayout::LeftSymmetric, 2))
        }
        (Geometry::Raid0(raid0), Level::Raid10) => {
            let (chunk, raid_disks) = (raid0.chunk(), raid0.raid_disks());
            Some(mirrored(&Config { chunk, raid_disks, ..goal.clone() }))
        }
        (Geometry::Raid0(raid0), _) => {
            Some(without_parity(raid0.chunk(), raid0.raid_disks(), goal))
        }
        (Geometry::Raid10(raid10), level) if level.is_parity() && is_mirrored(raid10) => {
            Some(without_parity(raid10.chunk(), raid10.raid_disks() / 2, goal))
        }
        _ => None,
    }
}

/// What lays data out as a RAID0 does, with a slot more for parity alone, where nobody need be. Data of a RAID0 that stays one is
/// moved as that of a RAID4; what gets parity is a RAID5 before it is a RAID4, since Linux sees from a RAID5's layout that
/// nothing but parity is made.
fn without_parity(chunk: Sectors, data_disks: u16, goal: &Config) -> Config {
    let raid_disks = data_disks.saturating_add(1);
    let (level, layout) = match goal.level {
        Level::Raid0 => (Level::Raid4, Layout::None),
        _ => (Level::Raid5, Layout::Parity(ParityLayout::ParityLast)),
    };
    Config { level, layout, chunk, raid_disks, ..goal.clone() }
}

/// A geometry that lays data out as the one that is wished for, and is nearer to the array's own; none if data is moved to
/// what is wished for.
fn origin(now: &Geometry, goal: &Config) -> Option<Config> {
    use Level::{Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
    let asked = match goal.layout {
        Layout::Parity(layout) => layout,
        _ => ParityLayout::ParityLast,
    };
    let parity = |level, layout, raid_disks| Config {
        level,
        layout: Layout::Parity(layout),
        raid_disks,
        ..goal.clone()
    };
    let one_more = goal.raid_disks.saturating_add(1);
    match (now.level(), goal.level) {
        (Raid6, Raid5) => Some(parity(Raid6, asked.with_q_last(), one_more)),
        (Raid5 | Raid6, Raid4) => Some(parity(Raid5, ParityLayout::ParityLast, goal.raid_disks)),
        (Raid5 | Raid6, Raid0) => Some(parity(Raid5, ParityLayout::ParityLast, one_more)),
        (Raid4, Raid0) => {
            let (level, layout) = (Raid4, Layout::None);
            Some(Config { level, layout, raid_disks: one_more, ..goal.clone() })
        }
        (Raid10, Raid0) => Some(mirrored(goal)),
        (Raid10, level) if level.is_parity() => {
            let (raid_disks, chunk) = (now.raid_disks().div_ceil(2), owned_chunk(now));
            Some(mirrored(&Config { raid_disks, chunk: Sectors(chunk), ..goal.clone() }))
        }
        (Raid4 | Raid5 | Raid6, Raid1) => {
            let layout = match now {
                Geometry::Parity(now) if now.level() == Raid5 => now.layout(),
                _ => ParityLayout::LeftSymmetric,
            };
            Some(parity(Raid5, layout, goal.raid_disks))
        }
        _ => None,
    }
}

/// Whether it has two copies side by side of all that a RAID0 of half as many members has.
fn is_mirrored(raid10: &Raid10) -> bool {
    raid10.layout() == Raid10Layout::near(2) && raid10.raid_disks().is_multiple_of(2)
}

/// The RAID10 that has two copies side by side of all that a RAID0 has.
fn mirrored(raid0: &Config) -> Config {
    let layout = Layout::Raid10(Raid10Layout::near(2));
    let raid_disks = raid0.raid_disks.saturating_mul(2);
    Config { level: Level::Raid10, layout, raid_disks, ..raid0.clone() }
}

/// The slot of another geometry, which lays data out alike, that has what a slot of this one has; none if nothing of data is
/// there, or another copy goes on.
pub(crate) fn slot_in(after: &Geometry, before: &Geometry, slot: Slot) -> Option<Slot> {
    let slot = before.level().slot_when_taken_over(after.level(), slot);
    slot.filter(|slot| slot.0 < after.raid_disks())
}

/// Whether all data of an array lies where another geometry has it, as far as that repeats.
pub(super) fn lie_alike(before: &Geometry, after: &Geometry) -> bool {
    if let (Geometry::Linear(before), Geometry::Linear(after)) = (before, after) {
        let mut slots = (0..before.raid_disks().min(after.raid_disks())).map(Slot);
        return slots.all(|slot| before.used(slot) == after.used(slot));
    }
    let chunk = owned_chunk(before).min(owned_chunk(after)).max(1);
    let end = before.array_sectors().min(after.array_sectors()).0;
    let is_kept = |sector: u64| {
        let sector = Sector(sector);
        let new = after.map(sector).homes;
        before.map(sector).homes.iter().any(|home| {
            let slot = slot_in(after, before, home.slot);
            new.iter().any(|it| Some(it.slot) == slot && it.sector == home.sector)
        })
    };
    (0..end).step_by(chunk as usize).take(PLACES_COMPARED).all(is_kept)
}

fn owned_chunk(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Parity(parity) => parity.chunk().0,
        Geometry::Raid0(raid0) => raid0.chunk().0,
        Geometry::Raid10(raid10) => raid10.chunk().0,
        Geometry::Linear(_) | Geometry::Mirror(_) => MAX_SECTORS.0,
    }
}

/// The slot of nothing but parity, which a RAID0 lacks that goes by such a level for a while.
pub(crate) fn slot_of_parity(geometry: &Geometry) -> Option<Slot> {
    let Geometry::Parity(parity) = geometry else { return None };
    let is_last = match parity.level() {
        Level::Raid4 => true,
        level => level == Level::Raid5 && parity.layout() == ParityLayout::ParityLast,
    };
    is_last.then(|| Slot(parity.raid_disks() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use lapstrake_geometry::Raid0Layout;

    fn config(level: Level, layout: Layout, raid_disks: u16) -> Config {
        let (chunk, component) = (Sectors(128), Sectors(1 << 12));
        let member_sizes = vec![component; raid_disks.into()];
        Config { level, layout, chunk, raid_disks, component, member_sizes }
    }

    /// Levels, layouts and members on the way, and whether data stays.
    fn way(from: Config, goal: &Config) -> Vec<(Level, Layout, u16, bool)> {
        let mut now = Geometry::new(&from).unwrap();
        let mut way = vec![];
        while now != Geometry::new(goal).unwrap() {
            let Step { config, stays } = Step::first(&now, goal);
            way.push((config.level, config.layout, config.raid_disks, stays));
            let next = Geometry::new(&config).unwrap();
            assert_eq!(lie_alike(&now, &next), stays, "{config:?}");
            now = next;
            assert!(way.len() < 9, "it never arrives: {way:?}");
        }
        way
    }

    #[test]
    fn a_parity_goes_once_it_is_on_the_last_member() {
        use Level::{Raid4, Raid5, Raid6};
        use ParityLayout::{LeftSymmetric, LeftSymmetric6, ParityLast};
        let [symmetric, q_last, last] =
            [LeftSymmetric, LeftSymmetric6, ParityLast].map(Layout::Parity);
        let raid6 = config(Raid6, symmetric, 5);
        let (raid5, raid4) = (config(Raid5, symmetric, 4), config(Raid4, Layout::None, 4));
        let to_raid5 = [(Raid6, q_last, 5, false), (Raid5, symmetric, 4, true)];
        assert_eq!(way(raid6.clone(), &raid5), to_raid5);
        assert_eq!(way(config(Raid6, q_last, 5), &raid5), to_raid5[1..]);
        let to_raid4 = [(Raid5, last, 4, false), (Raid4, Layout::None, 4, true)];
        assert_eq!(way(raid5.clone(), &raid4), to_raid4);
        let both = [(Raid6, last, 5, false), (Raid5, last, 4, true), to_raid4[1]];
        assert_eq!(way(raid6.clone(), &raid4), both);
        let more = config(Raid5, symmetric, 6);
        assert_eq!(way(raid6, &more), [(Raid6, q_last, 7, false), (Raid5, symmetric, 6, true)]);
        assert_eq!(way(raid4, &raid5), [(Raid5, symmetric, 4, false)]);
    }

    #[test]
    fn a_level_without_parity_is_taken_over() {
        use Level::{Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
        use ParityLayout::{LeftSymmetric, ParityLast};
        let [symmetric, last] = [LeftSymmetric, ParityLast].map(Layout::Parity);
        let near = Layout::Raid10(Raid10Layout::near(2));
        let (mirror, raid0) =
            (config(Raid1, Layout::None, 2), config(Raid0, Layout::Raid0(Raid0Layout::Unset), 3));
        let (raid5, raid6) = (config(Raid5, symmetric, 4), config(Raid6, symmetric, 5));
        assert_eq!(
            way(mirror.clone(), &raid5),
            [(Raid5, symmetric, 2, true), (Raid5, symmetric, 4, false)]
        );
        assert_eq!(
            way(raid5.clone(), &mirror),
            [(Raid5, symmetric, 2, false), (Raid1, Layout::None, 2, true)]
        );
        let taken = (Raid5, last, 4, true);
        assert_eq!(way(raid0.clone(), &raid5), [taken, (Raid5, symmetric, 4, false)]);
        assert_eq!(way(raid0.clone(), &raid6), [taken, (Raid6, symmetric, 5, false)]);
        assert_eq!(
            way(raid0.clone(), &config(Raid4, Layout::None, 4)),
            [taken, (Raid4, Layout::None, 4, true)]
        );
        let larger = Config { chunk: Sectors(256), ..config(Raid10, near, 6) };
        assert_eq!(
            way(raid0.clone(), &larger),
            [(Raid10, near, 6, true), (Raid10, near, 6, false)]
        );
        assert_eq!(way(raid0.clone(), &config(Raid10, near, 6)), [(Raid10, near, 6, true)]);
        let dropped = (Raid0, raid0.layout, 3, true);
        let more = Config { chunk: Sectors(64), ..config(Raid0, raid0.layout, 5) };
        assert_eq!(
            way(raid0.clone(), &more),
            [
                (Raid4, Layout::None, 4, true),
                (Raid4, Layout::None, 6, false),
                (Raid0, raid0.layout, 5, true)
            ]
        );
        assert_eq!(way(raid5, &raid0), [(Raid5, last, 4, false), dropped]);
        assert_eq!(way(config(Raid10, near, 6), &raid0), [dropped]);
        assert_eq!(way(config(Raid4, Layout::None, 4), &raid0), [dropped]);
        assert_eq!(way(raid6, &raid0), [(Raid6, last, 5, false), (Raid5, last, 4, true), dropped]);
    }

    #[test]
    fn one_copy_of_a_raid10_becomes_the_data_of_a_parity_level() {
        use Level::{Raid4, Raid5, Raid6, Raid10};
        use ParityLayout::{LeftSymmetric, ParityLast};
        let [symmetric, last] = [LeftSymmetric, ParityLast].map(Layout::Parity);
        let near = Layout::Raid10(Raid10Layout::near(2));
        let raid10 = config(Raid10, near, 6);
        let taken = (Raid5, last, 4, true);
        let raid6 = Config { chunk: Sectors(64), ..config(Raid6, symmetric, 5) };
        assert_eq!(way(raid10.clone(), &raid6), [taken, (Raid6, symmetric, 5, false)]);
        let more = config(Raid5, symmetric, 6);
        assert_eq!(way(raid10.clone(), &more), [taken, (Raid5, symmetric, 6, false)]);
        assert_eq!(way(raid10.clone(), &config(Raid5, last, 4)), [taken]);
        let raid4 = config(Raid4, Layout::None, 4);
        assert_eq!(way(raid10, &raid4), [taken, (Raid4, Layout::None, 4, true)]);
        let (near, taken) = ((Raid10, near, 6, false), [taken, (Raid6, symmetric, 5, false)]);
        for (layout, raid_disks) in [(Raid10Layout::offset(2), 6), (Raid10Layout::near(2), 5)] {
            let other = config(Raid10, Layout::Raid10(layout), raid_disks);
            assert_eq!(way(other, &raid6), [near, taken[0], taken[1]]);
        }
    }
}
