//! Volumes that are content of others, such as the file systems in images of virtual machines: they tell their own place,
//! and would have the array begin where they do.

use crate::hypothesis::{Hypothesis, offset_prior};
use crate::volume::{Seen, Volume};
use std::collections::BTreeMap;

/// Structures by which it is told.
const GROUPS: usize = 160;
/// So many of them lie alike in the outer volume at least.
const ALIKE_MIN: usize = 4;

/// Whether an array that holds `outer` from byte `begins` on holds the other volume in it, as a file's content. `own` is what
/// the other one by itself takes the array for.
///
/// A volume that was made on a new array over an old one looks alike: it begins where mdadm has data begin, and reaches to
/// the array's end. Which of them is alive is not told here.
pub(crate) fn is_content(
    (array, begins): (&Hypothesis, u64),
    outer: &Volume,
    inner: &Seen,
    own: &Hypothesis,
) -> bool {
    let Some(start) = start_of(array, inner) else { return false };
    let end = begins.saturating_add(outer.bytes);
    let is_within = start > begins && start.saturating_add(inner.volume.bytes) <= end;
    let reaches_end = end - (start + inner.volume.bytes).min(end) < outer.bytes / 16;
    is_within && !reaches_end && offset_prior(own.data_offset) < 0.0
}

/// Where a volume begins in the array, bytes, if most of what was seen of it says the same.
fn start_of(array: &Hypothesis, seen: &Seen) -> Option<u64> {
    let mut starts: BTreeMap<u64, usize> = BTreeMap::new();
    let count = seen.groups.len().min(GROUPS);
    for index in 0..count {
        let group = &seen.groups[index * seen.groups.len() / count];
        let places = group.places.iter().filter_map(|at| array.address_of(*at));
        let claims = |at: u64| group.claims.iter().filter_map(move |claim| at.checked_sub(*claim));
        let mut own: Vec<u64> = places.flat_map(claims).collect();
        own.sort_unstable();
        own.dedup();
        own.into_iter().for_each(|start| *starts.entry(start).or_default() += 1);
    }
    let (start, alike) = starts.into_iter().max_by_key(|(_, alike)| *alike)?;
    (alike >= ALIKE_MIN && alike * 2 > count).then_some(start)
}
