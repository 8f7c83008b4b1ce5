//! An array as it will be: with members that are yet to be added, and after steps that are yet to be taken. A step is planned
//! by it, be it the next one, which then begins, or one that only follows.

use super::{DataMove, NewGeometry, slot_of_parity};
use crate::{
    membership::Membership, shape_change::UsableSize, supervisor::DiskState,
    supervisor::Supervisor, types::MemberId,
};
use alloc::vec::Vec;
use lapstrake_geometry::{Geometry, Level, Sectors, Slot};
use lapstrake_metadata::Superblock;

/// See the module's head.
#[derive(Clone, Debug)]
pub struct PlannedArray {
    geometry: Geometry,
    members: Membership,
    usable: UsableSize,
}

impl Supervisor {
    /// The array as it is.
    #[must_use]
    pub fn planned(&self) -> PlannedArray {
        PlannedArray {
            geometry: self.geometry.clone(),
            members: self.members.clone(),
            usable: self.usable.clone(),
        }
    }
}

impl PlannedArray {
    /// Its geometry.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Superblocks and states of members, by [`MemberId`].
    pub fn members(&self) -> impl Iterator<Item = (&Superblock, DiskState)> {
        self.members.iter().map(|member| (member.superblock(), member.state()))
    }

    /// The slot of a member.
    #[must_use]
    pub fn slot(&self, id: MemberId) -> Option<Slot> {
        self.members.get(id).slot()
    }

    /// The member in sync of a slot.
    #[must_use]
    pub fn serving(&self, slot: Slot) -> Option<MemberId> {
        self.members.serving(Some(slot))
    }

    /// How much of it clients may use.
    #[must_use]
    pub fn usable(&self) -> Sectors {
        self.usable.now()
    }

    /// Whether a slot lacks a member in sync.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.members.is_degraded()
    }

    /// Whether no data is lost if any one member fails.
    #[must_use]
    pub fn survives_a_failure(&self) -> bool {
        let is_served = |slot| self.serving(slot).is_some();
        let mut served = (0..self.geometry.raid_disks()).map(Slot).filter(|&slot| is_served(slot));
        served.all(|failed| self.geometry.survives(|slot| slot != failed && is_served(slot)))
    }

    /// Whether data may be moved on the way to a level: a member may be missing only if the goal has no redundancy, and no data
    /// is missing with it.
    #[must_use]
    pub fn may_move_to(&self, level: Level) -> bool {
        !self.is_degraded() || !level.has_redundancy() && !self.lacks_data()
    }

    /// As [`Supervisor::lacks_data`].
    #[must_use]
    pub fn lacks_data(&self) -> bool {
        lacks_data(&self.geometry, &self.members)
    }

    /// One more spare.
    pub fn add_spare(&mut self, superblock: Superblock) {
        self.members.add_spare(superblock);
    }

    /// The reshape has ended.
    ///
    /// # Panics
    /// If there are too few spares.
    pub fn take(&mut self, to: &NewGeometry) {
        match to.data_move {
            DataMove::Stays => self.members.take_over(to),
            DataMove::Moves { .. } => {
                self.members.level();
                self.members.begin_reshape(to);
                self.members.end_reshape();
            }
        }
        self.geometry = to.geometry.clone();
        self.usable.on_record(self.geometry.array_sectors());
    }

    /// It has another shape, with all data where it was.
    pub fn take_shape(&mut self, geometry: &Geometry) {
        self.members.set_shape(geometry);
        self.geometry = geometry.clone();
        self.usable.on_record(geometry.array_sectors());
    }

    /// Spares have got the slots that nobody is in, and all that belongs there: who, and which. As with
    /// [`Supervisor::leave_parity`].
    pub fn recover(&mut self, leaves_parity: bool) -> Vec<(MemberId, Slot)> {
        let mut recovered = Vec::new();
        while let Some((spare, slot)) = self.members.next_to_fill(&self.geometry, leaves_parity) {
            self.members.give_slot(spare, slot);
            self.members.recovered(spare);
            recovered.push((spare, slot));
        }
        recovered
    }
}

/// Whether a slot of data, or of parity that takes turns with data, lacks a member in sync.
pub(super) fn lacks_data(geometry: &Geometry, members: &Membership) -> bool {
    let idle = slot_of_parity(geometry);
    let mut slots = (0..geometry.raid_disks()).map(Slot).filter(|&slot| Some(slot) != idle);
    slots.any(|slot| members.serving(Some(slot)).is_none())
}
