//! One view of all superblock versions: what an assembler, an examiner and a running array ask
//! of a member's superblock, and what a running array changes in it.
//!
//! Every question is answered as md would act on the answer, not as the field reads: a raid0
//! without the feature bit has no layout, an index beyond the table is a spare.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use lapstrake_geometry::{Layout, Level, Raid0Layout, Sector, Sectors, Slot, size};

use crate::v1::{MAX_SECTOR, feature, role};
use crate::wire::{ByteOrder, Field};
use crate::{
    Device, LOGICAL_BLOCK_MAX, Role, SuperblockError, Unsupported, Version, ppl, v1, v090,
};

/// What a superblock begins with, in every version.
pub const MAGIC: u32 = 0xa92b_4efc;

/// One member's superblock, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one per member, and 0.90 is the rare one
pub enum Superblock {
    /// Version 0.90.
    V090(v090::Superblock),
    /// Version 1.0, 1.1 or 1.2.
    V1(v1::Superblock),
}

/// Reads the superblock of `version` on a member of `device_size` from `bytes`, which begin at
/// [`Version::superblock`]; 4096 bytes always suffice.
///
/// The checks are the kernel's when it loads one member. `Err` with
/// [`SuperblockError::Magic`] means that there is none.
pub fn read_at(
    version: Version,
    device_size: Sectors,
    bytes: &[u8],
) -> Result<Superblock, SuperblockError> {
    let at = version
        .superblock(device_size)
        .map_err(|_| SuperblockError::MemberTooSmall { sectors: device_size.0, version })?
        .0;
    let minor = match version {
        Version::V090 => return v090::Superblock::parse(bytes, at).map(Superblock::V090),
        Version::V1_0 => 0,
        Version::V1_1 => 1,
        Version::V1_2 => 2,
    };
    let sb = v1::Superblock::parse(bytes, minor, at)?;
    // mdadm's own journals of 1.0 begin behind a gap that their size does not count.
    let room = if minor == 0 { at } else { device_size.0.saturating_sub(sb.data_offset) };
    if sb.data_offset > device_size.0 {
        return Err(SuperblockError::DataOffset { found: sb.data_offset });
    }
    if sb.data_size > room {
        return Err(SuperblockError::CutShort { found: sb.data_size, room });
    }
    Ok(Superblock::V1(sb))
}

/// Splits a 1.x time into seconds and microseconds.
fn split_time(time: u64) -> (u64, u32) {
    (time & 0xff_ffff_ffff, (time >> 40) as u32)
}

/// `from` plus a signed distance in sectors, if that is a sector.
fn sector_from(from: u64, distance: i32) -> Option<Sector> {
    from.checked_add_signed(distance.into()).map(Sector)
}

/// A checkpoint in the units of 4 KiB in which md syncs. Linux 7.2 may record 3 sectors for a sync that was stopped before
/// its first: the number by which it tells itself that one runs.
fn whole_blocks(checkpoint: u64) -> Sector {
    Sector(checkpoint - checkpoint % 8)
}

/// A UUID as mdadm prints it: four groups of eight digits.
#[must_use]
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let group = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    uuid.chunks(4).map(group).collect::<Vec<_>>().join(":")
}

/// Facts that all members share.
impl Superblock {
    /// The version.
    pub fn version(&self) -> Version {
        match self {
            Self::V090(_) => Version::V090,
            Self::V1(sb) => match sb.minor_version {
                0 => Version::V1_0,
                1 => Version::V1_1,
                _ => Version::V1_2,
            },
        }
    }

    /// md's number of the level.
    pub fn level_md(&self) -> i32 {
        match self {
            Self::V090(sb) => sb.level,
            Self::V1(sb) => sb.level,
        }
    }

    /// The level; None if it is one without a geometry ([`Superblock::unsupported`] says so).
    pub fn level(&self) -> Option<Level> {
        Level::from_md(self.level_md()).ok()
    }

    /// The layout word as stored.
    pub fn layout_md(&self) -> u32 {
        match self {
            Self::V090(sb) => sb.layout,
            Self::V1(sb) => sb.layout,
        }
    }

    /// The layout; None if level or word are unknown. A raid0's counts only with the feature
    /// bit RAID0_LAYOUT, which 0.90 cannot have.
    pub fn layout(&self) -> Option<Layout> {
        let level = self.level()?;
        if level == Level::Raid0 && !self.has(feature::RAID0_LAYOUT) {
            return Some(Layout::Raid0(Raid0Layout::Unset));
        }
        Layout::from_md(level, self.layout_md()).ok()
    }

    /// The chunk; zero for raid1, the rounding of a linear.
    pub fn chunk(&self) -> Sectors {
        Sectors(match self {
            Self::V090(sb) => u64::from(sb.chunk_size) / 512,
            Self::V1(sb) => sb.chunksize.into(),
        })
    }

    /// Number of slots.
    pub fn raid_disks(&self) -> u16 {
        let raid_disks = match self {
            Self::V090(sb) => sb.raid_disks,
            Self::V1(sb) => sb.raid_disks,
        };
        raid_disks.try_into().expect("checked when parsed")
    }

    /// Sectors used of each member; zero for linear and raid0, which use all.
    pub fn component(&self) -> Sectors {
        match self {
            _ if self.level_md() <= 0 => Sectors::ZERO,
            Self::V090(sb) => Sectors::from_kib(sb.size.into()),
            Self::V1(sb) => Sectors(sb.size),
        }
    }

    /// The range that a bitmap of the array covers.
    pub fn sync_size(&self) -> Sectors {
        let (Some(level), Some(layout)) = (self.level(), self.layout()) else {
            return self.component();
        };
        size::sync_size(level, layout, self.raid_disks(), self.component())
    }

    /// The array's UUID, in the order in which mdadm prints it.
    pub fn set_uuid(&self) -> [u8; 16] {
        match self {
            Self::V090(sb) => sb.set_uuid(),
            Self::V1(sb) => sb.set_uuid,
        }
    }

    /// The array's UUID as its bitmap holds it.
    pub fn bitmap_uuid(&self) -> [u8; 16] {
        match self {
            Self::V090(sb) => {
                let mut uuid = [0; 16];
                [sb.set_uuid0, sb.set_uuid1, sb.set_uuid2, sb.set_uuid3].put(&mut uuid, sb.order);
                uuid
            }
            Self::V1(sb) => sb.set_uuid,
        }
    }

    /// "host:name" or "name"; empty in 0.90. Bytes that are no UTF-8, and control characters, are replaced.
    pub fn name(&self) -> String {
        match self {
            Self::V090(_) => String::new(),
            Self::V1(sb) => {
                let end = sb.set_name.iter().position(|&b| b == 0).unwrap_or(sb.set_name.len());
                // On a terminal a control character could tell anything.
                let name = String::from_utf8_lossy(&sb.set_name[..end]);
                name.replace(char::is_control, "\u{fffd}")
            }
        }
    }

    /// Creation: seconds since 1970, and microseconds.
    pub fn ctime(&self) -> (u64, u32) {
        match self {
            Self::V090(sb) => (sb.ctime.into(), 0),
            Self::V1(sb) => split_time(sb.ctime),
        }
    }

    /// Last update: seconds since 1970, and microseconds.
    pub fn utime(&self) -> (u64, u32) {
        match self {
            Self::V090(sb) => (sb.utime.into(), 0),
            Self::V1(sb) => split_time(sb.utime),
        }
    }

    /// Sets the last update; md writes whole seconds.
    pub fn set_utime(&mut self, secs: u64) {
        match self {
            Self::V090(sb) => sb.utime = secs as u32,
            Self::V1(sb) => sb.utime = secs & 0xff_ffff_ffff,
        }
    }

    /// Whether all bits of `bits` (see [`feature`]) are set; 0.90 has none.
    pub fn has(&self, bits: u32) -> bool {
        matches!(self, Self::V1(sb) if sb.has(bits))
    }

    /// Whether writes of the array go through a journal.
    pub fn has_journal(&self) -> bool {
        self.has(feature::JOURNAL)
    }

    /// Bytes, the smallest unit of a request to the array; None if the superblock does not say, or says what no kernel
    /// accepts: then it is the largest of the members' own.
    pub fn logical_block_size(&self) -> Option<u32> {
        let Self::V1(sb) = self else { return None };
        let is_possible =
            |bytes: &u32| bytes.is_power_of_two() && (512..=LOGICAL_BLOCK_MAX).contains(bytes);
        Some(sb.logical_block_size).filter(is_possible)
    }

    /// The first feature that cannot be acted upon, if there is one; what nobody knows comes last.
    pub fn unsupported(&self) -> Option<Unsupported> {
        self.unsupported_feature().or_else(|| self.unknown())
    }

    /// Whether all of it is understood, this member's role included: only then may it be written to unasked.
    pub fn is_understood(&self) -> bool {
        self.unsupported().is_none() && !matches!(self.role(), Role::Unknown(_))
    }

    /// The reserved bytes that are not zero, each after its offset from the superblock's start: a kernel newer than
    /// Linux 7.2 may keep something there.
    pub fn unknown_bytes(&self) -> Vec<(usize, u8)> {
        let reserved: Vec<Range<usize>> = match self {
            Self::V090(_) => v090::reserved().collect(),
            Self::V1(_) => v1::RESERVED.to_vec(),
        };
        let bytes = self.encode();
        let places = reserved.into_iter().flatten().map(|at| (at, bytes[at]));
        places.filter(|&(_, byte)| byte != 0).collect()
    }

    /// What no kernel up to Linux 7.2 would have written.
    fn unknown(&self) -> Option<Unsupported> {
        let bytes = self.unknown_bytes();
        let of_bytes = bytes
            .first()
            .map(|&(first, _)| Unsupported::UnknownBytes { count: bytes.len(), first });
        let Self::V1(sb) = self else { return of_bytes };
        let bits = sb.feature_map & !feature::ALL;
        if bits != 0 {
            return Some(Unsupported::UnknownFeatures(bits));
        }
        if of_bytes.is_some() {
            return of_bytes;
        }
        let is_sound = sb.logical_block_size == 0 || self.logical_block_size().is_some();
        (!is_sound).then_some(Unsupported::LogicalBlockSize(sb.logical_block_size))
    }

    fn unsupported_feature(&self) -> Option<Unsupported> {
        if self.level().is_none() {
            return Some(Unsupported::Level(self.level_md()));
        }
        let may_have_journal = self.level().is_some_and(Level::is_parity);
        if self.has_journal() && (!may_have_journal || self.bitmap_sector().is_some()) {
            return Some(Unsupported::Journal);
        }
        let (reshape, clustered) = match self {
            Self::V090(sb) => (sb.minor_version > 90, sb.state & v090::state::CLUSTERED != 0),
            Self::V1(sb) => (
                sb.feature_map & (feature::RESHAPE_ACTIVE | feature::NEW_OFFSET) != 0,
                sb.has(feature::CLUSTERED),
            ),
        };
        if reshape {
            let is_known = self.reshape().is_some();
            return Some(if is_known { Unsupported::Reshape } else { Unsupported::ReshapeFields });
        }
        if clustered {
            return Some(Unsupported::Clustered);
        }
        if self.has_ppl() && !self.can_use_ppl() {
            return Some(Unsupported::Ppl);
        }
        if self.layout().is_none() {
            return Some(Unsupported::Layout(self.layout_md()));
        }
        None
    }
}

/// Freshness, and what is in sync.
impl Superblock {
    /// Updates so far.
    pub fn events(&self) -> u64 {
        match self {
            Self::V090(sb) => sb.events,
            Self::V1(sb) => sb.events,
        }
    }

    /// Sets the updates so far. A 0.90 checkpoint that counted goes on to count.
    pub fn set_events(&mut self, events: u64) {
        match self {
            Self::V090(sb) => {
                if sb.cp_events == sb.events && sb.recovery_cp != 0 {
                    sb.cp_events = events;
                }
                sb.events = events;
            }
            Self::V1(sb) => sb.events = events,
        }
    }

    /// Whether no write was under way and all stripes are in sync.
    pub fn clean(&self) -> bool {
        match self {
            Self::V090(sb) => sb.state & v090::state::CLEAN != 0,
            Self::V1(sb) => sb.resync_offset == MAX_SECTOR,
        }
    }

    /// Up to where the array is in sync; None means all of it. (Sectors of a member's data;
    /// raid10: of the array.)
    pub fn resync_offset(&self) -> Option<Sector> {
        match self {
            _ if self.clean() => None,
            Self::V090(sb) if sb.events == sb.cp_events => Some(Sector(sb.recovery_cp.into())),
            Self::V090(_) => Some(Sector(0)),
            Self::V1(sb) => Some(whole_blocks(sb.resync_offset).min(Sector(self.sync_size().0))),
        }
    }

    /// Marks the array clean and in sync, or dirty: then all of it may be out of sync.
    pub fn set_clean(&mut self, clean: bool) {
        if clean {
            return self.set_resync_offset(None);
        }
        match self {
            Self::V090(sb) => {
                sb.state &= !v090::state::CLEAN;
                (sb.recovery_cp, sb.cp_events) = (0, 0);
            }
            Self::V1(sb) => sb.resync_offset = 0,
        }
    }

    /// Marks that no write is under way and that the array is in sync up to `offset`, or wholly.
    pub fn set_resync_offset(&mut self, offset: Option<Sector>) {
        match self {
            Self::V090(sb) => {
                sb.state &= !v090::state::CLEAN;
                if offset.is_none() {
                    sb.state |= v090::state::CLEAN;
                }
                sb.recovery_cp = offset.map_or(u32::MAX, |Sector(at)| at as u32);
                sb.cp_events = sb.events;
            }
            Self::V1(sb) => sb.resync_offset = offset.map_or(MAX_SECTOR, |Sector(at)| at),
        }
    }

    /// Up to where this member was recovered (from its data offset); None if it is no member
    /// under recovery. 0.90 cannot tell. A kernel that is cut off when all is recovered, and the member is not
    /// called in sync yet, leaves [`MAX_SECTOR`]: such a member holds all that one in sync does.
    pub fn recovery_offset(&self) -> Option<Sector> {
        match self {
            Self::V1(sb)
                if sb.has(feature::RECOVERY_OFFSET) && sb.recovery_offset != MAX_SECTOR =>
            {
                Some(whole_blocks(sb.recovery_offset).min(Sector(sb.data_size)))
            }
            _ => None,
        }
    }

    /// Marks this member as recovered up to `offset`, or wholly. Nothing in 0.90.
    pub fn set_recovery_offset(&mut self, offset: Option<Sector>) {
        if let Self::V1(sb) = self {
            sb.feature_map &= !(feature::RECOVERY_OFFSET | feature::RECOVERY_BITMAP);
            sb.recovery_offset = 0;
            if let Some(Sector(at)) = offset {
                sb.feature_map |= feature::RECOVERY_OFFSET;
                sb.recovery_offset = at;
            }
        }
    }

    /// Whether the member is to take the place of another one, which serves until then. 0.90 cannot say so.
    pub fn is_replacement(&self) -> bool {
        self.has(feature::REPLACEMENT)
    }

    /// Sets whether the member is to take the place of another one.
    pub fn set_replacement(&mut self, replaces: bool) {
        if let Self::V1(sb) = self {
            sb.feature_map &= !feature::REPLACEMENT;
            sb.feature_map |= if replaces { feature::REPLACEMENT } else { 0 };
        }
    }
}

/// The table of devices.
impl Superblock {
    /// This member's index into the table.
    pub fn dev_number(&self) -> u32 {
        match self {
            Self::V090(sb) => sb.this_disk.number,
            Self::V1(sb) => sb.dev_number,
        }
    }

    /// This member's own UUID; 0.90 has none.
    pub fn device_uuid(&self) -> Option<[u8; 16]> {
        match self {
            Self::V090(_) => None,
            Self::V1(sb) => Some(sb.device_uuid),
        }
    }

    /// This member's role, as it itself says.
    pub fn role(&self) -> Role {
        self.role_of(self.dev_number())
    }

    /// The role of `dev_number`; what is not in the table is a spare.
    pub fn role_of(&self, dev_number: u32) -> Role {
        match self {
            Self::V090(sb) => sb.role_of(dev_number),
            Self::V1(sb) => match sb.dev_roles.get(dev_number as usize) {
                Some(&role::FAULTY) => Role::Faulty,
                Some(&role::JOURNAL) => Role::Journal,
                Some(&slot) if u32::from(slot) < sb.slots() => Role::Active(Slot(slot)),
                Some(&role::SPARE) | None => Role::Spare,
                Some(&word) => Role::Unknown(word),
            },
        }
    }

    /// Sets the role of `dev_number`.
    ///
    /// In 0.90 the counts follow; a failed device leaves an entry "faulty, removed", as the
    /// kernel writes it once the member is out of the array; an entry without a device is no
    /// spare and stays as it is. A running array uses [`Superblock::set_roles`].
    ///
    /// # Panics
    /// If the format has no room for `dev_number` (a superblock that was parsed has none
    /// such), or for a journal (0.90).
    pub fn set_role_of(&mut self, dev_number: u32, role: Role) {
        match self {
            Self::V090(sb) => sb.set_role_of(dev_number, role),
            Self::V1(sb) => {
                assert!(dev_number < v1::MAX_DEV, "no room for device number {dev_number}");
                let index = dev_number as usize;
                if index >= sb.dev_roles.len() {
                    sb.dev_roles.resize(index + 1, role::SPARE);
                    sb.max_dev = dev_number + 1;
                }
                sb.dev_roles[index] = match role {
                    Role::Active(Slot(slot)) => slot,
                    Role::Spare => role::SPARE,
                    Role::Faulty => role::FAULTY,
                    Role::Journal => role::JOURNAL,
                    Role::Unknown(word) => word,
                };
            }
        }
    }

    /// Fills the whole table of devices, as the kernel does at every update: what is not in
    /// `devices` has no role. `own` is this member's index in `devices`.
    ///
    /// In 1.x the device numbers stay. 0.90 numbers anew: members in sync by their slots, all
    /// others (also one that is being recovered, which 0.90 lists as a spare) behind these in
    /// the order given, so [`Superblock::dev_number`] can change. Update all members alike.
    ///
    /// # Panics
    /// As [`Superblock::set_role_of`].
    pub fn set_roles(&mut self, devices: &[Device], own: usize) {
        match self {
            Self::V090(sb) => sb.set_roles(devices, own),
            Self::V1(sb) => {
                sb.dev_roles.fill(role::SPARE);
                devices.iter().for_each(|device| self.set_role_of(device.number, device.role));
            }
        }
    }

    /// How many entries the table can have.
    pub fn devices_max(&self) -> u32 {
        match self {
            Self::V090(_) => v090::MAX_DISKS as u32,
            Self::V1(_) => v1::MAX_DEV,
        }
    }

    /// Number of entries in the table.
    pub fn table_len(&self) -> u32 {
        match self {
            Self::V090(sb) => sb.disks.len() as u32,
            Self::V1(sb) => sb.dev_roles.len() as u32,
        }
    }

    /// The first device number that holds `slot`.
    pub fn dev_of_slot(&self, slot: Slot) -> Option<u32> {
        (0..self.table_len()).find(|&number| self.role_of(number) == Role::Active(slot))
    }

    /// Whether reads should avoid this member.
    pub fn write_mostly(&self) -> bool {
        match self {
            Self::V090(sb) => {
                let own = sb.disks[sb.this_disk.number as usize];
                own.state & v090::disk_state::WRITE_MOSTLY != 0
            }
            Self::V1(sb) => sb.devflags & v1::devflag::WRITE_MOSTLY != 0,
        }
    }
}

/// Where things are on this member. Sectors count from the member's start.
impl Superblock {
    /// First sector of data.
    pub fn data_offset(&self) -> Sector {
        match self {
            Self::V090(_) => Sector(0),
            Self::V1(sb) => Sector(sb.data_offset),
        }
    }

    /// Sectors from there that may hold data.
    pub fn data_size(&self) -> Sectors {
        match self {
            Self::V090(sb) => match self.level() {
                Some(level) => Version::V090.usable(level, Sectors(sb.sb_start)),
                None => Sectors(sb.sb_start),
            },
            Self::V1(sb) => Sectors(sb.data_size),
        }
    }

    /// The superblock's own place.
    pub fn super_sector(&self) -> Sector {
        match self {
            Self::V090(sb) => Sector(sb.sb_start),
            Self::V1(sb) => Sector(sb.super_offset),
        }
    }

    /// The internal bitmap, if there is one.
    pub fn bitmap_sector(&self) -> Option<Sector> {
        match self {
            Self::V090(sb) => (sb.state & v090::state::BITMAP_PRESENT != 0)
                .then_some(Sector(sb.sb_start + v090::BITMAP_DISTANCE)),
            Self::V1(sb) if sb.has(feature::BITMAP_OFFSET) => {
                sector_from(sb.super_offset, sb.bitmap_offset)
            }
            Self::V1(_) => None,
        }
    }

    /// The distance of an internal bitmap that the superblock places before the member's start.
    pub fn bitmap_offset_beyond(&self) -> Option<i32> {
        match self {
            Self::V1(sb) if sb.has(feature::BITMAP_OFFSET) && self.bitmap_sector().is_none() => {
                Some(sb.bitmap_offset)
            }
            _ => None,
        }
    }

    /// Sectors from the superblock to the internal bitmap, if there is one.
    pub fn bitmap_offset(&self) -> Option<i32> {
        let from = self.super_sector().0;
        self.bitmap_sector().map(|at| at.0.wrapping_sub(from) as i32)
    }

    /// Says that there is an internal bitmap so many sectors from the superblock (0.90 has one place for
    /// it), or that there is none. What was said to be room for data in its place is so no more.
    pub fn set_bitmap_offset(&mut self, offset: Option<i32>) {
        match self {
            Self::V090(sb) => {
                sb.state &= !v090::state::BITMAP_PRESENT;
                sb.state |= offset.map_or(0, |_| v090::state::BITMAP_PRESENT);
            }
            // The field may be that of partial parity logs.
            Self::V1(sb) if offset.is_none() && !sb.has(feature::BITMAP_OFFSET) => {}
            Self::V1(sb) => {
                sb.feature_map &= !feature::BITMAP_OFFSET;
                sb.feature_map |= offset.map_or(0, |_| feature::BITMAP_OFFSET);
                sb.bitmap_offset = offset.unwrap_or(0);
                if sb.minor_version == 0
                    && let Some(Sector(at)) = offset.and_then(|by| sector_from(sb.super_offset, by))
                {
                    sb.data_size = sb.data_size.min(at.saturating_sub(sb.data_offset));
                }
            }
        }
    }

    /// Sectors that the internal bitmap may take: up to what lies behind it. Hold the size that
    /// a bitmap claims against this before reading it.
    pub fn bitmap_room(&self) -> Option<Sectors> {
        let Sector(at) = self.bitmap_sector()?;
        let Self::V1(sb) = self else { return Some(Sectors(v090::BITMAP_SECTORS)) };
        // One without entries is given up for a bitmap that reaches over it, as by the kernel.
        let log = self.badblock_log().map(|(Sector(log), _)| log).filter(|_| self.has_bad_blocks());
        let neighbours = [Some(sb.super_offset), Some(sb.data_offset), log];
        let next = neighbours.into_iter().flatten().filter(|&next| next > at).min();
        // Behind a superblock at the end md uses the rest of its 4 KiB.
        let end = next.unwrap_or(sb.super_offset.saturating_add(8));
        Some(Sectors(end.saturating_sub(at)))
    }

    /// Whether the array has partial parity logs.
    pub fn has_ppl(&self) -> bool {
        self.has(feature::PPL) || self.has(feature::MULTIPLE_PPLS)
    }

    /// This member's partial parity log: where its area begins, and its shape.
    pub fn ppl(&self) -> Option<(Sector, ppl::Shape)> {
        let Self::V1(sb) = self else { return None };
        let (offset, size) = sb.ppl();
        let at = sector_from(sb.super_offset, offset.into())?;
        let shape = ppl::Shape::of(Sectors(size.into()))?;
        self.has_ppl().then_some((at, shape))
    }

    /// md's conditions, and room for a unit: the area lies beside superblock and data.
    fn can_use_ppl(&self) -> bool {
        let (Self::V1(sb), Some((Sector(at), shape))) = (self, self.ppl()) else { return false };
        let end = at + shape.size.0;
        let is_beside = |start: u64, len: u64| end <= start || at >= start.saturating_add(len);
        let excluded = feature::BITMAP_OFFSET | feature::JOURNAL;
        sb.level == 5
            && sb.feature_map & excluded == 0
            && !self.has(feature::PPL | feature::MULTIPLE_PPLS)
            && sb.raid_disks <= ppl::DISKS_MAX
            && is_beside(sb.data_offset, sb.size)
            && is_beside(sb.super_offset, 8)
    }

    /// Says whether the log is a ring, as md does whenever it writes the superblock of an array with one;
    /// mdadm leaves that open.
    pub fn mark_ppl(&mut self) {
        let Some((_, shape)) = self.ppl() else { return };
        if let Self::V1(sb) = self {
            sb.feature_map &= !(feature::PPL | feature::MULTIPLE_PPLS);
            sb.feature_map |= if shape.is_ring { feature::MULTIPLE_PPLS } else { feature::PPL };
        }
    }

    /// The room for the bad-block log, if there is one.
    pub fn badblock_log(&self) -> Option<(Sector, Sectors)> {
        match self {
            Self::V1(sb) if sb.bblog_size != 0 && sb.bblog_offset != 0 => {
                let at = sector_from(sb.super_offset, sb.bblog_offset)?;
                Some((at, Sectors(sb.bblog_size.into())))
            }
            _ => None,
        }
    }

    /// Has it no bad-block log any more, and none of what that held on record; as mdadm's update force-no-bbl.
    pub fn drop_bad_block_log(&mut self) {
        self.set_has_bad_blocks(false);
        if let Self::V1(sb) = self {
            (sb.bblog_size, sb.bblog_shift, sb.bblog_offset) = (0, 0, 0);
        }
    }

    /// The unit of the bad-block log, 512 bytes times two to this.
    pub fn badblock_shift(&self) -> u8 {
        match self {
            Self::V090(_) => 0,
            Self::V1(sb) => sb.bblog_shift,
        }
    }

    /// Whether the bad-block log holds entries and has to be read.
    pub fn has_bad_blocks(&self) -> bool {
        self.has(feature::BAD_BLOCKS)
    }

    /// The order of its numbers' bytes.
    pub fn byte_order(&self) -> ByteOrder {
        match self {
            Self::V090(sb) => sb.order,
            Self::V1(_) => ByteOrder::Little,
        }
    }

    /// Counts sectors that could not be read and were written anew. 0.90 does not count.
    pub fn add_corrected(&mut self, sectors: Sectors) {
        if let Self::V1(sb) = self {
            let more = u32::try_from(sectors.0).unwrap_or(u32::MAX);
            sb.cnt_corrected_read = sb.cnt_corrected_read.saturating_add(more);
        }
    }

    /// Of a journal: where in its ring the oldest unit lies that may be needed ([`crate::journal`]).
    pub fn journal_tail(&self) -> u64 {
        match self {
            Self::V090(_) => 0,
            Self::V1(sb) => sb.recovery_offset,
        }
    }

    /// Sets it; a journal of 0.90 there is none.
    pub fn set_journal_tail(&mut self, position: u64) {
        if let Self::V1(sb) = self {
            sb.recovery_offset = position;
        }
    }

    /// Has writes go through no journal any more, and nobody be one.
    pub fn give_up_journal(&mut self) {
        if let Self::V1(sb) = self {
            sb.feature_map &= !feature::JOURNAL;
            let journals = sb.dev_roles.iter_mut().filter(|role| **role == role::JOURNAL);
            journals.for_each(|role| *role = role::SPARE);
        }
    }

    /// Marks whether the bad-block log holds entries. Nothing in 0.90.
    pub fn set_has_bad_blocks(&mut self, any: bool) {
        if let Self::V1(sb) = self {
            sb.feature_map &= !feature::BAD_BLOCKS;
            if any {
                sb.feature_map |= feature::BAD_BLOCKS;
            }
        }
    }

    /// The bytes to write at [`Superblock::super_sector`], with the right checksum: 4096 for
    /// 0.90, for 1.x the whole sectors that md writes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::V090(sb) => sb.encode(),
            Self::V1(sb) => sb.encode(),
        }
    }
}
