use super::*;
use crate::create::{BitmapChoice, CreateRequest, NewMember, Policy, plan};
use crate::read_at;
use lapstrake_geometry::Level;
use std::string::ToString;

/// 64 MiB.
const SIZE: Sectors = Sectors(131_072);

fn request(level: Level) -> CreateRequest {
    let member = NewMember { size: SIZE, ..NewMember::default() };
    let new = CreateRequest::new(level, vec![Some(member); 3]);
    CreateRequest { name: "data".into(), assume_clean: true, ctime: 1000, ..new }
}

/// The superblocks of a new array, and its bitmap's.
fn made(request: &CreateRequest) -> (Vec<Superblock>, Option<bitmap::Superblock>) {
    let members = plan(request, |buf| buf.fill(7)).unwrap().members;
    let bitmap = members[0].superblock.bitmap_sector().and_then(|at| {
        let image = members[0].writes.iter().find(|write| write.sector == at)?;
        bitmap::Superblock::parse(&image.bytes).ok()
    });
    (members.into_iter().map(|member| member.superblock).collect(), bitmap)
}

fn edits(request: &CreateRequest, what: &Update) -> Result<Vec<Vec<Write>>, UpdateError> {
    let (superblocks, bitmap) = made(request);
    edits_of(&superblocks, bitmap.as_ref(), what)
}

fn edits_of(
    superblocks: &[Superblock],
    bitmap: Option<&bitmap::Superblock>,
    what: &Update,
) -> Result<Vec<Vec<Write>>, UpdateError> {
    let subject = |superblock| Subject {
        superblock,
        bitmap,
        size: SIZE,
        block_size: 512,
        device_uuid: [9; 16],
    };
    update(&superblocks.iter().map(subject).collect::<Vec<_>>(), what)
}

/// What the first member's superblock says afterwards.
fn after(request: &CreateRequest, what: &Update) -> Superblock {
    let writes = edits(request, what).unwrap();
    let of_superblock = |write: &&Write| {
        let at = request.version.superblock(SIZE).unwrap();
        write.sector == at
    };
    let write = writes[0].iter().find(of_superblock).unwrap();
    read_at(request.version, SIZE, &write.bytes).unwrap()
}

fn refusal(request: &CreateRequest, what: &Update) -> Refused {
    edits(request, what).unwrap_err().why
}

fn name(name: &str, homehost: Option<&str>) -> Update {
    Update::Name { name: name.into(), homehost: homehost.map(Into::into) }
}

#[test]
fn a_name_has_its_host_before_it_where_both_fit() {
    let raid5 = request(Level::Raid5);
    assert_eq!(after(&raid5, &name("new", Some("host"))).name(), "host:new");
    assert_eq!(after(&raid5, &name("a:new", Some("host"))).name(), "a:new");
    let long = "n".repeat(28);
    assert_eq!(after(&raid5, &name(&long, Some("host"))).name(), long);
    assert_eq!(after(&raid5, &Update::Homehost("nas".into())).name(), "nas:data");
    for bad in ["", "a\nb", &"n".repeat(32)] {
        assert!(matches!(refusal(&raid5, &name(bad, None)), Refused::Name { .. }), "{bad:?}");
    }
}

#[test]
fn a_new_uuid_is_in_bitmap_and_partial_parity_logs_too() {
    let uuid = core::array::from_fn(|i| i as u8);
    for version in [Version::V090, Version::V1_0, Version::V1_2] {
        let request =
            CreateRequest { version, bitmap: BitmapChoice::Internal, ..request(Level::Raid5) };
        let writes = edits(&request, &Update::Uuid(uuid)).unwrap().remove(0);
        let superblock = read_at(version, SIZE, &writes[1].bytes).unwrap();
        assert_eq!(superblock.set_uuid(), uuid);
        let bitmap = bitmap::Superblock::parse(&writes[0].bytes).unwrap();
        assert!(bitmap.check_array(superblock.bitmap_uuid(), 0).unwrap(), "{version}");
    }
    let with_logs = CreateRequest { policy: Some(Policy::Ppl), ..request(Level::Raid5) };
    let writes = edits(&with_logs, &Update::Uuid(uuid)).unwrap().remove(0);
    assert_eq!(ppl::Header::parse(&writes[0].bytes).unwrap().signature, ppl::signature(uuid));
}

#[test]
fn a_host_of_0_90_is_half_of_its_uuid() {
    let old = CreateRequest { version: Version::V090, ..request(Level::Raid1) };
    let uuid = after(&old, &Update::Homehost("nas".into())).set_uuid();
    let by_create = CreateRequest { homehost: Some("nas".into()), ..old };
    assert_eq!(uuid[8..], made(&by_create).0[0].set_uuid()[8..]);
    assert_eq!(uuid[..8], [7; 8]);
}

#[test]
fn redundancy_is_made_anew_after_resync() {
    for version in [Version::V090, Version::V1_1] {
        let superblock =
            after(&CreateRequest { version, ..request(Level::Raid5) }, &Update::Resync);
        assert_eq!(superblock.resync_offset(), Some(Sector(0)), "{version}");
    }
}

#[test]
fn a_bad_block_log_lies_beside_all_else() {
    for bitmap in [BitmapChoice::None, BitmapChoice::Internal, BitmapChoice::Lockless] {
        for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
            if bitmap == BitmapChoice::Lockless && version != Version::V1_2 {
                continue;
            }
            let request = CreateRequest { version, bitmap, ..request(Level::Raid1) };
            let (superblocks, bits) = made(&request);
            let without: Vec<Superblock> = superblocks
                .into_iter()
                .map(|mut superblock| {
                    superblock.drop_bad_block_log();
                    superblock
                })
                .collect();
            let writes = edits_of(&without, bits.as_ref(), &Update::Bbl).unwrap();
            let new = read_at(version, SIZE, &writes[0][0].bytes).unwrap();
            let (Sector(log), Sectors(len)) = new.badblock_log().unwrap();
            assert_eq!(len, 8);
            let beside = |at: u64, len: u64| log + 8 <= at || at + len <= log;
            let (data, data_size) = (new.data_offset().0, new.data_size().0);
            assert!(beside(data, data_size) && beside(new.super_sector().0, 8), "{new:?}");
            let (at, bits) = (new.bitmap_sector().map_or(0, |at| at.0), bits);
            let taken = bits.map_or(0, |bits| bits.image_bytes().div_ceil(512));
            assert!(taken == 0 || beside(at, taken), "{version} {log} {at} {taken}");
        }
    }
}

#[test]
fn entries_of_a_bad_block_log_go_by_force_only() {
    let (mut superblocks, _) = made(&request(Level::Raid1));
    superblocks[2].set_has_bad_blocks(true);
    let kept = edits_of(&superblocks, None, &Update::NoBbl).unwrap_err();
    assert_eq!((kept.member, &kept.why), (Some(2), &Refused::BadBlocks));
    let writes = edits_of(&superblocks, None, &Update::ForceNoBbl).unwrap();
    let new = read_at(Version::V1_2, SIZE, &writes[2][0].bytes).unwrap();
    assert!(!new.has_bad_blocks() && new.badblock_log().is_none());
}

#[test]
fn partial_parity_logs_are_what_create_places() {
    let by_create = CreateRequest { policy: Some(Policy::Ppl), ..request(Level::Raid5) };
    let (with, _) = made(&by_create);
    // Of members so small the bad-block log has the room.
    let hint = "--update=no-bbl";
    assert!(edits(&request(Level::Raid5), &Update::Ppl).unwrap_err().to_string().contains(hint));
    let (mut superblocks, _) = made(&request(Level::Raid5));
    superblocks.iter_mut().for_each(Superblock::drop_bad_block_log);
    let writes = edits_of(&superblocks, None, &Update::Ppl).unwrap();
    let new = read_at(Version::V1_2, SIZE, &writes[0][1].bytes).unwrap();
    assert_eq!(new.ppl().unwrap().0, with[0].ppl().unwrap().0);
    assert!(new.unsupported().is_none());
    assert_eq!(refusal(&request(Level::Raid4), &Update::Ppl), Refused::Level { wanted: "RAID5" });
    let (mut dirty, _) = made(&by_create);
    dirty.iter_mut().for_each(|superblock| superblock.set_clean(false));
    let kept = edits_of(&dirty, None, &Update::NoPpl).unwrap_err();
    assert!(matches!(kept.why, Refused::Unclean { .. }), "{kept}");
}

#[test]
fn a_layout_is_a_raid0s() {
    let raid0 = request(Level::Raid0);
    for layout in [Raid0Layout::Original, Raid0Layout::Alternate, Raid0Layout::Unset] {
        let new = after(&raid0, &Update::Raid0Layout(layout));
        assert_eq!(new.layout(), Some(lapstrake_geometry::Layout::Raid0(layout)));
    }
    let refused = refusal(&request(Level::Raid5), &Update::Raid0Layout(Raid0Layout::Original));
    assert_eq!(refused, Refused::Level { wanted: "RAID0" });
}

#[test]
fn a_new_bitmap_is_dirty_and_believed() {
    for version in [Version::V090, Version::V1_0, Version::V1_2] {
        let request = CreateRequest { version, ..request(Level::Raid5) };
        let writes = edits(&request, &Update::Bitmap).unwrap().remove(0);
        let superblock = read_at(version, SIZE, &writes[1].bytes).unwrap();
        let bitmap = bitmap::Superblock::parse(&writes[0].bytes).unwrap();
        assert_eq!(superblock.bitmap_sector(), Some(writes[0].sector), "{version}");
        assert!(bitmap.check_array(superblock.bitmap_uuid(), superblock.events()).unwrap());
        assert!(writes[0].bytes[256..].iter().all(|&byte| byte == 0xff));
    }
}

#[test]
fn superblocks_of_0_90_become_1_0_with_the_data_where_they_were() {
    let old = CreateRequest { version: Version::V090, md_minor: 5, ..request(Level::Raid5) };
    let (superblocks, _) = made(&old);
    let writes = edits(&old, &Update::Metadata).unwrap().remove(1);
    let new = read_at(Version::V1_0, SIZE, &writes[0].bytes).unwrap();
    assert_eq!(
        (new.name(), new.role(), new.dev_number()),
        ("5".to_string(), superblocks[1].role(), 1)
    );
    assert_eq!((new.data_offset(), new.component()), (Sector(0), superblocks[1].component()));
    assert_eq!(new.set_uuid(), superblocks[1].set_uuid());
    assert!(new.ctime() > superblocks[1].ctime());
    assert_eq!(writes[1].sector, superblocks[1].super_sector());
    assert!(writes[1].bytes.iter().all(|&byte| byte == 0));
    let (mut apart, _) = made(&old);
    apart[0].set_events(9);
    assert_eq!(edits_of(&apart, None, &Update::Metadata).unwrap_err().why, Refused::Events);
}

#[test]
fn the_other_byte_order_says_the_same() {
    let bitmap = BitmapChoice::Internal;
    let set_uuid = Some(core::array::from_fn(|i| i as u8));
    let old = CreateRequest { version: Version::V090, bitmap, set_uuid, ..request(Level::Raid1) };
    let new = after(&old, &Update::ByteOrder);
    let (before, _) = made(&old);
    assert_eq!((new.byte_order(), new.set_uuid()), (ByteOrder::Big, before[0].set_uuid()));
    assert_eq!((new.events(), new.role()), (before[0].events(), before[0].role()));
    let writes = edits(&old, &Update::ByteOrder).unwrap().remove(0);
    let bits = bitmap::Superblock::parse(&writes[0].bytes).unwrap();
    assert!(bits.check_array(new.bitmap_uuid(), 0).is_ok());
}

#[test]
fn a_logical_block_holds_the_members_own() {
    let raid1 = request(Level::Raid1);
    let new = after(&raid1, &Update::LogicalBlockSize(Some(4096)));
    assert_eq!(new.logical_block_size(), Some(4096));
    let back = edits_of(&[new], None, &Update::LogicalBlockSize(None)).unwrap();
    assert_eq!(read_at(Version::V1_2, SIZE, &back[0][0].bytes).unwrap().logical_block_size(), None);
    for found in [256, 3000, 1 << 17] {
        let refused = refusal(&raid1, &Update::LogicalBlockSize(Some(found)));
        assert_eq!(refused, Refused::LogicalBlock { found });
    }
}

#[test]
fn what_has_grown_is_used_and_what_is_cut_short_is_not() {
    let (superblocks, _) = made(&request(Level::Raid1));
    let subject = |size| Subject {
        superblock: &superblocks[0],
        bitmap: None,
        size,
        block_size: 512,
        device_uuid: [9; 16],
    };
    let writes = update(&[subject(SIZE + Sectors(80))], &Update::DeviceSize).unwrap();
    let new = v1::Superblock::parse(&writes[0][0].bytes, 2, 8).unwrap();
    assert_eq!(new.data_size, SIZE.0 + 80 - new.data_offset);
    let cut = update(&[subject(Sectors(SIZE.0 / 2))], &Update::DeviceSize).unwrap_err();
    assert!(matches!(cut.why, Refused::TooSmall { .. }), "{cut}");
}

#[test]
fn a_word_of_the_other_format_is_refused() {
    let new = request(Level::Raid1);
    let old = CreateRequest { version: Version::V090, ..new.clone() };
    for what in [Update::Metadata, Update::ByteOrder, Update::SuperMinor(3)] {
        assert!(matches!(refusal(&new, &what), Refused::Version { .. }), "{what:?}");
    }
    for what in [name("x", None), Update::Bbl, Update::Ppl, Update::DeviceSize] {
        assert!(matches!(refusal(&old, &what), Refused::Version { .. }), "{what:?}");
    }
}
