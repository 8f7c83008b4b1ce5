//! One address for the arrays of many servers: a client chooses one by its export's name, and is joined to that array's
//! own server.
//!
//! Of NBD the gateway speaks as much of the handshake as comes before the choice: the greeting, TLS, the list. All that
//! is about one export goes to the export's server as it is, and so do the replies, so sizes, flags and contexts are
//! always that server's word. Then bytes are carried both ways, unread.
//!
//! A thread for each client waits for its two sockets. Nothing is shared but the places that clients take and the answers
//! to a list that several ask for at once, so who is stuck, client or server, keeps no other array's clients waiting.
//!
//! Invariants:
//! - at most [`CLIENTS_MAX`] clients at a time, and `LEAVING_MAX` that were told to go: one that shakes hands for longer
//!   than a second makes room for the next; [`ARRAY_CLIENTS_MAX`] of them have one array;
//! - a handshake ends within [`Patience::handshake`], whatever the client and the servers do, and what may be waited for
//!   one answer: a server has [`backend::PATIENCE`], and an answer that is shared is waited for at most twice.

pub mod backend;
mod client;
mod haggle;
mod question;
mod relay;
mod wait;

use crate::nbd::Violation;
use crate::session::{CUT_OFF, NO_PROGRESS, Patience};
use crate::tcp;
use crate::tls::{TLS_FAILED, TlsOffer};
use client::{Client, ClientError};
use haggle::Haggle;
use lapstrake_host::{Complaints, Time};
pub use question::Question;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, PipeReader};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;
use wait::{Wait, wait};

/// Clients at a time, those that shake hands counted: each costs a thread, up to five descriptors and 256 KiB, with TLS up
/// to 1 MiB.
pub const CLIENTS_MAX: usize = 256;
/// Clients of one array, so that the others' have places when they do not get away from a server that is stuck.
pub const ARRAY_CLIENTS_MAX: usize = CLIENTS_MAX - 32;
/// Clients whose places were given to others, and whose threads have not ended yet.
const LEAVING_MAX: usize = 32;
/// A handshake that has lasted longer may be given up for another client.
const HANDSHAKE_MIN: Duration = Duration::from_secs(1);
/// How long to wait after the system has refused a client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At the end clients have [`Patience::farewell`]; their threads are waited for so much longer.
const END: Duration = Duration::from_secs(1);
/// How long there may be more to tell of clients before it is told.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// What becomes of a client for which there is no place.
const TURNED_AWAY: &str = "a client was turned away";
/// Why a client was cut off whose machine has gone, or which the system cannot wait for.
const SOCKET_FAILED: &str = "its socket failed";
/// Why a client was cut off that made room.
const ROOM_MADE: &str = "its handshake was not over when another needed its place";

/// Finds the servers of arrays.
pub trait Directory: Send + Sync {
    /// The arrays that may be offered now, in order. Nobody is waited for to say so.
    fn names(&self) -> Vec<String>;

    /// The array that is meant by who names none.
    fn default_name(&self) -> Option<String>;

    /// A connection to an array's server, which speaks NBD to it. It may be waited for, but not much longer than `until`.
    /// None, told to whom it concerns, if there is none to be had.
    fn connect(&self, name: &str, until: Instant) -> Option<UnixStream>;
}

/// A socket at which clients come.
pub enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// A port.
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(listener) => Ok(listener.accept()?.0.into()),
            Self::Tcp(listener) => {
                let socket = listener.accept()?.0;
                tcp::prepare(&socket);
                Ok(socket.into())
            }
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Unix(listener) => listener.as_raw_fd(),
            Self::Tcp(listener) => listener.as_raw_fd(),
        }
    }
}

/// Why a client's connection ends before it has ended it.
#[derive(Debug)]
enum Ended {
    /// It has gone, or it was told to.
    Quietly,
    /// It gave cause for complaint.
    Cut { kind: &'static str, detail: String },
}

impl Ended {
    fn cut(kind: &'static str) -> Self {
        Self::Cut { kind, detail: kind.to_owned() }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Self::Quietly,
            _ => Self::Cut { kind: SOCKET_FAILED, detail: format!("{SOCKET_FAILED}: {error}") },
        }
    }
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Io(error) => error.into(),
            ClientError::Tls(_) => Self::Cut { kind: TLS_FAILED, detail: error.to_string() },
        }
    }
}

impl From<Violation> for Ended {
    fn from(violation: Violation) -> Self {
        Self::Cut { kind: violation.kind(), detail: violation.to_string() }
    }
}

/// See the module.
pub struct Gateway(Arc<Shared>);

/// What all clients' threads have in common.
struct Shared {
    directory: Box<dyn Directory>,
    patience: Patience,
    /// Closed at its other end when the gateway is to end.
    stop: PipeReader,
    places: Mutex<Places>,
    /// Entries of all arrays' servers.
    listed: Question<Vec<u8>>,
    /// A client has gone.
    left: Condvar,
    began: Instant,
}

#[derive(Default)]
struct Places {
    clients: BTreeMap<u64, Place>,
    next: u64,
    complaints: Complaints,
}

/// A client, as others see it.
struct Place {
    /// To be shut down by whoever needs the place.
    socket: UnixStream,
    /// When its handshake began; none once that is over.
    since: Option<Instant>,
    /// The array that it has, or asks for.
    array: Option<String>,
    /// It was shut down for another.
    is_leaving: bool,
}

impl Places {
    /// Whether there is a place, be it that of one who is told to go.
    fn make_room(&mut self) -> bool {
        let leaving = self.clients.values().filter(|place| place.is_leaving).count();
        if self.clients.len() - leaving < CLIENTS_MAX {
            return true;
        }
        let staying = self.clients.values_mut().filter(|place| !place.is_leaving);
        let shaking = staying.filter_map(|place| Some((place.since?, place)));
        let oldest = shaking.min_by_key(|(since, _)| *since);
        let Some((_, place)) =
            oldest.filter(|(since, _)| leaving < LEAVING_MAX && since.elapsed() >= HANDSHAKE_MIN)
        else {
            return false;
        };
        place.is_leaving = true;
        // One that is gone makes room, too.
        let _ = place.socket.shutdown(Shutdown::Both);
        true
    }
}

impl Gateway {
    /// To the arrays of a directory, until the writing end of `stop` is closed.
    #[must_use]
    pub fn new(directory: Box<dyn Directory>, patience: Patience, stop: PipeReader) -> Self {
        let (places, left) = (Mutex::default(), Condvar::new());
        let (listed, began) = (Question::default(), Instant::now());
        Self(Arc::new(Shared { directory, patience, stop, places, listed, left, began }))
    }

    /// Lets clients in until it is to end, and sees them off then: what they have asked for is answered.
    ///
    /// # Errors
    /// The system cannot wait for sockets.
    pub fn run(&self, listeners: Vec<(Listener, Option<TlsOffer>)>) -> io::Result<()> {
        let shared = &*self.0;
        listeners.iter().try_for_each(|(listener, _)| listener.set_nonblocking())?;
        let mut pause = None;
        loop {
            let accepts = pause.is_none();
            let of =
                |(listener, _): &(Listener, _)| Wait::new(listener.as_raw_fd(), accepts, false);
            let mut waits: Vec<Wait> = listeners.iter().map(of).collect();
            waits.push(Wait::new(shared.stop.as_raw_fd(), true, false));
            shared.tell_more();
            // There may be more to tell by then, of which nobody wakes this up.
            let again = Instant::now() + TELL_AGAIN;
            wait(&mut waits, pause.into_iter().chain([again]).min())?;
            pause = pause.filter(|until| *until > Instant::now());
            if waits.pop().is_some_and(|stop| stop.has_come()) {
                break;
            }
            for ((listener, offer), _) in
                listeners.iter().zip(&waits).filter(|(_, wait)| wait.has_come())
            {
                if let Err(error) = self.accept(listener, offer.as_ref()) {
                    let detail = error.to_string();
                    shared.complain(
                        "a client could not be accepted",
                        "the system refuses",
                        &detail,
                    );
                    pause = Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        }
        drop(listeners);
        shared.see_off();
        Ok(())
    }

    fn accept(&self, listener: &Listener, offer: Option<&TlsOffer>) -> io::Result<()> {
        let socket = match listener.accept() {
            Ok(socket) => socket,
            // The client was gone again before its turn.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(number) = self.0.take_place(&socket)? else { return Ok(()) };
        // It is given up with the thread, or instead of it.
        let seat = Seat { shared: self.0.clone(), number };
        let offer = offer.cloned();
        let serve = move || {
            let shared = &seat.shared;
            let ended = shared.serve(number, socket, offer);
            match ended {
                _ if shared.is_leaving(number) => shared.complain(CUT_OFF, ROOM_MADE, ROOM_MADE),
                Err(Ended::Cut { kind, detail }) => shared.complain(CUT_OFF, kind, &detail),
                _ => {}
            }
        };
        thread::Builder::new().name("nbd client".into()).spawn(serve).map(drop)
    }
}

/// A client's place, until this is dropped.
struct Seat {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.places().clients.remove(&self.number);
        self.shared.left.notify_all();
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One client, from the greeting to its end.
    fn serve(&self, number: u64, socket: OwnedFd, offer: Option<TlsOffer>) -> Result<(), Ended> {
        let mut client = Client::new(socket)?;
        let (mut server, early) = Haggle::new(self, number, &mut client, offer).carry_on()?;
        if let Some(place) = self.places().clients.get_mut(&number) {
            place.since = None;
        }
        let stop = self.stop.as_raw_fd();
        relay::relay(&mut client, &mut server, &early, stop, &self.patience)
    }

    /// A place for a client, if there is one or somebody makes room.
    fn take_place(&self, socket: &OwnedFd) -> io::Result<Option<u64>> {
        let socket = UnixStream::from(socket.try_clone()?);
        let mut places = self.places();
        if !places.make_room() {
            drop(places);
            let detail = format!("{CLIENTS_MAX} are there already");
            self.complain(TURNED_AWAY, "too many are there already", &detail);
            return Ok(None);
        }
        let number = places.next;
        places.next += 1;
        let since = Some(Instant::now());
        places.clients.insert(number, Place { socket, since, array: None, is_leaving: false });
        Ok(Some(number))
    }

    /// A place among an array's clients, if there is one.
    fn take_array(&self, number: u64, name: &str) -> bool {
        let mut places = self.places();
        let others = places.clients.iter().filter(|(other, _)| **other != number);
        let count = others.filter(|(_, place)| place.array.as_deref() == Some(name)).count();
        if count >= ARRAY_CLIENTS_MAX {
            drop(places);
            let detail = format!("{name} has {ARRAY_CLIENTS_MAX} already");
            self.complain(TURNED_AWAY, "its array has too many already", &detail);
            return false;
        }
        if let Some(place) = places.clients.get_mut(&number) {
            place.array = Some(name.to_owned());
        }
        true
    }

    fn is_leaving(&self, number: u64) -> bool {
        self.places().clients.get(&number).is_some_and(|place| place.is_leaving)
    }

    /// Waits until all clients have gone, for as long as patience has it.
    fn see_off(&self) {
        let some_are_there = |places: &mut Places| !places.clients.is_empty();
        let patience = self.patience.farewell + END;
        let waited = self.left.wait_timeout_while(self.places(), patience, some_are_there);
        let left = waited.unwrap_or_else(PoisonError::into_inner).0.clients.len();
        if left > 0 {
            warn!(
                "{left} clients were still there when the gateway ended: their servers had not answered, or they had not \
                 taken their replies"
            );
        }
        self.places().complaints.tell_more(Time(u64::MAX));
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }

    fn complain(&self, what: &'static str, why: &'static str, detail: &str) {
        let now = self.now();
        self.places().complaints.complain(now, what, why, detail);
    }

    /// Tells of clients like those that were told of.
    fn tell_more(&self) {
        let now = self.now();
        self.places().complaints.tell_more(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_has_gone_ends_without_a_word() {
        let of = |kind: ErrorKind| Ended::from(io::Error::from(kind));
        for gone in [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe] {
            assert!(matches!(of(gone), Ended::Quietly));
        }
        for told in [ErrorKind::OutOfMemory, ErrorKind::TimedOut] {
            let Ended::Cut { detail, .. } = of(told) else { panic!("{told} was not told") };
            assert_eq!(detail, format!("its socket failed: {told}"));
        }
    }
}
