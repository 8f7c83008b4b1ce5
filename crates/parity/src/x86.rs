//! AVX2 and AVX-512 with GFNI.
//!
//! Each method is a few instructions under the contract of [`Vector`]: the CPU has them, and the
//! addresses are valid.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of `Vector` is that of every line here")]

use core::arch::{asm, x86_64::*};

use crate::detect;
use crate::driver::Vector;
use crate::gf;
use crate::tables::{AFFINE, NIBBLES};

/// How long reading the byte at `at` takes, in ticks of the time-stamp counter, with what it takes to tell.
///
/// # Safety
/// `at` is valid for a byte.
#[inline(always)]
pub(crate) unsafe fn ticks_to_read(at: *const u8) -> u64 {
    _mm_lfence();
    let from = _rdtsc();
    _mm_lfence();
    at.read_volatile();
    _mm_lfence();
    _rdtsc().wrapping_sub(from)
}

/// What is the same whatever the width.
macro_rules! caches {
    () => {
        #[inline(always)]
        fn level2_bytes() -> usize {
            detect::level2_bytes()
        }
        #[inline(always)]
        unsafe fn fence() {
            _mm_sfence()
        }
        /// Every CPU with AVX2 knows the instruction or passes over it. (The intrinsic is compiled to a read's.)
        #[inline(always)]
        unsafe fn prefetch(at: *mut u8) {
            asm!("prefetchw [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
        }
        #[inline(always)]
        unsafe fn is_far(at: *const u8, sources: &[&[u8]]) -> bool {
            let Some(far) = detect::far_ticks() else { return false };
            // What comes first comes while the answer is awaited.
            for i in (0..sources.len()).rev() {
                _mm_prefetch::<_MM_HINT_T0>(sources.get_unchecked(i).as_ptr().cast());
            }
            ticks_to_read(at) >= far
        }
    };
}

/// 64 bytes; needs AVX-512 F and BW, and GFNI.
#[derive(Clone, Copy)]
pub(crate) struct Zmm(__m512i);

impl Vector for Zmm {
    /// The product with a constant is linear in the bits, so it is a bit matrix: GFNI's affine
    /// instruction applies it whatever the polynomial (its multiplication knows only 0x11b).
    type Factor = __m512i;
    const BYTES: usize = 64;
    const MULTIPLIES_DEARLY: bool = false;
    const STREAMS: bool = true;

    caches!();
    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        Zmm(_mm512_loadu_si512(at.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        _mm512_storeu_si512(at.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn stream(self, at: *mut u8) {
        _mm512_stream_si512(at.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Zmm(_mm512_set1_epi8(byte as i8))
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Zmm(_mm512_xor_si512(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        self.mul(Self::factor(2))
    }
    #[inline(always)]
    unsafe fn factor(coef: u8) -> __m512i {
        _mm512_set1_epi64(AFFINE[coef as usize] as i64)
    }
    #[inline(always)]
    unsafe fn mul(self, factor: __m512i) -> Self {
        Zmm(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor))
    }
}

/// 32 bytes; needs AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Ymm(__m256i);

impl Vector for Ymm {
    /// The products with the 16 low and the 16 high nibbles, in both halves.
    type Factor = (__m256i, __m256i);
    const BYTES: usize = 32;
    const BIAS: u8 = gf::div(gf::REDUCTION, 3);
    const STREAMS: bool = true;
    /// Zen 3: memory takes 16 GB/s of outputs, so P+Q of four from the third level has 30 GB/s past the
    /// caches and 48 into them; XOR of eight gains a twentieth. (Of 16 and 20, P+Q and recovery are as fast either way.)
    const STREAM_SOURCES: usize = 8;
    /// Zen 3, recovery of two of four blocks of 64 KiB from memory, beside ISA-L: 0.89 to 1.05 with the 128 bytes that
    /// a step makes of each, 1.13 to 1.25 with bursts of 512, 1.09 to 1.12 with 2,048, 1.07 to 1.14 into the caches.
    const BURSTS: bool = true;
    /// Zen 3, P+Q of four blocks of 4 KiB from memory, beside ISA-L: 0.92 with 1,024, 0.98 with 512, 1.02 with these
    /// and the first asked for before; 4 KiB in the first level 1.8 before, 2.0 to 3.1 after.
    const AHEAD_BYTES: usize = 384;
    const ASKS_FIRST: bool = true;
    /// Zen 3, XOR of ten in the second level: 60 GB/s when asked, 66 when not.
    const FORESEEN: usize = usize::MAX;

    caches!();

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        Ymm(_mm256_loadu_si256(at.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        _mm256_storeu_si256(at.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn stream(self, at: *mut u8) {
        _mm256_stream_si256(at.cast(), self.0)
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Ymm(_mm256_set1_epi8(byte as i8))
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Ymm(_mm256_xor_si256(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // A shuffle gives 0 where the top bit is set and else an entry of its table: 0x1d where
        // there is nothing to reduce, 0 where there is. That is one instruction less than making
        // a mask, and wrong by 0x1d everywhere, which the bias takes back: it is the c with
        // g * c ^ 0x1d = c.
        let unless_carry = _mm256_shuffle_epi8(_mm256_set1_epi8(gf::REDUCTION as i8), self.0);
        Ymm(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), unless_carry))
    }
    #[inline(always)]
    unsafe fn factor(coef: u8) -> (__m256i, __m256i) {
        let [low, high] = &NIBBLES[coef as usize];
        (
            _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
            _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
        )
    }
    #[inline(always)]
    unsafe fn mul(self, (low, high): (__m256i, __m256i)) -> Self {
        let mask = _mm256_set1_epi8(0x0f);
        let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, mask));
        let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask);
        Ymm(_mm256_xor_si256(low, _mm256_shuffle_epi8(high, upper)))
    }
}
