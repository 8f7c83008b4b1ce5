//! The supervisor's metadata writes on their way: before a batch of them every member flushes, as
//! [`MetaWrite`] demands and as the host does it.

use lapstrake_engine::{MemberId, MetaWrite};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub writes: VecDeque<MetaWrite>,
    pub refused: Vec<MemberId>,
    left: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Desk {
    waiting: VecDeque<MetaWrite>,
    flushing: Option<Batch>,
}

impl Desk {
    pub(crate) fn take(&mut self, write: MetaWrite) {
        self.waiting.push_back(write);
    }

    pub(crate) fn wants_flush(&self) -> bool {
        !self.waiting.is_empty() && self.flushing.is_none()
    }

    /// So many members are being flushed for what waits.
    pub(crate) fn begin(&mut self, left: usize) {
        let writes = std::mem::take(&mut self.waiting);
        self.flushing = Some(Batch { writes, refused: Vec::new(), left });
    }

    pub(crate) fn flushed(&mut self, member: MemberId, ok: bool) {
        if let Some(batch) = &mut self.flushing {
            batch.left -= 1;
            batch.refused.extend((!ok).then_some(member));
        }
    }

    /// A batch that every member has flushed for, or refused to.
    pub(crate) fn done(&mut self) -> Option<Batch> {
        self.flushing.take_if(|batch| batch.left == 0)
    }
}
