//! The front ends of an array: NBD and FUSE.

pub mod fuse;
pub mod nbd;
mod session;

pub use session::{NbdSession, Patience};
