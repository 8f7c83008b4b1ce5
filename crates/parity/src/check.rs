//! The check that a set must pass before its first use.
//!
//! A compiler, an emulator or a CPU that gets one instruction wrong must not cost data: a set that
//! fails here is not used. It runs once and takes well below a millisecond.

use crate::kernels::Kernels;
use crate::{gf, recovery, reference};

/// Enough for every loop of the driver: many vectors, one vector, single bytes.
const LEN: usize = 64 * 8 + 64 + 7;
/// Whole blocks, and blocks that are shorter than a vector, at odd addresses.
const WINDOWS: [(usize, usize); 3] = [(0, LEN), (1, LEN), (3, 17)];
const SOURCES: usize = 3;

/// Whether `set` computes what the scalar reference computes.
pub(crate) fn passes(set: &Kernels) -> bool {
    let blocks: [[u8; LEN]; SOURCES] = core::array::from_fn(|i| noise(i as u32 + 1));
    WINDOWS.iter().all(|&(from, to)| {
        let srcs: [&[u8]; SOURCES] = core::array::from_fn(|i| &blocks[i][from..to]);
        xor_passes(set, &srcs) && pq_passes(set, &srcs) && mul_passes(set, &srcs)
    })
}

fn xor_passes(set: &Kernels, srcs: &[&[u8]]) -> bool {
    let [mut got, mut want] = [noise(9), noise(9)];
    let len = srcs[0].len();
    let (got, want) = (&mut got[..len], &mut want[..len]);
    set.xor_into(got, srcs);
    reference::combine(want, |_| 1, srcs, true);
    let kept = got == want;
    set.xor(got, srcs);
    reference::combine(want, |_| 1, srcs, false);
    kept && got == want
}

fn pq_passes(set: &Kernels, srcs: &[&[u8]]) -> bool {
    let [mut p, mut q, mut want] = [noise(9), noise(9), noise(9)];
    let len = srcs[0].len();
    let (p, q, want) = (&mut p[..len], &mut q[..len], &mut want[..len]);
    set.pq(p, q, srcs);
    reference::combine(want, |_| 1, srcs, false);
    let p_right = p == want;
    reference::combine(want, |i| gf::exp(i as u8), srcs, false);
    p_right && q == want
}

fn mul_passes(set: &Kernels, srcs: &[&[u8]]) -> bool {
    let [mut a, mut b, mut want] = [noise(9), noise(9), noise(9)];
    let len = srcs[0].len();
    let (a, b, want) = (&mut a[..len], &mut b[..len], &mut want[..len]);
    // Rows that are made together, in each of the ways there are, and rows that are not.
    let row = [0x02, 0x8e, 0xf5];
    let coefficients = [[1, 1, 0], [0x03, 0x8f, 0xf5], [0x1d, 1, 0]].map(|other| [row, other]);
    let mut recoveries = [[[0; SOURCES]; 2]; 3];
    let [[x, y], [from_p, q], [from_q, p]] = &mut recoveries;
    recovery::recover_two_data(&[0, 1, 2], 0, 1, x, y);
    recovery::recover_data_from_p(&[0, 1, 2], 1, from_p, q);
    recovery::recover_data_from_q(&[0, 1, 2], 1, from_q, p);
    coefficients.into_iter().chain(recoveries).all(|[row, other]| {
        set.mul(&mut [&mut *a, &mut *b], &[&row, &other], srcs);
        reference::combine(want, |i| row[i], srcs, false);
        let mut right = a == want;
        reference::combine(want, |i| other[i], srcs, false);
        right &= b == want;
        set.mul_add(a, &other, srcs);
        reference::combine(want, |i| row[i] ^ other[i], srcs, false);
        right && a == want
    })
}

/// Bytes without a pattern (xorshift).
fn noise(seed: u32) -> [u8; LEN] {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    core::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    })
}
