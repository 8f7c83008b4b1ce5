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

/// Orders of members that are tried.
const ORDERS: usize = 720;

/// All orders of so many members, as many as are tried.
fn orders(members: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..members {
        let longer = |order: Vec<usize>| {
            let left = (0..members).filter(|member| !order.contains(member)).collect::<Vec<_>>();
            left.into_iter().map(move |member| [&order[..], &[member]].concat())
        };
        orders = orders.into_iter().flat_map(longer).take(ORDERS).collect();
    }
    orders
}

/// Linear arrays that these observations show, of a volume that begins at byte `start` of them: one, unless nothing is
/// known of some members.
pub(crate) fn hypotheses(samples: &Samples<'_>, groups: &[&Group], start: u64) -> Vec<Hypothesis> {
    let devices = samples.devices();
    let shifts: Vec<Option<i64>> =
        (0..devices).map(|device| Some(distance(groups, device)? + start as i64)).collect();
    let Some(first) = shifts.iter().flatten().min() else { return Vec::new() };
    let Ok(data_offset) = u64::try_from(-first) else { return Vec::new() };
    let tried = orders(devices).into_iter();
    tried.filter_map(|order| in_order(samples, &shifts, data_offset, order)).collect()
}

/// The linear array of members in this order, if what is known of where they begin allows it.
fn in_order(
    samples: &Samples<'_>,
    shifts: &[Option<i64>],
    data_offset: u64,
    order: Vec<usize>,
) -> Option<Hypothesis> {
    // Members end a little before their devices do.
    const SLACK: u64 = 4 << 20;
    let (mut sizes, mut begin): (Vec<Sectors>, u64) = (Vec::new(), 0);
    for device in &order {
        if let Some(shift) = shifts[*device] {
            let known = u64::try_from(shift + data_offset as i64).ok()?;
            match sizes.last_mut() {
                None if known != 0 => return None,
                None => {}
                Some(last) => {
                    let less = begin.checked_sub(known)?;
                    if less > SLACK || less / 512 >= last.0 {
                        return None;
                    }
                    last.0 -= less / 512;
                    begin = known;
                }
            }
        } else if sizes.is_empty() {
            return None;
        }
        let room = samples.size(*device).checked_sub(data_offset)? / 512;
        sizes.push(Sectors(room));
        begin += room * 512;
    }
    let slots = order.len() as u16;
    let shape = Shape { level: Level::Linear, layout: Layout::None, chunk: Sectors::ZERO, slots };
    let geometry = shape.geometry(Sectors::ZERO, sizes)?;
    let order = order.into_iter().map(Some).collect();
    Some(Hypothesis { shape, geometry, data_offset, order })
}
