//! The promise: recovery, resync and repair bring redundancy back under whatever load, and the
//! load sees none of it; a check counts what differs and says who is wrong.

use crate::world::{self, Rng, World, draw};
use lapstrake_engine::*;
use lapstrake_geometry::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An array with redundancy.
fn config(rng: &mut Rng) -> Config {
    loop {
        let config = draw::config(rng);
        if config.level.has_redundancy() {
            return config;
        }
    }
}

/// Goes over the whole array in pieces, in any order, while requests come.
fn sync_under_load(world: &mut World, action: SyncAction) {
    let (total, unit) = (world.sectors(), world.sync_unit());
    let mut starts: Vec<u64> = (0..total.div_ceil(unit)).map(|i| i * unit).collect();
    let mut sequential = 0;
    while !starts.is_empty() {
        for _ in 0..world.rng.below(3) {
            draw::send_any(world, &mut sequential);
        }
        let at = world.rng.below(starts.len() as u64) as usize;
        let start = starts.swap_remove(at);
        world.sync(action, start, unit.min(total - start));
        for _ in 0..world.rng.below(40) {
            world.step();
        }
    }
    world.settle();
    assert!(world.shard.is_sync_idle());
    assert!(world.reports.iter().all(|report| report.ok));
}

fn load(world: &mut World, sequential: &mut u64) {
    for _ in 0..20 {
        draw::send_any(world, sequential);
        for _ in 0..world.rng.below(20) {
            world.step();
        }
    }
    world.settle();
}

fn recovers(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let config = config(&mut rng);
    let geometry = Geometry::new(&config).expect("valid");
    let mut lost: Vec<u16> = Vec::new();
    for _ in 0..1 + rng.below(2) {
        let slot = rng.below(u64::from(config.raid_disks)) as u16;
        let survives = geometry.survives(|s| s.0 != slot && !lost.contains(&s.0));
        if survives && !lost.contains(&slot) {
            lost.push(slot);
        }
    }
    let mut world = World::with(&config, rng.next(), &lost, true);
    sync_under_load(&mut world, SyncAction::Recovery);
    world.end_sync(&lost);
    load(&mut world, &mut 0);
    world.check_contents();
    world.check_redundancy();
    assert_eq!(world.errors, 0);
}

fn resyncs(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let config = config(&mut rng);
    let mut world = World::with(&config, rng.next(), &[], false);
    sync_under_load(&mut world, SyncAction::Resync);
    world.end_sync(&[]);
    load(&mut world, &mut 0);
    world.check_contents();
    world.check_redundancy();
    assert_eq!(world.errors, 0);
}

/// An array one member of which has sectors that cannot be read.
fn with_unreadable(seed: u64) -> (World, u16) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let config = config(&mut rng);
    let mut world = World::new(&config, rng.next());
    load(&mut world, &mut 0);
    let member = rng.below(u64::from(config.raid_disks)) as u16;
    for _ in 0..1 + rng.below(40) {
        let sector = world::DATA_OFFSET + rng.below(world.geometry.component().0);
        world.unreadable.insert((member, sector));
    }
    (world, member)
}

fn rewrites(seed: u64) {
    let (mut world, member) = with_unreadable(seed);
    load(&mut world, &mut 0);
    world.check_contents();
    world.check_redundancy();
    assert_eq!(world.errors, 0);
    assert!(!world.shard.has_failed(MemberId(member)), "a member fails for what can be mended");
    let total = world.sectors();
    for _ in 0..2 {
        world.sync(SyncAction::Check, 0, total);
        world.settle();
    }
    assert!(world.reports.iter().all(|report| report.ok && report.mismatch_sectors == 0));
    let used = |&(slot, at): &(u16, u64)| {
        let at = Sector(at - world::DATA_OFFSET);
        world.geometry.content(Slot(slot), at) != Content::Unused
    };
    assert!(!world.unreadable.iter().any(used), "a check reads, and so mends, everything");
}

fn drops(seed: u64) {
    let (mut world, member) = with_unreadable(seed);
    world.worn.insert(member);
    world.log_is_full = true;
    let used = |&(slot, at): &(u16, u64)| {
        let at = Sector(at - world::DATA_OFFSET);
        world.geometry.content(Slot(slot), at) != Content::Unused
    };
    let any = world.unreadable.iter().any(used);
    let total = world.sectors();
    world.sync(SyncAction::Check, 0, total);
    world.settle();
    assert_eq!(world.shard.has_failed(MemberId(member)), any);
    world.dead.insert(member);
    world.check_contents();
    assert_eq!(world.errors, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn recovery_under_load_gives_members_what_they_lack(seed: u64) {
        recovers(seed);
    }

    #[test]
    fn resync_under_load_makes_redundancy_right(seed: u64) {
        resyncs(seed);
    }

    #[test]
    fn what_cannot_be_read_is_written_anew_and_nobody_sees_it(seed: u64) {
        rewrites(seed);
    }

    #[test]
    fn a_member_that_cannot_be_mended_is_used_no_more(seed: u64) {
        drops(seed);
    }
}

fn array(level: Level, raid_disks: u16, layout: u32) -> World {
    array_with(level, raid_disks, layout, &[])
}

fn array_with(level: Level, raid_disks: u16, layout: u32, recovering: &[u16]) -> World {
    let config = Config {
        level,
        layout: Layout::from_md(level, layout).expect("a layout"),
        chunk: if level == Level::Raid1 { Sectors(0) } else { Sectors(64) },
        raid_disks,
        component: Sectors(256),
        member_sizes: Vec::new(),
    };
    let mut world = World::with(&config, 5, recovering, true);
    let total = world.sectors();
    world.send(|buf| RequestKind::Write { buf, fua: false, followed: false }, 0, total);
    world.settle();
    world
}

fn go_over(world: &mut World, action: SyncAction) -> SyncReport {
    let total = world.sectors();
    world.sync(action, 0, total);
    world.settle();
    let report = world.reports.pop().expect("a report");
    assert!(report.ok);
    report
}

#[test]
fn a_check_counts_and_names_and_a_repair_mends_the_one_who_is_wrong() {
    let cases = [
        (Level::Raid1, 2, 0, 128, false),
        (Level::Raid1, 3, 0, 128, true),
        (Level::Raid4, 4, 0, 8, false),
        (Level::Raid5, 4, 2, 8, false),
        (Level::Raid6, 5, 2, 8, true),
        (Level::Raid10, 4, 0x102, 64, false),
        (Level::Raid10, 4, 0x103, 64, true),
        (Level::Raid10, 4, 0x201, 64, false),
    ];
    for (level, disks, layout, counts, is_named) in cases {
        for slot in 0..disks {
            let mut world = array(level, disks, layout);
            assert_eq!(go_over(&mut world, SyncAction::Check).mismatch_sectors, 0, "{level}");
            world.spoil(slot, 70);
            let before = world.members.clone();
            for action in [SyncAction::Check, SyncAction::Repair] {
                let report = go_over(&mut world, action);
                assert_eq!(report.mismatch_sectors, counts, "{level} of {disks}, {slot} spoiled");
                assert_eq!(report.mismatches.len(), 1);
                let named = report.mismatches[0].member;
                assert_eq!(named, is_named.then_some(MemberId(slot)), "{level} of {disks}");
                assert_eq!(world.members == before, action == SyncAction::Check);
            }
            assert_eq!(go_over(&mut world, SyncAction::Check).mismatch_sectors, 0, "{level}");
            world.check_redundancy();
            if is_named {
                world.check_contents();
            }
        }
    }
}

const LEVELS: [(Level, u16, u32); 5] = [
    (Level::Raid1, 2, 0),
    (Level::Raid4, 4, 0),
    (Level::Raid5, 4, 2),
    (Level::Raid6, 5, 2),
    (Level::Raid10, 4, 0x102),
];

/// What would be lost: everything that cannot be read from the member itself, to a client that only reads.
#[test]
fn what_cannot_be_written_anew_for_want_of_room_is_read_from_others_again_and_again() {
    for (level, disks, layout) in LEVELS {
        let mut world = array(level, disks, layout);
        world.is_full = true;
        let home = world.geometry.map(Sector(0)).homes[0];
        let at = home.sector.0 + world::DATA_OFFSET;
        world.unreadable.extend([(home.slot.0, at), (home.slot.0, at + 24)]);
        // The second page is come upon when it is known that nothing can be written.
        for start in [0, 0, 24, 24, 0] {
            world.send(RequestKind::Read, start, 8);
            world.settle();
            assert_eq!(world.errors, 0, "{level}, {start}");
            // Of copies another may have been read.
            let is_read = matches!(world.geometry, Geometry::Parity(_));
            assert!(world.refused == 1 || !is_read, "{level}, {start}: {}", world.refused);
        }
        let total = world.sectors();
        world.sync(SyncAction::Check, 0, total);
        world.settle();
        assert!(world.refused > 0, "{level}");
        assert!(!world.shard.has_failed(MemberId(home.slot.0)), "{level}");
        world.check_contents();
        assert_eq!(world.errors, 0, "{level}");
    }
}

/// What would be lost: reads of what a member under recovery does not have yet.
#[test]
fn a_recovery_that_finds_no_room_costs_no_read() {
    for (level, disks, layout) in LEVELS {
        let mut world = array_with(level, disks, layout, &[1]);
        world.is_full = true;
        world.sync(SyncAction::Recovery, 0, world.sectors());
        world.settle();
        assert!(world.refused > 0, "{level}");
        assert!(world.reports.iter().all(|report| !report.ok), "{level}");
        world.check_contents();
        assert_eq!(world.errors, 0, "{level}");
    }
}

#[test]
fn two_wrong_members_are_not_taken_for_one() {
    let mut world = array(Level::Raid6, 6, 2);
    world.spoil(0, 70);
    world.spoil(1, 70);
    let report = go_over(&mut world, SyncAction::Repair);
    assert_eq!((report.mismatch_sectors, report.mismatches[0].member), (8, None));
    world.check_redundancy();
}

#[test]
fn who_is_mostly_for_writing_is_read_last() {
    let config = Config {
        level: Level::Raid1,
        layout: Layout::from_md(Level::Raid1, 0).expect("a layout"),
        chunk: Sectors(0),
        raid_disks: 2,
        component: Sectors(256),
        member_sizes: Vec::new(),
    };
    let mut world = World::with_write_mostly(&config, 5, &[0]);
    world.send(RequestKind::Read, 0, 8);
    world.drain();
    assert_eq!(world.pending_members(), [1]);
    world.settle();
    world.dead.insert(1);
    world.send(RequestKind::Read, 0, 8);
    world.settle();
    assert_eq!(world.errors, 0, "there was another copy");
}

/// Members and pages that went on record as bad.
fn bad_places(world: &World) -> Vec<(u16, u64)> {
    world.bad.keys().copied().collect()
}

#[test]
fn a_recovery_goes_on_past_what_nobody_can_read() {
    let cases = [(Level::Raid1, 2, 0), (Level::Raid5, 4, 2), (Level::Raid10, 4, 0x102)];
    for (level, raid_disks, layout) in cases {
        let config = Config {
            level,
            layout: Layout::from_md(level, layout).expect("a layout"),
            chunk: if level == Level::Raid1 { Sectors(0) } else { Sectors(64) },
            raid_disks,
            component: Sectors(256),
            member_sizes: Vec::new(),
        };
        let mut world = World::with(&config, 5, &[1], true);
        world.unreadable.insert((0, world::DATA_OFFSET + 70));
        assert!(go_over(&mut world, SyncAction::Recovery).ok);
        world.end_sync(&[1]);
        assert_eq!(bad_places(&world), [(0, 64), (1, 64)], "{level}: one page on both");
        assert!(world.bad.values().all(|&len| len == 8), "{level}: {:?}", world.bad);
        world.send(RequestKind::Read, 0, 8);
        world.settle();
        assert_eq!(world.errors, 0, "{level}: the rest can be read");
        let total = world.sectors();
        world.send(RequestKind::Read, 0, total);
        world.settle();
        assert_eq!(world.errors, 1, "{level}: what is lost is not made up");
        world.send(|buf| RequestKind::Write { buf, fua: false, followed: false }, 0, total);
        world.settle();
        assert_eq!(bad_places(&world), [], "{level}: what is written is good again");
        world.errors = 0;
        world.check_contents();
        world.check_redundancy();
        assert_eq!(world.errors, 0, "{level}");
    }
}

#[test]
fn what_a_worn_member_cannot_hold_goes_on_record() {
    let mut world = array(Level::Raid5, 4, 2);
    world.unreadable.insert((0, world::DATA_OFFSET + 70));
    world.worn.insert(0);
    assert_eq!(go_over(&mut world, SyncAction::Check).mismatch_sectors, 0);
    assert_eq!(bad_places(&world), [(0, 64)]);
    assert!(!world.shard.has_failed(MemberId(0)));
    world.check_contents();
    assert_eq!(world.errors, 0, "the others have it");
}

/// What would be lost: a parity, if what replaces its member got something else.
#[test]
fn a_replacement_gets_what_its_member_has_also_while_another_is_missing() {
    for (level, disks) in [(Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid6, 6)] {
        for slot in 1..disks {
            let mut world = array(level, disks, 2);
            let before = world.members[usize::from(slot)].clone();
            world.fail(0);
            let replacement = world.replace(slot);
            go_over(&mut world, SyncAction::Recovery);
            let at = world::DATA_OFFSET as usize * world::SECTOR;
            let copy = &world.members[usize::from(replacement.0)];
            assert!(copy[at..] == before[at..], "{level} of {disks}, slot {slot}");
            // The other one gets what was lost at the same time.
            let mut world = array(level, disks, 2);
            let missing = world.members[0].clone();
            world.fail(0);
            let (spare, replacement) = (world.replace(0), world.replace(slot));
            go_over(&mut world, SyncAction::Recovery);
            for (member, before) in [(spare, &missing), (replacement, &before)] {
                let copy = &world.members[usize::from(member.0)];
                assert!(copy[at..] == before[at..], "{level} of {disks}, slot {slot}");
            }
        }
    }
}

/// What would be lost: the rest of a page, if what is bad on another member cuts it.
#[test]
fn every_part_of_a_page_is_recovered_or_on_record() {
    let config = Config {
        level: Level::Raid5,
        layout: Layout::from_md(Level::Raid5, 2).expect("a layout"),
        chunk: Sectors(64),
        raid_disks: 4,
        component: Sectors(256),
        member_sizes: Vec::new(),
    };
    let mut world = World::with(&config, 5, &[1], true);
    world.unreadable.insert((0, world::DATA_OFFSET + 71));
    let bad = Order::BadRecorded(MemberId(2), Sector(68), Sectors(2));
    world.shard.handle_order(world.now(), &bad);
    assert!(go_over(&mut world, SyncAction::Recovery).ok);
    world.end_sync(&[1]);
    let lost: Vec<_> = world.bad.iter().filter(|((member, _), _)| *member == 1).collect();
    assert_eq!(lost, [(&(1, 68), &2), (&(1, 70), &2)]);
    // What is read is what was written, or an error.
    for sector in 0..world.sectors() {
        world.send(RequestKind::Read, sector, 1);
    }
    world.settle();
}

#[test]
fn a_difference_is_told_where_it_is() {
    for sector in [300, 700] {
        let config = Config {
            level: Level::Raid6,
            layout: Layout::from_md(Level::Raid6, 2).expect("a layout"),
            chunk: Sectors(512),
            raid_disks: 5,
            component: Sectors(1024),
            member_sizes: Vec::new(),
        };
        for slot in 0..5 {
            let mut world = World::new(&config, 5);
            world.spoil(slot, sector);
            let report = go_over(&mut world, SyncAction::Check);
            let page = Sector(sector - sector % 8);
            let place = match world.geometry.content(Slot(slot), page) {
                Content::Data(start) => start,
                // A parity's row is told by its first block of data.
                _ => {
                    let Geometry::Parity(parity) = &world.geometry else { panic!("a RAID6") };
                    let (stripe, offset) = parity.stripe_at(page);
                    parity.array_sector(stripe, 0, offset)
                }
            };
            let told = Mismatch { start: place, len: Sectors(8), member: Some(MemberId(slot)) };
            assert_eq!(report.mismatches, [told], "slot {slot}");
        }
    }
}

#[test]
fn a_piece_tells_of_the_requests_since_the_last_one() {
    let mut world = array(Level::Raid1, 2, 0);
    let since = |world: &mut World, reads| {
        (0..reads).for_each(|at| world.send(RequestKind::Read, at, 1));
        world.settle();
        go_over(world, SyncAction::Check).requests
    };
    assert_eq!(since(&mut world, 5), 6, "with the write at its beginning");
    assert_eq!([since(&mut world, 0), since(&mut world, 3)], [0, 3]);
}

#[test]
fn differences_side_by_side_are_one_if_one_member_is_wrong() {
    let cases = [(&[(1, 64), (1, 72)][..], 1), (&[(1, 64), (2, 72)], 2), (&[(1, 64), (1, 80)], 2)];
    for (spoiled, ranges) in cases {
        let mut world = array(Level::Raid1, 3, 0);
        spoiled.iter().for_each(|&(slot, sector)| world.spoil(slot, sector));
        let report = go_over(&mut world, SyncAction::Check);
        let found = report.mismatches.iter().map(|found| found.len.0);
        assert_eq!((found.clone().count(), found.sum::<u64>()), (ranges, 2 * 8), "{spoiled:?}");
    }
}

/// What would be lost: what lies behind the last page, if more than a part of it were written.
#[test]
fn the_last_page_may_be_a_part_of_one() {
    let three = |component| Config {
        level: Level::Raid1,
        layout: Layout::from_md(Level::Raid1, 0).expect("a layout"),
        chunk: Sectors(0),
        raid_disks: 3,
        component: Sectors(component),
        member_sizes: Vec::new(),
    };
    // By itself in its unit, behind another, and where another copy of it cannot be read.
    for (component, last, unreadable) in [(260, 256, false), (268, 264, false), (268, 264, true)] {
        let mut world = World::new(&three(component), 5);
        world.spoil(2, last + 2);
        if unreadable {
            world.unreadable.insert((0, world::DATA_OFFSET + last + 1));
        }
        let report = go_over(&mut world, SyncAction::Repair);
        let told = Mismatch { start: Sector(last), len: Sectors(4), member: Some(MemberId(2)) };
        assert_eq!(report.mismatches, [told]);
        assert_eq!(world.rewritten, if unreadable { vec![(0, last, 4)] } else { Vec::new() });
        world.check_redundancy();
    }
}

/// What would be lost: the second page, if what is mended before it reached into it.
#[test]
fn pages_side_by_side_of_which_different_members_are_wrong_are_mended_each() {
    for (first, second) in [(0, 1), (1, 2), (2, 0), (3, 1)] {
        let mut world = array(Level::Raid6, 6, 2);
        world.spoil(first, 64 + 8);
        world.spoil(second, 64 + 16);
        let report = go_over(&mut world, SyncAction::Repair);
        let named: Vec<_> = report.mismatches.iter().map(|found| found.member).collect();
        assert_eq!(named, [Some(MemberId(first)), Some(MemberId(second))]);
        world.check_redundancy();
        world.check_contents();
    }
}

/// What would be lost: a page that nobody can read, if it were written over with what memory held.
#[test]
fn what_no_copy_has_is_not_resynced() {
    for action in [SyncAction::Resync, SyncAction::Repair] {
        let mut world = array(Level::Raid1, 2, 0);
        world.shard.handle_order(world.now(), &bad(1, 64, 8));
        world.unreadable.insert((0, world::DATA_OFFSET + 66));
        let before = world.members.clone();
        let total = world.sectors();
        world.sync(action, 0, total);
        world.settle();
        let report = world.reports.pop().expect("a report");
        assert_eq!(report.ok, action == SyncAction::Repair, "{action:?}");
        assert!(world.members == before, "{action:?}");
        world.send(RequestKind::Read, 64, 8);
        world.settle();
        assert_eq!(world.errors, 1, "{action:?}");
    }
}

fn bad(member: u16, start: u64, len: u64) -> Order {
    Order::BadRecorded(MemberId(member), Sector(start), Sectors(len))
}

/// What would be lost: the name of who is wrong, which takes three copies.
#[test]
fn a_check_waits_for_a_page_that_is_being_mended() {
    let mut world = array(Level::Raid10, 4, 0x301);
    let homes = world.geometry.map(Sector(70)).homes;
    let place = |copy: usize| (homes[copy].slot.0, homes[copy].sector.0);
    let ((unreadable, at), (wrong, spoilt)) = (place(0), place(2));
    world.unreadable.insert((unreadable, world::DATA_OFFSET + at));
    world.spoil(wrong, spoilt);
    let report = go_over(&mut world, SyncAction::Check);
    let told = Mismatch { start: Sector(64), len: Sectors(8), member: Some(MemberId(wrong)) };
    assert_eq!(report.mismatches, [told]);
}

/// What would be lost: the server, which would look at the page again and again, and do nothing else. All of the page goes
/// on record while its end is being mended.
#[test]
fn a_check_waits_for_the_end_of_a_page_that_is_being_mended() {
    let mut tried = 0;
    for seed in 0..20 {
        let config = Config {
            level: Level::Raid6,
            layout: Layout::from_md(Level::Raid6, 2).expect("a layout"),
            chunk: Sectors(16),
            raid_disks: 5,
            component: Sectors(64),
            member_sizes: Vec::new(),
        };
        let mut world = World::new(&config, seed);
        let member = world.geometry.map(Sector(9)).homes[0].slot.0;
        world.unreadable.insert((member, world::DATA_OFFSET + 12));
        world.send(RequestKind::Read, 9, 7);
        world.end_pending();
        // The read is answered from others before it is seen whether the page can be read again.
        while world.members_busy() > 1 {
            world.step();
        }
        tried += usize::from(world.pending_members() == [member]);
        world.shard.handle_order(world.now(), &bad(member, 8, 8));
        world.sync(SyncAction::Check, 0, world.sectors());
        world.settle();
        assert!(world.reports.pop().expect("a report").ok);
    }
    assert!(tried > 0);
}

#[test]
fn what_is_on_record_when_a_read_fails_keeps_nothing_else_from_being_mended() {
    let mut world = array(Level::Raid1, 2, 0);
    world.unreadable.extend([0, 1].map(|member| (member, world::DATA_OFFSET + 82)));
    world.send(RequestKind::Read, 64, 32);
    world.drain();
    let reader = world.pending_members()[0];
    world.unreadable.remove(&(1 - reader, world::DATA_OFFSET + 82));
    world.shard.handle_order(world.now(), &bad(reader, 64, 8));
    world.settle();
    assert_eq!((world.errors, &*world.rewritten), (0, &[(reader, 80, 8)][..]));
    assert!(world.unreadable.is_empty());
}

/// What would be lost: the rest of a unit, if one page more than can be spared goes bad while it waits.
#[test]
fn what_goes_bad_while_a_unit_waits_costs_its_page_only() {
    let config = Config {
        level: Level::Raid5,
        layout: Layout::from_md(Level::Raid5, 2).expect("a layout"),
        chunk: Sectors(64),
        raid_disks: 4,
        component: Sectors(64),
        member_sizes: Vec::new(),
    };
    let waiting = |mut world: World, action| {
        world.send(|buf| RequestKind::Write { buf, fua: false, followed: false }, 40, 1);
        world.drain();
        world.sync(action, 0, world.sectors());
        world.drain();
        world.shard.handle_order(world.now(), &bad(2, 10, 2));
        world.settle();
        world
    };
    let world = waiting(World::with(&config, 5, &[1], true), SyncAction::Recovery);
    assert_eq!(world.bad, BTreeMap::from([((1, 10), 2), ((2, 10), 2)]));
    let mut world = World::new(&config, 5);
    world.spoil(1, 50);
    let report = waiting(world, SyncAction::Check).reports.pop().expect("a report");
    assert_eq!((report.ok, report.mismatch_sectors), (true, 8));
}

#[test]
fn what_lacks_more_than_its_parities_is_compared_with_nothing() {
    for (level, lacking) in [(Level::Raid5, 2), (Level::Raid6, 3)] {
        let mut world = array(level, 6, 2);
        for member in 0..lacking {
            world.shard.handle_order(world.now(), &bad(member, 64, 8));
        }
        let before = world.members.clone();
        assert_eq!(go_over(&mut world, SyncAction::Repair).mismatch_sectors, 0, "{level}");
        assert!(world.members == before, "{level}");
    }
}

/// What would be lost: agreement, if a copy that has failed meanwhile were taken for another.
#[test]
fn all_who_are_left_get_the_copy_of_one_that_fails_after_it_was_read() {
    let config = Config {
        level: Level::Raid1,
        layout: Layout::from_md(Level::Raid1, 0).expect("a layout"),
        chunk: Sectors(0),
        raid_disks: 3,
        component: Sectors(64),
        member_sizes: Vec::new(),
    };
    let mut world = World::with(&config, 5, &[], false);
    world.sync(SyncAction::Resync, 0, world.sectors());
    world.drain();
    assert_eq!(world.pending_members(), [0]);
    world.shard.handle_order(world.now(), &Order::MemberFailed(MemberId(0)));
    world.settle();
    assert!(world.members[1] == world.members[2]);
}

/// A RAID10 without one member, and the places of a chunk of which another is needed for other data: its own there, and
/// that of the second copy.
fn needed(mut world: World) -> (World, [(u16, u64); 2]) {
    let homes = world.geometry.map(Sector(70)).homes;
    let [first, second] = [0, 1].map(|copy| (homes[copy].slot.0, homes[copy].sector.0));
    let gone = (0..4).find(|slot| {
        ![first.0, second.0].contains(slot)
            && !world.geometry.survives(|other| ![*slot, first.0].contains(&other.0))
    });
    world.fail(gone.expect("one of four"));
    (world, [first, second])
}

/// What would be lost: a copy that another member has, where the array cannot do without the one that cannot read it.
#[test]
fn a_copy_is_read_elsewhere_also_if_its_member_is_the_last_of_other_data() {
    for kind in [None, Some(SyncAction::Check), Some(SyncAction::Resync)] {
        let (mut world, [(first, at), (second, there)]) = needed(array(Level::Raid10, 4, 0x201));
        // What is bad elsewhere changes nothing.
        world.shard.handle_order(world.now(), &bad(second, there / 64 * 64 + 64, 8));
        for sector in [at, at + 20] {
            world.unreadable.insert((first, world::DATA_OFFSET + sector));
        }
        match kind {
            None => world.send(RequestKind::Read, 0, world.sectors()),
            Some(action) => world.sync(action, 0, world.sectors()),
        }
        world.settle();
        assert_eq!(world.errors, 0, "{kind:?}");
        assert!(world.reports.iter().all(|report| report.ok && report.mismatch_sectors == 0));
        assert!(world.unreadable.is_empty(), "{kind:?}");
    }
}

#[test]
fn what_neither_copy_can_read_is_an_error_and_no_endless_search() {
    let (mut world, places) = needed(array(Level::Raid10, 4, 0x201));
    for (member, at) in places {
        world.unreadable.insert((member, world::DATA_OFFSET + at));
    }
    for _ in 0..2 {
        world.send(RequestKind::Read, 64, 64);
        world.settle();
    }
    assert_eq!(world.errors, 2);
    assert_eq!(go_over(&mut world, SyncAction::Check).mismatch_sectors, 0);
}

/// What would be lost: what others have, if a page that cannot be mended were read again.
#[test]
fn what_cannot_be_mended_and_is_on_no_record_is_read_elsewhere_from_then_on() {
    let config = Config {
        level: Level::Raid10,
        layout: Layout::from_md(Level::Raid10, 0x201).expect("a layout"),
        chunk: Sectors(64),
        raid_disks: 4,
        component: Sectors(256),
        member_sizes: Vec::new(),
    };
    let (mut world, [(first, at), (second, _)]) = needed(World::without_logs(&config, 5));
    world.worn.insert(first);
    world.unreadable.insert((first, world::DATA_OFFSET + at));
    world.send(RequestKind::Read, 0, world.sectors());
    world.settle();
    assert_eq!((world.errors, &*world.rewritten), (0, &[][..]));
    world.send(RequestKind::Read, 70, 1);
    world.drain();
    assert_eq!(world.pending_members(), [second]);
    world.settle();
    assert_eq!(world.errors, 0);
}
