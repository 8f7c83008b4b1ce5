//! Reads an array from one end to the other with several requests in flight.
//!
//! Invariant: a block's memory is not freed before the request into it has ended.

use lapstrake_host::{Array, ArrayIo, RequestError};
use lapstrake_volumes::Device;
use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::Receiver;

/// Bytes of a request; large enough that a request touches every member of most arrays.
const BLOCK: usize = 1 << 20;
/// Requests in flight.
const DEPTH: usize = 8;

/// Memory at a page's boundary, as requests want it.
struct Block(*mut u8);

impl Block {
    const LAYOUT: Layout = match Layout::from_size_align(BLOCK, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("4096 is a power of two"),
    };

    fn new() -> Self {
        // SAFETY: the layout is not of size zero.
        let start = unsafe { alloc::alloc_zeroed(Self::LAYOUT) };
        if start.is_null() {
            alloc::handle_alloc_error(Self::LAYOUT);
        }
        Self(start)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no request uses it: see the module.
        unsafe { alloc::dealloc(self.0, Self::LAYOUT) };
    }
}

struct Pending {
    block: Block,
    /// Whole blocks that were asked for.
    offset: u64,
    len: usize,
    answer: Receiver<Result<(), RequestError>>,
}

/// See the module.
pub struct Reader {
    array: ArrayIo,
    /// Requests are in whole blocks of so many bytes.
    unit: u64,
    /// What is wanted of the array.
    start: u64,
    end: u64,
    /// What is to be asked for next.
    next: u64,
    pending: VecDeque<Pending>,
    /// The block that was handed out last.
    spent: Option<Block>,
    /// Ranges of the array that could not be read, if they are left out.
    skipped: Option<Vec<Range<u64>>>,
    /// Where it ends before its time, and why.
    failed: Option<(u64, RequestError)>,
}

/// Bytes and the array's byte at which they begin, or that byte and what went wrong.
pub type Piece<'a> = Result<(u64, &'a [u8]), (u64, RequestError)>;

impl Reader {
    /// Reads `len` bytes from `offset`, which lie within the array. `skips`: zeros stand for what cannot be read.
    pub fn new(array: &Array, offset: u64, len: u64, skips: bool) -> Self {
        let (array, unit) = (array.handle().array_io(), array.facts().block_bytes.into());
        let end = offset + len;
        let next = if len > 0 { offset / unit * unit } else { end };
        let (pending, skipped) = (VecDeque::new(), skips.then(Vec::new));
        Self { array, unit, start: offset, end, next, pending, spent: None, skipped, failed: None }
    }

    /// What zeros stand for.
    pub fn skipped(&self) -> &[Range<u64>] {
        self.skipped.as_deref().unwrap_or_default()
    }

    /// The next piece; None at the end.
    pub fn next(&mut self) -> Option<Piece<'_>> {
        if let Some(failed) = self.failed {
            return Some(Err(failed));
        }
        while self.pending.len() < DEPTH && self.next < self.end {
            self.ask();
        }
        let Pending { block, offset, mut len, answer } = self.pending.pop_front()?;
        if answer.recv().unwrap_or(Err(RequestError::Io)).is_err() {
            len = self.read_in_units(&block, offset, len);
        }
        let block = self.spent.insert(block);
        // SAFETY: requests filled so much of the block, but for zeros, and have ended.
        let bytes = unsafe { std::slice::from_raw_parts(block.0, len) };
        let from = self.start.saturating_sub(offset).min(len as u64) as usize;
        let to = (self.end - offset).min(len as u64) as usize;
        Some(Ok(((offset + from as u64).max(self.start), &bytes[from..to])))
    }

    fn ask(&mut self) {
        let block = self.spent.take().unwrap_or_else(Block::new);
        let offset = self.next;
        let whole = self.end.next_multiple_of(self.unit) - offset;
        let len = whole.min(BLOCK as u64);
        // SAFETY: the block is long enough; it is kept until the answer.
        let answer = unsafe { self.array.read(block.0, offset, len) };
        self.next += len;
        self.pending.push_back(Pending { block, offset, len: len as usize, answer });
    }

    /// Of a piece that could not be read, all units that can be, with zeros for the others if they are left out;
    /// else up to the first that cannot. How many bytes that is.
    fn read_in_units(&mut self, block: &Block, offset: u64, len: usize) -> usize {
        let unit = self.unit as usize;
        for at in (0..len).step_by(unit) {
            // SAFETY: within the block, whole units from its start.
            let to = unsafe { block.0.add(at) };
            let from = offset + at as u64;
            // SAFETY: the answer is waited for.
            let answer = unsafe { self.array.read(to, from, self.unit) };
            let Err(error) = answer.recv().unwrap_or(Err(RequestError::Io)) else { continue };
            let Some(skipped) = &mut self.skipped else {
                self.failed = Some((from.max(self.start), error));
                return at;
            };
            // SAFETY: within the block, and the request has ended.
            unsafe { std::ptr::write_bytes(to, 0, unit) };
            match skipped.last_mut() {
                Some(last) if last.end == from => last.end += self.unit,
                _ => skipped.push(from..from + self.unit),
            }
        }
        len
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for pending in &self.pending {
            // Its end is what counts.
            let _ = pending.answer.recv();
        }
    }
}

/// An array that runs, to be looked at.
pub struct ArrayDevice<'a>(pub &'a Array);

impl Device for ArrayDevice<'_> {
    fn size(&self) -> u64 {
        self.0.bytes()
    }

    fn sector_bytes(&self) -> Option<u32> {
        None
    }

    fn get(&self, offset: u64, len: u64) -> Vec<u8> {
        let len = len.min(self.size().saturating_sub(offset));
        let mut bytes = Vec::new();
        let mut reader = Reader::new(self.0, offset, len, false);
        // Up to the first that cannot be read.
        while let Some(Ok((_, read))) = reader.next() {
            bytes.extend_from_slice(read);
        }
        bytes
    }
}
