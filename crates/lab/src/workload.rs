//! Loads of the lab's own: where requests go, when, and what came of them.
//!
//! A [`generator::Generator`] says what to do next and is told what was done; it knows no clock and does no I/O, so
//! the same one drives a file through io_uring, a server through NBD, and an array from within its shards' threads
//! (`crate::subject`). A [`port::Port`] carries requests out, [`drive`] joins the two on threads of their own.
//!
//! Invariants:
//! - of each request is known when it was due, and its latency counts from then: under a rate limit a
//!   subject that stalls cannot make its own delays unseen;
//! - at most `depth` requests of a thread are under way, each in memory of its own;
//! - what was done before the warm-up's end, or ended after the time was up, is in no figure.

pub(crate) mod buffers;
pub(crate) mod drive;
pub(crate) mod generator;
pub(crate) mod nbd;
pub(crate) mod places;
pub(crate) mod port;
pub(crate) mod recorder;
pub(crate) mod stamps;
pub(crate) mod uring;
