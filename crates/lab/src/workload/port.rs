//! What carries requests out, and the simplest that do.

use super::generator::Request;
use super::recorder::Kind;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request that has ended.
pub(crate) type Ended = (u32, io::Result<()>);

/// Carries out one thread's requests. Each that was submitted ends once, in [`Port::wait`].
pub(crate) trait Port: Send {
    /// Begins a request.
    ///
    /// # Safety
    /// `memory` is valid for the request's length, and unused until the request has ended or the port is
    /// dropped.
    unsafe fn submit(&mut self, request: &Request, memory: *mut u8) -> io::Result<()>;

    /// Waits until something has ended, at most for `patience`, and puts it into `ended`.
    fn wait(&mut self, ended: &mut Vec<Ended>, patience: Option<Duration>) -> io::Result<()>;
}

/// Answers at once and moves nothing: the floor of the harness.
#[derive(Default)]
pub(crate) struct Null {
    ended: Vec<Ended>,
}

impl Port for Null {
    unsafe fn submit(&mut self, request: &Request, _: *mut u8) -> io::Result<()> {
        self.ended.push((request.slot, Ok(())));
        Ok(())
    }

    fn wait(&mut self, ended: &mut Vec<Ended>, patience: Option<Duration>) -> io::Result<()> {
        if self.ended.is_empty()
            && let Some(patience) = patience
        {
            std::thread::sleep(patience);
        }
        ended.append(&mut self.ended);
        Ok(())
    }
}

/// A file where io_uring is refused: a thread for each request under way.
pub(crate) struct Threads {
    work: Option<Sender<Work>>,
    ended: Receiver<Ended>,
    threads: Vec<JoinHandle<()>>,
}

struct Work {
    request: Request,
    memory: *mut u8,
}

// SAFETY: whoever submitted it leaves the memory alone until it has ended.
unsafe impl Send for Work {}

impl Threads {
    pub(crate) fn new(file: &Arc<File>, depth: u32) -> io::Result<Self> {
        let (work, todo) = mpsc::channel::<Work>();
        let todo = Arc::new(Mutex::new(todo));
        let (sender, ended) = mpsc::channel();
        let mut threads = Vec::new();
        for _ in 0..depth {
            let (todo, sender, file) = (todo.clone(), sender.clone(), file.clone());
            let run = move || {
                loop {
                    let work = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(work) = work else { return };
                    let slot = work.request.slot;
                    if sender.send((slot, carry_out(&file, &work))).is_err() {
                        return;
                    }
                }
            };
            threads.push(std::thread::Builder::new().name("lab-io".into()).spawn(run)?);
        }
        Ok(Self { work: Some(work), ended, threads })
    }
}

fn carry_out(file: &File, work: &Work) -> io::Result<()> {
    let Request { kind, offset, len, .. } = work.request;
    if kind == Kind::Flush {
        return file.sync_data();
    }
    // SAFETY: the submitter said that it is valid and ours.
    let memory = unsafe { std::slice::from_raw_parts_mut(work.memory, len as usize) };
    match kind {
        Kind::Read => file.read_exact_at(memory, offset),
        _ => file.write_all_at(memory, offset),
    }
}

impl Port for Threads {
    unsafe fn submit(&mut self, request: &Request, memory: *mut u8) -> io::Result<()> {
        let work = self.work.as_ref().expect("it is there until the drop");
        work.send(Work { request: *request, memory }).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn wait(&mut self, ended: &mut Vec<Ended>, patience: Option<Duration>) -> io::Result<()> {
        let first = match patience {
            Some(patience) => self.ended.recv_timeout(patience),
            None => self.ended.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match first {
            Ok(first) => ended.push(first),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        ended.extend(self.ended.try_iter());
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.work = None;
        for thread in self.threads.drain(..) {
            // One that panicked has been heard on stderr.
            let _ = thread.join();
        }
    }
}
