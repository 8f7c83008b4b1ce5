//! Shingled tracks: bands that can only be written from front to end, and a cache zone for the rest.
//!
//! A write that goes on where its band's last one ended goes to the band. Any other goes to the cache
//! zone, as a log: those that wait go by age and many at once. A band is cleaned by reading it and
//! writing it anew; that is done when the zone is full, before the next write, and when the disk has
//! been idle for a while.
//! What it does not do: read from the cache zone. A read goes to the block's home.

use crate::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Sizes of a shingled disk, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shingles {
    /// Of a band.
    pub band_blocks: u64,
    /// Of the cache zone.
    pub cache_blocks: u64,
}

/// Where bands and the cache zone stand.
#[derive(Clone, Debug)]
pub(super) struct ShingleState {
    sizes: Shingles,
    /// The block with which each band goes on, for bands that are being written in order.
    next: BTreeMap<u64, u64>,
    /// Blocks in the cache zone, by band.
    cached: BTreeMap<u64, u64>,
    /// The same, with the band that has the most of them last.
    by_blocks: BTreeSet<(u64, u64)>,
    cached_blocks: u64,
}

impl ShingleState {
    /// After this long without a command bands are cleaned.
    pub const IDLE: Nanos = Nanos(2_000_000_000);
    /// Streams that are followed at once.
    const STREAMS: usize = 64;

    pub fn new(sizes: Shingles) -> Self {
        Self {
            sizes,
            next: BTreeMap::new(),
            cached: BTreeMap::new(),
            by_blocks: BTreeSet::new(),
            cached_blocks: 0,
        }
    }

    /// The cache zone is full, with about as many blocks of each band of these blocks.
    pub fn full(sizes: Shingles, of: &Range<u64>) -> Self {
        let bands = of.start / sizes.band_blocks..of.end.div_ceil(sizes.band_blocks);
        let (count, zone) = (bands.end - bands.start, sizes.cache_blocks);
        let share = |nth: u64| (u128::from(zone) * u128::from(nth) / u128::from(count)) as u64;
        let of_band = |band: u64| {
            let nth = band - bands.start;
            (band, share(nth + 1) - share(nth))
        };
        let cached: BTreeMap<u64, u64> =
            bands.clone().map(of_band).filter(|(_, blocks)| *blocks > 0).collect();
        let by_blocks = cached.iter().map(|(&band, &blocks)| (blocks, band)).collect();
        Self { cached, by_blocks, cached_blocks: zone, ..Self::new(sizes) }
    }

    /// Whether a write goes to its place.
    pub fn goes_on(&self, range: &Range<u64>) -> bool {
        let band = range.start / self.sizes.band_blocks;
        let begins = range.start.is_multiple_of(self.sizes.band_blocks);
        begins || self.next.get(&band) == Some(&range.start)
    }

    /// Takes note of a write. Whether it goes to its place.
    pub fn write(&mut self, range: &Range<u64>) -> bool {
        let band = range.start / self.sizes.band_blocks;
        if self.goes_on(range) {
            self.next.remove(&band);
            if self.next.len() >= Self::STREAMS {
                self.next.pop_first();
            }
            self.next.insert(range.end / self.sizes.band_blocks, range.end);
            return true;
        }
        let blocks = range.end - range.start;
        let cached = self.cached.entry(band).or_default();
        self.by_blocks.remove(&(*cached, band));
        *cached += blocks;
        self.by_blocks.insert((*cached, band));
        self.cached_blocks += blocks;
        false
    }

    /// The band to clean, if the zone is full, or if `is_idle` and there is anything to clean.
    pub fn to_clean(&self, is_idle: bool) -> Option<Range<u64>> {
        if self.cached_blocks < self.sizes.cache_blocks && !is_idle {
            return None;
        }
        // The band with the most to gain.
        let (_, band) = *self.by_blocks.last()?;
        Some(band * self.sizes.band_blocks..(band + 1) * self.sizes.band_blocks)
    }

    /// A band is as it should be.
    pub fn cleaned(&mut self, range: &Range<u64>) {
        let band = range.start / self.sizes.band_blocks;
        let blocks = self.cached.remove(&band).unwrap_or(0);
        self.by_blocks.remove(&(blocks, band));
        self.cached_blocks -= blocks;
    }

    /// Where in the cache zone, which is at the disk's front, the next block goes.
    pub fn log_place(&self) -> u64 {
        self.cached_blocks % self.sizes.cache_blocks.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_order_go_to_their_band_and_others_to_the_cache_zone() {
        let mut state = ShingleState::new(Shingles { band_blocks: 100, cache_blocks: 30 });
        assert!(state.write(&(0..50)));
        assert!(state.write(&(50..120)), "on into the next band");
        assert!(state.write(&(120..130)));
        assert!(!state.write(&(40..50)), "a band is not written within");
        assert!(!state.write(&(345..365)));
        assert_eq!(state.to_clean(false), Some(300..400), "the zone is full");
        state.cleaned(&(300..400));
        assert_eq!(state.to_clean(false), None);
        assert_eq!(state.to_clean(true), Some(0..100));
    }

    #[test]
    fn a_full_cache_zone_is_cleaned_band_by_band() {
        let sizes = Shingles { band_blocks: 100, cache_blocks: 32 };
        let mut state = ShingleState::full(sizes, &(500..1450));
        assert_eq!(state.cached.values().sum::<u64>(), 32);
        let first = state.to_clean(false).unwrap();
        assert_eq!(first, 1400..1500, "one of those with four blocks");
        state.cleaned(&first);
        assert_eq!(state.to_clean(false), None);
        assert!(!state.write(&(505..509)));
        assert_eq!(state.to_clean(false), Some(500..600), "it has the most to gain now");
        let few = ShingleState::full(Shingles { band_blocks: 100, cache_blocks: 2 }, &(0..1000));
        assert_eq!((few.cached.len(), few.cached_blocks), (2, 2));
    }
}
