//! A layout worked out from what data sheets and `hdparm` tell: capacity, heads, rates at the edges.
//!
//! Sectors per track fall in equal steps from the outer rate to the inner; cylinders follow from the
//! capacity. Skews are what a head switch and a seek to the next cylinder need, as disks are formatted.

use super::{ProfileError, range};
use crate::layout::sparing::Sparing;
use crate::layout::{CYLINDERS_MAX, LayoutTable, Order, ZoneTable};
use crate::seek::{SeekCurve, SeekTable};
use serde::{Deserialize, Serialize};

/// What a layout is worked out from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatesTable {
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Surfaces with data.
    pub heads: u32,
    /// Zones.
    pub zones: u32,
    /// What a reader of the outermost zone gets, in MB/s.
    pub outer_mb_s: f64,
    /// What a reader of the innermost zone gets, in MB/s.
    pub inner_mb_s: f64,
}

/// What [`CYLINDERS_MAX`] comes to for a capacity.
const ON_CYLINDERS: &str = "on 8,388,608 cylinders at most, at these rates and with so many heads";

impl RatesTable {
    pub(super) fn single_cylinder_ms(&self, seek: &SeekTable) -> Result<f64, ProfileError> {
        Ok(SeekCurve::new(seek, u32::MAX)?.time(1).as_ms())
    }

    pub(super) fn zones(
        &self,
        rpm: f64,
        switch_ms: f64,
        single_ms: f64,
    ) -> Result<LayoutTable, ProfileError> {
        let turn_ms = 60_000.0 / rpm;
        let skews = Skews { turn_ms, switch_ms, single_ms, heads: f64::from(self.heads) };
        let sectors: Vec<u32> =
            (0..self.zones).map(|zone| skews.sectors_per_track(self.rate(zone))).collect();
        let heads = u64::from(self.heads);
        let per_cylinder: u64 = sectors.iter().map(|&sectors| u64::from(sectors) * heads).sum();
        let cylinders = self.blocks.div_ceil(per_cylinder);
        let all = cylinders.saturating_mul(self.zones.into());
        range("layout.blocks", self.blocks as f64, all <= CYLINDERS_MAX, ON_CYLINDERS)?;
        let cylinders = cylinders as u32;
        let zones = sectors.iter().enumerate().map(|(index, &sectors)| {
            let (track_skew, cylinder_skew) = skews.of(f64::from(sectors));
            let first_cylinder = index as u32 * cylinders;
            ZoneTable {
                first_cylinder,
                last_cylinder: first_cylinder + cylinders - 1,
                sectors_per_track: sectors,
                offset: 0.0,
                track_skew,
                cylinder_skew,
                reserved: 0,
                spares: 0,
                slips: Vec::new(),
                remaps: Vec::new(),
            }
        });
        let mut zones: Vec<_> = zones.collect();
        self.trim(&mut zones, per_cylinder * u64::from(cylinders));
        Ok(LayoutTable {
            heads: self.heads,
            order: Order::Normal,
            sparing: Sparing::PerZone,
            zones,
        })
    }

    /// Leaves what is too much of the last zone unused.
    fn trim(&self, zones: &mut [ZoneTable], blocks: u64) {
        if let Some(last) = zones.last_mut() {
            last.spares = blocks - self.blocks;
        }
    }

    fn rate(&self, zone: u32) -> f64 {
        let steps = f64::from(self.zones.max(2) - 1);
        self.outer_mb_s + (self.inner_mb_s - self.outer_mb_s) * f64::from(zone) / steps
    }
}

struct Skews {
    turn_ms: f64,
    switch_ms: f64,
    single_ms: f64,
    heads: f64,
}

impl Skews {
    /// Sectors of a track that a reader gets at a rate: a cylinder takes its turns, its head switches and
    /// one seek.
    fn sectors_per_track(&self, mb_s: f64) -> u32 {
        let lost = self.switch_ms * (self.heads - 1.0) + self.single_ms.max(self.switch_ms);
        let turns = self.turn_ms + lost / self.heads;
        ((mb_s * 1e3 * turns / 512.0).round() as u32).max(1)
    }

    /// The skews of tracks with so many sectors: the switch and a sector to be safe.
    fn of(&self, sectors: f64) -> (f64, f64) {
        let skew = |ms: f64| (ms / self.turn_ms * sectors).ceil() + 1.0;
        (skew(self.switch_ms), skew(self.single_ms.max(self.switch_ms)))
    }
}
