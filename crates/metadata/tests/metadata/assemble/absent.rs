//! Who is missing goes on record, also where members do not agree on how fresh they are.

use super::model::Array;
use lapstrake_geometry::Level;
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
