//! Gathers the guest's programs and modules into an initial root filesystem, and keeps it.
//!
//! Invariants: an archive's name is a digest of all that went into it (this source, and each
//! input's path, size and time), so a stale one is never used; it appears by rename, so any
//! number of processes may build the same one at once.

use std::collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher};
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{self, BufWriter};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cpio::Archive;
use crate::{Error, Reason};

const MODULES: &str = "/usr/lib/uml/modules";
/// Loaded at boot, with what they need. The kernel has ext4 built in.
const LOADED: [&str; 8] =
    ["md-mod", "linear", "raid0", "raid1", "raid10", "raid456", "faulty", "loop"];
/// Present, but loaded by the script that wants them, with its own parameters.
const ON_DEMAND: [&str; 1] = ["brd"];
const SCRIPTS: [(&str, &str); 2] =
    [("init", include_str!("init.sh")), ("lib/commands.sh", include_str!("commands.sh"))];

/// Finds a program as a shell would, in the system's directories too.
///
/// # Errors
/// [`Reason::Missing`], which names the Debian package.
pub fn find_program(name: &str, package: &'static str) -> Result<PathBuf, Reason> {
    let path = std::env::var("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or(Reason::Missing { what: name.to_owned(), package })
}

/// The directory of the guest kernel's modules.
///
/// # Errors
/// [`Reason::Missing`] where the package is not installed.
pub fn modules_directory() -> Result<PathBuf, Reason> {
    let mut versions: Vec<PathBuf> = fs::read_dir(MODULES)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("modules.dep").is_file())
        .collect();
    versions.sort();
    versions
        .pop()
        .ok_or(Reason::Missing { what: format!("{MODULES}/*"), package: "user-mode-linux" })
}

/// Gives the path of an initramfs with busybox, mdadm, md and these further programs.
///
/// # Errors
/// A missing program, or what the file system reports.
pub fn prepare(extra: &BTreeSet<String>) -> Result<PathBuf, Error> {
    let inputs = Inputs::find(extra)?;
    let directory = cache_directory()?;
    let archive = directory.join(format!("{:016x}.cpio", inputs.digest()?));
    if !archive.is_file() {
        let part = directory.join(format!("{}.part", crate::unique_name()));
        inputs.pack(&part).and_then(|()| fs::rename(&part, &archive))?;
    }
    Ok(archive)
}

/// What an archive is made of: host paths.
struct Inputs {
    busybox: PathBuf,
    programs: BTreeMap<String, PathBuf>,
    libraries: BTreeSet<PathBuf>,
    /// In loading order.
    loaded: Vec<PathBuf>,
    on_demand: Vec<PathBuf>,
}

impl Inputs {
    fn find(extra: &BTreeSet<String>) -> Result<Self, Error> {
        let mut programs = BTreeMap::new();
        programs.insert("mdadm".to_owned(), find_program("mdadm", "mdadm")?);
        // Busybox's own shell prefers its applets (mke2fs, say) to any program in the PATH.
        programs.insert("bash".to_owned(), find_program("bash", "bash")?);
        for name in extra {
            programs.insert(name.clone(), find_program(name, "that has it")?);
        }
        let mut libraries = BTreeSet::new();
        for path in programs.values() {
            libraries.extend(libraries_of(path)?);
        }
        let directory = modules_directory()?;
        let index = fs::read_to_string(directory.join("modules.dep"))?;
        let list = |names: &[&str]| -> Vec<PathBuf> {
            load_order(&index, names).iter().map(|path| directory.join(path)).collect()
        };
        Ok(Self {
            busybox: find_program("busybox", "busybox-static")?,
            programs,
            libraries,
            loaded: list(&LOADED),
            on_demand: list(&ON_DEMAND),
        })
    }

    fn digest(&self) -> io::Result<u64> {
        let mut state = DefaultHasher::new();
        SCRIPTS.hash(&mut state);
        include_str!("initramfs.rs").hash(&mut state);
        self.programs.hash(&mut state);
        let files = [&self.busybox].into_iter().chain(self.programs.values());
        let files = files.chain(&self.libraries).chain(&self.loaded).chain(&self.on_demand);
        for path in files {
            let facts = fs::metadata(path)?;
            (path, facts.len(), facts.mtime(), facts.mtime_nsec()).hash(&mut state);
        }
        Ok(state.finish())
    }

    fn pack(&self, to: &Path) -> io::Result<()> {
        let mut archive = Archive::new(BufWriter::new(File::create(to)?));
        for directory in ["proc", "sys", "dev", "run", "tmp", "mnt", "host", "etc"] {
            archive.directory(directory)?;
        }
        archive.char_device("dev/console", 5, 1)?;
        for (path, text) in SCRIPTS {
            archive.program(path, text.as_bytes())?;
        }
        archive.program("bin/busybox", &fs::read(&self.busybox)?)?;
        for applet in applets(&self.busybox)? {
            archive.symlink(&format!("bin/{applet}"), "busybox")?;
        }
        for (name, path) in &self.programs {
            archive.program(&format!("sbin/{name}"), &fs::read(path)?)?;
        }
        for path in &self.libraries {
            archive.program(&path.to_string_lossy(), &fs::read(path)?)?;
        }
        // The shell's glob sorts, so a number keeps the loading order.
        for (number, path) in self.loaded.iter().enumerate() {
            let name = format!("lib/modules/{number:02}-{}", file_name(path));
            archive.program(&name, &fs::read(path)?)?;
        }
        for path in &self.on_demand {
            archive.program(&format!("lib/modules/extra/{}", file_name(path)), &fs::read(path)?)?;
        }
        archive.finish().map(drop)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn applets(busybox: &Path) -> io::Result<Vec<String>> {
    let list = Command::new(busybox).arg("--list").output()?.stdout;
    let names = String::from_utf8_lossy(&list);
    Ok(names.lines().filter(|name| *name != "busybox").map(str::to_owned).collect())
}

/// The shared libraries of a program, and its loader. A script or static program has none.
fn libraries_of(program: &Path) -> io::Result<Vec<PathBuf>> {
    let text = Command::new("ldd").arg(program).output()?.stdout;
    let text = String::from_utf8_lossy(&text);
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(|word| PathBuf::from(word.trim_end_matches(':'))).collect())
}

/// The files of these modules and of all they need, needed ones first.
///
/// `index` is a `modules.dep`: each line a file, then what it needs with the last to be
/// loaded first.
fn load_order<'a>(index: &'a str, names: &[&str]) -> Vec<&'a str> {
    let mut order = Vec::new();
    for name in names {
        let wanted = format!("/{name}.ko");
        let lines = index.lines().filter_map(|line| line.split_once(':'));
        for (file, needs) in lines.filter(|(file, _)| file.ends_with(&wanted)) {
            for module in needs.split_whitespace().rev().chain([file]) {
                if !order.contains(&module) {
                    order.push(module);
                }
            }
        }
    }
    order
}

/// Cargo's `target/tmp`, or a private directory in the system's temporary one where that
/// cannot be written (another user's checkout).
fn cache_directory() -> io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let wanted = target.join("tmp/kernel-md");
    if fs::create_dir_all(&wanted).is_ok() && crate::may_write(&wanted) {
        return wanted.canonicalize();
    }
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    let private = std::env::temp_dir().join(format!("lapstrake-kernel-md-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&private) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let facts = fs::symlink_metadata(&private)?;
    if !facts.is_dir() || facts.uid() != user || facts.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} is not ours alone", private.display())));
    }
    Ok(private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_modules_come_first_and_once() {
        let index = "k/md-mod.ko:\nk/raid456.ko: k/pq.ko k/tx.ko k/md-mod.ko\nk/raid1.ko: \
                     k/md-mod.ko\nk/x.ko: k/raid456.ko\n";
        assert_eq!(
            load_order(index, &["raid456", "raid1"]),
            ["k/md-mod.ko", "k/tx.ko", "k/pq.ko", "k/raid456.ko", "k/raid1.ko"]
        );
    }

    #[test]
    fn a_program_that_is_nowhere_names_its_package() {
        let reason = find_program("no-such-program", "no-package").unwrap_err();
        assert!(reason.to_string().contains("no-package"), "{reason}");
    }
}
