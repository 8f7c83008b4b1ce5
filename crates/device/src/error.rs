//! Errors of this crate, sorted by who must act: what the user wrote, what the machine holds or
//! refuses. I/O errors of running operations are no `Err`: they arrive as negative results of a
//! [`crate::Completion`].

use crate::overlay::FormatError;
use lapstrake_partitions::PartitionError;
use std::io;
use std::path::{Path, PathBuf};

/// A member specification or a size that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No path before the `@`, or an empty string.
    #[error("no path in {text:?}")]
    NoPath {
        /// What was given.
        text: String,
    },
    /// A number with an optional suffix K, M, G or T was expected.
    #[error(
        "{text:?} is not a size (digits, then K, M, G or T for powers of 1024){}",
        likely.as_ref().map_or(String::new(), |size| format!("; did you mean {size}?"))
    )]
    Size {
        /// What was given.
        text: String,
        /// What was probably meant, as it is spelled here.
        likely: Option<String>,
    },
    /// The size does not fit in 63 bits.
    #[error("size {text:?} is too large")]
    TooLarge {
        /// What was given.
        text: String,
    },
    /// No partition's number.
    #[error("{text:?} is no partition's number (1 and above)")]
    Partition {
        /// What was given.
        text: String,
    },
    /// A window of no bytes.
    #[error("the window {text:?} is empty")]
    EmptyWindow {
        /// What was given.
        text: String,
    },
}

/// A member that cannot be opened; nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused an operation on the path.
    #[error("{}: cannot {action}: {source}{}", path.display(), next_step(source))]
    Io {
        /// The member's path.
        path: PathBuf,
        /// What was tried, as a verb with its object.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A block device that refuses writes.
    #[error("{}: the device is read-only: read it with --read-only, or write to an --overlay", path.display())]
    ReadOnly {
        /// The member's path.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: is {found}, not a file or block device", path.display())]
    Kind {
        /// The member's path.
        path: PathBuf,
        /// What it is instead.
        found: &'static str,
    },
    /// There is no such partition.
    #[error(
        "{}#{number}: {source}; `lapstrake scan {}` lists what there is, and PATH@OFFSET+SIZE names a place without a \
         table", path.display(), crate::quoted_path(path)
    )]
    Partition {
        /// The file or device.
        path: PathBuf,
        /// The partition's number.
        number: u32,
        /// Why it cannot be had.
        source: PartitionError,
    },
    /// The file or device ends before the partition does.
    #[error(
        "{0}#{number}: the partition lies at bytes {start} to {end}, and {0} ends at byte {available}: {1}",
        path.display(), rest_of_partition(path, *start, *available)
    )]
    PartitionCut {
        /// The file or device.
        path: PathBuf,
        /// The partition's number.
        number: u32,
        /// Its first byte.
        start: u64,
        /// The byte behind its last one.
        end: u64,
        /// Length of the file or device in bytes.
        available: u64,
    },
    /// The window ends beyond the end.
    #[error(
        "{}: window {offset}+{size} does not fit: {available} bytes are there; give an offset and a size within them",
        path.display()
    )]
    Window {
        /// The member's path.
        path: PathBuf,
        /// Window start in bytes.
        offset: u64,
        /// Window length in bytes.
        size: u64,
        /// Length of the file or device in bytes.
        available: u64,
    },
    /// The window begins at the end or beyond it.
    #[error(
        "{}: the window begins at byte {offset}, and the end of the file or device is byte {available}: nothing is \
         in it; give an offset before that",
        path.display()
    )]
    Beyond {
        /// The member's path.
        path: PathBuf,
        /// Window start in bytes.
        offset: u64,
        /// Length of the file or device in bytes.
        available: u64,
    },
    /// The window's start is not a multiple of the block size.
    #[error(
        "{0}@{offset}: the window has to begin at a multiple of {block_size}, as {0}@{1} does", path.display(),
        offset - offset % u64::from(*block_size)
    )]
    Unaligned {
        /// The member's path.
        path: PathBuf,
        /// Window start in bytes.
        offset: u64,
        /// The multiple demanded, in bytes.
        block_size: u32,
    },
    /// Somebody else uses the file, device or window.
    #[error(
        "{}: in use{}; stop, unmount or detach what uses it, then try again", path.display(), by(holders)
    )]
    Busy {
        /// The member's path.
        path: PathBuf,
        /// Who, as far as it can be known: a mount point, a device, a process.
        holders: Vec<String>,
    },
}

/// What of a partition the file or device still has; nothing is proposed where that is no byte.
fn rest_of_partition(path: &Path, start: u64, available: u64) -> String {
    let path = path.display();
    match available.saturating_sub(start) {
        0 => format!("nothing of it is there; take a whole copy of {path}"),
        rest => format!("it is cut short; {path}@{start}+{rest} is what is there of it"),
    }
}

fn by(holders: &[String]) -> String {
    if holders.is_empty() { String::new() } else { format!(" by {}", holders.join(", ")) }
}

/// What to do where this user has no rights.
fn next_step(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        // Whoever it is who asks.
        io::ErrorKind::PermissionDenied if refusal.raw_os_error() == Some(libc::EPERM) => {
            "; it may be immutable or open for appending only (`lsattr` shows it, `chattr -i -a` ends it), or this \
             container or service may not use such devices"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount its filesystem writable (an array can be served without writing to it: --read-only, or --overlay)"
        }
        io::ErrorKind::PermissionDenied => {
            "; run this as a user who may (`ls -l` shows its owner and group), or have access granted \
             with chown, chmod or membership of the group"
        }
        // The latter when the server dies while it is being asked.
        io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted => {
            " (the mount of a server that died; `fusermount3 -u` or umount removes it)"
        }
        _ => "",
    }
}

/// What to do, as the end of a sentence, where a file can be neither made nor opened for writing.
#[must_use]
pub fn next_place(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::NotFound => "; make its directory first",
        io::ErrorKind::IsADirectory => "; name a file",
        _ => next_step(refusal),
    }
}

/// An overlay file that cannot be used. It was not changed, and the members never are.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The system refused an operation on the file.
    #[error("overlay {}: cannot {action}: {source}{}", path.display(), next_place(source))]
    Io {
        /// The overlay's path.
        path: PathBuf,
        /// What was tried, as a verb with its object.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No regular file.
    #[error(
        "overlay {}: not a regular file; name one that is an overlay, or that does not exist yet",
        path.display()
    )]
    Kind {
        /// The overlay's path.
        path: PathBuf,
    },
    /// One of the members that are not to be written.
    #[error("overlay {}: is the member {member}; name a file that does not exist yet", path.display())]
    IsMember {
        /// The overlay's path.
        path: PathBuf,
        /// The member.
        member: String,
    },
    /// Somebody else uses it.
    #[error(
        "overlay {}: in use{}; stop what uses it, or choose another file", path.display(), by(holders)
    )]
    Busy {
        /// The overlay's path.
        path: PathBuf,
        /// Who, as far as it can be known.
        holders: Vec<String>,
    },
    /// Something else, or damaged.
    #[error("overlay {}: {error}; for a new overlay name a file that does not exist yet", path.display())]
    Format {
        /// The overlay's path.
        path: PathBuf,
        /// What is wrong with it.
        error: FormatError,
    },
    /// Made over other members.
    #[error(
        "overlay {}: was made over other members, {member} is none of them; name a file that does not exist yet",
        path.display()
    )]
    Foreign {
        /// The overlay's path.
        path: PathBuf,
        /// The member that it does not know.
        member: String,
    },
    /// Made over more members than are here.
    #[error(
        "overlay {}: was made over {bases} files (members, and the bitmap's if it has one), {absent} of them not given now",
        path.display()
    )]
    Absent {
        /// The overlay's path.
        path: PathBuf,
        /// Members that it was made over.
        bases: usize,
        /// Members of these that are not here.
        absent: usize,
    },
    /// A member's size is another.
    #[error(
        "overlay {}: was made when {member} had {expected} bytes, and it has {found} now",
        path.display()
    )]
    Resized {
        /// The overlay's path.
        path: PathBuf,
        /// The member.
        member: String,
        /// Bytes now.
        found: u64,
        /// Bytes then.
        expected: u64,
    },
    /// A member was written behind the overlay's back.
    #[error(
        "overlay {}: {member} was written to since the overlay was made, so that they do not fit \
         together any more; for a new overlay name a file that does not exist yet",
        path.display()
    )]
    Changed {
        /// The overlay's path.
        path: PathBuf,
        /// The member.
        member: String,
    },
}

/// A queue that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// io_uring was demanded and is not to be had.
    #[error("io_uring is not available: {reason}")]
    NoIoUring {
        /// The system's reason, in words.
        reason: String,
    },
    /// An event counter could not be made.
    #[error("cannot make an eventfd: {0}")]
    EventFd(io::Error),
    /// The environment variable that picks the back end holds an unknown word.
    #[error(
        "LAPSTRAKE_BACKEND={0:?} is set in the environment: unset it, or set it to auto, uring or threads"
    )]
    BackendName(String),
}

/// A fault specification that cannot be understood; see [`crate::fault`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// An entry is not `key=value` or a known flag.
    #[error("fault {rule:?}: unknown word {word:?}")]
    Word {
        /// The whole rule.
        rule: String,
        /// The word at fault.
        word: String,
    },
    /// A value that its key does not take.
    #[error("fault {rule:?}: {key} does not take {value:?}")]
    Value {
        /// The whole rule.
        rule: String,
        /// The key.
        key: &'static str,
        /// The value at fault.
        value: String,
    },
    /// The rule names no effect (errno, torn, delay or vanish).
    #[error("fault {rule:?}: no effect named (errno, torn, delay or vanish)")]
    NoEffect {
        /// The whole rule.
        rule: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_is_proposed_of_a_partition_that_is_not_there() {
        let told = |available| {
            let path = "disk".into();
            OpenError::PartitionCut { path, number: 2, start: 1 << 20, end: 3 << 20, available }
                .to_string()
        };
        assert!(told(2 << 20).ends_with("disk@1048576+1048576 is what is there of it"));
        for available in [0, 1 << 19, 1 << 20] {
            let told = told(available);
            assert!(told.contains("nothing of it is there") && !told.contains('@'), "{told}");
        }
    }

    #[test]
    fn who_is_refused_is_told_what_to_do() {
        let refused = |errno: i32| {
            let source = io::Error::from_raw_os_error(errno);
            OpenError::Io { path: "m0".into(), action: "open it", source }.to_string()
        };
        assert!(refused(libc::EACCES).contains("run this as a user who may"));
        assert!(refused(libc::EPERM).contains("`chattr -i -a` ends it"));
        assert!(!refused(libc::EPERM).contains("run this as"));
        assert!(!refused(libc::ENOENT).contains("run this as"));
        assert!(refused(libc::EROFS).contains("--read-only"));
        assert!(refused(libc::ENOTCONN).contains("`fusermount3 -u` or umount"));
    }
}
