//! The coordinator's part in another size, or number of copies: what can be had, and who is told.

mod error;
mod plan;

pub use error::ResizeError;

use super::{CoordinatorRuntime, members::action_name};
use crate::array::reshape_detail;
use crate::{
    cache::CacheTerms,
    command_error::CommandError,
    message::{Answer, ReshapeWish, ResizeWish},
    shard_runtime::ShardRuntime,
};
use lapstrake_control::{Detail, WantedSize};
use lapstrake_engine::{
    DiskState, Frontier, MemberId, NewBitmap, NewGeometry, NewShape, PlannedArray, Supervisor,
    stripe_cache_members,
};
use lapstrake_geometry::{Config, Geometry, Layout, Level, Sectors};
use lapstrake_metadata::{Superblock, bitmap};
use std::sync::mpsc::Sender;
use tracing::info;

/// What is to be done.
pub(super) enum Change {
    Nothing,
    Shape(Box<NewShape>),
    /// And what is to be asked for afterwards.
    Geometry(Box<NewGeometry>, Option<ReshapeWish>),
    Usable(Option<Sectors>),
}

impl CoordinatorRuntime {
    /// The array's geometry as it is now.
    pub(super) fn geometry(&self) -> &Geometry {
        self.coordinator.supervisor().map_or(&self.facts.geometry, Supervisor::geometry)
    }

    pub(super) fn is_redundant(&self) -> bool {
        self.geometry().level().has_redundancy()
    }

    /// Begins what is wished for; who asked hears of its end.
    pub(super) fn begin_resize(
        &mut self,
        runtime: &mut ShardRuntime,
        wish: ResizeWish,
        answer: Sender<Answer>,
    ) {
        match self.try_resize(runtime, wish) {
            Ok(true) => self.resize_answer = Some(answer),
            Ok(false) => drop(answer.send(Answer::AlreadySo)),
            Err(why) => drop(answer.send(Answer::Refused(why))),
        }
    }

    /// False: it is so already.
    pub(super) fn try_resize(
        &mut self,
        runtime: &mut ShardRuntime,
        wish: ResizeWish,
    ) -> Result<bool, CommandError> {
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        let is_reshape = matches!(wish, ResizeWish::Reshape(_));
        let change = self.plan_resize(runtime, wish.clone())?;
        if matches!(change, Change::Geometry(_, Some(_))) {
            self.check_way(runtime, wish)?;
        }
        if matches!(change, Change::Geometry(..)) {
            self.end_lending()?;
        }
        let now = runtime.now();
        match &change {
            Change::Shape(shape) => self.resize_caches_for(runtime, &shape.geometry),
            Change::Geometry(to, _) => self.resize_caches_for(runtime, &to.geometry),
            Change::Nothing | Change::Usable(_) => {}
        }
        let supervisor = self.coordinator.supervisor_mut().ok_or(CommandError::ReadOnly)?;
        let mut next = None;
        let begun = match change {
            Change::Nothing => None,
            Change::Shape(shape) => Some(supervisor.handle_shape(now, *shape)),
            Change::Geometry(to, step) => {
                next = step;
                Some(supervisor.handle_reshape(now, *to))
            }
            Change::Usable(most) => Some(supervisor.handle_usable(now, most)),
        };
        // A reshape that was asked for before, and waits, is not what is asked for now; a size says nothing of it.
        if is_reshape && begun != Some(false) {
            self.await_reshape(next);
        }
        match begun {
            Some(false) => Err(ResizeError::Busy.into()),
            begun => Ok(begun.is_some()),
        }
    }

    /// Clients lend no memory any more that others change. A shard gets another geometry only while all pause, with nothing
    /// under way of what came before, so what is lent has ended by then; but not what waits in a pause that has begun.
    fn end_lending(&self) -> Result<(), ResizeError> {
        if !self.facts.lending.is_allowed() {
            return Ok(());
        }
        if self.coordinator.is_redealing() {
            return Err(ResizeError::Busy);
        }
        self.facts.lending.end();
        Ok(())
    }

    /// A check of a mirror reads all copies at once, an operation on a stripe has pages of each member.
    fn resize_caches_for(&mut self, runtime: &ShardRuntime, geometry: &Geometry) {
        let members = stripe_cache_members(geometry);
        if members > stripe_cache_members(self.geometry()) {
            (self.cache, self.cache_size) = self.cache_for(geometry);
            self.resize_caches(runtime, self.cache_size);
        }
    }

    /// The caches of an array that has come to have a geometry, and pages of each member.
    pub(super) fn cache_for(&self, geometry: &Geometry) -> (CacheTerms, u32) {
        let members = stripe_cache_members(geometry);
        if members <= stripe_cache_members(self.geometry()) {
            return (self.cache, self.cache_size);
        }
        let cache = self.cache.with_members(members);
        (cache, cache.size(self.cache_size))
    }

    fn plan_resize(
        &self,
        runtime: &ShardRuntime,
        wish: ResizeWish,
    ) -> Result<Change, CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        self.change(runtime, supervisor, &supervisor.planned(), wish)
    }

    /// The first step to what is wished for. `planned`: the array as it is, perhaps with more members.
    fn change(
        &self,
        runtime: &ShardRuntime,
        supervisor: &Supervisor,
        planned: &PlannedArray,
        wish: ResizeWish,
    ) -> Result<Change, CommandError> {
        if self.is_reshaped() {
            return Err(ResizeError::IsReshaped { array: self.facts.name.clone() }.into());
        }
        if supervisor.is_changing_bitmap() || self.resize_answer.is_some() {
            return Err(ResizeError::IsChanging.into());
        }
        if self.facts.shows_part.get().is_some() && !matches!(wish, ResizeWish::Copies(_)) {
            return Err(ResizeError::PartIsShown { array: self.facts.name.clone() }.into());
        }
        match wish {
            ResizeWish::Reshape(wish) => self.plan_reshape(runtime, supervisor, planned, &wish),
            ResizeWish::Usable(size) => Ok(self.plan_usable(supervisor, size)?),
            ResizeWish::Component { size, assume_clean } => {
                self.check_redundant()?;
                self.may_change_shape(runtime, supervisor)?;
                Ok(self.plan_component(supervisor, size, assume_clean)?)
            }
            ResizeWish::Copies(copies) => {
                self.check_redundant()?;
                self.may_change_shape(runtime, supervisor)?;
                Ok(self.plan_copies(planned, copies)?)
            }
        }
    }

    fn check_redundant(&self) -> Result<(), ResizeError> {
        let level = self.geometry().level();
        if level.has_redundancy() { Ok(()) } else { Err(ResizeError::Level { level }) }
    }

    pub(super) fn may_change_shape(
        &self,
        runtime: &ShardRuntime,
        supervisor: &Supervisor,
    ) -> Result<(), ResizeError> {
        let logged = |(sb, _): (&Superblock, DiskState)| sb.has_journal() || sb.has_ppl();
        if supervisor.members().any(logged) {
            return Err(ResizeError::HasLogs);
        }
        let Some(progress) = supervisor.sync_progress(runtime.now()) else { return Ok(()) };
        let (action, array) = (action_name(progress.action), self.facts.name.clone());
        Err(ResizeError::DuringSync { action, array })
    }

    fn plan_usable(
        &self,
        supervisor: &Supervisor,
        size: WantedSize,
    ) -> Result<Change, ResizeError> {
        let all = supervisor.geometry().array_sectors();
        let most = match size {
            WantedSize::Max => None,
            WantedSize::Bytes(bytes) => Some(Sectors(bytes / 512)),
        };
        match most {
            Some(asked) if asked > all => Err(ResizeError::AboveArray { asked, all }),
            Some(asked) if asked.is_zero() => Err(ResizeError::NothingLeft),
            _ if most.unwrap_or(all) == supervisor.usable() => Ok(Change::Nothing),
            _ => Ok(Change::Usable(most)),
        }
    }

    fn plan_component(
        &self,
        supervisor: &Supervisor,
        size: WantedSize,
        assume_clean: bool,
    ) -> Result<Change, ResizeError> {
        let old = supervisor.geometry();
        self.may_resize_members(supervisor)?;
        let rooms = rooms(supervisor);
        let least = rooms.iter().min_by_key(|(_, room)| *room).ok_or(ResizeError::NoneThere)?;
        let version = freshest(supervisor.members())?.version();
        let room = version.usable(old.level(), least.1);
        let component = match size {
            WantedSize::Max => room,
            WantedSize::Bytes(bytes) if Sectors(bytes / 512) > room => {
                let member = self.members[usize::from(least.0.0)].path.clone();
                return Err(ResizeError::TooSmall { member, asked: Sectors(bytes / 512), room });
            }
            WantedSize::Bytes(bytes) => Sectors(bytes / 512),
        };
        let like = freshest(supervisor.members())?;
        let geometry = geometry_of(like, old.level(), component, old.raid_disks())?;
        if geometry == *old {
            return Ok(Change::Nothing);
        }
        let (left, usable) = (geometry.array_sectors(), supervisor.usable());
        if left < usable {
            return Err(ResizeError::CutsData { left, usable, array: self.facts.name.clone() });
        }
        if geometry.component() > old.component() && supervisor.is_degraded() {
            return Err(ResizeError::Degraded { array: self.facts.name.clone() });
        }
        let bitmap = self.bitmap_for(supervisor, &geometry)?;
        Ok(Change::Shape(Box::new(NewShape { geometry, bitmap, assume_clean })))
    }

    fn may_resize_members(&self, supervisor: &Supervisor) -> Result<(), ResizeError> {
        if supervisor.bitmap().is_some_and(bitmap::Superblock::is_lockless) {
            return Err(ResizeError::Lockless);
        }
        if let Some(file) = &self.bitmap_file {
            let (file, array) = (file.path.clone(), self.facts.name.clone());
            return Err(ResizeError::BitmapInFile { file, array });
        }
        let layout = freshest(supervisor.members())?.layout();
        match layout {
            Some(Layout::Raid10(layout)) if layout.far > 1 && !layout.offset => {
                Err(ResizeError::Far)
            }
            _ => Ok(()),
        }
    }

    /// The bitmap of another size: in its old place and with its old chunk, or a larger one if it does not fit.
    fn bitmap_for(
        &self,
        supervisor: &Supervisor,
        geometry: &Geometry,
    ) -> Result<Option<NewBitmap>, ResizeError> {
        let Some(old) = supervisor.bitmap() else { return Ok(None) };
        let is_there = |state| !matches!(state, DiskState::Faulty | DiskState::Removed);
        let members: Vec<Superblock> = supervisor
            .members()
            .filter(|member| is_there(member.1))
            .map(|(sb, _)| {
                let mut sb = sb.clone();
                sb.set_component(geometry.component());
                sb
            })
            .collect();
        let like = members.first().ok_or(ResizeError::NoneThere)?;
        let size = like.sync_size();
        let place = |chunk| bitmap::added(&members, size, chunk);
        let place = place(Some(old.chunksize)).or_else(|error| match error {
            bitmap::AddError::Chunk { .. } => place(None),
            other => Err(other),
        })?;
        let new = bitmap::Superblock::new(like.bitmap_uuid(), size, place.chunk);
        let superblock = bitmap::Superblock { write_behind: old.write_behind, ..new };
        Ok(Some(NewBitmap { superblock, offset: Some(place.offset) }))
    }

    fn plan_copies(&self, planned: &PlannedArray, copies: u16) -> Result<Change, ResizeError> {
        let old = planned.geometry();
        if copies == old.raid_disks() {
            return Ok(Change::Nothing);
        }
        if old.level() != Level::Raid1 {
            return Err(ResizeError::NeedsReshape { level: old.level() });
        }
        let mut members = (0..).map(MemberId).zip(planned.members());
        let holds = |(id, (_, state)): &(MemberId, (&Superblock, DiskState))| {
            let is_there = !matches!(state, DiskState::Faulty | DiskState::Removed);
            is_there && planned.slot(*id).is_some_and(|slot| slot.0 >= copies)
        };
        if let Some((id, _)) = members.find(holds) {
            let member = self.members[usize::from(id.0)].path.clone();
            return Err(ResizeError::CopyInUse { member, copies, array: self.facts.name.clone() });
        }
        let spares = planned.members().filter(|it| it.1 == DiskState::Spare).count();
        let needed = copies.saturating_sub(old.raid_disks());
        if spares < usize::from(needed) {
            let array = self.facts.name.clone();
            return Err(ResizeError::NeedsSpares { needed, spares, array });
        }
        let like = freshest(planned.members())?;
        let geometry = geometry_of(like, old.level(), old.component(), copies)?;
        Ok(Change::Shape(Box::new(NewShape { geometry, bitmap: None, assume_clean: false })))
    }

    /// Every shard takes requests for so much.
    pub(super) fn resized(&mut self, usable: Sectors) {
        let block = u64::from(self.facts.detail.block_bytes);
        let bytes = usable.bytes() / block * block;
        // A part that is shown in the array's place keeps its size.
        if self.facts.shows_part.get().is_none() {
            self.facts.size.set(bytes);
        }
        info!(bytes, "clients can use {bytes} bytes of the array");
        if !self.coordinator.supervisor().is_some_and(Supervisor::is_changing_shape) {
            self.answer_resize(Answer::Done);
        }
    }

    pub(super) fn answer_resize(&mut self, what: Answer) {
        if let Some(answer) = self.resize_answer.take() {
            // The asker may have gone.
            let _ = answer.send(what);
        }
    }

    /// What there is to say of sizes.
    pub(super) fn size_detail(&self, supervisor: &Supervisor, detail: &mut Detail) {
        let geometry = supervisor.geometry();
        detail.array_bytes = supervisor.usable().bytes();
        detail.raid_devices = geometry.raid_disks();
        let (layout, chunk) = match supervisor.geometry_before().unwrap_or(geometry) {
            Geometry::Parity(parity) if parity.level() == Level::Raid4 => (None, parity.chunk()),
            Geometry::Parity(parity) => (Some(Layout::Parity(parity.layout())), parity.chunk()),
            Geometry::Raid10(raid10) => (Some(Layout::Raid10(raid10.layout())), raid10.chunk()),
            Geometry::Raid0(raid0) => {
                let layout = freshest(supervisor.members()).ok().and_then(Superblock::layout);
                (layout.filter(|layout| layout.belongs_to(Level::Raid0)), raid0.chunk())
            }
            Geometry::Linear(_) => (None, Sectors(detail.chunk_bytes / 512)),
            Geometry::Mirror(_) => (None, Sectors::ZERO),
        };
        detail.level = supervisor.geometry_before().unwrap_or(geometry).level().to_string();
        detail.layout = layout.map(|layout| layout.name().into());
        detail.chunk_bytes = chunk.bytes();
        detail.reshape =
            supervisor.frontier().zip(freshest(supervisor.members()).ok()).map(|(front, sb)| {
                let Frontier { position, is_backwards, .. } = front;
                reshape_detail(geometry, sb, position, is_backwards)
            });
        if geometry.level().has_redundancy() {
            detail.component_bytes = geometry.component().bytes();
        }
    }
}

/// A superblock that says what the array is.
pub(super) fn freshest<'a>(
    mut members: impl Iterator<Item = (&'a Superblock, DiskState)>,
) -> Result<&'a Superblock, ResizeError> {
    let member = members.find(|member| member.1 == DiskState::InSync);
    member.map(|member| member.0).ok_or(ResizeError::NoneThere)
}

/// The geometry of so many members, of which so much is used, with layout and chunk as a superblock says them.
pub(super) fn geometry_of(
    like: &Superblock,
    level: Level,
    component: Sectors,
    raid_disks: u16,
) -> Result<Geometry, ResizeError> {
    let config = Config {
        level,
        layout: like.layout().unwrap_or(Layout::None),
        chunk: like.chunk(),
        raid_disks,
        component,
        member_sizes: Vec::new(),
    };
    Ok(Geometry::new(&config)?)
}

/// Members that are there, and how much of each can hold data as its superblock says.
fn rooms(supervisor: &Supervisor) -> Vec<(MemberId, Sectors)> {
    let members = (0..).map(MemberId).zip(supervisor.members());
    let is_there = |state| !matches!(state, DiskState::Faulty | DiskState::Removed);
    let room = |(id, (sb, state)): (MemberId, (&Superblock, DiskState))| {
        is_there(state).then(|| (id, sb.data_size()))
    };
    members.filter_map(room).collect()
}
