//! Arrays and requests, drawn at random.

use super::{Rng, World};
use lapstrake_engine::RequestKind;
use lapstrake_geometry::*;

/// Some array.
pub fn config(rng: &mut Rng) -> Config {
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

/// Sends some request; some of them go on where the last such ended.
pub fn send_any(world: &mut World, sequential: &mut u64) {
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
