//! The plainest NBD client over a Unix socket: one thread, blocking calls, requests of 4 KiB at random places. Beside
//! fio's engine it costs little itself, and it stays connected while a server's threads are looked at.
//!
//! Source: `doc/proto.md` of NetworkBlockDevice/nbd: fixed newstyle, `NBD_OPT_GO`, simple replies.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const REQUEST_HEAD: usize = 28;
pub(crate) const REPLY_HEAD: usize = 16;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Read,
    Write,
}

impl Ask {
    fn payload_out(self) -> usize {
        if self == Self::Write { BLOCK } else { 0 }
    }

    fn payload_in(self) -> usize {
        if self == Self::Read { BLOCK } else { 0 }
    }

    /// Bytes that pass the socket, both ways.
    pub(crate) fn socket_bytes(self) -> usize {
        REQUEST_HEAD + REPLY_HEAD + self.payload_in() + self.payload_out()
    }
}

pub(crate) struct Client {
    socket: UnixStream,
    blocks: u64,
    seed: u64,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut socket = UnixStream::connect(socket).expect("the server listens");
        let blocks = greet(&mut socket) / BLOCK as u64;
        Self { socket, blocks, seed: 0x9e37_79b9_7f4a_7c15, received: Vec::new() }
    }

    /// Keeps `depth` requests under way until `count` have ended; how long each took.
    pub(crate) fn drive(&mut self, ask: Ask, depth: usize, count: usize) -> Vec<Duration> {
        let mut sent = vec![Instant::now(); depth];
        let mut times = Vec::with_capacity(count);
        (0..depth).for_each(|slot| self.send(ask, slot, &mut sent));
        let mut under_way = depth;
        while under_way > 0 {
            for slot in self.replies(ask) {
                times.push(sent[slot].elapsed());
                under_way -= 1;
                if times.len() + under_way < count {
                    self.send(ask, slot, &mut sent);
                    under_way += 1;
                }
            }
        }
        times
    }

    fn send(&mut self, ask: Ask, slot: usize, sent: &mut [Instant]) {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let place = self.seed % self.blocks * BLOCK as u64;
        let mut request = [0; REQUEST_HEAD + BLOCK];
        request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        request[7] = u8::from(ask == Ask::Write);
        request[8..16].copy_from_slice(&(slot as u64).to_be_bytes());
        request[16..24].copy_from_slice(&place.to_be_bytes());
        request[24..28].copy_from_slice(&(BLOCK as u32).to_be_bytes());
        sent[slot] = Instant::now();
        let request = &request[..REQUEST_HEAD + ask.payload_out()];
        self.socket.write_all(request).expect("the server takes it");
    }

    /// Waits for replies; the slots of all that are there.
    fn replies(&mut self, ask: Ask) -> Vec<usize> {
        let len = REPLY_HEAD + ask.payload_in();
        while self.received.len() < len {
            let mut more = [0; 64 << 10];
            let count = self.socket.read(&mut more).expect("the server answers");
            assert!(count > 0, "the server hung up");
            self.received.extend_from_slice(&more[..count]);
        }
        let whole = self.received.len() / len * len;
        let slot = |reply: &[u8]| {
            assert_eq!(
                reply[..8],
                [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0],
                "a reply without an error"
            );
            usize::from(reply[15])
        };
        let slots = self.received[..whole].chunks(len).map(slot).collect();
        self.received.drain(..whole);
        slots
    }
}

/// The handshake; bytes of the export.
fn greet(socket: &mut UnixStream) -> u64 {
    socket.read_exact(&mut [0; 18]).expect("a greeting");
    let mut go = 3u32.to_be_bytes().to_vec();
    go.extend(b"IHAVEOPT");
    // NBD_OPT_GO, six bytes: a name of none, and no facts that are asked for.
    go.extend([0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0]);
    socket.write_all(&go).expect("the server listens");
    let mut size = None;
    loop {
        let mut head = [0; 20];
        socket.read_exact(&mut head).expect("an answer");
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let mut data = vec![0; word(16) as usize];
        socket.read_exact(&mut data).expect("all of it");
        match word(12) {
            1 => return size.expect("the size is told before the end"),
            3 if data[..2] == [0, 0] => {
                size = Some(u64::from_be_bytes(data[2..10].try_into().expect("eight bytes")));
            }
            3 => {}
            other => panic!("the server refuses its export, with {other:#x}"),
        }
    }
}
