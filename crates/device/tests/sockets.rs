//! Promise: sockets and wake-ups complete through the same wait as storage, on both back ends.

mod common;

use common::{Buffer, Caller, backends, gather};
use lapstrake_device::{COMMAND_BYTES, Completion, IoVec, Op, Queue};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

#[test]
fn bytes_arrive_and_leave() {
    for backend in backends() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut caller = Caller::new([], backend);
        theirs.write_all(b"request").unwrap();
        let mut buffer = Buffer::new(64, 0);
        let IoVec { ptr, len } = buffer.iov();
        assert_eq!(caller.call(Op::Recv { fd: ours.as_raw_fd(), ptr, len }), 7);
        assert_eq!(&buffer.bytes()[..7], b"request");
        let (mut head, mut body) = (Buffer::new(3, b'h'), Buffer::new(5, b'b'));
        let iov = [head.iov(), body.iov()];
        assert_eq!(caller.call(Op::Send { fd: ours.as_raw_fd(), iov: &iov }), 8);
        let mut got = [0; 8];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hhhbbbbb");
        drop(theirs);
        assert_eq!(caller.call(Op::Recv { fd: ours.as_raw_fd(), ptr, len }), 0);
        let broken = caller.call(Op::Send { fd: ours.as_raw_fd(), iov: &iov });
        assert_eq!(broken, -libc::EPIPE, "and no SIGPIPE");
    }
}

/// The driver of /dev/null says yes to every command (Linux 6.1 and newer).
#[test]
fn a_command_reaches_its_driver_by_a_ring_alone() {
    let null = std::fs::File::open("/dev/null").unwrap();
    for backend in backends() {
        let mut caller = Caller::new([], backend);
        let is_ring = caller.queue.backend() == "io_uring";
        let mut buffer = Buffer::new(8, 0);
        let (mut short, iov) = ([0; COMMAND_BYTES], [buffer.iov()]);
        short[..16].fill(1);
        let command = |payload, iov| Op::Command { fd: null.as_raw_fd(), code: 7, payload, iov };
        let done = |is_taken| if is_taken { 0 } else { -libc::EOPNOTSUPP };
        assert_eq!(caller.call(command(short, &[])), done(is_ring));
        // Those that are longer need entries that kernels before 5.19 do not have.
        let takes_long = caller.queue.takes_long_commands();
        assert!(is_ring || !takes_long);
        assert_eq!(caller.call(command([1; COMMAND_BYTES], &[])), done(takes_long));
        assert_eq!(caller.call(command(short, &iov)), done(takes_long));
    }
}

/// Blocking and non-blocking descriptors alike wait in the queue, not in the caller.
#[test]
fn a_receive_waits_for_its_bytes() {
    for backend in backends() {
        for nonblocking in [false, true] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(nonblocking).unwrap();
            let mut queue = Queue::new([], backend, 8).unwrap();
            let mut buffer = Buffer::new(64, 0);
            let IoVec { ptr, len } = buffer.iov();
            // SAFETY: buffer and socket live until the completion.
            unsafe { queue.submit(1, Op::Recv { fd: ours.as_raw_fd(), ptr, len }) };
            let mut done = Vec::new();
            for _ in 0..3 {
                queue.wait(&mut done, Some(Duration::ZERO)).unwrap();
            }
            assert_eq!(done, []);
            theirs.write_all(b"late").unwrap();
            assert_eq!(gather(&mut queue, 1), [Completion { token: 1, result: 4 }]);
        }
    }
}

#[test]
fn a_full_socket_takes_the_rest_later() {
    for backend in backends() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let total = 8 << 20;
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; total];
            theirs.read_exact(&mut got).unwrap();
            got
        });
        let mut buffer = Buffer::new(total, 0);
        (0..total).for_each(|i| buffer.bytes_mut()[i] = common::byte_at(i));
        let whole = buffer.iov();
        let mut caller = Caller::new([], backend);
        let mut sent = 0;
        while sent < total {
            let iov = [IoVec::new(whole.ptr.wrapping_add(sent), total - sent)];
            let n = caller.call(Op::Send { fd: ours.as_raw_fd(), iov: &iov });
            assert!(n > 0, "{n}");
            sent += n as usize;
        }
        assert_eq!(reader.join().unwrap(), buffer.bytes());
    }
}

#[test]
fn connections_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    for backend in backends() {
        let path = dir.path().join(format!("{backend:?}"));
        let listener = UnixListener::bind(&path).unwrap();
        let mut queue = Queue::new([], backend, 8).unwrap();
        // SAFETY: the listener lives until the completions.
        unsafe { queue.submit(1, Op::Accept { fd: listener.as_raw_fd() }) };
        let mut done = Vec::new();
        queue.wait(&mut done, Some(Duration::ZERO)).unwrap();
        assert_eq!(done, []);
        let mut client = UnixStream::connect(&path).unwrap();
        let done = gather(&mut queue, 1);
        assert!(done[0].result >= 0, "{done:?}");
        // SAFETY: a descriptor that the queue has just given us.
        let mut served = unsafe { UnixStream::from_raw_fd(done[0].result) };
        served.write_all(b"hi").unwrap();
        let mut got = [0; 2];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hi");
    }
}

#[test]
fn readability_is_awaited_without_reading() {
    for backend in backends() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut queue = Queue::new([], backend, 8).unwrap();
        // SAFETY: the socket lives until the completion.
        unsafe { queue.submit(9, Op::PollIn { fd: ours.as_raw_fd() }) };
        theirs.write_all(b"x").unwrap();
        let done = gather(&mut queue, 1);
        assert!(done[0].token == 9 && done[0].result & i32::from(libc::POLLIN) != 0, "{done:?}");
    }
}

#[test]
fn cancelled_operations_complete_once() {
    for backend in backends() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut queue = Queue::new([], backend, 8).unwrap();
        let mut buffer = Buffer::new(64, 0);
        let IoVec { ptr, len } = buffer.iov();
        // SAFETY: buffer and sockets live until the completions.
        unsafe {
            queue.submit(1, Op::Recv { fd: ours.as_raw_fd(), ptr, len });
            queue.submit(2, Op::PollIn { fd: ours.as_raw_fd() });
            queue.submit(3, Op::PollIn { fd: theirs.as_raw_fd() });
        }
        queue.cancel_fd(theirs.as_raw_fd());
        let cancelled = |token| Completion { token, result: -libc::ECANCELED };
        assert_eq!(gather(&mut queue, 1), [cancelled(3)]);
        queue.cancel_fd(ours.as_raw_fd());
        let mut done = gather(&mut queue, 2);
        done.sort_by_key(|c| c.token);
        assert_eq!(done, [cancelled(1), cancelled(2)]);
        assert_eq!(queue.in_flight(), 0);
    }
}

/// Idle connections hold a place in the queue each; storage must pass them.
#[test]
fn idle_sockets_do_not_keep_storage_waiting() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = common::file(dir.path(), "m", 1 << 20);
    for backend in backends() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let member = common::open(path.to_str().unwrap());
        let mut queue = Queue::new([member], backend, 8).unwrap();
        let mut buffer = Buffer::new(4096, 0);
        let iov = [buffer.iov()];
        // SAFETY: buffer and sockets outlive the queue.
        unsafe {
            for token in 1..=500 {
                queue.submit(token, Op::PollIn { fd: ours.as_raw_fd() });
            }
            queue.submit(0, Op::Read { member: 0, offset: 0, iov: &iov });
        }
        assert_eq!(gather(&mut queue, 1), [Completion { token: 0, result: 4096 }]);
        queue.cancel_fd(ours.as_raw_fd());
        assert_eq!(gather(&mut queue, 500).len(), 500);
    }
}

#[test]
fn a_signal_ends_the_wait() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; without SA_RESTART the wait is interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    for backend in backends() {
        let (done, end) = std::sync::mpsc::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let mut queue = Queue::new([], backend, 8).unwrap();
            // SAFETY: this thread's own name.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            queue.wait(&mut Vec::new(), None).unwrap();
            done.send(()).unwrap();
        });
        let thread = told.recv().unwrap();
        // The signal may come before the wait does, so it is repeated until the wait has ended.
        while end.recv_timeout(Duration::from_millis(1)).is_err() {
            // SAFETY: the thread is not joined yet.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        }
        waiter.join().unwrap();
    }
}

#[test]
fn a_timeout_ends_the_wait() {
    for backend in backends() {
        let mut queue = Queue::new([], backend, 8).unwrap();
        let start = Instant::now();
        let mut done = Vec::new();
        queue.wait(&mut done, Some(Duration::from_millis(20))).unwrap();
        assert!(done.is_empty() && start.elapsed() >= Duration::from_millis(20));
        queue.wait(&mut done, Some(Duration::ZERO)).unwrap();
    }
}

/// A ping-pong in which a lost wake-up would hang, and the message is seen after each wait.
#[test]
fn a_wake_up_is_never_lost() {
    use std::sync::mpsc::{TryRecvError, channel};
    for backend in backends() {
        let mut queue = Queue::new([], backend, 8).unwrap();
        let waker = queue.handle();
        let (to_loop, messages) = channel();
        let (answer, answers) = channel();
        let sender = std::thread::spawn(move || {
            for i in 0..20_000u32 {
                to_loop.send(i).unwrap();
                waker.wake();
                if i % 3 == 0 {
                    assert_eq!(answers.recv().unwrap(), i);
                }
            }
            drop(to_loop);
            waker.wake();
        });
        let mut next = 0;
        'all: loop {
            queue.wait(&mut Vec::new(), None).unwrap();
            loop {
                match messages.try_recv() {
                    Ok(i) => {
                        assert_eq!(i, next);
                        next += 1;
                        if i % 3 == 0 {
                            answer.send(i).unwrap();
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => break 'all,
                }
            }
        }
        assert_eq!(next, 20_000);
        sender.join().unwrap();
    }
}
