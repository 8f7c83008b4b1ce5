//! A RAID0 of four files on tmpfs, served over FUSE, beside the least that a FUSE server can be:
//! libfuse's low-level interface over one file in RAM (`ram.c`), with one thread and with several.
//! The client is fio with io_uring and direct I/O. All servers are up at once and take turns at
//! each load, so that they see the same machine.
//!
//! `--gate` measures in full and exits with 1 if a load's median falls below [`GATE`] of the
//! better peer's; `--quick` shows in seconds that everything works, and gates nothing.

mod array;
mod fio;
mod peer;
mod report;

use fio::LOADS;
use report::Samples;
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

/// Least part of the better peer's figure that passes.
const GATE: f64 = 0.5;
/// Bytes of each served file that are used; small, so that all servers fit into memory.
const FILE_BYTES: u64 = 512 << 20;
/// Threads of the peer's faster variant.
const PEER_THREADS: u32 = 4;

/// A failure of the benchmark itself.
type Failure = Box<dyn std::error::Error>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: usize,
    run: Duration,
    warm_up: Duration,
    gates: bool,
}

const FULL: Effort = Effort {
    rounds: 7,
    run: Duration::from_millis(1500),
    warm_up: Duration::from_millis(300),
    gates: true,
};
const QUICK: Effort = Effort {
    rounds: 1,
    run: Duration::from_millis(300),
    warm_up: Duration::from_millis(100),
    gates: false,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--serve", file, ref members @ ..] => array::serve(file, members).map(|()| true),
        [] | ["--gate"] => compare(FULL),
        ["--quick"] => compare(QUICK),
        _ => Err("usage: lapstrake-bench-fuse [--gate | --quick]".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; false if a gate was missed.
fn compare(effort: Effort) -> Result<bool, Failure> {
    if let Some(lack) = lack() {
        lapstrake_not_run::not_run(&lack);
        return Ok(true);
    }
    let dir = tempfile::Builder::new().prefix("lapstrake-bench-fuse").tempdir_in("/dev/shm")?;
    let program = peer::build(dir.path())?;
    let servers = [
        array::start(dir.path())?,
        peer::start(&program, dir.path(), 1)?,
        peer::start(&program, dir.path(), PEER_THREADS)?,
    ];
    for server in &servers {
        fio::fill(&server.file)?;
    }
    let mut samples = Samples::new(servers.each_ref().map(|server| server.name.clone()));
    for round in 0..effort.rounds {
        for (at, load) in LOADS.iter().enumerate() {
            for turn in 0..servers.len() {
                let server = (turn + round) % servers.len();
                let figure = fio::run(load, &servers[server].file, effort)?;
                samples.add(at, server, figure);
            }
        }
        if effort.gates {
            eprintln!("round {} of {}", round + 1, effort.rounds);
        }
    }
    let passed = samples.print();
    Ok(passed || !effort.gates)
}

/// What this machine does not have.
fn lack() -> Option<&'static str> {
    let works = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !Path::new("/dev/fuse").exists() {
        Some("there is no /dev/fuse")
    } else if !works("fio", &["--version"]) {
        Some("fio is not installed")
    } else if !works("cc", &["--version"]) || !works("pkg-config", &["--exists", "fuse3"]) {
        Some("the peer needs a C compiler and libfuse3 (Debian: libfuse3-dev)")
    } else {
        None
    }
}

/// A server that runs until it is dropped.
struct Server {
    name: String,
    file: PathBuf,
    child: Child,
}

impl Server {
    /// Starts a program that serves `file`, and waits until it does.
    fn start(name: String, file: PathBuf, command: &mut Command) -> Result<Self, Failure> {
        let child = command.stdin(Stdio::piped()).spawn()?;
        let mut server = Self { name, file, child };
        while std::fs::metadata(&server.file)?.len() == 0 {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{} did not start: {status}", server.name).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ours ends with its input, the peer on the signal.
        drop(self.child.stdin.take());
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        if let Err(error) = self.child.wait() {
            let _ = writeln!(std::io::stderr(), "{}: {error}", self.name);
        }
    }
}
