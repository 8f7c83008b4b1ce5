//! What benchmarks do to a system: bonnie++, iozone, `hdparm -t`.
//!
//! The same parts under the same names as the lab's own versions of them have.

mod bonnie;
mod hdparm;
mod iozone;

pub use bonnie::{Bonnie, bonnie, seeks_alone};
pub use hdparm::hdparm;
pub use iozone::{Iozone, iozone};

use super::System;
use crate::Nanos;

/// A part of a load and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// What was done: bytes, or seeks.
    pub amount: f64,
    /// In what time.
    pub time: Nanos,
    /// Processor time of the load's processes.
    pub spent: Nanos,
}

impl Part {
    /// Amount in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.amount * 1e9 / (self.time.0.max(1)) as f64
    }

    /// Processor time in per cent of the time.
    #[must_use]
    pub fn cpu_percent(&self) -> f64 {
        100.0 * self.spent.0 as f64 / (self.time.0.max(1)) as f64
    }
}

/// Times a part.
fn part(
    system: &mut System,
    name: &'static str,
    amount: f64,
    act: impl FnOnce(&mut System),
) -> Part {
    let (began, spent) = (system.now(), system.spent());
    act(system);
    Part { name, amount, time: system.now().since(began), spent: system.spent().since(spent) }
}
