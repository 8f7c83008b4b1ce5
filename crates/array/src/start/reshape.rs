//! An array whose geometry is being changed, as two: the one that it was and the one that it will be, of the same members.

use super::{After, CarriedOut, StartMember, StartPlan, SupervisorTerms};
use alloc::vec::Vec;
use lapstrake_engine::{ReshapeInProgress, SupervisorConfig};
use lapstrake_geometry::{Geometry, Sector, Slot};
use lapstrake_metadata::{Reshape, Role, Superblock};
use thiserror::Error;

/// Superblocks of an array in the midst of a reshape, as those of two arrays, by device.
#[derive(Clone, Debug)]
pub struct Halves {
    /// The array that was.
    pub before: Vec<Option<Superblock>>,
    /// The array that will be.
    pub after: Vec<Option<Superblock>>,
    /// The array's sector at which the two geometries meet.
    pub position: Sector,
    /// The new geometry holds from there on; else up to there.
    pub is_backwards: bool,
}

/// Why an array cannot be served while its geometry is being changed, only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoReshape {
    /// One of the geometries is none of RAID4, 5 or 6.
    #[error("only reshapes between RAID4, RAID5 and RAID6 can be carried on here")]
    Level,
    /// Slots go.
    #[error("a reshape to fewer members cannot be carried on here")]
    FewerMembers,
    /// The position is within a stripe.
    #[error("its position is not where stripes of both geometries end")]
    Position,
    /// What comes next would be written over what was not moved yet.
    #[error(
        "what it would write next lies over data that was not moved yet, so that it needs its backup (mdadm's \
         --backup-file)"
    )]
    Critical,
    /// A member recovers.
    #[error("a member's recovery has not ended")]
    Recovery,
    /// Linux may have moved more than it has recorded.
    #[error(
        "it changes no number of data members and moves data by another offset, of which Linux records seldom how far it has \
         come, and a wrong place destroys data; if Lapstrake has carried it on since it began, `--reshape-position {position}` \
         goes on from the place on record; else find the right one by reading (docs/rescue.md)"
    )]
    Unsure {
        /// The place on record, in bytes of the array.
        position: u64,
    },
    /// Bad blocks are on record.
    #[error("members have blocks on record as bad")]
    BadBlocks,
    /// Superblocks are to be changed by force.
    #[error("a start by force would change superblocks")]
    Force,
}

impl Halves {
    /// Those of superblocks of which the freshest tells of a reshape. Else none tells of one afterwards: it has ended, as
    /// the freshest knows.
    #[must_use]
    pub fn of(superblocks: &mut [Option<Superblock>]) -> Option<Self> {
        let all = superblocks.iter().flatten();
        let freshest = all.max_by_key(|superblock| superblock.events())?.clone();
        let Some(fresh) = freshest.reshape() else {
            for own in superblocks.iter_mut().flatten() {
                *own = own.reshape().map_or_else(|| own.clone(), |reshape| reshape.after);
            }
            return None;
        };
        let shift = shift(&fresh);
        let half = |own: &Superblock| match own.reshape() {
            Some(Reshape { before, after, .. }) => (before, after),
            None => {
                let mut after = own.clone();
                after.take_geometry(&fresh.after, shift);
                // Nothing is moved before every member knows of the beginning, which this one has just missed.
                if own.events().saturating_add(1) >= fresh.after.events() {
                    let number = own.dev_number();
                    after.set_role_of(number, fresh.after.role_of(number));
                }
                (own.clone(), after)
            }
        };
        let halves = superblocks.iter().map(|own| own.as_ref().map(half).unzip());
        let (mut before, after): (Vec<_>, Vec<_>) = halves.unzip();
        if !has_second_parity(&before) {
            for own in before.iter_mut().flatten() {
                *own = own.without_second_parity().unwrap_or_else(|| own.clone());
            }
        }
        let Reshape { position, is_backwards, .. } = fresh;
        Some(Self { before, after, position, is_backwards })
    }
}

/// Whether the last slot of the array before has all of its data: of a RAID5 that gets a second parity superblocks tell as
/// of a RAID6 that lacks it.
fn has_second_parity(before: &[Option<Superblock>]) -> bool {
    before.iter().flatten().any(|own| {
        let last = Slot(own.raid_disks().saturating_sub(1));
        own.role() == Role::Active(last) && own.recovery_offset().is_none()
    })
}

fn shift(reshape: &Reshape) -> i64 {
    reshape.after.data_offset().0.wrapping_sub(reshape.before.data_offset().0) as i64
}

impl<D: Clone> After<D> {
    /// The plan of the array that will be beside that of the one that was, of the same members in the same order. None:
    /// they are not the same.
    pub fn new(
        before: &StartPlan<D>,
        mut plan: StartPlan<D>,
        (position, is_backwards): (Sector, bool),
        is_same: impl Fn(&D, &D) -> bool,
    ) -> Option<Self> {
        let place = |member: &StartMember<D>| {
            before.members.iter().position(|it| is_same(&it.device, &member.device))
        };
        plan.members.sort_by_key(place);
        let places = plan.members.iter().map(place);
        let is_same = places.eq((0..before.members.len()).map(Some));
        is_same.then_some(Self { plan, position, is_backwards })
    }

    /// Makes it one that is served while data is moved. Bad-block logs are not kept until it is started anew. `is_sure`:
    /// the position is known to be right.
    ///
    /// # Errors
    /// [`NoReshape`].
    pub fn carry_on(&mut self, before: &mut StartPlan<D>, is_sure: bool) -> Result<(), NoReshape> {
        let (Geometry::Parity(old), Geometry::Parity(new)) =
            (&before.geometry, &self.plan.geometry)
        else {
            return Err(NoReshape::Level);
        };
        let offset = |plan: &StartPlan<D>| plan.members[0].superblock().data_offset();
        let is_moved = offset(before) != offset(&self.plan);
        if is_moved && old.data_disks() == new.data_disks() && !is_sure {
            return Err(NoReshape::Unsure { position: self.position.bytes() });
        }
        let unit = new.stripe_data().0 / new.chunk().0 * new.chunk().0.max(old.chunk().0);
        let is_whole = self.position.0.is_multiple_of(unit);
        let mut records = before.members.iter().chain(&self.plan.members).map(|m| &m.record);
        let recovers = |plan: &StartPlan<D>| {
            !plan.assembly.recovering.is_empty() || !plan.assembly.replacements.is_empty()
        };
        if new.raid_disks() < old.raid_disks() {
            return Err(NoReshape::FewerMembers);
        }
        if !is_whole || self.position.0 > new.array_sectors().0 {
            return Err(NoReshape::Position);
        }
        if recovers(before) || recovers(&self.plan) {
            return Err(NoReshape::Recovery);
        }
        if records.any(|record| record.bad_blocks.as_ref().is_some_and(|bad| !bad.is_empty())) {
            return Err(NoReshape::BadBlocks);
        }
        if !before.assembly.rewrite.is_empty() || !self.plan.assembly.rewrite.is_empty() {
            return Err(NoReshape::Force);
        }
        if !self.in_progress(before).may_go_on(&self.plan.geometry, &self.superblocks()) {
            return Err(NoReshape::Critical);
        }
        let members = before.members.iter_mut().chain(&mut self.plan.members);
        members.for_each(|member| member.record.bad_blocks = None);
        before.bitmap = None;
        self.plan.bitmap = None;
        Ok(())
    }

    fn superblocks(&self) -> Vec<&Superblock> {
        self.plan.members.iter().map(StartMember::superblock).collect()
    }

    fn in_progress(&self, before: &StartPlan<D>) -> ReshapeInProgress {
        ReshapeInProgress {
            before: before.geometry.clone(),
            superblocks: before.members.iter().map(|m| m.superblock().clone()).collect(),
            position: self.position,
            is_backwards: self.is_backwards,
        }
    }

    /// For the supervisor of an array that is served while data is moved.
    #[must_use]
    pub fn supervisor_config(
        &self,
        before: &StartPlan<D>,
        done: &CarriedOut,
        terms: &SupervisorTerms,
    ) -> SupervisorConfig {
        let reshape = Some(self.in_progress(before));
        SupervisorConfig { reshape, ..self.plan.supervisor_config(done, terms) }
    }
}
