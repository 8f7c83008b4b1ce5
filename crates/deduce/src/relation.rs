//! What parity and copies say of a hypothesis: relations between sectors that hold or do not.
//!
//! Only rows in which something lies are asked. That a relation holds there by chance is out of the question but for
//! data that repeat themselves; that it fails is possible in an array that was never synced, or was damaged.

use crate::hypothesis::Hypothesis;
use crate::sample::{Row, Samples};
use lapstrake_geometry::{Content, Geometry, Parity, Sector, Slot, StripeRole};
use lapstrake_parity::gf;

type Bytes = [u8; 512];

/// How many relations were tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relations {
    /// They hold.
    pub held: u32,
    /// They do not.
    pub failed: u32,
    /// Rows that lack one sector, so that nothing can be checked, unless that one is zero.
    pub unchecked: u32,
    /// Of these: the others' exclusive or is zero, so that the missing one is.
    pub unchecked_zero: u32,
}

impl Relations {
    fn count(&mut self, holds: bool) {
        let counter = if holds { &mut self.held } else { &mut self.failed };
        *counter += 1;
    }

    /// As a logarithm of odds against devices that have nothing to do with each other.
    pub(crate) fn weight(self) -> f64 {
        let (held, failed) = (f64::from(self.held), f64::from(self.failed));
        // An array that is in sync everywhere, or one of which some parts never were.
        let checked = 3.0 * held + f64::max(-4.6 * failed, -3.0 - 0.7 * failed);
        // A missing member that is zero nowhere is unlikely, but a full one is possible.
        let unchecked = -f64::from(self.unchecked.min(3) + 1).ln();
        // A few are texts that repeat themselves.
        let is_some = self.unchecked_zero * 5 >= self.unchecked;
        let unchecked_zero =
            if is_some { f64::min(3.0 * f64::from(self.unchecked_zero), 15.0) } else { 0.0 };
        checked + unchecked_zero + unchecked
    }

    /// Per cent that hold.
    #[must_use]
    pub fn percent(self) -> f64 {
        100.0 * f64::from(self.held) / f64::from((self.held + self.failed).max(1))
    }
}

/// Tries what a hypothesis says of the rows.
pub(crate) fn relations(samples: &Samples<'_>, hypothesis: &Hypothesis, most: usize) -> Relations {
    let mut found = Relations::default();
    let every = samples.rows.len().div_ceil(most.max(1)).max(1);
    for row in samples.rows.iter().step_by(every) {
        let Some(inside) = row.at.checked_sub(hypothesis.data_offset) else { continue };
        let sector = Sector(inside / 512);
        match &hypothesis.geometry {
            Geometry::Parity(parity) => {
                if sector.0 < parity.used().0 {
                    of_stripe(hypothesis, parity, row, sector, &mut found);
                }
            }
            Geometry::Mirror(_) | Geometry::Raid10(_) => {
                of_copies(samples, hypothesis, row, sector, &mut found);
            }
            Geometry::Linear(_) | Geometry::Raid0(_) => {}
        }
    }
    found
}

/// What the devices have in common whatever the order: of so many rows in which at least two of them hold something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Rows that could be read of all devices.
    pub rows: u32,
    /// All devices hold the same.
    pub equal: u32,
    /// The exclusive or of all devices is zero: RAID4, RAID5, and mirrors of an even number of copies.
    pub zero: u32,
    /// That of all devices but one is zero, and the one is not: RAID6.
    pub but_one: u32,
}

/// Counts it.
pub(crate) fn agreement(samples: &Samples<'_>) -> Agreement {
    let mut found = Agreement::default();
    for row in &samples.rows {
        let sectors: Option<Vec<&Bytes>> = row.sectors.iter().map(|s| s.as_deref()).collect();
        let Some(sectors) = sectors else { continue };
        let mut sum = [0; 512];
        for bytes in &sectors {
            sum.iter_mut().zip(*bytes).for_each(|(to, from)| *to ^= from);
        }
        found.rows += 1;
        found.equal += u32::from(sectors.iter().all(|bytes| *bytes == sectors[0]));
        found.zero += u32::from(sum == [0; 512]);
        found.but_one += u32::from(sum != [0; 512] && sectors.iter().any(|bytes| **bytes == sum));
    }
    found
}

fn is_rich(bytes: &Bytes) -> bool {
    bytes.iter().any(|byte| *byte != bytes[0])
}

/// Copies of what lies in this row equal each other, wherever they are.
fn of_copies(
    samples: &Samples<'_>,
    hypothesis: &Hypothesis,
    row: &Row,
    sector: Sector,
    found: &mut Relations,
) {
    let size = hypothesis.geometry.array_sectors();
    for (slot, device) in hypothesis.order.iter().enumerate() {
        let Some(own) = device.and_then(|device| row.sectors[device].as_ref()) else { continue };
        let content = hypothesis.geometry.content(Slot(slot as u16), sector);
        let Content::Data(address) = content else { continue };
        if address.0 >= size.0 {
            continue;
        }
        let mut homes = hypothesis.homes(address.bytes());
        // Each set of copies once, by its first one.
        if homes.next().map(|(first, _)| Some(first)) != Some(*device) {
            continue;
        }
        for (other, at) in homes {
            let theirs = match at == row.at {
                true => row.sectors[other].clone(),
                false => samples.sector(other, at),
            };
            let Some(theirs) = theirs else { continue };
            if is_rich(own) || is_rich(&theirs) {
                found.count(*own == theirs);
            }
        }
    }
}

/// A stripe's sectors by what they are.
struct Stripe<'a> {
    p: Option<&'a Bytes>,
    q: Option<&'a Bytes>,
    /// With their powers of g.
    data: Vec<(u8, Option<&'a Bytes>)>,
}

fn of_stripe(
    hypothesis: &Hypothesis,
    parity: &Parity,
    row: &Row,
    sector: Sector,
    found: &mut Relations,
) {
    let stripe_no = parity.stripe_at(sector).0;
    let mut stripe = Stripe { p: None, q: None, data: Vec::new() };
    for (slot, device) in hypothesis.order.iter().enumerate() {
        let bytes = device.and_then(|device| row.sectors[device].as_deref());
        match parity.role(stripe_no, Slot(slot as u16)) {
            StripeRole::P => stripe.p = bytes,
            StripeRole::Q => stripe.q = bytes,
            StripeRole::Data(index) => {
                stripe.data.push((parity.q_exponent(stripe_no, index), bytes));
            }
        }
    }
    let present = stripe.data.iter().filter_map(|(_, bytes)| *bytes);
    let rich = present.chain(stripe.p).chain(stripe.q).filter(|bytes| is_rich(bytes)).count();
    if rich >= 2 {
        stripe.check(parity.parity_disks() == 2, rich, found);
    }
}

impl Stripe<'_> {
    fn check(&self, has_q: bool, rich: usize, found: &mut Relations) {
        let lost = self.data.iter().filter(|(_, bytes)| bytes.is_none()).count();
        // Two equal sectors beside zeros are common in any file system.
        let unchecked = u32::from(rich >= 3);
        if lost > 1 || lost == 1 && self.p.is_none() {
            found.unchecked += unchecked;
            return;
        }
        // The exclusive or of P and all data: zero, or the one that is not there.
        let mut rest = self.p.copied();
        if let Some(rest) = &mut rest {
            for bytes in self.data.iter().filter_map(|(_, bytes)| *bytes) {
                rest.iter_mut().zip(bytes).for_each(|(to, from)| *to ^= from);
            }
            match (lost, has_q && self.q.is_some()) {
                (0, _) => found.count(*rest == [0; 512]),
                (_, true) => {}
                (_, false) => {
                    found.unchecked += unchecked;
                    found.unchecked_zero += if *rest == [0; 512] { unchecked } else { 0 };
                }
            }
        }
        if let (true, Some(q)) = (has_q, self.q) {
            let lost = rest.unwrap_or([0; 512]);
            found.count(self.syndrome(&lost) == *q);
        }
    }

    fn syndrome(&self, lost: &Bytes) -> Bytes {
        let mut sum = [0; 512];
        for (power, bytes) in &self.data {
            let factor = gf::exp(*power);
            let bytes = bytes.unwrap_or(lost);
            sum.iter_mut().zip(bytes).for_each(|(to, from)| *to ^= gf::mul(factor, *from));
        }
        sum
    }
}
