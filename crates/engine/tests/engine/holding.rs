//! A sequential writer's requests become full-stripe writes, and nobody waits for what does not come.

use crate::world::World;
use lapstrake_engine::*;
use lapstrake_geometry::*;

const CHUNK: u64 = 64;
/// Three data chunks.
const STRIPE: u64 = 3 * CHUNK;

fn world() -> World {
    world_of(Level::Raid5, 4)
}

fn world_of(level: Level, raid_disks: u16) -> World {
    World::new(&config(level, raid_disks), 1)
}

fn config(level: Level, raid_disks: u16) -> Config {
    Config {
        level,
        layout: Layout::default_for(level),
        chunk: Sectors(CHUNK),
        raid_disks,
        component: Sectors(CHUNK * 32),
        member_sizes: Vec::new(),
    }
}

fn write(world: &mut World, at: u64, len: u64, followed: bool) {
    world.send(|buf| RequestKind::Write { buf, fua: false, followed }, at, len);
    world.drain();
}

#[test]
fn a_request_that_is_followed_waits_for_its_neighbour() {
    let mut world = world();
    write(&mut world, 0, STRIPE, false);
    world.settle();
    for stripe in 1..20 {
        let at = stripe * STRIPE;
        write(&mut world, at, 2 * CHUNK, true);
        assert_eq!(world.members_busy(), 0, "an incomplete stripe was begun");
        write(&mut world, at + 2 * CHUNK, CHUNK, false);
        world.settle();
    }
    let stats = world.shard.stats();
    assert_eq!((stats.full_writes, stats.rmw_writes, stats.rcw_writes), (20, 0, 0));
    assert_eq!(stats.compute_bytes, 20 * STRIPE * 512);
    write(&mut world, 0, 8, false);
    world.settle();
    let one = world.shard.stats().compute_bytes - stats.compute_bytes;
    assert_eq!(one, 3 * 8 * 512, "what is written, and the two blocks beside it");
}

/// Blocks read: those that change and the parities, or all others.
#[test]
fn a_part_of_a_stripe_is_written_the_way_that_reads_less() {
    let cases = [
        (Level::Raid5, 4, 1, false),
        (Level::Raid5, 5, 1, true),
        (Level::Raid5, 6, 2, false),
        (Level::Raid5, 7, 2, true),
        (Level::Raid6, 6, 1, false),
        (Level::Raid6, 7, 1, true),
    ];
    for (level, members, chunks, modifies) in cases {
        let mut world = world_of(level, members);
        write(&mut world, 0, chunks * CHUNK, false);
        world.settle();
        let stats = world.shard.stats();
        let (modified, made_anew) = (u64::from(modifies), u64::from(!modifies));
        assert_eq!(
            (stats.full_writes, stats.rmw_writes, stats.rcw_writes),
            (0, modified, made_anew),
            "{level} of {members}, {chunks} chunks"
        );
        let data = u64::from(members) - if level == Level::Raid6 { 2 } else { 1 };
        let parities = u64::from(members) - data;
        let reads = if modifies { chunks + parities } else { data - chunks };
        assert_eq!(stats.member_read_sectors, reads * CHUNK);
    }
}

#[test]
fn one_request_at_a_time_never_waits() {
    let mut world = world();
    for at in (0..10 * STRIPE).step_by(CHUNK as usize) {
        write(&mut world, at, CHUNK, false);
        assert!(world.members_busy() > 0 && world.shard.poll_deadline().is_none());
        world.settle();
    }
    world.settle();
}

#[test]
fn a_neighbour_that_does_not_come_is_not_waited_for_longer_than_stated() {
    let mut world = world();
    write(&mut world, 0, CHUNK, true);
    world.settle();
    write(&mut world, CHUNK, CHUNK, true);
    let began = world.now();
    assert_eq!(world.members_busy(), 0);
    while world.members_busy() == 0 {
        assert!(world.step(), "it waits for time");
    }
    let waited = world.now().0 - began.0;
    assert!((500_000..=3_500_000).contains(&waited), "{waited} ns");
    world.settle();
}

/// As on hard disks: of the writer's own writes others are under way for long, and what it sends next follows them.
#[test]
fn a_stripe_waits_while_earlier_writes_of_its_writer_are_under_way() {
    let mut world = world();
    write(&mut world, 0, STRIPE, false);
    write(&mut world, STRIPE, CHUNK, false);
    let look_at = |world: &mut World, ms: u64| {
        world.shard.handle_time(Time(ms * 1_000_000));
        world.drain();
        world.members_busy()
    };
    let busy = world.members_busy();
    assert!((1..100).all(|ms| look_at(&mut world, ms) == busy), "the second stripe was begun");
    assert!(look_at(&mut world, 101) > busy, "not for ever");
    world.settle();
    let mut world = self::world();
    write(&mut world, 0, STRIPE, false);
    write(&mut world, STRIPE, CHUNK, false);
    (1..50).for_each(|ms| assert_eq!(look_at(&mut world, ms), busy));
    world.end_pending();
    write(&mut world, STRIPE + CHUNK, 2 * CHUNK, false);
    world.settle();
    let stats = world.shard.stats();
    assert_eq!((stats.full_writes, stats.rmw_writes, stats.rcw_writes), (2, 0, 0));
}

#[test]
fn when_no_more_will_come_nothing_waits() {
    let mut world = world();
    write(&mut world, 0, CHUNK, false);
    world.settle();
    write(&mut world, CHUNK, CHUNK, true);
    assert_eq!(world.members_busy(), 0);
    world.shard.hurry();
    world.drain();
    assert!(world.members_busy() > 0);
    world.settle();
}

#[test]
fn what_comes_instead_of_a_neighbour_ends_the_wait() {
    let mut world = world();
    write(&mut world, 0, CHUNK, false);
    world.settle();
    write(&mut world, CHUNK, CHUNK, true);
    assert_eq!(world.members_busy(), 0);
    world.send(RequestKind::Read, 9 * STRIPE, 1);
    world.drain();
    assert!(world.members_busy() > 1, "the held write waits still");
    world.settle();
}

#[test]
fn one_request_at_a_time_never_waits_though_others_write() {
    let mut world = world();
    for at in (0..10 * STRIPE).step_by(CHUNK as usize) {
        // Somebody else's, which goes on all the time.
        write(&mut world, 20 * STRIPE + at * 7 % STRIPE, 1, false);
        let busy = world.members_busy();
        write(&mut world, at, CHUNK, false);
        assert!(world.members_busy() > busy && world.shard.poll_deadline().is_none());
        world.settle();
    }
}

#[test]
fn a_writer_whose_neighbour_did_not_come_is_not_held_for_a_while() {
    let mut world = world();
    write(&mut world, 0, STRIPE, false);
    let mut held = 0;
    for stripe in 1..16 {
        let at = stripe * STRIPE;
        write(&mut world, at, CHUNK, false);
        write(&mut world, at + CHUNK, CHUNK / 2, false);
        held += u32::from(world.shard.poll_deadline().is_some());
        world.settle();
        write(&mut world, at + CHUNK * 3 / 2, STRIPE - CHUNK * 3 / 2, false);
        world.settle();
    }
    assert!((1..=2).contains(&held), "held {held} times");
}

#[test]
fn a_long_queue_of_overlapping_writes_takes_no_stack() {
    let mut world = world();
    write(&mut world, 0, 1, false);
    for _ in 0..20_000 {
        world.send(|_| RequestKind::Discard, 0, 1);
    }
    assert!(!world.shard.is_quiet());
    world.settle();
    assert!(world.shard.is_quiet(), "all have ended");
}

/// What would be lost: parity, where it is changed though it is not right yet.
#[test]
fn parity_that_a_resync_has_not_come_to_is_made_anew() {
    for (in_sync, modifies) in [(40, true), (39, false), (0, false)] {
        let mut world = world_of(Level::Raid5, 7);
        world.shard.handle_order(world.now(), &Order::InSync(Sector(in_sync)));
        write(&mut world, 8, 32, false);
        world.settle();
        let stats = world.shard.stats();
        assert_eq!(
            (stats.rmw_writes, stats.rcw_writes),
            (u64::from(modifies), u64::from(!modifies))
        );
    }
}

#[test]
fn where_both_ways_read_as_much_the_other_data_is_read_unless_told_otherwise() {
    for (level, disks, tied) in
        [(Level::Raid5, 4, true), (Level::Raid5, 5, false), (Level::Raid6, 6, true)]
    {
        for told in [false, true] {
            let mut world = world_of(level, disks);
            if told {
                world.shard.prefer_rmw();
            }
            write(&mut world, 0, 8, false);
            world.settle();
            let stats = world.shard.stats();
            let modifies = told || !tied;
            assert_eq!(
                (stats.rmw_writes, stats.rcw_writes),
                (u64::from(modifies), u64::from(!modifies)),
                "{level:?} of {disks}, told: {told}"
            );
        }
    }
}

#[test]
fn what_is_recovered_and_computed_is_counted() {
    let mut world = world();
    world.fail(0);
    (0..3).for_each(|chunk| world.send(RequestKind::Read, chunk * CHUNK, CHUNK));
    world.settle();
    assert_eq!(world.shard.stats().recovered, 1);

    let mut world = World::with(&config(Level::Raid5, 4), 1, &[], false);
    world.sync(SyncAction::Resync, 0, world.sync_unit());
    world.settle();
    let stats = world.shard.stats();
    assert_eq!((stats.full_writes, stats.rmw_writes, stats.rcw_writes), (0, 0, 0));

    let buf = |id| Buf { id: BufId(id), offset: 0 };
    let (dst, srcs, len) = (buf(1), || [buf(2), buf(3)].into_iter().collect(), 512);
    assert_eq!(Compute::Xor { dst, srcs: srcs(), len }.bytes_read(), 2 * 512);
    assert_eq!(Compute::XorInto { dst, srcs: srcs(), len }.bytes_read(), 3 * 512);
}
