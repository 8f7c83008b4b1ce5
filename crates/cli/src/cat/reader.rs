//! Reads an array from one end to the other with several requests in flight.
//!
//! Invariant: a block's memory is not freed before the request into it has ended.

use lapstrake_host::{Array, Handle, Outside, RequestError};
use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver};

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
    handle: Handle,
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
}

/// Bytes and the array's byte at which they begin, or that byte and what went wrong.
pub type Piece<'a> = Result<(u64, &'a [u8]), (u64, RequestError)>;

impl Reader {
    /// Reads `len` bytes from `offset`, which lie within the array.
    pub fn new(array: &Array, offset: u64, len: u64) -> Self {
        let (handle, unit) = (array.handle(), array.facts().block_bytes.into());
        let end = offset + len;
        let next = if len > 0 { offset / unit * unit } else { end };
        Self { handle, unit, start: offset, end, next, pending: VecDeque::new(), spent: None }
    }

    /// The next piece; None at the end.
    pub fn next(&mut self) -> Option<Piece<'_>> {
        while self.pending.len() < DEPTH && self.next < self.end {
            self.ask();
        }
        let Pending { block, offset, len, answer } = self.pending.pop_front()?;
        let result = answer.recv().unwrap_or(Err(RequestError::Io));
        let block = self.spent.insert(block);
        if let Err(error) = result {
            return Some(Err((offset, error)));
        }
        // SAFETY: the request filled so much of the block, and has ended.
        let bytes = unsafe { std::slice::from_raw_parts(block.0, len) };
        let from = self.start.saturating_sub(offset).min(len as u64) as usize;
        let to = (self.end - offset).min(len as u64) as usize;
        Some(Ok((offset + from as u64, &bytes[from..to])))
    }

    fn ask(&mut self) {
        let block = self.spent.take().unwrap_or_else(Block::new);
        let offset = self.next;
        let whole = self.end.next_multiple_of(self.unit) - offset;
        let len = whole.min(BLOCK as u64);
        let (sender, answer) = mpsc::channel();
        let done = Box::new(move |result| {
            // The receiver waits in `next` or `drop`.
            let _ = sender.send(result);
        });
        // SAFETY: the block is page-aligned and long enough; it is kept until the answer.
        unsafe { self.handle.request(Outside::Read(block.0), offset, len, done) };
        self.next += len;
        self.pending.push_back(Pending { block, offset, len: len as usize, answer });
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
