//! RAID0: chunks dealt round the members, in zones where the members differ in size.
//!
//! Each member is rounded down to whole chunks. Zone 0 reaches over all members up to the size of
//! the smallest; each further zone over the members that are longer, up to the next size. In a
//! zone the members keep the order of their slots.
//!
//! Invariants: zones lie end to end in the array, and each starts and ends on a chunk; on a
//! member they lie end to end from sector 0. The two layouts differ in the member that a zone's
//! first chunk goes to, which is all that `Zone::first` says, so the map has no case for them.
//!
//! The array may end before its last zone: the kernel computes the size with a mask that fits
//! powers of two only, and so gives away a part of each member when the chunk is none. An array
//! must be as large here as there.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::config::Config;
use crate::divide::Divisor;
use crate::error::GeometryError;
use crate::layout::Raid0Layout;
use crate::run::{Content, Run};
use crate::units::{MAX_SECTORS, Sector, Sectors, Slot};

/// A RAID0 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid0 {
    chunk: Divisor,
    raid_disks: u16,
    size: u64,
    zones: Box<[Zone]>,
}

/// A part of the array whose chunks go round one set of members.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    /// Array sectors `start..end`.
    start: u64,
    end: u64,
    /// Where the zone starts and ends on each of its members.
    member_start: u64,
    member_end: u64,
    /// The members' slots, ascending.
    slots: Box<[u16]>,
    /// `slots.len()`.
    width: Divisor,
    /// Index in `slots` of the member that has the zone's first chunk.
    first: u64,
}

impl Raid0 {
    pub(crate) fn new(config: &Config, layout: Raid0Layout) -> Result<Raid0, GeometryError> {
        let chunk = config.chunk;
        if chunk.is_zero() {
            return Err(config.chunk_too_small(Sectors(1)));
        }
        let sizes: Vec<u64> =
            config.sizes_per_slot()?.map(|size| size.round_down(chunk).0).collect();
        for (slot, size) in sizes.iter().enumerate() {
            if *size == 0 {
                let found = config.member_sizes[slot];
                return Err(GeometryError::MemberTooSmall {
                    slot: Slot(slot as u16),
                    found,
                    chunk,
                });
            }
        }
        let mut zones = zones(&sizes)?;
        let size = sizes.iter().map(|size| size & !(chunk.0 - 1)).sum();
        if size == 0 {
            return Err(GeometryError::NoRoom { component: Sectors(sizes[0]) });
        }
        let chunk = Divisor::new(chunk.0);
        // md treats these as of one zone: with one member there is no choice of member.
        let choice = zones.len() > 1 && zones[1].slots.len() > 1;
        match (choice, layout) {
            (true, Raid0Layout::Unset) => {
                return Err(GeometryError::AmbiguousRaid0 { zones: zones.len() });
            }
            (true, Raid0Layout::Original) => {
                for zone in &mut zones {
                    zone.first = zone.width.div_rem(chunk.div_rem(zone.start).0).1;
                }
            }
            (true, Raid0Layout::Alternate) | (false, _) => {}
        }
        Ok(Raid0 { chunk, raid_disks: config.raid_disks, size, zones: zones.into_boxed_slice() })
    }

    /// Members of the array.
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Chunk size.
    pub fn chunk(&self) -> Sectors {
        Sectors(self.chunk.get())
    }

    /// Size of the array.
    pub fn array_sectors(&self) -> Sectors {
        Sectors(self.size)
    }

    /// The one home of an array sector. Panics at or past the array's end.
    #[inline]
    pub fn map(&self, sector: Sector) -> Run {
        assert!(sector.0 < self.size, "{sector} is past the array's end");
        let zone = self.zones.iter().find(|zone| sector.0 < zone.end);
        let zone = zone.expect("the zones cover the array");
        let (chunk, offset) = self.chunk.div_rem(sector.0 - zone.start);
        let (row, turn) = zone.width.div_rem(chunk);
        let width = zone.width.get();
        let index =
            if turn + zone.first < width { turn + zone.first } else { turn + zone.first - width };
        let len = if width == 1 { zone.end - sector.0 } else { self.chunk.get() - offset };
        let len = len.min(self.size - sector.0);
        let on_member = zone.member_start + row * self.chunk.get() + offset;
        Run::single(len, zone.slots[index as usize], on_member)
    }

    /// What a member's sector holds. Panics if there is no such slot.
    pub fn content(&self, slot: Slot, sector: Sector) -> Content {
        assert!(slot.0 < self.raid_disks, "no {slot}");
        let Some(zone) = self.zones.iter().find(|zone| sector.0 < zone.member_end) else {
            return Content::Unused;
        };
        let Ok(index) = zone.slots.binary_search(&slot.0) else { return Content::Unused };
        let (index, width) = (index as u64, zone.width.get());
        let turn =
            if index >= zone.first { index - zone.first } else { index + width - zone.first };
        let (row, offset) = self.chunk.div_rem(sector.0 - zone.member_start);
        let address = zone.start + (row * width + turn) * self.chunk.get() + offset;
        if address < self.size { Content::Data(Sector(address)) } else { Content::Unused }
    }
}

/// The zones of members of these sizes, all non-zero multiples of the chunk; `first` is 0.
fn zones(sizes: &[u64]) -> Result<Vec<Zone>, GeometryError> {
    let mut zones: Vec<Zone> = Vec::new();
    let (mut start, mut member_start) = (0u64, 0u64);
    loop {
        let longer = |slot: &usize| sizes[*slot] > member_start;
        let slots: Box<[u16]> = (0..sizes.len()).filter(longer).map(|slot| slot as u16).collect();
        let Some(member_end) = slots.iter().map(|&slot| sizes[slot as usize]).min() else {
            return Ok(zones);
        };
        let width = slots.len() as u64;
        let end = (member_end - member_start)
            .checked_mul(width)
            .and_then(|size| size.checked_add(start))
            .filter(|&end| end <= MAX_SECTORS.0)
            .ok_or(GeometryError::TooLarge)?;
        let width = Divisor::new(width);
        zones.push(Zone { start, end, member_start, member_end, slots, width, first: 0 });
        (start, member_start) = (end, member_end);
    }
}
