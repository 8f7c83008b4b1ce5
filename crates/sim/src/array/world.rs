//! What an array's shard and coordinator want, carried out in virtual time: the core's work by its prices, members'
//! commands by models of disks.

use super::prices::Prices;
use super::stripe_cache::{PAGE, StripeCache};
use super::{Asked, Command, Due, Incoming, Plugged, REQUEST_MAX, time};
use crate::agenda::Agenda;
use lapstrake_engine::{
    Comparison, Compute, Ended, Finding, IoKind, MemberId, MemberIo, MetaWrite, Reply, Seal,
    SyncAction, SyncEnd, Target, Time, World,
};
use lapstrake_geometry::{Geometry, Sector, Sectors};
use lapstrake_model::{Completion, Nanos, Op, Request, Volume};
use slab::Slab;
use std::collections::VecDeque;

/// The core, the members, and all that is on its way between them.
pub(super) struct TimedWorld {
    pub(super) geometry: Geometry,
    pub(super) members: Vec<Box<dyn Volume>>,
    pub(super) prices: Prices,
    /// When the core has done all that it has taken in.
    pub(super) free_at: Nanos,
    pub(super) spent: Nanos,
    /// Of that, in the contexts of those who submitted requests; only md's do so.
    pub(super) called: Nanos,
    pub(super) calls: bool,
    /// Copies of each page of a write that its caller makes bios for, besides the first.
    pub(super) page_copies: u64,
    pub(super) now: Nanos,
    pub(super) inbox: VecDeque<(Nanos, Incoming)>,
    /// Of md's parity levels: what holds writes before the engine has them.
    pub(super) stripe_cache: Option<StripeCache>,
    /// Bitmap pages and superblocks on their way, and the flushes before them, for which md's thread waits; and what
    /// came meanwhile.
    pub(super) meta_writes: usize,
    pub(super) stalled: VecDeque<(Nanos, Incoming)>,
    /// Reads of md's parity levels, which go chunk by chunk: their tags, and parts left.
    pub(super) reads: Slab<(u64, usize)>,
    /// Where members' last commands ended, and what these were.
    pub(super) command_ends: Vec<(Op, Sector)>,
    /// Where members' data begin.
    pub(super) data_offsets: Vec<Sector>,
    /// When members are due, as they were looked at last.
    pub(super) dues: Vec<Nanos>,
    pub(super) agenda: Agenda<Due>,
    /// Requests under way, by the engine's name for them.
    pub(super) requests: Slab<Asked>,
    /// Members' commands under way, by the tags of what they went in.
    pub(super) commands: Slab<Vec<Command>>,
    /// What md's thread (from Linux 3.6 on) holds back until its batch is done (`blk_plug`).
    pub(super) plugged: Vec<Plugged>,
    pub(super) answered: VecDeque<Completion>,
    pub(super) ended: Vec<(SyncAction, SyncEnd, Nanos)>,
    /// When the engine wants to be called next whatever comes.
    pub(super) timer: Option<Nanos>,
    /// All that happens up to `now` has been done.
    pub(super) is_settled: bool,
    /// When the core has done what it was given of the batch at hand.
    pub(super) clock: Nanos,
}

impl TimedWorld {
    /// When something is to be done next, besides handing out answers.
    pub(super) fn next_step(&self) -> Option<Nanos> {
        self.first(self.members.iter().filter_map(|member| member.next_event()).min())
    }

    /// The same, and notes which members are due when.
    pub(super) fn look(&mut self) -> Option<Nanos> {
        let mut first = Nanos::MAX;
        for (due, member) in self.dues.iter_mut().zip(&self.members) {
            *due = member.next_event().unwrap_or(Nanos::MAX);
            first = first.min(*due);
        }
        self.first(Some(first).filter(|first| *first < Nanos::MAX))
    }

    /// Of all that is to be done, where members are due at this time.
    pub(super) fn first(&self, members: Option<Nanos>) -> Option<Nanos> {
        let agenda = self.agenda.next().map(Nanos);
        let waiting = self.inbox.front().map(|(at, _)| *at);
        let core = [waiting, self.timer].into_iter().flatten().min();
        let core = core.map(|at| at.max(self.free_at));
        let stripe_cache = self.stripe_cache.as_ref().and_then(StripeCache::deadline);
        [agenda, members, core, stripe_cache].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Requests that the stripe cache releases go to the core, and writes that it has ended to their callers.
    pub(super) fn let_in(&mut self, at: Nanos) {
        let answers = self.stripe_cache.iter_mut().flat_map(StripeCache::answers);
        self.answered.extend(answers.map(|tag| Completion { tag, at }));
        for piece in self.stripe_cache.iter_mut().flat_map(StripeCache::orders) {
            self.inbox.push_back((at, Incoming::Request(piece, Asked::StripeCache(piece.tag))));
        }
    }

    /// What md does for a read before its caller goes on (`make_request`): to send what is read of members; of a missing
    /// one, for each page.
    pub(super) fn call(&self, request: &Request, asked: Asked) -> Nanos {
        if let Asked::Page(_) = asked {
            return self.prices.page * (1 + self.members.len() as u64);
        }
        let chunk = match &self.geometry {
            Geometry::Raid0(map) => map.chunk().0,
            Geometry::Raid10(map) => map.chunk().0,
            _ => request.blocks,
        };
        let commands = request.blocks.div_ceil(chunk.max(1)).min(self.members.len() as u64);
        self.prices.request(request) + self.prices.command() * commands
    }

    /// md's read in parts, each within a chunk (`raid5_mergeable_bvec`): what one of them reads to make up for a missing
    /// member, the others read for themselves. That goes through heads, page by page, and is copied out of them.
    pub(super) fn read_in_parts(&mut self, request: Request, now: Nanos) {
        let stripe_cache = self.stripe_cache.as_ref().expect("it is md's");
        let mut parts = Vec::new();
        let (mut lba, end) = (request.lba, request.lba + request.blocks);
        let read = self.reads.vacant_key();
        while lba < end {
            let is_there = stripe_cache.is_there(Sector(lba));
            let unit = if is_there { stripe_cache.chunk() } else { PAGE };
            let blocks = (unit - lba % unit).min(end - lba);
            let asked = if is_there { Asked::Part(read) } else { Asked::Page(read) };
            parts.push((now, Incoming::Request(Request { lba, blocks, ..request }, asked)));
            lba += blocks;
        }
        self.reads.insert((request.tag, parts.len()));
        self.inbox.extend(parts);
    }

    pub(super) fn unplug(&mut self, at: Nanos) {
        if let Some(stripe_cache) = &mut self.stripe_cache {
            stripe_cache.unplug(at);
            self.let_in(at);
        }
    }

    pub(super) fn send(
        &mut self,
        member: MemberId,
        op: Op,
        sector: Sector,
        len: Sectors,
        command: Command,
    ) {
        // Pages in a row become one request in the member's queue.
        let end = &mut self.command_ends[usize::from(member.0)];
        let joins = self.stripe_cache.is_some() && len.0 <= PAGE && *end == (op, sector);
        *end = (op, sector + len);
        self.clock += if joins { self.prices.page } else { self.prices.command() };
        let is_plugged = self.stripe_cache.as_ref().is_some_and(StripeCache::has_thread)
            && matches!(op, Op::Read | Op::Write);
        if !is_plugged {
            // It overtakes nothing.
            self.unplug_commands(self.clock);
        }
        self.plugged.push(Plugged { member, op, sector, len, command });
        if !is_plugged {
            self.unplug_commands(self.clock);
        }
    }

    /// What is held back goes, neighbours as one request.
    pub(super) fn unplug_commands(&mut self, at: Nanos) {
        let mut plugged = std::mem::take(&mut self.plugged);
        plugged.sort_by_key(|it| (it.member.0, it.op != Op::Read, it.sector));
        let mut plugged = plugged.into_iter().peekable();
        while let Some(Plugged { member, op, sector, mut len, command }) = plugged.next() {
            let mut commands = vec![command];
            while let Some(next) = plugged.next_if(|next| {
                (next.member, next.op, next.sector) == (member, op, sector + len)
                    && len.0 + next.len.0 <= REQUEST_MAX
            }) {
                len = Sectors(len.0 + next.len.0);
                commands.push(next.command);
            }
            let tag = self.commands.insert(commands) as u64;
            let request = Request { tag, op, lba: sector.0, blocks: len.0 };
            self.agenda.add(at.0, Due::Send { member, request });
        }
    }

    pub(super) fn write_meta(&mut self, write: &MetaWrite) {
        let Target::Member(member) = write.target else {
            unreachable!("the bitmap is on the members");
        };
        let len = Sectors(write.data.len() as u64 / 512);
        self.meta_writes += usize::from(self.stripe_cache.is_some());
        if self.calls && !write.vouches {
            // All that md writes of its own flushes the member before (`md_super_write`), also what only tells of
            // writes to come.
            self.send(member, Op::Flush, Sector(0), Sectors(0), Command::Preflush);
        }
        self.send(member, Op::WriteThrough, write.sector, len, Command::Meta(write.id));
    }

    /// What a request costs the core, `front` once for those that come together, and its caller.
    pub(super) fn charge(&mut self, request: &Request, asked: Asked, front: &mut Nanos) {
        if self.calls && request.op == Op::Read && !matches!(asked, Asked::StripeCache(_)) {
            self.called += self.call(request, asked);
        }
        if matches!(request.op, Op::Write | Op::WriteThrough) {
            let copied = self.prices.page * (self.page_copies * request.blocks.div_ceil(PAGE));
            self.called += copied;
            self.clock += copied;
        }
        self.clock += match asked {
            Asked::Page(_) => self.prices.restored_page(),
            _ => std::mem::take(front) + self.prices.request(request),
        };
    }

    /// All of a batch has been taken in and done that came `at` once.
    pub(super) fn batch_ends(&mut self, at: Nanos) {
        self.unplug_commands(self.clock);
        self.spent += self.clock.since(at);
        self.free_at = self.clock;
    }

    /// A metadata write has ended.
    pub(super) fn meta_ended(&mut self) {
        self.meta_writes = self.meta_writes.saturating_sub(1);
        if self.meta_writes == 0 {
            // It came before what is in the inbox still.
            self.stalled.append(&mut self.inbox);
            std::mem::swap(&mut self.stalled, &mut self.inbox);
        }
    }

    pub(super) fn flush_meta(&mut self, member: MemberId) {
        self.meta_writes += usize::from(self.stripe_cache.is_some());
        self.send(member, Op::Flush, Sector(0), Sectors(0), Command::BarrierFlush(member));
    }

    /// Whatever is due happens. Whether the core is free then, and has something to take in.
    pub(super) fn step(&mut self, at: Nanos) -> bool {
        self.now = at;
        // What is sent to one may be the other's business, on one cable.
        let is_quiet = self.agenda.next().is_none_or(|due| due > at.0);
        while self.agenda.next().is_some_and(|due| due <= at.0) {
            match self.agenda.pop().expect("seen just now") {
                Due::Send { member, request } => {
                    self.members[usize::from(member.0)].submit(request, at);
                }
                Due::Answer(Asked::Caller(tag)) => self.answered.push_back(Completion { tag, at }),
                Due::Answer(Asked::StripeCache(piece)) => {
                    let stripe_cache = self.stripe_cache.as_mut().expect("it asked");
                    stripe_cache.ended(piece, at);
                    self.let_in(at);
                }
                Due::Answer(Asked::Part(read) | Asked::Page(read)) => {
                    self.reads[read].1 -= 1;
                    if self.reads[read].1 == 0 {
                        let (tag, _) = self.reads.remove(read);
                        self.answered.push_back(Completion { tag, at });
                    }
                }
            }
        }
        let is_due =
            |stripe_cache: &&mut StripeCache| stripe_cache.deadline().is_some_and(|due| due <= at);
        if let Some(stripe_cache) = self.stripe_cache.as_mut().filter(is_due) {
            stripe_cache.run(at);
            self.let_in(at);
        }
        for (member, due) in self.members.iter_mut().zip(&self.dues) {
            if is_quiet && *due > at {
                continue;
            }
            while let Some(completion) = member.poll(at) {
                for command in self.commands.remove(completion.tag as usize) {
                    self.inbox.push_back((completion.at, Incoming::Command(command)));
                }
            }
        }
        let has_timer = self.timer.is_some_and(|due| due <= at);
        self.free_at <= at && (has_timer || !self.inbox.is_empty())
    }

    /// A request's caller is told when the core has come so far.
    pub(super) fn ended(&mut self, ended: Ended) {
        let Ended::Replied(Reply { id, result }) = ended else {
            unreachable!("there is one shard");
        };
        assert_eq!(result, Ok(()), "no member fails here, and requests are within the array");
        let asked = self.requests.remove(id.0 as usize);
        self.agenda.add(self.clock.0, Due::Answer(asked));
    }
}

/// What a member is told to do.
pub(super) fn op(kind: IoKind) -> Op {
    match kind {
        IoKind::Read => Op::Read,
        IoKind::Write { fua: false } | IoKind::WriteZeroes { fua: false, .. } => Op::Write,
        IoKind::Write { fua: true } | IoKind::WriteZeroes { fua: true, .. } => Op::WriteThrough,
        IoKind::Flush | IoKind::Discard => Op::Flush,
    }
}

impl World for TimedWorld {
    fn now(&self) -> Time {
        time(self.now)
    }

    fn start_io(&mut self, io: MemberIo) {
        let op = op(io.kind);
        let command = Command::Engine(io.id);
        if op != Op::Flush
            && let Some(stripe_cache) = &mut self.stripe_cache
        {
            let place = Sector(io.sector.0 - self.data_offsets[usize::from(io.member.0)].0);
            if op != Op::Read {
                stripe_cache.write_begins(place, io.len, self.clock);
                self.let_in(self.clock);
            } else if stripe_cache.knows(place, io.len) {
                self.inbox.push_back((self.clock, Incoming::Command(command)));
                return;
            }
        }
        self.send(io.member, op, io.sector, io.len, command);
    }

    fn compute(&mut self, work: &Compute) {
        self.clock += self.prices.compute(work);
    }

    fn seal(&mut self, _: &Seal) {
        unreachable!("there are no logs and no journal");
    }

    fn compare(&mut self, comparison: &Comparison) -> Vec<Finding> {
        self.clock += self.prices.compare(comparison);
        Vec::new()
    }
}
