//! Sizes: how much of a device is data, and where, when an array is made.
//!
//! The rules are mdadm 4.2's (`Create.c`, `super0.c`, `super1.c`; measured, see
//! `tests/vectors/sizes.txt`), so that an array made here has the shape it would have there:
//!
//! 1. [`Sizing::data_offset`], from the size of the first device, holds for all members;
//! 2. [`Sizing::available`] measures each device;
//! 3. [`Sizing::component`] is what all of them have in common;
//! 4. [`member`] places what lies around the data of one member.
//!
//! Which bitmap there is to be is decided between 3 and 4, and not here.
//!
//! Relations: `superblock` is where the kernel looks for it; data, superblock, bitmap and logs of
//! a [`Member`] do not overlap; `component <= data_size` on every member.

use crate::error::GeometryError;
use crate::layout::Layout;
use crate::level::Level;
use crate::units::{Sector, Sectors};
use crate::version::{SMALLEST_1, Version};

/// What a superblock takes, in each version of 1.x.
const SUPERBLOCK: Sectors = Sectors(8);
/// A bad-block log of 512 entries.
pub const BAD_BLOCK_LOG: Sectors = Sectors(8);
/// Room for partial parity logs.
pub const PPL_SPACE: Sectors = Sectors(2048);
/// From this size on, 0.90 refuses a component: 4 TiB.
const LIMIT_090: Sectors = Sectors(1 << 33);
/// Data offsets that mdadm chooses are whole mebibytes.
const MEBIBYTE: Sectors = Sectors(2048);
/// RAID1's component is rounded so that the array could become a RAID5 one day.
const RAID1_ROUNDING: Sectors = Sectors(128);
/// Arrays with components above this, 100 GiB, are large ([`is_large`]).
pub const BITMAP_FROM: Sectors = Sectors(100 << 21);

impl Version {
    /// How much of a member's data size the kernel uses: 0.90 cannot record a size of 4 TiB or
    /// more. RAID0 is spared, which records none; so is linear in intention, but not in fact.
    pub fn usable(self, level: Level, data_size: Sectors) -> Sectors {
        match self {
            Version::V090 if level != Level::Raid0 && data_size >= LIMIT_090 => {
                LIMIT_090 - Sectors(2)
            }
            _ => data_size,
        }
    }

    /// The least data size that the kernel takes a superblock with.
    pub const fn data_size_min(self) -> Sectors {
        match self {
            Version::V090 => Sectors::ZERO,
            _ => Sectors(10),
        }
    }

    /// Most members, spares included, that the superblock can list in mdadm's hands.
    pub const fn max_members(self) -> u16 {
        match self {
            Version::V090 => 27,
            _ => 1920,
        }
    }
}

/// What there is to know before the devices are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Superblock version.
    pub version: Version,
    /// The level.
    pub level: Level,
    /// Chunk size; 0 where there is none.
    pub chunk: Sectors,
    /// Is room for partial parity logs to be kept in place of that for a bitmap?
    pub ppl: bool,
    /// The data offset, if the user gave one.
    pub data_offset: Option<Sectors>,
    /// Component size, if the user gave one.
    pub size: Option<Sectors>,
}

impl Sizing {
    /// Data offset of all members, from the size of the first.
    ///
    /// 1.1 and 1.2 keep headroom for a later reshape: 128 MiB, halved while it is above a
    /// thousandth of the device and would still hold four chunks.
    pub fn data_offset(&self, first: Sectors) -> Result<Sectors, GeometryError> {
        match (self.version, self.data_offset) {
            (Version::V090, Some(found)) if !found.is_zero() => {
                Err(GeometryError::NoDataOffset { found })
            }
            (_, Some(found)) if found > first => {
                Err(GeometryError::DataOffset { found, min: Sectors::ZERO, max: first })
            }
            (_, Some(given)) => Ok(given),
            (Version::V090 | Version::V1_0, None) => Ok(Sectors::ZERO),
            (Version::V1_1 | Version::V1_2, None) => {
                let mut headroom = Sectors(128 << 11);
                while headroom * 1024 > first && headroom.0 / 2 >= self.chunk.0.saturating_mul(2) {
                    headroom = Sectors(headroom.0 / 2);
                }
                let data_offset = SMALLEST_1 + self.log_space(first) + headroom;
                Ok(Sectors(data_offset.0.next_multiple_of(MEBIBYTE.0)))
            }
        }
    }

    /// Sectors of a device that can be data: what devices are compared by.
    pub fn available(
        &self,
        device: Sectors,
        data_offset: Sectors,
    ) -> Result<Sectors, GeometryError> {
        let superblock = self.version.superblock(device)?;
        if data_offset > device {
            return Err(GeometryError::DeviceTooSmall { found: device, needed: data_offset });
        }
        let (end, taken, alignment) = match self.version {
            Version::V090 => (Sectors(superblock.0), data_offset, 1),
            // Alignment, then superblock and its tail, bad-block log, bitmap or PPL.
            Version::V1_0 => {
                let overhead = Sectors(16) + BAD_BLOCK_LOG + self.log_space(device);
                (Sectors(device.0 & !7), data_offset + overhead, 8)
            }
            Version::V1_1 | Version::V1_2 => (device, data_offset, 1),
        };
        let needed = taken + self.version.data_size_min();
        if end < needed {
            let needed = Sectors(needed.0.next_multiple_of(alignment));
            return Err(GeometryError::DeviceTooSmall { found: device, needed });
        }
        Ok(end - taken)
    }

    /// Component size of an array of devices with these available sizes; 0 for linear and
    /// RAID0, which use all of each. mdadm counts in KiB here.
    pub fn component(
        &self,
        available: impl IntoIterator<Item = Sectors>,
    ) -> Result<Sectors, GeometryError> {
        let rounded = |size: Sectors| size.round_down(Sectors(2)).round_down(self.chunk);
        let mut smallest: Option<Sectors> = None;
        for found in available {
            let usable = rounded(found);
            if usable.is_zero() {
                return Err(GeometryError::NoRoom { component: found });
            }
            smallest = Some(smallest.map_or(usable, |size| size.min(usable)));
        }
        let Some(smallest) = smallest else {
            return Err(GeometryError::NoRoom { component: Sectors::ZERO });
        };
        if !self.level.has_redundancy() {
            return Ok(Sectors::ZERO);
        }
        let component = match self.size {
            Some(asked) if rounded(asked) > smallest => {
                return Err(GeometryError::SizeAboveDevice { asked, available: smallest });
            }
            Some(asked) => rounded(asked),
            None if self.level == Level::Raid1 => smallest.round_down(RAID1_ROUNDING),
            None => smallest,
        };
        if component.is_zero() {
            return Err(GeometryError::NoRoom { component: smallest });
        }
        if self.version == Version::V090 && component >= LIMIT_090 {
            return Err(GeometryError::ComponentTooLarge { found: component, limit: LIMIT_090 });
        }
        Ok(component)
    }

    fn log_space(&self, device: Sectors) -> Sectors {
        if self.ppl { PPL_SPACE } else { bitmap_space(device) }
    }
}

/// Sectors kept for a bitmap, whether there is to be one or not: of a device while it is measured,
/// of a component when things are placed.
pub fn bitmap_space(size: Sectors) -> Sectors {
    const GIBIBYTE: u64 = 1 << 21;
    Sectors(match size.0 {
        0..128 => 0,
        size if size - 128 >= 200 * GIBIBYTE => 256,
        size if size - 8 > 8 * GIBIBYTE => 128,
        _ => 8,
    })
}

/// The range that a bitmap covers: a member's component, but for RAID10 the array.
pub fn sync_size(level: Level, layout: Layout, raid_disks: u16, component: Sectors) -> Sectors {
    match (level, layout) {
        (Level::Raid10, Layout::Raid10(layout)) => {
            // mdadm's arithmetic, in KiB.
            let kib = (component.0 / 2).saturating_mul(raid_disks as u64);
            Sectors::from_kib(kib / layout.copies() as u64)
        }
        _ => component,
    }
}

/// Whether a resync of the whole takes so long that mdadm up to 4.3 made an internal bitmap when nothing was said; later
/// ones ask.
pub fn is_large(level: Level, component: Sectors) -> bool {
    level.has_redundancy() && component > BITMAP_FROM
}

/// What is to lie beside a member's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Nothing, but room is kept for a bitmap.
    None,
    /// An internal bitmap that takes this much, in whole 4 KiB.
    Bitmap(Sectors),
    /// A partial parity log.
    Ppl,
}

/// Where things lie on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The superblock.
    pub superblock: Sector,
    /// Start of the data.
    pub data_offset: Sector,
    /// Room for data, of which the component may take a part. For linear and RAID0 this is what
    /// counts ([`Config::member_sizes`](crate::Config::member_sizes), after [`Version::usable`]),
    /// and may be a little more than was available when the device was measured.
    pub data_size: Sectors,
    /// Bad-block log, in sectors from the superblock; 0.90 and cramped members have none.
    pub bad_block_log: Option<i32>,
    /// Partial parity log, in sectors from the superblock.
    pub ppl: Option<i32>,
}

/// Places superblock, data and logs on a device. `component` is 0 for linear and RAID0.
///
/// A data offset on 1.0, and one that is too small for what lies before it, are taken more
/// strictly than in mdadm, which would let things overlap.
pub fn member(
    version: Version,
    device: Sectors,
    data_offset: Sectors,
    component: Sectors,
    log: Log,
) -> Result<Member, GeometryError> {
    let superblock = version.superblock(device)?;
    if data_offset > device || component > device {
        let needed = Sectors(data_offset.0.saturating_add(component.0));
        return Err(GeometryError::DeviceTooSmall { found: device, needed });
    }
    let log_space = match log {
        Log::None => bitmap_space(component),
        Log::Bitmap(sectors) => sectors,
        Log::Ppl => PPL_SPACE,
    };
    let (data_end, bad_block_log, ppl) = match version {
        Version::V090 => (superblock, None, None),
        Version::V1_0 => {
            let room = superblock.0.saturating_sub(data_offset.0 + component.0);
            let space = log_space.0 + BAD_BLOCK_LOG.0;
            let space = if log == Log::None { space.min(room) } else { space };
            let bad_block_log = (space >= BAD_BLOCK_LOG.0).then_some(-(BAD_BLOCK_LOG.0 as i32));
            let end = superblock.0.checked_sub(space).ok_or(GeometryError::DeviceTooSmall {
                found: device,
                needed: data_offset + Sectors(space) + (device - Sectors(superblock.0)),
            })?;
            (Sector(end), bad_block_log, Some(-((PPL_SPACE + BAD_BLOCK_LOG).0 as i32)))
        }
        Version::V1_1 | Version::V1_2 => {
            let before = superblock.0 + SUPERBLOCK.0;
            let used = if log == Log::None { 0 } else { log_space.0 };
            if data_offset.0 < before + used || data_offset > device {
                let (min, max) = (Sectors(before + used), device);
                return Err(GeometryError::DataOffset { found: data_offset, min, max });
            }
            // After the room for a bitmap; failing that, right before the data.
            let place = (before + log_space.0).min(data_offset.0 - BAD_BLOCK_LOG.0);
            let bad_block_log = (place >= before + used).then(|| (place - superblock.0) as i32);
            (Sector(device.0), bad_block_log, Some(SUPERBLOCK.0 as i32))
        }
    };
    if data_end.0 < data_offset.0 + component.0 {
        let needed = data_offset + component + Sectors(device.0 - data_end.0);
        return Err(GeometryError::DeviceTooSmall { found: device, needed });
    }
    Ok(Member {
        superblock,
        data_offset: Sector(data_offset.0),
        data_size: data_end - Sector(data_offset.0),
        bad_block_log,
        ppl: ppl.filter(|_| log == Log::Ppl),
    })
}
