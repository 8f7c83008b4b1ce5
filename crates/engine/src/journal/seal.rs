//! What a unit of the journal holds, and its meta block, which needs the bytes.

use crate::types::{Buf, Pieces};
use crate::{direct::push_piece, types::Piece};
use alloc::vec::Vec;
use lapstrake_metadata::journal::{BLOCK, BLOCK_BYTES, Meta, Payload, Seed};
use smallvec::SmallVec;

/// A page-high row of a stripe that is written: the blocks that change, and all parity.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Each with its array sector.
    pub data: SmallVec<[(u64, Buf); 4]>,
    /// The row's sector on each member.
    pub sector: u64,
    /// P, and Q where there is one.
    pub parity: SmallVec<[Buf; 2]>,
}

impl Row {
    fn payloads(&self, checksum: impl Fn(Buf) -> u32) -> impl Iterator<Item = Payload> {
        let parity = Payload::Parity {
            sector: self.sector,
            checksums: self.parity.iter().map(|&buf| checksum(buf)).collect(),
        };
        let data = self
            .data
            .iter()
            .map(move |&(sector, buf)| Payload::Data { sector, checksums: [checksum(buf)].into() });
        data.chain([parity])
    }

    /// What it takes in the meta block.
    pub fn bytes(&self) -> usize {
        self.payloads(|_| 0).map(|payload| payload.bytes()).sum()
    }

    /// What it takes in the ring.
    pub fn sectors(&self) -> u64 {
        (self.data.len() + self.parity.len()) as u64 * BLOCK.0
    }

    fn blocks(&self) -> impl Iterator<Item = Buf> {
        self.data.iter().map(|entry| entry.1).chain(self.parity.iter().copied())
    }
}

/// A meta block that is to be made of what the buffers hold now. The world runs it and puts the result
/// where it belongs.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// A page for the block.
    pub meta: Buf,
    pub(crate) seed: Seed,
    pub(crate) seq: u64,
    pub(crate) position: u64,
    pub(crate) rows: Vec<Row>,
}

impl Sealing {
    /// The block for [`Self::meta`]. `bytes` gives a buffer's memory.
    #[must_use]
    pub fn run<'a>(&self, bytes: impl Fn(Buf, u32) -> &'a [u8]) -> Vec<u8> {
        let checksum = |buf| self.seed.checksum(bytes(buf, BLOCK_BYTES as u32));
        let payloads = self.rows.iter().flat_map(|row| row.payloads(checksum)).collect();
        Meta { seq: self.seq, position: self.position, payloads }.encode(self.seed)
    }

    /// The whole unit, in the order in which it lies in the ring.
    pub(crate) fn pieces(&self) -> Pieces {
        let mut pieces = Pieces::new();
        let blocks = self.rows.iter().flat_map(Row::blocks);
        for buf in [self.meta].into_iter().chain(blocks) {
            push_piece(&mut pieces, Piece { buf, len: BLOCK_BYTES as u32 });
        }
        pieces
    }
}
