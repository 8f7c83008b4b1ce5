//! Every set of kernels computes what byte-by-byte arithmetic computes: on all short lengths,
//! around pages and large blocks, at every alignment, with any number of sources.

use lapstrake_parity::{Kernels, gf, kernels, recovery};
use proptest::prelude::*;

/// The largest block where many shapes are tried.
const LEN_MAX: usize = 66_000;
const SOURCES_MAX: usize = 20;

/// Bytes without a pattern.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// `sum of coefs(i) * srcs[i]`, by the definition.
fn expected(len: usize, coefs: impl Fn(usize) -> u8, srcs: &[&[u8]]) -> Vec<u8> {
    (0..len)
        .map(|n| srcs.iter().enumerate().fold(0, |sum, (i, src)| sum ^ gf::mul(coefs(i), src[n])))
        .collect()
}

fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// A block at a chosen offset from a 64-byte boundary, inside bytes that must stay as they are.
struct Output {
    memory: Vec<u8>,
    from: usize,
    len: usize,
}

impl Output {
    const FILL: u8 = 0xa5;

    fn new(len: usize, offset: usize) -> Output {
        let memory = vec![Self::FILL; len + 256];
        let from = memory.as_ptr().align_offset(64) + 64 + offset;
        Output { memory, from, len }
    }

    fn block(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.len]
    }

    #[track_caller]
    fn assert(&mut self, want: &[u8], what: &str) {
        assert!(self.block() == want, "{what}: wrong bytes");
        let (before, rest) = self.memory.split_at(self.from);
        let outside = before.iter().chain(&rest[self.len..]);
        assert!(outside.copied().all(|b| b == Self::FILL), "{what}: wrote outside its block");
    }
}

/// Runs every function of every set on one shape of blocks.
fn check(srcs: &[&[u8]], coefs: &[u8], offsets: [usize; 2]) {
    let (len, k) = (srcs[0].len(), srcs.len());
    let rows: [&[u8]; 3] = [&coefs[..k], &coefs[1..k + 1], &coefs[2..k + 2]];
    let p = expected(len, |_| 1, srcs);
    let q = expected(len, |i| gf::exp(i as u8), srcs);
    let products = rows.map(|row| expected(len, |i| row[i], srcs));
    // A row of ones and then zeros, and one that differs so from the first: made in pairs.
    let terms = coefs[0] as usize % (k + 1);
    let bits: Vec<u8> = (0..k).map(|i| u8::from(i < terms)).collect();
    let near: Vec<u8> = sum(rows[0], &bits);
    let made_of_bits = expected(len, |i| bits[i], srcs);
    let made_near = expected(len, |i| near[i], srcs);
    let kept = vec![Output::FILL; len];
    let outputs = || offsets.map(|o| Output::new(len, o));

    for set in Kernels::available() {
        let at = |call: &str| format!("{} {call}: {k} x {len}, outputs at {offsets:?}", set.name());

        let [mut a, mut b] = outputs();
        set.xor(a.block(), srcs);
        a.assert(&p, &at("xor"));
        set.xor_into(b.block(), srcs);
        b.assert(&sum(&kept, &p), &at("xor_into"));

        let [mut a, mut b] = outputs();
        set.pq(a.block(), b.block(), srcs);
        a.assert(&p, &at("pq"));
        b.assert(&q, &at("pq"));

        let [mut a, mut b] = outputs();
        set.mul_add(a.block(), rows[0], srcs);
        a.assert(&sum(&kept, &products[0]), &at("mul_add"));
        set.mul(&mut [b.block()], &rows[..1], srcs);
        b.assert(&products[0], &at("mul of one"));

        let [mut a, mut b] = outputs();
        let mut c = Output::new(len, offsets[0]);
        set.mul(&mut [a.block(), b.block(), c.block()], &rows, srcs);
        for (output, want) in [&mut a, &mut b, &mut c].into_iter().zip(&products) {
            output.assert(want, &at("mul of three"));
        }

        for (row, want) in [(&bits, &made_of_bits), (&near, &made_near)] {
            let [mut a, mut b] = outputs();
            set.mul(&mut [a.block(), b.block()], &[rows[0], row], srcs);
            a.assert(&products[0], &at("mul of a pair"));
            b.assert(want, &at("mul of a pair"));
            let [mut a, mut b] = outputs();
            set.mul(&mut [a.block(), b.block()], &[row, rows[0]], srcs);
            a.assert(want, &at("mul of a pair, swapped"));
            b.assert(&products[0], &at("mul of a pair, swapped"));
        }
    }
}

/// `k` blocks of `len` bytes at odd distances from each other.
fn cut(pool: &[u8], k: usize, len: usize) -> Vec<&[u8]> {
    (0..k).map(|i| &pool[i * (len + 37) + i % 3..][..len]).collect()
}

fn pool() -> Vec<u8> {
    noise(SOURCES_MAX * (LEN_MAX + 40), 1)
}

#[test]
fn all_lengths_to_300_with_1_to_20_sources() {
    let (pool, coefs) = (pool(), noise(SOURCES_MAX + 2, 2));
    for len in 0..=300 {
        for k in 1..=SOURCES_MAX {
            check(&cut(&pool, k, len), &coefs, [len % 64, (len * 5 + k) % 64]);
        }
    }
}

#[test]
fn lengths_around_pages_and_large_blocks() {
    let (pool, coefs) = (pool(), noise(SOURCES_MAX + 2, 3));
    for near in [512, 4096, 65_536] {
        for len in [near - 65, near - 1, near, near + 1, near + 63, near + 64, near + 257] {
            for k in [1, 4, 20] {
                check(&cut(&pool, k, len), &coefs, [0, 0]);
                check(&cut(&pool, k, len), &coefs, [0, 32]);
            }
        }
    }
}

#[test]
fn blocks_beyond_the_largest_second_level() {
    const LEN: usize = 264_001;
    let (pool, coefs) = (noise(SOURCES_MAX * (LEN + 40), 5), noise(SOURCES_MAX + 2, 6));
    for offsets in [[0, 0], [0, 32], [16, 0], [0, 1]] {
        check(&cut(&pool, SOURCES_MAX, LEN), &coefs, offsets);
    }
}

#[test]
fn recoveries_of_blocks_beyond_the_largest_second_level() {
    const LEN: usize = 264_001;
    const K: u8 = SOURCES_MAX as u8;
    let pool = noise(SOURCES_MAX * (LEN + 40), 7);
    let (srcs, exps) = (cut(&pool, SOURCES_MAX, LEN), (0..K).collect::<Vec<_>>());
    let mut recoveries = [[[0; SOURCES_MAX]; 2]; 3];
    let [[x, y], [from_p, q], [from_q, p]] = &mut recoveries;
    recovery::recover_two_data(&exps, 3, 11, x, y);
    recovery::recover_data_from_p(&exps, 3, from_p, q);
    recovery::recover_data_from_q(&exps, 3, from_q, p);
    for (which, rows) in recoveries.into_iter().enumerate() {
        let want = rows.map(|row| expected(LEN, |i| row[i], &srcs));
        for set in Kernels::available() {
            let mut made = [0, 0].map(|offset| Output::new(LEN, offset));
            let [a, b] = &mut made;
            set.mul(&mut [a.block(), b.block()], &[&rows[0], &rows[1]], &srcs);
            for (made, want) in made.iter_mut().zip(&want) {
                made.assert(want, &format!("{}: recovery {which}", set.name()));
            }
        }
    }
}

#[test]
fn every_alignment_of_sources_and_outputs() {
    let (pool, coefs) = (pool(), noise(SOURCES_MAX + 2, 4));
    for offset in 0..64 {
        let srcs: Vec<&[u8]> = (0..3).map(|i| &pool[i * 2048 + offset..][..1033]).collect();
        check(&srcs, &coefs, [offset, 0]);
        check(&srcs, &coefs, [0, offset]);
    }
}

#[test]
fn every_coefficient() {
    let pool = noise(1024, 5);
    // Every byte value in the source, so that every entry of every table is met.
    let bytes: Vec<u8> = (0..=255).chain(0..=255).collect();
    for coef in 0..=255 {
        check(&[&bytes, &pool[..512]], &[coef, 1, !coef, coef], [0, 0]);
    }
}

#[test]
fn exponents_as_far_as_md_goes() {
    let (pool, coefs) = (noise(253 * 200, 6), noise(255, 7));
    check(&cut(&pool, 253, 131), &coefs, [0, 0]);
}

#[test]
fn more_sources_than_there_are_powers() {
    const LEN: usize = 300;
    let pool = noise(400 * (LEN + 40), 8);
    let srcs = cut(&pool, 400, LEN);
    let row = [vec![1; 255], vec![7; 145]].concat();
    let want = expected(LEN, |i| row[i], &srcs);
    for set in Kernels::available() {
        let [mut a, mut b] = [0, 0].map(|offset| Output::new(LEN, offset));
        set.mul(&mut [a.block(), b.block()], &[&row, &[1; 400]], &srcs);
        a.assert(&want, set.name());
        b.assert(&expected(LEN, |_| 1, &srcs), set.name());
    }
}

#[test]
fn the_best_set_is_chosen_again_and_again() {
    assert_eq!(kernels().name(), Kernels::available().next().unwrap().name());
    assert!(core::ptr::eq(kernels(), kernels()));
    assert!(Kernels::available().any(|set| set.name() == "portable"));
}

#[test]
#[should_panic(expected = "a source of another length")]
fn a_source_of_another_length_is_a_bug() {
    kernels().xor(&mut [0; 4], &[&[1; 4], &[2; 5]]);
}

#[test]
#[should_panic(expected = "no source")]
fn no_source_is_a_bug() {
    kernels().pq(&mut [0; 4], &mut [0; 4], &[]);
}

proptest! {
    #[test]
    fn any_shape(
        len in 0_usize..5000,
        k in 1_usize..12,
        seed: u64,
        coefs in proptest::collection::vec(any::<u8>(), 14),
        offsets in proptest::array::uniform2(0_usize..64),
    ) {
        let pool = noise(k * (len + 40), seed);
        check(&cut(&pool, k, len), &coefs, offsets);
    }
}
