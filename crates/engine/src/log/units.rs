//! What waits for partial parity logs, and the unit that is under way in each.
//!
//! Invariants:
//! - a log has one unit under way: the next begins when every operation and every flush of the last one has ended;
//! - each unit under way has a page of its own for its header, and gives it back;
//! - an operation waits in one place, or is in one unit;
//! - nothing is sent before what was written without a log has been flushed;
//! - once closed nothing waits here any more.

use crate::{
    op::OpKey,
    scratch::{PAGE_BYTES, Scratch},
    types::*,
};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::Sectors;
use lapstrake_metadata::ppl::{HEADER, Header, Shape};
use smallvec::SmallVec;

pub(super) type MemberIds = SmallVec<[MemberId; 8]>;
pub(super) type OpKeys = SmallVec<[OpKey; 8]>;

#[derive(Debug)]
pub(super) struct Unit {
    /// Holds the header.
    page: Buf,
    ops: OpKeys,
    /// Logs that do not hold it yet, whether some does, and whether its operations must not write.
    writes_left: u32,
    is_kept: bool,
    is_refused: bool,
    /// Operations, then flushes, that have not ended.
    left: u32,
    /// Members that the operations write to.
    written: MemberIds,
}

impl Unit {
    fn new(page: Buf) -> Self {
        let (ops, written) = (SmallVec::new(), SmallVec::new());
        let (is_kept, is_refused) = (false, false);
        Self { page, ops, writes_left: 0, is_kept, is_refused, left: 0, written }
    }

    pub(super) fn page(&self) -> Buf {
        self.page
    }

    /// Takes in an operation that writes to these members.
    pub(super) fn push(&mut self, op: OpKey, members: MemberIds) {
        self.ops.push(op);
        self.written.extend(members);
    }
}

#[derive(Debug, Default)]
struct Log {
    waiting: VecDeque<OpKey>,
    unit: Option<Unit>,
    /// Where the last unit ended.
    next: Sectors,
}

/// Before the first unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Due,
    /// So many flushes of what was written without a log have not ended.
    Flushing(u32),
    Done,
}

/// Whether units may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    Yes,
    No,
    /// Members are to flush first; [`Logs::open`] follows.
    FlushFirst,
}

/// What becomes of the operations of a unit that was written, or was not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// They go on.
    Kept(OpKeys),
    /// No log has them, and the unit is over.
    Lost { ops: OpKeys, may_write: bool },
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

    /// Who has, or had, a log that something waited for.
    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..self.logs.len() as u16).map(MemberId)
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |log: &Log| log.unit.is_none() && log.waiting.is_empty();
        self.without.is_empty() && self.logs.iter().all(is_idle)
    }

    /// A log was written.
    pub(super) fn is_begun(&self) -> bool {
        self.generation > 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// An operation waits for this log, or for none.
    pub(super) fn wait(&mut self, op: OpKey, log: Option<MemberId>) {
        assert!(!self.is_closed, "nothing waits for logs that are closed");
        match log {
            Some(member) => self.log(member).waiting.push_back(op),
            None => self.without.push_back(op),
        }
    }

    /// There is something to be sent, if it can be.
    pub(super) fn set_awaited(&mut self) {
        self.is_awaited = true;
    }

    pub(super) fn take_awaited(&mut self) -> bool {
        mem::take(&mut self.is_awaited)
    }

    /// Whether one of these has a unit under way.
    pub(super) fn has_unit_of(&self, is_it: impl Fn(MemberId) -> bool) -> bool {
        let mut logs = self.members().zip(&self.logs);
        logs.any(|(member, log)| log.unit.is_some() && is_it(member))
    }

    /// Operations that wait for a log that is not to have them.
    pub(super) fn take_waiting(&mut self, member: MemberId) -> VecDeque<OpKey> {
        mem::take(&mut self.log(member).waiting)
    }

    /// Operations that need no log.
    pub(super) fn take_without(&mut self) -> VecDeque<OpKey> {
        mem::take(&mut self.without)
    }

    /// Nothing is written any more. Gives what waited.
    pub(super) fn close(&mut self) -> VecDeque<OpKey> {
        self.is_closed = true;
        let mut waiting = self.take_without();
        waiting.extend(self.logs.iter_mut().flat_map(|log| mem::take(&mut log.waiting)));
        waiting
    }

    /// Whether units may be sent. `has_unlogged`: something is being written without a log.
    pub(super) fn opened(&mut self, has_unlogged: bool) -> Opened {
        let is_wanted = self.logs.iter().any(|log| !log.waiting.is_empty());
        self.is_awaited |= self.opening != Opening::Done && is_wanted;
        match self.opening {
            Opening::Done => Opened::Yes,
            Opening::Due if is_wanted && !has_unlogged => Opened::FlushFirst,
            Opening::Due | Opening::Flushing(_) => Opened::No,
        }
    }

    /// So many members flush what was written without a log.
    pub(super) fn open(&mut self, flushes: u32) {
        assert_eq!(self.opening, Opening::Due, "logs are opened once");
        self.opening = Opening::Flushing(flushes);
    }

    /// One flush more than was counted is on its way, before the first unit.
    pub(super) fn expect_opening(&mut self) {
        if let Opening::Flushing(left) = &mut self.opening {
            *left += 1;
        }
    }

    /// A member has flushed what was written without a log.
    pub(super) fn opening_flushed(&mut self) {
        if let Opening::Flushing(left) = self.opening {
            self.opening = if left > 1 { Opening::Flushing(left - 1) } else { Opening::Done };
        }
    }

    /// Begins a unit if something waits for this log, it has none under way, and there is a page. [`Self::send`] follows.
    pub(super) fn begin_unit(&mut self, member: MemberId) -> Option<(Unit, Header)> {
        let log = self.log(member);
        if log.unit.is_some() || log.waiting.is_empty() {
            return None;
        }
        // Another unit gives its page back.
        let page = self.pages.pop()?;
        self.generation += 1;
        let (signature, generation) = (self.signature, self.generation);
        Some((Unit::new(page), Header { signature, generation, entries: Vec::new() }))
    }

    /// The operation that has waited longest for a log.
    pub(super) fn next(&mut self, member: MemberId) -> Option<OpKey> {
        self.log(member).waiting.front().copied()
    }

    /// It waits no more.
    pub(super) fn took_next(&mut self, member: MemberId) {
        self.log(member).waiting.pop_front();
    }

    /// A unit goes to `copies` logs, with so much partial parity; gives its place in the member's.
    pub(super) fn send(
        &mut self,
        member: MemberId,
        mut unit: Unit,
        copies: u32,
        shape: Shape,
        partial: Sectors,
    ) -> Sectors {
        unit.written.sort_unstable();
        unit.written.dedup();
        unit.left = unit.ops.len() as u32;
        unit.writes_left = copies;
        let log = self.log(member);
        let at = shape.place(log.next, partial);
        log.next = at + HEADER + partial;
        let before = log.unit.replace(unit);
        assert!(before.is_none(), "a log has one unit under way");
        at
    }

    /// A unit was written to one of its logs (`ok`), or not, and then its operations may write without one, or not.
    /// None while others are still to be written.
    pub(super) fn written(
        &mut self,
        member: MemberId,
        ok: bool,
        may_write: bool,
    ) -> Option<Written> {
        let unit = self.log(member).unit.as_mut()?;
        assert!(unit.writes_left > 0, "a unit is written to as many logs as it was sent to");
        unit.writes_left -= 1;
        unit.is_kept |= ok;
        unit.is_refused |= !may_write;
        if unit.writes_left > 0 {
            return None;
        }
        let (is_kept, may_write) = (unit.is_kept && !unit.is_refused, !unit.is_refused);
        let ops = mem::take(&mut unit.ops);
        if is_kept {
            return Some(Written::Kept(ops));
        }
        self.end_unit(member);
        Some(Written::Lost { ops, may_write })
    }

    /// An operation of a unit has ended. After the last one gives what is to be flushed; [`Self::flush`] follows.
    pub(super) fn op_ended(&mut self, member: MemberId) -> Option<MemberIds> {
        let unit = self.log(member).unit.as_mut()?;
        assert!(unit.left > 0 && unit.writes_left == 0, "an operation ends that was in no unit");
        unit.left -= 1;
        (unit.left == 0).then(|| mem::take(&mut unit.written))
    }

    /// So many members flush what the operations of a unit wrote; after none the unit has ended.
    pub(super) fn flush(&mut self, member: MemberId, flushes: u32) {
        match &mut self.log(member).unit {
            Some(unit) if flushes > 0 => unit.left = flushes,
            _ => self.end_unit(member),
        }
    }

    /// One flush more than was counted is on its way.
    pub(super) fn expect_flush(&mut self, member: MemberId) {
        if let Some(unit) = &mut self.log(member).unit {
            unit.left += 1;
        }
    }

    /// A member has flushed what a unit describes.
    pub(super) fn flushed(&mut self, member: MemberId) {
        let Some(unit) = &mut self.log(member).unit else { return };
        assert!(unit.left > 0, "a flush ends that was not counted");
        unit.left -= 1;
        if unit.left == 0 {
            self.end_unit(member);
        }
    }

    fn end_unit(&mut self, member: MemberId) {
        if let Some(unit) = self.log(member).unit.take() {
            self.pages.push(unit.page);
        }
        self.is_awaited = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{op::Op, slots::Slots};

    const LOG: MemberId = MemberId(0);
    const OTHER: MemberId = MemberId(1);

    fn logs(pages: u16) -> Logs {
        let mut logs = Logs::new(7, pages, &mut Scratch::new(BufId(1), 8));
        logs.open(1);
        logs.opening_flushed();
        logs
    }

    fn ops() -> [OpKey; 2] {
        let mut ops = Slots::default();
        [0; 2].map(|_| ops.insert(Op::for_test()))
    }

    /// Sends what has waited longest for a log.
    fn send(logs: &mut Logs, member: MemberId, copies: u32) -> bool {
        let Some((mut unit, _)) = logs.begin_unit(member) else { return false };
        let op = logs.next(member).expect("something waits");
        unit.push(op, SmallVec::from_slice(&[OTHER, LOG, OTHER]));
        logs.took_next(member);
        let shape = Shape::of(Sectors(2048)).expect("a shape");
        logs.send(member, unit, copies, shape, Sectors(8));
        true
    }

    #[test]
    fn a_log_has_its_next_unit_when_all_of_the_last_one_is_stable() {
        let (mut logs, [first, second]) = (logs(2), ops());
        logs.wait(first, Some(LOG));
        logs.wait(second, Some(LOG));
        assert!(send(&mut logs, LOG, 1) && !send(&mut logs, LOG, 1));
        let kept = Written::Kept(SmallVec::from_slice(&[first]));
        assert_eq!(logs.written(LOG, true, true), Some(kept));
        assert_eq!(logs.op_ended(LOG), Some(SmallVec::from_slice(&[LOG, OTHER])));
        logs.flush(LOG, 2);
        logs.flushed(LOG);
        assert!(!send(&mut logs, LOG, 1), "a flush has not ended");
        logs.flushed(LOG);
        assert!(logs.take_awaited() && send(&mut logs, LOG, 1));
    }

    #[test]
    fn a_unit_waits_for_a_page_of_its_own() {
        let (mut logs, [first, second]) = (logs(1), ops());
        logs.wait(first, Some(LOG));
        logs.wait(second, Some(OTHER));
        assert!(send(&mut logs, LOG, 1) && !send(&mut logs, OTHER, 1));
        let lost = Written::Lost { ops: SmallVec::from_slice(&[first]), may_write: true };
        assert_eq!(logs.written(LOG, false, true), Some(lost));
        assert!(send(&mut logs, OTHER, 1));
    }

    #[test]
    fn operations_go_on_when_both_logs_are_written_unless_one_refuses() {
        let [op, _] = ops();
        for (writes, is_kept) in [([true, true], true), ([false, true], true), ([false; 2], false)]
        {
            let mut logs = logs(1);
            logs.wait(op, Some(LOG));
            assert!(send(&mut logs, LOG, 2));
            assert_eq!(logs.written(LOG, writes[0], true), None);
            let written = logs.written(LOG, writes[1], true);
            assert_eq!(matches!(written, Some(Written::Kept(_))), is_kept, "{writes:?}");
        }
        let mut logs = logs(1);
        logs.wait(op, Some(LOG));
        assert!(send(&mut logs, LOG, 2));
        assert_eq!(logs.written(LOG, true, true), None);
        let lost = Written::Lost { ops: SmallVec::from_slice(&[op]), may_write: false };
        assert_eq!(logs.written(LOG, false, false), Some(lost));
    }

    #[test]
    fn the_first_unit_waits_for_what_was_written_without_a_log() {
        let mut logs = Logs::new(7, 1, &mut Scratch::new(BufId(1), 8));
        assert_eq!(logs.opened(false), Opened::No, "nothing waits");
        let [op, _] = ops();
        logs.wait(op, Some(LOG));
        assert_eq!(logs.opened(true), Opened::No);
        assert_eq!(logs.opened(false), Opened::FlushFirst);
        logs.open(1);
        logs.expect_opening();
        logs.opening_flushed();
        assert_eq!(logs.opened(false), Opened::No);
        logs.opening_flushed();
        assert_eq!(logs.opened(false), Opened::Yes);
    }

    #[test]
    fn what_waits_is_given_back_when_logs_are_closed() {
        let (mut logs, [first, second]) = (logs(1), ops());
        logs.wait(first, Some(LOG));
        logs.wait(second, None);
        assert_eq!(logs.close(), [second, first]);
        assert!(logs.is_closed() && logs.is_idle());
    }
}
