//! What the engine's work costs on a processor.

use lapstrake_engine::{Comparison, Compute, PAGE_BYTES};
use lapstrake_model::{Nanos, Op, Processor, Request};

/// See [`super::ArrayConfig`] for what each is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    pub processor: Processor,
    pub page: Nanos,
    pub front: Nanos,
    pub copies: u64,
}

impl Prices {
    /// A request from its coming to its answer, without what follows from it.
    pub(super) fn request(&self, request: &Request) -> Nanos {
        let bytes = if request.op == Op::Flush { 0 } else { request.blocks * 512 };
        self.processor.request + self.processor.copy(bytes * self.copies)
    }

    /// A page that is restored for a read, what is done for the others' pages and parity aside.
    pub(super) fn restored_page(&self) -> Nanos {
        self.page + self.processor.copy(PAGE_BYTES.into())
    }

    /// A command to a member.
    pub(super) fn command(&self) -> Nanos {
        self.processor.request
    }

    /// Parity work.
    pub(super) fn compute(&self, compute: &Compute) -> Nanos {
        let bytes = |count: usize, len: u32| count as u64 * u64::from(len);
        let (work, blocks, len) = match compute {
            Compute::Xor { srcs, len, .. } => {
                (self.processor.xor(bytes(srcs.len(), *len)), srcs.len() + 1, *len)
            }
            Compute::XorInto { srcs, len, .. } => {
                (self.processor.xor(bytes(srcs.len() + 1, *len)), srcs.len() + 1, *len)
            }
            Compute::Pq { data, len, .. } => {
                (self.processor.pq(bytes(data.len(), *len)), data.len() + 2, *len)
            }
            Compute::MulInto { srcs, len, .. } => {
                (self.processor.pq(bytes(srcs.len() + 1, *len)), srcs.len() + 1, *len)
            }
            Compute::Mul { dsts, srcs, len, .. } => {
                (self.processor.pq(bytes(srcs.len(), *len)), srcs.len() + dsts.len(), *len)
            }
        };
        work + self.page * bytes(blocks, len.div_ceil(PAGE_BYTES))
    }

    /// Holding blocks against each other.
    pub(super) fn compare(&self, comparison: &Comparison) -> Nanos {
        let (bytes, has_q) = comparison.work();
        let work = if has_q { self.processor.pq(bytes) } else { self.processor.xor(bytes) };
        work + self.page * bytes.div_ceil(PAGE_BYTES.into())
    }
}
