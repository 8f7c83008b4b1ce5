//! The coordinator's part in another geometry: what can be had, and where data is moved to.

use super::{
    CoordinatorRuntime,
    resize::{Change, ResizeError, freshest, geometry_of},
};
use crate::{
    command_error::CommandError,
    message::{ReshapeWish, ResizeWish},
    shard_runtime::ShardRuntime,
};
use lapstrake_device::quoted;
use lapstrake_engine::{
    DataMove, DiskState, NewGeometry, PlannedArray, STRIPE_CACHE_SIZES, Step, Supervisor,
    backup_on, critical_section, least_shift, room_before, room_behind, shift_within,
};
use lapstrake_geometry::{
    Config, Geometry, Layout, Level, MIN_CHUNK, ParityLayout, Raid10, Sectors,
};
use lapstrake_metadata::{Role, Superblock, Version};
use tracing::{info, warn};

/// Where room is made for data to move to members' ends, it is so much of each: no window would be larger in the end.
const SHIFT_BEHIND: u64 = 2048;
/// The largest stripe that is moved: four of them may be in memory.
const STRIPE_MAX: Sectors = Sectors((64 << 20) / 512);

impl CoordinatorRuntime {
    pub(super) fn plan_reshape(
        &self,
        runtime: &ShardRuntime,
        supervisor: &Supervisor,
        planned: &PlannedArray,
        wish: &ReshapeWish,
    ) -> Result<Change, CommandError> {
        if self.is_overlaid(runtime) {
            return Err(ResizeError::Overlaid.into());
        }
        // It may stay as it is, whatever runs, and whatever was to come of it.
        let now = planned.geometry();
        let goal = Geometry::new(&config(now, freshest(planned.members())?, wish)?);
        if now.level().is_parity() && goal.as_ref() == Ok(now) {
            return Ok(Change::Nothing);
        }
        self.may_change_shape(runtime, supervisor)?;
        if supervisor.is_frozen() {
            return Err(ResizeError::Frozen { array: self.facts.name.clone() }.into());
        }
        if supervisor.bitmap().is_some_and(lapstrake_metadata::bitmap::Superblock::is_lockless) {
            return Err(ResizeError::Lockless.into());
        }
        Ok(self.new_geometry(planned, wish, has_one_shard(runtime))?)
    }

    pub(super) fn new_geometry(
        &self,
        planned: &PlannedArray,
        wish: &ReshapeWish,
        has_one_shard: bool,
    ) -> Result<Change, ResizeError> {
        let (old, like) = (planned.geometry(), freshest(planned.members())?);
        let mut goal = config(old, like, wish)?;
        let is_kept = wish.chunk.is_none() && wish.layout.is_none();
        let has_chunk = !matches!(goal.level, Level::Raid1 | Level::Linear);
        if !is_kept && !has_chunk && goal.level == old.level() {
            return Err(ResizeError::NoChunk { level: goal.level });
        }
        if !is_reached(old, &goal) {
            return Err(ResizeError::NotBetween { from: old.level(), to: goal.level });
        }
        if goal.level == Level::Linear {
            self.check_spares(planned, goal.raid_disks - old.raid_disks())?;
            goal.member_sizes = sizes_with_spares(planned, goal.raid_disks);
        }
        if Geometry::new(&goal)? == *old {
            return Ok(Change::Nothing);
        }
        if has_one_shard && is_moved_to(old, &goal)? {
            return Err(ResizeError::OneShard { array: self.facts.name.clone() });
        }
        if matches!(old, Geometry::Raid0(_)) && goal.level == Level::Raid0 {
            self.check_raid0(planned, &goal)?;
        }
        let Step { config, stays } = Step::first(old, &goal);
        let next = (config != goal).then(|| wish_for(&goal));
        let to = match stays {
            true => self.alike(planned, &config)?,
            false => self.moved(planned, config, goal.level)?,
        };
        // A level without redundancy is given members once it has some.
        if next.is_some() && old.level().has_redundancy() {
            self.check_spares(planned, goal.raid_disks.saturating_sub(old.raid_disks()))?;
        }
        Ok(Change::Geometry(Box::new(to), next))
    }

    /// A geometry that lays data out as the old one.
    fn alike(&self, planned: &PlannedArray, config: &Config) -> Result<NewGeometry, ResizeError> {
        let (old, like) = (planned.geometry(), freshest(planned.members())?);
        self.check_bad_blocks(planned)?;
        if planned.lacks_data() {
            return Err(ResizeError::Degraded { array: self.facts.name.clone() });
        }
        let (geometry, superblock) = (Geometry::new(config)?, with_geometry(like, config));
        // What a RAID0 uses of each member 0.90 does not say.
        let has_more = |(sb, state): (&Superblock, DiskState)| {
            is_there(state) && sb.data_size().round_down(config.chunk) > config.component
        };
        let is_unsaid = config.level == Level::Raid0 && like.version() == Version::V090;
        match old {
            _ if is_unsaid && planned.members().any(has_more) => {
                Err(ResizeError::UnlikeMembers { chunk: config.chunk })
            }
            Geometry::Raid0(raid0) if geometry.array_sectors() != old.array_sectors() => {
                Err(ResizeError::UnlikeMembers { chunk: raid0.chunk() })
            }
            _ if config.level.is_parity() && !config.component.0.is_multiple_of(config.chunk.0) => {
                let (component, chunk) = (config.component, config.chunk);
                Err(ResizeError::PartOfChunk { component, chunk })
            }
            _ => {
                let (before, data_move) = (old.clone(), DataMove::Stays);
                Ok(NewGeometry { geometry, before, superblock, data_move })
            }
        }
    }

    /// Whether a RAID0 has room for more members' data, before it becomes a RAID4 for that, and members are added.
    fn check_raid0(&self, planned: &PlannedArray, goal: &Config) -> Result<(), ResizeError> {
        if goal.raid_disks > planned.geometry().raid_disks() {
            let chunk = freshest(planned.members())?.chunk().max(goal.chunk);
            self.shift(planned, chunk, BEFORE)?;
        }
        Ok(())
    }

    /// A geometry to which data is moved on the way to a level, and where to.
    fn moved(
        &self,
        planned: &PlannedArray,
        mut config: Config,
        level: Level,
    ) -> Result<NewGeometry, ResizeError> {
        let (old, like) = (planned.geometry(), freshest(planned.members())?);
        let geometry = Geometry::new(&config)?;
        check_copies(old, &geometry)?;
        self.check_stripes(old, &geometry)?;
        if old.level().is_parity() && !like.component().0.is_multiple_of(config.chunk.0) {
            let (component, chunk) = (like.component(), config.chunk);
            return Err(ResizeError::PartOfChunk { component, chunk });
        }
        self.check_members(planned, &config, level)?;
        let is_fewer = data_disks(&geometry) < data_disks(old);
        let may_go_back = is_fewer || config.raid_disks == old.raid_disks();
        let least = |is_backwards| least_shift(old, &geometry, is_backwards);
        let forwards = (!is_fewer).then(|| self.shift(planned, least(false), BEFORE));
        let (shift, is_backwards) = match forwards {
            Some(Ok(shift)) => (-(shift as i64), false),
            Some(Err(_)) if is_backed_up(planned, &geometry) => (0, false),
            Some(Err(error)) if !may_go_back || like.version() == Version::V090 => {
                return Err(error);
            }
            _ => (self.shift_behind(planned, least(true), &mut config)? as i64, true),
        };
        let geometry = Geometry::new(&config)?;
        let (left, usable) = (room_for_data(old, &geometry, &config)?, planned.usable());
        if left < usable {
            return Err(ResizeError::CutsData { left, usable, array: self.facts.name.clone() });
        }
        let superblock = with_geometry(like, &config);
        let before = geometry_of(like, old.level(), config.component, old.raid_disks())?;
        let data_move = DataMove::Moves { shift, is_backwards };
        Ok(NewGeometry { geometry, before, superblock, data_move })
    }

    /// Goes on to what was wished for, if the geometry that the array has now was only a step on the way. It waits for members
    /// that are yet to be added to what was a RAID0.
    pub(super) fn reshape_on(&mut self, runtime: &mut ShardRuntime) {
        let supervisor = self.coordinator.supervisor();
        let lacks_parity = supervisor.is_some_and(|it| it.is_degraded() && !it.lacks_data());
        let Some(wish) = self.next_reshape.take() else {
            if lacks_parity && self.geometry().level() == Level::Raid4 {
                let name = quoted(&self.facts.name);
                info!(
                    "it has no parity; if it was a RAID0, `lapstrake grow {name} --level 0` makes it one again"
                );
            }
            return;
        };
        if self.is_redundant() && lacks_parity && wish.level != Some(Level::Raid0) {
            info!("it goes on when its parity is made");
            return self.await_reshape(Some(wish));
        }
        let Err(why) = self.try_resize(runtime, ResizeWish::Reshape(wish.clone())) else { return };
        match &why {
            CommandError::Resize(ResizeError::NeedsSpares { .. }) => {
                info!("it goes on when members are added: {why}");
                self.await_reshape(Some(wish));
            }
            // It is on its way, and is heard of at the end of each step.
            CommandError::Resize(ResizeError::IsReshaped { .. }) => self.await_reshape(Some(wish)),
            CommandError::Resize(
                ResizeError::DuringSync { .. }
                | ResizeError::Frozen { .. }
                | ResizeError::IsChanging
                | ResizeError::Busy,
            ) => {
                info!("it goes on when that has ended: {why}");
                self.await_reshape(Some(wish));
            }
            _ => {
                warn!(
                    "not yet what was asked for, which is to be asked for again (`lapstrake grow`): {why}"
                );
                self.await_reshape(None);
            }
        }
    }

    /// As [`Self::reshape_on`], where something has ended that may have stood in the way.
    pub(super) fn go_on_if_waiting(&mut self, runtime: &mut ShardRuntime) {
        if self.next_reshape.is_some() && !self.is_reshaped() && self.resize_answer.is_none() {
            self.reshape_on(runtime);
        }
    }

    /// Keeps what the array is to become once it can go on. Members that are added on the way to a RAID0 are for data.
    pub(super) fn await_reshape(&mut self, wish: Option<ReshapeWish>) {
        let leaves_parity = wish.as_ref().is_some_and(|it| it.level == Some(Level::Raid0));
        if let Some(supervisor) = self.coordinator.supervisor_mut() {
            supervisor.leave_parity(leaves_parity);
        }
        self.next_reshape = wish;
    }

    /// By how many sectors data moves towards members' ends. Where there is too little room behind it, less of each member is
    /// to be used.
    fn shift_behind(
        &self,
        planned: &PlannedArray,
        unit: Sectors,
        config: &mut Config,
    ) -> Result<u64, ResizeError> {
        let shift = self.shift(planned, unit, BEHIND);
        if shift.is_ok() || freshest(planned.members())?.version() == Version::V090 {
            return shift;
        }
        let wanted = SHIFT_BEHIND.max(unit.0);
        let rooms = planned.members().filter(|it| is_there(it.1)).map(|(sb, _)| room_behind(sb).0);
        let room = rooms.min().unwrap_or(0);
        let component = (config.component.0 + room).saturating_sub(wanted);
        let component = Sectors(component).round_down(unit);
        if component.is_zero() {
            return shift;
        }
        config.component = component;
        Ok(wanted)
    }

    /// A stripe of either geometry goes through memory as a whole.
    fn check_stripes(&self, old: &Geometry, new: &Geometry) -> Result<(), ResizeError> {
        let (Geometry::Parity(before), Geometry::Parity(after)) = (old, new) else { return Ok(()) };
        let array = || self.facts.name.clone();
        if after.stripe_data() > STRIPE_MAX {
            return Err(ResizeError::LargeStripe { stripe: after.stripe_data(), most: STRIPE_MAX });
        }
        let (least, (_, pages)) = (*STRIPE_CACHE_SIZES.start(), self.cache_for(old));
        let members = u32::from(after.raid_disks());
        let needed = (least * members).div_ceil(before.raid_disks().into());
        match pages < needed {
            true => Err(ResizeError::SmallCache { needed, array: array() }),
            false => Ok(()),
        }
    }

    fn check_members(
        &self,
        planned: &PlannedArray,
        config: &Config,
        level: Level,
    ) -> Result<(), ResizeError> {
        let (old, new) = (planned.geometry().raid_disks(), config.raid_disks);
        if !planned.may_move_to(level) {
            return Err(ResizeError::Degraded { array: self.facts.name.clone() });
        }
        self.check_spares(planned, new.saturating_sub(old))?;
        self.check_bad_blocks(planned)
    }

    fn check_spares(&self, planned: &PlannedArray, needed: u16) -> Result<(), ResizeError> {
        let spares = planned.members().filter(|it| it.1 == DiskState::Spare).count();
        match spares < usize::from(needed) {
            true => {
                let array = self.facts.name.clone();
                Err(ResizeError::NeedsSpares { needed, spares, array })
            }
            false => Ok(()),
        }
    }

    fn check_bad_blocks(&self, planned: &PlannedArray) -> Result<(), ResizeError> {
        let has_bad =
            |(sb, state): (&Superblock, DiskState)| sb.has_bad_blocks() && is_there(state);
        match planned.members().position(has_bad) {
            Some(id) => Err(ResizeError::BadBlocks { member: self.members[id].path.clone() }),
            None => Ok(()),
        }
    }

    /// By how many sectors data moves into this room: what all members have, whole chunks.
    fn shift(
        &self,
        planned: &PlannedArray,
        chunk: Sectors,
        (room, side): Side,
    ) -> Result<u64, ResizeError> {
        let members = planned.members().enumerate().filter(|(_, (_, state))| is_there(*state));
        let rooms = members.map(|(id, (sb, _))| (room(sb), id));
        let (room, id) = rooms.min().ok_or(ResizeError::NoneThere)?;
        shift_within(room, chunk).map(|shift| shift.0).ok_or_else(|| {
            // Who is planned with, and is no member yet, comes last.
            let known = self.members.get(id).map(|member| member.path.clone());
            let member = known.unwrap_or_else(|| "a member to be added".into());
            // mdadm moves no RAID10 so, nor makes parity of one.
            let next = match self.geometry().level() {
                Level::Raid10 => "",
                _ => {
                    "; mdadm can do it with a backup file, on the array that Lapstrake has stopped"
                }
            };
            ResizeError::NoRoomToMove { member, room, side, chunk, next }
        })
    }
}

/// Whether the reshape can do without room, since members that come to the array have some for a copy of what would be lost.
fn is_backed_up(planned: &PlannedArray, after: &Geometry) -> bool {
    let data_move = DataMove::Moves { shift: 0, is_backwards: false };
    let Some(sectors) = critical_section(planned.geometry(), after, data_move) else {
        return false;
    };
    let mut spares = planned.members().filter(|it| it.1 == DiskState::Spare);
    spares.all(|(sb, _)| backup_on(sb, sectors, after, 0).is_some())
}

/// Whether it is a RAID10 that has, or can be moved to, two copies side by side.
fn has_two_near_copies(geometry: &Geometry) -> bool {
    let Geometry::Raid10(raid10) = geometry else { return false };
    raid10.copies() == 2 && !is_far(raid10)
}

fn is_far(raid10: &Raid10) -> bool {
    raid10.layout().far > 1 && !raid10.layout().offset
}

/// Copies of a RAID10 stay as many, and none far, as with Linux.
fn check_copies(old: &Geometry, new: &Geometry) -> Result<(), ResizeError> {
    let (Geometry::Raid10(old), Geometry::Raid10(new)) = (old, new) else { return Ok(()) };
    match (old.copies(), new.copies()) {
        _ if is_far(old) || is_far(new) => Err(ResizeError::FarReshape),
        (old, new) if old != new => Err(ResizeError::OtherCopies { old, new }),
        _ => Ok(()),
    }
}

/// Sectors of data that are moved. Linux, which may carry a RAID10 on, goes only so far as the new layout would with as many
/// members as before.
fn room_for_data(old: &Geometry, new: &Geometry, config: &Config) -> Result<Sectors, ResizeError> {
    let as_many = Config { raid_disks: old.raid_disks(), ..config.clone() };
    let most = match new {
        Geometry::Raid10(_) => Geometry::new(&as_many)?.array_sectors(),
        other => other.array_sectors(),
    };
    Ok(most.min(new.array_sectors()))
}

pub(super) fn is_there(state: DiskState) -> bool {
    !matches!(state, DiskState::Faulty | DiskState::Removed)
}

fn config(old: &Geometry, like: &Superblock, wish: &ReshapeWish) -> Result<Config, ResizeError> {
    let level = wish.level.unwrap_or(old.level());
    let raid_disks = wish.raid_devices.unwrap_or_else(|| with_data_of(level, old));
    let component = component(old, like);
    // A RAID5 with parity on the last member was made on the way to what is asked for again.
    let was_on_its_way = |layout: &Layout| {
        let last = Layout::Parity(ParityLayout::ParityLast);
        wish.level.is_some() && old.level() == Level::Raid5 && *layout == last
    };
    let kept = || layout_kept(like, level).filter(|layout| !was_on_its_way(layout));
    let layout = match &wish.layout {
        Some(name) => Layout::from_name(level, name)?,
        None => kept().unwrap_or(Layout::default_for(level)),
    };
    Ok(Config {
        level,
        layout,
        chunk: wish.chunk.map_or_else(|| chunk_kept(old, like), |bytes| Sectors(bytes / 512)),
        raid_disks,
        component,
        member_sizes: vec![component; raid_disks.into()],
    })
}

/// The array's chunk; of a mirror, which has none, what Linux takes when it becomes a RAID5.
fn chunk_kept(old: &Geometry, like: &Superblock) -> Sectors {
    let is_whole = |chunk: &Sectors| like.component().0.is_multiple_of(chunk.0);
    match old {
        Geometry::Mirror(_) => {
            [128, 64, 32, 16, 8].map(Sectors).into_iter().find(is_whole).unwrap_or(MIN_CHUNK)
        }
        _ => like.chunk(),
    }
}

/// The sizes of all members in their order, then of spares.
fn sizes_with_spares(planned: &PlannedArray, raid_disks: u16) -> Vec<Sectors> {
    let mut members: Vec<_> = planned.members().filter(|it| is_there(it.1)).collect();
    members.sort_by_key(|(sb, _)| match sb.role() {
        Role::Active(slot) => slot.0,
        _ => u16::MAX,
    });
    members.iter().map(|(sb, _)| sb.data_size()).take(raid_disks.into()).collect()
}

/// What is used of each member. RAID0 does not say it.
fn component(old: &Geometry, like: &Superblock) -> Sectors {
    match old {
        Geometry::Raid0(raid0) => Sectors(raid0.array_sectors().0 / u64::from(raid0.raid_disks())),
        _ => like.component(),
    }
}

/// Whether data is moved on the way.
fn is_moved_to(old: &Geometry, goal: &Config) -> Result<bool, ResizeError> {
    let mut now = old.clone();
    while now != Geometry::new(goal)? {
        let Step { config, stays } = Step::first(&now, goal);
        if !stays {
            return Ok(true);
        }
        now = Geometry::new(&config)?;
    }
    Ok(false)
}

/// Whether there is a way from a geometry to another.
fn is_reached(old: &Geometry, goal: &Config) -> bool {
    use Level::{Linear, Raid0, Raid1, Raid10};
    let (from, to) = (old.level(), goal.level);
    match (from, to) {
        (Linear, Linear) => goal.raid_disks >= old.raid_disks(),
        (Raid10, Raid10) => true,
        (Raid10, _) => has_two_near_copies(old) && (to == Raid0 || to.is_parity()),
        (Raid0, Raid10) => true,
        (Raid1, _) => old.raid_disks() == 2 && to.is_parity(),
        (Raid0, _) => to == Raid0 || to.is_parity(),
        (_, Raid0) => from.is_parity(),
        (_, Raid1) => from.is_parity() && goal.raid_disks == 2,
        _ => from.is_parity() && to.is_parity(),
    }
}

/// The layout of another level that is nearest to the array's.
fn layout_kept(like: &Superblock, level: Level) -> Option<Layout> {
    let layout = like.layout()?;
    let without_q = match layout {
        Layout::Parity(layout) if level == Level::Raid5 => layout.without_q_last(),
        _ => None,
    };
    without_q.map(Layout::Parity).or(Some(layout)).filter(|it| it.belongs_to(level))
}

/// So many members, if the number of those for data stays.
fn with_data_of(level: Level, old: &Geometry) -> u16 {
    let data = match old {
        _ if level == old.level() => return old.raid_disks(),
        Geometry::Mirror(_) => 1,
        Geometry::Raid10(raid10) => raid10.raid_disks().div_ceil(2),
        other => data_disks(other),
    };
    match level {
        Level::Raid1 => 2,
        Level::Raid4 | Level::Raid5 => data.saturating_add(1),
        Level::Raid6 => data.saturating_add(2),
        Level::Raid10 => data.saturating_mul(2),
        Level::Raid0 | Level::Linear => data,
    }
}

/// What is asked for when all of it is said.
fn wish_for(config: &Config) -> ReshapeWish {
    let has_layout = config.layout != Layout::None;
    ReshapeWish {
        raid_devices: Some(config.raid_disks),
        level: Some(config.level),
        chunk: Some(config.chunk.bytes()),
        layout: has_layout.then(|| config.layout.name().into_owned()),
    }
}

fn data_disks(geometry: &Geometry) -> u16 {
    match geometry {
        Geometry::Parity(parity) => parity.data_disks(),
        other => other.raid_disks(),
    }
}

fn with_geometry(like: &Superblock, config: &Config) -> Superblock {
    let mut superblock = like.clone();
    superblock.set_geometry(config);
    superblock.set_component(config.component);
    superblock
}

/// Room on one side of a member's data, and its name.
type Side = (fn(&Superblock) -> Sectors, &'static str);
const BEFORE: Side = (room_before, "between superblock and data");
const BEHIND: Side = (room_behind, "behind its data");

/// Where data would be moved by the shard that has it: one more is to have the new geometry.
pub(super) fn has_one_shard(runtime: &ShardRuntime) -> bool {
    runtime.peers.len() < 2
}
