//! A client of NBD on a Unix socket: as many requests under way as wanted, simple replies.
//!
//! Source: `doc/proto.md` of NetworkBlockDevice/nbd: fixed newstyle, `NBD_OPT_GO`, simple replies. Sending and
//! receiving go on side by side, so that neither end can wait for the other with full sockets.

use super::generator::Request;
use super::port::{Ended, Port};
use super::recorder::Kind;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, no zeroes.
const CLIENT_FLAGS: u32 = 3;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const REQUEST_LEN: usize = 28;
const REPLY_LEN: usize = 16;

/// See the module.
pub(crate) struct Nbd {
    socket: UnixStream,
    /// Bytes of the export.
    pub size: u64,
    out: VecDeque<Outgoing>,
    /// By slot: where a read's data go, and how many.
    running: Vec<Option<(Kind, *mut u8, usize)>>,
    reply: [u8; REPLY_LEN],
    /// Bytes there of the reply, then of the data of the slot.
    filled: usize,
    reading: Option<(u32, usize)>,
}

/// A request on its way: header, then data.
struct Outgoing {
    header: [u8; REQUEST_LEN],
    data: *const u8,
    len: usize,
    sent: usize,
}

// SAFETY: the pointers are those that `submit` was given, which stay valid until the request has ended.
unsafe impl Send for Nbd {}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the NBD server breaks the protocol: {why}"))
}

impl Nbd {
    /// Connects and goes for the export of no name, which is the server's only one.
    pub(crate) fn connect(path: &Path, depth: u32) -> io::Result<Self> {
        let mut socket = UnixStream::connect(path)?;
        let size = greet(&mut socket)?;
        socket.set_nonblocking(true)?;
        let running = vec![None; depth as usize];
        Ok(Self {
            socket,
            size,
            out: VecDeque::new(),
            running,
            reply: [0; REPLY_LEN],
            filled: 0,
            reading: None,
        })
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while let Some(next) = self.out.front_mut() {
            let chunk = if next.sent < REQUEST_LEN {
                &next.header[next.sent..]
            } else {
                let done = next.sent - REQUEST_LEN;
                // SAFETY: the submitter keeps it until the request has ended, which is after it was sent.
                unsafe { std::slice::from_raw_parts(next.data.add(done), next.len - done) }
            };
            if chunk.is_empty() {
                self.out.pop_front();
                continue;
            }
            match self.socket.write(chunk) {
                Ok(sent) => next.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives what is there.
    fn receive(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        loop {
            let result = match self.reading {
                None => self.socket.read(&mut self.reply[self.filled..]),
                Some((slot, len)) => {
                    let (_, memory, _) =
                        self.running[slot as usize].expect("its reply came just now");
                    // SAFETY: the slot's memory, ours until its end is told.
                    let rest = unsafe {
                        std::slice::from_raw_parts_mut(memory.add(self.filled), len - self.filled)
                    };
                    self.socket.read(rest)
                }
            };
            match result {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the NBD server hung up",
                    ));
                }
                Ok(more) => self.filled += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            match self.reading {
                None if self.filled == REPLY_LEN => self.replied(ended)?,
                Some((slot, len)) if self.filled == len => {
                    self.reading = None;
                    self.filled = 0;
                    self.end(slot, Ok(()), ended);
                }
                _ => {}
            }
        }
    }

    fn replied(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        self.filled = 0;
        let word =
            |at: usize| u32::from_be_bytes(self.reply[at..at + 4].try_into().expect("four bytes"));
        if word(0) != SIMPLE_REPLY_MAGIC {
            return Err(broken("a reply without its magic"));
        }
        let (error, slot) = (word(4), word(12));
        let running = self.running.get(slot as usize).copied().flatten();
        let Some((kind, _, len)) = running else { return Err(broken("a reply to nothing")) };
        if error != 0 {
            let error = io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(libc::EIO));
            self.end(slot, Err(error), ended);
        } else if kind == Kind::Read {
            self.reading = Some((slot, len));
        } else {
            self.end(slot, Ok(()), ended);
        }
        Ok(())
    }

    fn end(&mut self, slot: u32, result: io::Result<()>, ended: &mut Vec<Ended>) {
        self.running[slot as usize] = None;
        ended.push((slot, result));
    }
}

/// The handshake; bytes of the export.
fn greet(socket: &mut UnixStream) -> io::Result<u64> {
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting)?;
    if greeting[..8] != INIT_MAGIC.to_be_bytes() || greeting[8..16] != OPTION_MAGIC.to_be_bytes() {
        return Err(broken("no greeting of newstyle"));
    }
    socket.write_all(&CLIENT_FLAGS.to_be_bytes())?;
    let mut go = Vec::new();
    go.extend(OPTION_MAGIC.to_be_bytes());
    go.extend(OPT_GO.to_be_bytes());
    // A name of no bytes, and no further facts wanted.
    go.extend(6u32.to_be_bytes());
    go.extend([0; 6]);
    socket.write_all(&go)?;
    let mut size = None;
    loop {
        let mut header = [0; 20];
        socket.read_exact(&mut header)?;
        let word =
            |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if header[..8] != OPTION_REPLY_MAGIC.to_be_bytes() || word(16) > 65536 {
            return Err(broken("no reply to an option"));
        }
        let mut data = vec![0; word(16) as usize];
        socket.read_exact(&mut data)?;
        match word(12) {
            REP_ACK => return size.ok_or_else(|| broken("it never told the size")),
            REP_INFO if data.len() >= 12 && data[..2] == INFO_EXPORT.to_be_bytes() => {
                size = Some(u64::from_be_bytes(data[2..10].try_into().expect("eight bytes")));
            }
            REP_INFO => {}
            other => return Err(broken(&format!("it refuses the export, with {other:#x}"))),
        }
    }
}

impl Port for Nbd {
    unsafe fn submit(&mut self, request: &Request, memory: *mut u8) -> io::Result<()> {
        let len = request.len as usize;
        let command: u16 = match request.kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Flush => 3,
        };
        let mut header = [0; REQUEST_LEN];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[6..8].copy_from_slice(&command.to_be_bytes());
        header[8..16].copy_from_slice(&u64::from(request.slot).to_be_bytes());
        header[16..24].copy_from_slice(&request.offset.to_be_bytes());
        header[24..].copy_from_slice(&(request.len as u32).to_be_bytes());
        self.running[request.slot as usize] = Some((request.kind, memory, len));
        let len = if request.kind == Kind::Write { len } else { 0 };
        self.out.push_back(Outgoing { header, data: memory, len, sent: 0 });
        Ok(())
    }

    fn wait(&mut self, ended: &mut Vec<Ended>, patience: Option<Duration>) -> io::Result<()> {
        let until = patience.map(|patience| std::time::Instant::now() + patience);
        loop {
            self.send()?;
            self.receive(ended)?;
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if !ended.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            let out = if self.out.is_empty() { 0 } else { libc::POLLOUT };
            poll(&self.socket, libc::POLLIN | out, left)?;
        }
    }
}

fn poll(socket: &UnixStream, events: libc::c_short, patience: Option<Duration>) -> io::Result<()> {
    let mut fd = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    let timespec = patience.map(|patience| libc::timespec {
        tv_sec: patience.as_secs().min(3600) as libc::time_t,
        tv_nsec: patience.subsec_nanos().into(),
    });
    let timespec = timespec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both outlive the call.
    match unsafe { libc::ppoll(&mut fd, 1, timespec, std::ptr::null()) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
        _ => Ok(()),
    }
}
