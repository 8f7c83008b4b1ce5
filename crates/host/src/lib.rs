//! Joins the engine, the devices and the clients.
//!
//! An [`Array`] runs one thread for each shard. A shard's thread does everything for its part:
//! it waits in one queue for member I/O, client sockets and wake-ups, drives the engine, and
//! answers. Shards share nothing but messages. The first shard also runs the coordinator: it keeps the
//! supervisor and what concerns the array as a whole.
//!
//! Front ends implement [`Client`]; threads that are no shards use a [`Handle`].

// They panic when nobody can take what they print.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod array;
mod cache;
mod child;
mod client;
mod command_error;
mod complaints;
pub mod control;
mod coordinator;
pub mod create;
mod cut_request;
pub mod edit;
mod grow;
mod holes;
mod join;
mod last_resort;
mod lending;
mod memory;
mod message;
mod open;
mod overlay;
mod own_superblock;
mod raid0_layout;
mod runner;
mod runs;
pub mod scan;
mod scope;
mod shard_runtime;
mod size;
mod split;
mod start_io;
mod status;
mod whole;
mod window;

pub use array::{Array, ArrayIo, Handle, Options, Parts, StartError, ViewError, flush_others_last};
pub use cache::CacheSizeError;
pub use child::with_signals;
pub use client::{Client, Context, Kind, Memory};
pub use command_error::CommandError;
pub use complaints::Complaints;
pub use coordinator::{
    bitmap::BitmapError,
    loss::WriteLoss,
    members::{MemberError, SyncError},
    resize::ResizeError,
    settings::{SettingsError, SpeedError},
};
pub use grow::{GrowBitmapError, grow_bitmap};
pub use holes::Extent;
pub use join::{Join, JoinError, join};
pub use lapstrake_array::start::JournalGivenUp;
pub use lapstrake_control::{
    ArrayState, BitmapPlace, Detail, MemberState, SyncRequest, WantedSize,
};
pub use lapstrake_device::IoVec;
pub use lapstrake_engine::RequestError;
pub use lapstrake_engine::Time;
pub use lapstrake_engine::{STRIPE_CACHE_SIZE, STRIPE_CACHE_SIZES};
pub use last_resort::{Recorded, recorded};
pub use lending::Lending;
pub use message::{
    Answer, BitmapWish, Command, Deleted, Greeter, ReshapeWish, ResizeWish, Settings,
};
pub use open::{
    Line, OpenArrayError, OpenRequest, Opened, bitmap_next, describe_given_up, open, open_members,
    probe, probe_around,
};
pub use overlay::NewOverlay;
pub use own_superblock::{SUPERBLOCKS, describe, describe_at, describe_undecided, image_format};
pub use scope::EventScope;
pub use size::ArraySize;
pub use start_io::DeviceError;
pub use whole::open_whole;
pub use window::{CheckWindow, CheckWindowError};
