//! The sets themselves: the loops of [`driver`](crate::driver) compiled for each kind of CPU.

use crate::driver::{Mul, Pair, Pq, Vector, Xor, run};
use crate::kernels::{Combination, Kernels};
use crate::powers::{PairByPowers, Powers};

/// Makes a module with one set: `VECTOR` in the loops, so many vectors at a time for XOR, for P+Q
/// and for products, with the target features that the vector needs.
macro_rules! set {
    ($module:ident, $name:literal, $vector:ty, xor $x:literal, pq $pq:literal, mul $m:literal
     $(, $feature:literal)*) => {
        pub(crate) mod $module {
            use super::*;

            /// # Safety (here and below)
            /// The CPU has the set's features, and all blocks are of one length.
            $(#[target_feature(enable = $feature)])*
            unsafe fn xor(dst: &mut [u8], srcs: &[&[u8]], add: bool) {
                let len = dst.len();
                // SAFETY: the caller's.
                unsafe { run::<$vector, $x, _>(&Xor { dst: dst.as_mut_ptr(), srcs, add }, len) }
            }

            $(#[target_feature(enable = $feature)])*
            unsafe fn pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
                let len = p.len();
                let job = Pq { p: p.as_mut_ptr(), q: q.as_mut_ptr(), data };
                // SAFETY: the caller's.
                unsafe { run::<$vector, $pq, _>(&job, len) }
            }

            $(#[target_feature(enable = $feature)])*
            unsafe fn mul(dst: &mut [u8], coefs: &[u8], srcs: &[&[u8]], add: bool) {
                let len = dst.len();
                let job = Mul { dst: dst.as_mut_ptr(), coefs, srcs, add };
                // SAFETY: the caller's.
                unsafe { run::<$vector, $m, _>(&job, len) }
            }

            $(#[target_feature(enable = $feature)])*
            unsafe fn pair([product, sum]: [&mut [u8]; 2], how: &Combination, srcs: &[&[u8]]) {
                let len = sum.len();
                let (product, sum) = (product.as_mut_ptr(), sum.as_mut_ptr());
                let &Combination { coefs, terms, chained } = how;
                let pair = Pair { product, sum, coefs, srcs, terms, chained };
                let dear = <$vector as Vector>::MULTIPLIES_DEARLY;
                match dear.then(|| Powers::of(&pair)).flatten() {
                    // SAFETY: the caller's.
                    Some(powers) => unsafe {
                        run::<$vector, $m, _>(&PairByPowers { pair, powers }, len)
                    },
                    // SAFETY: the caller's.
                    None => unsafe { run::<$vector, $m, _>(&pair, len) },
                }
            }

            pub(crate) static SET: Kernels = Kernels { name: $name, xor, pq, mul, pair };
        }
    };
}

set!(portable, "portable", u64, xor 8, pq 4, mul 4);

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
set!(avx512_gfni, "avx512-gfni", crate::x86::Zmm, xor 4, pq 4, mul 4,
     "avx512f", "avx512bw", "gfni");

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
set!(avx2, "avx2", crate::x86::Ymm, xor 4, pq 4, mul 4, "avx2");

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
set!(neon, "neon", crate::neon::Neon, xor 8, pq 4, mul 4);
