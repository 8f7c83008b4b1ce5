//! All places where an array is served. They are taken before the array starts, so that one that
//! cannot be had costs nothing.

use super::Event;
use super::nbd::{At, Socket, file_uri, without_delay};
use super::place::Place;
use super::tls::Tls;
use crate::exit::Failure;
use lapstrake_export::NbdSession;
use lapstrake_export::fuse::Mount;
use lapstrake_export::nbd::{ExportInfo, Exports, Limits};
use lapstrake_export::tls::TlsOffer;
use lapstrake_export::vhost_user::{Disk, VhostUser};
use lapstrake_host::{Array, Greeter, control::ServedFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tracing::warn;

/// See the module. Dropping it removes the sockets' files.
pub struct Fronts {
    sockets: Vec<Socket>,
    tls: Tls,
    mount: Option<(PathBuf, Mount)>,
    /// Before its socket, so that it is dropped first.
    vhost_user: Option<VhostUser>,
    vhost_user_socket: Option<Socket>,
    name: String,
}

impl Fronts {
    /// Listens at every place; connections wait until [`Fronts::open`].
    pub fn bind(
        places: &[Place],
        tls: Tls,
        vhost_user: Option<&Path>,
        name: &str,
    ) -> Result<Self, Failure> {
        let bind = |place: &Place| Socket::bind(place, tls.lets_others_in());
        let sockets = places.iter().map(bind).collect::<Result<_, _>>()?;
        let vhost_user_socket =
            vhost_user.map(|path| bind(&Place::Unix(path.to_owned()))).transpose()?;
        let (mount, vhost_user) = (None, None);
        Ok(Self { sockets, tls, mount, vhost_user, vhost_user_socket, name: name.to_owned() })
    }

    /// Lets clients in.
    pub fn open(&mut self, array: &Array, export: ExportInfo, disk: Disk) -> Result<(), Failure> {
        let exports = Arc::new(Exports::new([export])?);
        for socket in &self.sockets {
            let listener = socket.listener.try_clone()?;
            let is_tcp = matches!(socket.at, At::Tcp(_));
            let offer = self.tls.offer(is_tcp);
            array.handle().listen(listener, greeter(exports.clone(), is_tcp, offer));
        }
        if let Some(socket) = &self.vhost_user_socket {
            let listener = socket.listener.try_clone()?.into();
            self.vhost_user = Some(VhostUser::start(array.handle(), disk, listener)?);
        }
        Ok(())
    }

    /// Mounts the array as a file; the end of the mount becomes an event.
    pub fn mount(
        &mut self,
        array: &Array,
        file: &Path,
        events: Sender<Event>,
    ) -> Result<(), Failure> {
        let (handle, size) = (array.handle(), array.size());
        let block = array.facts().block_bytes;
        let path = std::path::absolute(file)?;
        let mount = Mount::new(handle, size, block, array.is_read_only(), file)?;
        mount.on_end(move || {
            // At the server's own end nobody listens any more.
            let _ = events.send(Event::Unmounted);
        });
        self.mount = Some((path, mount));
        Ok(())
    }

    /// The array's file, if there is one; `is_lent`: to a command, which is told to end by the stop itself.
    pub fn served_file(&self, is_lent: bool) -> Option<ServedFile> {
        let (path, mount) = self.mount.as_ref()?;
        let users = mount.users();
        let stays_open = Box::new(move || !is_lent && users.stay());
        Some(ServedFile { path: path.clone(), stays_open })
    }

    /// Ends the mount, if there is one. False if it is still in use.
    pub fn unmount(&mut self, array: &Array) -> bool {
        match self.mount.take().map(|(_, mount)| mount.unmount()) {
            None | Some(Ok(())) => true,
            Some(Err(error)) => {
                array.handle().scope().run(|| warn!("{error}"));
                false
            }
        }
    }

    /// Sees off the client of vhost-user: what its guest has under way is answered.
    pub fn hang_up(&mut self) {
        self.vhost_user = None;
    }

    /// Whether clients can come over sockets.
    pub fn has_sockets(&self) -> bool {
        !self.sockets.is_empty() || self.vhost_user_socket.is_some()
    }

    /// Whether clients may have come at all.
    pub fn has_any(&self) -> bool {
        self.has_sockets() || self.mount.is_some()
    }

    /// The mounted file.
    pub fn file(&self) -> Option<&Path> {
        self.mount.as_ref().map(|(path, _)| &**path)
    }

    /// URIs by which clients find the array.
    pub fn uris(&self) -> Vec<String> {
        let is_secured = self.tls.offer(true).is_some_and(|offer| offer.is_required);
        let sockets = self.sockets.iter().map(|socket| socket.uri(&self.name, is_secured));
        let vhost_user = self.vhost_user().map(|path| format!("vhost-user:{}", path.display()));
        sockets.chain(self.file().map(file_uri)).chain(vhost_user).collect()
    }

    /// The socket of vhost-user.
    pub fn vhost_user(&self) -> Option<&Path> {
        self.vhost_user_socket.as_ref().and_then(Socket::file)
    }

    /// The first Unix socket.
    pub fn unix(&self) -> Option<&Path> {
        self.sockets.iter().find_map(Socket::file)
    }

    /// The first TCP port.
    pub fn port(&self) -> Option<u16> {
        self.sockets.iter().find_map(|socket| match &socket.at {
            At::Tcp(address) => Some(address.port()),
            At::Unix(_) => None,
        })
    }
}

fn greeter(exports: Arc<Exports>, is_tcp: bool, offer: Option<TlsOffer>) -> Greeter {
    Box::new(move |socket| {
        if is_tcp {
            without_delay(&socket);
        }
        let session = NbdSession::new(socket, exports.clone(), Limits::default());
        match offer.clone() {
            Some(offer) => Box::new(session.with_tls(offer)),
            None => Box::new(session),
        }
    })
}
