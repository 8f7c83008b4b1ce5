//! Which sets this CPU, and the system that it runs, can use.
//!
//! Asked of the CPU itself, since `std` and its feature detection are not at hand here.

use crate::kernels::Kernels;
use crate::sets;

/// A set, and whether this CPU has what it takes.
pub(crate) struct Candidate {
    pub set: &'static Kernels,
    pub usable: fn() -> bool,
}

/// All sets there are for this architecture, best first.
pub(crate) static CANDIDATES: &[Candidate] = &[
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Candidate { set: &sets::avx512_gfni::SET, usable: x86::avx512_gfni },
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Candidate { set: &sets::avx2::SET, usable: x86::avx2 },
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    Candidate { set: &sets::neon::SET, usable: || true },
    Candidate { set: &sets::portable::SET, usable: || true },
];

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86 {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    // Bits of XCR0: the registers that the operating system saves (Intel SDM, volume 1, 13.3).
    const SSE_AVX: u64 = 0b110;
    const OPMASK_ZMM: u64 = 0b1110_0000;

    // Bits of CPUID leaf 1, ECX, and leaf 7, EBX and ECX (Intel SDM, volume 2, CPUID).
    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;
    const AVX512F: u32 = 1 << 16;
    const AVX512BW: u32 = 1 << 30;
    const GFNI: u32 = 1 << 8;

    pub(super) fn avx2() -> bool {
        let (ebx, _, saved) = leaf7();
        saved & SSE_AVX == SSE_AVX && ebx & AVX2 != 0
    }

    pub(super) fn avx512_gfni() -> bool {
        const EBX: u32 = AVX512F | AVX512BW;
        let (ebx, ecx, saved) = leaf7();
        avx2() && saved & OPMASK_ZMM == OPMASK_ZMM && ebx & EBX == EBX && ecx & GFNI != 0
    }

    /// EBX and ECX of CPUID leaf 7, and XCR0; all 0 where AVX is missing or switched off.
    fn leaf7() -> (u32, u32, u64) {
        if __cpuid(0).eax < 7 {
            return (0, 0, 0);
        }
        if __cpuid(1).ecx & (OSXSAVE | AVX) != OSXSAVE | AVX {
            return (0, 0, 0);
        }
        let leaf = __cpuid_count(7, 0);
        (leaf.ebx, leaf.ecx, xcr0())
    }

    fn xcr0() -> u64 {
        #[target_feature(enable = "xsave")]
        fn read() -> u64 {
            // SAFETY: XGETBV of register 0 is defined wherever OSXSAVE is set.
            unsafe { _xgetbv(0) }
        }
        // SAFETY: `leaf7` has seen OSXSAVE.
        unsafe { read() }
    }
}
