//! Lives are drawn until the estimate is narrow enough.

use super::System;
use super::life::{Bias, Life};
use crate::dice::Dice;

/// A probability and between what bounds it lies with 95 %, as far as drawing goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean of the lives that were drawn.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// How likely losses are within the years asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// More disks are missing than the redundancy makes up for: all is lost, or most.
    pub array: Estimate,
    /// That, or a sector that cannot be read while there is no redundancy for it.
    pub data: Estimate,
    /// Lives that were drawn.
    pub lives: usize,
}

/// How long to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Until the 95 % interval of the array's loss reaches no further than this share of it.
    pub precision: f64,
    /// At most so many lives.
    pub lives_max: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self { precision: 0.1, lives_max: 200_000 }
    }
}

/// Lives between two looks at how narrow the interval is.
const BATCH: usize = 500;

/// How likely it is that a system loses data within so many hours.
#[must_use]
pub fn loss(system: &System, hours: f64, seed: u64, effort: Effort) -> Loss {
    let bias = Bias::new(system, hours);
    let mut dice = Dice::new(seed);
    let (mut array, mut data) = (Sum::default(), Sum::default());
    loop {
        for _ in 0..BATCH {
            let lost = Life::new(system, hours).run(&bias, &mut dice);
            array.add(lost.array);
            data.add(lost.data);
        }
        let is_narrow = array.relative() <= effort.precision && data.relative() <= effort.precision;
        if is_narrow || array.count >= effort.lives_max {
            let lives = array.count;
            return Loss { array: array.estimate(), data: data.estimate(), lives };
        }
    }
}

#[derive(Default)]
struct Sum {
    count: usize,
    total: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.total += value;
        self.squares += value * value;
    }

    fn mean(&self) -> f64 {
        self.total / self.count as f64
    }

    /// Half of the 95 % interval, relative to the mean; none of it for what never happens.
    fn relative(&self) -> f64 {
        let mean = self.mean();
        if mean == 0.0 {
            return 0.0;
        }
        let variance = (self.squares / self.count as f64 - mean * mean).max(0.0);
        1.96 * (variance / self.count as f64).sqrt() / mean
    }

    /// Bounds are equally far in ratio: a probability is never below 0.
    fn estimate(&self) -> Estimate {
        let (value, factor) = (self.mean().min(1.0), self.relative().exp());
        Estimate { value, low: value / factor, high: (value * factor).min(1.0) }
    }
}
