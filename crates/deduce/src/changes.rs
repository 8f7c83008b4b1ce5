//! Where contents change: what lies before a border of chunks and what lies behind it have nothing to do with each other, so
//! there contents change from one kind to another more often than elsewhere, whatever they are.
//!
//! Counted are neighbouring blocks of a device by the place of the border between them. Which chunk that makes likely is
//! told by borders' alignment: borders of chunks are alike however far they are aligned, all others may change less often.
//! What makes files begin at aligned places looks alike, and so does a rotation of parity that comes round: the weight is
//! bounded, decides only between chunks, and makes nothing sure. Contents that are the same everywhere (encrypted, compressed, blank) tell nothing.

use crate::bytes::BLOCK;
use lapstrake_geometry::Sectors;

/// Blocks of the largest chunk.
const BLOCKS: usize = 1024;
/// Alignments of borders: to one block, two, and so on up to the largest chunk.
const ALIGNMENTS: usize = 11;
/// Of a block's 4096 bytes so many have to be of another kind.
const CHANGE: u32 = 1024;
/// What speaks against the likeliest chunk's rivals never counts more, as a logarithm of odds.
const WEIGHT_MAX: f64 = 3.0;
/// Contents that change at borders of chunks no more often than elsewhere tell nothing: the least gain that counts.
const GAIN_MIN: f64 = 8.0;
/// Data offsets for which a chunk is looked for where nothing else tells one, blocks.
const OFFSETS: [u64; 5] = [0, 1, 3, 17, 33];

/// How many bytes of a block are of which kind.
type Kinds = [u16; 16];

fn kinds(block: &[u8], is_blank: bool) -> Kinds {
    let mut kinds = [0; 16];
    if is_blank {
        kinds[usize::from(block[0] >> 4)] = BLOCK as u16;
        return kinds;
    }
    block.iter().for_each(|byte| kinds[usize::from(byte >> 4)] += 1);
    kinds
}

fn is_blank(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == block[0])
}

fn is_change(one: &Kinds, other: &Kinds) -> bool {
    let moved: u32 = one.iter().zip(other).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
    moved / 2 > CHANGE
}

/// Borders of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    borders: u64,
    changes: u64,
}

impl Count {
    fn add(self, other: Self) -> Self {
        Self { borders: self.borders + other.borders, changes: self.changes + other.changes }
    }

    fn rate(self) -> f64 {
        self.changes as f64 / self.borders.max(1) as f64
    }

    /// The likelihood of these changes if all borders are alike, as a logarithm.
    fn likelihood(self) -> f64 {
        let part = |of: u64| match of {
            0 => 0.0,
            of => of as f64 * (of as f64 / self.borders as f64).ln(),
        };
        part(self.changes) + part(self.borders - self.changes)
    }
}

/// The last block of a device that was looked at.
#[derive(Clone)]
struct Last {
    end: u64,
    kinds: Kinds,
    is_blank: bool,
}

/// A chunk that changes of contents make likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LikelyChunk {
    /// The chunk, bytes.
    pub bytes: u64,
    /// Changes at its borders, per cent.
    pub at_borders: f64,
    /// Changes elsewhere, per cent.
    pub elsewhere: f64,
    /// As a logarithm of odds against the next likely one; never more than 3.
    pub weight: f64,
}

/// What was counted on all devices.
pub(crate) struct Changes {
    /// By the border's place in blocks, modulo the largest chunk.
    counts: Vec<Count>,
    last: Vec<Option<Last>>,
}

impl Changes {
    pub(crate) fn new(devices: usize) -> Self {
        Self { counts: vec![Count::default(); BLOCKS], last: vec![None; devices] }
    }

    /// Takes the next block of a device; blocks in ascending order.
    pub(crate) fn take(&mut self, device: usize, at: u64, block: &[u8]) {
        if block.len() < BLOCK {
            return;
        }
        let is_blank = is_blank(block);
        let kinds = kinds(block, is_blank);
        let before = self.last[device].replace(Last { end: at + BLOCK as u64, kinds, is_blank });
        if let Some(before) = before.filter(|last| last.end == at && !(last.is_blank && is_blank)) {
            let count = &mut self.counts[(at / BLOCK as u64) as usize % BLOCKS];
            count.borders += 1;
            count.changes += u64::from(is_change(&before.kinds, &kinds));
        }
    }

    /// Borders by alignment, for data that begin at this block.
    fn by_alignment(&self, offset: u64) -> [Count; ALIGNMENTS] {
        let mut found = [Count::default(); ALIGNMENTS];
        for (block, count) in self.counts.iter().enumerate() {
            let inside = (block + BLOCKS - (offset as usize % BLOCKS)) % BLOCKS;
            let alignment = (inside.trailing_zeros() as usize).min(ALIGNMENTS - 1);
            found[alignment] = found[alignment].add(*count);
        }
        found
    }

    /// How likely each chunk makes what was counted, as a logarithm; index 1 is that of two blocks. None where it tells
    /// nothing.
    fn likelihoods(&self, offset: u64) -> Option<[f64; ALIGNMENTS]> {
        let by_alignment = self.by_alignment(offset);
        let all = sum(&by_alignment);
        let of = |chunk: usize| {
            let (inside, borders) = by_alignment.split_at(chunk);
            let (within, at_borders) = (sum(inside), sum(borders));
            if chunk == 0 || at_borders.rate() <= within.rate() {
                return f64::NEG_INFINITY;
            }
            let inside: f64 = inside.iter().map(|count| count.likelihood()).sum();
            // Each rate that may be any costs what it could explain by chance.
            let free = (chunk + 1) as f64 * (all.borders.max(1) as f64).ln() / 2.0;
            inside + at_borders.likelihood() - free
        };
        let found = std::array::from_fn(of);
        let best = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let alike = all.likelihood() - (all.borders.max(1) as f64).ln() / 2.0;
        (best - alike >= GAIN_MIN).then_some(found)
    }

    /// What it says of a chunk, as a logarithm of odds against the likeliest one.
    pub(crate) fn weight(&self, chunk: Sectors, data_offset: u64) -> f64 {
        let blocks = chunk.bytes() / BLOCK as u64;
        if blocks < 2 || !data_offset.is_multiple_of(BLOCK as u64) {
            return 0.0;
        }
        let Some(found) = self.likelihoods(data_offset / BLOCK as u64) else { return 0.0 };
        let best = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let own = found.get(blocks.trailing_zeros() as usize).copied();
        (own.unwrap_or(f64::NEG_INFINITY) - best).clamp(-WEIGHT_MAX, 0.0)
    }

    /// The chunk that it makes likeliest.
    pub(crate) fn likely_chunk(&self) -> Option<LikelyChunk> {
        let of = |offset: u64| {
            let found = self.likelihoods(offset)?;
            let best = (1..ALIGNMENTS).max_by(|a, b| found[*a].total_cmp(&found[*b]))?;
            Some((found[best], best, found, offset))
        };
        let all = OFFSETS.iter().filter_map(|offset| of(*offset));
        let (top, best, found, offset) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let others = (1..ALIGNMENTS).filter(|chunk| *chunk != best).map(|chunk| found[chunk]);
        let next = others.fold(f64::NEG_INFINITY, f64::max);
        let by_alignment = self.by_alignment(offset);
        let percent = |of: &[Count]| 100.0 * sum(of).rate();
        Some(LikelyChunk {
            bytes: (BLOCK as u64) << best,
            at_borders: percent(&by_alignment[best..]),
            elsewhere: percent(&by_alignment[..best]),
            weight: (top - next).min(WEIGHT_MAX),
        })
    }
}

fn sum(counts: &[Count]) -> Count {
    counts.iter().fold(Count::default(), |sum, count| sum.add(*count))
}
