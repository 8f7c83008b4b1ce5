//! Finds a disk's parameters from outside, by reading: what the clock tells of each read.
//!
//! The disk is a [`Target`]: a real one, or a model. Nothing is written. What reading cannot tell (the write
//! cache, how writes settle, heads) stays a guess in the profile that comes of it, and says so.
//!
//! How: a sector that was not in the buffer ends each time at the same angle, so the ends of reads of
//! one sector are whole turns apart. An access from one place to another takes overhead, seek and a
//! latency that is anything up to a turn; the shortest of many tells what there is besides. Short repeats
//! tell the buffer's answers, and which blocks are answered from it tells what was read ahead.

mod hard;
mod profile;
mod rotation;
mod solid;

pub use hard::HardFindings;
pub use solid::SolidFindings;

use crate::Nanos;
use crate::dice::Dice;

/// A disk that can be read and timed.
pub trait Target {
    /// What goes wrong.
    type Error;
    /// Blocks of 512 bytes.
    fn blocks(&self) -> u64;
    /// Reads once and gives when that began and ended. Places and lengths are whole 4 KiB.
    ///
    /// # Errors
    /// If the disk does not read.
    fn read(&mut self, lba: u64, blocks: u64) -> Result<(Nanos, Nanos), Self::Error>;
    /// Reads many places, `depth` at a time, and gives how long all of them took.
    ///
    /// # Errors
    /// If the disk does not read.
    fn read_many(&mut self, places: &[(u64, u64)], depth: usize) -> Result<Nanos, Self::Error>;
    /// Lets time pass.
    fn pause(&mut self, time: Nanos);
}

/// Why a disk could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError<E> {
    /// It does not read.
    #[error("{0}")]
    Target(E),
    /// It has too few blocks for its parts to differ.
    #[error(
        "{blocks} blocks of 512 bytes are too few to measure: {least} ({} MiB) are the least",
        .least / 2048
    )]
    TooSmall {
        /// What it has.
        blocks: u64,
        /// What it must have.
        least: u64,
    },
    /// It was broken off.
    #[error("broken off; no profile was made")]
    Aborted,
}

/// A measured value and between what bounds it lies, as far as the measurement can tell.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
}

impl Measured {
    fn about(value: f64, off: f64) -> Self {
        Self { value, low: value - off, high: value + off }
    }

    /// Of repeated passes, none of them 0: their median, and between what bounds another pass would come out with 95 %
    /// (Student's distribution of their logarithms, so that none is 0), all of these included. Not the bounds of their
    /// mean: what the passes differ by is mostly what else goes on, and that does not become less by repeating.
    fn of_passes(passes: &mut [f64]) -> Self {
        let value = median(passes);
        let count = passes.len() as f64;
        let mean = passes.iter().map(|pass| pass.ln()).sum::<f64>() / count;
        let squares: f64 = passes.iter().map(|pass| (pass.ln() - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        let factor = (STUDENT_95 * deviation * (1.0 + 1.0 / count).sqrt()).exp();
        let least = passes.first().copied().unwrap_or(value);
        let most = passes.last().copied().unwrap_or(value);
        Self { value, low: (value / factor).min(least), high: (value * factor).max(most) }
    }

    /// Half the width of its bounds over the value.
    pub(crate) fn spread(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value.abs().max(f64::MIN_POSITIVE)
    }
}

/// Repetitions of what is measured of a solid-state disk.
const PASSES: usize = 7;
/// Student's 97.5 % point for one less than so many.
const STUDENT_95: f64 = 2.447;

/// What was found.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Findings {
    /// It turns.
    HardDisk(HardFindings),
    /// It does not.
    SolidDisk(SolidFindings),
}

/// The least that is measured: below this, no part of a disk differs from another.
const BLOCKS_LEAST: u64 = 1 << 18;

/// Measures a disk. `seed` draws the places; `progress` hears of each step, how much of all is done,
/// and may break it off by answering false.
///
/// # Errors
/// If the disk does not read, is too small, or it was broken off.
pub fn measure<T: Target>(
    target: &mut T,
    seed: u64,
    progress: &mut dyn FnMut(&'static str, f64) -> bool,
) -> Result<Findings, MeasureError<T::Error>> {
    let blocks = target.blocks();
    if blocks < BLOCKS_LEAST {
        return Err(MeasureError::TooSmall { blocks, least: BLOCKS_LEAST });
    }
    let mut probe = Probe { target, dice: Dice::new(seed), progress, hit_ms: 0.0 };
    probe.step("answers of the buffer", 0.0)?;
    let buffer = hard::buffer_answers(&mut probe)?;
    probe.hit_ms = buffer.hit_ms(8);
    probe.step("rotation", 0.05)?;
    match rotation::find(&mut probe, &buffer)? {
        Some(rotation) => hard::find(&mut probe, buffer, rotation).map(Findings::HardDisk),
        None => solid::find(&mut probe).map(Findings::SolidDisk),
    }
}

/// A target under measurement.
struct Probe<'a, T: Target> {
    target: &'a mut T,
    dice: Dice,
    progress: &'a mut dyn FnMut(&'static str, f64) -> bool,
    /// What the buffer takes for 4 KiB.
    hit_ms: f64,
}

type Outcome<R, T> = Result<R, MeasureError<<T as Target>::Error>>;

impl<T: Target> Probe<'_, T> {
    fn step(&mut self, what: &'static str, done: f64) -> Outcome<(), T> {
        if (self.progress)(what, done) { Ok(()) } else { Err(MeasureError::Aborted) }
    }

    /// When a read ended, and what it took in ms.
    fn read(&mut self, lba: u64, blocks: u64) -> Outcome<(Nanos, f64), T> {
        let read = self.target.read(lba, blocks).map_err(MeasureError::Target)?;
        Ok((read.1, read.1.since(read.0).as_ms()))
    }

    fn read_many(&mut self, places: &[(u64, u64)], depth: usize) -> Outcome<f64, T> {
        let time = self.target.read_many(places, depth).map_err(MeasureError::Target)?;
        Ok(time.as_ms())
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.dice.below(limit)
    }

    /// A place for a read of so many blocks, on 4 KiB.
    fn place(&mut self, blocks: u64) -> u64 {
        let limit = self.target.blocks() - blocks;
        self.below(limit) / 8 * 8
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
