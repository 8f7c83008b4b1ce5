//! A running guest: its process, and the protocol by which it is given scripts.
//!
//! The guest's console is a pair of pipes. We write a script's number; the guest runs
//! `NUMBER.sh` from the run directory, which it sees through hostfs, writes `NUMBER.out` and
//! `NUMBER.err` there and answers `<<kernel-md done NUMBER STATUS`. Closing a file on hostfs
//! writes it back, so the results are whole when the answer comes.
//!
//! Invariants: one script runs at a time. A guest whose owner is gone, however it went, is
//! ended by the system: it has asked for SIGTERM on its parent's death, which makes it
//! end its own processes, too.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{Error, Kernel, Output, initramfs, seccomp};

const MARK: &str = "<<kernel-md ";
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// How much of the console an error quotes.
const CONSOLE_LINES_MAX: usize = 12;

/// A booted guest, ready for scripts. Dropping it stops its arrays and powers it off.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    console: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Console lines that are no answers: the kernel's own words when something is wrong.
    noise: Vec<String>,
    directory: RunDirectory,
    timeout: Duration,
    scripts: u64,
}

/// Where scripts, results and members' names of one guest live; removed with it.
#[derive(Debug)]
struct RunDirectory(PathBuf);

impl RunDirectory {
    fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("kernel-md-{}", crate::unique_name()));
        fs::create_dir(&path)?;
        Ok(Self(path.canonicalize()?))
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // A leftover directory is untidy, never wrong.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Guest {
    pub(crate) fn boot(options: &Kernel) -> Result<Self, Error> {
        let initramfs = initramfs::prepare(options.judge, &options.programs)?;
        let directory = RunDirectory::create()?;
        let command = command(options, &initramfs, &directory.0)?;
        let (mut child, answers) = spawn(command)?;
        let mut guest = Self {
            console: child.stdin.take(),
            child,
            answers,
            noise: Vec::new(),
            directory,
            timeout: options.timeout,
            scripts: 0,
        };
        match guest.answer(BOOT_TIMEOUT) {
            Ok(answer) if answer == "ready" => Ok(guest),
            Ok(answer) => Err(Error::Boot { console: answer }),
            Err(_) => Err(Error::Boot { console: guest.last_words() }),
        }
    }

    /// Runs a bash script (with busybox's tools) as root in the guest; what it leaves behind (arrays, mounts,
    /// loop devices, files in `/tmp`) is there for the next one.
    ///
    /// # Errors
    /// [`Error::Timeout`] after the time set by [`Kernel::timeout`], [`Error::Died`] when the
    /// guest ended: it cannot be used any more then. A script's own failure is no error but
    /// an [`Output::status`].
    pub fn run(&mut self, script: &str) -> Result<Output, Error> {
        let number = self.scripts;
        self.scripts += 1;
        fs::write(self.file(number, "sh"), script)?;
        let console =
            self.console.as_mut().ok_or_else(|| Error::Died { console: String::new() })?;
        if writeln!(console, "{number}").and_then(|()| console.flush()).is_err() {
            return Err(Error::Died { console: self.last_words() });
        }
        let answer = self.answer(self.timeout).inspect_err(|_| self.kill())?;
        let status = answer
            .strip_prefix(&format!("done {number} "))
            .and_then(|status| status.parse().ok())
            .ok_or(Error::Died { console: answer.clone() })?;
        let output = Output {
            status,
            stdout: fs::read(self.file(number, "out"))?,
            stderr: fs::read(self.file(number, "err"))?,
        };
        for kind in ["sh", "out", "err"] {
            fs::remove_file(self.file(number, kind))?;
        }
        Ok(output)
    }

    /// A host directory of this guest's own, for files that scripts read or write: it is
    /// at the same path below `/host` in the guest, and goes away with it.
    pub fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// Stops arrays, frees loop devices, syncs and powers off.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end: then it was killed, and members may lack
    /// what the guest had not yet written.
    pub fn shut_down(mut self) -> Result<(), Error> {
        self.power_off()
    }

    /// Ends it at once, as a power cut does: what it was writing is left as it is, and what it had not
    /// flushed to a file that was attached may be lost.
    pub fn cut(mut self) {
        self.kill();
    }

    fn power_off(&mut self) -> Result<(), Error> {
        if let Some(console) = &mut self.console {
            // A guest that died has closed its end; waiting for it below says so. Ours stays
            // open until then: a hang-up would keep the guest from reading the word.
            let _ = writeln!(console, "quit");
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
        {
        }
        // The console is closed: the guest has ended or does so at once.
        if Instant::now() < deadline {
            self.child.wait()?;
            return Ok(());
        }
        self.kill();
        Err(Error::Timeout { after: STOP_TIMEOUT, output: String::new() })
    }

    fn file(&self, number: u64, kind: &str) -> PathBuf {
        self.directory.0.join(format!("{number}.{kind}"))
    }

    fn answer(&mut self, patience: Duration) -> Result<String, Error> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(line) => match line.split_once(MARK) {
                    Some((_, answer)) => return Ok(answer.to_owned()),
                    None => self.noise.push(line),
                },
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Died { console: self.last_words() });
                }
                Err(RecvTimeoutError::Timeout) => {
                    let path = self.file(self.scripts.saturating_sub(1), "out");
                    let output = fs::read(path).unwrap_or_default();
                    let output = String::from_utf8_lossy(&output).into_owned();
                    return Err(Error::Timeout { after: patience, output });
                }
            }
        }
    }

    fn last_words(&self) -> String {
        let from = self.noise.len().saturating_sub(CONSOLE_LINES_MAX);
        self.noise[from..].join("\n")
    }

    /// Ends the guest's whole process group: its processes are ours, traced ones, and would
    /// outlive it.
    fn kill(&mut self) {
        self.console = None;
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: kill takes plain numbers; the child is not waited for yet, so its
            // number is still its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.power_off().is_err() {
            eprintln!("kernel-md: the guest did not power off and was killed");
        }
    }
}

/// Starts the guest from a thread that then forwards its console for as long as that is open.
///
/// The system takes the end of the *thread* that started a process for its parent's death, so
/// it must be one that lasts as long as the guest.
fn spawn(mut command: Command) -> io::Result<(Child, Receiver<String>)> {
    let (started, start) = channel();
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        let mut child = command.spawn();
        let console = child.as_mut().ok().and_then(|child| child.stdout.take());
        // Both receivers outlive their messages, or nobody wants them any more.
        let _ = started.send(child);
        for line in console.map(BufReader::new).into_iter().flat_map(|lines| lines.split(b'\n')) {
            let Ok(line) = line else { return };
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    let child = start.recv().map_err(io::Error::other)??;
    Ok((child, answers))
}

/// Between fork and exec: makes system calls only.
fn prepare_process(small_xstate: bool) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
        return Err(io::Error::last_os_error());
    }
    stay_on_this_cpu();
    if small_xstate { seccomp::refuse_xstate() } else { Ok(()) }
}

/// Keeps the guest, its kernel and its processes, on one CPU: only one of them ever runs, and each of its system
/// calls goes from one to the other and back. Across CPUs that takes a quarter more time.
fn stay_on_this_cpu() {
    // SAFETY: all-zero is the empty set, and the calls read it and plain numbers. One that is refused changes nothing.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        let cpu = libc::sched_getcpu();
        if (0..libc::CPU_SETSIZE).contains(&cpu) {
            libc::CPU_SET(cpu as usize, &mut cpus);
            libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus);
        }
    }
}

fn command(options: &Kernel, initramfs: &Path, directory: &Path) -> Result<Command, Error> {
    // The guest's command line has no way to write every path, so paths go in as links.
    symlink(initramfs, directory.join("initrd"))?;
    fs::create_dir(directory.join("uml"))?;
    let mut command = Command::new(options.judge.kernel()?);
    command
        .current_dir(directory)
        .arg(format!("mem={}M", options.memory_mib))
        .args(["initrd=initrd", "uml_dir=uml", "umid=guest"])
        .args(["con=null", "con0=fd:0,fd:1", "quiet", "panic=-1"]);
    for (index, member) in options.members.iter().enumerate() {
        let name = format!("m{index}");
        symlink(std::path::absolute(member)?, directory.join(&name))?;
        command.arg(format!("ubd{index}={name}"));
    }
    let small_xstate = options.judge.wants_small_xstate()?;
    command
        .args(small_xstate.then_some(seccomp::GLIBC_TUNABLES))
        .arg(format!("KMD_DIR={}", directory.display()))
        .env("TMPDIR", memory_directory(options.memory_mib))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    // SAFETY: prepare_process makes system calls only, which is allowed after fork.
    unsafe { command.pre_exec(move || prepare_process(small_xstate)) };
    Ok(command)
}

/// Where the guest's memory, a sparse file mapped executable, may live: in RAM if there is
/// enough of it (a container's /dev/shm often has 64 MiB, and is mounted noexec).
fn memory_directory(memory_mib: u32) -> PathBuf {
    const SHM: &str = "/dev/shm";
    // SAFETY: all-zero is a valid statvfs, a struct of integers.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is NUL-terminated and `facts` is ours to write.
    let known = unsafe { libc::statvfs(c"/dev/shm".as_ptr(), &mut facts) } == 0;
    let free = facts.f_bavail * facts.f_frsize;
    let enough = free >= u64::from(memory_mib) << 20;
    let executable = facts.f_flag & libc::ST_NOEXEC == 0;
    if known && enough && executable && crate::may_write(Path::new(SHM)) {
        return PathBuf::from(SHM);
    }
    std::env::temp_dir()
}
