//! `hdparm -t` 9.65: after a rest, reads from the beginning, one after the other, for a time or to the end.
//!
//! The rest gives disks time to end what they do. Its figure counts whole reads over the time that they took.

use crate::Nanos;

/// The phase's name.
pub const NAME: &str = "hdparm -t";
/// Bytes of a read.
pub const BLOCK: u64 = 2 << 20;
/// How long nothing is done before the first read.
pub const REST: Nanos = Nanos(3_000_000_000);
/// How long reads go on; the last one begins within it.
pub const LENGTH: Nanos = Nanos(3_000_000_000);
