//! NEON, which every 64-bit Arm CPU has.
//!
//! Each method is a few instructions under the contract of [`Vector`]: the CPU has them, and the
//! addresses are valid.
#![expect(unsafe_op_in_unsafe_fn, reason = "the contract of `Vector` is that of every line here")]

use core::arch::aarch64::*;
use core::arch::asm;

use crate::driver::Vector;
use crate::gf;
use crate::tables::NIBBLES;

/// 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Neon(uint8x16_t);

impl Vector for Neon {
    /// The products with the low and with the high nibbles.
    type Factor = (uint8x16_t, uint8x16_t);
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        Neon(vld1q_u8(at))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        vst1q_u8(at, self.0)
    }
    #[inline(always)]
    unsafe fn prefetch(at: *mut u8) {
        // SAFETY: a prefetch touches nothing; there is no stable intrinsic for it.
        unsafe {
            asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
        }
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Neon(vdupq_n_u8(byte))
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Neon(veorq_u8(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        let carry = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(self.0)));
        let reduce = vandq_u8(carry, vdupq_n_u8(gf::REDUCTION));
        Neon(veorq_u8(vshlq_n_u8::<1>(self.0), reduce))
    }
    #[inline(always)]
    unsafe fn factor(coef: u8) -> (uint8x16_t, uint8x16_t) {
        let [low, high] = &NIBBLES[coef as usize];
        (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr()))
    }
    #[inline(always)]
    unsafe fn mul(self, (low, high): (uint8x16_t, uint8x16_t)) -> Self {
        let low = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
        Neon(veorq_u8(low, vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0))))
    }
}
