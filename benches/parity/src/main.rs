//! The parity kernels beside Intel ISA-L, in one process, interleaved.
//!
//! `lapstrake-bench-parity [--gate]`. A round runs ours and the peer one after the
//! other, the order changing from round to round; the ratio is that of a round's two speeds. The
//! table shows medians over the rounds, with the lowest and highest ratio. The clock is the thread's CPU time. With `--gate` the exit
//! code is 1 when the median of a ratio misses its gate.
//!
//! Hot: one stripe, used again and again (a stripe of 512 KiB blocks is larger than many L2
//! caches). Cold: stripes of an arena of 2 GiB, each met once in a round of the arena.

mod arena;
mod isal;

use std::process::ExitCode;

use lapstrake_parity::{Kernels, kernels, recovery};

use crate::arena::{Arena, Stripe, cold_stripes};

/// How much data a hot measurement takes in: a fraction of a millisecond's worth in cache.
const HOT_BYTES: usize = 16 << 20;
/// Many short rounds, so that both contenders of a round meet the machine in the same mood.
const ROUNDS: usize = 61;

#[derive(Clone, Copy, PartialEq)]
enum Op {
    Xor,
    Pq,
    TwoData,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Xor => "xor",
            Op::Pq => "p+q",
            Op::TwoData => "2 data",
        }
    }

    /// The least ratio of speeds, ours to the peer's.
    fn gate(self, hot: bool) -> f64 {
        match (self, hot) {
            (Op::Xor, _) => 0.95,
            (Op::Pq, true) => 1.2,
            (Op::Pq, false) => 1.0,
            (Op::TwoData, true) => 1.5,
            (Op::TwoData, false) => 1.1,
        }
    }
}

/// One line of the table.
struct Case {
    op: Op,
    k: usize,
    block: usize,
    hot: bool,
    rows: [Vec<u8>; 2],
    decode: isal::Decode,
}

impl Case {
    fn new(op: Op, k: usize, block: usize, hot: bool) -> Case {
        // The two lost blocks; which they are makes no difference to the speed.
        let (x, y) = (0, k / 2);
        let exps: Vec<u8> = (0..k as u8).collect();
        let mut rows = [vec![0; k], vec![0; k]];
        let [x_row, y_row] = &mut rows;
        recovery::recover_two_data(&exps, x, y, x_row, y_row);
        Case { op, k, block, hot, rows, decode: isal::Decode::new(k, x, y) }
    }

    fn ours(&self, set: &Kernels, stripe: &mut Stripe) {
        let (sources, [a, b]) = stripe.slices();
        match self.op {
            Op::Xor => set.xor(a, sources),
            Op::Pq => set.pq(a, b, sources),
            Op::TwoData => {
                let [x_row, y_row] = &self.rows;
                set.mul(&mut [a, b], &[x_row, y_row], sources)
            }
        }
    }

    fn peers(&self, stripe: &mut Stripe) {
        let (blocks, k) = (stripe.pointers(), self.k);
        // SAFETY: the stripe's blocks are of this length, page-aligned, and its outputs are free.
        unsafe {
            match self.op {
                Op::Xor => isal::xor(self.block, &blocks[..k + 1]),
                Op::Pq => isal::pq(self.block, blocks),
                Op::TwoData => self.decode.run(self.block, blocks),
            }
        }
    }

    /// Both make the same bytes.
    fn verify(&self, set: &Kernels, arena: &mut Arena) {
        let mut stripe = arena.hot(self.k, self.block);
        self.ours(set, &mut stripe);
        let made = stripe.slices().1.map(|o| o.to_vec());
        stripe.slices().1.into_iter().for_each(|o| o.fill(0x5a));
        self.peers(&mut stripe);
        let outputs = if self.op == Op::Xor { 1 } else { 2 };
        assert!(made.iter().zip(stripe.slices().1).take(outputs).all(|(m, o)| m == o));
    }

    /// GB of data in per second.
    fn speed(&self, arena: &mut Arena, mut work: impl FnMut(&Case, &mut Stripe)) -> f64 {
        let (stripes, seconds);
        if self.hot {
            let mut stripe = arena.hot(self.k, self.block);
            work(self, &mut stripe);
            stripes = HOT_BYTES / (self.k * self.block);
            let start = cpu_seconds();
            (0..stripes).for_each(|_| work(self, &mut stripe));
            seconds = cpu_seconds() - start;
        } else {
            stripes = cold_stripes(self.k, self.block);
            let cold = arena.cold(self.k, self.block);
            let start = cpu_seconds();
            cold.for_each(|mut stripe| work(self, &mut stripe));
            seconds = cpu_seconds() - start;
        }
        (stripes * self.k * self.block) as f64 / seconds / 1e9
    }

    /// Prints the line and tells whether the gate was met.
    fn measure(&self, set: &Kernels, arena: &mut Arena) -> bool {
        self.verify(set, arena);
        let ours = |case: &Case, stripe: &mut Stripe| case.ours(set, stripe);
        let peers = |case: &Case, stripe: &mut Stripe| case.peers(stripe);
        let (mut our, mut peer) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                our.push(self.speed(arena, ours));
                peer.push(self.speed(arena, peers));
            } else {
                peer.push(self.speed(arena, peers));
                our.push(self.speed(arena, ours));
            }
        }
        let ratios = sorted(our.iter().zip(&peer).map(|(o, p)| o / p).collect());
        let ratio = ratios[ROUNDS / 2];
        let gate = self.op.gate(self.hot);
        println!(
            "{:<6} {:>2} {:>4} KiB {:<4} {:>6.1} {:>6.1} {:>6.2} ({:.2}..{:.2}) {:>5.2} {}",
            self.op.name(),
            self.k,
            self.block >> 10,
            if self.hot { "hot" } else { "cold" },
            sorted(our)[ROUNDS / 2],
            sorted(peer)[ROUNDS / 2],
            ratio,
            ratios[0],
            ratios[ROUNDS - 1],
            gate,
            if ratio >= gate { "pass" } else { "FAIL" },
        );
        ratio >= gate
    }
}

/// CPU time of this thread, so that work of others on the machine does not count as ours.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a clock that Linux always has, and room for its answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "no clock of this thread's CPU time");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let gate = args == ["--gate"];
    if !gate && !args.is_empty() {
        eprintln!("usage: lapstrake-bench-parity [--gate]");
        return ExitCode::from(2);
    }
    let set = kernels();
    let mut arena = Arena::new();
    println!("kernels: {}; GB/s of data in, one thread; ratio: median (min..max)", set.name());
    println!("op      k    block state  ours  ISA-L  ratio               gate");
    let mut missed = 0;
    for op in [Op::Xor, Op::Pq, Op::TwoData] {
        for hot in [true, false] {
            for block in [4 << 10, 64 << 10, 512 << 10] {
                for k in [4, 8, 10] {
                    let case = Case::new(op, k, block, hot);
                    missed += usize::from(!case.measure(set, &mut arena));
                }
            }
        }
    }
    println!("{missed} of 54 medians miss their gate");
    ExitCode::from(u8::from(gate && missed > 0))
}
