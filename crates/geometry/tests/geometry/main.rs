//! The geometry from outside, in one program, so that what tests need is linked once.

mod kernel_maps;
mod kernel_sizes;
mod maps;
mod sizes;
