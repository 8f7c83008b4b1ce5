//! The operator has the array get another geometry at a moment of the dice's choice.

use super::{Event, Phase, Session};
use lapstrake_engine::{DataMove, DiskState, MemberId, NewGeometry, Step};
use lapstrake_geometry::{Config, Geometry, Sectors};

impl Session<'_> {
    pub(super) fn plan_reshape(&mut self) {
        if self.plan.lacks_parity {
            self.supervisor_mut().leave_parity(true);
        }
        let is_due = self.plan.reshape.is_some() && self.supervisor().geometry_before().is_none();
        if is_due && !self.is_reshaped() {
            self.make_smaller();
            let within = self.dice.pick(&[1_000_000, 100_000_000, 2_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::Reshape);
        }
    }

    /// Takes from clients what the array is not to have any more.
    fn make_smaller(&mut self) {
        let (left, now) = (Sectors(self.plan.clients_end()), self.now);
        if left < self.supervisor().usable() {
            assert!(self.supervisor_mut().handle_usable(now, Some(left)), "nothing else begins");
        }
    }

    /// Whether the array has the geometry that it is to get.
    fn is_reshaped(&self) -> bool {
        let to = self.plan.reshape.map(|to| to.config(self.plan.component_reshaped()));
        to.and_then(|to| Geometry::new(&to).ok()).is_some_and(|to| to == self.geometry)
    }

    pub(super) fn reshape(&mut self) {
        let is_under_way = self.supervisor().geometry_before().is_some();
        if self.phase != Phase::Load || is_under_way || self.is_reshaped() {
            return;
        }
        let goal = self.plan.reshape.map(|to| to.level);
        if goal.is_some_and(|level| !self.supervisor().planned().may_move_to(level)) {
            let delay = self.dice.below(50_000_000);
            return self.at(delay, Event::Reshape);
        }
        let Some(to) = self.new_geometry() else { return };
        self.placed.extend(self.in_sync());
        let now = self.now;
        let shift = match to.data_move {
            DataMove::Moves { shift, .. } => shift,
            DataMove::Stays => 0,
        };
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
    pub(super) fn in_sync(&self) -> Vec<usize> {
        let members = (0..).map(MemberId).zip(&self.disk_of);
        let is_in_sync =
            |(id, _): &(MemberId, &usize)| self.supervisor().state(*id).0 == DiskState::InSync;
        let in_sync = members.filter(|_| self.plan.reshape.is_some()).filter(is_in_sync);
        in_sync.map(|(_, disk)| *disk).collect()
    }

    /// The next step on the way.
    fn new_geometry(&self) -> Option<NewGeometry> {
        let to = self.plan.reshape?;
        let mut superblock = self.supervisor().members().next()?.0.clone();
        let component = self.plan.component_reshaped();
        let Step { config, stays } =
            Step::first(self.supervisor().geometry(), &to.config(component));
        let before = Geometry::new(&Config {
            level: superblock.level()?,
            layout: superblock.layout()?,
            chunk: superblock.chunk(),
            raid_disks: superblock.raid_disks(),
            ..config.clone()
        });
        superblock.set_geometry(&config);
        if to.cuts {
            superblock.set_component(component);
        }
        let shift = if to.is_backwards { to.shift as i64 } else { -(to.shift as i64) };
        let moves = DataMove::Moves { shift, is_backwards: to.is_backwards };
        let data_move = if stays { DataMove::Stays } else { moves };
        Some(NewGeometry {
            geometry: Geometry::new(&config).ok()?,
            before: before.ok()?,
            superblock,
            data_move,
        })
    }
}
