//! Files that are read without a disk: holes, and file systems in memory.

use lapstrake_device::in_memory_fs;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

/// Why reads of a file of so many bytes do not come from a disk, as far as the system tells.
pub fn instead_of_disk(file: &File, bytes: u64) -> Option<String> {
    // A block device's own file lies on devtmpfs; what it holds does not.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    if in_memory_fs(file.as_fd()) {
        return Some("it lies on a file system in memory".to_owned());
    }
    let hole = first_hole(file)?;
    (hole < bytes).then(|| format!("it has a hole at byte {hole}"))
}

/// Where a file's first hole begins: its end, if it has none.
fn first_hole(file: &File) -> Option<u64> {
    // SAFETY: a call without pointers; the file's position is not used afterwards.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    u64::try_from(hole).ok()
}
