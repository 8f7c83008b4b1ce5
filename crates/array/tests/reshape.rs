//! Promise: an array whose superblocks tell of a reshape is two arrays of the same members, also where a cut has kept its
//! beginning from some of them.

use lapstrake_array::start::Halves;
use lapstrake_geometry::{Config, Layout, Level, Raid10Layout, Sector, Sectors, Slot, Version};
use lapstrake_metadata::{
    ReshapeRecord, Role, Superblock,
    create::{CreateRequest, NewMember, plan},
};

/// Superblocks of a RAID10 of two members and two spares.
fn superblocks() -> Vec<Superblock> {
    let member = || Some(NewMember { size: Sectors(65536), ..NewMember::default() });
    let members = (0..4).map(|_| member()).collect();
    let request = CreateRequest::new(Level::Raid10, members);
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

/// What a superblock is when a reshape to four members has begun.
fn begun(own: &Superblock, before: &Superblock) -> Superblock {
    let config = Config {
        level: Level::Raid10,
        layout: Layout::Raid10(Raid10Layout::near(2)),
        chunk: Sectors(128),
        raid_disks: 4,
        component: own.component(),
        member_sizes: Vec::new(),
    };
    let (mut model, mut after) = (own.clone(), own.clone());
    model.set_geometry(&config);
    after.take_geometry(&model, -128);
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
    let old = superblocks();
    for knowing in [[2, 3], [0, 1], [1, 2]] {
        let mut found: Vec<Option<Superblock>> = old.iter().cloned().map(Some).collect();
        for member in knowing {
            found[member] = Some(begun(&old[member], &old[0]));
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
