//! md's stripe cache, as far as it decides when a write goes to the members of RAID4, 5 and 6.
//!
//! md holds what it writes in heads: a page of each member, all at one place, a row. A write takes a head for each of
//! its rows that has none. A row whose data are all there goes to the members. Another one is plugged until its writer
//! pauses or finds no head; then md reads what the row lacks and writes it. Who finds no head waits until a quarter of
//! them is idle. An idle head knows its row until it is taken for another one.
//!
//! From Linux 2.6.26 on incomplete rows also wait while others are read for (md's do before, too: docs/accuracy.md says why
//! not here). From 3.6 on whole rows are plugged too, and what follows is its thread's business ([`Thread`]).
//!
//! The engine does the reading and writing; what is known here, it has at once. What it does without, md reads all the
//! same: the rest of a row whose parity is on missing members (here from 2.6.26 on: docs/accuracy.md), and until Linux 4.0
//! of each of RAID6 (it has no other way, `rmw_level`).
//!
//! Invariants: writes go in the order in which they came; each page of a write goes to the engine once; a write ends
//! when all its pages have, and, where there is a thread, that has taken the last of their rows.

mod thread;

use lapstrake_geometry::{Parity, Sector, Sectors, StripeNo};
use lapstrake_model::{Nanos, Op, Request};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use thread::List;
pub(super) use thread::Thread;

/// From here on md has incomplete rows on a list of their own (`hold_list`).
const LINUX_2_6_26: u32 = 20626;
/// From here on RAID6 reads parity to write a part of a row.
const LINUX_4_1: u32 = 40100;
/// How long a writer pauses before what it left incomplete goes (`unplug_delay`), where there is no thread.
const PLUG: Nanos = Nanos(3_000_000);
/// Writers whose ends are known.
const STREAMS: usize = 8;
/// Sectors in a page.
pub(super) const PAGE: u64 = 8;
/// Why a row is found that is not idle.
const HAS_HEAD: &str = "it has a head";

/// See the module.
pub(super) struct StripeCache {
    map: Parity,
    /// By slot.
    in_sync: Vec<bool>,
    count: usize,
    /// By place, in pages from the members' data offset: those with work and those that are idle.
    rows: BTreeMap<u64, Row>,
    /// Idle rows with their turns, those first that became so first; stale if it has had more turns.
    idle: VecDeque<(u64, u32)>,
    idle_count: usize,
    /// Incomplete rows whose writer goes on, or that wait for others.
    plugged: BTreeSet<u64>,
    /// Where there is no thread: their writer has paused, so that they wait for others only.
    is_unplugged: bool,
    /// Where there is no thread: rows that are read for.
    round: BTreeSet<u64>,
    /// Incomplete rows wait while others are read for, and the rest of a row without parity is read.
    is_from_2_6_26: bool,
    /// The rest of incomplete rows is read whatever else is there (RAID6 until Linux 4.0).
    reads_rest: bool,
    /// Rows that go to the members.
    due: BTreeSet<u64>,
    /// Writes that wait for heads, and the page at which each goes on.
    waiting: VecDeque<(usize, u64)>,
    is_blocked: bool,
    /// When the latest write came.
    latest_at: Nanos,
    /// Each write is one of its own, as those past the page cache are.
    is_direct: bool,
    /// Where writers' last writes ended, the latest last.
    ends: VecDeque<u64>,
    writes: Slab<Write>,
    pieces: Slab<Piece>,
    /// Tags of writes that have ended and are not told yet.
    answers: Vec<u64>,
    /// From Linux 3.6 on.
    thread: Option<Thread>,
}

#[derive(Default)]
struct Row {
    /// Data blocks that are to be written, and for whom.
    dirty: Vec<(u16, usize)>,
    /// Those of them that go to the members now; or those that are read before, for nobody.
    going: Vec<(u16, Option<usize>)>,
    /// Pieces that go or are under way.
    busy: u32,
    /// Whose pages have been written. The thread tells them, when it takes the row.
    written: Vec<usize>,
    /// Nothing of it needs to be read.
    is_known: bool,
    is_idle: bool,
    /// How often it has been taken or become idle.
    turns: u32,
    /// Where the thread finds it.
    place: Option<(List, u64)>,
    /// Some of it went to the members since it got its head.
    has_begun: bool,
}

impl Row {
    /// What is to be written goes; or first, of a row that is not known, those of its `read_of` blocks of data that are not
    /// written.
    fn go(&mut self, read_of: Option<u16>) {
        assert!(self.going.is_empty(), "what goes is taken before more does");
        self.has_begun = true;
        let is_dirty = |block: &u16| self.dirty.iter().any(|(dirty, _)| dirty == block);
        let of = if self.is_known { 0 } else { read_of.unwrap_or(0) };
        self.going = (0..of).filter(|block| !is_dirty(block)).map(|block| (block, None)).collect();
        if self.going.is_empty() {
            self.going.extend(self.dirty.drain(..).map(|(block, write)| (block, Some(write))));
        }
        self.busy += self.going.len() as u32;
    }
}

struct Write {
    request: Request,
    pages_left: u64,
    /// It begins where another one ended, and its writer may go on behind it.
    goes_on: bool,
}

/// Pages in neighbouring rows, of one write or read for nobody, on their way through the engine.
struct Piece {
    write: Option<usize>,
    row: u64,
    pages: u64,
}

impl StripeCache {
    /// As md of this Linux has them; with its thread from 3.6 on.
    pub(super) fn new(
        map: Parity,
        in_sync: Vec<bool>,
        count: u32,
        linux: u32,
        is_direct: bool,
        thread: Option<Thread>,
    ) -> Self {
        let reads_rest = map.parity_disks() > 1 && linux < LINUX_4_1;
        Self {
            map,
            in_sync,
            count: count as usize,
            rows: BTreeMap::new(),
            idle: VecDeque::new(),
            idle_count: 0,
            plugged: BTreeSet::new(),
            is_unplugged: false,
            round: BTreeSet::new(),
            is_from_2_6_26: linux >= LINUX_2_6_26,
            reads_rest,
            due: BTreeSet::new(),
            waiting: VecDeque::new(),
            is_blocked: false,
            latest_at: Nanos::ZERO,
            is_direct,
            ends: VecDeque::new(),
            writes: Slab::new(),
            pieces: Slab::new(),
            answers: Vec::new(),
            thread,
        }
    }

    /// Whether the member is in sync that holds this sector of the array.
    pub(super) fn is_there(&self, sector: Sector) -> bool {
        let (stripe, data, _) = self.map.locate(sector);
        self.in_sync[usize::from(self.map.slot_of_data(stripe, data).0)]
    }

    /// Whether md's thread does the work (from Linux 3.6 on).
    pub(super) fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Blocks of a chunk.
    pub(super) fn chunk(&self) -> u64 {
        self.map.chunk().0
    }

    /// Takes a write.
    pub(super) fn add(&mut self, request: Request, now: Nanos) {
        let pages = request.lba / PAGE..(request.lba + request.blocks).div_ceil(PAGE);
        let pages_left = pages.end - pages.start;
        let end = request.lba + request.blocks;
        // Over a stripe or less, as over a filesystem's own blocks.
        let reach = self.map.stripe_data().0;
        let goes_on = |end: &u64| (*end..=end + reach).contains(&request.lba);
        let before = self.ends.iter().position(goes_on);
        if before.is_some() || self.ends.len() == STREAMS {
            self.ends.remove(before.unwrap_or(0));
        }
        self.ends.push_back(end);
        let goes_on = before.is_some() && !self.is_direct;
        let write = self.writes.insert(Write { request, pages_left, goes_on });
        self.waiting.push_back((write, pages.start));
        self.latest_at = now;
        match &mut self.thread {
            Some(thread) => thread.wake_writer(now, self.is_blocked),
            None => self.admit(now),
        }
    }

    /// When the thread or its writer goes on, or the writer has paused, if somebody waits for that.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        match &self.thread {
            Some(thread) => thread.deadline(),
            None => {
                let goes_on = !self.plugged.is_empty() && !self.is_unplugged;
                goes_on.then(|| self.latest_at + PLUG)
            }
        }
    }

    /// Does what is due.
    pub(super) fn run(&mut self, now: Nanos) {
        if self.thread.is_some() {
            self.run_thread(now);
        } else {
            self.unplug(now);
        }
    }

    /// The writer pauses.
    pub(super) fn unplug(&mut self, now: Nanos) {
        if self.thread.is_some() {
            let plugged = mem::take(&mut self.plugged);
            self.hand_over(plugged, now);
        } else {
            self.is_unplugged = true;
            self.read_on();
        }
    }

    /// A member is written at these sectors from its data offset on: what those rows lacked has been read.
    pub(super) fn write_begins(&mut self, sector: Sector, len: Sectors, now: Nanos) {
        for at in sector.0 / PAGE..(sector.0 + len.0).div_ceil(PAGE) {
            self.end_read(at, now);
        }
        self.read_on();
    }

    /// What a row lacked is there.
    fn end_read(&mut self, at: u64, now: Nanos) {
        match &mut self.thread {
            Some(thread) => thread.end_read(at, now),
            None => {
                self.round.remove(&at);
            }
        }
    }

    /// Incomplete rows are read for, if it is their turn.
    fn read_on(&mut self) {
        if !self.is_unplugged || !self.round.is_empty() {
            return;
        }
        for at in mem::take(&mut self.plugged) {
            if self.is_from_2_6_26 && !self.rows[&at].is_known {
                self.round.insert(at);
            }
            self.due.insert(at);
        }
    }

    /// What is to be written of a row goes, or what it lacks is read.
    fn go(&mut self, at: u64) {
        let stripe = StripeNo(at / self.rows_in_chunk());
        let q = self.map.slot_of_q(stripe);
        let mut parity = [Some(self.map.slot_of_p(stripe)), q].into_iter().flatten();
        let has_parity = parity.any(|slot| self.in_sync[usize::from(slot.0)]);
        let reads = self.reads_rest || self.is_from_2_6_26 && !has_parity;
        self.rows.get_mut(&at).expect(HAS_HEAD).go(reads.then(|| self.map.data_disks()));
    }

    /// What goes to the engine now, its tags being names of pieces: writes, and reads of what rows without parity lack.
    pub(super) fn orders(&mut self) -> Vec<Request> {
        let mut orders = Vec::new();
        if let Some(thread) = &mut self.thread {
            if !thread.lets_go() {
                return orders;
            }
        } else {
            for at in self.due.clone() {
                self.go(at);
            }
        }
        let mut due = mem::take(&mut self.due).into_iter().peekable();
        while let Some(first) = due.next() {
            let going = self.send(first);
            let mut pages = 1;
            while due.next_if(|row| self.joins(*row, first + pages, &going)).is_some() {
                self.send(first + pages);
                pages += 1;
            }
            for (data, write) in going {
                let lba = self.array_sector(first, data).0;
                let tag = self.pieces.insert(Piece { write, row: first, pages }) as u64;
                let op = write.map_or(Op::Read, |write| self.writes[write].request.op);
                orders.push(Request { tag, op, lba, blocks: pages * PAGE });
            }
        }
        orders
    }

    /// A piece has been answered.
    pub(super) fn ended(&mut self, piece: u64, now: Nanos) {
        let Piece { write, row, pages } = self.pieces.remove(piece as usize);
        for at in row..row + pages {
            let row = self.rows.get_mut(&at).expect(HAS_HEAD);
            row.busy -= 1;
            row.is_known = true;
            row.written.extend(write);
            if self.thread.is_none() {
                self.tell_written(at);
            }
            let row = &self.rows[&at];
            if row.busy == 0 {
                self.end_read(at, now);
                self.leave(at);
            }
        }
        if let Some(thread) = &mut self.thread {
            thread.wake(now);
        } else {
            self.read_on();
            if self.is_blocked && self.has_quarter() {
                self.is_blocked = false;
                self.admit(now);
            }
        }
    }

    /// Those end whose last page was this row's.
    fn tell_written(&mut self, at: u64) {
        for write in mem::take(&mut self.rows.get_mut(&at).expect(HAS_HEAD).written) {
            let left = &mut self.writes[write].pages_left;
            *left -= 1;
            if *left == 0 {
                self.answers.push(self.writes.remove(write).request.tag);
            }
        }
    }

    /// Tags of writes that have ended.
    pub(super) fn answers(&mut self) -> Vec<u64> {
        mem::take(&mut self.answers)
    }

    /// Whether these sectors of every member, from the data offset on, are in memory.
    pub(super) fn knows(&self, sector: Sector, len: Sectors) -> bool {
        let rows = sector.0 / PAGE..(sector.0 + len.0).div_ceil(PAGE);
        let count = rows.end - rows.start;
        let is_known = |row: &Row| row.busy > 0 && row.is_known;
        self.rows.range(rows).filter(|(_, row)| is_known(row)).count() as u64 == count
    }

    /// Whether so many heads are idle that a writer goes on that found none.
    fn has_quarter(&self) -> bool {
        self.rows.len() - self.idle_count < self.count * 3 / 4
    }

    /// Writes go into heads while there are some.
    fn admit(&mut self, now: Nanos) {
        let mut pauses = false;
        while let Some((at, data, write)) = self.next_page(now) {
            pauses |= !self.writes[write].goes_on;
            self.make_dirty(at, data, write);
        }
        // The writer of one that goes on nowhere pauses behind it, for all: there is one plug.
        self.is_unplugged |= pauses;
        self.read_on();
    }

    /// The next page of those that wait has a head: its row, which of its blocks it is, and its write. None, and who
    /// waits is blocked, if there is no head.
    fn next_page(&mut self, now: Nanos) -> Option<(u64, u16, usize)> {
        let (write, page) = loop {
            let (write, page) = *self.waiting.front()?;
            let request = self.writes[write].request;
            if page * PAGE < request.lba + request.blocks {
                break (write, page);
            }
            self.waiting.pop_front();
        };
        let (stripe, data, offset) = self.map.locate(Sector(page * PAGE));
        let at = self.map.member_sector(stripe, offset).0 / PAGE;
        if self.is_blocked || !self.take_head(at) {
            self.is_blocked = true;
            self.unplug(now);
            return None;
        }
        self.waiting[0].1 += 1;
        Some((at, data, write))
    }

    fn make_dirty(&mut self, at: u64, data: u16, write: usize) {
        let row = self.rows.get_mut(&at).expect(HAS_HEAD);
        row.dirty.push((data, write));
        if row.busy > 0 {
            return;
        }
        // Two writes of one block are rare, and only make it go sooner.
        if row.dirty.len() >= usize::from(self.map.data_disks()) {
            self.plugged.remove(&at);
            self.due.insert(at);
        } else if !self.due.contains(&at) {
            self.plugged.insert(at);
            self.is_unplugged = false;
        }
    }

    /// A row gets a head unless it has one; false if there is none.
    fn take_head(&mut self, at: u64) -> bool {
        if let Some(row) = self.rows.get_mut(&at) {
            self.idle_count -= usize::from(mem::take(&mut row.is_idle));
            row.turns += 1;
            return true;
        }
        if self.rows.len() >= self.count {
            let is_stale = |(row, turns): &(u64, u32)| {
                self.rows.get(row).is_none_or(|row| row.turns != *turns)
            };
            while self.idle.front().is_some_and(is_stale) {
                self.idle.pop_front();
            }
            let Some((oldest, _)) = self.idle.pop_front() else { return false };
            self.rows.remove(&oldest);
            self.idle_count -= 1;
        }
        self.rows.insert(at, Row::default());
        true
    }

    /// What goes of a row.
    fn send(&mut self, at: u64) -> Vec<(u16, Option<usize>)> {
        mem::take(&mut self.rows.get_mut(&at).expect(HAS_HEAD).going)
    }

    /// Nothing of a row is under way any more.
    fn leave(&mut self, at: u64) {
        if self.thread.is_some() {
            self.hand_back(at);
        } else if self.rows[&at].dirty.is_empty() {
            self.make_idle(at);
        } else {
            self.due.insert(at);
        }
    }

    fn make_idle(&mut self, at: u64) {
        let row = self.rows.get_mut(&at).expect(HAS_HEAD);
        row.turns += 1;
        row.is_idle = true;
        self.idle.push_back((at, row.turns));
        self.idle_count += 1;
        // Or rows that are written again and again would fill it.
        if self.idle.len() > 2 * self.count {
            self.idle
                .retain(|(row, turns)| self.rows.get(row).is_some_and(|row| row.turns == *turns));
        }
    }

    /// Whether a row goes with those that end at `end` and of which the same goes.
    fn joins(&self, at: u64, end: u64, going: &[(u16, Option<usize>)]) -> bool {
        at == end && !at.is_multiple_of(self.rows_in_chunk()) && self.rows[&at].going == going
    }

    fn array_sector(&self, row: u64, data: u16) -> Sector {
        let offset = Sectors(row % self.rows_in_chunk() * PAGE);
        self.map.array_sector(StripeNo(row / self.rows_in_chunk()), data, offset)
    }

    fn rows_in_chunk(&self) -> u64 {
        self.map.chunk().0 / PAGE
    }
}

#[cfg(test)]
mod tests;
