//! The metadata from outside, in one program, so that what tests need is linked once.

mod assemble;
mod create_equals_mdadm;
mod create_requests;
mod detect;
mod kernel_takes_new_arrays;
mod superblocks;
