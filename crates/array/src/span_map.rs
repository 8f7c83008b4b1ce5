//! Which shard owns which sectors: the array's spans, dealt in turn.
//!
//! Invariants: some shard takes part, and none twice; parts of a range follow one another and are all of it. Where the
//! array ends is not known here.

use alloc::{vec, vec::Vec};
use core::ops::Range;

/// Shards that take part, in the order in which they own spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanMap {
    /// Sectors of a span.
    span: u64,
    shards: Vec<usize>,
}

impl SpanMap {
    /// Everything to the first shard. `span`: sectors.
    ///
    /// # Panics
    /// If a span has no sectors; [`Self::among`] if nobody would own anything.
    #[must_use]
    pub fn new(span: u64) -> Self {
        assert!(span > 0, "a span without sectors");
        Self { span, shards: vec![0] }
    }

    /// The same spans, dealt to others.
    #[must_use]
    pub fn among(&self, shards: Vec<usize>) -> Self {
        assert!(!shards.is_empty(), "nobody would own anything");
        Self { span: self.span, shards }
    }

    /// Whether one shard owns all.
    #[must_use]
    pub fn has_one_owner(&self) -> bool {
        self.shards.len() == 1
    }

    /// Who owns a sector.
    #[must_use]
    pub fn owner(&self, sector: u64) -> usize {
        self.shards[(sector / self.span) as usize % self.shards.len()]
    }

    /// Who does which part of some sectors: owners, first sectors, lengths.
    #[must_use]
    pub fn parts(&self, sectors: Range<u64>) -> Vec<(usize, u64, u64)> {
        if self.has_one_owner() {
            return vec![(self.shards[0], sectors.start, sectors.end - sectors.start)];
        }
        let mut parts = Vec::new();
        let mut at = sectors.start;
        while at < sectors.end {
            let next = (at / self.span + 1).saturating_mul(self.span).min(sectors.end);
            parts.push((self.owner(at), at, next - at));
            at = next;
        }
        parts
    }

    /// The first span from `at` on that a shard owns, or what is left of it there; none if it takes no part.
    #[must_use]
    pub fn owned(&self, shard: usize, at: u64) -> Option<Range<u64>> {
        let place = self.shards.iter().position(|&it| it == shard)? as u64;
        let (first, shards) = (at / self.span, self.shards.len() as u64);
        let span = first + (place + shards - first % shards) % shards;
        Some(at.max(span * self.span)..(span + 1) * self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_round() {
        let spans = SpanMap::new(8).among(vec![1, 3, 4]);
        let owners: Vec<usize> = (0..6).map(|span| spans.owner(span * 8 + 7)).collect();
        assert_eq!(owners, [1, 3, 4, 1, 3, 4]);
        assert_eq!(spans.parts(20..33), [(4, 20, 4), (1, 24, 8), (3, 32, 1)]);
        assert_eq!(spans.parts(20..20), []);
        let one = SpanMap::new(8);
        assert_eq!(one.parts(20..33), [(0, 20, 13)]);
        assert_eq!(one.parts(20..20), [(0, 20, 0)]);
        assert_eq!(one.owned(0, 20), Some(20..24));
        assert_eq!(one.owned(0, 24), Some(24..32));
        assert_eq!(one.owned(1, 24), None);
    }

    #[test]
    fn the_parts_of_a_range_are_what_their_shards_own_there() {
        for shards in [vec![0], vec![2], vec![0, 1], vec![1, 3, 4]] {
            let spans = SpanMap::new(8).among(shards.clone());
            for (start, end) in [(0, 1), (0, 8), (7, 9), (3, 60), (16, 24), (5, 5 + 8 * 13)] {
                let parts = spans.parts(start..end);
                let mut at = start;
                for (owner, sector, len) in parts {
                    assert_eq!(sector, at, "{shards:?}, {start}..{end}");
                    assert!((sector..sector + len).all(|sector| spans.owner(sector) == owner));
                    at += len;
                }
                assert_eq!(at, end, "{shards:?}, {start}..{end}");
            }
        }
    }

    #[test]
    fn what_a_shard_owns_next_is_the_first_that_it_owns() {
        let spans = SpanMap::new(8).among(vec![1, 3, 4]);
        for shard in [1, 3, 4] {
            for at in 0..100 {
                let owned = spans.owned(shard, at).expect("it takes part");
                let first = (at..).find(|&sector| spans.owner(sector) == shard);
                assert_eq!(Some(owned.start), first, "shard {shard} from {at}");
                assert_eq!(owned.end, (owned.start / 8 + 1) * 8, "shard {shard} from {at}");
            }
        }
        assert_eq!(spans.owned(0, 5), None);
    }
}
