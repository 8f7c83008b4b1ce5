use super::*;
use crate::workload::drive::{self, Outcome, Stop};
use crate::workload::port::{Ended, Null, Port};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KIB: u64 = 1024;

fn io(pattern: Pattern) -> Io {
    Io::reads(pattern, 4 * KIB)
}

/// Memory that remembers what was asked of it; answers each of its ports in reverse, one a call.
#[derive(Default)]
struct Memory(Arc<Mutex<Inner>>, Vec<Ended>);

#[derive(Default)]
struct Inner {
    bytes: Vec<u8>,
    log: Vec<(Kind, u64, u64)>,
    most_under_way: usize,
    under_way: usize,
    /// Writes that are dropped, counted from the first.
    lose_write: Option<usize>,
}

impl Memory {
    fn new(size: u64) -> Self {
        let memory = Self::default();
        memory.0.lock().unwrap().bytes = vec![0; size as usize];
        memory
    }

    fn log(&self) -> Vec<(Kind, u64, u64)> {
        self.0.lock().unwrap().log.clone()
    }
}

impl Port for Memory {
    unsafe fn submit(&mut self, request: &Request, memory: *mut u8) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let inner = &mut *inner;
        let range = request.offset as usize..(request.offset + request.len) as usize;
        // SAFETY: as the caller says.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory, request.len as usize) };
        let writes = inner.log.iter().filter(|(kind, ..)| *kind == Kind::Write).count();
        match request.kind {
            Kind::Read => memory.copy_from_slice(&inner.bytes[range]),
            Kind::Write if inner.lose_write == Some(writes) => {}
            Kind::Write => inner.bytes[range].copy_from_slice(memory),
            Kind::Flush => {}
        }
        inner.log.push((request.kind, request.offset, request.len));
        inner.under_way += 1;
        inner.most_under_way = inner.most_under_way.max(inner.under_way);
        self.1.push((request.slot, Ok(())));
        Ok(())
    }

    fn wait(&mut self, ended: &mut Vec<Ended>, patience: Option<Duration>) -> io::Result<()> {
        match self.1.pop() {
            Some(last) => {
                self.0.lock().unwrap().under_way -= 1;
                ended.push(last);
            }
            None => std::thread::sleep(patience.unwrap_or_default()),
        }
        Ok(())
    }
}

fn run_on(memory: &Memory, io: &Io, range: Range<u64>, amount: u64) -> Result<Outcome, String> {
    let each = End::Amount { bytes: amount / u64::from(io.threads) };
    let generators = drive::generators(io, &range, each, 7);
    let port = || Ok(Box::new(Memory(memory.0.clone(), Vec::new())) as Box<dyn Port>);
    drive::run(generators, port, &Stop::new())
}

#[test]
fn an_amount_is_moved_exactly() {
    for (pattern, read) in [
        (Pattern::Sequential, 1.0),
        (Pattern::Uniform, 0.0),
        (Pattern::Zipf(0.9), 0.5),
        (Pattern::Strided(64 * KIB), 1.0),
        (Pattern::Streams(3), 0.0),
    ] {
        let memory = Memory::new(1024 * KIB);
        let io = Io { read, depth: 4, threads: 2, ..io(pattern) };
        let done = run_on(&memory, &io, 0..1024 * KIB, 512 * KIB).unwrap();
        let (reads, writes) = (done.recorded.read, done.recorded.write);
        assert_eq!(reads.bytes + writes.bytes, 512 * KIB, "{pattern:?}");
        assert_eq!(reads.requests + writes.requests, 128, "{pattern:?}");
        let counted =
            reads.latency.map_or(0, |l| l.count()) + writes.latency.map_or(0, |l| l.count());
        assert_eq!(counted, 128, "{pattern:?}");
        let samples: u64 = done.recorded.series.requests.iter().sum();
        assert_eq!(samples, 128, "{pattern:?}");
        if read == 1.0 || read == 0.0 {
            assert_eq!((reads.bytes > 0, writes.bytes > 0), (read == 1.0, read == 0.0));
        } else {
            // 128 tosses of a coin: less than 32 come once in a hundred million.
            assert!((32..=96).contains(&reads.requests), "{}", reads.requests);
        }
        let most = memory.0.lock().unwrap().most_under_way;
        assert!((4..=8).contains(&most), "{most}");
    }
}

#[test]
fn threads_have_their_own_parts_of_a_sequence() {
    let memory = Memory::new(64 * KIB);
    let io = Io { threads: 2, ..io(Pattern::Sequential) };
    run_on(&memory, &io, 0..64 * KIB, 64 * KIB).unwrap();
    let mut places: Vec<u64> = memory.log().iter().map(|(_, offset, _)| *offset).collect();
    places.sort_unstable();
    assert_eq!(places, (0..16).map(|i| i * 4 * KIB).collect::<Vec<_>>());
}

#[test]
fn flushes_come_after_so_many_writes_and_at_the_end() {
    let memory = Memory::new(64 * KIB);
    let io = Io { read: 0.0, fsync_every: Some(2), fsync_end: true, ..io(Pattern::Sequential) };
    let done = run_on(&memory, &io, 0..64 * KIB, 20 * KIB).unwrap();
    let kinds: Vec<Kind> = memory.log().iter().map(|(kind, ..)| *kind).collect();
    use Kind::{Flush as F, Write as W};
    assert_eq!(kinds, [W, W, F, W, W, F, W, F]);
    assert_eq!(done.recorded.write.requests, 5);
}

#[test]
fn verify_reads_everything_back() {
    let memory = Memory::new(64 * KIB);
    let io = Io { read: 0.0, verify: true, depth: 3, ..io(Pattern::Sequential) };
    let done = run_on(&memory, &io, 0..64 * KIB, 96 * KIB).unwrap();
    assert_eq!(done.checked, 16);
    // Reading back is in no figure.
    assert_eq!((done.recorded.read.requests, done.recorded.write.requests), (0, 24));
}

#[test]
fn verify_finds_a_lost_write() {
    let memory = Memory::new(64 * KIB);
    memory.0.lock().unwrap().lose_write = Some(20);
    let io = Io { read: 0.0, verify: true, ..io(Pattern::Sequential) };
    let why = run_on(&memory, &io, 0..64 * KIB, 96 * KIB).err().unwrap();
    assert_eq!(why, "verify: at byte 16384: it holds write 1 of that place; the last one was 2");
}

#[test]
fn a_mix_on_few_blocks_verifies_under_any_order() {
    let memory = Memory::new(16 * KIB);
    let io = Io { read: 0.5, verify: true, depth: 16, ..io(Pattern::Uniform) };
    let done = run_on(&memory, &io, 0..16 * KIB, 4096 * KIB).unwrap();
    assert!(done.checked > 100, "{}", done.checked);
}

#[test]
fn a_rate_spaces_requests_and_counts_lateness() {
    let io = Io { rate: Some(40 * KIB), ..io(Pattern::Sequential) };
    let end = End::Time { from_ns: 0, until_ns: 1_000_000_000 };
    let mut generator = Generator::new(&io, &(0..64 * KIB), end, 0, 1);
    // Ten a second.
    assert!(matches!(generator.next(0), Step::Do(_)));
    generator.complete(0, Ok(()), &[], 250_000_000).unwrap();
    // Due at 100 ms, begun at 250: it is late by what the first took too long.
    assert!(matches!(generator.next(250_000_000), Step::Do(_)));
    generator.complete(0, Ok(()), &[], 260_000_000).unwrap();
    assert!(matches!(generator.next(260_000_000), Step::Do(_)));
    generator.complete(0, Ok(()), &[], 261_000_000).unwrap();
    assert_eq!(generator.next(261_000_000), Step::WaitUntil(300_000_000));
    let done = Outcome::of(&[generator]).recorded.read;
    let latency = done.latency.unwrap();
    assert!(
        latency.percentile(50.0).abs_diff(160_000_000) < 1_000_000,
        "{}",
        latency.percentile(50.0)
    );
}

/// An array holds a stripe back for a request that is said to follow.
#[test]
fn the_last_request_that_can_be_begun_is_known() {
    let mut io = io(Pattern::Sequential);
    (io.read, io.depth) = (0.0, 2);
    let mut generator = Generator::new(&io, &(0..64 * KIB), End::Amount { bytes: 64 * KIB }, 0, 1);
    let begun = |step| matches!(step, Step::Do(_));
    assert!(begun(generator.next(0)) && generator.has_more(0));
    assert!(begun(generator.next(0)) && !generator.has_more(0));
    generator.complete(0, Ok(()), &[], 5).unwrap();
    assert!(generator.has_more(5));
    assert!(begun(generator.next(5)) && !generator.has_more(5));
}

#[test]
fn think_time_is_a_pause_of_each_slot() {
    let io = Io { think: Duration::from_millis(5), depth: 2, ..io(Pattern::Sequential) };
    let end = End::Time { from_ns: 0, until_ns: 1_000_000_000 };
    let mut generator = Generator::new(&io, &(0..64 * KIB), end, 0, 1);
    let Step::Do(first) = generator.next(0) else { panic!("two slots are free") };
    let Step::Do(second) = generator.next(0) else { panic!("one slot is free") };
    assert_eq!(generator.next(0), Step::Wait);
    generator.complete(second.slot, Ok(()), &[], 1_000_000).unwrap();
    assert_eq!(generator.next(1_000_000), Step::WaitUntil(6_000_000));
    generator.complete(first.slot, Ok(()), &[], 2_000_000).unwrap();
    assert!(matches!(generator.next(6_000_000), Step::Do(request) if request.slot == second.slot));
}

#[test]
fn time_ends_a_run_and_the_warm_up_does_not_count() {
    let end = End::Time { from_ns: 20_000_000, until_ns: 120_000_000 };
    let generators = drive::generators(&io(Pattern::Uniform), &(0..64 * KIB), end, 1);
    let done = drive::run(generators, || Ok(Box::new(Null::default())), &Stop::new()).unwrap();
    assert_eq!(done.recorded.seconds, 0.1);
    assert_eq!(done.recorded.series.requests.len(), 1);
    assert!(done.recorded.read.requests > 100);
}

#[test]
fn an_error_names_what_failed_and_where() {
    let end = End::Amount { bytes: 8 * KIB };
    let mut generator = Generator::new(&io(Pattern::Sequential), &(0..64 * KIB), end, 0, 1);
    assert!(matches!(generator.next(0), Step::Do(_)));
    let why = generator.complete(0, Err("EIO".into()), &[], 1).unwrap_err();
    assert_eq!(why, "a read of 4096 bytes at byte 0 failed: EIO");
}

#[test]
fn a_stop_ends_a_run() {
    let stop = Stop::new();
    stop.set();
    let end = End::Time { from_ns: 0, until_ns: u64::MAX };
    let generators = drive::generators(&io(Pattern::Uniform), &(0..64 * KIB), end, 1);
    let why = drive::run(generators, || Ok(Box::new(Null::default())), &stop).err().unwrap();
    assert_eq!(why, drive::INTERRUPTED);
}
