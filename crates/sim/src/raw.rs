//! Redundancy on the members' raw images, by the maps of `geometry` and the sums of `parity`
//! alone.
//!
//! Rows are counted as the write-intent bitmap counts: on the parity levels a row is one sector
//! of every member, elsewhere one sector of the array with all its copies.

use crate::disk::SECTOR;
use lapstrake_geometry::{Geometry, Parity, Sector, Sectors, Slot, StripeNo};
use lapstrake_parity::{gf, kernels, recovery};

/// Whether parity is right also of what was discarded. With one member for data it is a copy of that, as it was in the mirror
/// that the array may have been.
pub(crate) fn keeps_parity(geometry: &Geometry) -> bool {
    matches!(geometry, Geometry::Parity(parity) if parity.data_disks() > 1)
}

/// What one slot holds, or should hold, of a row.
pub(crate) type Cell = (Slot, Sector, Vec<u8>);

/// The bytes of a slot's sector, if its member is to be looked at.
pub(crate) trait Image<'a>: Fn(Slot, Sector) -> Option<&'a [u8]> {}
impl<'a, F: Fn(Slot, Sector) -> Option<&'a [u8]>> Image<'a> for F {}

pub(crate) fn rows(geometry: &Geometry) -> u64 {
    match geometry {
        Geometry::Parity(parity) => parity.stripes() * parity.chunk().0,
        other => other.array_sectors().0,
    }
}

/// The row of an array sector.
pub(crate) fn row_of(geometry: &Geometry, sector: u64) -> u64 {
    match geometry {
        Geometry::Parity(parity) => {
            let (stripe, _, offset) = parity.locate(Sector(sector));
            parity.member_sector(stripe, offset).0
        }
        _ => sector,
    }
}

/// The array sectors of a row whose data `is_lost`.
pub(crate) fn lost_sectors(
    geometry: &Geometry,
    row: u64,
    is_lost: impl Fn(Slot) -> bool,
) -> Vec<u64> {
    let Geometry::Parity(parity) = geometry else { return Vec::new() };
    let (stripe, offset) = parity.stripe_at(Sector(row));
    (0..parity.data_disks())
        .filter(|&data| is_lost(parity.slot_of_data(stripe, data)))
        .map(|data| parity.array_sector(stripe, data, offset).0)
        .collect()
}

/// The array sectors of a row.
pub(crate) fn sectors_of(geometry: &Geometry, row: u64) -> Vec<u64> {
    match geometry {
        Geometry::Parity(_) => lost_sectors(geometry, row, |_| true),
        _ => vec![row],
    }
}

/// What all slots of a row should hold, by the data in `image`, or by what is left of it and
/// parity. None if too little is left.
pub(crate) fn expected<'a>(
    geometry: &Geometry,
    row: u64,
    image: &impl Image<'a>,
) -> Option<Vec<Cell>> {
    let Geometry::Parity(parity) = geometry else {
        let homes = geometry.map(Sector(row)).homes;
        let bytes = homes.iter().find_map(|home| image(home.slot, home.sector))?;
        return Some(homes.iter().map(|h| (h.slot, h.sector, bytes.to_vec())).collect());
    };
    let (stripe, offset) = parity.stripe_at(Sector(row));
    let data = data_of(parity, stripe, offset, image)?;
    let sector = parity.member_sector(stripe, offset);
    let (mut p, mut q) = (vec![0; SECTOR], vec![0; SECTOR]);
    let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    kernels().xor(&mut p, &sources);
    let coefs: Vec<u8> = exponents(parity, stripe).iter().map(|&e| gf::exp(e)).collect();
    kernels().mul_add(&mut q, &coefs, &sources);
    let mut cells: Vec<Cell> = (0..)
        .zip(data)
        .map(|(index, bytes)| (parity.slot_of_data(stripe, index), sector, bytes))
        .collect();
    cells.push((parity.slot_of_p(stripe), sector, p));
    cells.extend(parity.slot_of_q(stripe).map(|slot| (slot, sector, q)));
    Some(cells)
}

/// Rows in which the members of `image` do not agree.
pub(crate) fn mismatches<'a>(geometry: &Geometry, image: &impl Image<'a>) -> Vec<u64> {
    let differs = |row: &u64| !odd_slots(geometry, *row, image).is_empty();
    (0..rows(geometry)).filter(differs).collect()
}

/// The slots that do not hold what the row's data, or what is left of it, demands.
pub(crate) fn odd_slots<'a>(geometry: &Geometry, row: u64, image: &impl Image<'a>) -> Vec<Slot> {
    let cells = expected(geometry, row, image).unwrap_or_default();
    let is_odd =
        |(slot, sector, bytes): &Cell| image(*slot, *sector).is_some_and(|found| found != bytes);
    cells.iter().filter(|cell| is_odd(cell)).map(|cell| cell.0).collect()
}

fn exponents(parity: &Parity, stripe: StripeNo) -> Vec<u8> {
    (0..parity.data_disks()).map(|data| parity.q_exponent(stripe, data)).collect()
}

/// The row's data; what is lost comes from P, or from Q if there is no P.
fn data_of<'a>(
    parity: &Parity,
    stripe: StripeNo,
    offset: Sectors,
    image: &impl Image<'a>,
) -> Option<Vec<Vec<u8>>> {
    let sector = parity.member_sector(stripe, offset);
    let found: Vec<Option<&[u8]>> = (0..parity.data_disks())
        .map(|data| image(parity.slot_of_data(stripe, data), sector))
        .collect();
    let lost: Vec<usize> = (0..found.len()).filter(|&data| found[data].is_none()).collect();
    let p = image(parity.slot_of_p(stripe), sector);
    let q = parity.slot_of_q(stripe).and_then(|slot| image(slot, sector));
    let exps = exponents(parity, stripe);
    let mut rows = [vec![0; found.len()], vec![0; found.len()]];
    let [first, second] = &mut rows;
    let mut sources: Vec<&[u8]> = found.iter().copied().flatten().collect();
    match (&lost[..], p, q) {
        ([], ..) => {}
        (&[_], Some(p), _) => {
            sources.push(p);
            first.fill(1);
        }
        (&[one], None, Some(q)) => {
            sources.push(q);
            recovery::recover_data_from_q(&exps, one, first, second);
        }
        (&[one, two], Some(p), Some(q)) => {
            sources.extend([p, q]);
            recovery::recover_two_data(&exps, one, two, first, second);
        }
        _ => return None,
    }
    let mut restored: Vec<Vec<u8>> = Vec::new();
    for row in rows.iter().take(lost.len()) {
        let mut bytes = vec![0; SECTOR];
        kernels().mul(&mut [&mut bytes], &[&row[..sources.len()]], &sources);
        restored.push(bytes);
    }
    let mut restored = restored.into_iter();
    found.into_iter().map(|bytes| bytes.map(<[u8]>::to_vec).or_else(|| restored.next())).collect()
}
