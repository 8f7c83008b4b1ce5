//! The operator has the array get another geometry at a moment of the dice's choice.

use super::{Event, Phase, Session};
use lapstrake_engine::{DiskState, MemberId, NewGeometry};
use lapstrake_geometry::{Config, Geometry};

impl Session<'_> {
    pub(super) fn plan_reshape(&mut self) {
        let Some(to) = self.plan.reshape else { return };
        let is_due = self.supervisor().geometry_before().is_none();
        if is_due && self.geometry.raid_disks() <= to.disks && !self.is_reshaped() {
            let within = self.dice.pick(&[1_000_000, 100_000_000, 2_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::Reshape);
        }
    }

    /// Whether the array has the geometry that it is to get.
    fn is_reshaped(&self) -> bool {
        self.new_geometry().is_some_and(|to| to.geometry == self.geometry)
    }

    pub(super) fn reshape(&mut self) {
        if self.phase != Phase::Load || self.supervisor().geometry_before().is_some() {
            return;
        }
        let Some(to) = self.new_geometry() else { return };
        let (now, shift) = (self.now, to.shift);
        let is_begun = self.supervisor_mut().handle_reshape(now, to);
        self.say(|| format!("a reshape is asked for: {is_begun}"));
        if is_begun {
            for area in &mut self.data_area {
                area.0 = area.0.saturating_add_signed(shift.min(0));
            }
        } else if self.dice.one_in(2) {
            let delay = self.dice.below(50_000_000);
            self.at(delay, Event::Reshape);
        }
    }

    /// Disks that are in sync, and may have been spares before a reshape.
    pub(super) fn placed(&self) -> Vec<usize> {
        let members = (0..).map(MemberId).zip(&self.disk_of);
        let is_placed =
            |(id, _): &(MemberId, &usize)| self.supervisor().state(*id).0 == DiskState::InSync;
        let placed = members.filter(|_| self.plan.reshape.is_some()).filter(is_placed);
        placed.map(|(_, disk)| *disk).collect()
    }

    fn new_geometry(&self) -> Option<NewGeometry> {
        let to = self.plan.reshape?;
        let mut superblock = self.supervisor().members().next()?.0.clone();
        let config = Config {
            level: to.level,
            layout: to.layout,
            chunk: to.chunk,
            raid_disks: to.disks,
            component: superblock.component(),
            member_sizes: Vec::new(),
        };
        superblock.set_geometry(&config);
        let (geometry, is_backwards) = (Geometry::new(&config).ok()?, to.is_backwards);
        let shift = if is_backwards { to.shift as i64 } else { -(to.shift as i64) };
        Some(NewGeometry { geometry, superblock, shift, is_backwards })
    }
}
