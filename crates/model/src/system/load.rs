//! bonnie++, iozone, `hdparm -t` and PostgreSQL under pgbench on the model of an operating system, as [`crate::benchmark`] defines them.

mod bonnie;
mod hdparm;
mod iozone;
mod pgbench;

pub use bonnie::{bonnie, seeks_alone};
pub use hdparm::hdparm;
pub use iozone::iozone;
pub use pgbench::{Ran as PgbenchRan, SAMPLE, Waits, pgbench};

use super::System;
use crate::Nanos;
use crate::benchmark::Counted;

/// A phase of a load and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPhase {
    /// Its name.
    pub name: &'static str,
    /// What `amount` counts.
    pub counted: Counted,
    /// What was done: bytes, or requests.
    pub amount: f64,
    /// In what time.
    pub time: Nanos,
    /// Processor time of the load's processes.
    pub spent: Nanos,
}

impl LoadPhase {
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

/// Runs a phase and times it.
fn timed(
    system: &mut System,
    name: &'static str,
    counted: Counted,
    amount: f64,
    act: impl FnOnce(&mut System),
) -> LoadPhase {
    let (began, spent) = (system.now(), system.spent());
    act(system);
    let (time, spent) = (system.now().since(began), system.spent().since(spent));
    LoadPhase { name, counted, amount, time, spent }
}
