//! A server that tells whoever started it that it serves: the service manager, or the command that left it in the
//! background (`serve --daemon`).

use crate::logging;
use sd_notify::NotifyState;
use std::fs::{self, File};
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
    if waited == child && libc::WIFEXITED(status) {
        return libc::WEXITSTATUS(status);
    }
    let signal = libc::WTERMSIG(status);
    logging::tell_failure(&format!(
        "the server was ended by signal {signal} before it served; nothing is being served"
    ));
    1
}

fn null() -> io::Result<File> {
    let opened = File::options().read(true).write(true).open("/dev/null");
    opened.map_err(|error| io::Error::new(error.kind(), format!("/dev/null: {error}")))
}

/// Has a standard stream be a file.
fn redirect(stream: i32, file: &File) -> io::Result<()> {
    // SAFETY: both are open; no memory is involved.
    match unsafe { libc::dup2(file.as_raw_fd(), stream) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The array is served. In the background messages go to `log` from now on; what is there is kept as its `.old`.
///
/// # Errors
/// The log cannot be made, or the command that started the server has been ended: whoever ended it wants no server.
pub fn tell_served(what: &str, log: &Path) -> io::Result<()> {
    if let Some(mut waiting) = WAITING.lock().expect("nobody panics with it").take() {
        // Who reads what the command says need not wait for the server's end.
        let to = new_log(log)?;
        waiting.write_all(&[1])?;
        redirect(libc::STDOUT_FILENO, &null()?)?;
        redirect(libc::STDERR_FILENO, &to)?;
    }
    tell_ready(what);
    Ok(())
}

/// Tells the service manager that the server serves, and what.
pub fn tell_ready(what: &str) {
    let what: String = what.chars().filter(|c| !c.is_control()).collect();
    notify(&[NotifyState::Ready, NotifyState::Status(&what)]);
}

fn new_log(path: &Path) -> io::Result<File> {
    match fs::rename(path, path.with_extension("log.old")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().append(true).create_new(true).mode(0o600).open(path)
}

/// The server is being stopped.
pub fn tell_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager could not be told: {error}");
    }
}
