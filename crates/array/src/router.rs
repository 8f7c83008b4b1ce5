//! One shard's part in the protocol between shards: which part of a request is whose, what waits, who is told of the
//! end.
//!
//! A request that crosses a span's end is cut, and its parts go to their owners. A read is done by the shard that was
//! asked for it, whoever owns the sectors, and goes to the owners only where the engine declines it, or where one shard
//! writes all. While one shard is dealt everything no request leaves the shard that was asked.
//!
//! Invariants:
//! - a request is answered once, when all its parts have ended, here or elsewhere;
//! - while paused nothing new begins but parts that peers ask for, and no peer hears of a part's end before what that
//!   had mended is done: it would say that it waits, and others might own the place then;
//! - a read of what others own begins only after the shard has heard all that it had been told when the read came.

use crate::{
    SpanMap,
    mover::{Mover, Unit, unit, units},
};
use alloc::{collections::VecDeque, vec::Vec};
use core::{mem, ops::Range};
use lapstrake_engine::{
    Buf, Ended, Hold, Notice, PieceId, Request, RequestError, RequestId, RequestKind, Shard,
    SyncAction, SyncPiece, SyncReport, World,
};
use lapstrake_geometry::{Sector, Sectors};
use slab::Slab;

/// A shard's memory and members, and the way to who waits: other shards, callers, the coordinator.
pub trait RouterWorld: World {
    /// Names who asks this shard for something.
    type Caller;
    /// A place in memory that every shard can use.
    type Address: Copy;

    /// Gives memory that is not this shard's a name here.
    fn lend(&mut self, address: Self::Address) -> Buf;
    /// Takes such a name back.
    fn unlend(&mut self, buf: Buf);
    /// The address so many sectors further.
    fn advance(address: Self::Address, sectors: u32) -> Self::Address;
    /// Sends to other shards, and answers callers.
    ///
    /// # Errors
    /// A shard that was to be asked is gone.
    fn send(&mut self, outgoing: Outgoing<Self::Caller, Self::Address>) -> Result<(), ShardGone>;
    /// Tells the coordinator.
    fn notify(&mut self, notice: Notice);
    /// A request is about to be brought to the shard. A world that watches each, as the simulation's oracle does, may give
    /// it a name of its own, which [`Self::request_ended`] takes back.
    fn request_begins(&mut self, request: Request) -> Request {
        request
    }
    /// As [`Self::request_begins`], of data that is written where the array's new geometry has it.
    fn move_begins(&mut self, request: Request) -> Request {
        request
    }
    /// Memory of so many sectors for what is moved, until something is moved again. None: there is not so much.
    fn memory_to_move(&mut self, sectors: u64) -> Option<Self::Address>;
    /// Fills so many sectors of memory with zeros.
    fn clear(&mut self, address: Self::Address, sectors: u64);
    /// The shard is done with a request.
    fn request_ended(&mut self, ended: Ended) -> Ended {
        ended
    }
}

/// A request, or the part of one that another shard is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RoutedRequest<A> {
    /// What is wanted. Unless it comes from a client of this very shard its buffer stands for `memory`.
    pub kind: RequestKind,
    /// Where the data is, or goes.
    pub memory: Option<A>,
    /// First sector of the array.
    pub sector: u64,
    /// Sectors.
    pub len: u64,
    /// A read of what a reshape moves ([`Shard::handle_moved_read`]).
    pub is_moved: bool,
}

/// Who waits for a request's end.
#[derive(Debug)]
enum Origin<C, A> {
    Caller(C),
    Peer { shard: usize, key: usize },
    Move(Unit<A>),
}

/// What is to be sent.
#[derive(Debug)]
pub enum Outgoing<C, A> {
    /// To another shard, for its [`Router::take_over`].
    Request {
        /// The shard.
        to: usize,
        /// To be given back with the end.
        key: usize,
        /// The part.
        request: RoutedRequest<A>,
    },
    /// To the shard that asked, for its [`Router::peer_replied`].
    Reply {
        /// The shard.
        to: usize,
        /// As it was given.
        key: usize,
        /// How it went.
        result: Result<(), RequestError>,
    },
    /// To who asked for all of it.
    Answer {
        /// As it was given.
        caller: C,
        /// How it went.
        result: Result<(), RequestError>,
    },
}

/// A request could not be sent: the shard that owns its sectors has ended.
#[derive(Clone, Copy, Debug)]
pub struct ShardGone {
    /// Of [`Outgoing::Request`].
    pub key: usize,
}

#[derive(Debug)]
struct Pending<C, A> {
    origin: Origin<C, A>,
    /// A read of sectors that are not all this shard's: what to ask of their owners if the engine declines it.
    foreign: Option<RoutedRequest<A>>,
    parts: u32,
    result: Result<(), RequestError>,
    lent: Option<Buf>,
}

/// A request that has not begun, and whether its buffer is this shard's own.
type Waiting<C, A> = (C, RoutedRequest<A>, bool);

/// See the module's head. `C` names callers, `A` memory.
#[derive(Debug)]
pub struct Router<C, A> {
    index: usize,
    shards: usize,
    spans: SpanMap,
    paused: bool,
    /// What came while paused, and writes to what is being moved.
    backlog: VecDeque<Waiting<C, A>>,
    /// Reads, which may be of what others own.
    unheard: VecDeque<Waiting<C, A>>,
    pending: Slab<Pending<C, A>>,
    /// Ends that peers have not been told yet: whose, its key, how it went.
    late: Vec<(usize, usize, Result<(), RequestError>)>,
    outgoing: VecDeque<Outgoing<C, A>>,
    mover: Mover<A>,
}

impl<C, A: Copy> Router<C, A> {
    /// The router of shard `index` of `shards`.
    #[must_use]
    pub fn new(index: usize, shards: usize, spans: SpanMap) -> Self {
        assert!(index < shards, "shard {index} of {shards}");
        Self {
            index,
            shards,
            spans,
            paused: false,
            backlog: VecDeque::new(),
            unheard: VecDeque::new(),
            pending: Slab::new(),
            late: Vec::new(),
            outgoing: VecDeque::new(),
            mover: Mover::new(),
        }
    }

    /// Has `world` carry out all that the shard and its router want.
    pub fn drive<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
    ) {
        loop {
            shard.carry_out(world, |shard, world, ended| match world.request_ended(ended) {
                Ended::Replied(reply) => self.part_done(world, reply.id.0 as usize, reply.result),
                Ended::Declined(id) => self.declined(shard, world, id),
            });
            let Some((unit, result)) = self.mover.poll_ended() else { break };
            self.unit_ended(shard, world, unit, result);
        }
        self.answer_peers(shard);
        while let Some(outgoing) = self.outgoing.pop_front() {
            if let Err(ShardGone { key }) = world.send(outgoing) {
                self.part_done(world, key, Err(RequestError::Io));
            }
        }
        while let Some(notice) = shard.poll_notice() {
            world.notify(notice);
        }
    }

    /// A request of a caller. `is_own`: its buffer is this shard's own, and is not to be lent.
    pub fn request<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        caller: C,
        request: RoutedRequest<A>,
        is_own: bool,
    ) {
        if !self.spans.has_one_owner() && matches!(request.kind, RequestKind::Read(_)) {
            return self.unheard.push_back((caller, request, is_own));
        }
        self.route(shard, world, caller, request, is_own);
    }

    /// Whether reads wait until the shard has read what it was sent: then [`Self::start_reads`] is due.
    #[must_use]
    pub fn has_unheard(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// Whether the shard finds every sector, since all shards have one geometry.
    #[must_use]
    pub fn has_one_geometry(&self) -> bool {
        self.spans.has_one_geometry()
    }

    /// Whether spans are about to change hands, or geometries, so that this shard may already go by another than others.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.paused
    }

    /// Begins the reads that waited for that. A client may have asked for one because of an answer, and the answer may
    /// have been given because of something that this shard had been told, but not read yet
    /// ([`Shard::handle_foreign_read`]).
    pub fn start_reads<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
    ) {
        for (caller, request, is_own) in mem::take(&mut self.unheard) {
            self.route(shard, world, caller, request, is_own);
        }
    }

    fn route<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        caller: C,
        request: RoutedRequest<A>,
        is_own: bool,
    ) {
        let sectors = request.sector..request.sector.saturating_add(request.len);
        let is_held = match self.spans.hold(&sectors) {
            None => false,
            Some(Hold::Writes) => request.kind.is_write(),
            Some(Hold::All) => true,
            Some(Hold::Lost) => {
                let result = Err(RequestError::Io);
                return self.outgoing.push_back(Outgoing::Answer { caller, result });
            }
        };
        if self.paused || is_held {
            return self.backlog.push_back((caller, request, is_own));
        }
        if self.spans.front().is_some() {
            shard.tell_of_requests(world.now());
        }
        let parts = self.parts(shard, &request);
        let is_all_own = parts.iter().all(|part| part.0 == self.index);
        let is_read = matches!(request.kind, RequestKind::Read(_));
        // Where there is one writer only it knows what was answered: what is in the journal, or left behind. What lies in
        // another geometry this shard would not find.
        let may_read_all = self.spans.has_one_geometry() && !self.spans.has_one_owner();
        if is_all_own || !may_read_all || !is_read {
            let (key, request) =
                self.admit(world, Origin::Caller(caller), request, is_own, parts.len());
            return self.hand_out(shard, world, key, &request, &parts);
        }
        let (key, request) = self.admit(world, Origin::Caller(caller), request, is_own, 1);
        if shard.is_read_only() {
            return self.hand_out(
                shard,
                world,
                key,
                &request,
                &[(self.index, request.sector, request.len)],
            );
        }
        // Most reads need nothing of what the owners alone know, and a way there and back costs more than they do.
        self.pending[key].foreign = Some(request);
        let request = engine_request(key, request.kind, request.sector, request.len);
        shard.handle_foreign_read(world.now(), world.request_begins(request));
    }

    /// The shard has declined a read of what others own: their owners are asked.
    fn declined<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        id: RequestId,
    ) {
        let key = id.0 as usize;
        let request = self.pending[key].foreign.take().expect("declined once");
        if self.paused {
            // An owner that has said that it waits must not begin to mend: others may own the place when that ends.
            let pending = self.pending.remove(key);
            let Origin::Caller(caller) = pending.origin else {
                unreachable!("only callers' reads are of what others own")
            };
            let is_own = pending.lent.is_none();
            if let Some(buf) = pending.lent {
                world.unlend(buf);
            }
            return self.backlog.push_back((caller, request, is_own));
        }
        let parts = self.parts(shard, &request);
        self.pending[key].parts = parts.len() as u32;
        self.hand_out(shard, world, key, &request, &parts);
    }

    /// Who does which part. A flush is not cut: it makes durable what was answered, on all members, whoever wrote it;
    /// but for what others have left behind, and where shards have different members.
    fn parts(&self, shard: &Shard, request: &RoutedRequest<A>) -> Vec<(usize, u64, u64)> {
        let (start, end) = (request.sector, request.sector.saturating_add(request.len));
        if request.kind == RequestKind::Flush {
            let is_of_all = shard.may_write_behind() || !self.spans.has_one_geometry();
            let shards = if is_of_all { 0..self.shards } else { self.index..self.index + 1 };
            // Who has nothing of a client's yet may be copying to members that fail.
            let idle = self.spans.front().filter(|front| front.has_moved_nothing());
            let shards = shards.filter(|&shard| idle.is_none_or(|front| front.shard != shard));
            return shards.map(|shard| (shard, start, request.len)).collect();
        }
        let mut parts = self.spans.parts(start..end);
        if parts.is_empty() {
            parts.push((self.index, start, request.len));
        }
        parts
    }

    /// The first span from `at` on that this shard owns, or what is left of it there; none if it owns nothing.
    #[must_use]
    pub fn owned(&self, at: u64) -> Option<Range<u64>> {
        self.spans.owned(self.index, at)
    }

    /// A part that shard `from` asks for.
    pub fn take_over<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        from: usize,
        key: usize,
        request: RoutedRequest<A>,
    ) {
        let parts = [(self.index, request.sector, request.len)];
        let (key, request) =
            self.admit(world, Origin::Peer { shard: from, key }, request, false, parts.len());
        self.hand_out(shard, world, key, &request, &parts);
    }

    /// Makes a request's entry: its key, and the request with its memory under this shard's name.
    fn admit<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        world: &mut W,
        origin: Origin<C, A>,
        request: RoutedRequest<A>,
        is_own: bool,
        parts: usize,
    ) -> (usize, RoutedRequest<A>) {
        let lent = request.memory.filter(|_| !is_own).map(|memory| world.lend(memory));
        let kind = lent.map_or(request.kind, |buf| with_buf(request.kind, buf));
        let pending = Pending { origin, foreign: None, parts: parts as u32, result: Ok(()), lent };
        (self.pending.insert(pending), RoutedRequest { kind, ..request })
    }

    fn hand_out<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        key: usize,
        request: &RoutedRequest<A>,
        parts: &[(usize, u64, u64)],
    ) {
        for &(owner, sector, len) in parts {
            let skip = (sector - request.sector) as u32;
            if owner == self.index {
                let kind = request.kind.advance_sectors(skip);
                let part = world.request_begins(engine_request(key, kind, sector, len));
                match request.is_moved {
                    true => shard.handle_moved_read(world.now(), part),
                    false => shard.handle_request(world.now(), part),
                }
            } else {
                let memory = request.memory.map(|address| W::advance(address, skip));
                let request = RoutedRequest { memory, sector, len, ..*request };
                self.outgoing.push_back(Outgoing::Request { to: owner, key, request });
            }
        }
    }

    /// A peer's answer to a part.
    pub fn peer_replied<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        world: &mut W,
        key: usize,
        result: Result<(), RequestError>,
    ) {
        self.part_done(world, key, result);
    }

    fn part_done<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        world: &mut W,
        key: usize,
        result: Result<(), RequestError>,
    ) {
        let pending = &mut self.pending[key];
        assert!(pending.parts > 0, "request {key} ended twice");
        pending.parts -= 1;
        pending.result = pending.result.and(result);
        if pending.parts > 0 {
            return;
        }
        let Pending { origin, result, lent, .. } = self.pending.remove(key);
        if let Some(buf) = lent {
            world.unlend(buf);
        }
        match origin {
            Origin::Caller(caller) => {
                self.outgoing.push_back(Outgoing::Answer { caller, result });
            }
            Origin::Peer { shard, key } => self.late.push((shard, key, result)),
            Origin::Move(unit) => self.mover.ended(unit, result),
        }
    }

    /// A piece of a sync action, which this shard is to do.
    pub fn sync<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        piece: SyncPiece,
    ) {
        if piece.action != SyncAction::Reshape {
            return shard.handle_sync(world.now(), piece);
        }
        let unit = unit(shard.geometry());
        let is_overwritten = self.spans.front().is_some_and(|front| front.hold == Hold::All);
        let units = match is_overwritten {
            true => piece.len.0.div_ceil(unit) as u32,
            false => units(unit, piece.len.0),
        };
        let Some(memory) = world.memory_to_move(unit * u64::from(units)) else {
            return world.notify(moved(piece.id, false));
        };
        self.mover.begin(&piece, unit, is_overwritten);
        for index in 0..units {
            self.begin_unit(shard, world, W::advance(memory, index * unit as u32));
        }
    }

    /// Begins to move the next unit, if there is one.
    fn begin_unit<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        memory: A,
    ) {
        let Some((sectors, held)) = self.mover.next() else { return };
        let (start, len) = (sectors.start, sectors.end - sectors.start);
        world.clear(W::advance(memory, held as u32), len - held);
        let unit = Unit { sectors, memory, is_read: true };
        if held == 0 {
            return self.write_unit(shard, world, unit);
        }
        let (kind, memory) = (RequestKind::Read(Buf::ZERO), Some(memory));
        let request = RoutedRequest { kind, memory, sector: start, len: held, is_moved: true };
        let parts = self.spans.parts(start..start + held);
        let origin = Origin::Move(Unit { is_read: false, ..unit });
        let (key, request) = self.admit(world, origin, request, false, parts.len());
        self.hand_out(shard, world, key, &request, &parts);
    }

    fn write_unit<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        unit: Unit<A>,
    ) {
        let (start, memory) = (unit.sectors.start, unit.memory);
        let len = unit.sectors.end - start;
        let kind = RequestKind::Write { buf: Buf::ZERO, fua: false, followed: false };
        let memory = Some(memory);
        let request = RoutedRequest { kind, memory, sector: start, len, is_moved: false };
        let (key, request) = self.admit(world, Origin::Move(unit), request, false, 1);
        let request = engine_request(key, request.kind, start, len);
        shard.handle_request(world.now(), world.move_begins(request));
    }

    fn unit_ended<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        unit: Unit<A>,
        result: Result<(), RequestError>,
    ) {
        if !unit.is_read && result.is_ok() && self.mover.goes_on() {
            for unit in self.mover.read(Unit { is_read: true, ..unit }) {
                self.write_unit(shard, world, unit);
            }
            return;
        }
        let (memory, ok) = (unit.memory, result.is_ok() && self.mover.goes_on());
        if let Some((id, ok)) = self.mover.moved(ok) {
            return world.notify(moved(id, ok));
        }
        self.begin_unit(shard, world, memory);
    }

    /// Tells peers what has ended, if they may hear it. Due when the shard wants nothing more.
    fn answer_peers(&mut self, shard: &Shard) {
        if self.paused && !shard.is_sync_idle() {
            return;
        }
        for (to, key, result) in self.late.drain(..) {
            self.outgoing.push_back(Outgoing::Reply { to, key, result });
        }
    }

    /// Nothing new is to begin: spans are about to change hands.
    pub fn pause(&mut self, shard: &mut Shard) {
        self.paused = true;
        shard.hurry();
    }

    /// Whether nothing that began here, or of the engine's own, is still running after [`Self::pause`].
    #[must_use]
    pub fn is_paused(&self, shard: &Shard) -> bool {
        let is_idle = shard.is_sync_idle() && shard.is_behind_idle();
        let is_peers = |pending: &Pending<C, A>| matches!(pending.origin, Origin::Peer { .. });
        self.paused && is_idle && self.pending.iter().all(|(_, pending)| is_peers(pending))
    }

    /// Spans have changed hands: what waited begins.
    pub fn redealt<W: RouterWorld<Caller = C, Address = A>>(
        &mut self,
        shard: &mut Shard,
        world: &mut W,
        spans: SpanMap,
    ) {
        self.spans = spans;
        self.paused = false;
        for (caller, request, is_own) in mem::take(&mut self.backlog) {
            self.request(shard, world, caller, request, is_own);
        }
    }

    /// Whether no request is here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.backlog.is_empty() && self.unheard.is_empty()
    }
}

/// The end of a piece that was to be moved.
fn moved(id: PieceId, ok: bool) -> Notice {
    let (requests, mismatch_sectors, mismatches) = (0, 0, Vec::new());
    Notice::Synced(SyncReport { id, ok, mismatch_sectors, mismatches, requests })
}

fn engine_request(key: usize, kind: RequestKind, sector: u64, len: u64) -> Request {
    Request { id: RequestId(key as u64), kind, sector: Sector(sector), len: Sectors(len) }
}

fn with_buf(kind: RequestKind, buf: Buf) -> RequestKind {
    match kind {
        RequestKind::Read(_) => RequestKind::Read(buf),
        RequestKind::Write { fua, followed, .. } => RequestKind::Write { buf, fua, followed },
        RequestKind::WritePart { old, skip, len, fua, .. } => {
            RequestKind::WritePart { buf, old, skip, len, fua }
        }
        other => other,
    }
}
