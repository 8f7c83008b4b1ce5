//! Requests of the mount on their way through the array.
//!
//! A [`Transfer`] is a list of steps, each one request to the array; the next is sent when the last
//! one has ended. Its memory is taken before the first, so that transfers never wait for each other but for
//! their turn.

use super::memory::Run;
use crate::session::blocks::{Cut, Edge};
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
    /// A part of a block, which lies in the block's image at byte `at` of the memory.
    Part { edge: Edge, at: usize, fua: bool },
    /// Without memory.
    Zeroes { range: Range<u64>, unmap: bool },
    /// Of the whole array.
    Flush,
}

/// Who gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Who reads the device, under this name of the request.
    Device(u64),
    /// An entry of the kernel's queues.
    Entry(usize),
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

/// Page-aligned memory of a request.
#[derive(Debug)]
pub(super) enum Bytes {
    Pool(Run),
    /// What its entry has for data: as long as the longest.
    Entry(*mut u8),
}

// SAFETY: an entry's memory is its request's until that is answered.
unsafe impl Send for Bytes {}

/// See the module.
#[derive(Debug)]
pub(super) struct Transfer {
    pub origin: Origin,
    pub memory: Option<Bytes>,
    /// The next step is the last of the list.
    steps: Vec<Step>,
    /// Of the step that is on its way.
    pub lent: Option<Memory>,
    pub answer: Answer,
}

impl Transfer {
    pub(super) fn new(
        origin: Origin,
        memory: Option<Bytes>,
        steps: Vec<Step>,
        answer: Answer,
    ) -> Self {
        Self { origin, memory, steps, lent: None, answer }
    }

    /// The next step.
    pub(super) fn next(&mut self) -> Option<Step> {
        let mut step = self.steps.pop()?;
        if let Step::Zeroes { range, unmap } = &mut step {
            let end = range.end.min(range.start + ZEROES_MAX);
            if end < range.end {
                self.steps.push(Step::Zeroes { range: end..range.end, unmap: *unmap });
            }
            range.end = end;
        }
        Some(step)
    }

    /// The memory's first byte.
    pub(super) fn start(&self) -> *mut u8 {
        match self.memory.as_ref().expect("a transfer of bytes has memory") {
            Bytes::Pool(run) => run.at(0),
            Bytes::Entry(start) => *start,
        }
    }

    /// Where in the memory a block lies that is there to be used: its last `page` bytes.
    pub(super) fn scratch(&self, page: usize) -> usize {
        match &self.memory {
            Some(Bytes::Pool(run)) => run.len() - page,
            _ => unreachable!("parts of blocks are written from memory of the pool"),
        }
    }
}

/// A write of what `cut` says from memory that holds the blocks around it.
pub(super) fn write(cut: &Cut, fua: bool) -> Vec<Step> {
    let at = |offset: u64| (offset - cut.around.start) as usize;
    let mut steps = Vec::new();
    if !cut.whole.is_empty() {
        let len = (cut.whole.end - cut.whole.start) as usize;
        steps.push(Step::Write { offset: cut.whole.start, at: at(cut.whole.start), len, fua });
    }
    steps.extend(cut.edges.iter().map(|&edge| Step::Part { edge, at: at(edge.block), fua }));
    steps
}

/// Makes what `cut` says read as zeroes; for parts of blocks the memory begins with a block of zeroes.
pub(super) fn zero(cut: &Cut, unmap: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if !cut.whole.is_empty() {
        steps.push(Step::Zeroes { range: cut.whole.clone(), unmap });
    }
    steps.extend(cut.edges.iter().map(|&edge| Step::Part { edge, at: 0, fua: false }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blocks_are_written_by_themselves() {
        let cut = Cut::new(700, 900, 512);
        let [head, tail] = cut.edges[..] else { panic!("{cut:?}") };
        let whole = Step::Write { offset: 1024, at: 512, len: 512, fua: true };
        let parts = [
            Step::Part { edge: head, at: 0, fua: true },
            Step::Part { edge: tail, at: 1024, fua: true },
        ];
        let mut all = write(&cut, true);
        assert_eq!(all.remove(0), whole);
        assert_eq!(all, parts);
        let mut all = zero(&cut, false);
        assert_eq!(all.remove(0), Step::Zeroes { range: 1024..1536, unmap: false });
        assert!(all.iter().all(|step| matches!(step, Step::Part { at: 0, fua: false, .. })));
        let within = Cut::new(10, 10, 512);
        assert!(matches!(write(&within, false)[..], [Step::Part { at: 0, .. }]));
        let whole = Cut::new(512, 1024, 512);
        let all = Step::Write { offset: 512, at: 0, len: 1024, fua: false };
        assert_eq!(write(&whole, false), [all]);
    }

    #[test]
    fn a_long_range_is_zeroed_in_bounded_steps() {
        let end = 2 * ZEROES_MAX + 512;
        let steps = zero(&Cut::new(0, end, 512), true);
        let mut transfer = Transfer::new(Origin::Device(1), None, steps, Answer::Done);
        let mut at = 0;
        while let Some(step) = transfer.next() {
            let Step::Zeroes { range, unmap: true } = step else { panic!("{step:?}") };
            assert!(range.start == at && range.end - range.start <= ZEROES_MAX, "{range:?}");
            at = range.end;
        }
        assert_eq!(at, end);
    }
}
