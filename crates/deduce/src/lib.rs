//! Finds an md array's geometry from the contents of its members alone, when their superblocks are gone.
//!
//! # Method
//!
//! 1. Windows at the same places of all devices are read ([`Source`]), passing over holes.
//! 2. Structures of file systems that tell their own place are picked out, and rows of sectors for what parity and
//!    copies say.
//! 3. For each shape (level, layout, chunk, number of slots) the structures vote for a data offset and an order.
//! 4. Every hypothesis is judged by the same observations. Those that give the same array are one candidate.
//!
//! Nothing is ever written. What is told with confidence is only what no other hypothesis comes near to; an array that
//! is none of the hypotheses (a reshape half done, an unknown layout) places too few structures to be.

mod bytes;
mod changes;
mod crc32c;
mod hypothesis;
mod linear;
mod nested;
mod rank;
mod relation;
mod sample;
mod shape;
mod source;
mod volume;
mod vote;

use hypothesis::Hypothesis;
use lapstrake_geometry::{Geometry, Sectors};
use rank::Judged;
use sample::Samples;

pub use changes::LikelyChunk;
pub use rank::Weights;
pub use relation::{Agreement, Relations};
pub use shape::Shape;
pub use source::{Source, Unreadable};
pub use volume::{Volume, VolumeKind};

/// Bytes read of each device unless told otherwise: a few minutes of a hard disk.
pub const BUDGET: u64 = 2 << 30;

/// One way to read the array.
#[derive(Clone, Debug)]
pub struct Arrangement {
    /// Level, layout, chunk, slots.
    pub shape: Shape,
    /// Where data begins on each member, bytes.
    pub data_offset: u64,
    /// Which device is in each slot; None where the member is missing.
    pub order: Vec<Option<usize>>,
    /// The array's addresses.
    pub geometry: Geometry,
}

impl Arrangement {
    fn of(hypothesis: &Hypothesis) -> Self {
        let Hypothesis { shape, geometry, data_offset, order } = hypothesis.clone();
        Self { shape, data_offset, order, geometry }
    }

    /// How much is used of each member; zero for linear and RAID0, which use all.
    #[must_use]
    pub fn component(&self) -> Sectors {
        self.geometry.component()
    }

    /// Members that are not there.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.order.iter().filter(|device| device.is_none()).count()
    }

    /// Where a byte of the array lies: device and byte of it, for each copy that is there.
    pub fn homes(&self, address: u64) -> Vec<(usize, u64)> {
        let Self { shape, data_offset, order, geometry } = self.clone();
        Hypothesis { shape, geometry, data_offset, order }.homes(address).collect()
    }
}

/// What the devices may be.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// How to read them.
    pub arrangement: Arrangement,
    /// Other descriptions of the same array, byte for byte.
    pub equal: Vec<Arrangement>,
    /// Of 1; never more than 0.999.
    pub probability: f64,
    /// Nothing else comes near, and enough speaks for it.
    pub is_certain: bool,
    /// The file system by which it was found.
    pub volume: Volume,
    /// Where that begins in the array, bytes.
    pub volume_start: u64,
    /// Structures of it that lie where they have to, of so many.
    pub placed: usize,
    /// Structures that were asked.
    pub structures: usize,
    /// What parity and copies say.
    pub relations: Relations,
    /// How much each kind of evidence counts.
    pub weights: Weights,
}

impl Candidate {
    fn of(judged: &Judged, volume: Volume) -> Self {
        Self {
            arrangement: Arrangement::of(&judged.hypothesis),
            equal: judged.equal.iter().map(Arrangement::of).collect(),
            probability: judged.probability,
            is_certain: judged.is_certain,
            volume,
            volume_start: judged.start,
            placed: judged.placed,
            structures: judged.structures,
            relations: judged.relations,
            weights: judged.weights,
        }
    }
}

/// What was found out.
#[derive(Clone, Debug)]
pub struct Report {
    /// Best first.
    pub candidates: Vec<Candidate>,
    /// Volumes that were seen, with how many structures of each.
    pub volumes: Vec<(Volume, usize)>,
    /// What the devices have in common whatever their order.
    pub agreement: Agreement,
    /// The chunk that changes of contents make likely, whatever file system there is.
    pub likely_chunk: Option<LikelyChunk>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
    /// How much was read of all devices.
    pub bytes_read: u64,
}

/// Looks at devices, reading up to `budget` bytes of each. `progress` is told bytes done and to do.
pub fn deduce(sources: &[&dyn Source], budget: u64, progress: impl FnMut(u64, u64)) -> Report {
    let samples = Samples::read(sources, budget, volume::is_of_interest, progress);
    let seen = volume::find(&samples);
    let candidates = rank::by_volumes(&samples, &seen);
    Report {
        candidates: candidates.iter().map(|(judged, v)| Candidate::of(judged, v.clone())).collect(),
        volumes: seen.iter().map(|seen| (seen.volume.clone(), seen.groups.len())).collect(),
        agreement: relation::agreement(&samples),
        likely_chunk: samples.changes.likely_chunk(),
        unreadable: samples.unreadable,
        bytes_read: samples.bytes_read,
    }
}
