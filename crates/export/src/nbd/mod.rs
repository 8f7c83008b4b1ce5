//! The server side of the NBD protocol, without any I/O.
//!
//! A [`Connection`] is one client's session: it takes the bytes that came, gives out requests to
//! carry out, takes their outcomes, and gives out the bytes to send. It owns no socket, thread,
//! clock or data: payloads stay in the driver's buffers and are named by [`RequestId`].
//!
//! Spoken: fixed newstyle (`EXPORT_NAME`, `ABORT`, `LIST`, `STARTTLS`, `INFO`, `GO`,
//! `STRUCTURED_REPLY`, the meta contexts with `base:allocation`), simple and structured replies, all
//! commands of the specification but resize. Not spoken: oldstyle, 64-bit headers. Source:
//! `doc/proto.md` of NetworkBlockDevice/nbd.
//!
//! # The driver's loop
//!
//! A driver keeps, for each connection, a receive buffer (64 KiB is good), the part `input` of it
//! that is not consumed yet, and a table of buffers indexed by [`RequestId::index`]. It goes round:
//!
//! ```text
//! 1. parse   loop {
//!                match conn.receive(&mut input) {
//!                    Some(Open { .. })       => stop the handshake's clock
//!                    Some(StartTls)          => send all output, then encrypt: what is left of
//!                                               `input`, and all that follows, is TLS
//!                    Some(Payload(request))  => table[request.id] = a buffer of request.len bytes
//!                    Some(Request(request))  => carry it out (Read: table[id] = a buffer first)
//!                    Some(Disconnect)        => note it
//!                    Some(Violation(why))    => log it; the socket may be closed at once
//!                    None => match conn.want() {
//!                        Payload { id, filled, remaining } if input is not empty => {
//!                            move n = min(remaining, input.len()) bytes to table[id][filled..]
//!                            if let Some(request) = conn.payload(n) { carry it out }
//!                        }
//!                        _ => break
//!                    }
//!                }
//!            }
//! 2. reply   for each completion: conn.reply(id, outcome)
//! 3. send    while conn.has_output() and the socket takes bytes {
//!                n = sendmsg(an iovec for each of conn.segments(), as many as suit)
//!                conn.sent(n, |id| drop table[id])
//!            }
//! 4. wait    match conn.want() {
//!                Close                   => close the socket
//!                Bytes                   => wait to recv into the receive buffer (`input` is empty)
//!                Payload { id, filled, remaining } =>
//!                    wait to recv into table[id][filled..], then as in 1; with recvmsg, the receive
//!                    buffer may be the second iovec, and what lands there is the new `input`
//!                Nothing                 => do not read; keep `input`
//!            }
//!            wait too for completions, and for the socket to take output if there is any
//! ```
//!
//! After `sent`, `reply` or `payload` the loop must pass 1 again, even with an empty `input`: a
//! request that a limit had held back may now come.
//!
//! # What may be relied on
//!
//! - **Memory.** At most [`Limits::requests`] requests are in flight, from their event until
//!   `released` names them, so a client that does not take its replies is not read either. Their
//!   buffers hold at most [`Limits::bytes`] (or one request, if that alone is longer). During the
//!   handshake a connection keeps at most 16 KiB of input and the replies to one option.
//! - **No allocation for a request**, except for extents of a block status. The table is made when
//!   transmission begins.
//! - **Output stays put.** The bytes of [`Segment::Bytes`] neither move nor change until
//!   [`Connection::sent`] has covered them or the connection is dropped, whatever else is called: a
//!   ring may send from them.
//! - **Order.** Replies go out in the order of [`Connection::reply`], which may be any.
//! - **Totality.** No input panics. A client's fault is answered with an error where the protocol
//!   has one, and otherwise becomes an [`Event::Violation`], after which no input is taken. Wrong
//!   calls by the driver panic, each as documented.
//! - **Splits.** How input is cut into calls changes no event (but for the ids) and no byte of
//!   output.
//!
//! # What the driver owes
//!
//! - **Durability.** A flush is replied to once all writes that were replied to before (on any
//!   connection of the export: multi-conn is advertised) are durable; a request with `fua` once its
//!   own writes are. A read's buffer holds `len` good bytes when it is [`Outcome::Done`], else it
//!   is an error: nothing can be taken back once the reply is queued.
//! - **Buffers.** A buffer that I/O still uses must live on when the connection is dropped first,
//!   as it may be at any time.
//! - **Clocks.** From accept to [`Event::Open`]: one deadline for the whole handshake. Then, while
//!   [`Connection::is_mid_message`], a limit on the time without a byte; while
//!   [`Connection::has_output`], one on the time in which the socket takes none. A client that is
//!   idle between messages may stay for ever.
//! - **End of input.** `recv` of 0 bytes is [`Connection::handle_eof`]. An error of the socket needs
//!   no call: drop the connection.
//! - **Shutdown.** [`Connection::begin_shutdown`], then hang up once [`Connection::is_idle`].

mod connection;
mod export;
pub mod handshake;
mod options;
mod request;
mod slots;
pub mod wire;

use thiserror::Error;

pub use connection::Connection;
pub use export::{ExportError, ExportInfo, Exports};
pub use request::{Command, Errno, Request, RequestId};

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most requests in flight; at least one.
    pub requests: u16,
    /// Most bytes in the buffers of the requests in flight. One request may exceed it alone.
    pub bytes: u64,
}

impl Default for Limits {
    /// 256 requests (a table of 25 KiB), 64 MiB.
    fn default() -> Self {
        Limits { requests: 256, bytes: 64 << 20 }
    }
}

/// Where a connection stands with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// There is none to be had.
    #[default]
    Unavailable,
    /// The client may ask for it.
    Offered,
    /// The client must ask for it, and gets nothing else before.
    Required,
    /// In use.
    Secured,
}

/// What the socket is to be read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Any bytes, for [`Connection::receive`].
    Bytes,
    /// The next bytes are a write's payload, for its own buffer and [`Connection::payload`].
    Payload {
        /// The write.
        id: RequestId,
        /// Bytes of the payload that are in the buffer.
        filled: u32,
        /// Bytes that are still to come, never 0.
        remaining: u32,
    },
    /// Nothing, until output is sent or requests are replied to.
    Nothing,
    /// Nothing ever again: close the socket.
    Close,
}

/// What the input brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over.
    Open {
        /// Index of the export in the list.
        export: usize,
    },
    /// All that goes either way from here on is encrypted, once the output that is there is sent.
    StartTls,
    /// A write begins: its payload needs a buffer. The same request is returned by
    /// [`Connection::payload`] when the payload is whole; only then is it to be carried out.
    Payload(Request),
    /// A request is to be carried out.
    Request(Request),
    /// The client leaves in good order. Requests in flight are still to be replied to.
    Disconnect,
    /// The client broke the protocol: hang up, at once or when [`Want::Close`] says that all good
    /// requests were answered.
    Violation(Violation),
}

/// How a client broke the protocol beyond repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The client's flags hold one that was not offered.
    #[error("client flags {found:#x} were not offered")]
    ClientFlags {
        /// The flags.
        found: u32,
    },
    /// An option does not begin with its magic.
    #[error("option magic is {found:#x}")]
    OptionMagic {
        /// The magic.
        found: u64,
    },
    /// An option's data is too long to be skipped, or an export's name to be one.
    #[error("option {option} has {len} bytes of data")]
    OptionTooLong {
        /// The option.
        option: u32,
        /// Bytes.
        len: u32,
    },
    /// The client haggles without end.
    #[error("too many options")]
    TooManyOptions,
    /// `NBD_OPT_EXPORT_NAME` without TLS, which is required; it has no error reply.
    #[error("the client asked for an export without TLS, which is required")]
    TlsRequired,
    /// `NBD_OPT_EXPORT_NAME` cannot be granted, and has no error reply.
    #[error("the export that was asked for cannot be had")]
    UnknownExport,
    /// A request does not begin with its magic.
    #[error("request magic is {found:#x}")]
    RequestMagic {
        /// The magic.
        found: u32,
    },
    /// A write's payload is too long even to be thrown away.
    #[error("write of {found} bytes, where {max} are tolerated")]
    PayloadTooLong {
        /// Bytes.
        found: u32,
        /// Bytes.
        max: u32,
    },
    /// The connection ended within a message.
    #[error("the connection ended within a message")]
    Truncated,
}

impl Violation {
    /// What all that are counted together in a log have in common.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Truncated => "the connection ended within a message",
            _ => "it broke the protocol",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Well. A read's buffer holds its data.
    Done,
    /// The answer to a block status: extents from the request's offset on. They may fall short of
    /// the range (the client asks again from there) or go beyond it (they are cut).
    Extents(&'a [Extent]),
    /// Not at all, or not wholly.
    Error(Errno),
}

/// A run of bytes in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// Not allocated: writing here may run out of space.
    pub hole: bool,
    /// Known to read as zeroes.
    pub zero: bool,
}

impl Extent {
    fn flags(&self) -> u32 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.hole, wire::STATE_HOLE) | bit(self.zero, wire::STATE_ZERO)
    }
}

/// A run of bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Bytes of a read's buffer.
    Buffer {
        /// The read.
        id: RequestId,
        /// First byte in its buffer.
        start: u32,
        /// Bytes.
        len: u32,
    },
}
