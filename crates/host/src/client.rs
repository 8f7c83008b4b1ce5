//! What a front end is to a shard: somebody who lives on the shard's thread, does its own I/O
//! through the shard's queue, and sends requests to the array.

use crate::holes::Extent;
use crate::shard_runtime::ShardRuntime;
use lapstrake_device::{COMMAND_BYTES, IoVec, Op};
use lapstrake_engine::{Buf, RequestError, RequestKind};
use std::{any::Any, ops::Range, os::fd::RawFd, time::Instant};

/// One client's session, driven by its shard.
pub trait Client: Send {
    /// The session begins.
    fn start(&mut self, cx: &mut Context<'_>);
    /// An operation that was begun with a [`Context`] has ended: bytes, or `-errno`.
    fn handle_io(&mut self, cx: &mut Context<'_>, tag: u32, result: i32);
    /// A request has been carried out, or not.
    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>);
    /// The replies that were there have been handed over: time to pass them on together.
    fn handle_replies_end(&mut self, cx: &mut Context<'_>);
    /// The time of [`Client::deadline`] has come.
    fn handle_time(&mut self, cx: &mut Context<'_>);
    /// When the session wants to be called at the latest.
    fn deadline(&self) -> Option<Instant>;
    /// Since when it has held memory and waited for its peer, if it does. While others lack memory,
    /// who does so for long is closed.
    fn idle_since(&self) -> Option<Instant> {
        None
    }
    /// Since when it has been shaking hands, if it does. While others find no room, the oldest of those
    /// is closed.
    fn handshake_since(&self) -> Option<Instant> {
        None
    }
    /// Others lack what it holds, and `why` says what that is: close.
    fn cut_off(&mut self, cx: &mut Context<'_>, why: &'static str) {
        let _ = why;
        cx.close();
    }
    /// The server is about to stop: finish what runs, take nothing new, then close.
    fn shut_down(&mut self, cx: &mut Context<'_>);
}

/// Memory of a request.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub(crate) buf: Buf,
    /// Its first byte; page-aligned.
    pub start: *mut u8,
}

// SAFETY: it is a name and an address; using the address is the user's own unsafe act.
unsafe impl Send for Memory {}

/// What a client can do.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) runtime: &'a mut ShardRuntime,
    pub(crate) client: usize,
}

impl Context<'_> {
    /// Memory for a request, or none while the shard's pool is full: then
    /// [`Client::handle_time`] is called when some was given back.
    pub fn alloc(&mut self, bytes: usize) -> Option<Memory> {
        self.runtime.alloc_for(self.client, bytes)
    }

    /// Names memory of the client's own, for requests.
    ///
    /// # Safety
    /// It is page-aligned. Until [`Context::free`] it is valid, for as many bytes as the longest request that names
    /// it has, and nobody else uses it while such a request is on its way.
    pub unsafe fn lend(&mut self, start: *mut u8) -> Memory {
        self.runtime.lend_for(self.client, start)
    }

    /// Gives memory back, after the last use of it.
    pub fn free(&mut self, memory: Memory) {
        self.runtime.free(self.client, memory);
    }

    /// Sends a request for `len` bytes at `offset`, both multiples of 512. `id` comes back in
    /// [`Client::handle_reply`]; the memory named by `kind` stays in use until then. A read sees every write whose
    /// answer led to it.
    pub fn request(&mut self, id: u64, kind: Kind, offset: u64, len: u64) {
        let kind = match kind {
            Kind::Read(memory) => RequestKind::Read(memory.buf),
            Kind::Write { memory, fua, followed } => {
                RequestKind::Write { buf: memory.buf, fua, followed }
            }
            Kind::WritePart { memory, at, old, skip, len: part, fua } => {
                assert!(u64::from(skip) + u64::from(part) <= len, "a part lies within its block");
                let (buf, old) = (memory.buf.advance(at), old - at);
                RequestKind::WritePart { buf, old, skip, len: part, fua }
            }
            Kind::Flush => RequestKind::Flush,
            Kind::Discard => RequestKind::Discard,
            Kind::WriteZeroes { fua, unmap } => RequestKind::WriteZeroes { fua, unmap },
        };
        assert!(
            offset.is_multiple_of(512) && len.is_multiple_of(512),
            "{len} bytes at {offset}: not whole sectors"
        );
        self.runtime.request_from(self.client, id, kind, offset / 512, len / 512);
    }

    /// Asks which of these bytes are holes of the members' files, and so read as zeros. `id` comes back in
    /// [`Client::handle_reply`]; then [`Context::extents`] has what was found.
    pub fn ask_for_holes(&mut self, id: u64, range: Range<u64>) {
        self.runtime.ask_for_holes(self.client, id, range);
    }

    /// What was found, from the range's beginning on; it may fall short of its end.
    pub fn extents(&mut self, id: u64) -> Vec<Extent> {
        self.runtime.questions.take(self.client, id)
    }

    /// The bytes of the first span from `at` on that this shard owns, or of what is left of it there; none if others
    /// own all. They may lie beyond the array's end, and change as clients of other shards come and go. A request may
    /// name any bytes, but a write of what another shard owns costs two hand-overs between cores.
    #[must_use]
    pub fn owned(&self, at: u64) -> Option<Range<u64>> {
        let sectors = self.runtime.owned(at.div_ceil(512))?;
        Some(sectors.start.saturating_mul(512)..sectors.end.saturating_mul(512))
    }

    /// Whether it is worth finding out if a write is followed by another request.
    #[must_use]
    pub fn joins_writes(&self) -> bool {
        self.runtime.engine.joins_writes()
    }

    /// Receives up to `len` bytes.
    ///
    /// # Safety
    /// The memory stays valid and otherwise unused until the operation has ended; the
    /// descriptor stays open.
    pub unsafe fn recv(&mut self, tag: u32, fd: RawFd, start: *mut u8, len: usize) {
        // SAFETY: passed on to the caller.
        unsafe { self.runtime.client_op(self.client, tag, Op::Recv { fd, ptr: start, len }) };
    }

    /// Sends; fewer bytes than given may go.
    ///
    /// # Safety
    /// As [`Context::recv`].
    pub unsafe fn send(&mut self, tag: u32, fd: RawFd, iov: &[IoVec]) {
        // SAFETY: passed on to the caller.
        unsafe { self.runtime.client_op(self.client, tag, Op::Send { fd, iov }) };
    }

    /// Waits until a descriptor is readable or hung up.
    ///
    /// # Safety
    /// It stays open until the operation has ended.
    pub unsafe fn poll(&mut self, tag: u32, fd: RawFd) {
        // SAFETY: passed on to the caller.
        unsafe { self.runtime.client_op(self.client, tag, Op::PollIn { fd }) };
    }

    /// Gives a driver a command, as [`Op::Command`].
    ///
    /// # Safety
    /// The descriptor stays open, and memory that the payload and the vectors name valid, until the operation has ended,
    /// or was given up with that memory.
    pub unsafe fn command(
        &mut self,
        tag: u32,
        fd: RawFd,
        code: u32,
        payload: [u8; COMMAND_BYTES],
        iov: &[IoVec],
    ) {
        let op = Op::Command { fd, code, payload, iov };
        // SAFETY: passed on to the caller.
        unsafe { self.runtime.client_op(self.client, tag, op) };
    }

    /// Gives up the commands on a descriptor, which only their driver could end; each still reports. The driver may use
    /// `memory` as long as the shard runs.
    pub fn abandon(&mut self, fd: RawFd, memory: Box<dyn Any + Send>) {
        self.runtime.queue.abandon(fd, memory);
    }

    /// Tells the operator what became of a client: "`what`: `detail`". If that has just been told of another,
    /// for the same reason, it is counted: "`what` 5 times more: `why`", a while later.
    pub fn complain(&mut self, what: &'static str, why: &'static str, detail: &str) {
        self.runtime.complain(what, why, detail);
    }

    /// Ends operations on a descriptor; each still reports.
    pub fn cancel(&mut self, fd: RawFd) {
        self.runtime.cancel_fd(fd);
    }

    /// The session is over; it is dropped when its operations and requests have ended.
    pub fn close(&mut self) {
        self.runtime.close_client(self.client);
    }
}

/// A request in a client's terms; see [`RequestKind`].
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Fill the memory.
    Read(Memory),
    /// Write it.
    Write {
        /// Holds what is to be written, until the reply.
        memory: Memory,
        /// Durable before the reply.
        fua: bool,
        /// The client has begun to send another request.
        followed: bool,
    },
    /// Write a part of one block, atomically beside other writes of the block; the request's range is the block.
    WritePart {
        /// Holds the two blocks below, until the reply.
        memory: Memory,
        /// Where in it a block begins that has the part in its place.
        at: u32,
        /// Where a block begins that is there to be used; behind `at`.
        old: u32,
        /// Bytes of the block before the part.
        skip: u32,
        /// Bytes of the part.
        len: u32,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make durable what was answered.
    Flush,
    /// Not needed any more.
    Discard,
    /// Reads as zeros afterwards.
    WriteZeroes {
        /// Durable before the reply.
        fua: bool,
        /// Space may be given back.
        unmap: bool,
    },
}

impl Kind {
    /// That of what begins so many bytes further on in memory.
    #[must_use]
    pub fn advance(self, bytes: u32) -> Self {
        let advanced = |memory: Memory| Memory {
            buf: memory.buf.advance(bytes),
            // An address within the memory; using it is the user's unsafe act.
            start: memory.start.wrapping_add(bytes as usize),
        };
        match self {
            Self::Read(memory) => Self::Read(advanced(memory)),
            Self::Write { memory, fua, followed } => {
                Self::Write { memory: advanced(memory), fua, followed }
            }
            other => other,
        }
    }
}
