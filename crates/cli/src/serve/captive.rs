//! The command of `--run`, as nbdkit has it: it finds the array by its environment, and the
//! server lives as long as it does.

use super::Event;
use super::fronts::Fronts;
use crate::exit::Failure;
use lapstrake_host::with_signals;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::Sender;

/// A command that runs.
pub struct Captive {
    child: Child,
}

impl Captive {
    /// Starts a shell for `command`; its end becomes an event.
    pub fn start(
        command: &str,
        fronts: &Fronts,
        name: &str,
        events: Sender<Event>,
    ) -> Result<Self, Failure> {
        let uri = fronts.uris().into_iter().next().unwrap_or_default();
        let unix = fronts.unix().map(|path| path.as_os_str().to_owned()).unwrap_or_default();
        let port = fronts.port().map(|port| port.to_string()).unwrap_or_default();
        let child = with_signals(&mut Command::new("/bin/sh"))
            .args(["-c", command])
            .env("uri", &uri)
            .env("nbd", &uri)
            .env("unixsocket", unix)
            .env("port", port)
            .env("exportname", name)
            .env("fuse", fronts.file().unwrap_or(Path::new("")))
            .env("vhostuser", fronts.vhost_user().unwrap_or(Path::new("")))
            .env("ublk", fronts.ublk().unwrap_or_default())
            .spawn()
            .map_err(|error| Failure::new(format!("cannot run /bin/sh: {error}")))?;
        let pid = child.id();
        let wait = move || {
            await_end(pid);
            // The main loop waits for nothing else.
            let _ = events.send(Event::Ended);
        };
        std::thread::Builder::new().name("captive".into()).spawn(wait)?;
        Ok(Self { child })
    }

    /// Passes a signal on.
    pub fn signal(&self, signal: i32) {
        // SAFETY: sends a signal. The number is the child's own as long as `end` has not reaped it.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// How it ended.
    pub fn end(mut self) -> Result<ExitStatus, Failure> {
        Ok(self.child.wait()?)
    }
}

/// Waits until a child has ended, and leaves it to be reaped.
fn await_end(pid: u32) {
    loop {
        // SAFETY: all zeroes is a value of this plain structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call.
        let ended =
            unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        let error = std::io::Error::last_os_error();
        if ended == 0 || error.kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// The exit code that stands for a command's end, as shells have it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
