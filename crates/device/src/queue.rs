//! The completion queue of a shard: one wait for member I/O, sockets and wake-ups.
//!
//! ```text
//! loop { queue.wait(&mut completions, timeout)?; look for messages; handle completions; submit more }
//! ```
//!
//! Invariants:
//! - each submitted operation yields exactly one [`Completion`], never from within `submit`;
//! - a slot is free, or its one step is with the back end, or it waits in `delayed`;
//! - `submit` never blocks on storage, except that few pages of memory (tmpfs, ramfs, memory members) are
//!   moved there and then: the kernel would hand such I/O to a worker thread of its own (tmpfs knows no
//!   `NOWAIT`), which costs more than the copy (4 KiB: half the processor time and twice the rate of the
//!   ring's way, `examples/members.rs`). Beyond [`COPIED_MAX`] the worker pays while a queue of this
//!   process has nothing to do: its core copies while this one receives the next request. While all have (one that
//!   waits for its own worker's copy too), the worker would only wait for this core, and copy what has left its
//!   cache. The completion always comes from `wait`.
//!
//! A queue belongs to one thread. It may be built on another and moved before its first use.

use crate::error::QueueError;
use crate::fault::{Kind, Outcome};
use crate::member::Member;
use crate::op::{Completion, IoVec, Op};
use crate::poller::Poller;
use crate::polling::{self, LOOK_MAX, Look, Polling};
use crate::raw::Raw;
use crate::ring::{Patience, Ring};
use crate::slot::{Next, Slot, Work, Zeroing};
use crate::waker::Waker;
use crate::workers::Workers;
use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What drives the I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// io_uring, or an error.
    IoUring,
    /// poll(2) and worker threads.
    Threads,
    /// What `LAPSTRAKE_BACKEND` says (`uring` or `threads`); else io_uring, and threads where it is
    /// refused, with a [`Queue::notice`].
    Auto,
}

/// Longest transfer, in bytes, between memory and memory that the submitting thread does itself in any
/// case.
const COPIED_MAX: u64 = 32 << 10;
/// The process's queues that block in [`Queue::wait`] and have no copy with a worker. A hint: nothing but speed
/// hangs on it.
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// Threads beside a ring: an overlay's flush must not hold up its reads.
const HELPERS: usize = 4;

enum Driver {
    Ring(Box<Ring>),
    Poller(Poller),
}

/// See the module.
pub struct Queue {
    members: Vec<Option<Arc<Member>>>,
    /// Members that were looked at ([`Member::look`]) since the last turn: once is enough for all the
    /// writes of a turn.
    looked: Vec<usize>,
    /// A step points into its slot, so slots must not move when the table grows.
    #[expect(clippy::vec_box)]
    slots: Vec<Box<Slot>>,
    free: Vec<usize>,
    ready: Vec<Completion>,
    /// Reads in `ready` of files that a write in flight can make longer, by their places there.
    unsure: Vec<(usize, Arc<Member>)>,
    results: Vec<(usize, i32)>,
    delayed: BinaryHeap<Reverse<(Instant, usize)>>,
    driver: Driver,
    polling: Polling,
    /// Slots that are [copying](Slot::copying).
    copies: usize,
    /// Beside a ring, for what it cannot carry; no thread until the first use.
    helpers: Workers,
    waker: Waker,
    notice: Option<String>,
    /// Commands that were given up, and have not ended.
    abandoned: usize,
    /// What those name: behind `driver`, so that it is dropped later.
    kept: Vec<Box<dyn Any + Send>>,
}

impl Queue {
    /// A queue over `members` (indices as in the list). `depth` is the number of operations that are
    /// submitted in one go; more than that may be in flight.
    ///
    /// # Errors
    /// [`QueueError::NoIoUring`] only if `backend` demands it.
    pub fn new(
        members: impl IntoIterator<Item = Arc<Member>>,
        backend: Backend,
        depth: u32,
    ) -> Result<Self, QueueError> {
        let waker = Waker::new().map_err(QueueError::EventFd)?;
        let (driver, notice) = pick(backend, depth.max(8), &waker)?;
        Ok(Self {
            members: members.into_iter().map(Some).collect(),
            looked: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            unsure: Vec::new(),
            results: Vec::new(),
            delayed: BinaryHeap::new(),
            driver,
            polling: Polling::new(),
            copies: 0,
            helpers: Workers::new(HELPERS, waker.clone()),
            waker,
            notice,
            abandoned: 0,
            kept: Vec::new(),
        })
    }

    /// Names memory that most transfers will lie in, which makes them cheaper: true if it does. At most once,
    /// before the first operation.
    ///
    /// # Safety
    /// The memory must stay mapped as it is until the queue was dropped.
    pub unsafe fn register(&mut self, memory: &[IoVec]) -> bool {
        match &mut self.driver {
            // SAFETY: the caller's.
            Driver::Ring(ring) => unsafe { ring.register(memory) },
            Driver::Poller(_) => false,
        }
    }

    /// `"io_uring"` or `"threads"`.
    pub fn backend(&self) -> &'static str {
        match self.driver {
            Driver::Ring(_) => "io_uring",
            Driver::Poller(_) => "threads",
        }
    }

    /// Why [`Backend::Auto`] fell back to threads, if it did so unasked.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Adds a member and returns its index: the lowest that is free.
    pub fn add_member(&mut self, member: Arc<Member>) -> usize {
        let index = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        if index == self.members.len() {
            self.members.push(None);
        }
        self.members[index] = Some(member);
        index
    }

    /// Takes a member out; its index answers `ENODEV` until it is given anew. Operations in flight end
    /// as they would have, and hold the member open until then.
    pub fn remove_member(&mut self, index: usize) -> Option<Arc<Member>> {
        self.members.get_mut(index)?.take()
    }

    /// Whether an operation holds a member that is in flight, or whose completion was not handed out yet.
    pub fn is_using(&self, member: &Arc<Member>) -> bool {
        let in_flight = self.slots.iter().filter_map(|slot| slot.member.as_ref());
        let mut held = in_flight.chain(self.unsure.iter().map(|(_, member)| member));
        held.any(|it| Arc::ptr_eq(it, member))
    }

    /// The member at an index.
    pub fn member(&self, index: usize) -> Option<&Arc<Member>> {
        self.members.get(index)?.as_ref()
    }

    /// A handle that wakes this queue's `wait` from another thread.
    pub fn handle(&self) -> Waker {
        self.waker.clone()
    }

    /// Operations submitted whose completion was not handed out yet.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() - self.abandoned + self.ready.len()
    }

    /// Submits an operation. Nothing is refused here: errors arrive as completions.
    ///
    /// # Safety
    /// The memory that `op` names must stay valid until its completion was handed out or the queue was
    /// dropped; until then nobody else may write to it, nor read what is being read into it. A
    /// descriptor in `op` must stay open as long.
    pub unsafe fn submit(&mut self, token: u64, op: Op<'_>) {
        match op {
            Op::Read { member, offset, iov } => {
                self.transfer(token, Work::Read, member, offset, iov);
            }
            Op::Write { member, offset, iov, fua } => {
                self.transfer(token, Work::Write { fua }, member, offset, iov);
            }
            Op::Flush { member } => self.flush(token, member),
            Op::Discard { member, offset, len } => self.discard(token, member, offset, len),
            Op::WriteZeroes { member, offset, len, may_unmap } => {
                self.write_zeroes(token, member, offset, len, may_unmap);
            }
            Op::Recv { fd, ptr, len } => self.socket(token, Work::Recv, fd, &[IoVec { ptr, len }]),
            Op::Send { fd, iov } => self.socket(token, Work::Send, fd, iov),
            Op::Accept { fd } => self.socket(token, Work::Accept, fd, &[]),
            Op::PollIn { fd } => self.socket(token, Work::PollIn, fd, &[]),
            Op::Command { fd, code, payload, iov } => {
                let is_long = !iov.is_empty() || payload[16..].iter().any(|&byte| byte != 0);
                if is_long && !self.takes_long_commands() {
                    return self.complete(token, -libc::EOPNOTSUPP);
                }
                self.socket(token, Work::Command { code, payload }, fd, iov);
            }
        }
    }

    /// Ends the socket operations on a descriptor: each still completes once, with `ECANCELED` unless
    /// it was done already. Close the descriptor after the last completion.
    pub fn cancel_fd(&mut self, fd: RawFd) {
        self.cancel_where(|slot| slot.fd == fd);
    }

    /// Gives up the commands on a descriptor, which their driver ends on its own, or when the queue is gone: each
    /// completes now, with `ECANCELED`. What their driver may still write to is `memory`, which is dropped after that.
    pub fn abandon(&mut self, fd: RawFd, memory: Box<dyn Any + Send>) {
        for slot in &mut self.slots {
            if slot.active && slot.fd == fd && matches!(slot.work, Work::Command { .. }) {
                (slot.active, slot.abandoned) = (false, true);
                self.abandoned += 1;
                self.ready.push(Completion { token: slot.token, result: -libc::ECANCELED });
            }
        }
        self.kept.push(memory);
    }

    /// Whether commands may have vectors, and more than 16 bytes that belong to them.
    pub fn takes_long_commands(&self) -> bool {
        match &self.driver {
            Driver::Ring(ring) => ring.takes_long_commands(),
            Driver::Poller(_) => false,
        }
    }

    /// Submits what is queued and hands out completions, blocking until there is one, the timeout has
    /// passed, somebody used the [`Waker`] or a signal arrived. `out` is appended to and may stay empty.
    ///
    /// # Errors
    /// Only if the back end itself fails; no operation's error shows here.
    pub fn wait(&mut self, out: &mut Vec<Completion>, timeout: Option<Duration>) -> io::Result<()> {
        let began = Instant::now();
        let deadline = timeout.map(|timeout| began + timeout);
        let is_idle = self.ready.is_empty();
        let look = if is_idle && self.polling.is_due() { self.look_out(deadline)? } else { None };
        loop {
            let sleeps = self.ready.is_empty() && self.waker.try_sleep();
            let patience = if sleeps { self.patience(deadline) } else { Patience::None };
            let turned = self.turn(patience);
            let woken = self.waker.awake();
            let inner_progress = turned?;
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if !self.ready.is_empty() || woken || late || !inner_progress {
                if is_idle {
                    self.polling.waited(began.elapsed(), look);
                }
                self.hand_out(out);
                return Ok(());
            }
        }
    }

    /// Hands out what has ended without the kernel's word, as transfers of members in memory and most sends do, and
    /// submits nothing: true if there was any.
    pub fn take_ready(&mut self, out: &mut Vec<Completion>) -> bool {
        self.looked.clear();
        let any = !self.ready.is_empty();
        self.hand_out(out);
        any
    }

    fn hand_out(&mut self, out: &mut Vec<Completion>) {
        self.make_sure();
        out.append(&mut self.ready);
    }

    /// Hands what is queued to the kernel, then looks for what comes of it before this thread would sleep.
    fn look_out(&mut self, deadline: Option<Instant>) -> io::Result<Option<Look>> {
        if matches!(self.driver, Driver::Poller(_)) || !polling::may_look() {
            return Ok(None);
        }
        self.turn(Patience::None)?;
        if !self.ready.is_empty() {
            return Ok(None);
        }
        let Self { driver: Driver::Ring(ring), waker, delayed, .. } = self else { return Ok(None) };
        let due = delayed.peek().map(|&Reverse((due, _))| due);
        let ends = [Some(Instant::now() + LOOK_MAX), deadline, due];
        let until = ends.into_iter().flatten().min().expect("one is there in any case");
        Ok(polling::look_out(until, || ring.has_news() || waker.is_notified()))
    }

    /// Looks once more at the files that were read: one that was cut off, and made longer again by a write that was under
    /// way, had zeroes for the read.
    fn make_sure(&mut self) {
        let mut looked: Option<*const Member> = None;
        self.unsure.sort_unstable_by_key(|(_, member)| Arc::as_ptr(member));
        for (place, member) in self.unsure.drain(..) {
            let at = Arc::as_ptr(&member);
            if looked.replace(at) != Some(at) {
                member.check_truncated();
            }
            if member.cut_off.load(Ordering::Relaxed) {
                self.ready[place].result = -libc::EIO;
            }
        }
    }

    fn patience(&self, deadline: Option<Instant>) -> Patience {
        let delayed = self.delayed.peek().map(|&Reverse((due, _))| due);
        let until = match (deadline, delayed) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => Patience::Forever,
            Some(Duration::ZERO) => Patience::None,
            Some(time) => Patience::Until(time),
        }
    }

    /// One round with the back end; true if anything moved, be it only inside.
    fn turn(&mut self, patience: Patience) -> io::Result<bool> {
        self.looked.clear();
        let mut results = std::mem::take(&mut self.results);
        // Before blocking: what a helper finished while the loop was awake has left no other trace.
        self.helpers.collect(&mut results);
        let patience = if results.is_empty() { patience } else { Patience::None };
        let blocks = usize::from(patience != Patience::None && self.copies == 0);
        BLOCKED.fetch_add(blocks, Ordering::Relaxed);
        let turned = match &mut self.driver {
            Driver::Ring(ring) => ring.turn(patience, &mut results),
            Driver::Poller(poller) => poller.turn(patience, &mut results),
        };
        BLOCKED.fetch_sub(blocks, Ordering::Relaxed);
        self.helpers.collect(&mut results);
        let mut progress = !results.is_empty();
        for (key, result) in results.drain(..) {
            self.absorb(key, result);
        }
        self.results = results;
        progress |= self.release_delayed();
        turned.map(|()| progress)
    }

    fn release_delayed(&mut self) -> bool {
        if self.delayed.is_empty() {
            return false;
        }
        let now = Instant::now();
        let mut released = false;
        while let Some(&Reverse((due, key))) = self.delayed.peek() {
            if due > now {
                break;
            }
            self.delayed.pop();
            self.run(key);
            released = true;
        }
        released
    }

    fn absorb(&mut self, key: usize, result: i32) {
        let slot = &mut self.slots[key];
        if std::mem::take(&mut slot.abandoned) {
            self.abandoned -= 1;
            slot.fd = -1;
            return self.free.push(key);
        }
        self.copies -= usize::from(std::mem::take(&mut slot.copying));
        let socket = slot.member.is_none() && !matches!(slot.work, Work::Command { .. });
        let next = if std::mem::take(&mut slot.polling) && result >= 0 {
            // What it is ready for is no result.
            if slot.cancelled { Next::Done(-libc::ECANCELED) } else { Next::Step }
        } else if socket && result == -libc::EAGAIN && !slot.cancelled {
            self.poll_then_retry(key);
            return;
        } else {
            slot.absorb(result)
        };
        match next {
            Next::Step => self.run(key),
            Next::Done(result) => self.finish(key, result),
        }
    }

    /// A non-blocking descriptor answers `EAGAIN` through a ring too.
    fn poll_then_retry(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        let (fd, events) = slot.step().readiness().expect("a socket operation");
        slot.polling = true;
        match &mut self.driver {
            Driver::Ring(ring) => ring.start_poll(key, fd, events),
            Driver::Poller(_) => unreachable!("the poller keeps steps until they are ready"),
        }
    }

    fn finish(&mut self, key: usize, result: i32) {
        let slot = &mut self.slots[key];
        let result = slot.outcome(slot.injected.map_or(result, |errno| -errno));
        let member = slot.member.take();
        if let Some(member) =
            member.filter(|it| slot.work == Work::Read && result > 0 && it.grows())
        {
            self.unsure.push((self.ready.len(), member));
        }
        self.ready.push(Completion { token: slot.token, result });
        slot.fd = -1;
        slot.active = false;
        self.free.push(key);
    }

    /// Runs steps until one is with the back end or the operation is done.
    fn run(&mut self, key: usize) {
        loop {
            let slot = &mut self.slots[key];
            if let Some(result) = slot.perform_in_memory() {
                return self.finish(key, result);
            }
            let raw = slot.step();
            let in_memory = slot.member.as_ref().is_some_and(|member| member.memory_backed());
            let is_copy = in_memory && matches!(raw, Raw::Read { .. } | Raw::Write { .. });
            let is_small = in_memory && slot.total <= COPIED_MAX;
            let inline = is_small || is_copy && BLOCKED.load(Ordering::Relaxed) == 0;
            if !inline {
                slot.copying = is_copy;
                self.copies += usize::from(is_copy);
                return self.start(key, &raw);
            }
            // SAFETY: the pointers are the slot's own and those that `submit`'s caller vouches for.
            let result = unsafe { raw.perform() };
            match self.slots[key].absorb(result) {
                Next::Step => {}
                Next::Done(result) => return self.finish(key, result),
            }
        }
    }

    fn start(&mut self, key: usize, raw: &Raw) {
        // SAFETY: the slot stays in place (boxed, not reused) until its result is absorbed; the caller of
        // `submit` vouches for the rest, and `drop` waits for every result.
        unsafe {
            match &mut self.driver {
                Driver::Ring(_)
                    if matches!(
                        raw,
                        Raw::BlockDiscard { .. } | Raw::Overlay { .. } | Raw::Source { .. }
                    ) =>
                {
                    self.helpers.start(key, *raw);
                }
                Driver::Ring(ring) => ring.start(key, raw),
                Driver::Poller(poller) => poller.start(key, raw),
            }
        }
    }

    fn new_slot(&mut self, token: u64, work: Work) -> usize {
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() - 1
        });
        self.slots[key].reset(token, work);
        key
    }

    fn complete(&mut self, token: u64, result: i32) {
        self.ready.push(Completion { token, result });
    }

    /// The member at `index` if `offset + len` lies within it; otherwise completes with the error.
    fn target(&mut self, token: u64, index: usize, offset: u64, len: u64) -> Option<Arc<Member>> {
        let Some(member) = self.members.get(index).and_then(Option::as_ref) else {
            self.complete(token, -libc::ENODEV);
            return None;
        };
        let fits = offset.checked_add(len).is_some_and(|end| end <= member.size());
        if !fits {
            self.complete(token, -libc::EINVAL);
            return None;
        }
        Some(Arc::clone(member))
    }

    /// As [`Queue::target`], for what changes the member.
    fn written(&mut self, token: u64, index: usize, offset: u64, len: u64) -> Option<Arc<Member>> {
        let member = self.target(token, index, offset, len)?;
        if !member.writable() {
            self.complete(token, -libc::EROFS);
            return None;
        }
        if !self.looked.contains(&index) {
            self.looked.push(index);
            member.check_truncated();
        }
        Some(member)
    }

    fn transfer(&mut self, token: u64, work: Work, index: usize, offset: u64, iov: &[IoVec]) {
        let total = iov.iter().fold(0u64, |sum, v| sum.saturating_add(v.len as u64));
        if total > i32::MAX as u64 {
            return self.complete(token, -libc::EINVAL);
        }
        let (member, kind) = match work {
            Work::Read => (self.target(token, index, offset, total), Kind::Read),
            _ => (self.written(token, index, offset, total), Kind::Write),
        };
        let Some(member) = member else { return };
        if total == 0 {
            return self.complete(token, 0);
        }
        let key = self.new_slot(token, work);
        let slot = &mut self.slots[key];
        slot.offset = offset;
        slot.total = total;
        slot.iov.extend_from_slice(iov);
        self.launch(key, member, kind);
    }

    fn flush(&mut self, token: u64, index: usize) {
        let Some(member) = self.target(token, index, 0, 0) else { return };
        let key = self.new_slot(token, Work::Flush);
        self.launch(key, member, Kind::Flush);
    }

    fn discard(&mut self, token: u64, index: usize, offset: u64, len: u64) {
        let Some(member) = self.written(token, index, offset, len) else { return };
        if len == 0 || member.no_discard.load(Ordering::Relaxed) {
            return self.complete(token, 0);
        }
        let key = self.new_slot(token, Work::Discard);
        self.slots[key].offset = offset;
        self.slots[key].total = len;
        self.launch(key, member, Kind::Discard);
    }

    fn write_zeroes(&mut self, token: u64, index: usize, offset: u64, len: u64, may_unmap: bool) {
        let Some(member) = self.written(token, index, offset, len) else { return };
        if len == 0 {
            return self.complete(token, 0);
        }
        let way = if may_unmap && !member.no_punch.load(Ordering::Relaxed) {
            Zeroing::Punch
        } else if !member.no_zero_range.load(Ordering::Relaxed) {
            Zeroing::ZeroRange
        } else {
            Zeroing::Write
        };
        let key = self.new_slot(token, Work::Zeroes(way));
        self.slots[key].offset = offset;
        self.slots[key].total = len;
        self.launch(key, member, Kind::Zero);
    }

    /// Asks the member's fault layers, then runs, delays or ends the operation.
    fn launch(&mut self, key: usize, member: Arc<Member>, kind: Kind) {
        let slot = &mut self.slots[key];
        let verdict = member.verdict(kind, slot.offset, slot.total);
        slot.member = Some(member);
        match verdict.outcome {
            Outcome::Pass => {}
            Outcome::Fail(errno) => {
                // Ended by `run` through what was injected into the slot, after the delay if there is one.
                slot.injected = Some(errno);
                slot.total = 0;
            }
            Outcome::Torn { keep, errno } => {
                slot.injected = Some(errno);
                slot.truncate(keep);
            }
        }
        if let Some(delay) = verdict.delay {
            self.delayed.push(Reverse((Instant::now() + delay, key)));
            return;
        }
        self.run(key);
    }

    fn socket(&mut self, token: u64, work: Work, fd: RawFd, iov: &[IoVec]) {
        let key = self.new_slot(token, work);
        let slot = &mut self.slots[key];
        slot.fd = fd;
        slot.iov.extend_from_slice(iov);
        if work == Work::Send {
            // Tried at once: the peer sets to work before this thread is done with its round. Measured
            // 6 % fewer processor seconds per request at depth 1 than through the ring, level at 32;
            // receives, which mostly find nothing yet, gain nothing by it.
            let raw = slot.step();
            // SAFETY: the pointers are the slot's own and those that `submit`'s caller vouches for.
            let result = unsafe { raw.perform() };
            if result != -libc::EAGAIN && result != -libc::EINTR {
                return self.finish(key, result);
            }
        }
        self.run(key);
    }

    fn cancel_where(&mut self, matches: impl Fn(&Slot) -> bool) {
        for key in 0..self.slots.len() {
            let slot = &mut self.slots[key];
            let waits_for_peer =
                slot.member.is_none() && !matches!(slot.work, Work::Command { .. });
            if slot.active && waits_for_peer && matches(slot) {
                slot.cancelled = true;
                match &mut self.driver {
                    Driver::Ring(ring) => ring.cancel(key),
                    Driver::Poller(poller) => poller.cancel(key),
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        let driver = match &self.driver {
            Driver::Ring(ring) => ring.is_idle_but_for(self.abandoned),
            Driver::Poller(poller) => poller.is_idle(),
        };
        driver && self.helpers.is_idle()
    }
}

impl Drop for Queue {
    /// Waits for every step that uses the callers' memory: sockets are cancelled, storage ends.
    fn drop(&mut self) {
        self.delayed.clear();
        self.cancel_where(|_| true);
        while !self.is_idle() {
            let patience = if self.waker.try_sleep() { Patience::Forever } else { Patience::None };
            let turned = self.turn(patience);
            self.waker.awake();
            if let Err(error) = turned {
                // Going on would give memory away that the kernel still writes to.
                last_words(&format!(
                    "an I/O queue with I/O in flight failed: {error}; the process ends\n"
                ));
                std::process::abort();
            }
        }
    }
}

/// Says something on standard error if that takes it at once.
fn last_words(text: &str) {
    let mut ready = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure, which outlives the call.
    if unsafe { libc::poll(&raw mut ready, 1, 0) } == 1 {
        // SAFETY: the text outlives the call. With nowhere to say it, it is left unsaid.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

fn pick(
    backend: Backend,
    depth: u32,
    waker: &Waker,
) -> Result<(Driver, Option<String>), QueueError> {
    let threads = || Driver::Poller(Poller::new(waker.clone()));
    let ring = || Ring::new(depth, waker.event_fd());
    let backend = match backend {
        Backend::Auto => from_env()?,
        named => named,
    };
    match backend {
        Backend::Threads => Ok((threads(), None)),
        Backend::IoUring => match ring() {
            Ok(ring) => Ok((Driver::Ring(Box::new(ring)), None)),
            Err(e) => Err(QueueError::NoIoUring { reason: explain(&e) }),
        },
        Backend::Auto => match ring() {
            Ok(ring) => Ok((Driver::Ring(Box::new(ring)), None)),
            Err(e) => {
                let reason = explain(&e);
                let notice = format!("io_uring is not available ({reason}); using threads");
                Ok((threads(), Some(notice)))
            }
        },
    }
}

fn from_env() -> Result<Backend, QueueError> {
    match std::env::var("LAPSTRAKE_BACKEND") {
        Err(std::env::VarError::NotPresent) => Ok(Backend::Auto),
        Err(std::env::VarError::NotUnicode(word)) => {
            Err(QueueError::BackendName(word.to_string_lossy().into_owned()))
        }
        Ok(word) => match word.as_str() {
            "" | "auto" => Ok(Backend::Auto),
            "uring" | "io_uring" => Ok(Backend::IoUring),
            "threads" => Ok(Backend::Threads),
            _ => Err(QueueError::BackendName(word)),
        },
    }
}

fn explain(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EPERM) => "forbidden here: a seccomp filter or kernel.io_uring_disabled",
        Some(libc::ENOSYS) => "this kernel has none, or a seccomp filter hides it",
        Some(libc::ENOMEM) => "the locked-memory limit is too low",
        _ => return error.to_string(),
    };
    format!("{why}; {error}")
}
