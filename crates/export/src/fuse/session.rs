//! The mount's requests on a shard: takes them from the kernel, sends them to the array, answers.
//!
//! The loop is the shard's: when the kernel has requests it takes some, each with its data straight into
//! memory from which the members can be written; their answers go out as the array's come. What would
//! take long to copy out (a long read) a thread of its own answers.
//!
//! Invariants:
//! - a request is taken only when there is room for the longest, and the next only when the last one has found its
//!   memory: what waits for memory is one request, and the kernel's queue;
//! - a transfer's memory stays with it while a step is on its way.

use super::file::{Allocation, ArrayFile};
use super::memory::{Memory, Run, warm_heap};
use super::transfer::{self, Answer, PAGE, Step, Transfer};
use super::wire::{Body, Call, HEAD, Request, out_header, parse};
use super::{BACKGROUND_MAX, TRANSFER_MAX};
use lapstrake_host::{Client, Context, Guard, IoVec, Kind, RequestError, flush_others_last};
use slab::Slab;
use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    time::Instant,
};
use tracing::error;

const REQUESTS: u32 = 0;
const FREED: u32 = 1;
/// A write's data beyond this stay where they were received; less is copied, so that it does not hold room for
/// the longest.
const COPY_MAX: usize = 128 << 10;
/// An answer with this many bytes and more is sent by a thread of its own, so that the shard can
/// fetch the next meanwhile: the copy into the reader's memory takes about as long as the fetch.
const LONG: usize = 64 << 10;
/// Requests on their way at most; others stay in the kernel's queue.
const TRANSFERS_MAX: usize = 2 * BACKGROUND_MAX as usize;
// They come from the heap that is there, not from a mapping of their own whose pages are not.
const _: () = assert!(TRANSFERS_MAX * size_of::<Transfer>() < 100 << 10);
/// Requests, and bytes of them, that are taken before the array gets to work.
const TURN_REQUESTS: usize = 64;
const TURN_BYTES: usize = 512 << 10;

/// A long answer: the data of a read.
struct Data {
    unique: u64,
    memory: Run,
    range: Range<usize>,
}

/// The connection to the kernel.
struct Device(OwnedFd);

impl Device {
    /// One request: its length, and `-errno`s as errors.
    fn receive(&self, head: &mut [u8; HEAD], room: &mut Run) -> io::Result<usize> {
        // SAFETY: the room is nobody's yet.
        let room = unsafe { room.bytes_mut() };
        let iov =
            [IoVec::new(head.as_mut_ptr(), head.len()), IoVec::new(room.as_mut_ptr(), room.len())];
        // SAFETY: both are valid for their lengths through the call.
        let count = unsafe { libc::readv(self.0.as_raw_fd(), iov.as_ptr().cast(), 2) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn answer(&self, unique: u64, mut body: Body) {
        self.send(body.to(unique), &[]);
    }

    fn give(&self, unique: u64, data: &[u8]) {
        self.send(&out_header(unique, data.len(), 0), data);
    }

    fn refuse(&self, unique: u64, errno: i32) {
        self.send(&out_header(unique, 0, errno), &[]);
    }

    /// That who asked is gone is no failure.
    fn send(&self, start: &[u8], rest: &[u8]) {
        let run = |bytes: &[u8]| IoVec::new(bytes.as_ptr().cast_mut(), bytes.len());
        let iov = [run(start), run(rest)];
        // SAFETY: both are valid for their lengths through the call, which does not write to them.
        unsafe { libc::writev(self.0.as_raw_fd(), iov.as_ptr().cast(), 2) };
    }
}

/// See the module.
pub(super) struct FuseSession {
    device: Arc<Device>,
    file: ArrayFile,
    /// The members' unit, 512 or more: requests to the array start at and are multiples of it.
    block: u64,
    memory: Arc<Memory>,
    head: Box<[u8; HEAD]>,
    /// For the next request.
    room: Option<Run>,
    /// One that was taken and waits for memory; a write's data are in `room`.
    parked: Option<Request>,
    transfers: Slab<Transfer>,
    /// The array orders overlapping writes by itself, but not the read, merge and write of a block
    /// that is written in part: nothing may change the block in between.
    guard: Guard<usize>,
    is_polling: bool,
    is_waiting: bool,
    /// As many are on their way as may be.
    is_full: bool,
    is_leaving: bool,
    /// To the thread that sends long answers.
    long: Sender<Data>,
    path: PathBuf,
    /// Tells by its end that this has ended.
    _gone: Sender<Infallible>,
}

impl FuseSession {
    /// # Errors
    /// Memory, a descriptor or a thread is refused.
    pub(super) fn new(
        device: OwnedFd,
        file: ArrayFile,
        block: u64,
        path: PathBuf,
        gone: Sender<Infallible>,
    ) -> io::Result<Self> {
        set_nonblocking(&device)?;
        let device = Arc::new(Device(device));
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
        Ok(Self {
            device,
            file,
            block,
            memory: Memory::new()?,
            head: Box::new([0; HEAD]),
            room: None,
            parked: None,
            transfers: Slab::new(),
            guard: Guard::default(),
            is_polling: false,
            is_waiting: false,
            is_full: false,
            is_leaving: false,
            long,
            path,
            _gone: gone,
        })
    }

    /// Takes requests, until there are none, or it is the array's turn, or memory lacks.
    fn take(&mut self, cx: &mut Context<'_>) {
        let (mut requests, mut bytes) = (0, 0);
        while !self.is_leaving && requests < TURN_REQUESTS && bytes < TURN_BYTES {
            if self.transfers.len() == TRANSFERS_MAX {
                self.is_full = true;
                return;
            }
            let request = match self.parked.take() {
                Some(request) => request,
                None => match self.receive() {
                    Received::Request(request) => request,
                    Received::Again => continue,
                    Received::Nothing => break,
                    Received::NoRoom => return self.wait_for_memory(cx),
                    Received::End => return self.end(cx),
                },
            };
            requests += 1;
            if let Call::Write { len, .. } = request.call {
                bytes += len as usize;
            }
            if !self.begin(cx, request) {
                self.parked = Some(request);
                return self.wait_for_memory(cx);
            }
        }
        if !self.is_leaving && !std::mem::replace(&mut self.is_polling, true) {
            // SAFETY: the descriptor stays open until the session is dropped.
            unsafe { cx.poll(REQUESTS, self.device.0.as_raw_fd()) };
        }
    }

    fn receive(&mut self) -> Received {
        if self.room.is_none() {
            self.room = self.memory.alloc(TRANSFER_MAX);
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
                    _ => self.fail(&error.to_string()),
                };
            }
        };
        // SAFETY: the room is nobody's yet.
        let rest = &unsafe { room.bytes() }[..len.saturating_sub(HEAD)];
        match parse(&self.head[..len.min(HEAD)], rest) {
            Some(request) => Received::Request(request),
            None => self.fail("the kernel sent half a request"),
        }
    }

    fn fail(&self, why: &str) -> Received {
        error!(
            file = %self.path.display(),
            "{}: the FUSE session failed: {why}; it is unmounted",
            self.path.display()
        );
        Received::End
    }

    fn wait_for_memory(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.is_waiting, true) {
            // SAFETY: the descriptor stays open until the session is dropped.
            unsafe { cx.poll(FREED, self.memory.freed()) };
        }
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        self.is_leaving = true;
        cx.cancel(self.device.0.as_raw_fd());
        cx.cancel(self.memory.freed());
        self.close_if_idle(cx);
    }

    fn close_if_idle(&self, cx: &mut Context<'_>) {
        if self.is_leaving && self.transfers.is_empty() {
            cx.close();
        }
    }

    /// Answers a request or sends it on its way; false, and nothing done, if there is no memory for it.
    fn begin(&mut self, cx: &mut Context<'_>, Request { unique, call }: Request) -> bool {
        let device = &self.device;
        match call {
            Call::GetAttr => device.answer(unique, self.file.attributes()),
            Call::SetAttr { mode, uid, gid, size } => {
                if self.file.keeps(mode, uid, gid, size) {
                    device.answer(unique, self.file.attributes());
                } else {
                    device.refuse(unique, libc::EPERM);
                }
            }
            Call::Open => device.answer(unique, self.file.open()),
            Call::Release => {
                self.file.release();
                device.answer(unique, Body::empty());
            }
            Call::StatFs => device.answer(unique, self.file.statfs()),
            Call::Destroy => device.answer(unique, Body::empty()),
            Call::Forget => {}
            // Most of it the kernel remembers and does not ask again: extended attributes, flush at close, access,
            // interrupts.
            Call::Other => device.refuse(unique, libc::ENOSYS),
            Call::Read { offset, len } => return self.read(cx, unique, offset, len),
            Call::Write { offset, len, flags } => {
                return self.write(cx, unique, offset, len, flags);
            }
            Call::Fsync => {
                self.go(cx, Transfer::new(unique, None, vec![Step::Flush], Answer::Done));
            }
            Call::Fallocate { offset, len, mode } => {
                return self.allocate(cx, unique, offset, len, mode);
            }
        }
        true
    }

    /// Reads; what lies beyond the end is left out.
    fn read(&mut self, cx: &mut Context<'_>, unique: u64, offset: u64, len: u32) -> bool {
        let len = u64::from(len).min(TRANSFER_MAX as u64);
        let end = offset.saturating_add(len).min(self.file.bytes());
        if offset >= end {
            self.device.answer(unique, Body::empty());
            return true;
        }
        let around = transfer::around(offset..end, self.block);
        let skip = (offset - around.start) as usize;
        let size = (around.end - around.start) as usize;
        let Some(memory) = self.memory.alloc(size) else { return false };
        let steps = vec![Step::Read { offset: around.start, len: size }];
        let answer = Answer::Data(skip..skip + (end - offset) as usize);
        self.go(cx, Transfer::new(unique, Some(memory), steps, answer));
        true
    }

    /// Writes; what lies beyond the end is left out. With O_DSYNC, which O_SYNC contains, it is stable when answered.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        unique: u64,
        offset: u64,
        len: u32,
        flags: u32,
    ) -> bool {
        let end = offset.saturating_add(len.into()).min(self.file.bytes());
        if self.file.read_only || (offset >= end && len > 0) {
            let errno = if self.file.read_only { libc::EROFS } else { libc::ENOSPC };
            self.device.refuse(unique, errno);
            return true;
        }
        if offset >= end {
            self.device.answer(unique, Body::written(0));
            return true;
        }
        let around = transfer::around(offset..end, self.block);
        let (is_whole, len) = (around == (offset..end), (end - offset) as usize);
        let memory = if is_whole && len > COPY_MAX {
            self.room.take()
        } else {
            self.copied(&around, offset, len)
        };
        let Some(memory) = memory else { return false };
        self.file.touch();
        let fua = flags & libc::O_DSYNC as u32 != 0;
        let steps = transfer::write(offset..end, self.block, fua);
        let answer = Answer::Written(len as u32);
        self.go_in_turn(cx, around, Transfer::new(unique, Some(memory), steps, answer));
        true
    }

    /// The first `len` bytes of the room at their place in memory for the blocks around; and room for a block that is
    /// fetched, unless whole ones are written.
    fn copied(&self, around: &Range<u64>, offset: u64, len: usize) -> Option<Run> {
        let size = (around.end - around.start) as usize;
        let scratch = if size == len { 0 } else { self.page() };
        let mut memory = self.memory.alloc(size.next_multiple_of(PAGE) + scratch)?;
        let room = self.room.as_ref()?;
        let skip = (offset - around.start) as usize;
        // SAFETY: neither is named by a request.
        let (from, to) = unsafe { (room.bytes(), memory.bytes_mut()) };
        to[skip..skip + len].copy_from_slice(&from[..len]);
        Some(memory)
    }

    fn allocate(
        &mut self,
        cx: &mut Context<'_>,
        unique: u64,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> bool {
        let (end, unmap) = match self.file.allocation(offset, len, mode) {
            Allocation::Done => {
                self.device.answer(unique, Body::empty());
                return true;
            }
            Allocation::Refused(errno) => {
                self.device.refuse(unique, errno);
                return true;
            }
            Allocation::Zeroes { end, unmap } => (end, unmap),
        };
        let around = transfer::around(offset..end, self.block);
        let memory = if around == (offset..end) {
            None
        } else {
            // For the first and the last block, and one to fetch into.
            let Some(mut memory) = self.memory.alloc(3 * self.page()) else { return false };
            // SAFETY: no request names it.
            unsafe { memory.bytes_mut() }.fill(0);
            Some(memory)
        };
        self.file.touch();
        let steps = transfer::zero(offset..end, self.block, self.page(), unmap);
        self.go_in_turn(cx, around, Transfer::new(unique, memory, steps, Answer::Done));
        true
    }

    /// Memory that a block takes, bytes.
    fn page(&self) -> usize {
        PAGE.max(self.block as usize)
    }

    fn go(&mut self, cx: &mut Context<'_>, transfer: Transfer) {
        let key = self.transfers.insert(transfer);
        self.step(cx, key);
    }

    fn go_in_turn(&mut self, cx: &mut Context<'_>, range: Range<u64>, mut transfer: Transfer) {
        transfer.turn = Some(range.start);
        let key = self.transfers.insert(transfer);
        if self.guard.claim(range, key).is_some() {
            self.step(cx, key);
        }
    }

    /// Sends the next step, or answers.
    fn step(&mut self, cx: &mut Context<'_>, key: usize) {
        let page = self.page();
        let transfer = &mut self.transfers[key];
        let Some(step) = transfer.next() else { return self.finish(cx, key, Ok(())) };
        // SAFETY: the memory is page-aligned as are the places in it, long enough for the step, and stays with the
        // transfer until the step has ended.
        let mut lend = |start| unsafe { cx.lend(start) };
        let (kind, offset, len) = match step {
            Step::Read { offset, len } => (Kind::Read(lend(transfer.at(0))), offset, len as u64),
            Step::Write { offset, at, len, fua } => {
                let memory = lend(transfer.at(at));
                (Kind::Write { memory, fua, followed: false }, offset, len as u64)
            }
            Step::Fetch { block, .. } => {
                (Kind::Read(lend(transfer.scratch(page))), block, self.block)
            }
            Step::Zeroes { range, unmap } => {
                (Kind::WriteZeroes { fua: false, unmap }, range.start, range.end - range.start)
            }
            Step::Flush => (Kind::Flush, 0, 0),
        };
        transfer.lent = match kind {
            Kind::Read(memory) | Kind::Write { memory, .. } => Some(memory),
            _ => None,
        };
        cx.request(key as u64, kind, offset, len);
    }

    fn finish(&mut self, cx: &mut Context<'_>, key: usize, result: Result<(), RequestError>) {
        let Transfer { unique, memory, turn, answer, .. } = self.transfers.remove(key);
        match (answer, result, memory) {
            (_, Err(error), _) => self.device.refuse(unique, errno(error)),
            (Answer::Done, Ok(()), _) => self.device.answer(unique, Body::empty()),
            (Answer::Written(bytes), Ok(()), _) => {
                self.device.answer(unique, Body::written(bytes));
            }
            (Answer::Data(range), Ok(()), Some(memory)) if range.len() >= LONG => {
                // Its receiver runs as long as there is a sender.
                let _ = self.long.send(Data { unique, memory, range });
            }
            (Answer::Data(range), Ok(()), memory) => {
                let memory = memory.expect("a read has memory");
                // SAFETY: the array has filled it and done with it.
                self.device.give(unique, &unsafe { memory.bytes() }[range]);
            }
        }
        let mut ready = VecDeque::new();
        if let Some(start) = turn {
            self.guard.release(start, &mut ready);
        }
        for key in ready {
            self.step(cx, key);
        }
    }
}

enum Received {
    Request(Request),
    /// One was there, and is gone.
    Again,
    Nothing,
    NoRoom,
    End,
}

impl Client for FuseSession {
    fn start(&mut self, cx: &mut Context<'_>) {
        warm_heap();
        self.transfers.reserve(TRANSFERS_MAX);
        self.take(cx);
    }

    fn handle_io(&mut self, cx: &mut Context<'_>, tag: u32, result: i32) {
        if result < 0 && !self.is_leaving {
            self.fail(&io::Error::from_raw_os_error(-result).to_string());
            return self.end(cx);
        }
        match tag {
            REQUESTS => self.is_polling = false,
            _ => {
                self.is_waiting = false;
                self.memory.forget_freed();
            }
        }
        // While memory lacks a request is parked, or there is no room for one.
        self.take(cx);
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let key = id as usize;
        let page = self.page();
        let transfer = &mut self.transfers[key];
        if let Some(lent) = transfer.lent.take() {
            cx.free(lent);
        }
        if result.is_err() {
            return self.finish(cx, key, result);
        }
        if let Some(Step::Fetch { keep, to, .. }) = transfer.step.take() {
            let (from, to) = (transfer.scratch(page), transfer.at(to + keep.start));
            // SAFETY: a block fits into the scratch page, its image lies before that, and the array has done with
            // both.
            unsafe { to.copy_from_nonoverlapping(from.add(keep.start), keep.len()) };
        }
        self.step(cx, key);
    }

    fn handle_replies_end(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.is_full) {
            self.take(cx);
        }
        self.close_if_idle(cx);
    }

    fn handle_time(&mut self, _: &mut Context<'_>) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        self.end(cx);
    }
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: changes a flag of a descriptor that is open.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The array's errors as a file's.
fn errno(error: RequestError) -> i32 {
    match error {
        RequestError::Io => libc::EIO,
        RequestError::NoSpace => libc::ENOSPC,
        RequestError::ReadOnly => libc::EROFS,
        RequestError::OutOfRange | RequestError::Misaligned => libc::EINVAL,
    }
}
