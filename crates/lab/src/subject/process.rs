//! An array in this process: loads live on its shards' own threads, so that no request crosses a thread that an
//! array's own front end would not cross either.

use crate::workload::drive::{INTERRUPTED, Outcome, Stop, fill};
use crate::workload::generator::{Generator, Request, Step};
use crate::workload::recorder;
use lapstrake_device::MemberSpec;
use lapstrake_host::{
    Array, Client, Context, Detail, Kind, Memory, OpenRequest, Options, RequestError, open,
};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use tracing::subscriber::NoSubscriber;

/// How long nothing may end before a run looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// How the array runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub stripe_cache: Option<u32>,
    pub sync_speed_min: Option<u64>,
    pub sync_speed_max: Option<u64>,
    /// For the requests of a shard.
    pub buffer_bytes: usize,
}

/// A running array.
pub(crate) struct Hosted(Array);

impl Hosted {
    /// Opens and starts an array.
    ///
    /// # Errors
    /// The array's own.
    pub(crate) fn start(members: &[MemberSpec], settings: Settings) -> Result<Self, String> {
        let request = OpenRequest { members: members.to_vec(), ..OpenRequest::default() };
        let opened = open(&request).map_err(|error| error.to_string())?;
        let default = Options::default();
        let options = Options {
            stripe_cache_size: settings.stripe_cache.unwrap_or(default.stripe_cache_size),
            sync_speed_min_kib: settings
                .sync_speed_min
                .map_or(default.sync_speed_min_kib, |bytes| bytes >> 10),
            sync_speed_max_kib: settings
                .sync_speed_max
                .map_or(default.sync_speed_max_kib, |bytes| bytes >> 10),
            buffer_bytes: settings.buffer_bytes.max(default.buffer_bytes),
            ..default
        };
        // What it has to say is no part of a measurement's display.
        let array = tracing::subscriber::with_default(NoSubscriber::default(), || {
            Array::start(opened.parts, &options)
        });
        array.map(Self).map_err(|error| error.to_string())
    }

    /// Bytes for data.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Everything about it.
    pub(crate) fn detail(&self) -> Option<Detail> {
        self.0.handle().detail()
    }

    /// Runs all generators to their end, each in a session of its own.
    ///
    /// # Errors
    /// What the first of them that failed says.
    pub(crate) fn run(
        &self,
        generators: Vec<Generator>,
        stop: &Arc<Stop>,
    ) -> Result<Outcome, String> {
        let (done, results) = mpsc::channel();
        let count = generators.len();
        let failed = Arc::new(Stop::new());
        let began = Instant::now();
        for generator in generators {
            self.0.handle().welcome(Box::new(Session {
                generator: Some(generator),
                memory: Vec::new(),
                began,
                wake: None,
                stop: stop.clone(),
                failed: failed.clone(),
                done: done.clone(),
            }));
        }
        drop(done);
        let results: Vec<Result<Generator, String>> = results.iter().take(count).collect();
        let errors: Vec<&String> =
            results.iter().filter_map(|result| result.as_ref().err()).collect();
        if let Some(error) = errors.iter().find(|error| ***error != INTERRUPTED).or(errors.first())
        {
            return Err((*error).clone());
        }
        if results.len() < count {
            return Err("the array stopped while it was measured".into());
        }
        Ok(Outcome::of(&results.into_iter().flatten().collect::<Vec<_>>()))
    }

    /// Stops it.
    ///
    /// # Errors
    /// If its superblocks could not say clean.
    pub(crate) fn stop(self) -> Result<(), String> {
        if self.0.stop() { Ok(()) } else { Err("the array could not be stopped cleanly".into()) }
    }
}

/// One thread of a load, on a shard's thread.
struct Session {
    /// None once it is over.
    generator: Option<Generator>,
    memory: Vec<Memory>,
    began: Instant,
    wake: Option<Instant>,
    stop: Arc<Stop>,
    failed: Arc<Stop>,
    done: Sender<Result<Generator, String>>,
}

impl Session {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Begins what can be begun.
    fn pump(&mut self, cx: &mut Context<'_>) {
        let now = self.now();
        if self.stop.is_set() || self.failed.is_set() {
            return self.end(cx, Some(INTERRUPTED.into()));
        }
        loop {
            let Some(generator) = &mut self.generator else { return };
            match generator.next(now) {
                Step::Do(request) => self.begin(cx, &request, now),
                Step::WaitUntil(until) => {
                    let until = self.began + Duration::from_nanos(until);
                    self.wake = Some(until.min(Instant::now() + LOOK));
                    return;
                }
                Step::Wait => {
                    self.wake = Some(Instant::now() + LOOK);
                    return;
                }
                Step::Done => return self.end(cx, None),
            }
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>, request: &Request, now: u64) {
        let memory = self.memory[request.slot as usize];
        let Some(generator) = &mut self.generator else { return };
        // SAFETY: allocated with a block's length; the slot was free until now.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(memory.start, generator.block() as usize) };
        generator.fill(request, bytes);
        let kind = match request.kind {
            recorder::Kind::Read => Kind::Read(memory),
            recorder::Kind::Write => {
                Kind::Write { memory, fua: false, followed: generator.has_more(now) }
            }
            recorder::Kind::Flush => Kind::Flush,
        };
        cx.request(request.slot.into(), kind, request.offset, request.len);
    }

    fn end(&mut self, cx: &mut Context<'_>, why: Option<String>) {
        self.wake = None;
        let Some(generator) = self.generator.take() else { return };
        let result = match why {
            Some(why) => {
                self.failed.set();
                Err(why)
            }
            None => {
                self.memory.drain(..).for_each(|memory| cx.free(memory));
                Ok(generator)
            }
        };
        // Whoever waits for it may have gone.
        let _ = self.done.send(result);
        cx.close();
    }
}

impl Client for Session {
    fn start(&mut self, cx: &mut Context<'_>) {
        let Some(generator) = &self.generator else { return };
        let (depth, block) = (generator.depth(), generator.block() as usize);
        for slot in 0..depth {
            let Some(memory) = cx.alloc(block) else {
                let why = format!("no memory for {depth} requests of {block} bytes");
                return self.end(cx, Some(why));
            };
            // SAFETY: just allocated, with this length.
            fill(unsafe { std::slice::from_raw_parts_mut(memory.start, block) }, slot.into());
            self.memory.push(memory);
        }
        self.pump(cx);
    }

    fn handle_io(&mut self, _: &mut Context<'_>, _: u32, _: i32) {}

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        let now = self.now();
        let memory = self.memory.get(id as usize).copied();
        let (Some(generator), Some(memory)) = (&mut self.generator, memory) else { return };
        // SAFETY: its request has ended.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start, generator.block() as usize) };
        let result = result.map_err(|error| error.to_string());
        match generator.complete(id as u32, result, bytes, now) {
            Ok(()) => self.pump(cx),
            Err(why) => self.end(cx, Some(why)),
        }
    }

    fn handle_replies_end(&mut self, _: &mut Context<'_>) {}

    fn handle_time(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
    }

    fn deadline(&self) -> Option<Instant> {
        self.wake
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        self.end(cx, Some("the array stops".into()));
    }
}
