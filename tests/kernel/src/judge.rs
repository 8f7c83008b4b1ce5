//! The judges: which kernel runs, with which mdadm, and where they are.
//!
//! The machine's own come from its packages. The others are below `target/judges`, where `scripts/judges.sh` unpacks
//! packages of other releases and `make judge` leaves the kernel that it builds; they bring a C library of their own,
//! which the guest's programs from this machine use too.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::Reason;

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Whose md judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Judge {
    /// The machine's own user-mode-linux and mdadm.
    Own,
    /// Those of Debian sid.
    Newest,
    /// Those of Debian 13: Linux 6.12.
    Trixie,
    /// Debian's newest kernel source, built by `make judge` with what Debian's own build leaves out (the lockless
    /// bitmap, linear, ublk), and the newest mdadm.
    Lockless,
}

/// A name that is no judge's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no judge; there are own, newest, trixie and lockless")]
pub struct NoJudge {
    name: String,
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Newest => "newest",
            Self::Trixie => "trixie",
            Self::Lockless => "lockless",
        })
    }
}

impl FromStr for Judge {
    type Err = NoJudge;

    fn from_str(name: &str) -> Result<Self, NoJudge> {
        let found = Self::ALL.into_iter().find(|judge| judge.to_string() == name);
        found.ok_or_else(|| NoJudge { name: name.to_owned() })
    }
}

impl Judge {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Own, Self::Newest, Self::Trixie, Self::Lockless];

    /// The one that the environment variable `LAPSTRAKE_JUDGE` names, or the machine's own.
    ///
    /// # Panics
    /// If it names none.
    pub fn chosen() -> Self {
        match std::env::var("LAPSTRAKE_JUDGE") {
            Ok(name) => name.parse().unwrap_or_else(|error| panic!("LAPSTRAKE_JUDGE: {error}")),
            Err(_) => Self::Own,
        }
    }

    /// Those that a test goes over which holds for each: the machine's own and the newest, or all where `LAPSTRAKE_SOAK`
    /// is set, or only the one that `LAPSTRAKE_JUDGE` names.
    pub fn wanted() -> Vec<Self> {
        if std::env::var_os("LAPSTRAKE_JUDGE").is_some() {
            return vec![Self::chosen()];
        }
        let all = std::env::var_os("LAPSTRAKE_SOAK").is_some();
        if all { Self::ALL.into() } else { vec![Self::Own, Self::Newest] }
    }

    /// The kernel, a program.
    pub(crate) fn kernel(self) -> Result<PathBuf, Reason> {
        let path = match self {
            Self::Lockless => judges().join("lockless/linux"),
            _ => self.root().join("usr/bin/linux.uml"),
        };
        if path.is_file() { Ok(path) } else { Err(self.lacks(path.display(), "user-mode-linux")) }
    }

    /// The directory of the kernel's modules; none where all of md is built in.
    pub(crate) fn modules(self) -> Result<Option<PathBuf>, Reason> {
        if self == Self::Lockless {
            return Ok(None);
        }
        let directory = self.root().join("usr/lib/uml/modules");
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let versions = entries.map(|entry| entry.path());
        let newest = versions.filter(|path| path.join("modules.dep").is_file()).max();
        newest.map(Some).ok_or_else(|| self.lacks(directory.display(), "user-mode-linux"))
    }

    /// Whether the kernel can keep its processes' extended state only if that is small: see [`crate::seccomp`].
    pub(crate) fn wants_small_xstate(self) -> Result<bool, Reason> {
        let directory = self.modules()?;
        let version = directory.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        // The one without modules is built from a newer source.
        Ok(version.is_some_and(|version| version_of(version) < (6, 13)))
    }

    /// A program: the judge's own, or else this machine's.
    pub(crate) fn program(self, name: &str, package: &'static str) -> Result<PathBuf, Reason> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let machine = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
        let machine = std::env::split_paths(&path).chain(machine);
        let own = ["usr/sbin", "usr/bin"].map(|directory| self.root().join(directory));
        // The machine's own root is in its PATH already, which comes first there.
        own.into_iter()
            .filter(|_| self != Self::Own)
            .chain(machine)
            .map(|directory| directory.join(name))
            .find(|candidate| candidate.is_file())
            .ok_or_else(|| self.lacks(name, package))
    }

    /// The shared libraries of a program, and its loader: their places in the guest, and here. A script or static
    /// program has none.
    pub(crate) fn libraries_of(self, program: &Path) -> io::Result<BTreeMap<PathBuf, PathBuf>> {
        let libraries = self.root().join(LIBRARIES);
        let output = if self == Self::Own {
            Command::new("ldd").arg(program).output()?
        } else {
            let loader = libraries.join("ld-linux-x86-64.so.2");
            let mut command = Command::new(loader);
            command.arg("--library-path").arg(&libraries).arg("--list").arg(program).output()?
        };
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(listed).map(|path| (self.in_guest(&path), path)).collect())
    }

    fn in_guest(self, path: &Path) -> PathBuf {
        if self == Self::Own {
            return path.to_owned();
        }
        match path.strip_prefix(self.root()) {
            Ok(below) if below.ends_with("ld-linux-x86-64.so.2") => LOADER.into(),
            Ok(below) => Path::new("/").join(below),
            Err(_) => path.to_owned(),
        }
    }

    /// Below this are the judge's programs and libraries.
    fn root(self) -> PathBuf {
        match self {
            Self::Own => "/".into(),
            Self::Newest | Self::Lockless => judges().join("newest/root"),
            Self::Trixie => judges().join("trixie/root"),
        }
    }

    fn lacks(self, what: impl fmt::Display, package: &'static str) -> Reason {
        let what = what.to_string();
        match self {
            Self::Own => Reason::Missing { what, package },
            Self::Newest => Reason::NotUnpacked { what, by: "make setup" },
            Self::Trixie => Reason::NotUnpacked { what, by: "scripts/judges.sh trixie" },
            Self::Lockless => Reason::NotUnpacked { what, by: "make judge" },
        }
    }
}

/// Of a kernel release such as `6.1.176`, the first two numbers.
pub(crate) fn version_of(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The file that a line of `ldd` ends with: `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)`.
fn listed(line: &str) -> Option<PathBuf> {
    let path = line.split_once("=>").map_or(line, |(_, path)| path).split_whitespace().next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Where `scripts/judges.sh` and `make judge` leave them.
fn judges() -> PathBuf {
    let judges = crate::target_directory().join("judges");
    judges.canonicalize().unwrap_or(judges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for judge in Judge::ALL {
            assert_eq!(judge.to_string().parse(), Ok(judge));
        }
        let error = "eldest".parse::<Judge>().unwrap_err();
        assert!(error.to_string().contains("newest"), "{error}");
    }

    #[test]
    fn releases_are_ordered_by_number() {
        assert_eq!(version_of("6.1.176"), (6, 1));
        assert_eq!(version_of("7.2-rc1"), (7, 2));
        assert!(version_of("6.1.176") < version_of("6.13"));
    }

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let path = |line| listed(line).map(|path| path.display().to_string());
        assert_eq!(path("\tlinux-vdso.so.1 (0x7f)"), None);
        assert_eq!(path("\tlibc.so.6 => /lib/libc.so.6 (0x7f)").as_deref(), Some("/lib/libc.so.6"));
        assert_eq!(path("\t/lib64/ld.so (0x7f)").as_deref(), Some("/lib64/ld.so"));
        assert_eq!(path("\tlibx.so => not found"), None);
        assert_eq!(path("\tnot a dynamic executable"), None);
    }

    #[test]
    fn a_program_that_is_nowhere_names_its_package() {
        let reason = Judge::Own.program("no-such-program", "no-package").unwrap_err();
        assert!(reason.to_string().contains("no-package"), "{reason}");
    }
}
