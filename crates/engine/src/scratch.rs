//! The stripe cache's memory: page runs from one arena, handed out by the buddy method.
//!
//! Invariants: a run is a power of two of pages, aligned to its size; `free_pages` counts what
//! no run holds below `limit`; two free buddies never stay apart. The arena is one world buffer, and
//! `limit` a hard bound on what parity work can hold of it at once. It can be moved at any time: when it comes
//! down, what lies above it is not given out again, and `capacity` follows when all of that has come back.

use crate::types::{Buf, BufId};
use alloc::vec::Vec;
use core::mem;

/// The stripe cache's page, as md's.
pub const PAGE_BYTES: u32 = 4096;
const ORDERS: usize = 12;
/// In a run that is given out, or no first page of a free one.
const NOT_FREE: u8 = u8::MAX;
/// Not in use, and above the limit.
const RETIRED: u8 = u8::MAX - 1;

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
    /// Runs are taken from the pages below this one.
    limit: u32,
    /// Pages from there on that are still given out.
    above: u32,
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
            free_order: Vec::new(),
            place: Vec::new(),
            free_pages: 0,
            limit: 0,
            above: 0,
        };
        this.resize(pages);
        this
    }

    /// Gives out the first `pages` pages from now on.
    pub fn resize(&mut self, pages: u32) {
        if pages < self.limit { self.shrink(pages) } else { self.grow(pages) }
    }

    fn grow(&mut self, pages: u32) {
        let there = self.free_order.len().max(pages as usize);
        self.free_order.resize(there, RETIRED);
        self.place.resize(there, 0);
        for page in mem::replace(&mut self.limit, pages)..pages {
            if self.free_order[page as usize] == RETIRED {
                self.free_order[page as usize] = NOT_FREE;
                self.give(page);
            } else {
                self.above -= 1;
            }
        }
        self.trim();
    }

    fn shrink(&mut self, pages: u32) {
        let mut cut = Vec::new();
        for order in 0..ORDERS {
            let len = 1 << order;
            let reaches = |first: &&u32| **first + len > pages;
            let runs: Vec<u32> = self.free[order].iter().filter(reaches).copied().collect();
            for first in runs {
                self.take(first, order);
                self.free_pages -= len;
                cut.push(first..first + len);
            }
        }
        self.above += mem::replace(&mut self.limit, pages) - pages;
        cut.into_iter().flatten().for_each(|page| self.give(page));
        self.trim();
    }

    /// Takes one page that is in no run.
    fn give(&mut self, page: u32) {
        if page < self.limit {
            self.free_pages += 1;
            self.join(page, 0);
        } else {
            self.free_order[page as usize] = RETIRED;
            self.above -= 1;
        }
    }

    fn trim(&mut self) {
        if self.above == 0 {
            self.free_order.truncate(self.limit as usize);
            self.place.truncate(self.limit as usize);
        }
    }

    /// Pages in runs.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.limit - self.free_pages + self.above
    }

    /// Pages of the arena, with those above the limit while some of them are in runs.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.free_order.len() as u32
    }

    /// Pages of which runs are taken.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
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
        let order = Self::order_of(bytes);
        let page = (run.offset - self.base) / PAGE_BYTES;
        let end = page + (1 << order);
        if end <= self.limit {
            self.free_pages += 1 << order;
            return self.join(page, order);
        }
        (page..end).for_each(|page| self.give(page));
        self.trim();
    }

    /// A free run, with its buddy if that is free too.
    fn join(&mut self, mut page: u32, mut order: usize) {
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

    /// Takes and gives back at random, with the limit moved now and then; all runs must be apart, and below the
    /// limit that held when they were taken.
    fn exercise(limits: &[u32]) -> Scratch {
        let mut scratch = Scratch::new(BufId(1), limits[0]);
        let mut held: Vec<(Buf, u32)> = Vec::new();
        let mut seed = 7u32;
        for turn in 0..10_000usize {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = (seed >> 8) % 40_000 + 1;
            let limit = limits[turn / 100 % limits.len()];
            scratch.resize(limit);
            if seed & 1 == 0 {
                let run = scratch.alloc(bytes);
                let end = |run: Buf| run.offset / PAGE_BYTES + (1 << Scratch::order_of(bytes));
                assert!(run.is_none_or(|run| end(run) <= limit), "a run above the limit");
                held.extend(run.map(|run| (run, bytes)));
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
            assert_eq!(spans.iter().map(|s| s.1 - s.0).sum::<u32>(), scratch.used());
            let last = spans.last().map_or(0, |span| span.1);
            assert!(scratch.capacity() >= last, "a run in memory that was given up");
            assert!(last > limit || scratch.capacity() == limit, "memory is kept that nobody has");
        }
        for (run, bytes) in held {
            scratch.free(run, bytes);
        }
        scratch
    }

    #[test]
    fn everything_given_back_joins_again() {
        let mut scratch = exercise(&[100]);
        assert_eq!((scratch.used(), scratch.capacity()), (0, 100));
        assert!(scratch.alloc(64 * PAGE_BYTES).is_some(), "free runs did not join");
    }

    #[test]
    fn the_limit_moves_under_whatever_is_held() {
        let mut scratch = exercise(&[100, 37, 300, 64, 65, 1, 128]);
        scratch.resize(256);
        assert_eq!((scratch.used(), scratch.capacity()), (0, 256));
        assert!(scratch.alloc(256 * PAGE_BYTES).is_some(), "free runs did not join");
        scratch.resize(0);
        assert_eq!((scratch.used(), scratch.capacity()), (256, 256));
    }
}
