//! What has to be stable in a log before an operation writes to the members, so that a power cut
//! in the midst of its writes can be made good.
//!
//! An operation comes here with its parity made and its blocks in memory, and goes on with
//! [`Shard::logged`] when nothing stands in its way any more. It keeps its blocks and its range of the
//! stripe meanwhile.

use crate::shard::Shard;

impl Shard {
    /// An operation is ready to write: [`Shard::logged`] follows, at once or later.
    pub(crate) fn log_op(&mut self, key: u32) {
        if self.journal.is_some() { self.journal_op(key) } else { self.logged(key) }
    }
}
