//! Signals that end a server are told to it; those that mean nothing to it do nothing.

use std::io;
use std::mem::MaybeUninit;

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

/// Tells of each signal that comes, from a thread that ends with the process, or when nobody wants to hear more.
pub fn forward(mut tell: impl FnMut(i32) -> bool + Send + 'static) -> io::Result<()> {
    let wait = move || loop {
        let mut signal = 0;
        // SAFETY: both outlive the call.
        let done = unsafe { libc::sigwait(&set(), &mut signal) };
        if done == 0 && ENDING.contains(&signal) && !tell(signal) {
            return;
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}
