//! A server that tells whoever started it that it serves: the service manager, or the command that left it in the
//! background (`serve --daemon`).

use sd_notify::NotifyState;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process;
use std::sync::Mutex;

/// To the command that waits in the foreground.
static WAITING: Mutex<Option<PipeWriter>> = Mutex::new(None);

/// Goes on as a process of its own in the background. The one that was started waits until that serves, or has ended,
/// and does not come back from here.
///
/// # Errors
/// The system has no process for it.
pub fn detach() -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: no other thread runs yet, so that nothing is left locked in the new process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            // SAFETY: no memory is involved. It fails for leaders of a process group only, which a new process is not.
            unsafe { libc::setsid() };
            redirect(libc::STDIN_FILENO, &null()?)?;
            *WAITING.lock().expect("nobody panics with it") = Some(writer);
            Ok(())
        }
        child => {
            drop(writer);
            process::exit(wait(child, reader))
        }
    }
}

/// The exit code of the command in the foreground: 0 once the one in the background serves.
fn wait(child: libc::pid_t, mut reader: PipeReader) -> i32 {
    if reader.read(&mut [0]).is_ok_and(|bytes| bytes == 1) {
        return 0;
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    match waited == child && libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => 1,
    }
}

fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// Has a standard stream be a file.
fn redirect(stream: i32, file: &File) -> io::Result<()> {
    // SAFETY: both are open; no memory is involved.
    match unsafe { libc::dup2(file.as_raw_fd(), stream) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The array is served. In the background messages go to `log` from now on, which is made anew.
///
/// # Errors
/// The log cannot be made.
pub fn tell_served(what: &str, log: &Path) -> io::Result<()> {
    notify(&[NotifyState::Ready, NotifyState::Status(what)]);
    let Some(mut waiting) = WAITING.lock().expect("nobody panics with it").take() else {
        return Ok(());
    };
    let moved = send_messages_to(log);
    // The command may have been killed.
    let _ = waiting.write_all(&[1]);
    moved
}

/// Who reads what the command says need not wait for the server's end.
fn send_messages_to(log: &Path) -> io::Result<()> {
    redirect(libc::STDOUT_FILENO, &null()?)?;
    let log = File::options().write(true).create(true).truncate(true).mode(0o600).open(log)?;
    redirect(libc::STDERR_FILENO, &log)
}

/// The array is being stopped.
pub fn tell_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager could not be told: {error}");
    }
}
