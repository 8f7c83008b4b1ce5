//! All numbers below a count, once each, without order and without memory: a Feistel network over the next power of
//! four, whose results that are too large are put through it again.

/// Rounds of the network.
const ROUNDS: u64 = 4;

pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    pub fn new(count: u64, key: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), key }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number at a place below the count.
    pub fn place(&self, index: u64) -> u64 {
        let mut at = index;
        loop {
            at = self.mixed(at);
            if at < self.count {
                return at;
            }
        }
    }

    fn mixed(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ hashed(right, self.key.wrapping_add(round)) & mask);
        }
        left << self.half_bits | right
    }
}

/// The finish of SplitMix64.
fn hashed(value: u64, key: u64) -> u64 {
    let mut mixed = value.wrapping_add(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for count in [1, 2, 3, 7, 64, 1000] {
            let permutation = Permutation::new(count, 9);
            let mut all: Vec<u64> = (0..count).map(|index| permutation.place(index)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn neighbours_are_far_apart() {
        let permutation = Permutation::new(1 << 20, 3);
        let apart = |index| permutation.place(index).abs_diff(permutation.place(index + 1));
        let mean = (0..1000).map(apart).sum::<u64>() / 1000;
        // Of numbers without order a third of the count.
        assert!((300_000..400_000).contains(&mean), "{mean}");
    }
}
