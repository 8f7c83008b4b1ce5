//! How fast a queue answers on a Unix socket: requests of 28 bytes, replies of 4112, as NBD has them for
//! reads of 4 KiB, at depth 1 and 32. Beside it the plainest server there is, blocking calls in a thread.
//!
//! `cargo run --release -p lapstrake-device --example sockets`

use lapstrake_device::{Backend, IoVec, Op, Queue};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const REQUEST: usize = 28;
const REPLY: usize = 4112;
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(1);
const RECV: u64 = 1;
const SEND: u64 = 2;

type Server = fn(UnixStream);

fn main() {
    let servers: [(&str, Server); 3] = [
        ("queue, io_uring", |socket| serve(&socket, Backend::IoUring)),
        ("queue, threads", |socket| serve(&socket, Backend::Threads)),
        ("blocking calls", serve_blocking),
    ];
    for depth in [1, 32] {
        let mut rows = servers.map(|(name, server)| (name, server, Vec::new()));
        for _ in 0..ROUNDS {
            rows.iter_mut().for_each(|(_, server, rates)| rates.push(measure(*server, depth)));
        }
        for (name, _, mut rates) in rows {
            rates.sort_by(f64::total_cmp);
            let (low, mid, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
            println!("QD{depth:<3} {name:16} {mid:8.0} requests/s ({low:.0} to {high:.0})");
        }
    }
}

fn measure(server: Server, depth: usize) -> f64 {
    let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let thread = std::thread::spawn(move || server(ours));
    let start = Instant::now();
    let (mut count, mut reply) = (0u32, [0; REPLY]);
    theirs.write_all(&vec![1; REQUEST * depth]).expect("send");
    while start.elapsed() < TIME {
        theirs.read_exact(&mut reply).expect("receive");
        theirs.write_all(&[1; REQUEST]).expect("send");
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    drop(theirs);
    thread.join().expect("the server ends");
    rate
}

fn serve(socket: &UnixStream, backend: Backend) {
    let mut queue = Queue::new([], backend, 64).expect("queue");
    let fd = socket.as_raw_fd();
    let mut requests = vec![0u8; 64 << 10];
    let mut reply = vec![7u8; REPLY];
    let reply = IoVec::new(reply.as_mut_ptr(), REPLY);
    let recv = Op::Recv { fd, ptr: requests.as_mut_ptr(), len: requests.len() };
    // SAFETY: buffers and socket outlive the queue, which is dropped first.
    unsafe { queue.submit(RECV, recv) };
    let (mut received, mut answered, mut sending) = (0usize, 0usize, 0usize);
    let mut done = Vec::new();
    loop {
        queue.wait(&mut done, None).expect("wait");
        for completion in done.drain(..) {
            match (completion.token, completion.result) {
                (_, ..=0) => return,
                (RECV, n) => {
                    received += n as usize;
                    // SAFETY: as above.
                    unsafe { queue.submit(RECV, recv) };
                }
                (_, n) => {
                    answered += n as usize;
                    sending = 0;
                }
            }
        }
        let owed = received / REQUEST * REPLY - answered;
        if sending == 0 && owed > 0 {
            let first = (owed - 1) % REPLY + 1;
            let mut iov = vec![IoVec::new(reply.ptr, first)];
            iov.resize(owed.div_ceil(REPLY).min(64), reply);
            sending = owed;
            // SAFETY: as above.
            unsafe { queue.submit(SEND, Op::Send { fd, iov: &iov }) };
        }
    }
}

fn serve_blocking(mut socket: UnixStream) {
    let mut requests = vec![0u8; 64 << 10];
    let (mut received, mut answered) = (0, 0);
    loop {
        match socket.read(&mut requests) {
            Ok(0) | Err(_) => return,
            Ok(n) => received += n,
        }
        let owed = received / REQUEST - answered;
        if socket.write_all(&vec![7; owed * REPLY]).is_err() {
            return;
        }
        answered += owed;
    }
}
