//! One NBD client on a shard: drives a [`Connection`] with the shard's queue and sends its
//! requests to the array.
//!
//! The loop is the one that [`crate::nbd`] describes. Payloads go straight from the socket into
//! the request's memory, and from there to the members; a reply's payload goes straight from
//! the memory that the members filled. With TLS they pass through [`crate::tls`] on their way, which copies them.

pub(crate) mod blocks;
mod entry;
mod patience;

use crate::nbd::{
    Command, Connection, Errno, Event, Exports, Extent, Limits, Outcome, Request, RequestId,
    Security, Segment, Violation, Want,
};
use crate::tls::{Stream, TLS_FAILED, TlsOffer, describe, send_now};
use entry::Entry;
use lapstrake_host::{Client, Context, IoVec, Kind, RequestError};
pub(crate) use patience::Pace;
pub use patience::Patience;
use std::{
    collections::VecDeque,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

const RECV: u32 = 0;
const SEND: u32 = 1;
const RECEIVE_BYTES: usize = 64 << 10;
/// Segments that go in one send; the kernel takes 1024.
const SEGMENTS: usize = 128;
/// What becomes of a client that gives cause for complaint.
pub(crate) const CUT_OFF: &str = "an NBD client was cut off";
/// Why, most often.
pub(crate) const NO_PROGRESS: &str = "it made no progress in time";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    No,
    Bytes,
    Payload(RequestId),
    /// What the client has encrypted.
    Records,
}

/// See the module.
pub struct NbdSession {
    socket: OwnedFd,
    connection: Connection,
    exports: Arc<Exports>,
    /// Of the export, in bytes.
    block: u32,
    offer: Option<TlsOffer>,
    /// The client has asked for TLS, which begins when it has got the answer.
    tls_is_due: bool,
    tls: Option<Box<Stream>>,
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
            connection: Connection::new(exports.clone(), limits),
            exports,
            block: 512,
            offer: None,
            tls_is_due: false,
            tls: None,
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

    /// The same for a client that may, or must, use TLS.
    #[must_use]
    pub fn with_tls(mut self, offer: TlsOffer) -> Self {
        let security = if offer.is_required { Security::Required } else { Security::Offered };
        self.connection = self.connection.with_security(security);
        self.offer = Some(offer);
        self
    }

    fn go(&mut self, cx: &mut Context<'_>) {
        self.feed_waiting(cx);
        if let Err(error) = self.take_in(cx) {
            cx.complain(CUT_OFF, TLS_FAILED, &format!("{TLS_FAILED}: {}", describe(&error)));
            return self.close(cx);
        }
        self.send(cx);
        self.receive(cx);
        let is_sent = !self.tls.as_ref().is_some_and(|tls| tls.has_output());
        let over = self.leaving.is_some() && self.connection.is_idle();
        let is_closed = self.connection.want() == Want::Close && !self.connection.has_output();
        if is_sent && (over || is_closed) {
            self.close(cx);
        }
    }

    fn take_in(&mut self, cx: &mut Context<'_>) -> Result<(), rustls::Error> {
        if self.tls_is_due {
            if self.sending || self.connection.has_output() {
                return Ok(());
            }
            self.start_tls()?;
        }
        self.parse(cx);
        while self.tls.is_some() && self.decrypt(cx)? {
            self.parse(cx);
        }
        Ok(())
    }

    /// The client has got the answer to its asking for TLS.
    fn start_tls(&mut self) -> Result<(), rustls::Error> {
        let offer = self.offer.as_ref().expect("TLS is begun where it is offered");
        // What was said in the clear behind the question is no TLS, and fails as such.
        let early = &self.received[self.input.clone()];
        self.tls = Some(Box::new(Stream::new(offer.config.clone(), early)?));
        (self.input, self.tls_is_due) = (0..0, false);
        Ok(())
    }

    /// Takes what was decrypted to where it belongs; false when there is none, or no place for it.
    fn decrypt(&mut self, cx: &mut Context<'_>) -> Result<bool, rustls::Error> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        let count = match self.connection.want() {
            _ if self.receiving != Receiving::No => return Ok(false),
            Want::Bytes if self.input.is_empty() => {
                let count = tls.read(&mut self.received)?;
                self.input = 0..count;
                count
            }
            Want::Payload { id, filled, remaining } if self.input.is_empty() => {
                let Some(entry) = &self.table[id.index()] else { return Ok(false) };
                let Some(memory) = entry.memory else { return Ok(false) };
                // SAFETY: within the request's memory, which nobody else uses until its payload is whole.
                let into = unsafe {
                    let start = memory.start.add((entry.skip() + filled) as usize);
                    std::slice::from_raw_parts_mut(start, remaining as usize)
                };
                let count = tls.read(into)?;
                if count > 0 {
                    self.payload(cx, count as u32);
                }
                count
            }
            _ => return Ok(false),
        };
        if count == 0 && self.tls.as_ref().is_some_and(|tls| tls.has_ended()) {
            self.ended(cx);
        }
        Ok(count > 0)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if let Some(tls) = self.tls.as_mut().filter(|_| !self.sending) {
            // Who does not take it sees the end of the socket.
            let _ = send_now(self.socket.as_raw_fd(), tls.last_words());
        }
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
                Some(Event::Open { export }) => {
                    self.open = true;
                    self.block = self.exports.list()[export].min_block.max(512);
                }
                Some(Event::StartTls) => self.tls_is_due = true,
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
        let Some(start) = self.start_of(id).filter(|_| count > 0) else { return false };
        let from = self.received[self.input.start..].as_ptr();
        // SAFETY: the memory is as long as the request, and `filled + remaining` is its length.
        unsafe { start.add(filled as usize).copy_from_nonoverlapping(from, count) };
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
        self.table[request.id.index()] = Some(Entry::new(request, self.block));
    }

    /// Where the request's first byte lies in memory.
    fn start_of(&self, id: RequestId) -> Option<*mut u8> {
        self.table[id.index()].as_ref()?.start()
    }

    fn give_memory(&mut self, cx: &mut Context<'_>, id: RequestId) -> bool {
        let Some(entry) = &mut self.table[id.index()] else { return true };
        entry.memory = cx.alloc(entry.memory_bytes());
        entry.memory.is_some()
    }

    fn accept(&mut self, cx: &mut Context<'_>, request: Request) {
        self.enter(request);
        let needs_memory = self.table[request.id.index()].as_ref().is_some_and(Entry::needs_memory);
        if needs_memory && !self.give_memory(cx, request.id) {
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
            if entry.is_some_and(|entry| entry.request.command != Command::Write) {
                self.submit(cx, id);
            }
        }
    }

    fn submit(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let Some(Entry { request, memory, .. }) = self.table[id.index()] else { return };
        let (fua, name) = (request.fua, id.to_bits().into());
        let writes = request.command == Command::Write;
        let followed = writes && cx.joins_writes() && self.more_is_here();
        let Some(entry) = &mut self.table[id.index()] else { return };
        let kind = match (request.command, memory) {
            (Command::Read, Some(memory)) => Kind::Read(memory),
            (Command::Write, Some(memory)) => Kind::Write { memory, fua, followed },
            (Command::Flush, _) => Kind::Flush,
            // Where a discard writes, only this says when that is durable; what is there afterwards is free.
            (Command::Trim, _) if fua => Kind::WriteZeroes { fua, unmap: true },
            (Command::Trim, _) => Kind::Discard,
            (Command::WriteZeroes { no_hole }, _) => Kind::WriteZeroes { fua, unmap: !no_hole },
            (Command::BlockStatus { .. }, _) => {
                entry.await_one();
                return cx.ask_for_holes(name, entry.around());
            }
            (Command::Cache, _) => return self.connection.reply(id, Outcome::Done),
            (Command::Read | Command::Write, None) => {
                return self.connection.reply(id, Outcome::Error(Errno::NoMem));
            }
        };
        let asks = entry.asks(kind);
        if asks.is_empty() {
            return self.connection.reply(id, Outcome::Done);
        }
        for (kind, offset, len) in asks {
            cx.request(name, kind, offset, len);
        }
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
        match self.tls {
            Some(_) => self.send_encrypted(cx),
            None => self.send_plain(cx),
        }
    }

    fn send_encrypted(&mut self, cx: &mut Context<'_>) {
        let Some(tls) = self.tls.as_mut().filter(|_| !self.sending) else { return };
        let mut count = 0;
        for segment in self.connection.segments() {
            let room = tls.room_out() - count;
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Buffer { id, start, len } => {
                    let Some(entry) = &self.table[id.index()] else { break };
                    let Some(memory) = entry.memory else { break };
                    // SAFETY: the segment lies within the request's memory, which is filled.
                    unsafe {
                        let from = memory.start.add((entry.skip() + start) as usize);
                        std::slice::from_raw_parts(from, len as usize)
                    }
                }
            };
            let bytes = &bytes[..bytes.len().min(room)];
            tls.write(bytes);
            count += bytes.len();
            if count == tls.room_out() {
                break;
            }
        }
        let output = tls.output().map(|out| IoVec::new(out.as_ptr().cast_mut(), out.len()));
        if let Some(output) = output {
            self.sending = true;
            if !std::mem::replace(&mut self.flowing, true) {
                self.outward = Pace::new();
            }
            // SAFETY: what was encrypted stays put until it is sent, and this session with its socket until the
            // operation has ended.
            unsafe { cx.send(SEND, self.socket.as_raw_fd(), &[output]) };
        }
        self.release(cx, count);
    }

    fn send_plain(&mut self, cx: &mut Context<'_>) {
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
                    let Some(first) = self.start_of(id) else { break };
                    // SAFETY: the segment lies within the request's memory.
                    let from = unsafe { first.add(start as usize) };
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
            _ if self.tls_is_due => return,
            // Without memory for a payload, nothing of it is asked for.
            Want::Payload { id, .. } if self.start_of(id).is_none() => return,
            Want::Bytes | Want::Payload { .. } if self.tls.is_some() => {
                let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_drained()) else { return };
                self.receiving = Receiving::Records;
                let room = tls.room();
                (room.as_mut_ptr(), room.len())
            }
            Want::Bytes if self.input.is_empty() => {
                self.receiving = Receiving::Bytes;
                (self.received.as_mut_ptr(), self.received.len())
            }
            Want::Payload { id, filled, remaining } if self.input.is_empty() => {
                let Some(first) = self.start_of(id) else { return };
                self.receiving = Receiving::Payload(id);
                // SAFETY: within the request's memory.
                (unsafe { first.add(filled as usize) }, remaining as usize)
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
            (1.., Receiving::Records) => {
                let tls = self.tls.as_mut().expect("records are received with TLS");
                tls.received(result as usize);
            }
            (0, _) => self.ended(cx),
            _ => return self.close(cx),
        }
        self.go(cx);
    }

    fn ended(&mut self, cx: &mut Context<'_>) {
        if let Some(Event::Violation(violation)) = self.connection.handle_eof() {
            complain_of(cx, violation);
        }
    }

    fn sent(&mut self, cx: &mut Context<'_>, result: i32) {
        self.sending = false;
        if result < 0 {
            return self.close(cx);
        }
        self.outward.moved(result as usize);
        match &mut self.tls {
            Some(tls) => {
                tls.sent(result as usize);
                self.flowing = tls.has_output() || self.connection.has_output();
            }
            None => {
                self.release(cx, result as usize);
                self.flowing = self.connection.has_output();
            }
        }
        self.go(cx);
    }

    /// So many bytes of replies are gone, and with them the requests.
    fn release(&mut self, cx: &mut Context<'_>, count: usize) {
        let (table, outward) = (&mut self.table, &mut self.outward);
        self.connection.sent(count, |id| {
            *outward = Pace::new();
            if let Some(memory) = table[id.index()].take().and_then(|entry| entry.memory) {
                cx.free(memory);
            }
        });
    }

    /// The answer to a block status, from the request's own first byte on.
    fn tell_holes(&mut self, cx: &mut Context<'_>, id: RequestId) {
        let skip = self.table[id.index()].as_ref().map_or(0, Entry::skip);
        let mut extents = cx.extents(id.to_bits().into());
        let mut skip = u64::from(skip);
        for extent in &mut extents {
            let less = skip.min(extent.len);
            (extent.len, skip) = (extent.len - less, skip - less);
        }
        extents.retain(|extent| extent.len > 0);
        let extents: Vec<Extent> = extents
            .iter()
            .map(|extent| Extent { len: extent.len, hole: extent.is_hole, zero: extent.is_hole })
            .collect();
        self.connection.reply(id, Outcome::Extents(&extents));
    }
}

fn complain_of(cx: &mut Context<'_>, violation: Violation) {
    cx.complain(CUT_OFF, violation.kind(), &violation.to_string());
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

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let id = RequestId::from_bits(id as u32);
        let Some(entry) = &mut self.table[id.index()] else { return };
        let command = entry.request.command;
        let Some(result) = entry.answered(result) else { return };
        if let Command::BlockStatus { .. } = command {
            return self.tell_holes(cx, id);
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(RequestError::Io) => Outcome::Error(Errno::Io),
            Err(RequestError::NoSpace) => Outcome::Error(Errno::NoSpc),
            Err(RequestError::ReadOnly) => Outcome::Error(Errno::Perm),
            Err(RequestError::OutOfRange | RequestError::Misaligned) => {
                Outcome::Error(Errno::Inval)
            }
        };
        self.connection.reply(id, outcome);
    }

    fn handle_replies_end(&mut self, cx: &mut Context<'_>) {
        self.go(cx);
    }

    fn handle_time(&mut self, cx: &mut Context<'_>) {
        if self.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            return self.cut_off(cx, NO_PROGRESS);
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
        let is_awaiting = match self.receiving {
            Receiving::Payload(_) => true,
            Receiving::Records => matches!(self.connection.want(), Want::Payload { .. }),
            Receiving::No | Receiving::Bytes => false,
        };
        let inward = is_awaiting.then_some(self.inward.since);
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
