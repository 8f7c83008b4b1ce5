//! All that decides above one shard of an array, and nothing that does: which shard owns which sectors
//! ([`SpanMap`]), what shards ask of each other ([`Router`]), what concerns all of them ([`Coordinator`]), what is
//! believed, refused and written before the array serves ([`start`]), what mends a cut in the critical section of a
//! reshape ([`CutReshape`]).
//!
//! It owns no thread, no clock and no file. The server's threads and the simulated world run the same code.
#![no_std]
extern crate alloc;

mod coordinator;
mod cut_reshape;
mod flush_barrier;
mod mover;
mod router;
mod span_map;
pub mod start;

pub use coordinator::{Action, Coordinator};
pub use cut_reshape::{CutReshape, NotPutBack};
pub use router::{Outgoing, RoutedRequest, Router, RouterWorld, ShardGone};
pub use span_map::{Front, SpanMap};
