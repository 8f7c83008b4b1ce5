//! Which shard owns which sectors: the array's spans, dealt in turn. Where the array's geometry is being changed, one more
//! shard, of the new geometry, owns all on its side of the front.
//!
//! Invariants: some shard takes part, and none twice; parts of a range follow one another and are all of it. Where the
//! array ends is not known here.

use alloc::{vec, vec::Vec};
use core::ops::Range;
use lapstrake_engine::Hold;

/// Shards that take part, in the order in which they own spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanMap {
    /// Sectors of a span.
    span: u64,
    shards: Vec<usize>,
    front: Option<Front>,
}

/// Where an array's old geometry and its new one meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// The array's sector.
    pub position: u64,
    /// The new geometry holds from `position` on; else up to it.
    pub is_backwards: bool,
    /// The shard of the new geometry.
    pub shard: usize,
    /// What is being moved, of the old geometry. Empty if nothing is.
    pub moving: Range<u64>,
    /// What requests there are to do.
    pub hold: Hold,
}

impl Front {
    /// With nothing being moved.
    #[must_use]
    pub fn at(position: u64, is_backwards: bool, shard: usize) -> Self {
        Self { position, is_backwards, shard, moving: 0..0, hold: Hold::Writes }
    }

    /// Whether the new geometry holds nothing yet, of a reshape that begins at the array's beginning.
    #[must_use]
    pub fn has_moved_nothing(&self) -> bool {
        !self.is_backwards && self.position == 0
    }

    fn is_beyond(&self, sector: u64) -> bool {
        self.is_backwards == (sector >= self.position)
    }
}

impl SpanMap {
    /// Everything to the first shard. `span`: sectors.
    ///
    /// # Panics
    /// If a span has no sectors; [`Self::among`] if nobody would own anything.
    #[must_use]
    pub fn new(span: u64) -> Self {
        assert!(span > 0, "a span without sectors");
        Self { span, shards: vec![0], front: None }
    }

    /// The same spans, dealt to others.
    #[must_use]
    pub fn among(&self, shards: Vec<usize>) -> Self {
        assert!(!shards.is_empty(), "nobody would own anything");
        Self { span: self.span, shards, front: self.front.clone() }
    }

    /// What requests for these sectors are to do, if some of them are being moved.
    #[must_use]
    pub fn hold(&self, sectors: &Range<u64>) -> Option<Hold> {
        let Front { moving, hold, .. } = self.front.as_ref()?;
        let is_held = moving.start < sectors.end && sectors.start < moving.end;
        is_held.then_some(*hold)
    }

    /// Those that take part.
    #[must_use]
    pub fn shards(&self) -> &[usize] {
        &self.shards
    }

    /// Where two geometries meet, if there are two.
    #[must_use]
    pub fn front(&self) -> Option<&Front> {
        self.front.as_ref()
    }

    /// The same with a shard of another geometry on one side of a front.
    #[must_use]
    pub fn with_front(self, front: Front) -> Self {
        Self { front: Some(front), ..self }
    }

    /// Whether one shard owns all.
    #[must_use]
    pub fn has_one_owner(&self) -> bool {
        self.shards.len() == 1 && self.front.is_none()
    }

    /// Whether all shards have one geometry, so that each can read what others own.
    #[must_use]
    pub fn has_one_geometry(&self) -> bool {
        self.front.is_none()
    }

    /// Who owns a sector.
    #[must_use]
    pub fn owner(&self, sector: u64) -> usize {
        if let Some(front) = self.front.as_ref().filter(|front| front.is_beyond(sector)) {
            return front.shard;
        }
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
            let front = self.front.as_ref().map(|front| front.position);
            let front = front.filter(|position| *position > at);
            let next = front.map_or(next, |position| next.min(position));
            parts.push((self.owner(at), at, next - at));
            at = next;
        }
        parts
    }

    /// The first span from `at` on that a shard owns, or what is left of it there; none if it takes no part, or there is a
    /// front.
    #[must_use]
    pub fn owned(&self, shard: usize, at: u64) -> Option<Range<u64>> {
        if self.front.is_some() {
            return None;
        }
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
    fn a_front_cuts_what_lies_across_it() {
        let front = Front { moving: 30..33, ..Front::at(21, false, 7) };
        let forwards = SpanMap::new(8).with_front(front.clone());
        assert_eq!(forwards.parts(20..26), [(7, 20, 1), (0, 21, 3), (0, 24, 2)]);
        let backwards = SpanMap::new(8).with_front(Front { is_backwards: true, ..front });
        assert_eq!(backwards.parts(20..26), [(0, 20, 1), (7, 21, 3), (7, 24, 2)]);
        for spans in [forwards, backwards] {
            let owners = (0..40).map(|sector| spans.owner(sector));
            let each = spans.parts(0..40).into_iter();
            let each = each.flat_map(|(owner, _, len)| (0..len).map(move |_| owner));
            assert_eq!(owners.collect::<Vec<_>>(), each.collect::<Vec<_>>());
            assert!(!spans.has_one_owner() && spans.owned(0, 0).is_none());
            let moving = [28..30, 29..31, 31..32, 32..40, 33..40];
            let holds = moving.map(|it| spans.hold(&it).is_some());
            assert_eq!(holds, [false, true, true, true, false]);
        }
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
