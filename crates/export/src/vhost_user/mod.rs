//! The array as a vhost-user-blk device: a virtual machine has it as its disk, with its rings in memory that its monitor
//! shares with us. No kernel driver of the host takes part, and no byte goes through a socket.
//!
//! - A thread accepts one client after the other and speaks with it about terms (`backend`); requests do not pass it.
//!   It looks at the array's size each second, and tells the client of a new one (`channel`).
//! - Each queue of a client is a session on a shard (`session`), which takes requests out of its ring (`ring`, `request`).
//! - What is under way is on record in memory that the client holds (`inflight`), so that a server that was killed can be
//!   started again under a running guest.
//! - Rings are split ones: virtio-queue, which reads them, has no packed ones, and none are offered.
//! - A guest is not trusted. Its monitor, which has the socket, is: it could cut off the file that the guest's memory
//!   is, and a server that touches it would end by a signal.

mod backend;
mod channel;
mod disk;
pub mod inflight;
pub mod request;
pub mod ring;
mod session;

pub use disk::{Disk, SERIAL_BYTES};

use backend::Backend;
use channel::Channel;
use lapstrake_host::Handle;
use std::{
    io,
    net::Shutdown,
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};
use tracing::{info, warn};
use vhost::vhost_user::{BackendReqHandler, Error};

/// How often the array's size is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What becomes known of the client that is there.
#[derive(Default)]
struct Door {
    client: Option<UnixStream>,
    is_closed: bool,
}

/// A socket at which one client after the other is served. Dropped, it sees the last one off; what that had under way is
/// answered.
pub struct VhostUser {
    listener: Arc<UnixListener>,
    door: Arc<Mutex<Door>>,
    thread: Option<JoinHandle<()>>,
}

impl VhostUser {
    /// Lets clients in.
    ///
    /// # Errors
    /// A thread is refused.
    pub fn start(handle: Handle, disk: Disk, listener: UnixListener) -> io::Result<Self> {
        let (listener, door) = (Arc::new(listener), Arc::<Mutex<Door>>::default());
        let (socket, state, disk) = (listener.clone(), door.clone(), Arc::new(disk));
        let run = move || {
            let scope = handle.scope().clone();
            scope.run(|| {
                while let Some(client) = next(&socket, &state) {
                    serve(client, &handle, &disk);
                    hang_up(&state);
                }
            });
        };
        let thread = std::thread::Builder::new().name("vhost-user".into()).spawn(run)?;
        Ok(Self { listener, door, thread: Some(thread) })
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.is_closed = true;
        for fd in [Some(self.listener.as_raw_fd()), door.client.as_ref().map(AsRawFd::as_raw_fd)] {
            // SAFETY: the descriptors are ours. Who waits on them wakes up.
            fd.map(|fd| unsafe { libc::shutdown(fd, libc::SHUT_RDWR) });
        }
        drop(door);
        // It has panicked, or ends now.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The next client; none when the door is closed.
fn next(listener: &UnixListener, door: &Mutex<Door>) -> Option<UnixStream> {
    loop {
        let accepted = listener.accept();
        let mut door = door.lock().unwrap_or_else(PoisonError::into_inner);
        if door.is_closed {
            return None;
        }
        match accepted.and_then(|(client, _)| Ok((client.try_clone()?, client))) {
            Ok((shown, client)) => {
                door.client = Some(shown);
                return Some(client);
            }
            Err(error) => {
                drop(door);
                warn!("cannot accept a vhost-user client: {error}; trying again");
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
        }
    }
}

/// The client that was served sees the end, whatever else has its socket.
fn hang_up(door: &Mutex<Door>) {
    let client = door.lock().unwrap_or_else(PoisonError::into_inner).client.take();
    // It may have gone before.
    let _ = client.map(|client| client.shutdown(Shutdown::Both));
}

/// Serves a client until it goes.
fn serve(client: UnixStream, handle: &Handle, disk: &Arc<Disk>) {
    info!("a vhost-user client has come");
    let backend = Arc::new(Mutex::new(Backend::new(handle.clone(), disk.clone())));
    let end = talk(client, &backend);
    locked(&backend).stop();
    match end {
        Error::Disconnected => info!("the vhost-user client has gone"),
        Error::PartialMessage | Error::SocketBroken(_) => {
            info!("the vhost-user client was cut off")
        }
        error => warn!("the vhost-user client was cut off: {error}; another can connect"),
    }
}

/// Does what a client asks for, and tells it of the disk's size; why that has ended.
fn talk(client: UnixStream, backend: &Arc<Mutex<Backend>>) -> Error {
    let socket = match client.try_clone() {
        Ok(socket) => socket,
        Err(error) => return Error::ReqHandlerError(error),
    };
    let mut requests = BackendReqHandler::from_stream(client, backend.clone());
    loop {
        if has_come(&socket, LOOK) {
            locked(backend).offer(Channel::offered(&socket));
            match requests.handle_request() {
                Ok(()) | Err(Error::SocketRetry(_)) => {}
                Err(error) => return error,
            }
        }
        locked(backend).look_at_size();
    }
}

fn locked(backend: &Mutex<Backend>) -> MutexGuard<'_, Backend> {
    backend.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is something to read, or an end; waits for that, but no longer.
fn has_come(socket: &UnixStream, patience: Duration) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is alive.
    unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as i32) > 0 }
}
