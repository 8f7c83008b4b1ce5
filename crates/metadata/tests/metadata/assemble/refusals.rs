//! What is refused, and in which words.

use lapstrake_geometry::{GeometryError, Level, Sectors};
use lapstrake_metadata::assemble::{
    AssembleError, Candidate, Options, Reason, Refusal, Verdict, assemble,
};
use lapstrake_metadata::v1::{feature, role};
use lapstrake_metadata::{Superblock, Unsupported, Version, v1};

use super::model::{Array, decide, words};

fn plain(members: &[(usize, Superblock)]) -> Result<String, AssembleError> {
    decide(members, &Options::default()).map(|assembly| words(&assembly))
}

fn v1(sb: &mut Superblock) -> &mut v1::Superblock {
    let Superblock::V1(sb) = sb else { panic!("not 1.x") };
    sb
}

const RAID1: fn() -> Array = || Array::new(Version::V1_2, Level::Raid1, 2);

#[test]
fn no_candidates() {
    assert_eq!(plain(&[]), Err(AssembleError::Nothing { candidates: 0 }));
    let options = Options { name: Some("other".into()), ..Options::default() };
    let error = decide(&RAID1().members("1 1"), &options).unwrap_err();
    assert_eq!(error, AssembleError::Nothing { candidates: 2 });
    assert_eq!(error.to_string(), "none of 2 devices belongs to the array asked for");
}

#[test]
fn members_of_two_arrays() {
    let mut members = RAID1().members("1 1 1#0");
    v1(&mut members[2].1).set_uuid = *b"0123456789abcdef";
    v1(&mut members[2].1).set_name[..9].copy_from_slice(b"nas:other");
    let error = decide(&members, &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "members of 2 arrays: 07070707:07070707:07070707:07070707 \"nas:data\" (device 0, device 1); \
         30313233:34353637:38396162:63646566 \"nas:other\" (device 2). \
         Choose one with --uuid or --set-name, or give only its members"
    );
    let named = error.describe(&|id| format!("/dev/sd{}", (b'a' + id as u8) as char));
    assert!(named.contains("(/dev/sda, /dev/sdb)"), "{named}");
    // Of one name, of one that fits both, or of none: only their UUIDs tell them apart.
    for name in [b"nas:data\0", b"data\0\0\0\0\0", &[0; 9]] {
        let mut namesakes = members.clone();
        v1(&mut namesakes[2].1).set_name[..9].copy_from_slice(name);
        let error = decide(&namesakes, &Options::default()).unwrap_err().to_string();
        assert!(error.ends_with("Choose one with --uuid, or give only its members"), "{error}");
    }

    for (options, expected) in [
        (Options { uuid: Some([7; 16]), ..Options::default() }, "0 1 other: ok"),
        (Options { name: Some("data".into()), ..Options::default() }, "0 1 other: ok"),
        (Options { name: Some("nas:data".into()), ..Options::default() }, "0 1 other: ok"),
        (Options { uuid: Some(*b"0123456789abcdef"), ..Options::default() }, "other other 0: new"),
        (Options { name: Some("other".into()), ..Options::default() }, "other other 0: new"),
    ] {
        let assembly = decide(&members, &options).unwrap();
        assert_eq!(words(&assembly), expected, "{options:?}");
    }
}

#[test]
fn members_that_describe_another_array() {
    type Change = fn(&mut v1::Superblock);
    let changes: [(&str, Change); 6] = [
        ("level", |sb| sb.level = 10),
        ("layout", |sb| sb.layout = 1),
        ("chunk size", |sb| sb.chunksize = 8),
        ("raid_disks", |sb| sb.raid_disks = 3),
        ("component size", |sb| sb.size -= 8),
        ("creation time", |sb| sb.ctime += 1),
    ];
    for (name, change) in changes {
        let mut members = RAID1().members("10 10");
        change(v1(&mut members[1].1));
        let assembly = decide(&members, &Options { run: true, ..Options::default() }).unwrap();
        let Verdict::Left(Reason::Disagrees { field, .. }) = &assembly.verdicts[1].1 else {
            panic!("{name}: {:?}", assembly.verdicts)
        };
        assert_eq!(*field, name);
        assert_eq!(words(&assembly), "0 differs: ok");
    }
    let mut members = RAID1().members("10 10");
    members[1].1 = Array::new(Version::V090, Level::Raid1, 2).member(1, "10");
    let Superblock::V090(sb) = &mut members[1].1 else { unreachable!() };
    sb.set_set_uuid([7; 16]);
    let assembly = decide(&members, &Options::default()).unwrap();
    let said = assembly.verdicts[1].1.to_string();
    assert_eq!(said, "left: its metadata version is 0.90, the freshest member's 1.2");
}

#[test]
fn features_that_are_not_supported() {
    let with = |bits: u32| {
        let mut members = RAID1().members("10 10");
        members.iter_mut().for_each(|(_, sb)| v1(sb).feature_map |= bits);
        plain(&members)
    };
    for (bits, what) in [
        (feature::JOURNAL, Unsupported::Journal),
        (feature::RESHAPE_ACTIVE, Unsupported::Reshape),
        (feature::CLUSTERED, Unsupported::Clustered),
        (feature::PPL, Unsupported::Ppl),
    ] {
        assert_eq!(with(bits), Err(AssembleError::Unsupported { id: 0, what }));
    }
    for bits in [feature::BITMAP_OFFSET, feature::RESHAPE_BACKWARDS] {
        assert_eq!(with(bits).as_deref(), Ok("0 1: ok"));
    }
    // What concerns one member only.
    let mut members = RAID1().members("10 10");
    v1(&mut members[1].1).feature_map |= feature::BAD_BLOCKS;
    assert_eq!(plain(&members).as_deref(), Ok("0 1: ok"));
    let mut members = RAID1().members("10 10 99#2");
    v1(&mut members[2].1).feature_map |= feature::REPLACEMENT;
    v1(&mut members[2].1).dev_roles[2] = 1;
    // The others do not know of it.
    assert_eq!(plain(&members).as_deref(), Ok("0 1 S: ok"));
    v1(&mut members[2].1).feature_map = 0;
    v1(&mut members[2].1).dev_roles[2] = role::JOURNAL;
    assert_eq!(plain(&members).as_deref(), Ok("0 1 unwanted: ok"));
    v1(&mut members[0].1).level = -4;
    v1(&mut members[1].1).level = -4;
    let what = Unsupported::Level(-4);
    assert_eq!(plain(&members), Err(AssembleError::Unsupported { id: 0, what }));
}

#[test]
fn shapes_that_are_none() {
    let mut members = Array::new(Version::V1_2, Level::Raid5, 3).members("1 1 1");
    members.iter_mut().for_each(|(_, sb)| v1(sb).chunksize = 24);
    assert!(matches!(
        plain(&members),
        Err(AssembleError::Geometry { id: 0, error: GeometryError::ChunkNotPowerOfTwo { .. } })
    ));
    // Raid0 over members of several sizes, whose layout was not recorded.
    let mut members = Array::new(Version::V1_2, Level::Raid0, 3).members("1 1 1");
    v1(&mut members[0].1).data_size = 4096;
    assert_eq!(plain(&members).as_deref(), Ok("0 1 2: ok"));
    members.iter_mut().for_each(|(_, sb)| v1(sb).feature_map = 0);
    assert_eq!(
        plain(&members),
        Err(AssembleError::Geometry { id: 0, error: GeometryError::AmbiguousRaid0 { zones: 2 } })
    );
    let error = plain(&members).unwrap_err();
    let named = error.describe(&|id| format!("/dev/sd{}", (b'a' + id as u8) as char));
    assert!(
        named.starts_with("the array as /dev/sda describes it: RAID0 with members of 2"),
        "{named}"
    );
    // With a member missing that cannot be known yet.
    members.remove(0);
    assert_eq!(plain(&members).as_deref(), Ok("1 2: few"));
}

#[test]
fn a_member_with_less_room_than_the_array_uses() {
    let mut members = RAID1().members("10 10");
    v1(&mut members[1].1).data_size = 16376;
    let assembly = decide(&members, &Options::default()).unwrap();
    assert_eq!(words(&assembly), "0 small: new");
    assert_eq!(
        assembly.verdicts[1].1,
        Verdict::Left(Reason::TooSmall { found: Sectors(16376), needed: Sectors(16384) })
    );
}

#[test]
fn refusals_say_what_to_do() {
    let say = |level, members: &str| {
        let members = Array::new(Version::V1_2, level, 4).members(members);
        let start = decide(&members, &Options::default()).unwrap().start;
        start.unwrap_err().to_string()
    };
    assert_eq!(
        say(Level::Raid5, "9 7 5 -"),
        "1 member is in sync, at least 3 are needed; slots 1, 2 and 3 are lacking. Add the \
         missing members, or use --force to take the best of the out-of-date ones: what was \
         written since they left may be lost"
    );
    assert_eq!(
        say(Level::Raid0, "9 9 9 -"),
        "3 members are in sync, at least 4 are needed; slot 3 is lacking. \
         Add the missing members"
    );
    assert_eq!(
        say(Level::Raid10, "- - 9 9"),
        "2 members are in sync, which could do, but slots 0 and 1, which are lacking, hold every copy \
         of some blocks. Add the missing members"
    );
    assert_eq!(
        say(Level::Raid5, "9d!1 - 9d!1 9d!1"),
        "the array was not stopped cleanly, or its resync had not ended, and no member of slot 1 is \
         whole: parity that may be out of date cannot stand in for data. Add members that were \
         whole, or use --force to take the parity as it is: data may be wrong in stripes that were \
         being written, or that the resync had not come to"
    );
    assert_eq!(
        say(Level::Raid5, "9!1 - 8d!1 9!1"),
        "not every member was stopped cleanly, and the array lacks slot 1, but the freshest \
         member and the parity at hand suffice. Use --degraded to start"
    );
    assert_eq!(
        say(Level::Raid6, "9 - 9 -"),
        "2 members are found of 4 that were there when the array was last in use; \
         slots 1 and 3 are empty. Add the missing ones, or use --degraded to start without"
    );
    assert_eq!(
        say(Level::Raid5, "9 9 9 9 9#2"),
        "device 2 and device 4 both claim slot 2, and are equally fresh. Leave one of them out"
    );
}

#[test]
fn reasons_have_numbers() {
    let say = |members: &str| {
        let members = RAID1().members(members);
        let assembly = decide(&members, &Options::default()).unwrap();
        assembly.verdicts.last().unwrap().1.to_string()
    };
    assert_eq!(say("9 9"), "taken for slot 1");
    assert_eq!(say("9 9r64"), "taken for slot 1, under recovery: done up to sector 64");
    assert_eq!(say("9 9 3s"), "taken as a spare");
    assert_eq!(say("9 4"), "left: it is out of date: it has seen 4 events, the freshest member 9");
    assert_eq!(
        say("9 8!0"),
        "left: it reports device 0 in slot 0, the freshest member, as failed: \
         it belongs to the other part of an array that was split"
    );
    assert_eq!(say("9!1 8"), "left: device 0, as fresh or fresher, calls it failed");
    assert_eq!(say("9 9x"), "left: it failed, as its own superblock says");
    assert_eq!(say("9 9 8#1"), "left: it is the same member as device 1, or a copy");
}

/// Whatever superblocks come together, there is a decision; its invariants are checked in
/// `decide`.
#[test]
fn any_mixture_is_decided() {
    use proptest::prelude::*;
    let level = proptest::sample::select(Level::ALL.to_vec());
    let member = (0u64..4, 0u32..6, any::<u8>(), prop::collection::vec(0u8..8, 8));
    let case =
        (level, 1u16..6, any::<bool>(), prop::collection::vec(member, 1..7), any::<[bool; 2]>());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((level, raid_disks, old, members, [run, force]) in case)| {
        let version = if old { Version::V090 } else { Version::V1_2 };
        let array = Array::new(version, level, raid_disks);
        let made: Vec<_> = members.iter().enumerate().map(|(id, (events, number, marks, roles))| {
            let mut sb = array.member(id, &format!("{events}#{number}"));
            for (number, role) in roles.iter().enumerate() {
                use lapstrake_metadata::Role;
                let role = match role {
                    0 => Role::Faulty,
                    1 => Role::Spare,
                    slot => Role::Active(lapstrake_geometry::Slot((slot - 2).into())),
                };
                if marks & 1 == 0 {
                    continue;
                }
                if role != Role::Spare || (number as u16) < raid_disks {
                    sb.set_role_of(number as u32, role);
                }
            }
            if marks & 2 != 0 {
                sb.set_clean(false);
            }
            if marks & 12 == 12 {
                sb.set_recovery_offset(Some(lapstrake_geometry::Sector(64)));
            }
            if let (Superblock::V1(sb), true) = (&mut sb, marks & 16 != 0) {
                sb.device_uuid = [id as u8; 16];
            }
            (id, sb)
        }).collect();
        let options = Options { run, force, ..Options::default() };
        let candidates: Vec<_> =
            made.iter().map(|(id, superblock)| Candidate { id: *id, superblock }).collect();
        let _: Option<Refusal> = match assemble(&candidates, &options) {
            Ok(_) => decide(&made, &options).unwrap().start.err(),
            Err(AssembleError::Geometry { .. }) => None,
            Err(other) => panic!("{other}"),
        };
    });
}

#[test]
fn halves_of_as_many_events_are_refused_whatever_their_order() {
    let raid6 = Array::new(Version::V1_2, Level::Raid6, 4);
    let members = raid6.members("5!2!3 5!2!3 5!0!1 5!0!1");
    let turned: Vec<_> = members.iter().rev().cloned().collect();
    let of = |prefer| Options { run: true, prefer, ..Options::default() };
    for members in [&members, &turned] {
        let start = decide(members, &of(None)).unwrap().start;
        let Err(Refusal::Split { mut parts, events: 5 }) = start else { panic!("{start:?}") };
        parts.iter_mut().for_each(|part| part.sort());
        parts.sort();
        assert_eq!(parts, [[0, 1], [2, 3]]);
        for (prefer, taken) in [(0, [0, 1]), (3, [2, 3])] {
            let assembly = decide(members, &of(Some(prefer))).unwrap();
            assert_eq!(assembly.start, Ok(()));
            assert_eq!(assembly.members.iter().flatten().collect::<Vec<_>>(), taken.each_ref());
        }
    }
}

#[test]
fn a_preferred_member_of_the_older_half_is_refused_with_both_event_counts() {
    let raid6 = Array::new(Version::V1_2, Level::Raid6, 4);
    for ahead in ["5!2!3 5!2!3 6!0!1 6!0!1", "5!2!3 5!2!3 9!0!1 9!0!1"] {
        let members = raid6.members(ahead);
        let of = |prefer| Options { run: true, prefer, ..Options::default() };
        let other = decide(&members, &of(Some(3))).unwrap();
        assert_eq!((other.start, other.members), (Ok(()), vec![None, None, Some(2), Some(3)]));
        let refused = decide(&members, &of(Some(0))).unwrap().start.unwrap_err();
        let Refusal::NotPreferred { id: 0, events: 5, freshest_events, ref taken, .. } = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(taken, &[2, 3]);
        let told = refused.to_string();
        assert!(
            told.contains(&format!("seen 5 events, device 2, the freshest, {freshest_events}")),
            "{told}"
        );
        assert!(
            told.contains("leave out the members of the other, device 2 and device 3"),
            "{told}"
        );
        assert_eq!(decide(&members[..2], &of(Some(0))).unwrap().start, Ok(()), "as it says");
    }
}
