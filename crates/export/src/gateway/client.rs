//! A client's socket, in the clear or encrypted, read and written without waiting.

use crate::tls::{Stream, TLS_FAILED, describe, send_now};
use rustls::ServerConfig;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use thiserror::Error;

/// Why no more can be said to a client.
#[derive(Debug, Error)]
pub(super) enum ClientError {
    /// The connection is gone.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What it sent is no TLS, or no TLS that it may come with.
    #[error("{TLS_FAILED}: {}", describe(.0))]
    Tls(#[from] rustls::Error),
}

/// See the module.
pub(super) struct Client {
    socket: Socket,
    tls: Option<Box<Stream>>,
    /// Bytes that went to the socket and were not asked for.
    sent: usize,
}

/// A connected socket that does not wait.
pub(super) struct Socket {
    /// Of what a [`UnixStream`] can do only what all stream sockets can is used.
    stream: UnixStream,
    /// How many bytes are read before the end; all that come, if there is no such number.
    left: Option<usize>,
}

impl Socket {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Self { stream, left: None })
    }

    /// What there is to read: none if nothing is yet, zero bytes at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        // The system would say of an empty socket that it has to wait, even if nothing is asked for.
        if self.left == Some(0) {
            return Ok(Some(0));
        }
        let room = self.left.map_or(into.len(), |left| left.min(into.len()));
        let count = unless_it_waits(|| self.stream.read(&mut into[..room]))?;
        self.left = self.left.map(|left| left - count.unwrap_or_default());
        Ok(count)
    }

    /// Takes as many bytes as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_it_waits(|| self.stream.write(bytes)).map(Option::unwrap_or_default)
    }

    /// Says that no more will come.
    pub(super) fn end(&self) {
        // Who is gone has no need of it.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// How many bytes have come that are not read yet.
    fn waiting(&self) -> io::Result<usize> {
        let mut count: libc::c_int = 0;
        // SAFETY: the descriptor is ours, and the kernel writes one int.
        match unsafe { libc::ioctl(self.as_raw_fd(), libc::FIONREAD, &raw mut count) } {
            0 => Ok(usize::try_from(count).unwrap_or_default()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

fn unless_it_waits(mut io: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match io() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Client {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: Socket::new(socket)?, tls: None, sent: 0 })
    }

    /// From here on all is encrypted; `early` came in the clear behind the wish for that.
    pub(super) fn start_tls(
        &mut self,
        config: Arc<ServerConfig>,
        early: &[u8],
    ) -> Result<(), ClientError> {
        self.tls = Some(Box::new(Stream::new(config, early)?));
        Ok(())
    }

    /// What there is to read: none if nothing is yet, zero bytes at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ClientError> {
        let Some(tls) = &mut self.tls else { return Ok(self.socket.read(into)?) };
        loop {
            let count = tls.read(into)?;
            if count > 0 || tls.has_ended() {
                return Ok(Some(count));
            }
            match self.socket.read(tls.room())? {
                Some(0) => return Ok(Some(0)),
                Some(count) => tls.received(count),
                None => return Ok(None),
            }
        }
    }

    /// What has not come by now is not read any more: behind the rest is the end.
    pub(super) fn end_input(&mut self) -> io::Result<()> {
        self.socket.left = Some(self.socket.waiting()?);
        Ok(())
    }

    /// Whether there may be more to read than the socket tells of.
    pub(super) fn has_input(&self) -> bool {
        self.socket.left == Some(0) || self.tls.as_ref().is_some_and(|tls| !tls.is_drained())
    }

    /// Takes as many bytes as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, ClientError> {
        self.flush()?;
        let Some(tls) = &mut self.tls else {
            let count = self.socket.write(bytes)?;
            self.sent += count;
            return Ok(count);
        };
        let count = bytes.len().min(tls.room_out());
        tls.write(&bytes[..count]);
        self.flush()?;
        Ok(count)
    }

    /// Sends of what is encrypted as much as there is room for.
    pub(super) fn flush(&mut self) -> Result<(), ClientError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while let Some(output) = tls.output() {
            match self.socket.write(output)? {
                0 => break,
                count => {
                    tls.sent(count);
                    self.sent += count;
                }
            }
        }
        Ok(())
    }

    /// How many bytes have gone since the last call, as they went: what is encrypted may wait here for long.
    pub(super) fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    /// Says that no more will come.
    pub(super) fn end(&mut self) {
        self.say_last_words();
        self.socket.end();
    }

    fn say_last_words(&mut self) {
        if let Some(tls) = &mut self.tls {
            // Who does not take it sees the end of the socket.
            let _ = send_now(self.socket.as_raw_fd(), tls.last_words());
        }
    }

    /// Drops some of what has come; whether it has come to the end.
    pub(super) fn drop_input(&mut self) -> io::Result<bool> {
        let mut stream = &self.socket.stream;
        Ok(unless_it_waits(|| stream.read(&mut [0; 16 << 10]))? == Some(0))
    }

    /// Whether something encrypted is left to be sent.
    pub(super) fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }
}

impl AsRawFd for Client {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.say_last_words();
    }
}
