//! Requests that are not made of whole blocks, from clients that never asked how long a block is.
//!
//! A read takes in the whole blocks around it. Of a write the blocks that it covers in part are written each by itself,
//! by the engine, which reads the rest of the block; what is between goes as any write does.

use smallvec::SmallVec;
use std::ops::Range;

/// A block that a request covers in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Where the block begins.
    pub(crate) block: u64,
    /// Bytes of it before the part.
    pub(crate) skip: u32,
    /// Bytes of the part.
    pub(crate) len: u32,
}

/// A range of bytes, cut at blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// All blocks that it touches.
    pub(crate) around: Range<u64>,
    /// Those that it covers.
    pub(crate) whole: Range<u64>,
    /// The first and the last, if it covers these in part; one block may be both.
    pub(crate) edges: SmallVec<[Edge; 2]>,
}

impl Cut {
    /// `block` is a power of two.
    pub(crate) fn new(offset: u64, len: u64, block: u64) -> Self {
        let (end, mask) = (offset + len, block - 1);
        let around = offset & !mask..(end + mask) & !mask;
        let mut whole = (offset + mask) & !mask..end & !mask;
        let mut edges = SmallVec::new();
        let mut edge = |from: u64, to: u64| {
            let block = from & !mask;
            edges.push(Edge { block, skip: (from - block) as u32, len: (to - from) as u32 });
        };
        if whole.start > whole.end {
            // It begins and ends within one block.
            whole = around.end..around.end;
            edge(offset, end);
        } else {
            if offset < whole.start {
                edge(offset, whole.start);
            }
            if whole.end < end {
                edge(whole.end, end);
            }
        }
        Self { around, whole, edges }
    }

    /// Bytes before the range in the first block.
    pub(crate) fn skip(&self, offset: u64) -> u32 {
        (offset - self.around.start) as u32
    }

    /// Bytes that all blocks touched have.
    pub(crate) fn len(&self) -> usize {
        (self.around.end - self.around.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_a_whole_block_or_at_one_edge() {
        for (offset, len) in (0..20).flat_map(|offset| (1..20).map(move |len| (offset, len))) {
            let cut = Cut::new(offset, len, 4);
            let mut seen: Vec<u64> = cut.whole.clone().collect();
            for edge in &cut.edges {
                assert!(edge.len < 4 && edge.skip + edge.len <= 4, "{cut:?}");
                let from = edge.block + u64::from(edge.skip);
                seen.extend(from..from + u64::from(edge.len));
            }
            seen.sort_unstable();
            assert_eq!(seen, (offset..offset + len).collect::<Vec<_>>(), "{offset} {len}");
            assert!((cut.around.start | cut.around.end | cut.whole.start).is_multiple_of(4));
            assert!(cut.around.start <= offset && offset + len <= cut.around.end, "{cut:?}");
            assert!(cut.len() < len as usize + 8, "{cut:?}");
        }
    }
}
