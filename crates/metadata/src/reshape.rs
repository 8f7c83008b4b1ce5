//! Superblocks of an array whose geometry is being changed, as ones of the array before and after, and made of these.

use alloc::vec;
use core::mem;

use lapstrake_geometry::{
    Config, Geometry, Layout, Level, ParityLayout, Raid10Layout, Sector, Sectors, Slot,
};
use thiserror::Error;

use crate::{Superblock, v1, v090};

/// What a superblock says of a reshape that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// The superblock if the reshape had never begun.
    pub before: Superblock,
    /// The superblock if it had ended.
    pub after: Superblock,
    /// The array's sector at which the two geometries meet.
    pub position: Sector,
    /// The new geometry holds from `position` on; else up to it.
    pub is_backwards: bool,
}

impl Reshape {
    /// Whether Linux puts the position on record every ten seconds only: it moves data of a level with parity to another
    /// data offset, of as many members for data as before.
    #[must_use]
    pub fn is_seldom_recorded(&self) -> bool {
        let (before, after) = (&self.before, &self.after);
        let data_disks = |sb: &Superblock| match sb.level()? {
            Level::Raid4 | Level::Raid5 => sb.raid_disks().checked_sub(1),
            Level::Raid6 => sb.raid_disks().checked_sub(2),
            _ => None,
        };
        let has_as_many = data_disks(before).is_some_and(|old| data_disks(after) == Some(old));
        has_as_many && before.data_offset() != after.data_offset()
    }

    fn position_to_revert(&self, given: Option<Sector>) -> Result<Sector, NotReverted> {
        let position = self.position;
        let is_behind =
            |given: Sector| if self.is_backwards { given > position } else { given < position };
        match given {
            None if self.is_seldom_recorded() => Err(NotReverted::Unsure { position }),
            Some(given) if !self.is_seldom_recorded() && given != position || is_behind(given) => {
                Err(NotReverted::Given { position })
            }
            given => Ok(given.unwrap_or(position)),
        }
    }
}

/// What superblocks tell of a reshape beside the array that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeRecord<'a> {
    /// A superblock of any member of the array before.
    pub before: &'a Superblock,
    /// Where this member's data begins in the array before, and the room from there on; none if it is not of it.
    pub data_before: Option<(Sector, Sectors)>,
    /// The array's sector at which the two geometries meet.
    pub position: Sector,
    /// The new geometry holds from `position` on; else up to it.
    pub is_backwards: bool,
    /// Slots of the array before whose members hold nothing of it. Version 1 has each say so by its recovery offset.
    pub lacking: &'a [Slot],
}

/// Why what a reshape has moved cannot be moved back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotReverted {
    /// There is none, or its fields are impossible.
    #[error("no reshape is under way that could be turned back")]
    NoReshape,
    /// Members tell of different ones.
    #[error(
        "members tell of different reshapes, as when one was away while the others were turned back: leave out who was \
         (--degraded)"
    )]
    Unlike,
    /// A member's data are not whole.
    #[error(
        "a member holds a part of its data only, since it was added in the place of a parity that the array did not have \
         (RAID5 to RAID6, a RAID0 that grows), or is being recovered: let the reshape end, and ask for the old geometry then \
         (`lapstrake grow`)"
    )]
    Incomplete,
    /// Data is rewritten where it was, or nearly.
    #[error(
        "it moves data by less than a chunk, so that it needs a backup file to be turned back: mdadm does that \
         (`mdadm --assemble --update=revert-reshape --backup-file`)"
    )]
    InPlace,
    /// Linux may have moved more than it has recorded.
    #[error(
        "Linux records seldom how far it has come with such a reshape, and a wrong place destroys data; if Lapstrake has carried \
         it on since it began, `--update revert-reshape={}` turns it back at the place on record; else find the right one by \
         reading (docs/rescue.md)", .position.bytes()
    )]
    Unsure {
        /// The place on record.
        position: Sector,
    },
    /// A position was given that is not to be given.
    #[error(
        "the place given is not the one on record, byte {}, which is right: Linux records this reshape exactly, or what was given \
         lies behind it", .position.bytes()
    )]
    Given {
        /// The place on record.
        position: Sector,
    },
    /// Stripes of the array before do not end there.
    #[error(
        "it has come to byte {} of the array, and can turn back where stripes of the array before end, at multiples of {} bytes: \
         serve the array for a moment, stop it, and try again", .position.bytes(), .unit.bytes()
    )]
    Position {
        /// Where the two geometries meet.
        position: Sector,
        /// What it has to be a multiple of.
        unit: Sectors,
    },
}

impl Superblock {
    /// This superblock of the array after a reshape, as one of the reshape under way: [`Self::reshape`] backwards.
    #[must_use]
    pub fn in_reshape(&self, record: &ReshapeRecord<'_>) -> Self {
        let mut this = self.clone();
        match (&mut this, record.before) {
            (Self::V1(sb), Self::V1(before)) => sb.begin_reshape(before, record),
            (Self::V090(sb), Self::V090(before)) => sb.begin_reshape(before, record),
            _ => unreachable!("members have superblocks of one version"),
        }
        this
    }

    /// Says of the array before a reshape what Linux makes of it before it begins one to another level: of a RAID4 a RAID5
    /// whose parity is last, of a RAID5 a RAID6 whose second parity, on one member more, is yet to be made.
    pub fn take_over_for(&mut self, to: &Self) {
        let (Some(from), Some(level)) = (self.level(), to.level()) else { return };
        if !from.is_parity() || from == level || level < from {
            return;
        }
        let layout = match self.layout() {
            Some(Layout::Parity(layout)) => layout,
            _ => ParityLayout::ParityLast,
        };
        let (more, layout) = match level {
            Level::Raid6 => (1, layout.with_q_last()),
            _ => (0, layout),
        };
        let (level, layout) = (level.to_md(), layout.to_md());
        match self {
            Self::V1(sb) => {
                (sb.level, sb.layout, sb.raid_disks) = (level, layout, sb.raid_disks + more)
            }
            Self::V090(sb) => {
                (sb.level, sb.layout, sb.raid_disks) = (level, layout, sb.raid_disks + more);
            }
        }
    }

    /// The RAID5 that is left of a RAID6 whose last member holds nothing but Q, without that; none if this is of no such
    /// RAID6.
    #[must_use]
    pub fn without_second_parity(&self) -> Option<Self> {
        let (Some(Level::Raid6), Some(Layout::Parity(layout))) = (self.level(), self.layout())
        else {
            return None;
        };
        let (level, layout) = (Level::Raid5.to_md(), layout.without_q_last()?.to_md());
        let last = self.raid_disks().checked_sub(1)?;
        Some(match self {
            Self::V1(sb) => {
                let mut sb = sb.with_last_slot_empty()?;
                (sb.level, sb.layout, sb.raid_disks) = (level, layout, last.into());
                Self::V1(sb)
            }
            Self::V090(sb) => {
                let mut sb = sb.clone();
                (sb.level, sb.layout, sb.raid_disks) = (level, layout, last.into());
                Self::V090(sb)
            }
        })
    }

    /// This RAID4 with the last slot empty, which is that of its parity. None if this is of no RAID4, nor of a RAID5 like that.
    #[must_use]
    pub fn without_parity(&self) -> Option<Self> {
        let Self::V1(sb) = self else { return None };
        let is_last = match self.level()? {
            Level::Raid4 => true,
            Level::Raid5 => self.layout() == Some(Layout::Parity(ParityLayout::ParityLast)),
            _ => false,
        };
        sb.with_last_slot_empty().filter(|_| is_last).map(Self::V1)
    }

    /// Whether another array of these members, of another level, has all data where this one has it: a cut while that was
    /// recorded leaves superblocks of both.
    #[must_use]
    pub fn is_taken_over_by(&self, other: &Self) -> bool {
        let (old, new) = (self.raid_disks(), other.raid_disks());
        let layout = |sb: &Self| match sb.layout() {
            Some(Layout::Parity(layout)) => layout,
            _ => ParityLayout::ParityLast,
        };
        let is_last = |sb: &Self| layout(sb) == ParityLayout::ParityLast;
        let is_near = |sb: &Self| sb.layout() == Some(Layout::Raid10(Raid10Layout::near(2)));
        let Some(levels) = self.level().zip(other.level()) else { return false };
        let is_alike = match levels {
            (Level::Raid6, Level::Raid5) => {
                old == new.saturating_add(1) && layout(self).without_q_last() == Some(layout(other))
            }
            (Level::Raid5, Level::Raid4) => old == new && is_last(self),
            (Level::Raid1, Level::Raid5) | (Level::Raid5, Level::Raid1) => (old, new) == (2, 2),
            (Level::Raid0, Level::Raid4 | Level::Raid5) => {
                old.saturating_add(1) == new && is_last(other)
            }
            (Level::Raid4 | Level::Raid5, Level::Raid0) => {
                old == new.saturating_add(1) && is_last(self)
            }
            (Level::Linear, Level::Linear) => old < new,
            (Level::Raid0, Level::Raid10) => old.saturating_mul(2) == new && is_near(other),
            (Level::Raid10, Level::Raid0) => old == new.saturating_mul(2) && is_near(self),
            (Level::Raid10, Level::Raid5) => {
                old == new.saturating_sub(1).saturating_mul(2) && is_near(self) && is_last(other)
            }
            _ => return false,
        };
        let is_mirror = matches!(levels, (Level::Raid1, _) | (_, Level::Raid1));
        is_alike && (is_mirror || self.chunk() == other.chunk())
    }

    /// Says that the array has the geometry that another superblock says, with all data where it is. A RAID0 uses of each member
    /// what there is, and that is no more than was used before.
    pub fn be_taken_over_by(&mut self, other: &Self) {
        let used = self.component();
        self.set_component(other.component());
        self.take_geometry(other, 0);
        if let (Self::V1(sb), Some(Level::Raid0), false) =
            (&mut *self, other.level(), used.is_zero())
        {
            sb.data_size = used.0;
        }
    }

    /// Says that the array has this level, layout, chunk and number of slots.
    pub fn set_geometry(&mut self, config: &Config) {
        let (level, layout) = (config.level.to_md(), config.layout.to_md());
        let chunk = if config.level == Level::Raid1 { 0 } else { config.chunk.0 as u32 };
        let raid_disks = config.raid_disks.into();
        match self {
            Self::V1(sb) => {
                (sb.level, sb.layout, sb.chunksize) = (level, layout, chunk);
                sb.raid_disks = raid_disks;
                sb.record_raid0_layout(layout != 0);
            }
            Self::V090(sb) => {
                (sb.level, sb.layout, sb.chunk_size) = (level, layout, chunk * 512);
                sb.raid_disks = raid_disks;
            }
        }
    }

    /// Says that the array has the level, layout, chunk and slots that another superblock says, and that this member's data
    /// begins so many sectors further on.
    pub fn take_geometry(&mut self, other: &Self, shift: i64) {
        match (self, other) {
            (Self::V1(sb), Self::V1(other)) => {
                (sb.level, sb.layout) = (other.level, other.layout);
                (sb.chunksize, sb.raid_disks) = (other.chunksize, other.raid_disks);
                sb.record_raid0_layout(other.has(v1::feature::RAID0_LAYOUT));
                sb.data_offset = sb.data_offset.saturating_add_signed(shift);
                sb.data_size = sb.data_size.saturating_add_signed(-shift);
            }
            (Self::V090(sb), Self::V090(other)) => {
                (sb.level, sb.layout) = (other.level, other.layout);
                (sb.chunk_size, sb.raid_disks) = (other.chunk_size, other.raid_disks);
            }
            _ => unreachable!("members have superblocks of one version"),
        }
    }

    /// This superblock of a reshape under way, with what was moved moved back: of the array before it makes the one after it.
    /// `given`: where the geometries meet, if that is not believed of the record.
    ///
    /// # Errors
    /// [`NotReverted`].
    pub fn reverted(&self, given: Option<Sector>) -> Result<Self, NotReverted> {
        let reshape = self.reshape().ok_or(NotReverted::NoReshape)?;
        let Self::V1(sb) = self else { return Err(NotReverted::InPlace) };
        let chunk = reshape.before.chunk().max(reshape.after.chunk());
        if self.recovery_offset().is_some() {
            return Err(NotReverted::Incomplete);
        }
        if u64::from(sb.new_offset.unsigned_abs()) < chunk.0 {
            return Err(NotReverted::InPlace);
        }
        let before = reshape.before.geometry_of_alike().ok_or(NotReverted::NoReshape)?;
        let position = reshape.position_to_revert(given)?;
        // Behind the end of the array before there is nothing to be moved back.
        let position = match reshape.is_backwards {
            true => position,
            false => position.min(Sector(before.array_sectors().0)),
        };
        let unit = match &before {
            Geometry::Parity(parity) => {
                Sectors(parity.stripe_data().0 / parity.chunk().0 * chunk.0)
            }
            _ => Sectors(1),
        };
        if !position.0.is_multiple_of(unit.0) {
            return Err(NotReverted::Position { position, unit });
        }
        let reverted = sb.with_reshape_reverted(position.0).ok_or(NotReverted::NoReshape)?;
        Ok(Self::V1(reverted))
    }

    /// Says that the reshape under way has come to there.
    pub fn set_reshape_position(&mut self, position: Sector) {
        match self {
            Self::V090(sb) => sb.reshape_position = position.0,
            Self::V1(sb) => sb.reshape_position = position.0,
        }
    }

    /// Whether another member tells of the same reshape, wherever each says that it has come to.
    pub fn is_reshaped_as(&self, other: &Self) -> bool {
        let shape = |sb: &Self| (sb.level_md(), sb.layout_md(), sb.chunk(), sb.raid_disks());
        let course = |sb: &Self| {
            sb.reshape().map(|it| (shape(&it.before), shape(&it.after), it.is_backwards))
        };
        course(self) == course(other)
    }

    /// The geometry of an array of members as large as this one.
    pub fn geometry_of_alike(&self) -> Option<Geometry> {
        let config = Config {
            level: self.level()?,
            layout: self.layout()?,
            chunk: self.chunk(),
            raid_disks: self.raid_disks(),
            component: self.component(),
            member_sizes: vec![self.component(); self.raid_disks().into()],
        };
        Geometry::new(&config).ok()
    }

    /// The reshape that is under way, if there is one and its fields describe two arrays.
    ///
    /// What the two have in common, such as events and roles, is this superblock's. There is no bitmap in them: this one's
    /// is of neither.
    pub fn reshape(&self) -> Option<Reshape> {
        let (before, after, position, is_backwards) = match self {
            Self::V090(sb) => of_v090(sb)?,
            Self::V1(sb) => of_v1(sb)?,
        };
        Some(Reshape { before, after, position: Sector(position), is_backwards })
    }
}

type Parts = (Superblock, Superblock, u64, bool);

fn of_v1(sb: &v1::Superblock) -> Option<Parts> {
    use v1::feature::{
        BITMAP_OFFSET, NEW_OFFSET, RECOVERY_OFFSET, RESHAPE_ACTIVE, RESHAPE_BACKWARDS,
    };
    if !sb.has(RESHAPE_ACTIVE) {
        return None;
    }
    let disks = disks_before(sb.raid_disks, sb.delta_disks, v1::role::MAX.into())?;
    let mut before = sb.clone();
    before.feature_map &= !(RESHAPE_ACTIVE | RESHAPE_BACKWARDS | NEW_OFFSET | BITMAP_OFFSET);
    before.bitmap_offset = 0;
    (before.new_level, before.new_layout, before.new_chunk) = (0, 0, 0);
    (before.reshape_position, before.delta_disks, before.new_offset) = (0, 0, 0);
    let mut after = before.clone();
    before.raid_disks = disks;
    (after.level, after.layout, after.chunksize) = (sb.new_level, sb.new_layout, sb.new_chunk);
    if sb.has(NEW_OFFSET) {
        after.data_offset = sb.data_offset.checked_add_signed(sb.new_offset.into())?;
        // The room ends where it did.
        after.data_size = sb.data_size.saturating_add_signed(-i64::from(sb.new_offset));
    }
    for one in [&mut before, &mut after] {
        let only_in_other = one.raid_disks..disks.max(sb.raid_disks);
        let roles = one.dev_roles.iter_mut();
        roles
            .filter(|role| only_in_other.contains(&u32::from(**role)))
            .for_each(|role| *role = v1::role::SPARE);
    }
    let is_backwards = is_backwards(sb.delta_disks, sb.has(RESHAPE_BACKWARDS));
    possible(sb.reshape_position)?;
    if sb.has(RECOVERY_OFFSET) && !is_backwards {
        before.recovery_offset = 0;
        if holds_all_rewritten(&after, sb.reshape_position) {
            after.feature_map &= !RECOVERY_OFFSET;
        }
    }
    Some((Superblock::V1(before), Superblock::V1(after), sb.reshape_position, is_backwards))
}

fn of_v090(sb: &v090::Superblock) -> Option<Parts> {
    use v090::disk_state::{ACTIVE, SYNC};
    if sb.minor_version <= 90 {
        return None;
    }
    let disks = disks_before(sb.raid_disks, sb.delta_disks, v090::MAX_DISKS as u32)?;
    let mut before = sb.clone();
    before.minor_version = 90;
    before.state &= !v090::state::BITMAP_PRESENT;
    (before.new_level, before.new_layout, before.new_chunk) = (0, 0, 0);
    (before.reshape_position, before.delta_disks) = (0, 0);
    let mut after = before.clone();
    before.raid_disks = disks;
    (after.level, after.layout, after.chunk_size) = (sb.new_level, sb.new_layout, sb.new_chunk);
    for (one, is_after) in [(&mut before, false), (&mut after, true)] {
        let raid_disks = one.raid_disks;
        for disk in one.disks.iter_mut().chain([&mut one.this_disk]) {
            match disk.raid_disk < raid_disks {
                true if is_after && disk.state & ACTIVE != 0 => disk.state |= SYNC,
                true => {}
                false => disk.state &= !(ACTIVE | SYNC),
            }
        }
    }
    let is_backwards = is_backwards(sb.delta_disks, false);
    possible(sb.reshape_position)?;
    Some((Superblock::V090(before), Superblock::V090(after), sb.reshape_position, is_backwards))
}

impl v1::Superblock {
    /// Slots of the array, during a reshape of the larger of both.
    pub(crate) fn slots(&self) -> u32 {
        let before = disks_before(self.raid_disks, self.delta_disks, v1::role::MAX.into());
        let is_reshaped = self.has(v1::feature::RESHAPE_ACTIVE);
        self.raid_disks.max(before.filter(|_| is_reshaped).unwrap_or(0))
    }

    /// With nobody in the last slot: who had it is a spare.
    fn with_last_slot_empty(&self) -> Option<Self> {
        let mut sb = self.clone();
        let last = sb.raid_disks.checked_sub(1)?;
        let roles = sb.dev_roles.iter_mut();
        roles.filter(|role| u32::from(**role) == last).for_each(|role| *role = v1::role::SPARE);
        if sb.dev_roles.get(sb.dev_number as usize) == Some(&v1::role::SPARE) {
            sb.feature_map &= !(v1::feature::RECOVERY_OFFSET | v1::feature::RECOVERY_BITMAP);
            sb.recovery_offset = 0;
        }
        Some(sb)
    }

    /// Whether the layout is one of a RAID0, for which there is a bit.
    fn record_raid0_layout(&mut self, is_recorded: bool) {
        use v1::feature::RAID0_LAYOUT;
        self.feature_map &= !RAID0_LAYOUT;
        if self.level == Level::Raid0.to_md() && is_recorded {
            self.feature_map |= RAID0_LAYOUT;
        }
    }

    /// None if the offsets are impossible.
    fn with_reshape_reverted(&self, position: u64) -> Option<Self> {
        let mut sb = self.clone();
        mem::swap(&mut sb.level, &mut sb.new_level);
        mem::swap(&mut sb.layout, &mut sb.new_layout);
        mem::swap(&mut sb.chunksize, &mut sb.new_chunk);
        sb.delta_disks = self.delta_disks.checked_neg()?;
        sb.raid_disks = self.raid_disks.checked_add_signed(sb.delta_disks)?;
        sb.reshape_position = position;
        if sb.delta_disks == 0 {
            sb.feature_map ^= v1::feature::RESHAPE_BACKWARDS;
        }
        sb.new_offset = self.new_offset.checked_neg()?;
        sb.data_offset = self.data_offset.checked_add_signed(self.new_offset.into())?;
        sb.data_size = self.data_size.checked_add_signed(sb.new_offset.into())?;
        Some(sb)
    }

    fn begin_reshape(&mut self, before: &Self, record: &ReshapeRecord<'_>) {
        use v1::feature::{NEW_OFFSET, RESHAPE_ACTIVE, RESHAPE_BACKWARDS};
        (self.new_level, self.new_layout, self.new_chunk) =
            (self.level, self.layout, self.chunksize);
        (self.level, self.layout, self.chunksize) = (before.level, before.layout, before.chunksize);
        self.delta_disks = self.raid_disks.wrapping_sub(before.raid_disks) as i32;
        self.reshape_position = record.position.0;
        self.feature_map |= RESHAPE_ACTIVE;
        if self.delta_disks == 0 && record.is_backwards {
            self.feature_map |= RESHAPE_BACKWARDS;
        }
        if let Some((offset, size)) = record.data_before
            && offset.0 != self.data_offset
        {
            self.feature_map |= NEW_OFFSET;
            self.new_offset = self.data_offset.wrapping_sub(offset.0) as i32;
            (self.data_offset, self.data_size) = (offset.0, size.0);
        }
    }
}

impl v090::Superblock {
    fn begin_reshape(&mut self, before: &Self, record: &ReshapeRecord<'_>) {
        (self.new_level, self.new_layout, self.new_chunk) =
            (self.level, self.layout, self.chunk_size);
        (self.level, self.layout) = (before.level, before.layout);
        self.chunk_size = before.chunk_size;
        self.delta_disks = self.raid_disks.wrapping_sub(before.raid_disks) as i32;
        self.reshape_position = record.position.0;
        self.minor_version = 91;
        // Linux takes such a one for recovered up to where the reshape has come.
        let disks = self.disks.iter_mut().chain([&mut self.this_disk]);
        let is_lacking = |disk: &&mut v090::Disk| {
            let slot = record.lacking.iter().find(|slot| u32::from(slot.0) == disk.raid_disk);
            slot.is_some() && disk.state & v090::disk_state::ACTIVE != 0
        };
        disks.filter(is_lacking).for_each(|disk| disk.state &= !v090::disk_state::SYNC);
    }
}

/// Whether a member that was none before, or is to be recovered, has been given all that the reshape has written: a RAID0
/// grows as a RAID4 that lacks its parity, and the member that is added takes the place where that was.
fn holds_all_rewritten(after: &v1::Superblock, position: u64) -> bool {
    let parities = match after.level {
        4 | 5 => 1,
        6 => 2,
        _ => return false,
    };
    let data_disks = u64::from(after.raid_disks.saturating_sub(parities));
    after.recovery_offset.saturating_mul(data_disks) >= position
}

/// How many slots there were: `raid_disks` counts those to come.
fn disks_before(raid_disks: u32, delta: i32, max: u32) -> Option<u32> {
    raid_disks.checked_add_signed(delta.checked_neg()?).filter(|disks| (1..=max).contains(disks))
}

/// No array has sectors whose bytes do not count in 63 bits.
fn possible(position: u64) -> Option<u64> {
    Some(position).filter(|position| *position <= i64::MAX as u64 / 512)
}

/// An array that loses members is always rewritten from its end on.
fn is_backwards(delta: i32, flag: bool) -> bool {
    delta < 0 || delta == 0 && flag
}
