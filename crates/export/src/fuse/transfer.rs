//! Requests of the mount on their way through the array.
//!
//! A [`Transfer`] is a list of steps, each one request to the array; the next is sent from where
//! the last one ended, on a shard's thread, so no thread of the mount waits for a member.
//!
//! Invariants:
//! - memory is taken, and its lack waited for, only on the mount's threads and before the first
//!   step; steps allocate nothing from the pool and so never wait for each other;
//! - a transfer's memory and its turn are given back when it is dropped, answered or not, thus also
//!   when the array has stopped and drops what it was sent.

use super::memory::warm_heap;
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use lapstrake_device::{BufId, Pool};
use lapstrake_host::{Guard, Outside, Outsider, RequestError, flush_others_last};
use std::{
    io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
};

/// Memory of a request starts at a multiple of this.
const PAGE: usize = 4096;
/// Longest read or write of the kernel, as agreed with it, in bytes.
pub(super) const TRANSFER_MAX: usize = 1 << 20;
/// Memory for transfers in flight, in bytes: what keeps a few of the longest going on every
/// shard, and some hundreds of small ones.
const POOL_BYTES: usize = 16 << 20;
/// An answer with this many bytes and more is sent by a thread of its own, so that the shard can
/// fetch the next meanwhile: the copy into the reader's memory takes about as long as the fetch.
const LONG: usize = 64 << 10;
/// Longest run that is zeroed in one step, so that zeroing a whole array stays a bounded work at
/// any time.
const ZEROES_MAX: u64 = 64 << 20;

/// The array as the mount's threads see it.
pub(super) struct Device {
    array: Outsider,
    /// Size of the array, a multiple of `block`.
    pub(super) bytes: u64,
    /// The members' unit, 512 or more: requests to the array start at and are multiples of it.
    block: u64,
    state: Mutex<State>,
    freed: Condvar,
    /// To the thread that sends long answers.
    long: Sender<Box<Transfer>>,
}

struct State {
    pool: Pool,
    /// The array orders overlapping writes by itself, but not the read, merge and write of a block
    /// that is written in part: nothing may change the block in between.
    guard: Guard<Box<Transfer>>,
    /// Threads that wait for memory.
    hungry: u32,
}

impl Device {
    /// # Errors
    /// Memory for transfers is refused.
    pub(super) fn new(array: Outsider, bytes: u64, block: u64) -> io::Result<Self> {
        let pool = Pool::new(POOL_BYTES, true)?;
        let state = Mutex::new(State { pool, guard: Guard::default(), hungry: 0 });
        let (long, answers) = mpsc::channel::<Box<Transfer>>();
        let send = move || {
            flush_others_last();
            warm_heap();
            answers.into_iter().for_each(|transfer| transfer.answer(Ok(())));
        };
        std::thread::Builder::new().name("fuse-answers".into()).spawn(send)?;
        // A request of nothing, to meet the shard's thread.
        let (met, meeting) = mpsc::channel();
        let warm = Box::new(move |_| {
            warm_heap();
            // The receiver waits below.
            let _ = met.send(());
        });
        // SAFETY: a flush names no memory.
        unsafe { array.request(Outside::Flush, 0, 0, warm) };
        // Without an answer the array has stopped; requests will say so.
        let _ = meeting.recv();
        Ok(Self { array, bytes, block, state, freed: Condvar::new(), long })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; if it did, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads `len` bytes at `offset`; what lies beyond the end is left out.
    pub(super) fn read(self: &Arc<Self>, offset: u64, len: u32, reply: ReplyData) {
        let end = offset.saturating_add(u64::from(len)).min(self.bytes);
        if offset >= end {
            return reply.data(&[]);
        }
        let around = around(offset..end, self.block);
        let skip = (offset - around.start) as usize;
        let len = (end - offset) as usize;
        let size = (around.end - around.start) as usize;
        let transfer = Transfer {
            hold: Hold::take(self, size),
            steps: vec![Step::Read { offset: around.start, len: size }],
            answer: Some(Answer::Data(reply, skip..skip + len)),
        };
        Box::new(transfer).go();
    }

    /// Writes; what lies beyond the end is left out. With `fua` it is stable when answered.
    pub(super) fn write(self: &Arc<Self>, offset: u64, data: &[u8], fua: bool, reply: ReplyWrite) {
        let end = offset.saturating_add(data.len() as u64).min(self.bytes);
        if offset >= end {
            return if data.is_empty() { reply.written(0) } else { reply.error(Errno::ENOSPC) };
        }
        let data = &data[..(end - offset) as usize];
        let around = around(offset..end, self.block);
        let size = (around.end - around.start) as usize;
        let skip = (offset - around.start) as usize;
        let mut steps = vec![Step::Write { offset: around.start, at: 0, len: size, fua }];
        let edges = edges(offset..end, self.block);
        steps.extend(edges.map(|edge| edge.fetch(&around)));
        let scratch = if steps.len() > 1 { self.page() } else { 0 };
        let hold = Hold::take(self, size.next_multiple_of(PAGE) + scratch);
        hold.copy_in(skip, data);
        let answer = Some(Answer::Written(reply, data.len() as u32));
        self.in_turn(around, Transfer { hold, steps, answer });
    }

    /// Makes `range`, which lies within the array, read as zeroes; `unmap` lets the members give
    /// its space back.
    pub(super) fn zero(self: &Arc<Self>, range: Range<u64>, unmap: bool, reply: ReplyEmpty) {
        let around = around(range.clone(), self.block);
        let inside = range.start.next_multiple_of(self.block)..range.end / self.block * self.block;
        let mut hold = Hold::empty(self);
        // The last step comes first.
        let mut steps = Vec::new();
        let mut at = inside.end;
        while at > inside.start {
            let start = at.saturating_sub(ZEROES_MAX).max(inside.start);
            steps.push(Step::Zeroes { offset: start, len: at - start, unmap });
            at = start;
        }
        let edges: Vec<Edge> = edges(range.clone(), self.block).collect();
        if !edges.is_empty() {
            // A page for each edge's block, one to fetch into.
            let page = self.page();
            hold = Hold::take(self, 3 * page);
            hold.clear();
            let mut blocks: Vec<u64> = edges.iter().map(|edge| edge.block).collect();
            blocks.dedup();
            for (index, &offset) in blocks.iter().enumerate() {
                let at = index * page;
                steps.push(Step::Write { offset, at, len: self.block as usize, fua: false });
                let of_block = edges.iter().filter(|edge| edge.block == offset);
                steps.extend(of_block.map(|edge| edge.fetch_to(at)));
            }
        }
        self.in_turn(around, Transfer { hold, steps, answer: Some(Answer::Empty(reply)) });
    }

    /// Makes durable what was answered.
    pub(super) fn flush(self: &Arc<Self>, reply: ReplyEmpty) {
        let (hold, steps) = (Hold::empty(self), vec![Step::Flush]);
        Box::new(Transfer { hold, steps, answer: Some(Answer::Empty(reply)) }).go();
    }

    /// Memory that a block takes, bytes.
    fn page(&self) -> usize {
        PAGE.max(self.block as usize)
    }

    fn in_turn(&self, range: Range<u64>, mut transfer: Transfer) {
        transfer.hold.turn = Some(range.start);
        let ready = self.lock().guard.claim(range, Box::new(transfer));
        if let Some(transfer) = ready {
            transfer.go();
        }
    }
}

/// The whole blocks that hold a range.
fn around(range: Range<u64>, block: u64) -> Range<u64> {
    range.start / block * block..range.end.next_multiple_of(block)
}

/// Part of a block that a change leaves as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    block: u64,
    keep: Range<usize>,
}

impl Edge {
    /// Fetches it to its place in memory that holds `whole` from its start.
    fn fetch(&self, whole: &Range<u64>) -> Step {
        self.fetch_to((self.block - whole.start) as usize)
    }

    /// Fetches it to its place in the block's image at byte `to` of the memory.
    fn fetch_to(&self, to: usize) -> Step {
        Step::Fetch { block: self.block, keep: self.keep.clone(), to }
    }
}

/// What a change of `range` leaves of the first and the last block.
fn edges(range: Range<u64>, block: u64) -> impl Iterator<Item = Edge> {
    let part = |at: u64| (at % block) as usize;
    let head = Edge { block: range.start / block * block, keep: 0..part(range.start) };
    let tail_keep = if part(range.end) == 0 { 0..0 } else { part(range.end)..block as usize };
    let tail = Edge { block: range.end / block * block, keep: tail_keep };
    [head, tail].into_iter().filter(|edge| !edge.keep.is_empty())
}

/// Memory and turn of a transfer.
struct Hold {
    device: Arc<Device>,
    memory: Option<(BufId, *mut u8)>,
    /// Start of the range whose turn is held (or waited for: it is not dropped while it waits).
    turn: Option<u64>,
}

// SAFETY: the memory is this hold's alone until it is dropped; the pool outlives it (`device`).
unsafe impl Send for Hold {}

impl Hold {
    fn empty(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), memory: None, turn: None }
    }

    /// Takes memory, waiting until there is enough.
    fn take(device: &Arc<Device>, len: usize) -> Self {
        let mut state = device.lock();
        let run = loop {
            match state.pool.alloc(len) {
                Some(run) => break run,
                None => {
                    state.hungry += 1;
                    state = device.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.hungry -= 1;
                }
            }
        };
        let start = state.pool.ptr(run);
        drop(state);
        Self { device: device.clone(), memory: Some((run, start)), turn: None }
    }

    fn len(&self) -> usize {
        self.memory.map_or(0, |(run, _)| run.bytes())
    }

    /// Byte `at` of the memory.
    fn at(&self, at: usize) -> *mut u8 {
        let Some((run, start)) = self.memory else { panic!("a transfer of bytes has memory") };
        assert!(at < run.bytes());
        // SAFETY: within the run.
        unsafe { start.add(at) }
    }

    fn copy_in(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.len());
        // SAFETY: within the memory, which nobody else uses yet.
        unsafe { self.at(at).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
    }

    fn clear(&self) {
        // SAFETY: as in `copy_in`.
        unsafe { self.at(0).write_bytes(0, self.len()) };
    }

    /// Where a block is fetched to before it is merged: the memory's last page.
    fn scratch(&self) -> usize {
        self.len() - self.device.page()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.device.lock();
        if let Some((run, _)) = self.memory.take() {
            state.pool.free(run);
        }
        let ready = self.turn.map(|start| state.guard.release(start)).unwrap_or_default();
        let hungry = state.hungry > 0;
        drop(state);
        if hungry {
            self.device.freed.notify_all();
        }
        for transfer in ready {
            transfer.go();
        }
    }
}

/// One request to the array.
#[derive(Debug)]
enum Step {
    /// Into the memory's start.
    Read { offset: u64, len: usize },
    /// From byte `at` of the memory.
    Write { offset: u64, at: usize, len: usize, fua: bool },
    /// Read a block and copy `keep` of it into its image at byte `to` of the memory.
    Fetch { block: u64, keep: Range<usize>, to: usize },
    /// Without memory.
    Zeroes { offset: u64, len: u64, unmap: bool },
    /// Of the whole array.
    Flush,
}

enum Answer {
    /// With these bytes of the memory.
    Data(ReplyData, Range<usize>),
    /// With this count.
    Written(ReplyWrite, u32),
    Empty(ReplyEmpty),
}

/// See the module.
struct Transfer {
    hold: Hold,
    /// The next step is the last of the list.
    steps: Vec<Step>,
    /// None once it was given; a reply that is dropped says EIO by itself.
    answer: Option<Answer>,
}

impl Transfer {
    /// Sends the next step, or answers.
    fn go(mut self: Box<Self>) {
        let Some(step) = self.steps.pop() else { return self.succeed() };
        let (what, offset, len) = match step {
            Step::Read { offset, len } => (Outside::Read(self.hold.at(0)), offset, len as u64),
            Step::Write { offset, at, len, fua } => {
                (Outside::Write(self.hold.at(at), fua), offset, len as u64)
            }
            Step::Fetch { block, .. } => {
                (Outside::Read(self.hold.at(self.hold.scratch())), block, self.hold.device.block)
            }
            Step::Zeroes { offset, len, unmap } => {
                (Outside::WriteZeroes { fua: false, unmap }, offset, len)
            }
            Step::Flush => (Outside::Flush, 0, 0),
        };
        let device = self.hold.device.clone();
        let done = Box::new(move |result| self.ended(&step, result));
        // SAFETY: the memory is the hold's, page-aligned as are the places in it, and stays with
        // this transfer, which `done` owns.
        unsafe { device.array.request(what, offset, len, done) };
    }

    fn ended(self: Box<Self>, step: &Step, result: Result<(), RequestError>) {
        if result.is_err() {
            return self.answer(result);
        }
        if let Step::Fetch { keep, to, .. } = step {
            let (from, to) = (self.hold.scratch() + keep.start, to + keep.start);
            // SAFETY: a block fits into the scratch page, the image lies before it, and the array
            // has done with both.
            unsafe { self.hold.at(to).copy_from_nonoverlapping(self.hold.at(from), keep.len()) };
        }
        self.go();
    }

    fn succeed(self: Box<Self>) {
        match &self.answer {
            Some(Answer::Data(_, range)) if range.len() >= LONG => {
                let long = self.hold.device.long.clone();
                // Its receiver runs as long as there is a sender.
                let _ = long.send(self);
            }
            _ => self.answer(Ok(())),
        }
    }

    fn answer(mut self, result: Result<(), RequestError>) {
        let Some(answer) = self.answer.take() else { return };
        match (answer, result.map_err(errno)) {
            (Answer::Data(reply, range), Ok(())) => {
                // SAFETY: within the memory, which the array has filled and done with.
                let data =
                    unsafe { std::slice::from_raw_parts(self.hold.at(range.start), range.len()) };
                reply.data(data);
            }
            (Answer::Written(reply, count), Ok(())) => reply.written(count),
            (Answer::Empty(reply), Ok(())) => reply.ok(),
            (Answer::Data(reply, _), Err(errno)) => reply.error(errno),
            (Answer::Written(reply, _), Err(errno)) => reply.error(errno),
            (Answer::Empty(reply), Err(errno)) => reply.error(errno),
        }
    }
}

/// The array's errors as a file's.
fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::Io => Errno::EIO,
        RequestError::NoSpace => Errno::ENOSPC,
        RequestError::ReadOnly => Errno::EROFS,
        RequestError::OutOfRange | RequestError::Misaligned => Errno::EINVAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_what_it_does_not_cover_of_its_blocks() {
        let kept = |range: Range<u64>| -> Vec<(u64, Range<usize>)> {
            edges(range, 512).map(|edge| (edge.block, edge.keep)).collect()
        };
        assert_eq!(kept(512..1024), vec![]);
        assert_eq!(kept(0..1), vec![(0, 1..512)]);
        assert_eq!(kept(513..514), vec![(512, 0..1), (512, 2..512)]);
        assert_eq!(kept(1000..1024), vec![(512, 0..488)]);
        assert_eq!(kept(1..1025), vec![(0, 0..1), (1024, 1..512)]);
    }

    #[test]
    fn whole_blocks_around_a_range() {
        assert_eq!(around(0..1, 512), 0..512);
        assert_eq!(around(511..513, 512), 0..1024);
        assert_eq!(around(512..1024, 512), 512..1024);
        assert_eq!(around(512..1024, 4096), 0..4096);
    }
}
