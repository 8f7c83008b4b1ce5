//! `/dev/fuse`: requests read from it, and answers written to it.
//!
//! A request is taken only when there is room for the longest.

use super::TRANSFER_MAX;
use super::memory::{Memory, Run, warm_heap};
use super::wire::{Body, HEAD, Request, out_header, parse};
use lapstrake_host::{IoVec, flush_others_last};
use std::{
    io,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
};

/// An answer with this many bytes and more is sent by a thread of its own, so that the shard can
/// fetch the next meanwhile: the copy into the reader's memory takes about as long as the fetch.
const LONG: usize = 64 << 10;

/// The connection to the kernel.
pub(super) struct Device(OwnedFd);

impl Device {
    pub(super) fn new(device: OwnedFd) -> io::Result<Arc<Self>> {
        // SAFETY: changes a flag of a descriptor that is open.
        match unsafe { libc::fcntl(device.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
            0 => Ok(Arc::new(Self(device))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// One request: its length, and `-errno`s as errors.
    fn receive(&self, head: &mut [u8; HEAD], room: &mut Run) -> io::Result<usize> {
        // SAFETY: the room is nobody's yet.
        let room = unsafe { room.bytes_mut() };
        let iov =
            [IoVec::new(head.as_mut_ptr(), head.len()), IoVec::new(room.as_mut_ptr(), room.len())];
        // SAFETY: both are valid for their lengths through the call.
        let count = unsafe { libc::readv(self.fd(), iov.as_ptr().cast(), 2) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    pub(super) fn answer(&self, unique: u64, mut body: Body) {
        self.send(body.to(unique), &[]);
    }

    fn give(&self, unique: u64, data: &[u8]) {
        self.send(&out_header(unique, data.len(), 0), data);
    }

    pub(super) fn refuse(&self, unique: u64, errno: i32) {
        self.send(&out_header(unique, 0, errno), &[]);
    }

    /// That who asked is gone is no failure.
    fn send(&self, start: &[u8], rest: &[u8]) {
        let run = |bytes: &[u8]| IoVec::new(bytes.as_ptr().cast_mut(), bytes.len());
        let iov = [run(start), run(rest)];
        // SAFETY: both are valid for their lengths through the call, which does not write to them.
        unsafe { libc::writev(self.fd(), iov.as_ptr().cast(), 2) };
    }
}

/// A long answer: the data of a read.
struct Data {
    unique: u64,
    memory: Run,
    range: Range<usize>,
}

/// What the session needs that reads the device.
pub(super) struct Intake {
    device: Arc<Device>,
    head: Box<[u8; HEAD]>,
    /// For the next request; a write's data are there until it has begun.
    pub(super) room: Option<Run>,
    pub(super) is_polling: bool,
    /// As many are on their way as may be.
    pub(super) is_full: bool,
    /// To the thread that sends long answers.
    long: Sender<Data>,
}

pub(super) enum Received {
    Request(Request),
    /// One was there, and is gone.
    Again,
    Nothing,
    NoRoom,
    End,
    /// And why.
    Failed(String),
}

impl Intake {
    /// # Errors
    /// A thread is refused.
    pub(super) fn new(device: Arc<Device>) -> io::Result<Self> {
        let (long, answers) = mpsc::channel::<Data>();
        let sender = device.clone();
        let send = move || {
            flush_others_last();
            warm_heap();
            for Data { unique, memory, range } in answers {
                // SAFETY: the array has filled the memory and done with it.
                sender.give(unique, &unsafe { memory.bytes() }[range]);
            }
        };
        std::thread::Builder::new().name("fuse-answers".into()).spawn(send)?;
        let head = Box::new([0; HEAD]);
        Ok(Self { device, head, room: None, is_polling: false, is_full: false, long })
    }

    pub(super) fn receive(&mut self, memory: &Arc<Memory>) -> Received {
        if self.room.is_none() {
            self.room = memory.alloc(TRANSFER_MAX);
        }
        let Some(room) = &mut self.room else { return Received::NoRoom };
        let len = match self.device.receive(&mut self.head, room) {
            Ok(len) => len,
            Err(error) => {
                return match error.raw_os_error() {
                    // Whoever asked was interrupted before we took it.
                    Some(libc::ENOENT | libc::EINTR) => Received::Again,
                    Some(libc::EAGAIN) => Received::Nothing,
                    Some(libc::ENODEV) => Received::End,
                    _ => Received::Failed(error.to_string()),
                };
            }
        };
        // SAFETY: the room is nobody's yet.
        let rest = &unsafe { room.bytes() }[..len.saturating_sub(HEAD)];
        match parse(&self.head[..len.min(HEAD)], rest) {
            Some(request) => Received::Request(request),
            None => Received::Failed("the kernel sent half a request".into()),
        }
    }

    /// Answers with what was read.
    pub(super) fn give(&self, unique: u64, memory: Run, range: Range<usize>) {
        if range.len() >= LONG {
            // Its receiver runs as long as there is a sender.
            let _ = self.long.send(Data { unique, memory, range });
        } else {
            // SAFETY: the array has filled it and done with it.
            self.device.give(unique, &unsafe { memory.bytes() }[range]);
        }
    }
}
