//! A RAID controller with a battery behind its cache: what it shows as one volume.
//!
//! Writes end when they are in the cache, flushes at once: the battery holds what the members do not. The
//! cache goes to the members in the order of its places (one-way elevator), one gathered run at a time, whole
//! stripes where it can; the next run is sent when the last is on all members. Reads go to the members
//! before that, unless the cache holds all of it. Both of a mirrored pair read a stream, in sections, as 3ware's manuals
//! say of TwinStor; they do not say how long those are, so a stripe is a guess.
//!
//! Invariants: the cache holds no more than its size; a block waits in it once; a run is out of the cache when every
//! member has it; a member has as many commands as are counted under way. What it does not do: parity levels (md's are
//! better known), members that fail, its own read-ahead (its makers tell users to raise the system's).

use crate::Nanos;
use crate::request::{Completion, Op, Request};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// How a unit's blocks are dealt to its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitLevel {
    /// One member, as it is.
    Single,
    /// Stripes of so many blocks.
    Stripe(u64),
    /// Stripes of so many blocks over pairs of members that hold the same.
    MirroredStripe(u64),
}

/// A controller's figures.
#[derive(Clone, Copy, Debug)]
pub struct ControllerConfig {
    /// Bytes of cache that writes of this unit may take.
    pub cache: u64,
    /// Bytes a second between host and cache.
    pub rate: u64,
    /// From a command to its first byte.
    pub overhead: Nanos,
    /// Blocks of a gathered run.
    pub run: u64,
    /// How the members are used.
    pub level: UnitLevel,
}

impl ControllerConfig {
    /// A 3ware 9690SA (2009): eight PCIe lanes; the processor on it, not the lanes, bounds the rate. Runs of 1 MiB.
    #[must_use]
    pub fn ware_9690sa(cache: u64, level: UnitLevel) -> Self {
        Self { cache, rate: 800_000_000, overhead: Nanos(60_000), run: 2048, level }
    }
}

/// Streams that a pair knows of.
const STREAMS: usize = 8;

/// What a member's command is part of.
#[derive(Clone, Copy, Debug)]
enum CommandPurpose {
    Read(u64),
    Run,
}

/// A unit of a controller.
pub struct ControllerUnit {
    config: ControllerConfig,
    members: Vec<Box<dyn Volume>>,
    /// Blocks that wait for the members: first block and one past the last.
    dirty: BTreeMap<u64, u64>,
    dirty_blocks: u64,
    /// On its way to the members, and how many of their commands are left.
    running: Option<(Range<u64>, usize)>,
    /// One past the last block of the run before.
    position: u64,
    /// Writes that the cache has no room for.
    stalled: VecDeque<Request>,
    /// By tag: commands of a read that have not ended.
    reads: BTreeMap<u64, (usize, u64)>,
    parts: Vec<Option<CommandPurpose>>,
    link_free: Nanos,
    done: BTreeSet<(Nanos, u64)>,
    /// Where each member's head will be: behind the last command that it was sent.
    heads: Vec<u64>,
    /// Commands that each member has.
    under_way: Vec<usize>,
    /// Where the last reads of each column ended, the latest last: a stream goes on there.
    ends: Vec<VecDeque<u64>>,
}

impl std::fmt::Debug for ControllerUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerUnit").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ControllerUnit {
    /// A unit over members.
    ///
    /// # Panics
    /// If the level does not fit the number of members.
    #[must_use]
    pub fn new(config: ControllerConfig, members: Vec<Box<dyn Volume>>) -> Self {
        let fits = match config.level {
            UnitLevel::Single => members.len() == 1,
            UnitLevel::Stripe(blocks) => members.len() > 1 && blocks > 0,
            UnitLevel::MirroredStripe(blocks) => {
                members.len() >= 2 && members.len().is_multiple_of(2) && blocks > 0
            }
        };
        assert!(fits, "{:?} of {} members", config.level, members.len());
        let count = members.len();
        Self {
            config,
            members,
            dirty: BTreeMap::new(),
            dirty_blocks: 0,
            running: None,
            position: 0,
            stalled: VecDeque::new(),
            reads: BTreeMap::new(),
            parts: Vec::new(),
            link_free: Nanos::ZERO,
            done: BTreeSet::new(),
            heads: vec![0; count],
            under_way: vec![0; count],
            ends: vec![VecDeque::new(); count],
        }
    }

    fn columns(&self) -> usize {
        match self.config.level {
            UnitLevel::MirroredStripe(_) => self.members.len() / 2,
            _ => self.members.len(),
        }
    }

    /// Where blocks lie: by column, a range that is consecutive there. Pieces of one column that meet are one.
    fn pieces(&self, range: &Range<u64>) -> Vec<(usize, Range<u64>)> {
        let (UnitLevel::Stripe(stripe) | UnitLevel::MirroredStripe(stripe)) = self.config.level
        else {
            return vec![(0, range.clone())];
        };
        let columns = self.columns() as u64;
        let mut pieces: Vec<(usize, Range<u64>)> = Vec::new();
        let mut lba = range.start;
        while lba < range.end {
            let (number, within) = (lba / stripe, lba % stripe);
            let blocks = (stripe - within).min(range.end - lba);
            let column = (number % columns) as usize;
            let start = number / columns * stripe + within;
            let open = pieces.iter_mut().find(|piece| piece.0 == column && piece.1.end == start);
            match open {
                Some(piece) => piece.1.end += blocks,
                None => pieces.push((column, start..start + blocks)),
            }
            lba += blocks;
        }
        pieces
    }

    /// Data go between host and cache.
    fn transfer(&mut self, blocks: u64, now: Nanos) -> Nanos {
        let start = now.max(self.link_free);
        self.link_free = start + Nanos(blocks * 512 * 1_000_000_000 / self.config.rate.max(1));
        self.link_free + self.config.overhead
    }

    fn send(
        &mut self,
        member: usize,
        op: Op,
        range: &Range<u64>,
        part: CommandPurpose,
        now: Nanos,
    ) {
        let free = self.parts.iter().position(Option::is_none).unwrap_or(self.parts.len());
        if free == self.parts.len() {
            self.parts.push(None);
        }
        self.parts[free] = Some(part);
        self.under_way[member] += 1;
        self.heads[member] = range.end;
        let blocks = range.end - range.start;
        self.members[member]
            .submit(Request { tag: free as u64, op, lba: range.start, blocks }, now);
    }

    fn read(&mut self, request: &Request, now: Nanos) {
        let range = request.range();
        let pieces = self.pieces(&range);
        let shares: Vec<(usize, Range<u64>)> =
            pieces.into_iter().flat_map(|(column, piece)| self.shares(column, piece)).collect();
        let held = self.dirty.range(..=range.start).next_back();
        let is_running = self
            .running
            .as_ref()
            .is_some_and(|(run, _)| run.start <= range.start && range.end <= run.end);
        if is_running || held.is_some_and(|(_, end)| *end >= range.end) {
            let end = self.transfer(request.blocks, now);
            self.done.insert((end, request.tag));
            return;
        }
        self.reads.insert(request.tag, (shares.len(), request.blocks));
        for (member, share) in shares {
            self.send(member, Op::Read, &share, CommandPurpose::Read(request.tag), now);
        }
    }

    /// Which of a pair reads what: of a piece that goes on where an earlier one ended they read stripes in turn, any
    /// other is for the less busy, or else the nearer one. Notes where this one ends, also if the cache answers it.
    fn shares(&mut self, column: usize, piece: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let UnitLevel::MirroredStripe(stripe) = self.config.level else {
            return vec![(column, piece)];
        };
        let ends = &mut self.ends[column];
        let before = ends.iter().position(|end| *end == piece.start);
        if before.is_some() || ends.len() == STREAMS {
            ends.remove(before.unwrap_or(0));
        }
        ends.push_back(piece.end);
        let pair = [2 * column, 2 * column + 1];
        if before.is_none() {
            let cost = |it: &usize| (self.under_way[*it], self.heads[*it].abs_diff(piece.start));
            return pair.into_iter().min_by_key(cost).map(|it| (it, piece)).into_iter().collect();
        }
        let numbers = piece.start / stripe..piece.end.div_ceil(stripe);
        let share = |number: u64| {
            let start = piece.start.max(number * stripe);
            (pair[(number % 2) as usize], start..piece.end.min((number + 1) * stripe))
        };
        numbers.map(share).collect()
    }

    fn room(&self) -> u64 {
        let running = self.running.as_ref().map_or(0, |(run, _)| run.end - run.start);
        (self.config.cache / 512).saturating_sub(self.dirty_blocks + running)
    }

    /// Takes writes in while there is room, and goes on with the members.
    fn go_on(&mut self, now: Nanos) {
        while let Some(request) = self.stalled.front().copied() {
            let is_empty = self.dirty.is_empty() && self.running.is_none();
            if request.blocks > self.room() && !is_empty {
                break;
            }
            self.stalled.pop_front();
            let end = self.transfer(request.blocks, now);
            self.done.insert((end, request.tag));
            self.add_dirty(request.range());
        }
        if self.running.is_none()
            && let Some(run) = self.next_run()
        {
            self.send_run(run, now);
        }
    }

    fn add_dirty(&mut self, mut range: Range<u64>) {
        let first = self.dirty.range(..range.start).next_back().map(|(start, end)| (*start, *end));
        let mut met: Vec<(u64, u64)> =
            first.filter(|(_, end)| *end >= range.start).into_iter().collect();
        met.extend(self.dirty.range(range.start..=range.end).map(|(start, end)| (*start, *end)));
        for (start, end) in met {
            self.dirty.remove(&start);
            self.dirty_blocks -= end - start;
            range = range.start.min(start)..range.end.max(end);
        }
        self.dirty_blocks += range.end - range.start;
        self.dirty.insert(range.start, range.end);
    }

    /// The next run upwards, cut at a whole stripe if it is longer than one.
    fn next_run(&mut self) -> Option<Range<u64>> {
        let up = self.dirty.range(self.position..).next().or_else(|| self.dirty.iter().next());
        let (start, end) = up.map(|(start, end)| (*start, *end))?;
        let stripe = match self.config.level {
            UnitLevel::Single => 1,
            UnitLevel::Stripe(blocks) | UnitLevel::MirroredStripe(blocks) => {
                blocks * self.columns() as u64
            }
        };
        let most = start + self.config.run;
        let whole = most / stripe * stripe;
        let cut = end.min(if whole > start { whole } else { most });
        self.dirty.remove(&start);
        if cut < end {
            self.dirty.insert(cut, end);
        }
        self.dirty_blocks -= cut - start;
        self.position = cut;
        Some(start..cut)
    }

    fn send_run(&mut self, run: Range<u64>, now: Nanos) {
        let pieces = self.pieces(&run);
        let mut commands = 0;
        for (column, piece) in pieces {
            let members = match self.config.level {
                UnitLevel::MirroredStripe(_) => 2 * column..2 * column + 2,
                _ => column..column + 1,
            };
            for member in members {
                commands += 1;
                self.send(member, Op::Write, &piece, CommandPurpose::Run, now);
            }
        }
        self.running = Some((run, commands));
    }

    fn end(&mut self, part: CommandPurpose, at: Nanos) {
        match part {
            CommandPurpose::Run => {
                let Some((_, left)) = &mut self.running else { return };
                *left -= 1;
                if *left == 0 {
                    self.running = None;
                    self.go_on(at);
                }
            }
            CommandPurpose::Read(tag) => {
                let (left, blocks) = self.reads.get_mut(&tag).expect("it is under way");
                *left -= 1;
                if *left == 0 {
                    let blocks = *blocks;
                    self.reads.remove(&tag);
                    let end = self.transfer(blocks, at);
                    self.done.insert((end, tag));
                }
            }
        }
    }

    fn run(&mut self, now: Nanos) {
        loop {
            let next = self.members.iter().filter_map(|member| member.next_event()).min();
            let Some(at) = next.filter(|at| *at <= now) else { return };
            for member in 0..self.members.len() {
                while let Some(done) = self.members[member].poll(at) {
                    let part = self.parts[done.tag as usize].take().expect("it was sent");
                    self.under_way[member] -= 1;
                    self.end(part, at);
                }
            }
        }
    }
}

impl Volume for ControllerUnit {
    fn blocks(&self) -> u64 {
        let least = self.members.iter().map(|member| member.blocks()).min().unwrap_or(0);
        match self.config.level {
            UnitLevel::Single => least,
            UnitLevel::Stripe(blocks) | UnitLevel::MirroredStripe(blocks) => {
                least / blocks * blocks * self.columns() as u64
            }
        }
    }

    fn submit(&mut self, request: Request, now: Nanos) {
        self.run(now);
        match request.op {
            Op::Read => self.read(&request, now),
            Op::Write | Op::WriteThrough => {
                self.stalled.push_back(request);
                self.go_on(now);
            }
            Op::Flush => {
                self.done.insert((now + self.config.overhead, request.tag));
            }
        }
    }

    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.run(now);
        let &(at, tag) = self.done.first().filter(|(at, _)| *at <= now)?;
        self.done.pop_first();
        Some(Completion { tag, at })
    }

    fn next_event(&self) -> Option<Nanos> {
        let done = self.done.first().map(|(at, _)| *at);
        self.members.iter().filter_map(|member| member.next_event()).chain(done).min()
    }

    fn cpu(&self) -> Nanos {
        Nanos::ZERO
    }
}

#[cfg(test)]
mod tests;
