//! How far a reshape of a RAID10 may write: what each member holds of the old geometry that was not moved yet stays.
//!
//! A run goes over sectors of the array. Linux goes on from any place on record, if data moves by as much as a chunk of
//! either geometry takes of a member with the copies in the rows below it. Where copies of one chunk lie in two rows, in a
//! RAID10 of an odd number of members, twice as much may be needed here, since a window is written as whole chunks.

use lapstrake_geometry::{Geometry, Home, Raid10, Sector, Sectors, Slot};

/// Reshapes that get stuck with so many times what Linux demands are not possible at all: two rows of either geometry are
/// always enough.
const TRIED_MAX: u64 = 4;

/// So many places are looked at to tell; a RAID10 of hundreds of members to that of one more is not reshaped.
const PLACES_MAX: u64 = 1 << 20;

/// One copy is read for so long at least before the next has its turn: long reads on each member.
const TURN_SECTORS: u64 = (512 << 10) / 512;

/// A reshape of this geometry to that one, by how many sectors members' data moves, and whether it is from the end on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raid10Reshape<'a> {
    pub(super) before: &'a Raid10,
    pub(super) after: &'a Raid10,
    pub(super) shift: i64,
    pub(super) is_backwards: bool,
}

impl Raid10Reshape<'_> {
    /// The array sector up to which the new geometry may be written, or down to which, while all before or behind `moved` is
    /// on record as moved.
    pub(super) fn reach(&self, moved: u64) -> u64 {
        let slots = (0..self.after.raid_disks()).map(Slot);
        match self.is_backwards {
            true => slots.map(|slot| self.reach_down(slot, moved)).max().unwrap_or(0),
            false => slots.map(|slot| self.reach_up(slot, moved)).min().unwrap_or(0),
        }
    }

    fn reach_up(&self, slot: Slot, moved: u64) -> u64 {
        let unmoved = self.held(slot).and_then(|old| old.lowest_from(slot, Sector(moved)));
        let Some(unmoved) = unmoved else { return self.after.array_sectors().0 };
        let limit = unmoved.0.saturating_add_signed(self.shift.saturating_neg());
        self.after.data_below(slot, Sector(limit)).0
    }

    fn reach_down(&self, slot: Slot, moved: u64) -> u64 {
        let unmoved = self.held(slot).map_or(0, |old| old.end_before(slot, Sector(moved)).0);
        let limit = unmoved.saturating_add_signed(self.shift.saturating_neg());
        self.after.data_from(slot, Sector(limit)).0
    }

    /// The old geometry, if a slot is of it.
    fn held(&self, slot: Slot) -> Option<&Raid10> {
        Some(self.before).filter(|old| slot.0 < old.raid_disks())
    }

    /// Whether Linux does it, and it comes to its end here from wherever it is left.
    pub(super) fn is_possible(&self) -> bool {
        let least = least_of_linux(self.before, self.after);
        let distance = if self.is_backwards { self.shift } else { self.shift.saturating_neg() };
        let is_rising = match self.is_backwards {
            true => self.after.raid_disks() <= self.before.raid_disks(),
            false => self.after.raid_disks() >= self.before.raid_disks(),
        };
        let is_far = |it: &Raid10| it.layout().far > 1 && !it.layout().offset;
        self.before.copies() == self.after.copies()
            && !is_far(self.before)
            && !is_far(self.after)
            && is_rising
            && u64::try_from(distance).is_ok_and(|distance| distance >= least)
            && self.never_stops()
    }

    /// Whether a window can begin at every chunk. How the geometries lie to each other repeats, and where members come or go
    /// they are nearest to each other at the array's beginning.
    fn never_stops(&self) -> bool {
        let repeats = lcm(repeats(self.before), repeats(self.after));
        let end = repeats.min(self.after.array_sectors().0);
        let places = end / self.after.chunk().0 * u64::from(self.after.raid_disks());
        if places > PLACES_MAX {
            return false;
        }
        let mut chunks = (0..end).step_by(self.after.chunk().0 as usize);
        match self.is_backwards {
            true => chunks.all(|at| self.reach(at + self.after.chunk().0) <= at),
            false => chunks.all(|at| self.reach(at) > at),
        }
    }
}

/// By how much data has to move at least for one RAID10 to become another; none if it cannot.
#[must_use]
pub fn least_raid10_shift(before: &Raid10, after: &Raid10, is_backwards: bool) -> Option<Sectors> {
    let least = least_of_linux(before, after);
    let mut shifts = (1..=TRIED_MAX).map(|times| times * least);
    let is_enough = |distance: &u64| {
        let shift = if is_backwards { *distance as i64 } else { -(*distance as i64) };
        Raid10Reshape { before, after, shift, is_backwards }.is_possible()
    };
    shifts.find(is_enough).map(Sectors)
}

fn least_of_linux(before: &Raid10, after: &Raid10) -> u64 {
    let row = |it: &Raid10| it.chunk().0 * u64::from(it.layout().far);
    row(before).max(row(after))
}

/// Which of these copies of what a reshape moves is to be read, so that all members are read alike.
pub(crate) fn copy_in_turn(geometry: &Geometry, homes: &[Home]) -> Option<usize> {
    let Geometry::Raid10(raid10) = geometry else { return None };
    Some((homes.first()?.sector.0 / turn_sectors(raid10) % turns(raid10)) as usize)
}

/// Copies that are read in turn: near ones whose first lie on some members only. Elsewhere the first are read.
fn turns(of: &Raid10) -> u64 {
    if of.layout().far > 1 { 1 } else { gcd(of.raid_disks().into(), of.layout().near.into()) }
}

/// Sectors of each member: how chunks lie on members repeats before the next copy has its turn.
fn turn_sectors(of: &Raid10) -> u64 {
    let disks = u64::from(of.raid_disks());
    let rows = lcm(disks, of.layout().near.into()) / disks;
    TURN_SECTORS.next_multiple_of(rows * of.chunk().0)
}

/// Array sectors after which copies take their turns as at the beginning, or a multiple of that.
pub(super) fn turns_repeat(of: &Raid10) -> u64 {
    repeats(of) * turn_sectors(of) / of.chunk().0 * turns(of)
}

/// Array sectors after which members' chunks and copies lie to each other as at the beginning.
fn repeats(of: &Raid10) -> u64 {
    let (disks, near) = (u64::from(of.raid_disks()), u64::from(of.layout().near));
    lcm(disks, near) / near * of.chunk().0
}

pub(super) fn lcm(one: u64, two: u64) -> u64 {
    one / gcd(one, two) * two
}

fn gcd(one: u64, two: u64) -> u64 {
    if two == 0 { one } else { gcd(two, one % two) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use lapstrake_geometry::{Config, Geometry, Layout, Level};

    fn raid10(word: u32, raid_disks: u16, chunk: u64) -> Raid10 {
        let layout = Layout::from_md(Level::Raid10, word).unwrap();
        let (level, component, chunk) = (Level::Raid10, Sectors(720), Sectors(chunk));
        let member_sizes = Vec::new();
        let config = Config { level, layout, chunk, raid_disks, component, member_sizes };
        match Geometry::new(&config) {
            Ok(Geometry::Raid10(raid10)) => raid10,
            other => panic!("{other:?}"),
        }
    }

    fn reshape<'a>(before: &'a Raid10, after: &'a Raid10, shift: i64) -> Raid10Reshape<'a> {
        Raid10Reshape { before, after, shift, is_backwards: shift > 0 }
    }

    /// Moves all in windows that begin where `stops` says, member sectors beside each other: nothing is written over that was
    /// not moved.
    fn move_all(it: &Raid10Reshape<'_>) {
        let (old, new) = (it.before, it.after);
        let end = new.array_sectors().0;
        let mut at = if it.is_backwards { end } else { 0 };
        while at != if it.is_backwards { 0 } else { end } {
            let to = it.reach(at);
            let written = if it.is_backwards { to..at } else { at..to };
            assert!(written.start < written.end, "{it:?} is stuck at {at}");
            let left = if it.is_backwards { 0..at } else { at..u64::MAX };
            let left = left.start..left.end.min(old.array_sectors().0);
            for home in written.step_by(8).flat_map(|sector| new.map(Sector(sector)).homes) {
                let place = home
                    .sector
                    .0
                    .checked_add_signed(it.shift)
                    .filter(|_| home.slot.0 < old.raid_disks());
                let Some(place) = place else { continue };
                if let lapstrake_geometry::Content::Data(sector) =
                    old.content(home.slot, Sector(place))
                {
                    assert!(!left.contains(&sector.0), "{it:?}: {sector} is written over at {at}");
                }
            }
            at = to;
        }
    }

    #[test]
    fn nothing_is_written_over_that_was_not_moved_and_all_is_moved() {
        let layouts = [0x102, 0x10201];
        let chunks = [8, 16, 32];
        let mut tried = 0;
        for (from, to) in layouts.into_iter().flat_map(|it| layouts.map(|to| (it, to))) {
            for (old, new) in (2..7).flat_map(|old| (old..8).map(move |new| (old, new))) {
                for (one, two) in chunks.into_iter().flat_map(|one| chunks.map(|two| (one, two))) {
                    let (before, after) = (raid10(from, old, one), raid10(to, new, two));
                    for is_backwards in
                        [false, true].into_iter().take(if old == new { 2 } else { 1 })
                    {
                        let least = least_raid10_shift(&before, &after, is_backwards);
                        let least =
                            least.unwrap_or_else(|| panic!("{before:?} to {after:?}")).0 as i64;
                        assert!(least as u64 <= 2 * least_of_linux(&before, &after));
                        move_all(&reshape(
                            &before,
                            &after,
                            if is_backwards { least } else { -least },
                        ));
                        tried += 1;
                    }
                }
            }
        }
        assert!(tried > 500, "{tried}");
    }

    #[test]
    fn with_members_in_pairs_a_chunk_of_room_is_enough_as_for_linux() {
        for (old, new) in [(4, 4), (4, 5), (4, 6), (2, 4)] {
            for (one, two) in [(8, 16), (16, 8), (8, 32)] {
                let (before, after) = (raid10(0x102, old, one), raid10(0x102, new, two));
                assert_eq!(least_raid10_shift(&before, &after, false), Some(Sectors(one.max(two))));
            }
        }
    }

    #[test]
    fn what_linux_refuses_is_not_possible() {
        let near = raid10(0x102, 4, 8);
        let is_possible = |after: &Raid10, shift| reshape(&near, after, shift).is_possible();
        assert!(is_possible(&raid10(0x102, 5, 8), -8));
        assert!(!is_possible(&raid10(0x201, 4, 8), -64), "far copies");
        assert!(!is_possible(&raid10(0x103, 4, 8), -64), "another number of copies");
        assert!(!is_possible(&raid10(0x102, 5, 16), -8), "too little room");
        assert!(!is_possible(&raid10(0x102, 5, 8), 64), "more members, from the end on");
        assert!(!is_possible(&raid10(0x102, 3, 8), -64), "fewer members, from the beginning on");
    }
}
