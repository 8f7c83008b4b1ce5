//! Data offset and order by votes.
//!
//! Under a shape, every observation tells on which slot it has to lie and how deep; where it was seen tells the rest. So
//! none of the orders has to be tried: each observation votes for a data offset and for the place of one device, and
//! the order is the assignment with most votes.

use crate::hypothesis::{Hypothesis, offset_prior};
use crate::shape::Shape;
use crate::volume::Group;
use lapstrake_geometry::{Geometry, Sector};
use std::collections::HashMap;

/// Data offsets that are followed up for each shape.
const OFFSETS: usize = 3;
/// Orders of devices for which nothing votes, each a hypothesis.
const ORDERS: usize = 24;

/// One way for an observation to be right.
struct Vote {
    group: usize,
    device: usize,
    slot: usize,
    offset: u64,
}

/// The votes of these observations, of a volume that begins at byte `start` of the array.
fn votes(geometry: &Geometry, shape: &Shape, groups: &[&Group], start: u64) -> Vec<Vote> {
    let mut votes = Vec::new();
    // How far the second copies of far layouts are from the first is not known yet.
    let copies = if shape.is_far() { 1 } else { usize::MAX };
    for (index, group) in groups.iter().enumerate() {
        for claim in &group.claims {
            let address = start.saturating_add(*claim);
            let (address, rest) = (address / 512, address % 512);
            if address >= geometry.array_sectors().0 {
                continue;
            }
            for home in geometry.map(Sector(address)).homes.iter().take(copies) {
                for &(device, at) in &group.places {
                    let Some(offset) = at.checked_sub(home.sector.bytes() + rest) else { continue };
                    votes.push(Vote { group: index, device, slot: home.slot.index(), offset });
                }
            }
        }
    }
    votes
}

/// The offsets with most votes; of equals, the usual ones.
fn offsets(votes: &[Vote]) -> Vec<u64> {
    let mut counts: HashMap<u64, (usize, usize)> = HashMap::new();
    for vote in votes {
        let (count, last) = counts.entry(vote.offset).or_insert((0, usize::MAX));
        // A group counts once.
        *count += usize::from(*last != vote.group);
        *last = vote.group;
    }
    let mut found: Vec<(f64, u64)> = counts
        .into_iter()
        .map(|(offset, (count, _))| (-3.0 * count as f64 - offset_prior(offset), offset))
        .collect();
    found.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    found.into_iter().take(OFFSETS).map(|(_, offset)| offset).collect()
}

/// Hypotheses of a shape that these observations vote for.
pub(crate) fn hypotheses(
    shape: &Shape,
    geometry: &Geometry,
    groups: &[&Group],
    start: u64,
    devices: usize,
) -> Vec<Hypothesis> {
    let votes = votes(geometry, shape, groups, start);
    let mut found = Vec::new();
    for data_offset in offsets(&votes) {
        let mut table = vec![vec![0u32; shape.slots.into()]; devices];
        for vote in votes.iter().filter(|vote| vote.offset == data_offset) {
            table[vote.device][vote.slot] += 1;
        }
        for order in orders(&table, shape.slots.into()) {
            let (shape, geometry) = (*shape, geometry.clone());
            found.push(Hypothesis { shape, geometry, data_offset, order });
        }
    }
    found
}

/// The best order, and where some devices have no votes, all ways to place these.
fn orders(table: &[Vec<u32>], slots: usize) -> Vec<Vec<Option<usize>>> {
    let best = assign(table, slots);
    let voteless: Vec<usize> =
        (0..table.len()).filter(|device| !best.contains(&Some(*device))).collect();
    let mut orders = vec![best];
    for device in voteless {
        let placed = orders.iter().flat_map(|order| {
            let free = (0..slots).filter(|slot| order[*slot].is_none());
            free.map(move |slot| {
                let mut order = order.clone();
                order[slot] = Some(device);
                order
            })
        });
        orders = placed.take(ORDERS).collect();
    }
    orders
}

/// Which device is in each slot, so that the votes are most; a device without a vote is in none.
fn assign(table: &[Vec<u32>], slots: usize) -> Vec<Option<usize>> {
    let mut all: Vec<(u32, usize, usize)> = Vec::new();
    for (device, row) in table.iter().enumerate() {
        all.extend(row.iter().enumerate().filter(|(_, v)| **v > 0).map(|(s, v)| (*v, device, s)));
    }
    all.sort_unstable_by_key(|(votes, device, slot)| (std::cmp::Reverse(*votes), *device, *slot));
    // Behind the slots, a place for each device that is in none.
    let mut places = vec![None; slots + table.len()];
    let mut is_placed = vec![false; table.len()];
    for (_, device, slot) in all {
        if !is_placed[device] && places[slot].is_none() {
            places[slot] = Some(device);
            is_placed[device] = true;
        }
    }
    for device in (0..table.len()).filter(|device| !is_placed[*device]) {
        places[slots + device] = Some(device);
    }
    exchange(table, slots, &mut places);
    let has_vote = |slot: usize, device: usize| table[device][slot] > 0;
    places.truncate(slots);
    let slots = places.into_iter().enumerate();
    slots.map(|(slot, device)| device.filter(|device| has_vote(slot, *device))).collect()
}

/// Moves round pairs and triples of places while that gains votes. Nothing is to be gained where each device has the
/// slot that it has most votes for.
fn exchange(table: &[Vec<u32>], slots: usize, places: &mut [Option<usize>]) {
    let votes = |device: Option<usize>, place: usize| match device {
        Some(device) if place < slots => table[device][place],
        _ => 0,
    };
    let most: u32 = table.iter().map(|row| row.iter().max().copied().unwrap_or(0)).sum();
    let count = places.len();
    loop {
        let now: u32 = places.iter().enumerate().map(|(place, device)| votes(*device, place)).sum();
        if now >= most {
            return;
        }
        let triples = (0..count)
            .flat_map(|a| (a..count).flat_map(move |b| (0..count).map(move |c| (a, b, c))));
        // What is in a goes to b, that to c, that to a; with a = b it is an exchange.
        let gains = |&(a, b, c): &(usize, usize, usize)| {
            let (x, y, z) = (places[a], places[b], places[c]);
            let before = votes(x, a) + votes(z, c) + if a == b { 0 } else { votes(y, b) };
            let after = match a == b {
                true => votes(x, c) + votes(z, a),
                false => votes(x, b) + votes(y, c) + votes(z, a),
            };
            c != a && c != b && after > before
        };
        let Some((a, b, c)) = triples.into_iter().find(gains) else { return };
        if a == b {
            places.swap(a, c);
        } else {
            (places[b], places[c], places[a]) = (places[a], places[b], places[c]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_votes_win_and_who_has_none_is_tried_everywhere() {
        let table = [vec![5, 9, 0, 0], vec![0, 8, 0, 0], vec![0, 0, 0, 0]];
        assert_eq!(assign(&table, 4), [Some(0), Some(1), None, None]);
        let orders = orders(&table, 4);
        assert_eq!(orders.len(), 2);
        assert_eq!(orders[1], [Some(0), Some(1), None, Some(2)]);
    }
}
