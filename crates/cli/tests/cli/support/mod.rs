//! A directory of member files, the built command, and other programs that judge it.

pub mod md;
pub mod virtual_disk;
pub mod virtual_machine;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;

/// How a program ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: std::process::Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Its standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// A temporary directory in which everything happens.
pub struct Lab {
    dir: TempDir,
}

impl Lab {
    /// With member files of these sizes in MiB: m0, m1, ...
    pub fn new(sizes_mib: &[u64]) -> Self {
        let lab = Self { dir: tempfile::tempdir().unwrap() };
        for (index, mib) in sizes_mib.iter().enumerate() {
            lab.file(&format!("m{index}"), mib << 20);
        }
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn file(&self, name: &str, bytes: u64) {
        File::create(self.path(name)).unwrap().set_len(bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Any program in this directory.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path())
            .env("LAPSTRAKE_RUN_DIR", self.path("run"))
            .env("TZ", "UTC-3")
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    /// `lapstrake` with arguments separated by blanks.
    pub fn run(&self, line: &str) -> Ran {
        let mut command = self.command(env!("CARGO_BIN_EXE_lapstrake"));
        Ran::of(command.args(line.split_whitespace()).output().unwrap())
    }

    /// Another program, likewise; None if it is not installed, which is said aloud.
    pub fn other(&self, line: &str) -> Option<Ran> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        if !installed(program) {
            not_run(line, &format!("{program} is not installed"));
            return None;
        }
        Some(Ran::of(self.command(program).args(words).output().unwrap()))
    }

    /// A server, once it says that it serves.
    /// A shell script with mounts of its own, as whoever runs the test; where that may not be it is said.
    pub fn with_own_mounts(&self, script: &str, what: &str) -> Option<Command> {
        // In a chroot nobody has a user namespace, and root needs none.
        let spaces: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];
        let may = |space: &&&[&str]| {
            let tried = self.command("unshare").args(**space).arg("true").output();
            tried.is_ok_and(|output| output.status.success())
        };
        let Some(space) = spaces.iter().find(may) else {
            not_run(what, "unshare makes no mounts here, with or without a user namespace");
            return None;
        };
        let mut command = self.command("unshare");
        command.args(*space).args(["sh", "-c", script]);
        Some(command)
    }

    pub fn serve(&self, line: &str) -> Server {
        self.serve_with_fault("", line)
    }

    /// One whose members fail by `LAPSTRAKE_FAULT`.
    pub fn serve_with_fault(&self, fault: &str, line: &str) -> Server {
        let mut command = self.command(env!("CARGO_BIN_EXE_lapstrake"));
        command.args(["serve", "--json"]).args(line.split_whitespace());
        Server::start(command.env("LAPSTRAKE_FAULT", fault))
    }
}

/// Loop devices over files; detached when dropped, also when the test fails.
pub struct LoopDevices(pub Vec<String>);

impl LoopDevices {
    /// None, said aloud, where there are none.
    pub fn over(files: &[PathBuf], options: &[&str], what: &str) -> Option<Self> {
        if !installed("losetup") {
            not_run(what, "losetup is not installed");
            return None;
        }
        let mut made = Self(Vec::new());
        for file in files {
            let mut command = Command::new("losetup");
            command.args(options).args(["--find", "--show"]).arg(file);
            let ran = Ran::of(command.output().unwrap());
            if ran.code != 0 {
                not_run(what, &format!("losetup: {}", ran.err.trim()));
                return None;
            }
            made.0.push(ran.out.trim().into());
        }
        Some(made)
    }
}

impl Drop for LoopDevices {
    fn drop(&mut self) {
        for device in &self.0 {
            // Whatever is left of it shows in `losetup`.
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

/// A running `lapstrake serve`, killed when dropped.
pub struct Server {
    child: Option<Child>,
    pub facts: Value,
}

impl Server {
    /// Starts a command that becomes one, and waits until it says that it serves.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut first).unwrap();
        let mut server = Self { child: Some(child), facts: Value::Null };
        match serde_json::from_str::<Value>(&first) {
            Ok(facts) if facts["pid"].is_u64() => server.facts = facts,
            _ => panic!("no server: {first}{:?}", server.end()),
        }
        server
    }

    pub fn uri(&self) -> &str {
        let uri = self.facts["exports"][0].as_str();
        uri.unwrap_or_else(|| panic!("nothing is exported: {}", self.facts))
    }

    pub fn signal(&self, name: &str) {
        let pid = self.facts["pid"].to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits for its end: exit code and what it said.
    pub fn end(&mut self) -> (i32, String) {
        let mut child = self.child.take().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (child.wait().unwrap().code().unwrap_or(-1), said)
    }

    /// SIGKILL, and its end.
    pub fn kill(mut self) {
        self.signal("-KILL");
        self.end();
    }

    /// SIGTERM, and a clean end.
    pub fn stop(mut self) {
        self.signal("-TERM");
        let (code, said) = self.end();
        assert_eq!(code, 0, "{said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).any(|dir| dir.join(program).is_file())
}

/// Whether the long form of a test is asked for, as `make soak` does; if not that is said.
pub fn soaks(what: &str) -> bool {
    let wanted = std::env::var_os("LAPSTRAKE_SOAK").is_some();
    if !wanted {
        lapstrake_not_run::left_out(format_args!("{what}: it is for the soak (LAPSTRAKE_SOAK)"));
    }
    wanted
}

/// Says aloud that something was not tested.
pub fn not_run(what: &str, why: &str) {
    lapstrake_not_run::not_run(format_args!("{what}: {why}"));
}

/// Bytes that differ everywhere and from seed to seed: in each sector a number of its own, and a stretch from
/// anywhere in what is drawn once. Made thus because it is much, in a program that is built plainly.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    static DRAWN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 0x5eed;
        (0..8192).flat_map(|_| draw(&mut state).to_le_bytes()).collect()
    });
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for sector in bytes.chunks_mut(512) {
        let number = draw(&mut state);
        let from = number as usize % (DRAWN.len() - sector.len());
        sector.copy_from_slice(&DRAWN[from..from + sector.len()]);
        let head = sector.len().min(8);
        sector[..head].copy_from_slice(&number.to_le_bytes()[..head]);
    }
    bytes
}

/// A xorshift generator's next number.
pub fn draw(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 3
}

pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().symlink_metadata().is_ok()
}
