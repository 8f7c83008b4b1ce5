//! What is asked of the system for TCP sockets on which clients speak NBD.

use std::os::fd::AsRawFd;

/// After so many seconds of silence a client's machine is asked whether it is there still.
const IDLE_S: libc::c_int = 300;
/// Seconds between one such question and the next.
const AGAIN_S: libc::c_int = 30;
/// Milliseconds without an answer, be it to such a question or to data, after which the client is gone. A switch that is
/// started anew takes minutes, which clients outlast; the system's own times are two hours of silence, and a quarter of
/// one with data.
const GONE_MS: libc::c_int = 600_000;

/// Has replies go at once, since they are small and clients wait for them, and ends the connection to a machine that has
/// gone without a word. Refused, it is slower, or keeps the client's place for longer.
pub fn prepare(socket: &impl AsRawFd) {
    for (level, option, value) in [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, IDLE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, AGAIN_S),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, GONE_MS),
    ] {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the kernel checks the descriptor, and reads one int.
        unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_system_takes_all_that_is_asked_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        prepare(&socket);
        assert!(socket.nodelay().unwrap());
        let told = |level, option| {
            let mut value: libc::c_int = -1;
            let mut len = size_of_val(&value) as libc::socklen_t;
            // SAFETY: the descriptor is open, and the kernel writes one int.
            let done = unsafe {
                let into = (&raw mut value).cast();
                libc::getsockopt(socket.as_raw_fd(), level, option, into, &raw mut len)
            };
            assert_eq!(done, 0);
            value
        };
        assert_eq!(told(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        let of_tcp = [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_USER_TIMEOUT];
        let of_tcp = of_tcp.map(|option| told(libc::IPPROTO_TCP, option));
        assert_eq!(of_tcp, [IDLE_S, AGAIN_S, GONE_MS]);
    }
}
