//! Edits of a stopped array's superblocks, in the words of mdadm's `--assemble --update=`: which bytes each member is to
//! hold afterwards.
//!
//! The bytes are those that mdadm 4.6 writes for the same word, with these differences:
//! - what mdadm does to some members and refuses for others is refused for all;
//! - a bad-block log or a partial parity log is placed only where it lies beside data, bitmap and each other;
//! - a new UUID also goes into the logs and the bitmap that hold it, in 0.90 of either byte order;
//! - the superblock of 0.90 is erased when one of 1.0 has taken its place.

mod convert;
mod error;
mod logs;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use lapstrake_geometry::{Raid0Layout, Sector, Sectors};

pub use crate::create::Write;
pub use error::{Refused, UpdateError};

use crate::bitmap;
use crate::create::home_words;
use crate::v1::{self, feature};
use crate::wire::ByteOrder;
use crate::{LOGICAL_BLOCK_MAX, NotReverted, Role, Superblock, Unsupported, Version, ppl, v090};

/// Bytes of a name that 1.x has room for.
pub const NAME_MAX: usize = 31;

/// What is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The name, with the host before it if there is room for both.
    Name {
        /// Without the host, or with one of its own.
        name: String,
        /// The host that the array belongs to.
        homehost: Option<String>,
    },
    /// The host that the array belongs to: a part of the name, in 0.90 of the UUID.
    Homehost(String),
    /// The array's UUID, in the order in which mdadm prints it.
    Uuid([u8; 16]),
    /// All redundancy is computed anew at the next start.
    Resync,
    /// Members get room for a bad-block log.
    Bbl,
    /// Members have no bad-block log any more; one with entries is kept.
    NoBbl,
    /// Members have no bad-block log any more, and nothing of what is in it on record.
    ForceNoBbl,
    /// Writes of a RAID5 go through partial parity logs.
    Ppl,
    /// They do no more.
    NoPpl,
    /// The array gets a write-intent bitmap beside each superblock, all of it dirty.
    Bitmap,
    /// The array has no write-intent bitmap any more.
    NoBitmap,
    /// The layout of a RAID0 of unlike members.
    Raid0Layout(Raid0Layout),
    /// All of a member behind its data's start may hold data.
    DeviceSize,
    /// What a reshape under way has moved is moved back; from where, if that is not believed of the record.
    RevertReshape(Option<Sector>),
    /// Superblocks of 0.90 become such of 1.0.
    Metadata,
    /// Superblocks of 0.90 are written in the other byte order.
    ByteOrder,
    /// The N of /dev/mdN that a superblock of 0.90 holds.
    SuperMinor(u32),
    /// The smallest unit of a request, bytes; None: not recorded.
    LogicalBlockSize(Option<u32>),
}

impl Update {
    /// mdadm's word for it, or ours.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Name { .. } => "name",
            Self::Homehost(_) => "homehost",
            Self::Uuid(_) => "uuid",
            Self::Resync => "resync",
            Self::Bbl => "bbl",
            Self::NoBbl => "no-bbl",
            Self::ForceNoBbl => "force-no-bbl",
            Self::Ppl => "ppl",
            Self::NoPpl => "no-ppl",
            Self::Bitmap => "bitmap",
            Self::NoBitmap => "no-bitmap",
            Self::Raid0Layout(Raid0Layout::Original) => "layout-original",
            Self::Raid0Layout(Raid0Layout::Alternate) => "layout-alternate",
            Self::Raid0Layout(Raid0Layout::Unset) => "layout-unspecified",
            Self::DeviceSize => "devicesize",
            Self::RevertReshape(_) => "revert-reshape",
            Self::Metadata => "metadata",
            Self::ByteOrder => "byteorder",
            Self::SuperMinor(_) => "super-minor",
            Self::LogicalBlockSize(_) => "logical-block-size",
        }
    }

    /// Whether it is for one of the two formats only, and which: true for 1.x.
    fn format(&self) -> Option<bool> {
        match self {
            Self::Metadata | Self::ByteOrder | Self::SuperMinor(_) => Some(false),
            Self::Homehost(_)
            | Self::Uuid(_)
            | Self::Resync
            | Self::Bitmap
            | Self::NoBitmap
            | Self::RevertReshape(_) => None,
            _ => Some(true),
        }
    }
}

/// A member, as it is.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// Its own superblock.
    pub superblock: &'a Superblock,
    /// The internal bitmap's, if it has one that can be read.
    pub bitmap: Option<&'a bitmap::Superblock>,
    /// The member's size.
    pub size: Sectors,
    /// The device's logical block, bytes.
    pub block_size: u32,
    /// Random bytes, for a member that gets a UUID of its own.
    pub device_uuid: [u8; 16],
}

/// What to write to each member, in this order; it may be what is there.
///
/// # Errors
/// [`UpdateError`]: then no member is to be written.
pub fn update(members: &[Subject<'_>], what: &Update) -> Result<Vec<Vec<Write>>, UpdateError> {
    let refused = |member| move |why| UpdateError { word: what.word(), member, why };
    let placement = match what {
        Update::Bitmap => Some(added_bitmap(members).map_err(refused(None))?),
        _ => None,
    };
    if *what == Update::Metadata {
        convert::check_alike(members).map_err(refused(None))?;
    }
    let is_unlike = |member: &Subject<'_>| !member.superblock.is_reshaped_as(members[0].superblock);
    if let (Update::RevertReshape(_), Some(unlike)) = (what, members.iter().position(is_unlike)) {
        return Err(refused(Some(unlike))(NotReverted::Unlike.into()));
    }
    let one = |(index, member): (usize, &Subject<'_>)| {
        let written = check(member, what).and_then(|()| match &placement {
            Some(placement) => with_bitmap(member, placement),
            None => member.updated(what),
        });
        written.map_err(refused(Some(index)))
    };
    members.iter().enumerate().map(one).collect()
}

/// What is refused whatever the word says.
fn check(member: &Subject<'_>, what: &Update) -> Result<(), Refused> {
    let sb = member.superblock;
    match sb.unsupported() {
        Some(Unsupported::LogicalBlockSize(_)) if matches!(what, Update::LogicalBlockSize(_)) => {}
        Some(Unsupported::Ppl) if *what == Update::NoPpl => {}
        Some(Unsupported::Journal) if *what == Update::NoBitmap => {}
        Some(Unsupported::Reshape) if matches!(what, Update::RevertReshape(_)) => {}
        Some(error) => return Err(Refused::Unsupported(error)),
        None => {}
    }
    let is_v1 = sb.version() != Version::V090;
    match what.format() {
        Some(wanted) if wanted != is_v1 => Err(Refused::Version { found: sb.version() }),
        _ => Ok(()),
    }
}

impl Subject<'_> {
    fn updated(&self, what: &Update) -> Result<Vec<Write>, Refused> {
        if let Update::RevertReshape(position) = what {
            return Ok(self.written(self.superblock.reverted(*position)?));
        }
        match self.superblock {
            Superblock::V090(sb) => self.updated_v090(sb.clone(), what),
            Superblock::V1(sb) => self.updated_v1(sb.clone(), what),
        }
    }

    fn updated_v090(&self, mut sb: v090::Superblock, what: &Update) -> Result<Vec<Write>, Refused> {
        match what {
            Update::Homehost(host) => {
                let mut uuid = sb.set_uuid();
                uuid[8..].copy_from_slice(&home_words(host));
                sb.set_set_uuid(uuid);
            }
            Update::Uuid(uuid) => sb.set_set_uuid(*uuid),
            Update::Resync => {
                sb.state &= !v090::state::CLEAN;
                sb.recovery_cp = 0;
            }
            Update::NoBitmap => sb.state &= !v090::state::BITMAP_PRESENT,
            Update::SuperMinor(minor) => sb.md_minor = *minor,
            Update::ByteOrder => {
                sb.order = match sb.order {
                    ByteOrder::Little => ByteOrder::Big,
                    ByteOrder::Big => ByteOrder::Little,
                }
            }
            Update::Metadata => return convert::to_v1_0(self, &sb),
            _ => return Err(Refused::Version { found: Version::V090 }),
        }
        Ok(self.written(Superblock::V090(sb)))
    }

    fn updated_v1(&self, mut sb: v1::Superblock, what: &Update) -> Result<Vec<Write>, Refused> {
        match what {
            Update::Name { name, homehost } => set_name(&mut sb, name, homehost.as_deref())?,
            Update::Homehost(host) => {
                let full = self.superblock.name();
                let name = full.split_once(':').map_or(&*full, |(_, name)| name);
                set_name(&mut sb, name, Some(host))?;
            }
            Update::Uuid(uuid) => return self.with_uuid(sb, *uuid),
            Update::Resync => sb.resync_offset = 0,
            Update::Bbl => logs::add_bad_block_log(&mut sb, self.bitmap)?,
            Update::NoBbl if sb.has(feature::BAD_BLOCKS) => return Err(Refused::BadBlocks),
            Update::NoBbl | Update::ForceNoBbl => {
                sb.feature_map &= !feature::BAD_BLOCKS;
                (sb.bblog_size, sb.bblog_shift, sb.bblog_offset) = (0, 0, 0);
            }
            Update::Ppl => return logs::with_ppl(self, sb),
            Update::NoPpl if !self.superblock.clean() && self.superblock.has_ppl() => {
                return Err(Refused::Unclean { what: "partial parity logs" });
            }
            Update::NoPpl => sb.feature_map &= !(feature::PPL | feature::MULTIPLE_PPLS),
            Update::NoBitmap if sb.has(feature::RECOVERY_BITMAP) => return Err(Refused::Recovers),
            Update::NoBitmap => sb.feature_map &= !feature::BITMAP_OFFSET,
            Update::Raid0Layout(_) if sb.level != 0 => {
                return Err(Refused::Level { wanted: "RAID0" });
            }
            Update::Raid0Layout(Raid0Layout::Unset) => {
                sb.feature_map &= !feature::RAID0_LAYOUT;
                sb.layout = 0;
            }
            Update::Raid0Layout(layout) => {
                sb.feature_map |= feature::RAID0_LAYOUT;
                sb.layout = if *layout == Raid0Layout::Original { 1 } else { 2 };
            }
            Update::DeviceSize => self.set_device_size(&mut sb)?,
            Update::LogicalBlockSize(bytes) => {
                sb.logical_block_size = self.logical_block_size(*bytes)?;
            }
            Update::Bitmap
            | Update::Metadata
            | Update::ByteOrder
            | Update::SuperMinor(_)
            | Update::RevertReshape(_) => {
                return Err(Refused::Version { found: self.superblock.version() });
            }
        }
        Ok(self.written(Superblock::V1(sb)))
    }

    /// The superblock, and the bitmap's where that holds another UUID now.
    fn written(&self, sb: Superblock) -> Vec<Write> {
        let mut writes = Vec::new();
        if let (Some(bitmap), Some(sector)) = (self.bitmap, sb.bitmap_sector())
            && sb.bitmap_uuid() != self.superblock.bitmap_uuid()
            && bitmap.uuid == self.superblock.bitmap_uuid()
        {
            let renamed = bitmap::Superblock { uuid: sb.bitmap_uuid(), ..bitmap.clone() };
            writes.push(Write { sector, bytes: renamed.encode().to_vec() });
        }
        writes.push(Write { sector: sb.super_sector(), bytes: sb.encode() });
        writes
    }

    fn with_uuid(&self, mut sb: v1::Superblock, uuid: [u8; 16]) -> Result<Vec<Write>, Refused> {
        if sb.set_uuid == uuid {
            return Ok(self.written(Superblock::V1(sb)));
        }
        if self.superblock.has_journal() {
            return Err(Refused::JournalHoldsUuid);
        }
        sb.set_uuid = uuid;
        let mut writes = Vec::new();
        if let Some((sector, _)) = self.superblock.ppl() {
            if !self.superblock.clean() {
                return Err(Refused::Unclean { what: "partial parity logs" });
            }
            let header = ppl::Header::empty(ppl::signature(uuid));
            writes.push(Write { sector, bytes: header.encode().to_vec() });
        }
        writes.extend(self.written(Superblock::V1(sb)));
        Ok(writes)
    }

    fn set_device_size(&self, sb: &mut v1::Superblock) -> Result<(), Refused> {
        if sb.minor_version == 0 {
            return Err(Refused::Version { found: Version::V1_0 });
        }
        let room = self.size.0.saturating_sub(sb.data_offset);
        if room < sb.size {
            return Err(Refused::TooSmall { room: Sectors(room), needed: Sectors(sb.size) });
        }
        sb.data_size = room;
        Ok(())
    }

    fn logical_block_size(&self, wanted: Option<u32>) -> Result<u32, Refused> {
        let Some(found) = wanted else { return Ok(0) };
        if !found.is_power_of_two() || !(512..=LOGICAL_BLOCK_MAX).contains(&found) {
            return Err(Refused::LogicalBlock { found });
        }
        if found < self.block_size {
            return Err(Refused::LogicalBlockOfMember { found, own: self.block_size });
        }
        Ok(found)
    }
}

fn set_name(sb: &mut v1::Superblock, name: &str, host: Option<&str>) -> Result<(), Refused> {
    if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
        return Err(Refused::Name { found: name.into() });
    }
    sb.set_name = [0; 32];
    let host = host.filter(|host| !name.contains(':') && host.len() + 1 + name.len() <= NAME_MAX);
    let full = host.map_or_else(|| name.into(), |host| alloc::format!("{host}:{name}"));
    sb.set_name[..full.len()].copy_from_slice(full.as_bytes());
    Ok(())
}

/// Where a new bitmap goes, and what it begins with; None if all members have one.
fn added_bitmap(members: &[Subject<'_>]) -> Result<Option<bitmap::Placement>, Refused> {
    if members.iter().all(|member| member.superblock.bitmap_sector().is_some()) {
        return Ok(None);
    }
    let Some(first) = members.first().map(|member| member.superblock) else { return Ok(None) };
    if first.level_md() <= 0 {
        return Err(Refused::Level { wanted: "a level with redundancy" });
    }
    for superblock in members.iter().map(|member| member.superblock) {
        if superblock.has_journal() || superblock.has_ppl() {
            return Err(Refused::Excluded { by: "a journal or partial parity logs" });
        }
        if superblock.recovery_offset().is_some() {
            return Err(Refused::Recovers);
        }
    }
    let superblocks = members.iter().map(|member| member.superblock);
    let placed = bitmap::added(superblocks, first.sync_size(), None);
    placed.map(Some).map_err(Refused::Bitmap)
}

fn with_bitmap(
    member: &Subject<'_>,
    placement: &Option<bitmap::Placement>,
) -> Result<Vec<Write>, Refused> {
    let mut sb = member.superblock.clone();
    let Some(bitmap::Placement { offset, chunk, sectors }) = *placement else {
        return Ok(member.written(sb));
    };
    sb.set_bitmap_offset(Some(offset));
    let new = bitmap::Superblock::new(sb.bitmap_uuid(), sb.sync_size(), chunk);
    // Of a member that is missing nothing is known but that all may differ: every bit is set.
    let new = bitmap::Superblock { events: sb.events(), events_cleared: sb.events(), ..new };
    let sector = sb.bitmap_sector().ok_or(Refused::NoRoom { what: "a write-intent bitmap" })?;
    let image = Write { sector, bytes: new.dirty_image(sectors.bytes() as usize) };
    Ok(vec![image, Write { sector: sb.super_sector(), bytes: sb.encode() }])
}

/// Zeros over a superblock, as mdadm's `--zero-superblock` writes them.
#[must_use]
pub fn zeroed(version: Version, sector: Sector) -> Write {
    let bytes = if version == Version::V090 { v090::Superblock::SIZE } else { 512 };
    Write { sector, bytes: vec![0; bytes] }
}

/// The parts of a member that mdadm's `--dump` copies: its superblock, its bitmap, and its bad-block log if that has
/// entries. Sectors from the member's start.
#[must_use]
pub fn dumped(
    superblock: &Superblock,
    bitmap: Option<&bitmap::Superblock>,
) -> Vec<(Sector, Sectors)> {
    let at = superblock.super_sector();
    // With 0.90 all that is set aside behind the data.
    let own = if superblock.version() == Version::V090 { 128 } else { 8 };
    let mut parts = vec![(at, Sectors(own))];
    if let (Some(at), Some(bitmap)) = (superblock.bitmap_sector(), bitmap)
        && own == 8
    {
        let room = superblock.bitmap_room().unwrap_or_default();
        parts.push((at, Sectors(bitmap.image_bytes().div_ceil(512)).min(room)));
    }
    if superblock.has_bad_blocks() {
        parts.extend(superblock.badblock_log());
    }
    parts
}

/// Whether a member is of the array, and no spare.
pub(crate) fn holds_slot(superblock: &Superblock) -> bool {
    matches!(superblock.role(), Role::Active(_))
}

#[cfg(test)]
mod tests;
