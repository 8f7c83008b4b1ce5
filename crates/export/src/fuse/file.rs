//! What the kernel may ask of the file, and the answers.
//!
//! The mount's root is the file: there is no directory and no name. Contents go to
//! [`super::transfer`]; everything else is answered here, at once. What is not implemented says so
//! with ENOSYS, which the kernel remembers and does not ask for again (extended attributes, flush
//! at close, access).

use super::Users;
use super::memory::warm_heap;
use super::transfer::{Device, TRANSFER_MAX};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::{
    ffi::OsStr,
    io,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long the kernel may believe what it was told: nothing but the time of the last write
/// changes.
const BELIEVE: Duration = Duration::from_secs(1);
/// Requests that the kernel sends without waiting for the answers of earlier ones. What it sends
/// beyond our memory stays in its queue.
const BACKGROUND_MAX: u16 = 256;

/// What stat(2) counts in, bytes.
const STAT_BLOCK: u64 = 512;

/// The array as the only file of a file system.
pub(super) struct ArrayFile {
    device: Arc<Device>,
    read_only: bool,
    owner: (u32, u32),
    began: SystemTime,
    /// Nanoseconds since 1970.
    written_ns: AtomicU64,
    warm: Once,
    users: Arc<Users>,
}

impl ArrayFile {
    pub(super) fn new(device: Arc<Device>, read_only: bool, users: Arc<Users>) -> Self {
        let began = SystemTime::now();
        // SAFETY: both only ask.
        let owner = unsafe { (libc::geteuid(), libc::getegid()) };
        let written_ns = AtomicU64::new(nanos(began));
        Self { device, read_only, owner, began, written_ns, warm: Once::new(), users }
    }

    fn attributes(&self) -> FileAttr {
        let written = Duration::from_nanos(self.written_ns.load(Ordering::Relaxed));
        FileAttr {
            ino: INodeNo::ROOT,
            size: self.device.bytes,
            blocks: self.device.bytes / STAT_BLOCK,
            atime: self.began,
            mtime: UNIX_EPOCH + written,
            ctime: UNIX_EPOCH + written,
            crtime: self.began,
            kind: FileType::RegularFile,
            perm: if self.read_only { 0o400 } else { 0o600 },
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn touch(&self) {
        self.written_ns.store(nanos(SystemTime::now()), Ordering::Relaxed);
    }
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Filesystem for ArrayFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = || io::Error::other("the kernel's FUSE is too old");
        config.set_max_write(TRANSFER_MAX as u32).map_err(|_| refused())?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| refused())?;
        for wanted in [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP] {
            // An older kernel serves one direct request at a time, or no shared mapping.
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        // The mount is looked at before anybody can use it: on the thread that takes requests.
        self.warm.call_once(warm_heap);
        reply.attr(&BELIEVE, &self.attributes());
    }

    /// As with a block device, opening it with O_TRUNC changes nothing; a size of its own choice
    /// the array cannot take.
    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let now = self.attributes();
        let keeps = mode.is_none_or(|mode| mode & 0o7777 == u32::from(now.perm))
            && uid.is_none_or(|uid| uid == now.uid)
            && gid.is_none_or(|gid| gid == now.gid)
            && size.is_none_or(|size| size == 0 || size == now.size);
        if keeps { reply.attr(&BELIEVE, &now) } else { reply.error(Errno::EPERM) }
    }

    /// Nothing but mapped pages is cached in the kernel: other clients may write to the array, and every
    /// byte would be in memory twice.
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        self.users.come();
        reply.opened(FileHandle(0), flags);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.users.go();
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.device.read(offset, size.min(TRANSFER_MAX as u32), reply);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        self.touch();
        // O_SYNC contains O_DSYNC.
        let fua = flags.0 & libc::O_DSYNC != 0;
        self.device.write(offset, data, fua, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.device.flush(reply);
    }

    /// Both ways to zero a range must leave zeroes: a loop device passes its write-zeroes on as a
    /// hole, so that a hole that kept old bytes would corrupt what is on it.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let end = offset.saturating_add(length).min(self.device.bytes);
        let beyond = offset.saturating_add(length) > self.device.bytes;
        let unmap = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            _ if self.read_only => return reply.error(Errno::EROFS),
            // All of an array is allocated.
            0 if beyond && !keep_size => return reply.error(Errno::ENOSPC),
            0 => return reply.ok(),
            libc::FALLOC_FL_PUNCH_HOLE => true,
            libc::FALLOC_FL_ZERO_RANGE if beyond && !keep_size => {
                return reply.error(Errno::ENOSPC);
            }
            libc::FALLOC_FL_ZERO_RANGE => false,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if offset >= end {
            return reply.ok();
        }
        self.touch();
        self.device.zero(offset..end, unmap, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.device.bytes / STAT_BLOCK;
        reply.statfs(blocks, 0, 0, 1, 0, STAT_BLOCK as u32, 255, STAT_BLOCK as u32);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}
