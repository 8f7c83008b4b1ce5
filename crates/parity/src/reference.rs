//! The scalar reference: one byte at a time, written to be read.
//!
//! It decides what is right. The vector kernels are checked against it before their first use and
//! in the tests; it is never chosen for work.

use crate::gf;

/// `dst[n] (^)= sum of coefs[i] * srcs[i][n]`; `add` keeps what `dst` holds as one more term.
pub(crate) fn combine(dst: &mut [u8], coefs: impl Fn(usize) -> u8, srcs: &[&[u8]], add: bool) {
    for (n, byte) in dst.iter_mut().enumerate() {
        let mut sum = if add { *byte } else { 0 };
        for (i, src) in srcs.iter().enumerate() {
            sum ^= gf::mul(coefs(i), src[n]);
        }
        *byte = sum;
    }
}
