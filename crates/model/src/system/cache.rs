//! The page cache: which pages are there, on their way, dirty, under write-back.
//!
//! Invariants: at most so many pages as there is room for, but for dirty ones and those on their way;
//! pages of files go in the order in which they came (one process that goes on never comes back to them
//! sooner), pages that were used again since go a second time round.
//!
//! Source: mm/vmscan.c. A page that is used twice is active, and what falls off that list goes through the
//! inactive one before it is given up; both are looked through in proportion to their sizes, so each takes
//! as long as a memory's worth of new pages. From 2.6.31 on active pages stay while they are the fewer.

use super::FileId;
use super::bits::Bits;
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug)]
struct Pages {
    /// There or on their way.
    known: Bits,
    /// Being read.
    reading: Bits,
    dirty: Bits,
    writing: Bits,
    /// Used again since they came, or came to the end of their first round.
    active: Bits,
}

/// All files' pages.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    files: Vec<Pages>,
    /// Runs of pages by when they came.
    came: VecDeque<(FileId, Range<u64>)>,
    held: u64,
    held_max: u64,
    keeps_active: bool,
    dirty: u64,
    writing: u64,
}

impl Cache {
    /// Room for so many pages; whether active ones stay.
    pub fn new(held_max: u64, keeps_active: bool) -> Self {
        let came = VecDeque::new();
        Self { files: Vec::new(), came, held: 0, held_max, keeps_active, dirty: 0, writing: 0 }
    }

    pub fn add_file(&mut self, pages: u64) {
        let none = Bits::new(pages);
        let [known, reading, dirty] = [none.clone(), none.clone(), none.clone()];
        self.files.push(Pages { known, reading, dirty, writing: none.clone(), active: none });
    }

    /// Dirty pages and those under write-back.
    pub fn unwritten(&self) -> u64 {
        self.dirty + self.writing
    }

    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    pub fn dirty_of(&self, file: FileId) -> u64 {
        self.files[file.0].dirty.count()
    }

    pub fn unwritten_of(&self, file: FileId) -> u64 {
        self.files[file.0].dirty.count() + self.files[file.0].writing.count()
    }

    pub fn is_known(&self, file: FileId, page: u64) -> bool {
        self.files[file.0].known.has(page)
    }

    pub fn is_there(&self, file: FileId, page: u64) -> bool {
        self.files[file.0].known.has(page) && !self.files[file.0].reading.has(page)
    }

    /// A page is used again and again.
    pub fn activate(&mut self, file: FileId, page: u64) {
        self.files[file.0].active.put(page);
    }

    pub fn begin_read(&mut self, file: FileId, pages: Range<u64>) {
        for page in pages.clone() {
            self.files[file.0].reading.put(page);
        }
        self.hold(file, pages);
    }

    pub fn end_read(&mut self, file: FileId, pages: Range<u64>) {
        for page in pages {
            self.files[file.0].reading.take(page);
        }
    }

    /// A page is written in memory; it is there then. False if it was dirty already.
    pub fn make_dirty(&mut self, file: FileId, page: u64) -> bool {
        if !self.is_known(file, page) {
            self.hold(file, page..page + 1);
        }
        let is_new = self.files[file.0].dirty.put(page);
        self.dirty += u64::from(is_new);
        is_new
    }

    /// The first dirty page from `from` on, and one past the last that follows it without a gap; those
    /// under write-back wait for its end.
    pub fn dirty_run(&self, file: FileId, from: u64, most: u64) -> Option<Range<u64>> {
        let pages = &self.files[file.0];
        let mut start = pages.dirty.next(from)?;
        while pages.writing.has(start) {
            start = pages.dirty.next(start + 1)?;
        }
        let end = (start..start + most)
            .find(|&page| {
                !pages.dirty.in_bounds(page) || !pages.dirty.has(page) || pages.writing.has(page)
            })
            .unwrap_or(start + most);
        Some(start..end)
    }

    pub fn begin_write(&mut self, file: FileId, pages: Range<u64>) {
        for page in pages {
            self.dirty -= u64::from(self.files[file.0].dirty.take(page));
            self.writing += u64::from(self.files[file.0].writing.put(page));
        }
    }

    pub fn end_write(&mut self, file: FileId, pages: Range<u64>) {
        for page in pages {
            self.writing -= u64::from(self.files[file.0].writing.take(page));
        }
    }

    /// Everything that is clean goes.
    pub fn drop_clean(&mut self) {
        for pages in &mut self.files {
            pages.active.clear();
        }
        let held_max = std::mem::replace(&mut self.held_max, 0);
        self.make_room();
        self.held_max = held_max;
    }

    fn hold(&mut self, file: FileId, pages: Range<u64>) {
        for page in pages.clone() {
            self.held += u64::from(self.files[file.0].known.put(page));
        }
        match self.came.back_mut() {
            Some((last, run)) if *last == file && run.end == pages.start => run.end = pages.end,
            _ => self.came.push_back((file, pages)),
        }
        self.make_room();
    }

    fn make_room(&mut self) {
        // Dirty ones, those on their way and active ones stay, and count as new again; once round is enough.
        let mut runs = self.came.len();
        let active: u64 = self.files.iter().map(|pages| pages.active.count()).sum();
        let keeps_active = self.keeps_active && active <= self.held_max / 2;
        while self.held > self.held_max && runs > 0 {
            runs -= 1;
            let Some((file, mut run)) = self.came.pop_front() else { return };
            let mut kept: Option<Range<u64>> = None;
            while !run.is_empty() && self.held > self.held_max {
                let page = run.start;
                run.start += 1;
                let pages = &mut self.files[file.0];
                let is_active =
                    if keeps_active { pages.active.has(page) } else { pages.active.take(page) };
                if pages.dirty.has(page)
                    || pages.writing.has(page)
                    || pages.reading.has(page)
                    || is_active
                {
                    match &mut kept {
                        Some(kept) if kept.end == page => kept.end += 1,
                        _ => {
                            if let Some(kept) = kept.replace(page..page + 1) {
                                self.came.push_back((file, kept));
                            }
                        }
                    }
                } else {
                    self.held -= u64::from(pages.known.take(page));
                }
            }
            if let Some(kept) = kept {
                self.came.push_back((file, kept));
            }
            if !run.is_empty() {
                self.came.push_front((file, run));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_used_again_last_two_rounds_or_stay() {
        const META: FileId = FileId(0);
        const DATA: FileId = FileId(1);
        for (keeps_active, is_used, lasts) in
            [(false, false, 1), (false, true, 2), (true, false, 1), (true, true, 9)]
        {
            let mut cache = Cache::new(1024, keeps_active);
            cache.add_file(1);
            cache.add_file(20_000);
            cache.begin_read(META, 0..1);
            cache.end_read(META, 0..1);
            if is_used {
                cache.activate(META, 0);
            }
            let mut page = 0;
            let mut rounds = 0;
            while cache.is_known(META, 0) && rounds < 9 {
                rounds += 1;
                for _ in 0..128 {
                    cache.begin_read(DATA, page..page + 8);
                    cache.end_read(DATA, page..page + 8);
                    page += 8;
                }
            }
            assert_eq!(rounds, lasts, "stays: {keeps_active}, used: {is_used}");
            cache.drop_clean();
            assert!(!cache.is_known(META, 0));
        }
    }
}
