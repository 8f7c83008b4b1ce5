//! The flushes before metadata: a superblock or bitmap page says what is so on all members, so before a batch of them is
//! written every member flushes, not only those that it is written to ([`MetaWrite`]). A batch of which none vouches for
//! anything needs no flush.
//!
//! Invariants: while members flush for one batch what comes waits for the next; of a batch for which a member could not
//! flush nothing is written.

use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_engine::{MemberId, MetaWrite, Supervisor, Time};

#[derive(Debug)]
struct Batch {
    writes: VecDeque<MetaWrite>,
    /// Members that have not answered.
    left: usize,
    refused: Vec<MemberId>,
}

/// Between a supervisor and the world that writes for it. See the module's head.
///
/// The world calls [`Self::take`] when the supervisor may want something. If it [`Self::wants_flush`], it sends a
/// flush to every member in use, says to how many ([`Self::begin`]) and how each ended ([`Self::flushed`]), and
/// writes what [`Self::due`] gives.
#[derive(Debug, Default)]
pub(crate) struct FlushBarrier {
    waiting: VecDeque<MetaWrite>,
    flushing: Option<Batch>,
}

impl FlushBarrier {
    /// Takes in what the supervisor wants written.
    pub(crate) fn take(&mut self, supervisor: &mut Supervisor) {
        while let Some(write) = supervisor.poll_write() {
            self.waiting.push_back(write);
        }
    }

    /// Whether members are to flush now.
    #[must_use]
    pub(crate) fn wants_flush(&self) -> bool {
        self.flushing.is_none() && self.waiting.iter().any(|write| write.vouches)
    }

    /// So many members have been sent a flush.
    ///
    /// # Panics
    /// If they flush for an earlier batch still; [`Self::flushed`] if nobody flushes.
    pub(crate) fn begin(&mut self, members: usize) {
        assert!(self.flushing.is_none(), "one batch at a time");
        let writes = mem::take(&mut self.waiting);
        self.flushing = Some(Batch { writes, left: members, refused: Vec::new() });
    }

    /// A member has flushed, or could not.
    pub(crate) fn flushed(&mut self, member: MemberId, ok: bool) {
        let batch = self.flushing.as_mut().expect("members flush for a batch");
        assert!(batch.left > 0, "{member:?} has answered twice");
        batch.left -= 1;
        batch.refused.extend((!ok).then_some(member));
    }

    /// A batch that every member has answered for, or that needs no flush: what is to be written now. If a member could
    /// not flush that is nothing, and the supervisor, which hears of it, wants something else.
    pub(crate) fn due(
        &mut self,
        now: Time,
        supervisor: &mut Supervisor,
    ) -> Option<VecDeque<MetaWrite>> {
        if self.flushing.is_none() && !self.waiting.is_empty() {
            assert!(!self.wants_flush(), "what vouches for data waits for its flush");
            return Some(mem::take(&mut self.waiting));
        }
        let batch = self.flushing.take_if(|batch| batch.left == 0)?;
        if batch.refused.is_empty() {
            return Some(batch.writes);
        }
        let dropped: Vec<_> = batch.writes.iter().map(|write| write.id).collect();
        supervisor.handle_unflushed(now, &batch.refused, &dropped);
        Some(VecDeque::new())
    }
}
