//! Joins generators and ports, each pair on a thread of its own, all from the same moment.

use super::buffers::Buffers;
use super::generator::{End, Generator, Request, Step};
use super::port::Port;
use super::recorder::{Recorded, Recorder};
use crate::plan::{Io, Workload};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long nothing may end before a run looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// Set when everything is to end soon.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// A switch that is off.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Asks for the end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Said by a run that was ended early.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// When a workload's run ends.
pub(crate) fn end(workload: &Workload, io: &Io) -> End {
    match io.amount {
        Some(amount) => {
            let each = amount.div_ceil(u64::from(io.threads));
            End::Amount { bytes: each.next_multiple_of(io.block) }
        }
        None => {
            let from_ns = workload.warm_up.as_nanos() as u64;
            End::Time { from_ns, until_ns: from_ns + workload.time.as_nanos() as u64 }
        }
    }
}

/// The generators of a run's threads.
pub(crate) fn generators(io: &Io, range: &Range<u64>, end: End, seed: u64) -> Vec<Generator> {
    (0..io.threads).map(|index| Generator::new(io, range, end, index, seed)).collect()
}

/// Random bytes, drawn from a seed.
pub(crate) fn fill(memory: &mut [u8], seed: u64) {
    Xoshiro256PlusPlus::seed_from_u64(seed).fill(memory);
}

/// Runs all generators to their end; what they did together.
///
/// # Errors
/// What the first of them that failed says.
pub(crate) fn run(
    generators: Vec<Generator>,
    port: impl Fn() -> Result<Box<dyn Port>, String>,
    stop: &Stop,
) -> Result<Outcome, String> {
    let mut threads = Vec::new();
    for (index, generator) in generators.into_iter().enumerate() {
        let buffers = Buffers::new(generator.depth(), generator.block() as usize, |memory| {
            fill(memory, index as u64);
        });
        threads.push((generator, buffers, port()?));
    }
    let failed = Stop::new();
    let began = Instant::now();
    let one = |(generator, buffers, port): (Generator, Buffers, Box<dyn Port>)| {
        let done =
            Driver { generator, buffers, port, began }.run(|| stop.is_set() || failed.is_set());
        if done.is_err() {
            failed.set();
        }
        done
    };
    let results: Vec<Result<Generator, String>> = std::thread::scope(|scope| {
        let running: Vec<_> =
            threads.into_iter().map(|thread| scope.spawn(move || one(thread))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a load's thread does not panic"))
            .collect()
    });
    let errors: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    // Those that were stopped because another failed have less to tell.
    if let Some(error) = errors.iter().find(|error| ***error != INTERRUPTED).or(errors.first()) {
        return Err((*error).clone());
    }
    Ok(Outcome::of(&results.into_iter().flatten().collect::<Vec<_>>()))
}

/// What a run did.
pub(crate) struct Outcome {
    pub recorded: Recorded,
    /// What that was made of.
    pub recorder: Recorder,
    /// Reads that were held against what was written.
    pub checked: u64,
}

impl Outcome {
    /// Of generators that are done.
    pub(crate) fn of(generators: &[Generator]) -> Self {
        let mut all: Option<Recorder> = None;
        for generator in generators {
            match &mut all {
                None => all = Some(generator.recorder().clone()),
                Some(all) => all.merge(generator.recorder()),
            }
        }
        let recorder = all.unwrap_or_else(|| Recorder::new(0, None));
        let recorded = recorder.clone().finish();
        Self { recorded, recorder, checked: generators.iter().map(Generator::checked).sum() }
    }
}

struct Driver {
    // Before the buffers, which it may still write to until it is dropped.
    port: Box<dyn Port>,
    generator: Generator,
    buffers: Buffers,
    began: Instant,
}

impl Driver {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn run(mut self, stopped: impl Fn() -> bool) -> Result<Generator, String> {
        let mut ended = Vec::new();
        loop {
            let patience = match self.begin()? {
                Step::Done => return Ok(self.generator),
                Step::WaitUntil(until) => {
                    Duration::from_nanos(until.saturating_sub(self.now())).min(LOOK)
                }
                _ => LOOK,
            };
            if stopped() {
                return Err(INTERRUPTED.into());
            }
            self.port.wait(&mut ended, Some(patience)).map_err(|error| error.to_string())?;
            let now = self.now();
            for (slot, result) in ended.drain(..) {
                let result = result.map_err(|error| error.to_string());
                // SAFETY: the slot's request has ended.
                let memory = unsafe { self.buffers.slot(slot) };
                self.generator.complete(slot, result, memory, now)?;
            }
        }
    }

    /// Begins what can be begun; what to wait for then.
    fn begin(&mut self) -> Result<Step, String> {
        loop {
            let step = self.generator.next(self.now());
            let Step::Do(request) = step else { return Ok(step) };
            self.submit(&request).map_err(|error| error.to_string())?;
        }
    }

    fn submit(&mut self, request: &Request) -> std::io::Result<()> {
        // SAFETY: the slot was free until now.
        self.generator.fill(request, unsafe { self.buffers.slot(request.slot) });
        // SAFETY: the memory lives longer than the port, and is left alone until the slot is free again.
        unsafe { self.port.submit(request, self.buffers.start(request.slot)) }
    }
}
