//! md's thread (`raid5d`) beside a writer, as they are from Linux 3.6 on (drivers/md/raid5.c), each on a processor. (It
//! holds rows back since 2.6.26; until 3.5 each was its own as soon as it had a page.)
//!
//! The writer's rows, whole or not, are the thread's when it has handed over all that it has, or finds no head. The
//! thread takes them eight at a time, in order. A whole row goes to the members. An incomplete one is delayed; when no
//! other is read for, all that are delayed are held. A held row is read for, and goes, when nothing else is to be done
//! and no whole row is under way, or more rows passed it than it lets pass. Until then its writer may complete it.
//! What goes leaves together, when the thread has nothing more to do; and rows that have come back are its own again
//! until it has looked at them. Then it tells whose writes have ended, and what came meanwhile goes, before they can write
//! more.
//!
//! A write that goes on nowhere is taken for a direct one (`REQ_SYNC`), which is read for at once. What the thread does
//! here takes time, but none of the core's, which pays for the engine's work. All writers have one plug; heads are not
//! kept in eight lists, and bitmaps hold no rows back.
//!
//! Invariant: a row is idle, plugged, on one list, under way, or done with.

use super::{HAS_HEAD, StripeCache};
use crate::dice::Dice;
use lapstrake_model::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::{iter, mem};

/// Rows that the thread takes before it looks around (`MAX_STRIPE_BATCH`). The writer does so as often.
const BATCH: u64 = 8;
/// How long a writer that has waited takes to go on, at most: its processor was idle.
const WAKES: Nanos = Nanos(50_000);
/// Rows that may pass one that is held (`preread_bypass_threshold`).
const PASSES: u32 = 1;

/// Why there is a thread.
const CALLS: &str = "it is what calls";

/// Where rows wait for the thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    /// Something may be done.
    Ready,
    /// Incomplete, while others are read for.
    Delayed,
    /// Incomplete, to be read for.
    Held,
}

/// See the module.
pub(in crate::array) struct Thread {
    /// What either does for a page; the thread, for each of a row that it takes.
    page: Nanos,
    /// By when they came there.
    ready: BTreeMap<u64, u64>,
    delayed: BTreeMap<u64, u64>,
    held: BTreeMap<u64, u64>,
    arrivals: u64,
    /// Rows that are to be read for, since they were held or are written directly, and have not gone yet.
    chosen: BTreeSet<u64>,
    /// Rows that are being read for.
    reading: BTreeSet<u64>,
    /// Whole rows that go or are under way.
    whole: BTreeSet<u64>,
    /// Rows with which nothing more is to be done; they are idle when it looks around.
    done: Vec<u64>,
    /// Rows that passed the first one that is held, and which that was.
    passed: u32,
    first_held: Option<u64>,
    due: Option<Nanos>,
    writer_due: Option<Nanos>,
    /// It has nothing more to do, so that what goes leaves.
    is_asleep: bool,
    /// Of how long wake-ups take.
    dice: Dice,
}

impl Thread {
    /// `page` is what it does for one, and how long wake-ups take follows from `seed`.
    pub(in crate::array) fn new(page: Nanos, seed: u64) -> Self {
        Self {
            page,
            ready: BTreeMap::new(),
            delayed: BTreeMap::new(),
            held: BTreeMap::new(),
            arrivals: 0,
            chosen: BTreeSet::new(),
            reading: BTreeSet::new(),
            whole: BTreeSet::new(),
            done: Vec::new(),
            passed: 0,
            first_held: None,
            due: None,
            writer_due: None,
            is_asleep: false,
            dice: Dice::new(seed),
        }
    }

    /// There may be something to do for it.
    pub(super) fn wake(&mut self, now: Nanos) {
        self.due.get_or_insert(now);
    }

    /// What a row lacked is there.
    pub(super) fn end_read(&mut self, at: u64, now: Nanos) {
        if self.reading.remove(&at) && self.reading.is_empty() {
            self.wake(now);
        }
    }

    /// There is something to write.
    pub(super) fn wake_writer(&mut self, now: Nanos, is_blocked: bool) {
        if !is_blocked {
            self.writer_due.get_or_insert(now);
        }
    }

    /// When either goes on.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        [self.due, self.writer_due].into_iter().flatten().min()
    }

    /// Whether what goes leaves now.
    pub(super) fn lets_go(&mut self) -> bool {
        mem::take(&mut self.is_asleep)
    }

    fn list(&mut self, list: List) -> &mut BTreeMap<u64, u64> {
        match list {
            List::Ready => &mut self.ready,
            List::Delayed => &mut self.delayed,
            List::Held => &mut self.held,
        }
    }
}

impl StripeCache {
    /// The writer and the thread go on, if they are due.
    pub(super) fn run_thread(&mut self, now: Nanos) {
        let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
        if self.thread.as_ref().is_some_and(|thread| is_due(thread.writer_due)) {
            self.write_on(now);
        }
        if self.thread.as_ref().is_some_and(|thread| is_due(thread.due)) {
            self.look_around(now);
        }
    }

    /// The writer's rows become the thread's.
    pub(super) fn hand_over(&mut self, plugged: BTreeSet<u64>, now: Nanos) {
        for at in plugged {
            // One that is under way is handed back when it ends.
            if self.rows[&at].busy == 0 {
                self.put(at, List::Ready);
            }
        }
        self.thread().wake(now);
    }

    /// A row that has ended is the thread's, unless the writer has it.
    pub(super) fn hand_back(&mut self, at: u64) {
        if !self.plugged.contains(&at) {
            self.put(at, List::Ready);
        }
    }

    fn thread(&mut self) -> &mut Thread {
        self.thread.as_mut().expect(CALLS)
    }

    /// Pages go into heads.
    fn write_on(&mut self, now: Nanos) {
        let mut pages = 0;
        while pages < BATCH {
            let Some((at, data, write)) = self.next_page(now) else { break };
            self.take(at);
            self.rows.get_mut(&at).expect(HAS_HEAD).dirty.push((data, write));
            self.plugged.insert(at);
            if !self.writes[write].goes_on {
                self.thread().chosen.insert(at);
            }
            pages += 1;
        }
        let goes_on = pages == BATCH;
        if !goes_on && !self.is_blocked {
            // It has handed over all that it had.
            self.unplug(now);
        }
        let thread = self.thread();
        thread.writer_due = goes_on.then(|| now + thread.page * pages);
    }

    /// The thread takes a batch.
    fn look_around(&mut self, now: Nanos) {
        for at in mem::take(&mut self.thread().done) {
            let row = &self.rows[&at];
            if row.busy == 0 && row.dirty.is_empty() && row.place.is_none() {
                self.make_idle(at);
            }
        }
        self.choose();
        let batch: Vec<u64> = iter::from_fn(|| self.next_row()).take(BATCH as usize).collect();
        let rows = batch.len() as u64;
        for at in batch {
            self.handle(at);
        }
        if self.is_blocked && self.has_quarter() {
            self.is_blocked = false;
            let thread = self.thread();
            thread.writer_due = Some(now + Nanos(thread.dice.below(WAKES.0)));
        }
        let pages = rows * self.in_sync.len() as u64;
        let thread = self.thread();
        thread.is_asleep |= rows == 0;
        thread.due = (rows > 0).then(|| now + thread.page * pages);
    }

    /// If none is read for, all that are delayed are.
    fn choose(&mut self) {
        let thread = self.thread();
        if !thread.chosen.is_empty() || !thread.reading.is_empty() {
            return;
        }
        for at in mem::take(&mut thread.delayed).into_values() {
            self.thread().chosen.insert(at);
            self.put(at, List::Held);
        }
    }

    fn next_row(&mut self) -> Option<u64> {
        let thread = self.thread();
        let held = thread.held.first_key_value().map(|(came, at)| (*came, *at));
        if let Some((_, at)) = thread.ready.pop_first() {
            self.rows.get_mut(&at).expect(HAS_HEAD).place = None;
            let is_new = !self.rows[&at].has_begun;
            let thread = self.thread();
            match held.map(|(came, _)| came) {
                None => thread.passed = 0,
                Some(_) if !is_new => {}
                first if first == thread.first_held => thread.passed += 1,
                first => {
                    thread.first_held = first;
                    thread.passed = thread.passed.saturating_sub(PASSES);
                }
            }
            return Some(at);
        }
        let (_, at) = held?;
        if thread.passed <= PASSES && !thread.whole.is_empty() {
            return None;
        }
        thread.passed = thread.passed.saturating_sub(PASSES);
        self.take(at);
        Some(at)
    }

    /// What can be done with a row is done.
    fn handle(&mut self, at: u64) {
        self.tell_written(at);
        let row = self.rows.get_mut(&at).expect(HAS_HEAD);
        let blocks: BTreeSet<u16> = row.dirty.iter().map(|(data, _)| *data).collect();
        let is_whole = blocks.len() == usize::from(self.map.data_disks());
        let thread = self.thread.as_mut().expect(CALLS);
        thread.whole.remove(&at);
        if row.dirty.is_empty() {
            thread.chosen.remove(&at);
            thread.done.push(at);
            return;
        }
        let was_chosen = thread.chosen.contains(&at);
        if !is_whole && !row.is_known && !was_chosen {
            return self.put(at, List::Delayed);
        }
        thread.chosen.remove(&at);
        if is_whole {
            thread.whole.insert(at);
        } else if !row.is_known {
            thread.reading.insert(at);
        }
        self.go(at);
        self.due.insert(at);
    }

    fn put(&mut self, at: u64, list: List) {
        let thread = self.thread();
        thread.arrivals += 1;
        let came = thread.arrivals;
        thread.list(list).insert(came, at);
        self.rows.get_mut(&at).expect(HAS_HEAD).place = Some((list, came));
    }

    /// Takes a row from where it waits.
    fn take(&mut self, at: u64) {
        let place = self.rows.get_mut(&at).and_then(|row| row.place.take());
        if let Some((list, came)) = place {
            self.thread().list(list).remove(&came);
        }
    }
}
