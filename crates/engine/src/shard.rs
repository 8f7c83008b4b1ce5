//! One shard: the requests of a range of the array from arrival to reply.
//!
//! This file holds the way of a request through the shard's parts: bounds, order among overlapping writes, the gate,
//! windows of a long request, the reply. Where the bytes go is decided in [`crate::direct`] (linear, RAID0, RAID1,
//! RAID10) and [`crate::stripe`] (RAID4, 5, 6).
//!
//! What a part keeps, nobody else writes; its invariants stand at its head and are asserted there:
//!
//! | part | keeps |
//! |---|---|
//! | [`WriteGate`] | "active", bits, replies that wait for a record, writes in flight |
//! | [`Guard`] | ranges under write, and who waits for one |
//! | [`Requests`] | what of each request is under way |
//! | [`Members`] | who is in which slot, how far it is trusted, what it cannot read |
//! | [`InSync`] | where redundancy is right |
//! | [`Repairs`] | pages that are tried or written anew, reads that wait for that |
//! | [`Stripes`] | fragments and locks of each stripe, and whom [`crate::hold`] holds |
//! | [`Ops`] | operations on stripes |
//! | [`Syncs`], [`Units`] | pieces of sync actions, and their units on levels with copies |
//! | [`Behind`] | writes with copies on their way |
//! | [`Logs`], [`Journal`] | what waits to be on record, and units under way |
//! | [`Scratch`] | the stripe cache's memory |
//!
//! Invariants that take more than one of them:
//! - a write holds its range in the guard, and its bits, until it ends;
//! - a reply to a write or a flush waits while a member's failure is not on record.

use crate::{
    behind::{Behind, Copies},
    bits::covered,
    chunks::{InSync, UnsyncedChunks},
    direct::Builder,
    gate::{GateState, Passage, WriteGate},
    guard::Guard,
    journal::{JOURNAL_PAGES, Journal, JournalConfig},
    log::Logs,
    member_io::{Io, Owner},
    members::{BadState, MemberConfig, Members},
    messages::{BitmapTerms, Notice, Order},
    op::Ops,
    recovery::BUSY_NS,
    repair::Repairs,
    request::{Reader, Req, ReqKey, Requests},
    scratch::{PAGE_BYTES, Scratch},
    stripe::Stripes,
    sync::{Syncs, UnitKey, Units},
    types::*,
};
use alloc::{collections::VecDeque, vec::Vec};
use lapstrake_geometry::{Geometry, Sector, Sectors, StripeNo};
use slab::Slab;

/// What a shard needs to know at its start.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The array's address map.
    pub geometry: Geometry,
    /// All members, indexed by [`MemberId`].
    pub members: Vec<MemberConfig>,
    /// Refuse writes.
    pub read_only: bool,
    /// What requests start at and are multiples of.
    pub block: Sectors,
    /// Redundancy is right below this member (RAID10: array) sector; above it a resync is due.
    pub in_sync_to: Sector,
    /// The write-intent bitmap, if there is one.
    pub bitmap: Option<BitmapTerms>,
    /// The stripe cache's memory, behind `behind_pages`.
    pub scratch: BufId,
    /// Its size in pages of 4 KiB. [`Order::StripeCache`] changes it.
    pub scratch_pages: u32,
    /// The mark of the members' partial parity logs, if there are any.
    pub log_signature: Option<u32>,
    /// Stripes whose data and parity do not agree: nothing is recovered from them.
    pub lost: Vec<StripeNo>,
    /// The journal; it takes [`JOURNAL_PAGES`] of the stripe cache. Only one shard may have it, and only that
    /// one is given writes. Requests start at and are multiples of its blocks.
    pub journal: Option<JournalConfig>,
    /// Pages before these, for writes that are left behind.
    pub behind_pages: u32,
    /// Chunks of a lockless bitmap in which redundancy is not right.
    pub unsynced: Option<UnsyncedChunks>,
}

/// What a shard has done, in counts that tests and the operator can rely on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Requests answered.
    pub requests: u64,
    /// Member reads sent.
    pub member_reads: u64,
    /// Member writes sent.
    pub member_writes: u64,
    /// Sectors read from members.
    pub member_read_sectors: u64,
    /// Sectors written to members.
    pub member_write_sectors: u64,
    /// Stripe parts written without reading.
    pub full_writes: u64,
    /// Stripe parts written by read-modify-write.
    pub rmw_writes: u64,
    /// Stripe parts written by reconstruct-write.
    pub rcw_writes: u64,
    /// Stripe parts read or written by recovering lost blocks from parity.
    pub recovered: u64,
    /// Bytes that parity work read.
    pub compute_bytes: u64,
    /// Times that an operation waited for stripe cache memory.
    pub scratch_waits: u64,
    /// Writes answered, or to be answered, before write-mostly members have them.
    pub behind_writes: u64,
}

/// Who claims an array range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Write(ReqKey),
    Sync(UnitKey),
}

/// A shard of an array. See the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Shard {
    pub(crate) geometry: Geometry,
    /// What requests may reach: no more than the geometry has.
    usable: Sectors,
    pub(crate) members: Members,
    pub(crate) in_sync: InSync,
    pub(crate) reqs: Requests,
    pub(crate) ios: Slab<Io>,
    pub(crate) repairs: Repairs,
    pub(crate) ops: Ops,
    pub(crate) stripes: Stripes,
    pub(crate) scratch: Scratch,
    /// Pages of the stripe cache that logs or the journal hold for good.
    held_pages: u32,
    pub(crate) syncs: Syncs,
    /// Units of these on levels with copies.
    pub(crate) units: Units,
    pub(crate) behind: Behind,
    pub(crate) builder: Builder,
    pub(crate) logs: Option<Logs>,
    pub(crate) stats: Stats,
    pub(crate) now: Time,
    effects: VecDeque<Effect>,
    notices: VecDeque<Notice>,
    guard: Guard<Job>,
    pub(crate) read_only: bool,
    /// See [`Shard::prefer_rmw`].
    pub(crate) prefers_rmw: bool,
    block: Sectors,
    pub(crate) gate: WriteGate,
    /// Those whose range has become free.
    released: VecDeque<Job>,
    /// When the supervisor was last told of reads of what others own.
    reads_told: Option<Time>,
    pub(crate) journal: Option<Journal>,
}

impl Shard {
    /// A shard that has done nothing yet; its first write will ask to make the array active.
    #[must_use]
    pub fn new(config: ShardConfig) -> Self {
        let raid_disks = config.geometry.raid_disks();
        let logs = config.log_signature.filter(|_| !config.read_only);
        // What is held for good lies at the beginning, so that the end can move.
        let held_pages = config.journal.map_or(0, |_| JOURNAL_PAGES)
            + logs.map_or(0, |_| raid_disks.into()).min(config.scratch_pages);
        let mut held = Scratch::new_at(config.scratch, config.behind_pages, held_pages);
        let journal = config.journal.map(|journal| {
            let metas = held.alloc(JOURNAL_PAGES * PAGE_BYTES);
            Journal::new(journal, metas.expect("so much is set aside with a journal"))
        });
        let first = config.behind_pages + held_pages;
        Self {
            members: Members::new(raid_disks, &config.members),
            logs: logs.map(|signature| Logs::new(signature, raid_disks, &mut held)),
            usable: config.geometry.array_sectors(),
            geometry: config.geometry,
            in_sync: InSync::new(config.in_sync_to, config.unsynced),
            reqs: Requests::default(),
            ios: Slab::new(),
            repairs: Repairs::default(),
            ops: Ops::default(),
            stripes: Stripes::new(config.lost),
            scratch: Scratch::new_at(config.scratch, first, config.scratch_pages - held_pages),
            held_pages,
            journal,
            syncs: Syncs::default(),
            units: Units::default(),
            behind: Behind::new(
                config.scratch,
                config.behind_pages,
                config.bitmap.map_or(0, |terms| terms.write_behind),
            ),
            builder: Builder::default(),
            stats: Stats::default(),
            now: Time::default(),
            effects: VecDeque::new(),
            notices: VecDeque::new(),
            guard: Guard::default(),
            read_only: config.read_only,
            prefers_rmw: false,
            block: config.block,
            gate: WriteGate::new(config.bitmap),
            released: VecDeque::new(),
            reads_told: None,
        }
    }

    /// Takes a request; its reply comes as an effect.
    pub fn handle_request(&mut self, now: Time, request: Request) {
        self.accept(now, request, Reader::Owner);
    }

    /// Takes a read of what a reshape moves to another geometry. As any other, but of copies that agree all are read in
    /// turn, so that no member has more to do than others ([`reshape_traffic`](crate::reshape_traffic)).
    pub fn handle_moved_read(&mut self, now: Time, request: Request) {
        self.accept(now, request, Reader::Mover);
    }

    /// Takes a read of sectors that other shards own, so that they need not be asked. It goes straight to
    /// members that have the data and changes nothing; where that cannot be, or one of them fails, it ends as
    /// [`Effect::Declined`]. Only for arrays whose members have all that was answered (no journal, nothing left
    /// behind).
    ///
    /// The shard must have been given every order that was given to the world before the read was asked for. A write
    /// that is answered without a member is answered after all shards were sent word of its failure, or of the bad
    /// range, so a read that follows from the answer finds it here.
    pub fn handle_foreign_read(&mut self, now: Time, request: Request) {
        debug_assert!(self.journal.is_none() && !self.behind.has_memory(), "who writes reads");
        self.tell_of_requests(now);
        self.accept(now, request, Reader::Foreign);
    }

    /// Requests come that no report of a sync action counts.
    pub fn tell_of_requests(&mut self, now: Time) {
        if self.reads_told.is_none_or(|told| told.after(BUSY_NS / 4) <= now) {
            self.reads_told = Some(now);
            self.notices.push_back(Notice::Reads);
        }
    }

    fn accept(&mut self, now: Time, request: Request, reader: Reader) {
        self.now = now;
        let end = request.sector.0.checked_add(request.len.0);
        let fits = end.is_some_and(|end| end <= self.usable.0);
        let aligned = (request.sector.0 | request.len.0).is_multiple_of(self.block.0);
        let refused = match (fits, request.kind.is_write() && self.read_only) {
            (false, _) => Some(Err(RequestError::OutOfRange)),
            _ if !aligned => Some(Err(RequestError::Misaligned)),
            (_, true) => Some(Err(RequestError::ReadOnly)),
            _ if request.len.0 == 0 && request.kind != RequestKind::Flush => Some(Ok(())),
            _ => None,
        };
        if let Some(result) = refused {
            self.effects.push_back(Effect::Reply(Reply { id: request.id, result }));
            return;
        }
        self.stripes.request_came(request.kind);
        let start = request.sector.0;
        let key = self.reqs.insert(Req::new(&request, reader));
        match request.kind {
            RequestKind::Flush if self.behind.await_all(key) => {}
            RequestKind::Flush => self.flush(key),
            RequestKind::Read(_) => self.advance(key),
            _ => {
                self.gate.write_came();
                self.claim(start..start + request.len.0, Job::Write(key));
            }
        }
    }

    pub(crate) fn usable_sectors(&self) -> Sectors {
        self.usable
    }

    /// A word from the supervisor.
    pub fn handle_order(&mut self, now: Time, order: &Order) {
        self.now = now;
        match *order {
            Order::Active => self.open_gate(GateState::Active),
            Order::Broken => self.open_gate(GateState::Broken),
            Order::OutOfSpace => {
                self.gate.run_out_of_space();
                self.open_gate(GateState::Broken);
            }
            Order::Lost(stripe) => {
                self.stripes.lose(stripe);
            }
            Order::MemberFailed(member) => {
                self.members.fail(member);
            }
            Order::Recorded(member) => {
                self.members.recorded(member);
                if !self.members.unrecorded() {
                    self.effects.extend(self.gate.take_held().into_iter().map(Effect::Reply));
                }
            }
            Order::TryIdle(before) => {
                let notice = self.gate.try_idle(before, now);
                self.notices.push_back(notice);
            }
            Order::BitsSet(first, last) => {
                self.gate.bits_set(first, last);
                self.retry_gated();
            }
            Order::ChunksSynced(first, last) => {
                self.in_sync.synced(first, last);
            }
            Order::Bitmap(terms) => self.change_bitmap(terms),
            Order::MemberAdded(ref config) => self.members.add(config.clone()),
            Order::Slotted(member, slot) => self.members.put(member, slot),
            Order::Trusted(member, sector) => self.members.trust(member, sector),
            Order::InSync(sector) => self.in_sync.set_to(sector),
            Order::Bad(member, start, len) => {
                self.told_bad(member, start.0..start.0 + len.0, BadState::Told);
            }
            Order::BadRecorded(member, start, len) => {
                self.told_bad(member, start.0..start.0 + len.0, BadState::OnRecord);
            }
            Order::GoodAgain(member, start, len) => {
                self.told_good(member, start.0..start.0 + len.0);
            }
            Order::TailMoved(position) => {
                if let Some(journal) = &mut self.journal {
                    journal.tail_moved(position);
                }
            }
            Order::Shape(ref geometry, usable) => self.change_shape(geometry, usable),
            Order::StripeCache(pages) => {
                self.scratch.resize(pages - self.held_pages);
                self.stripes.queue_waiting_for_memory();
            }
            Order::SweepBits => {
                let idle = self.gate.sweep_bits();
                self.notices.push_back(Notice::BitsIdle(idle));
            }
        }
    }

    /// Time has come to [`Self::poll_deadline`].
    pub fn handle_time(&mut self, now: Time) {
        self.now = now;
        self.stripes.release_due(now, !self.ops.is_empty());
    }

    /// What to do next, in this order, until there is nothing.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        while self.effects.is_empty() {
            while let Some(job) = self.released.pop_front() {
                self.begin(job);
            }
            self.retry_reads();
            self.begin_units();
            self.launch_ready();
            if self.effects.is_empty() {
                self.send_units();
            }
            // Whatever is ready by now goes into one batch.
            let sent = self.effects.is_empty() && self.write_journal();
            let has_ready = self.stripes.has_ready() || self.next_piece().is_some();
            if !sent && self.released.is_empty() && !has_ready && !self.repairs.has_reads() {
                break;
            }
        }
        self.effects.pop_front()
    }

    /// What to tell the supervisor. Drain it after the effects.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// When to call [`Self::handle_time`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.stripes.next_hold()
    }

    /// The array's address map, as this shard goes by it.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether writes gain by waiting for their neighbours.
    #[must_use]
    pub fn joins_writes(&self) -> bool {
        matches!(self.geometry, Geometry::Parity(_))
    }

    /// The member of an I/O in flight, and where on it the I/O begins.
    #[must_use]
    pub fn place_of(&self, id: IoId) -> Option<(MemberId, Sector)> {
        self.ios.get(id.0 as usize).map(|io| (io.member, io.sector))
    }

    /// Whether a member is out of use since an I/O of it failed.
    #[must_use]
    pub fn has_failed(&self, member: MemberId) -> bool {
        self.members.has_failed(member)
    }

    /// Counts of work done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Stripe cache pages that operations use, and all. After an [`Order::StripeCache`] for less these come down when
    /// operations have left what lies beyond; the world may take it back then.
    #[must_use]
    pub fn scratch_pages(&self) -> (u32, u32) {
        (self.scratch.used(), self.held_pages + self.scratch.capacity())
    }

    /// Whether nothing is ever written, so that no shard knows more of the data than another.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// No request is in work or held back.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let no_request = self.reqs.is_empty() && !self.gate.holds_replies();
        let is_logged = self.logs.as_ref().is_none_or(Logs::is_idle);
        no_request && is_logged && self.effects.is_empty() && self.syncs.is_idle()
    }

    /// Nothing is under way: no request, no I/O, nothing that mends.
    pub(crate) fn is_idle(&self) -> bool {
        let is_mending = self.repairs.is_running() || !self.syncs.is_idle();
        self.reqs.is_empty() && self.ios.is_empty() && self.ops.is_empty() && !is_mending
    }

    pub(crate) fn replace_geometry(&mut self, geometry: Geometry) {
        self.usable = geometry.array_sectors();
        self.geometry = geometry;
    }

    /// Whether writes are ever left behind, so that a flush concerns every shard.
    #[must_use]
    pub fn may_write_behind(&self) -> bool {
        self.behind.has_memory()
    }

    /// No write is left behind.
    #[must_use]
    pub fn is_behind_idle(&self) -> bool {
        self.behind.is_idle()
    }

    /// No piece of a sync action is in work.
    #[must_use]
    pub fn is_sync_idle(&self) -> bool {
        self.syncs.is_idle()
    }

    /// Where a write could read old data and parity, or as many blocks of other data, it reads the former from now on
    /// (md's `rmw_level` 2; until then the latter, as md does by default): half as many members take part, and what is
    /// read is what is written.
    pub fn prefer_rmw(&mut self) {
        self.prefers_rmw = true;
    }

    /// Sends writes out without waiting for neighbours: no more will come.
    pub fn hurry(&mut self) {
        self.stripes.release_all();
    }

    pub(crate) fn note(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    pub(crate) fn note_some(&mut self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.note(notice);
        }
    }

    /// Begins when nothing overlapping runs, in turn.
    pub(crate) fn claim(&mut self, range: core::ops::Range<u64>, job: Job) {
        if let Some(job) = self.guard.claim(range, job) {
            self.begin(job);
        }
    }

    /// Ends the claim that began at `start`.
    pub(crate) fn release(&mut self, start: u64) {
        // They do not begin from here: a long queue of those that end at once would be as deep a recursion.
        self.guard.release(start, &mut self.released);
    }

    fn begin(&mut self, job: Job) {
        match job {
            Job::Write(key) if self.reqs[key].is_merging() => self.advance(key),
            Job::Write(key) => self.pass_gates(key),
            Job::Sync(unit) => self.read_copies(unit),
        }
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// What takes the writes of all members has no room left, of which the world tells before it reports the
    /// write that failed so: no member is the worse for it, and none is given up for a write that fails from now
    /// on. As after a write that was lost, no further one is begun.
    pub fn handle_out_of_space(&mut self, now: Time) {
        self.now = now;
        if self.geometry.level().has_redundancy() && self.gate.run_out_of_space() {
            self.notices.push_back(Notice::OutOfSpace);
            self.open_gate(GateState::Broken);
        }
    }

    /// Fails every write from now on, and has all other shards do so.
    pub(crate) fn break_off(&mut self, stripe: Option<StripeNo>) {
        self.notices.push_back(Notice::Lost(stripe));
        self.open_gate(GateState::Broken);
    }

    pub(crate) fn flush(&mut self, key: ReqKey) {
        if self.gate.is_broken() {
            // Nobody is to take what was cut off for stable.
            return self.finish(key, Err(RequestError::Io));
        }
        let members: Vec<_> = self.members.in_slots().collect();
        self.reqs[key].expect(1);
        for member in members {
            self.reqs[key].expect(1);
            self.start_io(Owner::Request(key), member, IoKind::Flush, (0, 0), Pieces::new());
        }
        self.child_done(key, None);
    }

    fn pass_gates(&mut self, key: ReqKey) {
        let (req, geometry) = (&mut self.reqs[key], &self.geometry);
        let window = req.window(geometry);
        match self.gate.pass(key, &mut req.admission, || covered(geometry, window)) {
            Passage::Granted => self.advance(key),
            Passage::Waits(asks) => self.notices.extend(asks.into_iter().flatten()),
            Passage::Refused => self.finish(key, Err(RequestError::Io)),
        }
    }

    pub(crate) fn assert_may_write(&self, key: ReqKey) {
        self.gate.assert_may_write(&self.reqs[key].admission);
    }

    /// Writes on their way hold their bits of a new bitmap, too, so that none is cleared under them; those
    /// that wait for bits ask anew.
    fn change_bitmap(&mut self, terms: Option<BitmapTerms>) {
        self.behind.set_max(terms.map_or(0, |terms| terms.write_behind));
        self.gate.replace_bitmap(terms.map(|terms| terms.chunk));
        self.in_sync.forget_chunks();
        for req in self.reqs.values_mut() {
            let sent = req.sent().map(|sent| covered(&self.geometry, sent));
            self.notices.extend(self.gate.readmit(&mut req.admission, sent));
        }
        self.retry_gated();
    }

    fn change_shape(&mut self, geometry: &Geometry, usable: Sectors) {
        assert!(usable <= geometry.array_sectors(), "no more can be used than there is");
        // Requests under way may still be behind an end that came nearer: until the next change they keep the old one.
        let end = geometry.array_sectors().0;
        if self.reqs.values().all(|req| req.range().1 <= end) {
            self.geometry = geometry.clone();
        }
        assert_eq!(self.geometry.raid_disks(), geometry.raid_disks(), "no copy is left out");
        self.members.set_slots(geometry.raid_disks());
        self.usable = usable;
        self.note(Notice::ShapeHeard);
    }

    fn advance(&mut self, key: ReqKey) {
        loop {
            let (start, end) = self.reqs[key].window(&self.geometry);
            self.reqs[key].begin_window((start, end));
            match &self.geometry {
                Geometry::Parity(_) => self.issue_parity(key, start, end),
                _ => self.issue_direct(key, start, end),
            }
            let req = &mut self.reqs[key];
            if !req.part_done(None) {
                return;
            }
            if req.is_issued() || req.error().is_some() || req.admission.holds_bits() {
                return self.window_done(key);
            }
        }
    }

    /// One of a request's parts has ended.
    pub(crate) fn child_done(&mut self, key: ReqKey, error: Option<RequestError>) {
        let req = &mut self.reqs[key];
        if req.part_done(error) {
            self.window_done(key);
        } else if req.may_reply() {
            self.reply_early(key);
        }
    }

    fn window_done(&mut self, key: ReqKey) {
        let req = &mut self.reqs[key];
        self.gate.window_done(&mut req.admission);
        match req.error() {
            // Of long reads several members may each have another page that they cannot read, and all of what was
            // read counts as bad until its pages have been tried.
            Some(RequestError::Io) if req.may_retry() && self.repairs.is_running() => {
                self.repairs.await_end(key);
            }
            Some(error) => self.finish(key, Err(error)),
            None if req.is_issued() => match req.merge() {
                Some(copy) => {
                    self.emit(Effect::Compute(copy));
                    self.pass_gates(key);
                }
                None => self.finish(key, Ok(())),
            },
            None if req.kind().is_write() => self.pass_gates(key),
            None => self.advance(key),
        }
    }

    fn retry_reads(&mut self) {
        for key in self.repairs.take_reads() {
            self.reqs[key].restart();
            self.advance(key);
        }
    }

    /// Has the owner asked for a foreign read: what it needs more than members have is the owner's to do.
    pub(crate) fn decline(&mut self, key: ReqKey) {
        self.reqs[key].fail(RequestError::Io);
    }

    /// Answers a write of which only copies are on their way.
    fn reply_early(&mut self, key: ReqKey) {
        let req = &mut self.reqs[key];
        let (id, kind) = (req.id(), req.kind());
        if let Some(copies) = &mut req.copies {
            copies.reply();
        }
        self.reply(id, kind, Ok(()));
    }

    fn reply(&mut self, id: RequestId, kind: RequestKind, result: Result<(), RequestError>) {
        self.stats.requests += 1;
        let is_unrecorded = self.members.unrecorded();
        if let Some(reply) = self.gate.reply(Reply { id, result }, kind, is_unrecorded) {
            self.emit(Effect::Reply(reply));
        }
    }

    fn finish(&mut self, key: ReqKey, result: Result<(), RequestError>) {
        let mut req = self.reqs.finish(key);
        if req.is_foreign() && result.is_err() {
            self.effects.push_back(Effect::Declined(req.id()));
            return;
        }
        let copies = req.copies.take();
        match copies.as_ref().is_some_and(Copies::is_replied) {
            false => self.reply(req.id(), req.kind(), result),
            // What was answered is nowhere any more.
            true if result.is_err() => self.break_off(None),
            true => {}
        }
        if let Some(copies) = copies {
            self.end_copies(&copies);
        }
        if req.claims() {
            self.gate.write_ended(self.now, &req.admission);
            if let Some(stream) = req.stream {
                self.stripes.leave_stream(stream);
            }
            self.release(req.start());
        }
    }

    fn open_gate(&mut self, state: GateState) {
        self.gate.set(state);
        if self.gate.is_broken() {
            self.refuse_waiting();
            self.close_journal();
            self.effects.extend(self.gate.fail_held().into_iter().map(Effect::Reply));
        }
        self.retry_gated();
    }

    fn retry_gated(&mut self) {
        for key in self.gate.take_waiting() {
            self.pass_gates(key);
        }
    }
}
