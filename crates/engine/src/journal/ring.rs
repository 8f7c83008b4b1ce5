//! The ring of a journal: which units lie in it, what waits for the next ones, and how far the tail may move.
//!
//! Invariants: those of [`super`], and
//! - one batch is written at a time, with a page for each of its meta blocks;
//! - an operation leaves each unit that it is in once;
//! - once closed nothing waits, and the tail stays.

use super::{JOURNAL_PAGES, JournalConfig, RECLAIM_MAX, RECLAIM_SHARE, Row, Sealing};
use crate::{messages::Notice, op::OpKey, types::*};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::{Parity, Sectors};
use lapstrake_metadata::journal::{BLOCK, BLOCK_BYTES, Meta, Payload, ring_add};

/// A unit that was sent, and how many of its operations have not ended.
#[derive(Debug)]
struct Unit {
    seq: u64,
    position: u64,
    len: Sectors,
    open: u32,
}

/// Units that are being written.
#[derive(Debug)]
struct Batch {
    ops: Vec<OpKey>,
    left: u32,
    failed: bool,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Journal {
    config: JournalConfig,
    head: u64,
    seq: u64,
    units: VecDeque<Unit>,
    /// Operations that are not in a unit yet.
    waiting: VecDeque<OpKey>,
    batch: Option<Batch>,
    /// Room for the meta blocks of a batch, and how many are in use.
    metas: Buf,
    metas_used: u32,
    /// What the supervisor was told last of the tail, and whether that is to be put on record at once.
    told: u64,
    is_urgent: bool,
    /// The supervisor was told last that nothing in it is needed.
    rests: bool,
    /// Nothing more may be written; the tail stays.
    failed: bool,
}

impl Journal {
    pub(crate) fn new(config: JournalConfig, metas: Buf) -> Self {
        let unit =
            Unit { seq: config.seq.wrapping_sub(1), position: config.tail, len: BLOCK, open: 0 };
        Self {
            head: config.head,
            seq: config.seq,
            units: VecDeque::from([unit]),
            waiting: VecDeque::new(),
            batch: None,
            metas,
            metas_used: 0,
            told: config.tail,
            is_urgent: false,
            rests: false,
            failed: false,
            config,
        }
    }

    pub(super) fn member(&self) -> MemberId {
        self.config.member
    }

    /// An operation is ready to write. False if nothing may be written any more.
    pub(super) fn wait(&mut self, op: OpKey) -> bool {
        if !self.failed {
            self.waiting.push_back(op);
        }
        !self.failed
    }

    /// Whether something waits, and nothing is on its way that it could go with.
    pub(super) fn is_due(&self) -> bool {
        self.batch.is_none() && !self.waiting.is_empty()
    }

    /// The operation that has waited longest.
    pub(super) fn next(&self) -> Option<OpKey> {
        self.waiting.front().copied()
    }

    /// Puts the operation that has waited longest into units, if there is room for it; gives the numbers of the first
    /// and the last.
    pub(super) fn plan(&mut self, plan: &mut Plan, rows: Vec<Row>) -> Option<(u64, u64)> {
        let unit_max = self.unit_max();
        let drafts = &mut plan.drafts;
        let joins = drafts.last().is_some_and(|last| last.takes(&rows, unit_max));
        let own = if joins { Vec::new() } else { drafts_of(rows.clone(), unit_max) };
        let more = match joins {
            true => rows.iter().map(Row::sectors).sum(),
            false => own.iter().map(|draft| draft.len).sum::<u64>(),
        };
        let has_metas = drafts.len() + own.len() <= JOURNAL_PAGES as usize;
        if !has_metas || !self.has_room(plan.sectors + more) {
            return None;
        }
        let first = drafts.len() - usize::from(joins);
        drafts.extend(own);
        if let Some(last) = drafts.last_mut().filter(|_| joins) {
            rows.into_iter().for_each(|row| last.push(row));
        }
        drafts[first..].iter_mut().for_each(|draft| draft.ops += 1);
        plan.sectors += more;
        plan.ops.extend(self.waiting.pop_front());
        let number = |index: usize| self.seq.wrapping_add(index as u64);
        Some((number(first), number(drafts.len() - 1)))
    }

    /// Appends a unit. True if the supervisor was told that nothing is needed, which is no longer so.
    pub(super) fn append(&mut self, draft: Draft) -> (Appended, bool) {
        assert!(self.batch.is_none(), "one batch is written at a time");
        assert!(self.has_room(draft.len), "a unit goes where there is room");
        let JournalConfig { ring, seed, .. } = self.config;
        let rested = mem::take(&mut self.rests);
        let (position, seq, len) = (self.head, self.seq, Sectors(draft.len));
        let meta = self.metas.advance(self.metas_used * BLOCK_BYTES as u32);
        self.metas_used += 1;
        assert!(self.metas_used <= JOURNAL_PAGES, "each meta block has a page");
        self.push(len, draft.ops);
        let sealing = Sealing { meta, seed, seq, position, rows: draft.rows };
        let pieces = sealing.pieces();
        // What does not fit before the ring's end goes on at its beginning.
        let head = len.0.min(ring.0 - position);
        let (first, second) = split(pieces, head as u32 * 512);
        let writes = [(position, head, first), (0, len.0 - head, second)];
        (Appended { sealing, writes }, rested)
    }

    /// A unit lies behind the last one from now on.
    fn push(&mut self, len: Sectors, open: u32) {
        self.units.push_back(Unit { seq: self.seq, position: self.head, len, open });
        self.head = ring_add(self.config.ring, self.head, len);
        self.seq = self.seq.wrapping_add(1);
    }

    /// The units of a plan are on their way, in so many I/Os.
    pub(super) fn sent(&mut self, ops: Vec<OpKey>, ios: u32) {
        assert!(self.batch.is_none() && ios > 0, "one batch is written at a time");
        self.batch = Some(Batch { ops, left: ios, failed: false });
    }

    /// One of the batch's I/Os has ended. After the last one gives its operations, and whether it is in the journal.
    pub(super) fn io_done(&mut self, ok: bool) -> Option<(Vec<OpKey>, bool)> {
        let batch = self.batch.as_mut()?;
        batch.left -= 1;
        batch.failed |= !ok;
        if batch.left > 0 {
            return None;
        }
        self.metas_used = 0;
        self.batch.take().map(|batch| (batch.ops, !batch.failed))
    }

    /// Nothing goes through it any more. Gives what waited.
    pub(super) fn close(&mut self) -> VecDeque<OpKey> {
        self.failed = true;
        mem::take(&mut self.waiting)
    }

    /// An operation that was in these units has ended. If its writes failed, its rows are whole nowhere but here.
    /// Gives what to tell the supervisor of the tail.
    pub(super) fn leave(&mut self, (first, last): (u64, u64), failed: bool) -> Option<Notice> {
        let count = last.wrapping_sub(first);
        let is_in = |unit: &&mut Unit| unit.seq.wrapping_sub(first) <= count;
        for unit in self.units.iter_mut().filter(is_in) {
            assert!(unit.open > 0, "an operation leaves a unit that it is not in");
            unit.open -= u32::from(!failed);
        }
        let is_blocked = self.is_due();
        let bound = (self.config.ring.0 / RECLAIM_SHARE).min(RECLAIM_MAX);
        let is_much = self.freeable() > bound;
        let is_idle = self.waiting.is_empty() && self.units.iter().all(|unit| unit.open == 0);
        if is_blocked || is_much || is_idle { self.tell_tail(is_blocked || is_much) } else { None }
    }

    /// Tells the supervisor when nothing in the ring is needed, so that a stop may leave it empty.
    pub(super) fn tell_rest(&mut self) -> Option<Notice> {
        let is_busy = self.batch.is_some() || !self.waiting.is_empty();
        if is_busy || self.failed || self.units.iter().any(|unit| unit.open > 0) {
            return None;
        }
        self.rests = true;
        Some(Notice::JournalRests(Some((self.head, self.seq))))
    }

    /// Tells the supervisor how far the tail may move, if that is news.
    pub(super) fn tell_tail(&mut self, is_urgent: bool) -> Option<Notice> {
        let position = self.reclaimable()?.position;
        let is_news = position != self.told || (is_urgent && !self.is_urgent);
        let is_at_tail = self.units.front().is_some_and(|unit| unit.position == position);
        if self.failed || !is_news || is_at_tail {
            return None;
        }
        (self.told, self.is_urgent) = (position, is_urgent);
        Some(Notice::JournalTail { position, is_urgent })
    }

    /// The superblock says that the ring begins there; at the head: with the empty unit of a stop.
    pub(crate) fn tail_moved(&mut self, position: u64) {
        if position == self.head {
            self.push(BLOCK, 0);
        }
        let is_before = |unit: &Unit| unit.position != position;
        while self.units.front().is_some_and(is_before) {
            self.units.pop_front();
        }
        self.is_urgent = false;
    }

    fn used(&self) -> u64 {
        self.units.iter().map(|unit| unit.len.0).sum()
    }

    fn unit_max(&self) -> u64 {
        self.config.ring.round_down(BLOCK * RECLAIM_SHARE).0 / RECLAIM_SHARE
    }

    /// Height of the largest operation.
    pub(crate) fn op_sectors_max(&self, parity: &Parity) -> u32 {
        let disks = u64::from(parity.raid_disks());
        let rows_of_unit = (Meta::ROOM / row_bytes(parity)) as u64;
        let by_metas = rows_of_unit * u64::from(JOURNAL_PAGES);
        // A meta block for each row, at worst.
        let by_ring = self.unit_max() / BLOCK.0 / (disks + 1);
        (by_metas.min(by_ring) * BLOCK.0) as u32
    }

    /// What is free once the tail is where it may be.
    fn freeable(&self) -> u64 {
        let done = self.units.iter().take_while(|unit| unit.open == 0);
        let all: u64 = done.clone().map(|unit| unit.len.0).sum();
        all - done.last().map_or(0, |unit| unit.len.0)
    }

    /// The last unit before which, and in which, nothing is needed any more.
    fn reclaimable(&self) -> Option<&Unit> {
        self.units.iter().take_while(|unit| unit.open == 0).last()
    }

    fn has_room(&self, more: u64) -> bool {
        // One block stays free: a full ring would look like an empty one.
        self.used() + more + BLOCK.0 <= self.config.ring.0
    }
}

/// What a row takes in a meta block, at most.
fn row_bytes(parity: &Parity) -> usize {
    let data = Payload::Data { sector: 0, checksums: [0].into() }.bytes();
    let checksums = (0..u32::from(parity.parity_disks())).collect();
    let parities = Payload::Parity { sector: 0, checksums }.bytes();
    usize::from(parity.data_disks()) * data + parities
}

/// A unit before it is written.
#[derive(Debug)]
pub(super) struct Draft {
    rows: Vec<Row>,
    bytes: usize,
    len: u64,
    /// Operations that are in it.
    ops: u32,
}

impl Draft {
    fn new() -> Self {
        Self { rows: Vec::new(), bytes: 0, len: BLOCK.0, ops: 0 }
    }

    fn takes(&self, rows: &[Row], unit_max: u64) -> bool {
        let bytes: usize = rows.iter().map(Row::bytes).sum();
        let sectors: u64 = rows.iter().map(Row::sectors).sum();
        self.bytes + bytes <= Meta::ROOM && self.len + sectors <= unit_max
    }

    fn push(&mut self, row: Row) {
        self.bytes += row.bytes();
        self.len += row.sectors();
        self.rows.push(row);
    }
}

/// An operation's rows in units of their own.
fn drafts_of(rows: Vec<Row>, unit_max: u64) -> Vec<Draft> {
    let mut drafts = Vec::from([Draft::new()]);
    for row in rows {
        match drafts.last_mut() {
            Some(last)
                if last.rows.is_empty() || last.takes(core::slice::from_ref(&row), unit_max) =>
            {
                last.push(row);
            }
            _ => {
                let mut draft = Draft::new();
                draft.push(row);
                drafts.push(draft);
            }
        }
    }
    drafts
}

/// What a batch is to be.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) ops: Vec<OpKey>,
    pub(super) drafts: Vec<Draft>,
    sectors: u64,
}

/// A unit that is to be written: its meta block, and the I/Os, of which either may have no sectors.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) sealing: Sealing,
    pub(super) writes: [(u64, u64, Pieces); 2],
}

/// Cuts an I/O vector after so many bytes.
fn split(pieces: Pieces, at: u32) -> (Pieces, Pieces) {
    let (mut first, mut second) = (Pieces::new(), Pieces::new());
    let mut left = at;
    for Piece { buf, len } in pieces {
        let head = len.min(left);
        left -= head;
        if head > 0 {
            first.push(Piece { buf, len: head });
        }
        if len > head {
            second.push(Piece { buf: buf.advance(head), len: len - head });
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{op::Op, slots::Slots};
    use lapstrake_geometry::{Config, Geometry, Layout, Level};
    use lapstrake_metadata::journal::Seed;

    fn parity(level: Level, raid_disks: u16) -> Parity {
        let geometry = Geometry::new(&Config {
            level,
            layout: Layout::default_for(level),
            chunk: Sectors(8),
            raid_disks,
            component: Sectors(64),
            member_sizes: Vec::new(),
        });
        let Ok(Geometry::Parity(parity)) = geometry else { panic!("parity") };
        parity
    }

    fn journal(ring: u64) -> Journal {
        let (seed, tail, head, seq) = (Seed::new([7; 16]), 0, BLOCK.0, 5);
        let config =
            JournalConfig { member: MemberId(9), ring: Sectors(ring), seed, tail, head, seq };
        Journal::new(config, Buf { id: BufId(0), offset: 0 })
    }

    /// One block of data, and its parity: 20 bytes of a meta block each, 16 sectors of the ring.
    fn row() -> Row {
        let buf = Buf { id: BufId(1), offset: 0 };
        Row {
            data: [(0, buf)].into_iter().collect(),
            sector: 0,
            parity: [buf].into_iter().collect(),
        }
    }

    #[test]
    fn an_operation_fits_into_a_unit_and_its_meta_blocks_into_theirs() {
        // A meta block has room for 4064 bytes. A row: 20 for each block of data, 20 for P, 24 for P and Q.
        let (raid5, raid6) = (parity(Level::Raid5, 3), parity(Level::Raid6, 4));
        assert_eq!((row_bytes(&raid5), row_bytes(&raid6)), (60, 64));
        assert_eq!(journal(1 << 20).op_sectors_max(&raid5), 67 * 16 * 8);
        assert_eq!(journal(1 << 20).op_sectors_max(&raid6), 63 * 16 * 8);
        // A quarter of 808 sectors is 200 in whole blocks: 25, and a row and its meta block take 4.
        assert_eq!(journal(808).op_sectors_max(&raid5), 6 * 8);
        assert_eq!(journal(128).op_sectors_max(&raid5), 8, "the least ring of three");
    }

    #[test]
    fn a_unit_takes_rows_until_its_meta_block_or_its_part_of_the_ring_is_full() {
        let mut draft = Draft::new();
        draft.push(row());
        assert_eq!((draft.bytes, draft.len), (40, 8 + 16));
        draft.push(row());
        assert_eq!((draft.bytes, draft.len), (80, 8 + 32));
        assert!(draft.takes(&[row(), row()], 72));
        assert!(!draft.takes(&[row(), row()], 71));
        (2..101).for_each(|_| draft.push(row()));
        assert_eq!(draft.bytes, 4040);
        assert!(!draft.takes(&[row()], u64::MAX), "24 bytes are left");
        draft.bytes = 4024;
        assert!(draft.takes(&[row()], u64::MAX), "40 bytes are left");
    }

    #[test]
    fn rows_go_into_as_few_units_as_hold_them_and_one_into_each_at_least() {
        let rows = |max| {
            let drafts = drafts_of((0..5).map(|_| row()).collect(), max);
            drafts.iter().map(|draft| draft.rows.len()).collect::<Vec<_>>()
        };
        assert_eq!(rows(8 + 32), [2, 2, 1]);
        assert_eq!(rows(8 + 31), [1; 5]);
        assert_eq!(rows(0), [1; 5]);
        assert_eq!(rows(1000), [5]);
    }

    #[test]
    fn vectors_are_cut_anywhere() {
        let piece = |offset, len| Piece { buf: Buf { id: BufId(1), offset }, len };
        let pieces = || Pieces::from_slice(&[piece(0, 4096), piece(8192, 4096)]);
        assert_eq!(split(pieces(), 0), (Pieces::new(), pieces()));
        assert_eq!(split(pieces(), 8192), (pieces(), Pieces::new()));
        let (first, second) = split(pieces(), 6144);
        assert_eq!(first[..], [piece(0, 4096), piece(8192, 2048)]);
        assert_eq!(second[..], [piece(10240, 2048)]);
    }

    /// Writes so many operations of a row each, all in one unit.
    fn write(journal: &mut Journal, ops: usize) -> (u64, u64) {
        let mut keys = Slots::default();
        (0..ops).for_each(|_| assert!(journal.wait(keys.insert(Op::for_test()))));
        let (mut plan, mut units) = (Plan::default(), Vec::new());
        while journal.next().is_some() {
            let Some(planned) = journal.plan(&mut plan, [row()].into()) else { break };
            units.push(planned);
        }
        let ios = plan.drafts.into_iter().map(|draft| {
            let writes = journal.append(draft).0.writes;
            writes.iter().filter(|write| write.1 > 0).count() as u32
        });
        let ios = ios.sum();
        journal.sent(plan.ops, ios);
        (1..ios).for_each(|_| assert!(journal.io_done(true).is_none()));
        assert!(journal.io_done(true).is_some_and(|(done, ok)| done.len() == ops && ok));
        units[0]
    }

    #[test]
    fn the_tail_moves_to_the_last_unit_that_nothing_is_needed_of() {
        let mut journal = journal(128);
        assert_eq!(write(&mut journal, 1), (5, 5));
        assert_eq!(journal.tell_tail(true), None, "it is there");
        assert_eq!(journal.leave((5, 5), false), Some(tail(8, false)));
        assert_eq!(journal.tell_rest(), Some(Notice::JournalRests(Some((32, 6)))));
        assert_eq!(journal.tell_tail(true), Some(tail(8, true)));
        assert_eq!(journal.tell_tail(true), None, "that was told");
        journal.tail_moved(8);
        assert_eq!((journal.used(), journal.units.len()), (24, 1));
        journal.tail_moved(32);
        assert_eq!((journal.used(), journal.head, journal.seq), (8, 40, 7), "a stop empties it");
    }

    fn tail(position: u64, is_urgent: bool) -> Notice {
        Notice::JournalTail { position, is_urgent }
    }

    #[test]
    fn what_failed_to_reach_the_members_is_needed() {
        let mut journal = journal(808);
        let units = write(&mut journal, 2);
        assert_eq!((units, journal.used()), ((5, 5), 8 + 40), "both are in one");
        journal.leave(units, false);
        assert_eq!(journal.leave(units, true), None);
        assert_eq!((journal.tell_rest(), journal.freeable()), (None, 0));
    }

    #[test]
    fn nothing_is_written_over_what_is_needed() {
        let mut journal = journal(128);
        for _ in 0..4 {
            write(&mut journal, 1);
        }
        let mut keys = Slots::default();
        journal.wait(keys.insert(Op::for_test()));
        let mut plan = Plan::default();
        assert_eq!(journal.plan(&mut plan, [row()].into()), None, "8 + 4 * 24 + 24 is all of it");
        assert!(journal.is_due() && plan.drafts.is_empty());
    }

    #[test]
    fn what_waits_is_given_back_when_it_is_closed() {
        let mut journal = journal(128);
        let mut keys = Slots::default();
        let op = keys.insert(Op::for_test());
        assert!(journal.wait(op));
        assert_eq!(journal.close(), [op]);
        assert!(!journal.wait(op) && !journal.is_due());
    }
}
