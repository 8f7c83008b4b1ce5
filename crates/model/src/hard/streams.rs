//! Which reads go on with a stream.
//!
//! Manuals of ATA disks have it so: Fujitsu's of 1998 to 2002 (MPA to MHR, "read-ahead cache") read ahead only after a read
//! that begins where the last one ended, Seagate's Adaptive Read Look-Ahead does likewise, and Samsung's disks read on until
//! a set amount is in the buffer. That there are as many streams as segments is a guess.
//!
//! Invariant: no more ends are known than the disk has segments, the one that was used last at the back.

use std::collections::VecDeque;
use std::ops::Range;

/// Where the last reads ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    ends: VecDeque<u64>,
}

impl Streams {
    /// Notes a read on a disk of so many segments; true if it goes on where one of the last reads ended.
    pub fn note(&mut self, range: &Range<u64>, segments: usize) -> bool {
        let known = self.ends.iter().position(|end| *end == range.start);
        if let Some(index) = known {
            self.ends.remove(index);
        }
        self.ends.push_back(range.end);
        while self.ends.len() > segments.max(1) {
            self.ends.pop_front();
        }
        known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_streams_are_known_as_there_are_segments() {
        let mut streams = Streams::default();
        let firsts = [0..8, 100..108, 200..208];
        assert!(firsts.iter().all(|first| !streams.note(first, 2)));
        assert!(streams.note(&(208..216), 2) && streams.note(&(108..116), 2));
        assert!(!streams.note(&(8..16), 2), "two others have read since");
        assert!(!streams.note(&(120..128), 2), "behind a gap");
    }
}
