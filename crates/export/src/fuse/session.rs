//! The mount's requests on shards: takes them from the kernel, sends them to the array, answers.
//!
//! The loop is the shard's: when the kernel has requests a session takes some, each with its data straight into
//! memory from which the members can be written; their answers go out as the array's come. One session reads
//! `/dev/fuse` ([`device`](super::device)); where the kernel hands requests over by io_uring ([`ring`](super::ring)) each shard
//! has one, with its share of the queues.
//!
//! Invariants:
//! - nothing is read from the device while a request waits for memory: what waits are requests of entries, one of the
//!   device, and the kernel's queues;
//! - a transfer's memory stays with it while a step is on its way.

use super::device::{Device, Intake, Received};
use super::file::{Allocation, ArrayFile};
use super::memory::{Memory, warm_heap};
use super::ring::{Entries, Queues};
use super::transfer::{self, Answer, Bytes, Origin, PAGE, Step, Transfer};
use super::wire::{Body, Call};
use super::{BACKGROUND_MAX, TRANSFER_MAX};
use crate::session::blocks::Cut;
use lapstrake_host::{Client, Context, Kind, RequestError};
use slab::Slab;
use std::{
    collections::VecDeque,
    io,
    ops::Range,
    path::PathBuf,
    slice,
    sync::{Arc, mpsc::Sender},
    time::Instant,
};
use tracing::{error, warn};

const REQUESTS: u32 = 0;
const FREED: u32 = 1;
/// The first entry's operation.
const ENTRIES: u32 = 2;
/// Data that were received in room for the longest, and are longer, stay there; less is copied, so that it does not
/// hold that room.
const COPY_MAX: usize = 128 << 10;
/// Requests of the device on their way at most; others stay in the kernel's queue.
const TRANSFERS_MAX: usize = 2 * BACKGROUND_MAX as usize;
// They come from the heap that is there, not from a mapping of their own whose pages are not.
const _: () = assert!(TRANSFERS_MAX * size_of::<Transfer>() < 100 << 10);
/// Requests, and bytes of them, that are taken before the array gets to work.
const TURN_REQUESTS: usize = 64;
const TURN_BYTES: usize = 512 << 10;
/// Memory for the device's transfers in flight, in bytes: what keeps a few of the longest going, and some hundreds of
/// small ones.
const POOL_BYTES: usize = 16 << 20;
/// The same of a session that has entries only, whose requests have memory of their own unless they begin or end
/// within a block.
const EDGES_BYTES: usize = 4 << 20;

/// What all sessions of a mount share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) device: Arc<Device>,
    pub(super) file: Arc<ArrayFile>,
    /// The members' unit, 512 or more: requests to the array start at and are multiples of it.
    pub(super) block: u64,
    pub(super) path: PathBuf,
    /// Tells that one has failed, and by its end that all have ended.
    pub(super) over: Sender<()>,
}

/// See the module.
pub(super) struct FuseSession {
    common: Common,
    /// Where this is the one that reads the device.
    intake: Option<Intake>,
    entries: Option<Entries>,
    memory: Arc<Memory>,
    /// Requests that were taken and wait for memory; the data of the device's are in its room.
    parked: VecDeque<(Origin, Call)>,
    transfers: Slab<Transfer>,
    is_waiting: bool,
    is_leaving: bool,
    /// The array stops, or the session has failed: the kernel will not end what it has.
    gives_up: bool,
}

impl FuseSession {
    /// All of a mount: one that reads the device, and, if the kernel has queues, as many as serve these on so many
    /// shards.
    ///
    /// # Errors
    /// Memory, a descriptor or a thread is refused.
    pub(super) fn all(
        common: &Common,
        queues: Option<&Queues>,
        shards: usize,
    ) -> io::Result<Vec<Self>> {
        let device = || common.device.clone();
        let Some(queues) = queues else {
            return Ok(vec![Self::new(common.clone(), Some(Intake::new(device())?), None)?]);
        };
        let dealt = queues.deal(shards).into_iter().enumerate();
        dealt
            .map(|(nth, share)| {
                let intake = (nth == 0).then(|| Intake::new(device())).transpose()?;
                let entries = Entries::new(device(), &share, queues.data_bytes)?;
                Self::new(common.clone(), intake, Some(entries))
            })
            .collect()
    }

    fn new(common: Common, intake: Option<Intake>, entries: Option<Entries>) -> io::Result<Self> {
        let pool = if intake.is_some() { POOL_BYTES } else { EDGES_BYTES };
        Ok(Self {
            intake,
            entries,
            memory: Memory::new(pool)?,
            parked: VecDeque::new(),
            transfers: Slab::new(),
            is_waiting: false,
            is_leaving: false,
            gives_up: false,
            common,
        })
    }

    /// Takes requests from the device, until there are none, or it is the array's turn, or memory lacks.
    fn take(&mut self, cx: &mut Context<'_>) {
        let (mut requests, mut bytes) = (0, 0);
        while !self.is_leaving && requests < TURN_REQUESTS && bytes < TURN_BYTES {
            if !self.parked.is_empty() {
                return self.wait_for_memory(cx);
            }
            let Some(intake) = &mut self.intake else { return };
            if self.transfers.len() >= TRANSFERS_MAX {
                intake.is_full = true;
                return;
            }
            let request = match intake.receive(&self.memory) {
                Received::Request(request) => request,
                Received::Again => continue,
                Received::Nothing => break,
                Received::NoRoom => return self.wait_for_memory(cx),
                Received::End => return self.end(cx),
                Received::Failed(why) => return self.fail(cx, &why),
            };
            requests += 1;
            if let Call::Write { len, .. } = request.call {
                bytes += len as usize;
            }
            self.begin_or_park(cx, Origin::Device(request.unique), request.call);
        }
        let polls = |intake: &mut Intake| !std::mem::replace(&mut intake.is_polling, true);
        if !self.is_leaving && self.intake.as_mut().is_some_and(polls) {
            // SAFETY: the descriptor stays open until the session is dropped.
            unsafe { cx.poll(REQUESTS, self.common.device.fd()) };
        }
    }

    fn begin_or_park(&mut self, cx: &mut Context<'_>, origin: Origin, call: Call) {
        if !self.begin(cx, origin, call) {
            self.parked.push_back((origin, call));
            self.wait_for_memory(cx);
        }
    }

    /// There may be memory now.
    fn unpark(&mut self, cx: &mut Context<'_>) {
        while let Some(&(origin, call)) = self.parked.front() {
            if self.is_leaving || !self.begin(cx, origin, call) {
                return self.wait_for_memory(cx);
            }
            self.parked.pop_front();
        }
        self.take(cx);
    }

    fn fail(&mut self, cx: &mut Context<'_>, why: &str) {
        let path = self.common.path.display();
        error!(file = %path, "{path}: the FUSE session failed: {why}; it is unmounted");
        // Nobody listens any more where another has failed.
        let _ = self.common.over.send(());
        self.gives_up = true;
        self.end(cx);
    }

    fn wait_for_memory(&mut self, cx: &mut Context<'_>) {
        if !self.is_leaving && !std::mem::replace(&mut self.is_waiting, true) {
            // SAFETY: the descriptor stays open until the session is dropped.
            unsafe { cx.poll(FREED, self.memory.freed()) };
        }
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        self.is_leaving = true;
        cx.cancel(self.common.device.fd());
        cx.cancel(self.memory.freed());
        self.close_if_idle(cx);
    }

    fn close_if_idle(&self, cx: &mut Context<'_>) {
        if !self.is_leaving || !self.transfers.is_empty() {
            return;
        }
        if let Some(entries) = self.entries.as_ref().filter(|_| self.gives_up) {
            cx.abandon(self.common.device.fd(), Box::new(entries.memory()));
        }
        cx.close();
    }

    /// An entry came with a request, or has ended.
    fn entry_ended(&mut self, cx: &mut Context<'_>, entry: usize, result: i32) {
        let entries = self.entries.as_mut().expect("there is one");
        if self.is_leaving {
            // Whoever asks hears that the connection is gone.
            return;
        }
        if result == 0 {
            return match entries.take(entry) {
                Some(request) => self.begin_or_park(cx, Origin::Entry(entry), request.call),
                None => self.fail(cx, "the kernel sent half a request"),
            };
        }
        let is_gone = matches!(-result, libc::ENOTCONN | libc::ECONNABORTED | libc::ENOENT);
        let is_last = entries.end();
        if !is_gone {
            let (path, error) = (self.common.path.display(), io::Error::from_raw_os_error(-result));
            warn!(
                file = %path,
                "{path}: the kernel refuses a part of FUSE over io_uring: {error}; it goes on without"
            );
        }
        // Who reads the device hears of the end there.
        if is_last && self.intake.is_none() {
            self.end(cx);
        }
    }

    fn say(&self, cx: &mut Context<'_>, origin: Origin, body: Body) {
        match (origin, &self.entries) {
            (Origin::Device(unique), _) => self.common.device.answer(unique, body),
            (Origin::Entry(entry), Some(entries)) => {
                entries.answer(cx, ENTRIES + entry as u32, entry, &body);
            }
            (Origin::Entry(_), None) => unreachable!("an entry's request without entries"),
        }
    }

    fn refuse(&self, cx: &mut Context<'_>, origin: Origin, errno: i32) {
        match (origin, &self.entries) {
            (Origin::Device(unique), _) => self.common.device.refuse(unique, errno),
            (Origin::Entry(entry), Some(entries)) => {
                entries.refuse(cx, ENTRIES + entry as u32, entry, errno);
            }
            (Origin::Entry(_), None) => unreachable!("an entry's request without entries"),
        }
    }

    /// Answers with what was read.
    fn give(&self, cx: &mut Context<'_>, origin: Origin, memory: Bytes, range: Range<usize>) {
        match (origin, &self.intake, &self.entries, memory) {
            (Origin::Device(unique), Some(intake), _, Bytes::Pool(run)) => {
                intake.give(unique, run, range);
            }
            (Origin::Entry(entry), _, Some(entries), memory) => {
                if let Bytes::Pool(run) = memory {
                    // SAFETY: the array has filled it and done with it.
                    let data = &unsafe { run.bytes() }[range.clone()];
                    // SAFETY: the entry's memory is as long as the longest answer, and its request's until that is given.
                    unsafe {
                        entries.data(entry).copy_from_nonoverlapping(data.as_ptr(), data.len());
                    }
                }
                entries.give(cx, ENTRIES + entry as u32, entry, range.len());
            }
            _ => unreachable!("who takes a request can answer it"),
        }
    }

    /// Answers a request or sends it on its way; false, and nothing done, if there is no memory for it.
    fn begin(&mut self, cx: &mut Context<'_>, origin: Origin, call: Call) -> bool {
        let file = &self.common.file;
        match call {
            Call::GetAttr => self.say(cx, origin, file.attributes()),
            Call::SetAttr { mode, uid, gid, size } => {
                if file.keeps(mode, uid, gid, size) {
                    self.say(cx, origin, file.attributes());
                } else {
                    self.refuse(cx, origin, libc::EPERM);
                }
            }
            Call::Open => self.say(cx, origin, file.open()),
            Call::Release => {
                file.release();
                self.say(cx, origin, Body::empty());
            }
            Call::StatFs => self.say(cx, origin, file.statfs()),
            Call::Destroy => self.say(cx, origin, Body::empty()),
            Call::Forget => {}
            // Most of it the kernel remembers and does not ask again: extended attributes, flush at close, access,
            // interrupts.
            Call::Other => self.refuse(cx, origin, libc::ENOSYS),
            Call::Read { offset, len } => return self.read(cx, origin, offset, len),
            Call::Write { offset, len, flags } => {
                return self.write(cx, origin, offset, len, flags);
            }
            Call::Fsync => {
                self.go(cx, Transfer::new(origin, None, vec![Step::Flush], Answer::Done));
            }
            Call::Fallocate { offset, len, mode } => {
                return self.allocate(cx, origin, offset, len, mode);
            }
        }
        true
    }

    /// Reads; what lies beyond the end is left out.
    fn read(&mut self, cx: &mut Context<'_>, origin: Origin, offset: u64, len: u32) -> bool {
        let most = match (origin, &self.entries) {
            (Origin::Entry(_), Some(entries)) => entries.data_bytes,
            _ => TRANSFER_MAX,
        };
        let len = u64::from(len).min(most as u64);
        let end = offset.saturating_add(len).min(self.common.file.bytes());
        if offset >= end {
            self.say(cx, origin, Body::empty());
            return true;
        }
        let cut = Cut::new(offset, end - offset, self.common.block);
        let skip = cut.skip(offset) as usize;
        // What begins with a block ends with one within the longest request.
        let memory = match origin {
            Origin::Entry(entry) if skip == 0 => self.data_of(entry),
            _ => self.memory.alloc(cut.len()).map(Bytes::Pool),
        };
        let Some(memory) = memory else { return false };
        let steps = vec![Step::Read { offset: cut.around.start, len: cut.len() }];
        let answer = Answer::Data(skip..skip + (end - offset) as usize);
        self.go(cx, Transfer::new(origin, Some(memory), steps, answer));
        true
    }

    fn data_of(&self, entry: usize) -> Option<Bytes> {
        self.entries.as_ref().map(|entries| Bytes::Entry(entries.data(entry)))
    }

    /// Writes; what lies beyond the end is left out. With O_DSYNC, which O_SYNC contains, it is stable when answered.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        origin: Origin,
        offset: u64,
        len: u32,
        flags: u32,
    ) -> bool {
        let file = &self.common.file;
        let end = offset.saturating_add(len.into()).min(file.bytes());
        if file.read_only || (offset >= end && len > 0) {
            let errno = if file.read_only { libc::EROFS } else { libc::ENOSPC };
            self.refuse(cx, origin, errno);
            return true;
        }
        if offset >= end {
            self.say(cx, origin, Body::written(0));
            return true;
        }
        let len = (end - offset) as usize;
        let cut = Cut::new(offset, len as u64, self.common.block);
        let memory = match origin {
            Origin::Entry(entry) if cut.edges.is_empty() => self.data_of(entry),
            Origin::Device(_) if cut.edges.is_empty() && len > COPY_MAX => {
                let intake = self.intake.as_mut();
                intake.and_then(|intake| intake.room.take()).map(Bytes::Pool)
            }
            _ => self.copied(origin, &cut, offset, len),
        };
        let Some(memory) = memory else { return false };
        self.common.file.touch();
        let fua = flags & libc::O_DSYNC as u32 != 0;
        let answer = Answer::Written(len as u32);
        self.go(cx, Transfer::new(origin, Some(memory), transfer::write(&cut, fua), answer));
        true
    }

    /// The first `len` bytes of a request's data at their place in memory for the blocks around; and room for a block
    /// that is read, unless whole ones are written.
    fn copied(&self, origin: Origin, cut: &Cut, offset: u64, len: usize) -> Option<Bytes> {
        let scratch = if cut.edges.is_empty() { 0 } else { self.page() };
        let mut memory = self.memory.alloc(cut.len().next_multiple_of(PAGE) + scratch)?;
        let from: *const u8 = match origin {
            Origin::Device(_) => self.intake.as_ref()?.room.as_ref()?.at(0),
            Origin::Entry(entry) => self.entries.as_ref()?.data(entry),
        };
        // SAFETY: both are longer than the longest request, and neither is named by one that is on its way.
        let from = unsafe { slice::from_raw_parts(from, len) };
        // SAFETY: the same.
        let to = unsafe { memory.bytes_mut() };
        to[cut.skip(offset) as usize..][..len].copy_from_slice(from);
        Some(Bytes::Pool(memory))
    }

    fn allocate(
        &mut self,
        cx: &mut Context<'_>,
        origin: Origin,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> bool {
        let (end, unmap) = match self.common.file.allocation(offset, len, mode) {
            Allocation::Done => {
                self.say(cx, origin, Body::empty());
                return true;
            }
            Allocation::Refused(errno) => {
                self.refuse(cx, origin, errno);
                return true;
            }
            Allocation::Zeroes { end, unmap } => (end, unmap),
        };
        let cut = Cut::new(offset, end - offset, self.common.block);
        let memory = if cut.edges.is_empty() {
            None
        } else {
            // A block of zeroes, and one to read into.
            let Some(mut memory) = self.memory.alloc(2 * self.page()) else { return false };
            // SAFETY: no request names it.
            unsafe { memory.bytes_mut() }.fill(0);
            Some(Bytes::Pool(memory))
        };
        self.common.file.touch();
        let steps = transfer::zero(&cut, unmap);
        self.go(cx, Transfer::new(origin, memory, steps, Answer::Done));
        true
    }

    /// Memory that a block takes, bytes.
    fn page(&self) -> usize {
        PAGE.max(self.common.block as usize)
    }

    fn go(&mut self, cx: &mut Context<'_>, transfer: Transfer) {
        let key = self.transfers.insert(transfer);
        self.step(cx, key);
    }

    /// Sends the next step, or answers.
    fn step(&mut self, cx: &mut Context<'_>, key: usize) {
        let page = self.page();
        let transfer = &mut self.transfers[key];
        let Some(step) = transfer.next() else { return self.finish(cx, key, Ok(())) };
        let is_of_bytes = !matches!(step, Step::Zeroes { .. } | Step::Flush);
        let memory = is_of_bytes.then(|| {
            // SAFETY: the memory is page-aligned, long enough for the step, and stays with the transfer until the step
            // has ended.
            unsafe { cx.lend(transfer.start()) }
        });
        transfer.lent = memory;
        let (kind, offset, len) = match (step, memory) {
            (Step::Read { offset, len }, Some(memory)) => (Kind::Read(memory), offset, len as u64),
            (Step::Write { offset, at, len, fua }, Some(memory)) => {
                let kind = Kind::Write { memory, fua, followed: false };
                (kind.advance(at as u32), offset, len as u64)
            }
            (Step::Part { edge, at, fua }, Some(memory)) => {
                let (at, old) = (at as u32, transfer.scratch(page) as u32);
                let part = Kind::WritePart { memory, at, old, skip: edge.skip, len: edge.len, fua };
                (part, edge.block, self.common.block)
            }
            (Step::Zeroes { range, unmap }, _) => {
                (Kind::WriteZeroes { fua: false, unmap }, range.start, range.end - range.start)
            }
            _ => (Kind::Flush, 0, 0),
        };
        cx.request(key as u64, kind, offset, len);
    }

    fn finish(&mut self, cx: &mut Context<'_>, key: usize, result: Result<(), RequestError>) {
        let Transfer { origin, memory, answer, .. } = self.transfers.remove(key);
        match (answer, result) {
            (_, Err(error)) => self.refuse(cx, origin, errno(error)),
            (Answer::Done, Ok(())) => self.say(cx, origin, Body::empty()),
            (Answer::Written(bytes), Ok(())) => self.say(cx, origin, Body::written(bytes)),
            (Answer::Data(range), Ok(())) => {
                self.give(cx, origin, memory.expect("a read has memory"), range);
            }
        }
    }
}

impl Client for FuseSession {
    fn start(&mut self, cx: &mut Context<'_>) {
        warm_heap();
        let entries = self.entries.as_ref().map_or(0, Entries::len);
        self.transfers.reserve(TRANSFERS_MAX + entries);
        self.parked.reserve(1 + entries);
        if let Some(entries) = &self.entries {
            entries.register(cx, ENTRIES);
        }
        self.take(cx);
    }

    fn handle_io(&mut self, cx: &mut Context<'_>, tag: u32, result: i32) {
        if let Some(entry) = tag.checked_sub(ENTRIES) {
            return self.entry_ended(cx, entry as usize, result);
        }
        if result < 0 && !self.is_leaving {
            return self.fail(cx, &io::Error::from_raw_os_error(-result).to_string());
        }
        match (tag, &mut self.intake) {
            (REQUESTS, Some(intake)) => {
                intake.is_polling = false;
                self.take(cx);
            }
            _ => {
                self.is_waiting = false;
                self.memory.forget_freed();
                self.unpark(cx);
            }
        }
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let key = id as usize;
        if let Some(lent) = self.transfers[key].lent.take() {
            cx.free(lent);
        }
        match result {
            Ok(()) => self.step(cx, key),
            Err(_) => self.finish(cx, key, result),
        }
    }

    fn handle_replies_end(&mut self, cx: &mut Context<'_>) {
        if self.intake.as_mut().is_some_and(|intake| std::mem::take(&mut intake.is_full)) {
            self.take(cx);
        }
        self.close_if_idle(cx);
    }

    fn handle_time(&mut self, _: &mut Context<'_>) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        self.gives_up = true;
        self.end(cx);
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
