//! The loops over blocks, written once for every kind of vector.
//!
//! A [`Vector`] is a run of bytes with the few operations that parity needs. A [`Job`] computes its
//! outputs at one place; [`run`] takes it through all places: past the caches in bursts, as many vectors
//! at a time as the registers hold, then one at a time, then byte by byte.
//!
//! Everything here is `inline(always)`, so that it is compiled anew inside each set's
//! `#[target_feature]` functions with the instructions of that set. That is why vectors are gone
//! through by index: a closure that the compiler chooses not to inline has none of the set's
//! features, and costs a factor of ten.
//!
//! Every job takes its sources from the last to the first. The other way costs up to two thirds of
//! the speed on AMD's Zen 5 where blocks lie one behind the other, as stripes do (measured; perhaps
//! a prefetcher follows the step from block to block upwards, into the outputs).
#![expect(clippy::needless_range_loop, reason = "see above")]

use core::mem::MaybeUninit;

/// Blocks below are not stored past the caches: to ask where their sources are takes too large a part of their time.
const STREAM_BYTES_MIN: usize = 16 << 10;

/// A cache line, on nearly every CPU.
const LINE_BYTES: usize = 64;

/// How many bytes of one output go past the caches before it is the next one's turn, where a step makes less of each.
const BURST_BYTES: usize = 512;

/// A run of bytes, each an element of GF(2^8).
///
/// # Safety of all methods
/// The CPU has the instructions of the implementation; `at` is valid for `BYTES` bytes.
pub(crate) trait Vector: Copy {
    /// A coefficient, prepared for [`mul`](Self::mul).
    type Factor: Copy;
    /// Length in bytes.
    const BYTES: usize;
    /// What [`double`](Self::double) wants its operand XORed with: 0, or what makes it cheaper.
    const BIAS: u8 = 0;
    /// Whether [`mul`](Self::mul) costs more than some doublings.
    const MULTIPLIES_DEARLY: bool = true;
    /// Whether [`stream`](Self::stream) does what it says.
    const STREAMS: bool = false;
    /// How many sources to an output there must be for that to be faster also where the third level has
    /// what the second has no room for.
    const STREAM_SOURCES: usize = 1;
    /// Whether several outputs are gathered to bursts of [`BURST_BYTES`] before they go past the caches.
    const BURSTS: bool = false;
    /// How many bytes ahead outputs are asked for: a store waits for its line as a load does, but the hardware
    /// foresees it less well. (On Zen 5, P+Q of four blocks in the second level: 126 GB/s with 512 bytes, 140 with
    /// these.) Sources are left to the hardware, which finds them better by itself: asking for them 512 bytes ahead
    /// costs up to a third where they come from memory.
    const AHEAD_BYTES: usize = 1024;
    /// Whether the first of these bytes are asked for before the first step.
    const ASKS_FIRST: bool = false;
    /// Up to how many sources the hardware foresees the stores of a single output, so that asking for its lines costs
    /// more than it gains. (Zen 5, XOR of four in the second level: 155 GB/s when asked, 170 when not.)
    const FORESEEN: usize = 4;

    /// The size of a core's own cache.
    #[inline(always)]
    fn level2_bytes() -> usize {
        usize::MAX
    }

    unsafe fn load(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut u8);
    /// Stores past the caches; `at` is a multiple of `BYTES`. Ordered by [`fence`](Self::fence).
    #[inline(always)]
    unsafe fn stream(self, at: *mut u8) {
        // SAFETY: the caller's.
        unsafe { self.store(at) }
    }
    /// Orders all that was streamed before all that is stored from here on.
    #[inline(always)]
    unsafe fn fence() {}
    /// Asks for the line at `at`, to write it.
    #[inline(always)]
    unsafe fn prefetch(_at: *mut u8) {}
    /// Whether the byte at `at` comes from memory, not from a cache, as far as the CPU tells. The beginnings of `sources`
    /// are asked for meanwhile.
    #[inline(always)]
    unsafe fn is_far(_at: *const u8, _sources: &[&[u8]]) -> bool {
        false
    }
    /// The same byte everywhere.
    unsafe fn splat(byte: u8) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// `g * x ^ BIAS`, for `self` being `x ^ BIAS`.
    unsafe fn double(self) -> Self;
    unsafe fn factor(coef: u8) -> Self::Factor;
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// Work on blocks of one length that makes `R` outputs place by place.
pub(crate) trait Job<const R: usize> {
    fn outputs(&self) -> [*mut u8; R];
    /// At least one.
    fn sources(&self) -> &[&[u8]];
    /// Whether what the outputs hold is one more term.
    fn adds(&self) -> bool;
    /// The outputs at a place.
    ///
    /// # Safety
    /// As [`Vector`], with every block of the job valid for `N * V::BYTES` bytes from `at`.
    unsafe fn make<V: Vector, const N: usize>(&self, at: usize) -> [[V; N]; R];
}

/// Does `job` for all bytes from 0 to `len`.
///
/// # Safety
/// As [`Vector`]; every block of the job has `len` bytes.
#[inline(always)]
pub(crate) unsafe fn run<V: Vector, const N: usize, const R: usize>(job: &impl Job<R>, len: usize) {
    let mut at = 0;
    // SAFETY: each step ends at or before `len`.
    unsafe {
        if streams::<V, R>(job, len) {
            if V::BURSTS && R > 1 {
                at = bursts::<V, N, R>(job, len);
            }
            at = steps::<V, N, R, true>(job, at, len);
            V::fence();
        }
        at = steps::<V, N, R, false>(job, at, len);
        at = steps::<V, 1, R, false>(job, at, len);
        steps::<u8, 1, R, false>(job, at, len);
    }
}

/// Whether to store the outputs past the caches.
///
/// Then a line of output costs one transfer instead of two (it is not read before it is overwritten): with sources from
/// memory that is up to 1.3 times faster (Zen 3). In the caches it takes up to twice the time, and whoever takes the
/// output from there, to write it to its member, is faster too. So a source is asked where it is.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn streams<V: Vector, const R: usize>(job: &impl Job<R>, len: usize) -> bool {
    let sources = job.sources();
    let aligned = job.outputs().iter().all(|o| o.addr().is_multiple_of(V::BYTES));
    if !V::STREAMS || !aligned || job.adds() || len < STREAM_BYTES_MIN {
        return false;
    }
    if sources.len() >= V::STREAM_SOURCES * R && (sources.len() + R) * len >= V::level2_bytes() {
        return true;
    }
    // SAFETY: the caller's; the place is inside a block, of which there is at least one.
    unsafe {
        let middle = sources.get_unchecked(sources.len() / 2).as_ptr().add(len / 2);
        V::is_far(middle, sources)
    }
}

/// As many steps as fit between `at` and `len`; gives the place where they end.
///
/// # Safety
/// As [`run`]; with `STREAM` the outputs are aligned to `V::BYTES`, and `at` is a multiple of it.
#[inline(always)]
unsafe fn steps<V: Vector, const N: usize, const R: usize, const STREAM: bool>(
    job: &impl Job<R>,
    mut at: usize,
    len: usize,
) -> usize {
    let step = N * V::BYTES;
    let asks = !STREAM && (R > 1 || job.sources().len() > V::FORESEEN);
    if asks && V::ASKS_FIRST && N > 1 {
        for output in job.outputs() {
            for ahead in (at..len.min(at + V::AHEAD_BYTES)).step_by(LINE_BYTES) {
                // SAFETY: the place is before `len`.
                unsafe { V::prefetch(output.add(ahead)) };
            }
        }
    }
    while len - at >= step {
        // No further than the last step: memory behind the blocks is none of our business.
        let ahead = (at + V::AHEAD_BYTES).min(len - step);
        // SAFETY: the step ends at or before `len`.
        unsafe {
            let made = job.make::<V, N>(at);
            for r in 0..R {
                let (vectors, output) = (made[r], job.outputs()[r]);
                if asks {
                    for offset in (0..step).step_by(LINE_BYTES) {
                        V::prefetch(output.add(ahead + offset));
                    }
                }
                for n in 0..N {
                    let to = output.add(at + n * V::BYTES);
                    if STREAM { vectors[n].stream(to) } else { vectors[n].store(to) }
                }
            }
        }
        at += step;
    }
    at
}

/// As many bursts as fit into `len`, past the caches; gives the place where they end.
///
/// # Safety
/// As [`steps`] with `STREAM`.
#[inline(always)]
unsafe fn bursts<V: Vector, const N: usize, const R: usize>(
    job: &impl Job<R>,
    len: usize,
) -> usize {
    const { assert!(BURST_BYTES.is_multiple_of(N * V::BYTES)) }
    let mut at = 0;
    let mut gathered = [const { Burst([MaybeUninit::uninit(); BURST_BYTES]) }; R];
    while len - at >= BURST_BYTES {
        // SAFETY: the burst ends at or before `len`, and steps divide it; every byte of it is made before it is read.
        // What is a multiple of a burst is one of a vector.
        unsafe {
            for offset in (0..BURST_BYTES).step_by(N * V::BYTES) {
                let made = job.make::<V, N>(at + offset);
                for r in 0..R {
                    for n in 0..N {
                        made[r][n]
                            .store(gathered[r].0.as_mut_ptr().add(offset + n * V::BYTES).cast());
                    }
                }
            }
            for r in 0..R {
                let output = job.outputs()[r].add(at);
                for offset in (0..BURST_BYTES).step_by(V::BYTES) {
                    V::load(gathered[r].0.as_ptr().add(offset).cast()).stream(output.add(offset));
                }
            }
        }
        at += BURST_BYTES;
    }
    at
}

/// Outputs on their way past the caches, in the first level.
#[repr(align(64))]
struct Burst([MaybeUninit<u8>; BURST_BYTES]);

/// N neighbouring vectors of a block.
///
/// # Safety
/// As [`Job::make`].
#[inline(always)]
pub(crate) unsafe fn load<V: Vector, const N: usize>(block: *const u8, at: usize) -> [V; N] {
    // SAFETY: the caller's.
    unsafe {
        let mut vectors = [V::splat(0); N];
        for n in 0..N {
            vectors[n] = V::load(block.add(at + n * V::BYTES));
        }
        vectors
    }
}

/// `sum ^= data`.
///
/// # Safety
/// As [`Vector`].
#[inline(always)]
pub(crate) unsafe fn xor<V: Vector, const N: usize>(sum: &mut [V; N], data: &[V; N]) {
    for n in 0..N {
        // SAFETY: the caller's.
        sum[n] = unsafe { sum[n].xor(data[n]) };
    }
}

/// `sum ^= coef * data`.
///
/// # Safety
/// As [`Vector`].
#[inline(always)]
pub(crate) unsafe fn mul_add<V: Vector, const N: usize>(sum: &mut [V; N], coef: u8, data: &[V; N]) {
    // SAFETY: the caller's.
    unsafe {
        let factor = V::factor(coef);
        for n in 0..N {
            sum[n] = sum[n].xor(data[n].mul(factor));
        }
    }
}

/// `dst (^)= xor of srcs`.
pub(crate) struct Xor<'a> {
    pub dst: *mut u8,
    /// At least one.
    pub srcs: &'a [&'a [u8]],
    pub add: bool,
}

impl Job<1> for Xor<'_> {
    #[inline(always)]
    fn outputs(&self) -> [*mut u8; 1] {
        [self.dst]
    }
    #[inline(always)]
    fn sources(&self) -> &[&[u8]] {
        self.srcs
    }
    #[inline(always)]
    fn adds(&self) -> bool {
        self.add
    }
    #[inline(always)]
    unsafe fn make<V: Vector, const N: usize>(&self, at: usize) -> [[V; N]; 1] {
        // SAFETY: the caller's, for each block.
        unsafe {
            let (last, rest) = self.srcs.split_last().unwrap_unchecked();
            let mut sum = load::<V, N>(last.as_ptr(), at);
            for src in rest.iter().rev() {
                let data = load::<V, N>(src.as_ptr(), at);
                xor(&mut sum, &data);
            }
            if self.add {
                let old = load::<V, N>(self.dst, at);
                xor(&mut sum, &old);
            }
            [sum]
        }
    }
}

/// `p = xor of data`, `q = sum of g^i data[i]`.
pub(crate) struct Pq<'a> {
    pub p: *mut u8,
    pub q: *mut u8,
    /// At least one.
    pub data: &'a [&'a [u8]],
}

impl Job<2> for Pq<'_> {
    #[inline(always)]
    fn outputs(&self) -> [*mut u8; 2] {
        [self.p, self.q]
    }
    #[inline(always)]
    fn sources(&self) -> &[&[u8]] {
        self.data
    }
    #[inline(always)]
    fn adds(&self) -> bool {
        false
    }
    /// By Horner's rule, from the last block to the first: doubling is cheaper than a general
    /// product, or needs no table.
    #[inline(always)]
    unsafe fn make<V: Vector, const N: usize>(&self, at: usize) -> [[V; N]; 2] {
        // SAFETY: the caller's, for each block.
        unsafe {
            let (last, rest) = self.data.split_last().unwrap_unchecked();
            let mut p = load::<V, N>(last.as_ptr(), at);
            let bias = [V::splat(V::BIAS); N];
            let mut q = p;
            xor(&mut q, &bias);
            for src in rest.iter().rev() {
                let data = load::<V, N>(src.as_ptr(), at);
                for n in 0..N {
                    q[n] = q[n].double().xor(data[n]);
                }
                xor(&mut p, &data);
            }
            xor(&mut q, &bias);
            [p, q]
        }
    }
}

/// `dst (^)= sum of coefs[i] * srcs[i]`.
pub(crate) struct Mul<'a> {
    pub dst: *mut u8,
    /// As long as `srcs`.
    pub coefs: &'a [u8],
    pub srcs: &'a [&'a [u8]],
    pub add: bool,
}

impl Job<1> for Mul<'_> {
    #[inline(always)]
    fn outputs(&self) -> [*mut u8; 1] {
        [self.dst]
    }
    #[inline(always)]
    fn sources(&self) -> &[&[u8]] {
        self.srcs
    }
    #[inline(always)]
    fn adds(&self) -> bool {
        self.add
    }
    #[inline(always)]
    unsafe fn make<V: Vector, const N: usize>(&self, at: usize) -> [[V; N]; 1] {
        // SAFETY: the caller's, for each block; there is a coefficient for each source.
        unsafe {
            let mut sum = if self.add { load(self.dst, at) } else { [V::splat(0); N] };
            for (i, src) in self.srcs.iter().enumerate().rev() {
                let data = load::<V, N>(src.as_ptr(), at);
                mul_add(&mut sum, *self.coefs.get_unchecked(i), &data);
            }
            [sum]
        }
    }
}

/// Two combinations for little more than the price of one: `product = sum of coefs[i] * srcs[i]`,
/// `sum = xor of the first srcs`.
pub(crate) struct Pair<'a> {
    pub product: *mut u8,
    pub sum: *mut u8,
    /// As long as `srcs`.
    pub coefs: &'a [u8],
    pub srcs: &'a [&'a [u8]],
    /// How many sources, from the first one on, are terms of `sum`.
    pub terms: usize,
    /// Whether `product` is one more term of `sum`.
    pub chained: bool,
}

impl Job<2> for Pair<'_> {
    #[inline(always)]
    fn outputs(&self) -> [*mut u8; 2] {
        [self.product, self.sum]
    }
    #[inline(always)]
    fn sources(&self) -> &[&[u8]] {
        self.srcs
    }
    #[inline(always)]
    fn adds(&self) -> bool {
        false
    }
    #[inline(always)]
    unsafe fn make<V: Vector, const N: usize>(&self, at: usize) -> [[V; N]; 2] {
        // SAFETY: the caller's, for each block; there is a coefficient for each source.
        unsafe {
            let [mut product, mut sum] = [[V::splat(0); N]; 2];
            let (terms, rest) = self.srcs.split_at_unchecked(self.terms);
            for (i, src) in rest.iter().enumerate().rev() {
                let data = load::<V, N>(src.as_ptr(), at);
                mul_add(&mut product, *self.coefs.get_unchecked(terms.len() + i), &data);
            }
            for (i, src) in terms.iter().enumerate().rev() {
                let data = load::<V, N>(src.as_ptr(), at);
                mul_add(&mut product, *self.coefs.get_unchecked(i), &data);
                xor(&mut sum, &data);
            }
            if self.chained {
                xor(&mut sum, &product);
            }
            [product, sum]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::{vec, vec::Vec};

    use super::*;
    use crate::{gf, reference};

    std::thread_local! {
        static IS_FAR: Cell<bool> = const { Cell::new(false) };
        static STREAMED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    /// Plain bytes, which tell where they went.
    #[derive(Clone, Copy)]
    struct Told([u8; 32]);

    impl Vector for Told {
        type Factor = u8;
        const BYTES: usize = 32;
        const STREAMS: bool = true;
        const BURSTS: bool = true;
        const AHEAD_BYTES: usize = 384;
        const ASKS_FIRST: bool = true;

        unsafe fn load(at: *const u8) -> Self {
            // SAFETY: the caller's.
            Told(unsafe { at.cast::<[u8; 32]>().read_unaligned() })
        }
        unsafe fn store(self, at: *mut u8) {
            // SAFETY: the caller's.
            unsafe { at.cast::<[u8; 32]>().write_unaligned(self.0) }
        }
        unsafe fn stream(self, at: *mut u8) {
            assert!(at.addr().is_multiple_of(Self::BYTES));
            STREAMED.with_borrow_mut(|streamed| streamed.push(at.addr()));
            // SAFETY: the caller's.
            unsafe { self.store(at) }
        }
        unsafe fn prefetch(at: *mut u8) {
            ASKED.with_borrow_mut(|asked| asked.push(at.addr()));
        }
        unsafe fn is_far(_at: *const u8, _sources: &[&[u8]]) -> bool {
            IS_FAR.get()
        }
        unsafe fn splat(byte: u8) -> Self {
            Told([byte; 32])
        }
        unsafe fn xor(self, other: Self) -> Self {
            Told(core::array::from_fn(|n| self.0[n] ^ other.0[n]))
        }
        unsafe fn double(self) -> Self {
            Told(self.0.map(gf::double))
        }
        unsafe fn factor(coef: u8) -> u8 {
            coef
        }
        unsafe fn mul(self, factor: u8) -> Self {
            Told(self.0.map(|byte| gf::mul(byte, factor)))
        }
    }

    /// P and Q of three blocks, made where they are `misaligned` by so many bytes; gives the addresses of both.
    fn pq(len: usize, misaligned: usize) -> [usize; 2] {
        let blocks: Vec<Vec<u8>> =
            (1..4).map(|i| (0..len).map(|n| (n * i / 7) as u8).collect()).collect();
        let data: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let mut memory = [vec![0; len + 64], vec![0; len + 64]];
        let [p, q] = memory.each_mut().map(|memory| {
            let from = memory.as_ptr().align_offset(32) + misaligned;
            &mut memory[from..][..len]
        });
        let job = Pq { p: p.as_mut_ptr(), q: q.as_mut_ptr(), data: &data };
        // SAFETY: all are of this length.
        unsafe { run::<Told, 4, 2>(&job, len) };
        let [mut want_p, mut want_q] = [vec![0; len], vec![0; len]];
        reference::combine(&mut want_p, |_| 1, &data, false);
        reference::combine(&mut want_q, |i| gf::exp(i as u8), &data, false);
        assert!(*p == want_p && *q == want_q, "{len} bytes, misaligned by {misaligned}");
        [p.as_ptr().addr(), q.as_ptr().addr()]
    }

    #[test]
    fn what_is_far_goes_past_the_caches_in_bursts_of_each_output() {
        IS_FAR.set(true);
        for more in [0, 1, 511, 512, 640, 1023] {
            let len = STREAM_BYTES_MIN + more;
            let outputs = pq(len, 0);
            let bursts = len / BURST_BYTES * BURST_BYTES;
            let vectors = |from: usize, len: usize| (from..from + len).step_by(32);
            let turns = |part: core::ops::Range<usize>, turn: usize| {
                part.step_by(turn)
                    .flat_map(move |at| outputs.map(|o| vectors(o + at, turn)))
                    .flatten()
            };
            let steps = len / 128 * 128;
            let want: Vec<usize> =
                turns(0..bursts, BURST_BYTES).chain(turns(bursts..steps, 128)).collect();
            assert_eq!(STREAMED.take(), want, "{len} bytes");
        }
    }

    #[test]
    fn what_is_near_short_or_misaligned_goes_into_the_caches() {
        for (is_far, len, misaligned) in [
            (false, STREAM_BYTES_MIN, 0),
            (true, STREAM_BYTES_MIN - 1, 0),
            (true, STREAM_BYTES_MIN, 1),
        ] {
            IS_FAR.set(is_far);
            pq(len, misaligned);
            assert!(STREAMED.take().is_empty(), "{len} bytes, misaligned by {misaligned}");
        }
    }

    #[test]
    fn every_line_of_an_output_is_asked_for_and_nothing_beyond() {
        for len in [0, 1, 127, 128, 383, 384, 4096, 5001] {
            let outputs = pq(len, 0);
            let mut asked = ASKED.take();
            asked.sort_unstable();
            asked.dedup();
            let lines = |from: usize| (from..from + len / 128 * 128).step_by(LINE_BYTES);
            let mut least: Vec<usize> = outputs.into_iter().flat_map(lines).collect();
            least.retain(|line| !asked.contains(line));
            assert_eq!(least, [], "{len} bytes: not asked for");
            asked.retain(|at| !outputs.iter().any(|o| (*o..o + len).contains(at)));
            assert_eq!(asked, [], "{len} bytes: beyond");
        }
    }
}
