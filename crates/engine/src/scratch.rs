//! The stripe cache's memory: page runs from one arena of the world's, handed out by the [buddy](Buddy) method.
//!
//! The arena is one world buffer, and its size a hard bound on what parity work can hold of it at once. It can be
//! given another size at any time. A run is a power of two of pages: those of a stripe have one size or a few, and
//! what is given back fits the next.

use crate::types::{Buf, BufId};
use lapstrake_buddy::Buddy;

/// The stripe cache's page, as md's.
pub const PAGE_BYTES: u32 = 4096;

/// Page runs of one arena.
#[derive(Debug)]
pub struct Scratch {
    arena: BufId,
    /// Bytes of the arena before its first page.
    base: u32,
    runs: Buddy,
}

impl Scratch {
    /// An arena of `pages` pages behind `arena`.
    #[must_use]
    pub fn new(arena: BufId, pages: u32) -> Self {
        Self::new_at(arena, 0, pages)
    }

    /// `pages` pages of an arena, the first of which is its page `first`.
    #[must_use]
    pub fn new_at(arena: BufId, first: u32, pages: u32) -> Self {
        Self { arena, base: first * PAGE_BYTES, runs: Buddy::new(pages) }
    }

    /// Gives out the first `pages` pages from now on.
    pub fn resize(&mut self, pages: u32) {
        self.runs.resize(pages);
    }

    /// Pages in runs.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.runs.used()
    }

    /// Pages of the arena, with those above the limit while some of them are in runs.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.runs.capacity()
    }

    /// Pages of which runs are taken.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.runs.limit()
    }

    /// A run of at least `bytes`, or none while too little is free in one piece.
    pub fn alloc(&mut self, bytes: u32) -> Option<Buf> {
        let page = self.runs.alloc(pages(bytes))?;
        Some(Buf { id: self.arena, offset: self.base + page * PAGE_BYTES })
    }

    /// Gives back what [`Self::alloc`] gave for the same number of bytes.
    ///
    /// # Panics
    /// If it did not, or it was given back.
    pub fn free(&mut self, run: Buf, bytes: u32) {
        self.runs.free((run.offset - self.base) / PAGE_BYTES, pages(bytes));
    }
}

fn pages(bytes: u32) -> u32 {
    bytes.div_ceil(PAGE_BYTES).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_powers_of_two_behind_the_arenas_first_page() {
        let mut scratch = Scratch::new_at(BufId(1), 3, 8);
        let run = scratch.alloc(2 * PAGE_BYTES + 1).unwrap();
        assert_eq!((run, scratch.used()), (Buf { id: BufId(1), offset: 3 * PAGE_BYTES }, 4));
        let next = scratch.alloc(1).unwrap();
        assert_eq!((next.offset, scratch.used()), (7 * PAGE_BYTES, 5));
        scratch.free(run, 3 * PAGE_BYTES);
        scratch.free(next, PAGE_BYTES);
        assert_eq!((scratch.used(), scratch.capacity()), (0, 8));
    }
}
