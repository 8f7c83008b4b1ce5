//! One NBD client on a shard: drives a [`Connection`] with the shard's queue and sends its
//! requests to the array.
//!
//! The loop is the one that [`crate::nbd`] describes. Payloads go straight from the socket into
//! the request's memory, and from there to the members; a reply's payload goes straight from
//! the memory that the members filled.

use crate::nbd::{
    Command, Connection, Errno, Event, Exports, Extent, Limits, Outcome, Request, RequestId,
    Segment, Violation, Want,
};
use lapstrake_host::{Client, Context, IoVec, Kind, Memory, RequestError};
use std::{
    collections::VecDeque,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

const RECV: u32 = 0;
const SEND: u32 = 1;
const RECEIVE_BYTES: usize = 64 << 10;
/// Segments that go in one send; the kernel takes 1024.
const SEGMENTS: usize = 128;
/// Who moves fewer bytes than this in all of a [`Patience`] has made no progress: a byte now and then
/// holds nothing open.
const PACE_BYTES: usize = 16 << 10;

/// What becomes of a client that gives cause for complaint.
const CUT_OFF: &str = "an NBD client was cut off";

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the whole handshake.
    pub handshake: Duration,
    /// Without progress while it owes bytes, or does not take its replies.
    pub stall: Duration,
    /// To take its replies when the server stops.
    pub farewell: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [handshake, stall, farewell] = [30, 60, 5].map(Duration::from_secs);
        Self { handshake, stall, farewell }
    }
}

/// Progress in one direction.
struct Pace {
    since: Instant,
    bytes: usize,
}

impl Pace {
    fn new() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    fn moved(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= PACE_BYTES {
            *self = Self::new();
        }
    }
}

struct Entry {
    request: Request,
    memory: Option<Memory>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    No,
    Bytes,
    Payload(RequestId),
}

/// See the module.
pub struct NbdSession {
    socket: OwnedFd,
    connection: Connection,
    received: Box<[u8]>,
    /// Unconsumed part of `received`.
    input: std::ops::Range<usize>,
    receiving: Receiving,
    sending: bool,
    /// There was output left after the last send.
    flowing: bool,
    table: Vec<Option<Entry>>,
    /// Requests that wait for memory; while a write's payload does, nothing is read.
    waiting: VecDeque<RequestId>,
    open: bool,
    leaving: Option<Instant>,
    patience: Patience,
    began: Instant,
    /// Of the message that is being received.
    inward: Pace,
    /// Of the replies that are being sent.
    outward: Pace,
}

impl NbdSession {
    /// A client that has just connected.
    #[must_use]
    pub fn new(socket: OwnedFd, exports: Arc<Exports>, limits: Limits) -> Self {
        Self {
            socket,
            connection: Connection::new(exports, limits),
            received: vec![0; RECEIVE_BYTES].into(),
            input: 0..0,
            receiving: Receiving::No,
            sending: false,
            flowing: false,
            table: (0..limits.requests).map(|_| None).collect(),
            waiting: VecDeque::new(),
            open: false,
            leaving: None,
            patience: Patience::default(),
            began: Instant::now(),
            inward: Pace::new(),
            outward: Pace::new(),
        }
    }

    /// The same with other deadlines.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    fn go(&mut self, cx: &mut Context<'_>) {
        self.feed_waiting(cx);
        self.parse(cx);
        self.send(cx);
        self.receive(cx);
        let over = self.leaving.is_some() && self.connection.is_idle();
        if over || (self.connection.want() == Want::Close && !self.connection.has_output()) {
            self.close(cx);
        }
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        cx.cancel(self.socket.as_raw_fd());
        // SAFETY: the descriptor is ours. The peer must see the end now, though operations on
        // the socket may still have to report.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        cx.close();
    }

    fn parse(&mut self, cx: &mut Context<'_>) {
        if self.receiving != Receiving::No {
            return;
        }
        loop {
            let mut input = &self.received[self.input.clone()];
            let event = self.connection.receive(&mut input);
            self.input.start = self.input.end - input.len();
            match event {
                Some(Event::Open { .. }) => self.open = true,
                Some(Event::Payload(request)) => {
                    self.inward = Pace::new();
                    self.enter(request);
                    if !self.give_memory(cx, request.id) {
                        self.waiting.push_back(request.id);
                        return;
                    }
                }
                Some(Event::Request(request)) => self.accept(cx, request),
                Some(Event::Disconnect) => {}
                Some(Event::Violation(violation)) => {
                    complain_of(cx, violation);
                }
                None if !self.copy_payload(cx) => return,
                None => {}
            }
        }
    }

    /// Moves payload out of the receive buffer; false when there is none to move.
    fn copy_payload(&mut self, cx: &mut Context<'_>) -> bool {
        let Want::Payload { id, filled, remaining } = self.connection.want() else { return false };
        let count = self.input.len().min(remaining as usize);
        let Some(memory) = self.memory_of(id).filter(|_| count > 0) else { return false };
        let from = self.received[self.input.start..].as_ptr();
        // SAFETY: the memory is as long as the request, and `filled + remaining` is its length.
        unsafe { memory.start.add(filled as usize).copy_from_nonoverlapping(from, count) };
        self.input.start += count;
        self.payload(cx, count as u32);
        true
    }

    fn payload(&mut self, cx: &mut Context<'_>, count: u32) {
        if let Some(request) = self.connection.payload(count) {
            self.submit(cx, request.id);
        }
    }

    fn enter(&mut self, request: Request) {
        self.table[request.id.index()] = Some(Entry { request, memory: None });
    }

    fn memory_of(&self, id: RequestId) -> Option<Memory> {
        self.table[id.index()].as_ref()?.memory
    }

    fn give_memory(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let Some(entry) = &mut self.table[id.index()] else { return true };
        entry.memory = cx.alloc(entry.request.len as usize);
        entry.memory.is_some()
    }

    fn accept(&mut self, cx: &mut Context<'_>, request: Request) {
        self.enter(request);
        if request.command == Command::Read && !self.give_memory(cx, request.id) {
            self.waiting.push_back(request.id);
            return;
        }
        self.submit(cx, request.id);
    }

    fn feed_waiting(&mut self, cx: &mut Context<'_>) {
        // Who waits for much keeps nobody waiting who needs little.
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { return };
            if !self.give_memory(cx, id) {
                self.waiting.push_back(id);
                continue;
            }
            // A write's payload is awaited from now on.
            self.inward = Pace::new();
            let entry = self.table[id.index()].as_ref();
            if entry.is_some_and(|entry| entry.request.command == Command::Read) {
                self.submit(cx, id);
            }
        }
    }

    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Some(Entry { request, memory }) = &self.table[id.index()] else { return };
        let fua = request.fua;
        let writes = request.command == Command::Write;
        let followed = writes && cx.joins_writes() && self.more_is_here();
        let kind = match (request.command, *memory) {
            (Command::Read, Some(memory)) => Kind::Read(memory),
            (Command::Write, Some(memory)) => Kind::Write { memory, fua, followed },
            (Command::Flush, _) => Kind::Flush,
            // Where a discard writes, only this says when that is durable; what is there afterwards is free.
            (Command::Trim, _) if fua => Kind::WriteZeroes { fua, unmap: true },
            (Command::Trim, _) => Kind::Discard,
            (Command::WriteZeroes { no_hole }, _) => Kind::WriteZeroes { fua, unmap: !no_hole },
            (Command::BlockStatus { .. }, _) => {
                // An array has no record of what was never written.
                let all = Extent { len: u64::from(request.len), hole: false, zero: false };
                return self.connection.reply(id, Outcome::Extents(&[all]));
            }
            (Command::Cache, _) => return self.connection.reply(id, Outcome::Done),
            (Command::Read | Command::Write, None) => {
                return self.connection.reply(id, Outcome::Error(Errno::NoMem));
            }
        };
        cx.request(id.to_bits().into(), kind, request.offset, request.len.into());
    }

    /// Whether the client has begun to send what comes after the request at hand.
    fn more_is_here(&self) -> bool {
        if !self.input.is_empty() {
            return true;
        }
        let mut waiting: libc::c_int = 0;
        // SAFETY: the descriptor is ours, and the kernel writes one int.
        let asked = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::FIONREAD, &mut waiting) };
        asked == 0 && waiting > 0
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        if self.sending || !self.connection.has_output() {
            return;
        }
        if !std::mem::replace(&mut self.flowing, true) {
            self.outward = Pace::new();
        }
        let mut iov: Vec<IoVec> = Vec::with_capacity(SEGMENTS);
        for segment in self.connection.segments().take(SEGMENTS) {
            match segment {
                Segment::Bytes(bytes) => {
                    iov.push(IoVec::new(bytes.as_ptr().cast_mut(), bytes.len()));
                }
                Segment::Buffer { id, start, len } => {
                    let Some(memory) = self.memory_of(id) else { break };
                    // SAFETY: the segment lies within the request's memory.
                    let from = unsafe { memory.start.add(start as usize) };
                    iov.push(IoVec::new(from, len as usize));
                }
            }
        }
        self.sending = true;
        // SAFETY: output stays put until `sent`, request memory until it is released there, and
        // this session with its socket until the operation has ended.
        unsafe { cx.send(SEND, self.socket.as_raw_fd(), &iov) };
    }

    fn receive(&mut self, cx: &mut Context<'_>) {
        if self.receiving != Receiving::No {
            return;
        }
        let (start, len) = match self.connection.want() {
            Want::Bytes if self.input.is_empty() => {
                self.receiving = Receiving::Bytes;
                (self.received.as_mut_ptr(), self.received.len())
            }
            Want::Payload { id, filled, remaining } if self.input.is_empty() => {
                let Some(memory) = self.memory_of(id) else { return };
                self.receiving = Receiving::Payload(id);
                // SAFETY: within the request's memory.
                (unsafe { memory.start.add(filled as usize) }, remaining as usize)
            }
            _ => return,
        };
        // SAFETY: the receive buffer and the request's memory stay until the operation has
        // ended, and nothing else touches them while `receiving` says so.
        unsafe { cx.recv(RECV, self.socket.as_raw_fd(), start, len) };
    }

    fn received(&mut self, cx: &mut Context<'_>, result: i32) {
        let how = std::mem::replace(&mut self.receiving, Receiving::No);
        if self.connection.is_mid_message() {
            self.inward.moved(result.max(0) as usize);
        } else {
            self.inward = Pace::new();
        }
        match (result, how) {
            (1.., Receiving::Bytes) => self.input = 0..result as usize,
            (1.., Receiving::Payload(_)) => self.payload(cx, result as u32),
            (0, _) => {
                if let Some(Event::Violation(violation)) = self.connection.handle_eof() {
                    complain_of(cx, violation);
                }
            }
            _ => return self.close(cx),
        }
        self.go(cx);
    }

    fn sent(&mut self, cx: &mut Context<'_>, result: i32) {
        self.sending = false;
        if result < 0 {
            return self.close(cx);
        }
        self.outward.moved(result as usize);
        let (table, outward) = (&mut self.table, &mut self.outward);
        self.connection.sent(result as usize, |id| {
            *outward = Pace::new();
            if let Some(memory) = table[id.index()].take().and_then(|entry| entry.memory) {
                cx.free(memory);
            }
        });
        self.flowing = self.connection.has_output();
        self.go(cx);
    }
}

fn complain_of(cx: &mut Context<'_>, violation: Violation) {
    let why = match violation {
        Violation::Truncated => "the connection ended within a message",
        _ => "it broke the protocol",
    };
    cx.complain(CUT_OFF, why, &violation.to_string());
}

impl Client for NbdSession {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.go(cx);
    }

    fn handle_io(&mut self, cx: &mut Context<'_>, tag: u32, result: i32) {
        match tag {
            RECV => self.received(cx, result),
            _ => self.sent(cx, result),
        }
    }

    fn handle_reply(&mut self, _: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(RequestError::Io) => Outcome::Error(Errno::Io),
            Err(RequestError::NoSpace) => Outcome::Error(Errno::NoSpc),
            Err(RequestError::ReadOnly) => Outcome::Error(Errno::Perm),
            Err(RequestError::OutOfRange | RequestError::Misaligned) => {
                Outcome::Error(Errno::Inval)
            }
        };
        self.connection.reply(RequestId::from_bits(id as u32), outcome);
    }

    fn handle_replies_end(&mut self, cx: &mut Context<'_>) {
        self.go(cx);
    }

    fn handle_time(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            return self.cut_off(cx, "it made no progress in time");
        }
        self.go(cx);
    }

    fn deadline(&self) -> Option<Instant> {
        if let Some(leaving) = self.leaving {
            return Some(leaving);
        }
        if !self.open {
            return Some(self.began + self.patience.handshake);
        }
        let owes = self.connection.is_mid_message() && self.receiving != Receiving::No;
        let inward = owes.then_some(self.inward.since);
        let outward = self.sending.then_some(self.outward.since);
        Some(inward.into_iter().chain(outward).min()? + self.patience.stall)
    }

    fn idle_since(&self) -> Option<Instant> {
        let inward = matches!(self.receiving, Receiving::Payload(_)).then_some(self.inward.since);
        let outward = self.sending.then_some(self.outward.since);
        inward.into_iter().chain(outward).min()
    }

    fn handshake_since(&self) -> Option<Instant> {
        (!self.open).then_some(self.began)
    }

    fn cut_off(&mut self, cx: &mut Context<'_>, why: &'static str) {
        cx.complain(CUT_OFF, why, why);
        self.close(cx);
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        self.connection.begin_shutdown();
        self.leaving = Some(Instant::now() + self.patience.farewell);
        self.go(cx);
    }
}
