//! A blocking NBD client with any number of requests in flight, and raw access for misbehaving.

use super::BOUND;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub const FUA: u16 = 1;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

/// Either kind of socket.
pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buf),
            Stream::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buf),
            Stream::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

/// A connection.
pub struct Client {
    pub stream: Stream,
    pub size: u64,
}

impl Client {
    /// Connected, the handshake done.
    pub fn unix(path: &Path) -> Self {
        Self::raw_unix(path).opened()
    }

    /// As [`Client::unix`].
    pub fn tcp(address: SocketAddr) -> Self {
        Self::raw_tcp(address).opened()
    }

    /// Connected; nothing was said.
    pub fn raw_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connects");
        stream.set_read_timeout(Some(BOUND)).expect("takes it");
        stream.set_write_timeout(Some(BOUND)).expect("takes it");
        Self { stream: Stream::Unix(stream), size: 0 }
    }

    /// As [`Client::raw_unix`].
    pub fn raw_tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("takes it");
        stream.set_read_timeout(Some(BOUND)).expect("takes it");
        stream.set_write_timeout(Some(BOUND)).expect("takes it");
        Self { stream: Stream::Tcp(stream), size: 0 }
    }

    fn opened(mut self) -> Self {
        self.open().expect("the handshake succeeds");
        self
    }

    /// What a client says until it is in transmission.
    pub fn hello() -> Vec<u8> {
        let mut hello = Vec::from(1u32.to_be_bytes());
        hello.extend(b"IHAVEOPT");
        hello.extend(7u32.to_be_bytes());
        hello.extend(6u32.to_be_bytes());
        hello.extend([0; 6]);
        hello
    }

    pub fn open(&mut self) -> io::Result<()> {
        let greeting: [u8; 18] = self.take()?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        self.stream.write_all(&Self::hello())?;
        loop {
            let head: [u8; 20] = self.take()?;
            let word = |at| u32::from_be_bytes(std::array::from_fn(|i| head[at + i]));
            let mut data = vec![0; word(16) as usize];
            self.stream.read_exact(&mut data)?;
            match word(12) {
                1 => return Ok(()),
                3 if data[..2] == [0, 0] => {
                    self.size = u64::from_be_bytes(data[2..10].try_into().expect("eight bytes"));
                }
                3 => {}
                other => panic!("option reply {other:#x}"),
            }
        }
    }

    pub fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// A request's header.
    pub fn header(ask: Ask, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
        let mut header = Vec::from(0x2560_9513u32.to_be_bytes());
        header.extend(flags.to_be_bytes());
        header.extend((ask as u16).to_be_bytes());
        header.extend(cookie.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend(len.to_be_bytes());
        header
    }

    /// Sends a request; its payload follows for a write.
    pub fn send(
        &mut self,
        ask: Ask,
        flags: u16,
        cookie: u64,
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        let mut bytes = Self::header(ask, flags, cookie, offset, len);
        bytes.extend(payload);
        self.stream.write_all(&bytes)
    }

    /// The next reply: cookie and error. A good reply to a read is followed by its data.
    pub fn receive(&mut self) -> io::Result<(u64, u32)> {
        let reply: [u8; 16] = self.take()?;
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes(), "a simple reply");
        let error = u32::from_be_bytes(std::array::from_fn(|i| reply[4 + i]));
        let cookie = u64::from_be_bytes(std::array::from_fn(|i| reply[8 + i]));
        Ok((cookie, error))
    }

    fn call(&mut self, ask: Ask, flags: u16, offset: u64, len: u32, payload: &[u8]) -> u32 {
        self.send(ask, flags, 77, offset, len, payload).expect("sends");
        let (cookie, error) = self.receive().expect("is answered");
        assert_eq!(cookie, 77);
        error
    }

    /// Reads; an NBD error is the error.
    pub fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        match self.call(Ask::Read, 0, offset, len as u32, &[]) {
            0 => {
                let mut data = vec![0; len];
                self.stream.read_exact(&mut data).expect("data follows");
                Ok(data)
            }
            error => Err(error),
        }
    }

    /// Writes; 0 or an NBD error.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.call(Ask::Write, 0, offset, data.len() as u32, data)
    }

    /// As [`Client::write`], durably.
    pub fn write_fua(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.call(Ask::Write, FUA, offset, data.len() as u32, data)
    }

    /// 0 or an NBD error.
    pub fn flush(&mut self) -> u32 {
        self.call(Ask::Flush, 0, 0, 0, &[])
    }

    /// 0 or an NBD error.
    pub fn zero(&mut self, offset: u64, len: u32) -> u32 {
        self.call(Ask::WriteZeroes, 0, offset, len, &[])
    }

    /// Discards durably; 0 or an NBD error.
    pub fn trim_fua(&mut self, offset: u64, len: u32) -> u32 {
        self.call(Ask::Trim, FUA, offset, len, &[])
    }

    /// Whether the server has hung up, as it must within the bound.
    pub fn is_cut_off(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Leaves in good order.
    pub fn disconnect(mut self) {
        self.send(Ask::Disconnect, 0, 0, 0, 0, &[]).expect("sends");
        assert!(self.is_cut_off());
    }
}
