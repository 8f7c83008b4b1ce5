//! Promise: a check of copies needs no more of the stripe cache than there is.

mod mirror;

use lapstrake_engine::{Effect, Notice, PieceId, SyncAction, SyncPiece};
use lapstrake_geometry::{Sector, Sectors};
use mirror::NOW;

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
