//! NBD and FUSE front ends
