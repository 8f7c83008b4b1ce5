//! Requests of the mount on their way through the array.
//!
//! A [`Transfer`] is a list of steps, each one request to the array; the next is sent when the last
//! one has ended. Its memory is taken before the first, so that transfers never wait for each other but for
//! their turn.

use super::memory::Run;
use lapstrake_host::Memory;
use std::ops::Range;

/// Memory of a request starts at a multiple of this.
pub(super) const PAGE: usize = 4096;
/// Longest run that is zeroed in one step, so that zeroing a whole array stays a bounded work at
/// any time.
const ZEROES_MAX: u64 = 64 << 20;

/// One request to the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Into the memory's start.
    Read { offset: u64, len: usize },
    /// From byte `at` of the memory.
    Write { offset: u64, at: usize, len: usize, fua: bool },
    /// Read a block and copy `keep` of it into its image at byte `to` of the memory.
    Fetch { block: u64, keep: Range<usize>, to: usize },
    /// Without memory.
    Zeroes { range: Range<u64>, unmap: bool },
    /// Of the whole array.
    Flush,
}

/// What to say at the end.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    /// These bytes of the memory.
    Data(Range<usize>),
    /// So many bytes.
    Written(u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Transfer {
    pub unique: u64,
    pub memory: Option<Run>,
    /// Start of the range whose turn is held.
    pub turn: Option<u64>,
    /// The next step is the last of the list.
    steps: Vec<Step>,
    /// On its way, with the memory that it names.
    pub step: Option<Step>,
    pub lent: Option<Memory>,
    pub answer: Answer,
}

impl Transfer {
    pub(super) fn new(unique: u64, memory: Option<Run>, steps: Vec<Step>, answer: Answer) -> Self {
        Self { unique, memory, turn: None, steps, step: None, lent: None, answer }
    }

    /// The next step, which is then on its way.
    pub(super) fn next(&mut self) -> Option<Step> {
        let mut step = self.steps.pop()?;
        if let Step::Zeroes { range, unmap } = &mut step {
            let end = range.end.min(range.start + ZEROES_MAX);
            if end < range.end {
                self.steps.push(Step::Zeroes { range: end..range.end, unmap: *unmap });
            }
            range.end = end;
        }
        self.step = Some(step.clone());
        Some(step)
    }

    /// Byte `at` of the memory.
    pub(super) fn at(&self, at: usize) -> *mut u8 {
        self.memory.as_ref().expect("a transfer of bytes has memory").at(at)
    }

    /// Where a block is fetched to before it is merged: the memory's last `page` bytes.
    pub(super) fn scratch(&self, page: usize) -> *mut u8 {
        self.at(self.memory.as_ref().map_or(0, Run::len) - page)
    }
}

/// The whole blocks that hold a range.
pub(super) fn around(range: Range<u64>, block: u64) -> Range<u64> {
    range.start / block * block..range.end.next_multiple_of(block)
}

/// Part of a block that a change leaves as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    block: u64,
    keep: Range<usize>,
}

impl Edge {
    /// Fetches it to its place in the block's image at byte `to` of the memory.
    fn fetch_to(&self, to: usize) -> Step {
        Step::Fetch { block: self.block, keep: self.keep.clone(), to }
    }
}

/// What a change of `range` leaves of the first and the last block.
fn edges(range: Range<u64>, block: u64) -> impl Iterator<Item = Edge> {
    let part = |at: u64| (at % block) as usize;
    let head = Edge { block: range.start / block * block, keep: 0..part(range.start) };
    let tail_keep = if part(range.end) == 0 { 0..0 } else { part(range.end)..block as usize };
    let tail = Edge { block: range.end / block * block, keep: tail_keep };
    [head, tail].into_iter().filter(|edge| !edge.keep.is_empty())
}

/// A write of `range` from memory that holds the blocks around it: what it does not cover of them is fetched first.
pub(super) fn write(range: Range<u64>, block: u64, fua: bool) -> Vec<Step> {
    let around = around(range.clone(), block);
    let len = (around.end - around.start) as usize;
    let mut steps = vec![Step::Write { offset: around.start, at: 0, len, fua }];
    steps.extend(
        edges(range, block).map(|edge| edge.fetch_to((edge.block - around.start) as usize)),
    );
    steps
}

/// Makes `range` read as zeroes. Blocks that it covers in part are written from memory of zeroes, `page` bytes
/// for each.
pub(super) fn zero(range: Range<u64>, block: u64, page: usize, unmap: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let inside = range.start.next_multiple_of(block)..range.end / block * block;
    if inside.start < inside.end {
        steps.push(Step::Zeroes { range: inside, unmap });
    }
    let edges: Vec<Edge> = edges(range, block).collect();
    let mut blocks: Vec<u64> = edges.iter().map(|edge| edge.block).collect();
    blocks.dedup();
    for (index, offset) in blocks.into_iter().enumerate() {
        let at = index * page;
        steps.push(Step::Write { offset, at, len: block as usize, fua: false });
        let of_block = edges.iter().filter(|edge| edge.block == offset);
        steps.extend(of_block.map(|edge| edge.fetch_to(at)));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_what_it_does_not_cover_of_its_blocks() {
        let kept = |range: Range<u64>| -> Vec<(u64, Range<usize>)> {
            edges(range, 512).map(|edge| (edge.block, edge.keep)).collect()
        };
        assert_eq!(kept(512..1024), vec![]);
        assert_eq!(kept(0..1), vec![(0, 1..512)]);
        assert_eq!(kept(513..514), vec![(512, 0..1), (512, 2..512)]);
        assert_eq!(kept(1000..1024), vec![(512, 0..488)]);
        assert_eq!(kept(1..1025), vec![(0, 0..1), (1024, 1..512)]);
    }

    #[test]
    fn whole_blocks_around_a_range() {
        assert_eq!(around(0..1, 512), 0..512);
        assert_eq!(around(511..513, 512), 0..1024);
        assert_eq!(around(512..1024, 512), 512..1024);
        assert_eq!(around(512..1024, 4096), 0..4096);
    }

    #[test]
    fn blocks_written_in_part_are_fetched_first() {
        let in_order = |mut steps: Vec<Step>| {
            steps.reverse();
            steps
        };
        let fetch = |block, keep, to| Step::Fetch { block, keep, to };
        assert_eq!(
            in_order(write(700..1100, 512, true)),
            [
                fetch(1024, 76..512, 512),
                fetch(512, 0..188, 0),
                Step::Write { offset: 512, at: 0, len: 1024, fua: true },
            ]
        );
        assert_eq!(
            in_order(zero(700..1600, 512, PAGE, false)),
            [
                fetch(1536, 64..512, PAGE),
                Step::Write { offset: 1536, at: PAGE, len: 512, fua: false },
                fetch(512, 0..188, 0),
                Step::Write { offset: 512, at: 0, len: 512, fua: false },
                Step::Zeroes { range: 1024..1536, unmap: false },
            ]
        );
        assert_eq!(
            in_order(zero(10..20, 512, PAGE, true)),
            [
                fetch(0, 20..512, 0),
                fetch(0, 0..10, 0),
                Step::Write { offset: 0, at: 0, len: 512, fua: false },
            ]
        );
    }

    #[test]
    fn a_long_range_is_zeroed_in_bounded_steps() {
        let end = 2 * ZEROES_MAX + 512;
        let steps = zero(0..end, 512, PAGE, true);
        let mut transfer = Transfer::new(1, None, steps, Answer::Done);
        let mut at = 0;
        while let Some(step) = transfer.next() {
            let Step::Zeroes { range, unmap: true } = step else { panic!("{step:?}") };
            assert!(range.start == at && range.end - range.start <= ZEROES_MAX, "{range:?}");
            at = range.end;
        }
        assert_eq!(at, end);
    }
}
