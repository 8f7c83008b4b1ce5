//! TLS of one connection, without I/O: what came from the socket goes in, what is to be sent comes out.
//!
//! Invariants:
//! - what the client sent is taken in before more is asked of the socket (`Stream::is_drained`);
//! - what is encrypted is sent before more is encrypted, so that a client that takes no replies fills
//!   `OUT_BYTES` and no more.

mod certificates;

pub use certificates::{Peers, TlsError, server_config};

pub use rustls::ServerConfig;
use rustls::{CertificateError, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::sync::Arc;

/// What is told of a client first.
pub(crate) const TLS_FAILED: &str = "TLS failed";
/// Received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Plaintext that is encrypted at once: some 16 records.
const OUT_BYTES: usize = 256 << 10;

/// What a server offers its clients.
#[derive(Clone, Debug)]
pub struct TlsOffer {
    /// Certificates, and whom they let in.
    pub config: Arc<ServerConfig>,
    /// Clients that do without are turned away.
    pub is_required: bool,
}

/// One client's. See the module.
pub(crate) struct Stream {
    state: ServerConnection,
    received: Box<[u8]>,
    /// What of that is not taken in yet.
    input: Range<usize>,
    /// Nothing is left to read of what was taken in.
    is_drained: bool,
    /// The client has said that no more will come.
    has_ended: bool,
    /// Encrypted; the first `sent` bytes are gone.
    out: Vec<u8>,
    sent: usize,
}

impl Stream {
    /// The client is about to begin; `early` came together with what asked for TLS.
    pub(crate) fn new(config: Arc<ServerConfig>, early: &[u8]) -> Result<Self, rustls::Error> {
        let mut state = ServerConnection::new(config)?;
        state.set_buffer_limit(None);
        let mut received = vec![0; RECEIVE_BYTES.max(early.len())].into_boxed_slice();
        received[..early.len()].copy_from_slice(early);
        Ok(Self {
            state,
            received,
            input: 0..early.len(),
            is_drained: early.is_empty(),
            has_ended: false,
            out: Vec::new(),
            sent: 0,
        })
    }

    /// Reads what the client has sent; 0: more has to be received first.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, rustls::Error> {
        loop {
            match self.state.reader().read(into) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(0);
                }
                Ok(count) => return Ok(count),
                Err(_) if self.input.is_empty() => {
                    self.is_drained = true;
                    return Ok(0);
                }
                Err(_) => self.take_in()?,
            }
        }
    }

    fn take_in(&mut self) -> Result<(), rustls::Error> {
        let mut input = &self.received[self.input.clone()];
        let taken = self.state.read_tls(&mut input);
        taken.map_err(|error| rustls::Error::General(error.to_string()))?;
        self.input.start = self.input.end - input.len();
        self.state.process_new_packets().map(drop)
    }

    /// Whether all that came has been read.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Whether the client has said that it is done.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Where the socket's bytes go next.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        assert!(self.is_drained, "what came is taken in before more is received");
        &mut self.received
    }

    /// So many came.
    pub(crate) fn received(&mut self, count: usize) {
        self.input = 0..count;
        self.is_drained = false;
    }

    /// How many bytes may be encrypted now.
    pub(crate) fn room_out(&self) -> usize {
        if self.out.is_empty() { OUT_BYTES } else { 0 }
    }

    /// Encrypts for the client.
    pub(crate) fn write(&mut self, plain: &[u8]) {
        self.state.writer().write_all(plain).expect("there is no limit");
    }

    /// What is to be sent, if there is anything; it stays where it is until all of it is.
    pub(crate) fn output(&mut self) -> Option<&[u8]> {
        if self.out.is_empty() {
            self.collect();
        }
        Some(&self.out[self.sent..]).filter(|left| !left.is_empty())
    }

    fn collect(&mut self) {
        while self.state.wants_write() {
            self.state.write_tls(&mut self.out).expect("memory takes all");
        }
    }

    /// Whether something is left to be sent.
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.state.wants_write()
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// What tells the client of the end, or of what went wrong, if nothing else is on its way.
    pub(crate) fn last_words(&mut self) -> &[u8] {
        if !self.out.is_empty() {
            return &[];
        }
        self.state.send_close_notify();
        self.collect();
        &self.out
    }
}

/// What went wrong, in the operator's words.
pub(crate) fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "the client's certificate says none of the names that are let in".to_owned()
        }
        error => error.to_string(),
    }
}

/// Sends what the socket takes at once.
pub(crate) fn send_now(fd: std::os::fd::RawFd, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are valid for the call, and the kernel checks the descriptor.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 { Err(io::Error::from(ErrorKind::WouldBlock)) } else { Ok(()) }
}
