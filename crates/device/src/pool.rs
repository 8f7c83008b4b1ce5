//! A bounded arena of pages for I/O: mapped and touched once, never grown, its runs handed out by the
//! [buddy](Buddy) method.

use lapstrake_buddy::Buddy;
use std::io;
use std::ptr::NonNull;

/// Bytes in a page of the pool.
pub const PAGE: usize = 4096;

/// A run of pages given out by [`Pool::alloc`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufId {
    page: u32,
    pages: u32,
}

impl BufId {
    /// Length in bytes: what was asked for, rounded up to pages.
    pub fn bytes(self) -> usize {
        self.pages as usize * PAGE
    }
}

/// How full a pool is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Given out now.
    pub in_use: usize,
    /// All there is.
    pub capacity: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Pool {
    start: NonNull<u8>,
    runs: Buddy,
    locked: bool,
}

// SAFETY: the pool owns its mapping; handing out pointers needs `&self` of one thread at a time, and
// what is done with them is the callers' `unsafe`.
unsafe impl Send for Pool {}

impl Pool {
    /// Maps and touches `bytes`, rounded up to pages; with `lock`, for a pool that stays,
    /// keeps them from being swapped out, in huge pages if there are such, and from children of the process.
    /// Where the system refuses the lock (RLIMIT_MEMLOCK), the pool is made all the same and
    /// [`Pool::locked`] says so.
    ///
    /// # Errors
    /// The system has not that much memory, or it is 2^32 pages and more.
    pub fn new(bytes: usize, lock: bool) -> io::Result<Self> {
        let count = bytes.div_ceil(PAGE).max(1);
        let pages = u32::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let len = count * PAGE;
        let start = map(len, lock)?;
        // SAFETY: our own mapping.
        let locked = lock && unsafe { libc::mlock(start.as_ptr().cast(), len) } == 0;
        Ok(Self { start, runs: Buddy::new(pages), locked })
    }

    /// A run of at least `bytes`, page-aligned, contents unspecified; `None` if no hole is large enough.
    pub fn alloc(&mut self, bytes: usize) -> Option<BufId> {
        let pages = u32::try_from(bytes.div_ceil(PAGE).max(1)).ok()?;
        Some(BufId { page: self.runs.alloc(pages)?, pages })
    }

    /// Takes a run back.
    ///
    /// # Panics
    /// If it is not given out (freed twice, or another pool's).
    pub fn free(&mut self, buf: BufId) {
        self.runs.free(buf.page, buf.pages);
    }

    /// The first byte of a run; valid until it is freed.
    pub fn ptr(&self, buf: BufId) -> *mut u8 {
        debug_assert!(self.runs.is_used(buf.page, buf.pages), "{buf:?} is not given out");
        // SAFETY: runs lie within the mapping.
        unsafe { self.start.as_ptr().add(buf.page as usize * PAGE) }
    }

    /// The first byte of the arena, for a user that takes it as a whole and allocates nothing.
    pub fn base(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How full it is.
    pub fn stats(&self) -> PoolStats {
        let bytes = |pages: u32| pages as usize * PAGE;
        PoolStats { in_use: bytes(self.runs.used()), capacity: bytes(self.runs.capacity()) }
    }

    /// Whether the memory is locked against being swapped out.
    pub fn locked(&self) -> bool {
        self.locked
    }
}

fn map(len: usize, stays: bool) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the system's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if stays {
        // Copies through huge pages are faster by some percent, but finding one may take long. A child could not
        // share what is registered with a ring: it would get a copy of all, in small pages, and leave us such.
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: the new mapping. It is advice: refused, nothing else changes.
            unsafe { libc::madvise(start, len, advice) };
        }
    }
    // SAFETY: `len` new bytes that nobody else knows of.
    unsafe { touch(start.cast(), len) };
    Ok(NonNull::new(start.cast()).expect("mmap gives no null"))
}

/// Has the system find the pages of fresh memory.
///
/// # Safety
/// Writable memory that nobody uses yet, and of which every page begins with a zero.
pub(crate) unsafe fn touch(start: *mut u8, len: usize) {
    for page in (0..len).step_by(PAGE) {
        // SAFETY: the caller's.
        unsafe { start.add(page).write_volatile(0) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: our own mapping; pointers into it are valid only while their runs are.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.stats().capacity) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_runs_leave_their_tail_to_others() {
        let mut pool = Pool::new(8 * PAGE, false).unwrap();
        let five = pool.alloc(5 * PAGE).unwrap();
        let three = pool.alloc(2 * PAGE + 1);
        // The tail is pages 5, 6 and 7: blocks of one and two, no block of four for a run of three.
        assert_eq!(three, None);
        let two = pool.alloc(2 * PAGE).unwrap();
        let one = pool.alloc(1).unwrap();
        assert_eq!(pool.alloc(1), None);
        assert_eq!(pool.stats().in_use, 8 * PAGE);
        for buf in [five, one, two] {
            pool.free(buf);
        }
        assert_eq!(pool.stats().in_use, 0);
        assert_eq!(pool.alloc(8 * PAGE).unwrap().bytes(), 8 * PAGE);
    }

    #[test]
    fn runs_never_share_a_page_and_all_merge_again() {
        // A fixed walk of allocations and frees over a pool that is no power of two.
        let mut pool = Pool::new(1003 * PAGE, false).unwrap();
        let mut live: Vec<BufId> = Vec::new();
        let mut owner = vec![false; 1003];
        let mut seed = 1u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let draw = (seed >> 33) as usize;
            if draw % 5 < 3 {
                let Some(buf) = pool.alloc((draw / 5 % 40 + 1) * PAGE) else { continue };
                assert_eq!(pool.ptr(buf) as usize % PAGE, 0);
                for page in &mut owner[buf.page as usize..][..buf.pages as usize] {
                    assert!(!std::mem::replace(page, true));
                }
                live.push(buf);
            } else if !live.is_empty() {
                let buf = live.swap_remove(draw / 5 % live.len());
                owner[buf.page as usize..][..buf.pages as usize].fill(false);
                pool.free(buf);
            }
            let pages = owner.iter().filter(|&&used| used).count();
            assert_eq!(pool.stats().in_use, pages * PAGE);
        }
        live.drain(..).for_each(|buf| pool.free(buf));
        assert!(pool.alloc(512 * PAGE).is_some());
    }

    #[test]
    #[should_panic(expected = "not given out")]
    fn freeing_twice_is_a_bug_that_shows() {
        let mut pool = Pool::new(4 * PAGE, false).unwrap();
        let buf = pool.alloc(PAGE).unwrap();
        pool.free(buf);
        pool.free(buf);
    }
}
