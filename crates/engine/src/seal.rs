//! Blocks that hold checksums of what is in buffers: headers of partial parity logs, meta blocks of a journal.
//! The world holds the bytes, so it makes them, and puts each in its place.

use crate::{journal, log, types::Buf};
use alloc::vec::Vec;

/// A block that is to be made of what buffers hold now.
#[derive(Clone, Debug)]
pub enum Seal {
    /// The header of a unit of a partial parity log.
    Log(log::Sealing),
    /// A meta block of the journal.
    Journal(journal::Sealing),
}

impl Seal {
    /// Where the block goes.
    #[must_use]
    pub fn place(&self) -> Buf {
        match self {
            Self::Log(sealing) => sealing.place,
            Self::Journal(sealing) => sealing.meta,
        }
    }

    /// Makes the block. `bytes` gives a buffer's memory.
    pub fn run<'a>(&self, bytes: impl Fn(Buf, u32) -> &'a [u8]) -> Vec<u8> {
        match self {
            Self::Log(sealing) => sealing.run(bytes).to_vec(),
            Self::Journal(sealing) => sealing.run(bytes),
        }
    }
}
