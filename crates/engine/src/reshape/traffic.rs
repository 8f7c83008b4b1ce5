//! What a reshape, and what follows it, reads and writes of each member.

use super::raid10::{copy_in_turn, turns_repeat};
use alloc::{vec, vec::Vec};
use lapstrake_geometry::{Geometry, Home, Sector, Sectors, Slot};

/// What is read and written of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTraffic {
    /// Sectors that are read.
    pub read: Sectors,
    /// Sectors that are written.
    pub written: Sectors,
}

/// What it takes of the members to have data where another geometry has it, by slot of the larger one: data is read once, of
/// copies all in turn; all that the new geometry has is written, parity
/// and copies with it. What superblocks take is not counted.
#[must_use]
pub fn reshape_traffic(before: &Geometry, after: &Geometry) -> Vec<MemberTraffic> {
    let slots = usize::from(before.raid_disks().max(after.raid_disks()));
    let mut traffic = vec![MemberTraffic::default(); slots];
    let moved = before.array_sectors().min(after.array_sectors());
    for_each_run(before, moved, |homes, sectors| {
        let in_turn = copy_in_turn(before, homes).unwrap_or(0);
        let of = &mut traffic[usize::from(homes[in_turn].slot.0)];
        of.read += Sectors(sectors);
    });
    if let Geometry::Parity(parity) = after {
        let members = &mut traffic[..usize::from(parity.raid_disks())];
        members.iter_mut().for_each(|of| of.written = parity.used());
        return traffic;
    }
    for_each_run(after, after.array_sectors(), |homes, sectors| {
        for home in homes {
            let of = &mut traffic[usize::from(home.slot.0)];
            of.written += Sectors(sectors);
        }
    });
    traffic
}

/// What it takes to make members in some slots of the others.
#[must_use]
pub fn recovery_traffic(geometry: &Geometry, missing: &[Slot]) -> Vec<MemberTraffic> {
    let mut traffic = vec![MemberTraffic::default(); geometry.raid_disks().into()];
    let is_missing = |slot: Slot| missing.contains(&slot);
    if let Geometry::Parity(parity) = geometry {
        for (slot, of) in (0..).map(Slot).zip(&mut traffic) {
            let moved = if is_missing(slot) { &mut of.written } else { &mut of.read };
            *moved = parity.used();
        }
        return traffic;
    }
    for_each_run(geometry, geometry.array_sectors(), |homes, sectors| {
        let Some(source) = homes.iter().find(|home| !is_missing(home.slot)) else { return };
        let targets = homes.iter().filter(|home| is_missing(home.slot));
        let slots = targets.map(|home| usize::from(home.slot.0));
        let mut is_read = false;
        for slot in slots {
            traffic[slot].written += Sectors(sectors);
            is_read = true;
        }
        if is_read {
            let of = &mut traffic[usize::from(source.slot.0)];
            of.read += Sectors(sectors);
        }
    });
    traffic
}

/// What it takes at most to make all redundancy of so many sectors of each member, which hold anything: all is read, and
/// parity, or copies but the first, are written.
#[must_use]
pub fn resync_traffic(geometry: &Geometry, sectors: Sectors) -> Vec<MemberTraffic> {
    let slots = geometry.raid_disks();
    let redundant = |slot: u16| match geometry {
        // Parity takes turns.
        Geometry::Parity(parity) => {
            sectors.0 * u64::from(slots - parity.data_disks()) / u64::from(slots)
        }
        Geometry::Mirror(_) if slot > 0 => sectors.0,
        Geometry::Raid10(raid10) => {
            let copies = u64::from(raid10.copies());
            sectors.0 * (copies - 1) / copies
        }
        _ => 0,
    };
    let of = |slot| MemberTraffic { read: sectors, written: Sectors(redundant(slot)) };
    (0..slots).map(of).collect()
}

/// Calls with the homes of each run of data up to a sector of the array, and how many sectors lie so: runs that repeat are
/// counted as often.
fn for_each_run(geometry: &Geometry, end: Sectors, mut call: impl FnMut(&[Home], u64)) {
    let repeats = match geometry {
        Geometry::Parity(parity) => parity.stripe_data().0 * u64::from(parity.raid_disks()),
        Geometry::Raid10(raid10) => turns_repeat(raid10),
        _ => end.0,
    };
    let (whole, odd) = (end.0 / repeats.max(1), end.0 % repeats.max(1));
    for (end, times) in [(repeats, whole), (odd, 1)] {
        let mut at = 0;
        while at < end && times > 0 {
            let run = geometry.map(Sector(at));
            let len = run.len.0.min(end - at);
            call(&run.homes, len * times);
            at += len;
        }
    }
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
    fn copies_take_turns_to_be_read() {
        let near = Layout::Raid10(Raid10Layout::near(2));
        let read = |chunks| {
            let [old, new] = [4, 5].map(|disks| geometry(Level::Raid10, near, disks, chunks));
            let traffic = reshape_traffic(&old, &new);
            assert!(traffic.iter().all(|of| of.written.0 == chunks * 128), "{traffic:?}");
            traffic.iter().map(|of| of.read.0 / 128).collect::<Vec<u64>>()
        };
        assert_eq!(read(6), [6, 0, 6, 0, 0], "half a mebibyte of one");
        assert_eq!(read(12), [8, 4, 8, 4, 0], "then as much of the other");
        assert_eq!(read(8 * 1000), [4000, 4000, 4000, 4000, 0]);
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
    #[test]
    fn a_recovery_reads_what_it_is_made_of() {
        let layout = Layout::Parity(ParityLayout::LeftSymmetric);
        let raid5 = geometry(Level::Raid5, layout, 4, 6);
        let traffic = recovery_traffic(&raid5, &[Slot(3)]);
        let (read, written): (Vec<u64>, Vec<u64>) =
            traffic.iter().map(|of| (of.read.0 / 128, of.written.0 / 128)).unzip();
        assert_eq!((read, written), (vec![6, 6, 6, 0], vec![0, 0, 0, 6]));
        let near = Layout::Raid10(Raid10Layout::near(2));
        let pairs = geometry(Level::Raid10, near, 4, 6);
        let traffic = recovery_traffic(&pairs, &[Slot(1), Slot(3)]);
        let (read, written): (Vec<u64>, Vec<u64>) =
            traffic.iter().map(|of| (of.read.0 / 128, of.written.0 / 128)).unzip();
        assert_eq!((read, written), (vec![6, 0, 6, 0], vec![0, 6, 0, 6]));
        let resync = resync_traffic(&raid5, Sectors(400));
        assert!(resync.iter().all(|of| (of.read, of.written) == (Sectors(400), Sectors(100))));
    }
}
