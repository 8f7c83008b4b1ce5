//! Where the platters are: angles, and the time that they take to come round.
//!
//! Invariants: an angle is a fraction of a turn in 2^-64, so it wraps as the platters do; the angle at
//! a moment follows from the spindle and the clock alone, since they never stop.

use crate::Nanos;
use crate::dice::Dice;

/// How far a spindle's speed is off at most: that of a quartz, which it follows. Data sheets allow ten times as much.
const OFF: f64 = 1e-4;

/// A fraction of a turn, in units of 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Angle(pub u64);

impl Angle {
    /// `part` of `whole` equal parts of a turn.
    #[must_use]
    pub fn of(part: f64, whole: f64) -> Self {
        let turns = (part / whole).rem_euclid(1.0);
        // The cast saturates: a fraction that rounds to a whole turn falls short of it by 2^-64.
        Self((turns * 18_446_744_073_709_551_616.0) as u64)
    }

    /// This angle plus `times` another.
    #[must_use]
    pub fn plus(self, other: Self, times: u64) -> Self {
        Self(self.0.wrapping_add(other.0.wrapping_mul(times)))
    }

    /// From here on to `other`, in the direction of the rotation.
    #[must_use]
    pub fn to(self, other: Self) -> Self {
        Self(other.0.wrapping_sub(self.0))
    }
}

/// A spindle that turns at one speed.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// A turn, in picoseconds: whole nanoseconds would be off by a sector in a second.
    period_ps: u64,
    /// The angle under the heads when time begins.
    start: Angle,
}

impl Rotation {
    /// Angles closer than this many nanoseconds of rotation are one place. Times are rounded to
    /// nanoseconds, and a sector that is missed by one must not cost a turn.
    const SAME_PLACE_NS: u64 = 100;

    /// At `rpm` turns in a minute.
    #[must_use]
    pub fn new(rpm: f64) -> Self {
        Self { period_ps: (60e12 / rpm).round() as u64, start: Angle(0) }
    }

    /// Another spindle of this kind: the platters are somewhere else, and their speed is a little off.
    #[must_use]
    pub fn another(self, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let start = Angle(dice.next());
        let off = OFF * (2.0 * dice.next() as f64 / u64::MAX as f64 - 1.0);
        Self { period_ps: (self.period_ps as f64 * (1.0 + off)).round() as u64, start }
    }

    /// A whole turn.
    #[must_use]
    pub fn period(self) -> Nanos {
        Nanos(self.period_ps.div_ceil(1000))
    }

    /// The angle under the heads.
    #[must_use]
    pub fn angle_at(self, now: Nanos) -> Angle {
        // Long division of 64 bits takes a fraction of the time, and will do for half a year.
        let ps = match now.0.checked_mul(1000) {
            Some(ps) => ps % self.period_ps,
            None => ((u128::from(now.0) * 1000) % u128::from(self.period_ps)) as u64,
        };
        self.start.plus(Angle(((u128::from(ps) << 64) / u128::from(self.period_ps)) as u64), 1)
    }

    /// How long the platters take for an angle.
    #[must_use]
    pub fn time_of(self, angle: Angle) -> Nanos {
        Nanos((self.ps_of(angle) + 500) / 1000)
    }

    /// How long the platters take for an angle, in picoseconds.
    #[must_use]
    pub fn ps_of(self, angle: Angle) -> u64 {
        ((u128::from(angle.0) * u128::from(self.period_ps)) >> 64) as u64
    }

    /// How long from `now` until `angle` is under the heads.
    #[must_use]
    pub fn wait(self, now: Nanos, angle: Angle) -> Nanos {
        self.wait_from(self.angle_at(now), angle)
    }

    /// How long from when one angle is under the heads until another one is.
    #[must_use]
    pub fn wait_from(self, under: Angle, angle: Angle) -> Nanos {
        let wait = self.time_of(under.to(angle));
        if wait.0 + Self::SAME_PLACE_NS >= self.period_ps / 1000 { Nanos::ZERO } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_angle_comes_round_once_a_turn() {
        let rotation = Rotation::new(7200.0);
        assert_eq!(rotation.period(), Nanos(8_333_334));
        let quarter = Angle::of(1.0, 4.0);
        assert_eq!(rotation.wait(Nanos::ZERO, quarter), Nanos(2_083_333));
        assert_eq!(
            rotation.wait(Nanos(2_083_334), quarter),
            Nanos::ZERO,
            "just missed, by rounding"
        );
        let later = rotation.wait(Nanos(2_090_000), quarter);
        assert_eq!(later, Nanos(8_326_667), "missed by 6.7 us");
    }

    #[test]
    fn angles_are_the_same_by_short_and_by_long_division() {
        let rotation = Rotation::new(7200.0);
        let thousands = 4_000_000;
        // A thousand turns of 8,333,333,333 ps are whole nanoseconds; so many are beyond 64 bits of picoseconds.
        let late = Nanos(8_333_333_333 * thousands);
        assert!(late.0.checked_mul(1000).is_none());
        for after in [0, 1, 999, 4_000_000, 8_333_333] {
            assert_eq!(rotation.angle_at(late + Nanos(after)), rotation.angle_at(Nanos(after)));
        }
    }

    #[test]
    fn spindles_of_a_kind_are_apart_and_drift() {
        let kind = Rotation::new(7200.0);
        let starts = (0..100).map(|seed| kind.another(seed).angle_at(Nanos::ZERO).0);
        assert_eq!(starts.collect::<BTreeSet<_>>().len(), 100);
        let periods: BTreeSet<u64> = (0..100).map(|seed| kind.another(seed).period_ps).collect();
        let (least, most) = (8_333_333_333 - 833_334, 8_333_333_333 + 833_334);
        assert!(periods.len() == 100 && periods.range(least..=most).count() == 100, "{periods:?}");
        let now = Nanos(1_000_000_007);
        assert_eq!(kind.another(1).angle_at(now), kind.another(1).angle_at(now));
    }

    #[test]
    fn a_long_run_does_not_drift() {
        let rotation = Rotation::new(10_000.0);
        assert_eq!(rotation.angle_at(Nanos(6_000_000 * 1_000_000_007)), Angle(0));
    }
}
