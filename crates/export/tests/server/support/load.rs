//! A load that knows what it must read: random writes, zeroes, flushes and reads of its own part of
//! the array, several in flight, in a thread of its own.

use super::client::{Ask, Client, FUA};
use super::draw;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const DEPTH: usize = 8;
const SECTOR: u64 = 512;

/// A running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<Duration>,
}

enum Asked {
    Read(Range<u64>),
    Other,
}

impl Load {
    /// Starts a load on the bytes of `range`, which nobody else writes and which read as zeroes.
    pub fn start(client: Client, range: Range<u64>, seed: u64) -> Self {
        Self::start_with(client, range, seed, 64 << 10)
    }

    /// With requests of at most `longest` bytes.
    pub fn start_with(client: Client, range: Range<u64>, seed: u64, longest: u64) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, count) = (stop.clone(), done.clone());
        let model = vec![0; (range.end - range.start) as usize];
        let mut worker = Worker {
            client,
            range,
            seed,
            longest,
            model,
            busy: BTreeMap::new(),
            cookies: 0,
            slowest: Duration::ZERO,
        };
        let thread = std::thread::spawn(move || worker.run(&told, &count));
        Self { stop, done, thread }
    }

    /// Requests answered so far.
    pub fn progress(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits for so many more requests.
    pub fn wait_for(&self, more: u64) {
        let goal = self.progress() + more;
        super::until("the load to go on", || self.progress() >= goal || self.thread.is_finished());
    }

    /// Ends it, with everything read once more; the longest that a request took.
    pub fn finish(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(slowest) => slowest,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Worker {
    client: Client,
    range: Range<u64>,
    seed: u64,
    longest: u64,
    model: Vec<u8>,
    /// In flight, by cookie; ranges relative to the part.
    busy: BTreeMap<u64, (Range<u64>, Asked, Instant)>,
    cookies: u64,
    slowest: Duration,
}

impl Worker {
    fn run(&mut self, stop: &AtomicBool, done: &AtomicU64) -> Duration {
        while !stop.load(Ordering::Relaxed) {
            for _ in self.busy.len()..DEPTH {
                self.ask();
            }
            self.take_reply(done);
        }
        while !self.busy.is_empty() {
            self.take_reply(done);
        }
        let len = self.model.len();
        for at in (0..len).step_by(1 << 20) {
            let part = at..len.min(at + (1 << 20));
            let found = self.client.read(self.range.start + at as u64, part.len()).expect("reads");
            assert_same(&found, &self.model[part], at as u64);
        }
        self.slowest
    }

    fn ask(&mut self) {
        let len = self.range.end - self.range.start;
        let sectors = 1 + draw(&mut self.seed) % (self.longest / SECTOR);
        let first = draw(&mut self.seed) % (len / SECTOR);
        let at = first * SECTOR..((first + sectors) * SECTOR).min(len);
        let meets = |other: &Range<u64>| other.start < at.end && at.start < other.end;
        if self.busy.values().any(|(other, ..)| meets(other)) {
            return;
        }
        self.cookies += 1;
        let (cookie, offset) = (self.cookies, self.range.start + at.start);
        let bytes = (at.end - at.start) as u32;
        let place = at.start as usize..at.end as usize;
        let kind = draw(&mut self.seed) % 16;
        let flags = if kind == 0 { FUA } else { 0 };
        let (ask, asked) = match kind {
            0..8 => {
                let (salt, model) = (draw(&mut self.seed), &mut self.model[place.clone()]);
                for (nth, word) in model.chunks_mut(8).enumerate() {
                    word.copy_from_slice(&(salt ^ nth as u64).to_le_bytes());
                }
                (Ask::Write, Asked::Other)
            }
            8 => {
                self.model[place.clone()].fill(0);
                (Ask::WriteZeroes, Asked::Other)
            }
            9 => {
                self.client.send(Ask::Flush, 0, cookie, 0, 0, &[]).expect("sends");
                self.busy.insert(cookie, (0..0, Asked::Other, Instant::now()));
                return;
            }
            _ => (Ask::Read, Asked::Read(at.clone())),
        };
        let payload = if ask == Ask::Write { &self.model[place] } else { &[] };
        self.client.send(ask, flags, cookie, offset, bytes, payload).expect("sends");
        self.busy.insert(cookie, (at, asked, Instant::now()));
    }

    fn take_reply(&mut self, done: &AtomicU64) {
        let (cookie, error) = self.client.receive().expect("is answered");
        let (at, asked, since) = self.busy.remove(&cookie).expect("was asked");
        assert_eq!(error, 0, "an error for {at:?}");
        if let Asked::Read(at) = asked {
            let mut data = vec![0; (at.end - at.start) as usize];
            self.client.stream.read_exact(&mut data).expect("data follows");
            let model = &self.model[at.start as usize..at.end as usize];
            assert_same(&data, model, at.start);
        }
        self.slowest = self.slowest.max(since.elapsed());
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn assert_same(found: &[u8], expected: &[u8], at: u64) {
    if found == expected {
        return;
    }
    assert_eq!(found.len(), expected.len());
    let nth = (0..found.len()).find(|&nth| found[nth] != expected[nth]).expect("they differ");
    panic!("wrong data at {}: {:#x}, not {:#x}", at + nth as u64, found[nth], expected[nth]);
}
