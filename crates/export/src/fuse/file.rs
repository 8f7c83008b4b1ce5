//! The array as the only file of a file system: what it is, and how it is opened.

use super::Users;
use super::wire::{Attributes, Body};
use fuser::FopenFlags;
use lapstrake_host::ArraySize;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Seconds for which the kernel may believe what it was told: nothing but the time of the last write changes, and
/// rarely the size.
const BELIEVE_S: u64 = 1;
/// What stat(2) counts in, bytes.
const STAT_BLOCK: u32 = 512;
const ROOT_INODE: u64 = 1;

/// See the module.
pub(super) struct ArrayFile {
    size: ArraySize,
    pub(super) read_only: bool,
    owner: (u32, u32),
    /// Nanoseconds since 1970.
    began: u64,
    written: AtomicU64,
    users: Arc<Users>,
}

/// What becomes of fallocate(2).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Allocation {
    /// There is nothing to do.
    Done,
    Refused(i32),
    /// Zeroes up to this byte; the members may give the space back.
    Zeroes {
        end: u64,
        unmap: bool,
    },
}

impl ArrayFile {
    pub(super) fn new(size: ArraySize, read_only: bool, users: Arc<Users>) -> Self {
        // SAFETY: both only ask.
        let owner = unsafe { (libc::geteuid(), libc::getegid()) };
        let began = now();
        Self { size, read_only, owner, began, written: began.into(), users }
    }

    /// What it has now: the array's size may change.
    pub(super) fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    pub(super) fn touch(&self) {
        self.written.store(now(), Ordering::Relaxed);
    }

    fn permissions(&self) -> u32 {
        if self.read_only { 0o400 } else { 0o600 }
    }

    pub(super) fn attributes(&self) -> Body {
        Body::attributes(&Attributes {
            valid: BELIEVE_S,
            inode: ROOT_INODE,
            bytes: self.bytes(),
            blocks: self.bytes() / u64::from(STAT_BLOCK),
            accessed: self.began,
            changed: self.written.load(Ordering::Relaxed),
            mode: libc::S_IFREG | self.permissions(),
            owner: self.owner,
            block: 4096,
        })
    }

    /// As with a block device, opening it with O_TRUNC changes nothing; a size of its own choice
    /// the array cannot take.
    pub(super) fn keeps(
        &self,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
    ) -> bool {
        mode.is_none_or(|mode| mode & 0o7777 == self.permissions())
            && uid.is_none_or(|uid| uid == self.owner.0)
            && gid.is_none_or(|gid| gid == self.owner.1)
            && size.is_none_or(|size| size == 0 || size == self.bytes())
    }

    /// Nothing but mapped pages is cached in the kernel: other clients may write to the array, and every
    /// byte would be in memory twice.
    pub(super) fn open(&self) -> Body {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        self.users.come();
        Body::opened(flags.bits())
    }

    pub(super) fn release(&self) {
        self.users.go();
    }

    /// Both ways to zero a range must leave zeroes: a loop device passes its write-zeroes on as a
    /// hole, so that a hole that kept old bytes would corrupt what is on it.
    pub(super) fn allocation(&self, offset: u64, len: u64, mode: i32) -> Allocation {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let end = offset.saturating_add(len).min(self.bytes());
        let beyond = offset.saturating_add(len) > self.bytes();
        let unmap = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            _ if self.read_only => return Allocation::Refused(libc::EROFS),
            // All of an array is allocated.
            0 if beyond && !keep_size => return Allocation::Refused(libc::ENOSPC),
            0 => return Allocation::Done,
            libc::FALLOC_FL_PUNCH_HOLE => true,
            libc::FALLOC_FL_ZERO_RANGE if beyond && !keep_size => {
                return Allocation::Refused(libc::ENOSPC);
            }
            libc::FALLOC_FL_ZERO_RANGE => false,
            _ => return Allocation::Refused(libc::EOPNOTSUPP),
        };
        if offset < end { Allocation::Zeroes { end, unmap } } else { Allocation::Done }
    }

    pub(super) fn statfs(&self) -> Body {
        Body::statfs(self.bytes() / u64::from(STAT_BLOCK), STAT_BLOCK)
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
