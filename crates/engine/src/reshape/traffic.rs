//! What a reshape reads and writes of each member.

use super::raid10::repeats as raid10_repeats;
use alloc::{vec, vec::Vec};
use lapstrake_geometry::{Geometry, Sector, Sectors};

/// What is read and written of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTraffic {
    /// Sectors that are read.
    pub read: Sectors,
    /// Sectors that are written.
    pub written: Sectors,
}

/// What it takes of the members to have data where another geometry has it, by slot of the larger one: data is read once, of
/// copies each as often as the others; all that the new geometry has is written, parity and copies with it. What superblocks
/// take is not counted.
#[must_use]
pub fn reshape_traffic(before: &Geometry, after: &Geometry) -> Vec<MemberTraffic> {
    let slots = usize::from(before.raid_disks().max(after.raid_disks()));
    let mut traffic = vec![MemberTraffic::default(); slots];
    let moved = before.array_sectors().min(after.array_sectors());
    for (of, (sectors, copies)) in traffic.iter_mut().zip(held(before, moved)) {
        of.read = Sectors(sectors / copies);
    }
    let all = match after {
        Geometry::Parity(parity) => vec![(parity.used().0, 1); parity.raid_disks().into()],
        other => held(other, other.array_sectors()),
    };
    for (of, (sectors, _)) in traffic.iter_mut().zip(all) {
        of.written = Sectors(sectors);
    }
    traffic
}

/// What each slot has of data up to a sector of the array, and of how many copies.
fn held(geometry: &Geometry, end: Sectors) -> Vec<(u64, u64)> {
    let mut held = vec![(0, 1); geometry.raid_disks().into()];
    let repeats = match geometry {
        Geometry::Parity(parity) => parity.stripe_data().0 * u64::from(parity.raid_disks()),
        Geometry::Raid10(raid10) => raid10_repeats(raid10),
        _ => end.0,
    };
    let whole = end.0 / repeats.max(1);
    let odd = end.0 % repeats.max(1);
    for (end, times) in [(repeats.min(end.0), whole), (odd, 1)] {
        let mut at = 0;
        while at < end && times > 0 {
            let run = geometry.map(Sector(at));
            let len = run.len.0.min(end - at);
            let copies = run.homes.len() as u64;
            for home in run.homes {
                let slot = &mut held[usize::from(home.slot.0)];
                *slot = (slot.0 + len * times, copies);
            }
            at += len;
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapstrake_geometry::{Config, Layout, Level, ParityLayout, Raid10Layout};

    fn geometry(level: Level, layout: Layout, raid_disks: u16, chunks: u64) -> Geometry {
        let chunk = Sectors(128);
        let component = chunk * chunks;
        let config =
            Config { level, layout, chunk, raid_disks, component, member_sizes: Vec::new() };
        Geometry::new(&config).unwrap()
    }

    #[test]
    fn parity_is_written_and_not_read() {
        let layout = Layout::Parity(ParityLayout::LeftSymmetric);
        // Four stripes of three members: each has parity in one or two.
        let (old, new) =
            (geometry(Level::Raid5, layout, 3, 4), geometry(Level::Raid5, layout, 4, 4));
        let traffic = reshape_traffic(&old, &new);
        let read: Vec<u64> = traffic.iter().map(|of| of.read.0 / 128).collect();
        assert_eq!(read.iter().sum::<u64>(), 8, "all data, once");
        assert_eq!(read, [3, 3, 2, 0]);
        assert!(traffic.iter().all(|of| of.written.0 == 4 * 128), "{traffic:?}");
        // Of fewer members no more is read than goes on.
        let back = reshape_traffic(&new, &old);
        assert_eq!(back.iter().map(|of| of.read.0).sum::<u64>(), old.array_sectors().0);
        assert_eq!(back[3].written, Sectors::ZERO);
    }

    #[test]
    fn of_copies_each_is_read_as_often() {
        let near = Layout::Raid10(Raid10Layout::near(2));
        let (old, new) = (geometry(Level::Raid10, near, 4, 6), geometry(Level::Raid10, near, 5, 6));
        let traffic = reshape_traffic(&old, &new);
        let read: Vec<u64> = traffic.iter().map(|of| of.read.0 / 128).collect();
        assert_eq!(read, [3, 3, 3, 3, 0]);
        assert!(traffic.iter().all(|of| of.written.0 == 6 * 128), "{traffic:?}");
    }

    #[test]
    fn what_repeats_is_counted_as_often() {
        let layout = Layout::Parity(ParityLayout::LeftSymmetric6);
        let large = geometry(Level::Raid6, layout, 6, 60_000_000);
        let small = geometry(Level::Raid6, layout, 6, 60);
        let times = |of: &MemberTraffic| Sectors(of.read.0 * 1_000_000);
        let (large, small) = (reshape_traffic(&large, &large), reshape_traffic(&small, &small));
        for (large, small) in large.iter().zip(&small) {
            assert_eq!(large.read, times(small));
        }
    }
}
