//! Runs of pages of one arena, handed out by the buddy method. Only numbers of pages are known here, no memory.
//!
//! A run need not be a power of two: it is cut from the smallest block that holds it, and the tail goes back at once.
//!
//! The arena has a limit, which can be moved at any time: when it comes down, what lies above it is not given out
//! again, and [`Buddy::capacity`] follows when all of that has come back.
//!
//! Invariants: each page below the limit is in exactly one free block or in one run that is given out; a free block of
//! order `k` starts at a multiple of `2^k`; two free buddies never stay apart; every step takes constant time, but for
//! moving the limit.

#![no_std]

extern crate alloc;

use alloc::vec::Vec;
use core::{mem, ops::Range};

const ORDERS: usize = u32::BITS as usize;

/// Where a page stands, for the first pages of blocks and runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// Not the first page of anything.
    Inside,
    /// The first of a free block of this order, at this place of its free list.
    Free { order: u8, at: u32 },
    /// The first of a run of this many pages.
    Used { pages: u32 },
    /// In no run, and above the limit.
    Retired,
}

/// See the crate.
#[derive(Debug, Default)]
pub struct Buddy {
    pages: Vec<Page>,
    free: [Vec<u32>; ORDERS],
    /// Pages that no run holds below `limit`.
    free_pages: u32,
    /// Runs are taken from the pages below this one.
    limit: u32,
    /// Pages from there on that are still given out.
    above: u32,
}

impl Buddy {
    /// An arena of `pages` free pages.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        let mut this = Self::default();
        this.resize(pages);
        this
    }

    /// The first page of a run of `pages`, or none while too little is free in one piece.
    ///
    /// # Panics
    /// If `pages` is 0.
    pub fn alloc(&mut self, pages: u32) -> Option<u32> {
        assert!(pages > 0, "a run without pages");
        let order = pages.checked_next_power_of_two()?.ilog2() as usize;
        let found = (order..ORDERS).find(|&order| !self.free[order].is_empty())?;
        let page = *self.free[found].last()?;
        self.unlist(page);
        self.put_back(page + pages..page + (1 << found));
        self.pages[page as usize] = Page::Used { pages };
        Some(page)
    }

    /// Takes back the run of `pages` that begins at `page`.
    ///
    /// # Panics
    /// If it is not given out: freed twice, or never given out.
    pub fn free(&mut self, page: u32, pages: u32) {
        assert!(self.is_used(page, pages), "{pages} pages from {page} are not given out");
        self.pages[page as usize] = Page::Inside;
        self.release(page..page + pages);
    }

    /// Whether `page` is the first of a run of `pages` that is given out.
    #[must_use]
    pub fn is_used(&self, page: u32, pages: u32) -> bool {
        self.pages.get(page as usize) == Some(&Page::Used { pages })
    }

    /// Gives out the first `pages` pages from now on.
    pub fn resize(&mut self, pages: u32) {
        if pages < self.limit {
            self.shrink(pages)
        } else {
            self.grow(pages)
        }
        self.trim();
    }

    /// Pages in runs.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.limit - self.free_pages + self.above
    }

    /// Pages of the arena, with those above the limit while some of them are in runs.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Pages of which runs are taken.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    fn grow(&mut self, limit: u32) {
        let there = self.pages.len().max(limit as usize);
        self.pages.resize(there, Page::Retired);
        let mut page = mem::replace(&mut self.limit, limit);
        while page < limit {
            let ahead = &self.pages[page as usize..limit as usize];
            let retired = ahead.iter().take_while(|page| **page == Page::Retired).count() as u32;
            if retired == 0 {
                // Its run is below the limit again, if not all of it.
                self.above -= 1;
                page += 1;
                continue;
            }
            self.pages[page as usize..(page + retired) as usize].fill(Page::Inside);
            self.put_back(page..page + retired);
            page += retired;
        }
    }

    fn shrink(&mut self, limit: u32) {
        let mut cut = Vec::new();
        for order in 0..ORDERS {
            let ends = |first: u32| first + (1 << order);
            let blocks = self.free[order].iter().filter(|&&first| ends(first) > limit);
            cut.extend(blocks.map(|&first| first..ends(first)));
        }
        cut.iter().for_each(|block| self.unlist(block.start));
        self.above += mem::replace(&mut self.limit, limit) - limit;
        cut.into_iter().for_each(|block| self.release(block));
    }

    /// Takes pages that are in no run and in no free block.
    fn release(&mut self, pages: Range<u32>) {
        let cut = self.limit.clamp(pages.start, pages.end);
        self.put_back(pages.start..cut);
        if cut < pages.end {
            self.pages[cut as usize..pages.end as usize].fill(Page::Retired);
            self.above -= pages.end - cut;
            self.trim();
        }
    }

    fn trim(&mut self) {
        if self.above == 0 {
            self.pages.truncate(self.limit as usize);
        }
    }

    /// Frees pages below the limit as the largest aligned blocks.
    fn put_back(&mut self, pages: Range<u32>) {
        let Range { start: mut page, end } = pages;
        self.free_pages += end - page;
        while page < end {
            let order = (end - page).ilog2().min(page.trailing_zeros());
            self.join(page, order as usize);
            page += 1 << order;
        }
    }

    /// A free block, with its buddy if that is free too.
    fn join(&mut self, mut page: u32, mut order: usize) {
        loop {
            let buddy = page ^ (1 << order);
            let found = self.pages.get(buddy as usize);
            if !matches!(found, Some(Page::Free { order: o, .. }) if usize::from(*o) == order) {
                break;
            }
            self.unlink(buddy);
            page &= !(1 << order);
            order += 1;
        }
        let at = self.free[order].len() as u32;
        self.pages[page as usize] = Page::Free { order: order as u8, at };
        self.free[order].push(page);
    }

    /// Takes a free block, all of it.
    fn unlist(&mut self, page: u32) {
        self.free_pages -= 1 << self.unlink(page);
    }

    /// Takes a free block off its list; its order.
    fn unlink(&mut self, page: u32) -> u8 {
        let Page::Free { order, at } = self.pages[page as usize] else {
            unreachable!("only free blocks are listed")
        };
        let list = &mut self.free[usize::from(order)];
        list.swap_remove(at as usize);
        if let Some(&moved) = list.get(at as usize) {
            self.pages[moved as usize] = Page::Free { order, at };
        }
        self.pages[page as usize] = Page::Inside;
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and gives back at random, with the limit moved now and then; all runs must be apart, and below the
    /// limit that held when they were taken.
    fn exercise(limits: &[u32], whole_blocks: bool) -> Buddy {
        let mut buddy = Buddy::new(limits[0]);
        let mut held: Vec<Range<u32>> = Vec::new();
        let mut seed = 7u32;
        for turn in 0..10_000usize {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pages = (seed >> 8) % 10 + 1;
            let pages = if whole_blocks { pages.next_power_of_two() } else { pages };
            let limit = limits[turn / 100 % limits.len()];
            buddy.resize(limit);
            if seed & 1 == 0 {
                let run = buddy.alloc(pages).map(|page| page..page + pages);
                assert!(run.as_ref().is_none_or(|run| run.end <= limit), "a run above the limit");
                held.extend(run);
            } else if !held.is_empty() {
                let run = held.swap_remove(seed as usize % held.len());
                buddy.free(run.start, run.end - run.start);
            }
            held.sort_unstable_by_key(|run| run.start);
            assert!(held.windows(2).all(|w| w[0].end <= w[1].start), "two runs share a page");
            assert_eq!(held.iter().map(|run| run.end - run.start).sum::<u32>(), buddy.used());
            let last = held.last().map_or(0, |run| run.end);
            assert!(buddy.capacity() >= last, "a run in memory that was given up");
            assert!(last > limit || buddy.capacity() == limit, "memory is kept that nobody has");
        }
        for run in held {
            buddy.free(run.start, run.end - run.start);
        }
        buddy
    }

    #[test]
    fn everything_given_back_joins_again() {
        for whole_blocks in [false, true] {
            let mut buddy = exercise(&[100], whole_blocks);
            assert_eq!((buddy.used(), buddy.capacity()), (0, 100));
            assert!(buddy.alloc(64).is_some(), "free runs did not join");
        }
    }

    #[test]
    fn the_limit_moves_under_whatever_is_held() {
        for whole_blocks in [false, true] {
            let mut buddy = exercise(&[100, 37, 300, 64, 65, 1, 128], whole_blocks);
            buddy.resize(256);
            assert_eq!((buddy.used(), buddy.capacity()), (0, 256));
            assert!(buddy.alloc(256).is_some(), "free runs did not join");
            buddy.resize(0);
            assert_eq!((buddy.used(), buddy.capacity()), (256, 256));
        }
    }

    #[test]
    fn odd_runs_leave_their_tail_to_others() {
        let mut buddy = Buddy::new(8);
        assert_eq!(buddy.alloc(5), Some(0));
        // The tail is pages 5, 6 and 7: blocks of one and two, no block of four for a run of three.
        assert_eq!(buddy.alloc(3), None);
        assert_eq!((buddy.alloc(2), buddy.alloc(1), buddy.alloc(1)), (Some(6), Some(5), None));
        for (page, pages) in [(0, 5), (6, 2), (5, 1)] {
            buddy.free(page, pages);
        }
        assert_eq!((buddy.used(), buddy.alloc(8)), (0, Some(0)));
    }

    #[test]
    #[should_panic(expected = "4 pages from 0 are not given out")]
    fn a_run_is_given_back_as_it_was_given_out() {
        let mut buddy = Buddy::new(8);
        buddy.alloc(3).unwrap();
        buddy.free(0, 4);
    }
}
