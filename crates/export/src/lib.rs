//! The front ends of an array: NBD, FUSE, vhost-user and ublk; and a gateway to the NBD of many.

// They panic when nobody can take what they print.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod fuse;
pub mod gateway;
mod mapping;
pub mod nbd;
mod session;
pub mod tcp;
pub mod tls;
pub mod ublk;
pub mod vhost_user;

pub use session::{NbdSession, Patience};
