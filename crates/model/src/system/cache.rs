//! The page cache: which pages are there, on their way, dirty, under write-back.
//!
//! Invariants: at most so many pages as there is room for, but for dirty ones and those on their way;
//! pages go in the order in which they came (one process that goes on never comes back to them sooner).

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
}

/// All files' pages.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    files: Vec<Pages>,
    /// Runs of pages by when they came.
    came: VecDeque<(FileId, Range<u64>)>,
    held: u64,
    held_max: u64,
    dirty: u64,
    writing: u64,
}

impl Cache {
    pub fn new(held_max: u64) -> Self {
        let came = VecDeque::new();
        Self { files: Vec::new(), came, held: 0, held_max, dirty: 0, writing: 0 }
    }

    pub fn add_file(&mut self, pages: u64) {
        let none = Bits::new(pages);
        let [known, reading, dirty, writing] = [none.clone(), none.clone(), none.clone(), none];
        self.files.push(Pages { known, reading, dirty, writing });
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
        // Dirty ones and those on their way stay, and count as new again; once round is enough.
        let mut runs = self.came.len();
        while self.held > self.held_max && runs > 0 {
            runs -= 1;
            let Some((file, mut run)) = self.came.pop_front() else { return };
            let mut kept: Option<Range<u64>> = None;
            while !run.is_empty() && self.held > self.held_max {
                let page = run.start;
                run.start += 1;
                let pages = &mut self.files[file.0];
                if pages.dirty.has(page) || pages.writing.has(page) || pages.reading.has(page) {
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
