//! Promise: an array whose superblocks tell of a reshape is two arrays of the same members, also where a cut has kept its
//! beginning from some of them.

use lapstrake_array::start::{Halves, force_reshape};
use lapstrake_geometry::{
    Config, Layout, Level, ParityLayout, Raid10Layout, Sector, Sectors, Slot, Version,
};
use lapstrake_metadata::{
    ReshapeRecord, Role, Superblock,
    assemble::{Assembly, Candidate, Options, assemble},
    create::{CreateRequest, NewMember, plan},
};

/// Superblocks of two members and two spares.
fn superblocks(level: Level, version: Version) -> Vec<Superblock> {
    let member = || Some(NewMember { size: Sectors(65536), ..NewMember::default() });
    let members = (0..4).map(|_| member()).collect();
    let request = CreateRequest::new(level, members);
    let request = CreateRequest {
        raid_disks: 2,
        spares: 2,
        version,
        chunk: Some(Sectors(128)),
        assume_clean: true,
        ..request
    };
    let made = plan(&request, |bytes| bytes.fill(7)).unwrap();
    made.members.into_iter().map(|member| member.superblock).collect()
}

/// This superblock of an array of that geometry.
fn of(own: &Superblock, level: Level, layout: Layout, raid_disks: u16) -> Superblock {
    let mut sb = own.clone();
    sb.set_geometry(&Config {
        level,
        layout,
        chunk: Sectors(128),
        raid_disks,
        component: own.component(),
        member_sizes: Vec::new(),
    });
    sb
}

/// What a RAID5 of two is that gets a second parity, as its reshape begins and as it ends.
fn second_parity(own: &Superblock) -> (Superblock, Superblock) {
    let layout = ParityLayout::LeftSymmetric;
    let raid6 = |layout, disks| of(own, Level::Raid6, Layout::Parity(layout), disks);
    (raid6(layout.with_q_last(), 3), raid6(layout, 4))
}

/// What a superblock is when a reshape from one to another of four members has begun.
fn begun(own: &Superblock, before: &Superblock, to: &Superblock) -> Superblock {
    let mut after = own.clone();
    after.take_geometry(to, -128);
    (0..4).for_each(|number| after.set_role_of(number, Role::Active(Slot(number as u16))));
    after.set_events(own.events() + 1);
    let data_before = Some((own.data_offset(), own.data_size()));
    let record = ReshapeRecord {
        before,
        data_before,
        position: Sector(0),
        is_backwards: false,
        lacking: &[Slot(2)],
    };
    after.in_reshape(&record)
}

/// What would be lost: the array, which no start would take, if those who were given slots were unknown to who has just
/// missed that. (Seed 56199.)
#[test]
fn who_has_missed_the_beginning_knows_whom_it_gave_slots() {
    let old = superblocks(Level::Raid10, Version::V1_2);
    let to = of(&old[0], Level::Raid10, Layout::Raid10(Raid10Layout::near(2)), 4);
    for knowing in [[2, 3], [0, 1], [1, 2]] {
        let mut found: Vec<Option<Superblock>> = old.iter().cloned().map(Some).collect();
        for member in knowing {
            found[member] = Some(begun(&old[member], &old[0], &to));
        }
        let Halves { before, after } = Halves::of(&mut found).unwrap();
        for (own, number) in after.iter().flatten().zip(0..) {
            assert_eq!(own.role(), Role::Active(Slot(number)), "{knowing:?}");
            let lists = |slot: &u16| own.dev_of_slot(Slot(*slot)) == Some(u32::from(*slot));
            assert!((0..4).all(|slot| lists(&slot)), "{knowing:?}: {own:?}");
        }
        let roles: Vec<Role> = before.iter().flatten().map(Superblock::role).collect();
        let slots = [Role::Active(Slot(0)), Role::Active(Slot(1)), Role::Spare, Role::Spare];
        assert_eq!(roles, slots, "{knowing:?}");
    }
}

/// What would be lost: likewise, if who has missed that its RAID5 gets a second parity stood for a member that has one.
/// (Seed 56063.)
#[test]
fn who_has_missed_the_beginning_has_no_second_parity() {
    let old = superblocks(Level::Raid5, Version::V1_2);
    let (from, to) = second_parity(&old[0]);
    for knowing in [&[3][..], &[0], &[1], &[2, 3], &[0, 1, 2, 3]] {
        let mut found: Vec<Option<Superblock>> = old.iter().cloned().map(Some).collect();
        for &member in knowing {
            let mut one = begun(&old[member], &from, &to);
            // It gets the slot of what the array lacks.
            if member == 2 {
                one.set_recovery_offset(Some(Sector(0)));
            }
            found[member] = Some(one);
        }
        let Halves { before, .. } = Halves::of(&mut found).unwrap();
        for own in before.iter().flatten() {
            let geometry = (own.level(), own.layout(), own.raid_disks());
            assert_eq!(
                geometry,
                (Some(Level::Raid5), Some(Layout::Parity(ParityLayout::LeftSymmetric)), 2),
                "{knowing:?}"
            );
        }
    }
}

/// What would be lost: the parity of the array before, if who was away since it had more members were asked about its last
/// slot.
#[test]
fn who_was_away_says_nothing_of_the_last_slot() {
    let old = superblocks(Level::Raid4, Version::V1_2);
    let raid4 = |disks| of(&old[0], Level::Raid4, Layout::Parity(ParityLayout::ParityLast), disks);
    let mut known: Vec<Superblock> = old[..2].to_vec();
    known.iter_mut().for_each(|own| own.set_events(20));
    let mut away = of(&old[2], Level::Raid4, Layout::Parity(ParityLayout::ParityLast), 3);
    away.set_role_of(2, Role::Active(Slot(0)));
    for away in [None, Some(away)] {
        let mut found: Vec<Option<Superblock>> =
            known.iter().map(|own| Some(begun(own, &raid4(2), &raid4(2)))).chain([away]).collect();
        let Halves { before, .. } = Halves::of(&mut found).unwrap();
        for own in before[..2].iter().flatten() {
            let roles: Vec<Role> = (0..2).map(|number| own.role_of(number)).collect();
            assert_eq!(roles, [Role::Active(Slot(0)), Role::Active(Slot(1))], "{own:?}");
        }
    }
}

/// What would be lost: likewise, of a RAID4 that Linux has made a RAID5 for its reshape. (Seed 2311.)
#[test]
fn who_has_missed_the_beginning_has_the_level_that_it_begins_with() {
    let old = superblocks(Level::Raid4, Version::V1_2);
    let raid5 = |layout, disks| of(&old[0], Level::Raid5, Layout::Parity(layout), disks);
    let from = raid5(ParityLayout::ParityLast, 2);
    let to = raid5(ParityLayout::LeftSymmetric, 4);
    for knowing in [[1, 3], [0, 2], [2, 3]] {
        let mut found: Vec<Option<Superblock>> = old.iter().cloned().map(Some).collect();
        for member in knowing {
            found[member] = Some(begun(&old[member], &from, &to));
        }
        let Halves { before, .. } = Halves::of(&mut found).unwrap();
        for own in before.iter().flatten() {
            let geometry = (own.level(), own.layout(), own.raid_disks());
            let last = Layout::Parity(ParityLayout::ParityLast);
            assert_eq!(geometry, (Some(Level::Raid5), Some(last), 2), "{knowing:?}");
        }
    }
}

/// What would be lost: what is read by a second parity that was never made. 0.90 has no recovery offset, and tells as Linux
/// does of who holds only what the reshape has written. (Seed 96710.)
#[test]
fn who_holds_nothing_of_the_array_before_is_no_member_of_it() {
    let old = superblocks(Level::Raid5, Version::V090);
    let (from, to) = second_parity(&old[0]);
    let mut found: Vec<Option<Superblock>> =
        old.iter().map(|own| Some(begun(own, &from, &to))).collect();
    let Halves { before, after } = Halves::of(&mut found).unwrap();
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        let roles = |sb: &Superblock| [1, 2, 3].map(|number| sb.role_of(number));
        let slot = |slot| Role::Active(Slot(slot));
        assert_eq!(roles(before), [slot(1), Role::Spare, Role::Spare]);
        assert_eq!(roles(after), [slot(1), slot(2), slot(3)]);
        assert_eq!((before.level(), before.raid_disks()), (Some(Level::Raid5), 2));
    }
}

/// What a start by force writes first.
fn forced(found: &[Option<Superblock>]) -> Result<Vec<(usize, Superblock)>, usize> {
    let Halves { before, after } = Halves::of(&mut found.to_vec()).unwrap();
    let decided = |half: &[Option<Superblock>]| -> Assembly {
        let candidates = half.iter().enumerate();
        let candidates: Vec<Candidate<'_>> = candidates
            .filter_map(|(id, sb)| Some(Candidate { id, superblock: sb.as_ref()? }))
            .collect();
        assemble(&candidates, &Options { force: true, ..Options::default() }).unwrap()
    };
    force_reshape(found, &decided(&before), &decided(&after))
}

/// What would be lost: data that the array before computes of who is raised, and holds nothing of it.
#[test]
fn who_is_raised_by_force_is_listed_as_it_lists_itself() {
    let old = superblocks(Level::Raid5, Version::V090);
    let (from, to) = second_parity(&old[0]);
    let begun = |member: usize, events: u64| {
        let mut one = begun(&old[member], &from, &to);
        one.set_events(events);
        one
    };
    let mut fresh = begun(1, 20);
    fresh.set_role_of(2, Role::Faulty);
    fresh.set_clean(false);
    let mut written: Vec<Option<Superblock>> = vec![None; 4];
    for (member, superblock) in forced(&[None, Some(fresh), Some(begun(2, 18)), None]).unwrap() {
        assert!(superblock.clean());
        written[member] = Some(superblock);
    }
    let Halves { before, after } = Halves::of(&mut written).unwrap();
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        let both = [before, after].map(|half| half.role_of(2));
        assert_eq!(both, [Role::Spare, Role::Active(Slot(2))]);
        assert_eq!((before.events(), after.role_of(0)), (21, Role::Faulty));
    }
}

/// What would be lost: which of two places a reshape has come to, where as many events tell of both.
#[test]
fn by_force_all_tell_of_the_place_that_a_reshape_has_come_to() {
    let old = superblocks(Level::Raid5, Version::V1_2);
    let to = of(&old[0], Level::Raid5, Layout::Parity(ParityLayout::LeftSymmetric), 4);
    let mut found: Vec<Option<Superblock>> = old
        .iter()
        .zip([10, 11, 11, 11])
        .map(|(own, events)| {
            let mut one = begun(own, &old[0], &to);
            one.set_events(events);
            one.set_clean(false);
            one.set_reshape_position(Sector(384 * (events - 9)));
            Some(one)
        })
        .collect();
    found[2] = None;
    let written = forced(&found).unwrap();
    let told = |(member, sb): &(usize, Superblock)| {
        (*member, sb.events(), sb.reshape().unwrap().position.0)
    };
    let told: Vec<_> = written.iter().map(told).collect();
    assert_eq!(told, [(0, 11, 768), (0, 12, 768), (1, 12, 768), (3, 12, 768)]);
}

/// What would be lost: what lies where the other members' data was, for them.
#[test]
fn who_knows_the_reshape_as_one_that_was_turned_back_is_not_raised() {
    let old = superblocks(Level::Raid5, Version::V1_2);
    let same = of(&old[0], Level::Raid5, Layout::Parity(ParityLayout::LeftSymmetric), 4);
    let mut found: Vec<Option<Superblock>> =
        old.iter().map(|own| Some(begun(own, &same, &same))).collect();
    found[3] = None;
    found.iter_mut().take(2).flatten().for_each(|one| one.set_events(20));
    assert_eq!(forced(&found).map(|written| written.len()), Ok(3));
    let turned = found[2].as_ref().unwrap().reverted(Some(Sector(0))).unwrap();
    found[2] = Some(turned);
    assert_eq!(forced(&found), Err(2));
}
