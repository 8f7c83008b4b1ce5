//! The stripe cache's memory: page runs from one arena, handed out by the buddy method.
//!
//! Invariants: a run is a power of two of pages, aligned to its size; `free_pages` counts what
//! no run holds; two free buddies never stay apart. The arena is one world buffer of
//! `capacity` pages, so its size is a hard bound on what parity work can hold at once.

use crate::types::{Buf, BufId};
use alloc::{vec, vec::Vec};

/// The stripe cache's page, as md's.
pub const PAGE_BYTES: u32 = 4096;
const ORDERS: usize = 12;
const NOT_FREE: u8 = u8::MAX;

/// Page runs of one arena.
#[derive(Debug)]
pub struct Scratch {
    arena: BufId,
    /// Bytes of the arena before its first page.
    base: u32,
    free: [Vec<u32>; ORDERS],
    /// For the first page of a free run its order.
    free_order: Vec<u8>,
    /// Where a free run stands in its list, so that a buddy leaves it in constant time.
    place: Vec<u32>,
    free_pages: u32,
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
        let mut this = Self {
            arena,
            base: first * PAGE_BYTES,
            free: Default::default(),
            free_order: vec![NOT_FREE; pages as usize],
            place: vec![0; pages as usize],
            free_pages: pages,
        };
        let mut at = 0;
        while at < pages {
            let fit = (pages - at).ilog2();
            let order = at.trailing_zeros().min(fit).min(ORDERS as u32 - 1) as usize;
            this.put(at, order);
            at += 1 << order;
        }
        this
    }

    /// Pages in no run.
    #[must_use]
    pub fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Pages of the arena.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.free_order.len() as u32
    }

    /// A run of at least `bytes`, or none while too little is free in one piece.
    pub fn alloc(&mut self, bytes: u32) -> Option<Buf> {
        let want = Self::order_of(bytes);
        let mut order = (want..ORDERS).find(|&o| !self.free[o].is_empty())?;
        let page = *self.free[order].last()?;
        self.take(page, order);
        while order > want {
            order -= 1;
            self.put(page + (1 << order), order);
        }
        self.free_pages -= 1 << want;
        Some(Buf { id: self.arena, offset: self.base + page * PAGE_BYTES })
    }

    /// Gives back what [`Self::alloc`] gave for the same number of bytes.
    pub fn free(&mut self, run: Buf, bytes: u32) {
        let mut order = Self::order_of(bytes);
        let mut page = (run.offset - self.base) / PAGE_BYTES;
        self.free_pages += 1 << order;
        while order + 1 < ORDERS {
            let buddy = page ^ (1 << order);
            if self.free_order.get(buddy as usize) != Some(&(order as u8)) {
                break;
            }
            self.take(buddy, order);
            page &= !(1 << order);
            order += 1;
        }
        self.put(page, order);
    }

    fn order_of(bytes: u32) -> usize {
        bytes.div_ceil(PAGE_BYTES).next_power_of_two().ilog2() as usize
    }

    fn put(&mut self, page: u32, order: usize) {
        self.free_order[page as usize] = order as u8;
        self.place[page as usize] = self.free[order].len() as u32;
        self.free[order].push(page);
    }

    fn take(&mut self, page: u32, order: usize) {
        let at = self.place[page as usize] as usize;
        self.free[order].swap_remove(at);
        if let Some(&moved) = self.free[order].get(at) {
            self.place[moved as usize] = at as u32;
        }
        self.free_order[page as usize] = NOT_FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_given_back_joins_again() {
        let mut scratch = Scratch::new(BufId(1), 100);
        let mut held = Vec::new();
        let mut seed = 7u32;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = (seed >> 8) % 40_000 + 1;
            if seed & 1 == 0 {
                held.extend(scratch.alloc(bytes).map(|run| (run, bytes)));
            } else if !held.is_empty() {
                let (run, bytes) = held.swap_remove(seed as usize % held.len());
                scratch.free(run, bytes);
            }
            let mut spans: Vec<(u32, u32)> = held
                .iter()
                .map(|(run, bytes)| {
                    let first = run.offset / PAGE_BYTES;
                    (first, first + (1 << Scratch::order_of(*bytes)))
                })
                .collect();
            spans.sort_unstable();
            assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "two runs share a page");
            let used: u32 = spans.iter().map(|s| s.1 - s.0).sum();
            assert_eq!(used + scratch.free_pages(), 100);
        }
        for (run, bytes) in held {
            scratch.free(run, bytes);
        }
        assert_eq!(scratch.free_pages(), 100);
        assert!(scratch.alloc(64 * PAGE_BYTES).is_some(), "free runs did not join");
    }
}
