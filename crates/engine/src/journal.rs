//! The journal of raid4, 5 and 6: a ring on a member of its own, into which the data and the parity of every
//! write go before the members get them, so that after a power cut each row holds all of a write or
//! nothing of it. What a ring holds when the array starts is for [`replay`].
//!
//! Operations that are ready to write wait here. Those that have come while a batch was being written make the
//! next one: units of rows, one behind the other, all written at once and stable when they end. Then the
//! operations write to the members. When the oldest units' operations have ended, the supervisor is
//! told how far the tail may move; once the members have flushed and the superblock says so, their
//! room is free. The tail always is a unit that was written, as the kernel wants it: the last one that is not
//! needed any more. A stop writes an empty one behind it all and makes that the tail.
//!
//! Invariants: units lie in the ring in order and without gaps, from the tail on; a unit is counted as needed
//! from before it is written until every operation that is in it has ended; an operation fits into a
//! quarter of the ring, and so does a unit, so that one that waits for room has always something
//! before it that will end.

mod replay;
mod ring;
mod seal;

pub use replay::{Disks, Place, ReplayConfig, ReplayError, Replayed, holds_news, replay};
pub(crate) use ring::Journal;
use ring::{Draft, Plan};
pub(crate) use seal::Row;
pub use seal::Sealing;

use crate::{member_io::Owner, messages::Notice, op::OpKey, seal::Seal, shard::Shard, types::*};
use lapstrake_geometry::Sectors;
use lapstrake_metadata::journal::Seed;

/// Pages of stripe cache that a shard with a journal needs besides: for meta blocks on their way.
pub const JOURNAL_PAGES: u32 = 16;
/// The tail moves when this much of the ring could be free...
const RECLAIM_SHARE: u64 = 4;
/// ... but not later than at 10 GiB, as in the kernel.
const RECLAIM_MAX: u64 = 10 << 21;

/// The journal as it was replayed.
#[derive(Clone, Copy, Debug)]
pub struct JournalConfig {
    /// Its device; in no slot.
    pub member: MemberId,
    /// Its size, whole blocks; no less than [`lapstrake_metadata::journal::ring_min`].
    pub ring: Sectors,
    /// Of its checksums.
    pub seed: Seed,
    /// The empty unit that the superblock names.
    pub tail: u64,
    /// Where the next unit goes.
    pub head: u64,
    /// Its number.
    pub seq: u64,
}

impl Shard {
    /// An operation is ready to write.
    pub(crate) fn journal_op(&mut self, key: OpKey) {
        let Some(journal) = &mut self.journal else { return };
        if !journal.wait(key) {
            self.fail_op(key);
        }
    }

    /// Writes what waits, as much as there is room for. True if something was sent.
    pub(crate) fn write_journal(&mut self) -> bool {
        if !self.journal.as_ref().is_some_and(Journal::is_due) {
            return false;
        }
        let Plan { ops, drafts, .. } = self.plan_batch();
        let Some(journal) = &mut self.journal else { return false };
        if ops.is_empty() {
            let notice = journal.tell_tail(true);
            self.note_some(notice);
            return false;
        }
        let ios = drafts.into_iter().map(|draft| self.send_journal_unit(draft)).sum();
        if let Some(journal) = &mut self.journal {
            journal.sent(ops, ios);
        }
        true
    }

    /// Puts operations that wait into units, up to the first for which there is no room.
    fn plan_batch(&mut self) -> Plan {
        let mut plan = Plan::default();
        while let Some(key) = self.journal.as_ref().and_then(Journal::next) {
            let rows = self.rows_of(key);
            let units = self.journal.as_mut().and_then(|journal| journal.plan(&mut plan, rows));
            let Some(units) = units else { break };
            self.set_units(key, units);
        }
        plan
    }

    /// Writes a unit behind the last one; gives how many I/Os that takes.
    fn send_journal_unit(&mut self, draft: Draft) -> u32 {
        let Some(journal) = &mut self.journal else { return 0 };
        let (member, (unit, rested)) = (journal.member(), journal.append(draft));
        if rested {
            self.note(Notice::JournalRests(None));
        }
        self.emit(Effect::Seal(Seal::Journal(unit.sealing)));
        let mut ios = 0;
        for (sector, len, pieces) in unit.writes {
            if len > 0 {
                let kind = IoKind::Write { fua: true };
                self.start_io(Owner::Journal, member, kind, (sector, len), pieces);
                ios += 1;
            }
        }
        ios
    }

    /// One of the batch's I/Os has ended.
    pub(crate) fn journal_io_done(&mut self, ok: bool) {
        let Some(journal) = &mut self.journal else { return };
        let member = journal.member();
        let Some((ops, ok)) = journal.io_done(ok) else { return };
        if !ok {
            self.note(Notice::Failed(member));
            self.close_journal();
        }
        for key in ops {
            if ok { self.logged(key) } else { self.fail_op(key) }
        }
    }

    /// Nothing goes through it any more: what waits fails, and so does what will come.
    pub(crate) fn close_journal(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        for key in journal.close() {
            self.fail_op(key);
        }
    }

    /// An operation that was in these units has ended.
    pub(crate) fn leave_units(&mut self, units: (u64, u64), failed: bool) {
        let Some(journal) = &mut self.journal else { return };
        let notices = [journal.leave(units, failed), journal.tell_rest()];
        notices.into_iter().for_each(|notice| self.note_some(notice));
    }
}
