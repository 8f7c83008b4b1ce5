//! The way from one geometry to another: RAID4, 5 and 6 lay data out alike in some layouts, between which superblocks alone
//! decide; data is moved to these.

use lapstrake_geometry::{Config, Geometry, Layout, Level, ParityLayout};

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
        use Level::{Raid4, Raid5, Raid6};
        let asked = match goal.layout {
            Layout::Parity(layout) => layout,
            _ => ParityLayout::ParityLast,
        };
        let layout =
            |level, layout| Config { level, layout: Layout::Parity(layout), ..goal.clone() };
        let (alike, after) = match (now.level(), goal.level) {
            (Raid6, Raid4 | Raid5) => {
                let raid_disks = goal.raid_disks.saturating_add(1);
                let alike = Config { raid_disks, ..layout(Raid6, asked.with_q_last()) };
                (alike, layout(Raid5, asked))
            }
            (Raid5, Raid4) => (layout(Raid5, ParityLayout::ParityLast), goal.clone()),
            _ => return Self { config: goal.clone(), stays: false },
        };
        match Geometry::new(&alike).is_ok_and(|alike| alike == *now) {
            true => Self { config: after, stays: true },
            false => Self { config: alike, stays: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use lapstrake_geometry::{Sector, Sectors};

    fn config(level: Level, layout: Layout, raid_disks: u16) -> Config {
        let (chunk, component) = (Sectors(128), Sectors(1 << 12));
        Config { level, layout, chunk, raid_disks, component, member_sizes: Vec::new() }
    }

    /// Levels, layouts and members on the way, and whether data stays.
    fn way(from: Config, goal: &Config) -> Vec<(Level, Layout, u16, bool)> {
        let mut now = Geometry::new(&from).unwrap();
        let mut way = vec![];
        while now != Geometry::new(goal).unwrap() {
            let Step { config, stays } = Step::first(&now, goal);
            way.push((config.level, config.layout, config.raid_disks, stays));
            let next = Geometry::new(&config).unwrap();
            let is_alike = |chunk: u64| {
                let sector = Sector(chunk * config.chunk.0);
                now.map(sector).homes == next.map(sector).homes
            };
            assert_eq!((0..64).all(is_alike), stays, "{config:?}");
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
}
