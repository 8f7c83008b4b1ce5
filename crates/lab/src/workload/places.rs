//! Where requests go: the patterns, each over blocks of one range.

use crate::plan::Pattern;
use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A sequence of places, all multiples of the block and within the range.
pub(crate) struct Places {
    from: u64,
    block: u64,
    /// Blocks in the range, at least one.
    blocks: u64,
    way: Way,
}

enum Way {
    /// The next block of each stream, and whose turn it is.
    Streams {
        next: Vec<u64>,
        turn: usize,
    },
    Strided {
        stride: u64,
        at: u64,
        first: u64,
    },
    Uniform,
    /// A rank times a number without common factor with the range is a block: frequent blocks lie apart.
    Zipf {
        ranks: Zipf<f64>,
        factor: u64,
    },
}

/// Large enough to scatter, small enough for products with any number of blocks in 128 bits; prime.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c55;

impl Places {
    /// Places in `from..to`, of which there must be one at least.
    pub(crate) fn new(pattern: Pattern, from: u64, to: u64, block: u64) -> Self {
        let blocks = ((to - from) / block).max(1);
        let way = match pattern {
            // Each zone is a range of its own.
            Pattern::Sequential | Pattern::Zones(_) => Way::Streams { next: vec![0], turn: 0 },
            Pattern::Streams(count) => {
                let count = u64::from(count).clamp(1, blocks);
                Way::Streams { next: (0..count).map(|i| blocks / count * i).collect(), turn: 0 }
            }
            Pattern::Strided(stride) => {
                Way::Strided { stride: (stride / block).clamp(1, blocks), at: 0, first: 0 }
            }
            Pattern::Uniform => Way::Uniform,
            Pattern::Zipf(theta) => Way::Zipf {
                ranks: Zipf::new(blocks as f64, theta)
                    .expect("a range has blocks, theta is positive"),
                factor: scatter(blocks),
            },
        };
        Self { from, block, blocks, way }
    }

    /// The next place, in bytes.
    pub(crate) fn next(&mut self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let blocks = self.blocks;
        let index = match &mut self.way {
            Way::Streams { next, turn } => {
                let count = next.len() as u64;
                let stream = *turn as u64;
                let first = blocks / count * stream;
                let end = if stream + 1 == count { blocks } else { blocks / count * (stream + 1) };
                let at = next[*turn];
                next[*turn] = if at + 1 == end { first } else { at + 1 };
                *turn = (*turn + 1) % next.len();
                at
            }
            Way::Strided { stride, at, first } => {
                let now = *at;
                *at += *stride;
                if *at >= blocks {
                    *first = (*first + 1) % *stride;
                    *at = *first;
                }
                now
            }
            Way::Uniform => random.random_range(0..blocks),
            Way::Zipf { ranks, factor } => {
                let rank = (ranks.sample(random) as u64).clamp(1, blocks) - 1;
                (u128::from(rank) * u128::from(*factor) % u128::from(blocks)) as u64
            }
        };
        self.from + index * self.block
    }
}

fn scatter(blocks: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (0..)
        .map(|i| SCATTER + i)
        .find(|&factor| gcd(factor, blocks) == 1)
        .expect("some number has no common factor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng;
    use std::collections::BTreeMap;

    fn first(pattern: Pattern, count: usize) -> Vec<u64> {
        let mut places = Places::new(pattern, 100 * 8, 108 * 8 + 3, 8);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..count).map(|_| places.next(&mut random) / 8 - 100).collect()
    }

    #[test]
    fn sequences_begin_again_at_the_end() {
        assert_eq!(first(Pattern::Sequential, 10), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
    }

    #[test]
    fn streams_take_turns_in_their_parts() {
        assert_eq!(first(Pattern::Streams(2), 10), [0, 4, 1, 5, 2, 6, 3, 7, 0, 4]);
        // The last one has what does not divide.
        assert_eq!(first(Pattern::Streams(3), 12), [0, 2, 4, 1, 3, 5, 0, 2, 6, 1, 3, 7]);
    }

    #[test]
    fn strides_come_to_every_block() {
        assert_eq!(first(Pattern::Strided(3 * 8), 9), [0, 3, 6, 1, 4, 7, 2, 5, 0]);
    }

    #[test]
    fn random_places_are_all_in_the_range_and_all_come() {
        for pattern in [Pattern::Uniform, Pattern::Zipf(0.99)] {
            let mut counts = BTreeMap::new();
            for place in first(pattern, 10_000) {
                *counts.entry(place).or_insert(0) += 1;
            }
            assert_eq!(
                counts.keys().copied().collect::<Vec<_>>(),
                [0, 1, 2, 3, 4, 5, 6, 7],
                "{pattern:?}"
            );
        }
    }

    #[test]
    fn zipf_prefers_few_blocks_by_its_law() {
        let mut counts = [0f64; 8];
        first(Pattern::Zipf(1.0), 100_000)
            .into_iter()
            .for_each(|place| counts[place as usize] += 1.0);
        counts.sort_by(|a, b| b.total_cmp(a));
        // The second comes half as often as the first, the fourth a quarter.
        assert!((counts[0] / counts[1] - 2.0).abs() < 0.1, "{counts:?}");
        assert!((counts[0] / counts[3] - 4.0).abs() < 0.3, "{counts:?}");
    }
}
