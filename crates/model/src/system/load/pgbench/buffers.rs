//! Shared buffers: a clock sweep, as PostgreSQL does it.
//!
//! Invariants: a page is in at most one buffer; a buffer whose page is on its way is not given up. Source:
//! src/backend/storage/buffer/freelist.c and bufmgr.c, read for what they do.

/// How often a page's use counts at most (`BM_MAX_USAGE_COUNT`).
const USES: u8 = 5;

#[derive(Clone, Copy, Debug)]
struct Buffer {
    page: Option<u64>,
    uses: u8,
    dirty: bool,
    is_coming: bool,
}

/// The buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    /// The buffer of each page, and one; 0: it is in none.
    of_page: Vec<u32>,
    buffers: Vec<Buffer>,
    hand: usize,
    /// Buffers that were given out since that was asked last.
    given: usize,
}

/// What asking for a page came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It is there.
    Hit,
    /// It is read for another.
    OnItsWay,
    /// It has a buffer and is to be read; the dirty page that was there is to be written.
    Missed { pushed_out: Option<u64> },
}

impl Buffers {
    pub fn new(count: u64, pages: u64) -> Self {
        let none = Buffer { page: None, uses: 0, dirty: false, is_coming: false };
        let buffers = vec![none; (count as usize).max(16)];
        Self { of_page: vec![0; pages as usize], buffers, hand: 0, given: 0 }
    }

    pub fn access(&mut self, page: u64) -> Access {
        if let Some(index) = self.index(page) {
            let buffer = &mut self.buffers[index];
            if buffer.is_coming {
                return Access::OnItsWay;
            }
            buffer.uses = (buffer.uses + 1).min(USES);
            return Access::Hit;
        }
        let index = self.victim();
        let old = self.buffers[index];
        if let Some(old) = old.page {
            self.of_page[old as usize] = 0;
        }
        self.buffers[index] = Buffer { page: Some(page), uses: 1, dirty: false, is_coming: true };
        self.of_page[page as usize] = index as u32 + 1;
        self.given += 1;
        Access::Missed { pushed_out: old.page.filter(|_| old.dirty) }
    }

    pub fn has_come(&mut self, page: u64) {
        let index = self.index(page).expect("a page on its way keeps its buffer");
        self.buffers[index].is_coming = false;
    }

    /// A page that is there is changed. It may have been pushed out since: then it is read again, which is left out.
    pub fn dirty(&mut self, page: u64) {
        if let Some(index) = self.index(page) {
            self.buffers[index].dirty = true;
        }
    }

    /// Takes a page as written; false if it is clean, or not there.
    pub fn clean(&mut self, page: u64) -> bool {
        let Some(index) = self.index(page) else { return false };
        std::mem::take(&mut self.buffers[index].dirty)
    }

    /// Dirty pages, by buffer.
    pub fn all_dirty(&self) -> Vec<u64> {
        let dirty = self.buffers.iter().filter(|buffer| buffer.dirty);
        dirty.filter_map(|buffer| buffer.page).collect()
    }

    /// Dirty pages that are pushed out soon if as many buffers are given out as since this was asked last, twice; at
    /// most so many, which are taken as written.
    pub fn soon_out(&mut self, most: usize) -> Vec<u64> {
        let ahead = (std::mem::take(&mut self.given) * 2).min(self.buffers.len());
        let mut pages = Vec::new();
        let (mut at, mut free) = (self.hand, 0);
        let count = self.buffers.len();
        for _ in 0..count {
            if free >= ahead || pages.len() >= most {
                break;
            }
            let buffer = &mut self.buffers[at];
            at = (at + 1) % count;
            if buffer.uses == 0 {
                free += 1;
                let was_dirty = std::mem::take(&mut buffer.dirty);
                pages.extend(buffer.page.filter(|_| was_dirty));
            }
        }
        pages
    }

    fn index(&self, page: u64) -> Option<usize> {
        (self.of_page[page as usize] as usize).checked_sub(1)
    }

    /// The next buffer that nobody used since the hand came by; one at a time loses a use.
    fn victim(&mut self) -> usize {
        let mut passed = 0;
        loop {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.buffers.len();
            let buffer = &mut self.buffers[index];
            if buffer.page.is_none() || (buffer.uses == 0 && !buffer.is_coming) {
                return index;
            }
            buffer.uses = buffer.uses.saturating_sub(1);
            passed += 1;
            assert!(passed <= 8 * self.buffers.len(), "not all buffers' pages are on their way");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_used_again_outlasts_those_that_are_not() {
        let mut buffers = Buffers::new(16, 100);
        for page in 0..16 {
            assert_eq!(buffers.access(page), Access::Missed { pushed_out: None });
            assert_eq!(buffers.access(page), Access::OnItsWay);
            buffers.has_come(page);
        }
        buffers.dirty(1);
        assert_eq!(buffers.access(0), Access::Hit);
        assert_eq!(buffers.access(16), Access::Missed { pushed_out: Some(1) });
        assert_eq!(buffers.access(0), Access::Hit);
        assert_eq!(buffers.all_dirty(), []);
    }
}
