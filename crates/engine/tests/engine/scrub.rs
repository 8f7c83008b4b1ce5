//! Promise: a check or resync of copies has as much under way as its disks need, and needs no more of the stripe cache
//! than there is.

use crate::mirror::{self, NOW};
use crate::world::World;
use lapstrake_engine::{Effect, Notice, PieceId, SyncAction, SyncPiece};
use lapstrake_geometry::{Config, Layout, Level, Sector, Sectors};

#[test]
fn a_check_of_copies_goes_on_in_a_small_stripe_cache() {
    let mut shard = mirror::mirror([(true, false, None), (true, false, None)], None);
    let what = SyncPiece {
        id: PieceId(1),
        action: SyncAction::Check,
        start: Sector(0),
        len: Sectors(1024),
        within: 0..1024,
    };
    shard.handle_sync(NOW, what);
    let mut at_once = 0;
    loop {
        // All that may run at once waits for the members together.
        let effects: Vec<Effect> = std::iter::from_fn(|| shard.poll_effect()).collect();
        if effects.is_empty() {
            break;
        }
        at_once = at_once.max(effects.len());
        for effect in effects {
            match effect {
                Effect::Io(io) => shard.handle_completion(NOW, io.id, true),
                Effect::Compare(compare) => shard.handle_compared(NOW, compare.id, &[]),
                other => panic!("{other:?}"),
            }
        }
    }
    let told: Vec<Notice> = std::iter::from_fn(|| shard.poll_notice()).collect();
    let [Notice::Synced(report)] = &told[..] else { panic!("{told:?}") };
    assert!(report.ok);
    assert_eq!(at_once, 4, "two units of two copies of 16 pages fill the 64 that there are");
}

/// What would be lost: days. An arm that goes forth and back between copies reads what is under way in each place.
#[test]
fn a_resync_has_a_mib_under_way_whatever_the_chunk() {
    for chunk in [8, 32, 128, 1024] {
        let config = Config {
            level: Level::Raid10,
            layout: Layout::default_for(Level::Raid10),
            chunk: Sectors(chunk),
            raid_disks: 4,
            component: Sectors(4096),
            member_sizes: Vec::new(),
        };
        let mut world = World::with(&config, 1, &[], false);
        world.sync(SyncAction::Resync, 0, world.sectors());
        world.drain();
        assert_eq!(
            world.members_busy() as u64 * chunk.min(128),
            2 * 2048,
            "chunk {chunk}: two copies"
        );
        world.settle();
        assert!(world.reports.iter().all(|report| report.ok));
        world.check_redundancy();
    }
}
