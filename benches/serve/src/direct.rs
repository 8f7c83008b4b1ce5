//! An array driven in process, beside fio's io_uring on the same member files together.

use crate::{
    Plan,
    arrays::{Kind, Place, make},
    fio::{STREAMS, run},
    report::{Pairs, Report},
};
use lapstrake_host::{Array, Client, Context, Kind as Request, OpenRequest, Options, RequestError};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

const BLOCK: u64 = 1 << 20;
/// Requests in flight of each shard's driver: as many as a span has at most. Chosen for RAID5's writes, which live from
/// what is still in the caches (docs/decisions.md has more and less); fio has four on each of four files.
const DEPTH: u64 = 3;

/// Reads or writes the array in order, over and over: of one stream those requests whose place its shard owns.
struct Driver {
    write: bool,
    end: u64,
    at: u64,
    running: u64,
    memory: Vec<lapstrake_host::Memory>,
    moved: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    gone: Sender<()>,
}

impl Driver {
    fn next(&mut self, cx: &mut Context<'_>, slot: u64) {
        if self.stop.load(Ordering::Relaxed) {
            if self.running == 0 {
                cx.close();
            }
            return;
        }
        let memory = self.memory[slot as usize];
        let kind = match self.write {
            // There is always another one to come.
            true => Request::Write { memory, fua: false, followed: true },
            false => Request::Read(memory),
        };
        let own = |at| cx.owned(at).filter(|bytes| bytes.start + BLOCK <= self.end);
        // One that owns nothing, before the first deal or for want of spans, asks for what another owns.
        let bytes = own(self.at).or_else(|| own(0)).unwrap_or(0..BLOCK);
        assert!(bytes.start + BLOCK <= bytes.end, "spans are whole blocks");
        let at = bytes.start;
        self.at = at + BLOCK;
        self.running += 1;
        cx.request(slot, kind, at, BLOCK);
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
        self.memory = (0..DEPTH).filter_map(|_| cx.alloc(BLOCK as usize)).collect();
        (0..DEPTH).for_each(|slot| self.next(cx, slot));
    }

    fn handle_io(&mut self, _: &mut Context<'_>, _: u32, _: i32) {}

    fn handle_reply(&mut self, cx: &mut Context<'_>, id: u64, result: Result<(), RequestError>) {
        result.expect("no member fails here");
        self.running -= 1;
        self.moved.fetch_add(BLOCK, Ordering::Relaxed);
        self.next(cx, id);
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

/// Bytes of data a second, one driver on each shard.
fn drive(array: &Array, write: bool, time: Duration) -> f64 {
    let shards = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (moved, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (gone, left) = mpsc::channel();
    for _ in 0..shards {
        array.handle().welcome(Box::new(Driver {
            write,
            end: array.bytes(),
            at: 0,
            running: 0,
            memory: Vec::new(),
            moved: moved.clone(),
            stop: stop.clone(),
            gone: gone.clone(),
        }));
    }
    // The dealing of spans has settled when data moves.
    while moved.load(Ordering::Relaxed) < 64 * BLOCK {
        std::thread::yield_now();
    }
    let (began, before) = (Instant::now(), moved.load(Ordering::Relaxed));
    std::thread::sleep(time);
    let rate = (moved.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for _ in 0..shards {
        left.recv().expect("drivers end");
    }
    rate
}

/// Bytes of members, parity counted, that all cores together can make a RAID5's parity for in a second, from
/// buffers like those of the drivers and in pieces like the engine's.
fn parity_rate(data: usize, time: Duration) -> f64 {
    const PIECE: usize = 128 << 10;
    let pass = || {
        let sources = vec![1u8; (DEPTH * BLOCK) as usize];
        let mut parity = vec![0u8; PIECE];
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < time {
            for stripe in sources.chunks_exact(data * PIECE) {
                let blocks: Vec<&[u8]> = stripe.chunks(PIECE).collect();
                lapstrake_parity::kernels().xor(&mut parity, &blocks);
                done += (data + 1) * PIECE;
            }
        }
        done as f64 / began.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..shards).map(|_| scope.spawn(pass)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    })
}

/// Sequential 1 MiB writes and reads. A RAID5's writes also beside fio with the parity pass added, which
/// takes the cores that copy to a file in memory.
pub(crate) fn compare(
    plan: &Plan,
    place: &Place,
    kind: Kind,
    gate: Option<f64>,
    report: &mut Report,
) {
    let files = make(place, kind, plan.member_mib);
    let names: Vec<String> = files.members.iter().map(|m| m.display().to_string()).collect();
    for load in &STREAMS {
        let write = load.rw == "write";
        let per_byte = if write { kind.written_per_byte() } else { 1.0 };
        let mut pairs = Pairs::default();
        let mut with_parity = Pairs::default();
        for _ in 0..plan.rounds {
            let members = names.iter().map(|m| m.parse().expect("a member")).collect();
            let request = OpenRequest { members, ..OpenRequest::default() };
            let opened = lapstrake_host::open(&request).expect("the array opens");
            let array = Array::start(opened.parts, &Options::default()).expect("the array starts");
            pairs.ours.push(drive(&array, write, plan.time) * per_byte / 1e6);
            assert!(array.stop(), "the array was left active");
            // Past the superblocks, so that the next round finds its array.
            let mut more = vec!["--ioengine=io_uring".into(), "--direct=1".into()];
            more.push("--offset=16M".into());
            more.push(format!("--size={}M", plan.member_mib - 16));
            more.push("--thread".into());
            for (i, name) in names.iter().enumerate() {
                if i > 0 {
                    more.push("--name=more".into());
                    more.extend(fio_job(load.rw, load.block, load.depth, plan));
                }
                more.push(format!("--filename={name}"));
            }
            let peer = run(load, plan.time, &more).bytes;
            pairs.peer.push(peer / 1e6);
            if write && kind == Kind::Raid5Of4 {
                let parity = parity_rate(names.len() - 1, plan.time / 4);
                with_parity.ours.extend(pairs.ours.last());
                with_parity.peer.push(1.0 / (1.0 / peer + 1.0 / parity) / 1e6);
            }
        }
        let what = format!("in process, {}, {} {} in order", place.name, kind.name(), load.rw);
        report.add(&what, "MB/s", &pairs, gate);
        if !with_parity.ours.is_empty() {
            report.add(&format!("{what}, fio + parity"), "MB/s", &with_parity, None);
        }
    }
}

/// A further job of the same kind: fio's options do not carry over.
fn fio_job(rw: &str, block: &str, depth: u32, plan: &Plan) -> Vec<String> {
    let size = plan.member_mib - 16;
    [
        format!("--rw={rw}"),
        format!("--bs={block}"),
        format!("--iodepth={depth}"),
        format!("--runtime={}ms", plan.time.as_millis()),
        format!("--size={size}M"),
        "--time_based".into(),
        "--ioengine=io_uring".into(),
        "--direct=1".into(),
        "--offset=16M".into(),
        "--thread".into(),
        "--group_reporting".into(),
        "--fallocate=none".into(),
    ]
    .into()
}
