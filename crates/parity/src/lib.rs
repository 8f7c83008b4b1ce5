//! XOR and P+Q parity kernels, chosen at run time.
//!
//! P is the XOR of a stripe's data blocks; Q is the sum of `g^e * D_e` over GF(2^8) with the
//! polynomial 0x11d and g = 2, as md defines it. The exponent `e` of a data block is its place in
//! the stripe, counted from 0; the DDF layouts leave holes in that count.
//!
//! [`kernels`] gives the fastest set of routines for this CPU. [`recovery`] tells which linear
//! combination of surviving blocks restores the lost ones, so that every loss is one call.
//!
//! ```
//! use lapstrake_parity::{kernels, recovery};
//!
//! let data = [[1_u8; 512], [2; 512], [3; 512]];
//! let (mut p, mut q) = ([0; 512], [0; 512]);
//! kernels().pq(&mut p, &mut q, &[&data[0], &data[1], &data[2]]);
//!
//! // Blocks 0 and 2 are lost.
//! let (mut row_0, mut row_2) = ([0; 3], [0; 3]);
//! recovery::recover_two_data(&[0, 1, 2], 0, 2, &mut row_0, &mut row_2);
//! let (mut block_0, mut block_2) = ([0; 512], [0; 512]);
//! let survivors: [&[u8]; 3] = [&data[1], &p, &q];
//! kernels().mul(&mut [&mut block_0, &mut block_2], &[&row_0, &row_2], &survivors);
//! assert_eq!([block_0, block_2], [data[0], data[2]]);
//! ```
//!
//! Invariants: each set computes the same bytes as the scalar reference, for every length and
//! alignment; nothing here allocates, blocks, or knows what a stripe is.
#![no_std]

#[cfg(test)]
extern crate std;

mod check;
mod detect;
mod driver;
pub mod gf;
mod kernels;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod portable;
mod powers;
pub mod recovery;
mod reference;
mod sets;
mod tables;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

pub use kernels::{Kernels, kernels};
