//! Threads that perform storage steps where no ring can: the whole of storage in the fallback back end,
//! and ioctls and overlays beside a ring.
//!
//! Results go to a shared list; the loop is woken through its [`Waker`], which costs nothing while it is
//! awake. Threads start on the first job and end when the pool is dropped, after the jobs queued.

use crate::raw::Raw;
use crate::waker::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

struct Shared {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
    results: Mutex<Vec<(usize, i32)>>,
    waker: Waker,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<(usize, Raw)>,
    closing: bool,
}

pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    in_flight: usize,
}

impl Workers {
    pub(crate) fn new(threads_max: usize, waker: Waker) -> Self {
        let shared = Shared {
            jobs: Mutex::default(),
            arrived: Condvar::new(),
            results: Mutex::default(),
            waker,
        };
        Self { shared: Arc::new(shared), threads: Vec::new(), threads_max, in_flight: 0 }
    }

    /// Queues a storage step.
    ///
    /// # Safety
    /// Its pointers must stay valid until its result was collected.
    pub(crate) unsafe fn start(&mut self, key: usize, raw: Raw) {
        self.in_flight += 1;
        if self.threads.len() < self.threads_max.min(self.in_flight) {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("member-io".into());
            match builder.spawn(move || work(&shared)) {
                Ok(thread) => self.threads.push(thread),
                Err(_) if !self.threads.is_empty() => {}
                Err(_) => {
                    // No thread to be had at all: slow is better than never.
                    // SAFETY: valid by this function's contract.
                    let result = unsafe { raw.perform() };
                    lock(&self.shared.results).push((key, result));
                    return;
                }
            }
        }
        lock(&self.shared.jobs).queue.push_back((key, raw));
        self.shared.arrived.notify_one();
    }

    /// Appends the results that have arrived.
    pub(crate) fn collect(&mut self, results: &mut Vec<(usize, i32)>) {
        if self.in_flight > 0 {
            let mut arrived = lock(&self.shared.results);
            self.in_flight -= arrived.len();
            results.append(&mut arrived);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }
}

fn work(shared: &Shared) {
    loop {
        let mut jobs = lock(&shared.jobs);
        let (key, raw) = loop {
            if let Some(job) = jobs.queue.pop_front() {
                break job;
            }
            if jobs.closing {
                return;
            }
            jobs = shared.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        };
        drop(jobs);
        // SAFETY: valid until collected, by the contract of `Workers::start`.
        let result = unsafe { raw.perform() };
        lock(&shared.results).push((key, result));
        shared.waker.wake();
    }
}

/// The data behind these locks is whole at every moment: a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.jobs).closing = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}
