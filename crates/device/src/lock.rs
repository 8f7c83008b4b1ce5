//! Keeping a member to one user.
//!
//! - A file (or window) is locked by an open-file-description lock over its bytes: for reading shared, for
//!   writing exclusive. Disjoint windows of one file do not disturb each other. Such locks also hold
//!   between two opens of one process, and end with the descriptor.
//! - A block device is claimed from the kernel by `O_EXCL`, which refuses when a file system, md, a device
//!   mapper or another such claim has it. The claim is one per device and process, shared by its
//!   windows; their bytes are told apart by locks as above. A read-only member only tries whether the
//!   claim is to be had, so that several readers may share a device, and holds the shared lock.
//! - A file behind a loop device is in use by that device's users, which no lock shows. A loop device that
//!   is a member locks its bytes of the file behind it, so that neither the file nor another loop device on
//!   it becomes a member too.
//! - A program that is being started holds copies of all descriptors, and so the locks, between its fork and
//!   its exec. So a lock is asked for a while before its holder is believed.

use crate::error::OpenError;
use crate::holder;
use crate::member::Access;
use crate::probe::DevNumber;
use crate::raw::errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Five milliseconds apart.
const LOCK_TRIES: u32 = 40;

/// A block device held by `O_EXCL`; ends when the last member on the device is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _fd: OwnedFd,
}

static CLAIMS: Mutex<Option<HashMap<u64, Weak<Claim>>>> = Mutex::new(None);

/// Opens a path close-on-exec; `flags` in addition.
pub(crate) fn open_raw(path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    loop {
        // SAFETY: a NUL-terminated path.
        let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and ours.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        if errno() != libc::EINTR {
            return Err(io::Error::last_os_error());
        }
    }
}

/// Locks `len` bytes at `start` (0: to the end of all files). False: nobody can lock anything there.
///
/// # Errors
/// [`OpenError::Busy`] names who holds it, as far as can be known.
pub(crate) fn lock_range(
    fd: BorrowedFd<'_>,
    path: &Path,
    access: Access,
    start: u64,
    len: u64,
) -> Result<bool, OpenError> {
    let kind = match access {
        Access::ReadOnly => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    let refused =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
    let mut asked = set_lock(fd.as_raw_fd(), kind as i16, start, len);
    for _ in 0..LOCK_TRIES {
        if !asked.as_ref().is_err_and(refused) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        asked = set_lock(fd.as_raw_fd(), kind as i16, start, len);
    }
    match asked {
        Ok(()) => Ok(true),
        Err(e) if refused(&e) => {
            Err(OpenError::Busy { path: path.into(), holders: holder::lockers(fd, |_| true) })
        }
        // NFS without a lock daemon and the like: no lock is to be had by anyone.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOLCK | libc::EINVAL)) => Ok(false),
        Err(source) => Err(OpenError::Io { path: path.into(), action: "lock it", source }),
    }
}

fn set_lock(fd: RawFd, kind: i16, start: u64, len: u64) -> io::Result<()> {
    let lock = description(kind, start, len);
    // SAFETY: the description outlives the call.
    match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn description(kind: i16, start: u64, len: u64) -> libc::flock {
    // SAFETY: all-zero is a valid lock description.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start as i64;
    lock.l_len = len as i64;
    lock
}

/// Who holds the lock for writing on any of these bytes (0: to the end of all files), as far as can be known; none if
/// nobody does, or it cannot be asked. Nothing is locked, and the first answer is believed.
pub(crate) fn writers(fd: BorrowedFd<'_>, start: u64, len: u64) -> Option<Vec<String>> {
    let mut lock = description(libc::F_RDLCK as i16, start, len);
    // SAFETY: the description outlives the call, which fills it in.
    let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    let is_held = asked == 0 && lock.l_type != libc::F_UNLCK as i16;
    is_held.then(|| holder::lockers(fd, |line| holder::writes(line, start, len)))
}

/// Claims a block device from the kernel; see the module.
///
/// # Errors
/// [`OpenError::Busy`] names who has it, as far as can be known.
pub(crate) fn claim(
    path: &Path,
    rdev: u64,
    access: Access,
) -> Result<Option<Arc<Claim>>, OpenError> {
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    let claims = claims.get_or_insert_default();
    if let Some(claim) = claims.get(&rdev).and_then(Weak::upgrade) {
        // Ours already: the locks on the windows decide.
        return Ok(Some(claim));
    }
    let fd = open_exclusive(path, rdev)?;
    if access == Access::ReadOnly {
        return Ok(None);
    }
    let claim = Arc::new(Claim { _fd: fd });
    claims.insert(rdev, Arc::downgrade(&claim));
    Ok(Some(claim))
}

fn open_exclusive(path: &Path, rdev: u64) -> Result<OwnedFd, OpenError> {
    // Another reader may be trying the claim this very moment: it lets go within microseconds.
    const TRIES: u32 = 5;
    for tried in 1.. {
        match open_raw(path, libc::O_RDONLY | libc::O_EXCL) {
            Ok(fd) => return Ok(fd),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                let holders = holder::block_device(DevNumber::of(rdev), rdev);
                if !holders.is_empty() || tried == TRIES {
                    return Err(OpenError::Busy { path: path.into(), holders });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(source) => {
                return Err(OpenError::Io { path: path.into(), action: "claim it", source });
            }
        }
    }
    unreachable!("the loop ends by returning")
}

/// Locks the bytes of the file behind a loop device, or behind a partition of one, that a window of the
/// device is; none if it is no such device, or the file cannot be reached from here.
///
/// # Errors
/// As [`lock_range`].
pub(crate) fn lock_backing(
    path: &Path,
    dev: DevNumber,
    access: Access,
    start: u64,
    len: u64,
) -> Result<Option<OwnedFd>, OpenError> {
    let Some((file, offset)) = holder::loop_backing(dev) else { return Ok(None) };
    let flags = match access {
        Access::ReadOnly => libc::O_RDONLY,
        Access::ReadWrite => libc::O_RDWR,
    };
    let Ok(fd) = open_raw(&file, flags | libc::O_NONBLOCK) else { return Ok(None) };
    lock_range(fd.as_fd(), path, access, offset + start, len)?;
    Ok(Some(fd))
}

/// Refuses a file that is the backing of a loop device.
///
/// # Errors
/// [`OpenError::Busy`] names the loop device.
pub(crate) fn refuse_loop_backing(path: &Path, id: (u64, u64)) -> Result<(), OpenError> {
    let holders = holder::loop_devices(path, id);
    if holders.is_empty() { Ok(()) } else { Err(OpenError::Busy { path: path.into(), holders }) }
}
