//! Plain Rust: words of eight bytes, and the single bytes that end a block on every CPU.

use crate::driver::Vector;
use crate::gf;

/// A byte, for the tails.
impl Vector for u8 {
    type Factor = u8;
    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the caller's.
        unsafe { *at }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: the caller's.
        unsafe { *at = self }
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        byte
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self ^ other
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        gf::double(self)
    }
    #[inline(always)]
    unsafe fn factor(coef: u8) -> u8 {
        coef
    }
    #[inline(always)]
    unsafe fn mul(self, factor: u8) -> Self {
        gf::mul(self, factor)
    }
}

/// Eight bytes in a word. Neighbouring words are turned into vectors by the compiler where the
/// target's baseline has any.
impl Vector for u64 {
    type Factor = u8;
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the caller's.
        unsafe { at.cast::<u64>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: the caller's.
        unsafe { at.cast::<u64>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Self::from_ne_bytes([byte; 8])
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self ^ other
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        const TOP: u64 = 0x8080_8080_8080_8080;
        let carry = (self & TOP) >> 7;
        // Each carry is 0 or 1 in its byte, so the product stays inside the byte.
        ((self & !TOP) << 1) ^ (carry * gf::REDUCTION as u64)
    }
    #[inline(always)]
    unsafe fn factor(coef: u8) -> u8 {
        coef
    }
    /// Shift and add: eight doublings, but no table look-up, so it is the same for all bytes.
    #[inline(always)]
    unsafe fn mul(self, factor: u8) -> Self {
        let mut sum = 0;
        for bit in (0..8).rev() {
            // SAFETY: words need no instructions beyond the baseline.
            sum = unsafe { Vector::double(sum) };
            sum ^= self & ((factor >> bit & 1) as u64).wrapping_neg();
        }
        sum
    }
}
