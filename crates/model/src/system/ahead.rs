//! Read-ahead, as Linux does it on demand: a window that doubles while a file is read in order, and whose
//! next one is sent for when a process comes to the mark in it.
//!
//! Source: mm/readahead.c of 2.6.23 (2.6.21 keeps two windows by other words, to the same effect).

use super::{FileId, Reader, System};

/// The window that was sent for last, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    start: u64,
    size: u64,
    /// Pages at its end: whoever comes to the first of them has the next window sent for.
    left: u64,
    /// The page that was read last, and one.
    after_last: u64,
}

impl Window {
    /// What to send for when a process comes to `page`, `wanted` pages in one call; `is_known` if the page
    /// is there or on its way.
    pub fn step(
        &mut self,
        page: u64,
        wanted: u64,
        is_known: bool,
        most: u64,
    ) -> Option<(u64, u64)> {
        let is_next = page == self.after_last || page + 1 == self.after_last;
        self.after_last = page + 1;
        if is_known {
            let mark = self.start + self.size - self.left;
            if self.size == 0 || page != mark || self.left == 0 {
                return None;
            }
            let size = Self::next_size(self.size, most);
            *self = Self { start: self.start + self.size, size, left: size, ..*self };
            return Some((self.start, self.size));
        }
        if page == 0 || is_next || self.size > 0 && page == self.start + self.size {
            let wanted = wanted.clamp(1, most);
            let size = if self.size > 0 && page == self.start + self.size {
                Self::next_size(self.size, most)
            } else {
                Self::first_size(wanted, most)
            };
            let left = if size > wanted { size - wanted } else { size };
            *self = Self { start: page, size, left, ..*self };
            return Some((page, size));
        }
        self.size = 0;
        Some((page, wanted))
    }

    /// `get_init_ra_size`.
    fn first_size(wanted: u64, most: u64) -> u64 {
        let size = wanted.next_power_of_two();
        match size {
            size if size <= most / 32 => size * 4,
            size if size <= most / 4 => size * 2,
            _ => most,
        }
    }

    /// `get_next_ra_size`.
    fn next_size(size: u64, most: u64) -> u64 {
        if size < most / 16 { (4 * size).min(most) } else { (2 * size).min(most) }
    }
}

impl System {
    /// A process comes to a page and wants `wanted` from there.
    pub(super) fn ahead(&mut self, file: FileId, page: u64, wanted: u64, reader: &mut Reader) {
        let is_known = self.cache.is_known(file, page);
        let most = self.ahead_max;
        let Some((start, size)) = reader.window.step(page, wanted, is_known, most) else { return };
        let end = (start + size).min(self.places[file.0].pages());
        let mut at = start;
        while at < end {
            // What tells where pages are is read before them, and waited for; only then what it tells.
            let known_to = self.places[file.0].meta_end(at).min(end);
            if let Some((meta, meta_page)) = self.places[file.0].meta_of(at) {
                // For each page that it tells of.
                self.cache.activate(meta, meta_page);
                if !self.cache.is_there(meta, meta_page) {
                    self.fetch(meta, meta_page..meta_page + 1);
                    self.wait_until(|system| system.cache.is_there(meta, meta_page));
                    self.compute(self.config.processor.switch);
                }
            }
            self.fetch(file, at..known_to);
            at = known_to;
        }
        let new = end.saturating_sub(start);
        let requests = new.div_ceil(self.config.request_pages());
        let processor = self.config.processor;
        self.compute(processor.page_read * new + processor.request * requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_and_the_next_one_is_sent_for_from_the_mark_on() {
        let mut window = Window::default();
        let mut known = 0;
        let mut sent = Vec::new();
        for page in 0..200 {
            if let Some((start, size)) = window.step(page, 2 - page % 2, page < known, 32) {
                assert_eq!(start, known, "no gap");
                known = start + size;
                sent.push((page, size));
            }
        }
        // 2 pages wanted of at most 32: four, then twice as many each, one window ahead.
        assert_eq!(
            sent,
            [
                (0, 4),
                (2, 8),
                (4, 16),
                (12, 32),
                (28, 32),
                (60, 32),
                (92, 32),
                (124, 32),
                (156, 32),
                (188, 32)
            ]
        );
    }

    #[test]
    fn what_is_read_here_and_there_is_read_alone() {
        let mut window = Window::default();
        assert_eq!(window.step(1000, 2, false, 32), Some((1000, 2)));
        assert_eq!(window.step(1001, 1, true, 32), None);
        assert_eq!(window.step(77, 2, false, 32), Some((77, 2)));
    }
}
