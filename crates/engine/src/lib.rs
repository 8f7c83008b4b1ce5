//! The sans-IO RAID core.
//!
//! The core owns no thread, no clock and no file. A [`Shard`] serves the requests of a part of
//! the array; a [`Supervisor`] keeps what concerns the array as a whole: who is a member, the
//! superblocks, clean and active, the write-intent bitmap. The world around them does the I/O,
//! in real time on real members or in virtual time on simulated ones.
//!
//! # How a world drives a shard
//!
//! Feed it with [`Shard::handle_request`], [`Shard::handle_completion`], [`Shard::handle_order`],
//! [`Shard::handle_sync`] and [`Shard::handle_time`], each with the time now. After any of these, or a
//! batch of them:
//!
//! 1. have [`Shard::carry_out`] bring what the shard wants to the world ([`World`]: starts I/O, does parity work, compares
//!    with [`Comparison::run`], makes the logs' headers and the journal's blocks with [`Seal::run`]), in the order given:
//!    an I/O may send what the work before it computed; and answer the requests that have ended;
//! 2. drain [`Shard::poll_notice`] to the supervisor;
//! 3. ask [`Shard::poll_deadline`] when to call `handle_time` at the latest.
//!
//! A read of what another shard owns may go to [`Shard::handle_foreign_read`] first, if the world keeps what that asks
//! for (`lapstrake-array`'s router does, which drives shards that know of each other); [`Ended::Declined`] sends it to
//! the owner.
//!
//! Taking in a batch before draining lets neighbouring writes come together.
//!
//! If what takes the writes of all members (an overlay) has no space left, the shard is told by
//! [`Shard::handle_out_of_space`] before the completion of each I/O that failed for that, and the supervisor by
//! [`Supervisor::handle_out_of_space`] likewise, or they would hold it against the member. Whatever it was that lacked
//! room, [`Shard::handle_no_room`] lets a level without redundancy name it.
//!
//! # How a world drives the supervisor
//!
//! [`Supervisor::handle_start`] once; then [`Supervisor::handle_notice`], [`Supervisor::handle_written`],
//! [`Supervisor::handle_unflushed`], [`Supervisor::handle_time`] and its commands in;
//! [`Supervisor::poll_order`] (to every shard), [`Supervisor::poll_sync`] (pieces of a sync action, each to the
//! shard that owns its sectors), [`Supervisor::poll_write`] (superblocks, logs and bitmap pages for the
//! members) and [`Supervisor::poll_deadline`] out.
//!
//! # Order that holds
//!
//! The same points as in `docs/architecture.md`, by the same numbers.
//!
//! 1. A bitmap bit is stable on all members before the first write under it is sent.
//! 2. A member's failure is stable in the survivors' superblocks before a write that skipped the
//!    member, or a flush, is answered.
//! 3. A flush is answered after every member in sync has flushed.
//! 4. A checkpoint of recovery or resync says no more than what is stable, and so do the bits that it clears.
//! 5. A member that is not recovered serves nothing beyond where it has come to.
//! 6. The superblocks say "active" before the first write is sent, and say "clean" again only
//!    after the last one has ended.
//! 7. With partial parity logs, what an operation is about to write is stable in the log of its stripe's
//!    parity member before data or parity is sent, and the log keeps it until all of that is stable.
//! 8. With a journal, data and parity are stable in it before the first of a row's blocks is sent to a member,
//!    and their room is used again only after every member has flushed and the superblock says where the
//!    ring begins; at a stop that is an empty unit, which is stable before any superblock names it.
//! 9. With write-behind, a write that is answered before write-mostly members have it keeps its bits, its
//!    range and the array's "active" until they do; a flush waits for it.
//! 10. Superblocks deny an old bitmap before shards stop waiting for its bits, and tell of a new one after all
//!     its pages are stable with every bit set; none is cleared before each shard has told what it was writing.
//! 11. Every shard has been sent word of a member's failure, or of a range that it lacks, before a write is answered
//!     that left it out there.
//! 13. Every member's superblock says an array's new size, stably, before any shard takes requests for it, and every shard
//!     does before a client is told of it.
//!
//! # Bounds
//!
//! Parity work holds no more memory than the stripe cache that the world gives; requests in
//! flight are as many as the world lets in; long requests proceed in windows.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod bad_blocks;
mod behind;
mod bitmap_change;
mod bits;
mod chunks;
mod compare;
mod direct;
mod gate;
mod guard;
mod hold;
pub mod journal;
mod journal_end;
mod log;
mod member_io;
mod members;
mod membership;
mod messages;
mod meta_writes;
mod op;
mod recovery;
mod repair;
mod replay;
mod request;
mod reshape;
mod safe_mode;
mod scratch;
mod seal;
mod shape_change;
mod shard;
mod sizes;
mod slots;
mod sources;
mod stripe;
mod supervisor;
mod sync;
mod types;
mod update;
mod world;
mod write_intent_bitmap;

pub use bitmap_change::NewBitmap;
pub use chunks::UnsyncedChunks;
pub use compare::{CompareId, Comparison, Finding, Suspect};
pub use guard::Guard;
pub use members::{FULLY_TRUSTED, MemberConfig, MemberPlace};
pub use messages::{BitmapTerms, Notice, Order};
pub use recovery::{SyncConfig, SyncEnd, SyncProgress, SyncSpeed};
pub use replay::{LogConfig, LogDisks, Mend, Replay, read_logs, replay_logs};
pub use reshape::{
    DataMove, Frontier, Hold, MemberTraffic, NewGeometry, PlannedArray, ReshapeInProgress,
    ShardGeometry, Step, backup_on, critical_section, least_raid10_shift, least_shift,
    recovery_traffic, reshape_traffic, resync_traffic, room_before, room_behind, shift_within,
};
pub use scratch::PAGE_BYTES;
pub use seal::Seal;
pub use shape_change::NewShape;
pub use shard::{Shard, ShardConfig, Stats};
pub use sizes::{
    BEHIND_PAGES, STRIPE_CACHE_SIZE, STRIPE_CACHE_SIZES, span, stripe_cache_members,
    stripe_cache_pages,
};
pub use sources::Sources;
pub use supervisor::{
    Added, DiskState, Event, Loss, MemberRecord, MetaWrite, Supervisor, SupervisorConfig, Target,
    WriteId,
};
pub use sync::{Mismatch, PieceId, SyncAction, SyncPiece, SyncReport};
pub use types::*;
pub use world::{Ended, World};
pub use write_intent_bitmap::BitmapConfig;
