//! Models of disks and of what connects them, in virtual time.
//!
//! A disk takes commands ([`Request`]) at a time and says when they end ([`Completion`]); it holds no
//! data. The time is an argument, nothing is drawn that does not follow from a seed, so a run is
//! the same each time.

pub mod benchmark;
pub mod cache;
pub mod channel;
pub mod controller;
mod dice;
pub mod disk;
pub mod diskspecs;
pub mod hard;
pub mod layout;
pub mod measure;
pub mod mechanism;
pub mod processor;
pub mod profile;
pub mod queue;
pub mod rack;
pub mod replay;
pub mod request;
pub mod rotation;
pub mod safety;
pub mod seek;
pub mod solid;
pub mod system;
mod time;
pub mod trace;
pub mod volume;

pub use channel::Channel;
pub use controller::{ControllerConfig, ControllerUnit, UnitLevel};
pub use disk::{Disk, DiskModel};
pub use hard::{HardDisk, HardDiskModel};
pub use processor::{Processor, ProcessorProfile};
pub use queue::{QueueConfig, Queued};
pub use request::{Completion, Op, Request};
pub use solid::{SolidDisk, SolidDiskModel};
pub use system::{System, SystemConfig};
pub use time::Nanos;
pub use volume::Volume;
