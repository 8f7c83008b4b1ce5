#![doc = include_str!("../README.md")]
//!
//! # Parts
//!
//! [`Geometry`] is the checked geometry of one array: the map from array addresses to members
//! ([`Geometry::map`] and [`Parity`]'s functions), the map back ([`Geometry::content`]) and the
//! array's size. The maps allocate nothing (a run with more than four copies excepted) and take a
//! division or two. [`size`] derives sizes and offsets from the size of a device, as mdadm does when
//! it makes an array.
//!
//! Member addresses are relative to the member's data offset everywhere. There is no I/O here, and
//! no state: which members are there, and how far a recovery has come, is for the engine to know.
//!
//! The address rules are those of Linux 6.1's md, checked byte by byte against the kernel
//! (`tests/vectors`). Words are used as in md(4) and the kernel's `Documentation/admin-guide/md.rst`.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod divide;
mod error;
mod geometry;
mod layout;
mod level;
mod linear;
mod mirror;
mod parity;
mod parity_layout;
mod raid0;
mod raid10;
mod row;
mod run;
pub mod size;
mod stripe;
mod units;
mod version;

pub use config::{Config, MIN_CHUNK};
pub use error::GeometryError;
pub use geometry::Geometry;
pub use layout::{FarSets, Layout, Raid0Layout, Raid10Layout};
pub use level::Level;
pub use linear::Linear;
pub use mirror::Mirror;
pub use parity::Parity;
pub use parity_layout::ParityLayout;
pub use raid0::Raid0;
pub use raid10::Raid10;
pub use row::{read_ahead, row_chunks};
pub use run::{Content, Home, Run};
pub use stripe::{StripeRole, StripeSlots};
pub use units::{MAX_SECTORS, SECTOR_BYTES, Sector, Sectors, Slot, StripeNo};
pub use version::Version;
