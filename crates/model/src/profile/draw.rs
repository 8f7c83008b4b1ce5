//! Profiles as they might really be: each figure drawn around its value, as far off as its confidence
//! lets it be. Repeated draws give a prediction's error bars.
//!
//! Invariants: the same seed draws the same profile; figures of one field move together; what is
//! certain (capacity, a speed that a motor is regulated to) stays.

use super::{Figure, HardDiskProfile, Kind, LayoutForm, Profile, SolidDiskProfile};
use crate::dice::Dice;
use crate::seek::SeekTable;

impl Profile {
    /// The profile with its figures drawn.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        // A figure near the end of its range may be drawn out of it; one that always is stays.
        let mut draws = (0..16).map(|_| self.draw(&mut dice));
        draws.find(|drawn| drawn.build().is_ok()).unwrap_or_else(|| self.clone())
    }

    fn draw(&self, dice: &mut Dice) -> Self {
        let mut drawn = self.clone();
        match &mut drawn.kind {
            Kind::HardDisk(disk) => hard(disk, dice),
            Kind::SolidDisk(disk) => solid(disk, dice),
        }
        let mut reliability = drawn.reliability();
        let figures = [&mut reliability.afr, &mut reliability.unreadable, &mut reliability.latent];
        for figure in figures {
            dice.scale(figure);
        }
        reliability.afr.value = reliability.afr.value.min(99.0);
        drawn.reliability = Some(reliability);
        drawn
    }
}

impl Dice {
    /// What a field's figures are multiplied by.
    fn factor<T>(&mut self, figure: &Figure<T>) -> f64 {
        (self.normal() * figure.confidence.relative_deviation()).exp()
    }

    pub(crate) fn scale(&mut self, figure: &mut Figure<f64>) {
        let Some((low, high)) = figure.interval else {
            figure.value *= self.factor(figure);
            return;
        };
        // Measured bounds tell more than a word does; they are two deviations off on either side.
        let deviation = (high - low) / 4.0 / figure.value.abs().max(f64::MIN_POSITIVE);
        figure.value *= (self.normal() * deviation.clamp(0.01, 0.5)).exp();
        // Bounds of what is drawn are not known.
        figure.interval = None;
    }
}

fn hard(disk: &mut HardDiskProfile, dice: &mut Dice) {
    for figure in [&mut disk.head_switch, &mut disk.write_settle, &mut disk.interface] {
        dice.scale(figure);
    }
    let factor = dice.factor(&disk.overheads);
    let costs = &mut disk.overheads.value;
    let pairs =
        [&mut costs.read_hit, &mut costs.read_miss, &mut costs.write_hit, &mut costs.write_miss];
    for pair in pairs {
        pair.after_read *= factor;
        pair.after_write *= factor;
    }
    let factor = dice.factor(&disk.buffer);
    let buffer = &mut disk.buffer.value;
    for blocks in [&mut buffer.segment_blocks, &mut buffer.write_blocks] {
        *blocks = ((*blocks as f64 * factor).round() as u64).max(8);
    }
    let factor = dice.factor(&disk.seek);
    seek(&mut disk.seek.value, factor);
    let factor = dice.factor(&disk.layout);
    if let LayoutForm::Rates(rates) = &mut disk.layout.value {
        rates.outer_mb_s *= factor;
        rates.inner_mb_s *= factor;
    }
}

fn seek(table: &mut SeekTable, factor: f64) {
    match table {
        SeekTable::Constant { ms } => *ms *= factor,
        SeekTable::Points { points } => points.iter_mut().for_each(|point| point.1 *= factor),
        SeekTable::ThreePoint { single_ms, average_ms, full_ms }
        | SeekTable::Linear { single_ms, average_ms, full_ms } => {
            for ms in [single_ms, average_ms, full_ms] {
                *ms *= factor;
            }
        }
        SeekTable::RootLine { root_ms, root_factor, line_ms, line_factor, first_ms, .. } => {
            for ms in [root_ms, root_factor, line_ms, line_factor] {
                *ms *= factor;
            }
            first_ms.iter_mut().for_each(|ms| *ms *= factor);
        }
    }
}

fn solid(disk: &mut SolidDiskProfile, dice: &mut Dice) {
    let figures = [
        &mut disk.read,
        &mut disk.read_command,
        &mut disk.write_command,
        &mut disk.write_accept,
        &mut disk.flush,
        &mut disk.program_wait,
        &mut disk.read_rate,
        &mut disk.fast_rate,
        &mut disk.slow_rate,
        &mut disk.fast_cells,
        &mut disk.buffer,
    ];
    for figure in figures {
        dice.scale(figure);
    }
    // Nothing writes less to flash than it was given.
    dice.scale(&mut disk.amplification);
    disk.amplification.value = disk.amplification.value.max(1.0);
}

#[cfg(test)]
mod tests {
    use crate::profile::{Confidence, Kind, Profile, SolidDiskProfile, builtin};
    use crate::seek::SeekTable;

    fn average_seek(profile: &Profile) -> f64 {
        let Kind::HardDisk(disk) = &profile.kind else { panic!() };
        let SeekTable::ThreePoint { average_ms, .. } = disk.seek.value else { panic!() };
        average_ms
    }

    /// Standard deviation of the drawn mean seek, relative to the profile's.
    fn spread(confidence: Confidence) -> f64 {
        let mut profile = builtin::get("hitachi-80").unwrap().unwrap();
        let Kind::HardDisk(disk) = &mut profile.kind else { panic!() };
        disk.seek.confidence = confidence;
        let is = average_seek(&profile);
        let off = |seed| (average_seek(&profile.drawn(seed)) / is - 1.0).powi(2);
        ((0..500).map(off).sum::<f64>() / 500.0).sqrt()
    }

    #[test]
    fn figures_are_drawn_as_far_off_as_their_confidence_lets_them_be() {
        let spreads =
            [Confidence::Measured, Confidence::DataSheet, Confidence::Sibling, Confidence::Guess]
                .map(spread);
        for (spread, is) in spreads.into_iter().zip([0.01, 0.05, 0.1, 0.32]) {
            assert!((spread / is - 1.0).abs() < 0.15, "{spreads:?}");
        }
    }

    #[test]
    fn every_drawn_profile_is_a_disk_and_a_seed_draws_the_same_one() {
        for name in builtin::names() {
            let profile = builtin::get(name).unwrap().unwrap();
            for seed in 0..50 {
                let drawn = profile.drawn(seed);
                assert_eq!(drawn, profile.drawn(seed));
                assert_ne!(drawn, profile);
                let model = drawn.build().unwrap_or_else(|error| panic!("{name} {seed}: {error}"));
                assert_eq!(model.blocks(), profile.build().unwrap().blocks(), "{name}");
            }
        }
    }

    #[test]
    fn capacity_is_certain() {
        let profile = builtin::get("ssd-nvme-1tb").unwrap().unwrap();
        let capacity = |profile: &Profile| -> u64 {
            let Kind::SolidDisk(disk) = &profile.kind else { panic!() };
            let disk: &SolidDiskProfile = disk;
            disk.capacity.value
        };
        assert_eq!(capacity(&profile.drawn(1)), capacity(&profile));
    }
}
