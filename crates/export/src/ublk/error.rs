//! Why there is no device, or why it did not end well.

use std::{io, path::PathBuf};
use thiserror::Error;

/// See the module.
#[derive(Debug, Error)]
pub enum UblkError {
    /// Commands cannot be given.
    #[error("/dev/ublk-control: {source}{}", control_hint(source))]
    Control {
        /// The system's answer.
        source: io::Error,
    },
    /// There is no io_uring with long entries.
    #[error(
        "ublk needs io_uring, which is refused here: {0}; kernel.io_uring_disabled or a seccomp filter may be why; \
             --nbd and --fuse do without"
    )]
    Ring(io::Error),
    /// It does not say what it can do.
    #[error("the kernel's ublk is too old (before Linux 6.5): {0}; --nbd and --fuse do without")]
    TooOld(io::Error),
    /// A device is refused.
    #[error("cannot add {}: {source}{}", named(*number), add_hint(source))]
    Add {
        /// The number that was asked for.
        number: Option<u32>,
        /// The driver's answer.
        source: io::Error,
    },
    /// What a dead server of this array has left cannot be taken over, nor taken away.
    #[error(
        "{path}: left by a server of this array that died, and cannot be taken over: {source}; nothing was changed"
    )]
    LeftBehind {
        /// Its character device.
        path: String,
        /// The driver's answer.
        source: io::Error,
    },
    /// Shards do without io_uring.
    #[error(
        "ublk needs io_uring, and the array is served by threads; leave --backend and LAPSTRAKE_BACKEND out, or say \
             --nbd or --fuse"
    )]
    Threads,
    /// The character device cannot be opened, or its memory not be shared.
    #[error("{path}: {source}; nothing was served by it. udev gives it to who may use it")]
    Character {
        /// Its path.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A command was refused.
    #[error("{}: the kernel refuses {code}: {source}", path.display())]
    Command {
        /// The block device.
        path: PathBuf,
        /// Its name in the driver's header.
        code: String,
        /// The driver's answer.
        source: io::Error,
    },
    /// A queue's commands were refused.
    #[error("the kernel refuses what a queue needs: {0}")]
    Queue(io::Error),
    /// A thread was refused.
    #[error("the system refused a thread: {0}")]
    Thread(io::Error),
    /// It was taken away under its users.
    #[error(
        "{}: taken away, but somebody has it open still (a file system, a loop device?): what the kernel had not written \
         {}, and what they read or write from now on fails",
        path.display(),
        if *is_written { "was written before" } else { "is lost" }
    )]
    InUse {
        /// Where it was.
        path: PathBuf,
        /// What the kernel held for it was written before.
        is_written: bool,
    },
}

fn named(number: Option<u32>) -> String {
    number.map_or("a ublk device".into(), |number| format!("/dev/ublkb{number}"))
}

fn control_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "; this kernel has no ublk, or its module is not loaded: `modprobe ublk_drv`"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "; run as root (CAP_SYS_ADMIN), or have udev give it to users, for unprivileged devices"
        }
        _ => "",
    }
}

fn add_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EEXIST) => "; that number is in use: say another, or none",
        Some(libc::EPERM) => {
            "; it needs CAP_SYS_ADMIN here, since the kernel has no unprivileged devices"
        }
        Some(libc::EACCES) => {
            "; there are as many unprivileged devices as may be (ublk_drv's ublks_max)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let told =
            |errno| UblkError::Control { source: io::Error::from_raw_os_error(errno) }.to_string();
        assert!(told(libc::ENOENT).ends_with("`modprobe ublk_drv`"), "{}", told(libc::ENOENT));
        assert!(told(libc::EACCES).contains("CAP_SYS_ADMIN"), "{}", told(libc::EACCES));
        let source = io::Error::from_raw_os_error(libc::EEXIST);
        let add = UblkError::Add { number: Some(3), source }.to_string();
        assert!(add.starts_with("cannot add /dev/ublkb3: ") && add.ends_with("or none"), "{add}");
    }
}
