//! The promise: whatever is asked of an array, in whatever order its members answer, every read
//! shows the last write (or one in flight), members that fail are survived, and redundancy is
//! right at the end.

use crate::world::{Rng, World, draw};
use lapstrake_geometry::{Level, Slot};
use proptest::prelude::*;

fn run(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let config = draw::config(&mut rng);
    let failures = match config.level {
        Level::Raid6 => rng.below(3),
        Level::Linear | Level::Raid0 => 0,
        _ => rng.below(2),
    };
    let mut world = World::new(&config, rng.next());
    let mut sequential = 0;
    let mut dead = 0;
    for round in 0..150 {
        for _ in 0..world.rng.below(6) {
            draw::send_any(&mut world, &mut sequential);
        }
        world.drain();
        for _ in 0..world.rng.below(30) {
            world.step();
        }
        if dead < failures && round > 20 && world.rng.below(30) == 0 {
            let member = world.rng.below(u64::from(config.raid_disks)) as u16;
            let alive = |slot: Slot| slot.0 != member && !world.dead.contains(&slot.0);
            if world.geometry.survives(alive) {
                world.dead.insert(member);
                dead += 1;
            }
        }
    }
    world.settle();
    assert_eq!(world.errors, 0, "a caller saw an error");
    world.check_contents();
    world.check_redundancy();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_read_shows_the_last_write(seed: u64) {
        run(seed);
    }
}
