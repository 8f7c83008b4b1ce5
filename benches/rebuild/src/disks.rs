//! Members to rebuild: files in memory, or loop devices over them that the kernel holds to a rate, as
//! disks are held to theirs. The rate needs root and the block I/O controller of control groups, of
//! either version.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const V1: &str = "/sys/fs/cgroup/blkio";
const V2: &str = "/sys/fs/cgroup";

/// A control group with this process in it; gone when dropped.
struct Group {
    path: PathBuf,
    root: &'static str,
    is_v1: bool,
}

impl Group {
    fn enter() -> io::Result<Self> {
        let is_v1 = Path::new(V1).join("cgroup.procs").exists();
        let root = if is_v1 { V1 } else { V2 };
        let path = Path::new(root).join(format!("lapstrake-bench-{}", std::process::id()));
        if !is_v1 {
            // Where the controller is on already this fails, and does no harm.
            let _ = fs::write(Path::new(root).join("cgroup.subtree_control"), "+io");
        }
        fs::create_dir(&path)?;
        let this = Self { path, root, is_v1 };
        fs::write(this.path.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(this)
    }

    fn limit(&self, device: &Path, rate: u64) -> io::Result<()> {
        let number = fs::metadata(device)?.rdev();
        let (major, minor) = (number >> 8 & 0xfff, number & 0xff);
        if !self.is_v1 {
            let limits = format!("{major}:{minor} rbps={rate} wbps={rate}");
            return fs::write(self.path.join("io.max"), limits);
        }
        for side in ["read", "write"] {
            let file = self.path.join(format!("blkio.throttle.{side}_bps_device"));
            fs::write(file, format!("{major}:{minor} {rate}"))?;
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What is left of it shows below the controller's directory.
        let procs = Path::new(self.root).join("cgroup.procs");
        let _ = fs::write(procs, std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

/// The members of an array, every page touched.
pub struct Disks {
    pub members: Vec<PathBuf>,
    group: Option<Group>,
    dir: TempDir,
}

impl Disks {
    /// Files in memory, as fast as that is.
    pub fn in_memory(count: usize, mib: u64) -> io::Result<Self> {
        let dir = TempDir::with_prefix_in("lapstrake-bench-", "/dev/shm")?;
        let members: Vec<_> = (0..count).map(|i| dir.path().join(format!("m{i}"))).collect();
        for path in &members {
            let mut file = File::create(path)?;
            let block = vec![0u8; MIB as usize];
            (0..mib).try_for_each(|_| file.write_all(&block))?;
        }
        Ok(Self { members, group: None, dir })
    }

    /// Loop devices that give and take `rate` bytes a second each.
    pub fn limited(count: usize, mib: u64, rate: u64) -> io::Result<Self> {
        let mut disks = Self::in_memory(count, mib)?;
        let group = Group::enter()?;
        let files = std::mem::take(&mut disks.members);
        disks.group = Some(group);
        for file in files {
            let args = ["--find", "--show", "--direct-io=on"];
            let out = Command::new("losetup").args(args).arg(&file).output()?;
            if !out.status.success() {
                return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
            }
            let device = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
            disks.members.push(device.clone());
            disks.group.as_ref().map_or(Ok(()), |group| group.limit(&device, rate))?;
        }
        Ok(disks)
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for device in &self.members {
            let is_loop = fs::metadata(device).is_ok_and(|meta| meta.file_type().is_block_device());
            if is_loop {
                // What is left of it shows in `losetup`.
                let _ = Command::new("losetup").arg("--detach").arg(device).status();
            }
        }
    }
}
