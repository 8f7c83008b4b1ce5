//! One client that writes without a pause.

use lapstrake_host::{Array, Client, Context, Kind, Memory, RequestError};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// 1 MiB in order, four at a time.
    Sequential,
    /// 4 KiB anywhere, 32 at a time.
    Random,
}

impl Load {
    fn block(self) -> u64 {
        if self == Self::Sequential { 1 << 20 } else { 4096 }
    }

    fn depth(self) -> u64 {
        if self == Self::Sequential { 4 } else { 32 }
    }
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// A second.
    pub bytes: f64,
    /// Bitmap pages written in a thousand requests.
    pub pages: f64,
}

struct Driver {
    load: Load,
    blocks: u64,
    next: u64,
    running: u64,
    memory: Vec<Memory>,
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    gone: Sender<()>,
}

impl Driver {
    fn send(&mut self, cx: &mut Context<'_>, slot: u64) {
        if self.stop.load(Ordering::Relaxed) {
            if self.running == 0 {
                cx.close();
            }
            return;
        }
        let block = self.load.block();
        let followed = self.load == Load::Sequential;
        let kind = Kind::Write { memory: self.memory[slot as usize], fua: false, followed };
        self.running += 1;
        cx.request(slot, kind, self.next % self.blocks * block, block);
        self.next = match self.load {
            Load::Sequential => self.next + 1,
            // MMIX's generator; its upper half is random enough.
            Load::Random => {
                let state = self.next.wrapping_mul(6_364_136_223_846_793_005);
                state.wrapping_add(1_442_695_040_888_963_407).rotate_left(32)
            }
        };
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Nobody may be waiting any more.
        let _ = self.gone.send(());
    }
}

impl Client for Driver {
    fn start(&mut self, cx: &mut Context<'_>) {
        let (depth, block) = (self.load.depth(), self.load.block() as usize);
        self.memory = (0..depth).filter_map(|_| cx.alloc(block)).collect();
        assert_eq!(self.memory.len() as u64, depth, "memory for all requests");
        (0..depth).for_each(|slot| self.send(cx, slot));
    }

    fn handle_io(&mut self, _: &mut Context<'_>, _: u32, _: i32) {}

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        result.expect("no member fails here");
        self.running -= 1;
        self.done.fetch_add(1, Ordering::Relaxed);
        self.send(cx, id);
    }

    fn handle_replies_end(&mut self, _: &mut Context<'_>) {}

    fn handle_time(&mut self, _: &mut Context<'_>) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn shut_down(&mut self, cx: &mut Context<'_>) {
        cx.close();
    }
}

/// Writes for so long, from the first request on.
pub(crate) fn drive(array: &Array, load: Load, time: Duration) -> Rate {
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (gone, left) = mpsc::channel();
    let began = Instant::now();
    array.handle().welcome(Box::new(Driver {
        load,
        blocks: array.bytes() / load.block(),
        next: 0,
        running: 0,
        memory: Vec::new(),
        done: done.clone(),
        stop: stop.clone(),
        gone,
    }));
    std::thread::sleep(time);
    let (requests, elapsed) = (done.load(Ordering::Relaxed), began.elapsed());
    let detail = array.handle().detail().expect("it runs");
    stop.store(true, Ordering::Relaxed);
    left.recv().expect("the client ends");
    Rate {
        bytes: (requests * load.block()) as f64 / elapsed.as_secs_f64(),
        pages: detail.work.bitmap_writes as f64 * 1e3 / requests.max(1) as f64,
    }
}
