//! All places where an array is served. They are taken before the array starts, so that one that
//! cannot be had costs nothing.

use super::Event;
use super::nbd::{At, Socket, file_uri};
use super::place::Place;
use super::tls::Tls;
use crate::exit::Failure;
use lapstrake_export::NbdSession;
use lapstrake_export::fuse::Mount;
use lapstrake_export::nbd::{ExportInfo, Exports, Limits};
use lapstrake_export::tcp;
use lapstrake_export::tls::TlsOffer;
use lapstrake_export::ublk::Device;
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
    ublk: Option<Device>,
    name: String,
}

/// Where an array is to be served beside NBD and FUSE.
pub struct Disks<'a> {
    /// A socket's path.
    pub vhost_user: Option<&'a Path>,
    /// A device's number, if one was asked for.
    pub ublk: Option<Option<u32>>,
    /// Queues of a device.
    pub queues: u16,
    /// What is served, for who finds a device again.
    pub identity: u64,
}

impl Fronts {
    /// Listens at every place; connections wait until [`Fronts::open`].
    pub fn bind(
        places: &[Place],
        tls: Tls,
        disks: &Disks<'_>,
        name: &str,
    ) -> Result<Self, Failure> {
        let bind = |place: &Place| Socket::bind(place, tls.lets_others_in());
        let sockets = places.iter().map(bind).collect::<Result<_, _>>()?;
        let vhost_user_socket =
            disks.vhost_user.map(|path| bind(&Place::Unix(path.to_owned()))).transpose()?;
        let claim = |number| Device::claim(number, disks.queues, disks.identity);
        let ublk = disks.ublk.map(claim).transpose()?;
        let (mount, vhost_user, name) = (None, None, name.to_owned());
        Ok(Self { sockets, tls, mount, vhost_user, vhost_user_socket, ublk, name })
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
            self.vhost_user = Some(VhostUser::start(array.handle(), disk.clone(), listener)?);
        }
        if let Some(device) = &mut self.ublk {
            device.start(&array.handle(), &disk)?;
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

    /// The array as a file and as a device, if it is; `is_lent`: to a command, which is told to end by the stop itself.
    pub fn served_files(&self, is_lent: bool) -> Vec<ServedFile> {
        let file = self.mount.as_ref().map(|(path, mount)| {
            let users = mount.users();
            let stays_open = Box::new(move || !is_lent && users.stay());
            ServedFile { path: path.clone(), stays_open }
        });
        let device = self.ublk.as_ref().map(|device| {
            let path = device.path();
            let stays_open = Box::new(move || !is_lent && lapstrake_export::ublk::is_held(&path));
            ServedFile { path: device.path(), stays_open }
        });
        file.into_iter().chain(device).collect()
    }

    /// Ends the mount and the device, if there are any. False if one is still in use.
    pub fn unmount(&mut self, array: &Array) -> bool {
        let unmounted = self.mount.take().and_then(|(_, mount)| mount.unmount().err());
        let taken_away = self.ublk.take().and_then(|device| device.stop().err());
        let errors = [unmounted.map(Failure::new), taken_away.map(Failure::new)];
        for error in errors.iter().flatten() {
            array.handle().scope().run(|| warn!("{}", error.message));
        }
        errors.iter().all(Option::is_none)
    }

    /// Sees off the client of vhost-user and the kernel: what they have under way is answered.
    pub fn hang_up(&mut self) {
        self.vhost_user = None;
        self.ublk = None;
    }

    /// Whether clients can come otherwise than by the mounted file.
    pub fn has_others(&self) -> bool {
        !self.sockets.is_empty() || self.vhost_user_socket.is_some() || self.ublk.is_some()
    }

    /// Whether clients may have come at all.
    pub fn has_any(&self) -> bool {
        self.has_others() || self.mount.is_some()
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
        let ublk = self.ublk().map(|path| format!("ublk:{}", path.display()));
        sockets.chain(self.file().map(file_uri)).chain(vhost_user).chain(ublk).collect()
    }

    /// The kernel's device.
    pub fn ublk(&self) -> Option<PathBuf> {
        self.ublk.as_ref().map(Device::path)
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
            tcp::prepare(&socket);
        }
        let session = NbdSession::new(socket, exports.clone(), Limits::default());
        match offer.clone() {
            Some(offer) => Box::new(session.with_tls(offer)),
            None => Box::new(session),
        }
    })
}
