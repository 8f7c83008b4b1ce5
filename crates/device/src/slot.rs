//! An operation in flight: what remains of it, and its next step.
//!
//! Invariants: `done <= total`; vectors before `head` are finished and the one at `head` has been
//! shortened by what was moved already; a slot does not move in memory while a step of it is out (the
//! step points into it), so the table boxes it.
//!
//! Each operation is a small sequence of steps ([`Raw`]); [`Slot::step`] gives the next and
//! [`Slot::absorb`] takes its result. Both back ends and the inline path share this one logic, and so
//! the treatment of short transfers, missing features and interrupted calls.

use crate::member::Member;
use crate::op::{COMMAND_BYTES, IoVec};
use crate::overlay::{self, Task};
use crate::raw::{IOV_MAX, Raw};
use crate::reader::ReaderStore;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an operation is, without its ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write { fua: bool },
    Flush,
    Discard,
    Zeroes(Zeroing),
    Recv,
    Send,
    Accept,
    PollIn,
    Command { code: u32, payload: [u8; COMMAND_BYTES] },
}

/// Ways to zero a range, in the order tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeroing {
    Punch,
    ZeroRange,
    Write,
}

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another step.
    Step,
    /// The operation's result.
    Done(i32),
}

/// Interrupted or refused for now: tried again this often before it counts as an error.
const TRIES_MAX: u8 = 32;

const ZEROES_LEN: usize = 64 << 10;
#[repr(align(4096))]
struct ZeroPages([u8; ZEROES_LEN]);
static ZERO_PAGES: ZeroPages = ZeroPages([0; ZEROES_LEN]);
/// Vectors of one zeroing write: 1 MiB.
const ZERO_VECTORS: usize = 16;

/// See the module. Sockets use `fd`, members `member`.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) token: u64,
    pub(crate) work: Work,
    pub(crate) member: Option<Arc<Member>>,
    pub(crate) fd: RawFd,
    /// Relative to the member's window.
    pub(crate) offset: u64,
    pub(crate) total: u64,
    pub(crate) done: u64,
    pub(crate) iov: Vec<IoVec>,
    pub(crate) head: usize,
    pub(crate) msg: libc::msghdr,
    pub(crate) tries: u8,
    /// In use: not in the queue's free list.
    pub(crate) active: bool,
    /// The step that is out awaits readiness only.
    pub(crate) polling: bool,
    /// The step that is out moves bytes between memory and memory.
    pub(crate) copying: bool,
    /// Its end was asked for: an error of any kind means cancelled.
    pub(crate) cancelled: bool,
    /// Nobody waits for its end any more: see [`crate::Queue::abandon`].
    pub(crate) abandoned: bool,
    /// An injected error that replaces the result.
    pub(crate) injected: Option<i32>,
}

// SAFETY: the pointers (vectors, message header) are only carried; who may use them is settled by the
// contract of `Queue::submit`.
unsafe impl Send for Slot {}

impl Slot {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            token: 0,
            work: Work::Flush,
            member: None,
            fd: -1,
            offset: 0,
            total: 0,
            done: 0,
            iov: Vec::new(),
            head: 0,
            // SAFETY: all-zero is a valid, empty message header.
            msg: unsafe { std::mem::zeroed() },
            tries: 0,
            active: false,
            polling: false,
            copying: false,
            cancelled: false,
            abandoned: false,
            injected: None,
        })
    }

    /// Makes a used slot fresh; keeps the vectors' allocation.
    pub(crate) fn reset(&mut self, token: u64, work: Work) {
        self.token = token;
        self.work = work;
        self.member = None;
        self.fd = -1;
        (self.offset, self.total, self.done) = (0, 0, 0);
        self.iov.clear();
        self.head = 0;
        self.tries = 0;
        self.active = true;
        self.polling = false;
        self.copying = false;
        self.cancelled = false;
        self.abandoned = false;
        self.injected = None;
    }

    /// Keeps the first `keep` bytes of what is to be moved.
    pub(crate) fn truncate(&mut self, keep: u64) {
        self.total = self.total.min(keep);
        let mut left = self.total as usize;
        self.iov.retain_mut(|v| {
            v.len = v.len.min(left);
            left -= v.len;
            v.len > 0
        });
    }

    /// Ends what needs no system call: operations on memory members, flushes of memory, and what a
    /// fault left nothing of.
    pub(crate) fn perform_in_memory(&mut self) -> Option<i32> {
        let member = self.member.as_ref()?;
        if self.injected.is_some() && self.total == 0 {
            return Some(0);
        }
        let is_stable = member.memory_backed() && member.overlay_part().is_none()
            || member.reader_store().is_some();
        if self.work == Work::Flush && is_stable {
            return Some(0);
        }
        let store = member.memory_store()?;
        // SAFETY: the caller of `Queue::submit` vouches for the vectors.
        unsafe {
            match self.work {
                Work::Read => store.read(self.offset, &self.iov),
                Work::Write { .. } => store.write(self.offset, &self.iov),
                Work::Zeroes(_) => store.zero(self.offset, self.total),
                _ => return Some(0),
            }
        }
        let moves = matches!(self.work, Work::Read | Work::Write { .. });
        Some(if moves { self.total as i32 } else { 0 })
    }

    /// The next step. The slot must stay where it is until the step's result is absorbed.
    pub(crate) fn step(&mut self) -> Raw {
        match self.work {
            Work::Recv => Raw::Recv { fd: self.fd, ptr: self.iov[0].ptr, len: self.iov[0].len },
            Work::Send => {
                self.msg.msg_iov = self.iov.as_mut_ptr().cast();
                self.msg.msg_iovlen = self.iov.len().min(IOV_MAX) as _;
                Raw::Send { fd: self.fd, msg: &raw const self.msg }
            }
            Work::Accept => Raw::Accept { fd: self.fd },
            Work::PollIn => Raw::PollIn { fd: self.fd },
            Work::Command { code, payload } => {
                let (iov, count) = self.rest();
                Raw::Command { fd: self.fd, code, payload, iov, count }
            }
            _ => self.storage_step(),
        }
    }

    fn storage_step(&mut self) -> Raw {
        let member = self.member.as_ref().expect("storage work names a member");
        if let Some(part) = member.overlay_part() {
            return self.overlay_step(part);
        }
        if let Some(store) = member.reader_store() {
            return self.reader_step(store);
        }
        let fd = member.raw_fd();
        let base = member.base();
        let at = base + self.offset;
        match self.work {
            Work::Read => {
                let (iov, count) = self.rest();
                Raw::Read { fd, iov, count, offset: at + self.done }
            }
            Work::Write { fua } => {
                let (iov, count) = self.rest();
                Raw::Write { fd, iov, count, offset: at + self.done, dsync: fua }
            }
            Work::Flush => Raw::Fdatasync { fd },
            Work::Discard if member.is_block() => {
                Raw::BlockDiscard { fd, offset: at, len: self.total }
            }
            Work::Discard | Work::Zeroes(Zeroing::Punch) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                Raw::Fallocate { fd, mode, offset: at, len: self.total }
            }
            Work::Zeroes(Zeroing::ZeroRange) => {
                let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                Raw::Fallocate { fd, mode, offset: at, len: self.total }
            }
            Work::Zeroes(Zeroing::Write) => {
                self.fill_with_zeroes();
                let (iov, count) = self.rest();
                Raw::Write { fd, iov, count, offset: at + self.done, dsync: false }
            }
            Work::Recv | Work::Send | Work::Accept | Work::PollIn | Work::Command { .. } => {
                unreachable!("sockets and drivers are no storage")
            }
        }
    }

    fn overlay_step(&self, part: &overlay::OverlayMember) -> Raw {
        let task = match self.work {
            Work::Read => Task::Read,
            Work::Write { fua } => Task::Write { fua },
            Work::Flush => Task::Flush,
            Work::Discard => Task::Discard,
            Work::Zeroes(_) => Task::Zero,
            Work::Recv | Work::Send | Work::Accept | Work::PollIn | Work::Command { .. } => {
                unreachable!("sockets and drivers are no storage")
            }
        };
        let (iov, count) = (self.iov.as_ptr(), self.iov.len());
        Raw::Overlay { part, task, iov, count, offset: self.offset, len: self.total }
    }

    /// All else has been refused: a reader's member takes no writes.
    fn reader_step(&self, store: &ReaderStore) -> Raw {
        assert_eq!(self.work, Work::Read, "a reader is only read");
        let (iov, count) = (self.iov.as_ptr(), self.iov.len());
        Raw::Source { store, iov, count, offset: self.offset }
    }

    fn rest(&self) -> (*const IoVec, usize) {
        let rest = &self.iov[self.head..];
        (rest.as_ptr(), rest.len().min(IOV_MAX))
    }

    fn fill_with_zeroes(&mut self) {
        self.iov.clear();
        self.head = 0;
        let mut left = (self.total - self.done).min((ZERO_VECTORS * ZEROES_LEN) as u64) as usize;
        // The system only reads through it: the mutable pointer is the iovec's type, not a licence.
        let ptr = ZERO_PAGES.0.as_ptr().cast_mut();
        while left > 0 {
            let len = left.min(ZEROES_LEN);
            self.iov.push(IoVec { ptr, len });
            left -= len;
        }
    }

    /// Takes a step's result.
    pub(crate) fn absorb(&mut self, result: i32) -> Next {
        if self.cancelled && result < 0 {
            return Next::Done(-libc::ECANCELED);
        }
        if matches!(self.work, Work::Command { .. }) {
            return Next::Done(result);
        }
        if matches!(result, e if e == -libc::EINTR || e == -libc::EAGAIN) && self.tries < TRIES_MAX
        {
            self.tries += 1;
            return Next::Step;
        }
        match self.work {
            Work::Read | Work::Write { .. } | Work::Zeroes(Zeroing::Write) => self.advance(result),
            Work::Discard => self.absorb_discard(result),
            Work::Zeroes(way) => self.absorb_zeroing(way, result),
            _ => Next::Done(result),
        }
    }

    /// An operation's result, as far as its member stands by it.
    pub(crate) fn outcome(&self, result: i32) -> i32 {
        match &self.member {
            Some(member) if self.work == Work::Flush && result != -libc::ECANCELED => {
                if member.flushed(result >= 0) || result < 0 { result } else { -libc::EIO }
            }
            _ => result,
        }
    }

    fn advance(&mut self, result: i32) -> Next {
        if result < 0 {
            return Next::Done(result);
        }
        if result == 0 {
            // A read at the end of a file shorter than its window; a write that moves nothing.
            if let (Work::Read, Some(member)) = (self.work, &self.member) {
                member.cut_off.store(true, Ordering::Relaxed);
            }
            return Next::Done(-libc::EIO);
        }
        let mut moved = result as usize;
        self.done += moved as u64;
        self.tries = 0;
        if self.done >= self.total {
            let bytes = if self.work == Work::Zeroes(Zeroing::Write) { 0 } else { self.total };
            return Next::Done(bytes as i32);
        }
        while let Some(iov) = self.iov.get_mut(self.head) {
            if moved < iov.len {
                iov.ptr = iov.ptr.wrapping_add(moved);
                iov.len -= moved;
                break;
            }
            moved -= iov.len;
            self.head += 1;
        }
        Next::Step
    }

    fn absorb_discard(&mut self, result: i32) -> Next {
        if !refused(result) {
            return Next::Done(result);
        }
        if let Some(member) = &self.member {
            member.no_discard.store(true, Ordering::Relaxed);
        }
        Next::Done(0)
    }

    fn absorb_zeroing(&mut self, way: Zeroing, result: i32) -> Next {
        if !refused(result) {
            return Next::Done(result);
        }
        let member = self.member.as_ref().expect("storage work names a member");
        let next = match way {
            Zeroing::Punch => {
                member.no_punch.store(true, Ordering::Relaxed);
                Zeroing::ZeroRange
            }
            _ => {
                member.no_zero_range.store(true, Ordering::Relaxed);
                Zeroing::Write
            }
        };
        self.work = Work::Zeroes(next);
        Next::Step
    }
}

/// The member (or its file system) knows no such operation.
fn refused(result: i32) -> bool {
    [-libc::EOPNOTSUPP, -libc::ENOSYS, -libc::ENOTTY].contains(&result)
}
