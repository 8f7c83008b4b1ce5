//! RAID10: chunks and their copies dealt round the members.
//!
//! Near copies of a chunk lie side by side: chunk `c` and its copies are numbers `c * near` and
//! the next in a count that goes along the rows of members. Each further (far) copy of that
//! whole picture is shifted by `near` members and lies either `stride` deeper on the members
//! (far), or in the next row (offset, where one row of data takes `far` rows).
//!
//! Members may be grouped in far sets, inside which the shift goes round; `next` tells for each
//! member where its data's next far copy goes, `previous` the way back. md's rule for the last,
//! longer set is kept as it is, with its special case.
//!
//! Invariants: `next` is a permutation, the copies of a chunk are on different members, and no two
//! chunks share a place. Layouts for which md's rules break this are refused; mdadm makes none.

mod extent;

use alloc::boxed::Box;
use alloc::vec;

use smallvec::SmallVec;

use crate::config::Config;
use crate::error::GeometryError;
use crate::layout::Raid10Layout;
use crate::run::{Content, Home, Run};
use crate::units::{MAX_SECTORS, Sector, Sectors, Slot};

/// A RAID10 array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid10 {
    layout: Raid10Layout,
    raid_disks: u16,
    chunk_shift: u32,
    /// Chunks of data in the array.
    chunks: u64,
    /// Sectors between a chunk and its next far copy.
    stride: u64,
    /// Sectors of each member that the array uses.
    used: u64,
    next: Moves,
    previous: Moves,
}

impl Raid10 {
    pub(crate) fn new(config: &Config, layout: Raid10Layout) -> Result<Raid10, GeometryError> {
        config.check_power_of_two_chunk()?;
        let (copies, raid_disks) = (layout.copies(), config.raid_disks);
        if copies < 2 || copies > raid_disks as u32 {
            return Err(GeometryError::CopyCount { copies, raid_disks });
        }
        let collide = GeometryError::CopiesCollide { word: layout.to_md(), raid_disks };
        if near_copies_wrap_onto_far_ones(layout, raid_disks) {
            return Err(collide);
        }
        let Some((next, previous)) = far_moves(layout, raid_disks) else { return Err(collide) };
        // The order of the divisions is md's, and each rounds down.
        let (near, far) = (layout.near as u64, layout.far as u64);
        let chunk_shift = config.chunk.0.trailing_zeros();
        let rows = (config.component.0 >> chunk_shift) / far;
        if rows == 0 {
            return Err(GeometryError::NoRoom { component: config.component });
        }
        if config.component.0 > MAX_SECTORS.0 / raid_disks as u64 {
            return Err(GeometryError::TooLarge);
        }
        let chunks = rows * raid_disks as u64 / near;
        let used = (chunks * copies as u64).div_ceil(raid_disks as u64);
        let stride = if layout.offset { 1 } else { used / far };
        Ok(Raid10 {
            layout,
            raid_disks,
            chunk_shift,
            chunks,
            stride: stride << chunk_shift,
            used: used << chunk_shift,
            next,
            previous,
        })
    }

    /// The layout.
    pub fn layout(&self) -> Raid10Layout {
        self.layout
    }

    /// Members of the array.
    pub fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Chunk size, a power of two.
    pub fn chunk(&self) -> Sectors {
        Sectors(1 << self.chunk_shift)
    }

    /// Copies of each chunk.
    pub fn copies(&self) -> u32 {
        self.layout.copies()
    }

    /// Size of the array.
    pub fn array_sectors(&self) -> Sectors {
        Sectors(self.chunks << self.chunk_shift)
    }

    /// Sectors of each member that the array uses.
    pub fn used(&self) -> Sectors {
        Sectors(self.used)
    }

    /// The homes of an array sector: near copies in order, each followed by its far ones. Panics
    /// at or past the array's end.
    #[inline]
    pub fn map(&self, sector: Sector) -> Run {
        let chunk = sector.0 >> self.chunk_shift;
        assert!(chunk < self.chunks, "{sector} is past the array's end");
        let offset = sector.0 & (self.chunk().0 - 1);
        let (near, disks) = (self.layout.near as u64, self.raid_disks as u64);
        let (mut row, mut slot) = (chunk * near / disks, (chunk * near % disks) as u16);
        let mut homes = SmallVec::new();
        for _ in 0..near {
            self.push_far_copies(&mut homes, slot, row, offset);
            slot += 1;
            if slot == self.raid_disks {
                (slot, row) = (0, row + 1);
            }
        }
        let len = if self.is_plain_mirror() {
            self.array_sectors().0 - sector.0
        } else {
            self.chunk().0 - offset
        };
        Run { len: Sectors(len), homes }
    }

    /// One near copy and the far copies of it.
    #[inline]
    fn push_far_copies(&self, homes: &mut SmallVec<[Home; 4]>, slot: u16, row: u64, offset: u64) {
        let rows = if self.layout.offset { row * self.layout.far as u64 } else { row };
        let mut sector = (rows << self.chunk_shift) + offset;
        let mut slot = slot;
        homes.push(Home { slot: Slot(slot), sector: Sector(sector) });
        for _ in 1..self.layout.far {
            slot = self.next[slot as usize];
            sector += self.stride;
            homes.push(Home { slot: Slot(slot), sector: Sector(sector) });
        }
    }

    /// What a member's sector holds. Panics if there is no such slot.
    pub fn content(&self, slot: Slot, sector: Sector) -> Content {
        assert!(slot.0 < self.raid_disks, "no {slot}");
        let far = self.layout.far as u64;
        let offset = sector.0 & (self.chunk().0 - 1);
        let (row, copy) = if self.layout.offset {
            let row = sector.0 >> self.chunk_shift;
            (row / far, row % far)
        } else {
            ((sector.0 % self.stride) >> self.chunk_shift, sector.0 / self.stride)
        };
        if copy >= far {
            return Content::Unused;
        }
        let mut first = slot.0;
        for _ in 0..copy {
            first = self.previous[first as usize];
        }
        let place = row.saturating_mul(self.raid_disks as u64).saturating_add(first as u64);
        let chunk = place / self.layout.near as u64;
        if chunk >= self.chunks {
            return Content::Unused;
        }
        Content::Data(Sector((chunk << self.chunk_shift) + offset))
    }

    /// Are the present members enough to read everything?
    ///
    /// This looks at the copies themselves. md (`enough` of both kernel and mdadm) looks at
    /// windows of consecutive members instead, which is the same without far sets and wrong with
    /// them, on either side.
    pub fn survives(&self, present: impl Fn(Slot) -> bool) -> bool {
        let lost = |slot: u16| {
            let mut homes = SmallVec::new();
            let mut near = slot;
            for _ in 0..self.layout.near {
                self.push_far_copies(&mut homes, near, 0, 0);
                near = if near + 1 == self.raid_disks { 0 } else { near + 1 };
            }
            !homes.iter().any(|home: &Home| present(home.slot))
        };
        let near = self.layout.near as u64;
        let disks = self.raid_disks as u64;
        // First slots repeat after at most `disks` chunks.
        !(0..disks.min(self.chunks)).any(|chunk| lost((chunk * near % disks) as u16))
    }

    /// Do members hold the array from end to end, as in RAID1?
    #[inline]
    fn is_plain_mirror(&self) -> bool {
        self.layout.near as u16 == self.raid_disks
    }
}

/// In an offset layout a row of data takes several rows of the members, but md moves a near copy
/// that wraps round to slot 0 down by one: to where a far copy of another chunk is.
fn near_copies_wrap_onto_far_ones(layout: Raid10Layout, n: u16) -> bool {
    layout.offset && layout.far > 1 && !n.is_multiple_of(layout.near as u16)
}

/// For each slot, another one.
type Moves = Box<[u16]>;

/// Where the next far copy of each slot's data goes, and the way back; `None` if copies collide.
fn far_moves(layout: Raid10Layout, n: u16) -> Option<(Moves, Moves)> {
    let size = layout.far_set_size(n);
    if size == 0 || size > n {
        return None;
    }
    let next: Box<[u16]> = (0..n).map(|slot| far_move(layout.near as u16, size, n, slot)).collect();
    let mut previous = vec![u16::MAX; n as usize];
    for (slot, &to) in next.iter().enumerate() {
        if core::mem::replace(&mut previous[to as usize], slot as u16) != u16::MAX {
            return None;
        }
    }
    let mut seen = vec![0u32; n as usize];
    for start in 0..n as u32 {
        for near in 0..layout.near as u32 {
            let mut slot = ((start + near) % n as u32) as u16;
            for _ in 0..layout.far {
                if core::mem::replace(&mut seen[slot as usize], start + 1) == start + 1 {
                    return None;
                }
                slot = next[slot as usize];
            }
        }
    }
    Some((next, previous.into_boxed_slice()))
}

/// md's move of `slot` by `near` members inside its far set of `size` among `n`.
///
/// If the sets do not divide the members evenly, the last set takes the rest as well. md
/// recognises it by `moved > last_start`, where `>=` would seem meant.
fn far_move(near: u16, size: u16, n: u16, slot: u16) -> u16 {
    let (near, size, n, slot) = (near as u32, size as u32, n as u32, slot as u32);
    let last_start = (n / size - 1) * size;
    let last_size = size + n % size;
    let moved = slot + near;
    let to = if n % size != 0 && moved > last_start {
        last_start + (moved - last_start) % last_size
    } else {
        moved % size + size * (slot / size)
    };
    to as u16
}
