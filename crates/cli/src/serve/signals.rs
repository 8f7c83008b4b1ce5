//! Signals that end a server become events of its main loop; those that mean nothing to it do nothing.

use super::Event;
use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc::Sender;

const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
/// They would end it uncleanly. Not ignored as such, which the command of --run would inherit.
const MEANINGLESS: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set, sigaddset changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in ENDING.into_iter().chain(MEANINGLESS) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Keeps the signals from ending the process; call it before there are other threads, which
/// inherit this, as do commands unless they are started [`lapstrake_host::with_signals`].
pub fn block() -> io::Result<()> {
    // SAFETY: the set outlives the call.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set(), std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Sends each signal that comes as an event, from a thread that ends with the process.
pub(super) fn forward(events: Sender<Event>) -> io::Result<()> {
    let wait = move || loop {
        let mut signal = 0;
        // SAFETY: both outlive the call.
        let done = unsafe { libc::sigwait(&set(), &mut signal) };
        if done == 0 && ENDING.contains(&signal) && events.send(Event::Signal(signal)).is_err() {
            return;
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}
