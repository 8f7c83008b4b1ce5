//! The operator has the array use more of each member at moments of the dice's choice.

use super::{Event, Phase, Session, new_bitmap};
use lapstrake_engine::{NewBitmap, NewShape};
use lapstrake_geometry::{Config, Geometry, Layout, Sectors};
use lapstrake_metadata::{Superblock, bitmap};

impl Session<'_> {
    pub(super) fn plan_growth(&mut self) {
        if self.plan.grows_from.is_none() {
            return;
        }
        for _ in 0..self.dice.between(1..=3) {
            let within = self.dice.pick(&[1_000_000, 100_000_000, 2_000_000_000]);
            let delay = self.dice.below(within);
            self.at(delay, Event::Grow);
        }
    }

    pub(super) fn grow(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        let Some(shape) = self.draw_shape() else { return };
        let (component, now) = (shape.geometry.component(), self.now);
        let is_begun = self.supervisor_mut().handle_shape(now, shape);
        self.say(|| format!("members are to be used to {component}: {is_begun}"));
        if !is_begun && self.dice.one_in(2) {
            // A recovery may be over by then.
            let delay = self.dice.below(50_000_000);
            self.at(delay, Event::Grow);
        }
    }

    fn draw_shape(&mut self) -> Option<NewShape> {
        let part = self.dice.between(1..=4);
        let members: Vec<Superblock> =
            self.supervisor().members().map(|(sb, _)| sb.clone()).collect();
        let least = self.plan.sizes.iter().copied().min().unwrap_or_default();
        let room = members.iter().map(|sb| sb.data_size().0).min()?.min(least);
        let old = self.geometry.component().0;
        let component = Sectors(old + room.saturating_sub(old) * part / 4);
        let geometry = Geometry::new(&Config {
            level: self.plan.level,
            layout: members[0].layout().unwrap_or(Layout::None),
            chunk: members[0].chunk(),
            raid_disks: self.plan.disks,
            component: component.round_down(Sectors(2)),
            member_sizes: Vec::new(),
        });
        let geometry = geometry.ok().filter(|geometry| geometry.component().0 > old)?;
        let bitmap = self.bitmap_of(&members, &geometry)?;
        Some(NewShape { geometry, bitmap, assume_clean: false })
    }

    /// None: the bitmap does not fit, or is in a file.
    fn bitmap_of(&self, members: &[Superblock], geometry: &Geometry) -> Option<Option<NewBitmap>> {
        let Some(old) = self.supervisor().bitmap() else { return Some(None) };
        let mut like = members[0].clone();
        like.set_component(geometry.component());
        let superblock = new_bitmap(&like, old.chunk().0, self.plan.write_behind);
        let size = Sectors(superblock.sync_size);
        let place = bitmap::added(members, size, Some(superblock.chunksize)).ok()?;
        let is_internal = self.supervisor().bitmap_offset().is_some();
        is_internal.then_some(Some(NewBitmap { superblock, offset: Some(place.offset) }))
    }

    /// Clients may use so much.
    pub(super) fn resized(&mut self, usable: Sectors) {
        self.geometry = self.supervisor().geometry().clone();
        self.oracle.grow(usable.0);
        self.plan_reshape();
    }
}
