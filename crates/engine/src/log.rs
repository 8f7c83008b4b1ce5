//! Partial parity logs: what has to be stable before an operation writes to the members, so that a power
//! cut in the midst of its writes can be made good.
//!
//! An operation comes here with its parity made and its blocks in memory, and goes on with
//! [`Shard::logged`] when nothing stands in its way any more. It keeps its blocks and its range of the
//! stripe meanwhile. Its entry goes to the log of the member that holds its stripe's parity: a unit
//! takes all operations that wait for that log when it is sent, as many as it has room for.
//!
//! What waits, and what is under way, is kept in [`units`]. Invariants:
//! - a log has one unit under way. The next is sent when every operation of the last one has ended and the
//!   members that these wrote to have flushed, for a replay sees the last sound unit only;
//! - once a log was written, every change of a stripe whose parity its member holds is logged, or the last
//!   unit might be replayed over a later change;
//! - a replacement's log gets what the member's log gets, since it may be its only one at the next start; no
//!   unit is sent while one of a failed member's log is under way, which its replacement's may hold;
//! - while a member's failure is not on record nothing new is sent. Its log, its parity or its data may come
//!   back at the next start as current: then what is under way must be in the last units, or not begun;
//! - while a resync is due and no member is missing nothing is logged: there is no parity yet to keep right.
//!   A replay that finds nothing leaves the resync due (as in md), a replay that mended something would call
//!   the array clean. So the first unit is sent when all that was written without one is stable.
//!
//! Without parity to write (its member is missing) nothing is logged: no block depends on any other then.

mod units;

use crate::{
    member_io::Owner, op::OpKey, scratch::PAGE_BYTES, seal::Seal, shard::Shard,
    stripe::OP_SECTORS_MAX, types::*,
};
use alloc::vec::Vec;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::ppl::{self, ENTRIES_MAX, HEADER, HEADER_BYTES, Header};
pub(crate) use units::Logs;
use units::{MemberIds, Opened, Written};

/// A header to be made of the bytes that it covers.
#[derive(Clone, Debug)]
pub struct Sealing {
    pub(crate) place: Buf,
    header: Header,
    /// Of each entry that has some, where its partial parity is.
    partials: Vec<Option<Buf>>,
}

impl Sealing {
    /// Makes the header. `bytes` gives a buffer's memory.
    pub(crate) fn run<'a>(&self, bytes: impl Fn(Buf, u32) -> &'a [u8]) -> [u8; HEADER_BYTES] {
        let mut header = self.header.clone();
        for (entry, partial) in header.entries.iter_mut().zip(&self.partials) {
            entry.checksum =
                ppl::checksum(partial.map_or(&[], |partial| bytes(partial, entry.pp_size)));
        }
        header.encode()
    }
}

impl Shard {
    /// Whether changes of stripes are to be logged; see the module's head.
    pub(crate) fn keeps_log(&self) -> bool {
        let is_due = || self.in_sync.is_whole() || self.members.is_degraded();
        self.logs.as_ref().is_some_and(|logs| logs.is_begun() || is_due())
    }

    /// Height of the largest operation: what is logged of it has to fit into a unit.
    pub(crate) fn height_max(&self) -> u32 {
        let by_journal = self.journal.as_ref().map(|journal| journal.op_sectors_max(self.parity()));
        let all = by_journal.map_or(OP_SECTORS_MAX, |max| max.min(OP_SECTORS_MAX));
        self.members.logs().fold(all, |least, (_, shape)| least.min(shape.unit.0 as u32))
    }

    /// An operation is ready to write: [`Shard::logged`] follows, at once or later.
    pub(crate) fn log_op(&mut self, key: OpKey) {
        if self.journal.is_some() {
            return self.journal_op(key);
        }
        let log = self.log_of(key);
        let Some(logs) = &mut self.logs else { return self.logged(key) };
        if logs.is_closed() {
            return self.fail_op(key);
        }
        logs.set_awaited();
        logs.wait(key, log);
    }

    /// Sends units to the logs that are waited for and free. Called when a batch of input has been taken in.
    pub(crate) fn send_units(&mut self) {
        let Some(logs) = &mut self.logs else { return };
        let members = &self.members;
        let must_wait =
            members.unrecorded() || logs.has_unit_of(|member| members.has_failed(member));
        if must_wait || !logs.take_awaited() {
            return;
        }
        if self.is_open() {
            let all = |shard: &Self| shard.logs.as_ref().map(Logs::members).into_iter().flatten();
            all(self).for_each(|member| self.move_waiting(member));
            // Some may have got their first by that.
            all(self).for_each(|member| self.send_unit(member));
        }
        let Some(logs) = &mut self.logs else { return };
        for key in logs.take_without() {
            self.logged(key);
        }
    }

    /// What waits for the log of a member that has failed waits for that of who has taken its place, if
    /// somebody has.
    fn move_waiting(&mut self, member: MemberId) {
        let Some(logs) = self.logs.as_mut().filter(|_| self.members.has_failed(member)) else {
            return;
        };
        for key in logs.take_waiting(member) {
            let log = self.move_log(key);
            let Some(logs) = &mut self.logs else { return };
            logs.wait(key, log);
        }
    }

    /// Whether units may be sent; if something waits for the first one, what has to be before it is begun.
    fn is_open(&mut self) -> bool {
        let has_unlogged = self.ops.values().any(|op| self.is_unlogged(op));
        let Some(logs) = &mut self.logs else { return false };
        match logs.opened(has_unlogged) {
            Opened::Yes => return true,
            Opened::No => return false,
            Opened::FlushFirst => {}
        }
        let members: Vec<MemberId> = self.members.in_slots().collect();
        logs.open(members.len() as u32);
        for member in members {
            self.start_io(Owner::LogOpening, member, IoKind::Flush, (0, 0), Pieces::new());
        }
        false
    }

    /// A member has flushed what was written without a log.
    pub(crate) fn opening_flushed(&mut self, member: MemberId, ok: bool) {
        if !ok && !self.fail_if_survivable(member) {
            self.break_off(None);
        }
        if let Some(logs) = &mut self.logs {
            logs.opening_flushed();
        }
    }

    /// One flush more than was counted is on its way, before the first unit.
    pub(crate) fn expect_another_opening(&mut self) {
        if let Some(logs) = &mut self.logs {
            logs.expect_opening();
        }
    }

    /// Nothing is written any more: what waits ends, and so does what will come.
    pub(crate) fn refuse_waiting(&mut self) {
        let Some(logs) = &mut self.logs else { return };
        for key in logs.close() {
            self.fail_op(key);
        }
    }

    fn send_unit(&mut self, member: MemberId) {
        let (Some(logs), Some((area, shape))) = (&mut self.logs, self.members.log(member)) else {
            return;
        };
        let Some((mut unit, mut header)) = logs.begin_unit(member) else { return };
        let page = unit.page();
        let mut partials = Vec::new();
        let mut pieces = Pieces::from_elem(Piece { buf: page, len: PAGE_BYTES }, 1);
        let mut room = shape.unit.0 as u32;
        while let Some(key) = self.logs.as_mut().and_then(|logs| logs.next(member)) {
            let partial = self.ops[key].partial();
            let height = partial.map_or(0, |partial| partial.1);
            if header.entries.len() == ENTRIES_MAX || height > room {
                break;
            }
            room -= height;
            let (entry, members) = self.log_entry(key);
            pieces.extend(partial.map(|(buf, height)| Piece { buf, len: height * 512 }));
            partials.push(partial.map(|partial| partial.0));
            header.entries.push(entry);
            unit.push(key, members);
            self.ops[key].enter_unit();
            if let Some(logs) = &mut self.logs {
                logs.took_next(member);
            }
        }
        let partial = shape.unit - Sectors(room.into());
        let replacement = self.members.replacement_of(member).and_then(|replacement| {
            let (area, its) = self.members.log(replacement)?;
            (its == shape).then_some((replacement, area))
        });
        let Some(logs) = &mut self.logs else { return };
        let copies = 1 + u32::from(replacement.is_some());
        let at = logs.send(member, unit, copies, shape, partial);
        self.emit(Effect::Seal(Seal::Log(Sealing { place: page, header, partials })));
        for (target, area) in [(member, area)].into_iter().chain(replacement) {
            let range = (area + at, (HEADER + partial).0);
            let kind = IoKind::Write { fua: true };
            self.start_io_at(Owner::Log(member), target, kind, range, pieces.clone());
        }
    }

    /// A unit is stable on a member; when that is so on its replacement too, its operations go on. Who cannot
    /// write it fails. If nobody has it they go on without a log; if the array cannot do without who failed,
    /// they end before they have written anything.
    pub(crate) fn unit_written(&mut self, log: MemberId, target: MemberId, ok: bool) {
        let may_write = ok || self.fail_if_survivable(target);
        let Some(logs) = &mut self.logs else { return };
        let (ops, may_write) = match logs.written(log, ok, may_write) {
            None => return,
            Some(Written::Kept(ops)) => return ops.into_iter().for_each(|key| self.logged(key)),
            Some(Written::Lost { ops, may_write }) => (ops, may_write),
        };
        for key in ops {
            self.ops[key].leave_unit();
            match &mut self.logs {
                Some(logs) if may_write && !logs.is_closed() => logs.wait(key, None),
                _ => self.fail_op(key),
            }
        }
    }

    /// An operation of a unit has ended. After the last one, what they wrote is made stable.
    pub(crate) fn logged_op_ended(&mut self, log: MemberId) {
        let Some(logs) = &mut self.logs else { return };
        let Some(written) = logs.op_ended(log) else { return };
        let is_there = |&member: &MemberId| !self.members.has_failed(member);
        let members: MemberIds = written.into_iter().filter(is_there).collect();
        logs.flush(log, members.len() as u32);
        for member in members {
            let owner = Owner::LogFlush(log);
            self.start_io(owner, member, IoKind::Flush, (0, 0), Pieces::new());
        }
    }

    /// A member has flushed what a unit describes. One that cannot is used no more; if the array cannot do
    /// without it, nothing more may be written, since the next unit would take the place of this one.
    pub(crate) fn unit_flushed(&mut self, log: MemberId, member: MemberId, ok: bool) {
        if !ok && !self.fail_if_survivable(member) {
            self.break_off(None);
        }
        if let Some(logs) = &mut self.logs {
            logs.flushed(log);
        }
    }

    /// One flush more than was counted is on its way.
    pub(crate) fn expect_another_flush(&mut self, log: MemberId) {
        if let Some(logs) = &mut self.logs {
            logs.expect_flush(log);
        }
    }
}
