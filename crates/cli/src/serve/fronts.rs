//! All places where an array is served. They are taken before the array starts, so that one that
//! cannot be had costs nothing.

use super::nbd::{At, Place, Socket, without_delay};
use crate::exit::Failure;
use lapstrake_export::NbdSession;
use lapstrake_export::nbd::{ExportInfo, Exports, Limits};
use lapstrake_host::{Array, Greeter, Log};
use std::path::Path;
use std::sync::Arc;

/// See the module. Dropping it removes the sockets' files.
pub struct Fronts {
    sockets: Vec<Socket>,
    name: String,
}

impl Fronts {
    /// Listens at every place; connections wait until [`Fronts::open`].
    pub fn bind(places: &[Place], name: &str) -> Result<Self, Failure> {
        let sockets = places.iter().map(Socket::bind).collect::<Result<_, _>>()?;
        Ok(Self { sockets, name: name.to_owned() })
    }

    /// Lets clients in.
    pub fn open(&self, array: &Array, export: ExportInfo, log: &Log) -> Result<(), Failure> {
        let exports = Arc::new(Exports::new([export])?);
        for socket in &self.sockets {
            let listener = socket.listener.try_clone()?;
            let is_tcp = matches!(socket.at, At::Tcp(_));
            array.handle().listen(listener, greeter(exports.clone(), log.clone(), is_tcp));
        }
        Ok(())
    }

    /// URIs by which clients find the array.
    pub fn uris(&self) -> Vec<String> {
        self.sockets.iter().map(|socket| socket.uri(&self.name)).collect()
    }

    /// The first Unix socket.
    pub fn unix(&self) -> Option<&Path> {
        self.sockets.iter().find_map(|socket| match &socket.at {
            At::Unix(file) => Some(&*file.0),
            At::Tcp(_) => None,
        })
    }

    /// The first TCP port.
    pub fn port(&self) -> Option<u16> {
        self.sockets.iter().find_map(|socket| match &socket.at {
            At::Tcp(address) => Some(address.port()),
            At::Unix(_) => None,
        })
    }
}

fn greeter(exports: Arc<Exports>, log: Log, is_tcp: bool) -> Greeter {
    Box::new(move |socket| {
        if is_tcp {
            without_delay(&socket);
        }
        Box::new(NbdSession::new(socket, exports.clone(), Limits::default(), log.clone()))
    })
}
