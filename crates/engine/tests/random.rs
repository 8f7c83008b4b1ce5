//! The promise: whatever is asked of an array, in whatever order its members answer, every read
//! shows the last write (or one in flight), members that fail are survived, and redundancy is
//! right at the end.

mod world;

use lapstrake_engine::RequestKind;
use lapstrake_geometry::*;
use proptest::prelude::*;
use world::{Rng, World};

fn config(rng: &mut Rng) -> Config {
    let level = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ][rng.below(7) as usize];
    let disks = u64::from(level.min_members()).max(2) + rng.below(5);
    let chunk = 8 << rng.below(4);
    let parities: Vec<Layout> = [0u32, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]
        .iter()
        .filter_map(|&word| Layout::from_md(level, word).ok())
        .collect();
    let layout = match level {
        Level::Raid0 => Layout::from_md(level, 1 + rng.below(2) as u32),
        Level::Raid5 | Level::Raid6 => Ok(parities[rng.below(parities.len() as u64) as usize]),
        Level::Raid10 => {
            let copies = 2 + rng.below(2).min(disks - 2) as u32;
            let words = [0x100 + copies, 1 + (copies << 8), 0x10001 + (copies << 8)];
            Layout::from_md(level, words[rng.below(3) as usize])
        }
        _ => Layout::from_md(level, 0),
    };
    let sizes = (0..disks).map(|_| Sectors(chunk * (3 + rng.below(6)))).collect();
    Config {
        level,
        layout: layout.expect("a layout of the level"),
        chunk: if level == Level::Raid1 { Sectors(0) } else { Sectors(chunk) },
        raid_disks: disks as u16,
        component: Sectors(chunk * (4 + rng.below(8))),
        member_sizes: match level {
            Level::Linear | Level::Raid0 => sizes,
            _ => Vec::new(),
        },
    }
}

fn send_any(world: &mut World, sequential: &mut u64) {
    let total = world.sectors();
    let long = world.rng.below(6) == 0;
    let len = 1 + world.rng.below(if long { total } else { 24.min(total) });
    let mut at = world.rng.below(total - len + 1);
    if world.rng.below(3) == 0 {
        at = if *sequential + len <= total { *sequential } else { 0 };
        *sequential = at + len;
    }
    let fua = world.rng.below(4) == 0;
    let followed = world.rng.below(3) == 0;
    match world.rng.below(12) {
        0..4 => world.send(RequestKind::Read, at, len),
        4..10 => world.send(|buf| RequestKind::Write { buf, fua, followed }, at, len),
        10 => world.send(|_| RequestKind::WriteZeroes { fua, unmap: true }, at, len),
        _ => world.send(|_| RequestKind::Flush, 0, 0),
    }
}

fn run(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let config = config(&mut rng);
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
            send_any(&mut world, &mut sequential);
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
