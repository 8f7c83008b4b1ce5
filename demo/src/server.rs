//! The `lapstrake` command, as a user runs it.

use std::{
    error::Error,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The command that was built beside this program.
pub(crate) fn lapstrake() -> Result<Command, Box<dyn Error>> {
    let path = std::env::current_exe()?.with_file_name("lapstrake");
    if !path.exists() {
        return Err(format!("{} is not there; `make build` builds it", path.display()).into());
    }
    Ok(Command::new(path))
}

/// Runs a command to its end; its output is shown if it fails.
pub(crate) fn check(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let out = command.output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{command:?} failed: {said}").into())
}

/// A served array.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Serves `members` and waits until clients can connect.
    pub(crate) fn start(
        dir: &Path,
        members: &[&Path],
        more: &[&str],
    ) -> Result<Self, Box<dyn Error>> {
        let socket = dir.join("nbd.sock");
        let mut command = lapstrake()?;
        command.arg("serve").args(members).args(["--name", "demo"]).args(more);
        command.arg("--nbd").arg(format!("unix:{}", socket.display()));
        command.arg("--control-dir").arg(dir);
        // What it says of each member is of interest only if it fails.
        let log = dir.join("server.log");
        let mut child =
            command.stdout(Stdio::null()).stderr(std::fs::File::create(&log)?).spawn()?;
        let patience = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(&socket).is_err() {
            if let Some(status) = child.try_wait()? {
                let said = std::fs::read_to_string(&log)?;
                return Err(format!("{command:?} ended: {status}\n{said}").into());
            }
            if Instant::now() > patience {
                return Err(format!("no server at {}", socket.display()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { child, socket })
    }

    /// What a client connects to.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The size of the export, as a client sees it.
    pub(crate) fn export_bytes(&self) -> Result<u64, Box<dyn Error>> {
        let out = Command::new("nbdinfo").arg("--size").arg(self.uri()).output()?;
        Ok(String::from_utf8(out.stdout)?.trim().parse()?)
    }

    /// User and system time so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, Box<dyn Error>> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Fields 14 and 15, counted after the name, which may hold spaces; in ticks of 10 ms.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok());
        let (user, system) = (ticks(11), ticks(12));
        Ok((user.ok_or("no user time")? + system.ok_or("no system time")?) / 100.0)
    }

    /// Stops it as an operator would; it leaves the array clean.
    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        check(Command::new("kill").arg(self.child.id().to_string()))?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended: {status}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `stop` there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
