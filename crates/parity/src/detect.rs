//! Which sets this CPU, and the system that it runs, can use, how large its caches are, and whether
//! its clock can tell a cache from memory.
//!
//! Asked of the CPU itself, since `std` and its feature detection are not at hand here.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use core::sync::atomic::{AtomicUsize, Ordering};

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

/// The size of a core's own cache, which is its second level; a guess where the CPU does not tell.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
pub(crate) fn level2_bytes() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);

    once(&BYTES, || x86::level2_bytes().unwrap_or(1 << 20))
}

/// From how many ticks on a byte came from memory: four times what one takes from the first level, with what it takes to
/// tell (Zen 3 at 2.4 GHz: 50; from the third level up to 120, from memory 300 and more). None where the counter takes too
/// long to read, as in virtual machines that ask their host.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
pub(crate) fn far_ticks() -> Option<u64> {
    static TICKS: AtomicUsize = AtomicUsize::new(0);
    const LEAST_MAX: u64 = 150;
    const NONE: usize = usize::MAX;

    let find = || {
        let least = x86::least_ticks();
        if least > LEAST_MAX { NONE } else { 4 * least.max(1) as usize }
    };
    let ticks = once(&TICKS, find);
    (ticks != NONE).then_some(ticks as u64)
}

/// What `find` finds, which is never 0, kept in `known`. Every thread finds about the same; only speed depends on it.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
fn once(known: &AtomicUsize, find: impl FnOnce() -> usize) -> usize {
    match known.load(Ordering::Relaxed) {
        0 => {
            let found = find();
            known.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86 {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    use crate::x86::ticks_to_read;

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

    /// The ticks that reading a byte takes at the least, which is then in the first level.
    #[cold]
    pub(super) fn least_ticks() -> u64 {
        let byte = 0;
        // SAFETY: `byte` lives in this frame.
        let ticks = (0..16).map(|_| unsafe { ticks_to_read(&raw const byte) });
        ticks.min().unwrap_or(u64::MAX)
    }

    /// The size of the second-level cache, if the CPU tells (AMD's manual, volume 3, CPUID
    /// Fn8000_0006_ECX; Intel's has the same leaf).
    #[cold]
    pub(super) fn level2_bytes() -> Option<usize> {
        const LEAF: u32 = 0x8000_0006;
        if __cpuid(0x8000_0000).eax < LEAF {
            return None;
        }
        let kib = __cpuid(LEAF).ecx >> 16;
        (kib > 0).then_some(kib as usize * 1024)
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
