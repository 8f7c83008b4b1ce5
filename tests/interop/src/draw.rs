//! Seeded randomness: the same seed gives the same case on every machine.

use std::ops::Range;

/// A generator of pseudo-random numbers (SplitMix64, Steele, Lea and Flood 2014).
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.within(0..n) == 0
    }

    /// One of them.
    pub fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0..all.len() as u64) as usize]
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for index in (1..all.len()).rev() {
            all.swap(index, self.within(0..index as u64 + 1) as usize);
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
    }

    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes);
        bytes
    }

    /// A length in sectors: as often below a page as some chunks long.
    pub fn length(&mut self, max: u64) -> u64 {
        let scale = self.within(0..11);
        self.within(1..(2 << scale)).min(max)
    }

    /// Cuts `0..sectors` into runs of random lengths, in order.
    pub fn cuts(&mut self, sectors: u64) -> Vec<Range<u64>> {
        let mut cuts = Vec::new();
        let mut at = 0;
        while at < sectors {
            let end = at + self.length(sectors - at);
            cuts.push(at..end);
            at = end;
        }
        cuts
    }
}
