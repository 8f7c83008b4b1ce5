//! Copy-on-write over members that are only read: all writes to them go to one file, and reads see both.
//!
//! Invariants:
//! - a base is never written: it was opened [`Access::ReadOnly`], and only `pread` is ever asked of it;
//! - a block's data is in the file before its entry is in the map, and stable before its entry is in the
//!   file: an entry that can be read leads to whole data, whenever the server was killed or the power cut;
//! - what was written before a flush was asked for is stable, entries too, when the flush has ended. What was
//!   not flushed may be there or not after a crash, block by block, as on a disk with a cache.
//!
//! Work is done with plain calls on the thread that asks: the queue gives it to a worker unless all is
//! in memory. Two users of one block that has no data yet are put in order here; otherwise bytes of writes
//! that overlap in time are of either, as on any member. A full file system fails the write (`ENOSPC`).
//!
//! The file is longer than what it holds, so that no write makes it as long as it was once it has been cut off, which
//! would give zeroes for what was lost. One that is found shorter takes no more writes, gives what is still in it, and is
//! marked, so that nobody takes it again.
//!
//! [`Access::ReadOnly`]: crate::Access::ReadOnly

mod format;
mod map;
mod transfer;

pub use format::{BaseId, FormatError, Header, Layout, Table};

use crate::error::{OpenError, OverlayError};
use crate::lock::lock_range;
use crate::member::{Access, BOUNCE_ALIGN, Bounce, Member};
use crate::op::IoVec;
use crate::probe;
use crate::raw::errno;
use format::{BLOCK, CUT_OFF, HEADER_MAX};
use map::{Map, Place, Run};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use transfer::{Cursor, pread, pwrite};

/// An errno, positive.
type Errno = i32;

/// The file grows by so many bytes at once.
const AHEAD: u64 = 1 << 20;

/// What a [`crate::Queue`] asks of an overlay's member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Read,
    Write { fua: bool },
    Flush,
    Discard,
    Zero,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Overlay {
    file: File,
    bases: Vec<Arc<Member>>,
    /// Which table is whose: by the place in `bases`.
    tables: Vec<usize>,
    map: RwLock<Map>,
    /// The next free block; held by whoever gives blocks a place.
    growth: Mutex<u64>,
    /// How long the file was left.
    end: AtomicU64,
    /// How long it was found to be, if that is less.
    cut: OnceLock<u64>,
    syncing: Mutex<()>,
    /// Why the file could not be made stable once, or 0: nobody knows what it holds of what was written since.
    failed: AtomicI32,
    in_memory: bool,
}

/// What became of an overlay's file while it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileLoss {
    /// Deleted: what was written is gone when it is closed.
    Deleted,
    /// Its beginning was overwritten: what was written cannot be found in it any more.
    Spoiled,
    /// It became shorter: some of what was written is gone.
    CutOff,
}

/// One member of an overlay.
#[derive(Debug)]
pub(crate) struct OverlayMember {
    overlay: Arc<Overlay>,
    index: usize,
}

/// Opens or makes the overlay file at `path` and gives the writable members that it makes of `bases`, in
/// their order. The file remembers its bases; it takes the same ones again, in any order, and no others.
///
/// # Errors
/// [`OverlayError`]. A file that is refused was not changed; an empty one becomes an overlay.
///
/// # Panics
/// If a base is open for writing, or is no file or block device.
pub fn overlay(
    path: &Path,
    bases: Vec<(Arc<Member>, BaseId)>,
) -> Result<Vec<Member>, OverlayError> {
    assert!(bases.iter().all(|(base, _)| !base.writable() && base.raw_fd() >= 0));
    let io = |action| move |source| OverlayError::Io { path: path.into(), action, source };
    let file = open_file(path, &bases)?;
    let len = file.metadata().map_err(io("find its size"))?.len();
    let ids: Vec<BaseId> = bases.iter().map(|(_, id)| *id).collect();
    let (header, tables) = if len == 0 {
        let header = Header { bases: ids };
        make(path, &file, &header).map_err(io("write its header"))?;
        let tables = (0..bases.len()).collect();
        (header, tables)
    } else {
        let header = read_header(&file, len).map_err(io("read its header"))?;
        let header = header.map_err(|error| OverlayError::Format { path: path.into(), error })?;
        let tables = assign(path, &header, &bases)?;
        (header, tables)
    };
    let bad = |error| OverlayError::Format { path: path.into(), error };
    let layout = header.layout();
    let (found, needed) =
        (file.metadata().map_err(io("find its size"))?.len(), layout.data * BLOCK);
    if found < needed {
        return Err(bad(FormatError::Truncated { found, needed }));
    }
    let map = load(&file, layout).map_err(io("read its tables"))?.map_err(bad)?;
    let next = map.first_free(found).map_err(bad)?;
    let bases: Vec<Arc<Member>> = bases.into_iter().map(|(base, _)| base).collect();
    let in_memory = probe::in_memory_fs(file.as_fd()) && bases.iter().all(|b| b.memory_backed());
    let (map, growth) = (RwLock::new(map), Mutex::new(next));
    let (end, cut) = (AtomicU64::new(found), OnceLock::new());
    let (syncing, failed) = (Mutex::new(()), AtomicI32::new(0));
    let overlay =
        Overlay { file, bases, tables, map, growth, end, cut, syncing, failed, in_memory };
    overlay.give_back_written();
    let overlay = Arc::new(overlay);
    let part = |index| OverlayMember { overlay: overlay.clone(), index };
    Ok((0..overlay.bases.len()).map(|index| Member::layered(part(index))).collect())
}

/// Opens and locks the file, which is made if it is not there.
fn open_file(path: &Path, bases: &[(Arc<Member>, BaseId)]) -> Result<File, OverlayError> {
    let io = |action| move |source| OverlayError::Io { path: path.into(), action, source };
    let mut options = OpenOptions::new();
    // What it will hold is as private as the members are.
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(io("open it"))?;
    let meta = file.metadata().map_err(io("stat it"))?;
    if !meta.file_type().is_file() {
        return Err(OverlayError::Kind { path: path.into() });
    }
    if let Some((base, _)) = bases.iter().find(|(base, _)| base.is_file(meta.dev(), meta.ino())) {
        let member = base.spec().to_string();
        return Err(OverlayError::IsMember { path: path.into(), member });
    }
    let locked = lock_range(file.as_fd(), path, Access::ReadWrite, 0, 0);
    locked.map(drop).map_err(|error| match error {
        OpenError::Busy { path, holders } => OverlayError::Busy { path, holders },
        OpenError::Io { path, action, source } => OverlayError::Io { path, action, source },
        other => unreachable!("no outcome of locking: {other}"),
    })?;
    Ok(file)
}

fn make(path: &Path, file: &File, header: &Header) -> io::Result<()> {
    let all = || {
        file.write_all_at(&header.encode(), 0)?;
        file.set_len(header.layout().data * BLOCK)?;
        file.sync_all()
    };
    // What is half made would be taken for damaged.
    all().inspect_err(|_| drop(file.set_len(0)))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The bases that an overlay's file remembers; none if it is no such file, or cannot be read now.
#[must_use]
pub fn remembered(path: &Path) -> Vec<BaseId> {
    let header = File::open(path).and_then(|file| {
        let len = file.metadata()?.len();
        read_header(&file, len)
    });
    header.ok().and_then(Result::ok).map_or_else(Vec::new, |header| header.bases)
}

fn read_header(file: &File, len: u64) -> io::Result<Result<Header, FormatError>> {
    let mut bytes = vec![0; len.min(HEADER_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Header::parse(&bytes))
}

/// Finds the table of each base.
fn assign(
    path: &Path,
    header: &Header,
    bases: &[(Arc<Member>, BaseId)],
) -> Result<Vec<usize>, OverlayError> {
    let mut left: Vec<usize> = (0..header.bases.len()).collect();
    let mut tables = Vec::new();
    for (base, own) in bases {
        let member = || base.spec().to_string();
        let known = |&table: &usize| header.bases[table].id == own.id;
        let Some(at) = left.iter().position(known) else {
            return Err(OverlayError::Foreign { path: path.into(), member: member() });
        };
        let table = left.remove(at);
        let recorded = &header.bases[table];
        if recorded.size != own.size {
            let (found, expected) = (own.size, recorded.size);
            let path = path.into();
            return Err(OverlayError::Resized { path, member: member(), found, expected });
        }
        if recorded.stamp != own.stamp {
            return Err(OverlayError::Changed { path: path.into(), member: member() });
        }
        tables.push(table);
    }
    match left.len() {
        0 => Ok(tables),
        absent => {
            let bases = header.bases.len();
            Err(OverlayError::Absent { path: path.into(), bases, absent })
        }
    }
}

/// Reads what the tables hold, passing over their holes.
fn load(file: &File, layout: Layout) -> io::Result<Result<Map, FormatError>> {
    let first = layout.tables.first().map_or(layout.data, |table| table.first);
    let (mut at, tables_end) = (first * BLOCK, layout.data * BLOCK);
    let mut map = Map::new(layout);
    while let Some(data) = next_data(file, at)?.filter(|&data| data < tables_end) {
        at = data / BLOCK * BLOCK;
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, at)?;
        if let Err(error) = map.load(at / BLOCK, &bytes) {
            return Ok(Err(error));
        }
        at += BLOCK;
    }
    Ok(Ok(map))
}

/// Where there is something at or after `at`; none up to the end.
pub(crate) fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    // SAFETY: integers only.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_DATA) };
    match found {
        0.. => Ok(Some(found as u64)),
        _ => match errno() {
            libc::ENXIO => Ok(None),
            // The file system does not tell holes: everything is data.
            libc::EINVAL => Ok((at < file.metadata()?.len()).then_some(at)),
            error => Err(io::Error::from_raw_os_error(error)),
        },
    }
}

/// Where the data ends that lies at `at`.
pub(crate) fn next_hole(file: &File, at: u64) -> io::Result<u64> {
    // SAFETY: integers only.
    match unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_HOLE) } {
        found @ 0.. => Ok(found as u64),
        _ if errno() == libc::EINVAL => Ok(file.metadata()?.len()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl OverlayMember {
    /// The member beneath.
    pub(crate) fn base(&self) -> &Arc<Member> {
        &self.overlay.bases[self.index]
    }

    /// Where the member's last block ends.
    pub(crate) fn blocks_end(&self) -> u64 {
        self.base().size().next_multiple_of(BLOCK)
    }

    /// Whether everything that it does stays in memory.
    pub(crate) fn in_memory(&self) -> bool {
        self.overlay.in_memory
    }

    /// What became of the file, if it cannot be used again once it is closed.
    pub(crate) fn file_loss(&self) -> Option<FileLoss> {
        let file = &self.overlay.file;
        if self.overlay.look().is_err() {
            return Some(FileLoss::CutOff);
        }
        if probe::link_count(file.as_fd()) == Some(0) {
            return Some(FileLoss::Deleted);
        }
        let header = file.metadata().and_then(|meta| read_header(file, meta.len()));
        header.is_ok_and(|header| header.is_err()).then_some(FileLoss::Spoiled)
    }

    /// Whether the file was found cut off.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.overlay.cut.get().is_some()
    }

    /// Does it now: bytes moved (0 where none move), or `-errno`. The range lies within the member.
    ///
    /// # Safety
    /// The vectors must name memory that may be read, or written for [`Task::Read`].
    pub(crate) unsafe fn perform(&self, task: Task, iov: &[IoVec], offset: u64, len: u64) -> i32 {
        // SAFETY: passed on to the caller.
        let done = unsafe {
            match task {
                Task::Read => self.read(iov, offset, len),
                Task::Write { fua } => self.write(iov, offset, len, fua),
                Task::Flush => self.flush(),
                Task::Discard => self.discard(offset, len),
                Task::Zero => self.zero(offset, len),
            }
        };
        match done {
            Ok(()) if matches!(task, Task::Read | Task::Write { .. }) => len as i32,
            Ok(()) => 0,
            Err(errno) => -errno,
        }
    }

    /// # Safety
    /// As [`Self::perform`].
    pub(crate) unsafe fn read(&self, iov: &[IoVec], offset: u64, len: u64) -> Result<(), Errno> {
        let overlay = &*self.overlay;
        let mut cursor = Cursor::new(iov);
        for run in self.runs(offset, len) {
            let (start, len) = within(run, offset, len);
            // Behind the base's end, within its last block, there is nothing yet.
            let in_base = len.min(self.base().size().saturating_sub(start));
            let head = if run.place == Place::Base { in_base } else { len };
            let (piece, behind) = (cursor.take(head), cursor.take(len - head));
            // SAFETY: passed on to the caller; the pieces are parts of its vectors.
            unsafe {
                transfer::zero(&behind);
                match run.place {
                    Place::Base => self.read_base(piece, start)?,
                    Place::Zeroes => transfer::zero(&piece),
                    Place::Data(first) => {
                        let at = first * BLOCK + (start - run.first * BLOCK);
                        pread(overlay.file.as_raw_fd(), piece, at)?;
                        overlay.look_at(at, len)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`Self::perform`].
    unsafe fn read_base(&self, iov: Vec<IoVec>, offset: u64) -> Result<(), Errno> {
        let base = self.base();
        // SAFETY: passed on to the caller.
        unsafe { pread(base.raw_fd(), iov, base.base() + offset) }
    }

    /// # Safety
    /// As [`Self::perform`].
    pub(crate) unsafe fn write(
        &self,
        iov: &[IoVec],
        offset: u64,
        len: u64,
        fua: bool,
    ) -> Result<(), Errno> {
        self.overlay.check()?;
        let runs = self.runs(offset, len);
        // SAFETY: passed on to the caller.
        unsafe {
            if runs.iter().all(|run| matches!(run.place, Place::Data(_))) {
                self.write_runs(iov, offset, len, &runs, None)?;
            } else {
                let mut next = lock(&self.overlay.growth);
                // Another may have given some of them a place meanwhile.
                let runs = self.runs(offset, len);
                self.write_runs(iov, offset, len, &runs, Some(&mut next))?;
            }
        }
        if fua { self.flush() } else { Ok(()) }
    }

    /// # Safety
    /// As [`Self::perform`].
    unsafe fn write_runs(
        &self,
        iov: &[IoVec],
        offset: u64,
        len: u64,
        runs: &[Run],
        mut next: Option<&mut u64>,
    ) -> Result<(), Errno> {
        let mut cursor = Cursor::new(iov);
        for run in runs {
            let (start, len) = within(*run, offset, len);
            let piece = cursor.take(len);
            // SAFETY: passed on to the caller; the pieces are parts of its vectors.
            unsafe {
                match (run.place, &mut next) {
                    (Place::Data(first), _) => {
                        let at = first * BLOCK + (start - run.first * BLOCK);
                        pwrite(self.overlay.file.as_raw_fd(), piece, at)?;
                        self.note_lacks(*run);
                    }
                    (_, Some(next)) => self.write_new(piece, start, len, *run, next)?,
                    (_, None) => unreachable!("only data is written without the growth lock"),
                }
            }
        }
        Ok(())
    }

    /// Writes blocks that have no data yet; what they hold outside of the write is kept.
    ///
    /// # Safety
    /// As [`Self::perform`].
    unsafe fn write_new(
        &self,
        piece: Vec<IoVec>,
        start: u64,
        len: u64,
        run: Run,
        next: &mut u64,
    ) -> Result<(), Errno> {
        let (first, end) = (run.first * BLOCK, (run.first + run.len) * BLOCK);
        let mut head = self.fill(run.place, first, start)?;
        let mut tail = self.fill(run.place, start + len, end)?;
        let mut iov = vec![head.iov()];
        iov.extend(piece);
        iov.push(tail.iov());
        iov.retain(|v| v.len > 0);
        self.overlay.make_room((*next + run.len) * BLOCK)?;
        // SAFETY: passed on to the caller; head and tail are ours.
        unsafe { pwrite(self.overlay.file.as_raw_fd(), iov, *next * BLOCK)? };
        self.overlay.end.fetch_max((*next + run.len) * BLOCK, Ordering::AcqRel);
        let place = Place::Data(*next);
        self.overlay.map_mut().set(self.table(), Run { place, ..run });
        self.note_lacks(run);
        *next += run.len;
        Ok(())
    }

    /// Has on record which sectors of blocks that were written are still not there: a write may be of a part of a block.
    fn note_lacks(&self, run: Run) {
        let Some(unread) = self.base().unread() else { return };
        let mut map = self.overlay.map_mut();
        for block in run.first..run.first + run.len {
            let lacks = unread.sectors_from(block * BLOCK);
            if map.lacks(self.table(), block) != lacks {
                map.set_lacks(self.table(), block, lacks);
            }
        }
    }

    /// What the member holds from `start` to `end`; zeroes behind its end.
    fn fill(&self, place: Place, start: u64, end: u64) -> Result<Bounce, Errno> {
        let mut fill = Bounce::new((end - start) as usize);
        let end = end.min(self.base().size());
        if place == Place::Base && start < end {
            let iov = IoVec { len: (end - start) as usize, ..fill.iov() };
            // SAFETY: the vector is the bounce buffer, or its beginning.
            unsafe { self.read_base(vec![iov], start)? };
        }
        Ok(fill)
    }

    fn flush(&self) -> Result<(), Errno> {
        self.overlay.flush()
    }

    /// Gives the space of whole blocks back; what is in the base stays to be seen.
    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.overlay.check()?;
        let (_, whole, _) = self.split(offset, len);
        for run in self.overlay.map().runs(self.table(), whole.start, whole.end) {
            if let Place::Data(first) = run.place {
                // Refused or failed: the contents may be anything, so they may stay.
                let _ = self.overlay.punch(first, run.len);
            }
        }
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.overlay.check()?;
        let (head, whole, tail) = self.split(offset, len);
        self.write_zeroes(head)?;
        self.write_zeroes(tail)?;
        let _growth = lock(&self.overlay.growth);
        let runs = self.overlay.map().runs(self.table(), whole.start, whole.end);
        for run in runs {
            match run.place {
                Place::Zeroes => {}
                Place::Base => {
                    let place = Place::Zeroes;
                    self.overlay.map_mut().set(self.table(), Run { place, ..run });
                }
                Place::Data(first) => {
                    self.overlay.zero_data(first, run.len)?;
                    self.note_lacks(run);
                }
            }
        }
        Ok(())
    }

    /// Writes out zeroes over part of a block.
    fn write_zeroes(&self, range: std::ops::Range<u64>) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        let len = range.end - range.start;
        let mut zeroes = Bounce::new(len as usize);
        // SAFETY: the vector is the bounce buffer.
        unsafe { self.write(&[zeroes.iov()], range.start, len, false) }
    }

    /// A range's part of its first block, its whole blocks (by number), and its part of the last. The
    /// member's last block is whole where the member ends.
    fn split(
        &self,
        offset: u64,
        len: u64,
    ) -> (std::ops::Range<u64>, std::ops::Range<u64>, std::ops::Range<u64>) {
        let end = offset + len;
        let at_end = end == self.base().size();
        let first = offset.div_ceil(BLOCK);
        let last = if at_end { end.div_ceil(BLOCK) } else { end / BLOCK };
        if first > last {
            return (offset..end, 0..0, 0..0);
        }
        let tail = (last * BLOCK).min(end)..end;
        (offset..(first * BLOCK).min(end), first..last, tail)
    }

    fn runs(&self, offset: u64, len: u64) -> Vec<Run> {
        let (first, end) = (offset / BLOCK, (offset + len).div_ceil(BLOCK));
        self.overlay.map().runs(self.table(), first, end)
    }

    fn table(&self) -> usize {
        self.overlay.tables[self.index]
    }
}

impl Overlay {
    /// What was written to a base's blocks before can be read, whatever could not be read of the base.
    fn give_back_written(&self) {
        for (base, &table) in self.bases.iter().zip(&self.tables) {
            let Some(unread) = base.unread() else { continue };
            let map = self.map();
            map.written(table).for_each(|(block, lacks)| unread.written_from(block * BLOCK, lacks));
        }
    }

    fn flush(&self) -> Result<(), Errno> {
        // One at a time: entries that another flush has taken must be stable when this one ends too.
        let _one = lock(&self.syncing);
        self.check()?;
        let pages = self.map_mut().take_dirty();
        self.sync()?;
        let mut pages = pages.into_iter();
        while let Some((block, bytes)) = pages.next() {
            if let Err(error) = self.file.write_all_at(&bytes, block * BLOCK) {
                let mut map = self.map_mut();
                map.put_back(block);
                pages.for_each(|(block, _)| map.put_back(block));
                return Err(error.raw_os_error().unwrap_or(libc::EIO));
            }
            if pages.len() == 0 {
                return self.sync();
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data().map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            self.failed.store(errno, Ordering::Relaxed);
            errno
        })
    }

    /// Before a write: whether it can be kept.
    fn check(&self) -> Result<(), Errno> {
        match self.failed.load(Ordering::Relaxed) {
            0 => self.look(),
            errno => Err(errno),
        }
    }

    /// Whether the file is as long as it was left.
    fn look(&self) -> Result<(), Errno> {
        // In this order: it grows before `end` does.
        let end = self.end.load(Ordering::Acquire);
        if let Some(len) = probe::file_len(self.file.as_fd()).filter(|len| *len < end)
            && self.cut.set(len).is_ok()
        {
            // Once a write under way has made it longer again, nobody could tell holes from what was lost.
            let _ = self.file.write_all_at(CUT_OFF, 0);
        }
        if self.cut.get().is_some() { Err(libc::EIO) } else { Ok(()) }
    }

    /// After a read: whether what was read can be what was written there. Of a file that was cut off, and perhaps made
    /// longer again by a write that was under way, holes are not, even those that were made on purpose.
    fn look_at(&self, at: u64, len: u64) -> Result<(), Errno> {
        if self.look().is_ok() {
            return Ok(());
        }
        // What a page that was cut in two has behind that place is no hole.
        let cut = self.cut.get().map_or(0, |cut| cut / BLOCK * BLOCK);
        if at < cut + BLOCK && cut < at + len {
            return Err(libc::EIO);
        }
        // SAFETY: integers only.
        let hole = unsafe { libc::lseek(self.file.as_raw_fd(), at as i64, libc::SEEK_HOLE) };
        let is_there = hole >= 0 && hole as u64 >= at + len;
        if is_there { Ok(()) } else { Err(libc::EIO) }
    }

    /// Makes the file longer than it has to be for data up to `end`, if it can be: else it ends there.
    fn make_room(&self, end: u64) -> Result<(), Errno> {
        if end < self.end.load(Ordering::Acquire) {
            return Ok(());
        }
        // Making it longer hides a cut before it, but for one in this very moment.
        self.look()?;
        let longer = end.next_multiple_of(AHEAD) + AHEAD;
        if self.file.set_len(longer).is_ok() {
            self.end.store(longer, Ordering::Release);
        }
        Ok(())
    }

    fn punch(&self, first: u64, len: u64) -> Result<(), Errno> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, len) = ((first * BLOCK) as i64, (len * BLOCK) as i64);
        // SAFETY: integers only.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, len) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    fn zero_data(&self, first: u64, len: u64) -> Result<(), Errno> {
        if self.punch(first, len).is_ok() {
            return Ok(());
        }
        // Not every file system can.
        let zeroes = [0; 4096];
        for block in first..first + len {
            let written = self.file.write_all_at(&zeroes, block * BLOCK);
            written.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        }
        Ok(())
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

const _: () = assert!(BLOCK as usize == BOUNCE_ALIGN, "pieces of a bounce buffer stay aligned");

/// The part of a run that lies in `len` bytes from `offset` on: where it starts, and its length.
fn within(run: Run, offset: u64, len: u64) -> (u64, u64) {
    let start = (run.first * BLOCK).max(offset);
    let end = ((run.first + run.len) * BLOCK).min(offset + len);
    (start, end - start)
}

/// A panic in one piece of work leaves map and file as after a crash, which both survive.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
