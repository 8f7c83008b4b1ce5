//! A member: an open file or block device, a window of one, memory, a reader, or a file or device beneath an overlay.
//!
//! Invariants: every byte touched lies in `[base, base + size)` of the file; a member that is `direct`
//! never goes through the page cache (mixing the two on one file is a way to lose writes), so its offsets
//! and lengths are multiples of `block_size` and its memory is aligned to `memory_align`.

mod at_once;

use crate::error::OpenError;
use crate::fault::{Kind, Layer, Outcome, PASS, Verdict, judge};
use crate::lock::{self, Claim, claim, lock_backing, lock_range, open_raw, refuse_loop_backing};
use crate::memory::MemoryStore;
use crate::op::IoVec;
use crate::overlay;
use crate::probe::{self, DevNumber};
use crate::reader::{ReaderStore, Source};
use crate::spec::MemberSpec;
use crate::unread::Unread;
use lapstrake_partitions::PartitionError;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a member is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing is ever written; other readers may share it.
    ReadOnly,
    /// Nobody shares it.
    ReadWrite,
}

/// The smallest unit of md, in bytes.
const SECTOR: u32 = 512;
/// Alignment of the buffers made here: satisfies every O_DIRECT known.
pub(crate) const BOUNCE_ALIGN: usize = 4096;

#[derive(Debug)]
enum Store {
    File(File),
    Memory(MemoryStore),
    Reader(ReaderStore),
    Overlay(overlay::OverlayMember),
}

/// See the module.
#[derive(Debug)]
pub struct Member {
    spec: MemberSpec,
    access: Access,
    store: Store,
    /// Where its window begins in the file or device, bytes.
    offset: u64,
    size: u64,
    /// How long its file was when it was opened, however much of that is the window.
    file_len: u64,
    block_size: u32,
    memory_align: u32,
    direct: bool,
    rotational: bool,
    memory_backed: bool,
    is_block: bool,
    /// Device and inode of a file, device number of a block device.
    id: (u64, u64),
    /// Its file had a name when it was opened.
    was_linked: bool,
    /// It should be locked, and its file system has no locks.
    lacks_lock: bool,
    _claim: Option<Arc<Claim>>,
    /// The file behind a loop device, whose lock is held.
    _behind: Option<OwnedFd>,
    layers: Vec<Arc<Layer>>,
    /// What its image lacks.
    unread: Option<Arc<Unread>>,
    pub(crate) no_discard: AtomicBool,
    pub(crate) no_punch: AtomicBool,
    pub(crate) no_zero_range: AtomicBool,
    /// Its file was found shorter than it was. Whoever wrote to it would make it longer again, and what was
    /// cut off would read as zeroes: from then on everything fails.
    pub(crate) cut_off: AtomicBool,
    /// A flush failed. What it was to make stable is gone, though the system lets the next one succeed: from
    /// then on every flush fails, also those of other shards.
    pub(crate) unflushed: AtomicBool,
}

impl Member {
    /// Opens and locks a member. O_DIRECT is used where offsets of 512 bytes (a file) or of the logical
    /// block size (a block device) are allowed; never in memory file systems, where it means nothing.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was written.
    pub fn open(spec: &MemberSpec, access: Access) -> Result<Self, OpenError> {
        Self::open_with(spec, access, true)
    }

    /// Opens for reading without a lock or a claim: for looking at superblocks of what may be in use.
    ///
    /// # Errors
    /// [`OpenError`], never `Busy`.
    pub fn peek(spec: &MemberSpec) -> Result<Self, OpenError> {
        Self::open_with(spec, Access::ReadOnly, false)
    }

    /// Who has it locked for writing, such as a server, by whatever name: each as far as can be known. None if nobody
    /// has, or it cannot be asked. (The kernel's own users, such as its md, hold claims, not locks.)
    pub fn writers(&self) -> Option<Vec<String>> {
        let Store::File(file) = &self.store else { return None };
        lock::writers(file.as_fd(), self.offset, self.lock_len())
    }

    /// A member of `size` bytes of zeroes in this process's memory, for tests and benchmarks.
    pub fn memory(size: u64) -> Self {
        let store = MemoryStore::new(usize::try_from(size).expect("fits in memory"));
        let spec = MemberSpec::whole(format!("memory:{size}"));
        let mut member = Self::new(spec, Access::ReadWrite, Store::Memory(store), size);
        member.memory_backed = true;
        member
    }

    /// A member that is read from `source`, and never written. `name` is what messages call it. Its size is where
    /// the source ends now.
    ///
    /// # Errors
    /// The source's, of finding its end.
    pub fn reader(name: &str, source: Box<dyn Source>) -> io::Result<Self> {
        let (store, size) = ReaderStore::new(source)?;
        let spec = MemberSpec::whole(name);
        Ok(Self::new(spec, Access::ReadOnly, Store::Reader(store), size))
    }

    /// The writable member that an overlay makes of its base.
    pub(crate) fn layered(part: overlay::OverlayMember) -> Self {
        let base = part.base().clone();
        let in_memory = part.in_memory();
        let store = Store::Overlay(part);
        let mut member = Self::new(base.spec.clone(), Access::ReadWrite, store, base.size);
        member.block_size = base.block_size;
        member.memory_align = base.memory_align;
        member.rotational = base.rotational;
        member.memory_backed = in_memory;
        // The base itself is read past its layers: they stand above the overlay now.
        member.layers.clone_from(&base.layers);
        member.unread.clone_from(&base.unread);
        member
    }

    /// The same member beneath fault layers, which stack outside those it has.
    #[must_use]
    pub fn with_faults(mut self, mut layers: Vec<Arc<Layer>>) -> Self {
        layers.append(&mut self.layers);
        self.layers = layers;
        self
    }

    /// The same member, of whose file or device these bytes cannot be read until they are written.
    #[must_use]
    pub fn with_unread(mut self, ranges: &[Range<u64>]) -> Self {
        self.unread = Some(Arc::new(Unread::new(ranges, self.offset)));
        self
    }

    /// Whether a map that was given says that some of these bytes are not there.
    #[must_use]
    pub fn lacks(&self, offset: u64, len: u64) -> bool {
        self.unread.as_ref().is_some_and(|it| it.refuses(Kind::Read, offset, len))
    }

    pub(crate) fn unread(&self) -> Option<&Unread> {
        self.unread.as_deref()
    }

    fn new(spec: MemberSpec, access: Access, store: Store, size: u64) -> Self {
        Self {
            spec,
            access,
            store,
            offset: 0,
            size,
            file_len: 0,
            block_size: SECTOR,
            memory_align: 1,
            direct: false,
            rotational: false,
            memory_backed: false,
            is_block: false,
            id: (0, 0),
            was_linked: false,
            lacks_lock: false,
            _claim: None,
            _behind: None,
            layers: Vec::new(),
            unread: None,
            cut_off: AtomicBool::new(false),
            unflushed: AtomicBool::new(false),
            no_discard: AtomicBool::new(false),
            no_punch: AtomicBool::new(false),
            no_zero_range: AtomicBool::new(false),
        }
    }

    fn open_with(spec: &MemberSpec, access: Access, lock: bool) -> Result<Self, OpenError> {
        let io = |action| move |source| OpenError::Io { path: spec.path.clone(), action, source };
        check_kind(spec)?;
        let flags = match access {
            Access::ReadOnly => libc::O_RDONLY,
            Access::ReadWrite => libc::O_RDWR,
        };
        let fd = open_raw(&spec.path, flags).map_err(io("open it"))?;
        let file = File::from(fd);
        let meta = file.metadata().map_err(io("stat it"))?;
        let is_block = meta.file_type().is_block_device();
        let (len, block_size) = if is_block {
            let len = probe::block_device_len(file.as_fd()).map_err(io("find its size"))?;
            let block = probe::block_device_block_size(file.as_fd());
            (len, block.map_err(io("find its block size"))?)
        } else {
            (meta.len(), SECTOR)
        };
        let (offset, size) = window(spec, &file, len, is_block.then_some(block_size))?;
        let id = if is_block { (meta.rdev(), 0) } else { (meta.dev(), meta.ino()) };
        let (mut held, mut behind) = (None, None);
        let mut lacks_lock = false;
        if lock {
            let lock_len = lock_len(spec, size);
            lacks_lock = !lock_range(file.as_fd(), &spec.path, access, offset, lock_len)?;
            if is_block {
                if access == Access::ReadWrite
                    && probe::block_device_read_only(file.as_fd()).map_err(io("look at it"))?
                {
                    return Err(OpenError::ReadOnly { path: spec.path.clone() });
                }
                let dev = DevNumber::of(meta.rdev());
                behind = lock_backing(&spec.path, dev, access, offset, size)?;
                held = claim(&spec.path, meta.rdev(), access)?;
            } else if access == Access::ReadWrite {
                refuse_loop_backing(&spec.path, id)?;
            }
        }
        let memory_backed = !is_block && probe::in_memory_fs(file.as_fd());
        let rotational =
            probe::rotational(DevNumber::of(if is_block { meta.rdev() } else { meta.dev() }));
        let mut member = Self::new(spec.clone(), access, Store::File(file), size);
        member.offset = offset;
        member.file_len = len;
        member.block_size = block_size;
        member.is_block = is_block;
        member.id = id;
        member.was_linked = !is_block && meta.nlink() > 0;
        member.lacks_lock = lacks_lock && !is_block;
        member._claim = held;
        member._behind = behind;
        member.memory_backed = memory_backed;
        member.rotational = rotational && !memory_backed;
        if !memory_backed {
            member.try_direct();
        }
        Ok(member)
    }

    /// Turns the page cache off if the file takes that with our block size.
    fn try_direct(&mut self) {
        let Store::File(file) = &self.store else { return };
        // Where the system does not tell, the common rule is assumed and a read tried below.
        let align = probe::direct_align(file.as_fd())
            .unwrap_or(probe::DirectAlign { memory: SECTOR, offset: self.block_size });
        let fits = align.offset <= self.block_size
            && self.offset.is_multiple_of(u64::from(align.offset))
            && self.size.is_multiple_of(u64::from(self.block_size))
            && align.memory as usize <= BOUNCE_ALIGN;
        if !fits || set_direct(file.as_fd().as_raw_fd(), true).is_err() {
            return;
        }
        let mut probe = Bounce::new(self.block_size as usize);
        if self.size > 0 && file.read_at(probe.bytes(), self.offset).is_err() {
            // Refused in practice: back to the page cache (clearing a flag cannot fail).
            let _ = set_direct(file.as_raw_fd(), false);
            return;
        }
        self.direct = true;
        self.memory_align = align.memory;
    }

    /// Makes the file that it is the whole of at least so many bytes long, the new ones zeroes. A device stays as
    /// it is. Its lock holds for them too.
    ///
    /// # Errors
    /// The system's.
    pub fn lengthen(&mut self, size: u64) -> io::Result<()> {
        assert!(self.spec.is_whole(), "a window has its size");
        if self.is_block || self.size >= size {
            return Ok(());
        }
        let file = match &self.store {
            Store::File(file) => file,
            // Its last block is whole in the overlay's file.
            Store::Overlay(part) if size <= part.blocks_end() => {
                self.size = size;
                return Ok(());
            }
            Store::Overlay(_) | Store::Reader(_) => return Err(io::ErrorKind::Unsupported.into()),
            Store::Memory(_) => return Ok(()),
        };
        // It may have grown before it was locked.
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        self.size = size;
        self.file_len = self.file_len.max(size);
        if !self.memory_backed && !self.direct {
            self.try_direct();
        }
        Ok(())
    }

    /// What the user named.
    pub fn spec(&self) -> &MemberSpec {
        &self.spec
    }

    /// Bytes in the window.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Multiple of offsets and lengths in bytes: 512, or a block device's logical block size.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Whether the page cache is passed by.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// Whether seeks are dear.
    pub fn rotational(&self) -> bool {
        self.rotational
    }

    /// Whether an overlay takes its writes.
    pub fn is_overlaid(&self) -> bool {
        matches!(self.store, Store::Overlay(_))
    }

    /// Whether its bytes are in memory (a memory member, or a file on tmpfs or ramfs).
    pub fn memory_backed(&self) -> bool {
        self.memory_backed
    }

    /// Whether it is a block device (or a window of one).
    pub fn is_block(&self) -> bool {
        self.is_block
    }

    /// Whether the kernel shows the partitions of this device as devices of their own.
    pub fn has_partition_devices(&self) -> bool {
        self.is_block && probe::has_partitions(DevNumber::of(self.id.0))
    }

    /// Whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// Where its window begins in the file or device, bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn base(&self) -> u64 {
        self.offset
    }

    fn lock_len(&self) -> u64 {
        lock_len(&self.spec, self.size)
    }

    /// -1 unless it is a file or device itself.
    pub(crate) fn raw_fd(&self) -> RawFd {
        match &self.store {
            Store::File(file) => file.as_raw_fd(),
            Store::Memory(_) | Store::Reader(_) | Store::Overlay(_) => -1,
        }
    }

    pub(crate) fn memory_store(&self) -> Option<&MemoryStore> {
        match &self.store {
            Store::Memory(store) => Some(store),
            Store::File(_) | Store::Reader(_) | Store::Overlay(_) => None,
        }
    }

    pub(crate) fn reader_store(&self) -> Option<&ReaderStore> {
        match &self.store {
            Store::Reader(store) => Some(store),
            Store::File(_) | Store::Memory(_) | Store::Overlay(_) => None,
        }
    }

    pub(crate) fn overlay_part(&self) -> Option<&overlay::OverlayMember> {
        match &self.store {
            Store::Overlay(part) => Some(part),
            Store::File(_) | Store::Memory(_) | Store::Reader(_) => None,
        }
    }

    /// Whether it is (a window of) the file with this device and inode.
    pub(crate) fn is_file(&self, dev: u64, ino: u64) -> bool {
        !self.is_block && self.id == (dev, ino)
    }

    /// Whether nothing keeps other programs from it, since its file system has no locks.
    pub fn lacks_lock(&self) -> bool {
        match &self.store {
            Store::Overlay(part) => part.base().lacks_lock(),
            Store::File(_) | Store::Memory(_) | Store::Reader(_) => self.lacks_lock,
        }
    }

    /// Whether its file was deleted since it was opened: what it holds is gone when it is closed.
    pub fn is_deleted(&self) -> bool {
        match &self.store {
            Store::File(file) => self.was_linked && probe::link_count(file.as_fd()) == Some(0),
            Store::Overlay(part) => part.base().is_deleted(),
            Store::Memory(_) | Store::Reader(_) => false,
        }
    }

    /// What became of the file of the overlay that takes its writes.
    pub fn overlay_loss(&self) -> Option<overlay::FileLoss> {
        self.overlay_part()?.file_loss()
    }

    /// Whether the file of the overlay that takes its writes was found cut off.
    pub fn has_cut_overlay(&self) -> bool {
        self.overlay_part().is_some_and(overlay::OverlayMember::is_cut_off)
    }

    /// Whether a write makes its file longer if that has become shorter.
    pub(crate) fn grows(&self) -> bool {
        matches!(self.store, Store::File(_)) && !self.is_block && self.writable()
    }

    /// Looks whether its file has become shorter: before a write, which would make it longer again, and
    /// after a read, for which one may have done so.
    pub(crate) fn check_truncated(&self) {
        if self.is_short() {
            self.cut_off.store(true, Ordering::Relaxed);
        }
    }

    /// Whether its file, or that beneath its overlay, is shorter than when it was opened. A write to another window
    /// may make it longer again, so the end of the window alone would not tell.
    pub fn is_short(&self) -> bool {
        let file = match &self.store {
            Store::File(file) if !self.is_block => file,
            Store::Overlay(part) => return part.base().is_short(),
            Store::File(_) | Store::Memory(_) | Store::Reader(_) => return false,
        };
        let len = if self.memory_backed {
            // A third of the time of asking for it; elsewhere it might wait for a server. The place in the
            // file is nobody's concern.
            (&*file).seek(SeekFrom::End(0)).ok()
        } else {
            probe::file_len(file.as_fd())
        };
        self.cut_off.load(Ordering::Relaxed) || len.is_some_and(|len| len < self.file_len)
    }

    pub(crate) fn verdict(&self, kind: Kind, offset: u64, len: u64) -> Verdict {
        if self.cut_off.load(Ordering::Relaxed) {
            return Verdict { delay: None, outcome: Outcome::Fail(libc::ENXIO) };
        }
        if self.unread.as_ref().is_some_and(|it| it.refuses(kind, offset, len)) {
            return Verdict { delay: None, outcome: Outcome::Fail(libc::EIO) };
        }
        if self.layers.is_empty() { PASS } else { judge(&self.layers, kind, offset, len) }
    }

    /// Where there may be something at or after a byte; None if all that follows is a hole. Only files tell of holes.
    ///
    /// # Errors
    /// The system's.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let inside = |at: &u64| *at < self.size;
        match &self.store {
            Store::File(file) if !self.is_block => {
                let found = overlay::next_data(file, self.base() + offset)?;
                Ok(found.map(|at| at - self.base()).filter(inside))
            }
            _ => Ok(Some(offset).filter(inside)),
        }
    }

    /// How far a hole reaches that begins at or before a byte, if it lies in one: only a file, beneath nothing that
    /// changes what is read, tells of holes, and all of those read as zeros. Without a hole, how far what is there does.
    ///
    /// # Errors
    /// The system's.
    pub fn hole_at(&self, offset: u64) -> io::Result<(bool, u64)> {
        let is_plain = self.layers.is_empty() && self.unread.is_none() && !self.is_block;
        let Store::File(file) = &self.store else { return Ok((false, self.size)) };
        if !is_plain || self.is_short() {
            return Ok((false, self.size));
        }
        let (base, end) = (self.base(), self.base() + self.size);
        let at = base + offset;
        let data = overlay::next_data(file, at)?.unwrap_or(end).min(end);
        let (is_hole, until) = match data > at {
            // What was cut off of a file meanwhile is no hole.
            true => (!self.is_short(), data),
            false => (false, overlay::next_hole(file, at)?.min(end)),
        };
        Ok((is_hole, until - base))
    }

    /// A flush has ended; whether it counts.
    pub(crate) fn flushed(&self, ok: bool) -> bool {
        if !ok {
            self.unflushed.store(true, Ordering::SeqCst);
        }
        !self.unflushed.load(Ordering::SeqCst)
    }
}

/// Whether two members share a byte: the same file or device, and windows that meet.
pub fn overlaps(a: &Member, b: &Member) -> bool {
    let files = matches!((&a.store, &b.store), (Store::File(_), Store::File(_)));
    files
        && a.is_block == b.is_block
        && a.id == b.id
        && a.offset < b.offset + b.size
        && b.offset < a.offset + a.size
}

/// Refuses what is neither file nor block device before opening it: opening a FIFO would block, opening
/// a tape rewinds it.
fn check_kind(spec: &MemberSpec) -> Result<(), OpenError> {
    let path = &spec.path;
    let meta = std::fs::metadata(path).map_err(|source| OpenError::Io {
        path: path.clone(),
        action: "find it",
        source,
    })?;
    let kind = meta.file_type();
    let found = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a FIFO"
    } else {
        "a socket"
    };
    Err(OpenError::Kind { path: path.clone(), found })
}

/// What of the file or device is meant: its first byte and its length. `block` is the device's logical block size.
fn window(
    spec: &MemberSpec,
    file: &File,
    len: u64,
    block: Option<u32>,
) -> Result<(u64, u64), OpenError> {
    let (offset, size) = match spec.partition {
        Some(number) => partition(&spec.path, number, file, len, block)?,
        None => (spec.offset, spec.size),
    };
    let path = || spec.path.clone();
    let block_size = block.unwrap_or(SECTOR);
    if !offset.is_multiple_of(u64::from(block_size)) {
        return Err(OpenError::Unaligned { path: path(), offset, block_size });
    }
    // An empty file is told by who finds nothing in it.
    if len > 0 && offset >= len {
        return Err(OpenError::Beyond { path: path(), offset, available: len });
    }
    let rest = len.saturating_sub(offset);
    let size = size.unwrap_or(rest);
    if size > rest {
        return Err(OpenError::Window { path: path(), offset, size, available: len });
    }
    Ok((offset, size))
}

/// The window that the partition table gives to a partition.
fn partition(
    path: &Path,
    number: u32,
    file: &File,
    len: u64,
    block: Option<u32>,
) -> Result<(u64, Option<u64>), OpenError> {
    let no = |source| OpenError::Partition { path: path.into(), number, source };
    let get = |offset: u64, bytes: u64| {
        let mut buf = vec![0; bytes.min(len.saturating_sub(offset)) as usize];
        let is_read = file.read_exact_at(&mut buf, offset).is_ok();
        if is_read { buf } else { Vec::new() }
    };
    let table = lapstrake_partitions::read(len, block, get);
    let table = table.ok_or_else(|| no(PartitionError::NoTable))?;
    let found = table.partition(number).map_err(no)?;
    let (start, end) = (found.start, found.end());
    match end > len {
        true => {
            Err(OpenError::PartitionCut { path: path.into(), number, start, end, available: len })
        }
        false => Ok((start, Some(found.size))),
    }
}

/// How much of its file a member locks; 0: whatever comes to be behind its start.
fn lock_len(spec: &MemberSpec, size: u64) -> u64 {
    match spec.partition {
        Some(_) => size,
        None => spec.size.unwrap_or(0),
    }
}

fn set_direct(fd: RawFd, on: bool) -> io::Result<()> {
    // SAFETY: integers only.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        libc::fcntl(fd, libc::F_SETFL, flags)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn result(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Zeroed memory aligned for O_DIRECT.
pub(crate) struct Bounce {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Bounce {
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![0u8; len + BOUNCE_ALIGN];
        let start = memory.as_ptr().align_offset(BOUNCE_ALIGN);
        Self { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }

    /// All of it.
    pub(crate) fn iov(&mut self) -> IoVec {
        IoVec::new(self.bytes().as_mut_ptr(), self.len)
    }
}
