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
use crate::{Error, Judge};

/// Loaded at boot, with what they need, where the kernel has them as modules. It has ext4 built in.
const LOADED: [&str; 8] =
    ["md-mod", "linear", "raid0", "raid1", "raid10", "raid456", "faulty", "loop"];
/// Present, but loaded by the script that wants them, with its own parameters.
const ON_DEMAND: [&str; 1] = ["brd"];
const SCRIPTS: [(&str, &str); 2] =
    [("init", include_str!("init.sh")), ("lib/commands.sh", include_str!("commands.sh"))];

/// Gives the path of an initramfs with busybox, the judge's mdadm and md, and these further programs.
///
/// # Errors
/// A missing program, or what the file system reports.
pub fn prepare(judge: Judge, extra: &BTreeSet<String>) -> Result<PathBuf, Error> {
    let inputs = Inputs::find(judge, extra)?;
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
    /// By their places in the guest.
    libraries: BTreeMap<PathBuf, PathBuf>,
    /// In loading order.
    loaded: Vec<PathBuf>,
    on_demand: Vec<PathBuf>,
}

impl Inputs {
    fn find(judge: Judge, extra: &BTreeSet<String>) -> Result<Self, Error> {
        let mut programs = BTreeMap::new();
        programs.insert("mdadm".to_owned(), judge.program("mdadm", "mdadm")?);
        // Busybox's own shell prefers its applets (mke2fs, say) to any program in the PATH.
        programs.insert("bash".to_owned(), judge.program("bash", "bash")?);
        for name in extra {
            let short = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            programs.insert(short.into_owned(), judge.program(name, "that has it")?);
        }
        let mut libraries = BTreeMap::new();
        for path in programs.values() {
            libraries.extend(judge.libraries_of(path)?);
        }
        let directory = judge.modules()?;
        let index = match &directory {
            Some(directory) => fs::read_to_string(directory.join("modules.dep"))?,
            None => String::new(),
        };
        let list = |names: &[&str]| -> Vec<PathBuf> {
            let directory = directory.as_deref().unwrap_or(Path::new(""));
            load_order(&index, names).iter().map(|path| directory.join(path)).collect()
        };
        Ok(Self {
            busybox: judge.program("busybox", "busybox-static")?,
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
        self.libraries.hash(&mut state);
        let files = [&self.busybox].into_iter().chain(self.programs.values());
        let files = files.chain(self.libraries.values()).chain(&self.loaded).chain(&self.on_demand);
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
        for (place, path) in &self.libraries {
            archive.program(&place.to_string_lossy(), &fs::read(path)?)?;
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
    let wanted = crate::target_directory().join("tmp/kernel-md");
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
}
