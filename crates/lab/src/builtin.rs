//! What other tools do, done by the lab, so that figures compare with decades of posts and need no tool installed.
//!
//! - [`bonnie`]: bonnie++ 2.00a and 1.03, system call by system call.
//! - [`iozone`]: iozone 3, tests 0, 1 and 2, as one process or in throughput mode.
//! - [`hdparm`]: `hdparm -t` 9.65.
//!
//! They go through the page cache as the tools do: a size that fits in memory measures memory.

pub(crate) mod bonnie;
pub(crate) mod hdparm;
pub(crate) mod iozone;

use crate::record::{Figure, Phase, Unit};
use crate::run::{Costs, Reading};
use crate::workload::drive::{INTERRUPTED, Stop};
use crate::workload::recorder::{Kind, Recorder};
use std::fmt;
use std::io;
use std::time::Instant;

/// Reads all counts.
pub(crate) type Meter<'a> = dyn Fn() -> Reading + Sync + 'a;

/// What the parts of a definition have in common.
pub(crate) struct Bench<'a> {
    pub meter: &'a Meter<'a>,
    pub stop: &'a Stop,
}

/// Times the calls of one part, on one thread.
pub(crate) struct Clock<'a> {
    began: Instant,
    stop: &'a Stop,
    pub recorder: Recorder,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(began: Instant, stop: &'a Stop) -> Self {
        Self { began, stop, recorder: Recorder::new(0, None) }
    }

    /// Does something that moves `bytes`, and notes how long it took.
    pub(crate) fn time<T, E: fmt::Display>(
        &mut self,
        kind: Kind,
        bytes: u64,
        act: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, String> {
        if self.stop.is_set() {
            return Err(INTERRUPTED.into());
        }
        let due = self.began.elapsed().as_nanos() as u64;
        let done = act().map_err(|error| error.to_string())?;
        self.recorder.add(kind, bytes, due, self.began.elapsed().as_nanos() as u64);
        Ok(done)
    }
}

impl Bench<'_> {
    /// Runs a part on this thread; its figure is `amount` over the time that it took.
    pub(crate) fn part(
        &self,
        name: &str,
        unit: Unit,
        amount: f64,
        act: impl FnOnce(&mut Clock<'_>) -> Result<(), String>,
    ) -> Result<Phase, String> {
        let before = (self.meter)();
        let mut clock = Clock::new(Instant::now(), self.stop);
        act(&mut clock)
            .map_err(|why| if why == INTERRUPTED { why } else { format!("{name}: {why}") })?;
        let seconds = clock.began.elapsed().as_secs_f64();
        let costs = (self.meter)().since(&before);
        Ok(phase(name, unit, amount, seconds, clock.recorder, costs))
    }
}

/// A part as it is kept.
pub(crate) fn phase(
    name: &str,
    unit: Unit,
    amount: f64,
    seconds: f64,
    recorder: Recorder,
    costs: Costs,
) -> Phase {
    let value = if seconds > 0.0 { amount / seconds } else { 0.0 };
    costs.phase(name, Figure { value, unit }, seconds, recorder.finish())
}

/// An error with what was done when it came.
pub(crate) fn at(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}
