//! The sets of kernels, and the choice among them.

use crate::{gf, reference};

/// One set of parity routines, for one kind of CPU.
///
/// All blocks of a call have the same length; any length and any alignment will do. Multiples of
/// 64 bytes at addresses that are multiples of 64 are fastest.
pub struct Kernels {
    name: &'static str,
}

static PORTABLE: Kernels = Kernels { name: "portable" };

/// The best set for this CPU.
pub fn kernels() -> &'static Kernels {
    &PORTABLE
}

impl Kernels {
    /// "avx512-gfni", "avx2", "neon" or "portable".
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All sets that this CPU can run, best first.
    pub fn available() -> impl Iterator<Item = &'static Kernels> {
        [&PORTABLE].into_iter()
    }

    /// `dst = srcs[0] ^ srcs[1] ^ ...`.
    ///
    /// # Panics
    /// If there is no source, or one whose length is not that of `dst`.
    pub fn xor(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        check(dst.len(), srcs);
        reference::combine(dst, |_| 1, srcs, false);
    }

    /// `dst ^= srcs[0] ^ srcs[1] ^ ...`.
    ///
    /// # Panics
    /// As [`xor`](Self::xor).
    pub fn xor_into(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        check(dst.len(), srcs);
        reference::combine(dst, |_| 1, srcs, true);
    }

    /// `p = data[0] ^ data[1] ^ ...` and `q = g^0 data[0] ^ g^1 data[1] ^ ...`.
    ///
    /// # Panics
    /// If there is no data block, more than 255, or a block whose length differs.
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
        check(p.len(), data);
        assert_eq!(p.len(), q.len(), "P and Q differ in length");
        reference::combine(p, |_| 1, data, false);
        reference::combine(q, |i| gf::exp(i as u8), data, false);
    }

    /// `dst ^= coefs[0] * srcs[0] ^ coefs[1] * srcs[1] ^ ...`: the delta update of Q.
    ///
    /// # Panics
    /// As [`xor`](Self::xor), and if there are not as many coefficients as sources.
    pub fn mul_add(&self, dst: &mut [u8], coefs: &[u8], srcs: &[&[u8]]) {
        check(dst.len(), srcs);
        assert_eq!(coefs.len(), srcs.len(), "one coefficient for each source");
        reference::combine(dst, |i| coefs[i], srcs, true);
    }

    /// `dsts[j] = rows[j][0] * srcs[0] ^ rows[j][1] * srcs[1] ^ ...`. Two destinations are made in
    /// one pass over the sources; more take one pass for every two.
    ///
    /// # Panics
    /// As [`mul_add`](Self::mul_add), and if there are not as many rows as destinations.
    pub fn mul(&self, dsts: &mut [&mut [u8]], rows: &[&[u8]], srcs: &[&[u8]]) {
        assert_eq!(dsts.len(), rows.len(), "one row for each destination");
        for (dst, row) in dsts.iter_mut().zip(rows) {
            check(dst.len(), srcs);
            assert_eq!(row.len(), srcs.len(), "one coefficient for each source");
            reference::combine(dst, |i| row[i], srcs, false);
        }
    }
}

fn check(len: usize, srcs: &[&[u8]]) {
    assert!(!srcs.is_empty(), "no source");
    assert!(srcs.iter().all(|s| s.len() == len), "a source of another length");
}
