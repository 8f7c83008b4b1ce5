//! One request of a client from its arrival to the end of its reply: its memory, and what of it is under way.

use super::blocks::Cut;
use crate::nbd::{Command, Request};
use lapstrake_host::{Kind, Memory, RequestError};
use smallvec::SmallVec;

/// What the array is asked for: what, the first byte, and how many.
pub(super) type Ask = (Kind, u64, u64);

/// See the module.
pub(super) struct Entry {
    pub(super) request: Request,
    /// Of all blocks that it touches.
    pub(super) memory: Option<Memory>,
    /// Its blocks, if they are not what it is made of.
    cut: Option<Cut>,
    /// Of the export, bytes.
    block: u32,
    /// What of it the array has not answered.
    under_way: u32,
    failed: Option<RequestError>,
}

impl Entry {
    pub(super) fn new(request: Request, block: u32) -> Self {
        let (offset, len) = (request.offset, u64::from(request.len));
        let is_whole = (offset | len) & (u64::from(block) - 1) == 0;
        let cut = (!is_whole).then(|| Cut::new(offset, len, block.into()));
        Self { request, memory: None, cut, block, under_way: 0, failed: None }
    }

    /// Bytes of its memory before its own.
    pub(super) fn skip(&self) -> u32 {
        self.cut.as_ref().map_or(0, |cut| cut.skip(self.request.offset))
    }

    /// Where its first byte lies in memory.
    pub(super) fn start(&self) -> Option<*mut u8> {
        // SAFETY: the memory holds all blocks that the request touches.
        self.memory.map(|memory| unsafe { memory.start.add(self.skip() as usize) })
    }

    /// Whether it cannot go to the array without memory.
    pub(super) fn needs_memory(&self) -> bool {
        match self.request.command {
            Command::Read | Command::Write => true,
            Command::WriteZeroes { .. } => self.cut.is_some(),
            _ => false,
        }
    }

    /// Bytes of memory that it needs.
    pub(super) fn memory_bytes(&self) -> usize {
        let Some(cut) = &self.cut else { return self.request.len as usize };
        // Each block that is written in part takes another, into which the rest of it is read.
        let spare = cut.edges.len() * self.block as usize;
        match self.request.command {
            Command::Read => cut.len(),
            Command::WriteZeroes { .. } => self.block as usize + spare,
            _ => cut.len() + spare,
        }
    }

    /// The whole blocks that it touches.
    pub(super) fn around(&self) -> std::ops::Range<u64> {
        let end = self.request.offset + u64::from(self.request.len);
        self.cut.as_ref().map_or(self.request.offset..end, |cut| cut.around.clone())
    }

    /// What is asked of the array for it, whose whole blocks are sent as `kind`. Nothing if it only discards parts of
    /// blocks: those are left as they are.
    pub(super) fn asks(&mut self, kind: Kind) -> SmallVec<[Ask; 3]> {
        let mut asks = SmallVec::new();
        match (&self.cut, kind) {
            (None, _) => asks.push((kind, self.request.offset, self.request.len.into())),
            (Some(cut), Kind::Read(_)) => asks.push((kind, cut.around.start, cut.len() as u64)),
            (Some(cut), _) => {
                if let Some(memory) = self.memory {
                    asks.extend(self.edges(cut, kind, memory));
                }
                let whole = cut.whole.end - cut.whole.start;
                if whole > 0 {
                    let skip = (cut.whole.start - cut.around.start) as u32;
                    asks.push((kind.advance(skip), cut.whole.start, whole));
                }
            }
        }
        self.under_way = asks.len() as u32;
        asks
    }

    /// Blocks that are written in part, with the client's bytes or with zeros. The latter lie in the first block of
    /// memory; behind what is to be written lie the blocks into which these are read.
    fn edges(&self, cut: &Cut, kind: Kind, memory: Memory) -> SmallVec<[Ask; 2]> {
        let has_data = matches!(kind, Kind::Write { .. });
        if !has_data {
            // SAFETY: the memory has a block for zeros before those that are read.
            unsafe { memory.start.write_bytes(0, self.block as usize) };
        }
        let spare = if has_data { cut.len() as u32 } else { self.block };
        let ask = |(nth, edge): (u32, &super::blocks::Edge)| {
            let at = if has_data { (edge.block - cut.around.start) as u32 } else { 0 };
            let old = spare + nth * self.block;
            let (skip, len, fua) = (edge.skip, edge.len, self.request.fua);
            let part = Kind::WritePart { memory, at, old, skip, len, fua };
            (part, edge.block, u64::from(self.block))
        };
        (0..).zip(&cut.edges).map(ask).collect()
    }

    /// The array has answered one of what it was asked for: the answer to the request, if that was the last.
    pub(super) fn answered(
        &mut self,
        result: Result<(), RequestError>,
    ) -> Option<Result<(), RequestError>> {
        self.failed = self.failed.or(result.err());
        self.under_way -= 1;
        (self.under_way == 0).then(|| self.failed.map_or(Ok(()), Err))
    }

    /// It is answered by one word of the array's that is none of [`Self::asks`].
    pub(super) fn await_one(&mut self) {
        self.under_way = 1;
    }
}
