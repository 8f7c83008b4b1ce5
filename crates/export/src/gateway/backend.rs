//! A connection to the server of one array, for as long as options are haggled over: a client's options go there as they
//! are, and the replies come back as they are.

use super::wait::{Wait, wait};
use crate::nbd::wire::{self, handshake_flag, opt, rep};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a server may take to answer an option. It waits for no disk to do so.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of replies to one option: a server names and describes one export, in 4 KiB each.
const REPLIES_MAX: usize = 64 << 10;

/// Why a server cannot be used.
#[derive(Debug, Error)]
pub enum BackendError {
    /// Its socket failed.
    #[error(transparent)]
    Io(io::Error),
    /// It is stopped or stuck.
    #[error("it does not answer")]
    Silent,
    /// It turned the connection away.
    #[error("it has ended the connection: it is being stopped, or has too many clients")]
    Ended,
    /// It does not begin as servers of NBD do.
    #[error("its greeting is not that of fixed newstyle NBD")]
    Greeting,
    /// It does not do what its client was told.
    #[error("it has no structured replies")]
    Unstructured,
    /// A reply does not begin with its magic.
    #[error("reply magic is {found:#x}")]
    ReplyMagic {
        /// The magic.
        found: u64,
    },
    /// A reply is to another option.
    #[error("a reply is to option {found}, not to {expected}")]
    ReplyOption {
        /// The option.
        found: u32,
        /// The one that was asked.
        expected: u32,
    },
    /// Its replies do not end.
    #[error("its replies to option {option} have more than {REPLIES_MAX} bytes")]
    TooLong {
        /// The option.
        option: u32,
    },
}

impl From<io::Error> for BackendError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent,
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                Self::Ended
            }
            _ => Self::Io(error),
        }
    }
}

/// Replies to one option, as they came.
#[derive(Debug, PartialEq, Eq)]
pub struct Replies {
    /// All of them.
    pub bytes: Vec<u8>,
    /// Bytes of those before the last.
    pub entries: usize,
    /// The last says that it is done.
    pub is_ack: bool,
}

/// Reads replies to an option up to the last, and not a byte further.
///
/// # Errors
/// [`BackendError`].
pub fn read_replies(from: &mut impl Read, option: u32) -> Result<Replies, BackendError> {
    let mut bytes = Vec::new();
    loop {
        let entries = bytes.len();
        let mut header = [0; wire::OPTION_REPLY_HEADER_LEN];
        from.read_exact(&mut header)?;
        let reply = wire::OptionReplyHeader::decode(&header)
            .map_err(|found| BackendError::ReplyMagic { found })?;
        if reply.option != option {
            return Err(BackendError::ReplyOption { found: reply.option, expected: option });
        }
        let start = entries + header.len();
        let end = start.saturating_add(reply.len as usize);
        if end > REPLIES_MAX {
            return Err(BackendError::TooLong { option });
        }
        bytes.extend_from_slice(&header);
        bytes.resize(end, 0);
        from.read_exact(&mut bytes[start..])?;
        let is_ack = reply.kind == rep::ACK;
        if is_ack || rep::is_error(reply.kind) {
            return Ok(Replies { bytes, entries, is_ack });
        }
    }
}

/// See the module.
pub(super) struct Backend {
    stream: Timed,
    structured: bool,
}

/// A socket that is read from and written to until a time, however little comes at once.
struct Timed {
    stream: UnixStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A socket takes no time of zero.
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Backend {
    /// Begins as the client did. The server has until then for this and what else it is asked.
    pub(super) fn greet(
        stream: UnixStream,
        no_zeroes: bool,
        until: Instant,
    ) -> Result<Self, BackendError> {
        let mut stream = Timed { stream, until };
        let mut greeting = [0; wire::GREETING_LEN];
        stream.read_exact(&mut greeting)?;
        let (magics, flags) = greeting.split_at(16);
        let flags = u16::from_be_bytes([flags[0], flags[1]]);
        let wanted = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        let expected = [wire::INIT_MAGIC.to_be_bytes(), wire::OPTION_MAGIC.to_be_bytes()].concat();
        if magics != expected || flags & wanted != wanted {
            return Err(BackendError::Greeting);
        }
        let zeroes = if no_zeroes { 0 } else { handshake_flag::NO_ZEROES };
        stream.write_all(&u32::from(wanted & !zeroes).to_be_bytes())?;
        Ok(Self { stream, structured: false })
    }

    /// The server has until then for what it is asked from here on.
    pub(super) fn wait_until(&mut self, until: Instant) {
        self.stream.until = until;
    }

    /// Whether the server has ended the connection: it says nothing that it is not asked.
    pub(super) fn has_ended(&self) -> bool {
        let mut said = [Wait::new(self.stream.stream.as_raw_fd(), true, false)];
        wait(&mut said, Some(Instant::now())).unwrap_or(true)
    }

    /// Passes an option on that has replies.
    pub(super) fn ask(&mut self, option: u32, data: &[u8]) -> Result<Replies, BackendError> {
        self.send(option, data)?;
        read_replies(&mut self.stream, option)
    }

    /// Agrees on structured replies, if that is not done yet.
    pub(super) fn structure(&mut self) -> Result<(), BackendError> {
        if !self.structured && !self.ask(opt::STRUCTURED_REPLY, &[])?.is_ack {
            return Err(BackendError::Unstructured);
        }
        self.structured = true;
        Ok(())
    }

    /// Passes an option on.
    pub(super) fn send(&mut self, option: u32, data: &[u8]) -> Result<(), BackendError> {
        let mut bytes = Vec::with_capacity(wire::OPTION_HEADER_LEN + data.len());
        bytes.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        Ok(self.stream.write_all(&bytes)?)
    }

    /// The connection, on which an export was chosen.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let words = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
        [&wire::OPTION_REPLY_MAGIC.to_be_bytes()[..], &words, data].concat()
    }

    #[test]
    fn replies_are_read_to_the_last_and_no_further() {
        let (entry, ack) =
            (reply(opt::LIST, rep::SERVER, b"\0\0\0\x01a"), reply(opt::LIST, rep::ACK, &[]));
        let all = [&entry[..], &ack, b"what follows"].concat();
        let mut from = &all[..];
        let read = read_replies(&mut from, opt::LIST).unwrap();
        assert_eq!(from, b"what follows");
        assert_eq!((read.entries, read.is_ack), (entry.len(), true));
        assert_eq!(read.bytes, [entry, ack].concat());
        let refused = reply(opt::GO, rep::ERR_UNKNOWN, b"why");
        let read = read_replies(&mut &refused[..], opt::GO).unwrap();
        assert_eq!(read, Replies { bytes: refused, entries: 0, is_ack: false });
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let of = |bytes: &[u8]| read_replies(&mut &*bytes, opt::GO).unwrap_err();
        assert!(matches!(of(&[0; 20]), BackendError::ReplyMagic { found: 0 }));
        let other = of(&reply(opt::LIST, rep::ACK, &[]));
        assert!(matches!(other, BackendError::ReplyOption { found: opt::LIST, .. }));
        let mut long = reply(opt::GO, rep::INFO, &[]);
        long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(of(&long), BackendError::TooLong { .. }));
        let endless = reply(opt::GO, rep::INFO, &[0; 1000]).repeat(100);
        assert!(matches!(of(&endless), BackendError::TooLong { .. }));
        assert!(matches!(of(&endless[..30]), BackendError::Ended), "torn");
    }
}
