//! An array that stands: what loads and meters need of it.

use super::meter::{Reading, Sources, Work, members_work, served_detail};
use crate::subject::Target;
use crate::subject::process::{Hosted, Settings};
use crate::subject::recipe::Recipe;
use crate::subject::steps::BuiltSubject;
use crate::workload::drive::Stop;
use crate::workload::nbd::Nbd;
use crate::workload::port::{Null, Port, Threads};
use crate::workload::uring::Uring;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the null subject seems to have.
const NULL_BYTES: u64 = 1 << 30;

/// In which the lab's own requests go where there is a filesystem.
pub(super) const OWN_FILE: &str = "lapstrake-lab.dat";

/// See the module.
pub(crate) struct Live {
    standing: BuiltSubject,
    pub hosted: Option<Hosted>,
    /// With all names filled in.
    pub target: Target,
    /// As a block device.
    pub device: Option<PathBuf>,
    sources: Sources,
    /// As a device of the kernel's md.
    md: Option<PathBuf>,
    /// A directory for what programs need beside the array.
    pub work: PathBuf,
}

impl Live {
    /// Builds an array. `buffer_bytes` are for the requests of a shard in this process.
    ///
    /// # Errors
    /// What failed; nothing stands then.
    pub(crate) fn up(
        recipe: &Recipe,
        work: &Path,
        buffer_bytes: usize,
        stop: &Stop,
    ) -> Result<Self, String> {
        let standing = BuiltSubject::build(recipe, work, stop)?;
        let target = match &recipe.target {
            Target::File { path, offset, size } => {
                Target::File { path: standing.fill_in(path), offset: *offset, size: *size }
            }
            Target::Directory { path } => Target::Directory { path: standing.fill_in(path) },
            other => other.clone(),
        };
        let hosted = match &target {
            Target::Process { members, stripe_cache, sync_speed_min, sync_speed_max } => {
                let settings = Settings {
                    stripe_cache: *stripe_cache,
                    sync_speed_min: *sync_speed_min,
                    sync_speed_max: *sync_speed_max,
                    buffer_bytes,
                };
                match Hosted::start(members, settings) {
                    Ok(hosted) => Some(hosted),
                    Err(why) => {
                        let more = standing.take_down().err().unwrap_or_default();
                        return Err(format!("{why}{more}"));
                    }
                }
            }
            _ => None,
        };
        let device =
            |(name, path): &(String, String)| (name.clone(), PathBuf::from(standing.fill_in(path)));
        let sources = Sources {
            servers: standing.servers().collect(),
            devices: recipe.counted.iter().map(device).collect(),
            files: recipe.files.iter().map(|(name, path)| (name.clone(), resolved(path))).collect(),
            control: recipe.control.clone(),
        };
        let filled =
            |path: &Option<String>| path.as_ref().map(|path| PathBuf::from(standing.fill_in(path)));
        let (device, md) = (filled(&recipe.device), filled(&recipe.md));
        Ok(Self { standing, hosted, target, device, sources, md, work: work.to_owned() })
    }

    /// Takes it down.
    ///
    /// # Errors
    /// Everything that could not be.
    pub(crate) fn down(self) -> Result<(), String> {
        let stopped = self.hosted.map_or(Ok(()), Hosted::stop);
        let down = self.standing.take_down();
        match (stopped, down) {
            (Err(one), Err(two)) => Err(format!("{one}\n{two}")),
            (one, two) => one.and(two),
        }
    }

    /// All counts.
    pub(crate) fn read(&self) -> Reading {
        let own = self.hosted.as_ref().and_then(Hosted::detail).map(|detail| Work {
            members: members_work(&detail),
            memory_bytes: detail.memory.stripe_cache + detail.memory.buffers,
        });
        self.sources.read(own)
    }

    /// Whether a recovery or resync runs, if the array is one that tells.
    pub(crate) fn is_rebuilding(&self) -> Option<bool> {
        if let Some(hosted) = &self.hosted {
            return hosted.detail().map(|detail| detail.sync.is_some());
        }
        if let Some(device) = &self.md {
            let name = device.canonicalize().ok()?.file_name()?.to_owned();
            return md_syncs(&Path::new("/sys/block").join(name).join("md"));
        }
        let detail = served_detail(self.sources.control.as_deref()?)?;
        Some(detail.sync.is_some())
    }

    /// What has to be known of its members, for a run's own words.
    pub(crate) fn caveat(&self) -> &'static str {
        let buffered = |(_, path): &(String, PathBuf)| {
            let name = path.file_name().unwrap_or_default();
            let dio = Path::new("/sys/class/block").join(name).join("loop/dio");
            std::fs::read_to_string(dio).is_ok_and(|text| text.trim() == "0")
        };
        if self.sources.devices.iter().any(buffered) {
            "members are loop devices without direct I/O, which their filesystem has not: through its page cache\n"
        } else {
            ""
        }
    }

    /// The bytes that loads may use: those of a file, device or array.
    ///
    /// # Errors
    /// If the size cannot be found.
    pub(crate) fn bytes(&self) -> Result<Range<u64>, String> {
        match &self.target {
            Target::Null => Ok(0..NULL_BYTES),
            Target::Process { .. } => Ok(0..self.hosted.as_ref().map_or(0, Hosted::bytes)),
            Target::Nbd { socket } => Nbd::connect(socket, 1)
                .map(|nbd| 0..nbd.size)
                .map_err(|error| format!("{}: {error}", socket.display())),
            Target::File { path, offset, size } => {
                let end = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
                let end = end.map_err(|error| format!("{path}: {error}"))?;
                Ok(*offset..size.map_or(end, |size| offset + size).min(end))
            }
            Target::Directory { path } => filesystem_bytes(Path::new(path)).map(|bytes| 0..bytes),
        }
    }

    /// A way to the array for each thread of a load: through io_uring to `file`, if there is one.
    pub(crate) fn port(
        &self,
        file: Option<&Arc<File>>,
        depth: u32,
    ) -> Result<Box<dyn Port>, String> {
        match (&self.target, file) {
            (Target::Null, _) => Ok(Box::new(Null::default())),
            (Target::Nbd { socket }, _) => {
                let nbd = Nbd::connect(socket, depth);
                Ok(Box::new(nbd.map_err(|error| format!("{}: {error}", socket.display()))?))
            }
            (_, Some(file)) => match Uring::new(file.clone(), depth) {
                Ok(ring) => Ok(Box::new(ring)),
                Err(_) => {
                    let threads = Threads::new(file, depth);
                    Ok(Box::new(threads.map_err(|error| format!("no thread for I/O: {error}"))?))
                }
            },
            _ => Err("the array has no path by which to reach it".into()),
        }
    }
}

/// Whether an array of the kernel's recovers or resyncs, by its directory in /sys. A member that is to be recovered is a
/// spare from the first moment, also while the kernel has not begun yet.
fn md_syncs(md: &Path) -> Option<bool> {
    let action = std::fs::read_to_string(md.join("sync_action")).ok()?;
    let members = std::fs::read_dir(md).ok()?.flatten();
    let states = members
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"dev-"))
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("state")).ok());
    let mut recovered = states.filter(|state| state.trim().split(',').any(|word| word == "spare"));
    Some(action.trim() != "idle" || recovered.next().is_some())
}

/// As a server names it.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Bytes that a filesystem has left for data. (What btrfs calls its size counts the parity of RAID5 and 6.)
pub(crate) fn filesystem_bytes(path: &Path) -> Result<u64, String> {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|error| error.to_string())?;
    // SAFETY: all zeros is a valid statvfs, which the call fills; the name outlives it.
    let (done, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(name.as_ptr(), &mut stat), stat)
    };
    match done {
        0 => Ok(stat.f_bavail * stat.f_frsize),
        _ => Err(format!("{}: {}", path.display(), std::io::Error::last_os_error())),
    }
}

/// Opens a file for a load; with false if it refused to be opened past the page cache.
pub(crate) fn open_file(
    path: &Path,
    writes: bool,
    direct: bool,
) -> Result<(Arc<File>, bool), String> {
    let open = |flags: i32| {
        OpenOptions::new().read(true).write(writes).custom_flags(flags | libc::O_CLOEXEC).open(path)
    };
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if direct {
        match open(libc::O_DIRECT) {
            Ok(file) => return Ok((Arc::new(file), true)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok((Arc::new(open(0).map_err(failed)?), !direct))
}

/// Has the page cache forget a file, so that reads come from the array.
pub(crate) fn forget(file: &File) -> Result<(), String> {
    file.sync_all().map_err(|error| format!("cannot sync: {error}"))?;
    // SAFETY: names a descriptor that is open.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => {
            Err(format!("cannot drop cached pages: {}", std::io::Error::from_raw_os_error(errno)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_array_of_the_kernels_recovers_until_its_spare_is_in_sync() {
        let md = tempfile::tempdir().unwrap();
        let say = |action: &str, state: &str| {
            fs::create_dir_all(md.path().join("dev-loop2")).unwrap();
            fs::write(md.path().join("sync_action"), format!("{action}\n")).unwrap();
            fs::write(md.path().join("dev-loop2/state"), format!("{state}\n")).unwrap();
            md_syncs(md.path())
        };
        assert_eq!(say("idle", "spare"), Some(true), "it has not begun yet");
        assert_eq!(say("recover", "spare"), Some(true));
        assert_eq!(say("idle", "in_sync"), Some(false));
        assert_eq!(say("resync", "in_sync,write_mostly"), Some(true));
        assert_eq!(md_syncs(&md.path().join("no")), None);
    }
}
