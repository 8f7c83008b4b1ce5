//! Memory that is taken as a whole, and grows and shrinks where it lies.
//!
//! Addresses for the most that it may become are reserved at the start, which costs no memory. So what points into
//! it, such as I/O on its way, stays right whenever it changes its size.
//!
//! Invariant: the first `len` bytes are readable, writable, and touched; what lies behind them is not accessible.

use crate::pool::{PAGE, touch};
use std::io;
use std::ptr::NonNull;

/// See the module.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    reserved: usize,
    len: usize,
    locked: bool,
}

// SAFETY: the arena owns its mapping; what is done with pointers into it is the callers' `unsafe`.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and touches `bytes`, rounded up to pages, which may become `most`; with `lock` keeps them from being
    /// swapped out. Where the system refuses the lock (RLIMIT_MEMLOCK), [`Arena::locked`] says so; where it refuses the
    /// addresses (RLIMIT_AS), it cannot grow.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub fn new(bytes: usize, most: usize, lock: bool) -> io::Result<Self> {
        let most = most.max(bytes).next_multiple_of(PAGE).max(PAGE);
        let least = bytes.next_multiple_of(PAGE).max(PAGE);
        let reserve = |len| reserve(len).map(|start| (start, len));
        let (start, reserved) = reserve(most).or_else(|_| reserve(least))?;
        let mut arena = Self { start, reserved, len: 0, locked: lock };
        arena.resize(bytes)?;
        Ok(arena)
    }

    /// Changes its size. The first bytes keep what they hold; nobody may use what lies behind a smaller size any more.
    ///
    /// # Errors
    /// The system has not that much memory, or addresses; then it is as it was.
    pub fn resize(&mut self, bytes: usize) -> io::Result<()> {
        let len = bytes.next_multiple_of(PAGE);
        if len > self.reserved {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if len < self.len {
            self.shrink(len);
        } else if len > self.len {
            self.grow(len)?;
        }
        self.len = len;
        Ok(())
    }

    fn grow(&mut self, len: usize) -> io::Result<()> {
        let (from, more) = (self.at(self.len), len - self.len);
        // SAFETY: these bytes are of our own reservation, and nobody uses them yet.
        unsafe {
            if libc::mprotect(from, more, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(io::Error::last_os_error());
            }
            touch(from.cast(), more);
            self.locked = self.locked && libc::mlock(from, more) == 0;
        }
        Ok(())
    }

    fn shrink(&mut self, len: usize) {
        let (from, less) = (self.at(len), self.len - len);
        // SAFETY: these bytes are of our own reservation, and the caller says that nobody uses them. If a call fails,
        // memory is kept for nothing.
        unsafe {
            libc::munlock(from, less);
            libc::madvise(from, less, libc::MADV_DONTNEED);
            libc::mprotect(from, less, libc::PROT_NONE);
        }
    }

    fn at(&self, offset: usize) -> *mut libc::c_void {
        // SAFETY: within the reservation.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Its first byte, which never moves.
    pub fn base(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its size, bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Whether the memory is locked against being swapped out.
    pub fn locked(&self) -> bool {
        self.locked
    }
}

fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the system's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(start.cast()).expect("mmap gives no null"))
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a range that are in memory.
    fn resident(arena: &Arena, pages: usize) -> usize {
        let mut seen = vec![0u8; pages];
        // SAFETY: the range is of the arena's mapping, and there is a byte for each page.
        let done =
            unsafe { libc::mincore(arena.base().cast(), pages * PAGE, seen.as_mut_ptr().cast()) };
        assert_eq!(done, 0);
        seen.iter().filter(|&&byte| byte & 1 == 1).count()
    }

    #[test]
    fn it_grows_and_shrinks_where_it_lies() {
        let mut arena = Arena::new(4 * PAGE, 64 * PAGE, true).unwrap();
        let base = arena.base();
        // SAFETY: within its size.
        unsafe { base.add(3 * PAGE).write(7) };
        assert_eq!(resident(&arena, 64), 4);
        arena.resize(64 * PAGE).unwrap();
        // SAFETY: likewise.
        unsafe { base.add(64 * PAGE - 1).write(9) };
        assert_eq!((arena.base(), arena.bytes(), resident(&arena, 64)), (base, 64 * PAGE, 64));
        arena.resize(4 * PAGE).unwrap();
        assert_eq!(
            (arena.bytes(), resident(&arena, 64)),
            (4 * PAGE, 4),
            "memory was not given back"
        );
        // SAFETY: likewise.
        assert_eq!(unsafe { base.add(3 * PAGE).read() }, 7);
        arena.resize(8 * PAGE).unwrap();
        // SAFETY: likewise.
        assert_eq!(unsafe { base.add(7 * PAGE).read() }, 0);
        assert!(arena.resize(65 * PAGE).is_err());
        assert_eq!(arena.bytes(), 8 * PAGE);
    }

    #[test]
    fn it_may_be_empty() {
        let arena = Arena::new(0, 0, false).unwrap();
        assert_eq!(arena.bytes(), 0);
    }
}
