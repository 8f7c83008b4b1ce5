//! Who is missing goes on record, also where members do not agree on how fresh they are.

use super::model::Array;
use lapstrake_geometry::{Level, Slot};
use lapstrake_metadata::{Role, Superblock, Version, assemble::record_absent};

/// Three of four members of a RAID5: the first is dirty, the others were cut off before they heard of it.
fn uneven(version: Version) -> Vec<Superblock> {
    let members = Array::new(version, Level::Raid5, 4).members("9 8 8");
    let mut members: Vec<_> = members.into_iter().map(|(_, superblock)| superblock).collect();
    members[0].set_clean(false);
    members
}

/// What would be lost: the whole array, which would not start with members two events apart, if the power went between
/// two superblocks.
#[test]
fn members_are_never_more_than_an_event_apart_and_agree_in_the_end() {
    for version in [Version::V090, Version::V1_2] {
        let mut members = uneven(version);
        let writes = record_absent(&members.iter().collect::<Vec<_>>());
        for (index, superblock) in writes {
            members[index] = superblock;
            let events = || members.iter().map(Superblock::events);
            let (least, most) = (events().min().unwrap(), events().max().unwrap());
            assert!(most - least <= 1, "{least} and {most}");
            // Whichever of the freshest is believed, writes were under way.
            let mut freshest = members.iter().filter(|sb| sb.events() == most);
            assert!(freshest.all(|sb| !sb.clean()));
        }
        assert!(members.iter().all(|sb| sb.events() == 10 && sb.role_of(3) == Role::Faulty));
    }
}

#[test]
fn nothing_is_written_where_nobody_is_missing() {
    let mut members = uneven(Version::V1_2);
    members[0].set_role_of(3, Role::Spare);
    assert!(record_absent(&members.iter().collect::<Vec<_>>()).is_empty());
}

/// What would be lost: what the slot holds. A spare that was being given the slot when the power went says of itself that it
/// is one, while the freshest has it in the slot; it has nothing of what belongs there.
#[test]
fn a_spare_that_was_being_given_a_slot_stays_one() {
    for version in [Version::V090, Version::V1_2] {
        let members = Array::new(version, Level::Raid6, 4).members("9 9 - - 9");
        let mut members: Vec<_> = members.into_iter().map(|(_, superblock)| superblock).collect();
        let spare = members.iter().position(|sb| sb.role() == Role::Spare).expect("a spare");
        let number = members[spare].dev_number();
        for superblock in &mut members {
            if let Superblock::V090(sb) = superblock {
                // An entry without a device is none.
                sb.disks[number as usize].major = 8;
                sb.set_role_of(number, Role::Spare);
            }
        }
        members[0].set_events(10);
        members[0].set_role_of(2, Role::Faulty);
        members[0].set_role_of(number, Role::Active(Slot(2)));
        for (index, superblock) in record_absent(&members.iter().collect::<Vec<_>>()) {
            members[index] = superblock;
        }
        assert_eq!(members[spare].role(), Role::Spare, "{version}");
        assert!(members.iter().all(|sb| sb.role_of(number) == Role::Spare), "{version}");
        assert!(members.iter().all(|sb| sb.role_of(3) == Role::Faulty && sb.events() == 11));
    }
}
