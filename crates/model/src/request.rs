//! What a disk is asked for, and what it answers.

use crate::Nanos;
use std::ops::Range;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read blocks.
    Read,
    /// Write blocks; done when the disk says so, which may be before they are on the media.
    Write,
    /// Write blocks; done when they are on the media.
    WriteThrough,
    /// Everything written so far goes to the media. Its blocks do not count.
    Flush,
}

/// A command to a disk. Blocks are 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names it in the answer.
    pub tag: u64,
    /// What to do.
    pub op: Op,
    /// Its first block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Request {
    pub(crate) fn range(&self) -> Range<u64> {
        self.lba..self.lba + self.blocks
    }
}

/// A command that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which one.
    pub tag: u64,
    /// When.
    pub at: Nanos,
}
