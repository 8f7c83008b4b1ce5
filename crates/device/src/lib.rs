//! Members and the queue that drives them.
//!
//! A [`Member`] is a file, a block device, a window of either, memory, anything that can be read and sought
//! ([`Source`]), or one of the first three beneath a copy-on-write [`overlay`]: opened, locked against a
//! second user, its alignment and kind known. A [`Queue`] is the one place where a shard waits: member
//! I/O, client sockets and wake-ups from other threads all complete through it, so that a request is
//! served from its first byte to its last on one thread. (A hand-over to another thread costs more than
//! a 4 KiB transfer.)
//!
//! Invariants:
//! - an operation submitted completes exactly once, with the bytes moved or `-errno`;
//! - a read or write of a member completes whole or with an error: short transfers are continued here;
//! - memory named by an operation is not touched after its completion was handed out, nor after the
//!   queue was dropped.
//!
//! This crate knows nothing of RAID and nothing of the protocols that clients speak.

// They panic when nobody can take what they print.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod arena;
mod error;
pub mod fault;
mod holder;
mod lock;
mod member;
mod memory;
mod op;
pub mod overlay;
mod poller;
mod polling;
mod pool;
mod probe;
mod queue;
mod raw;
mod reader;
mod ring;
mod slot;
mod spec;
mod unread;
mod waker;
mod workers;

pub use arena::Arena;
pub use error::{FaultError, OpenError, OverlayError, QueueError, SpecError, next_place};
pub use fault::Faults;
pub use holder::lies_on;
pub use member::{Access, Member, overlaps};
pub use op::{COMMAND_BYTES, Completion, IoVec, Op};
pub use pool::{BufId, Pool, PoolStats};
pub use probe::in_memory_fs;
pub use queue::{Backend, Queue};
pub use reader::Source;
pub use spec::{MemberSpec, harmless, parse_size, quoted, quoted_path};
pub use unread::{MapError, parse_map};
pub use waker::Waker;
