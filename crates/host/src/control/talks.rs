//! The connections of a control socket: which there are, and who makes room for a newcomer.
//!
//! Invariants: at most [`CONNECTIONS_MAX`]; one whose request is there, or is carried out, gives its place to nobody; a
//! newcomer waits for [`PLACE`] at most, and not once the listener is shut down.

use super::CONNECTIONS_MAX;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection that has said nothing for so long is closed if another needs its place, which waits for that.
const IDLE_MIN: Duration = Duration::from_millis(100);
/// How long a connection waits for a place, and others behind it: nobody may ever be idle for [`IDLE_MIN`].
const PLACE: Duration = Duration::from_millis(200);

/// A connection.
struct Talk {
    stream: UnixStream,
    /// Since when it asks nothing; none while a request of it is carried out.
    idle_since: Option<Instant>,
}

impl Talk {
    /// The same, but none if a request is there that its thread has not come to.
    fn idle_since(&self) -> Option<Instant> {
        let mut waiting: libc::c_int = 0;
        // SAFETY: the descriptor is ours, and the kernel writes one int.
        let asked = unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::FIONREAD, &mut waiting) };
        self.idle_since.filter(|_| asked != 0 || waiting == 0)
    }
}

/// The connections, at most [`CONNECTIONS_MAX`].
#[derive(Default)]
pub(super) struct Talks {
    by_id: Mutex<BTreeMap<u64, Talk>>,
    ever: AtomicU64,
}

impl Talks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Talk>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number, if there is room for it, or will be: that which has been idle for longest makes some.
    pub(super) fn take_in(&self, stream: &UnixStream, listener: &UnixListener) -> Option<u64> {
        let deadline = Instant::now() + PLACE;
        let mut talks = self.lock();
        while talks.len() >= CONNECTIONS_MAX {
            let idle = talks.iter().filter_map(|(id, talk)| Some((talk.idle_since()?, *id)));
            let (since, id) = idle.min()?;
            let left = IDLE_MIN.saturating_sub(since.elapsed());
            if !left.is_zero() {
                drop(talks);
                let patience = deadline.saturating_duration_since(Instant::now());
                if patience.is_zero() || is_shut_down(listener, left.min(patience)) {
                    return None;
                }
                talks = self.lock();
                continue;
            }
            let talk = talks.remove(&id)?;
            // Its thread sees the end, or is there already; if a request has come in between it is answered first.
            let _ = talk.stream.shutdown(Shutdown::Read);
        }
        let stream = stream.try_clone().ok()?;
        let id = self.ever.fetch_add(1, Ordering::Relaxed);
        talks.insert(id, Talk { stream, idle_since: Some(Instant::now()) });
        Some(id)
    }

    pub(super) fn set_idle(&self, id: u64, since: Option<Instant>) {
        if let Some(talk) = self.lock().get_mut(&id) {
            talk.idle_since = since;
        }
    }

    /// Whether it still has its place.
    pub(super) fn has(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }

    pub(super) fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }
}

/// Whether it is, or is within this time.
fn is_shut_down(listener: &UnixListener, within: Duration) -> bool {
    // Nothing but the end is waited for, so that others who connect do not wake us.
    let mut ended = libc::pollfd { fd: listener.as_raw_fd(), events: 0, revents: 0 };
    // Rounded up, or the last part of a millisecond would be spent going round.
    let ms = within.as_micros().div_ceil(1000) as libc::c_int;
    // SAFETY: one structure, which outlives the call.
    unsafe { libc::poll(&raw mut ended, 1, ms) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    /// As many connections as there may be, and their other ends.
    fn full(talks: &Talks, listener: &UnixListener) -> Vec<(u64, UnixStream, UnixStream)> {
        let one = |_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (talks.take_in(&ours, listener).unwrap(), ours, theirs)
        };
        (0..CONNECTIONS_MAX).map(one).collect()
    }

    /// Somebody is always idle, but nobody for long, as where each asks often.
    fn asking_often(talks: &Talks, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            talks.lock().values_mut().for_each(|talk| talk.idle_since = Some(Instant::now()));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_newcomer_among_those_who_ask_often_is_told_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let (talks, is_over) = (Talks::default(), AtomicBool::new(false));
        let there = full(&talks, &listener);
        let (newcomer, _theirs) = UnixStream::pair().unwrap();
        let (sender, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| asking_often(&talks, &is_over));
            scope.spawn(|| sender.send(talks.take_in(&newcomer, &listener)));
            let answer = told.recv_timeout(Duration::from_secs(30));
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(answer, Ok(None), "it waits for ever, or took the place of one who asks");
        });
        assert_eq!(talks.lock().len(), there.len());
    }

    #[test]
    fn who_makes_room_while_it_asks_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let talks = Talks::default();
        let mut there = full(&talks, &listener);
        let (read, unread) = (there[0].0, there[1].0);
        // The first has been read, but its thread has not come to say so.
        let (_, ours, theirs) = &mut there[0];
        theirs.write_all(b"ask\n").unwrap();
        ours.read_exact(&mut [0; 4]).unwrap();
        talks.set_idle(read, Instant::now().checked_sub(2 * IDLE_MIN));
        let newcomer = UnixStream::pair().unwrap().0;
        assert!(talks.take_in(&newcomer, &listener).is_some());
        assert!(!talks.lock().contains_key(&read) && talks.lock().contains_key(&unread));
        ours.write_all(b"answer\n").unwrap();
        theirs.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(ours.read(&mut [0; 1]).unwrap(), 0, "and that was its last");
    }

    #[test]
    fn nobody_waits_for_a_place_once_the_listener_is_shut_down() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let _newcomer_behind = UnixStream::connect(dir.path().join("socket")).unwrap();
        assert!(!is_shut_down(&listener, Duration::ZERO));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| is_shut_down(&listener, Duration::from_secs(60)));
            // SAFETY: the descriptor is ours.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
            assert!(waiter.join().unwrap());
        });
        let talks = Talks::default();
        let _there = full(&talks, &listener);
        talks.lock().values_mut().for_each(|talk| talk.idle_since = Some(Instant::now()));
        assert_eq!(talks.take_in(&UnixStream::pair().unwrap().0, &listener), None);
    }
}
