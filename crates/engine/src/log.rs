//! Partial parity logs: what has to be stable before an operation writes to the members, so that a power
//! cut in the midst of its writes can be made good.
//!
//! An operation comes here with its parity made and its blocks in memory, and goes on with
//! [`Shard::logged`] when nothing stands in its way any more. It keeps its blocks and its range of the
//! stripe meanwhile. Its entry goes to the log of the member that holds its stripe's parity: a unit
//! takes all operations that wait for that log when it is sent, as many as it has room for.
//!
//! Invariants:
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

use crate::{
    member_io::Owner,
    members::FULLY_TRUSTED,
    op::OpKey,
    scratch::{PAGE_BYTES, Scratch},
    seal::Seal,
    shard::Shard,
    stripe::OP_SECTORS_MAX,
    types::*,
};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::ppl::{self, ENTRIES_MAX, HEADER, HEADER_BYTES, Header};
use smallvec::SmallVec;

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

#[derive(Debug)]
struct Unit {
    /// Holds the header.
    page: Buf,
    ops: SmallVec<[OpKey; 8]>,
    /// Logs that do not hold it yet, whether some does, and whether its operations must not write.
    writes_left: u32,
    is_kept: bool,
    is_refused: bool,
    /// Operations, then flushes, that have not ended.
    left: u32,
    /// Members that the operations write to.
    written: SmallVec<[MemberId; 8]>,
}

#[derive(Debug, Default)]
struct Log {
    waiting: VecDeque<OpKey>,
    unit: Option<Unit>,
    /// Where the last unit ended.
    next: Sectors,
}

impl Unit {
    fn new(page: Buf) -> Self {
        let (ops, written) = (SmallVec::new(), SmallVec::new());
        let (is_kept, is_refused) = (false, false);
        Self { page, ops, writes_left: 1, is_kept, is_refused, left: 0, written }
    }
}

/// Before the first unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Due,
    /// So many flushes of what was written without a log have not ended.
    Flushing(u32),
    Done,
}

/// The logs of all members, as the one shard keeps them that writes to the array.
#[derive(Debug)]
pub(crate) struct Logs {
    signature: u32,
    generation: u64,
    /// Indexed by [`MemberId`]; grows with the first use.
    logs: Vec<Log>,
    /// Operations that no log is to have, or can have any more.
    without: VecDeque<OpKey>,
    /// Memory for headers.
    pages: Vec<Buf>,
    opening: Opening,
    /// Some operation waits.
    is_awaited: bool,
    /// Nothing is written any more.
    is_closed: bool,
}

impl Logs {
    pub(crate) fn new(signature: u32, raid_disks: u16, scratch: &mut Scratch) -> Self {
        // Taken for good, so that no unit waits for memory that operations hold which wait for it.
        let pages = (0..raid_disks).map_while(|_| scratch.alloc(PAGE_BYTES)).collect();
        let (logs, without) = (Vec::new(), VecDeque::new());
        let opening = Opening::Due;
        let (is_awaited, is_closed) = (false, false);
        Self { signature, generation: 0, logs, without, pages, opening, is_awaited, is_closed }
    }

    fn log(&mut self, member: MemberId) -> &mut Log {
        let at = usize::from(member.0);
        if self.logs.len() <= at {
            self.logs.resize_with(at + 1, Log::default);
        }
        &mut self.logs[at]
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |log: &Log| log.unit.is_none() && log.waiting.is_empty();
        self.without.is_empty() && self.logs.iter().all(is_idle)
    }
}

impl Shard {
    /// Whether changes of stripes are to be logged; see the module's head.
    pub(crate) fn keeps_log(&self) -> bool {
        let is_begun = |logs: &Logs| logs.generation > 0;
        let is_due = || self.in_sync_to == FULLY_TRUSTED || self.members.is_degraded();
        self.logs.as_ref().is_some_and(|logs| is_begun(logs) || is_due())
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
        if logs.is_closed {
            return self.fail_op(key);
        }
        logs.is_awaited = true;
        match log {
            Some(member) => logs.log(member).waiting.push_back(key),
            None => logs.without.push_back(key),
        }
    }

    /// Sends units to the logs that are waited for and free. Called when a batch of input has been taken in.
    pub(crate) fn send_units(&mut self) {
        let Some(logs) = &mut self.logs else { return };
        let members = &self.members;
        let is_left = |(at, log): (usize, &Log)| {
            log.unit.is_some() && members.has_failed(MemberId(at as u16))
        };
        let must_wait = members.unrecorded() || logs.logs.iter().enumerate().any(is_left);
        if must_wait || !mem::take(&mut logs.is_awaited) {
            return;
        }
        if self.is_open() {
            let all = |shard: &Self| shard.logs.as_ref().map_or(0, |logs| logs.logs.len() as u16);
            (0..all(self)).map(MemberId).for_each(|member| self.move_waiting(member));
            // Some may have got their first by that.
            (0..all(self)).map(MemberId).for_each(|member| self.send_unit(member));
        }
        let Some(logs) = &mut self.logs else { return };
        for key in mem::take(&mut logs.without) {
            self.logged(key);
        }
    }

    /// What waits for the log of a member that has failed waits for that of who has taken its place, if
    /// somebody has.
    fn move_waiting(&mut self, member: MemberId) {
        let Some(logs) = self.logs.as_mut().filter(|_| self.members.has_failed(member)) else {
            return;
        };
        for key in mem::take(&mut logs.log(member).waiting) {
            let log = self.move_log(key);
            let Some(logs) = &mut self.logs else { return };
            match log {
                Some(other) => logs.log(other).waiting.push_back(key),
                None => logs.without.push_back(key),
            }
        }
    }

    /// Whether units may be sent; if something waits for the first one, what has to be before it is begun.
    fn is_open(&mut self) -> bool {
        let has_unlogged = self.ops.values().any(|op| self.is_unlogged(op));
        let Some(logs) = &mut self.logs else { return false };
        let is_wanted = logs.logs.iter().any(|log| !log.waiting.is_empty());
        logs.is_awaited |= logs.opening != Opening::Done && is_wanted;
        if logs.opening == Opening::Due && is_wanted && !has_unlogged {
            let members: Vec<MemberId> = self.members.in_slots().collect();
            logs.opening = Opening::Flushing(members.len() as u32);
            for member in members {
                self.start_io(Owner::LogOpening, member, IoKind::Flush, (0, 0), Pieces::new());
            }
            return false;
        }
        logs.opening == Opening::Done
    }

    /// A member has flushed what was written without a log.
    pub(crate) fn opening_flushed(&mut self, member: MemberId, ok: bool) {
        if !ok && !self.fail_if_survivable(member) {
            self.break_off(None);
        }
        if let Some(logs) = &mut self.logs
            && let Opening::Flushing(left) = logs.opening
        {
            logs.opening = if left > 1 { Opening::Flushing(left - 1) } else { Opening::Done };
        }
    }

    /// One flush more than was counted is on its way, before the first unit.
    pub(crate) fn expect_another_opening(&mut self) {
        if let Some(Logs { opening: Opening::Flushing(left), .. }) = &mut self.logs {
            *left += 1;
        }
    }

    /// Nothing is written any more: what waits ends, and so does what will come.
    pub(crate) fn refuse_waiting(&mut self) {
        let Some(logs) = &mut self.logs else { return };
        logs.is_closed = true;
        let mut waiting = mem::take(&mut logs.without);
        waiting.extend(logs.logs.iter_mut().flat_map(|log| mem::take(&mut log.waiting)));
        for key in waiting {
            self.fail_op(key);
        }
    }

    fn send_unit(&mut self, member: MemberId) {
        let (Some(logs), Some((area, shape))) = (&mut self.logs, self.members.log(member)) else {
            return;
        };
        if logs.log(member).unit.is_some() || logs.log(member).waiting.is_empty() {
            return;
        }
        let Some(page) = logs.pages.pop() else {
            // Another unit gives its page back.
            return;
        };
        logs.generation += 1;
        let (signature, generation) = (logs.signature, logs.generation);
        let mut header = Header { signature, generation, entries: Vec::new() };
        let mut unit = Unit::new(page);
        let mut partials = Vec::new();
        let mut pieces = Pieces::from_elem(Piece { buf: page, len: PAGE_BYTES }, 1);
        let mut room = shape.unit.0 as u32;
        while let Some(&key) = self.logs.as_mut().and_then(|logs| logs.log(member).waiting.front())
        {
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
            unit.ops.push(key);
            unit.written.extend(members);
            self.ops[key].is_in_unit = true;
            if let Some(logs) = &mut self.logs {
                logs.log(member).waiting.pop_front();
            }
        }
        unit.written.sort_unstable();
        unit.written.dedup();
        unit.left = unit.ops.len() as u32;
        let partial = shape.unit - Sectors(room.into());
        let Some(logs) = &mut self.logs else { return };
        let log = logs.log(member);
        let at = shape.place(log.next, partial);
        log.next = at + HEADER + partial;
        let replacement = self.members.replacement_of(member).and_then(|replacement| {
            let (area, its) = self.members.log(replacement)?;
            (its == shape).then_some((replacement, area))
        });
        unit.writes_left += u32::from(replacement.is_some());
        log.unit = Some(unit);
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
        let Some(unit) = &mut logs.log(log).unit else { return };
        unit.writes_left -= 1;
        unit.is_kept |= ok;
        unit.is_refused |= !may_write;
        if unit.writes_left > 0 {
            return;
        }
        let (ok, may_write) = (unit.is_kept && !unit.is_refused, !unit.is_refused);
        let ops = mem::take(&mut unit.ops);
        if !ok {
            self.close_unit(log);
        }
        for key in ops {
            if ok {
                self.logged(key);
                continue;
            }
            self.ops[key].is_in_unit = false;
            match &mut self.logs {
                Some(logs) if may_write && !logs.is_closed => logs.without.push_back(key),
                _ => self.fail_op(key),
            }
        }
    }

    /// An operation of a unit has ended. After the last one, what they wrote is made stable.
    pub(crate) fn logged_op_ended(&mut self, log: MemberId) {
        let Some(unit) = self.logs.as_mut().and_then(|logs| logs.log(log).unit.as_mut()) else {
            return;
        };
        unit.left -= 1;
        if unit.left > 0 {
            return;
        }
        let written = mem::take(&mut unit.written);
        let members: SmallVec<[MemberId; 8]> =
            written.into_iter().filter(|&member| !self.members.has_failed(member)).collect();
        unit.left = members.len() as u32;
        if members.is_empty() {
            return self.close_unit(log);
        }
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
        let Some(unit) = self.logs.as_mut().and_then(|logs| logs.log(log).unit.as_mut()) else {
            return;
        };
        unit.left -= 1;
        if unit.left == 0 {
            self.close_unit(log);
        }
    }

    /// One flush more than was counted is on its way.
    pub(crate) fn expect_another_flush(&mut self, log: MemberId) {
        if let Some(unit) = self.logs.as_mut().and_then(|logs| logs.log(log).unit.as_mut()) {
            unit.left += 1;
        }
    }

    fn close_unit(&mut self, log: MemberId) {
        let Some(logs) = &mut self.logs else { return };
        if let Some(unit) = logs.log(log).unit.take() {
            logs.pages.push(unit.page);
        }
        logs.is_awaited = true;
    }
}
