//! Memory of a thread's requests: a run of pages for each slot.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Satisfies every O_DIRECT known.
const ALIGN: usize = 4096;

/// One allocation, a piece for each slot.
pub(crate) struct Buffers {
    start: NonNull<u8>,
    layout: Layout,
    stride: usize,
    block: usize,
}

// SAFETY: it owns its allocation; pieces are reached through `&mut self` or by `unsafe` of others.
unsafe impl Send for Buffers {}

impl Buffers {
    /// For `slots` requests of `block` bytes, filled by `fill`: compression must not see zeros.
    pub(crate) fn new(slots: u32, block: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let stride = block.next_multiple_of(ALIGN);
        let layout = Layout::from_size_align(stride * slots as usize, ALIGN);
        let layout = layout.expect("a plan's blocks and depths are bounded");
        // SAFETY: the layout is not of no size: a slot and a block are there at least.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        let buffers = Self { start, layout, stride, block };
        // SAFETY: our own memory, which nobody else knows yet.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), layout.size()) });
        buffers
    }

    /// The first byte of a slot's memory.
    pub(crate) fn start(&self, slot: u32) -> *mut u8 {
        let at = slot as usize * self.stride;
        assert!(at + self.stride <= self.layout.size(), "slot {slot} has no memory");
        // SAFETY: within the allocation, as was just seen.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// A slot's memory.
    ///
    /// # Safety
    /// No request of the slot is under way.
    pub(crate) unsafe fn slot(&mut self, slot: u32) -> &mut [u8] {
        // SAFETY: within the allocation; nobody else uses it, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start(slot), self.block) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
