//! The fallback back end where io_uring is refused: sockets by poll(2) on the loop's own thread,
//! storage by [`Workers`].
//!
//! Sockets are tried at once and polled for only when they have nothing to give. poll, not epoll: a
//! shard has few connections, and steps come and go one-shot, for which epoll needs two calls each.

use crate::raw::{Raw, errno};
use crate::ring::Patience;
use crate::waker::Waker;
use crate::workers::Workers;
use std::io;

/// Storage steps performed at a time. Enough to keep a disk's queue from running dry, and few enough
/// that two shards do not crowd a small machine.
const THREADS: usize = 8;

pub(crate) struct Poller {
    workers: Workers,
    waker: Waker,
    waiting: Vec<(usize, Raw)>,
    polls: Vec<libc::pollfd>,
    done: Vec<(usize, i32)>,
}

impl Poller {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            workers: Workers::new(THREADS, waker.clone()),
            waker,
            waiting: Vec::new(),
            polls: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Starts a step.
    ///
    /// # Safety
    /// Its pointers must stay valid until its result was returned by [`Poller::turn`].
    pub(crate) unsafe fn start(&mut self, key: usize, raw: &Raw) {
        if !raw.waits_for_peer() {
            // SAFETY: passed on.
            unsafe { self.workers.start(key, *raw) };
            return;
        }
        if let Raw::Accept { fd } = *raw {
            set_nonblocking(fd);
        }
        // SAFETY: valid by this function's contract.
        match unsafe { raw.perform() } {
            e if e == -libc::EAGAIN => self.waiting.push((key, *raw)),
            result => self.done.push((key, result)),
        }
    }

    /// Ends a step that waits for a peer, if it still waits.
    pub(crate) fn cancel(&mut self, key: usize) {
        if let Some(at) = self.waiting.iter().position(|&(k, _)| k == key) {
            self.waiting.swap_remove(at);
            self.done.push((key, -libc::ECANCELED));
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.done.is_empty() && self.workers.is_idle()
    }

    /// As [`crate::ring::Ring::turn`].
    pub(crate) fn turn(
        &mut self,
        patience: Patience,
        results: &mut Vec<(usize, i32)>,
    ) -> io::Result<()> {
        results.append(&mut self.done);
        self.workers.collect(results);
        let patience = if results.is_empty() { patience } else { Patience::None };
        if patience == Patience::None && self.waiting.is_empty() {
            return Ok(());
        }
        self.polls.clear();
        let events = libc::POLLIN;
        self.polls.push(libc::pollfd { fd: self.waker.event_fd(), events, revents: 0 });
        for (_, raw) in &self.waiting {
            let (fd, events) = raw.readiness().expect("only sockets wait");
            self.polls.push(libc::pollfd { fd, events, revents: 0 });
        }
        poll(&mut self.polls, patience)?;
        if self.polls[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: reads 8 bytes into a live integer; poll said that it will not block.
            unsafe { libc::read(self.waker.event_fd(), (&raw mut count).cast(), 8) };
        }
        self.try_ready(results);
        self.workers.collect(results);
        Ok(())
    }

    fn try_ready(&mut self, results: &mut Vec<(usize, i32)>) {
        let mut polls = self.polls[1..].iter();
        self.waiting.retain(|&(key, raw)| {
            let ready = polls.next().is_some_and(|poll| poll.revents != 0);
            if !ready {
                return true;
            }
            // SAFETY: valid until its result is returned, by the contract of `start`.
            match unsafe { raw.perform() } {
                e if e == -libc::EAGAIN => true,
                result => {
                    results.push((key, result));
                    false
                }
            }
        });
    }
}

fn poll(polls: &mut [libc::pollfd], patience: Patience) -> io::Result<()> {
    let time = match patience {
        Patience::None => Some(libc::timespec { tv_sec: 0, tv_nsec: 0 }),
        Patience::Until(time) => Some(libc::timespec {
            tv_sec: time.as_secs().min(i32::MAX as u64) as _,
            tv_nsec: time.subsec_nanos() as libc::c_long,
        }),
        Patience::Forever => None,
    };
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the slice and the time outlive the call; no signal mask is given.
    let ready =
        unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as _, time, std::ptr::null()) };
    match ready {
        0.. => Ok(()),
        _ if errno() == libc::EINTR => {
            polls.iter_mut().for_each(|poll| poll.revents = 0);
            Ok(())
        }
        _ => Err(io::Error::from_raw_os_error(errno())),
    }
}

/// A connection can vanish between poll and accept, which must not block the loop.
fn set_nonblocking(fd: i32) {
    // SAFETY: integers only; a bad descriptor shows in the accept that follows.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags >= 0 && flags & libc::O_NONBLOCK == 0 {
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
    }
}
