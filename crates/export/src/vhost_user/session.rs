//! One queue of a client on a shard: requests out of its ring to the array, and back.
//!
//! The loop is the shard's: when the guest notifies, all that its ring offers is taken and sent to the array; answers go
//! into the ring as they come, and the guest is notified once for those of a turn. A read's or a write's memory is the
//! guest's own where [`Disk::lending`] says so and it is one run from a page on; else a buffer of the shard's pool, and one
//! copy.
//!
//! Invariants:
//! - a request that was taken is answered, also while the queue stops: then nothing is left under way, and `base` is told;
//! - one request at most is parked for want of a buffer, and none is taken meanwhile;
//! - what makes no sense stops the ring for good, and with it this queue alone.

use super::{
    disk::Disk,
    request::{Action, Request, Status},
    ring::{Ring, RingError},
};
use lapstrake_host::{Client, Context, Kind, Memory, RequestError};
use slab::Slab;
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsRawFd,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::Instant,
};

const KICK: u32 = 0;
const STOP: u32 = 1;
/// What becomes of a queue that gives cause for complaint.
const BROKEN: &str = "a queue of a vhost-user client was stopped";

/// Who notifies whom; each an eventfd, or a pipe's end. Their flags are the client's, who has them open too.
pub(super) struct Lines {
    /// The guest has offered something.
    pub kick: File,
    /// Something was given back. The client may change it at any time.
    pub call: Arc<Mutex<Option<File>>>,
    /// The ring makes no sense.
    pub error: Option<File>,
    /// Whoever has started the queue wants it to stop.
    pub stop: File,
}

struct Entry {
    request: Request,
    /// Of a read or a write.
    memory: Option<Memory>,
    /// It is a buffer, not the guest's own.
    is_copy: bool,
}

/// See the module.
pub(super) struct QueueSession {
    disk: Arc<Disk>,
    ring: Ring,
    lines: Lines,
    requests: Slab<Entry>,
    parked: Option<Request>,
    /// Something was given back that the guest was not notified of.
    owes_notice: bool,
    /// Who had the ring before may not have come to a notice, and whether the guest wants one is not known.
    is_new: bool,
    /// There is more to take, in the next turn.
    more: Option<Instant>,
    is_polling: bool,
    is_stopping: bool,
    is_broken: bool,
    /// Hears how far the ring was taken.
    base: Option<Sender<u16>>,
    /// The guest knows no flush, so that what is answered is stable.
    is_write_through: bool,
}

impl QueueSession {
    pub(super) fn new(
        disk: Arc<Disk>,
        ring: Ring,
        lines: Lines,
        base: Sender<u16>,
        is_write_through: bool,
    ) -> Self {
        Self {
            disk,
            ring,
            lines,
            requests: Slab::new(),
            parked: None,
            owes_notice: false,
            is_new: true,
            more: None,
            is_polling: false,
            is_stopping: false,
            is_broken: false,
            base: Some(base),
            is_write_through,
        }
    }

    fn go(&mut self, cx: &mut Context<'_>) {
        let done = self.take(cx).and_then(|()| self.notify());
        if let Err(error) = done {
            self.stop_for_good(cx, &error);
        }
        if !self.is_broken && !std::mem::replace(&mut self.is_polling, true) {
            // SAFETY: it stays open until the session is dropped.
            unsafe { cx.poll(KICK, self.lines.kick.as_raw_fd()) };
        }
        if self.is_stopping && self.requests.is_empty() && self.parked.is_none() {
            self.leave(cx);
        }
    }

    /// Takes what is offered, but in one turn no more than a ring holds: others have their turn too.
    fn take(&mut self, cx: &mut Context<'_>) -> Result<(), RingError> {
        self.more = None;
        if self.is_broken {
            return match self.parked.take() {
                Some(request) => self.give(&request, Status::IoError),
                None => Ok(()),
            };
        }
        if let Some(request) = self.parked.take() {
            self.begin(cx, request)?;
        }
        self.ring.look_ourselves()?;
        let mut count = 0;
        while self.may_take() {
            if count == super::ring::SIZE_MAX {
                self.more = Some(Instant::now());
                return Ok(());
            }
            match self.ring.take(&self.disk)? {
                Some(request) => self.begin(cx, request)?,
                None if self.ring.is_full() || !self.ring.await_more()? => return Ok(()),
                None => {}
            }
            count += 1;
        }
        Ok(())
    }

    fn may_take(&self) -> bool {
        !self.is_stopping && self.parked.is_none()
    }

    /// Sends a request to the array, or answers it; without memory for it, it is parked.
    fn begin(&mut self, cx: &mut Context<'_>, request: Request) -> Result<(), RingError> {
        let (offset, len) = match request.action {
            Ok(Action::Read(offset) | Action::Write(offset)) => (offset, request.data.len() as u64),
            Ok(Action::Discard(offset, len) | Action::WriteZeroes { offset, len, .. }) => {
                (offset, len)
            }
            Ok(Action::Flush) => (0, 0),
            Ok(Action::GetId) => {
                // SAFETY: as many bytes as the request has memory for, which the ring keeps mapped.
                unsafe { request.data.copy_from(self.disk.serial.as_ptr()) };
                return self.give(&request, Status::Ok);
            }
            Ok(Action::Nothing) => return self.give(&request, Status::Ok),
            Err(status) => return self.give(&request, status),
        };
        let Some((memory, is_copy)) = self.memory_for(cx, &request) else {
            self.parked = Some(request);
            return Ok(());
        };
        let kind = match (request.action, memory) {
            (Ok(Action::Read(_)), Some(memory)) => Kind::Read(memory),
            (Ok(Action::Write(_)), Some(memory)) => {
                let followed = cx.joins_writes() && self.ring.has_more();
                Kind::Write { memory, fua: self.is_write_through, followed }
            }
            (Ok(Action::Discard(..)), _) => Kind::Discard,
            (Ok(Action::WriteZeroes { unmap, .. }), _) => {
                Kind::WriteZeroes { fua: self.is_write_through, unmap }
            }
            _ => Kind::Flush,
        };
        let id = self.requests.insert(Entry { request, memory, is_copy });
        cx.request(id as u64, kind, offset, len);
        Ok(())
    }

    /// Memory for a request, if it needs some, and whether that is a copy of the guest's; none while there is none.
    fn memory_for(
        &self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Option<(Option<Memory>, bool)> {
        let data = &request.data;
        let (Ok(Action::Read(_)) | Ok(Action::Write(_))) = request.action else {
            return Some((None, false));
        };
        if let Some(start) = data.one_run().filter(|_| self.disk.lending.is_allowed()) {
            // SAFETY: a page's start, and the ring keeps it mapped until the session is dropped, which is after the last
            // answer. The guest may change it meanwhile; at the levels that lend nothing is computed of it.
            return Some((Some(unsafe { cx.lend(start) }), false));
        }
        let memory = cx.alloc(data.len())?;
        if let Ok(Action::Write(_)) = request.action {
            // SAFETY: as long as the request, and the ring keeps the guest's memory mapped.
            unsafe { data.copy_to(memory.start) };
        }
        Some((Some(memory), true))
    }

    fn give(&mut self, request: &Request, status: Status) -> Result<(), RingError> {
        self.owes_notice = true;
        self.ring.give(request, status)
    }

    fn notify(&mut self) -> Result<(), RingError> {
        let wants = std::mem::take(&mut self.owes_notice) && self.ring.wants_notice()?;
        if !std::mem::take(&mut self.is_new) && !wants {
            return Ok(());
        }
        let call = self.lines.call.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = call.as_ref() {
            signal(call);
        }
        Ok(())
    }

    fn stop_for_good(&mut self, cx: &mut Context<'_>, error: &RingError) {
        self.is_broken = true;
        cx.complain(BROKEN, "what its ring held made no sense", &error.to_string());
        if let Some(line) = &self.lines.error {
            signal(line);
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>) {
        if let Some(base) = self.base.take() {
            // Who does not wait for it has gone.
            let _ = base.send(self.ring.base());
        }
        cx.cancel(self.lines.kick.as_raw_fd());
        cx.cancel(self.lines.stop.as_raw_fd());
        cx.close();
    }
}

impl Client for QueueSession {
    fn start(&mut self, cx: &mut Context<'_>) {
        // SAFETY: it stays open until the session is dropped.
        unsafe { cx.poll(STOP, self.lines.stop.as_raw_fd()) };
        self.go(cx);
    }

    fn handle_io(&mut self, cx: &mut Context<'_>, tag: u32, result: i32) {
        let line = if tag == KICK { &self.lines.kick } else { &self.lines.stop };
        let is_well = result >= 0 && heard(line);
        match tag {
            KICK if is_well => self.is_polling = false,
            KICK => {
                self.is_broken = true;
                cx.complain(
                    BROKEN,
                    "its guest cannot notify us",
                    "what it gave for that is no eventfd",
                );
            }
            _ => self.is_stopping = true,
        }
        self.go(cx);
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let Entry { request, memory, is_copy } = self.requests.remove(id as usize);
        let status = if result.is_ok() { Status::Ok } else { Status::IoError };
        if let Some(memory) = memory {
            if is_copy && result.is_ok() && matches!(request.action, Ok(Action::Read(_))) {
                // SAFETY: as long as the request, and the array has done with it; the ring keeps the guest's mapped.
                unsafe { request.data.copy_from(memory.start) };
            }
            cx.free(memory);
        }
        if let Err(error) = self.give(&request, status) {
            self.stop_for_good(cx, &error);
        }
    }

    fn handle_replies_end(&mut self, cx: &mut Context<'_>) {
        self.go(cx);
    }

    fn handle_time(&mut self, cx: &mut Context<'_>) {
        self.go(cx);
    }

    fn deadline(&self) -> Option<Instant> {
        self.more
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        self.is_stopping = true;
        self.go(cx);
    }
}

/// Says it on an eventfd. What was said before and not heard is counted there, so there is room for it.
pub(super) fn signal(mut line: &File) {
    let _ = line.write(&1u64.to_ne_bytes());
}

/// Takes what was said, without waiting for it; false if nothing will be said any more.
fn heard(mut line: &File) -> bool {
    let mut said = [0; 8];
    let iov = libc::iovec { iov_base: said.as_mut_ptr().cast(), iov_len: said.len() };
    // By the system call, since not every libc has it. From kernels before 5.8 an eventfd is read only so that one waits.
    // Where the file is, for what has no places.
    let here: libc::c_long = -1;
    // SAFETY: one buffer, valid for its length through the call.
    let count = unsafe {
        libc::syscall(libc::SYS_preadv2, line.as_raw_fd(), &iov, 1, here, here, libc::RWF_NOWAIT)
    };
    let result = usize::try_from(count).map_err(|_| io::Error::last_os_error());
    let result = match result {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => line.read(&mut said),
        result => result,
    };
    match result {
        Ok(count) => count == said.len(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
