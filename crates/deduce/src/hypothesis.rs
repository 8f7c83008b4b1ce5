//! A hypothesis: all that it takes to read an array, and what speaks for it.

use crate::sample::Samples;
use crate::shape::Shape;
use crate::volume::Group;
use lapstrake_geometry::{Content, Geometry, Level, Sector, Sectors, Slot};
use lapstrake_parity::gf;

/// A way to read the devices as an array.
#[derive(Clone, Debug)]
pub(crate) struct Hypothesis {
    pub(crate) shape: Shape,
    pub(crate) geometry: Geometry,
    /// Where data begins on each device, bytes.
    pub(crate) data_offset: u64,
    /// Which device is in each slot.
    pub(crate) order: Vec<Option<usize>>,
}

/// Whether a structure lies where a hypothesis has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// In all copies.
    Placed,
    /// In one copy, while another was seen to hold something else.
    CopyLacks,
    /// Not at all.
    Misplaced,
}

/// Data offsets that mdadm chooses itself, or did once, bytes: 0.90 and 1.0; 1.1; 1.2 from the first version to now.
const USUAL_OFFSETS: [u64; 11] = [
    0,
    8 << 9,
    16 << 9,
    24 << 9,
    136 << 9,
    256 << 9,
    264 << 9,
    272 << 9,
    2048 << 9,
    262_144 << 9,
    264_192 << 9,
];

/// How unusual a data offset is, as a logarithm of odds.
pub(crate) fn offset_prior(offset: u64) -> f64 {
    match offset {
        usual if USUAL_OFFSETS.contains(&usual) => 0.0,
        whole if whole.is_multiple_of(1 << 20) => -0.5,
        page if page.is_multiple_of(4096) => -3.0,
        _ => -6.0,
    }
}

impl Hypothesis {
    /// Where a byte of the array lies: device and byte of it, for each copy that is there.
    pub(crate) fn homes(&self, address: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let sector = Sector(address / 512);
        let is_inside = sector.0 < self.geometry.array_sectors().0;
        let run = is_inside.then(|| self.geometry.map(sector));
        run.into_iter().flat_map(move |run| {
            run.homes.into_iter().filter_map(move |home| {
                let device = self.order[home.slot.index()]?;
                Some((device, self.data_offset + home.sector.bytes() + address % 512))
            })
        })
    }

    /// The array's byte that lies at this device's byte; None where that is no data.
    pub(crate) fn address_of(&self, (device, at): (usize, u64)) -> Option<u64> {
        let slot = self.order.iter().position(|given| *given == Some(device))?;
        let sector = Sector(at.checked_sub(self.data_offset)? / 512);
        match self.geometry.content(Slot(slot as u16), sector) {
            Content::Data(Sector(address)) => Some(address * 512 + at % 512),
            _ => None,
        }
    }

    /// How well it explains that a structure was seen where it was.
    pub(crate) fn fit(&self, samples: &Samples<'_>, group: &Group, start: u64) -> Fit {
        let mut best = Fit::Misplaced;
        for claim in &group.claims {
            let (mut seen, mut all) = (0, 0);
            let homes = self.homes(start.saturating_add(*claim));
            for home in homes.filter(|home| !samples.lacks(*home)) {
                all += 1;
                seen += usize::from(group.places.contains(&home));
            }
            match seen {
                0 if all == 0
                    && self.is_in_parity(samples, group, start.saturating_add(*claim)) =>
                {
                    return Fit::Placed;
                }
                0 => {}
                seen if seen == all => return Fit::Placed,
                _ => best = Fit::CopyLacks,
            }
        }
        best
    }

    /// Whether a structure of a member that is missing was seen in its row's parity: where the other data come to zero,
    /// P is a copy, and Q that of the data with power 0.
    fn is_in_parity(&self, samples: &Samples<'_>, group: &Group, address: u64) -> bool {
        let Geometry::Parity(parity) = &self.geometry else { return false };
        let sector = Sector(address / 512);
        if sector.0 >= parity.array_sectors().0 {
            return false;
        }
        let (stripe, index, inside) = parity.locate(sector);
        let at = self.data_offset + parity.member_sector(stripe, inside).bytes() + address % 512;
        let is_seen = |slot: Slot| {
            self.order[slot.index()].is_some_and(|device| group.places.contains(&(device, at)))
        };
        let (in_p, in_q) =
            (is_seen(parity.slot_of_p(stripe)), parity.slot_of_q(stripe).is_some_and(is_seen));
        if !in_p && !in_q {
            return false;
        }
        // Only the bytes that the structure was known by.
        let from = (at % 512) as usize;
        let proof = from..(from + group.structure.proof()).min(512);
        let mut sum = [0; 512];
        for other in (0..parity.data_disks()).filter(|other| *other != index) {
            let Some(device) = self.order[parity.slot_of_data(stripe, other).index()] else {
                continue;
            };
            let Some(bytes) = samples.sector(device, at / 512 * 512) else { return false };
            let factor = if in_p { 1 } else { gf::exp(parity.q_exponent(stripe, other)) };
            sum.iter_mut().zip(&bytes[..]).for_each(|(to, from)| *to ^= gf::mul(factor, *from));
        }
        sum[proof].iter().all(|byte| *byte == 0)
    }

    /// Whether all that was seen of a structure lies in parity: as checksums are linear, over three inodes it passes for
    /// an inode.
    pub(crate) fn has_in_parity_only(&self, group: &Group) -> bool {
        group.places.iter().all(|(device, at)| {
            let slot = self.order.iter().position(|given| *given == Some(*device));
            let sector = at.checked_sub(self.data_offset).map(|at| Sector(at / 512));
            slot.zip(sector).is_some_and(|(slot, sector)| {
                let content = self.geometry.content(Slot(slot as u16), sector);
                matches!(content, Content::P(_) | Content::Q(_))
            })
        })
    }

    /// Members that are not there.
    pub(crate) fn missing(&self) -> usize {
        self.order.iter().filter(|device| device.is_none()).count()
    }

    /// As a logarithm of odds, before anything of the contents is known.
    pub(crate) fn prior(&self) -> f64 {
        self.shape.prior() + offset_prior(self.data_offset) - 1.5 * self.missing() as f64
    }

    /// With the real sizes of its members, where these count; else itself.
    pub(crate) fn sized(self, samples: &Samples<'_>) -> Vec<Hypothesis> {
        use lapstrake_geometry::{Layout, Raid0Layout};
        if self.shape.is_far() {
            return self.with_strides(samples);
        }
        let sizes = self.usable(samples);
        let least = sizes.iter().min().copied().unwrap_or(Sectors::ZERO);
        let is_even = sizes.iter().all(|size| *size == least);
        if self.shape.level != Level::Raid0 || is_even {
            let geometry = self.shape.even(least);
            return geometry.map(|geometry| Hypothesis { geometry, ..self }).into_iter().collect();
        }
        let with = |layout| {
            let shape = Shape { layout: Layout::Raid0(layout), ..self.shape };
            let geometry = shape.geometry(Sectors::ZERO, sizes.clone())?;
            Some(Hypothesis { shape, geometry, ..self.clone() })
        };
        [Raid0Layout::Original, Raid0Layout::Alternate].into_iter().filter_map(with).collect()
    }

    /// How much of each slot's device there is for data; of a missing one as much as of the smallest.
    fn usable(&self, samples: &Samples<'_>) -> Vec<Sectors> {
        let of_slot = |device: &Option<usize>| {
            let size = device.map_or(samples.min_size(), |device| samples.size(device));
            Sectors(size.saturating_sub(self.data_offset) / 512).round_down(self.shape.chunk)
        };
        self.order.iter().map(of_slot).collect()
    }

    /// Addresses at which a member or zone ends and the next begins, bytes; the array's end is the last.
    pub(crate) fn edges(&self, samples: &Samples<'_>) -> Vec<u64> {
        let end = self.geometry.array_sectors().bytes();
        let slots = (0..self.shape.slots).map(Slot);
        let mut edges: Vec<u64> = match &self.geometry {
            Geometry::Linear(linear) => slots
                .scan(0, |sum, slot| {
                    *sum += linear.used(slot).bytes();
                    Some(*sum)
                })
                .collect(),
            Geometry::Raid0(_) => {
                let sizes = self.usable(samples);
                let below = |size: &Sectors| sizes.iter().map(|s| s.min(size).bytes()).sum();
                sizes.iter().map(below).collect()
            }
            _ => Vec::new(),
        };
        edges.push(end);
        edges.retain(|edge| *edge <= end);
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// By how much of the members superblocks of each version would leave for data.
    fn with_strides(self, samples: &Samples<'_>) -> Vec<Hypothesis> {
        let size = samples.min_size() / 512;
        let room = |end: u64| Sectors(end.saturating_sub(self.data_offset / 512));
        // 1.1 and 1.2; 1.0 without and with room for a bitmap; 0.90.
        let before = |unit: u64, room: u64| (size / unit * unit).saturating_sub(room);
        let ends = [size, before(8, 24), before(8, 32), before(8, 152), before(128, 128)];
        let ends = if self.data_offset > 0 { &ends[..1] } else { &ends[1..] };
        let mut found: Vec<Hypothesis> = Vec::new();
        for usable in ends.iter().map(|end| room(*end)) {
            let Some(geometry) = self.shape.even(usable) else { continue };
            if found.iter().all(|known| known.geometry != geometry) {
                found.push(Hypothesis { geometry, ..self.clone() });
            }
        }
        found
    }

    /// Where a byte of the array lies, in order of devices; None behind its end.
    pub(crate) fn sorted_homes(&self, address: u64) -> Option<Vec<(usize, u64)>> {
        (address < self.geometry.array_sectors().bytes()).then(|| {
            let mut homes: Vec<_> = self.homes(address).collect();
            homes.sort_unstable();
            homes
        })
    }
}
