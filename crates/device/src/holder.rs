//! Who uses a file or block device: for error messages, so everything here is best effort. What cannot
//! be read (another user's processes, no /proc, no /sys) is left out.

use crate::probe::{DevNumber, identity};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Loop devices on files on loop devices, at most.
const LOOPS_MAX: usize = 16;

/// The processes that hold a lock on the open file's inode, of those that `counts` says, by their line in fdinfo.
pub(crate) fn lockers(fd: BorrowedFd<'_>, counts: impl Fn(&str) -> bool) -> Vec<String> {
    // The kernel names no process for these locks (F_OFD_GETLK answers pid -1); fdinfo of the process
    // that has the locked description open does list them.
    let Ok(own) = fs::metadata(format!("/proc/self/fd/{}", fd.as_raw_fd())) else {
        return Vec::new();
    };
    // Every file of some FUSE servers has one number. To ask one which it is would be to wait for its server.
    let inode = match superblock(fd) {
        Some(DevNumber { major, minor }) => format!(" {major:02x}:{minor:02x}:{} ", own.ino()),
        None => format!(":{} ", own.ino()),
    };
    let locked = |info: &str| {
        info.lines().any(|l| l.starts_with("lock:") && l.contains(&inode) && counts(l))
    };
    processes(|pid, number| {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"));
        info.is_ok_and(|info| locked(&info)) && same_file(pid, number, &own)
    })
}

/// The device of the open file's superblock, as locks and mounts have it; in a btrfs files have another.
fn superblock(fd: BorrowedFd<'_>) -> Option<DevNumber> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = fields.into_iter().find(|fields| fields.first() == Some(&mount))?;
    parse_dev(ours.get(2)?)
}

/// Whether a lock is for writing, of any of `len` bytes at `start` (0: to the end of all files), by its line in fdinfo
/// (proc_pid_fdinfo(5)): `lock: 1: OFDLCK ADVISORY WRITE -1 08:01:77 0 EOF`, the last byte included.
pub(crate) fn writes(line: &str, start: u64, len: u64) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [.., "WRITE", _, _, first, last] = fields[..] else { return false };
    let last = last.parse().unwrap_or(u64::MAX);
    let ends_before = len > 0 && first.parse().is_ok_and(|first: u64| first >= start + len);
    last >= start && !ends_before
}

fn same_file(pid: u32, number: &str, own: &fs::Metadata) -> bool {
    let other = fs::metadata(format!("/proc/{pid}/fd/{number}"));
    other.is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
}

/// Mount points, swap, stacked devices, and failing these the processes that have the device open.
pub(crate) fn block_device(dev: DevNumber, rdev: u64) -> Vec<String> {
    let mut found = Vec::new();
    for (name, dev) in with_partitions(dev) {
        found.extend(mounts(dev).into_iter().map(|at| format!("the file system mounted on {at}")));
        found.extend(stacked(dev).into_iter().map(|by| format!("/dev/{by}")));
        found.extend(swap(&name).map(|()| format!("swap on /dev/{name}")));
    }
    if found.is_empty() {
        found = processes(|pid, number| {
            let file = fs::metadata(format!("/proc/{pid}/fd/{number}"));
            pid != std::process::id() && file.is_ok_and(|file| file.rdev() == rdev)
        });
    }
    found
}

/// The device and, if it is a disk, its partitions: a claim on one keeps the other from being claimed.
fn with_partitions(dev: DevNumber) -> Vec<(String, DevNumber)> {
    let Ok(dir) = fs::canonicalize(dev.sysfs()) else { return vec![(String::new(), dev)] };
    let name = |dir: &Path| dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = vec![(name(&dir), dev)];
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join("partition").exists()
            && let Some(dev) = read_dev(&path.join("dev"))
        {
            found.push((name(&path), dev));
        }
    }
    if dir.join("partition").exists()
        && let Some(disk) = dir.parent()
        && let Some(dev) = read_dev(&disk.join("dev"))
    {
        found.push((name(disk), dev));
    }
    found
}

fn read_dev(path: &Path) -> Option<DevNumber> {
    parse_dev(fs::read_to_string(path).ok()?.trim())
}

/// `major:minor`, in decimal.
fn parse_dev(text: &str) -> Option<DevNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DevNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn mounts(dev: DevNumber) -> Vec<String> {
    let number = format!("{}:{}", dev.major, dev.minor);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Fields (proc(5)): mount id, parent id, major:minor, root, mount point, ...
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields.get(2) == Some(&number.as_str()));
    let at = |fields: Vec<&str>| Some(unescape(fields.get(4)?).display().to_string());
    ours.filter_map(at).collect()
}

fn stacked(dev: DevNumber) -> Vec<String> {
    let entries = fs::read_dir(dev.sysfs().join("holders"));
    let names = entries.into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn swap(name: &str) -> Option<()> {
    let table = fs::read_to_string("/proc/swaps").ok()?;
    let path = format!("/dev/{name}");
    table.lines().any(|line| line.split_whitespace().next() == Some(path.as_str())).then_some(())
}

/// The loop devices whose backing file is this one: of this path, or this inode of this device.
pub(crate) fn loop_devices(path: &Path, id: (u64, u64)) -> Vec<String> {
    let own = fs::canonicalize(path).ok();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = Path::new(backing.trim_end_matches('\n'));
        // Asked of our own file system only: another may be served by a process that does not answer,
        // and so could we wait for ourselves.
        let near = || mounted(&table, backing) == Some(DevNumber::of(id.0));
        if Some(backing) == own.as_deref() || (near() && identity(backing) == Some(id)) {
            found.push(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// Whether a file or device lies on another file or block device: through loop devices, and file systems on them.
#[must_use]
pub fn lies_on(path: &Path, file: &Path) -> bool {
    // As the kernel names what a loop device lies on.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.into());
    let own = fs::metadata(&file).ok().filter(|meta| meta.file_type().is_block_device());
    let own = own.map(|meta| DevNumber::of(meta.rdev()));
    let mut path = path.to_owned();
    for _ in 0..LOOPS_MAX {
        let Ok(meta) = fs::metadata(&path) else { return false };
        let is_block = meta.file_type().is_block_device();
        let dev = DevNumber::of(if is_block { meta.rdev() } else { meta.dev() });
        match loop_backing(dev) {
            _ if own.is_some_and(|own| dev == own || is_partition(dev, own)) => return true,
            Some((backing, _)) if backing == file => return true,
            Some((backing, _)) => path = backing,
            None => return false,
        }
    }
    false
}

fn is_partition(dev: DevNumber, whole: DevNumber) -> bool {
    let above = fs::canonicalize(dev.sysfs()).ok().filter(|dir| dir.join("partition").exists());
    let number = above.and_then(|dir| fs::read_to_string(dir.parent()?.join("dev")).ok());
    number.is_some_and(|text| parse_dev(text.trim()) == Some(whole))
}

/// The file behind a loop device, or behind a partition of one, and the device's first byte in it.
pub(crate) fn loop_backing(dev: DevNumber) -> Option<(PathBuf, u64)> {
    let mut dir = fs::canonicalize(dev.sysfs()).ok()?;
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut first = 0;
    if dir.join("partition").exists() {
        first = number(dir.join("start"))? * 512;
        dir.pop();
    }
    let file = fs::read_to_string(dir.join("loop/backing_file")).ok()?;
    let file = PathBuf::from(file.trim_end_matches('\n'));
    let is_file = fs::metadata(&file).ok()?.is_file();
    is_file.then_some((file, first + number(dir.join("loop/offset"))?))
}

/// The device of the file system that a path leads to, from a table of mounts alone.
fn mounted(table: &str, path: &Path) -> Option<DevNumber> {
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mounts = fields.filter_map(|fields| Some((*fields.get(2)?, unescape(fields.get(4)?))));
    let above = mounts.filter(|(_, at)| path.starts_with(at));
    // Of two at one place the later one hides the other.
    let (dev, _) = above.max_by_key(|(_, at)| at.components().count())?;
    parse_dev(dev)
}

/// A path of the mount table: space, tab, newline and backslash are three octal digits there.
fn unescape(text: &str) -> PathBuf {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain)).into()
}

/// `"name (pid N)"` of the processes that have a descriptor for which `uses` holds.
fn processes(uses: impl Fn(u32, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let numbers = fs::read_dir(entry.path().join("fd"));
        let mut numbers = numbers.into_iter().flatten().flatten();
        if numbers.any(|number| uses(pid, &number.file_name().to_string_lossy())) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let ours = if pid == std::process::id() { ", this process itself" } else { "" };
            found.push(format!("{} (pid {pid}{ours})", name.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn locks_for_writing_are_told_by_their_bytes() {
        let line = |kind, range| format!("lock:\t1: OFDLCK ADVISORY  {kind} -1 08:01:77 {range}");
        let held = line("WRITE", "4096 8191");
        for (start, len, expected) in
            [(0, 4096, false), (0, 4097, true), (8191, 1, true), (8192, 0, false), (0, 0, true)]
        {
            assert_eq!(writes(&held, start, len), expected, "{len} at {start}");
        }
        assert!(writes(&line("WRITE", "4096 EOF"), 1 << 40, 1));
        assert!(!writes(&line("READ", "0 EOF"), 0, 0));
        assert!(!writes("lock:", 0, 0));
    }

    #[test]
    fn a_superblock_is_found_by_its_mount() {
        let file = fs::File::open("/proc/self/status").unwrap();
        let found = superblock(file.as_fd()).map(|dev| (dev.major, dev.minor));
        let dev = DevNumber::of(file.metadata().unwrap().dev());
        assert_eq!(found, Some((dev.major, dev.minor)));
    }

    #[test]
    fn the_innermost_and_latest_mount_counts() {
        let table = "1 0 8:1 / / rw - ext4 x rw\n\
                     2 1 0:30 / /tmp rw - tmpfs x rw\n\
                     3 2 0:31 / /tmp/a\\040b rw - fuse x rw\n\
                     4 2 0:32 / /tmp rw - tmpfs x rw\n";
        let dev = |path| mounted(table, Path::new(path)).map(|dev| (dev.major, dev.minor));
        assert_eq!(dev("/var/x"), Some((8, 1)));
        assert_eq!(dev("/tmp/x"), Some((0, 32)));
        assert_eq!(dev("/tmpx"), Some((8, 1)));
        assert_eq!(dev("/tmp/a b/c"), Some((0, 31)));
        assert_eq!(mounted("", Path::new("/x")), None);
        assert_eq!(mounted("? / :", Path::new("/x")), None);
    }
}
