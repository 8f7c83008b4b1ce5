//! How NBD is served: at Unix sockets and TCP ports, their URIs, and the export.

use super::place::Place;
use crate::exit::Failure;
use lapstrake_export::nbd::ExportInfo;
use lapstrake_geometry::Geometry;
use lapstrake_host::Parts;
use std::ffi::CString;
use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a path in a Unix socket's address (unix(7)), without the NUL.
const PATH_MAX: usize = 107;

/// A socket that listens; a Unix socket's file goes with it.
pub struct Socket {
    /// The socket itself, until the array takes it.
    pub listener: OwnedFd,
    /// The file, or the address with the port that it got.
    pub at: At,
}

/// Where a socket listens.
pub enum At {
    /// This file.
    Unix(SocketFile),
    /// This address.
    Tcp(SocketAddr),
}

/// A socket's file, removed at the end if it is still that one: what somebody else put in its place stays.
pub struct SocketFile {
    /// Where it is.
    pub path: PathBuf,
    /// Open, so that no other file gets its number.
    file: File,
}

impl SocketFile {
    /// The file that was just made.
    fn new(path: &Path) -> io::Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // Not by std, which takes O_PATH away where libc counts it among the access modes (musl): a socket cannot be
        // opened without it.
        // SAFETY: the name ends with a zero and outlives the call.
        let fd =
            unsafe { libc::open(name.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(fd) }.into();
        Ok(Self { path: std::path::absolute(path)?, file })
    }

    fn is_there(&self) -> bool {
        let id = |meta: Metadata| (meta.dev(), meta.ino());
        let there = self.path.symlink_metadata().map(id);
        there.is_ok_and(|there| self.file.metadata().map(id).is_ok_and(|ours| ours == there))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            // Nothing is lost if it stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn cannot_listen(place: &dyn Display, error: &io::Error) -> Failure {
    let next = match error.kind() {
        ErrorKind::NotFound => "make its directory first",
        ErrorKind::AddrInUse => "somebody else listens there: stop them, or choose another place",
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has the address (`ip address`)"
        }
        ErrorKind::PermissionDenied => "choose a place that this user may use",
        _ => "choose another place",
    };
    Failure::new(format!("{place}: cannot listen: {error}; {next}"))
}

impl Socket {
    /// Listens; `may_let_others_in`: also where other machines may come from.
    pub fn bind(place: &Place, may_let_others_in: bool) -> Result<Self, Failure> {
        match place {
            Place::Unix(path) => {
                check_length(path)?;
                remove_stale(path)?;
                let failed = |error| cannot_listen(&path.display(), &error);
                let listener = UnixListener::bind(path).map_err(failed)?;
                let at = At::Unix(SocketFile::new(path).map_err(failed)?);
                Ok(Self { listener: listener.into(), at })
            }
            Place::Tcp(address) => {
                let failed = |error| cannot_listen(address, &error);
                let addresses = addresses(address)?;
                if !may_let_others_in {
                    check_local(address, &addresses)?;
                }
                let listener = TcpListener::bind(&*addresses).map_err(failed)?;
                let at = At::Tcp(listener.local_addr().map_err(failed)?);
                Ok(Self { listener: listener.into(), at })
            }
        }
    }

    /// The file of a Unix socket.
    pub fn file(&self) -> Option<&Path> {
        match &self.at {
            At::Unix(file) => Some(&file.path),
            At::Tcp(_) => None,
        }
    }

    /// The NBD URI of an export here; `is_secured`: TCP clients have to use TLS.
    pub fn uri(&self, export: &str, is_secured: bool) -> String {
        let export = escaped(export.as_bytes(), b"-._~");
        match &self.at {
            At::Unix(file) => {
                let path = escaped(file.path.as_os_str().as_bytes(), b"-._~/");
                format!("nbd+unix:///{export}?socket={path}")
            }
            At::Tcp(address) => {
                let scheme = if is_secured { "nbds" } else { "nbd" };
                format!("{scheme}://{address}/{export}")
            }
        }
    }
}

/// Refuses addresses that other machines may reach.
fn check_local(place: &str, addresses: &[SocketAddr]) -> Result<(), Failure> {
    let Some(other) = addresses.iter().find(|address| !address.ip().is_loopback()) else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "{place}: other machines may reach {}, and whoever does could read and write the array: say --tls-certificates \
         DIR, or --no-tls where everybody may",
        other.ip()
    )))
}

/// The addresses of `HOST:PORT`.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    if !cfg!(target_feature = "crt-static") || text.parse::<SocketAddr>().is_ok() {
        let found = text.to_socket_addrs().map_err(|error| cannot_listen(&text, &error))?;
        return Ok(found.collect());
    }
    known_addresses(text)
}

/// Of a static binary, whose libc would load the system's plug-ins for names into a program that was not made for them.
fn known_addresses(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    match (host, port.parse()) {
        ("localhost", Ok(port)) => {
            Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()])
        }
        _ => Err(Failure::usage(format!(
            "{text}: this is the static build of lapstrake, which looks up no names but localhost: say the address in \
             numbers (`getent hosts {host}`)"
        ))),
    }
}

fn check_length(path: &Path) -> Result<(), Failure> {
    let bytes = path.as_os_str().len();
    if bytes <= PATH_MAX {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: {bytes} bytes long, and a socket's address has room for {PATH_MAX}; choose a shorter path, or one from the \
         directory of the socket",
        path.display()
    )))
}

/// Removes a socket whose server has died; refuses anything else that is there.
fn remove_stale(path: &Path) -> Result<(), Failure> {
    let failed =
        |what: &str| Failure::new(format!("{}: {what}; nothing was changed", path.display()));
    let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
    if !meta.file_type().is_socket() {
        return Err(failed("is there already, and is no socket: choose another place"));
    }
    if is_served(path) {
        return Err(failed("another server listens there: stop it, or choose another place"));
    }
    std::fs::remove_file(path).map_err(|error| failed(&error.to_string()))
}

/// Whether somebody answers at a socket. One that accepts and says nothing is given the benefit of
/// the doubt; but the kernel may keep the socket of a server that was killed for a moment, until
/// what it had asked of io_uring is undone, and then ends the connection.
fn is_served(path: &Path) -> bool {
    for _ in 0..20 {
        let Ok(mut stream) = UnixStream::connect(path) else { return false };
        // Refused, it waits for longer.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        match stream.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            _ => return true,
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Percent-encoding of all but letters, digits and `plain`.
fn escaped(bytes: &[u8], plain: &[u8]) -> String {
    let one = |&byte: &u8| match byte {
        byte if byte.is_ascii_alphanumeric() || plain.contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(one).collect()
}

/// The URI of a file.
pub fn file_uri(path: &Path) -> String {
    format!("file://{}", escaped(path.as_os_str().as_bytes(), b"-._~/"))
}

/// The array as an export.
pub fn export(parts: &Parts, read_only: bool) -> ExportInfo {
    let mut export = ExportInfo::new(&*parts.name, parts.bytes());
    let members = &parts.plan.members;
    export.description = format!("{} of {} members", parts.plan.geometry.level(), members.len());
    export.read_only = read_only;
    export.rotational = members.iter().any(|member| member.device.rotational());
    export.min_block = parts.block_bytes();
    let chunk = match &parts.plan.geometry {
        Geometry::Raid0(raid0) => raid0.chunk().bytes(),
        Geometry::Raid10(raid10) => raid10.chunk().bytes(),
        Geometry::Parity(parity) => parity.chunk().bytes(),
        Geometry::Linear(_) | Geometry::Mirror(_) => 0,
    };
    // What a client should at least send at once, and no more than it may.
    if chunk.is_power_of_two() && (4096..=u64::from(export.max_payload)).contains(&chunk) {
        export.preferred_block = chunk as u32;
    }
    export.preferred_block = export.preferred_block.max(export.min_block);
    export
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_binary_looks_up_no_names() {
        let local = known_addresses("localhost:10809").unwrap_or_default();
        assert_eq!(local, ["127.0.0.1:10809".parse().unwrap(), "[::1]:10809".parse().unwrap()]);
        let Err(refused) = known_addresses("nas.example:10809") else { panic!("a name was taken") };
        assert!(refused.message.contains("getent hosts nas.example"), "{}", refused.message);
        let numbers = addresses("[::1]:10809").unwrap_or_default();
        assert_eq!(numbers, ["[::1]:10809".parse().unwrap()]);
    }

    #[test]
    fn uris_escape_what_is_not_plain() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b?.sock");
        let bind = || Socket::bind(&Place::Unix(path.clone()), false);
        let socket = bind().unwrap();
        let uri = socket.uri("home:data", true);
        assert!(uri.starts_with("nbd+unix:///home%3Adata?socket=/"), "{uri}");
        assert!(uri.ends_with("/a%20b%3F.sock"), "{uri}");
        assert!(bind().is_err(), "a live socket is taken");
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(bind().is_ok(), "a dead one is replaced");
    }

    #[test]
    fn what_took_the_place_of_a_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let bind = || Socket::bind(&Place::Unix(path.clone()), false).unwrap();
        let first = bind();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        drop(first);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        let second = bind();
        std::fs::remove_file(&path).unwrap();
        let third = bind();
        drop(second);
        assert!(UnixStream::connect(&path).is_ok(), "another server's");
        drop(third);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(Socket::bind(&Place::Unix(path.clone()), false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn only_this_machine_s_own_addresses_are_let_in_unasked() {
        let check = |text: &str| check_local(text, &addresses(text).unwrap_or_default());
        assert!(check("127.0.0.1:0").is_ok() && check("[::1]:0").is_ok());
        for other in ["0.0.0.0:0", "[::]:0", "192.0.2.7:10809"] {
            let Err(refused) = check(other) else { panic!("{other} was taken") };
            assert!(refused.message.contains("--no-tls"), "{}", refused.message);
        }
    }
}
