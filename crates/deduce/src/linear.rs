//! Members one after the other: each device has a distance of its own between its bytes and the volume's.

use crate::hypothesis::Hypothesis;
use crate::sample::Samples;
use crate::shape::Shape;
use crate::volume::Group;
use lapstrake_geometry::{Layout, Level, Sectors};
use std::collections::HashMap;

/// The most usual distance from a device's bytes to the volume's, if there is one.
fn distance(groups: &[&Group], device: usize) -> Option<i64> {
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for group in groups {
        for (_, at) in group.places.iter().filter(|(of, _)| *of == device) {
            for claim in &group.claims {
                *counts.entry(*claim as i64 - *at as i64).or_default() += 1;
            }
        }
    }
    counts.into_iter().max_by_key(|(distance, count)| (*count, -distance)).map(|(d, _)| d)
}

/// The linear array that these observations show, if they show one, of a volume that begins at byte `start` of it.
pub(crate) fn hypothesis(
    samples: &Samples<'_>,
    groups: &[&Group],
    start: u64,
) -> Option<Hypothesis> {
    let devices = samples.devices();
    let mut shifts: Vec<(i64, usize)> = (0..devices)
        .map(|device| Some((distance(groups, device)? + start as i64, device)))
        .collect::<Option<_>>()?;
    shifts.sort_unstable();
    let data_offset = u64::try_from(-shifts.first()?.0).ok()?;
    let mut sizes = Vec::new();
    for (index, (shift, device)) in shifts.iter().enumerate() {
        let room = samples.size(*device).checked_sub(data_offset)?;
        let size = match shifts.get(index + 1) {
            Some((next, _)) => u64::try_from(next - shift).ok()?,
            None => room / 512 * 512,
        };
        if size > room || size < room / 2 {
            return None;
        }
        sizes.push(Sectors(size / 512));
    }
    let slots = devices as u16;
    let shape = Shape { level: Level::Linear, layout: Layout::None, chunk: Sectors::ZERO, slots };
    let geometry = shape.geometry(Sectors::ZERO, sizes)?;
    let order = shifts.iter().map(|(_, device)| Some(*device)).collect();
    Some(Hypothesis { shape, geometry, data_offset, order })
}
