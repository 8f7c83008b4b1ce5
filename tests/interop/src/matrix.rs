//! The cases: all, and a sample.

use std::collections::BTreeSet;

use lapstrake_geometry::{Config, Geometry, Layout, Level, ParityLayout, Raid0Layout, Sectors};
use lapstrake_metadata::Version;

use crate::case::{Case, Story};
use crate::draw::Draw;

/// From it the sample is drawn; another number is another sample.
const SAMPLE_SEED: u64 = 1;
const MEMBERS: std::ops::RangeInclusive<u16> = 2..=8;

/// Every case: each story over the whole matrix, those with a filesystem over a part of it.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (level, layout) in layouts() {
        for story in [Story::Kernel, Story::Ours] {
            cases.extend(of(story, level, layout));
        }
        for story in [Story::KernelExt4, Story::OursExt4] {
            let possible = of(story, level, layout);
            let mut draw = Draw::new(possible.first().map_or(0, Case::seed));
            for chunk in chunks(level) {
                let fitting: Vec<_> = possible.iter().filter(|c| c.chunk == *chunk).collect();
                if !fitting.is_empty() {
                    cases.push(**draw.one(&fitting));
                }
            }
        }
    }
    // In no order: whoever stops it half-way has seen something of everything.
    Draw::new(SAMPLE_SEED).shuffle(&mut cases);
    cases
}

/// Each layout at least once from either side, each level once from either side with a filesystem;
/// chunks, versions and member counts as various as they can be.
pub fn sample() -> Vec<Case> {
    let mut draw = Draw::new(SAMPLE_SEED);
    let mut seen = BTreeSet::new();
    let mut cases = Vec::new();
    for (level, layout) in layouts() {
        for story in [Story::Kernel, Story::Ours] {
            cases.extend(most_different(&of(story, level, layout), &mut draw, &mut seen));
        }
    }
    for level in Level::ALL {
        for story in [Story::KernelExt4, Story::OursExt4] {
            let possible: Vec<Case> = layouts()
                .into_iter()
                .filter(|(of_level, _)| *of_level == level)
                .flat_map(|(level, layout)| of(story, level, layout))
                .collect();
            cases.extend(most_different(&possible, &mut draw, &mut seen));
        }
    }
    cases
}

/// Properties of a case, in pairs that a sample should contain.
fn pairs(case: &Case) -> [(i32, u8, u64); 4] {
    let level = case.level.to_md();
    let version = case.version as u64;
    [
        (level, 0, case.chunk.0),
        (level, 1, version),
        (level, 2, case.members.into()),
        (i32::from(case.members), 3, case.chunk.0 * 4 + version),
    ]
}

/// Of a few cases the one with the most pairs that were not there yet.
fn most_different(
    possible: &[Case],
    draw: &mut Draw,
    seen: &mut BTreeSet<(i32, u8, u64)>,
) -> Option<Case> {
    if possible.is_empty() {
        return None;
    }
    let few: Vec<Case> = (0..16).map(|_| *draw.one(possible)).collect();
    let news = |case: &&Case| pairs(case).iter().filter(|pair| !seen.contains(pair)).count();
    let best = few.iter().max_by_key(news).copied()?;
    seen.extend(pairs(&best));
    Some(best)
}

/// The cases of a story with one level and layout.
fn of(story: Story, level: Level, layout: Layout) -> Vec<Case> {
    let mut cases = Vec::new();
    for chunk in chunks(level) {
        for version in Version::ALL {
            for members in MEMBERS {
                let case = Case { story, level, layout, chunk: *chunk, version, members };
                if is_possible(&case) {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

fn is_possible(case: &Case) -> bool {
    let rows = Sectors(case.chunk.0.max(128) * 6);
    let config = Config {
        level: case.level,
        layout: case.layout,
        chunk: case.chunk,
        raid_disks: case.members,
        component: rows,
        member_sizes: vec![rows; case.members.into()],
    };
    Geometry::new(&config).is_ok() && layout_can_be_made(case)
}

fn layout_can_be_made(case: &Case) -> bool {
    let by_kernel = matches!(case.story, Story::Kernel | Story::KernelExt4);
    match case.layout {
        // 0.90 has no place for a RAID0's layout, which 1.x always has; mdadm 4.2 makes none.
        Layout::Raid0(Raid0Layout::Unset) => case.version == Version::V090 && !by_kernel,
        Layout::Raid0(_) => case.version != Version::V090,
        // The kernel runs these, but mdadm knows no name for them.
        Layout::Raid10(layout) => !by_kernel || !Layout::Raid10(layout).name().starts_with("0x"),
        _ => true,
    }
}

fn chunks(level: Level) -> &'static [Sectors] {
    const ALL: [Sectors; 4] = [Sectors(0), Sectors(8), Sectors(128), Sectors(1024)];
    match level {
        Level::Raid1 => &ALL[..1],
        Level::Linear => &ALL,
        _ => &ALL[1..],
    }
}

/// Every layout of every level.
fn layouts() -> Vec<(Level, Layout)> {
    let named = |level, names: &[&str]| -> Vec<(Level, Layout)> {
        let layout = |name: &&str| Layout::from_name(level, name).ok();
        names.iter().filter_map(layout).map(|layout| (level, layout)).collect()
    };
    let parity = |level| {
        ParityLayout::all()
            .filter(move |layout| layout.belongs_to(level))
            .map(move |layout| (level, Layout::Parity(layout)))
    };
    let mut all = vec![
        (Level::Linear, Layout::None),
        (Level::Raid1, Layout::None),
        (Level::Raid4, Layout::None),
    ];
    all.extend(named(Level::Raid0, &["original", "alternate", "dangerous"]));
    all.extend(parity(Level::Raid5));
    all.extend(parity(Level::Raid6));
    // Near and far at once, near and offset at once, and the far sets of either kind.
    let words = ["0x202", "0x10202", "0x20201", "0x30201", "0x40201", "0x50201", "0x40301"];
    all.extend(named(Level::Raid10, &["n2", "n3", "n4", "f2", "f3", "o2", "o3"]));
    all.extend(named(Level::Raid10, &words));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for case in all() {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        assert!("ours/raid6/n2/64K/1.1/5".parse::<Case>().is_err());
    }

    #[test]
    fn the_sample_has_every_layout_version_chunk_and_count() {
        let (all, sample) = (all(), sample());
        let kinds = |cases: &[Case]| -> BTreeSet<String> {
            let kind = |c: &Case| {
                [
                    format!("{} {}", c.level, c.layout),
                    format!("{}", c.version),
                    format!("{}", c.chunk.0),
                    format!("{} members", c.members),
                ]
            };
            cases.iter().flat_map(kind).collect()
        };
        assert_eq!(kinds(&sample), kinds(&all));
        println!("{} of {} cases", sample.len(), all.len());
    }
}
