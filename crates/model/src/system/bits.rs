//! A set of page numbers.

/// Page numbers below a bound.
///
/// They are counted in branches: what adds a bool, `count += u64::from(is_new)`, is compiled to something else by Rust
/// 1.95 (LLVM 22.1.2) at `opt-level` 2 and 3, where the caller branches on it too.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    pub fn new(pages: u64) -> Self {
        Self { words: vec![0; pages.div_ceil(64) as usize], count: 0 }
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.words.len() as u64 * 64);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn has(&self, page: u64) -> bool {
        self.words[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    /// Puts a page in; false if it was there.
    pub fn put(&mut self, page: u64) -> bool {
        let (word, bit) = (&mut self.words[(page / 64) as usize], 1 << (page % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        if is_new {
            self.count += 1;
        }
        is_new
    }

    /// Takes a page out; false if it was not there.
    pub fn take(&mut self, page: u64) -> bool {
        let (word, bit) = (&mut self.words[(page / 64) as usize], 1 << (page % 64));
        let was_there = *word & bit != 0;
        *word &= !bit;
        if was_there {
            self.count -= 1;
        }
        was_there
    }

    pub fn in_bounds(&self, page: u64) -> bool {
        page / 64 < self.words.len() as u64
    }

    /// The first page from `from` on.
    pub fn next(&self, from: u64) -> Option<u64> {
        let first = (from / 64) as usize;
        let word = self.words.get(first)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(first as u64 * 64 + u64::from(word.trailing_zeros()));
        }
        let index = (first + 1..self.words.len()).find(|&index| self.words[index] != 0)?;
        Some(index as u64 * 64 + u64::from(self.words[index].trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_in_order_and_counted() {
        let mut bits = Bits::new(300);
        for page in [5, 63, 64, 65, 299] {
            assert!(bits.put(page));
            assert!(!bits.put(page));
        }
        assert_eq!(bits.count(), 5);
        assert_eq!([0, 6, 64, 66, 299].map(|from| bits.next(from).unwrap()), [5, 63, 64, 299, 299]);
        assert!(bits.take(299) && !bits.take(299));
        assert_eq!((bits.next(66), bits.count()), (None, 4));
    }
}
