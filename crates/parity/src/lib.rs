#![doc = include_str!("../README.md")]
//!
//! # Parts
//!
//! [`kernels`] gives the fastest set of routines for this CPU. [`recovery`] tells which linear
//! combination of surviving blocks restores the lost ones, so that every loss is one call.
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
