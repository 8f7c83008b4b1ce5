//! Promise: an array whose superblocks tell of a reshape is two arrays of the same members, also where a cut has kept its
//! beginning from some of them.

use lapstrake_array::start::Halves;
use lapstrake_geometry::{
    Config, Layout, Level, ParityLayout, Raid10Layout, Sector, Sectors, Slot, Version,
};
use lapstrake_metadata::{
    ReshapeRecord, Role, Superblock,
    create::{CreateRequest, NewMember, plan},
};

/// Superblocks of two members and two spares.
fn superblocks(level: Level) -> Vec<Superblock> {
    let member = || Some(NewMember { size: Sectors(65536), ..NewMember::default() });
    let members = (0..4).map(|_| member()).collect();
    let request = CreateRequest::new(level, members);
    let request = CreateRequest {
        raid_disks: 2,
        spares: 2,
        version: Version::V1_2,
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

/// What a superblock is when a reshape from one to another of four members has begun.
fn begun(own: &Superblock, before: &Superblock, to: &Superblock) -> Superblock {
    let mut after = own.clone();
    after.take_geometry(to, -128);
    (0..4).for_each(|number| after.set_role_of(number, Role::Active(Slot(number as u16))));
    after.set_events(own.events() + 1);
    let data_before = Some((own.data_offset(), own.data_size()));
    let record = ReshapeRecord { before, data_before, position: Sector(0), is_backwards: false };
    after.in_reshape(&record)
}

/// What would be lost: the array, which no start would take, if those who were given slots were unknown to who has just
/// missed that. (Seed 56199.)
#[test]
fn who_has_missed_the_beginning_knows_whom_it_gave_slots() {
    let old = superblocks(Level::Raid10);
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
    let old = superblocks(Level::Raid5);
    let layout = ParityLayout::LeftSymmetric;
    let raid6 = |layout, disks| of(&old[0], Level::Raid6, Layout::Parity(layout), disks);
    let (from, to) = (raid6(layout.with_q_last(), 3), raid6(layout, 4));
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
                (Some(Level::Raid5), Some(Layout::Parity(layout)), 2),
                "{knowing:?}"
            );
        }
    }
}

/// What would be lost: the parity of the array before, if who was away since it had more members were asked about its last
/// slot.
#[test]
fn who_was_away_says_nothing_of_the_last_slot() {
    let old = superblocks(Level::Raid4);
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
