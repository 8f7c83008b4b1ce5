//! The gateway's own clocks and places, before servers that are not ours: how long clients may take, and who makes room.

use crate::support::BOUND;
use lapstrake_export::Patience;
use lapstrake_export::gateway::{ARRAY_CLIENTS_MAX, CLIENTS_MAX, Directory, Gateway, Listener};
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A gateway to one array, `x`, whose server is the test.
struct Lab {
    dir: TempDir,
    stop: Option<PipeWriter>,
    runs: Option<JoinHandle<()>>,
    /// What the gateway has connected to.
    joined: Receiver<UnixStream>,
}

struct One(Sender<UnixStream>);

impl Directory for One {
    fn names(&self) -> Vec<String> {
        vec!["x".into()]
    }

    fn default_name(&self) -> Option<String> {
        None
    }

    fn connect(&self, _: &str, _: Instant) -> Option<UnixStream> {
        let (ours, its) = UnixStream::pair().unwrap();
        for end in [&ours, &its] {
            end.set_read_timeout(Some(BOUND)).unwrap();
        }
        self.0.send(ours).ok()?;
        Some(its)
    }
}

impl Lab {
    fn new(patience: Patience) -> Self {
        let (sender, joined) = channel();
        Self::over(Box::new(One(sender)), joined, patience)
    }

    fn over(
        directory: Box<dyn Directory>,
        joined: Receiver<UnixStream>,
        patience: Patience,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("gw")).unwrap();
        let (reader, writer) = pipe().unwrap();
        let gateway = Gateway::new(directory, patience, reader);
        let listeners = vec![(Listener::Unix(listener), None)];
        let runs = thread::spawn(move || gateway.run(listeners).unwrap());
        Self { dir, stop: Some(writer), runs: Some(runs), joined }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("gw")
    }

    /// A client that has the greeting.
    fn client(&self) -> UnixStream {
        let mut client = UnixStream::connect(self.path()).unwrap();
        client.set_read_timeout(Some(BOUND)).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        client
    }

    /// A client that is joined to the array, and the server's end.
    fn joined(&self) -> (UnixStream, UnixStream) {
        let mut client = self.client();
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x01x").unwrap();
        let mut server = self.joined.recv_timeout(BOUND).unwrap();
        server.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        let mut said = [0; 4 + 16 + 1];
        server.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x01x");
        (client, server)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(runs) = self.runs.take() {
            let ended = runs.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn brief() -> Patience {
    let [handshake, stall, farewell] = [300, 300, 300].map(Duration::from_millis);
    Patience { handshake, stall, farewell }
}

#[test]
fn a_client_that_haggles_slowly_is_let_go() {
    let lab = Lab::new(brief());
    let began = Instant::now();
    let mut client = lab.client();
    client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    // Options that are never asked for an export, each a byte at a time.
    let mut words = b"\0\0\0\x03".iter().chain(b"IHAVEOPT\0\0\0\x08\0\0\0\0".iter().cycle());
    let is_over = |client: &mut UnixStream| match client.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    };
    while client.write_all(&[*words.next().unwrap()]).is_ok() && !is_over(&mut client) {
        assert!(began.elapsed() < BOUND);
    }
    assert!(began.elapsed() >= brief().handshake);
}

#[test]
fn lists_that_are_asked_for_all_at_once_are_not_answered_beyond_the_time() {
    let lab = Lab::new(brief());
    let mut client = lab.client();
    client.write_all(b"\0\0\0\x03").unwrap();
    client.write_all(&b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(64)).unwrap();
    // The server says nothing to any.
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    assert_eq!(lab.joined.try_iter().count(), 1, "{said:?}");
}

#[test]
fn a_client_that_takes_no_replies_is_let_go_and_its_server_too() {
    let lab = Lab::new(Patience { handshake: BOUND, ..brief() });
    let began = Instant::now();
    let (client, mut server) = lab.joined();
    while server.write_all(&[0; 4096]).is_ok() {
        assert!(began.elapsed() < BOUND);
    }
    assert!(began.elapsed() >= brief().stall);
    drop(client);
}

#[test]
fn a_client_that_has_said_all_waits_no_longer_than_patience_has_it() {
    let lab = Lab::new(Patience { handshake: BOUND, ..brief() });
    let (mut client, mut server) = lab.joined();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    // The server is stuck.
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is let go");
    // One that has gone while the server takes nothing is not waited for either, and the server neither.
    let (mut client, server) = lab.joined();
    client.set_nonblocking(true).unwrap();
    while client.write(&[0; 4096]).is_ok() {}
    drop(client);
    let mut waits = libc::pollfd { fd: server.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor, which is ours.
    let come = unsafe { libc::poll(&raw mut waits, 1, BOUND.as_millis() as i32) };
    assert!(come == 1 && waits.revents & libc::POLLHUP != 0, "{waits:?}");
}

/// As the command does: there are more descriptors than most systems give without being asked.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`, and reads it.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

#[test]
fn one_array_does_not_take_all_places() {
    raise_descriptor_limit();
    let lab = Lab::new(Patience { handshake: BOUND, ..Patience::default() });
    let joined: Vec<_> = (0..ARRAY_CLIENTS_MAX).map(|_| lab.joined()).collect();
    let mut client = lab.client();
    client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x07\0\0\0\x01x\0\0").unwrap();
    lab.joined.recv_timeout(BOUND).unwrap().write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    let mut reply = [0; 20];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], (0x8000_0006u32).to_be_bytes(), "NBD_REP_ERR_UNKNOWN");
    drop(joined);
}

#[test]
fn an_idle_client_stays_and_bytes_of_both_ends_arrive_before_their_end() {
    let stall = Duration::from_millis(20);
    let lab = Lab::new(Patience { stall, ..Patience::default() });
    let (_client, mut server) = lab.joined();
    server.set_read_timeout(Some(stall * 3)).unwrap();
    let nothing = server.read(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock, "nothing came, and no end");
    // A server may take longer for what a client has asked before its end.
    let lab = Lab::new(Patience::default());
    let (mut client, mut server) = lab.joined();
    let much: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    let writer = thread::spawn({
        let (much, mut client) = (much.clone(), client.try_clone().unwrap());
        move || {
            client.write_all(&much).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
    });
    let mut said = Vec::new();
    server.read_to_end(&mut said).unwrap();
    writer.join().unwrap();
    assert!(said == much);
    let answerer = thread::spawn({
        let much = much.clone();
        move || server.write_all(&much).unwrap()
    });
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answerer.join().unwrap();
    assert!(answer == much);
}

#[test]
fn who_haggles_makes_room_and_who_is_joined_does_not() {
    let lab = Lab::new(Patience::default());
    let (mut client, mut server) = lab.joined();
    let haggling: Vec<UnixStream> = (1..CLIENTS_MAX).map(|_| lab.client()).collect();
    // The first is let go as soon as its second is over.
    let began = Instant::now();
    let mut newcomer = loop {
        assert!(began.elapsed() < BOUND);
        let mut newcomer = UnixStream::connect(lab.path()).unwrap();
        newcomer.set_read_timeout(Some(BOUND)).unwrap();
        // Those that come too early are turned away.
        if newcomer.read_exact(&mut [0; 18]).is_ok() {
            break newcomer;
        }
        thread::yield_now();
    };
    assert_eq!((&haggling[0]).read(&mut [0]).unwrap(), 0);
    newcomer.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x02\0\0\0\0").unwrap();
    newcomer.read_exact(&mut [0; 20]).unwrap();
    server.write_all(b"all's well").unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
}

/// Cannot find its servers before the other end is dropped.
struct Stuck(Mutex<Receiver<UnixStream>>);

impl Directory for Stuck {
    fn names(&self) -> Vec<String> {
        vec!["x".into()]
    }

    fn default_name(&self) -> Option<String> {
        None
    }

    fn connect(&self, _: &str, _: Instant) -> Option<UnixStream> {
        self.0.lock().unwrap().recv().ok()
    }
}

#[test]
fn room_is_made_also_by_those_that_cannot_go_at_once() {
    raise_descriptor_limit();
    let ((release, stuck), (_, joined)) = (channel(), channel());
    let patience = Patience { handshake: BOUND, ..Patience::default() };
    let lab = Lab::over(Box::new(Stuck(Mutex::new(stuck))), joined, patience);
    let client = || {
        let mut client = lab.client();
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x01x").unwrap();
        client
    };
    let all_stuck: Vec<_> = (0..CLIENTS_MAX).map(|_| client()).collect();
    let began = Instant::now();
    let mut newcomers = Vec::new();
    for _ in 0..3 {
        loop {
            assert!(began.elapsed() < BOUND);
            let mut newcomer = UnixStream::connect(lab.path()).unwrap();
            newcomer.set_read_timeout(Some(BOUND)).unwrap();
            if newcomer.read_exact(&mut [0; 18]).is_ok() {
                break newcomers.push(newcomer);
            }
            thread::yield_now();
        }
    }
    drop((release, all_stuck, newcomers));
}

#[test]
fn a_server_that_is_none_is_an_export_that_is_not_there() {
    let lab = Lab::new(Patience::default());
    let mut client = lab.client();
    let ask = b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x07\0\0\0\x01x\0\0";
    client.write_all(ask).unwrap();
    let mut server = lab.joined.recv_timeout(BOUND).unwrap();
    server.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
    let mut reply = [0; 20];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], (0x8000_0006u32).to_be_bytes(), "NBD_REP_ERR_UNKNOWN");
    // It may ask on.
    let mut text = vec![0; u32::from_be_bytes(reply[16..].try_into().unwrap()) as usize];
    client.read_exact(&mut text).unwrap();
    assert_eq!(text, b"the server of this array does not answer");
    client.write_all(&ask[4..]).unwrap();
    drop(lab.joined.recv_timeout(BOUND).unwrap());
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], (0x8000_0006u32).to_be_bytes());
}

#[test]
fn a_client_is_not_joined_to_a_server_that_would_answer_otherwise_than_was_agreed() {
    let lab = Lab::new(Patience::default());
    let mut client = lab.client();
    client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0").unwrap();
    let mut reply = [0; 20];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..16], 1u32.to_be_bytes(), "structured replies are agreed on");
    client.write_all(b"IHAVEOPT\0\0\0\x07\0\0\0\x07\0\0\0\x01x\0\0").unwrap();
    let mut server = lab.joined.recv_timeout(BOUND).unwrap();
    server.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    let mut said = [0; 4 + 16];
    server.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0");
    let unknown_option =
        [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], b"\0\0\0\x08\x80\0\0\x01\0\0\0\0"].concat();
    server.write_all(&unknown_option).unwrap();
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[8..16], *b"\0\0\0\x07\x80\0\0\x06", "NBD_REP_ERR_UNKNOWN");
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_client_that_always_has_more_to_say_is_seen_off() {
    let mut lab = Lab::new(Patience::default());
    let (mut client, mut server) = lab.joined();
    // More than the gateway can take before the server has read again, so that it never finds nothing.
    let len: libc::c_int = 1 << 20;
    let size = size_of_val(&len) as libc::socklen_t;
    let (level, option, value) = (libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const len).cast());
    // SAFETY: the descriptor is ours, and the kernel reads one int.
    let set = unsafe { libc::setsockopt(client.as_raw_fd(), level, option, value, size) };
    assert_eq!(set, 0);
    client.set_nonblocking(true).unwrap();
    let mut fill = || while client.write(&[7; 4096]).is_ok() {};
    fill();
    drop(lab.stop.take());
    let mut heard = 0;
    loop {
        fill();
        match server.read(&mut [0; 4096]).unwrap() {
            0 => break,
            count => heard += count,
        }
        assert!(heard < 4 << 20, "more than was on its way");
    }
}

#[test]
fn a_server_that_has_ended_meanwhile_is_found_anew() {
    let lab = Lab::new(Patience::default());
    let mut client = lab.client();
    client.write_all(b"\0\0\0\x03").unwrap();
    for _ in 0..2 {
        client.write_all(b"IHAVEOPT\0\0\0\x06\0\0\0\x07\0\0\0\x01x\0\0").unwrap();
        let mut server = lab.joined.recv_timeout(BOUND).unwrap();
        server.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        server.read_exact(&mut [0; 4 + 16 + 7]).unwrap();
        let ack =
            [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], b"\0\0\0\x06\0\0\0\x01\0\0\0\0"].concat();
        server.write_all(&ack).unwrap();
        let mut reply = [0; 20];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..], ack[..]);
    }
}
