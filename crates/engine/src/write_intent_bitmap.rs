//! The write-intent bitmap as the supervisor keeps it: bits set before the writes that they
//! cover, cleared when all shards have given them up.
//!
//! Invariants:
//! - a bit in memory is never clearer than what shards hold: it is cleared after every shard
//!   has given it up, and shards are asked in rounds, between which no bit is granted anew;
//! - shards are told of bits after the pages that hold them are stable on every target;
//! - a bitmap that is added has all its bits set until superblocks say that there is one and every shard
//!   has told of what it was writing meanwhile;
//! - of a bitmap whose file refused a write no bit is granted any more;
//! - an internal one in use counts at most one event more than its array: that of a step to active and back, so that
//!   the page need not go before the next such step. Its members' superblocks tell of it, so nobody writes to the array
//!   who does not know of it. A file may be away meanwhile, and would pass for fresh;
//! - while a slot lacks a member nothing is cleared, and bits that a past unclean stop left are not before a resync
//!   has been there.
//!
//! A lockless bitmap is kept in the same way, with these differences:
//! - it tells chunks where nothing was ever written, and members need not agree. The first write there makes the chunk
//!   one that needs a resync, on any level; parity is made anew there, and one copy read, until that has been;
//! - so a resync may be due while superblocks call the array clean. It waits for [`LAZY_NS`] after the first of such
//!   writes;
//! - a chunk counts as resynced only if the resync began with its first sector after it came to need one, and no slot
//!   lacked a member; what a recovery did counts for nothing;
//! - nothing is granted before the states of a first use are stable.

use crate::{chunks::UnsyncedChunks, messages::Order, types::Time};
use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};
use core::mem;
use lapstrake_geometry::{Sector, Sectors};
use lapstrake_metadata::bitmap::{Bits, PAGE, Superblock};

/// Sectors of a page of the bitmap's area, the unit in which it is written.
const PAGE_SECTORS: u64 = 8;
/// How long a resync of chunks waits that were written for the first time: others may follow.
const LAZY_NS: u64 = 1_000_000_000;

/// Which chunks a sync action goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guide {
    /// Those with a set bit.
    Set,
    /// Those that need a resync.
    Needed,
    /// Those where there is something to keep.
    Written,
    /// Those whose redundancy is right.
    Synced,
}

/// The bitmap at the array's start.
#[derive(Clone, Debug)]
pub struct BitmapConfig {
    /// As read; its events are not behind the array's.
    pub superblock: Superblock,
    /// As read, for all of the array; all set if the bitmap was stale. A lockless one's as [`Bits::begin`] or
    /// [`Bits::first_use`] leaves them.
    pub bits: Bits,
    /// In a file of its own instead of on the members.
    pub external: bool,
    /// The set bits stand for regions that may differ; they stay until a resync has been there. A lockless bitmap's
    /// states say so themselves.
    pub bits_need_resync: bool,
}

impl BitmapConfig {
    /// For [`crate::ShardConfig::unsynced`].
    #[must_use]
    pub fn unsynced(&self) -> Option<UnsyncedChunks> {
        UnsyncedChunks::of(&self.bits)
    }
}

#[derive(Debug)]
pub(crate) struct WriteIntentBitmap {
    superblock: Superblock,
    bits: Bits,
    external: bool,
    needed: BTreeSet<u64>,
    /// Of those, where the resync has begun that is under way. Only of a lockless bitmap.
    syncing: BTreeSet<u64>,
    /// When a resync of what is needed may begin.
    lazy_at: Time,
    /// How many shards hold each bit.
    holders: BTreeMap<u64, u32>,
    /// The superblock in page 0 is newer than what was sent.
    superblock_dirty: bool,
    /// What is to be sent says of data that it is stable, or of redundancy that it is right.
    vouches: bool,
    wanted: Vec<(u64, u64)>,
    granted_next: Vec<(u64, u64)>,
    writes_left: u32,
    /// Pages on their way, the bits that they clear for the first time, and whether some of them were not
    /// written at all.
    sent_pages: Vec<usize>,
    clearing: Vec<u64>,
    is_dropped: bool,
    answers_left: u32,
    next_sweep: Option<Time>,
    sleep_ns: u64,
    shards: u32,
    /// The event count in the page on its way, and in the one that is stable.
    sent_events: Option<u64>,
    stable_events: Option<u64>,
    usage: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    /// No shard knows of it yet.
    Added,
    InUse,
    /// No sweep begins any more.
    Ending,
    /// Its file refuses writes or is gone: nothing is written to it or granted any more.
    Lost,
}

impl WriteIntentBitmap {
    /// `sync_end`: no resync goes over what lies from this sector on, if a chunk does (of RAID10, whose bitmap covers what
    /// is left of a last row, too).
    pub(crate) fn new(config: BitmapConfig, shards: u32, sync_end: u64) -> Self {
        let set: BTreeSet<u64> = config.bits.iter_set(0).collect();
        let chunk = config.bits.chunk().0;
        let is_needed = |bit: &u64| match config.bits.is_lockless() {
            true => config.bits.needs_sync(*bit) && *bit * chunk < sync_end,
            false => config.bits_need_resync,
        };
        let needed: BTreeSet<u64> = set.iter().copied().filter(is_needed).collect();
        let holders = set.difference(&needed).map(|&bit| (bit, 0)).collect();
        Self {
            sleep_ns: u64::from(config.superblock.daemon_sleep.max(1)) * 1_000_000_000,
            superblock: config.superblock,
            bits: config.bits,
            external: config.external,
            needed,
            syncing: BTreeSet::new(),
            lazy_at: Time(0),
            holders,
            superblock_dirty: false,
            vouches: false,
            wanted: Vec::new(),
            granted_next: Vec::new(),
            writes_left: 0,
            sent_pages: Vec::new(),
            clearing: Vec::new(),
            is_dropped: false,
            answers_left: 0,
            next_sweep: None,
            shards,
            sent_events: None,
            stable_events: None,
            usage: Usage::InUse,
        }
    }

    /// A bitmap that is being added: all its bits are set, and stay so until [`Self::in_use`].
    pub(crate) fn added(superblock: Superblock, external: bool, shards: u32) -> Self {
        let bits = Bits::new(&superblock, true);
        let config = BitmapConfig { superblock, bits, external, bits_need_resync: true };
        Self { superblock_dirty: true, usage: Usage::Added, ..Self::new(config, shards, u64::MAX) }
    }

    /// Shards have been told of it. `is_whole`: nothing differs but what they are writing.
    pub(crate) fn in_use(&mut self, is_whole: bool) {
        self.usage = Usage::InUse;
        if is_whole {
            self.resynced();
        }
    }

    /// It is about to end.
    pub(crate) fn retire(&mut self) {
        if !self.is_lost() {
            self.usage = Usage::Ending;
        }
    }

    /// Its file refuses writes: it is about to end, and bits that shards wait for are never granted.
    pub(crate) fn lose(&mut self) {
        self.usage = Usage::Lost;
        self.granted_next.clear();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.usage == Usage::Lost
    }

    /// Whether no shard and no page owes an answer.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.answers_left == 0 && self.writes_left == 0
    }

    /// Whether the bitmap lies over a member's bad-block log, which is as good as none then.
    pub(crate) fn covers_log(&self, member: &lapstrake_metadata::Superblock) -> bool {
        !self.external && member.is_log_given_up_for(&self.superblock)
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(crate) fn is_external(&self) -> bool {
        self.external
    }

    pub(crate) fn count_states(&self) -> Option<[u64; 8]> {
        self.bits.count_states()
    }

    pub(crate) fn count(&self) -> (u64, u64) {
        (self.bits.count_set(), self.bits.count())
    }

    pub(crate) fn is_lockless(&self) -> bool {
        self.bits.is_lockless()
    }

    fn is_guided(&self, bit: u64, guide: Guide) -> bool {
        match guide {
            Guide::Set => self.bits.get(bit),
            Guide::Needed => self.needed.contains(&bit),
            Guide::Written => self.bits.is_written(bit),
            Guide::Synced => !self.needed.contains(&bit) && self.bits.is_written(bit),
        }
    }

    /// Whether a chunk that the guide names covers any of these sectors.
    pub(crate) fn is_any(&self, guide: Guide, start: u64, end: u64) -> bool {
        let mut covering = self.bits.covering(Sector(start), Sectors(end - start));
        covering.any(|bit| self.is_guided(bit, guide))
    }

    /// The first sector from `from` on that a chunk covers that the guide names.
    pub(crate) fn next(&self, guide: Guide, from: u64) -> Option<u64> {
        let chunk = self.bits.chunk().0;
        let bit = match guide {
            Guide::Set => self.bits.iter_set(from / chunk).next()?,
            _ => (from / chunk..self.bits.count()).find(|&bit| self.is_guided(bit, guide))?,
        };
        Some(from.max(bit * chunk))
    }

    /// Up to where such chunks cover all sectors from `from` on; at most `end`.
    pub(crate) fn until(&self, guide: Guide, from: u64, end: u64) -> u64 {
        let chunk = self.bits.chunk().0;
        let mut chunks = from / chunk..end.div_ceil(chunk);
        chunks.find(|&bit| !self.is_guided(bit, guide)).map_or(end, |bit| bit * chunk)
    }

    /// Whether chunks of a lockless bitmap need a resync now.
    pub(crate) fn is_sync_due(&self, now: Time) -> bool {
        self.is_lockless() && !self.needed.is_empty() && self.lazy_at <= now
    }

    /// Whether chunks of a lockless bitmap need a resync.
    pub(crate) fn has_needed(&self) -> bool {
        self.is_lockless() && !self.needed.is_empty()
    }

    /// When they will, if they do not now.
    pub(crate) fn lazy_deadline(&self, now: Time) -> Option<Time> {
        let waits = self.is_lockless() && !self.needed.is_empty() && self.lazy_at > now;
        waits.then_some(self.lazy_at)
    }

    /// Whether a lockless bitmap knows of chunks whose redundancy may not be right.
    pub(crate) fn has_unsynced(&self) -> bool {
        (0..self.bits.count()).any(|bit| !self.bits.is_synced(bit))
    }

    /// A resync is about to go over these sectors.
    pub(crate) fn begin_sync(&mut self, start: u64, end: u64) {
        let chunk = self.bits.chunk().0;
        if self.is_lockless() {
            let begun = self.needed.range(start.div_ceil(chunk)..end.div_ceil(chunk));
            self.syncing.extend(begun);
        }
    }

    /// A resync has been everywhere below `done`; `whole`: that is the end of all. What it began before, and is right
    /// now, is told to shards.
    pub(crate) fn synced_to(&mut self, done: u64, whole: bool, orders: &mut VecDeque<Order>) {
        let end = if whole { u64::MAX } else { done / self.bits.chunk().0 };
        let rest = self.syncing.split_off(&end);
        for bit in mem::replace(&mut self.syncing, rest) {
            assert!(self.needed.remove(&bit), "only what needs a resync is resynced");
            self.holders.entry(bit).or_insert(0);
            orders.push_back(Order::ChunksSynced(bit, bit));
        }
    }

    /// The resync has ended, wherever it has come to. The next one waits a while.
    pub(crate) fn end_sync(&mut self, now: Time) {
        self.syncing.clear();
        // Now and not as the resync goes on, so that a page is written once.
        let done = self.holders.keys().filter(|bit| !self.needed.contains(bit));
        done.for_each(|&bit| self.bits.synced(bit));
        self.vouches = true;
        self.lazy_at = now.after(LAZY_NS);
    }

    /// Set bits stand for nothing any more but writes of late. Of a lockless bitmap [`Self::synced_to`] tells that.
    pub(crate) fn resynced(&mut self) {
        self.resynced_to(u64::MAX);
    }

    /// Likewise those that cover nothing from this sector on.
    pub(crate) fn resynced_to(&mut self, done: u64) {
        if self.is_lockless() {
            return;
        }
        let rest = self.needed.split_off(&(done / self.bits.chunk().0));
        for bit in mem::replace(&mut self.needed, rest) {
            self.holders.entry(bit).or_insert(0);
        }
    }

    /// All pages are to be written, as a new member has none.
    pub(crate) fn rewrite(&mut self) {
        (0..self.bits.pages()).for_each(|page| self.bits.mark_dirty(page));
        self.superblock_dirty = true;
        self.vouches = true;
        // Nor does a page on its way go to it.
        (self.sent_events, self.stable_events) = (None, None);
    }

    /// Whether the bits tell all that a member has missed whose superblock says this event count.
    pub(crate) fn covers(&self, events: u64) -> bool {
        events >= self.superblock.events_cleared
    }

    /// A shard waits for bits. If it has not heard of this bitmap yet it may mean the one before, and asks
    /// anew when it has; with the same chunk they are the same bits.
    pub(crate) fn want(&mut self, chunk: Sectors, first: u64, last: u64) {
        if self.usage != Usage::Added && chunk == self.bits.chunk() {
            self.wanted.push((first, last));
        }
    }

    /// A shard's answer to a sweep. `clear_at`: bits may be cleared, at this event count.
    pub(crate) fn given_up(&mut self, bits: &[u64], clear_at: Option<u64>) {
        self.answers_left -= 1;
        for bit in bits {
            if let Some(holders) = self.holders.get_mut(bit) {
                *holders = holders.saturating_sub(1);
            }
        }
        if self.answers_left == 0 {
            self.clear_unheld(clear_at);
        }
    }

    fn clear_unheld(&mut self, clear_at: Option<u64>) {
        let Some(events) = clear_at else { return };
        let unheld: Vec<u64> =
            self.holders.iter().filter(|entry| *entry.1 == 0).map(|entry| *entry.0).collect();
        for bit in unheld {
            self.holders.remove(&bit);
            if !self.needed.contains(&bit) {
                self.bits.clear(bit);
                self.clearing.push(bit);
                self.superblock.events_cleared = events;
                self.superblock_dirty = true;
                self.vouches = true;
            }
        }
    }

    /// The superblocks are about to say this event count.
    pub(crate) fn array_events(&mut self, events: u64) {
        let may_stay_ahead = !self.external && self.usage == Usage::InUse;
        let is_ahead = may_stay_ahead && self.superblock.events.checked_sub(1) == Some(events);
        let said = (self.superblock.events, self.superblock.events_cleared);
        self.superblock.events = events + u64::from(is_ahead);
        self.superblock.events_cleared = self.superblock.events_cleared.min(events);
        if said.0 != self.superblock.events {
            self.stable_events = None;
        }
        let is_said = said == (self.superblock.events, self.superblock.events_cleared);
        self.superblock_dirty |= !is_said || self.stable_events.is_none();
    }

    /// The end: no shard holds anything any more, and superblocks say this event count.
    pub(crate) fn stop(&mut self, events: u64, clear_at: Option<u64>) {
        self.retire();
        if self.superblock.events != events {
            self.array_events(events);
        }
        self.holders.values_mut().for_each(|holders| *holders = 0);
        self.clear_unheld(clear_at);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let has_to_write = self.superblock_dirty || self.bits.dirty_pages().next().is_some();
        self.writes_left == 0 && (self.is_lost() || !has_to_write)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.next_sweep.filter(|_| self.is_at_rest() && self.usage == Usage::InUse)
    }

    /// Starts a sweep when it is time.
    pub(crate) fn tick(&mut self, now: Time, orders: &mut VecDeque<Order>) {
        if self.deadline().is_some_and(|due| due <= now) {
            self.next_sweep = None;
            self.answers_left = self.shards;
            orders.push_back(Order::SweepBits);
        }
    }

    /// The pages to write now, each with its sector offset in the bitmap's area. Nothing while
    /// the last ones are on their way, or a sweep's answers are.
    pub(crate) fn pages_to_write(&mut self, now: Time) -> Vec<(Sectors, Vec<u8>)> {
        if self.writes_left > 0 || self.answers_left > 0 || self.is_lost() {
            return Vec::new();
        }
        let wanted =
            if self.bits.is_first_use() { Vec::new() } else { mem::take(&mut self.wanted) };
        for (first, last) in wanted {
            for bit in first..=last {
                self.set_for_write(bit, now);
                self.holders.insert(bit, u32::MAX);
            }
            self.granted_next.push((first, last));
        }
        if self.next_sweep.is_none() && !self.holders.is_empty() {
            self.next_sweep = Some(now.after(self.sleep_ns));
        }
        let mut pages: BTreeSet<usize> = self.bits.dirty_pages().collect();
        if mem::take(&mut self.superblock_dirty) {
            pages.insert(0);
        }
        if pages.contains(&0) {
            self.sent_events = Some(self.superblock.events);
        }
        self.sent_pages.extend(&pages);
        pages.into_iter().map(|page| self.image(page)).collect()
    }

    fn set_for_write(&mut self, bit: u64, now: Time) {
        if !self.is_lockless() {
            self.bits.set(bit);
        } else if !self.bits.is_written(bit) {
            if self.needed.is_empty() {
                self.lazy_at = now.after(LAZY_NS);
            }
            self.needed.insert(bit);
            self.bits.set(bit);
        } else if !self.bits.get(bit) {
            self.bits.set_for_write(bit);
        }
    }

    fn image(&mut self, page: usize) -> (Sectors, Vec<u8>) {
        let mut image = [0; PAGE];
        self.bits.encode_page(&self.superblock, page, &mut image);
        if self.is_lockless() {
            self.bits.spread_need_sync(page, &mut image);
        }
        // What fails on a member takes the member out, and on a file the bitmap, so what was sent counts as written.
        self.bits.mark_stable(page);
        (Sectors(page as u64 * PAGE_SECTORS), image.to_vec())
    }

    /// Whether members are to flush before the pages are written that were just given.
    pub(crate) fn take_vouches(&mut self) -> bool {
        mem::take(&mut self.vouches) || self.is_lockless()
    }

    /// Page writes went out to this many targets.
    pub(crate) fn sent(&mut self, targets: u32) {
        self.writes_left += targets;
    }

    /// Grants what was wanted and needed no writing.
    pub(crate) fn grant_if_written(&mut self, orders: &mut VecDeque<Order>) {
        if self.writes_left > 0 || self.is_lost() {
            return;
        }
        if mem::take(&mut self.is_dropped) {
            return self.take_back();
        }
        self.sent_pages.clear();
        // Whatever clears a bit marks the superblock: if it is not dirty all that was cleared has been sent.
        if !self.superblock_dirty {
            self.clearing.clear();
        }
        self.stable_events = self.sent_events.take().or(self.stable_events);
        if self.bits.is_first_use() && self.bits.dirty_pages().next().is_none() {
            self.bits.end_first_use();
        }
        self.grant(orders);
    }

    /// A page was not written on one target: a member turned out not to hold what the page says of it.
    pub(crate) fn page_dropped(&mut self, orders: &mut VecDeque<Order>) {
        self.is_dropped = true;
        self.page_written(orders);
    }

    /// Nothing of what was sent counts: it is all to be sent again, with the bits set that it cleared.
    fn take_back(&mut self) {
        for page in mem::take(&mut self.sent_pages) {
            self.bits.mark_dirty(page);
        }
        for bit in mem::take(&mut self.clearing) {
            self.bits.set(bit);
            self.holders.entry(bit).or_insert(0);
        }
        self.superblock_dirty = true;
        self.vouches = true;
        self.sent_events = None;
        self.wanted.append(&mut self.granted_next);
    }

    /// A page is stable on one target (or that target has failed and counts no more).
    pub(crate) fn page_written(&mut self, orders: &mut VecDeque<Order>) {
        self.writes_left -= 1;
        self.grant_if_written(orders);
    }

    /// Whether it is to be stable with this event count before members' superblocks have it.
    pub(crate) fn is_behind(&self, events: u64) -> bool {
        self.stable_events.is_none_or(|stable| stable < events) && !self.is_lost()
    }

    fn grant(&mut self, orders: &mut VecDeque<Order>) {
        for (first, last) in mem::take(&mut self.granted_next) {
            for bit in first..=last {
                self.holders.insert(bit, self.shards);
            }
            orders.push_back(Order::BitsSet(first, last));
        }
    }
}
