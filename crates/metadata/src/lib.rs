#![doc = include_str!("../README.md")]
//!
//! # Invariant
//!
//! Any bytes give a value or a typed error, and a value that was given encodes to bytes that
//! parse to it again (but for a checksum of 0.90 that was stored folded).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod assemble;
pub mod backup;
pub mod badblocks;
pub mod bitmap;
pub(crate) mod crc32c;
pub mod create;
pub mod detect;
mod error;
pub mod firmware;
pub mod journal;
pub mod ppl;
mod reshape;
mod resize;
mod role;
mod superblock;
mod unsupported;
pub mod update;
pub mod v090;
pub mod v1;
mod wire;

pub use error::SuperblockError;
pub use lapstrake_geometry::Version;
pub use reshape::{NotReverted, Reshape, ReshapeRecord};
pub use role::{Device, Role};
pub use superblock::{MAGIC, Superblock, read_at, uuid_text};
pub use unsupported::{LOGICAL_BLOCK_MAX, Unsupported};
pub use wire::ByteOrder;
