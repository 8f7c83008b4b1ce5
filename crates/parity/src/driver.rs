//! The loops over blocks, written once for every kind of vector.
//!
//! A [`Vector`] is a run of bytes with the few operations that parity needs. A [`Job`] knows how to
//! make its outputs at one place; [`run`] takes it through all places: as many vectors at a time
//! as the registers hold, then one at a time, then byte by byte.
//!
//! Everything here is `inline(always)`, so that it is compiled anew inside each set's
//! `#[target_feature]` functions with the instructions of that set.

use core::array::from_fn;

/// A run of bytes, each an element of GF(2^8).
///
/// # Safety of all methods
/// The CPU has the instructions of the implementation; `at` is valid for `BYTES` bytes.
pub(crate) trait Vector: Copy {
    /// A coefficient, prepared for [`mul`](Self::mul).
    type Factor: Copy;
    /// Length in bytes.
    const BYTES: usize;

    unsafe fn load(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut u8);
    /// Stores past the caches; `at` is a multiple of `BYTES`.
    unsafe fn stream(self, at: *mut u8);
    unsafe fn zero() -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// g * self.
    unsafe fn double(self) -> Self;
    unsafe fn factor(coef: u8) -> Self::Factor;
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// Work on blocks of one length that is done place by place.
///
/// # Safety of `step`
/// As [`Vector`], with every block of the job valid from `at` to `at + N * V::BYTES`.
pub(crate) trait Job {
    unsafe fn step<V: Vector, const N: usize>(&self, at: usize);
}

/// Does `job` for all bytes from 0 to `len`.
///
/// # Safety
/// As [`Vector`]; every block of the job has `len` bytes.
#[inline(always)]
pub(crate) unsafe fn run<V: Vector, const N: usize>(job: &impl Job, len: usize) {
    let mut at = 0;
    // SAFETY: each step ends at or before `len`.
    unsafe {
        while len - at >= N * V::BYTES {
            job.step::<V, N>(at);
            at += N * V::BYTES;
        }
        while len - at >= V::BYTES {
            job.step::<V, 1>(at);
            at += V::BYTES;
        }
        while at < len {
            job.step::<u8, 1>(at);
            at += 1;
        }
    }
}

/// N neighbouring vectors.
#[inline(always)]
unsafe fn load<V: Vector, const N: usize>(at: *const u8) -> [V; N] {
    // SAFETY: the caller's.
    from_fn(|n| unsafe { V::load(at.add(n * V::BYTES)) })
}

#[inline(always)]
unsafe fn store<V: Vector, const N: usize>(vectors: [V; N], at: *mut u8) {
    for (n, v) in vectors.into_iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { v.store(at.add(n * V::BYTES)) };
    }
}

/// `dst (^)= xor of srcs`.
pub(crate) struct Xor<'a> {
    pub dst: *mut u8,
    pub srcs: &'a [&'a [u8]],
    /// Whether what `dst` holds is one more source.
    pub add: bool,
}

impl Job for Xor<'_> {
    #[inline(always)]
    unsafe fn step<V: Vector, const N: usize>(&self, at: usize) {
        // SAFETY: the caller's, for each block.
        unsafe {
            let (first, rest) = self.srcs.split_first().unwrap_unchecked();
            let mut sum = load::<V, N>(first.as_ptr().add(at));
            for src in rest {
                let data = load::<V, N>(src.as_ptr().add(at));
                sum = from_fn(|n| sum[n].xor(data[n]));
            }
            if self.add {
                let old = load::<V, N>(self.dst.add(at));
                sum = from_fn(|n| sum[n].xor(old[n]));
            }
            store(sum, self.dst.add(at));
        }
    }
}

/// `p = xor of data`, `q = sum of g^i data[i]`.
pub(crate) struct Pq<'a> {
    pub p: *mut u8,
    pub q: *mut u8,
    pub data: &'a [&'a [u8]],
}

impl Job for Pq<'_> {
    /// By Horner's rule, from the last block to the first: doubling is cheaper than a general
    /// product, or needs no table.
    #[inline(always)]
    unsafe fn step<V: Vector, const N: usize>(&self, at: usize) {
        // SAFETY: the caller's, for each block.
        unsafe {
            let (last, rest) = self.data.split_last().unwrap_unchecked();
            let mut p = load::<V, N>(last.as_ptr().add(at));
            let mut q = p;
            for src in rest.iter().rev() {
                let data = load::<V, N>(src.as_ptr().add(at));
                q = from_fn(|n| q[n].double().xor(data[n]));
                p = from_fn(|n| p[n].xor(data[n]));
            }
            store(p, self.p.add(at));
            store(q, self.q.add(at));
        }
    }
}

/// `dsts[j] (^)= sum of rows[j][i] * srcs[i]`.
pub(crate) struct Mul<'a, const R: usize> {
    pub dsts: [*mut u8; R],
    /// Each as long as `srcs`.
    pub rows: [&'a [u8]; R],
    pub srcs: &'a [&'a [u8]],
    /// Whether what `dsts` hold is one more term.
    pub add: bool,
}

impl<const R: usize> Job for Mul<'_, R> {
    #[inline(always)]
    unsafe fn step<V: Vector, const N: usize>(&self, at: usize) {
        // SAFETY: the caller's, for each block; a row has a coefficient for each source.
        unsafe {
            let mut sums: [[V; N]; R] = from_fn(|j| match self.add {
                true => load::<V, N>(self.dsts[j].add(at)),
                false => [V::zero(); N],
            });
            for (i, src) in self.srcs.iter().enumerate() {
                let data = load::<V, N>(src.as_ptr().add(at));
                for (sum, row) in sums.iter_mut().zip(&self.rows) {
                    let factor = V::factor(*row.get_unchecked(i));
                    *sum = from_fn(|n| sum[n].xor(data[n].mul(factor)));
                }
            }
            for (sum, dst) in sums.into_iter().zip(self.dsts) {
                store(sum, dst.add(at));
            }
        }
    }
}
