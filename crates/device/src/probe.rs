//! What the system says of an open file or block device.

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A device number, as in `/sys/dev/block/MAJOR:MINOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DevNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DevNumber {
    pub(crate) fn of(dev: u64) -> Self {
        Self { major: libc::major(dev), minor: libc::minor(dev) }
    }

    pub(crate) fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }
}

/// Length of a block device in bytes.
pub(crate) fn block_device_len(fd: BorrowedFd<'_>) -> io::Result<u64> {
    /// `_IOR(0x12, 114, size_t)` of linux/fs.h.
    const BLKGETSIZE64: u32 = 0x8000_1272 | ((size_of::<usize>() as u32) << 16);
    let mut len = 0u64;
    // SAFETY: the ioctl writes 8 bytes.
    if unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as libc::Ioctl, &raw mut len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(len)
}

/// Logical block size of a block device in bytes.
pub(crate) fn block_device_block_size(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut size: libc::c_int = 0;
    // SAFETY: the ioctl writes an int.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::BLKSSZGET, &raw mut size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(size).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether a block device refuses writes, though it may be opened for them.
pub(crate) fn block_device_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    /// `BLKROGET` of linux/fs.h.
    const BLKROGET: libc::Ioctl = 0x125e;
    let mut read_only: libc::c_int = 0;
    // SAFETY: the ioctl writes an int.
    if unsafe { libc::ioctl(fd.as_raw_fd(), BLKROGET, &raw mut read_only) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(read_only != 0)
}

/// What O_DIRECT demands of memory and of offsets and lengths, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectAlign {
    pub(crate) memory: u32,
    pub(crate) offset: u32,
}

/// `None` where the system does not say (before 6.1, or a file system that has not learned to).
pub(crate) fn direct_align(fd: BorrowedFd<'_>) -> Option<DirectAlign> {
    const STATX_DIOALIGN: u32 = 0x2000;
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor; the result is written to `stat`.
    let failed = unsafe {
        let flags = libc::AT_EMPTY_PATH;
        libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, STATX_DIOALIGN, stat.as_mut_ptr())
    } != 0;
    // SAFETY: zeroed before, all fields are integers.
    let stat = unsafe { stat.assume_init() };
    if failed || stat.stx_mask & STATX_DIOALIGN == 0 || stat.stx_dio_offset_align == 0 {
        return None;
    }
    Some(DirectAlign { memory: stat.stx_dio_mem_align.max(1), offset: stat.stx_dio_offset_align })
}

/// Length of a file in bytes, as far as this machine knows it: nobody else is asked, and nothing waits.
pub(crate) fn file_len(fd: BorrowedFd<'_>) -> Option<u64> {
    as_known(fd, libc::STATX_SIZE).map(|stat| stat.stx_size)
}

/// Names that a file still has.
pub(crate) fn link_count(fd: BorrowedFd<'_>) -> Option<u32> {
    as_known(fd, libc::STATX_NLINK).map(|stat| stat.stx_nlink)
}

/// One field of what the system knows of a file, without asking a server for it.
fn as_known(fd: BorrowedFd<'_>, field: libc::c_uint) -> Option<libc::statx> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor; the result is written to `stat`.
    let failed =
        unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, field, stat.as_mut_ptr()) } != 0;
    // SAFETY: zeroed before, all fields are integers.
    let stat = unsafe { stat.assume_init() };
    (!failed && stat.stx_mask & field != 0).then_some(stat)
}

/// Whether the file system keeps its files in memory (tmpfs, ramfs), where O_DIRECT and io_uring have
/// nothing to give.
#[must_use]
pub fn in_memory_fs(fd: BorrowedFd<'_>) -> bool {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the result is written to `stat`.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: written by the call.
    let kind = unsafe { stat.assume_init() }.f_type as u64;
    kind == libc::TMPFS_MAGIC as u64 || kind == RAMFS_MAGIC
}

/// Whether the disk beneath rotates; `false` where nothing is known.
pub(crate) fn rotational(dev: DevNumber) -> bool {
    let dir = dev.sysfs();
    // A partition has no queue of its own: its disk is the directory above.
    let read = |path: &str| fs::read_to_string(dir.join(path)).ok();
    read("queue/rotational")
        .or_else(|| read("../queue/rotational"))
        .is_some_and(|s| s.trim() == "1")
}

/// Whether the kernel has read a partition table on it.
pub(crate) fn has_partitions(dev: DevNumber) -> bool {
    let Ok(entries) = fs::read_dir(dev.sysfs()) else { return false };
    entries.flatten().any(|entry| entry.path().join("partition").exists())
}

/// The device and inode of a path, for comparing files.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a NUL-terminated path; the result is written to `stat`.
    if unsafe { libc::stat(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written by the call.
    let stat = unsafe { stat.assume_init() };
    Some((stat.st_dev, stat.st_ino))
}
