//! md's stripe cache, as far as it decides when a write goes to the members of RAID4, 5 and 6.
//!
//! md holds what it writes in heads: a page of each member, all at one place, a row. A write takes a head for each of
//! its rows that has none. A row whose data are all there goes to the members. Another one is plugged until its writer
//! pauses or finds no head; then md reads what the row lacks and writes it. Who finds no head waits until a quarter of
//! them is idle. An idle head knows its row until it is taken for another one.
//!
//! The engine does the reading and writing; what is known here, it has at once.
//!
//! Invariants: writes go in the order in which they came; each page of a write goes to the engine once; a write ends
//! when all its pages have.

use lapstrake_geometry::{Parity, Sector, Sectors, StripeNo};
use lapstrake_model::{Nanos, Request};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;

/// How long a writer pauses before what it left incomplete goes (`unplug_delay`).
const PLUG: Nanos = Nanos(3_000_000);
/// Writers whose ends are known.
const STREAMS: usize = 8;
/// Sectors in a page.
pub(super) const PAGE: u64 = 8;

/// See the module.
pub(super) struct Heads {
    map: Parity,
    /// By slot.
    in_sync: Vec<bool>,
    count: usize,
    /// By place, in pages from the members' data offset: those with work and those that are idle.
    rows: BTreeMap<u64, Row>,
    /// Idle rows with their turns, those first that became so first; stale if it has had more turns.
    idle: VecDeque<(u64, u32)>,
    idle_count: usize,
    /// Incomplete rows whose writer goes on.
    plugged: BTreeSet<u64>,
    /// Rows that go to the members.
    due: BTreeSet<u64>,
    /// Writes that wait for heads, and the page at which each goes on.
    waiting: VecDeque<(usize, u64)>,
    is_blocked: bool,
    /// When the latest write came.
    latest_at: Nanos,
    /// Where writers' last writes ended, the latest last.
    ends: VecDeque<u64>,
    writes: Slab<Write>,
    pieces: Slab<Piece>,
}

#[derive(Default)]
struct Row {
    /// Data blocks that are to be written, and for whom.
    dirty: Vec<(u16, usize)>,
    /// Pieces under way.
    busy: u32,
    /// Nothing of it needs to be read.
    is_known: bool,
    /// How often it has been taken or become idle.
    turns: u32,
}

struct Write {
    request: Request,
    pages_left: u64,
    /// It begins where another one ended.
    goes_on: bool,
}

/// Pages of one write in neighbouring rows, on their way through the engine.
struct Piece {
    write: usize,
    row: u64,
    pages: u64,
}

impl Heads {
    pub(super) fn new(map: Parity, in_sync: Vec<bool>, count: u32) -> Self {
        Self {
            map,
            in_sync,
            count: count as usize,
            rows: BTreeMap::new(),
            idle: VecDeque::new(),
            idle_count: 0,
            plugged: BTreeSet::new(),
            due: BTreeSet::new(),
            waiting: VecDeque::new(),
            is_blocked: false,
            latest_at: Nanos::ZERO,
            ends: VecDeque::new(),
            writes: Slab::new(),
            pieces: Slab::new(),
        }
    }

    /// Whether the member is in sync that holds this sector of the array.
    pub(super) fn is_there(&self, sector: Sector) -> bool {
        let (stripe, data, _) = self.map.locate(sector);
        self.in_sync[usize::from(self.map.slot_of_data(stripe, data).0)]
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
        let write = self.writes.insert(Write { request, pages_left, goes_on: before.is_some() });
        self.waiting.push_back((write, pages.start));
        self.latest_at = now;
        self.admit();
    }

    /// When the writer has paused, if somebody waits for that.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (!self.plugged.is_empty()).then(|| self.latest_at + PLUG)
    }

    /// The writer pauses.
    pub(super) fn unplug(&mut self) {
        self.due.append(&mut self.plugged);
    }

    /// What goes to the engine now: writes, whose tags name pieces.
    pub(super) fn orders(&mut self) -> Vec<Request> {
        let mut orders = Vec::new();
        let mut due = mem::take(&mut self.due).into_iter().peekable();
        while let Some(first) = due.next() {
            let dirty = self.send(first);
            let mut pages = 1;
            while due.next_if(|row| self.joins(*row, first + pages, &dirty)).is_some() {
                self.send(first + pages);
                pages += 1;
            }
            for (data, write) in dirty {
                let lba = self.array_sector(first, data).0;
                let tag = self.pieces.insert(Piece { write, row: first, pages }) as u64;
                let op = self.writes[write].request.op;
                orders.push(Request { tag, op, lba, blocks: pages * PAGE });
            }
        }
        orders
    }

    /// A piece has been answered. The tag of the write that ends with it.
    pub(super) fn ended(&mut self, piece: u64) -> Option<u64> {
        let Piece { write, row, pages } = self.pieces.remove(piece as usize);
        self.leave(row, pages);
        let active = self.rows.len() - self.idle_count;
        if self.is_blocked && active < self.count * 3 / 4 {
            self.is_blocked = false;
            self.admit();
        }
        let left = &mut self.writes[write].pages_left;
        *left -= pages;
        (*left == 0).then(|| self.writes.remove(write).request.tag)
    }

    /// Whether these sectors of every member, from the data offset on, are in memory.
    pub(super) fn knows(&self, sector: Sector, len: Sectors) -> bool {
        let rows = sector.0 / PAGE..(sector.0 + len.0).div_ceil(PAGE);
        let count = rows.end - rows.start;
        let is_known = |row: &Row| row.busy > 0 && row.is_known;
        self.rows.range(rows).filter(|(_, row)| is_known(row)).count() as u64 == count
    }

    /// Writes go into heads while there are some.
    fn admit(&mut self) {
        while let Some((write, page)) = self.waiting.front().copied() {
            let request = self.writes[write].request;
            if page * PAGE >= request.lba + request.blocks {
                self.waiting.pop_front();
                continue;
            }
            let (stripe, data, offset) = self.map.locate(Sector(page * PAGE));
            let at = self.map.member_sector(stripe, offset).0 / PAGE;
            if self.is_blocked || !self.take_head(at) {
                self.is_blocked = true;
                self.unplug();
                return;
            }
            self.waiting[0].1 += 1;
            self.make_dirty(at, data, write);
        }
    }

    fn make_dirty(&mut self, at: u64, data: u16, write: usize) {
        let row = self.rows.get_mut(&at).expect("it has a head");
        row.dirty.push((data, write));
        if row.busy > 0 {
            return;
        }
        // Two writes of one block are rare, and only make it go sooner.
        if row.dirty.len() >= usize::from(self.map.data_disks()) || !self.writes[write].goes_on {
            self.plugged.remove(&at);
            self.due.insert(at);
        } else if !self.due.contains(&at) {
            self.plugged.insert(at);
        }
    }

    /// A row gets a head unless it has one; false if there is none.
    fn take_head(&mut self, at: u64) -> bool {
        if let Some(row) = self.rows.get_mut(&at) {
            let is_idle = row.busy == 0 && row.dirty.is_empty();
            self.idle_count -= usize::from(is_idle);
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

    /// Marks a row as under way; what of it is written.
    fn send(&mut self, at: u64) -> Vec<(u16, usize)> {
        let row = self.rows.get_mut(&at).expect("due rows have heads");
        row.busy += row.dirty.len() as u32;
        mem::take(&mut row.dirty)
    }

    /// A piece of these rows has ended.
    fn leave(&mut self, row: u64, pages: u64) {
        for at in row..row + pages {
            let row = self.rows.get_mut(&at).expect("busy rows have heads");
            row.busy -= 1;
            row.is_known = true;
            if row.busy > 0 {
                continue;
            }
            if row.dirty.is_empty() {
                row.turns += 1;
                self.idle.push_back((at, row.turns));
                self.idle_count += 1;
                // Or rows that are written again and again would fill it.
                if self.idle.len() > 2 * self.count {
                    self.idle.retain(|(row, turns)| {
                        self.rows.get(row).is_some_and(|row| row.turns == *turns)
                    });
                }
            } else {
                self.due.insert(at);
            }
        }
    }

    /// Whether a row goes with those that end at `end` and have the same to be written.
    fn joins(&self, at: u64, end: u64, dirty: &[(u16, usize)]) -> bool {
        at == end && !at.is_multiple_of(self.rows_in_chunk()) && self.rows[&at].dirty == dirty
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
