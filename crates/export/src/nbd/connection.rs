//! The state machine of one connection: its handshake, then framing of requests, phases, limits. Its contract is the
//! module's.
//!
//! Invariants:
//! - `header` gathers the fixed-size header that a request begins with;
//!   a whole header stays there while the limits hold its request back.
//! - While handshake output is unsent, no input is taken.
//! - A session exists from the moment that transmission begins.

use std::sync::Arc;

use super::export::Exports;
use super::handshake::{self, Handshake};
use super::request::{Command, Errno, Refusal, RequestId, Session};
use super::slots::{Entry, Slots};
use super::wire::{self, Header, RequestHeader, cmd, cmd_flag};
use super::{Event, Limits, Outcome, Request, Security, Segment, Violation, Want};

/// The server's end of one client's connection. See the [module](super) for the contract.
pub struct Connection {
    exports: Arc<Exports>,
    limits: Limits,
    phase: Phase,
    handshake: Handshake,
    header: Header<{ wire::REQUEST_HEADER_LEN }>,
    session: Option<Session>,
    slots: Slots,
    shutdown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    RequestHeader,
    Payload {
        id: RequestId,
        filled: u32,
        len: u32,
    },
    /// The payload of a refused write, thrown away before the refusal goes out.
    Drain {
        id: RequestId,
        remaining: u32,
        refusal: Refusal,
    },
    /// The client has left or was cut off; what is owed is still sent.
    Closing,
}

/// How far a step came.
enum Step {
    Again,
    Emit(Event),
    /// Needs more input, or room.
    Starved,
}

impl Connection {
    /// A connection just accepted. The greeting is queued for output.
    pub fn new(exports: Arc<Exports>, limits: Limits) -> Self {
        Connection {
            handshake: Handshake::new(exports.list().len()),
            exports,
            limits,
            phase: Phase::Handshake,
            header: Header::new(),
            session: None,
            slots: Slots::new(0),
            shutdown: false,
        }
    }

    /// The same with TLS, which the driver carries out.
    #[must_use]
    pub fn with_security(mut self, security: Security) -> Self {
        self.handshake = self.handshake.with_security(security);
        self
    }

    /// What the socket is to be read for. True at the moment of the call: every other call may
    /// change it.
    pub fn want(&self) -> Want {
        match self.phase {
            Phase::Closing if self.is_idle() => Want::Close,
            Phase::Closing => Want::Nothing,
            _ if self.is_answering() => Want::Nothing,
            Phase::RequestHeader if self.header.len() == wire::REQUEST_HEADER_LEN => Want::Nothing,
            Phase::Payload { id, filled, len } => {
                Want::Payload { id, filled, remaining: len - filled }
            }
            _ => Want::Bytes,
        }
    }

    /// Takes bytes off the front of `input` until an event arises, a write's payload begins, a
    /// limit is reached or nothing is left. What stays in `input` must be passed again.
    pub fn receive(&mut self, input: &mut &[u8]) -> Option<Event> {
        loop {
            if self.is_answering() {
                return None;
            }
            let step = match self.phase {
                Phase::Handshake => self.haggle(input),
                Phase::RequestHeader => self.request_header(input),
                Phase::Drain { id, remaining, refusal } => {
                    self.drain(input, id, remaining, refusal)
                }
                Phase::Payload { .. } | Phase::Closing => Step::Starved,
            };
            match step {
                Step::Again => {}
                Step::Emit(event) => return Some(event),
                Step::Starved => return None,
            }
        }
    }

    /// Notes that `count` more bytes of the payload that [`Connection::want`] named are in its
    /// buffer. Returns the request once it is whole.
    ///
    /// # Panics
    /// If no payload, or less of it, was wanted: a bug of the driver.
    pub fn payload(&mut self, count: u32) -> Option<Request> {
        let Phase::Payload { id, filled, len } = self.phase else {
            panic!("no payload was wanted");
        };
        assert!(count <= len - filled, "{id:?}: {count} bytes are more than its payload lacks");
        let filled = filled + count;
        if filled < len {
            self.phase = Phase::Payload { id, filled, len };
            return None;
        }
        self.phase = Phase::RequestHeader;
        Some(self.slots.request(id))
    }

    /// Answers a request. A write may be failed before its payload is whole (no memory for it):
    /// the rest is then taken off the input and thrown away.
    ///
    /// # Panics
    /// If the request does not wait for a reply, or the outcome is not one of its command: bugs of
    /// the driver.
    pub fn reply(&mut self, id: RequestId, outcome: Outcome<'_>) {
        if let Phase::Payload { id: current, filled, len } = self.phase
            && current == id
        {
            let Outcome::Error(errno) = outcome else {
                panic!("{id:?} cannot succeed before its payload is whole");
            };
            let refusal = Refusal { errno, text: "" };
            self.phase = Phase::Drain { id, remaining: len - filled, refusal };
            return;
        }
        self.slots.reply(id, outcome, self.structured());
    }

    /// Whether there is anything to send.
    pub fn has_output(&self) -> bool {
        self.is_answering() || self.slots.has_output()
    }

    /// Whether output of the handshake is unsent.
    fn is_answering(&self) -> bool {
        !self.handshake.output().is_empty()
    }

    /// What is to be sent, in order; never an empty segment.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let handshake = self.handshake.output();
        let handshake = (!handshake.is_empty()).then_some(Segment::Bytes(handshake));
        handshake.into_iter().chain(self.slots.segments())
    }

    /// Notes that the first `count` bytes of the output are sent. `released` is told each request
    /// whose reply is gone: its id ends, and a read's buffer is the driver's again.
    ///
    /// # Panics
    /// If there was less output: a bug of the driver.
    pub fn sent(&mut self, count: usize, released: impl FnMut(RequestId)) {
        let replies = self.handshake.sent(count);
        self.slots.sent(replies, released);
    }

    /// The client closed its end: at the edge of a message it has left, within one it is cut off.
    /// A write whose payload it did not finish is forgotten.
    pub fn handle_eof(&mut self) -> Option<Event> {
        if self.phase == Phase::Closing {
            return None;
        }
        if !self.is_mid_message() {
            self.phase = Phase::Closing;
            return Some(Event::Disconnect);
        }
        if let Phase::Payload { id, .. } | Phase::Drain { id, .. } = self.phase {
            self.slots.abandon(id);
        }
        Some(self.cut(Violation::Truncated))
    }

    /// Whether the client has begun a message and owes the rest.
    pub fn is_mid_message(&self) -> bool {
        match self.phase {
            Phase::Handshake => self.handshake.is_mid_message(),
            // A whole header waits for us, not for the client.
            Phase::RequestHeader => (1..wire::REQUEST_HEADER_LEN).contains(&self.header.len()),
            Phase::Payload { .. } | Phase::Drain { .. } => true,
            Phase::Closing => false,
        }
    }

    /// From now on requests are refused with `ESHUTDOWN` and options with `NBD_REP_ERR_SHUTDOWN`.
    /// Those in flight go on. The driver hangs up when [`Connection::is_idle`].
    pub fn begin_shutdown(&mut self) {
        self.shutdown = true;
        self.handshake.begin_shutdown();
    }

    /// Index of the export that is being served; `None` during the handshake.
    pub fn export(&self) -> Option<usize> {
        self.session.as_ref().map(|session| session.export)
    }

    /// Requests whose replies are not wholly sent.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Bytes that the buffers of the requests in flight hold.
    pub fn bytes_in_flight(&self) -> u64 {
        self.slots.bytes()
    }

    /// Whether no request is in flight and no output is left.
    pub fn is_idle(&self) -> bool {
        !self.is_answering() && self.slots.in_flight() == 0
    }

    fn structured(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.structured)
    }

    fn cut(&mut self, violation: Violation) -> Event {
        self.phase = Phase::Closing;
        Event::Violation(violation)
    }

    fn leave(&mut self) -> Step {
        self.phase = Phase::Closing;
        Step::Emit(Event::Disconnect)
    }

    fn haggle(&mut self, input: &mut &[u8]) -> Step {
        match self.handshake.receive(input) {
            None => Step::Starved,
            Some(handshake::Step::StartTls) => Step::Emit(Event::StartTls),
            Some(handshake::Step::Disconnect) => self.leave(),
            Some(handshake::Step::Violation(violation)) => Step::Emit(self.cut(violation)),
            Some(handshake::Step::Question) => match self.handshake.answer(&self.exports) {
                Ok(None) => Step::Again,
                Ok(Some(export)) => self.open(export),
                Err(violation) => Step::Emit(self.cut(violation)),
            },
        }
    }

    fn open(&mut self, export: usize) -> Step {
        let info = &self.exports.list()[export];
        self.session = Some(Session::new(export, info, self.handshake.negotiated()));
        self.slots = Slots::new(self.limits.requests.max(1));
        self.phase = Phase::RequestHeader;
        Step::Emit(Event::Open { export })
    }

    fn request_header(&mut self, input: &mut &[u8]) -> Step {
        let Some(bytes) = self.header.gather::<{ wire::REQUEST_HEADER_LEN }>(input) else {
            return Step::Starved;
        };
        let header = match RequestHeader::decode(&bytes) {
            Ok(header) => header,
            Err(found) => return Step::Emit(self.cut(Violation::RequestMagic { found })),
        };
        if header.kind == cmd::DISC {
            return self.leave();
        }
        self.admit(&header)
    }

    /// Gives the request a slot, or holds it back. Then it is refused, done (if it is about
    /// nothing), or shown to the driver.
    fn admit(&mut self, header: &RequestHeader) -> Step {
        let session = self.session.as_ref().expect("transmission has a session");
        let structured = session.structured;
        let carried = if header.kind == cmd::WRITE { header.len } else { 0 };
        let max = session.tolerated_payload();
        if carried > max {
            return Step::Emit(self.cut(Violation::PayloadTooLong { found: carried, max }));
        }
        let judged = if self.shutdown {
            Err(Refusal { errno: Errno::Shutdown, text: "the server is going down" })
        } else {
            session.judge(header)
        };
        let nothing = header.len == 0 && judged != Ok(Command::Flush);
        let entry = Entry {
            command: judged.unwrap_or(Command::Flush),
            fua: header.flags & cmd_flag::FUA != 0,
            cookie: header.cookie,
            offset: header.offset,
            len: header.len,
            shown: judged.is_ok() && !nothing,
        };
        if !self.slots.admits(&entry, self.limits.bytes) {
            return Step::Starved;
        }
        self.header.clear();
        let id = self.slots.enter(entry);
        match judged {
            Err(refusal) => self.phase = Phase::Drain { id, remaining: carried, refusal },
            Ok(_) if nothing => self.slots.reply(id, Outcome::Done, structured),
            Ok(Command::Write) => {
                self.phase = Phase::Payload { id, filled: 0, len: header.len };
                return Step::Emit(Event::Payload(self.slots.request(id)));
            }
            Ok(_) => return Step::Emit(Event::Request(self.slots.request(id))),
        }
        Step::Again
    }

    fn drain(
        &mut self,
        input: &mut &[u8],
        id: RequestId,
        remaining: u32,
        refusal: Refusal,
    ) -> Step {
        match wire::skip(input, remaining) {
            0 => {
                self.slots.refuse(id, refusal, self.structured());
                self.phase = Phase::RequestHeader;
                Step::Again
            }
            remaining => {
                self.phase = Phase::Drain { id, remaining, refusal };
                Step::Starved
            }
        }
    }
}
