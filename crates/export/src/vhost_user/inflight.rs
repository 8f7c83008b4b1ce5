//! What was taken of a client's rings and not given back, kept in memory that the client holds: a server that was killed
//! leaves it there, and the next one does those requests again.
//!
//! The layout is that of the vhost-user specification ("Inflight I/O tracking", split rings): for each queue a header, then
//! an entry for each descriptor. Only servers read it, so all that is believed of it are bounds.
//!
//! Order: a request is entered before it is sent to the array; `last` is set before the used ring is written, and the entry
//! cleared after it. If the used ring's index differs from the one that is recorded, the request called `last` was given
//! back, though its entry says otherwise.

use std::{
    fs::File,
    io,
    os::fd::FromRawFd,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering::SeqCst},
    },
};
use vm_memory::{FileOffset, MmapRegion};

/// Regions start at a multiple of this.
const ALIGNMENT: usize = 64;
const VERSION: u16 = 1;

#[repr(C)]
struct Header {
    features: AtomicU64,
    version: AtomicU16,
    entries: AtomicU16,
    last: AtomicU16,
    used: AtomicU16,
}

#[repr(C)]
struct Entry {
    is_running: AtomicU8,
    padding: [u8; 5],
    next: AtomicU16,
    /// When it was taken.
    order: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 16 && size_of::<Entry>() == 16);

fn region_bytes(queue_size: u16) -> usize {
    let bytes = size_of::<Header>() + usize::from(queue_size) * size_of::<Entry>();
    bytes.next_multiple_of(ALIGNMENT)
}

/// Maps bytes of a file, which has them: beyond its end is nothing that could be touched.
///
/// # Errors
/// It is shorter, or the system's.
pub(super) fn map_file(file: File, offset: u64, bytes: usize) -> io::Result<MmapRegion> {
    let len = file.metadata()?.len();
    if offset.checked_add(bytes as u64).is_none_or(|end| end > len) {
        return Err(io::Error::other("its file is shorter than what it is to hold"));
    }
    MmapRegion::from_file(FileOffset::new(file, offset), bytes).map_err(io::Error::other)
}

/// The memory of all of a client's queues.
#[derive(Clone, Debug)]
pub struct Inflight {
    mapping: Arc<MmapRegion>,
    queues: u16,
    queue_size: u16,
}

impl Inflight {
    /// Bytes for so many queues.
    pub(super) fn bytes(queues: u16, queue_size: u16) -> u64 {
        (usize::from(queues) * region_bytes(queue_size)) as u64
    }

    /// A file for it, of zeroes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn file(bytes: u64) -> io::Result<File> {
        // SAFETY: makes a file, or none.
        let fd = unsafe { libc::memfd_create(c"lapstrake-inflight".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is new, and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes)?;
        Ok(file)
    }

    /// Maps what a client holds; none if it is too short, or not of whole pages.
    pub(super) fn map(file: File, offset: u64, queues: u16, queue_size: u16) -> Option<Self> {
        let bytes = Self::bytes(queues, queue_size) as usize;
        let mapping = map_file(file, offset, bytes).ok()?;
        Some(Self { mapping: Arc::new(mapping), queues, queue_size })
    }

    /// What belongs to a queue of so many descriptors.
    pub(super) fn queue(&self, index: usize, size: u16) -> Option<Record> {
        let is_there = index < usize::from(self.queues) && size <= self.queue_size;
        let offset = index * region_bytes(self.queue_size);
        is_there.then(|| Record { mapping: self.mapping.clone(), offset, size })
    }
}

/// The record of one queue.
#[derive(Debug)]
pub struct Record {
    mapping: Arc<MmapRegion>,
    offset: usize,
    size: u16,
}

impl Record {
    fn header(&self) -> &Header {
        // SAFETY: within the mapping, which is as long as all queues' records; aligned, since a mapping begins at a page
        // and records at multiples of 64; atomics, since who else has it may write to it.
        unsafe { &*self.mapping.as_ptr().add(self.offset).cast() }
    }

    fn entry(&self, head: u16) -> &Entry {
        assert!(head < self.size, "descriptor {head} of {}", self.size);
        let at = self.offset + size_of::<Header>() + usize::from(head) * size_of::<Entry>();
        // SAFETY: as in `header`.
        unsafe { &*self.mapping.as_ptr().add(at).cast() }
    }

    /// Puts right what a server left that ended between two steps; `used` is the used ring's index. Gives the requests that
    /// were under way, in the order in which they were taken.
    pub(super) fn recover(&self, used: u16) -> Vec<u16> {
        let header = self.header();
        if header.version.swap(VERSION, SeqCst) != VERSION {
            header.entries.store(self.size, SeqCst);
            header.used.store(used, SeqCst);
            return Vec::new();
        }
        let last = header.last.load(SeqCst);
        if header.used.load(SeqCst) != used && last < self.size {
            self.entry(last).is_running.store(0, SeqCst);
        }
        header.used.store(used, SeqCst);
        let is_running = |head: &u16| self.entry(*head).is_running.load(SeqCst) != 0;
        let mut running: Vec<u16> = (0..self.size).filter(is_running).collect();
        running.sort_by_key(|&head| self.entry(head).order.load(SeqCst));
        running
    }

    /// A request was taken, as the `order`th.
    pub(super) fn begin(&self, head: u16, order: u64) {
        let entry = self.entry(head);
        entry.order.store(order, SeqCst);
        entry.is_running.store(1, SeqCst);
    }

    /// A request is about to be given back.
    pub(super) fn finish(&self, head: u16) {
        self.header().last.store(head, SeqCst);
    }

    /// It was, and the used ring's index is this now.
    pub(super) fn finished(&self, head: u16, used: u16) {
        self.entry(head).is_running.store(0, SeqCst);
        self.header().used.store(used, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> (Inflight, Record) {
        let file = Inflight::file(Inflight::bytes(2, 8)).unwrap();
        let all = Inflight::map(file, 0, 2, 8).unwrap();
        let record = all.queue(1, 8).unwrap();
        assert!(record.recover(5).is_empty(), "nothing was under way before the first");
        (all, record)
    }

    #[test]
    fn what_was_not_given_back_is_done_again_in_its_order() {
        let (all, record) = record();
        for (order, head) in [7, 0, 3].into_iter().enumerate() {
            record.begin(head, order as u64);
        }
        record.finish(0);
        record.finished(0, 6);
        assert_eq!(all.queue(1, 8).unwrap().recover(6), [7, 3]);
        assert!(all.queue(0, 8).unwrap().recover(0).is_empty(), "the other queue's own");
    }

    #[test]
    fn a_server_that_ended_before_the_used_ring_was_written_does_it_again() {
        let (all, record) = record();
        record.begin(2, 0);
        record.finish(2);
        assert_eq!(all.queue(1, 8).unwrap().recover(5), [2]);
    }

    #[test]
    fn a_server_that_ended_after_it_does_not() {
        let (all, record) = record();
        record.begin(2, 0);
        record.begin(4, 1);
        record.finish(2);
        assert_eq!(all.queue(1, 8).unwrap().recover(6), [4]);
        assert_eq!(all.queue(1, 8).unwrap().recover(6), [4], "as often as one looks");
    }

    #[test]
    fn what_a_client_holds_is_believed_in_bounds_only() {
        let (all, record) = record();
        record.header().last.store(u16::MAX, SeqCst);
        assert!(record.recover(9).is_empty());
        assert!(all.queue(2, 8).is_none() && all.queue(0, 16).is_none());
        let short = Inflight::file(64).unwrap();
        assert!(Inflight::map(short, 0, 2, 8).is_none());
    }
}
