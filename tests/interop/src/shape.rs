//! What a case's name leaves open, drawn from its digest: sizes, bitmap, how the array begins.

use lapstrake_geometry::{Layout, Level, Raid0Layout, Sectors};
use lapstrake_metadata::Version;

use crate::case::Case;
use crate::draw::Draw;

/// The open ends of a case.
#[derive(Debug)]
pub struct Shape {
    /// Of each member's file: odd ones, so that neither chunks nor pages divide them evenly.
    pub sizes: Vec<Sectors>,
    /// Bytes to a bit of the write-intent bitmap, if there is one.
    pub bitmap: Option<u32>,
    /// The members hold junk, and the kernel has to resync or recover; otherwise they hold zeros and are
    /// declared clean.
    pub resync: bool,
    /// Threads of our array.
    pub shards: usize,
    /// Pages per member of our stripe caches, from too few for a chunk on.
    pub stripe_cache_size: u32,
}

impl Shape {
    pub fn of(case: &Case, draw: &mut Draw) -> Self {
        let redundant = case.level.has_redundancy();
        Self {
            sizes: sizes(case, draw),
            bitmap: (redundant && draw.once_in(3)).then(|| 4096 << draw.within(0..5)),
            resync: redundant && draw.once_in(4),
            shards: draw.within(1..3) as usize,
            stripe_cache_size: 32 << draw.within(0..4),
        }
    }
}

fn sizes(case: &Case, draw: &mut Draw) -> Vec<Sectors> {
    let chunk = if case.chunk.is_zero() { 128 } else { case.chunk.0 };
    let rows = rows(case, chunk, draw);
    let own_rows = matches!(case.level, Level::Linear | Level::Raid0);
    let mut size = |_| {
        let rows = match draw.within(0..4) {
            0 if own_rows => self::rows(case, chunk, draw),
            0 => rows + draw.within(1..3),
            _ => rows,
        };
        Sectors(overhead(case) + rows * chunk + draw.within(0..chunk / 2) * 2 + 1)
    };
    if case.layout == Layout::Raid0(Raid0Layout::Unset) {
        // It is of members of one size only.
        return vec![size(0); usize::from(case.members)];
    }
    (0..case.members).map(size).collect()
}

/// Chunks on a member: few for large ones, which cost time, but enough for every far copy.
fn rows(case: &Case, chunk: u64, draw: &mut Draw) -> u64 {
    let (least, most) = if case.story.has_filesystem() { (8192, 12288) } else { (320, 2048) };
    (draw.within(least..most) / chunk).max(draw.within(3..6))
}

/// What mdadm keeps back of a member of this size, at most.
fn overhead(case: &Case) -> u64 {
    match case.version {
        Version::V090 => 256,
        Version::V1_0 => 48,
        // Data starts at whole MiB, and four chunks or more from the start.
        Version::V1_1 | Version::V1_2 => {
            if case.chunk.0 > 256 {
                4096
            } else {
                2048
            }
        }
    }
}
