//! A process's words to whoever started it, on standard error, a line at a time.
//!
//! Saying something never panics and never fails: a line that cannot be written is lost. Nor does it wait,
//! once [`queue`] was called, as a server must: a terminal that is gone, a full disk, or a pipe that nobody
//! reads is no reason to keep clients waiting.
//!
//! Invariants of the queue: lines come out in the order in which they were said; it holds at most
//! `QUEUE_BYTES`; where lines are missing, since they found no room, a line says how many.

use crate::logging;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Bound on what waits to be written.
const QUEUE_BYTES: usize = 256 << 10;
/// How long the end of a process waits for its last words to be taken.
const FAREWELL: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Words> = OnceLock::new();

/// Says one line, given without its end. What would steer a terminal, as names on disks may, is shown as `U+FFFD`.
pub fn say(line: &str) {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let line = &plain(line).replace(steers, "\u{fffd}");
    match QUEUE.get() {
        Some(words) => words.say(line),
        None => say_now(line),
    }
}

/// What is told without the numbers that Rust's standard library puts behind the system's reasons, as " (os error 2)":
/// the words before them say it all.
pub fn plain(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => told += rest,
            _ => told.extend([" (os error ", part]),
        }
    }
    told
}

/// From now on a thread of its own writes what is said, so that nobody waits for that.
///
/// # Errors
/// The system has no thread for it.
pub fn queue() -> io::Result<()> {
    if QUEUE.get().is_none() {
        // If another was quicker, this one has nothing to write, ever.
        let _ = QUEUE.set(Words::new(Stderr, logging::lost)?);
    }
    Ok(())
}

/// Waits until what was said is written, but not for long: the process is about to end.
pub fn finish() {
    if let Some(words) = QUEUE.get() {
        words.finish(FAREWELL);
    }
}

fn say_now(line: &str) {
    // Who reads no words of ours does not thereby end what we do, also in commands that end with who reads
    // their standard output.
    without_signals(Signals::One(libc::SIGPIPE), |blocked| {
        if write_line(&mut Stderr, line)
            .is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // The signal, if the process does not ignore it anyway, waits for this very thread.
            // SAFETY: the set and the time outlive the call.
            unsafe { libc::sigtimedwait(blocked, std::ptr::null_mut(), &raw const at_once) };
        }
    });
}

/// In one write if that can be, so that lines of several processes do not mix.
fn write_line(sink: &mut impl Write, line: &str) -> io::Result<()> {
    sink.write_all(format!("{line}\n").as_bytes())
}

/// Standard error without the lock of the standard library's, which a thread that panics wants to have.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            // SAFETY: the bytes outlive the call.
            let written =
                unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
            if let Ok(written) = usize::try_from(written) {
                return Ok(written);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            // Somebody else who has it open wants it so.
            let mut ready =
                libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one structure, which outlives the call.
            unsafe { libc::poll(&raw mut ready, 1, -1) };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A queue of lines, and the thread that writes them.
struct Words(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The line that stands for so many lost ones.
    in_words: fn(u64) -> String,
    lines: VecDeque<String>,
    /// Of all lines.
    bytes: usize,
    /// Lines that found no room, after those that wait.
    lost: u64,
    /// A line is with the system.
    is_writing: bool,
}

/// Bytes that a line takes in the queue.
fn cost(line: &str) -> usize {
    size_of::<String>() + line.len()
}

impl State {
    fn is_done(&self) -> bool {
        self.lines.is_empty() && self.lost == 0 && !self.is_writing
    }

    fn push(&mut self, line: String) {
        self.bytes += cost(&line);
        self.lines.push_back(line);
    }

    fn pop(&mut self) -> Option<String> {
        let line = self.lines.pop_front()?;
        self.bytes -= cost(&line);
        Some(line)
    }

    fn tell_lost(&mut self) {
        match std::mem::take(&mut self.lost) {
            0 => {}
            lost => self.push((self.in_words)(lost)),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut sink: impl Write) {
        let mut state = self.state();
        loop {
            if state.lines.is_empty() {
                state.tell_lost();
            }
            let Some(line) = state.pop() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_writing = true;
            drop(state);
            // There is nowhere to say that it failed.
            let _ = write_line(&mut sink, &line);
            state = self.state();
            state.is_writing = false;
            self.changed.notify_all();
        }
    }
}

impl Words {
    fn new(sink: impl Write + Send + 'static, in_words: fn(u64) -> String) -> io::Result<Self> {
        let lines = VecDeque::new();
        let state = State { in_words, lines, bytes: 0, lost: 0, is_writing: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let writer = shared.clone();
        without_signals(Signals::All, move |_| {
            let thread = std::thread::Builder::new().name("words".into());
            thread.spawn(move || writer.write_all(sink))
        })?;
        Ok(Self(shared))
    }

    fn say(&self, line: &str) {
        let mut state = self.0.state();
        // Once some are lost there is to be room for many: not a line now and then with a count before each.
        let most = if state.lost > 0 { QUEUE_BYTES / 2 } else { QUEUE_BYTES };
        if state.bytes + cost(line) > most {
            state.lost += 1;
            return;
        }
        state.tell_lost();
        state.push(line.to_owned());
        self.0.changed.notify_all();
    }

    /// Whether all is written.
    fn finish(&self, patience: Duration) -> bool {
        let waits = |state: &mut State| !state.is_done();
        let waited = self.0.changed.wait_timeout_while(self.0.state(), patience, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_done()
    }
}

/// Does something while signals do not reach this thread, nor those that it starts meanwhile.
fn without_signals<T>(signals: Signals, act: impl FnOnce(&libc::sigset_t) -> T) -> T {
    let mut blocked = std::mem::MaybeUninit::uninit();
    let mut were = std::mem::MaybeUninit::uninit();
    // SAFETY: the first call fills the one set, pthread_sigmask the other.
    let blocked = unsafe {
        match signals {
            Signals::All => libc::sigfillset(blocked.as_mut_ptr()),
            Signals::One(signal) => {
                libc::sigemptyset(blocked.as_mut_ptr());
                libc::sigaddset(blocked.as_mut_ptr(), signal)
            }
        };
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), were.as_mut_ptr());
        blocked.assume_init()
    };
    let done = act(&blocked);
    // SAFETY: the set was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, were.as_ptr(), std::ptr::null_mut()) };
    done
}

enum Signals {
    All,
    One(libc::c_int),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const LONG: Duration = Duration::from_secs(30);

    /// Tells each line, and takes the next when it may.
    struct Slow(Sender<String>, Receiver<()>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            self.1.recv().map_err(|_| io::ErrorKind::BrokenPipe.into()).map(|()| bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn systems_reasons_go_without_their_numbers() {
        let of = |number| io::Error::from_raw_os_error(number).to_string();
        assert_eq!(plain(&of(2)), "No such file or directory");
        assert_eq!(
            plain(&format!("x: {}; y: {}.", of(2), of(5))),
            "x: No such file or directory; y: Input/output error."
        );
        for text in ["", "as it is", "x (os error y)", "x (os error 2"] {
            assert_eq!(plain(text), text);
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_and_the_rest_comes_in_order() {
        let ((told, lines), (go, may)) = (channel(), channel());
        let words = Words::new(Slow(told, may), logging::lost).unwrap();
        words.say("first");
        assert_eq!(lines.recv_timeout(LONG).unwrap(), "first\n");
        let long = "x".repeat(1000);
        let fit = QUEUE_BYTES / 1024;
        (0..fit + 50).for_each(|_| words.say(&long));
        assert!(!words.finish(Duration::ZERO), "nobody waits for ever");
        assert!(words.0.state().bytes <= QUEUE_BYTES);
        let lost = words.0.state().lost;
        assert!((50..fit as u64).contains(&lost), "{lost}");
        let rest = 50 + fit as u64 - lost;
        let next = || {
            go.send(()).unwrap();
            lines.recv_timeout(LONG).unwrap()
        };
        // What is said as soon as there is room comes behind the count.
        (0..rest).for_each(|_| assert!(next().starts_with("xx")));
        words.say("later");
        assert!(next().contains(&format!(" {lost} lines are missing here")), "{lost}");
        assert_eq!(next(), "later\n");
        go.send(()).unwrap();
        assert!(words.finish(LONG));
    }

    #[test]
    fn a_count_is_told_though_nothing_more_is_said() {
        let ((told, lines), (go, may)) = (channel(), channel());
        let words = Words::new(Slow(told, may), logging::lost).unwrap();
        words.say("first");
        assert_eq!(lines.recv_timeout(LONG).unwrap(), "first\n");
        words.say(&"x".repeat(QUEUE_BYTES + 1));
        go.send(()).unwrap();
        assert!(lines.recv_timeout(LONG).unwrap().contains("a line is missing here"));
    }

    #[test]
    fn a_sink_that_breaks_costs_its_line_and_nothing_else() {
        let ((told, lines), (go, may)) = (channel(), channel());
        let words = Words::new(Slow(told, may), logging::lost).unwrap();
        drop(go);
        for line in ["one", "two"] {
            words.say(line);
            assert_eq!(lines.recv_timeout(LONG).unwrap(), format!("{line}\n"));
        }
        assert!(words.finish(LONG));
    }
}
