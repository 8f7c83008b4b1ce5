//! One shard's thread without its clients: the engine, the queue, the memory, and the router's messages.

mod world;

use crate::{
    client::Memory as ClientMemory,
    complaints::Complaints,
    cut_request::CutRequest,
    holes::Questions,
    memory::{BufferClass, Memory},
    message::{Address, Message, Peer},
    runs::{PLACES_NS, Runs},
    status::Counters,
};
use lapstrake_array::{RoutedRequest, Router, SpanMap};
use lapstrake_control::MemberWork;
use lapstrake_device::{Member, Op, Pool, Queue};
use lapstrake_engine::{
    Buf, BufId, IoId, MemberId, Notice, Order, RequestError, RequestKind, Shard, ShardGeometry,
    SyncPiece, Time,
};
use lapstrake_volumes::{Map, Piece, Place};
use slab::Slab;
use std::{
    collections::VecDeque,
    ops::Range,
    os::fd::RawFd,
    sync::{Arc, PoisonError, atomic::Ordering, mpsc::Sender},
    time::Instant,
};
use tracing::{trace, warn};
use world::ShardWorld;

/// Who asked for a request.
#[derive(Debug)]
pub(crate) enum Caller {
    /// A client of this shard, by its key, and the request by the client's name for it.
    Client(usize, u64),
    /// A thread that is no shard.
    External(Sender<Result<(), RequestError>>),
    /// A client of this shard, of whose request this is a part, by the key of a [`CutRequest`].
    Part(usize),
}

#[derive(Debug, Default)]
pub(crate) struct ClientState {
    /// Operations and requests that have not ended.
    pub busy: u32,
    pub closing: bool,
    /// It has taken an answer, so it is a client in earnest.
    pub is_proven: bool,
    /// Memory that it holds; what is left is given back with the client.
    memory: Vec<BufId>,
    /// Its share, while it is in use; also in `memory`.
    share: Option<BufId>,
    /// How much of `memory` is of each class.
    held: [usize; BufferClass::ALL.len()],
    /// It waits for some, and so is among `waiters`.
    is_waiting: [bool; BufferClass::ALL.len()],
}

/// A client whose turn it is to get memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferGrant {
    pub client: usize,
    pub class: BufferClass,
    /// It got some. It goes before the others once.
    pub got: bool,
}

/// What a queue token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An I/O of the engine.
    Engine(IoId),
    /// A client's operation.
    Client { client: usize, tag: u32 },
    /// The flush after a durable write-zeroes, by its place in `flushing`.
    Flushing(u32),
    /// The coordinator's.
    Coordinator(u32),
}

impl Token {
    fn pack(self) -> u64 {
        match self {
            Self::Engine(id) => u64::from(id.0),
            Self::Client { client, tag } => 1 << 60 | (client as u64) << 32 | u64::from(tag),
            Self::Flushing(key) => 2 << 60 | u64::from(key),
            Self::Coordinator(key) => 3 << 60 | u64::from(key),
        }
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let low = word as u32;
        match word >> 60 {
            0 => Self::Engine(IoId(low)),
            1 => Self::Client { client: (word >> 32) as usize & 0x0fff_ffff, tag: low },
            2 => Self::Flushing(low),
            _ => Self::Coordinator(low),
        }
    }
}

/// See the module.
pub(crate) struct ShardRuntime {
    pub index: usize,
    pub peers: Arc<[Peer]>,
    pub engine: Shard,
    /// Before `memory`, so that it is dropped first: that is registered with its ring.
    pub queue: Queue,
    pub memory: Memory,
    pub clients: Slab<ClientState>,
    pub replies: VecDeque<(usize, u64, Result<(), RequestError>)>,
    pub notices: VecDeque<Notice>,
    /// Clients that found too little of a class, in the order in which they get some.
    waiters: [VecDeque<usize>; BufferClass::ALL.len()],
    /// The one whose turn it is.
    pub grant: Option<BufferGrant>,
    pub freed: bool,
    counters: Arc<Counters>,
    began: Instant,
    router: Router<Caller, Address>,
    /// What clients see of the array, if not all of it.
    view: Option<Arc<Map>>,
    cut: Slab<CutRequest>,
    pub questions: Questions,
    /// Those of which a part has ended, and more may begin.
    cut_ready: Vec<usize>,
    /// The queue's index of each member's device, and what was sent to it.
    devices: Vec<usize>,
    sent: Vec<MemberWork>,
    /// Members that are none any more, whose devices are not closed yet.
    removed: Vec<(MemberId, Arc<Member>)>,
    flushing: Slab<IoId>,
    zeroing: Vec<(IoId, usize)>,
    /// Through which data goes from one geometry to another.
    moving: Option<Pool>,
    failures: Runs<(usize, i32)>,
    /// What is told of clients, by its kind.
    complaints: Complaints,
}

impl std::fmt::Debug for ShardRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardRuntime").field("index", &self.index).finish_non_exhaustive()
    }
}

pub(crate) struct ShardRuntimeParts {
    pub index: usize,
    pub peers: Arc<[Peer]>,
    pub engine: Shard,
    /// Before `memory`, so that it is dropped first: that is registered with its ring.
    pub queue: Queue,
    pub memory: Memory,
    pub counters: Arc<Counters>,
    pub began: Instant,
    pub spans: SpanMap,
    /// How many members there are.
    pub members: usize,
}

impl ShardRuntime {
    pub(crate) fn new(parts: ShardRuntimeParts) -> Self {
        let shards = parts.peers.len();
        let this = Self {
            index: parts.index,
            peers: parts.peers,
            engine: parts.engine,
            queue: parts.queue,
            memory: parts.memory,
            clients: Slab::new(),
            replies: VecDeque::new(),
            notices: VecDeque::new(),
            waiters: [VecDeque::new(), VecDeque::new()],
            grant: None,
            freed: false,
            counters: parts.counters,
            began: parts.began,
            router: Router::new(parts.index, shards, parts.spans),
            view: None,
            cut: Slab::new(),
            questions: Questions::default(),
            cut_ready: Vec::new(),
            devices: (0..parts.members).collect(),
            sent: vec![MemberWork::default(); parts.members],
            removed: Vec::new(),
            flushing: Slab::new(),
            zeroing: Vec::new(),
            moving: None,
            failures: Runs::new(PLACES_NS),
            complaints: Complaints::default(),
        };
        this.publish();
        this
    }

    /// The queue's index of a member's device.
    pub(crate) fn device(&self, member: MemberId) -> usize {
        self.devices[usize::from(member.0)]
    }

    /// The next member's device.
    pub(crate) fn add_device(&mut self, device: Arc<Member>) {
        let index = self.queue.add_member(device);
        self.devices.push(index);
        self.sent.push(MemberWork::default());
    }

    /// The member's device is no longer used; it is closed when what runs on it has ended.
    pub(crate) fn remove_device(&mut self, member: MemberId) {
        let device = self.queue.remove_member(self.device(member)).expect("it is removed once");
        self.removed.push((member, device));
    }

    /// Closes devices that were removed and are idle.
    pub(crate) fn close_removed(&mut self) {
        let idle = self.removed.extract_if(.., |(_, device)| !self.queue.is_using(device));
        for (member, device) in idle {
            drop(device);
            self.peers[0].send(Message::DeviceRemoved(member));
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }

    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.began + std::time::Duration::from_nanos(time.0)
    }

    pub(crate) fn alloc_for(&mut self, client: usize, bytes: usize) -> Option<ClientMemory> {
        let (id, start) = match self.alloc_from_class(client, bytes) {
            Some(memory) => memory,
            None => self.alloc_share(client, bytes)?,
        };
        let state = &mut self.clients[client];
        state.memory.push(id);
        if let Some(class) = self.memory.class_of(id) {
            state.held[class as usize] += 1;
        }
        Some(ClientMemory { buf: Buf { id, offset: 0 }, start })
    }

    /// In turn: nobody takes what others have waited for, or a busy client would never let an idle one in.
    fn alloc_from_class(&mut self, client: usize, bytes: usize) -> Option<(BufId, *mut u8)> {
        let class = self.memory.class(bytes);
        let turn =
            self.grant.filter(|grant| grant.client == client && grant.class == class && !grant.got);
        let may = turn.is_some() || self.waiters[class as usize].is_empty();
        let memory = if may { self.memory.alloc(bytes) } else { None };
        if memory.is_some() {
            self.grant = turn.map(|grant| BufferGrant { got: true, ..grant }).or(self.grant);
        }
        memory
    }

    /// If that is in use, or too small, the client waits for its turn.
    fn alloc_share(&mut self, client: usize, bytes: usize) -> Option<(BufId, *mut u8)> {
        let class = self.memory.class(bytes);
        let state = &mut self.clients[client];
        if state.share.is_none()
            && let Some((id, start)) = self.memory.alloc_share(bytes)
        {
            state.share = Some(id);
            return Some((id, start));
        }
        if !std::mem::replace(&mut state.is_waiting[class as usize], true) {
            let waiters = &mut self.waiters[class as usize];
            match self.grant {
                Some(BufferGrant { client: grant, class: of, got: false })
                    if (grant, of) == (client, class) =>
                {
                    waiters.push_front(client);
                }
                _ => waiters.push_back(client),
            }
        }
        None
    }

    pub(crate) fn lend_for(&mut self, client: usize, start: *mut u8) -> ClientMemory {
        let id = self.memory.lend(start);
        self.clients[client].memory.push(id);
        ClientMemory { buf: Buf { id, offset: 0 }, start }
    }

    pub(crate) fn free(&mut self, client: usize, memory: ClientMemory) {
        let (id, class) = (memory.buf.id, self.memory.class_of(memory.buf.id));
        let state = &mut self.clients[client];
        let at = state.memory.iter().position(|&held| held == id);
        state.memory.swap_remove(at.expect("a client gives back what it was given, once"));
        state.is_proven = true;
        if let Some(class) = class {
            state.held[class as usize] -= 1;
        }
        state.share = state.share.filter(|&share| share != id);
        self.memory.free(id);
        self.freed = true;
    }

    pub(crate) fn drop_client(&mut self, client: usize) {
        self.stop_waiting(client);
        self.questions.forget(client);
        for id in self.clients.remove(client).memory {
            self.memory.free(id);
        }
    }

    /// Whether somebody waits for memory.
    pub(crate) fn is_short(&self) -> bool {
        self.waiters.iter().any(|waiters| !waiters.is_empty())
    }

    /// Whether a client holds some for which others wait.
    pub(crate) fn is_in_the_way(&self, client: usize) -> bool {
        let state = &self.clients[client];
        BufferClass::ALL.iter().any(|&class| {
            let others =
                self.waiters[class as usize].len() - usize::from(state.is_waiting[class as usize]);
            state.held[class as usize] > 0 && others > 0
        })
    }

    /// The next one who waits for memory of a class, which waits no more.
    pub(crate) fn next_waiter(&mut self, class: BufferClass) -> Option<usize> {
        let client = self.waiters[class as usize].pop_front()?;
        self.clients[client].is_waiting[class as usize] = false;
        Some(client)
    }

    /// Whether this one would be the next.
    pub(crate) fn is_first_waiter(&self, class: BufferClass, client: usize) -> bool {
        self.waiters[class as usize].front() == Some(&client)
    }

    pub(crate) fn request_from(
        &mut self,
        client: usize,
        id: u64,
        kind: RequestKind,
        sector: u64,
        len: u64,
    ) {
        trace!(client, id, ?kind, sector, sectors = len, "request");
        self.clients[client].busy += 1;
        let Some(view) = self.view.clone().filter(|_| len > 0) else {
            return self.route(Caller::Client(client, id), kind, whole(sector, len));
        };
        let rest = sector * 512..(sector + len) * 512;
        if rest.end > view.bytes() {
            return self.replies.push_back((client, id, Err(RequestError::OutOfRange)));
        }
        match view.pieces(rest.clone()).next() {
            Some(piece) if piece.len == len * 512 => {
                self.route(Caller::Client(client, id), kind, piece);
            }
            // A block of the members that what is shown cuts in two.
            _ if matches!(kind, RequestKind::WritePart { .. }) => {
                self.replies.push_back((client, id, Err(RequestError::Misaligned)));
            }
            _ => {
                let key = self.cut.insert(CutRequest::new(client, id, kind, rest));
                self.begin_parts(key);
            }
        }
    }

    /// Begins as many parts of a request as may be under way.
    fn begin_parts(&mut self, key: usize) {
        let view = self.view.clone().expect("requests are cut by it");
        let first = |rest| view.pieces(rest).next();
        while let Some((kind, piece)) = self.cut.get_mut(key).and_then(|cut| cut.next(first)) {
            self.route(Caller::Part(key), kind, piece);
        }
    }

    fn route(&mut self, caller: Caller, kind: RequestKind, piece: Piece) {
        let memory = buf_of(kind).map(|buf| Address(self.memory.ptr(buf)));
        let (sector, len) = (piece.place.offset / 512, piece.len / 512);
        let request = RoutedRequest { kind, memory, sector, len, is_moved: false };
        let (router, shard, mut world) = self.routing();
        router.request(shard, &mut world, caller, request, true);
    }

    /// The answer comes as a reply; then [`Questions::take`] has it.
    pub(crate) fn ask_for_holes(&mut self, client: usize, id: u64, range: Range<u64>) {
        self.clients[client].busy += 1;
        self.questions.ask(client, id, range);
    }

    /// Not while spans change hands: of which geometry this shard is then its router does not know yet.
    fn answer_questions(&mut self) {
        if self.router.is_halted() {
            return;
        }
        let Self { queue, engine, devices, router, view, replies, .. } = self;
        let device = |member: MemberId| queue.member(devices[usize::from(member.0)]);
        let shard = router.has_one_geometry().then_some(&*engine);
        for (client, id) in self.questions.answer(shard, &device, view.as_deref()) {
            replies.push_back((client, id, Ok(())));
        }
    }

    /// Clients see this in the array's place from now on.
    pub(crate) fn show(&mut self, view: Arc<Map>) {
        self.view = Some(view);
    }

    /// # Safety
    /// That of [`Queue::submit`].
    pub(crate) unsafe fn client_op(&mut self, client: usize, tag: u32, op: Op<'_>) {
        self.clients[client].busy += 1;
        // SAFETY: passed on to the caller.
        unsafe { self.queue.submit(Token::Client { client, tag }.pack(), op) };
    }

    /// # Safety
    /// That of [`Queue::submit`].
    pub(crate) unsafe fn coordinator_op(&mut self, key: u32, op: Op<'_>) {
        // SAFETY: passed on to the caller.
        unsafe { self.queue.submit(Token::Coordinator(key).pack(), op) };
    }

    pub(crate) fn cancel_fd(&mut self, fd: RawFd) {
        self.queue.cancel_fd(fd);
    }

    pub(crate) fn close_client(&mut self, client: usize) {
        self.clients[client].closing = true;
        self.stop_waiting(client);
    }

    fn stop_waiting(&mut self, client: usize) {
        self.waiters.iter_mut().for_each(|waiters| waiters.retain(|&other| other != client));
        self.clients[client].is_waiting = Default::default();
        // Whoever stood behind it may find enough now.
        self.freed = true;
    }

    /// The router, the shard, and what both need of the rest.
    fn routing(&mut self) -> (&mut Router<Caller, Address>, &mut Shard, ShardWorld<'_>) {
        let world = ShardWorld {
            index: self.index,
            peers: &self.peers,
            queue: &mut self.queue,
            memory: &mut self.memory,
            replies: &mut self.replies,
            cut: &mut self.cut,
            cut_ready: &mut self.cut_ready,
            notices: &mut self.notices,
            devices: &self.devices,
            sent: &mut self.sent,
            zeroing: &mut self.zeroing,
            moving: &mut self.moving,
            began: self.began,
        };
        (&mut self.router, &mut self.engine, world)
    }

    pub(crate) fn external(
        &mut self,
        request: RoutedRequest<Address>,
        answer: Sender<Result<(), RequestError>>,
    ) {
        let (router, shard, mut world) = self.routing();
        router.request(shard, &mut world, Caller::External(answer), request, false);
    }

    /// Work that another shard's client asked for and that this one owns.
    pub(crate) fn take_over(&mut self, from: usize, key: usize, request: RoutedRequest<Address>) {
        let (router, shard, mut world) = self.routing();
        router.take_over(shard, &mut world, from, key, request);
    }

    pub(crate) fn peer_replied(&mut self, key: usize, result: Result<(), RequestError>) {
        let (router, _, mut world) = self.routing();
        router.peer_replied(&mut world, key, result);
    }

    /// A piece of a sync action, which this shard is to do.
    pub(crate) fn sync(&mut self, piece: SyncPiece) {
        let (router, shard, mut world) = self.routing();
        router.sync(shard, &mut world, piece);
    }

    /// Goes by another geometry, while paused.
    pub(crate) fn take_geometry(&mut self, geometry: &ShardGeometry) {
        self.engine.take_geometry(self.now(), geometry);
        self.moving = None;
        self.peers[0].send(Message::Paused);
    }

    /// Nothing that was routed from here is still running.
    pub(crate) fn is_paused(&self) -> bool {
        self.router.is_paused(&self.engine)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.cut.is_empty() && self.router.is_idle() && self.engine.is_quiet()
    }

    pub(crate) fn pause(&mut self) {
        self.router.pause(&mut self.engine);
    }

    pub(crate) fn redealt(&mut self, spans: SpanMap) {
        let (router, shard, mut world) = self.routing();
        router.redealt(shard, &mut world, spans);
    }

    /// Whether reads wait until messages have been read: [`ShardRuntime::start_reads`] is due.
    pub(crate) fn has_unheard(&self) -> bool {
        self.router.has_unheard() || self.questions.are_open() && !self.router.is_halted()
    }

    pub(crate) fn start_reads(&mut self) {
        self.answer_questions();
        let (router, shard, mut world) = self.routing();
        router.start_reads(shard, &mut world);
    }

    /// See [`Router::owned`].
    pub(crate) fn owned(&self, at: u64) -> Option<Range<u64>> {
        self.router.owned(at).filter(|_| self.view.is_none())
    }

    /// Carries out what the shard and its router want.
    pub(crate) fn pump(&mut self) {
        loop {
            let (router, shard, mut world) = self.routing();
            router.drive(shard, &mut world);
            let Some(key) = self.cut_ready.pop() else { return };
            self.begin_parts(key);
        }
    }

    /// An I/O of the engine has ended.
    pub(crate) fn engine_io_done(&mut self, id: IoId, result: i32) {
        if !self.zeroing.is_empty()
            && let Some(at) = self.zeroing.iter().position(|z| z.0 == id)
        {
            let (_, member) = self.zeroing.swap_remove(at);
            if result >= 0 {
                let key = self.flushing.insert(id) as u32;
                // SAFETY: a flush names no memory.
                unsafe { self.queue.submit(Token::Flushing(key).pack(), Op::Flush { member }) };
                return;
            }
        }
        self.heed_room(id, result);
        if result < 0
            && let Some((member, sector)) = self.engine.place_of(id)
            && !self.engine.has_failed(member)
            && let Some(device) = self.queue.member(self.device(member))
        {
            let offset = sector.0 * 512;
            let of = (self.device(member), result);
            if self.failures.add(self.now(), of, offset..offset + 512) {
                let (path, error) = (named(device), failure(device, result));
                warn!(
                    member = path,
                    sector = sector.0,
                    "{path}: I/O at byte {offset} failed: {error}"
                );
            }
        }
        self.engine.handle_completion(self.now(), id, result >= 0);
    }

    /// An overlay that takes no more is no failure of the member above it.
    fn heed_room(&mut self, id: IoId, result: i32) {
        if result >= 0 {
            return;
        }
        if lacks_room(result) {
            self.engine.handle_no_room(id);
        }
        if let Some((member, _)) = self.engine.place_of(id)
            && self.has_lost_overlay(self.device(member), result)
        {
            self.engine.handle_out_of_space(self.now());
        }
    }

    /// Whether an operation ended so since the overlay's file cannot grow, or was cut off.
    pub(crate) fn has_lost_overlay(&self, device: usize, result: i32) -> bool {
        let member = self.queue.member(device).filter(|member| member.is_overlaid());
        member.is_some_and(|member| lacks_room(result) || result < 0 && member.has_cut_overlay())
    }

    /// Tells what became of a client, and why; of how many more it did is told later.
    pub(crate) fn complain(&mut self, what: &'static str, why: &'static str, detail: &str) {
        self.complaints.complain(self.now(), what, why, detail);
    }

    /// When there is more to tell of what was told of once.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.failures.deadline().into_iter().chain(self.complaints.deadline()).min()
    }

    /// Tells of I/O and clients like those that were told of.
    pub(crate) fn tell_more(&mut self, now: Time) {
        self.complaints.tell_more(now);
        for run in self.failures.over(now) {
            let (device, result) = run.of;
            let Some(device) = self.queue.member(device) else { continue };
            let path = named(device);
            warn!(
                member = path,
                sector = run.at.start / 512,
                sectors = (run.at.end - run.at.start) / 512,
                more = run.more,
                "{path}: I/O between bytes {} and {} failed {}: {}",
                run.at.start,
                run.at.end,
                run.again(),
                failure(device, result),
            );
        }
    }

    pub(crate) fn flush_done(&mut self, key: u32, result: i32) {
        let id = self.flushing.remove(key as usize);
        self.heed_room(id, result);
        self.engine.handle_completion(self.now(), id, result >= 0);
    }

    /// Gives the stripe cache another size, and tells the coordinator.
    pub(crate) fn resize_cache(&mut self, size: u32, pages: u32) {
        let grows = pages > self.memory.cache_pages();
        let memory = if grows { self.memory.resize_cache(pages) } else { Ok(()) };
        if memory.is_ok() {
            self.engine.handle_order(self.now(), &Order::StripeCache(pages));
        }
        self.peers[0].send(Message::CacheResized { size, result: memory });
    }

    /// Gives back what the engine has left of its stripe cache.
    pub(crate) fn trim_cache(&mut self) {
        let (_, pages) = self.engine.scratch_pages();
        if pages < self.memory.cache_pages() {
            // It cannot fail, since it takes nothing.
            let _ = self.memory.resize_cache(pages);
        }
    }

    /// Shows what has been done to whoever asks.
    pub(crate) fn publish(&self) {
        let stats = self.engine.stats();
        let pairs = [
            (&self.counters.requests, stats.requests),
            (&self.counters.member_reads, stats.member_reads),
            (&self.counters.member_writes, stats.member_writes),
            (&self.counters.member_read_sectors, stats.member_read_sectors),
            (&self.counters.member_write_sectors, stats.member_write_sectors),
            (&self.counters.full_writes, stats.full_writes),
            (&self.counters.rmw_writes, stats.rmw_writes),
            (&self.counters.rcw_writes, stats.rcw_writes),
            (&self.counters.recovered, stats.recovered),
            (&self.counters.scratch_waits, stats.scratch_waits),
            (&self.counters.behind_writes, stats.behind_writes),
            (&self.counters.cache_pages_used, u64::from(self.engine.scratch_pages().0)),
            (&self.counters.cache_bytes, self.memory.cache_bytes() as u64),
            (&self.counters.pool_bytes, self.memory.in_use() as u64),
        ];
        for (counter, value) in pairs {
            counter.store(value, Ordering::Relaxed);
        }
        let mut members = self.counters.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.clone_from(&self.sent);
    }
}

fn buf_of(kind: RequestKind) -> Option<Buf> {
    match kind {
        RequestKind::Read(buf)
        | RequestKind::Write { buf, .. }
        | RequestKind::WritePart { buf, .. } => Some(buf),
        _ => None,
    }
}

/// Sectors of an array of which all is shown.
fn whole(sector: u64, len: u64) -> Piece {
    Piece { place: Place { device: 0, offset: sector * 512 }, len: len * 512 }
}

/// Whether an operation ended so for want of room.
fn lacks_room(result: i32) -> bool {
    matches!(-result, libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
}

/// A member of which something failed: it or its overlay.
fn named(device: &Member) -> String {
    let is_overlay = device.is_overlaid() && !device.is_short();
    format!("{}{}", device.spec(), if is_overlay { " (its overlay)" } else { "" })
}

/// Why an operation of a device failed.
pub(crate) fn failure(device: &Member, result: i32) -> String {
    if device.is_short() || device.has_cut_overlay() {
        return "its file has become shorter".to_owned();
    }
    std::io::Error::from_raw_os_error(-result).to_string()
}
