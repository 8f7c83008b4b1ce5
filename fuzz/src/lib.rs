//! What several targets do with a superblock that was found sound.

use lapstrake_geometry::{Sector, Sectors, Slot};
use lapstrake_metadata::{Device, Role, Superblock, read_at};

/// Asks everything of `superblock`, changes what a running array changes, and demands that the
/// bytes lead back to the value.
pub fn exercise(superblock: &Superblock, device: Sectors) {
    ask(superblock);
    if let Some(reshape) = superblock.reshape() {
        ask(&reshape.before);
        ask(&reshape.after);
        let _ = reshape.position.bytes();
    }
    let again = |superblock: &Superblock| {
        let bytes = superblock.encode();
        let read = read_at(superblock.version(), device, &bytes).expect("was sound");
        assert_eq!(read.encode(), bytes);
        read
    };
    let mut changed = again(superblock);
    ask(&changed);
    changed.set_events(changed.events().wrapping_add(1));
    changed.set_utime(u64::MAX);
    changed.set_resync_offset(Some(Sector(40)));
    changed.set_events(9);
    let end = match &changed {
        Superblock::V1(_) => changed.sync_size(),
        Superblock::V090(_) => Sectors(40),
    };
    assert_eq!(again(&changed).resync_offset(), Some(Sector(end.0.min(40))));
    changed.set_clean(true);
    assert!(again(&changed).clean());
    changed.set_clean(false);
    assert!(!again(&changed).clean() && changed.resync_offset() == Some(Sector(0)));
    changed.set_recovery_offset(Some(Sector(56)));
    changed.set_has_bad_blocks(true);
    let own = changed.dev_number();
    for role in [Role::Active(Slot(0)), Role::Spare, Role::Faulty] {
        changed.set_role_of(own, role);
        assert_eq!(again(&changed).role(), role);
    }
    change_the_rest(again(&changed));
    let device = |role| Device { number: own, role, in_sync: true };
    changed.set_roles(&[device(Role::Active(Slot(0)))], 0);
    assert_eq!(again(&changed).role(), Role::Active(Slot(0)));
}

/// Each on a value of its own: not every two of them go together.
fn change_the_rest(superblock: Superblock) {
    let changes: [fn(&mut Superblock); 8] = [
        |sb| sb.set_replacement(true),
        |sb| sb.set_replacement(false),
        |sb| sb.set_bitmap_offset(Some(8)),
        |sb| sb.set_bitmap_offset(None),
        Superblock::mark_ppl,
        |sb| sb.add_corrected(Sectors(u64::MAX)),
        |sb| sb.set_journal_tail(u64::MAX),
        Superblock::give_up_journal,
    ];
    for change in changes {
        let mut changed = superblock.clone();
        change(&mut changed);
        ask(&changed);
        assert_eq!(changed.encode().len(), superblock.encode().len());
    }
}

fn ask(superblock: &Superblock) {
    let _ = (superblock.version(), superblock.level(), superblock.layout(), superblock.chunk());
    let _ = (superblock.raid_disks(), superblock.component(), superblock.set_uuid());
    let _ = (superblock.bitmap_uuid(), superblock.name(), superblock.ctime(), superblock.utime());
    let _ = (superblock.unsupported(), superblock.events(), superblock.clean());
    let _ = (superblock.resync_offset(), superblock.recovery_offset(), superblock.device_uuid());
    let _ = (superblock.role(), superblock.role_of(u32::MAX), superblock.dev_of_slot(Slot(0)));
    let _ = (superblock.write_mostly(), superblock.data_offset(), superblock.data_size());
    let _ = (superblock.super_sector(), superblock.bitmap_sector(), superblock.badblock_log());
    let _ = (superblock.bitmap_room(), superblock.bitmap_offset(), superblock.byte_order());
    let _ = (superblock.level_md(), superblock.layout_md(), superblock.sync_size());
    let _ = (superblock.has_journal(), superblock.journal_tail(), superblock.is_replacement());
    let _ = (superblock.dev_number(), superblock.devices_max(), superblock.table_len());
    let _ = (superblock.has_ppl(), superblock.ppl(), superblock.has_bad_blocks());
    let _ = superblock.badblock_shift();
    // Questions about every device that there may be.
    for number in 0..superblock.devices_max().min(superblock.table_len().saturating_add(1)) {
        let _ = superblock.role_of(number);
    }
}
