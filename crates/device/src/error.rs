//! Errors of this crate, sorted by who must act: what the user wrote, what the machine holds or
//! refuses. I/O errors of running operations are no `Err`: they arrive as negative results of a
//! [`crate::Completion`].

use std::io;
use std::path::PathBuf;

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
    #[error("{text:?} is not a size (digits, then K, M, G or T for powers of 1024)")]
    Size {
        /// What was given.
        text: String,
    },
    /// The size does not fit in 63 bits.
    #[error("size {text:?} is too large")]
    TooLarge {
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
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The member's path.
        path: PathBuf,
        /// What was tried, as a verb with its object.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: is {found}, not a file or block device", path.display())]
    Kind {
        /// The member's path.
        path: PathBuf,
        /// What it is instead.
        found: &'static str,
    },
    /// The window begins or ends beyond the end.
    #[error("{}: window {offset}+{size} does not fit: {available} bytes are there", path.display())]
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
    /// The window's start is not a multiple of the block size.
    #[error("{}: window start {offset} is not a multiple of {block_size}", path.display())]
    Unaligned {
        /// The member's path.
        path: PathBuf,
        /// Window start in bytes.
        offset: u64,
        /// The multiple demanded, in bytes.
        block_size: u32,
    },
    /// Somebody else uses the file, device or window.
    #[error("{}: in use{}", path.display(), by(holders))]
    Busy {
        /// The member's path.
        path: PathBuf,
        /// Who, as far as it can be known: a mount point, a device, a process.
        holders: Vec<String>,
    },
}

fn by(holders: &[String]) -> String {
    if holders.is_empty() { String::new() } else { format!(" by {}", holders.join(", ")) }
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
    #[error("LAPSTRAKE_BACKEND={0:?}: known are auto, uring and threads")]
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
