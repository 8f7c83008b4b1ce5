//! What members hold, and which arrays are there.

use crate::support::{Rig, raid5};
use lapstrake::geometry::Slot;
use lapstrake::metadata::Role;
use lapstrake::metadata::assemble::Verdict;
use lapstrake::{
    Array, Completeness, CreateOptions, Level, OpenOptions, examine, examine_reader, scan,
    scan_directory,
};
use std::fs::{self, File};
use std::io::Cursor;

#[test]
fn a_members_superblock_bitmap_and_log_are_values() {
    let rig = Rig::empty(raid5());
    CreateOptions::new("bits", Level::Raid1)
        .assume_clean(true)
        .bitmap(true)
        .overwrite(true)
        .create(&rig.members[..2])
        .unwrap();
    let by_path = examine(&rig.members[1]).unwrap();
    let image = Cursor::new(fs::read(&rig.members[1]).unwrap());
    let by_reader = examine_reader("image", image).unwrap();
    for member in [by_path, by_reader] {
        let superblock = member.superblock().unwrap();
        assert_eq!(
            (superblock.role(), superblock.level()),
            (Role::Active(Slot(1)), Some(Level::Raid1))
        );
        assert_eq!(member.findings().len(), 1);
        let bitmap = member.bitmap().unwrap().unwrap();
        assert!(bitmap.bits > 0 && bitmap.unknown.is_none(), "{bitmap:?}");
        assert_eq!(member.bad_blocks().unwrap(), Some(Vec::new()));
    }
    let empty = examine_reader("nothing", Cursor::new(Vec::new())).unwrap();
    assert!(empty.superblock().is_none() && empty.findings().is_empty());
    assert!(empty.bitmap().unwrap().is_none());
    assert!(examine("/no such file").is_err());
}

#[test]
fn arrays_are_found_with_what_they_lack() {
    let rig = Rig::full(raid5());
    File::create(rig.directory().join("nothing")).unwrap().set_len(1 << 20).unwrap();
    let found = scan_directory(rig.directory()).unwrap();
    assert_eq!((found.arrays.len(), found.others.len(), found.failures.len()), (1, 1, 0));
    let array = &found.arrays[0];
    assert_eq!((array.completeness, array.level), (Completeness::Complete, Some(Level::Raid5)));
    assert!(array.name.ends_with("data") && array.missing().is_empty());

    let found = scan([&rig.members[2], &rig.members[0], &rig.members[2]]);
    let array = &found.arrays[0];
    assert_eq!((array.completeness, array.missing()), (Completeness::Degraded, vec![Slot(1)]));
    assert_eq!(array.candidates.len(), 2);
    let taken = Verdict::Taken { slot: Slot(2), recovering: None };
    assert_eq!(array.candidates[0].verdict, Some(taken));
    assert_eq!(array.candidates[0].examination.member().path, rig.members[2]);

    let array = OpenOptions::new().read_only(true).uuid(array.uuid).open(&rig.members).unwrap();
    assert!(array.members().iter().all(|member| member.taken), "{:?}", array.members());
    let none = OpenOptions::new().read_only(true).uuid([1; 16]).open(&rig.members);
    assert!(none.unwrap_err().to_string().contains("none of 3"));
    assert!(Array::open_read_only(&[rig.directory().join("nothing")]).is_err());
}
