//! All that could be built of some disks.
//!
//! Disks of one kind are alike: of three such disks, two are one choice, not three. What a set of disks can be made
//! into: every level and layout over all of them; over short-stroked windows, where less than all of each is
//! enough; and where sizes differ, arrays over layers of equal windows, or a stripe over pairs of like sizes, as
//! people do by hand. One more disk may wait as a hot spare, which changes safety and cost alone.
//!
//! What it does not do: chunks, which are tried on what is left at the end; arrays in arrays beyond a stripe or
//! a row; more than [`DISKS_MAX`] disks.

use super::Disk;
use super::candidate::{Array, Candidate, DiskWindow, Join, window_for};
use lapstrake_geometry::{Layout, Level, Raid10Layout};

/// More disks than this have too many subsets.
pub const DISKS_MAX: usize = 24;
/// Sizes that differ by more than this are unlike.
const UNLIKE: f64 = 0.02;

/// Everything, with windows that offer `wished` bytes where that is less than all.
pub(super) fn candidates(disks: &[Disk], wished: Option<u64>) -> Vec<Candidate> {
    let mut all = Vec::new();
    for set in sets(disks) {
        of_set(disks, &set, wished, &mut all);
    }
    all
}

/// Every choice of disks, largest first; of disks of one kind the first so many.
fn sets(disks: &[Disk]) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        let same = |kind: &&mut Vec<usize>| {
            let other = &disks[kind[0]];
            other.kind == disk.kind && other.price.total_cmp(&disk.price).is_eq()
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(index),
            None => kinds.push(vec![index]),
        }
    }
    let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
    for kind in kinds {
        let with = |count: usize| {
            let kind = &kind;
            sets.iter().map(move |set| [set.as_slice(), &kind[..count]].concat())
        };
        sets = (0..=kind.len()).flat_map(with).collect();
    }
    sets.retain(|set| !set.is_empty());
    for set in &mut sets {
        set.sort_by_key(|&disk| (std::cmp::Reverse(disks[disk].sectors), disk));
    }
    sets
}

/// A candidate with a hot spare: the smallest disk beside it that can stand in for any of its own. Layers have a window
/// of it each; several arrays over the same place have none, as a spare belongs to one array.
pub(super) fn spared(disks: &[Disk], candidate: &Candidate) -> Option<Candidate> {
    let is_shared = candidate.arrays.len() > 1 && candidate.join == Join::Striped;
    if candidate.tolerance() == 0 || candidate.spare.is_some() || is_shared {
        return None;
    }
    let used = candidate.disks();
    let parts = candidate.arrays.iter().flat_map(|array| &array.parts);
    let needed = parts.map(|part| part.first + part.sectors).max()?;
    let others = (0..disks.len()).filter(|disk| !used.contains(disk));
    let large = others.filter(|&disk| disks[disk].sectors >= needed);
    let spare = large.min_by_key(|&disk| disks[disk].sectors)?;
    Some(Candidate { spare: Some(spare), ..candidate.clone() })
}

fn of_set(disks: &[Disk], set: &[usize], wished: Option<u64>, all: &mut Vec<Candidate>) {
    let whole = |disk: usize| DiskWindow { disk, first: 0, sectors: disks[disk].sectors };
    let parts: Vec<DiskWindow> = set.iter().map(|&disk| whole(disk)).collect();
    for (level, layout) in shapes(set.len()) {
        let array = Array { level, layout, chunk: None, parts: parts.clone() };
        let least = parts.iter().map(|part| part.sectors).min().unwrap_or(0);
        let evened = match level {
            None | Some(Level::Linear | Level::Raid0) => array,
            // What is beyond the smallest member's end is not used.
            Some(_) => shortened(&array, least),
        };
        if let Some(short) = wished.and_then(|wished| short_stroked(disks, &evened, wished)) {
            all.push(Candidate::one(short));
        }
        all.push(Candidate::one(evened));
    }
    if is_unlike(disks, set) {
        all.extend((1..=2).filter_map(|lost| layered(disks, set, lost)));
        all.extend(paired(disks, set));
    }
}

/// Levels and layouts for so many members.
fn shapes(members: usize) -> Vec<(Option<Level>, Option<Layout>)> {
    let raid10 = |layout| (Some(Level::Raid10), Some(Layout::Raid10(layout)));
    let mut shapes = Vec::new();
    if members == 1 {
        shapes.push((None, None));
        return shapes;
    }
    shapes.extend([Level::Linear, Level::Raid0].map(|level| (Some(level), None)));
    if members <= 4 {
        shapes.push((Some(Level::Raid1), None));
    }
    shapes.push(raid10(Raid10Layout::far(2)));
    if members >= 3 {
        shapes.push((Some(Level::Raid5), None));
        shapes.push(raid10(Raid10Layout::near(2)));
        shapes.push(raid10(Raid10Layout::offset(2)));
    }
    if members >= 4 {
        shapes.push((Some(Level::Raid6), None));
        shapes.push(raid10(Raid10Layout::near(3)));
    }
    shapes
}

fn shortened(array: &Array, sectors: u64) -> Array {
    let part = |part: &DiskWindow| DiskWindow { sectors: part.sectors.min(sectors), ..*part };
    Array { parts: array.parts.iter().map(part).collect(), ..array.clone() }
}

/// The outer tracks alone, if they are enough and there is an arm that has less far to go then.
fn short_stroked(disks: &[Disk], array: &Array, wished: u64) -> Option<Array> {
    let offers = Candidate::one(array.clone()).capacity();
    let largest = array.parts.iter().map(|part| part.sectors).max()?;
    // Parts are cut at one size, so that only those above it become smaller.
    let share = wished as f64 / offers.max(1) as f64;
    let mut sectors = window_for((largest as f64 * share) as u64);
    while sectors < largest {
        let short = shortened(array, sectors);
        if Candidate::one(short.clone()).capacity() >= wished {
            let has_arm = array.parts.iter().any(|part| disks[part.disk].is_rotational);
            return has_arm.then_some(short);
        }
        sectors += window_for(sectors / 20);
    }
    None
}

fn is_unlike(disks: &[Disk], set: &[usize]) -> bool {
    let sizes = || set.iter().map(|&disk| disks[disk].sectors as f64);
    sizes().fold(0.0, f64::max) > (1.0 + UNLIKE) * sizes().fold(f64::INFINITY, f64::min)
}

/// Arrays over equal windows of all disks that reach so far, each able to lose `lost` members, one after the other.
fn layered(disks: &[Disk], set: &[usize], lost: usize) -> Option<Candidate> {
    let mut sizes: Vec<u64> = set.iter().map(|&disk| disks[disk].sectors).collect();
    sizes.sort_unstable();
    let (mut arrays, mut first) = (Vec::new(), 0);
    for size in sizes {
        if (size - first) as f64 <= UNLIKE * size as f64 {
            continue;
        }
        let reach = set.iter().filter(|&&disk| disks[disk].sectors >= size);
        let parts: Vec<DiskWindow> =
            reach.map(|&disk| DiskWindow { disk, first, sectors: size - first }).collect();
        let level = match (parts.len(), lost) {
            (members, _) if members <= lost => break,
            (members, _) if members == lost + 1 => Level::Raid1,
            (_, 1) => Level::Raid5,
            _ => Level::Raid6,
        };
        arrays.push(Array { level: Some(level), layout: None, chunk: None, parts });
        first = size;
    }
    (arrays.len() > 1).then(|| Candidate::several(arrays, Join::Linear))
}

/// A stripe over mirrors, each of two disks of about the same size.
fn paired(disks: &[Disk], set: &[usize]) -> Option<Candidate> {
    if set.len() < 4 || !set.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[usize]| {
        let sectors = pair.iter().map(|&disk| disks[disk].sectors).min().unwrap_or(0);
        let parts = pair.iter().map(|&disk| DiskWindow { disk, first: 0, sectors }).collect();
        Array { level: Some(Level::Raid1), layout: None, chunk: None, parts }
    };
    let arrays = set.chunks(2).map(pair).collect();
    Some(Candidate::several(arrays, Join::Striped))
}
