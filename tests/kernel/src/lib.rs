//! Runs the Linux kernel's own md, in an unprivileged process, as the judge of our tests.
//!
//! Debian's user-mode-linux package is a Linux kernel built as an ordinary program, with all md
//! modules. This crate packs those modules, busybox and mdadm into an initramfs, boots it in
//! some seconds without root or KVM, and runs shell scripts in it.
//!
//! ```no_run
//! use lapstrake_kernel_md::Kernel;
//! let mut guest = Kernel::new().member("a.img").member("b.img").boot()?;
//! let made = guest.run("mdadm -CR /dev/md0 -l1 -n2 --assume-clean /dev/ubda /dev/ubdb")?;
//! assert!(made.success(), "{made}");
//! # Ok::<(), lapstrake_kernel_md::Error>(())
//! ```
//!
//! In the guest:
//! - members given before the boot are `/dev/ubda`, `/dev/ubdb`, ... in order (at most 16); what is written to them
//!   is in the file at once;
//! - any number of further files come and go in scripts: `attach FILE...` makes loop devices of host
//!   paths and prints their names, `calm` stops all arrays, frees all loop devices
//!   and syncs, after which the host may read and change the files (0.2 to 0.5 s for an
//!   array's whole cycle, so one boot serves hundreds);
//! - `scrub ARRAY` runs md's `check` to its end and prints the number of mismatched sectors, `nap SECONDS` sleeps;
//! - these are functions: a script runs in a fork of the first shell, and other programs do not see them;
//! - the host's files are below `/host`, with the rights of the user who runs the test;
//! - `insmod /lib/modules/extra/brd.ko rd_nr=4 rd_size=KIB` makes RAM disks.
//!
//! It imports nothing of what it judges.

mod cpio;
mod guest;
mod initramfs;
mod judge;
mod seccomp;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapstrake_not_run::not_run;

pub use guest::Guest;
pub use judge::{Judge, NoJudge};

/// What scripts about one array are written in: put it before a script. It makes functions of bash,
/// such as `show FILE...`, `settle`, `matches` and `healthy`; the file tells of each.
pub const WORDS: &str = include_str!("words.sh");
/// The ubd driver has devices 0 to 15.
const MEMBERS_MAX: usize = 16;

/// Why the kernel's md cannot be run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// User-mode-linux exists for this architecture only.
    #[error("user-mode-linux runs on x86-64 only")]
    Architecture,
    /// Something is not installed.
    #[error("{what} is not installed; `make setup` installs the package {package}")]
    Missing {
        /// The program or file.
        what: String,
        /// The Debian package that holds it.
        package: &'static str,
    },
    /// A judge that is not the machine's own is not there.
    #[error("there is no {what}; `{by}` makes it")]
    NotUnpacked {
        /// The program or file.
        what: String,
        /// What brings it.
        by: &'static str,
    },
    /// All is there, but a trial boot failed.
    #[error("user-mode-linux does not run here: {0}")]
    NoBoot(String),
}

/// Why a guest gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something is missing on the host.
    #[error(transparent)]
    Unavailable(#[from] Reason),
    /// More members than the guest has slots for.
    #[error("{found} members, but a guest has room for {MEMBERS_MAX}; use `attach` for more")]
    TooManyMembers {
        /// How many were given.
        found: usize,
    },
    /// The guest did not get as far as running scripts.
    #[error("the guest did not boot; its console ended with:\n{console}")]
    Boot {
        /// The last lines of its console.
        console: String,
    },
    /// The guest ended during a script.
    #[error("the guest died; its console ended with:\n{console}")]
    Died {
        /// The last lines of its console.
        console: String,
    },
    /// A script took too long; the guest was killed.
    #[error("no answer after {after:?}; output so far:\n{output}")]
    Timeout {
        /// How long we waited.
        after: Duration,
        /// What the script had printed, as far as it reached the host.
        output: String,
    },
    /// The host's file system or process table refused something.
    #[error("kernel-md: {0}")]
    Io(#[from] io::Error),
}

/// What a script left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The shell's exit status.
    pub status: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Whether the status is 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = String::from_utf8_lossy(&self.stderr);
        write!(f, "status {}\n{}{errors}", self.status, self.text())
    }
}

/// A guest to be booted.
#[derive(Debug, Clone)]
pub struct Kernel {
    judge: Judge,
    memory_mib: u32,
    timeout: Duration,
    members: Vec<PathBuf>,
    programs: BTreeSet<String>,
}

impl Default for Kernel {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernel {
    /// A guest of the judge that is [`chosen`](Judge::chosen), with 512 MiB, two minutes for each script, no members,
    /// busybox and mdadm.
    pub fn new() -> Self {
        Self::of(Judge::chosen())
    }

    /// As [`Kernel::new`], of this judge.
    pub fn of(judge: Judge) -> Self {
        Self {
            judge,
            memory_mib: 512,
            timeout: Duration::from_secs(120),
            members: Vec::new(),
            programs: BTreeSet::new(),
        }
    }

    /// Takes another judge.
    #[must_use]
    pub fn judge(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    /// Adds a file as the next `/dev/ubdX`.
    #[must_use]
    pub fn member(mut self, file: impl AsRef<Path>) -> Self {
        self.members.push(file.as_ref().to_owned());
        self
    }

    /// Adds a host program with its libraries, such as `e2fsck`, or by its path; it is found in the guest's PATH.
    #[must_use]
    pub fn program(mut self, name: &str) -> Self {
        self.programs.insert(name.to_owned());
        self
    }

    /// Sets the guest's memory, in MiB. RAM disks take theirs from it.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Sets how long one script may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Boots the guest.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where something is not installed, [`Error::Boot`] where the
    /// guest did not come up.
    pub fn boot(&self) -> Result<Guest, Error> {
        if self.members.len() > MEMBERS_MAX {
            return Err(Error::TooManyMembers { found: self.members.len() });
        }
        installed(self.judge)?;
        Guest::boot(self)
    }

    /// Boots a guest, runs one script and shuts down: the members then hold all it wrote.
    ///
    /// # Errors
    /// Those of [`Kernel::boot`], [`Guest::run`] and [`Guest::shut_down`].
    pub fn run(&self, script: &str) -> Result<Output, Error> {
        let mut guest = self.boot()?;
        let output = guest.run(script)?;
        guest.shut_down()?;
        Ok(output)
    }
}

/// Whether this judge can be run here: all is installed, and a trial boot went well
/// (once per process, some seconds).
///
/// # Errors
/// The reason, as a sentence for the user.
pub fn available(judge: Judge) -> Result<(), Reason> {
    trial(judge).map(drop)
}

/// Whether this judge is available and its kernel runs arrays of a level, such as `linear`.
pub fn has_level(judge: Judge, level: &str) -> bool {
    trial(judge).is_ok_and(|said| said.contains(&format!("[{level}]")))
}

/// The first two numbers of the judge's kernel release; none where it is not available.
pub fn release(judge: Judge) -> Option<(u32, u32)> {
    trial(judge).ok()?.lines().last().map(judge::version_of)
}

/// What a judge's kernel says of itself: the levels that it runs, as `/proc/mdstat` has them, and its release.
fn trial(judge: Judge) -> Result<String, Reason> {
    static VERDICTS: [OnceLock<Result<String, Reason>>; Judge::ALL.len()] =
        [const { OnceLock::new() }; Judge::ALL.len()];
    VERDICTS[judge as usize]
        .get_or_init(|| match Kernel::of(judge).run("head -n 1 /proc/mdstat; uname -r") {
            Ok(output) => Ok(output.text()),
            Err(Error::Unavailable(reason)) => Err(reason),
            Err(other) => Err(Reason::NoBoot(other.to_string())),
        })
        .clone()
}

/// For tests: whether the judge that is [`chosen`](Judge::chosen) is [`available`]; a refusal is also said, as
/// [`not_run`].
pub fn available_or_say(what: &str) -> bool {
    judge_or_say(Judge::chosen(), what)
}

/// For tests: the [`wanted`](Judge::wanted) judges that are [`available`]; of each other one that is said.
pub fn judges_or_say(what: &str) -> Vec<Judge> {
    Judge::wanted().into_iter().filter(|judge| judge_or_say(*judge, what)).collect()
}

/// As [`available_or_say`], of this judge.
pub fn judge_or_say(judge: Judge, what: &str) -> bool {
    match available(judge) {
        Ok(()) => true,
        Err(reason) => {
            not_run(format_args!("{what} (judge {judge}): {reason}"));
            false
        }
    }
}

/// Refuses before anything is built where something is missing.
fn installed(judge: Judge) -> Result<(), Reason> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Reason::Architecture);
    }
    judge.kernel()?;
    judge.modules()?;
    judge.program("busybox", "busybox-static")?;
    judge.program("mdadm", "mdadm").map(drop)
}

/// Cargo's.
fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from)
}

/// Distinct among all processes of this machine that live at the same time.
fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn may_write(directory: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is NUL-terminated.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}
