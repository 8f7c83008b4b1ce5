//! Linux software RAID (md) arrays in user space, as a library: open one from its members and read or write it, look
//! at members, find arrays, ask those who serve some. It needs neither the kernel's md driver nor root.
//!
//! | what | by |
//! |---|---|
//! | open an array, read it, write it | [`Array`], [`OpenOptions`] |
//! | what one member holds | [`examine()`] |
//! | which arrays are there | [`scan()`], [`scan_directory`] |
//! | arrays that `lapstrake serve` serves | [`control::Client`] |
//! | make an array | [`CreateOptions`] |
//!
//! # A RAID5 without one of its members
//!
//! ```
//! use lapstrake::{Array, CreateOptions, Level};
//! use std::fs::File;
//! use std::io::{Read, Seek, SeekFrom};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let members = ["a.img", "b.img", "c.img"].map(|name| dir.path().join(name));
//! for member in &members {
//!     File::create(member)?.set_len(16 << 20)?;
//! }
//! // New files are zeros, which are their own parity.
//! CreateOptions::new("data", Level::Raid5).assume_clean(true).create(&members)?;
//!
//! let array = Array::open(&members)?;
//! array.write_at(1_000_000, b"planks that overlap")?;
//! array.close()?;
//!
//! // One of three is gone: what it held follows from the others. Nothing is written.
//! let mut array = Array::open_read_only(&members[1..])?;
//! assert!(array.is_degraded());
//! let mut text = [0; 19];
//! array.read_at(1_000_000, &mut text)?;
//! assert_eq!(&text, b"planks that overlap");
//!
//! // It is also a reader, for whatever takes one.
//! array.seek(SeekFrom::Start(1_000_007))?;
//! let mut rest = String::new();
//! array.by_ref().take(12).read_to_string(&mut rest)?;
//! assert_eq!(rest, "that overlap");
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//!
//! - Members are files, block devices, or windows of these ([`MemberSpec`]); for reading, also whatever can be read and
//!   sought ([`Array::open_readers`]): images in memory, members of an archive.
//! - Opening for reading never writes to a member. Opening for writing locks the members against other users, and has
//!   them recorded as in use with the first write; [`Array::close`] records that they are clean.
//! - Messages of errors name options as the command has them: `--degraded` is [`OpenOptions::degraded`], the `--force` of
//!   `create` is [`CreateOptions::overwrite`].
//! - Nothing is printed. What an array has to say (a member failed, a recovery began) are events of [`tracing`], with the
//!   member, sector or sync action as fields, within a span `array` that has its name and UUID. They go, from the array's
//!   own threads, to the subscriber that the thread had which opened it: by [`tracing::subscriber::with_default`] each
//!   array can have one of its own. A subscriber must not wait for the array.
//! - An open array has threads of its own. Methods block until it is done; they may be called from any thread.
//! - In the environment `LAPSTRAKE_BACKEND` chooses between io_uring and threads, and `LAPSTRAKE_FAULT` injects faults
//!   of members, as for the command.
//!
//! [`tracing`]: https://docs.rs/tracing
//! [`tracing::subscriber::with_default`]: https://docs.rs/tracing/latest/tracing/subscriber/fn.with_default.html

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod array;
mod blocks;
pub mod control;
mod create;
mod error;
mod examine;
mod options;
mod scan;

pub use array::{Array, MemberReport};
pub use create::{CreateError, CreateOptions};
pub use error::{CloseError, IoError, OpenError};
pub use examine::{Examination, examine, examine_reader};
pub use lapstrake_device::{MemberSpec, Source};
pub use lapstrake_geometry as geometry;
pub use lapstrake_geometry::Level;
pub use lapstrake_host::scan::{BadBlockEntries, BitmapLook, Completeness, LookError};
pub use lapstrake_host::{OpenArrayError, StartError};
pub use lapstrake_metadata as metadata;
pub use options::OpenOptions;
pub use scan::{Candidate, Found, FoundArray, scan, scan_directory};

/// What errors of this crate hold within.
pub mod cause {
    pub use lapstrake_device::{
        FaultError, OpenError as MemberOpenError, OverlayError, QueueError,
    };
    pub use lapstrake_host::create::{MakeError, Occupied, PrepareError, WriteError};
    pub use lapstrake_host::{DeviceError, Line};
}
