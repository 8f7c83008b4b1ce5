//! Promise: what a member lacks is never taken for data, and all that lies beside it is held against redundancy.

use crate::world::{DATA_OFFSET, World};
use lapstrake_engine::*;
use lapstrake_geometry::*;

const PAGE: u64 = 8;
/// Pages of a unit: a chunk on parity levels.
const UNIT_PAGES: u64 = 8;

/// An array that holds something; on RAID1 reads go to the last member.
fn array(level: Level, raid_disks: u16) -> World {
    drawn(level, raid_disks, 5)
}

/// The seed draws the order in which I/Os end.
fn drawn(level: Level, raid_disks: u16, seed: u64) -> World {
    let layout = if level == Level::Raid1 { 0 } else { 2 };
    let config = Config {
        level,
        layout: Layout::from_md(level, layout).expect("a layout"),
        chunk: if level == Level::Raid1 { Sectors(0) } else { Sectors(UNIT_PAGES * PAGE) },
        raid_disks,
        component: Sectors(256),
        member_sizes: Vec::new(),
    };
    let mostly: Vec<u16> = (0..raid_disks - 1).filter(|_| level == Level::Raid1).collect();
    let mut world = World::with_write_mostly(&config, seed, &mostly);
    let total = world.sectors();
    world.send(|buf| RequestKind::Write { buf, fua: false, followed: false }, 0, total);
    world.settle();
    world
}

/// Who is asked for the array's first page.
fn reader(world: &World) -> u16 {
    match &world.geometry {
        Geometry::Parity(parity) => parity.slot_of_data(StripeNo(0), 0).0,
        _ => world.geometry.raid_disks() - 1,
    }
}

fn make_unreadable(world: &mut World, member: u16, page: u64) {
    let first = DATA_OFFSET + page * PAGE;
    world.unreadable.extend((first..first + PAGE).map(|sector| (member, sector)));
}

fn spoil_page(world: &mut World, member: u16, page: u64) {
    (page * PAGE..(page + 1) * PAGE).for_each(|sector| world.spoil(member, sector));
}

/// A page of the member's first unit goes on record as bad: it can neither be read nor mended.
fn put_on_record(world: &mut World, member: u16, page: u64) {
    make_unreadable(world, member, page);
    world.worn.insert(member);
    go_over(world, SyncAction::Check);
    assert_eq!(world.bad.keys().copied().collect::<Vec<_>>(), [(member, page * PAGE)]);
}

fn go_over(world: &mut World, action: SyncAction) -> u64 {
    let total = world.sectors();
    world.sync(action, 0, total);
    world.settle();
    let report = world.reports.pop().expect("a report");
    assert!(report.ok);
    report.mismatch_sectors
}

/// What would be lost: data. Reads of a page fail; what follows from one of them puts the page on record, and then
/// the member can read it again, though not what it was to hold. What follows from the others must not take it for data.
fn reads_of_a_page_that_can_be_read_again(level: Level, disks: u16, reads: u32, seed: u64) {
    let mut world = drawn(level, disks, seed);
    let member = reader(&world);
    make_unreadable(&mut world, member, 0);
    world.worn.insert(member);
    (0..reads).for_each(|_| world.send(RequestKind::Read, 0, PAGE));
    world.end_pending();
    while world.bad.is_empty() {
        assert!(world.step(), "{level}: the page goes on record");
    }
    assert_eq!(world.bad.keys().next(), Some(&(member, 0)), "{level}");
    world.unreadable.clear();
    spoil_page(&mut world, member, 0);
    world.settle();
    world.check_contents();
    assert_eq!(world.errors, 0, "{level}");
    assert!(!world.shard.has_failed(MemberId(member)));
}

#[test]
fn a_page_on_record_that_can_be_read_again_is_not_data() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 5)] {
        // Of more reads than are mended at once the last are looked at when the page is on record.
        for (reads, seed) in [1, 2, 3, 12].into_iter().flat_map(|n| (0..20).map(move |s| (n, s))) {
            reads_of_a_page_that_can_be_read_again(level, disks, reads, seed);
        }
    }
}

/// What would be lost: the redundancy of what lies beside a bad block, which a check that left it out calls whole.
#[test]
fn what_lies_beside_a_page_that_cannot_be_read_is_compared() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 5)] {
        for bad in 0..UNIT_PAGES {
            for wrong in (0..UNIT_PAGES).filter(|&page| page != bad) {
                let mut world = array(level, disks);
                let member = reader(&world);
                make_unreadable(&mut world, member, bad);
                spoil_page(&mut world, (member + 1) % disks, wrong);
                let counted = go_over(&mut world, SyncAction::Check);
                assert_eq!(counted, PAGE, "{level}: page {wrong} is wrong, {bad} was unreadable");
                assert!(world.unreadable.is_empty(), "it was mended");
            }
        }
    }
}

/// The same of a page that stays bad; and a resync mends what is beside it.
#[test]
fn what_lies_beside_a_bad_block_is_compared_and_resynced() {
    for (level, disks) in [(Level::Raid5, 3), (Level::Raid6, 5)] {
        for bad in 0..UNIT_PAGES {
            for wrong in (0..UNIT_PAGES).filter(|&page| page != bad) {
                let mut world = array(level, disks);
                let member = reader(&world);
                put_on_record(&mut world, member, bad);
                let Geometry::Parity(parity) = &world.geometry else { unreachable!() };
                let p = parity.slot_of_p(StripeNo(0)).0;
                spoil_page(&mut world, p, wrong);
                let place = format!("{level}: page {wrong} is wrong, {bad} is bad");
                assert_eq!(go_over(&mut world, SyncAction::Check), PAGE, "{place}");
                go_over(&mut world, SyncAction::Resync);
                world.check_redundancy();
                assert_eq!(go_over(&mut world, SyncAction::Check), 0, "{place}");
            }
        }
    }
}

/// Found by the simulation, a seed with a cut that members met each in its own way. What would be lost: a resync, where a long
/// read fails while units wait for room in the stripe cache. Their pages are tried one by one, most can be read again,
/// and then what was not compared meanwhile differs for good.
#[test]
fn what_waits_for_room_while_its_pages_are_tried_is_resynced_too() {
    for seed in 0..40 {
        let config = Config {
            level: Level::Raid5,
            layout: Layout::from_name(Level::Raid5, "parity-first").expect("a layout"),
            chunk: Sectors(PAGE),
            raid_disks: 2,
            component: Sectors(128),
            member_sizes: Vec::new(),
        };
        let mut world = World::with(&config, seed, &[], true);
        world.resize_cache(4);
        world.half_write(0, 15 * PAGE);
        make_unreadable(&mut world, 1, 15);
        world.sync(SyncAction::Resync, 0, 128);
        world.send(RequestKind::Read, 0, 128);
        world.settle();
        assert!(world.reports.pop().expect("a report").ok);
        world.check_redundancy();
    }
}

/// What would be lost: what only Q can give. A cut leaves it wrong where a block is bad; P gives the block, so
/// the rest can be compared, and Q made anew, before another member fails.
#[test]
fn q_is_compared_and_resynced_where_a_block_is_lost() {
    let mut world = array(Level::Raid6, 5);
    let Geometry::Parity(parity) = &world.geometry else { unreachable!() };
    let slot = |data| parity.slot_of_data(StripeNo(0), data).0;
    let (first, second) = (slot(0), slot(1));
    let q = parity.slot_of_q(StripeNo(0)).expect("RAID6").0;
    put_on_record(&mut world, first, 3);
    spoil_page(&mut world, q, 3);
    assert_eq!(go_over(&mut world, SyncAction::Check), PAGE);
    go_over(&mut world, SyncAction::Resync);
    assert_eq!(go_over(&mut world, SyncAction::Check), 0);
    world.dead.insert(second);
    world.check_contents();
    assert_eq!(world.errors, 0, "two blocks of a stripe are lost, and P and Q are there");
}

#[test]
fn a_stripe_is_zeroed_whatever_its_members_lacked() {
    let config = Config {
        level: Level::Raid5,
        layout: Layout::from_md(Level::Raid5, 2).unwrap(),
        chunk: Sectors(64),
        raid_disks: 4,
        component: Sectors(64 * 8),
        member_sizes: Vec::new(),
    };
    for write in [true, false] {
        let mut world = World::with(&config, 1, &[2], true);
        let bad = Order::BadRecorded(MemberId(0), Sector(0), Sectors(8));
        world.shard.handle_order(world.now(), &bad);
        let kind = |buf| match write {
            true => RequestKind::Write { buf, fua: false, followed: false },
            false => RequestKind::WriteZeroes { fua: false, unmap: false },
        };
        world.send(kind, 0, 192);
        world.settle();
        assert_eq!(world.errors, 0, "write: {write}");
    }
}
