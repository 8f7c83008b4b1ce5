//! A connection to a server that may be stopped or stuck: in the queue of such a one there may be no room, for which
//! [`UnixStream::connect`] waits for ever.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to a Unix socket, for whose queue it waits no longer than `limit`.
///
/// # Errors
/// As [`UnixStream::connect`], and [`io::ErrorKind::WouldBlock`] where there is no room.
pub fn reach(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let bytes = path.as_os_str().as_bytes();
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // SAFETY: makes a descriptor, and touches no memory.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // Of a Unix socket the time for sending is also that for connecting; none would be for ever.
    stream.set_write_timeout(Some(limit.max(Duration::from_millis(1))))?;
    let len = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    loop {
        // SAFETY: the address outlives the call, and is as long as is said.
        let done = unsafe {
            libc::connect(stream.as_raw_fd(), (&raw const address).cast(), len as libc::socklen_t)
        };
        match io::Error::last_os_error() {
            _ if done == 0 => break,
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn who_takes_no_more_connections_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let limit = Duration::from_millis(20);
        assert_eq!(reach(&path, limit).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: only shortens the queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let mut first = reach(&path, limit).unwrap();
        let full = (0..100).find_map(|_| reach(&path, limit).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
        let (mut accepted, _) = listener.accept().unwrap();
        first.write_all(b"said").unwrap();
        let mut heard = [0; 4];
        accepted.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"said");
        drop(listener);
        assert_eq!(reach(&path, limit).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let long = dir.path().join("x".repeat(108));
        assert_eq!(reach(&long, limit).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
