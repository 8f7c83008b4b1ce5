//! The promise: the stripe cache grows and shrinks under whatever runs. No request fails or hangs for it, and what the
//! shard says it has left is touched no more.

use crate::world::{Rng, World, draw};
use lapstrake_engine::SyncAction;
use lapstrake_geometry::{Config, Layout, Level, Sectors};
use proptest::prelude::*;

/// Pages for each member that the largest operation takes.
const LEAST: u32 = 32;

fn run(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let config = draw::config(&mut rng);
    let mut world = World::new(&config, rng.next());
    let members = u32::from(config.raid_disks);
    let mut sequential = 0;
    let mut last = 0;
    for _ in 0..100 {
        for _ in 0..world.rng.below(6) {
            draw::send_any(&mut world, &mut sequential);
        }
        last = (LEAST + world.rng.below(64) as u32) * members;
        world.resize_cache(last);
        for _ in 0..world.rng.below(20) {
            world.step();
        }
    }
    world.settle();
    assert_eq!(world.shard.scratch_pages(), (0, last));
    assert_eq!(world.errors, 0, "a caller saw an error");
    world.check_contents();
    world.check_redundancy();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn requests_do_not_notice(seed: u64) {
        run(seed);
    }
}

/// Writes of half a stripe each, as many as there is room for.
#[test]
fn a_larger_cache_lets_more_run_at_once() {
    let config = Config {
        level: Level::Raid5,
        layout: Layout::from_md(Level::Raid5, 2).unwrap(),
        chunk: Sectors(64),
        raid_disks: 4,
        component: Sectors(64 * 64),
        member_sizes: Vec::new(),
    };
    let busy = |pages: u32| {
        let mut world = World::new(&config, 1);
        world.resize_cache(pages);
        for stripe in 0..64 {
            let write =
                |buf| lapstrake_engine::RequestKind::Write { buf, fua: false, followed: false };
            world.send(write, stripe * 192, 96);
        }
        world.drain();
        let (used, all) = world.shard.scratch_pages();
        assert_eq!(all, pages);
        assert!(used <= pages, "{used} of {pages}");
        let waited = world.shard.stats().scratch_waits;
        world.settle();
        (used, waited)
    };
    let (little, waits) = busy(LEAST * 4);
    let (much, none) = busy(LEAST * 64);
    assert!(little < much && waits > 0 && none == 0, "{little} {waits}, {much} {none}");
}

#[test]
fn a_check_of_copies_does_not_fail_when_the_cache_shrinks() {
    let config = Config {
        level: Level::Raid1,
        layout: Layout::None,
        chunk: Sectors(0),
        raid_disks: 2,
        component: Sectors(4096),
        member_sizes: Vec::new(),
    };
    for seed in 1..20 {
        let mut world = World::new(&config, seed);
        world.sync(SyncAction::Check, 0, 4096);
        world.drain();
        world.resize_cache(LEAST * 2);
        world.settle();
        assert!(world.reports.iter().all(|report| report.ok), "seed {seed}");
    }
}

/// In units of 64 KiB, of which a check reads both copies.
#[test]
fn copies_that_lie_far_apart_have_twice_as_much_under_way_and_no_more_than_fits() {
    let units = |layout: &str, pages: u32| {
        let config = Config {
            level: Level::Raid10,
            layout: Layout::from_name(Level::Raid10, layout).unwrap(),
            chunk: Sectors(128),
            raid_disks: 4,
            component: Sectors(128 * 64),
            member_sizes: Vec::new(),
        };
        let mut world = World::new(&config, 1);
        world.resize_cache(pages);
        world.sync(SyncAction::Check, 0, 128 * 64);
        world.drain();
        let reads = world.members_busy();
        world.settle();
        assert!(world.reports.iter().all(|report| report.ok));
        reads / 2
    };
    let (little, much) = (LEAST * 4, LEAST * 64);
    assert_eq!([units("n2", much), units("o2", much), units("f2", much)], [16, 16, 32]);
    assert_eq!([units("n2", little), units("f2", little)], [4, 4]);
}
