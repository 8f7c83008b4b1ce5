//! Reads and writes of any bytes, by requests of whole blocks.
//!
//! Requests go into memory of our own: it is page-aligned, as members that pass the page cache by want it, and outlives
//! a caller who panics. Invariant: memory is not given back before the request into it has ended ([`Piece`]).
//!
//! A write that begins or ends within a block reads that block first, so no other write may come between: it excludes
//! all others, which else go side by side.

use crate::IoError;
use lapstrake_host::{ArrayIo, RequestError};
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError, RwLock};

/// Most bytes of a request: it touches every member of most arrays.
const PIECE: usize = 1 << 20;
/// Requests of one caller in flight.
const DEPTH: usize = 8;
/// What members ask of memory's addresses.
const PAGE: usize = 4096;

/// Page-aligned memory for a request.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new() -> Self {
        let bytes = vec![0; PIECE + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..PIECE]
    }
}

/// A request under way. Dropped, it waits for the end.
struct Piece {
    /// Whole blocks, from this byte of the array on.
    offset: u64,
    len: usize,
    memory: Option<Memory>,
    answer: Option<Receiver<Result<(), RequestError>>>,
}

impl Piece {
    /// The memory, once the request has ended, and how it ended. None: the array stopped.
    fn end(mut self) -> (Memory, Option<Result<(), RequestError>>) {
        let result = self.answer.take().and_then(|answer| answer.recv().ok());
        (self.memory.take().expect("given back once"), result)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            // That it has ended is what counts.
            let _ = answer.recv();
        }
    }
}

/// See the module.
pub(crate) struct Blocks {
    array: ArrayIo,
    /// Bytes of a block.
    unit: u64,
    /// The array's bytes: whole blocks.
    size: u64,
    writes: RwLock<()>,
    spare: Mutex<Vec<Memory>>,
}

impl Blocks {
    pub(crate) fn new(array: ArrayIo, unit: u32, size: u64) -> Self {
        let unit = u64::from(unit);
        assert!(unit > 0 && size.is_multiple_of(unit) && (PIECE as u64).is_multiple_of(unit));
        Self { array, unit, size, writes: RwLock::new(()), spare: Mutex::default() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Fills the buffer up to the first byte that cannot be read: how many bytes, and why no more.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> (usize, Result<(), IoError>) {
        let end = match self.check(offset, buf.len()) {
            Ok(end) => end,
            Err(error) => return (0, Err(error)),
        };
        if buf.is_empty() {
            return (0, Ok(()));
        }
        let (mut next, last) = (offset / self.unit * self.unit, end.next_multiple_of(self.unit));
        let (mut pieces, mut done) = (VecDeque::new(), 0);
        loop {
            while pieces.len() < DEPTH && next < last {
                let len = (last - next).min(PIECE as u64) as usize;
                pieces.push_back(self.ask(self.memory(), next, len));
                next += len as u64;
            }
            let Some(piece) = pieces.pop_front() else { return (done, Ok(())) };
            let from = piece.offset;
            let (mut memory, got, result) = self.settle(piece);
            let skip = offset.saturating_sub(from).min(got as u64) as usize;
            let taken = (got - skip).min(buf.len() - done);
            buf[done..][..taken].copy_from_slice(&memory.as_mut()[skip..][..taken]);
            done += taken;
            self.keep(memory);
            match result {
                Ok(()) => {}
                Err(IoError::Unreadable { offset: at }) => {
                    return (done, Err(IoError::Unreadable { offset: at.max(offset) }));
                }
                Err(error) => return (done, Err(error)),
            }
        }
    }

    /// Writes all of the buffer.
    pub(crate) fn write(&self, offset: u64, buf: &[u8]) -> Result<(), IoError> {
        let end = self.check(offset, buf.len())?;
        if buf.is_empty() {
            return Ok(());
        }
        let is_whole = offset.is_multiple_of(self.unit) && end.is_multiple_of(self.unit);
        let (_shared, _alone) = match is_whole {
            true => (Some(self.writes.read().unwrap_or_else(PoisonError::into_inner)), None),
            false => (None, Some(self.writes.write().unwrap_or_else(PoisonError::into_inner))),
        };
        let (mut next, last) = (offset / self.unit * self.unit, end.next_multiple_of(self.unit));
        let mut pieces = VecDeque::new();
        loop {
            while pieces.len() < DEPTH && next < last {
                let len = (last - next).min(PIECE as u64) as usize;
                pieces.push_back(self.send(next, len, offset, buf)?);
                next += len as u64;
            }
            let Some(piece) = pieces.pop_front() else { return Ok(()) };
            let at = piece.offset.max(offset);
            let (memory, result) = piece.end();
            self.keep(memory);
            result.ok_or(IoError::Stopped)?.map_err(|error| self.unwritten(error, at))?;
        }
    }

    /// Makes stable what was written.
    pub(crate) fn flush(&self) -> Result<(), IoError> {
        match self.array.flush().recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(IoError::Unflushed),
            Err(_) => Err(IoError::Stopped),
        }
    }

    /// The end of a range that lies within the array.
    fn check(&self, offset: u64, len: usize) -> Result<u64, IoError> {
        let len = len as u64;
        let end = offset.checked_add(len).filter(|&end| end <= self.size);
        end.ok_or(IoError::OutOfRange { offset, len, size: self.size })
    }

    /// Begins a read of whole blocks.
    fn ask(&self, mut memory: Memory, offset: u64, len: usize) -> Piece {
        let to = memory.as_mut()[..len].as_mut_ptr();
        // SAFETY: page-aligned, and as long; the piece keeps it, untouched, until the answer.
        let answer = unsafe { self.array.read(to, offset, len as u64) };
        Piece { offset, len, memory: Some(memory), answer: Some(answer) }
    }

    /// Begins the write of `len` bytes of whole blocks at `at`, where `buf` has what belongs at `offset`.
    fn send(&self, at: u64, len: usize, offset: u64, buf: &[u8]) -> Result<Piece, IoError> {
        let (start, end) = (offset.max(at), (offset + buf.len() as u64).min(at + len as u64));
        let unit = self.unit as usize;
        let mut memory = self.memory();
        let last = at + (len - unit) as u64;
        let is_cut_off = end < at + len as u64;
        if start > at || (is_cut_off && at == last) {
            memory = self.fill(memory, at, 0)?;
        }
        if is_cut_off && at < last {
            memory = self.fill(memory, last, len - unit)?;
        }
        let from = &buf[(start - offset) as usize..(end - offset) as usize];
        memory.as_mut()[(start - at) as usize..][..from.len()].copy_from_slice(from);
        let bytes = memory.as_mut()[..len].as_ptr();
        // SAFETY: as in `ask`.
        let answer = unsafe { self.array.write(bytes, at, len as u64) };
        Ok(Piece { offset: at, len, memory: Some(memory), answer: Some(answer) })
    }

    /// Reads the block at `offset` to a place in the memory.
    fn fill(&self, mut memory: Memory, offset: u64, place: usize) -> Result<Memory, IoError> {
        let (mut block, got, result) =
            self.settle(self.ask(self.memory(), offset, self.unit as usize));
        memory.as_mut()[place..][..got].copy_from_slice(&block.as_mut()[..got]);
        self.keep(block);
        result.map(|()| memory)
    }

    /// Waits for a read. One that failed is done again block by block: how many bytes are there, and why no more.
    fn settle(&self, piece: Piece) -> (Memory, usize, Result<(), IoError>) {
        let (offset, len, unit) = (piece.offset, piece.len, self.unit as usize);
        let (mut memory, result) = piece.end();
        match result {
            Some(Ok(())) => return (memory, len, Ok(())),
            None => return (memory, 0, Err(IoError::Stopped)),
            Some(Err(_)) => {}
        }
        let mut scratch = self.memory();
        for at in (0..len).step_by(unit) {
            let (mut block, result) = self.ask(scratch, offset + at as u64, unit).end();
            let error = match result {
                Some(Ok(())) => None,
                Some(Err(_)) => Some(IoError::Unreadable { offset: offset + at as u64 }),
                None => Some(IoError::Stopped),
            };
            if let Some(error) = error {
                return (memory, at, Err(error));
            }
            memory.as_mut()[at..][..unit].copy_from_slice(&block.as_mut()[..unit]);
            scratch = block;
        }
        self.keep(scratch);
        (memory, len, Ok(()))
    }

    fn unwritten(&self, error: RequestError, offset: u64) -> IoError {
        match error {
            RequestError::ReadOnly => IoError::ReadOnly,
            RequestError::NoSpace => IoError::NoSpace { offset },
            _ => IoError::Unwritable { offset },
        }
    }

    fn memory(&self) -> Memory {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_else(Memory::new)
    }

    fn keep(&self, memory: Memory) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < DEPTH {
            spare.push(memory);
        }
    }
}
