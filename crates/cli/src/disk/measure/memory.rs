//! Files that are read without a disk: holes, and file systems in memory.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Why reads of a file of so many bytes do not come from a disk, as far as the system tells.
pub fn instead_of_disk(file: &File, bytes: u64) -> Option<String> {
    if is_in_memory(file) {
        return Some("it lies on a file system in memory".to_owned());
    }
    let hole = first_hole(file)?;
    (hole < bytes).then(|| format!("it is sparse, with nothing on the disk from byte {hole} on"))
}

/// Whether the file system keeps its files in memory (tmpfs, ramfs).
fn is_in_memory(file: &File) -> bool {
    const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the result is written to `stat`.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: written by the call.
    let kind = unsafe { stat.assume_init() }.f_type;
    // A block device's own file lies on devtmpfs; what it holds does not.
    let is_file = file.metadata().is_ok_and(|is| is.is_file());
    is_file && (kind == libc::TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// Where a file's first hole begins: its end, if it has none. None of a block device.
fn first_hole(file: &File) -> Option<u64> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    // SAFETY: a call without pointers; the file's position is not used afterwards.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    u64::try_from(hole).ok()
}
