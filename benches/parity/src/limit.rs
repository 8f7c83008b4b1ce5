//! What the machine allows: the loads and stores of a case, and next to nothing between them.
//!
//! Where blocks outgrow the first cache, the transfers between caches and memory take longer than
//! the arithmetic. Other turns of reading and writing can be a little faster than these.

use std::arch::x86_64::*;

use crate::arena::Stripe;

/// The widest transfers that this CPU has.
pub struct Limit {
    wide: bool,
}

/// Reads every source and writes as many outputs as asked, with vectors of `$bytes` bytes, 256
/// bytes of each block at a time.
macro_rules! transfer {
    ($name:ident, $feature:literal, $bytes:literal, $zero:ident, $load:ident, $xor:ident,
     $store:ident, $stream:ident) => {
        /// # Safety
        /// The CPU has the feature; blocks are multiples of 256 bytes at multiples of 64.
        #[target_feature(enable = $feature)]
        unsafe fn $name<const STREAM: bool>(stripe: &mut Stripe, outputs: usize) {
            let block = stripe.block;
            let (sources, mut written) = stripe.slices();
            for at in (0..block).step_by(256) {
                let mut sums = [$zero(); 256 / $bytes];
                for source in sources {
                    for (n, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: blocks are multiples of 256 bytes.
                        let vector = unsafe { $load(source.as_ptr().add(at + n * $bytes).cast()) };
                        *sum = $xor(*sum, vector);
                    }
                }
                for output in written.iter_mut().take(outputs) {
                    for (n, &sum) in sums.iter().enumerate() {
                        // SAFETY: as above, and nothing else holds the output.
                        unsafe {
                            let to = output.as_mut_ptr().add(at + n * $bytes).cast();
                            if STREAM { $stream(to, sum) } else { $store(to, sum) }
                        }
                    }
                }
            }
            if STREAM {
                _mm_sfence();
            }
        }
    };
}

transfer!(
    narrow,
    "avx2",
    32,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_xor_si256,
    _mm256_storeu_si256,
    _mm256_stream_si256
);
transfer!(
    wide,
    "avx512f",
    64,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_xor_si512,
    _mm512_storeu_si512,
    _mm512_stream_si512
);

impl Limit {
    /// # Panics
    /// If the CPU has not even AVX2.
    pub fn new() -> Limit {
        assert!(is_x86_feature_detected!("avx2"), "this bench needs a CPU with AVX2");
        Limit { wide: is_x86_feature_detected!("avx512f") }
    }

    /// Moves the bytes of a stripe.
    pub fn transfer(&self, stripe: &mut Stripe, outputs: usize, stream: bool) {
        // SAFETY: detected above; blocks are whole pages.
        unsafe {
            match (self.wide, stream) {
                (false, false) => narrow::<false>(stripe, outputs),
                (false, true) => narrow::<true>(stripe, outputs),
                (true, false) => wide::<false>(stripe, outputs),
                (true, true) => wide::<true>(stripe, outputs),
            }
        }
    }
}
