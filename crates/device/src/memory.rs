//! A member in this process's memory, for tests and benchmarks: no system call, no copy but the one.
//!
//! Like a disk it may be shared by several queues. Transfers that overlap in time and place give bytes
//! of either, in any mixture; the users of one member keep theirs apart.

use crate::op::IoVec;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const ALIGN: usize = 4096;

#[derive(Debug)]
pub(crate) struct MemoryStore {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the store owns plain bytes; who touches which at what time is settled as the module says.
unsafe impl Send for MemoryStore {}
// SAFETY: as above.
unsafe impl Sync for MemoryStore {}

impl MemoryStore {
    /// `len` bytes of zeroes, their pages touched.
    pub(crate) fn new(len: usize) -> Self {
        let layout = layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        for page in (0..len).step_by(ALIGN) {
            // SAFETY: within the allocation. Volatile, so that the page is really touched.
            unsafe { start.add(page).write_volatile(0) };
        }
        Self { start, len }
    }

    fn at(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len as u64));
        // SAFETY: within the allocation, as just asserted.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }

    /// Copies out.
    ///
    /// # Safety
    /// The vectors must name memory that may be written.
    pub(crate) unsafe fn read(&self, offset: u64, iov: &[IoVec]) {
        let mut at = offset;
        for v in iov {
            let from = self.at(at, v.len as u64);
            // SAFETY: the source is within the allocation, the target the caller's promise.
            unsafe { std::ptr::copy(from, v.ptr, v.len) };
            at += v.len as u64;
        }
    }

    /// Copies in.
    ///
    /// # Safety
    /// The vectors must name memory that may be read.
    pub(crate) unsafe fn write(&self, offset: u64, iov: &[IoVec]) {
        let mut at = offset;
        for v in iov {
            let to = self.at(at, v.len as u64);
            // SAFETY: the target is within the allocation, the source the caller's promise.
            unsafe { std::ptr::copy(v.ptr, to, v.len) };
            at += v.len as u64;
        }
    }

    pub(crate) fn zero(&self, offset: u64, len: u64) {
        let to = self.at(offset, len);
        // SAFETY: within the allocation.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) };
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), ALIGN).expect("a size below isize::MAX")
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), layout(self.len)) };
    }
}
