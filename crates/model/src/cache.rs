//! A disk's buffer: segments that hold consecutive blocks, and writes that are not on the platters yet.
//!
//! Invariants: a segment holds one run of blocks, at most its size, of which the last ones are kept.
//! Dirty extents do not overlap each other; together they are at most the write cache's room and
//! number. No data bytes exist.

use crate::Nanos;
use crate::layout::Spot;
use std::ops::Range;

/// A run of blocks in the buffer.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Which blocks.
    pub blocks: Range<u64>,
    /// They came from a write.
    pub is_written: bool,
    /// When it was used last, in uses of the buffer.
    used: u64,
}

/// A write that is not on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// Its first block.
    pub lba: u64,
    /// Blocks.
    pub blocks: u64,
    /// When the arm may set out for it.
    pub ready: Nanos,
    /// When all of it is in the buffer.
    pub data: Nanos,
    /// Its age: writes are numbered.
    pub order: u64,
    /// Its way to the media has begun.
    pub is_under_way: bool,
    /// Where its first block is, as far as that was worked out.
    pub spot: Option<Spot>,
}

/// What a buffer holds of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Nothing of its front.
    Miss,
    /// This segment holds its front, up to this block.
    Front(usize, u64),
    /// This segment holds all of it.
    Whole(usize),
    /// A write that is on its way holds all of it.
    Dirty,
}

/// The buffer.
#[derive(Clone, Debug)]
pub struct Cache {
    segments: Vec<Segment>,
    segment_blocks: u64,
    /// The segment that writes use and reads do not.
    write_segment: Option<usize>,
    hits_on_writes: bool,
    uses: u64,
    /// By place: there are few, and all are looked at again and again.
    dirty: Vec<Dirty>,
    /// When the first of them may go to the platters.
    first_ready: Option<Nanos>,
    /// Blocks of `dirty` and of the write on its way.
    dirty_blocks: u64,
    dirty_extents_max: usize,
    dirty_blocks_max: u64,
    combines: bool,
    combines_under_way: bool,
    orders: u64,
}

/// How large a buffer is and what it may hold.
#[derive(Clone, Copy, Debug)]
pub struct CacheSize {
    /// Segments.
    pub segments: usize,
    /// Blocks of each.
    pub segment_blocks: u64,
    /// One of them is for writes alone.
    pub has_write_segment: bool,
    /// Reads may be answered from what was written.
    pub hits_on_writes: bool,
    /// Writes that may wait for the platters, in runs of consecutive blocks.
    pub dirty_extents_max: usize,
    /// And in blocks.
    pub dirty_blocks_max: u64,
    /// A write that goes on where another ends joins it.
    pub combines: bool,
    /// Also where that one is on its way to the media.
    pub combines_under_way: bool,
}

impl Cache {
    /// An empty buffer.
    #[must_use]
    pub fn new(size: &CacheSize) -> Self {
        let segments =
            size.segments.max(1) + usize::from(size.has_write_segment && size.segments < 2);
        Self {
            segments: vec![Segment::default(); segments],
            segment_blocks: size.segment_blocks.max(1),
            write_segment: size.has_write_segment.then_some(0),
            hits_on_writes: size.hits_on_writes,
            uses: 0,
            dirty: Vec::new(),
            first_ready: None,
            dirty_blocks: 0,
            dirty_extents_max: size.dirty_extents_max,
            dirty_blocks_max: size.dirty_blocks_max,
            combines: size.combines,
            combines_under_way: size.combines_under_way,
            orders: 0,
        }
    }

    /// A segment's size in blocks.
    #[must_use]
    pub fn segment_blocks(&self) -> u64 {
        self.segment_blocks
    }

    /// A segment.
    #[must_use]
    pub fn segment(&self, index: usize) -> &Segment {
        &self.segments[index]
    }

    /// What the buffer holds of a read.
    #[must_use]
    pub fn lookup(&self, wanted: &Range<u64>) -> Hit {
        if self.hits_on_writes {
            let dirty = self.last_dirty_before(wanted.start + 1);
            if dirty.is_some_and(|dirty| dirty.lba + dirty.blocks >= wanted.end) {
                return Hit::Dirty;
            }
        }
        let mut best = Hit::Miss;
        for (index, segment) in self.segments.iter().enumerate() {
            let is_usable = self.hits_on_writes || !segment.is_written;
            if !is_usable || !segment.blocks.contains(&wanted.start) {
                continue;
            }
            if segment.blocks.end >= wanted.end {
                return Hit::Whole(index);
            }
            if !matches!(best, Hit::Front(_, end) if end >= segment.blocks.end) {
                best = Hit::Front(index, segment.blocks.end);
            }
        }
        best
    }

    /// Whether a write that waits touches these blocks.
    #[must_use]
    pub fn dirty_within(&self, range: &Range<u64>) -> Option<Dirty> {
        let before = self.last_dirty_before(range.end).copied();
        before.filter(|dirty| dirty.lba + dirty.blocks > range.start)
    }

    /// The index of the first write that waits and begins there or behind.
    fn dirty_from(&self, lba: u64) -> usize {
        self.dirty.partition_point(|dirty| dirty.lba < lba)
    }

    fn last_dirty_before(&self, lba: u64) -> Option<&Dirty> {
        self.dirty[..self.dirty_from(lba)].last()
    }

    /// Takes the segment that was not used for longest, `busy` only if there is no other, for a run
    /// that begins at `lba`.
    pub fn take(&mut self, lba: u64, busy: Option<usize>, is_write: bool) -> usize {
        let index = match self.write_segment {
            Some(index) if is_write => index,
            own => (0..self.segments.len())
                .filter(|index| own != Some(*index))
                .min_by_key(|&index| {
                    let segment = &self.segments[index];
                    (busy == Some(index), !segment.blocks.is_empty(), segment.used)
                })
                .unwrap_or(0),
        };
        self.segments[index] = Segment { blocks: lba..lba, is_written: is_write, used: 0 };
        self.touch(index);
        index
    }

    /// A segment was used.
    pub fn touch(&mut self, index: usize) {
        self.uses += 1;
        self.segments[index].used = self.uses;
    }

    /// A segment holds these blocks now, or as many of the last of them as it has room for.
    pub fn hold(&mut self, index: usize, blocks: Range<u64>) {
        let start = blocks.start.max(blocks.end.saturating_sub(self.segment_blocks));
        self.segments[index].blocks = start..blocks.end;
    }

    /// What segments hold of these blocks is out of date.
    pub fn forget(&mut self, range: &Range<u64>) {
        for segment in &mut self.segments {
            if segment.blocks.start < range.end && range.start < segment.blocks.end {
                segment.blocks = 0..0;
            }
        }
    }

    /// The segment of written blocks that ends where a write begins.
    #[must_use]
    pub fn written_up_to(&self, lba: u64) -> Option<usize> {
        let ends = |segment: &Segment| segment.is_written && segment.blocks.end == lba;
        self.segments.iter().position(|segment| ends(segment) && !segment.blocks.is_empty())
    }

    /// The segment of blocks that were read which ends where a read begins.
    #[must_use]
    pub fn read_up_to(&self, lba: u64) -> Option<usize> {
        let ends = |segment: &Segment| !segment.is_written && segment.blocks.end == lba;
        self.segments.iter().position(|segment| ends(segment) && !segment.blocks.is_empty())
    }

    /// Whether a write has room to wait.
    #[must_use]
    pub fn has_room(&self, range: &Range<u64>) -> bool {
        let blocks = range.end - range.start;
        if self.dirty_blocks == 0 && self.dirty.is_empty() {
            return true;
        }
        self.dirty_blocks + blocks <= self.dirty_blocks_max
            && (self.dirty.len() < self.dirty_extents_max || self.joins(range.start).is_some())
    }

    /// The index of the write that one there goes on with.
    fn joins(&self, lba: u64) -> Option<usize> {
        let index = self.dirty_from(lba).checked_sub(1)?;
        let before = &self.dirty[index];
        let is_open = self.combines && (self.combines_under_way || !before.is_under_way);
        (is_open && before.lba + before.blocks == lba).then_some(index)
    }

    /// A write waits for the platters, where its first block is at `spot`.
    pub fn add_dirty(&mut self, range: &Range<u64>, ready: Nanos, data: Nanos, spot: Spot) {
        self.drop_dirty(range);
        let blocks = range.end - range.start;
        self.dirty_blocks += blocks;
        self.orders += 1;
        if let Some(index) = self.joins(range.start) {
            let before = &mut self.dirty[index];
            before.blocks += blocks;
            before.data = before.data.max(data);
            return;
        }
        let (lba, order) = (range.start, self.orders);
        let spot = Some(spot);
        self.insert(Dirty { lba, blocks, ready, data, order, is_under_way: false, spot });
    }

    fn insert(&mut self, dirty: Dirty) {
        self.dirty.insert(self.dirty_from(dirty.lba), dirty);
        self.first_ready = Some(self.first_ready.map_or(dirty.ready, |at| at.min(dirty.ready)));
    }

    fn remove(&mut self, lba: u64) -> Option<Dirty> {
        let index = self.dirty_from(lba);
        self.dirty.get(index).filter(|dirty| dirty.lba == lba)?;
        let dirty = self.dirty.remove(index);
        if self.first_ready == Some(dirty.ready) {
            self.first_ready = self.dirty.iter().map(|dirty| dirty.ready).min();
        }
        Some(dirty)
    }

    /// Cuts out of the waiting writes what is overwritten.
    fn drop_dirty(&mut self, range: &Range<u64>) {
        while let Some(old) = self.dirty_within(range) {
            self.remove(old.lba);
            self.dirty_blocks -= old.blocks;
            let end = old.lba + old.blocks;
            for rest in [old.lba..range.start, range.end..end] {
                if rest.start < rest.end {
                    let blocks = rest.end - rest.start;
                    self.dirty_blocks += blocks;
                    let spot = old.spot.filter(|_| rest.start == old.lba);
                    self.insert(Dirty { lba: rest.start, blocks, spot, ..old });
                }
            }
        }
    }

    /// Hands a waiting write to the arm; its room is used until [`Cache::cleaned`].
    pub fn start_cleaning(&mut self, lba: u64) -> Option<Dirty> {
        self.remove(lba)
    }

    /// The rest of a write of which only a part is written now.
    pub fn put_back(&mut self, rest: Dirty) {
        self.insert(Dirty { is_under_way: true, ..rest });
    }

    /// A write of so many blocks is on the platters.
    pub fn cleaned(&mut self, blocks: u64) {
        self.dirty_blocks -= blocks;
    }

    /// When the first of the writes that wait may go to the platters.
    #[must_use]
    pub fn first_ready(&self) -> Option<Nanos> {
        self.first_ready
    }

    /// The write that has waited for longest.
    #[must_use]
    pub fn oldest_dirty(&self) -> Option<Dirty> {
        self.dirty.iter().min_by_key(|dirty| dirty.order).copied()
    }

    /// Whether a write waits that is no younger than this one.
    #[must_use]
    pub fn has_dirty_up_to(&self, order: u64) -> bool {
        self.dirty.iter().any(|dirty| dirty.order <= order)
    }

    /// Up to `count` writes around a block, the nearest places first on either side.
    pub fn dirty_near(&self, lba: u64, count: usize) -> impl Iterator<Item = &Dirty> {
        let (down, up) = self.dirty.split_at(self.dirty_from(lba));
        up.iter().take(count).chain(down.iter().rev().take(count))
    }

    /// Blocks that wait for the platters, those on their way included.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// Whether more than this part of the room for writes is used.
    #[must_use]
    pub fn is_dirtier_than(&self, part: f64) -> bool {
        self.dirty_blocks as f64 > part * self.dirty_blocks_max as f64
            || self.dirty.len() as f64 > part * self.dirty_extents_max as f64
    }

    /// How many writes were taken in so far.
    #[must_use]
    pub fn writes_taken(&self) -> u64 {
        self.orders
    }
}
