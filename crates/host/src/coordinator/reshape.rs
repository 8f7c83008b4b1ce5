//! The coordinator's part in another geometry: what can be had, and where data is moved to.

use super::{
    CoordinatorRuntime,
    resize::{Change, ResizeError},
};
use crate::{command_error::CommandError, message::ReshapeWish, shard_runtime::ShardRuntime};
use lapstrake_engine::{
    DiskState, NewGeometry, STRIPE_CACHE_SIZES, Supervisor, least_raid10_shift,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Raid10, Sectors};
use lapstrake_metadata::{Superblock, Version};

/// Between superblock and data, for a bitmap that comes later.
const BITMAP_ROOM: u64 = 128;
/// Data is moved by no more than it takes for windows of a useful size.
const SHIFT_MAX: u64 = 8192;
/// The largest stripe that is moved: four of them may be in memory.
const STRIPE_MAX: Sectors = Sectors((64 << 20) / 512);

impl CoordinatorRuntime {
    pub(super) fn plan_reshape(
        &self,
        runtime: &ShardRuntime,
        supervisor: &Supervisor,
        wish: &ReshapeWish,
    ) -> Result<Change, CommandError> {
        if self.is_overlaid(runtime) {
            return Err(ResizeError::Overlaid.into());
        }
        self.may_change_shape(runtime, supervisor)?;
        if supervisor.is_frozen() {
            return Err(ResizeError::Frozen { array: self.facts.name.clone() }.into());
        }
        if runtime.peers.len() < 2 {
            return Err(ResizeError::OneShard { array: self.facts.name.clone() }.into());
        }
        Ok(self.new_geometry(supervisor, wish)?)
    }

    fn new_geometry(
        &self,
        supervisor: &Supervisor,
        wish: &ReshapeWish,
    ) -> Result<Change, ResizeError> {
        let (old, like) = (supervisor.geometry(), self.freshest(supervisor)?);
        let config = config(old, like, wish)?;
        let are_parity = old.level().is_parity() && config.level.is_parity();
        if !are_parity && [old.level(), config.level] != [Level::Raid10; 2] {
            return Err(ResizeError::NotBetween { from: old.level(), to: config.level });
        }
        let geometry = Geometry::new(&config)?;
        if geometry == *old {
            return Ok(Change::Nothing);
        }
        check_copies(old, &geometry)?;
        self.check_stripes(old, &geometry)?;
        self.check_members(supervisor, &config)?;
        if are_parity && !like.component().0.is_multiple_of(config.chunk.0) {
            let (component, chunk) = (like.component(), config.chunk);
            return Err(ResizeError::PartOfChunk { component, chunk });
        }
        // Linux, which may carry a RAID10 on, goes only so far as the new layout would with as many members as before.
        let as_many = Config { raid_disks: old.raid_disks(), ..config.clone() };
        let left = match &geometry {
            Geometry::Raid10(_) => Geometry::new(&as_many)?.array_sectors(),
            geometry => geometry.array_sectors(),
        };
        let usable = supervisor.usable();
        if left < usable {
            return Err(ResizeError::CutsData { left, usable, array: self.facts.name.clone() });
        }
        let least = |is_backwards| least_shift(old, &geometry, is_backwards);
        let is_same_count = config.raid_disks == old.raid_disks();
        let (shift, is_backwards) = match self.shift(supervisor, least(false), room_before) {
            Err(_) if is_same_count && self.shift(supervisor, least(true), room_behind).is_ok() => {
                (self.shift(supervisor, least(true), room_behind)? as i64, true)
            }
            shift => (-(shift? as i64), false),
        };
        let superblock = with_geometry(like, &config);
        let to = NewGeometry { geometry, superblock, shift, is_backwards };
        Ok(Change::Geometry(Box::new(to)))
    }

    /// A stripe of either geometry goes through memory as a whole.
    fn check_stripes(&self, old: &Geometry, new: &Geometry) -> Result<(), ResizeError> {
        let (Geometry::Parity(old), Geometry::Parity(new)) = (old, new) else { return Ok(()) };
        let array = || self.facts.name.clone();
        if new.data_disks() < old.data_disks() {
            return Err(ResizeError::FewerForData { old: old.data_disks(), new: new.data_disks() });
        }
        if new.stripe_data() > STRIPE_MAX {
            return Err(ResizeError::LargeStripe { stripe: new.stripe_data(), most: STRIPE_MAX });
        }
        let (least, pages) = (*STRIPE_CACHE_SIZES.start(), self.cache_size);
        let needed = (least * u32::from(new.raid_disks())).div_ceil(old.raid_disks().into());
        match pages < needed {
            true => Err(ResizeError::SmallCache { needed, array: array() }),
            false => Ok(()),
        }
    }

    fn check_members(&self, supervisor: &Supervisor, config: &Config) -> Result<(), ResizeError> {
        let array = || self.facts.name.clone();
        let (old, new) = (supervisor.geometry().raid_disks(), config.raid_disks);
        if supervisor.bitmap().is_some_and(lapstrake_metadata::bitmap::Superblock::is_lockless) {
            return Err(ResizeError::Lockless);
        }
        if new < old {
            return Err(ResizeError::FewerMembers { old, new });
        }
        if supervisor.is_degraded() {
            return Err(ResizeError::Degraded { array: array() });
        }
        let spares = supervisor.members().filter(|it| it.1 == DiskState::Spare).count();
        let needed = new - old;
        if spares < usize::from(needed) {
            return Err(ResizeError::NeedsSpares { needed, spares, copies: new, array: array() });
        }
        let has_bad =
            |(sb, state): (&Superblock, DiskState)| sb.has_bad_blocks() && is_there(state);
        match supervisor.members().position(has_bad) {
            Some(id) => Err(ResizeError::BadBlocks { member: self.members[id].path.clone() }),
            None => Ok(()),
        }
    }

    /// By how many sectors data moves into this room: what all members have, whole chunks.
    fn shift(
        &self,
        supervisor: &Supervisor,
        chunk: Sectors,
        room: impl Fn(&Superblock) -> u64,
    ) -> Result<u64, ResizeError> {
        let members = supervisor.members().enumerate().filter(|(_, (_, state))| is_there(*state));
        let rooms = members.map(|(id, (sb, _))| (room(sb), id));
        let (room, id) = rooms.min().ok_or(ResizeError::NoneThere)?;
        if room < chunk.0 {
            let member = self.members[id].path.clone();
            return Err(ResizeError::NoRoomToMove { member, room: Sectors(room), chunk });
        }
        let shift = room.min(SHIFT_MAX.max(chunk.0));
        Ok(shift - shift % chunk.0)
    }
}

/// Copies of a RAID10 stay as many, and none far, as with Linux.
fn check_copies(old: &Geometry, new: &Geometry) -> Result<(), ResizeError> {
    let (Geometry::Raid10(old), Geometry::Raid10(new)) = (old, new) else { return Ok(()) };
    let is_far = |it: &Raid10| it.layout().far > 1 && !it.layout().offset;
    match (old.copies(), new.copies()) {
        _ if is_far(old) || is_far(new) => Err(ResizeError::FarReshape),
        (old, new) if old != new => Err(ResizeError::OtherCopies { old, new }),
        _ => Ok(()),
    }
}

/// By how much data has to move at least, so that nothing is overwritten before its copy is on record.
fn least_shift(old: &Geometry, new: &Geometry, is_backwards: bool) -> Sectors {
    let chunk = |geometry: &Geometry| match geometry {
        Geometry::Parity(parity) => parity.chunk(),
        Geometry::Raid10(raid10) => raid10.chunk(),
        _ => Sectors::ZERO,
    };
    let of_raid10 = match (old, new) {
        (Geometry::Raid10(old), Geometry::Raid10(new)) => {
            least_raid10_shift(old, new, is_backwards)
        }
        _ => None,
    };
    of_raid10.unwrap_or(chunk(old).max(chunk(new)))
}

fn is_there(state: DiskState) -> bool {
    !matches!(state, DiskState::Faulty | DiskState::Removed)
}

fn config(old: &Geometry, like: &Superblock, wish: &ReshapeWish) -> Result<Config, ResizeError> {
    let level = wish.level.unwrap_or(old.level());
    let layout = match &wish.layout {
        Some(name) => Layout::from_name(level, name)?,
        None => {
            like.layout().filter(|it| it.belongs_to(level)).unwrap_or(Layout::default_for(level))
        }
    };
    Ok(Config {
        level,
        layout,
        chunk: wish.chunk.map_or(like.chunk(), |bytes| Sectors(bytes / 512)),
        raid_disks: wish.raid_devices.unwrap_or_else(|| old.raid_disks() + more_parity(old, level)),
        component: like.component(),
        member_sizes: Vec::new(),
    })
}

/// Members that a level needs for its second parity.
fn more_parity(old: &Geometry, level: Level) -> u16 {
    u16::from(level == Level::Raid6 && old.level() != Level::Raid6)
}

fn with_geometry(like: &Superblock, config: &Config) -> Superblock {
    let mut superblock = like.clone();
    superblock.set_geometry(config);
    superblock
}

/// Sectors before a member's data that hold nothing of the array.
fn room_before(superblock: &Superblock) -> u64 {
    if matches!(superblock.version(), Version::V090 | Version::V1_0) {
        return 0;
    }
    let after_superblock = superblock.super_sector().0 + 8;
    let bitmap = superblock.bitmap_sector().zip(superblock.bitmap_room());
    let log = superblock.badblock_log().map(|(at, len)| at.0 + len.0);
    let bitmap =
        bitmap.map_or(after_superblock + BITMAP_ROOM, |(at, room)| at.0 + room.0.min(BITMAP_ROOM));
    let taken = log.into_iter().chain([after_superblock, bitmap]).max().unwrap_or(0);
    superblock.data_offset().0.saturating_sub(taken.next_multiple_of(8))
}

/// Sectors behind what the array uses of a member.
fn room_behind(superblock: &Superblock) -> u64 {
    match superblock.version() {
        Version::V090 => 0,
        _ => superblock.data_size().0.saturating_sub(superblock.component().0),
    }
}
