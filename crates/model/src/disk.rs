//! Any disk: what a world drives.

use crate::Nanos;
use crate::channel::Channel;
use crate::hard::{HardDisk, HardDiskModel, WriteCache};
use crate::request::{Completion, Request};
use crate::solid::{SolidDisk, SolidDiskModel};
use std::ops::Range;
use std::sync::Arc;

/// A disk's figures, ready to run.
#[derive(Clone, Debug)]
pub enum DiskModel {
    /// Platters and an arm.
    Hard(Arc<HardDiskModel>),
    /// Flash.
    Solid(Arc<SolidDiskModel>),
}

impl DiskModel {
    /// Blocks of 512 bytes.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Hard(model) => model.blocks(),
            Self::Solid(model) => model.blocks,
        }
    }

    /// Bytes of writes that wait in its buffer at most.
    #[must_use]
    pub fn write_cache(&self) -> u64 {
        match self {
            Self::Hard(model) if model.write_cache == WriteCache::Off => 0,
            Self::Hard(model) => model.cache.dirty_blocks_max * 512,
            Self::Solid(model) => model.buffer_bytes,
        }
    }

    /// Another one of this kind: no two spindles turn as one.
    #[must_use]
    pub fn another(&self, seed: u64) -> Self {
        match self {
            Self::Hard(model) => {
                let mut model = HardDiskModel::clone(model);
                model.mechanism.rotation = model.mechanism.rotation.another(seed);
                Self::Hard(Arc::new(model))
            }
            Self::Solid(_) => self.clone(),
        }
    }

    /// One of this kind on which these blocks were written without order: the cache zone of shingled tracks is full. Others are
    /// as they were.
    #[must_use]
    pub fn with_full_cache_zone(&self, blocks: Range<u64>) -> Self {
        match self {
            Self::Hard(model) => {
                let mut model = HardDiskModel::clone(model);
                model.cache_zone_full_of = Some(blocks);
                Self::Hard(Arc::new(model))
            }
            Self::Solid(_) => self.clone(),
        }
    }

    /// A disk of this kind that has been idle for long.
    #[must_use]
    pub fn disk(&self) -> Disk {
        match self {
            Self::Hard(model) => Disk::Hard(Box::new(HardDisk::new(model.clone()))),
            Self::Solid(model) => Disk::Solid(Box::new(SolidDisk::new(model.clone()))),
        }
    }
}

/// A disk and what it is doing.
#[derive(Clone, Debug)]
pub enum Disk {
    /// Platters and an arm.
    Hard(Box<HardDisk>),
    /// Flash.
    Solid(Box<SolidDisk>),
}

impl Disk {
    /// Takes a command at `now`, which never goes back.
    ///
    /// # Panics
    /// If its blocks are not all on the disk.
    pub fn submit(&mut self, request: Request, now: Nanos, channel: &mut Channel) {
        match self {
            Self::Hard(disk) => disk.submit(request, now, channel),
            Self::Solid(disk) => disk.submit(request, now, channel),
        }
    }

    /// Gives a command that has ended by `now`, those first that ended first.
    pub fn poll(&mut self, now: Nanos, channel: &mut Channel) -> Option<Completion> {
        match self {
            Self::Hard(disk) => disk.poll(now, channel),
            Self::Solid(disk) => disk.poll(now, channel),
        }
    }

    /// When to poll again; none if nothing goes on. Disks that share a channel are all polled whenever
    /// one of them is due.
    #[must_use]
    pub fn next_event(&self, channel: &Channel) -> Option<Nanos> {
        match self {
            Self::Hard(disk) => disk.next_event(channel),
            Self::Solid(disk) => disk.next_event(channel),
        }
    }
}
