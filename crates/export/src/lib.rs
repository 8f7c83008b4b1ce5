//! NBD and FUSE front ends

pub mod nbd;
