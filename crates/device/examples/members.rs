//! How fast a queue drives one member, beside fio's io_uring engine on the same file, in turns.
//!
//! `cargo run --release -p lapstrake-device --example members -- DIR...`: 4 KiB random at depth 32 and
//! 1 MiB sequential at depth 4, reads and writes. Each cell is the median of the rounds, with its range;
//! `us/op` is processor time (all threads of the process, user and system) per operation.

use lapstrake_device::{Access, Backend, IoVec, Member, MemberSpec, Op, Pool, Queue};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 1 << 30;
const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(2);

struct Load {
    name: &'static str,
    fio: &'static str,
    block: usize,
    depth: usize,
    random: bool,
    write: bool,
}

const LOADS: [Load; 4] = [
    Load {
        name: "4K read QD32",
        fio: "randread",
        block: 4096,
        depth: 32,
        random: true,
        write: false,
    },
    Load {
        name: "4K write QD32",
        fio: "randwrite",
        block: 4096,
        depth: 32,
        random: true,
        write: true,
    },
    Load {
        name: "1M read QD4",
        fio: "read",
        block: 1 << 20,
        depth: 4,
        random: false,
        write: false,
    },
    Load {
        name: "1M write QD4",
        fio: "write",
        block: 1 << 20,
        depth: 4,
        random: false,
        write: true,
    },
];

#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    cpu_us: f64,
}

fn main() {
    let places: Vec<String> = std::env::args().skip(1).collect();
    for place in places {
        let path = Path::new(&place).join("lapstrake-members-example");
        fill(&path);
        for load in &LOADS {
            let mut rows = [
                ("queue, io_uring", Vec::new()),
                ("queue, threads", Vec::new()),
                ("fio io_uring", Vec::new()),
                ("fio psync", Vec::new()),
            ];
            for _ in 0..ROUNDS {
                rows[0].1.push(ours(&path, load, Backend::IoUring));
                rows[1].1.push(ours(&path, load, Backend::Threads));
                rows[2].1.push(fio(&path, load, "io_uring"));
                rows[3].1.push(fio(&path, load, "psync"));
            }
            for (who, mut rates) in rows {
                rates.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
                let (low, mid, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
                let mb = |rate: Rate| rate.per_second * load.block as f64 / 1e6;
                println!(
                    "{place:10} {:14} {who:16} {:8.0} op/s {:6.0} MB/s ({:.0} to {:.0}) {:7.2} us/op",
                    load.name,
                    mid.per_second,
                    mb(mid),
                    mb(low),
                    mb(high),
                    mid.cpu_us
                );
            }
        }
        std::fs::remove_file(&path).expect("remove the file");
    }
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("create the file");
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i ^ (i >> 8)) as u8).collect();
    (0..FILE_LEN >> 20).for_each(|_| file.write_all(&block).expect("fill the file"));
    file.sync_all().expect("sync the file");
}

fn ours(path: &Path, load: &Load, backend: Backend) -> Rate {
    let member = Member::open(&MemberSpec::whole(path), Access::ReadWrite).expect("open");
    let mut pool = Pool::new(load.depth * load.block, false).expect("pool");
    let mut queue = Queue::new([Arc::new(member)], backend, 64).expect("queue");
    let buffers: Vec<IoVec> = (0..load.depth)
        .map(|_| {
            let buf = pool.alloc(load.block).expect("the pool is as large as all buffers");
            IoVec::new(pool.ptr(buf), load.block)
        })
        .collect();
    let blocks = FILE_LEN / load.block as u64;
    let (mut at, mut seed, mut count) = (0u64, 1u64, 0u64);
    let mut submit = |queue: &mut Queue, token: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        at = if load.random { (seed >> 33) % blocks } else { (at + 1) % blocks };
        let (member, offset) = (0, at * load.block as u64);
        let iov = &buffers[token as usize..=token as usize];
        let op = if load.write {
            Op::Write { member, offset, iov, fua: false }
        } else {
            Op::Read { member, offset, iov }
        };
        // SAFETY: the pool outlives the queue.
        unsafe { queue.submit(token, op) };
    };
    let (start, cpu) = (Instant::now(), cpu_seconds(libc::RUSAGE_SELF));
    (0..load.depth as u64).for_each(|token| submit(&mut queue, token));
    let mut done = Vec::new();
    while start.elapsed() < TIME {
        queue.wait(&mut done, None).expect("wait");
        for completion in done.drain(..) {
            assert_eq!(completion.result, load.block as i32);
            count += 1;
            submit(&mut queue, completion.token);
        }
    }
    rate(count, start, cpu_seconds(libc::RUSAGE_SELF) - cpu)
}

fn fio(path: &Path, load: &Load, engine: &str) -> Rate {
    let cpu = cpu_seconds(libc::RUSAGE_CHILDREN);
    let out = Command::new("fio")
        .args(["--name=m", "--direct=1", "--time_based", "--minimal", "--thread"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--rw={}", load.fio))
        .arg(format!("--bs={}", load.block))
        .arg(format!("--iodepth={}", load.depth))
        .arg(format!("--runtime={}", TIME.as_secs()))
        .output()
        .expect("run fio");
    let text = String::from_utf8_lossy(&out.stdout);
    // Terse output, version 3: field 8 is the read IOPS, 49 the write IOPS (fio(1)).
    let field = if load.write { 48 } else { 7 };
    let line = text.lines().find(|line| line.starts_with("3;")).expect("fio's terse line");
    let per_second: f64 = line.split(';').nth(field).and_then(|f| f.parse().ok()).expect("IOPS");
    let cpu = cpu_seconds(libc::RUSAGE_CHILDREN) - cpu;
    let count = per_second * TIME.as_secs_f64();
    Rate { per_second, cpu_us: cpu * 1e6 / count }
}

fn rate(count: u64, start: Instant, cpu: f64) -> Rate {
    let per_second = count as f64 / start.elapsed().as_secs_f64();
    Rate { per_second, cpu_us: cpu * 1e6 / count as f64 }
}

fn cpu_seconds(who: libc::c_int) -> f64 {
    // SAFETY: all-zero is a valid value, which the call overwrites.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
