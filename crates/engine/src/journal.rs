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
mod seal;

pub use replay::{Disks, Place, ReplayConfig, ReplayError, Replayed, holds_news, replay};
pub(crate) use seal::Row;
pub use seal::Sealing;

use crate::{member_io::Owner, messages::Notice, op::OpKey, seal::Seal, shard::Shard, types::*};
use alloc::{collections::VecDeque, vec::Vec};
use core::mem;
use lapstrake_geometry::{Parity, Sectors};
use lapstrake_metadata::journal::{BLOCK, BLOCK_BYTES, Meta, Payload, Seed, ring_add};

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
struct Draft {
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

impl Shard {
    /// An operation is ready to write.
    pub(crate) fn journal_op(&mut self, key: OpKey) {
        let Some(journal) = &mut self.journal else { return };
        if journal.failed {
            return self.fail_op(key);
        }
        journal.waiting.push_back(key);
    }

    /// Writes what waits, as much as there is room for. True if something was sent.
    pub(crate) fn write_journal(&mut self) -> bool {
        let Some(journal) = &self.journal else { return false };
        if journal.batch.is_some() || journal.waiting.is_empty() {
            return false;
        }
        let (ops, drafts) = self.draft();
        if ops.is_empty() {
            self.tell_tail(true);
            return false;
        }
        let left = drafts.into_iter().map(|draft| self.send_journal_unit(draft)).sum();
        if let Some(journal) = &mut self.journal {
            journal.batch = Some(Batch { ops, left, failed: false });
        }
        true
    }

    /// Puts operations that wait into units, up to the first for which there is no room.
    fn draft(&mut self) -> (Vec<OpKey>, Vec<Draft>) {
        let (mut ops, mut drafts, mut planned) = (Vec::new(), Vec::<Draft>::new(), 0);
        while let Some(key) = self.journal.as_ref().and_then(|j| j.waiting.front().copied()) {
            let rows = self.rows_of(key);
            let Some(journal) = &mut self.journal else { break };
            let unit_max = journal.unit_max();
            let seq = journal.seq;
            let joins = drafts.last().is_some_and(|last| last.takes(&rows, unit_max));
            let own = if joins { Vec::new() } else { drafts_of(rows.clone(), unit_max) };
            let more = match joins {
                true => rows.iter().map(Row::sectors).sum(),
                false => own.iter().map(|draft| draft.len).sum::<u64>(),
            };
            let has_metas = drafts.len() + own.len() <= JOURNAL_PAGES as usize;
            if !has_metas || !journal.has_room(planned + more) {
                break;
            }
            let first = drafts.len() - usize::from(joins);
            drafts.extend(own);
            if let Some(last) = drafts.last_mut().filter(|_| joins) {
                rows.into_iter().for_each(|row| last.push(row));
            }
            drafts[first..].iter_mut().for_each(|draft| draft.ops += 1);
            journal.waiting.pop_front();
            planned += more;
            ops.push(key);
            let number = |index: usize| seq.wrapping_add(index as u64);
            self.set_units(key, (number(first), number(drafts.len() - 1)));
        }
        (ops, drafts)
    }

    /// Writes a unit behind the last one; gives how many I/Os that takes.
    fn send_journal_unit(&mut self, draft: Draft) -> u32 {
        let Some(journal) = &mut self.journal else { return 0 };
        let JournalConfig { member, ring, seed, .. } = journal.config;
        let rested = mem::take(&mut journal.rests);
        let (position, seq, len) = (journal.head, journal.seq, Sectors(draft.len));
        let sent = journal.metas_used;
        journal.metas_used += 1;
        journal.units.push_back(Unit { seq, position, len, open: draft.ops });
        journal.head = ring_add(ring, position, len);
        journal.seq = seq.wrapping_add(1);
        let meta = journal.metas.advance(sent * BLOCK_BYTES as u32);
        let sealing = Sealing { meta, seed, seq, position, rows: draft.rows };
        let pieces = sealing.pieces();
        if rested {
            self.note(Notice::JournalRests(None));
        }
        self.emit(Effect::Seal(Seal::Journal(sealing)));
        // What does not fit before the ring's end goes on at its beginning.
        let head = len.0.min(ring.0 - position);
        let (first, second) = split(pieces, head as u32 * 512);
        let mut ios = 0;
        for (sector, len, pieces) in [(position, head, first), (0, len.0 - head, second)] {
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
        let Some(batch) = &mut journal.batch else { return };
        batch.left -= 1;
        batch.failed |= !ok;
        if batch.left > 0 {
            return;
        }
        journal.metas_used = 0;
        let Some(batch) = journal.batch.take() else { return };
        if batch.failed {
            self.note(Notice::Failed(self.journal_member()));
            self.close_journal();
        }
        for key in batch.ops {
            if batch.failed { self.fail_op(key) } else { self.logged(key) }
        }
    }

    fn journal_member(&self) -> MemberId {
        self.journal.as_ref().map_or(MemberId(0), |journal| journal.config.member)
    }

    /// Nothing goes through it any more: what waits fails, and so does what will come.
    pub(crate) fn close_journal(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        journal.failed = true;
        for key in mem::take(&mut journal.waiting) {
            self.fail_op(key);
        }
    }

    /// An operation that was in these units has ended. If its writes failed, its rows are whole nowhere but here.
    pub(crate) fn leave_units(&mut self, (first, last): (u64, u64), failed: bool) {
        let Some(journal) = &mut self.journal else { return };
        let count = last.wrapping_sub(first);
        let is_in = |unit: &&mut Unit| unit.seq.wrapping_sub(first) <= count;
        journal.units.iter_mut().filter(is_in).for_each(|unit| unit.open -= u32::from(!failed));
        let is_blocked = journal.batch.is_none() && !journal.waiting.is_empty();
        let bound = (journal.config.ring.0 / RECLAIM_SHARE).min(RECLAIM_MAX);
        let is_much = journal.freeable() > bound;
        let is_idle = journal.waiting.is_empty() && journal.units.iter().all(|unit| unit.open == 0);
        if is_blocked || is_much || is_idle {
            self.tell_tail(is_blocked || is_much);
        }
        self.tell_rest();
    }

    /// Tells the supervisor when nothing in the ring is needed, so that a stop may leave it empty.
    fn tell_rest(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let is_busy = journal.batch.is_some() || !journal.waiting.is_empty();
        if is_busy || journal.failed || journal.units.iter().any(|unit| unit.open > 0) {
            return;
        }
        journal.rests = true;
        let end = (journal.head, journal.seq);
        self.note(Notice::JournalRests(Some(end)));
    }

    /// Tells the supervisor how far the tail may move.
    fn tell_tail(&mut self, is_urgent: bool) {
        let Some(journal) = &mut self.journal else { return };
        let Some(position) = journal.reclaimable().map(|unit| unit.position) else { return };
        let is_news = position != journal.told || (is_urgent && !journal.is_urgent);
        let is_at_tail = journal.units.front().is_some_and(|unit| unit.position == position);
        if journal.failed || !is_news || is_at_tail {
            return;
        }
        (journal.told, journal.is_urgent) = (position, is_urgent);
        self.note(Notice::JournalTail { position, is_urgent });
    }

    /// The superblock says that the ring begins there; at the head: with the empty unit of a stop.
    pub(crate) fn tail_moved(&mut self, position: u64) {
        let Some(journal) = &mut self.journal else { return };
        if position == journal.head {
            let (seq, len) = (journal.seq, BLOCK);
            journal.units.push_back(Unit { seq, position, len, open: 0 });
            journal.head = ring_add(journal.config.ring, position, len);
            journal.seq = seq.wrapping_add(1);
        }
        let is_before = |unit: &Unit| unit.position != position;
        while journal.units.front().is_some_and(is_before) {
            journal.units.pop_front();
        }
        journal.is_urgent = false;
    }
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
    use lapstrake_geometry::{Config, Geometry, Layout, Level};

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
}
