//! Requests that come by io_uring (Linux 6.14, where the module's parameter `enable_uring` is set).
//!
//! For each of the machine's processors the kernel has a queue, to which the requests go that are made there. An entry
//! of a queue is memory for one request, and a command with the kernel that ends when there is a request in it; the
//! answer, in the same memory, is the entry's next command, so that one round with the kernel brings answers and fetches
//! requests. The kernel uses its queues when each has an entry; until then, or if it refuses one, requests come by
//! `/dev/fuse`. Of what a single file needs, interrupts come that way in any case.
//!
//! An entry's memory, as `include/uapi/linux/fuse.h` lays it out:
//!
//! | bytes of its last page | field |
//! |---|---|
//! | 0, 128 | the request's header, and the answer's |
//! | 128, 128 | the request's body |
//! | 256, 32 | flags 0, the name that the answer is given under 8, length of the data 16 |
//!
//! Before it lie a write's data, and an answer's body or data.
//!
//! Invariant: an entry is with the kernel, or with us (its request is on its way), or it has ended for good.

use super::TRANSFER_MAX;
use super::device::Device;
use super::transfer::PAGE;
use super::wire::{BODY_MAX, Body, IN_HEADER, Request, out_header, parse_parts};
use crate::mapping::Mapping;
use lapstrake_device::COMMAND_BYTES;
use lapstrake_host::{Context, IoVec};
use std::{fs, io, slice, sync::Arc};

/// Memory for requests in all entries of a mount, bytes.
const BYTES: usize = 64 << 20;
/// Entries of a queue, if the memory is enough. More requests wait in the kernel, which hands over the next with each
/// answer.
const DEPTH: usize = 16;
/// Longest request of an entry, bytes: with many processors shorter ones, before there are fewer entries.
const DATA_MAX: usize = TRANSFER_MAX;
const DATA_MIN: usize = 256 << 10;

const HEADERS: usize = 288;
const BODY: usize = 128;
const FIELDS: usize = 256;

/// `FUSE_IO_URING_CMD_REGISTER`, and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// One of the kernel's queues: its number, and how many entries it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    number: u16,
    depth: usize,
}

/// What the kernel's queues are given.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// Longest request, bytes.
    pub(super) data_bytes: usize,
}

impl Queues {
    /// None if the kernel does not tell its processors, or there may be so many that their entries took more than [`BYTES`].
    pub(super) fn new() -> Option<Self> {
        let list = |what| fs::read_to_string(format!("/sys/devices/system/cpu/{what}")).ok();
        Self::of(&list("possible")?, &list("online")?)
    }

    /// There is one for each processor that may ever be there; those that are not have no more than they must.
    fn of(possible: &str, online: &str) -> Option<Self> {
        let (possible, online) = (processors(possible)?, processors(online)?);
        if possible.len() * DATA_MIN > BYTES {
            return None;
        }
        let absent = possible.iter().filter(|&processor| !online.contains(processor)).count();
        let depth =
            |data_bytes: usize| (BYTES / data_bytes).saturating_sub(absent) / online.len().max(1);
        let mut data_bytes = DATA_MAX;
        while data_bytes > DATA_MIN && depth(data_bytes) < DEPTH {
            data_bytes /= 2;
        }
        let depth = depth(data_bytes).clamp(1, DEPTH);
        let queue = |(number, processor)| Queue {
            number,
            depth: if online.contains(&processor) { depth } else { 1 },
        };
        Some(Self { queues: (0..).zip(possible).map(queue).collect(), data_bytes })
    }

    /// The share of each of the sessions on so many shards. Half of the shards have one, since who makes requests needs
    /// processors, too, and each more that has clients makes writes cross from one shard to another.
    pub(super) fn deal(&self, shards: usize) -> Vec<Vec<Queue>> {
        let count = shards.div_ceil(2).min(self.queues.len());
        let share = |nth| self.queues.iter().skip(nth).step_by(count).copied().collect();
        (0..count).map(share).collect()
    }
}

/// Of a list such as `0-3,8`.
fn processors(list: &str) -> Option<Vec<u32>> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    });
    let ranges: Option<Vec<_>> = ranges.collect();
    Some(ranges?.into_iter().flatten().collect())
}

struct Entry {
    queue: u16,
    /// The name of the request that it holds.
    unique: u64,
}

/// The entries of some queues, which one session serves.
pub(super) struct Entries {
    device: Arc<Device>,
    memory: Arc<Mapping>,
    /// Of an entry: data of so many bytes, and a page of headers.
    pub(super) data_bytes: usize,
    entries: Vec<Entry>,
    /// Those that have not ended for good.
    live: usize,
}

impl Entries {
    /// # Errors
    /// Memory is refused.
    pub(super) fn new(
        device: Arc<Device>,
        queues: &[Queue],
        data_bytes: usize,
    ) -> io::Result<Self> {
        let entry = |queue: &Queue| Entry { queue: queue.number, unique: 0 };
        let of = |queue| std::iter::repeat_with(move || entry(queue)).take(queue.depth);
        let entries: Vec<Entry> = queues.iter().flat_map(of).collect();
        // The page keeps entries from beginning at multiples of a power of two, for which caches have few places.
        let memory = Arc::new(Mapping::new(None, entries.len() * (data_bytes + PAGE))?);
        Ok(Self { device, memory, data_bytes, live: entries.len(), entries })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the kernel may write to as long as an entry is with it.
    pub(super) fn memory(&self) -> Arc<Mapping> {
        self.memory.clone()
    }

    /// Where the data of an entry's request, or of its answer, lie: at a page's start, and as long as the longest.
    pub(super) fn data(&self, entry: usize) -> *mut u8 {
        assert!(entry < self.entries.len());
        // SAFETY: within the memory.
        unsafe { self.memory.start().add(entry * (self.data_bytes + PAGE)) }
    }

    fn headers(&self, entry: usize) -> *mut u8 {
        // SAFETY: the entry's page.
        unsafe { self.data(entry).add(self.data_bytes) }
    }

    /// Gives all entries to the kernel; `tag` is the first one's operation.
    pub(super) fn register(&self, cx: &mut Context<'_>, tag: u32) {
        for entry in 0..self.entries.len() {
            let memory = [
                IoVec::new(self.headers(entry), HEADERS),
                IoVec::new(self.data(entry), self.data_bytes),
            ];
            self.command(cx, tag + entry as u32, entry, REGISTER, &memory);
        }
    }

    fn command(&self, cx: &mut Context<'_>, tag: u32, entry: usize, code: u32, memory: &[IoVec]) {
        let Entry { queue, unique } = self.entries[entry];
        let mut payload = [0; COMMAND_BYTES];
        payload[8..16].copy_from_slice(&unique.to_ne_bytes());
        payload[16..18].copy_from_slice(&queue.to_ne_bytes());
        // SAFETY: the session holds the descriptor and the memory, and is dropped when its operations have ended, or have
        // been given up with the memory.
        unsafe { cx.command(tag, self.device.fd(), code, payload, memory) };
    }

    /// The request that an entry came with; none if it makes no sense.
    pub(super) fn take(&mut self, entry: usize) -> Option<Request> {
        // SAFETY: the headers are the entry's, and the kernel has done with them.
        let headers = unsafe { slice::from_raw_parts(self.headers(entry), HEADERS) };
        let fields = &headers[FIELDS..];
        self.entries[entry].unique = u64::from_ne_bytes(*fields[8..].first_chunk()?);
        let data = u32::from_ne_bytes(*fields[16..].first_chunk()?) as usize;
        if data > self.data_bytes {
            return None;
        }
        parse_parts(&headers[..IN_HEADER], &headers[BODY..][..BODY_MAX], data)
    }

    /// Answers with a body.
    pub(super) fn answer(&self, cx: &mut Context<'_>, tag: u32, entry: usize, body: &Body) {
        let bytes = body.bytes();
        // SAFETY: the entry's memory is longer than a body, and is ours until the answer is given.
        unsafe { self.data(entry).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.give(cx, tag, entry, bytes.len());
    }

    /// Answers with so many bytes of data, which are there.
    pub(super) fn give(&self, cx: &mut Context<'_>, tag: u32, entry: usize, len: usize) {
        self.commit(cx, tag, entry, len, 0);
    }

    pub(super) fn refuse(&self, cx: &mut Context<'_>, tag: u32, entry: usize, errno: i32) {
        self.commit(cx, tag, entry, 0, errno);
    }

    fn commit(&self, cx: &mut Context<'_>, tag: u32, entry: usize, len: usize, errno: i32) {
        let unique = self.entries[entry].unique;
        // SAFETY: the headers are ours until the answer is given.
        let headers = unsafe { slice::from_raw_parts_mut(self.headers(entry), HEADERS) };
        let header = out_header(unique, len, errno);
        headers[..header.len()].copy_from_slice(&header);
        headers[FIELDS + 16..][..4].copy_from_slice(&(len as u32).to_ne_bytes());
        self.command(cx, tag, entry, COMMIT_AND_FETCH, &[]);
    }

    /// An entry has ended for good; true if it was the last.
    pub(super) fn end(&mut self) -> bool {
        self.live -= 1;
        self.live == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(processors("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(processors("0\n"), Some(vec![0]));
        assert_eq!(processors("\n"), None);
        assert_eq!(processors("0-x"), None);
    }

    fn depths(queues: &Queues) -> Vec<usize> {
        queues.queues.iter().map(|queue| queue.depth).collect()
    }

    #[test]
    fn each_processor_has_a_queue_and_those_that_are_not_there_a_short_one() {
        let queues = Queues::of("0-3", "0-1").expect("lists");
        assert_eq!(depths(&queues), [DEPTH, DEPTH, 1, 1]);
        assert_eq!(
            queues.queues.iter().map(|queue| queue.number).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        for processors in [1, 2, 4, 7, 8, 64, 256] {
            let list = format!("0-{}", processors - 1);
            let queues = Queues::of(&list, &list).expect("lists");
            let entries = depths(&queues).iter().sum::<usize>();
            assert!(entries >= processors && entries * queues.data_bytes <= BYTES, "{processors}");
        }
        assert!(Queues::of("0-4095", "0-3").is_none(), "entries would take a gigabyte");
        let pluggable = Queues::of("0-127", "0-3").expect("lists");
        let entries = depths(&pluggable).iter().sum::<usize>();
        assert!(entries * pluggable.data_bytes <= BYTES, "{entries}");
    }

    #[test]
    fn long_requests_become_shorter_before_there_are_fewer() {
        let terms = |list| {
            let queues = Queues::of(list, list).expect("lists");
            (queues.data_bytes, queues.queues[0].depth)
        };
        assert_eq!(terms("0"), (1 << 20, DEPTH));
        assert_eq!(terms("0-7"), (512 << 10, DEPTH));
        assert_eq!(terms("0-15"), (256 << 10, DEPTH));
        assert_eq!(terms("0-63"), (256 << 10, 4));
    }

    #[test]
    fn half_of_the_shards_serve_all_queues() {
        let queues = Queues::of("0-4", "0-4").expect("lists");
        for (shards, sessions) in [(1, 1), (2, 1), (3, 2), (4, 2), (100, 5)] {
            let dealt = queues.deal(shards);
            assert!(dealt.len() == sessions && dealt.iter().all(|share| !share.is_empty()));
            let mut all: Vec<u16> = dealt.concat().iter().map(|queue| queue.number).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4]);
        }
    }
}
