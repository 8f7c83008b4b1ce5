//! Commands that this process starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has a command start with no signal blocked, and SIGXFSZ not ignored. A program that waits for its signals on a
/// thread blocks them for all, one that outlives limits of files' sizes ignores that one, and what it starts inherits
/// both.
pub fn with_signals(command: &mut Command) -> &mut Command {
    let unblock = || {
        // SAFETY: the mask is this frame's own; both calls only write to it and to the thread's mask, and are allowed
        // between fork and exec.
        let done = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(done)) }
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(unblock) }
}
