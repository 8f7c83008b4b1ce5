//! Partial parity logs of an array that was not stopped cleanly.

use crate::hostile::{SUPERBLOCK, seal};
use crate::support::{Rig, contents, raid5};
use lapstrake::metadata::create::Policy;
use lapstrake::{Array, Level, MemberSpec, OpenError, OpenOptions};
use lapstrake_host::create::{NewArray, prepare};
use std::fs;
use std::io::Cursor;

/// In a superblock 1.2: up to where it is in sync.
const RESYNC_OFFSET: usize = 208;

/// A RAID5 with logs, written and stopped, whose superblocks then say that it was not.
fn dirty() -> Rig {
    let mut rig = Rig::empty(raid5());
    let members = rig.members.iter().map(|path| Some(MemberSpec::whole(path))).collect();
    let wanted = NewArray {
        policy: Some(Policy::Ppl),
        assume_clean: true,
        overwrite: true,
        ..NewArray::new("logged", Level::Raid5, members)
    };
    prepare(&wanted, |bytes| bytes.fill(7)).unwrap().write().unwrap();
    let array = Array::open(&rig.members).unwrap();
    rig.contents = contents(array.len());
    array.write_at(0, &rig.contents).unwrap();
    array.close().unwrap();
    for member in &rig.members {
        let mut image = fs::read(member).unwrap();
        image[SUPERBLOCK + RESYNC_OFFSET..][..8].fill(0);
        seal(&mut image);
        fs::write(member, image).unwrap();
    }
    rig
}

#[test]
fn logs_are_replayed_beside_the_members_or_a_member_that_is_missing_is_not_made_of_parity() {
    let rig = dirty();
    let before = rig.images(&rig.members);
    let reads = |array: Array| {
        let mut buf = vec![0; rig.contents.len()];
        array.read_at(0, &mut buf).unwrap();
        assert!(buf == rig.contents);
    };
    reads(Array::open_read_only(&rig.members[1..]).unwrap());
    let readers = |from: usize| {
        let images = rig.images(&rig.members[from..]).into_iter();
        images.map(|(name, image)| (name, Cursor::new(image)))
    };
    reads(Array::open_readers(readers(0)).unwrap());
    let refused = Array::open_readers(readers(1)).unwrap_err();
    assert!(matches!(refused, OpenError::LogsNotReplayed), "{refused}");
    let mut options = OpenOptions::new();
    reads(options.degraded(true).force(true).open_readers(readers(1)).unwrap());
    assert!(rig.images(&rig.members) == before);
}
