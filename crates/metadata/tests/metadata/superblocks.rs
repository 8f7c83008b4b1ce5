//! Superblocks: bytes to values and back, both ways, and no bytes that make a parser panic.

use lapstrake_geometry::{Layout, Level, Raid0Layout, Sector, Sectors, Slot};
use lapstrake_metadata::v1::{self, feature};
use lapstrake_metadata::{
    ByteOrder, MAGIC, ReshapeRecord, Role, Superblock, SuperblockError, Unsupported, Version,
    read_at, v090,
};
use proptest::prelude::*;

const DEVICE: Sectors = Sectors(1 << 33);

/// Random bytes with what a parser insists on put right.
fn sound_v1(mut bytes: Vec<u8>, version: Version, roles: u16) -> Vec<u8> {
    let at = version.superblock(DEVICE).unwrap().0;
    let len = 256 + 2 * usize::from(roles);
    bytes.resize(len, 0xff);
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\xfc\x4e\x2b\xa9\x01\0\0\0");
    put(8, &[bytes_feature(), 0, 0, 0]);
    put(72, &5i32.to_le_bytes());
    put(92, &7u32.to_le_bytes());
    put(128, &2048u64.to_le_bytes());
    put(136, &20_000u64.to_le_bytes());
    put(144, &at.to_le_bytes());
    put(160, &3u32.to_le_bytes());
    put(220, &u32::from(roles).to_le_bytes());
    let sum = v1::checksum(&bytes);
    bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    bytes.resize(len.next_multiple_of(512), 0xff);
    bytes
}

fn bytes_feature() -> u8 {
    (feature::BITMAP_OFFSET | feature::RECOVERY_OFFSET | feature::BAD_BLOCKS) as u8
}

fn v1_version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V1_0), Just(Version::V1_1), Just(Version::V1_2)]
}

fn word(value: u32, order: ByteOrder) -> [u8; 4] {
    match order {
        ByteOrder::Little => value.to_le_bytes(),
        ByteOrder::Big => value.to_be_bytes(),
    }
}

fn sound_v090(mut bytes: Vec<u8>, order: ByteOrder) -> Vec<u8> {
    bytes.resize(4096, 0);
    for (at, value) in [(0, MAGIC), (1, 0), (2, 90), (9, 6), (10, 5), (992, 4)] {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word(value, order));
    }
    let sum = v090::checksum(bytes[..4096].try_into().unwrap(), order);
    bytes[152..156].copy_from_slice(&word(sum, order));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn sound_1x_bytes_lead_back_to_themselves(
        bytes in prop::collection::vec(any::<u8>(), 4096),
        version in v1_version(),
        roles in 0..=v1::MAX_DEV as u16,
    ) {
        let bytes = sound_v1(bytes, version, roles);
        let superblock = read_at(version, DEVICE, &bytes).unwrap();
        prop_assert_eq!(superblock.version(), version);
        prop_assert_eq!(superblock.encode(), bytes);
    }

    #[test]
    fn sound_090_bytes_lead_back_to_themselves_in_both_orders(
        bytes in prop::collection::vec(any::<u8>(), 4096),
        order in prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)],
    ) {
        let bytes = sound_v090(bytes, order);
        let superblock = read_at(Version::V090, DEVICE, &bytes).unwrap();
        prop_assert_eq!(superblock.raid_disks(), 5);
        prop_assert_eq!(superblock.encode(), bytes);
    }

    #[test]
    fn a_damaged_byte_is_noticed(
        bytes in prop::collection::vec(any::<u8>(), 4096),
        version in v1_version(),
        at in 0usize..256 + 200,
        bits in 1u8..,
    ) {
        let mut bytes = sound_v1(bytes, version, 100);
        bytes[at] ^= bits;
        prop_assert!(read_at(version, DEVICE, &bytes).is_err());
    }

    #[test]
    fn no_bytes_and_no_size_make_a_parser_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..5000),
        size in any::<u64>(),
        small in 0u64..300,
    ) {
        for size in [size, small, size >> 20] {
            for version in Version::ALL {
                let _ = read_at(version, Sectors(size), &bytes);
            }
        }
    }

    #[test]
    fn a_cut_superblock_is_an_error(cut in 0usize..456, version in v1_version()) {
        let bytes = sound_v1(vec![7; 512], version, 100);
        let err = read_at(version, DEVICE, &bytes[..cut]).unwrap_err();
        let is_truncated = matches!(err, SuperblockError::Truncated { .. });
        prop_assert!(is_truncated);
    }
}

fn v1_with(change: impl FnOnce(&mut v1::Superblock)) -> Superblock {
    let bytes = sound_v1(vec![0; 4096], Version::V1_2, 128);
    let Ok(Superblock::V1(mut sb)) = read_at(Version::V1_2, DEVICE, &bytes) else { panic!() };
    sb.feature_map = 0;
    (sb.layout, sb.dev_roles) = (2, vec![v1::role::SPARE; 128]);
    change(&mut sb);
    read_at(Version::V1_2, DEVICE, &sb.encode()).unwrap()
}

fn v090_with(change: impl FnOnce(&mut v090::Superblock)) -> Superblock {
    let bytes = sound_v090(vec![0; 4096], ByteOrder::Little);
    let Ok(Superblock::V090(mut sb)) = read_at(Version::V090, DEVICE, &bytes) else { panic!() };
    (sb.level, sb.layout) = (5, 2);
    change(&mut sb);
    read_at(Version::V090, DEVICE, &sb.encode()).unwrap()
}

#[test]
fn the_kernels_refusals_are_errors() {
    let refused = |change: fn(&mut v1::Superblock)| {
        let Superblock::V1(mut sb) = v1_with(|_| {}) else { unreachable!() };
        change(&mut sb);
        read_at(Version::V1_2, DEVICE, &sb.encode()).unwrap_err()
    };
    assert_eq!(
        refused(|sb| sb.super_offset = 9),
        SuperblockError::SuperOffset { stored: 9, at: 8 }
    );
    assert_eq!(refused(|sb| sb.data_size = 9), SuperblockError::DataSize { found: 9 });
    assert_eq!(
        refused(|sb| sb.data_size = DEVICE.0 - 2047),
        SuperblockError::CutShort { found: DEVICE.0 - 2047, room: DEVICE.0 - 2048 }
    );
    let Superblock::V1(mut sb) = v1_with(|_| {}) else { unreachable!() };
    let end = Version::V1_0.superblock(DEVICE).unwrap().0;
    (sb.minor_version, sb.super_offset, sb.data_offset) = (0, end, 1 << 55);
    assert_eq!(
        read_at(Version::V1_0, DEVICE, &sb.encode()).unwrap_err(),
        SuperblockError::DataOffset { found: 1 << 55 }
    );
    assert_eq!(refused(|sb| sb.data_offset = 8), SuperblockError::DataOffset { found: 8 });
    assert_eq!(refused(|sb| sb.dev_number = 1920), SuperblockError::DevNumber { found: 1920 });
    for bits in [feature::PPL | feature::JOURNAL, feature::PPL | feature::BITMAP_OFFSET] {
        let Superblock::V1(mut sb) = v1_with(|_| {}) else { unreachable!() };
        sb.feature_map = bits;
        let err = read_at(Version::V1_2, DEVICE, &sb.encode()).unwrap_err();
        assert_eq!(err, SuperblockError::FeatureConflict { feature_map: bits });
    }
}

#[test]
fn features_that_are_not_supported_are_named() {
    let of = |bits| v1_with(|sb| sb.feature_map = bits).unsupported();
    assert_eq!(of(0), None);
    assert_eq!(of(feature::BITMAP_OFFSET | feature::RECOVERY_OFFSET), None);
    assert_eq!(of(feature::BAD_BLOCKS), None);
    assert_eq!(of(feature::JOURNAL), None);
    let both = feature::JOURNAL | feature::BITMAP_OFFSET;
    assert_eq!(of(both), Some(Unsupported::Journal));
    let raid1 = v1_with(|sb| (sb.level, sb.feature_map) = (1, feature::JOURNAL));
    assert_eq!(raid1.unsupported(), Some(Unsupported::Journal));
    assert_eq!(of(feature::PPL), Some(Unsupported::Ppl));
    assert_eq!(of(feature::MULTIPLE_PPLS), Some(Unsupported::Ppl));
    assert_eq!(of(feature::RESHAPE_ACTIVE), Some(Unsupported::Reshape));
    assert_eq!(of(feature::CLUSTERED), Some(Unsupported::Clustered));
    let replacement = feature::REPLACEMENT | feature::RECOVERY_OFFSET;
    assert_eq!(of(replacement), None);
    assert_eq!(v1_with(|sb| sb.level = -4).unsupported(), Some(Unsupported::Level(-4)));
    assert_eq!(v1_with(|sb| sb.layout = 9).unsupported(), Some(Unsupported::Layout(9)));
    assert_eq!(v090_with(|sb| sb.minor_version = 91).unsupported(), Some(Unsupported::Reshape));
    let from_none = |sb: &mut v1::Superblock| {
        (sb.feature_map, sb.delta_disks) = (feature::RESHAPE_ACTIVE, sb.raid_disks as i32);
    };
    assert_eq!(v1_with(from_none).unsupported(), Some(Unsupported::ReshapeFields));
    assert_eq!(of(feature::NEW_OFFSET), Some(Unsupported::ReshapeFields));
}

#[test]
fn a_reshape_is_two_arrays() {
    let growing = v1_with(|sb| {
        sb.feature_map = feature::RESHAPE_ACTIVE | feature::NEW_OFFSET | feature::BITMAP_OFFSET;
        (sb.delta_disks, sb.reshape_position, sb.new_offset) = (2, 1000, -512);
        (sb.new_level, sb.new_layout, sb.new_chunk) = (6, 8, 256);
        let slots = (0..sb.raid_disks as u16).chain([v1::role::SPARE, 0x8003]);
        sb.dev_roles = slots.collect();
        sb.max_dev = sb.dev_roles.len() as u32;
    });
    let found = growing.reshape().unwrap();
    let disks = growing.raid_disks();
    assert_eq!((found.position, found.is_backwards), (Sector(1000), false));
    assert_eq!((found.before.raid_disks(), found.after.raid_disks()), (disks - 2, disks));
    assert_eq!((found.before.level_md(), found.after.level_md()), (growing.level_md(), 6));
    assert_eq!((found.after.layout_md(), found.after.chunk()), (8, Sectors(256)));
    assert_eq!(found.before.data_offset(), growing.data_offset());
    assert_eq!(found.after.data_offset() + Sectors(512), growing.data_offset());
    let new = u32::from(disks) - 1;
    assert_eq!(found.before.role_of(new), Role::Spare);
    assert_eq!(found.after.role_of(new), Role::Active(Slot(disks - 1)));
    for one in [&found.before, &found.after] {
        assert_eq!((one.unsupported(), one.bitmap_sector(), one.reshape()), (None, None, None));
        assert_eq!(one.role_of(u32::from(disks) + 1), Role::Unknown(0x8003), "it may be a member");
    }

    let record = ReshapeRecord {
        before: &found.before,
        data_before: Some((growing.data_offset(), growing.data_size())),
        position: found.position,
        is_backwards: false,
        lacking: &[],
    };
    let mut without_bitmap = growing.clone();
    without_bitmap.set_bitmap_offset(None);
    assert_eq!(found.after.in_reshape(&record), without_bitmap);

    let shrinking = v1_with(|sb| {
        (sb.feature_map, sb.delta_disks) = (feature::RESHAPE_ACTIVE, -1);
        (sb.new_level, sb.new_layout, sb.new_chunk) = (sb.level, sb.layout, sb.chunksize);
        sb.dev_roles = (0..=sb.raid_disks as u16).collect();
        sb.max_dev = sb.dev_roles.len() as u32;
    });
    let found = shrinking.reshape().unwrap();
    let leaving = u32::from(found.after.raid_disks());
    assert!(found.is_backwards);
    assert_eq!(found.before.role_of(leaving), Role::Active(Slot(leaving as u16)));
    assert_eq!(found.after.role_of(leaving), Role::Spare);
}

/// As Linux has a RAID0 that grows: its new member holds as much as the reshape has written, and nothing of before.
#[test]
fn a_member_that_a_reshape_fills_is_whole_as_far_as_that_has_come() {
    for (recovered, is_whole) in [(992, false), (1000, true), (4000, true)] {
        let growing = v1_with(|sb| {
            sb.feature_map = feature::RESHAPE_ACTIVE | feature::RECOVERY_OFFSET;
            (sb.level, sb.new_level, sb.raid_disks) = (4, 4, 4);
            (sb.delta_disks, sb.reshape_position) = (1, 3000);
            (sb.new_layout, sb.new_chunk) = (sb.layout, sb.chunksize);
            sb.recovery_offset = recovered;
        });
        let found = growing.reshape().unwrap();
        assert_eq!(found.before.recovery_offset(), Some(Sector(0)), "{recovered}");
        let after = found.after.recovery_offset();
        assert_eq!(after, Some(Sector(recovered)).filter(|_| !is_whole), "{recovered}");
    }
}

#[test]
fn what_no_kernel_knows_is_named_and_kept() {
    let of = |change: fn(&mut v1::Superblock)| {
        let superblock = v1_with(change);
        let again = read_at(Version::V1_2, DEVICE, &superblock.encode()).unwrap();
        let Superblock::V1(mut sb) = again.clone() else { unreachable!() };
        let Superblock::V1(found) = &superblock else { unreachable!() };
        sb.sb_csum = found.sb_csum;
        assert_eq!(&sb, found, "nothing unknown is lost when it is written anew");
        again.unsupported()
    };
    assert_eq!(of(|sb| sb.feature_map = 1 << 13), Some(Unsupported::UnknownFeatures(1 << 13)));
    let bytes = |count, first| Some(Unsupported::UnknownBytes { count, first });
    assert_eq!(of(|sb| sb.pad0 = 0x0100_0000), bytes(1, 15));
    assert_eq!(of(|sb| (sb.pad3[0], sb.pad3[27]) = (2, 3)), bytes(2, 228));
    for size in [1, 256, 513, 4096 + 512, 1 << 17] {
        let mut superblock = v1_with(|_| {});
        let Superblock::V1(sb) = &mut superblock else { unreachable!() };
        sb.logical_block_size = size;
        assert_eq!(superblock.unsupported(), Some(Unsupported::LogicalBlockSize(size)));
    }
    // What is known to be beyond us is said first: no option passes over that.
    let both = of(|sb| sb.feature_map = feature::RESHAPE_ACTIVE | 1 << 20);
    assert_eq!(both, Some(Unsupported::Reshape));
}

#[test]
fn a_checkpoint_of_less_than_a_block_is_none() {
    // What Linux 7.2 writes where a sync is stopped before its first sector.
    let superblock = v1_with(|sb| {
        (sb.feature_map, sb.recovery_offset, sb.resync_offset) = (feature::RECOVERY_OFFSET, 3, 3);
    });
    assert_eq!(superblock.recovery_offset(), Some(Sector(0)));
    assert_eq!(superblock.resync_offset(), Some(Sector(0)));
}

#[test]
fn a_checkpoint_beyond_the_data_is_its_end() {
    let superblock = v1_with(|sb| {
        (sb.feature_map, sb.recovery_offset) = (feature::RECOVERY_OFFSET, v1::MAX_SECTOR - 8);
        sb.resync_offset = v1::MAX_SECTOR - 8;
    });
    assert_eq!(superblock.recovery_offset(), Some(Sector(superblock.data_size().0)));
    assert_eq!(superblock.resync_offset(), Some(Sector(superblock.sync_size().0)));
}

/// What Linux leaves where it is cut off between the end of a recovery and the member's being in sync on record; Linux 7.2
/// with a lockless bitmap leaves it so until the next change. What would be lost: an array that was being written then,
/// which would not start without force.
#[test]
fn a_member_that_was_recovered_as_a_whole_is_in_sync() {
    let superblock = v1_with(|sb| {
        (sb.feature_map, sb.recovery_offset) = (feature::RECOVERY_OFFSET, v1::MAX_SECTOR);
    });
    assert_eq!(superblock.recovery_offset(), None);
}

#[test]
fn a_role_that_md_does_not_write_is_no_spares() {
    let of = |word| v1_with(|sb| (sb.dev_number, sb.dev_roles[1]) = (1, word)).role();
    assert_eq!(of(v1::role::SPARE), Role::Spare);
    assert_eq!(of(6), Role::Active(Slot(6)));
    for (word, slot) in [(7, None), (0x8001, Some(1)), (0x8007, None), (0xff00, None)] {
        assert_eq!((of(word), of(word).perhaps(7)), (Role::Unknown(word), slot.map(Slot)));
    }
    let mut kept = v1_with(|sb| sb.dev_roles[1] = 0x8001);
    kept.set_role_of(2, Role::Faulty);
    assert_eq!(kept.role_of(1), Role::Unknown(0x8001));
}

#[test]
fn a_logical_block_size_that_a_kernel_records_is_sound() {
    assert_eq!(v1_with(|_| {}).logical_block_size(), None);
    for size in [512, 1024, 2048, 4096, 16384, 65536] {
        let mut superblock = v1_with(|_| {});
        let Superblock::V1(sb) = &mut superblock else { unreachable!() };
        sb.logical_block_size = size;
        let read = read_at(Version::V1_2, DEVICE, &superblock.encode()).unwrap();
        assert_eq!((read.unsupported(), read.logical_block_size()), (None, Some(size)));
        assert_eq!(superblock.encode()[224..228], size.to_le_bytes());
    }
}

#[test]
fn a_raid0_has_a_layout_only_with_the_feature() {
    let of = |bits| {
        let superblock = v1_with(|sb| (sb.level, sb.layout, sb.feature_map) = (0, 2, bits));
        superblock.layout()
    };
    assert_eq!(of(0), Some(Layout::Raid0(Raid0Layout::Unset)));
    assert_eq!(of(feature::RAID0_LAYOUT), Some(Layout::Raid0(Raid0Layout::Alternate)));
    assert_eq!(v090_with(|_| {}).level(), Some(Level::Raid5));
}

#[test]
fn a_dirty_array_is_out_of_sync_from_its_start() {
    for mut superblock in [v1_with(|sb| sb.size = 8192), v090_with(|_| {})] {
        superblock.set_events(41);
        superblock.set_clean(false);
        assert_eq!((superblock.clean(), superblock.resync_offset()), (false, Some(Sector(0))));
        superblock.set_resync_offset(Some(Sector(4096)));
        assert_eq!((superblock.clean(), superblock.resync_offset()), (false, Some(Sector(4096))));
        // The checkpoint goes on to count when the events move, in 0.90 by its own count.
        superblock.set_events(42);
        assert_eq!(superblock.resync_offset(), Some(Sector(4096)));
        superblock.set_clean(true);
        assert_eq!((superblock.clean(), superblock.resync_offset()), (true, None));
    }
    let stale = v090_with(|sb| (sb.events, sb.cp_events, sb.recovery_cp) = (7, 6, 4096));
    assert_eq!(stale.resync_offset(), Some(Sector(0)));
}

#[test]
fn a_failed_member_leaves_its_slot() {
    let mut superblock = v1_with(|sb| sb.dev_roles[..3].copy_from_slice(&[0, 1, 2]));
    assert_eq!(superblock.dev_of_slot(Slot(1)), Some(1));
    superblock.set_role_of(1, Role::Faulty);
    assert_eq!((superblock.role_of(1), superblock.dev_of_slot(Slot(1))), (Role::Faulty, None));
    superblock.set_role_of(200, Role::Active(Slot(1)));
    let again = read_at(Version::V1_2, DEVICE, &superblock.encode()).unwrap();
    assert_eq!(again.encode(), superblock.encode());
    assert_eq!((again.table_len(), again.dev_of_slot(Slot(1))), (201, Some(200)));

    let mut superblock = v090_with(|sb| {
        for number in 0..5 {
            let (raid_disk, state) = (number, v090::disk_state::ACTIVE | v090::disk_state::SYNC);
            sb.disks[number as usize] = v090::Disk { number, raid_disk, state, ..sb.disks[0] };
        }
        sb.this_disk = sb.disks[4];
    });
    superblock.set_role_of(2, Role::Faulty);
    let Superblock::V090(sb) = &superblock else { unreachable!() };
    assert_eq!((sb.nr_disks, sb.active_disks, sb.working_disks), (4, 4, 4));
    assert_eq!((sb.failed_disks, sb.spare_disks), (1, 0));
    assert_eq!(superblock.role_of(2), Role::Faulty);
    assert_eq!(superblock.role(), Role::Active(Slot(4)));
}

#[test]
fn a_log_with_entries_is_given_up_for_a_lockless_bitmap_only() {
    let bytes = sound_v1(vec![0; 256], Version::V1_2, 4);
    let Superblock::V1(mut sb) = read_at(Version::V1_2, DEVICE, &bytes).unwrap() else {
        panic!("1.2")
    };
    // The bitmap begins 8 sectors behind the superblock, and its one page is rounded up over the log.
    (sb.bitmap_offset, sb.bblog_offset, sb.bblog_size, sb.bblog_shift) = (8, 10, 8, 0);
    let bitmap = lapstrake_metadata::bitmap::Superblock::new([7; 16], Sectors(2048), 65536);
    let lockless =
        lapstrake_metadata::bitmap::Superblock::new_lockless([7; 16], Sectors(2048), true);
    for (has_entries, over_others) in [(true, false), (false, true)] {
        let mut of = Superblock::V1(sb.clone());
        of.set_has_bad_blocks(has_entries);
        assert_eq!(of.is_log_given_up_for(&bitmap), over_others);
        assert!(of.is_log_given_up_for(&lockless));
    }
    sb.bblog_offset = 16;
    assert!(!Superblock::V1(sb).is_log_given_up_for(&bitmap), "it lies behind the page");
}
