//! What another size or geometry would take, told and not done. Each step is planned as it is when it begins, by the array as
//! the steps before it leave it.

use super::{Change, ResizeError, freshest};
use crate::{
    command_error::CommandError,
    coordinator::{CoordinatorRuntime, reshape::has_one_shard, reshape::is_there},
    message::{Candidate, ReshapeWish, ResizeWish},
    shard_runtime::ShardRuntime,
};
use lapstrake_control::{
    BitmapFate, MemberTraffic as MemberTrafficDetail, Planned, PlannedMove, PlannedStep, StepAction,
};
use lapstrake_engine::{
    DataMove, MemberId, MemberTraffic, NewGeometry, NewShape, PlannedArray, critical_section,
    recovery_traffic, reshape_traffic, resync_traffic, room_before, room_behind,
};
use lapstrake_geometry::{Geometry, Layout, Level, Sectors, Slot};
use lapstrake_metadata::{Superblock, create::spare};

/// No way has so many steps.
const STEPS_MAX: usize = 16;

/// An array on its way, and how it came to be so far.
struct Way<'a> {
    coordinator: &'a CoordinatorRuntime,
    array: PlannedArray,
    has_bitmap: bool,
    /// Not taken in yet.
    candidates: &'a [Candidate],
    steps: Vec<PlannedStep>,
}

impl CoordinatorRuntime {
    /// The steps to what is wished for, with these devices added.
    pub(in crate::coordinator) fn plan_steps(
        &self,
        runtime: &ShardRuntime,
        wish: ResizeWish,
        candidates: &[Candidate],
    ) -> Result<Planned, CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        let without_redundancy = !supervisor.planned().survives_a_failure();
        let (steps, obstacle) = self.way(runtime, wish, candidates)?;
        Ok(Planned { steps, obstacle: obstacle.map(|why| why.to_string()), without_redundancy })
    }

    /// Whether nothing stands in the way to what is wished for but that members are yet to be added. A RAID0 takes in nobody
    /// before it has become something else, so it is looked at with as many as it could need.
    pub(super) fn check_way(
        &self,
        runtime: &ShardRuntime,
        wish: ResizeWish,
    ) -> Result<(), CommandError> {
        let imagined = match self.geometry().level() {
            Level::Raid0 => self.imagined(&wish)?,
            _ => Vec::new(),
        };
        match self.way(runtime, wish, &imagined)?.1 {
            None | Some(ResizeError::NeedsSpares { .. }) => Ok(()),
            Some(obstacle) => Err(obstacle.into()),
        }
    }

    /// Members for all copies or parities of a RAID0, and for all slots that are wished for, as large as the largest there is.
    fn imagined(&self, wish: &ResizeWish) -> Result<Vec<Candidate>, CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        let end = |sb: &Superblock| sb.data_offset().0.saturating_add(sb.data_size().0);
        let largest = supervisor.members().map(|(sb, _)| end(sb)).max().unwrap_or(0);
        let slots = match wish {
            ResizeWish::Reshape(ReshapeWish { raid_devices: Some(slots), .. }) => *slots,
            _ => 0,
        };
        let count = self.geometry().raid_disks().max(2).saturating_add(slots);
        // With room for a superblock behind the data.
        let size = Sectors(largest + 256);
        Ok((0..count).map(|_| Candidate { name: "a member to be added".into(), size }).collect())
    }

    /// The steps, and what stands in the way of the next one, if not all can be gone.
    fn way(
        &self,
        runtime: &ShardRuntime,
        wish: ResizeWish,
        candidates: &[Candidate],
    ) -> Result<(Vec<PlannedStep>, Option<ResizeError>), CommandError> {
        let supervisor = self.coordinator.supervisor().ok_or(CommandError::ReadOnly)?;
        if self.coordinator.is_broken() {
            return Err(self.cannot_change());
        }
        let takes_in = self.is_redundant() || self.geometry().level() == Level::Linear;
        if takes_in && !candidates.is_empty() {
            self.template(runtime)?;
        }
        let array = supervisor.planned();
        let has_bitmap = supervisor.bitmap().is_some();
        let mut way = Way { coordinator: self, array, has_bitmap, candidates, steps: Vec::new() };
        way.take_in()?;
        let change = self.change(runtime, supervisor, &way.array, wish)?;
        let mut next = way.step(change);
        while let Ok(Some(wish)) = &next {
            if way.steps.len() >= STEPS_MAX {
                break;
            }
            let change = self.new_geometry(&way.array, wish, has_one_shard(runtime));
            next = change.and_then(|change| way.step(change));
        }
        Ok((way.steps, next.err()))
    }

    fn path_of(&self, id: MemberId, candidates: &[Candidate]) -> Option<String> {
        let index = usize::from(id.0);
        match index.checked_sub(self.members.len()) {
            None => Some(self.members[index].path.clone()),
            Some(new) => candidates.get(new).map(|candidate| candidate.name.clone()),
        }
    }
}

impl Way<'_> {
    /// Takes the new devices in, once the level takes any.
    fn take_in(&mut self) -> Result<(), ResizeError> {
        let known = self.coordinator.members.len();
        let are_in = self.array.members().count() > known;
        let level = self.array.geometry().level();
        if are_in || !level.has_redundancy() && level != Level::Linear {
            return Ok(());
        }
        for (candidate, number) in self.candidates.iter().zip(known as u32..) {
            let like = freshest(self.array.members())?;
            let superblock = spare(like, candidate.size, number, [0; 16], false)
                .map_err(|source| ResizeError::Unfit { member: candidate.name.clone(), source })?;
            self.array.add_spare(superblock);
        }
        Ok(())
    }

    /// Goes a step, and what follows from it. What is to be asked for afterwards.
    fn step(&mut self, change: Change) -> Result<Option<ReshapeWish>, ResizeError> {
        let next = match change {
            Change::Nothing => None,
            Change::Usable(most) => {
                let all = self.array.geometry().array_sectors();
                let mut step = self.describe(StepAction::ArraySize);
                step.array_bytes = most.unwrap_or(all).bytes();
                self.steps.push(step);
                None
            }
            Change::Shape(shape) => {
                self.shape(&shape);
                None
            }
            Change::Geometry(to, next) => {
                self.geometry(&to);
                next
            }
        };
        self.take_in()?;
        let leaves_parity = next.as_ref().is_some_and(|next| next.level == Some(Level::Raid0));
        self.recover(leaves_parity);
        Ok(next)
    }

    fn shape(&mut self, to: &NewShape) {
        let old = self.array.geometry().component();
        self.array.take_shape(&to.geometry);
        let mut step = self.describe(StepAction::Superblocks);
        step.bitmap = (self.has_bitmap && to.bitmap.is_some()).then_some(BitmapFate::Remade);
        step.resync_after_cut |= step.bitmap.is_some();
        self.steps.push(step);
        let more = Sectors(to.geometry.component().0.saturating_sub(old.0));
        if !more.is_zero() && !to.assume_clean {
            let traffic = resync_traffic(&to.geometry, more);
            let counted = match &to.geometry {
                Geometry::Raid10(raid10) => {
                    more.0 * u64::from(raid10.raid_disks()) / u64::from(raid10.copies())
                }
                _ => more.0,
            };
            let members = self.members(&traffic, None);
            let step = self.describe(StepAction::Resync);
            self.steps.push(PlannedStep { counted_bytes: counted * 512, members, ..step });
        }
    }

    fn geometry(&mut self, to: &NewGeometry) {
        let before = self.array.clone();
        let bitmap = self.has_bitmap.then_some(BitmapFate::Removed);
        self.has_bitmap = false;
        self.array.take(to);
        let action = match to.data_move {
            DataMove::Stays => StepAction::Superblocks,
            DataMove::Moves { .. } => StepAction::Reshape,
        };
        let mut step = self.describe(action);
        step.bitmap = bitmap;
        if let DataMove::Moves { shift, is_backwards } = to.data_move {
            let kept = critical_section(&to.before, &to.geometry, to.data_move);
            let kept = kept.unwrap_or(Sectors::ZERO);
            let room = if is_backwards { room_behind } else { room_before };
            let rooms = before.members().filter(|(_, state)| is_there(*state));
            let room = rooms.map(|(sb, _): (&Superblock, _)| room(sb)).min();
            step.data_move = Some(PlannedMove {
                is_backwards,
                shift_bytes: shift.unsigned_abs() * 512,
                room_bytes: room.unwrap_or(Sectors::ZERO).bytes(),
                backup_bytes: kept.bytes(),
            });
            let mut traffic = reshape_traffic(&to.before, &to.geometry);
            let comes = usize::from(to.before.raid_disks()).min(traffic.len());
            traffic[comes..].iter_mut().for_each(|of| of.written += kept);
            step.members = self.members(&traffic, Some(&before));
            step.counted_bytes = match &to.geometry {
                Geometry::Raid10(raid10) => raid10.array_sectors().bytes(),
                other => other.component().bytes(),
            };
        }
        self.steps.push(step);
    }

    /// Spares that have got slots are made of the others.
    fn recover(&mut self, leaves_parity: bool) {
        let recovered = self.array.recover(leaves_parity);
        if recovered.is_empty() {
            return;
        }
        let slots: Vec<Slot> = recovered.iter().map(|(_, slot)| *slot).collect();
        let traffic = recovery_traffic(self.array.geometry(), &slots);
        let members = self.members(&traffic, None);
        let counted_bytes = self.array.geometry().component().bytes();
        let step = self.describe(StepAction::Recovery);
        self.steps.push(PlannedStep { members, counted_bytes, ..step });
    }

    /// Who reads and writes, by slots. `before`: the array that a reshape changes, some of whose slots go.
    fn members(
        &self,
        traffic: &[MemberTraffic],
        before: Option<&PlannedArray>,
    ) -> Vec<MemberTrafficDetail> {
        let is_idle = |of: &MemberTraffic| of.read.is_zero() && of.written.is_zero();
        let slots = (0..).map(Slot).zip(traffic).filter(|(_, of)| !is_idle(of));
        // The parity that a RAID0 lacks on its way is written to nobody.
        let detail = |(slot, of): (Slot, &MemberTraffic)| {
            let old = before.and_then(|before| before.serving(slot));
            let id = old.or_else(|| self.array.serving(slot))?;
            Some(MemberTrafficDetail {
                member: self.coordinator.path_of(id, self.candidates),
                slot: slot.0,
                read_bytes: of.read.bytes(),
                written_bytes: of.written.bytes(),
            })
        };
        slots.filter_map(detail).collect()
    }

    /// A step that ends with the array as it is here.
    fn describe(&self, action: StepAction) -> PlannedStep {
        let geometry = self.array.geometry();
        let like = freshest(self.array.members()).ok();
        let layout = like.and_then(Superblock::layout).filter(|layout| *layout != Layout::None);
        let chunk = match geometry {
            Geometry::Mirror(_) | Geometry::Linear(_) => Sectors::ZERO,
            _ => like.map_or(Sectors::ZERO, Superblock::chunk),
        };
        let level = geometry.level();
        let is_whole = level.has_redundancy() && !self.array.is_degraded();
        PlannedStep {
            action,
            level: level.to_string(),
            layout: layout.map(|layout| layout.name().into()),
            chunk_bytes: chunk.bytes(),
            raid_devices: geometry.raid_disks(),
            component_bytes: if level == Level::Raid0 { 0 } else { geometry.component().bytes() },
            array_bytes: geometry.array_sectors().bytes(),
            bitmap: None,
            data_move: None,
            resync_after_cut: is_whole && !self.has_bitmap,
            without_redundancy: !self.array.survives_a_failure(),
            counted_bytes: 0,
            members: Vec::new(),
        }
    }
}
