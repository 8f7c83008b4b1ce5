//! The state machine of one connection: framing of input, phases, limits. Its contract is the
//! module's.
//!
//! Invariants:
//! - `header_len` counts the bytes gathered of the fixed-size header that the phase is waiting for;
//!   a whole header stays there while the limits hold its request back.
//! - While handshake output is unsent, no input is taken: a client that floods options keeps
//!   one reply in memory, not many.
//! - A session exists from the moment that transmission begins.

use std::sync::Arc;

use super::export::Exports;
use super::handshake::{self, Negotiated, Verdict};
use super::request::{Command, Errno, Refusal, RequestId, Session};
use super::slots::{Entry, Slots};
use super::wire::{self, Reader, RequestHeader, cmd, cmd_flag, handshake_flag, opt};
use super::{Event, Limits, Outcome, Request, Security, Segment, Violation, Want};

/// Longest option data that is kept, in bytes: three longest strings and change.
const OPTION_KEPT_MAX: u32 = 16 << 10;
/// Longest option data that is skipped rather than answered by hanging up, in bytes.
const OPTION_SKIPPED_MAX: u32 = 64 << 10;
/// Options that a client may send, beside four for each export (it may ask about all of them).
const OPTIONS_MAX: u32 = 64;

/// The server's end of one client's connection. See the [module](super) for the contract.
pub struct Connection {
    exports: Arc<Exports>,
    limits: Limits,
    phase: Phase,
    header: [u8; wire::REQUEST_HEADER_LEN],
    header_len: usize,
    option_data: Vec<u8>,
    options_left: u32,
    negotiated: Negotiated,
    /// Handshake output, of which `out_sent` bytes are gone.
    out: Vec<u8>,
    out_sent: usize,
    session: Option<Session>,
    slots: Slots,
    shutdown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        len: u32,
    },
    OptionSkip {
        option: u32,
        remaining: u32,
    },
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
        let per_export = u32::try_from(exports.list().len()).unwrap_or(u32::MAX).saturating_mul(4);
        Connection {
            exports,
            limits,
            phase: Phase::ClientFlags,
            header: [0; wire::REQUEST_HEADER_LEN],
            header_len: 0,
            option_data: Vec::new(),
            options_left: OPTIONS_MAX.saturating_add(per_export),
            negotiated: Negotiated::default(),
            out: handshake::greeting(),
            out_sent: 0,
            session: None,
            slots: Slots::new(0),
            shutdown: false,
        }
    }

    /// The same with TLS, which the driver carries out.
    #[must_use]
    pub fn with_security(mut self, security: Security) -> Self {
        self.negotiated.security = security;
        self
    }

    /// What the socket is to be read for. True at the moment of the call: every other call may
    /// change it.
    pub fn want(&self) -> Want {
        match self.phase {
            Phase::Closing if self.is_idle() => Want::Close,
            Phase::Closing => Want::Nothing,
            _ if !self.out.is_empty() => Want::Nothing,
            Phase::RequestHeader if self.header_len == self.header.len() => Want::Nothing,
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
            if !self.out.is_empty() {
                return None;
            }
            let step = match self.phase {
                Phase::ClientFlags => self.client_flags(input),
                Phase::OptionHeader => self.option_header(input),
                Phase::OptionData { option, len } => self.option_data(input, option, len),
                Phase::OptionSkip { option, remaining } => {
                    self.option_skip(input, option, remaining)
                }
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
        !self.out.is_empty() || self.slots.has_output()
    }

    /// What is to be sent, in order; never an empty segment.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let handshake = &self.out[self.out_sent..];
        let handshake = (!handshake.is_empty()).then_some(Segment::Bytes(handshake));
        handshake.into_iter().chain(self.slots.segments())
    }

    /// Notes that the first `count` bytes of the output are sent. `released` is told each request
    /// whose reply is gone: its id ends, and a read's buffer is the driver's again.
    ///
    /// # Panics
    /// If there was less output: a bug of the driver.
    pub fn sent(&mut self, count: usize, released: impl FnMut(RequestId)) {
        let handshake = count.min(self.out.len() - self.out_sent);
        self.out_sent += handshake;
        if self.out_sent == self.out.len() {
            self.out = Vec::new();
            self.out_sent = 0;
        }
        self.slots.sent(count - handshake, released);
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
            Phase::ClientFlags | Phase::OptionHeader => self.header_len != 0,
            // A whole header waits for us, not for the client.
            Phase::RequestHeader => (1..self.header.len()).contains(&self.header_len),
            Phase::OptionData { .. } | Phase::OptionSkip { .. } => true,
            Phase::Payload { .. } | Phase::Drain { .. } => true,
            Phase::Closing => false,
        }
    }

    /// From now on requests are refused with `ESHUTDOWN` and options with `NBD_REP_ERR_SHUTDOWN`.
    /// Those in flight go on. The driver hangs up when [`Connection::is_idle`].
    pub fn begin_shutdown(&mut self) {
        self.shutdown = true;
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
        self.out.is_empty() && self.slots.in_flight() == 0
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

    /// Gathers a header of `N` bytes; `None` while some are lacking. The header is not consumed.
    fn gather<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let count = (N - self.header_len).min(input.len());
        let (taken, rest) = input.split_at(count);
        self.header[self.header_len..self.header_len + count].copy_from_slice(taken);
        self.header_len += count;
        *input = rest;
        (self.header_len == N).then(|| self.header[..N].try_into().expect("N bytes were gathered"))
    }

    fn client_flags(&mut self, input: &mut &[u8]) -> Step {
        let Some(bytes) = self.gather::<{ wire::CLIENT_FLAGS_LEN }>(input) else {
            return Step::Starved;
        };
        self.header_len = 0;
        let flags = u32::from_be_bytes(bytes);
        if flags & !u32::from(handshake::FLAGS) != 0 {
            return Step::Emit(self.cut(Violation::ClientFlags { found: flags }));
        }
        self.negotiated.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.phase = Phase::OptionHeader;
        Step::Again
    }

    fn option_header(&mut self, input: &mut &[u8]) -> Step {
        let Some(bytes) = self.gather::<{ wire::OPTION_HEADER_LEN }>(input) else {
            return Step::Starved;
        };
        self.header_len = 0;
        let mut reader = Reader(&bytes);
        let (Some(magic), Some(option), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            unreachable!("16 bytes hold the three fields");
        };
        if magic != wire::OPTION_MAGIC {
            return Step::Emit(self.cut(Violation::OptionMagic { found: magic }));
        }
        let Some(left) = self.options_left.checked_sub(1) else {
            return Step::Emit(self.cut(Violation::TooManyOptions));
        };
        self.options_left = left;
        self.phase = match len {
            0..=OPTION_KEPT_MAX => Phase::OptionData { option, len },
            // An export's name can be refused only by hanging up.
            ..=OPTION_SKIPPED_MAX if option != opt::EXPORT_NAME => {
                Phase::OptionSkip { option, remaining: len }
            }
            _ => return Step::Emit(self.cut(Violation::OptionTooLong { option, len })),
        };
        Step::Again
    }

    fn option_data(&mut self, input: &mut &[u8], option: u32, len: u32) -> Step {
        let count = (len as usize - self.option_data.len()).min(input.len());
        let (taken, rest) = input.split_at(count);
        self.option_data.extend_from_slice(taken);
        *input = rest;
        if self.option_data.len() < len as usize {
            return Step::Starved;
        }
        let data = std::mem::take(&mut self.option_data);
        self.phase = Phase::OptionHeader;
        let verdict = handshake::answer(
            &mut self.negotiated,
            &self.exports,
            self.shutdown,
            (option, &data),
            &mut self.out,
        );
        match verdict {
            Verdict::Haggle => Step::Again,
            Verdict::StartTls => Step::Emit(Event::StartTls),
            Verdict::Abort => self.leave(),
            Verdict::Cut(violation) => Step::Emit(self.cut(violation)),
            Verdict::Open(export) => self.open(export),
        }
    }

    fn open(&mut self, export: usize) -> Step {
        let info = &self.exports.list()[export];
        self.session = Some(Session::new(export, info, &self.negotiated));
        self.slots = Slots::new(self.limits.requests.max(1));
        self.phase = Phase::RequestHeader;
        Step::Emit(Event::Open { export })
    }

    fn option_skip(&mut self, input: &mut &[u8], option: u32, remaining: u32) -> Step {
        match skip(input, remaining) {
            0 => {
                handshake::answer_too_big(option, &mut self.out);
                self.phase = Phase::OptionHeader;
                Step::Again
            }
            remaining => {
                self.phase = Phase::OptionSkip { option, remaining };
                Step::Starved
            }
        }
    }

    fn request_header(&mut self, input: &mut &[u8]) -> Step {
        let Some(bytes) = self.gather::<{ wire::REQUEST_HEADER_LEN }>(input) else {
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
        self.header_len = 0;
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
        match skip(input, remaining) {
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

/// Takes up to `remaining` bytes off the input; returns how many are still to come.
fn skip(input: &mut &[u8], remaining: u32) -> u32 {
    let count = (remaining as usize).min(input.len());
    *input = &input[count..];
    remaining - count as u32
}
